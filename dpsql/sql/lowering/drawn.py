"""Quantiles that are drawn: which can be, of what, where they stand, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import polars as pl
from sqlglot import exp

from dpsql.errors import InternalError, SqlError
from dpsql.rel.distinct import ReadValue
from dpsql.rel.ranked import RankedValues, ValueLine
from dpsql.rows.types import RowType
from dpsql.schema import Table
from dpsql.sql.binding.core import Linear, Quantile, present
from dpsql.sql.binding.expressions import BoundExpr, render
from dpsql.sql.lowering.measures import RowReader

Place = tuple[str, int, int, int]
"""The place of a statistic in a script: its statement, and the numbers of the table of answers, of
the grouping set and of the column."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, eq=False)
class DrawnQuantile:
    """A quantile by groups that is drawn, in a step of its own.

    Args:
        label: the words that a reader sees for it.
        table: the table.
        values: what is put in order, and in which groups.
        continuous: whether it may lie between two values.
        name: what tells it apart from others of the same table.
        rows: what tells its groups and values apart, whichever quantile of them it is.
    """

    label: str
    table: Table
    values: RankedValues
    continuous: bool
    name: str
    rows: str


@dataclass(frozen=True, slots=True, eq=False)
class DrawnValues:
    """The values of a quantile that were drawn.

    Args:
        line: where the values lie.
        places: their places there, one for each group, in C order.
        rows: in how few rows of a group nothing but chance decides what is drawn.
    """

    line: ValueLine
    places: tuple[int, ...]
    rows: float


def values_at(line: ValueLine, places: Sequence[int], *, continuous: bool) -> pl.Series:
    """Return the values at some places of a line.

    Args:
        line: the line.
        places: places on it.
        continuous: whether numbers are DOUBLE whatever they were, as they may lie between values.
    """
    type_ = line.type
    if type_.is_float:
        return pl.Series([line.number_at(place) for place in places], dtype=pl.Float64)
    if type_.name == "DATE":
        days = [_EPOCH.date() + timedelta(days=place) for place in places]
        return pl.Series(days, dtype=pl.Date)
    if type_.name == "TIMESTAMP":
        times = [_EPOCH + timedelta(microseconds=place) for place in places]
        return pl.Series([at.replace(tzinfo=None) for at in times], dtype=pl.Datetime("us"))
    if continuous:
        numbers = [float(Fraction(place, 10**type_.scale)) for place in places]
        return pl.Series(numbers, dtype=pl.Float64)
    if type_.name == "DECIMAL":
        exact = [Decimal(place).scaleb(-type_.scale) for place in places]
        return pl.Series(exact, dtype=pl.Decimal(type_.width, type_.scale))
    return pl.Series(places, dtype=pl.Int64)


def ends_of(line: ValueLine, *, continuous: bool) -> pl.Series:
    """Return the least and the largest value of a line."""
    return values_at(line, [line.low, line.high], continuous=continuous)


# ── Which quantiles can be drawn ─────────────────────────────────────────────────────────────────


def counted_of(quantile: Quantile, reader: RowReader) -> Linear | None:
    """Return the count of rows that have a value, if quantiles of that can be drawn.

    Values of a domain that are stored as others can't be, which SQL sees as the nearest of it.

    Args:
        quantile: the quantile.
        reader: reads what is computed of rows.
    """
    value = quantile.value if quantile.stored is None else quantile.stored
    type_ = _drawn_type(value, reader)
    if type_ is None or reader.reads_moved(value):
        return None
    if quantile.all_rows and not reader.is_always_there(value):
        return None
    there = present(value)
    if not type_.is_float:
        node = exp.Not(this=exp.Is(this=exp.Paren(this=value.node), expression=exp.Null()))
        there = replace(value, node=node, sql=render(node))
    return Linear(f"COUNT of {quantile.label}", filters=(*quantile.filters, there))


def probability_of(quantile: Quantile) -> Fraction:
    """Return the probability, of nine digits: a row of a billion more or less can't be told."""
    return Fraction(str(quantile.probability)).limit_denominator(10**9)


def ranked_of(quantile: Quantile, reader: RowReader) -> tuple[ReadValue, ValueLine]:
    """Return how a value is read by which rows are put in order, and the line of its values.

    Raises:
        InternalError: it isn't drawn.
    """
    read = reader.read_value(quantile.value)
    line = ValueLine.of(read.value.type)
    if line is None:
        raise InternalError("values that aren't drawn are put in order")
    low, high = reader.between([reader.expression(quantile.value)])
    return read, line if low is None or high is None else line.within(low, high)


def _drawn_type(value: BoundExpr, reader: RowReader) -> RowType | None:
    """Return the type of an expression whose quantiles can be drawn; None if they can't."""
    if value.relations or value.node.find(exp.Query) is not None:
        return None
    with suppress(SqlError):
        type_ = reader.type_of(value)
        return None if ValueLine.of(type_) is None else type_
    return None
