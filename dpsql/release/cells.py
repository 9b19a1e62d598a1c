"""Measurements as one linear map of the cells of several tables that have the same total.

A measurement is a product of factors applied to a marginal. Only tables, marginals and factors are
held: the map as a matrix would have a row for each measurement and a column for each cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.labelled import LabelledArray
from dpsql.linalg.products import Kronecker
from dpsql.planner.reconstruction.measured import MeasuredFactor

Array = NDArray[np.float64]


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
        cells = LabelledArray(self.axes, marginal).transpose(self._order)
        return (self._matrix @ cells.ravel()) * self._scale

    def adjoint(self, values: Array) -> Array:
        """Return the transpose, from measurements to the cells of the marginal."""
        return self._ordered(self._matrix.T @ (values * self._scale))

    @property
    def squares(self) -> Array:
        """How much the measurements say of each cell of the marginal: ‖column‖²."""
        return self._ordered(self._matrix.column_squares() * self._scale**2)

    def _ordered(self, cells: Array) -> Array:
        return LabelledArray.of(self._order, self._sizes, cells).transpose(self.axes)


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Measurements of marginals of one marginal, which is summed up once for all of them."""

    axes: tuple[int, ...]
    rows: tuple[Rows, ...]


class Component:
    """One table and the measurements of it."""

    def __init__(self, shape: tuple[int, ...], rows: Sequence[Rows]) -> None:
        self.shape = shape
        self.cells = math.prod(shape)
        self._groups = _groups(rows)
        order = [row for group in self._groups for row in group.rows]
        self.order = [rows.index(row) for row in order]
        """The numbers of the rows that were given, in the order in which they are measured."""
        self._ends = np.cumsum([row.count for row in order])
        self.count = sum(row.count for row in order)

    def index(self, cells: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return, for each of the largest marginals, where in it some cells are counted."""
        places = np.unravel_index(cells, self.shape)
        return [
            np.ravel_multi_index([places[a] for a in group.axes], self._sizes(group))
            for group in self._groups
        ]

    def apply(self, table: Array) -> Array:
        """Measure a table: shape (count,)."""
        labelled = LabelledArray(range(table.ndim), table)
        return self._measure([labelled.project(group.axes) for group in self._groups])

    def apply_at(self, index: Sequence[NDArray[np.int64]], values: Array) -> Array:
        """Measure a table that is zero but for the cells of an index."""
        found = []
        for group, places in zip(self._groups, index, strict=True):
            sizes = self._sizes(group)
            counted = np.bincount(places, weights=values, minlength=math.prod(sizes))
            found.append(counted.astype(np.float64, copy=False).reshape(sizes))
        return self._measure(found)

    def adjoint(self, values: Array) -> Array:
        """Return the transpose of `apply`: one number for each cell."""
        table = np.zeros(self.shape)
        for group, marginal in zip(self._groups, self._spread(values), strict=True):
            table += LabelledArray(group.axes, marginal).expand(range(table.ndim))
        return table

    def adjoint_at(self, index: Sequence[NDArray[np.int64]], values: Array, cells: int) -> Array:
        """Return the transpose of `apply_at`: one number for each of the index's cells."""
        found = np.zeros(cells)
        for places, marginal in zip(index, self._spread(values), strict=True):
            found += marginal.ravel()[places]
        return found

    def squares_at(self, index: Sequence[NDArray[np.int64]], cells: int) -> Array:
        """Return the squared norm of the columns of the index's cells."""
        found = np.zeros(cells)
        for group, places in zip(self._groups, index, strict=True):
            marginal = np.zeros(self._sizes(group))
            for row in group.rows:
                marginal += LabelledArray(row.axes, row.squares).expand(group.axes)
            found += marginal.ravel()[places]
        return found

    def _sizes(self, group: _Group) -> tuple[int, ...]:
        return tuple(self.shape[axis] for axis in group.axes)

    def _measure(self, marginals: Sequence[Array]) -> Array:
        pairs = zip(self._groups, marginals, strict=True)
        return np.concatenate(
            [
                row.apply(LabelledArray(group.axes, marginal).project(row.axes))
                for group, marginal in pairs
                for row in group.rows
            ]
        )

    def _spread(self, values: Array) -> Iterator[Array]:
        given = iter(np.split(values, self._ends))
        for group in self._groups:
            marginal = np.zeros(self._sizes(group))
            for row in group.rows:
                marginal += LabelledArray(row.axes, row.adjoint(next(given))).expand(group.axes)
            yield marginal


def _groups(rows: Sequence[Rows]) -> list[_Group]:
    """Put measurements together with the first of the largest marginals that has their axes."""
    inside: dict[tuple[int, ...], list[Rows]] = {}
    for row in sorted(rows, key=lambda r: -len(r.axes)):
        if not any(set(row.axes) <= set(other) for other in inside):
            inside[row.axes] = []
    for row in rows:
        inside[next(axes for axes in inside if set(row.axes) <= set(axes))].append(row)
    return [_Group(axes, tuple(found)) for axes, found in inside.items()]


class Tables:
    """All measurements of several tables that have one total.

    What is measured, in this order: the rows of each component; the total, taken as the mean of
    the components' totals; and the ties, how far each component's total is from that mean, or, if
    the total is `held`, from zero: then they are asked for the total.
    """

    def __init__(
        self, components: Sequence[Component], total: Sequence[Rows], *, held: bool = False
    ) -> None:
        self.components = components
        self._held = held
        self._total = np.concatenate([np.zeros(0), *(row.apply(np.ones(())) for row in total)])
        ends = np.cumsum([c.cells for c in components]).tolist()
        self.places = [slice(e - c.cells, e) for e, c in zip(ends, components, strict=True)]
        """Where each table is in the cells of all."""
        self.cells = int(ends[-1])
        self._splits = np.cumsum([*(c.count for c in components), len(self._total)])
        self.count = int(self._splits[-1])
        """The number of measurements, without the ties."""
        self._tie = self._weight_of_ties()

    def restricted(self, support: NDArray[np.int64]) -> Restricted:
        """Return the same measurements of tables that are zero outside some cells, ascending."""
        bounds = np.searchsorted(support, [place.start for place in self.places]).tolist()
        pieces = [slice(*ends) for ends in pairwise([*bounds, len(support)])]
        index = [
            component.index(support[piece] - place.start)
            for component, place, piece in zip(self.components, self.places, pieces, strict=True)
        ]
        return Restricted(self, pieces, index)

    def split(self, x: Array) -> list[Array]:
        """Return each table."""
        pairs = zip(self.components, self.places, strict=True)
        return [x[place].reshape(component.shape) for component, place in pairs]

    def apply(self, x: Array) -> Array:
        """Measure all cells: shape (measurements and ties,)."""
        tables = self.split(x)
        measured = [c.apply(t) for c, t in zip(self.components, tables, strict=True)]
        return self.with_totals(measured, np.array([table.sum() for table in tables]))

    def adjoint(self, values: Array) -> Array:
        """Return the transpose: one number for each cell."""
        parts, common = self.parted(values)
        return np.concatenate(
            [
                c.adjoint(v).ravel() + t
                for c, v, t in zip(self.components, parts, common, strict=True)
            ]
        )

    def with_totals(self, measured: Sequence[Array], totals: Array) -> Array:
        """Put what is measured of totals behind what is measured of each table."""
        mean = totals.mean()
        return np.concatenate([*measured, self._total * mean, self._tie * self._apart(totals)])

    def parted(self, values: Array) -> tuple[list[Array], Array]:
        """Return what is measured of each table, and the transpose for what is of its total."""
        *parts, total, ties = np.split(values, self._splits)
        common = float(total @ self._total) / len(self.components)
        return parts, common + self._tie * self._apart(ties)

    def tied(self, total: float) -> Array:
        """Return what the ties are if every table has some total."""
        return self._tie * self._apart(np.full(len(self.components), total))

    def _apart(self, totals: Array) -> Array:
        return totals if self._held else totals - totals.mean()

    def _weight_of_ties(self) -> float:
        """Weigh a difference between totals more than what is measured of them."""
        if len(self.components) == 1 and not self._held:
            return 0.0
        even = [c.apply(np.full(c.shape, 1 / c.cells)) for c in self.components]
        known = [float(np.square(v).sum()) for v in [*even, self._total]]
        return 10 * math.sqrt(max(*known, 1e-12))


@dataclass(frozen=True, slots=True, eq=False)
class Restricted:
    """Measurements of tables that are zero outside some cells."""

    tables: Tables
    pieces: list[slice]
    """Which of the cells are each component's."""
    index: list[list[NDArray[np.int64]]]

    def apply(self, x: Array) -> Array:
        """Measure: x has one number for each of the cells."""
        parts = [x[piece] for piece in self.pieces]
        measured = [
            component.apply_at(index, part)
            for component, index, part in zip(
                self.tables.components, self.index, parts, strict=True
            )
        ]
        return self.tables.with_totals(measured, np.array([part.sum() for part in parts]))

    def adjoint(self, values: Array) -> Array:
        """Return the transpose: one number for each of the cells."""
        parts, common = self.tables.parted(values)
        found = [
            component.adjoint_at(index, part, piece.stop - piece.start) + total
            for component, index, part, piece, total in zip(
                self.tables.components, self.index, parts, self.pieces, common, strict=True
            )
        ]
        return np.concatenate(found)
