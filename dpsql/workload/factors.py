"""Query factors: named families of queries over one attribute, or over a few together.

A factor has no size of its own; `bind` gives it one. Cells are numbered 0..n-1 in domain order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.errors import ResourceLimitError, WorkloadError
from dpsql.linalg.matrices import Dense, Exchangeable, Intervals, check_entries
from dpsql.linalg.matrices import StructuredMatrix as Queries

MAX_CELLS = 2**26
"""Cells of one marginal, queries of one factor, or answers held at once: half a gibibyte."""

LARGEST_VALUE = 2**31
"""A row's value of a measure is smaller: sums over 2^31 rows fit 64 bits."""

SMALLEST, LARGEST = 1e-12, 1e12
"""Magnitudes of the coefficients of a matrix, where they are not 0."""


class Factor(Protocol):
    """Anything that becomes queries once the number of cells is known."""

    def bind(self, cells: int) -> Queries:
        """Return the queries over `cells` cells."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One query per cell: a group-by."""

    def bind(self, cells: int) -> Queries:
        """Return the cells themselves."""
        return Exchangeable(cells)


@dataclass(frozen=True, slots=True)
class Measure:
    """Add up a value of each row instead of counting rows; over an attribute of one cell.

    With a bound of 1 and the value 1 it counts the rows of one of several tables.
    """

    bound: int
    """The largest magnitude of a row's value, which is a whole number."""
    unit: float = 1.0
    """The amount that a value of 1 stands for in answers."""
    center: float = 0.0
    """The number that was taken off the value of each row, in units of answers: that times the
    number of rows is put back. So answers are sums of unit·v + center, and v can be small around
    the middle."""
    rows: int = 1
    """The most rows of one privacy unit that count in the table that is added up, beside other
    tables with rows of the same unit: in the plan for all of them a unit is one record."""
    of_units: bool = False
    """Whether units are counted, each in up to `rows` cells of the other attributes, and once in
    each, whatever rows it has; or values of units, of which one covers `bound` in each."""

    def bind(self, cells: int) -> Queries:
        """Return the cell, in units of answers.

        Raises:
            WorkloadError: the attribute has more than one cell, the bound is no whole number from 1
                to 2^31 − 1, or the unit is not a positive finite number, or the center no finite
                one, or there is no bound on the rows of a unit.
        """
        if cells != 1:
            raise WorkloadError(
                f"A measure is added up in one cell, not in {cells}.",
                hint="give the measure an attribute of its own, of size 1.",
            )
        if type(self.bound) is not int or not 1 <= self.bound < LARGEST_VALUE:
            raise WorkloadError(
                f"The bound {self.bound!r} is not a whole number from 1 to {LARGEST_VALUE - 1:,}.",
                hint="add up values in larger units.",
            )
        if not 0 < self.unit < math.inf:
            raise WorkloadError(
                f"The unit {self.unit!r} is not a positive number.", hint="for example 0.01."
            )
        if not math.isfinite(self.center):
            raise WorkloadError(
                f"The center {self.center!r} is not a finite number.", hint="for example 0.5."
            )
        if type(self.rows) is not int or self.rows < 1:
            raise WorkloadError(
                f"A unit can't have {self.rows!r} rows that count.",
                hint="use a whole number from 1.",
            )
        return Exchangeable(1, self.unit, self.unit)


@dataclass(frozen=True, slots=True)
class Total:
    """One query that sums all cells."""

    def bind(self, cells: int) -> Queries:
        """Return one run over all cells."""
        return Intervals(cells, np.array([0]), np.array([cells]))


@dataclass(frozen=True, slots=True)
class Prefix:
    """`x <= c` for every cell c: a cumulative distribution."""

    def bind(self, cells: int) -> Queries:
        """Return the runs from the first cell on."""
        return Intervals(cells, np.zeros(cells, dtype=np.int64), np.arange(1, cells + 1))


@dataclass(frozen=True, slots=True)
class Suffix:
    """`x >= c` for every cell c."""

    def bind(self, cells: int) -> Queries:
        """Return the runs up to the last cell."""
        return Intervals(cells, np.arange(cells), np.full(cells, cells))


@dataclass(frozen=True, slots=True)
class AllRange:
    """`a <= x <= b` for all pairs of cells a <= b, in the order (0,0), (0,1), …, (n-1,n-1)."""

    def bind(self, cells: int) -> Queries:
        """Return the n(n+1)/2 runs."""
        _check_count(cells * (cells + 1) // 2)
        low, high = np.triu_indices(cells)
        return Intervals(cells, low, high + 1)


@dataclass(frozen=True, slots=True)
class CircularRange:
    """Runs of every length from every cell, going on from the last cell to the first.

    For times of day, months or directions. Query a·n + l starts at cell a and has l + 1 cells.
    """

    def bind(self, cells: int) -> Queries:
        """Return the n² runs."""
        _check_count(cells * cells)
        low = np.repeat(np.arange(cells), cells)
        return Intervals(cells, low, low + np.tile(np.arange(1, cells + 1), cells))


class Ranges:
    """`a <= x <= b` for listed pairs of cells (a, b)."""

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        try:
            table = np.array([[low, high] for low, high in pairs])
        except (TypeError, ValueError):
            table = np.zeros((0, 2))
        if not table.size or table.dtype.kind not in "iu":
            raise WorkloadError(
                "Ranges are pairs of cell numbers.", hint="for example Ranges([(0, 9), (10, 19)])."
            )
        self._low, self._high = table.astype(np.int64).T

    def bind(self, cells: int) -> Queries:
        """Check the bounds and return the runs.

        Raises:
            WorkloadError: a range is empty or leaves the domain.
        """
        wrong = (self._low < 0) | (self._high >= cells) | (self._low > self._high)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise WorkloadError(
                f"({self._low[at]}, {self._high[at]}) is not a range of cells 0 to {cells - 1}.",
                hint="each pair is the first and the last cell, counted from 0.",
            )
        return Intervals(cells, self._low.copy(), self._high + 1)

    def __repr__(self) -> str:
        return f"Ranges({len(self._low)})"


class Matrix:
    """Any matrix of queries × cells, over one attribute or, flattened in C order, over several.

    Sparse matrices of SciPy are taken too, up to 2^24 entries when written out.
    """

    def __init__(self, queries: ArrayLike) -> None:
        written_out = getattr(queries, "toarray", None)
        if callable(written_out):
            check_entries(*np.shape(queries)[:2])
            queries = written_out()
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
        sizes = np.abs(matrix[matrix != 0])
        if sizes.size and (sizes.min() < SMALLEST or sizes.max() > LARGEST):
            raise WorkloadError(
                "A query matrix has coefficients that are too large or too small.",
                hint=f"use 0, or magnitudes from {SMALLEST:g} to {LARGEST:g}; scale the queries.",
            )
        self._queries = Dense(matrix)

    @classmethod
    def affine(
        cls,
        shape: Sequence[int],
        coefficients: Sequence[float],
        thresholds: Sequence[float] | None = None,
    ) -> Matrix:
        """Return the queries a·x + b·y + … <= c over joint cells, one for each threshold c.

            workload.add(["x", "y"], Matrix.affine((10, 10), (1, 2)))

        Args:
            shape: the number of cells of each attribute; x, y, … are counted from 0.
            coefficients: a, b, …, one for each attribute.
            thresholds: by default every value that the sum takes.

        Raises:
            WorkloadError: there is not one coefficient for each attribute.
            ResourceLimitError: they are too many to be written out.
        """
        if len(shape) != len(coefficients):
            raise WorkloadError(
                f"There are {len(shape)} attributes but {len(coefficients)} coefficients.",
                hint="give one coefficient for each attribute.",
            )
        _check_cells(shape)
        sums = np.zeros(())
        for n, coefficient in zip(shape, coefficients, strict=True):
            sums = np.add.outer(sums, coefficient * np.arange(n))
        return cls._below(sums, thresholds)

    @classmethod
    def difference(cls, shape: Sequence[int], thresholds: Sequence[float] | None = None) -> Matrix:
        """Return the queries |x − y| <= c over the joint cells of two attributes.

        Args:
            shape: the number of cells of both attributes; x and y are counted from 0.
            thresholds: by default every value that the difference takes.

        Raises:
            WorkloadError: there are not two attributes.
            ResourceLimitError: they are too many to be written out.
        """
        if len(shape) != 2:
            raise WorkloadError(
                f"A difference is between 2 attributes, not {len(shape)}.",
                hint="for example Matrix.difference((10, 10)).",
            )
        _check_cells(shape)
        return cls._below(np.abs(np.subtract.outer(*map(np.arange, shape))), thresholds)

    @classmethod
    def _below(cls, values: NDArray[Any], thresholds: Sequence[float] | None) -> Matrix:
        limits = np.unique(values) if thresholds is None else np.asarray(thresholds, dtype=float)
        check_entries(limits.size, values.size)
        return cls(values.ravel() <= limits.reshape(-1, 1))

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


def _check_cells(shape: Sequence[int]) -> None:
    cells = math.prod(shape)
    if not 1 <= cells <= MAX_CELLS:
        raise ResourceLimitError(
            f"{cells:,} joint cells are not between 1 and {MAX_CELLS:,}.",
            hint="use coarser domains.",
        )


def _check_count(rows: int) -> None:
    if rows > MAX_CELLS:
        raise ResourceLimitError(
            f"A factor of {rows:,} queries is too large; the limit is {MAX_CELLS:,}.",
            hint="use a coarser domain or fewer queries.",
        )


def is_factor(value: Any) -> bool:
    """Tell whether `value` can be bound to a number of cells."""
    return callable(getattr(value, "bind", None))
