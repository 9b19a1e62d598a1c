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
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.narrow import narrow

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
        if (found := narrow(matrix, shape)) is not None and _is_wide(found.small):
            return Dense(np.ascontiguousarray(found.widen(independent_inverse(found.small).T).T))
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
        """Return what was given, or compute it."""
        return super().pinv(shape) if self._inverse is None else Dense(self._inverse)


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
    q, r = scipy.linalg.qr(rows.T, mode="economic")
    return np.asarray(scipy.linalg.solve_triangular(r, q.T, trans="N", lower=False).T)


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
