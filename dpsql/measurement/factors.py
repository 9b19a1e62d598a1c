"""Integer factors: matrices along axes of what is measured, with exact norms.

Trusted core. Nothing here depends on how good a plan is.

Guarantees:
    1. The entries of a factor are integers of magnitude below 2^62, checked at birth, and
       read-only. Where products over the factors of a block reach 2^31, all is computed in
       integers of any size, see `wide`.
    2. `largest_column_norm_squared`, `largest_column_sum` and `largest_row_sum` are exact, and
       `stretch_squared` is no less than what it bounds (proofs at the functions); `products` and
       `column_sums` are what they say, entry by entry. So are those of
       their Kronecker products, see `strategy`.
    3. A row that counts v in its cell instead of 1 changes the answers by v times a column of
       the other factors. A `MeasureFactor` states a bound M >= |v| as if it were its only entry,
       so that both norms, and the products that must stay below 2^31, are right for all such v.
       Where a record is all that a unit has in several tables, the norms are for what its rows in
       one of them add together. That none adds more is for others to see to: the engine says what
       it kept to, and `measure` compares.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Collection
from functools import cached_property
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.linalg.matrices import Dense, Exchangeable, StructuredMatrix

ENTRY_BITS = 31
"""Products over the factors of a block are below 2^31, unless it is measured in wide integers."""
WIDE_BITS = 62
"""|entry| < 2^62: entries, and sums of two of them, fit a signed 64-bit integer."""
MOST_STRETCHED = 2**17
"""Entries up to which eigenvalues are bounded by those of single rows: it takes a second; and cells
up to which the norms of all columns are told;"""
MOST_MULTIPLIED = 512
"""and cells up to which these are multiplied by each other; of more cells rows are."""
_LIMB = 21
_LOW = (1 << _LIMB) - 1
_HALF = (1 << 31) - 1


class IntegerFactor(ABC):
    """Integer measurements (rows) over the joint cells of some axes, cells in C order."""

    kind: bytes
    """The name of a kind of factors, which is written down with its shape, its scale and its
    matrix."""
    _scale = 1

    def __init__(self, axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
        self._axes, self._shape = axes, shape

    @property
    def scale(self) -> int:
        """The factor by which the matrix of its kind is multiplied."""
        return self._scale

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of the block's marginals, in the order of the cells."""
        return self._axes

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells along each axis."""
        return self._shape

    @property
    @abstractmethod
    def matrix(self) -> NDArray[np.int64]:
        """The measurements written out: shape (measurements, cells), read-only."""

    @property
    @abstractmethod
    def real(self) -> StructuredMatrix:
        """The same matrix in floats, for planning and answers.

        Nothing that is measured, and no guarantee, rests on it.
        """

    @property
    @abstractmethod
    def measurements(self) -> int:
        """The number of rows."""

    @property
    @abstractmethod
    def largest_entry(self) -> int:
        """The largest magnitude of an entry."""

    @property
    @abstractmethod
    def largest_column_norm_squared(self) -> int:
        """The largest squared Euclidean norm of a column, exact."""

    @property
    @abstractmethod
    def largest_column_sum(self) -> int:
        """The largest sum of the magnitudes of a column, exact."""

    @property
    @abstractmethod
    def largest_row_sum(self) -> int:
        """The largest sum of the magnitudes of a row: no number of answers is larger than it makes.

        It is of the matrix as it is applied: that of a measure is 1.
        """

    @property
    @abstractmethod
    def stretch_squared(self) -> int:
        """A bound on the largest eigenvalue of matrixᵀ·matrix, exact."""

    @property
    @abstractmethod
    def content(self) -> bytes:
        """Everything that tells the matrix from others."""

    def products(self, axes: Collection[int]) -> NDArray[Any] | None:
        """Return the largest products of two columns by the cells of some of its axes, exact.

        Entry [g, g'] is the largest |(matrixᵀ·matrix)[c, c']| over all c with the cells g along
        these axes, and c' with g'. Of shape (cells of each of the axes, in the factor's order, and
        once more), in Python's integers; None where it isn't computed, as for many cells.
        """
        return None

    def column_sums(self, axes: Collection[int]) -> NDArray[Any] | None:
        """Return the largest sums of the magnitudes of a column by the cells of some axes, exact.

        Entry [g] is the largest over all columns with the cells g along these axes, of shape (cells
        of each of the axes, in the factor's order), in Python's integers; None where it isn't
        computed, as for many entries.
        """
        return None

    def column_squares(self, axes: Collection[int]) -> NDArray[Any] | None:
        """Return the largest squared norms of a column by the cells of some axes, exact.

        In the same shape, and None where it isn't computed.
        """
        return None

    @abstractmethod
    def apply(self, counts: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
        """Return matrix·counts along one axis, modulo 2^64."""


class DenseFactor(IntegerFactor):
    """Measurements that are written out."""

    kind = b"dense"

    def __init__(
        self, axes: tuple[int, ...], shape: tuple[int, ...], given: NDArray[np.int64]
    ) -> None:
        super().__init__(axes, shape)
        if given.flags.writeable or given.base is not None or not given.flags.c_contiguous:
            given = np.array(given, order="C")  # nobody else may hold a way to change it
        if given.dtype != np.int64 or given.ndim != 2:
            raise InternalError("an integer factor must be a matrix of int64")
        if given.shape[1] != math.prod(self.shape) or len(self.shape) != len(self.axes):
            raise InternalError("an integer factor does not fit its axes")
        # Not np.abs: the magnitude of the smallest int64 does not fit an int64.
        limit = 1 << WIDE_BITS
        if given.size and not (-limit < int(given.min()) and int(given.max()) < limit):
            raise InternalError("an entry of an integer factor has 62 bits or more")
        given.setflags(write=False)
        self._matrix = given

    @property
    def matrix(self) -> NDArray[np.int64]:
        """The integers that are measured, written out: shape (measurements, cells)."""
        return self._matrix

    @cached_property
    def real(self) -> StructuredMatrix:
        """The same entries as floats, from which answers follow."""
        return Dense(self._matrix)

    @property
    def measurements(self) -> int:
        """The number of rows."""
        return int(self._matrix.shape[0])

    @cached_property
    def largest_entry(self) -> int:
        """The largest magnitude of an entry."""
        return max(int(self._matrix.max(initial=0)), -int(self._matrix.min(initial=0)))

    @cached_property
    def largest_column_norm_squared(self) -> int:
        """The largest squared Euclidean norm of a column, exact.

        Where rows · largest² < 2^63, all sums fit an int64. Else write an entry as
        b = 2^42·h + 2^21·m + l with 0 <= m, l < 2^21; as |b| < 2^62, |h| <= 2^20. Then

            b² = l² + 2^21·2lm + 2^42·(m² + 2lh) + 2^63·2mh + 2^84·h².

        Each of the five coefficients is at most 2^43 in magnitude, so its sum over fewer than
        2^20 rows is at most 2^63 − 2^43, as `_largest_number` asks.
        """
        return _largest_number(self._squares, _LIMB)

    @cached_property
    def _squares(self) -> list[NDArray[np.int64]]:
        """The squared norms of all columns, in digits."""
        self._check_rows()
        if self.measurements * self.largest_entry**2 < 1 << 63:
            return [np.asarray(np.einsum("ij,ij->j", self._matrix, self._matrix))]
        low, middle, high = self._matrix & _LOW, self._matrix >> _LIMB & _LOW, self._matrix >> 42

        def products(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.asarray(np.einsum("ij,ij->j", first, second))

        return [
            products(low, low),
            2 * products(low, middle),
            products(middle, middle) + 2 * products(low, high),
            2 * products(middle, high),
            products(high, high),
        ]

    @cached_property
    def largest_column_sum(self) -> int:
        """The largest sum of the magnitudes of a column, exact.

        Both halves of a magnitude are at most 2^31, and fewer than 2^20 of them stay below 2^51,
        which is far inside of what `_largest_number` asks.
        """
        self._check_rows()
        return _largest_number(self._sums(axis=0), 31)

    @cached_property
    def largest_row_sum(self) -> int:
        """The largest sum of the magnitudes of a row, exact, for the same reason."""
        if self._matrix.shape[1] >= 1 << 31:
            raise InternalError("an integer factor has 2^31 cells or more")
        return _largest_number(self._sums(axis=1), 31)

    def _sums(self, axis: int) -> list[NDArray[np.int64]]:
        """Add up magnitudes along an axis, in digits."""
        magnitudes = np.abs(self._matrix)
        return [(magnitudes & _HALF).sum(axis=axis), (magnitudes >> 31).sum(axis=axis)]

    def products(self, axes: Collection[int]) -> NDArray[Any] | None:
        """Take the largest of all products; of many cells none are computed."""
        if self._matrix.shape[1] > MOST_MULTIPLIED or self._matrix.size > MOST_STRETCHED:
            return None
        among = np.abs(np.array(self._gram, dtype=object)).reshape(*self._shape, *self._shape)
        half = len(self._shape)
        others = [i for i, axis in enumerate(self._axes) if axis not in axes]
        largest = among.max(axis=(*others, *(half + i for i in others)), initial=0)
        return np.asarray(largest, dtype=object)

    def column_sums(self, axes: Collection[int]) -> NDArray[Any] | None:
        """Add up all magnitudes, in integers of any size; of many cells none are."""
        self._check_rows()
        return self._by_cells(self._sums(axis=0), 31, axes) if self._has_few_cells else None

    def column_squares(self, axes: Collection[int]) -> NDArray[Any] | None:
        """Add up all squares, in integers of any size; of many cells none are."""
        return self._by_cells(self._squares, _LIMB, axes) if self._has_few_cells else None

    @property
    def _has_few_cells(self) -> bool:
        return bool(self._matrix.shape[1] <= MOST_STRETCHED)

    def _by_cells(
        self, digits: list[NDArray[np.int64]], bits: int, axes: Collection[int]
    ) -> NDArray[Any]:
        """Return the largest of numbers in digits, by the cells of some axes."""
        numbers = sum(digit.astype(object) << bits * k for k, digit in enumerate(digits))
        others = tuple(i for i, axis in enumerate(self._axes) if axis not in axes)
        largest = np.reshape(numbers, self._shape).max(axis=others, initial=0)
        return np.asarray(largest, dtype=object)  # also a single number, which is no array

    @cached_property
    def _gram(self) -> list[list[int]]:
        """BᵀB."""
        return _multiplied(self._matrix)

    @cached_property
    def stretch_squared(self) -> int:
        """A bound on the largest eigenvalue λ of G = BᵀB, exact.

        λ is at most the trace of G, as no eigenvalue is negative. And for c >= 0 it is at most that
        of G + cJ, as cJ has no negative eigenvalue either; that is at most the largest sum of the
        magnitudes of a row (Gershgorin). c makes the least entry 0, where one is negative: of a
        centered identity nothing but the diagonal is left then, and the bound is its eigenvalue.
        Of many cells, and so few rows, BBᵀ takes the place of G: it has the same trace and the same
        eigenvalues, but for zeros, and none that is negative.
        """
        if not self.measurements or self._matrix.size > MOST_STRETCHED:
            return sum(entry**2 for row in self._matrix.tolist() for entry in row)
        few = self._matrix.shape[1] <= MOST_MULTIPLIED
        gram = self._gram if few else _multiplied(self._matrix.T)
        shift = -min(0, *map(min, gram))
        trace = sum(row[i] for i, row in enumerate(gram))
        norms = (max(sum(abs(x + c) for x in row) for row in gram) for c in (0, shift))
        return min(trace, *norms)

    def _check_rows(self) -> None:
        if self._matrix.shape[0] >= 1 << 20:
            raise InternalError("an integer factor has 2^20 rows or more")

    @cached_property
    def content(self) -> bytes:
        """A digest of the shape and the entries."""
        shape = repr(self._matrix.shape).encode()
        return hashlib.sha256(self.kind + shape + self._matrix.tobytes()).digest()

    def apply(self, counts: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
        """Return matrix·values along one axis, in int64."""
        product: NDArray[np.int64] = np.tensordot(self._matrix, counts, (1, axis))
        return np.moveaxis(product, 0, axis)


def _multiplied(matrix: NDArray[np.int64]) -> list[list[int]]:
    """Return the products of all pairs of columns, exact."""
    if not matrix.size:
        return [[0] * matrix.shape[1] for _ in range(matrix.shape[1])]
    given = flint.fmpz_mat(matrix.tolist())
    return [[int(entry) for entry in row] for row in (given.transpose() * given).tolist()]


def _largest_number(digits: list[NDArray[np.int64]], bits: int) -> int:
    """Return the largest of some numbers Σ_k digits[k][j]·2^(bits·k) >= 0, exact; 0 of none.

    Digits may be negative and larger than 2^bits: |digit| <= 2^63 − 2^43, and `bits` is 21 or
    more. First carries bring all but the last into [0, 2^bits). They change no number, because
    d = 2^bits·(d >> bits) + (d & (2^bits − 1)), where >> rounds down; and as |d >> bits| <= 2^42,
    a digit and a carry fit an int64. What stands below digit k is then less than 2^(bits·k). So
    the last digit of a number that isn't negative isn't either, and of two numbers that one is
    larger whose last digit is, or, where these are equal, whose digit before it is, and so on.
    """
    digits = list(digits)
    for k in range(len(digits) - 1):
        digits[k + 1] = digits[k + 1] + (digits[k] >> bits)
        digits[k] = digits[k] & ((1 << bits) - 1)
    largest, among = 0, np.arange(len(digits[0]))
    for digit in reversed(digits):
        here = digit[among]
        top = int(here.max(initial=0))
        among = among[here == top]
        largest = (largest << bits) + top
    return largest


class EvenFactor(IntegerFactor):
    """a·I + b·J over the n cells of one axis, which need not be written out.

    Every column has the entry a + b once and b n−1 times, so its squared norm is
    (a+b)² + (n−1)b², and the sum of its magnitudes |a+b| + (n−1)|b|.
    """

    least: int
    """The fewest cells over which there is such a matrix."""

    def __init__(self, axes: tuple[int, ...], shape: tuple[int, ...], scale: int) -> None:
        super().__init__(axes, shape)
        if len(self.axes) != 1 or len(self.shape) != 1 or self.cells < self.least:
            raise InternalError("a factor that is not written out does not fit its axis")
        if type(scale) is not int or scale < 1:
            raise InternalError("the scale of a factor is not a whole number from 1")
        self._scale = scale
        self._a, self._b = self._coefficients()
        if max(abs(self._a), abs(self._b)) >= 1 << WIDE_BITS:
            raise InternalError("an entry of an integer factor has 62 bits or more")

    @abstractmethod
    def _coefficients(self) -> tuple[int, int]:
        """Return a and b, of opposite signs or 0."""

    @property
    def cells(self) -> int:
        """N, the number of joint cells of its axes."""
        return self.shape[0]

    @property
    def matrix(self) -> NDArray[np.int64]:
        """The measurements, written out."""
        written = self._a * np.eye(self.cells, dtype=np.int64) + self._b
        written.setflags(write=False)
        return written

    @property
    def real(self) -> StructuredMatrix:
        """The same matrix: its eigenvalues are a across the ones and a + nb along them."""
        return Exchangeable(self.cells, float(self._a), float(self._a + self.cells * self._b))

    @property
    def measurements(self) -> int:
        """The number of rows."""
        return self.cells

    @property
    def largest_entry(self) -> int:
        """The larger magnitude of the two entries that a column has."""
        return max(abs(self._a + self._b), abs(self._b))

    @property
    def largest_column_norm_squared(self) -> int:
        """The squared norm that all columns have."""
        return (self._a + self._b) ** 2 + (self.cells - 1) * self._b**2

    @property
    def largest_column_sum(self) -> int:
        """The sum of the magnitudes that all columns have."""
        return abs(self._a + self._b) + (self.cells - 1) * abs(self._b)

    @property
    def largest_row_sum(self) -> int:
        """The same sum: the matrix is symmetric."""
        return self.largest_column_sum

    @property
    def stretch_squared(self) -> int:
        """The largest eigenvalue of the square: a² across the ones, (a + nb)² along them."""
        return max(self._a**2, (self._a + self.cells * self._b) ** 2)

    def products(self, axes: Collection[int]) -> NDArray[Any] | None:
        """Return the magnitudes of (aI + bJ)² = a²I + (2ab + nb²)J."""
        if self.cells > MOST_MULTIPLIED:
            return None
        apart = 2 * self._a * self._b + self.cells * self._b**2
        products = np.full((self.cells, self.cells), abs(apart), dtype=object)
        np.fill_diagonal(products, self._a**2 + apart)
        return products

    def column_sums(self, axes: Collection[int]) -> NDArray[Any] | None:
        """Return the sum that all columns have."""
        return self._all_alike(self.largest_column_sum)

    def column_squares(self, axes: Collection[int]) -> NDArray[Any] | None:
        """Return the squared norm that all columns have."""
        return self._all_alike(self.largest_column_norm_squared)

    def _all_alike(self, number: int) -> NDArray[Any] | None:
        many = self.cells > MOST_STRETCHED
        return None if many else np.full(self.cells, number, dtype=object)

    @property
    def content(self) -> bytes:
        """The kind, the size and the scale."""
        return b"%s %d %d" % (self.kind, self.cells, self._scale)

    def apply(self, counts: NDArray[Any], axis: int) -> NDArray[Any]:
        """Take a times each cell and b times the sum of all; exactly, for Python's integers."""
        if not self._b:
            return np.asarray(self._a * counts)
        sums = np.asarray(self._a * counts)
        sums += self._b * counts.sum(axis=axis, keepdims=True)
        return sums


class CenteredFactor(EvenFactor):
    """s·(n·I − J) over the n cells of one axis."""

    kind = b"centred"
    least = 2

    def _coefficients(self) -> tuple[int, int]:
        return self._scale * self.cells, -self._scale


class IdentityFactor(EvenFactor):
    """s·I over the n cells of one axis."""

    kind = b"identity"
    least = 1

    def _coefficients(self) -> tuple[int, int]:
        return self._scale, 0


# ── Sums of values in place of counts, and the rows of one table beside those of others. Trusted ─


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
    def rows(self) -> int:
        """r: how many rows a record has at most."""
        return self._rows

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
        """The largest row sum of its matrix: 1."""
        return 1

    @property
    def content(self) -> bytes:
        """The kind and the bound; and the number of rows, where that isn't one."""
        rows = b" %d" % self._rows if self._rows > 1 else b""
        return b"%s %d%s" % (self.kind, self._scale, rows)

    def apply(self, counts: NDArray[Any], axis: int) -> NDArray[Any]:
        """Take the sums as they are."""
        return counts


# ── Counts of units by groups: what a unit adds is 0 or 1 in each of them. Trusted ───────────────
#
# A unit that is in s of n groups adds a vector h of s ones and n − s zeros to the counts of units,
# whatever rows it has. So what it changes is bounded as a whole, and not row by row; and as h is
# never negative, measurements that take off some of the total of all groups change by less than the
# counts do. A workload of all groups alike has its best strategy among these, see
# `planner.mechanisms.distinct_units`.


class UnitFactor(IntegerFactor):
    """B = a·I − b·J over n groups, of which a unit is in m at most: 1 <= a, 0 <= b, 1 <= m <= n.

    A record is a unit here, whatever `contributions` say of rows.

    *What a unit changes.* It adds h in {0, 1}^n with s <= m ones. For a whole number s, each entry
    of Bh is a − bs in the s groups and −bs in the others, so that

        ‖Bh‖² = s(a − bs)² + (n − s)(bs)² = a²s − (2ab − nb²)s² ,
        ‖Bh‖₁ = s|a − bs| + (n − s)bs .

    Both are known by s alone, and there is an h for each s <= m: the largest of each over
    s = 0, …, m is exact, neither more nor less than what a unit can do.

    *Values of units.* Where a unit adds numbers from 0 to l to the groups, l·m together at most, it
    adds l·h with h in the polytope P of 0 <= h <= 1, Σh <= m. As m is a whole number, the vertices
    of P are whole: of two coordinates strictly between 0 and 1 the one could grow as the other
    falls; one alone between them leaves Σh < m, so that it could grow and fall. So they are the h
    above, and a convex function is largest on P at one of them: both norms, times l, hold for all
    of that. A `MeasureFactor` of l on an axis of one cell says so.

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
        """The number of times that a group's own count is taken: a."""
        return self._own

    @property
    def all(self) -> int:
        """The number of times that the total of all groups is taken off: b."""
        return self._all

    @property
    def most(self) -> int:
        """The largest number of groups that a unit is in: m."""
        return self._most

    @property
    def groups(self) -> int:
        """The number of groups: n."""
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
        norms = (self._own**2 * s - bent * s**2 for s in self._counts(peak))
        return max(norms)

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
