"""Quantiles that are drawn: of what, where they stand, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import polars as pl

from dpsql.linalg.floats import number_at
from dpsql.rel.ranked import RankedValues, ValueLine
from dpsql.schema import Table

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
    """

    label: str
    table: Table
    values: RankedValues
    continuous: bool
    name: str


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
        return pl.Series([number_at(place) for place in places], dtype=pl.Float64)
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
