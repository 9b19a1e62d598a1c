"""Exit codes, and what is printed of an error."""

from __future__ import annotations

import json
import re
from enum import IntEnum

import click

from dpsql.errors import (
    BudgetError,
    DpsqlError,
    ExecutionError,
    LedgerError,
    ReleaseFormatError,
    SchemaError,
    SqlError,
    printable,
)


class Exit(IntEnum):
    """What a command's exit code says to scripts."""

    OK = 0
    UNEXPECTED = 1
    """A mistake of dpsql itself, or of the system."""
    USAGE = 2
    SQL = 3
    SCHEMA = 4
    BUDGET = 5
    LEDGER = 6
    RELEASE = 7
    """A release folder can't be read or written."""
    EXECUTION = 8
    """Something failed after the charge, which stands."""
    OTHER = 9
    """Too large, a malformed workload, a mechanism that doesn't apply, or no random bits."""
    INTERRUPTED = 130


_CODES: tuple[tuple[type[BaseException], Exit], ...] = (
    (SqlError, Exit.SQL),  # before SchemaError: some are both, and then the SQL is to be mended
    (SchemaError, Exit.SCHEMA),
    (BudgetError, Exit.BUDGET),
    (LedgerError, Exit.LEDGER),
    (ReleaseFormatError, Exit.RELEASE),
    (ExecutionError, Exit.EXECUTION),
    (DpsqlError, Exit.OTHER),
    (click.UsageError, Exit.USAGE),
    (click.Abort, Exit.INTERRUPTED),
    (KeyboardInterrupt, Exit.INTERRUPTED),
)

_NUMBER = r"([0-9.]+(?:e[+-]?[0-9]+)?)"
_BUDGET = r"(?:budget=)?dpsql\.Budget"
_PYTHON = {
    rf"{_BUDGET}\(epsilon={_NUMBER}, delta={_NUMBER}\)": r"--epsilon \1 --delta \2",
    rf"{_BUDGET}\(rho={_NUMBER}\)": r"--rho \1",
    rf"{_BUDGET}\(mu={_NUMBER}\)": r"--mu \1",
    r"accept_schema=True": "--accept-schema",
    r"leave ledger= out": "leave --ledger out",
    r'session\.release\(…, mechanism="([a-z+]+)"\)': r"dpsql release --mechanism \1",
    r"leave mechanism= out": "leave --mechanism out",
    r"leave nonnegative= and integers= out": "leave --nonnegative and --integers out",
    r"leave confidence= out": "leave --confidence out",
    r"leave objective= out": "leave --objective out",
    r'mechanism="([a-z+]+)"': r"--mechanism \1",
    r'unit="([^"]+)", max_rows=([0-9]+)': r"--unit \1 --max-rows \2",
    r"pass schema=dpsql\.Schema\(.*\)": "declare it in a --schema file (dpsql schema --toml)",
}
"""Hints are written for Python; this is how they are typed here."""


def exit_of(error: BaseException) -> Exit:
    """Return the exit code for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.UNEXPECTED)


def describe(error: BaseException, *, as_json: bool) -> str:
    """Word an error for the terminal, or as one JSON object."""
    facts = _facts(error)
    if as_json:
        return json.dumps(facts)
    if isinstance(error, DpsqlError):
        text = str(error)
        if error.hint is not None:
            text = text.removesuffix(error.hint) + str(facts["hint"])
    else:
        text = str(facts["message"])
    return "\n".join(printable(line) for line in f"Error: {text}".split("\n"))


def _facts(error: BaseException) -> dict[str, object]:
    """Return what is known of an error, in types that JSON has."""
    facts: dict[str, object] = {
        "error": type(error).__name__,
        "message": _message(error),
        "hint": None,
        "sql": None,
        "span": None,
    }
    if isinstance(error, DpsqlError) and error.hint is not None:
        facts["hint"] = as_options(error.hint)
    if isinstance(error, SqlError):
        facts["sql"] = error.sql
        facts["span"] = None if error.span is None else list(error.span)
        facts["statement"] = error.statement
    return facts


def _message(error: BaseException) -> str:
    if isinstance(error, DpsqlError):
        return error.message
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return "interrupted. What was charged is in the ledger: dpsql ledger --db FILE"
    return f"unexpected: {type(error).__name__}: {error}"


def as_options(hint: str) -> str:
    """Write a hint's Python as the options of a command."""
    for pattern, option in _PYTHON.items():
        hint = re.sub(pattern, option, hint)
    return hint
