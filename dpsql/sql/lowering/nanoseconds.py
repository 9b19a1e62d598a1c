"""Times in nanoseconds, which DuckDB rounds to microseconds for some functions.

There is no `day` of a TIMESTAMP_NS, so DuckDB casts it: of 23:59:59.9999999 it gives the day after.
Of `date_part('day', t)` and EXTRACT it gives that of the time itself. Where rows are read, both are
one function, so the cast is written before.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.schema.names import folded
from dpsql.sql.binding.expressions import Expr, rebuild

_ROUNDING = (exp.DateTrunc, exp.TimestampTrunc, exp.Year, exp.Quarter, exp.Month, exp.Day,
             exp.DayOfMonth, exp.DayOfYear, exp.DayOfWeek, exp.DayOfWeekIso, exp.Week,
             exp.WeekOfYear, exp.Dayname, exp.Monthname)  # fmt: skip
_ROUNDING_NAMES = frozenset(
    {"weekday", "yearweek", "isoyear", "decade", "century", "millennium", "era"}
)
"""Functions that have no class of their own there."""


def is_rounded(place: Expr) -> bool:
    """Whether DuckDB rounds the nanoseconds of a column where it stands."""
    parent = place.parent
    if isinstance(parent, exp.Cast):
        return parent.to.is_type(exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)
    return parent is not None and _rounded(parent) is place


def with_rounded_times(node: Expr, is_nanoseconds: Callable[[str], bool]) -> Expr:
    """Write the cast to TIMESTAMP where DuckDB adds it.

    Args:
        node: an expression.
        is_nanoseconds: whether the column of a name is a TIMESTAMP_NS.
    """

    def change(part: Expr) -> Expr:
        time, made = _rounded(part), rebuild(part, change)
        if time is None or not any(is_nanoseconds(c.name) for c in time.find_all(exp.Column)):
            return made
        value = _rounded(made)
        if value is not None:
            value.replace(exp.cast(value.copy(), "TIMESTAMP"))
        return made

    return change(node)


def _rounded(node: Expr) -> Expr | None:
    """Return the time that a function rounds if it has nanoseconds; None of anything else."""
    if isinstance(node, exp.Anonymous) and folded(node.name) in _ROUNDING_NAMES:
        (time,) = node.expressions if len(node.expressions) == 1 else (None,)
        return time
    return node.this if isinstance(node, _ROUNDING) else None
