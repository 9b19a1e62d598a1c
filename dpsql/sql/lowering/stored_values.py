"""Columns with a domain in expressions of a row: the value that SQL sees of what is stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction

from sqlglot import exp

from dpsql.rows import expression as row
from dpsql.rows.expression import exact_number
from dpsql.rows.known import days_of
from dpsql.rows.types import DATE, FLOAT, NANOSECONDS, NANOSECONDS_ENDS
from dpsql.schema.domain import INTEGER_TYPES, Domain, Value, first_and_last
from dpsql.schema.names import folded
from dpsql.schema.sequences import FLOATS
from dpsql.sql.binding.expressions import Expr, rebuild, render
from dpsql.sql.sandbox.database import Sandbox


def read_type(domain: Domain) -> str:
    """Return the type that a column of a domain is read with."""
    if domain.type == "ENUM":
        return "VARCHAR"
    return domain.column_type or domain.type


def ends_of(domain: Domain) -> tuple[Fraction, Fraction] | None:
    """Return the least and the largest value of a column of numbers or times, as a number."""
    ends = first_and_last(domain)
    if isinstance(domain.values[0], (str, bool)):
        return None
    if isinstance(ends[0], date) and isinstance(ends[1], date):
        first, last = (days_of(str(end)) for end in ends)
        if first is None or last is None:
            return None
        return first, last + 1 if domain.timed else last
    low, high = (Fraction(end) for end in ends if isinstance(end, int | float | Decimal))
    return low, high


def within(
    column: row.RowExpression,
    domain: Domain,
    *,
    enforced: bool,
    counted: bool,
    shown: row.RowExpression | None = None,
) -> row.RowExpression:
    """Return the value that SQL sees of a column with a domain: NULL outside, or the nearer end.

    Of values that are known by ranges, or to the nearest of a grid, it is the value itself, which
    no cell tells. A condition is on the value itself also where others count as the ends of the
    domain, or as one label.

    Args:
        column: the column.
        domain: its domain.
        enforced: whether the database sees to it that nothing is outside.
        counted: whether the value counts, and isn't what a condition is about.
        shown: of an instant, what the clock of the declared zone shows, which is in the domain; it
            is the column itself unless that is an instant by another clock.
    """
    if shown is not None and shown != column and domain.outside == "clamp":
        return column  # of which the ends are on another clock
    if enforced:
        return column
    if domain.outside == "clamp":
        return _at_nearer_end(column, domain, counted=counted)
    if domain.other is not None and not counted:
        return column
    seen = shown or column
    if isinstance(domain.values, tuple) and domain.uppers is None:
        days = row.RowCast(seen, DATE) if domain.timed else seen  # at whatever time of the day
        inside = row.RowCall("in", (days, *map(_constant, domain.values)))
    else:
        inside = row.RowCall("between", (seen, *_ends(domain)))
    if domain.other is None:
        return row.RowCase(((inside, column),), row.NOTHING)
    missing = row.RowCall("is_null", (column,))  # which isn't outside
    return row.RowCase(((missing, row.NOTHING), (inside, column)), _constant(domain.other))


def _at_nearer_end(
    column: row.RowExpression, domain: Domain, *, counted: bool
) -> row.RowExpression:
    """Return the value that SQL sees of a clamped column; NaN is none of numbers, so it is NULL."""
    floats = domain.column_type in FLOATS or domain.type == "DOUBLE"
    if not counted:
        return _number(column) if floats else column
    low, high = _ends(domain)
    if domain.column_type == "FLOAT":  # a DOUBLE is divided otherwise
        return clamped(column, row.RowCast(low, FLOAT), row.RowCast(high, FLOAT))
    return clamped(column, low, high, floats=floats)


def _ends(domain: Domain) -> tuple[row.RowConstant, row.RowConstant]:
    """Return the least and the largest stored value of a domain, in the column's own type."""
    least, most = first_and_last(domain)
    if domain.timed and isinstance(most, date):
        most = datetime.combine(most, time.max)
    if domain.column_type == NANOSECONDS.name:
        least, most = _in_nanoseconds(least), _in_nanoseconds(most)
    if domain.column_type in INTEGER_TYPES:  # beside a DECIMAL an integer is another number to //
        least, most = (int(end) if isinstance(end, Decimal) else end for end in (least, most))
    return _constant(least), _constant(most)


def _in_nanoseconds(end: Value) -> Value:
    """Bring an end of a domain to where nanoseconds of 64 bits have an end: no value is beyond."""
    if not isinstance(end, date):
        return end
    moment = end if isinstance(end, datetime) else datetime.combine(end, time.min)
    return min(max(moment, NANOSECONDS_ENDS[0]), NANOSECONDS_ENDS[1])


def _number(value: row.RowExpression) -> row.RowExpression:
    """Make NULL of NaN, as a domain does that is clamped."""
    return row.RowCase(((_is_number(value), value),), row.NOTHING)


def _is_number(value: row.RowExpression) -> row.RowExpression:
    """Ask whether a float is neither NULL nor NaN."""
    ends = (row.RowConstant("DOUBLE", "-inf"), row.RowConstant("DOUBLE", "inf"))
    return row.RowCall("between", (value, *ends))


def _between(
    value: row.RowExpression, low: row.RowExpression, high: row.RowExpression
) -> row.RowExpression:
    """Bring a value that isn't NULL between two others."""
    return row.RowCall("least", (row.RowCall("greatest", (value, low)), high))


def clamped(
    value: row.RowExpression,
    low: row.RowExpression,
    high: row.RowExpression,
    *,
    floats: bool = True,
) -> row.RowExpression:
    """Bring a value between two others; NULL, which LEAST and GREATEST pass over, stays NULL.

    Of `floats` NaN becomes NULL, which would be the largest of all to LEAST and GREATEST.
    """
    inside = _between(value, low, high)
    if floats:
        return row.RowCase(((_is_number(value), inside),), row.NOTHING)
    return row.RowCase(((row.RowCall("is_null", (value,)), row.NOTHING),), inside)


def _constant(value: Value) -> row.RowConstant:
    """Write a value of a domain."""
    if isinstance(value, bool):
        return row.RowConstant("BOOLEAN", "true" if value else "false")
    if isinstance(value, str):
        return row.RowConstant("VARCHAR", value)
    if isinstance(value, datetime):
        return row.RowConstant("TIMESTAMP", value.isoformat(" "))
    if isinstance(value, date):
        return row.RowConstant("DATE", value.isoformat())
    if isinstance(value, float):
        return row.RowConstant("DOUBLE", repr(value))
    if isinstance(value, Decimal):
        return row.RowConstant("DECIMAL", f"{value:f}" if "." in f"{value:f}" else f"{value:f}.")
    return row.RowConstant("INTEGER", str(value))


def filled(
    value: row.RowExpression, ends: tuple[Fraction, Fraction], *, floats: bool
) -> row.RowExpression:
    """Put 0 where there is no value, or NaN; and bring others between two ends.

    That they are brought between some numbers says, by its form, that each row has a number.

    Args:
        value: a number of a row.
        ends: the least and the largest.
        floats: whether it may be NaN; the ends are the nearest doubles then, and else decimals.
    """
    low, high, zero = map(number if floats else exact_number, (*ends, Fraction(0)))
    is_null = row.RowCall("is_null", (value,))
    there = _is_number(value) if floats else row.RowCall("not", (is_null,))
    return row.RowCase(((there, _between(value, low, high)),), zero)


def number(value: Fraction) -> row.RowConstant:
    """Write a number as the nearest double."""
    return row.RowConstant("DOUBLE", repr(float(value)))


# ── Times in nanoseconds, which DuckDB rounds to microseconds for some functions ─────────────────
#
# There is no `day` of a TIMESTAMP_NS, so DuckDB casts it: of 23:59:59.9999999 it gives the day
# after. Of `date_part('day', t)` and EXTRACT it gives that of the time itself. Where rows are read,
# both are one function, so the cast is written before.


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


# ── Dates and moments that depend on no row, in expressions of rows ──────────────────────────────
#
#     l_receiptdate < DATE '1994-01-01' + INTERVAL '1' YEAR
#     l_receiptdate >= make_date(1994, 1, 1)
#
# DuckDB computes them beforehand, among public things: so there is a constant where the private
# rows are, and no functions of the calendar have to run there.


def with_moments(node: Expr, sandbox: Sandbox) -> str:
    """Write an expression with constants in place of the dates and moments that are computed.

    Raises:
        SandboxError: DuckDB can't compute one.
    """

    def change(part: Expr) -> Expr:
        if _is_moment(part):
            moment = sandbox.frame(f"SELECT {render(part)} AS v")["v"][0]
            if isinstance(moment, datetime) and moment.tzinfo is None:
                return exp.cast(exp.Literal.string(moment.isoformat(" ")), "TIMESTAMP")
            if isinstance(moment, date) and not isinstance(moment, datetime):
                return exp.cast(exp.Literal.string(moment.isoformat()), "DATE")
        return rebuild(part, change)

    return render(change(node)) if any(_is_moment(part) for part in node.walk()) else render(node)


_COMPUTED = (exp.Add, exp.Sub, exp.Func)


def _is_moment(part: Expr) -> bool:
    """Whether something is computed of constants that may be a date or a moment."""
    if not isinstance(part, _COMPUTED) or isinstance(part, (exp.Connector, exp.Cast, exp.Case)):
        return False
    return part.find(exp.Column, exp.Query) is None
