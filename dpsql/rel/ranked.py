"""Quantiles by groups that are drawn: of values that have no cells, on a line of whole numbers.

Where the values of an expression are known and few, a quantile is read off noisy running totals.
Elsewhere it is drawn among all values that the expression can have, with a probability that falls
with the number of rows by which a value misses the quantile (`measurement/quantiles.py`). To be
drawn, values have places on a line: whole numbers in the order of the values. Those of integers are
these themselves, of decimals the number of their last digits, of days and times how many days or
microseconds after 1970 they are, and of floating-point numbers the places of their bits, so that
there are as many between 1 and 2 as between 1,024 and 2,048. Places have 64 bits: larger whole
numbers, and decimals of more digits, count as the largest that fit.

In which group a row is, is said as for units by groups (`workload/unit_groups.py`).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

from dpsql.linalg.floats import place_of
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
    """

    type: RowType
    low: int
    high: int

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
            return cls(type_, place_of(-sys.float_info.max), place_of(sys.float_info.max))
        ends = {"DATE": _DAYS, "TIMESTAMP": _TIMES}.get(type_.name)
        return None if ends is None else cls(type_, *ends)

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
            first, last = place_of(float(low)), place_of(float(high))
        else:
            unit = _DAY // _MICROSECOND if self.type.name == "TIMESTAMP" else 10**self.type.scale
            first, last = math.ceil(low * unit), math.floor(high * unit)
        first = min(max(first, self.low), self.high)
        return replace(self, low=first, high=min(max(last, first), self.high))


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
        line = self.line.type.sql, self.line.low, self.line.high
        return self.count, self.most, self.condition, self.value.known, line, self.probability

    @property
    def kind(self) -> str:
        """The word for what is drawn."""
        return "quantile"
