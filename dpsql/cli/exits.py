"""Exit codes, and what is printed of an error."""

from __future__ import annotations

import json
from enum import IntEnum

import click

from dpsql.errors import (
    AccuracyError,
    BudgetError,
    DpsqlError,
    ExecutionError,
    LedgerError,
    ReleaseFormatError,
    SchemaError,
    SqlError,
    printable,
)
from dpsql.hints import for_command


class Exit(IntEnum):
    """The meanings of a command's exit codes, for scripts."""

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
    ACCURACY = 10
    """A plan loses accuracy that it need not: it was printed with a warning, or not charged."""
    INTERRUPTED = 130


_CODES: tuple[tuple[type[BaseException], Exit], ...] = (
    (SqlError, Exit.SQL),  # before SchemaError: some are both, and then the SQL is to be mended
    (SchemaError, Exit.SCHEMA),
    (BudgetError, Exit.BUDGET),
    (LedgerError, Exit.LEDGER),
    (ReleaseFormatError, Exit.RELEASE),
    (ExecutionError, Exit.EXECUTION),
    (AccuracyError, Exit.ACCURACY),
    (DpsqlError, Exit.OTHER),
    (click.UsageError, Exit.USAGE),
    (click.Abort, Exit.INTERRUPTED),
    (KeyboardInterrupt, Exit.INTERRUPTED),
)


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
    hint, span = getattr(error, "hint", None), getattr(error, "span", None)
    return {
        "error": type(error).__name__,
        "message": _message(error),
        "hint": None if hint is None else for_command(hint),
        "sql": getattr(error, "sql", None),
        "span": None if span is None else list(span),
        "statement": getattr(error, "statement", None),
    }


def _message(error: BaseException) -> str:
    if isinstance(error, DpsqlError):
        return error.message
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return "interrupted. What was charged is in the ledger: dpsql ledger --db FILE"
    return f"unexpected: {type(error).__name__}: {error}"
