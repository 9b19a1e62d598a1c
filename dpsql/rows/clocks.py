"""Instants in expressions of rows: what a clock shows at them, in UTC or in a declared zone.

A TIMESTAMP WITH TIME ZONE is an instant. How much time lies between two of them, and which is the
earlier one, doesn't depend on where one is: there both are what a clock shows in UTC. On which day
an instant falls, and at what time, does: there it is what the clock shows in the zone that the
owner declares, and where none is declared, that is refused.

Borders of hours are counted by the clock of UTC, too. In zones that are half an hour from it they
lie elsewhere, so that what is declared to be in one goes by its own clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.expression import (
    RowCall,
    RowCase,
    RowColumn,
    RowConstant,
    RowExpression,
    replaced,
)
from dpsql.rows.functions import of_shapes
from dpsql.rows.times import word

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
        found = tuple(part for part in shown if part is not None)
        if asked and len(found) == len(asked):
            return RowCall(node.function, (*node.arguments[: -len(asked)], *found))
    return replaced(node, lambda part: with_clocks(part, zones))


def _in_utc(node: RowExpression, zones: Mapping[str, str | None]) -> RowExpression | None:
    """Return an instant as the clock of UTC shows it; None if it is something else."""
    if isinstance(node, RowColumn):
        return _clock(node, _UTC) if node.name in zones else None
    if isinstance(node, RowConstant):
        return node if node.kind == "NULL" else None
    if isinstance(node, RowCall) and node.function in _CHOICES:
        parts = [_in_utc(part, zones) for part in node.arguments]
        found = tuple(part for part in parts if part is not None)
        return RowCall(node.function, found) if len(found) == len(parts) else None
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
