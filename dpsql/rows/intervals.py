"""Constant intervals, by which dates and timestamps are moved: months, days and microseconds.

DuckDB adds the three one after the other. A month is added to the number of the month, and a day
that the new one hasn't becomes its last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from dpsql.schema.names import folded

Interval = tuple[int, int, int]
"""Months, days, microseconds: see `PARTS`."""
PARTS = ("months", "days", "microseconds")
MOST = (12 * 10_000, 366 * 10_000, 366 * 10_000 * 86_400_000_000)
"""By how much a time is moved at most: ten thousand years."""
UNITS: dict[str, Interval] = {
    "microsecond": (0, 0, 1), "millisecond": (0, 0, 1_000), "second": (0, 0, 1_000_000),
    "minute": (0, 0, 60_000_000), "hour": (0, 0, 3_600_000_000), "day": (0, 1, 0),
    "week": (0, 7, 0), "month": (1, 0, 0), "quarter": (3, 0, 0), "year": (12, 0, 0),
    "decade": (120, 0, 0),
}  # fmt: skip
"""Unit of time → one of it."""
_SPELLED = re.compile(r"\s*(-?[0-9]{1,9})\s+([A-Za-z]+?)s?\b\s*")


def read_interval(tree: Mapping[str, Any]) -> Interval | None:
    """Read a constant interval from DuckDB's syntax tree; None if it is something else."""
    if tree.get("class") == "CAST" and tree["type_expr"].get("type_name") == "INTERVAL":
        return _spelled(tree["child"])
    name = folded(str(tree.get("function_name", "")))
    if tree.get("class") != "FUNCTION" or len(tree["arguments"]) != 1:
        return None
    unit = UNITS.get(name.removeprefix("to_").removesuffix("s"))
    if not name.startswith("to_") or unit is None:
        return None
    argument = tree["arguments"][0]
    number = _number(argument.get("expression", argument))
    return None if number is None else _times(unit, number)


def as_interval(text: str) -> Interval | None:
    """Read how an interval is written in an expression of rows; None if it isn't one."""
    found = re.fullmatch(r"(-?[0-9]{1,19}) (-?[0-9]{1,19}) (-?[0-9]{1,19})", text)
    if found is None:
        return None
    months, days, rest = (int(part) for part in found.groups())
    small = all(abs(part) <= most for part, most in zip((months, days, rest), MOST, strict=True))
    return (months, days, rest) if small else None


def _number(tree: Mapping[str, Any]) -> Decimal | None:
    """Read the constant that an interval has so many units of; whole, but for seconds.

    A cast rounds, unless it is to a DOUBLE or of a whole number.
    """
    whole = rounds = False
    while tree.get("class") in {"CAST", "FUNCTION"}:
        if tree["class"] == "CAST":
            rounds = rounds or tree["type_expr"].get("type_name") != "DOUBLE"
            tree = tree["child"]
        elif str(tree["function_name"]) == "trunc" and len(tree["arguments"]) == 1:
            whole, rounds, argument = True, False, tree["arguments"][0]
            tree = argument.get("expression", argument)
        else:
            return None
    if tree.get("class") != "CONSTANT":
        return None
    try:
        found = Decimal(str(tree["literal"].get("text") or ""))
    except InvalidOperation:
        return None
    if not found.is_finite() or abs(found) > 10**15 or (rounds and found != int(found)):
        return None
    return Decimal(int(found)) if whole else found


def _times(unit: Interval, number: Decimal) -> Interval | None:
    parts = [part * number for part in unit]
    if any(part != int(part) for part in parts):
        return None
    months, days, rest = (int(part) for part in parts)
    return months, days, rest


def _spelled(tree: Mapping[str, Any]) -> Interval | None:
    """Read an interval that is written as text: '1 day 2 hours'."""
    if tree.get("class") != "CONSTANT":
        return None
    text, total, place = str(tree["literal"].get("text") or ""), [0, 0, 0], 0
    while place < len(text):
        found = _SPELLED.match(text, place)
        unit = None if found is None else UNITS.get(folded(found[2]))
        if found is None or unit is None:
            return None
        total = [a + int(found[1]) * b for a, b in zip(total, unit, strict=True)]
        place = found.end()
    return (total[0], total[1], total[2]) if text.strip() else None
