"""Times in expressions of rows: words for parts and units, constants, intervals, and clocks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from dpsql.errors import UnsupportedSqlError, printable
from dpsql.rows.expression import RowCall, RowCase, RowColumn, RowConstant, RowExpression, replaced
from dpsql.rows.functions import of_shapes
from dpsql.rows.types import BIGINT, DATE, DOUBLE, RowType
from dpsql.schema.names import folded

PARTS: dict[str, tuple[int, int] | None] = {
    "year": None, "isoyear": None, "decade": None, "century": None, "millennium": None,
    "yearweek": None, "era": (0, 1), "quarter": (1, 4), "month": (1, 12), "week": (1, 53),
    "dayofyear": (1, 366), "day": (1, 31), "dayofweek": (0, 6), "isodow": (1, 7),
    "hour": (0, 23), "minute": (0, 59), "second": (0, 59), "millisecond": (0, 59_999),
    "microsecond": (0, 59_999_999), "julian": None, "epoch": None,
}  # fmt: skip
"""Parts of a time, and the least and the largest value."""

_UNITS = """
    microsecond millisecond second minute hour day week month quarter year decade century millennium
"""
UNITS = frozenset(_UNITS.split())
"""Units that `date_trunc` cuts to, and `date_diff` counts."""

ALIASES = {
    "year": "year", "years": "year", "yr": "year", "y": "year", "yrs": "year",
    "month": "month", "months": "month", "mon": "month", "mons": "month",
    "day": "day", "days": "day", "d": "day", "dayofmonth": "day",
    "hour": "hour", "hours": "hour", "hr": "hour", "hrs": "hour", "h": "hour",
    "minute": "minute", "minutes": "minute", "min": "minute", "mins": "minute", "m": "minute",
    "second": "second", "seconds": "second", "sec": "second", "secs": "second", "s": "second",
    "millisecond": "millisecond", "milliseconds": "millisecond", "ms": "millisecond",
    "microsecond": "microsecond", "microseconds": "microsecond", "us": "microsecond",
    "week": "week", "weeks": "week", "w": "week", "weekofyear": "week",
    "quarter": "quarter", "quarters": "quarter", "decade": "decade", "decades": "decade",
    "century": "century", "centuries": "century", "millennium": "millennium",
    "millennia": "millennium", "dayofyear": "dayofyear", "doy": "dayofyear",
    "dayofweek": "dayofweek", "dow": "dayofweek", "weekday": "dayofweek", "isodow": "isodow",
    "isoyear": "isoyear", "yearweek": "yearweek", "era": "era", "epoch": "epoch",
    "julian": "julian",
}  # fmt: skip
"""Words for parts and units as DuckDB takes them."""

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


OF_CLOCKS = frozenset({"hour", "minute", "second", "millisecond", "microsecond", "epoch"})
"""Parts that a TIME has, too."""


def word(text: str, *, parts: bool) -> str:
    """Return the one name of a part or unit of time.

    Raises:
        UnsupportedSqlError: there is none.
    """
    known = frozenset(PARTS) if parts else UNITS
    found = ALIASES.get(folded(text), "")
    if found not in known:
        raise UnsupportedSqlError(
            f"{printable(text)[:60]!r} can't be taken from a time on rows.",
            hint=f"there are {', '.join(sorted(known))}.",
        )
    return found


def part_type(part: str) -> tuple[RowType, tuple[int, int] | None]:
    """Return the type of a part, and between what values it lies."""
    if part in {"epoch", "julian"}:
        return DOUBLE, None
    return BIGINT, PARTS[part] or BIGINT.limits


def meant(text: str, type_: RowType) -> RowConstant:
    """Return the constant that a string stands for beside values of a type.

    Raises:
        UnsupportedSqlError: the string stands for none.
    """
    kinds, spelled = [type_.name], text.strip()
    if type_.is_number:
        kinds = ["INTEGER", "DECIMAL", "DOUBLE"]
    elif type_.is_time:
        kinds = ["DATE", "TIMESTAMP"]
    for kind in kinds:
        try:
            found = RowConstant(kind, spelled if type_.is_time else folded(spelled))
        except UnsupportedSqlError:
            continue
        # Beside a day, DuckDB makes a day of it, and drops the time.
        return RowConstant("DATE", spelled[:10]) if type_ == DATE else found
    raise UnsupportedSqlError(
        f"{printable(text)[:60]!r} is no {type_.sql}, so it can't be compared with rows.",
        hint=f"write a {'TIMESTAMP' if type_.is_time and type_ != DATE else type_.sql}, or cast "
        "what it is compared with to VARCHAR.",
    )


# ── Constant intervals, by which dates and timestamps are moved: months, days and microseconds ───
#
# DuckDB adds the three one after the other. A month is added to the number of the month, and a day
# that the new one hasn't becomes its last.


Span = tuple[int, int, int]
"""Months, days, microseconds: see `COUNTED`."""
LONGEST = (12 * 10_000, 366 * 10_000, 366 * 10_000 * 86_400_000_000)
"""By how much a time is moved at most: ten thousand years."""
LENGTHS: dict[str, Span] = {
    "microsecond": (0, 0, 1), "millisecond": (0, 0, 1_000), "second": (0, 0, 1_000_000),
    "minute": (0, 0, 60_000_000), "hour": (0, 0, 3_600_000_000), "day": (0, 1, 0),
    "week": (0, 7, 0), "month": (1, 0, 0), "quarter": (3, 0, 0), "year": (12, 0, 0),
    "decade": (120, 0, 0),
}  # fmt: skip
"""Unit of time → one of it."""
_SPELLED = re.compile(r"\s*(-?[0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([A-Za-z]+)\b\s*")
_CLOCK = re.compile(r"\s*(-?)([0-9]{1,4}):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]{1,6})?))?\s*")


def read_interval(tree: Mapping[str, Any]) -> Span | None:
    """Read a constant interval from DuckDB's syntax tree; None if it is something else."""
    if tree.get("class") == "CAST" and tree["type_expr"].get("type_name") == "INTERVAL":
        return _spelled(tree["child"])
    name = folded(str(tree.get("function_name", "")))
    if tree.get("class") == "FUNCTION" and name == "*" and len(tree["arguments"]) == 2:
        return _multiple(*(argument.get("expression", argument) for argument in tree["arguments"]))
    if tree.get("class") != "FUNCTION" or len(tree["arguments"]) != 1:
        return None
    unit = LENGTHS.get(name.removeprefix("to_").removesuffix("s"))
    if not name.startswith("to_") or unit is None:
        return None
    argument = tree["arguments"][0]
    number = _number(argument.get("expression", argument))
    return None if number is None else _times(unit, number)


def _multiple(*factors: Mapping[str, Any]) -> Span | None:
    """Read a constant interval times a whole number."""
    spans = [span for span in map(read_interval, factors) if span is not None]
    numbers = [number for number in map(_number, factors) if number is not None]
    if len(spans) != 1 or len(numbers) != 1 or numbers[0] != int(numbers[0]):
        return None
    return _times(spans[0], numbers[0])


def as_interval(text: str) -> Span | None:
    """Read how an interval is written in an expression of rows; None if it isn't one."""
    parts = re.fullmatch(r"(-?[0-9]{1,19}) (-?[0-9]{1,19}) (-?[0-9]{1,19})", text)
    if parts is None:
        return None
    months, days, rest = (int(part) for part in parts.groups())
    small = all(abs(part) <= most for part, most in zip((months, days, rest), LONGEST, strict=True))
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
        number = Decimal(str(tree["literal"].get("text") or ""))
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number) > 10**15 or (rounds and number != int(number)):
        return None
    return Decimal(int(number)) if whole else number


def _times(unit: Span, number: Decimal) -> Span | None:
    parts = [part * number for part in unit]
    if any(part != int(part) for part in parts):
        return None
    months, days, rest = (int(part) for part in parts)
    return months, days, rest


def _spelled(tree: Mapping[str, Any]) -> Span | None:
    """Read an interval that is written as text: '1 day 2 hours'."""
    if tree.get("class") != "CONSTANT":
        return None
    text, total, place = str(tree["literal"].get("text") or ""), (0, 0, 0), 0
    while place < len(text):
        match = _SPELLED.match(text, place) or _CLOCK.match(text, place)
        part = None if match is None else _part(match)
        if match is None or part is None:
            return None
        total = (total[0] + part[0], total[1] + part[1], total[2] + part[2])
        place = match.end()
    return total if text.strip() else None


def _part(match: re.Match[str]) -> Span | None:
    """Return what '3 days' or '02:30:00' is; None if there is no such unit, or no whole part."""
    if match.re is _SPELLED:
        unit = LENGTHS.get(ALIASES.get(folded(match[2]), ""))
        return None if unit is None else _times(unit, Decimal(match[1]))
    sign, hours, minutes, seconds = match.groups(default="0")
    rest = (int(hours) * 60 + int(minutes)) * 60 + Decimal(seconds)
    return 0, 0, int(rest * 1_000_000) * (-1 if sign == "-" else 1)


# ── Instants in expressions of rows: what a clock shows at them, in UTC or in a declared zone ────
#
# A TIMESTAMP WITH TIME ZONE is an instant. How much time lies between two of them, and which is the
# earlier one, doesn't depend on where one is: there both are what a clock shows in UTC. On which
# day an instant falls, and at what time, does: there it is what the clock shows in the zone that
# the owner declares, and where none is declared, that is refused.
#
# Borders of hours are counted by the clock of UTC, too. In zones that are half an hour from it they
# lie elsewhere, so that what is declared to be in one goes by its own clock.


_COMPARED = of_shapes("comparison", "between", "membership", "is_null")
_CHOICES = of_shapes("choice", "nullif", "extreme")
_WITHOUT_ZONE = frozenset({"microsecond", "millisecond", "second", "minute"})
_UTC = "UTC"
_YEARS = range(1970, 2038)


def with_clocks(node: RowExpression, zones: Mapping[str, str | None]) -> RowExpression:
    """Return an expression in which what a clock shows is in place of each instant.

    Args:
        node: the expression.
        zones: column of instants → the zone that is declared for it.

    Raises:
        UnsupportedSqlError: no zone is declared, and one is needed.
    """
    if isinstance(node, RowColumn):
        if node.name not in zones:
            return node
        zone = zones[node.name]
        if zone is None:
            raise UnsupportedSqlError(
                f"The column {node.name} has a time zone, so its day and time depend on the zone "
                "whose clock is read.",
                hint='declare it: Domain.dates("2020-01-01", "2029-12-31", zone="UTC").',
            )
        return _clock(node, zone)
    if isinstance(node, RowCall):
        asked = node.arguments if node.function in _COMPARED else ()
        if node.function == "date_diff" and _needs_no_zone(node, zones):
            asked = node.arguments[1:]
        shown = [_in_utc(part, zones) for part in asked]
        parts = tuple(part for part in shown if part is not None)
        if asked and len(parts) == len(asked):
            return RowCall(node.function, (*node.arguments[: -len(asked)], *parts))
    return replaced(node, lambda part: with_clocks(part, zones))


def _in_utc(node: RowExpression, zones: Mapping[str, str | None]) -> RowExpression | None:
    """Return an instant as the clock of UTC shows it; None if it is something else."""
    if isinstance(node, RowColumn):
        return _clock(node, _UTC) if node.name in zones else None
    if isinstance(node, RowConstant):
        return node if node.kind == "NULL" else None
    if isinstance(node, RowCall) and node.function in _CHOICES:
        parts = [_in_utc(part, zones) for part in node.arguments]
        known = tuple(part for part in parts if part is not None)
        return RowCall(node.function, known) if len(known) == len(parts) else None
    if not isinstance(node, RowCase):
        return None
    otherwise = _in_utc(node.otherwise, zones)
    results = [(holds, _in_utc(result, zones)) for holds, result in node.cases]
    cases = tuple((with_clocks(a, zones), b) for a, b in results if b is not None)
    if otherwise is None or len(cases) < len(results):
        return None
    return RowCase(cases, otherwise)


def _needs_no_zone(node: RowCall, zones: Mapping[str, str | None]) -> bool:
    unit = node.arguments[0]
    if not isinstance(unit, RowConstant):
        return False
    name = word(unit.text, parts=False)
    read = {part.name for part in node.arguments[1:] if isinstance(part, RowColumn)}
    hours = name == "hour" and all(_by_whole_hours(zones.get(column)) for column in read)
    return hours or name in _WITHOUT_ZONE


@cache
def _by_whole_hours(zone: str | None) -> bool:
    """Whether clocks of a zone are whole hours from UTC."""
    if zone is None:
        return True
    clock, hour = ZoneInfo(zone), timedelta(hours=1)
    moments = (datetime(year, month, 1, tzinfo=UTC) for year in _YEARS for month in (1, 4, 7, 10))
    return not any((moment.astimezone(clock).utcoffset() or hour) % hour for moment in moments)


def _clock(column: RowColumn, zone: str) -> RowCall:
    return RowCall("clock", (column, RowConstant("VARCHAR", zone)))
