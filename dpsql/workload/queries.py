"""Bound factors: queries (rows) over a known number of cells (columns).

Queries say what is asked of them without being written out: their Gram matrix QᵀQ, and Q applied
along one axis of a tensor. `matrix` writes them out, where they are small enough for that.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ResourceLimitError

FloatMatrix = NDArray[np.float64]
Indices = NDArray[np.int64]

MAX_ENTRIES = 2**24
"""The largest matrix (rows × cells) that is written out: 128 MiB of float64."""


class Queries(ABC):
    """Queries over the cells of a block of attributes."""

    def __init__(self, rows: int, cells: int) -> None:
        self.rows = rows
        """The number of queries."""
        self.cells = cells
        """The number of cells that each query weighs."""

    @cached_property
    def key(self) -> bytes:
        """A digest of the content: equal queries have equal keys."""
        return self._digest()

    @abstractmethod
    def _digest(self) -> bytes: ...

    @property
    @abstractmethod
    def matrix(self) -> FloatMatrix:
        """The queries written out: shape (rows, cells), finite, read-only.

        Raises:
            ResourceLimitError: they are too many.
        """

    @abstractmethod
    def apply(self, values: FloatMatrix, axis: int) -> FloatMatrix:
        """Return Q·values along one axis: `cells` entries there become `rows`."""

    @abstractmethod
    def apply_transposed(self, values: FloatMatrix, axis: int) -> FloatMatrix:
        """Return Qᵀ·values along one axis: `rows` entries there become `cells`."""

    @abstractmethod
    def gram(self) -> FloatMatrix:
        """Return QᵀQ, of shape (cells, cells)."""

    @abstractmethod
    def squares(self) -> FloatMatrix:
        """Return the squared norm of each query, of shape (rows,)."""

    @abstractmethod
    def take(self, rows: Indices) -> Queries:
        """Return the queries of these numbers, in this order."""

    def between(self, start: int, stop: int) -> Queries:
        """Return the queries from number `start` up to, and without, `stop`."""
        whole = (start, stop) == (0, self.rows)
        return self if whole else self.take(np.arange(start, stop))

    def inner(self, other: Queries) -> FloatMatrix:
        """Return the inner product of each query with the one of the same number in `other`."""
        result = np.zeros(self.rows)
        step = max(1, MAX_ENTRIES // (8 * self.cells))
        for start in range(0, self.rows, step):
            stop = min(start + step, self.rows)
            ours, theirs = self.between(start, stop).matrix, other.between(start, stop).matrix
            result[start:stop] = np.einsum("ij,ij->i", ours, theirs)
        return result

    def cell_squares(self) -> FloatMatrix | None:
        """Return the sum of squared coefficients of each cell; None if a query has several cells.

        Queries of one cell each are a group-by, of some of the cells or with weights.
        """
        return None

    def sums(self) -> FloatMatrix:
        """Return the sum of each query's coefficients, of shape (rows,)."""
        return self.apply(np.ones(self.cells), 0)


class DenseQueries(Queries):
    """Any queries, written out."""

    def __init__(self, matrix: FloatMatrix) -> None:
        frozen = np.ascontiguousarray(matrix, dtype=np.float64)
        frozen.setflags(write=False)
        super().__init__(frozen.shape[0], frozen.shape[1])
        self._matrix = frozen

    def _digest(self) -> bytes:
        shape = repr(self._matrix.shape).encode()
        return hashlib.sha256(shape + self._matrix.tobytes()).digest()

    @property
    def matrix(self) -> FloatMatrix:
        """The queries themselves."""
        return self._matrix

    def apply(self, values: FloatMatrix, axis: int) -> FloatMatrix:
        """Multiply."""
        return np.moveaxis(np.tensordot(self._matrix, values, (1, axis)), 0, axis)

    def apply_transposed(self, values: FloatMatrix, axis: int) -> FloatMatrix:
        """Multiply."""
        return np.moveaxis(np.tensordot(self._matrix, values, (0, axis)), 0, axis)

    def gram(self) -> FloatMatrix:
        """Multiply."""
        return np.asarray(self._matrix.T @ self._matrix)

    def squares(self) -> FloatMatrix:
        """Sum along the rows."""
        return np.asarray(np.einsum("ij,ij->i", self._matrix, self._matrix))

    def take(self, rows: Indices) -> Queries:
        """Take rows."""
        return DenseQueries(self._matrix[rows])

    def cell_squares(self) -> FloatMatrix | None:
        """Add up along the queries."""
        if (np.count_nonzero(self._matrix, axis=1) > 1).any():
            return None
        return np.asarray(np.einsum("ij,ij->j", self._matrix, self._matrix))


class CellQueries(Queries):
    """One query per cell: the identity."""

    def __init__(self, cells: int) -> None:
        super().__init__(cells, cells)

    def _digest(self) -> bytes:
        return b"identity %d" % self.cells

    @property
    def matrix(self) -> FloatMatrix:
        """The identity."""
        check_entries(self.rows, self.cells)
        return _frozen(np.eye(self.cells))

    def apply(self, values: FloatMatrix, axis: int) -> FloatMatrix:
        """Nothing to do."""
        return values

    def apply_transposed(self, values: FloatMatrix, axis: int) -> FloatMatrix:
        """Nothing to do."""
        return values

    def gram(self) -> FloatMatrix:
        """Return the identity."""
        return self.matrix

    def squares(self) -> FloatMatrix:
        """Return ones."""
        return np.ones(self.rows)

    def take(self, rows: Indices) -> IntervalQueries:
        """Take runs of one cell."""
        return IntervalQueries(self.cells, rows, rows + 1)

    def cell_squares(self) -> FloatMatrix:
        """Return ones."""
        return np.ones(self.cells)

    def inner(self, other: Queries) -> FloatMatrix:
        """Take the cells as runs."""
        return self.take(np.arange(self.rows)).inner(other)


class IntervalQueries(Queries):
    """Sums over runs of cells, low <= cell < high; runs may go on from the last to the first cell.

    With P the running totals of the cells, taken twice around, a query is P[high] − P[low].
    """

    def __init__(self, cells: int, low: Indices, high: Indices) -> None:
        super().__init__(len(low), cells)
        self._low, self._high = low, high

    def _digest(self) -> bytes:
        runs = self._low.tobytes() + self._high.tobytes()
        return hashlib.sha256(b"intervals %d " % self.cells + runs).digest()

    @property
    def ends(self) -> tuple[Indices, Indices]:
        """The first cell of every run, and the one after its last."""
        return self._low, self._high

    @property
    def matrix(self) -> FloatMatrix:
        """Ones inside the runs."""
        check_entries(self.rows, self.cells)
        at = np.arange(self.cells)
        low, high = self._low[:, None], self._high[:, None]
        inside = ((low <= at) & (at < high)) | (at + self.cells < high)
        return _frozen(inside.astype(np.float64))

    def apply(self, values: FloatMatrix, axis: int) -> FloatMatrix:
        """Take differences of running totals."""
        around = [values, values] if self._wraps else [values]
        first = np.zeros_like(np.take(values, [0], axis))
        totals = np.cumsum(np.concatenate([first, *around], axis), axis)
        return np.asarray(np.take(totals, self._high, axis) - np.take(totals, self._low, axis))

    def apply_transposed(self, values: FloatMatrix, axis: int) -> FloatMatrix:
        """Add up where runs begin less where they end."""
        first = np.moveaxis(values, axis, 0)
        n = self.cells * (1 + self._wraps)
        steps = np.zeros((n + 1, *first.shape[1:]))
        np.add.at(steps, self._low, first)
        np.subtract.at(steps, self._high, first)
        cells = steps.cumsum(axis=0)[:n].reshape(-1, self.cells, *first.shape[1:]).sum(axis=0)
        return np.moveaxis(cells, 0, axis)

    def gram(self) -> FloatMatrix:
        """Count the runs that contain both cells of a pair: running totals of their corners."""
        n = self.cells * (1 + self._wraps)
        corners = np.zeros((n + 1, n + 1))
        for one, other, sign in (
            (self._low, self._low, 1.0),
            (self._high, self._high, 1.0),
            (self._low, self._high, -1.0),
            (self._high, self._low, -1.0),
        ):
            np.add.at(corners, (one, other), sign)
        full = corners.cumsum(axis=0).cumsum(axis=1)[:n, :n]
        return np.asarray(full.reshape(n // self.cells, self.cells, -1, self.cells).sum((0, 2)))

    def squares(self) -> FloatMatrix:
        """Return the lengths of the runs."""
        return (self._high - self._low).astype(np.float64)

    def cell_squares(self) -> FloatMatrix | None:
        """Count the runs, if all have one cell."""
        if (self._high - self._low > 1).any():
            return None
        return np.bincount(self._low, minlength=self.cells).astype(np.float64)

    def take(self, rows: Indices) -> IntervalQueries:
        """Take runs."""
        return IntervalQueries(self.cells, self._low[rows], self._high[rows])

    def inner(self, other: Queries) -> FloatMatrix:
        """Count the cells that both runs have, each also going on into the next round."""
        if isinstance(other, CellQueries):
            other = other.take(np.arange(other.rows))
        if not isinstance(other, IntervalQueries):
            return super().inner(other)
        common = np.zeros(self.rows, dtype=np.int64)
        for shift in (0, self.cells, -self.cells):
            low = np.maximum(self._low, other._low + shift)
            common += np.maximum(np.minimum(self._high, other._high + shift) - low, 0)
        return common.astype(np.float64)

    @property
    def _wraps(self) -> bool:
        return bool((self._high > self.cells).any())


def _frozen(matrix: FloatMatrix) -> FloatMatrix:
    matrix.setflags(write=False)
    return matrix


def check_entries(rows: int, cells: int) -> None:
    """Refuse a matrix that is too large to be written out, by its size alone."""
    if rows * cells > MAX_ENTRIES:
        raise ResourceLimitError(
            f"{rows:,} queries over {cells:,} cells are too many to be written out.",
            hint="use a coarser domain or fewer queries.",
        )
