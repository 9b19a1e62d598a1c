"""Columns with a domain in expressions of a row: the value that SQL sees of what is stored."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction

from dpsql.rows import expression as row
from dpsql.rows.types import row_type
from dpsql.schema.domain import Domain, Value
from dpsql.schema.numbers import FLOATS
from dpsql.schema.sequences import DecimalRange


def read_type(domain: Domain) -> str:
    """Return the type that a column of a domain is read with."""
    if domain.type == "ENUM":
        return "VARCHAR"
    return domain.column_type or domain.type


def ends_of(domain: Domain) -> tuple[Fraction, Fraction] | None:
    """Return the least and the largest value of a column that can be added up."""
    ends = domain.values[0], (domain.uppers or domain.values)[-1]
    if isinstance(domain.values[0], (str, bool, date)):
        return None
    low, high = (Fraction(end) for end in ends if isinstance(end, int | float | Decimal))
    return low, high


def within(column: row.RowColumn, domain: Domain, *, enforced: bool) -> row.RowExpression:
    """Return the value that SQL sees of a column with a domain: NULL outside, or the nearer end.

    Of values that are known by ranges it is the value itself, which no cell tells.

    Args:
        column: the column.
        domain: its domain.
        enforced: whether the database sees to it that nothing is outside.
    """
    if enforced:
        return _nearest(column, domain)
    least, most = domain.values[0], (domain.uppers or domain.values)[-1]
    if domain.timed and isinstance(most, date):
        most = datetime.combine(most, time.max)
    ends = [_constant(end) for end in (least, most)]
    if domain.outside == "clamp":
        floats = domain.column_type in FLOATS or domain.type == "DOUBLE"
        return _nearest(clamped(column, *ends, floats=floats), domain)
    if isinstance(domain.values, tuple) and domain.uppers is None:
        inside: row.RowExpression = row.RowCall("in", (column, *map(_constant, domain.values)))
    else:
        inside = row.RowCall("between", (column, *ends))
    other = row.NOTHING if domain.other is None else _constant(domain.other)
    return row.RowCase(((inside, _nearest(column, domain)),), other)


def _nearest(value: row.RowExpression, domain: Domain) -> row.RowExpression:
    """Return the nearest value of a grid that is coarser than the column."""
    values = domain.values
    if not isinstance(values, DecimalRange):
        return value
    type_, step = row_type(read_type(domain)), Fraction(values.step, 10**values.scale)
    if type_.is_exact and step == Fraction(1, 10**type_.scale):
        return value
    low, apart = _constant(values[0]), _decimal(step, values.scale)
    steps = row.RowCall("-", (value, low))
    if step == 1 and type_.is_exact:  # what is divided is a DOUBLE
        return row.RowCall("+", (low, row.RowCall("floor", (_half_more(steps),))))
    steps = row.RowCall("/", (steps, apart))
    nearest = row.RowCall("floor", (_half_more(steps),))
    return row.RowCall("+", (low, row.RowCall("*", (nearest, apart))))


def _half_more(value: row.RowExpression) -> row.RowExpression:
    return row.RowCall("+", (value, row.RowConstant("DECIMAL", "0.5")))


def _decimal(value: Fraction, scale: int) -> row.RowConstant:
    return _constant(Decimal(f"{int(value * 10**scale)}E-{scale}"))


def clamped(
    value: row.RowExpression, low: row.RowConstant, high: row.RowConstant, *, floats: bool = True
) -> row.RowExpression:
    """Bring a value between two others; NULL, which LEAST and GREATEST pass over, stays NULL.

    Of `floats` NaN becomes NULL, which would be the largest of all to LEAST and GREATEST.
    """
    inside = row.RowCall("least", (row.RowCall("greatest", (value, low)), high))
    if floats:
        ends = (row.RowConstant("DOUBLE", "-inf"), row.RowConstant("DOUBLE", "inf"))
        return row.RowCase(((row.RowCall("between", (value, *ends)), inside),), row.NOTHING)
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


def number(value: Fraction) -> row.RowConstant:
    """Write a number as the nearest double."""
    return row.RowConstant("DOUBLE", repr(float(value)))
