"""Quantiles by groups that are drawn: of values that have no cells, on a line of whole numbers.

Where the values of an expression are known and few, a quantile is read off noisy running totals.
Elsewhere it is drawn among all values that the expression can have, with a probability that falls
with the number of rows by which a value misses the quantile (`measurement/quantiles.py`). To be
drawn, values have places on a line: whole numbers in the order of the values. Those of integers are
these themselves, of decimals the number of their last digits, of days and times how many days or
microseconds after 1970 they are, and of floating-point numbers the places of their bits, so that
there are as many between 1 and 2 as between 1,024 and 2,048. Places have 64 bits: larger whole
numbers, and decimals of more digits, count as the largest that fit.

The fewer places there are, the fewer rows it takes to tell a quantile from chance. So numbers are
rounded to single precision, to seven digits, unless their bounds are so near to each other, or so
large, that this would leave few.

In which group a row is, is said as for units by groups (`workload/unit_groups.py`).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.floats import (
    number_at,
    place_of,
    places_of,
    shortest,
    single_number_at,
    single_place_of,
    single_places_of,
)
from dpsql.rel.distinct import ReadValue
from dpsql.rows.types import RowType
from dpsql.workload.unit_groups import UnitGroups

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = tuple((day - _EPOCH.date()).days for day in (date.min, date.max))
_DAY, _MICROSECOND = timedelta(days=1), timedelta(microseconds=1)
_TIMES = tuple(
    (datetime.combine(day, clock, UTC) - _EPOCH) // _MICROSECOND
    for day, clock in ((date.min, datetime.min.time()), (date.max, datetime.max.time()))
)
_LARGEST = single_place_of(sys.float_info.max)
"""The place of the largest number of single precision, some 3.4e38."""
_MANY = 2**20
"""Numbers of single precision between two bounds from which they are fine enough."""
MOST_DIGITS = 18
"""Digits of a DECIMAL whose values fit 64 bits."""
MOST_SCALE = 6
"""Digits after the point of one that has more."""


@dataclass(frozen=True, slots=True)
class ValueLine:
    """The line of whole numbers on which the values of an expression lie, from `low` to `high`.

    Args:
        type: the type of the values.
        low: the place of the least value that can be drawn.
        high: that of the largest.
        single: whether floating-point numbers are rounded to single precision first.
    """

    type: RowType
    low: int
    high: int
    single: bool = False

    @classmethod
    def of(cls, type_: RowType) -> ValueLine | None:
        """Return the line of all values of a type; None if they aren't drawn."""
        if type_.limits is not None:
            least, most = type_.limits
            return cls(type_, max(least, -(2**63)), min(most, 2**63 - 1))
        if type_.name == "DECIMAL":
            if type_.width > MOST_DIGITS and type_.scale > MOST_SCALE:
                return None  # too few digits before the point would fit
            most = 10 ** min(type_.width, MOST_DIGITS) - 1
            return cls(type_, -most, most)
        if type_.is_float:
            return cls(type_, -_LARGEST, _LARGEST, single=True)
        ends = {"DATE": _DAYS, "TIMESTAMP": _TIMES}.get(type_.name)
        return None if ends is None else cls(type_, ends[0], ends[1])

    @property
    def is_possible(self) -> bool:
        """Whether it is a part of the line of all values of its type."""
        whole = ValueLine.of(self.type)
        if self.single and not self.type.is_float:
            return False
        if whole is not None and self.type.is_float and not self.single:
            most = place_of(sys.float_info.max)
            whole = ValueLine(self.type, -most, most)
        return whole is not None and whole.low <= self.low <= self.high <= whole.high

    @property
    def said(self) -> tuple[object, ...]:
        """The words and numbers by which lines are told apart."""
        return self.type.sql, self.low, self.high, *(["single"] if self.single else [])

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest number, of floating-point numbers."""
        low, high = map(single_number_at if self.single else number_at, (self.low, self.high))
        return low, high

    def places_of(self, numbers: Array) -> Ints:
        """Return the places of floating-point numbers, of single precision if the line is so."""
        return single_places_of(numbers) if self.single else places_of(numbers)

    def number_at(self, place: int) -> float:
        """Return the floating-point number at a place, in as few digits as tell it."""
        return shortest(single_number_at(place)) if self.single else number_at(place)

    @property
    def width(self) -> int:
        """The number of values that can be drawn."""
        return self.high - self.low + 1

    def within(self, low: Fraction, high: Fraction) -> ValueLine:
        """Return the line between two ends; what is beyond counts as the nearer one.

        Args:
            low: the least number; of days and times in days after 1970.
            high: the largest.
        """
        if self.type.is_float:
            return self._between(float(low), float(high))
        unit = _DAY // _MICROSECOND if self.type.name == "TIMESTAMP" else 10**self.type.scale
        first, last = math.ceil(low * unit), math.floor(high * unit)
        first = min(max(first, self.low), self.high)
        return replace(self, low=first, high=min(max(last, first), self.high))

    def _between(self, low: float, high: float) -> ValueLine:
        """Return the line of floating-point numbers between two."""
        least, most = single_place_of(low), single_place_of(high)
        if most - least >= _MANY and max(abs(least), abs(most)) < _LARGEST:
            return replace(self, low=least, high=most, single=True)
        first = place_of(low)
        return replace(self, low=first, high=max(first, place_of(high)), single=False)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RankedValues(UnitGroups):
    """The values of an expression by groups, of which a quantile is drawn in each.

    Rows are counted, each in at most `most` groups.
    """

    value: ReadValue
    line: ValueLine
    probability: Fraction
    """The part of the rows that are to be below what is drawn."""

    @property
    def said(self) -> tuple[object, ...]:
        """The rest of what tells such questions apart, besides the groups of cells."""
        line = self.line.said
        return self.count, self.most, self.condition, self.value.known, line, self.probability

    @property
    def kind(self) -> str:
        """The word for what is drawn."""
        return "quantile"
