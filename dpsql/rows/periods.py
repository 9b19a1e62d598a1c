"""Calendar periods: in which of them an expression of a time can have one value only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.expression import (
    RowCall,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
    parts,
)
from dpsql.rows.times import word
from dpsql.rows.types import DATE

_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_SPANS = {
    "minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}  # fmt: skip
_OF_PARTS = {
    **dict.fromkeys(("year", "decade", "century", "millennium", "era"), "year"),
    **dict.fromkeys(("isoyear", "yearweek", "week"), "week"),
    **dict.fromkeys(("day", "dayofyear", "dayofweek", "isodow"), "day"),
    "quarter": "quarter", "month": "month", "hour": "hour", "minute": "minute",
}  # fmt: skip
_CYCLES = {
    "month": ("month", "quarter", "monthname"),
    "dayofweek": ("dayofweek", "isodow", "dayname"),
    "hour": ("hour",), "minute": ("minute",), "second": ("second",), "day": ("day",),
}  # fmt: skip
"""A part that comes again and again, and what follows from it."""
_SHOWN = {
    **dict.fromkeys("Yy", "year"), **dict.fromkeys("mbB", "month"),
    **dict.fromkeys("djaAwuUWVG", "day"), **dict.fromkeys("HIp", "hour"), "M": "minute",
}  # fmt: skip
_CYCLES_SHOWN = {
    **dict.fromkeys("mbB", "month"), **dict.fromkeys("aAwu", "dayofweek"),
    **dict.fromkeys("HIp", "hour"), "d": "day", "M": "minute", "S": "second",
}  # fmt: skip
_FORMAT = re.compile(r"%-?(.)|[^%]", re.DOTALL)
_ORDER = ("year", "quarter", "month", "day", "hour", "minute")
"""Periods, of which each begins where the one before does, or within."""


def period_of(node: RowExpression, column: RowColumn) -> str:
    """Return the period within which a function of a time has one value.

    Returns:
        Its name; empty if the node is no such function of the column itself.
    """
    if isinstance(node, RowCast):
        return "day" if node.value == column and node.to == DATE else ""
    if not isinstance(node, RowCall) or node.arguments[-1:] != (column,):
        return _of_shown(node, column)
    if node.function == "dayname":
        return "day"
    if node.function == "monthname":
        return "month"
    if node.function in {"date_part", "date_trunc"}:
        return _OF_PARTS.get(_part(node), "")
    return ""


def cycle_of(node: RowExpression, column: RowColumn) -> str:
    """Return the part of a time that determines a function of it, and comes again and again.

    Returns:
        Its name; empty if there is none.
    """
    found = {_CYCLES_SHOWN.get(letter, "") for letter in _letters(node, column)}
    if found:
        return found.pop() if len(found) == 1 else ""
    if not isinstance(node, RowCall) or node.arguments[-1:] != (column,):
        return ""
    named = _part(node) if node.function == "date_part" else node.function
    return next((cycle for cycle, parts in _CYCLES.items() if named in parts), "")


def starts(period: str, low: datetime, high: datetime) -> Iterator[datetime]:
    """Yield the first moments of periods after a moment, and before another one."""
    midnight = low.replace(hour=0, minute=0, second=0, microsecond=0)
    if period in _MONTHS:
        month = midnight.year * 12 + (midnight.month - 1) // _MONTHS[period] * _MONTHS[period]
        while month // 12 < 10_000:
            found = datetime(month // 12, month % 12 + 1, 1)
            if found >= high:
                return
            if found > low:
                yield found
            month += _MONTHS[period]
        return
    if period == "week":
        midnight -= timedelta(days=midnight.weekday())
    while midnight < high:
        if midnight > low:
            yield midnight
        if midnight > datetime.max - _SPANS[period]:  # the calendar ends in this one
            return
        midnight += _SPANS[period]


def _part(node: RowCall) -> str:
    part = node.arguments[0]
    if not isinstance(part, RowConstant):
        return ""
    try:
        return word(part.text, parts=node.function == "date_part")
    except UnsupportedSqlError:
        return ""


def _of_shown(node: RowExpression, column: RowColumn) -> str:
    found = {_SHOWN.get(letter, "") for letter in _letters(node, column)}
    return "" if "" in found else max(found, key=_ORDER.index, default="")


def _letters(node: RowExpression, column: RowColumn) -> set[str]:
    """Return what strftime shows of a column, by the letters of its format."""
    if not isinstance(node, RowCall) or node.function != "strftime" or node.arguments[0] != column:
        return set()
    shown = node.arguments[1]
    text = shown.text if isinstance(shown, RowConstant) else "%f"
    return {each[1] for each in _FORMAT.finditer(text) if each[1] and each[1] != "%"}


def only_cycle(node: RowExpression, column: RowColumn) -> str:
    """Return the part of a time through which alone an expression looks at it; empty if none."""
    found, pending = set[str](), [node]
    while pending:
        part = pending.pop()
        cycle = cycle_of(part, column)
        if cycle or part == column:
            found.add(cycle)
        else:
            pending += parts(part)
    return found.pop() if len(found) == 1 else ""
