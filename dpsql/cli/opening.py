"""Databases, sessions and scripts, opened as the options say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dpsql.cli.options import DatabaseOptions, Rows, is_sql
from dpsql.engines.interrupts import interruptible
from dpsql.request import PlanOptions, TableOptions, part

if TYPE_CHECKING:
    from decimal import Decimal

    from dpsql.engines.source import DraftedSource
    from dpsql.planner.comparison import Comparison
    from dpsql.planner.plans.plan import Plan
    from dpsql.privacy import Budget
    from dpsql.request import SessionCompareOptions, SessionOptions, SessionPlanOptions
    from dpsql.schema import Schema
    from dpsql.session import Session


@contextmanager
def data(db: Rows) -> Iterator[DraftedSource]:
    """Open a DuckDB file for reading, or files of rows; Ctrl-C ends what runs on it.

    Raises:
        SchemaError: it can't be opened.
    """
    from dpsql.engines import opened_files

    source = opened_files(db)
    try:
        with interruptible(source):
            yield source
    finally:
        source.close()


def account_of(db: Rows) -> Path:
    """Return the file or the folder that the account of some data is beside.

    Raises:
        SchemaError: it can't be opened.
    """
    from dpsql.engines import is_database

    if isinstance(db, str) and is_database(db):
        return Path(db)  # another process may have it open
    with data(db) as source:
        return cast(Path, source.identity().file)  # what commands ask is in files


@contextmanager
def session(
    source: DatabaseOptions, *, total: Budget | None = None, key_delta: Decimal | None = None
) -> Iterator[Session]:
    """Open a database and its ledger.

    Raises:
        DpsqlError: see `dpsql.Session`.
    """
    from dpsql.session import Session

    with data(source.db) as opened:
        yield Session(opened, budget=total, key_delta=key_delta, **declared(source))


def declared(source: DatabaseOptions) -> SessionOptions:
    """Return what is declared about a database, with its schema file read.

    Raises:
        SchemaError: it can't be read.
    """
    options = source.declared.copy()
    if "schema" in options:
        options["schema"] = schema_file(cast(Path, options["schema"]))
    return options


def schema_file(path: Path | None) -> Schema | None:
    """Read a schema file, if there is one.

    Raises:
        SchemaError: it can't be read.
    """
    from dpsql.schema import Schema

    return None if path is None else Schema.load(path)


def plan(
    source: DatabaseOptions,
    statements: dict[str, str],
    budget: Budget | None,
    asked: SessionPlanOptions,
) -> Plan:
    """Plan statements as a release would.

    If there is an account, the plan rests on what was measured before; if there is none, none
    is made.

    Raises:
        DpsqlError: see `dpsql.Session.plan`.
    """
    from dpsql import api
    from dpsql.privacy import is_begun

    if is_begun(account_of(source.db), source.declared.get("ledger")):
        with session(source) as opened:
            return opened.plan(statements, budget=budget, **asked)
    alone = part({**declared(source), **asked}, PlanOptions)
    with data(source.db) as rows:
        return api.plan(rows, statements, budget=budget, **alone)


def compare(
    source: DatabaseOptions,
    statements: dict[str, str],
    budget: Budget,
    asked: SessionCompareOptions,
) -> Comparison:
    """Plan statements by several mechanisms, side by side. An account, if any, is not touched.

    Raises:
        DpsqlError: see `dpsql.compare`.
    """
    from dpsql import api

    tables = part(declared(source), TableOptions)
    with data(source.db) as rows:
        return api.compare(rows, statements, budget=budget, **tables, **asked)


def script(path: str) -> dict[str, str]:
    """Read the statements of a script, of a folder of scripts, or of SQL; `-` is standard input.

    Raises:
        SqlError: it can't be split into statements.
        OSError: the file can't be read.
    """
    from dpsql.sql.text.script import read_script_at, read_text, split_script

    if is_sql(path):
        return dict(split_script(path))
    if path == "-":
        return dict(split_script(read_text(sys.stdin.buffer)))
    return dict(read_script_at(Path(path)))


def statement(text: str) -> str:
    """Return SQL as it was given; `-` reads it from standard input."""
    from dpsql.sql.text.script import read_text

    return read_text(sys.stdin.buffer) if text == "-" else text
