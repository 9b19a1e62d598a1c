"""Matrices that are known by a few numbers: those that treat all cells alike, and runs of cells."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.matrices import Dense, Runs, Sparse, StructuredMatrix, check_entries, frozen


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
        first = np.zeros_like(np.take(values, [0], axis))
        totals = np.cumsum(np.concatenate([first, *around], axis), axis)
        return np.asarray(np.take(totals, self.high, axis) - np.take(totals, self.low, axis))

    def apply_transposed(self, values: Array, axis: int) -> Array:
        """Add up where runs begin less where they end."""
        first = np.moveaxis(values, axis, 0)
        n = self.cells * (1 + self.wraps)
        steps = np.zeros((n + 1, *first.shape[1:]))
        np.add.at(steps, self.low, first)
        np.subtract.at(steps, self.high, first)
        cells = steps.cumsum(axis=0)[:n].reshape(-1, self.cells, *first.shape[1:]).sum(axis=0)
        return np.moveaxis(cells, 0, axis)

    def gram(self) -> Array:
        """Count the runs that contain both cells of a pair: running totals of their corners."""
        n = self.cells * (1 + self.wraps)
        corners = np.zeros((n + 1, n + 1))
        for one, other, sign in (
            (self.low, self.low, 1.0),
            (self.high, self.high, 1.0),
            (self.low, self.high, -1.0),
            (self.high, self.low, -1.0),
        ):
            np.add.at(corners, (one, other), sign)
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

    @property
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
