"""Counts of units by groups: what a unit adds is 0 or 1 in each of them. Trusted.

A unit that is in s of n groups adds a vector h of s ones and n − s zeros to the counts of units,
whatever rows it has. So what it changes is bounded as a whole, and not row by row; and as h is
never negative, measurements that take off some of the total of all groups change by less than the
counts do. A workload of all groups alike has its best strategy among these, see
`planner.mechanisms.units`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.linalg.matrices import Exchangeable, StructuredMatrix
from dpsql.measurement.factors import WIDE_BITS, IntegerFactor


class UnitFactor(IntegerFactor):
    """B = a·I − b·J over n groups, of which a unit is in m at most: 1 <= a, 0 <= b, 1 <= m <= n.

    A record is a unit here, whatever `contributions` say of rows.

    *What a unit changes.* It adds h in {0, 1}^n with s <= m ones. For a whole number s, each entry
    of Bh is a − bs in the s groups and −bs in the others, so that

        ‖Bh‖² = s(a − bs)² + (n − s)(bs)² = a²s − (2ab − nb²)s² ,
        ‖Bh‖₁ = s|a − bs| + (n − s)bs .

    Both are known by s alone, and there is an h for each s <= m: the largest of each over
    s = 0, …, m is exact, neither more nor less than what a unit can do.

    *Which s is the worst.* Let c = 2ab − nb². If c <= 0, ‖Bh‖² does not fall with s, and s = m.
    Else it is a concave function of a real s that is largest at s* = a²/2c: a whole number on
    either side of s*, or m, if that is less. And ‖Bh‖₁ is (a + nb)s − 2bs² up to s = a/b, concave,
    largest at (a + nb)/4b; from a/b on it is (nb − a)s, linear, so that it is largest at an end of
    that stretch. So a few whole numbers are looked at, and the largest of all is among them: on
    each stretch the largest is at an end of it, or next to the peak if that is inside.
    """

    kind = b"units"

    def __init__(
        self, axes: tuple[int, ...], shape: tuple[int, ...], own: int, all_: int, most: int
    ) -> None:
        super().__init__(axes, shape)
        if len(axes) != 1 or len(shape) != 1 or shape[0] < 1:
            raise InternalError("counts of units have one axis of groups")
        if any(type(number) is not int for number in (own, all_, most)):
            raise InternalError("a strategy for counts of units is of whole numbers")
        if not (1 <= own < 1 << WIDE_BITS and 0 <= all_ < 1 << WIDE_BITS):
            raise InternalError("an entry of a strategy for counts of units is out of range")
        if not 1 <= most <= shape[0]:
            raise InternalError("a unit is in one group at least, and in no more than there are")
        self._own, self._all, self._most = own, all_, most

    @property
    def own(self) -> int:
        """How often a group's own count is taken: a."""
        return self._own

    @property
    def all(self) -> int:
        """How often the total of all groups is taken off: b."""
        return self._all

    @property
    def most(self) -> int:
        """In how many groups a unit is at most: m."""
        return self._most

    @property
    def groups(self) -> int:
        """How many there are: n."""
        return self.shape[0]

    @property
    def matrix(self) -> NDArray[np.int64]:
        """The measurements, written out."""
        written = self._own * np.eye(self.groups, dtype=np.int64) - self._all
        written.setflags(write=False)
        return written

    @property
    def real(self) -> StructuredMatrix:
        """The same matrix: its eigenvalues are a across the ones and a − nb along them."""
        along = self._own - self.groups * self._all
        return Exchangeable(self.groups, float(self._own), float(along))

    @property
    def measurements(self) -> int:
        """One for each group."""
        return self.groups

    @property
    def largest_entry(self) -> int:
        """The larger magnitude of the two entries that a column has."""
        return max(abs(self._own - self._all), self._all)

    @property
    def largest_column_norm_squared(self) -> int:
        """The largest ‖Bh‖² of a unit, exact; of its columns, if a unit is in one group."""
        bent = 2 * self._own * self._all - self.groups * self._all**2
        peak = self._own**2 // (2 * bent) if bent > 0 else self._most
        found = (self._own**2 * s - bent * s**2 for s in self._counts(peak))
        return max(found)

    @property
    def stretch_squared(self) -> int:
        """The largest ‖Bh‖², too: a unit is a record, whatever rows it has."""
        return self.largest_column_norm_squared

    @property
    def largest_column_sum(self) -> int:
        """The largest ‖Bh‖₁ of a unit, exact."""
        if not self._all:
            return self._own * self._most
        turn = self._own // self._all
        peak = (self._own + self.groups * self._all) // (4 * self._all)
        return max(map(self._sum, self._counts(peak, turn)))

    @property
    def largest_row_sum(self) -> int:
        """The sum of the magnitudes that all rows have."""
        return abs(self._own - self._all) + (self.groups - 1) * self._all

    def _counts(self, *near: int) -> set[int]:
        """Return m, and the whole numbers at some places and after them, up to m."""
        return {self._most, *(min(s, self._most) for at in near for s in (at, at + 1))}

    def _sum(self, s: int) -> int:
        """Return ‖Bh‖₁ of a unit in s groups."""
        total = self._all * s
        return s * abs(self._own - total) + (self.groups - s) * total

    @property
    def content(self) -> bytes:
        """The kind, the size and the three numbers."""
        return b"%s %d %d %d %d" % (self.kind, self.groups, self._own, self._all, self._most)

    def apply(self, counts: NDArray[Any], axis: int) -> NDArray[Any]:
        """Take a times each cell less b times the sum of all; exactly, for Python's integers."""
        if not self._all:
            return np.asarray(self._own * counts)
        total = counts.sum(axis=axis, keepdims=True)
        return np.asarray(self._own * counts - self._all * total)
