"""Joined texts: several values of a row as one text, by which they are found together.

`2,3:AA123` is the text of AA and 123: how long each is as a text, and then all of them. A value
that is NULL has no length, as in `2,:AA`. So no two lists of values have one text, whatever signs
they have in them, and a text tells its values. Days are numbers in it, from 1970-01-01 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from dpsql.rows.expression import RowCall, RowCast, RowConstant, RowExpression
from dpsql.rows.types import VARCHAR


def joined(values: Sequence[RowExpression]) -> RowExpression:
    """Return the text of some values of a row; it is never NULL."""
    texts = [RowCast(value, VARCHAR) for value in values]
    lengths = [_or_empty(RowCast(RowCall("length", (text,)), VARCHAR)) for text in texts]
    head = [part for length in lengths for part in (_text(","), length)][1:]
    return _or_empty(reduce(_with, [*head, _text(":"), *map(_or_empty, texts)]))


def parted(text: str, count: int) -> tuple[str | None, ...] | None:
    """Return the texts of the values of a joined text; None if it is no text of so many."""
    head, colon, rest = text.partition(":")
    lengths = head.split(",")
    if not colon or len(lengths) != count:
        return None
    found = list[str | None]()
    for length in lengths:
        if not length:
            found.append(None)
            continue
        if not (length.isascii() and length.isdigit() and len(length) < 6):
            return None
        found.append(rest[: int(length)])
        rest = rest[int(length) :]
    return tuple(found) if joined_text(found) == text else None


def joined_text(values: Sequence[str | None]) -> str:
    """Return the joined text of some values that are texts, or NULL."""
    head = ",".join("" if value is None else str(len(value)) for value in values)
    return f"{head}:{''.join(value or '' for value in values)}"


def part_sql(text: str, number: int) -> str:
    """Write the text of one of the values of a joined text, in SQL of DuckDB.

    Args:
        text: the SQL of the joined text.
        number: which value, from 0.
    """
    head = f"split_part({text}, ':', 1)"
    lengths = [f"TRY_CAST(split_part({head}, ',', {n + 1}) AS BIGINT)" for n in range(number + 1)]
    before = "".join(f" + coalesce({length}, 0)" for length in lengths[:-1])
    return f"substr({text}, length({head}) + 2{before}, {lengths[-1]})"


def _with(before: RowExpression, after: RowExpression) -> RowExpression:
    return RowCall("||", (before, after))


def _text(value: str) -> RowConstant:
    return RowConstant("VARCHAR", value)


def _or_empty(value: RowExpression) -> RowExpression:
    return RowCall("coalesce", (value, _text("")))
