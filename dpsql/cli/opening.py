"""Databases, sessions and scripts, opened as the options say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dpsql.cli.options import DatabaseOptions
from dpsql.engines.interrupts import interruptible
from dpsql.errors import SchemaError, printable
from dpsql.request import PlanOptions, TableOptions, part

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from dpsql.planner.comparison.compare import Comparison
    from dpsql.planner.plans.plan import Plan
    from dpsql.privacy import Budget
    from dpsql.request import SessionCompareOptions, SessionOptions, SessionPlanOptions
    from dpsql.schema import Schema
    from dpsql.session import Session


@contextmanager
def database(path: Path) -> Iterator[DuckDBPyConnection]:
    """Open a DuckDB file for reading; Ctrl-C ends what runs on it.

    Raises:
        SchemaError: it can't be opened.
    """
    import duckdb

    try:
        con = duckdb.connect(path, read_only=True)
    except duckdb.Error:
        raise SchemaError(
            f"The database {printable(str(path))} can't be opened.",
            hint="is it a DuckDB file of this version, and does no other process write to it?",
        ) from None
    try:
        with interruptible(con):
            yield con
    finally:
        con.close()


@contextmanager
def session(source: DatabaseOptions, *, total: Budget | None = None) -> Iterator[Session]:
    """Open a database and its ledger.

    Raises:
        DpsqlError: see `dpsql.Session`.
    """
    from dpsql.session import Session

    with database(source.db) as con:
        yield Session(con, budget=total, **declared(source))


def declared(source: DatabaseOptions) -> SessionOptions:
    """Return what is declared about a database, with its schema file read.

    Raises:
        SchemaError: it can't be read.
    """
    found = source.declared.copy()
    if "schema" in found:
        found["schema"] = schema_file(cast(Path, found["schema"]))
    return found


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

    if is_begun(source.db, source.declared.get("ledger")):
        with session(source) as found:
            return found.plan(statements, budget=budget, **asked)
    alone = part({**declared(source), **asked}, PlanOptions)
    with database(source.db) as con:
        return api.plan(con, statements, budget=budget, **alone)


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
    with database(source.db) as con:
        return api.compare(con, statements, budget=budget, **tables, **asked)


def script(path: str) -> dict[str, str]:
    """Read the statements of a script, or of a folder of scripts; `-` is standard input.

    Raises:
        SqlError: it can't be split into statements.
        OSError: the file can't be read.
    """
    from dpsql.sql.text.folder import read_script_at
    from dpsql.sql.text.script import read_text, split_script

    if path == "-":
        return dict(split_script(read_text(sys.stdin.buffer)))
    return dict(read_script_at(Path(path)))


def statement(text: str) -> str:
    """Return SQL as it was given; `-` reads it from standard input."""
    from dpsql.sql.text.script import read_text

    return read_text(sys.stdin.buffer) if text == "-" else text
