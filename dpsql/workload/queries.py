"""Bound factors: queries (rows) over a known number of cells (columns).

Queries say what is asked of them without being written out: their Gram matrix QᵀQ, and Q applied
along one axis of a tensor. `matrix` writes them out, where they are small enough for that.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ResourceLimitError

FloatMatrix = NDArray[np.float64]
Indices = NDArray[np.int64]

MAX_ENTRIES = 2**24
"""The largest matrix (rows × cells) that is written out: 128 MiB of float64."""


class Queries(ABC):
    """Queries over the cells of a block of attributes."""

    def __init__(self, rows: int, cells: int, key: bytes) -> None:
        self.rows = rows
        """The number of queries."""
        self.cells = cells
        """The number of cells that each query weighs."""
        self.key = key
        """A digest of the content: equal queries have equal keys."""

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
    def gram(self) -> FloatMatrix:
        """Return QᵀQ, of shape (cells, cells)."""

    @abstractmethod
    def squares(self) -> FloatMatrix:
        """Return the squared norm of each query, of shape (rows,)."""

    @abstractmethod
    def between(self, start: int, stop: int) -> Queries:
        """Return the queries from number `start` up to, and without, `stop`."""

    def sums(self) -> FloatMatrix:
        """Return the sum of each query's coefficients, of shape (rows,)."""
        return self.apply(np.ones(self.cells), 0)


class DenseQueries(Queries):
    """Any queries, written out."""

    def __init__(self, matrix: FloatMatrix) -> None:
        frozen = np.ascontiguousarray(matrix, dtype=np.float64)
        frozen.setflags(write=False)
        digest = hashlib.sha256(repr(frozen.shape).encode() + frozen.tobytes()).digest()
        super().__init__(frozen.shape[0], frozen.shape[1], digest)
        self._matrix = frozen

    @property
    def matrix(self) -> FloatMatrix:
        """The queries themselves."""
        return self._matrix

    def apply(self, values: FloatMatrix, axis: int) -> FloatMatrix:
        """Multiply."""
        return np.moveaxis(np.tensordot(self._matrix, values, (1, axis)), 0, axis)

    def gram(self) -> FloatMatrix:
        """Multiply."""
        return np.asarray(self._matrix.T @ self._matrix)

    def squares(self) -> FloatMatrix:
        """Sum along the rows."""
        return np.asarray(np.einsum("ij,ij->i", self._matrix, self._matrix))

    def between(self, start: int, stop: int) -> Queries:
        """Take rows."""
        return DenseQueries(self._matrix[start:stop])


class CellQueries(Queries):
    """One query per cell: the identity."""

    def __init__(self, cells: int) -> None:
        super().__init__(cells, cells, b"identity %d" % cells)

    @property
    def matrix(self) -> FloatMatrix:
        """The identity."""
        check_entries(self.rows, self.cells)
        return _frozen(np.eye(self.cells))

    def apply(self, values: FloatMatrix, axis: int) -> FloatMatrix:
        """Nothing to do."""
        return values

    def gram(self) -> FloatMatrix:
        """Return the identity."""
        return self.matrix

    def squares(self) -> FloatMatrix:
        """Return ones."""
        return np.ones(self.rows)

    def between(self, start: int, stop: int) -> Queries:
        """Take runs of one cell."""
        if (start, stop) == (0, self.rows):
            return self
        return IntervalQueries(self.cells, np.arange(start, stop), np.arange(start, stop) + 1)


class IntervalQueries(Queries):
    """Sums over runs of cells, low <= cell < high; runs may go on from the last to the first cell.

    With P the running totals of the cells, taken twice around, a query is P[high] − P[low].
    """

    def __init__(self, cells: int, low: Indices, high: Indices) -> None:
        digest = hashlib.sha256(b"intervals %d " % cells + low.tobytes() + high.tobytes())
        super().__init__(len(low), cells, digest.digest())
        self._low, self._high = low, high

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

    def between(self, start: int, stop: int) -> Queries:
        """Take runs."""
        return IntervalQueries(self.cells, self._low[start:stop], self._high[start:stop])

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
