"""Structured matrices: rows over cells (columns) that say what they do without being written out.

One hierarchy for what is asked (queries), what is measured, and how answers follow from that. Who
has a matrix asks it for products, norms, inner products, or what it is (`is_identity`, `runs`), and
not for its class. `matrix` writes it out, where it is small enough for that; nothing else does,
but for classes that are held entry by entry anyway (`is_written`).

What is measured is measured in integers, whose sensitivity must be exact: that flavor has a class
of its own in the trusted core (`measurement.factors`), which can be read without this room. Each
of its factors gives the matrix of floats from which answers follow as `real`.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.coordinates import merged, narrow

Runs = tuple[Ints, Ints]
"""For each row the first cell that it counts, and the one after the last; see
`structures.Intervals`."""

MAX_ENTRIES = 2**24
"""The largest matrix (rows × cells) that is written out: 128 MiB of float64."""


class StructuredMatrix(ABC):
    """A matrix of rows over cells."""

    is_written = False
    """Whether it is held entry by entry."""
    even: tuple[float, float] | None = None
    """The eigenvalues across the ones and along them, if it is known to treat all cells alike. See
    `structures.Exchangeable`."""

    def __init__(self, rows: int, cells: int) -> None:
        self.rows = rows
        """The number of rows: of queries, or of measurements."""
        self.cells = cells
        """The number of cells that each row weighs."""

    @cached_property
    def key(self) -> bytes:
        """A digest of the content: equal matrices that are held alike have equal keys."""
        return self._digest()

    @abstractmethod
    def _digest(self) -> bytes: ...

    @property
    @abstractmethod
    def matrix(self) -> Array:
        """All of it, written out: shape (rows, cells), finite, read-only.

        Raises:
            ResourceLimitError: it is too large.
        """

    # ── what it is ─────────────────────────────────────────────────────────────────────────

    @property
    def is_identity(self) -> bool:
        """Whether the rows are the cells, in order."""
        return False

    @property
    def is_total(self) -> bool:
        """Whether there is one row, of ones."""
        return self.rows == 1 and bool((self.matrix == 1).all())

    def runs(self) -> Runs | None:
        """Return every row as the run of cells low <= cell < high that it sums; None if one isn't.

        Runs may go on from the last cell to the first, then high > cells.
        """
        return self.entries().runs()

    def entries(self) -> Sparse:
        """Return the entries that are not 0, one by one."""
        row, cell = np.nonzero(self.matrix)
        return Sparse(self.rows, self.cells, row, cell, self.matrix[row, cell])

    def even_gram(self) -> tuple[float, float] | None:
        """Return `even` of the Gram matrix, as far as it can be seen without computing it."""
        return None

    # ── products ───────────────────────────────────────────────────────────────────────────

    def apply(self, values: Array, axis: int) -> Array:
        """Multiply along one axis: `cells` entries there become `rows`."""
        return np.moveaxis(np.tensordot(self.matrix, values, (1, axis)), 0, axis)

    def apply_transposed(self, values: Array, axis: int) -> Array:
        """Multiply by the transpose along one axis: `rows` entries there become `cells`."""
        return np.moveaxis(np.tensordot(self.matrix, values, (0, axis)), 0, axis)

    def __matmul__(self, values: Array) -> Array:
        """Multiply along the first axis."""
        return self.apply(values, 0)

    __array_ufunc__ = None  # so that NumPy leaves `values @ matrix` to us

    def __rmatmul__(self, values: Array) -> Array:
        """Multiply rows of values, which are the last axis, by the matrix."""
        return self.T.apply(values, values.ndim - 1)

    @property
    def T(self) -> StructuredMatrix:  # noqa: N802  (as in NumPy)
        """The transpose, of shape (cells, rows); not copied."""
        return _Transposed(self)

    def gram(self) -> Array:
        """Return the inner products of all columns, of shape (cells, cells)."""
        return np.asarray(self.matrix.T @ self.matrix)

    def pinv(self, shape: Sequence[int] = ()) -> StructuredMatrix:
        """Return the pseudo-inverse, if the rows or the columns are independent.

        By a QR factorization, which doesn't square the condition number as the Gram matrix would.

        Args:
            shape: the number of cells along each axis, if there are several. Where little is asked
                along one, that saves time, see `narrow`.
        """
        matrix = self.matrix
        if (classes := merged(matrix)) is not None and _is_wide(classes[0]):
            small, of, entries = classes
            inverse = independent_inverse(small) * entries[:, None]
            return Dense(np.vstack([inverse, np.zeros((1, len(small)))])[of])
        if (narrowed := narrow(matrix, shape)) is not None and _is_wide(narrowed.small):
            return Dense(
                np.ascontiguousarray(narrowed.widen(independent_inverse(narrowed.small).T).T)
            )
        if _is_wide(matrix):
            return Dense(independent_inverse(matrix))
        return Dense(independent_inverse(matrix.T).T)

    def image_squares(self, first: StructuredMatrix) -> Array:
        """Return the squared norm of each row of first @ self."""
        return self.image_products(first, first)

    def image_products(self, first: StructuredMatrix, second: StructuredMatrix) -> Array:
        """Return ⟨q M, p M⟩ of the rows q, p with the same numbers, some columns at a time."""
        result, matrix = np.zeros(first.rows), self.matrix
        step = max(1, MAX_ENTRIES // max(1, first.rows))
        for start in range(0, matrix.shape[1], step):
            images = first @ matrix[:, start : start + step]
            others = images if first is second else second @ matrix[:, start : start + step]
            result += np.einsum("ij,ij->i", images, others)
        return result

    # ── rows and columns ───────────────────────────────────────────────────────────────────

    def take(self, rows: Ints) -> StructuredMatrix:
        """Return the rows of these numbers, in this order."""
        return Dense(self.matrix[rows])

    def between(self, start: int, stop: int) -> StructuredMatrix:
        """Return the rows from number `start` up to, and without, `stop`."""
        whole = (start, stop) == (0, self.rows)
        return self if whole else self.take(np.arange(start, stop))

    def sums(self) -> Array:
        """Return the sum of each row's entries, of shape (rows,)."""
        return self.apply(np.ones(self.cells), 0)

    def squares(self) -> Array:
        """Return the squared norm of each row, of shape (rows,)."""
        return np.asarray(np.einsum("ij,ij->i", self.matrix, self.matrix))

    def column_squares(self) -> Array:
        """Return the squared norm of each column, of shape (cells,)."""
        return np.asarray(np.einsum("ij,ij->j", self.matrix, self.matrix))

    def cell_squares(self) -> Array | None:
        """Return the squared norm of each column; None if a row has several entries.

        Rows of one cell each are a group-by, of some of the cells or with weights.
        """
        return None if (np.count_nonzero(self.matrix, axis=1) > 1).any() else self.column_squares()

    def inner(self, other: StructuredMatrix) -> Array:
        """Return the inner product of each row with the one of the same number in `other`."""
        result = np.zeros(self.rows)
        step = max(1, MAX_ENTRIES // (8 * self.cells))
        for start in range(0, self.rows, step):
            stop = min(start + step, self.rows)
            ours, theirs = self.between(start, stop).matrix, other.between(start, stop).matrix
            result[start:stop] = np.einsum("ij,ij->i", ours, theirs)
        return result


class Dense(StructuredMatrix):
    """Any matrix, written out."""

    is_written = True

    def __init__(self, matrix: NDArray[Any], inverse: Array | None = None) -> None:
        """Take the entries, as floats or integers, and the pseudo-inverse if it is known."""
        entries = np.ascontiguousarray(matrix)
        entries.setflags(write=False)
        super().__init__(*entries.shape)
        self._matrix, self._inverse = entries, inverse

    def _digest(self) -> bytes:
        shape = repr(self._matrix.shape).encode()
        return hashlib.sha256(shape + self.matrix.tobytes()).digest()

    @property
    def matrix(self) -> Array:
        """The entries; integers are turned to floats each time, so that both aren't kept."""
        return self._matrix.astype(np.float64, copy=False)

    def pinv(self, shape: Sequence[int] = ()) -> StructuredMatrix:
        """Return what was given, or compute it, once."""
        if self._inverse is None:
            self._inverse = super().pinv(shape).matrix
        return Dense(self._inverse)


class Sparse(StructuredMatrix):
    """The entries of a matrix that are not 0, each once, sorted by row and then by cell."""

    is_written = True

    def __init__(self, rows: int, cells: int, row: Ints, cell: Ints, weight: Array) -> None:
        super().__init__(rows, cells)
        self.row, self.cell, self.weight = row, cell, weight

    @classmethod
    def of(cls, rows: int, cells: int, row: Ints, cell: Ints, weight: Array) -> Sparse:
        """Sort entries, and leave out those that are 0."""
        kept = weight != 0
        row, cell, weight = row[kept], cell[kept], weight[kept]
        more = np.diff(row)
        if ((more > 0) | ((more == 0) & (np.diff(cell) > 0))).all():  # they often are sorted
            return cls(rows, cells, row, cell, weight)
        order = np.lexsort((cell, row))
        return cls(rows, cells, row[order], cell[order], weight[order])

    def _digest(self) -> bytes:
        entries = self.row.tobytes() + self.cell.tobytes() + self.weight.tobytes()
        return hashlib.sha256(b"sparse %d %d " % (self.rows, self.cells) + entries).digest()

    @property
    def matrix(self) -> Array:
        """All entries, zeros too."""
        check_entries(self.rows, self.cells)
        matrix = np.zeros((self.rows, self.cells))
        matrix[self.row, self.cell] = self.weight
        return frozen(matrix)

    @property
    def is_total(self) -> bool:
        """Whether there is one row, of ones."""
        return self.rows == 1 and len(self.cell) == self.cells and bool((self.weight == 1).all())

    def entries(self) -> Sparse:
        """Return the entries themselves."""
        return self

    def sums(self) -> Array:
        """Add up along the rows."""
        return np.asarray(np.bincount(self.row, self.weight, self.rows), dtype=np.float64)

    def squares(self) -> Array:
        """Add up along the rows."""
        return np.asarray(np.bincount(self.row, self.weight**2, self.rows), dtype=np.float64)

    def column_squares(self) -> Array:
        """Add up along the columns."""
        return np.asarray(np.bincount(self.cell, self.weight**2, self.cells), dtype=np.float64)

    def runs(self) -> Runs | None:
        """Look where each row begins and ends, and whether it has a gap."""
        if not self.rows or not (self.weight == 1).all():
            return None
        counts = np.bincount(self.row, minlength=self.rows)
        if not counts.all():
            return None
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        first, last = self.cell[starts], self.cell[starts + counts - 1]
        whole = last - first + 1 == counts
        if whole.all():
            return first, last + 1
        jump = np.flatnonzero((np.diff(self.cell) > 1) & (np.diff(self.row) == 0))
        jumps = np.bincount(self.row[jump], minlength=self.rows)
        around = (first == 0) & (last == self.cells - 1) & (jumps == 1)
        if not (whole | around).all():
            return None
        low, high = first.copy(), last + 1
        at = self.row[jump]
        low[at], high[at] = self.cell[jump + 1], self.cells + self.cell[jump] + 1
        return low, high

    def kron(self, other: Sparse) -> Sparse:
        """Return the product with a matrix over other columns, rows and cells in C order."""
        row = np.add.outer(self.row * other.rows, other.row).ravel()
        cell = np.add.outer(self.cell * other.cells, other.cell).ravel()
        weight = np.multiply.outer(self.weight, other.weight).ravel()
        return Sparse.of(self.rows * other.rows, self.cells * other.cells, row, cell, weight)


class _Transposed(StructuredMatrix):
    """The transpose of a matrix whose class has no better one."""

    def __init__(self, of: StructuredMatrix) -> None:
        super().__init__(of.cells, of.rows)
        self.is_written = of.is_written
        self._of = of

    def _digest(self) -> bytes:
        return b"transposed " + self._of.key

    @property
    def matrix(self) -> Array:
        return self._of.matrix.T

    @property
    def T(self) -> StructuredMatrix:  # noqa: N802
        return self._of

    def apply(self, values: Array, axis: int) -> Array:
        return self._of.apply_transposed(values, axis)

    def apply_transposed(self, values: Array, axis: int) -> Array:
        return self._of.apply(values, axis)

    def squares(self) -> Array:
        return self._of.column_squares()

    def column_squares(self) -> Array:
        return self._of.squares()


def independent_inverse(rows: Array) -> Array:
    """Return the pseudo-inverse of independent rows: with Bᵀ = QR it is Q R⁻ᵀ."""
    # NumPy's, as a plain count asks for it, and SciPy's takes a quarter of a second to load. The
    # LU factors of a triangle are 1 and itself, so nothing is lost but a third of the time.
    q, r = np.linalg.qr(rows.T)
    return np.asarray(np.linalg.solve(r, q.T).T)


def check_entries(rows: int, cells: int) -> None:
    """Refuse a matrix that is too large to be written out, by its size alone."""
    if rows * cells > MAX_ENTRIES:
        raise ResourceLimitError(
            f"{rows:,} queries over {cells:,} cells are too many to be written out.",
            hint="use a coarser domain or fewer queries.",
        )


def _is_wide(rows: Array) -> bool:
    return len(rows) <= len(rows.T)


def frozen(matrix: Array) -> Array:
    """Let nobody write into a matrix."""
    matrix.setflags(write=False)
    return matrix


# ── Matrices that are known by a few numbers: those that treat all cells alike, and runs of cells


class Exchangeable(StructuredMatrix):
    """α(I − J/n) + βJ/n, which treats all n cells alike: α across the ones, β along them.

    The identity has α = β = 1, the centering matrix β = 0, and aI + bJ has α = a, β = a + nb. All
    of these commute, and what is computed of them is computed of the two eigenvalues.
    """

    def __init__(self, cells: int, across: float = 1.0, along: float = 1.0) -> None:
        super().__init__(cells, cells)
        self.across, self.along = self.even = across, along

    def _digest(self) -> bytes:
        if self.is_identity:
            return b"identity %d" % self.cells
        return repr(("exchangeable", self.cells, self.across, self.along)).encode()

    @property
    def is_identity(self) -> bool:
        """Whether both eigenvalues are 1."""
        return self.across == self.along == 1

    @property
    def matrix(self) -> Array:
        """The diagonal, and what all entries have in common."""
        check_entries(self.rows, self.cells)
        common = (self.along - self.across) / self.cells
        return frozen(self.across * np.eye(self.cells) + common)

    @property
    def T(self) -> Exchangeable:  # noqa: N802
        """Itself: it is symmetric."""
        return self

    def runs(self) -> Runs | None:
        """Return runs of one cell for the identity."""
        at = np.arange(self.cells)
        return (at, at + 1) if self.is_identity else super().runs()

    def entries(self) -> Sparse:
        """Return the diagonal of the identity."""
        if not self.is_identity:
            return super().entries()
        at = np.arange(self.cells)
        return Sparse(self.cells, self.cells, at, at, np.ones(self.cells))

    def even_gram(self) -> tuple[float, float]:
        """Square both eigenvalues: the matrix is symmetric."""
        return self.across**2, self.along**2

    def apply(self, values: Array, axis: int) -> Array:
        """Multiply what differs from the mean, and the mean."""
        if self.across == self.along:
            return values if self.across == 1 else self.across * values
        mean = values.mean(axis=axis, keepdims=True)
        apart = self.across * (values - mean)
        return np.asarray(apart + self.along * mean if self.along else apart)

    def apply_transposed(self, values: Array, axis: int) -> Array:
        """Multiply by the matrix itself: it is symmetric."""
        return self.apply(values, axis)

    def gram(self) -> Array:
        """Write the square out, which is one of these again."""
        return Exchangeable(self.cells, *self.even_gram()).matrix

    def pinv(self, shape: Sequence[int] = ()) -> Exchangeable:
        """Invert the eigenvalues that are not 0."""
        across, along = (1 / value if value else 0.0 for value in (self.across, self.along))
        return Exchangeable(self.cells, across, along)

    def take(self, rows: Ints) -> StructuredMatrix:
        """Take runs of one cell of the identity."""
        return Intervals(self.cells, rows, rows + 1) if self.is_identity else super().take(rows)

    def sums(self) -> Array:
        """Return what ones become."""
        return np.full(self.rows, float(self.along))

    def squares(self) -> Array:
        """Return the diagonal of the Gram matrix."""
        common = (self.along**2 - self.across**2) / self.cells
        return np.full(self.rows, self.across**2 + common)

    def column_squares(self) -> Array:
        """Return those of the rows."""
        return self.squares()

    def cell_squares(self) -> Array | None:
        """Return the same for multiples of the identity."""
        return self.squares() if self.across == self.along else None

    def inner(self, other: StructuredMatrix) -> Array:
        """Take the cells as runs."""
        return self.take(np.arange(self.rows)).inner(other)

    def image_squares(self, first: StructuredMatrix) -> Array:
        """Return the squared norm of each row of first @ self, see `image_products`."""
        return np.asarray(np.maximum(self._images(first.squares(), np.square(first.sums())), 0.0))

    def image_products(self, first: StructuredMatrix, second: StructuredMatrix) -> Array:
        """Return ⟨q M, p M⟩ of the rows q, p with the same numbers.

        As M² = α²(I − J/n) + β²J/n, that is α²(⟨q, p⟩ − q1·p1/n) + β² q1·p1/n, and nothing has
        the size of cells × cells.
        """
        if first is second:
            return self.image_squares(first)
        return self._images(first.inner(second), first.sums() * second.sums())

    def _images(self, products: Array, sums: Array) -> Array:
        if self.across == self.along:
            return self.across**2 * products
        common = sums / self.cells
        return np.asarray(self.across**2 * (products - common) + self.along**2 * common)


class CenteredCells(StructuredMatrix):
    """√w_i times row i of the centering matrix I − J/n: weighted cells, each less the mean of all.

    The Gram matrix is (I − J/n) diag(w) (I − J/n).
    """

    def __init__(self, weights: Array) -> None:
        super().__init__(len(weights), len(weights))
        self._weights = weights

    def _digest(self) -> bytes:
        return hashlib.sha256(b"centered" + self._weights.tobytes()).digest()

    @property
    def matrix(self) -> Array:
        """The centering matrix, row by row."""
        check_entries(self.rows, self.cells)
        return frozen(np.sqrt(self._weights)[:, None] * (np.eye(self.cells) - 1 / self.cells))

    def apply(self, values: Array, axis: int) -> Array:
        """Take the mean away, and weigh what is left."""
        roots = np.sqrt(self._weights).reshape([-1] + [1] * (values.ndim - axis - 1))
        return np.asarray((values - values.mean(axis=axis, keepdims=True)) * roots)

    def sums(self) -> Array:
        """Return zeros: each row has the mean taken away."""
        return np.zeros(self.rows)

    def squares(self) -> Array:
        """Return the squared norms: w_i(1 − 1/n)."""
        return self._weights * (1 - 1 / self.cells)


class Intervals(StructuredMatrix):
    """Sums over runs of cells, low <= cell < high; runs may go on from the last to the first cell.

    With P the running totals of the cells, taken twice around, a row is P[high] − P[low].
    """

    def __init__(self, cells: int, low: Ints, high: Ints) -> None:
        super().__init__(len(low), cells)
        self.low, self.high = low, high

    @classmethod
    def of_cells(cls, cells: int) -> Intervals:
        """Return one row for each cell."""
        at = np.arange(cells)
        return cls(cells, at, at + 1)

    def _digest(self) -> bytes:
        runs = self.low.tobytes() + self.high.tobytes()
        return hashlib.sha256(b"intervals %d " % self.cells + runs).digest()

    @property
    def lengths(self) -> Ints:
        """The number of cells of each run."""
        return self.high - self.low

    @property
    def is_identity(self) -> bool:
        """Whether the runs are the cells in order."""
        at = np.arange(self.cells)
        same = self.rows == self.cells and np.array_equal(self.low, at)
        return same and np.array_equal(self.high, at + 1)

    @property
    def is_total(self) -> bool:
        """Whether there is one run, of all cells."""
        return self.rows == 1 and bool(self.lengths[0] == self.cells)

    def runs(self) -> Runs:
        """Return the ends of the runs."""
        return self.low, self.high

    def entries(self) -> Sparse:
        """Return the cells of all runs."""
        row = np.repeat(np.arange(self.rows), self.lengths)
        starts = np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)
        cell = (np.arange(len(row)) - starts + self.low[row]) % self.cells
        return Sparse.of(self.rows, self.cells, row, cell, np.ones(len(row)))

    @property
    def matrix(self) -> Array:
        """Ones inside the runs."""
        check_entries(self.rows, self.cells)
        at = np.arange(self.cells)
        low, high = self.low[:, None], self.high[:, None]
        inside = ((low <= at) & (at < high)) | (at + self.cells < high)
        return frozen(inside.astype(np.float64))

    def even_gram(self) -> tuple[float, float] | None:
        """Return those of rows·J, if every run has all cells."""
        whole = bool((self.lengths == self.cells).all())
        return (0.0, float(self.rows * self.cells)) if whole else None

    def apply(self, values: Array, axis: int) -> Array:
        """Take differences of running totals."""
        around = [values, values] if self.wraps else [values]
        shape = (*values.shape[:axis], 1, *values.shape[axis + 1 :])
        totals = np.concatenate([np.zeros(shape, values.dtype), *around], axis).cumsum(axis)
        return np.asarray(np.take(totals, self.high, axis) - np.take(totals, self.low, axis))

    def apply_transposed(self, values: Array, axis: int) -> Array:
        """Add up where runs begin less where they end."""
        first = np.moveaxis(values, axis, 0) if axis else values
        n = self.cells * (1 + self.wraps)
        steps = np.zeros((n + 1, *first.shape[1:]))
        np.add.at(steps, self.low, first)
        np.subtract.at(steps, self.high, first)
        cells = steps.cumsum(axis=0)[:n].reshape(-1, self.cells, *first.shape[1:]).sum(axis=0)
        return np.moveaxis(cells, 0, axis) if axis else cells

    def gram(self) -> Array:
        """Count the runs that contain both cells of a pair: running totals of their corners."""
        n = self.cells * (1 + self.wraps)
        corners = np.zeros((n + 1, n + 1))
        for corner, other, sign in (
            (self.low, self.low, 1.0),
            (self.high, self.high, 1.0),
            (self.low, self.high, -1.0),
            (self.high, self.low, -1.0),
        ):
            np.add.at(corners, (corner, other), sign)
        full = corners.cumsum(axis=0).cumsum(axis=1)[:n, :n]
        return np.asarray(full.reshape(n // self.cells, self.cells, -1, self.cells).sum((0, 2)))

    def take(self, rows: Ints) -> Intervals:
        """Return the runs of these numbers."""
        return Intervals(self.cells, self.low[rows], self.high[rows])

    def squares(self) -> Array:
        """Return the lengths of the runs."""
        return self.lengths.astype(np.float64)

    def column_squares(self) -> Array:
        """Count the runs that each cell is in."""
        return self.apply_transposed(np.ones(self.rows), 0)

    def cell_squares(self) -> Array | None:
        """Count the runs, if all have one cell."""
        if (self.lengths > 1).any():
            return None
        return np.bincount(self.low, minlength=self.cells).astype(np.float64)

    def inner(self, other: StructuredMatrix) -> Array:
        """Count the cells that both runs have, each also going on into the next round."""
        runs = None if other.is_written else other.runs()
        if runs is None:
            return super().inner(other)
        common = np.zeros(self.rows, dtype=np.int64)
        for shift in (0, self.cells, -self.cells):
            low = np.maximum(self.low, runs[0] + shift)
            common += np.maximum(np.minimum(self.high, runs[1] + shift) - low, 0)
        return common.astype(np.float64)

    @cached_property
    def wraps(self) -> bool:
        """Whether a run goes on from the last cell to the first."""
        return bool((self.high > self.cells).any())


def across_and_along(gram: StructuredMatrix) -> tuple[float, float]:
    """Return the parts of the trace of a symmetric matrix across the ones and along them.

    With u the unit vector along the ones the latter is uᵀGu.
    """
    if gram.even is not None:
        across, along = gram.even
        return (gram.cells - 1) * across, along
    along = float(gram.matrix.sum()) / gram.cells
    return float(np.trace(gram.matrix)) - along, along


def weighted_sum(terms: Sequence[tuple[float, StructuredMatrix]]) -> StructuredMatrix:
    """Return Σ weight · M, of one or more square matrices over the same cells."""
    even = [m.even for _, m in terms if m.even is not None]
    if len(even) < len(terms):
        return Dense(np.asarray(sum(weight * m.matrix for weight, m in terms)))
    across, along = np.array([weight for weight, _ in terms]) @ np.array(even)
    return Exchangeable(terms[0][1].cells, float(across), float(along))


def of_entries(rows: int, cells: int, row: Ints, cell: Ints, weight: Array) -> StructuredMatrix:
    """Return a matrix by its entries, in any order; as runs, if its rows are some."""
    return compact(Sparse.of(rows, cells, row, cell, weight))


def compact(entries: Sparse) -> StructuredMatrix:
    """Return the rows as runs, if they are some."""
    runs = entries.runs()
    return entries if runs is None else Intervals(entries.cells, *runs)


# ── Kronecker products of matrices, which are never multiplied out to be applied ─────────────────


def kron(tables: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """Multiply the Kronecker product of tables out; of none it is 1."""
    return reduce(np.kron, tables) if (tables := list(tables)) else np.ones((1, 1))


class Kronecker(StructuredMatrix):
    """⊗ factors: rows and cells are those of the factors, in C order. Of no factors it is 1."""

    def __init__(self, factors: Iterable[StructuredMatrix]) -> None:
        self.factors = tuple(factors)
        super().__init__(
            math.prod(f.rows for f in self.factors), math.prod(f.cells for f in self.factors)
        )

    def _digest(self) -> bytes:
        return hashlib.sha256(b"kronecker" + b"".join(f.key for f in self.factors)).digest()

    @property
    def matrix(self) -> Array:
        """The product, multiplied out."""
        check_entries(self.rows, self.cells)
        return frozen(kron(f.matrix for f in self.factors))

    @property
    def T(self) -> Kronecker:  # noqa: N802
        """The product of the transposes."""
        return Kronecker(f.T for f in self.factors)

    def apply(self, values: Array, axis: int) -> Array:
        """Apply one factor after the other along an axis of its own."""
        before, after = values.shape[:axis], values.shape[axis + 1 :]
        tensor = values.reshape([*before, *(f.cells for f in self.factors), *after])
        for at, factor in enumerate(self.factors, start=axis):
            tensor = factor.apply(tensor, at)
        return tensor.reshape([*before, self.rows, *after])

    def apply_transposed(self, values: Array, axis: int) -> Array:
        """Apply the product of the transposes, factor by factor."""
        return self.T.apply(values, axis)

    def gram(self) -> Array:
        """Multiply the Gram matrices."""
        return kron(f.gram() for f in self.factors)

    def pinv(self, shape: Sequence[int] = ()) -> Kronecker:
        """Return the product of the pseudo-inverses."""
        return Kronecker(f.pinv() for f in self.factors)

    def sums(self) -> Array:
        """Multiply those of the factors."""
        return self._each(lambda f: f.sums())

    def squares(self) -> Array:
        """Multiply those of the factors."""
        return self._each(lambda f: f.squares())

    def column_squares(self) -> Array:
        """Multiply those of the factors."""
        return self._each(lambda f: f.column_squares())

    def _each(self, of: Callable[[StructuredMatrix], Array]) -> Array:
        return np.asarray(reduce(np.multiply.outer, map(of, self.factors), np.ones(()))).ravel()


def least_rank(matrix: StructuredMatrix) -> int:
    """Return what the rank isn't below: the rank itself of single cells and of runs, else 0.

    A run is an edge between the two places where it begins and ends, and the rank of some runs is
    that of their graph: places less connected parts. That is not so where some go around.
    """
    if matrix.is_written:
        return 0
    squares = matrix.cell_squares()
    if squares is not None:
        return int(np.count_nonzero(squares))
    runs = matrix.runs()
    if runs is None or (runs[1] > matrix.cells).any():
        return 0
    from scipy.sparse import coo_array  # slow to import, and seldom needed
    from scipy.sparse.csgraph import connected_components

    low, high = runs
    places, ends = np.unique(np.concatenate([low, high]), return_inverse=True)
    edges = (ends[: len(low)], ends[len(low) :])
    graph = coo_array((np.ones(len(low)), edges), shape=(len(places),) * 2)
    parts, _ = connected_components(graph, directed=False)
    return len(places) - int(parts)
