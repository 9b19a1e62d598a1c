"""Lowered blocks: a query matrix over the joint cells of some columns, and where its rows are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array
from dpsql.linalg.matrices import MAX_ENTRIES, Dense, Runs, Sparse, StructuredMatrix, compact
from dpsql.workload import Factor, Identity, Matrix, Measure, Queries


@dataclass(frozen=True, slots=True, eq=False)
class LoweredBlock:
    """A matrix over the joint cells of some columns, whose rows run along some axes."""

    attributes: tuple[str, ...]
    rows: StructuredMatrix
    """Runs of cells; or entries, if not all rows are runs."""
    axes: tuple[int, ...]
    """The axes of the groups along which its rows run, in C order; none for a single row."""
    hidden: bool = False
    """Whether there is one more row, the last, which no answer shows; see `outside`."""
    bound: int | None = None
    """Of a measure: the largest magnitude of a row's value, in its unit, which is the one entry."""
    center: float = 0.0
    """Of a measure: what a row counts besides its value."""

    @property
    def content(self) -> tuple[object, ...]:
        """A key that is equal for blocks that ask the same of the same groups."""
        return self.attributes, self.axes, self.rows.rows, self.rows.key

    @property
    def factor(self) -> Factor:
        """The factor with these rows.

        Raises:
            ResourceLimitError: they are too many to be written out.
        """
        if self.bound is not None:
            return Measure(self.bound, float(self.rows.matrix[0, 0]), self.center)
        if self.rows.is_written:
            return Matrix(self.dense())
        return Identity() if self.rows.is_identity else _Held(self.rows)

    @property
    def runs(self) -> Runs | None:
        """The rows as runs of cells, if they are."""
        return None if self.rows.is_written else self.rows.runs()

    def entries(self) -> Sparse:
        """Return the entries one by one.

        Raises:
            ResourceLimitError: they are too many.
        """
        if not self.rows.is_written:  # the squared norm of a run is its number of cells
            check_entries(int(self.rows.squares().sum()), 1, self.attributes)
        return self.rows.entries()

    def dense(self) -> Array:
        """Write the matrix out.

        Raises:
            ResourceLimitError: it is too large.
        """
        check_entries(self.rows.rows, self.rows.cells, self.attributes)
        return self.rows.matrix

    def with_rows(self, rows: StructuredMatrix) -> LoweredBlock:
        """Return the block with other rows along the same axes."""
        return replace(self, rows=rows)

    def with_dense(self, matrix: Array) -> LoweredBlock:
        """Return the block with the rows of a matrix, as runs if they are."""
        return self.with_rows(compact(Dense(matrix).entries()))


@dataclass(frozen=True, slots=True)
class _Held:
    """A factor that is known already."""

    queries: Queries

    def bind(self, cells: int) -> Queries:
        return self.queries


def check_entries(rows: int, cells: int, columns: tuple[str, ...]) -> None:
    """Refuse a matrix that is too large to be written out, by its size alone."""
    if rows * cells > MAX_ENTRIES:
        raise ResourceLimitError(
            f"The groups and conditions over {', '.join(columns)} need a matrix of "
            f"{rows:,} x {cells:,} entries, more than {MAX_ENTRIES:,}.",
            hint="group by columns with fewer values, or by fewer of the columns in the condition.",
        )
