"""Query factors: small named matrices over the cells of one attribute, or of a few together.

A factor has no size of its own; `bind` gives it one. Cells are numbered 0..n-1 in domain order,
queries are rows.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.errors import ResourceLimitError, WorkloadError

FloatMatrix = NDArray[np.float64]

MAX_ENTRIES = 2**24
"""The largest matrix (rows × cells) that a factor may write out: 128 MiB of float64."""


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """A bound factor: queries (rows) over the cells (columns) of a block of attributes."""

    matrix: FloatMatrix
    """Shape (rows, cells), finite, read-only."""
    key: bytes
    """A digest of the content: equal matrices have equal keys."""

    @classmethod
    def of(cls, matrix: FloatMatrix) -> Queries:
        """Freeze a matrix."""
        frozen = np.ascontiguousarray(matrix, dtype=np.float64)
        frozen.setflags(write=False)
        digest = hashlib.sha256(repr(frozen.shape).encode() + frozen.tobytes()).digest()
        return cls(frozen, digest)

    @property
    def rows(self) -> int:
        """The number of queries."""
        return int(self.matrix.shape[0])

    @property
    def cells(self) -> int:
        """The number of cells that each query weighs."""
        return int(self.matrix.shape[1])


class Factor(Protocol):
    """Anything that becomes a matrix of queries once the number of cells is known."""

    def bind(self, cells: int) -> Queries:
        """Return the queries over `cells` cells."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One query per cell: a group-by."""

    def bind(self, cells: int) -> Queries:
        """Return the n×n identity."""
        _check_size(cells, cells)
        return Queries.of(np.eye(cells))


@dataclass(frozen=True, slots=True)
class Total:
    """One query that sums all cells."""

    def bind(self, cells: int) -> Queries:
        """Return a row of ones."""
        _check_size(1, cells)
        return Queries.of(np.ones((1, cells)))


@dataclass(frozen=True, slots=True)
class Prefix:
    """`x <= c` for every cell c: a cumulative distribution."""

    def bind(self, cells: int) -> Queries:
        """Return the lower triangle of ones."""
        _check_size(cells, cells)
        return Queries.of(np.tri(cells))


@dataclass(frozen=True, slots=True)
class Suffix:
    """`x >= c` for every cell c."""

    def bind(self, cells: int) -> Queries:
        """Return the upper triangle of ones."""
        _check_size(cells, cells)
        return Queries.of(np.tri(cells).T)


@dataclass(frozen=True, slots=True)
class AllRange:
    """`a <= x <= b` for all pairs of cells a <= b, in the order (0,0), (0,1), …, (n-1,n-1)."""

    def bind(self, cells: int) -> Queries:
        """Return the n(n+1)/2 intervals."""
        _check_size(cells * (cells + 1) // 2, cells)
        low, high = np.triu_indices(cells)
        at = np.arange(cells)
        return Queries.of(((low[:, None] <= at) & (at <= high[:, None])).astype(float))


class Matrix:
    """Any matrix of queries × cells, over one attribute or, flattened in C order, over several."""

    def __init__(self, queries: ArrayLike) -> None:
        try:
            matrix = np.array(queries, dtype=np.float64)
        except (TypeError, ValueError):
            raise WorkloadError(
                "A query matrix must be a rectangle of numbers.",
                hint="pass a 2-dimensional array of shape (queries, cells).",
            ) from None
        if matrix.ndim != 2:
            raise WorkloadError(
                f"A query matrix must have 2 dimensions, not {matrix.ndim}.",
                hint="pass a 2-dimensional array of shape (queries, cells).",
            )
        if not np.isfinite(matrix).all():
            raise WorkloadError(
                "A query matrix has NaN or infinite entries.", hint="use finite coefficients."
            )
        self._queries = Queries.of(matrix)

    def bind(self, cells: int) -> Queries:
        """Check the width and return the matrix.

        Raises:
            WorkloadError: the matrix has another number of columns than there are cells.
        """
        if self._queries.cells != cells:
            raise WorkloadError(
                f"The query matrix has {self._queries.cells} columns, "
                f"but its attributes have {cells} cells.",
                hint="one column per cell; over several attributes the cells are in C order.",
            )
        return self._queries

    def __repr__(self) -> str:
        return f"Matrix({self._queries.rows}x{self._queries.cells})"


def _check_size(rows: int, cells: int) -> None:
    if rows * cells > MAX_ENTRIES:
        raise ResourceLimitError(
            f"A factor of {rows:,} queries over {cells:,} cells is too large to write out.",
            hint="use a coarser domain or fewer queries.",
        )


def is_factor(value: Any) -> bool:
    """Tell whether `value` can be bound to a number of cells."""
    return callable(getattr(value, "bind", None))
