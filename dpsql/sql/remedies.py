"""Remedies: of what a refusal could say to type, the first that is answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

from dpsql.errors import DpsqlError, Span, SqlError, SqlParseError
from dpsql.hints import Hint, RemedyPlace

MOST_TRIES = 16
"""Statements that are compiled for one refusal; each is about as large as what was asked."""
MOST_SECONDS = 0.5
"""CPU seconds after which no further statement is tried: a refusal is to come within a second."""


def first_answered(
    error: SqlError,
    compiles: Callable[[str], object],
    clock: Callable[[], float] = time.process_time,
) -> str | None:
    """Return the hint of an error: the first of its choices that works, or the one for none.

    A statement that can't be read may be refused for something else once it can.

    Nothing is touched by that but what compiling the statement itself looks at: public tables and
    the schema. So a hint says nothing that its reader could not find out by asking.

    Args:
        error: the refusal.
        compiles: compiles a text in place of the statement that is refused.
        clock: the CPU seconds of the process until now.
    """
    hint = error.hint
    if not isinstance(hint, Hint) or error.sql is None:
        return hint
    further: Hint | None = None
    end = clock() + MOST_SECONDS
    for choice in islice(hint.choices, MOST_TRIES):
        text = _typed(error.sql, error.span, choice)
        refused = None if text is None else _refusal(text, compiles)
        if text is not None and refused is None:
            return choice
        well_formed = refused is not None and not isinstance(refused, SqlParseError)
        if further is None and well_formed and isinstance(error, SqlParseError):
            further = choice
        if clock() > end:
            break
    return hint if further is None else further


def _typed(sql: str, marked: Span | None, choice: Hint) -> str | None:
    """Type what a hint says into the statement."""
    remedy = next(iter(choice.remedies), None)
    if remedy is None or remedy.place is not RemedyPlace.MARKED:
        return None
    span = remedy.span or marked
    return None if span is None else sql[: span[0]] + remedy.text + sql[span[1] :]


def _refusal(sql: str, compiles: Callable[[str], object]) -> DpsqlError | None:
    try:
        compiles(sql)
    except DpsqlError as error:
        return error
    return None
