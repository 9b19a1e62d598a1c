"""Measurements as one linear map of the cells of several tables that have the same total.

A measurement is a product of factors applied to a marginal. Only tables, marginals and factors are
held: the map as a matrix would have a row for each measurement and a column for each cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import Kronecker
from dpsql.planner.reconstruction.measured import MeasuredFactor


class Rows:
    """Measurements of one marginal of a table, in units of their standard deviation."""

    def __init__(
        self, axes: Sequence[int], factors: Iterable[MeasuredFactor], noise: float
    ) -> None:
        """Take the table's axis for each axis of the factors, and the variance of the noise."""
        listed = list(factors)
        self._order = [axes[axis] for f in listed for axis in f.axes]
        self._sizes = dict(zip(self._order, (n for f in listed for n in f.shape), strict=True))
        self.axes = tuple(sorted(self._order))
        """The axes of the table that the marginal keeps, in order."""
        self._matrix = Kronecker(f.real for f in listed)
        self._scale = 1 / math.sqrt(noise)
        self.count = self._matrix.rows

    def apply(self, marginal: Array) -> Array:
        """Measure a marginal whose axes are in the order of the table; shape (count,)."""
        cells = LabeledArray(self.axes, marginal).transpose(self._order)
        return (self._matrix @ cells.ravel()) * self._scale

    def adjoint(self, values: Array) -> Array:
        """Return the transpose, from measurements to the cells of the marginal."""
        return self._ordered(self._matrix.T @ (values * self._scale))

    @property
    def squares(self) -> Array:
        """The information of the measurements on each cell of the marginal: ‖column‖²."""
        return self._ordered(self._matrix.column_squares() * self._scale**2)

    def _ordered(self, cells: Array) -> Array:
        return LabeledArray.of(self._order, self._sizes, cells).transpose(self.axes)


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Measurements of marginals of one marginal, which is summed up once for all of them."""

    axes: tuple[int, ...]
    rows: tuple[Rows, ...]


@dataclass(frozen=True, eq=False)
class MeasuredTable:
    """One table and the measurements of it; or what they are of some of its cells."""

    shape: tuple[int, ...]
    cells: int
    """How many cells there are of which something is measured."""
    order: tuple[int, ...]
    """The numbers of the rows that were given, in the order in which they are measured."""
    groups: tuple[_Group, ...]
    index: tuple[Ints, ...] | None = None
    """For each group, where in its marginal these cells are counted; None if they are all."""

    @classmethod
    def of(cls, shape: tuple[int, ...], rows: Sequence[Rows]) -> MeasuredTable:
        """Return the measurements of a whole table."""
        groups = _groups(rows)
        order = tuple(rows.index(row) for group in groups for row in group.rows)
        return cls(shape, math.prod(shape), order, groups)

    def at(self, cells: Ints) -> MeasuredTable:
        """Return the same measurements of a table that is zero but for some cells."""
        places = np.unravel_index(cells, self.shape)
        index = tuple(
            np.ravel_multi_index([places[a] for a in group.axes], self._sizes(group))
            for group in self.groups
        )
        return replace(self, cells=len(cells), index=index)

    @cached_property
    def count(self) -> int:
        """The number of measurements."""
        return sum(row.count for group in self.groups for row in group.rows)

    def apply(self, values: Array) -> Array:
        """Measure a table, given by its cells: shape (count,)."""
        return np.concatenate(
            [
                row.apply(marginal.project(row.axes))
                for i, group in enumerate(self.groups)
                for marginal in [LabeledArray(group.axes, self._counted(i, values))]
                for row in group.rows
            ]
        )

    def adjoint(self, values: Array) -> Array:
        """Return the transpose of `apply`: one number for each cell."""
        given = iter(np.split(values, np.cumsum([r.count for g in self.groups for r in g.rows])))
        return self._added(lambda row: row.adjoint(next(given)))

    def squares(self) -> Array:
        """Return the squared norm of the columns of the cells."""
        return self._added(lambda row: row.squares)

    def _counted(self, number: int, values: Array) -> Array:
        """Return the marginal of a group."""
        group = self.groups[number]
        if self.index is None:
            table = LabeledArray(range(len(self.shape)), values.reshape(self.shape))
            return table.project(group.axes)
        sizes = self._sizes(group)
        counted = np.bincount(self.index[number], values, math.prod(sizes))
        return counted.astype(np.float64, copy=False).reshape(sizes)

    def _added(self, of: Callable[[Rows], Array]) -> Array:
        """Add up what some rows say of the cells of their marginals, cell by cell."""
        found = np.zeros(self.cells)
        for number, group in enumerate(self.groups):
            marginal = np.zeros(self._sizes(group))
            for row in group.rows:
                marginal += LabeledArray(row.axes, of(row)).expand(group.axes)
            if self.index is None:
                table = found.reshape(self.shape)
                table += LabeledArray(group.axes, marginal).expand(range(table.ndim))
            else:
                found += marginal.ravel()[self.index[number]]
        return found

    def _sizes(self, group: _Group) -> tuple[int, ...]:
        return tuple(self.shape[axis] for axis in group.axes)


def _groups(rows: Sequence[Rows]) -> tuple[_Group, ...]:
    """Put measurements together with the first of the largest marginals that has their axes."""
    inside: dict[tuple[int, ...], list[Rows]] = {}
    for row in sorted(rows, key=lambda r: -len(r.axes)):
        if not any(set(row.axes) <= set(other) for other in inside):
            inside[row.axes] = []
    for row in rows:
        inside[next(axes for axes in inside if set(row.axes) <= set(axes))].append(row)
    return tuple(_Group(axes, tuple(found)) for axes, found in inside.items())


@dataclass(frozen=True, eq=False)
class Tables:
    """All measurements of several tables that have one total.

    What is measured, in this order: the rows of each component; the total, taken as the mean of
    the components' totals; and the ties, how far each component's total is from that mean, or, if
    the total is `held`, from zero: then they are asked for the total.
    """

    components: tuple[MeasuredTable, ...]
    total: Array
    """What the measurements of the total say of a total of 1."""
    held: bool
    tie: float
    """The weight of the ties."""

    @classmethod
    def of(
        cls, components: Sequence[MeasuredTable], total: Sequence[Rows], *, held: bool = False
    ) -> Tables:
        """Weigh a difference between totals more than what is measured of them."""
        ones = np.concatenate([np.zeros(0), *(row.apply(np.ones(())) for row in total)])
        if len(components) == 1 and not held:
            return cls(tuple(components), ones, held, 0.0)
        even = [c.apply(np.full(c.cells, 1 / c.cells)) for c in components]
        known = [float(np.square(v).sum()) for v in [*even, ones]]
        return cls(tuple(components), ones, held, 10 * math.sqrt(max(*known, 1e-12)))

    @cached_property
    def cells(self) -> int:
        """The number of cells of all tables."""
        return sum(c.cells for c in self.components)

    @cached_property
    def count(self) -> int:
        """The number of measurements, without the ties."""
        return sum(c.count for c in self.components) + len(self.total)

    def at(self, support: Ints) -> Tables:
        """Return the same measurements of tables that are zero outside some cells, ascending."""
        ends = np.cumsum([0, *(c.cells for c in self.components)])
        pieces = np.split(support, np.searchsorted(support, ends[1:-1]))
        parts = zip(self.components, pieces, ends[:-1], strict=True)
        return replace(self, components=tuple(c.at(piece - start) for c, piece, start in parts))

    def split(self, x: Array) -> list[Array]:
        """Return the cells of each table."""
        return np.split(x, np.cumsum([c.cells for c in self.components])[:-1])

    def apply(self, x: Array) -> Array:
        """Measure all cells: shape (measurements and ties,)."""
        tables = self.split(x)
        measured = [c.apply(t) for c, t in zip(self.components, tables, strict=True)]
        totals = np.array([table.sum() for table in tables])
        ties = self.tie * self._apart(totals)
        return np.concatenate([*measured, self.total * totals.mean(), ties])

    def adjoint(self, values: Array) -> Array:
        """Return the transpose: one number for each cell."""
        counts = [*(c.count for c in self.components), len(self.total)]
        *parts, total, ties = np.split(values, np.cumsum(counts))
        common = float(total @ self.total) / len(self.components) + self.tie * self._apart(ties)
        found = zip(self.components, parts, common, strict=True)
        return np.concatenate([c.adjoint(v) + t for c, v, t in found])

    def tied(self, total: float) -> Array:
        """Return what the ties are if every table has some total."""
        return self.tie * self._apart(np.full(len(self.components), total))

    def _apart(self, totals: Array) -> Array:
        return totals if self.held else totals - totals.mean()
