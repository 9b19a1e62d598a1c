"""Sums of values in place of counts, and the rows of one table beside those of others. Trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.linalg.matrices import Exchangeable, StructuredMatrix
from dpsql.measurement.factors import ENTRY_BITS, IntegerFactor


class MeasureFactor(IntegerFactor):
    """The one cell of a measure's axis, in which rows count by their values v, |v| <= M.

    What is multiplied by it is the sum of the values, so its matrix is 1. A record is one row; or,
    where several tables are measured together, all that a unit has in them: then it adds the values
    of up to `rows` = r rows of one table here, and values of other tables elsewhere. So its norms
    are those of a column (rM): the magnitudes of what a record adds are together no more. M is its
    largest entry: sums over N rows are at most N·M.
    """

    kind = b"measure"

    def __init__(self, axes: tuple[int, ...], bound: int, rows: int = 1) -> None:
        super().__init__(axes, (1,))
        if len(axes) != 1:
            raise InternalError("a measure has one axis")
        if type(bound) is not int or not 1 <= bound < 1 << ENTRY_BITS:
            raise InternalError("the bound of a measure is out of range")
        if type(rows) is not int or rows < 1:
            raise InternalError("a record has a whole number of rows, at least one")
        self._scale, self._rows = bound, rows

    @property
    def bound(self) -> int:
        """M: no row's value is larger in magnitude."""
        return self._scale

    @property
    def change(self) -> int:
        """The magnitudes of what a record adds are together no more: rM."""
        return self._rows * self._scale

    @property
    def matrix(self) -> NDArray[np.int64]:
        """The measurement of the sum itself."""
        written = np.ones((1, 1), dtype=np.int64)
        written.setflags(write=False)
        return written

    @property
    def real(self) -> StructuredMatrix:
        """The same."""
        return Exchangeable(1)

    @property
    def measurements(self) -> int:
        """One."""
        return 1

    @property
    def largest_entry(self) -> int:
        """M, by which a row's answers may be larger than the other factors' entries."""
        return self._scale

    @property
    def largest_column_norm_squared(self) -> int:
        """The square of rM."""
        return self.change**2

    @property
    def stretch_squared(self) -> int:
        """The same square: what is added up has one cell."""
        return self.change**2

    @property
    def largest_column_sum(self) -> int:
        """The same sum, rM."""
        return self.change

    @property
    def largest_row_sum(self) -> int:
        """Of its matrix: 1."""
        return 1

    @property
    def content(self) -> bytes:
        """The kind and the bound; and the number of rows, where that isn't one."""
        rows = b" %d" % self._rows if self._rows > 1 else b""
        return b"%s %d%s" % (self.kind, self._scale, rows)

    def apply(self, counts: NDArray[Any], axis: int) -> NDArray[Any]:
        """Take the sums as they are."""
        return counts
