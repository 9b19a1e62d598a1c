"""Entries of a query matrix, and the factor that has them: a structured one where there is one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ResourceLimitError
from dpsql.workload import Factor, Identity, Matrix
from dpsql.workload.queries import MAX_ENTRIES, IntervalQueries, Queries

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """The entries of a matrix that are not 0, each once, sorted by row and then by cell."""

    rows: int
    cells: int
    row: Ints
    cell: Ints
    weight: Floats

    @classmethod
    def of(cls, rows: int, cells: int, row: Ints, cell: Ints, weight: Floats) -> Entries:
        """Sort entries, and leave out those that are 0."""
        kept = weight != 0
        row, cell, weight = row[kept], cell[kept], weight[kept]
        more = np.diff(row)
        if ((more > 0) | ((more == 0) & (np.diff(cell) > 0))).all():  # they often are sorted
            return cls(rows, cells, row, cell, weight)
        order = np.lexsort((cell, row))
        return cls(rows, cells, row[order], cell[order], weight[order])

    @property
    def is_total(self) -> bool:
        """Whether there is one row, of ones: it asks for all rows of the table."""
        return self.rows == 1 and len(self.cell) == self.cells and bool((self.weight == 1).all())

    @property
    def is_identity(self) -> bool:
        """Whether the rows are the cells in order: such rows are runs."""
        return False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is counted."""
        return not len(self.cell)

    def runs(self) -> tuple[Ints, Ints] | None:
        """Return every row as the run of cells low <= cell < high that it counts.

        Runs may go on from the last cell to the first, then high > cells. None if a row is no
        run, or has another weight than 1.
        """
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

    def dense(self, columns: tuple[str, ...]) -> Floats:
        """Write the matrix out.

        Raises:
            ResourceLimitError: it is too large.
        """
        check_entries(self.rows, self.cells, columns)
        matrix = np.zeros((self.rows, self.cells))
        matrix[self.row, self.cell] = self.weight
        return matrix

    def factor(self, columns: tuple[str, ...]) -> Factor:
        """Return the factor with these entries."""
        return Matrix(self.dense(columns))

    def expanded(self, columns: tuple[str, ...]) -> Entries:
        """Return the entries themselves."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Rows that each sum a run of cells, low <= cell < high, as `IntervalQueries` has them."""

    cells: int
    low: Ints
    high: Ints

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.low)

    @property
    def wraps(self) -> bool:
        """Whether a run goes on from the last cell to the first."""
        return bool((self.high > self.cells).any())

    @property
    def is_total(self) -> bool:
        """Whether there is one row, of ones."""
        return self.rows == 1 and bool((self.high - self.low == self.cells).all())

    @property
    def is_empty(self) -> bool:
        """Whether nothing is counted: a run has at least one cell."""
        return not self.rows

    @property
    def is_identity(self) -> bool:
        """Whether the rows are the cells in order."""
        at = np.arange(self.cells)
        same = self.rows == self.cells and np.array_equal(self.low, at)
        return same and np.array_equal(self.high, at + 1)

    def expanded(self, columns: tuple[str, ...]) -> Entries:
        """Return the entries one by one."""
        lengths = self.high - self.low
        check_entries(int(lengths.sum()), 1, columns)
        row = np.repeat(np.arange(self.rows), lengths)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        cell = (np.arange(len(row)) - starts + self.low[row]) % self.cells
        return Entries.of(self.rows, self.cells, row, cell, np.ones(len(row)))

    def factor(self, columns: tuple[str, ...]) -> Factor:
        """Return the factor with these rows."""
        return Identity() if self.is_identity else self

    def bind(self, cells: int) -> Queries:
        """Return the runs."""
        return IntervalQueries(cells, self.low, self.high)


Rows = Entries | Runs


@dataclass(frozen=True, slots=True, eq=False)
class LoweredBlock:
    """A matrix over the joint cells of some columns, whose rows run along some axes."""

    attributes: tuple[str, ...]
    rows: Rows
    axes: tuple[int, ...]
    """The axes of the groups along which its rows run, in C order; none for a single row."""
    hidden: bool = False
    """Whether there is one more row, the last, which no answer shows; see `outside`."""

    @property
    def factor(self) -> Factor:
        """The factor with these entries."""
        return self.rows.factor(self.attributes)

    def with_rows(self, rows: Rows) -> LoweredBlock:
        """Return the block with other rows along the same axes."""
        return replace(self, rows=rows)


def identity(cells: int) -> Runs:
    """Return one row per cell."""
    at = np.arange(cells)
    return Runs(cells, at, at + 1)


def compact(entries: Entries) -> Rows:
    """Return the rows as runs, if they are some."""
    runs = entries.runs()
    return entries if runs is None else Runs(entries.cells, *runs)


def from_dense(matrix: Floats) -> Entries:
    """Return the entries of a matrix."""
    row, cell = np.nonzero(matrix)
    rows, cells = matrix.shape
    return Entries(rows, cells, row, cell, matrix[row, cell])


def kron(first: Entries, second: Entries, columns: tuple[str, ...]) -> Entries:
    """Return the product of matrices over different columns, rows and cells in C order."""
    count = len(first.row) * len(second.row)
    check_entries(count, 1, columns)
    row = np.add.outer(first.row * second.rows, second.row).ravel()
    cell = np.add.outer(first.cell * second.cells, second.cell).ravel()
    weight = np.multiply.outer(first.weight, second.weight).ravel()
    rows, cells = first.rows * second.rows, first.cells * second.cells
    return Entries.of(rows, cells, row, cell, weight)


def check_entries(rows: int, cells: int, columns: tuple[str, ...]) -> None:
    """Refuse a matrix that is too large to be written out, by its size alone."""
    if rows * cells > MAX_ENTRIES:
        raise ResourceLimitError(
            f"The groups and conditions over {', '.join(columns)} need a matrix of "
            f"{rows:,} x {cells:,} entries, more than {MAX_ENTRIES:,}.",
            hint="group by coarser columns, or by fewer of those in the condition.",
        )
