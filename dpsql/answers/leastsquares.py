"""Weighted least squares over many cells: min ½‖A x − y‖², for x >= 0 or for any x.

For x >= 0, most cells of a minimum are zero. So the sum of squares is minimized over some cells
at a time: those that are not zero, and about as many as there are measurements of those that
would lower it most. L-BFGS-B finds out which of them stay zero, conjugate gradients go straight
to the minimum over the others. That is repeated until it makes no difference. A x is the same at
every minimum, and so are all answers that were measured; which minimum is found matters for no
answer that was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import Kronecker
from dpsql.planner.reconstruction.measured import MeasuredFactor

# ── Measurements as one linear map of the cells of several tables that have the same total ───────
#
# A measurement is a product of factors applied to a marginal. Only tables, marginals and factors
# are held: the map as a matrix would have a row for each measurement and a column for each cell.


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
    """The number of cells of which something is measured."""
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
        total = np.zeros(self.cells)
        for number, group in enumerate(self.groups):
            marginal = np.zeros(self._sizes(group))
            for row in group.rows:
                marginal += LabeledArray(row.axes, of(row)).expand(group.axes)
            if self.index is None:
                table = total.reshape(self.shape)
                table += LabeledArray(group.axes, marginal).expand(range(table.ndim))
            else:
                total += marginal.ravel()[self.index[number]]
        return total

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
    """The measurements of the total, as they are of a total of 1."""
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
        terms = zip(self.components, parts, common, strict=True)
        return np.concatenate([c.adjoint(v) + t for c, v, t in terms])

    def tied(self, total: float) -> Array:
        """Return what the ties are if every table has some total."""
        return self.tie * self._apart(np.full(len(self.components), total))

    def _apart(self, totals: Array) -> Array:
        return totals if self.held else totals - totals.mean()


MAX_ROUNDS = 200
"""Rounds in which cells are chosen; 5 to 40 are usual."""
INNER = 50
"""Steps of L-BFGS-B for each choice: more would be wasted on cells that are not the last ones."""
MEMORY = 20
"""Steps that L-BFGS-B learns the curvature from."""
LEAST_CELLS = 4096
"""So many cells are taken at a time even if there are fewer measurements."""
ENOUGH = 1e-6
"""Ends when a round lowers ½‖A x − y‖² by less than so much of it, or of 1: y has variance 1."""
MAX_GRADIENTS = 200
"""Conjugate gradients at a time; without bounds, as many as there are kinds of measurements do."""
MAX_RESTARTS = 20
"""Conjugate gradients begin anew, where rounding in floats has led them astray."""
MAX_HALVINGS = 20
_ACCURACY = 1e-10
_FLAT = 1e-13
_MISSED = 1e-5
"""An estimate of a sum may count each cell by so much more or less than once."""


def least_squares(tables: Tables, y: Array, start: Array, *, nonnegative: bool) -> Array:
    """Return x near a minimum of ½‖A x − y‖²: all cells, shape (cells,).

    Args:
        tables: A.
        y: what was measured, and 0 or more for the ties.
        start: all cells; not below zero if `nonnegative`.
        nonnegative: whether cells are held at or above zero.
    """
    if nonnegative:
        return _bounded(tables, y, start)
    return _unbounded(tables, y, start)


def known_sum(component: MeasuredTable, y: Array) -> tuple[float, float]:
    """Return the best unbiased estimate of the sum of all cells, and its variance.

    It is 1ᵀx for every x of least squares: uᵀAᵀy for a u with AᵀA u = 1, and has the variance
    uᵀAᵀA u = 1ᵀu. Without such a u the measurements don't determine the sum: the variance is
    infinite.

    Args:
        component: A.
        y: what was measured, with variance 1.
    """
    tables = Tables.of([component], ())
    everything, goal = np.ones(tables.cells, dtype=np.bool_), _ACCURACY * math.sqrt(tables.cells)
    u, missing = np.zeros(tables.cells), np.ones(tables.cells)
    for _ in range(MAX_RESTARTS):
        u = u + _conjugate(tables, missing, everything, goal)
        missing = 1 - tables.adjoint(tables.apply(u))
        if np.linalg.norm(missing) <= goal:
            break
    if np.abs(missing).max() > _MISSED:
        return 0.0, math.inf
    return float(tables.apply(u) @ np.append(y, 0.0)), float(u.sum())


def _unbounded(tables: Tables, y: Array, start: Array) -> Array:
    x, everything = start, np.ones(tables.cells, dtype=np.bool_)
    goal = _ACCURACY * float(np.linalg.norm(tables.adjoint(y)))
    for _ in range(MAX_RESTARTS):
        missing = y - tables.apply(x)
        if np.linalg.norm(tables.adjoint(missing)) <= goal:
            break
        x = x + _conjugate(tables, tables.adjoint(missing), everything, goal)
    return x


def _bounded(tables: Tables, y: Array, start: Array) -> Array:
    x = start
    support = np.flatnonzero(x)
    value = np.inf
    size = max(LEAST_CELLS, 3 * len(y) // 2)
    for _ in range(MAX_ROUNDS):
        gradient = tables.adjoint(tables.at(support).apply(x[support]) - y)
        support = np.union1d(np.flatnonzero(x), _lowest(gradient, size))
        if not len(support):
            break
        inner, before = tables.at(support), value
        straight = _straight(inner, y, _descend(inner, y, x[support]))
        value = 0.5 * float(np.square(inner.apply(straight) - y).sum())
        x = np.zeros(tables.cells)
        x[support] = straight
        if before - value <= ENOUGH * (1 + value):
            break
    return x


def _lowest(gradient: Array, count: int) -> Ints:
    """Return the cells of the most negative gradient: at most so many."""
    below = np.flatnonzero(gradient < 0)
    if len(below) > count:
        below = below[np.argpartition(gradient[below], count)[:count]]
    return below


def _descend(inner: Tables, y: Array, x: Array) -> Array:
    from scipy.optimize import Bounds, minimize  # half a second to import, and few releases need it

    def evaluate(cells: Array) -> tuple[float, Array]:
        residual = inner.apply(cells) - y
        return 0.5 * float(residual @ residual), inner.adjoint(residual)

    minimum = minimize(
        evaluate,
        x,
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(0.0, np.inf),
        options={"maxiter": INNER, "maxcor": MEMORY, "ftol": 0.0, "gtol": 0.0},
    )
    return np.maximum(minimum.x, 0.0)


def _straight(inner: Tables, y: Array, x: Array) -> Array:
    """Go as far as possible towards the minimum over the cells that are not zero now.

    Where L-BFGS-B has found out which cells are zero, that is the minimum: it needs very many
    steps to get there if some measurements are much more precise than others.
    """
    residual = inner.apply(x) - y
    goal = _ACCURACY * float(np.linalg.norm(inner.adjoint(y)))
    step = _conjugate(inner, -inner.adjoint(residual), x > 0, goal)
    value, length = float(residual @ residual), 1.0
    for _ in range(MAX_HALVINGS):
        moved = np.maximum(x + length * step, 0.0)
        residual = inner.apply(moved) - y
        if float(residual @ residual) < value:
            return moved
        length /= 2
    return x


def _conjugate(operator: Tables, wanted: Array, free: NDArray[np.bool_], goal: float) -> Array:
    """Return the shortest x with AᵀA x near what is wanted, zero but for the free cells.

    For Aᵀy that is near a minimum of ½‖A x − y‖². Ends when no more than `goal` is missing.
    """
    residual = np.where(free, wanted, 0.0)
    direction = residual.copy()
    x = np.zeros_like(residual)
    square, steepest = float(residual @ residual), 0.0
    for _ in range(MAX_GRADIENTS):
        image = operator.apply(direction)
        curvature, length = float(image @ image), float(direction @ direction)
        steepest = max(steepest, curvature / (length or 1.0))
        # A direction that is not measured comes from rounding in floats alone.
        if square <= goal**2 or curvature <= _FLAT * steepest * length:
            break
        x += square / curvature * direction
        residual -= square / curvature * np.where(free, operator.adjoint(image), 0.0)
        before, square = square, float(residual @ residual)
        direction *= square / before
        direction += residual
    return x


# ── Whole numbers near a fitted table, with its total ────────────────────────────────────────────
#
# Running sums over the cells, in order, are rounded, and each cell gets the difference of two: so
# the total is kept, no count falls below zero, and of the first attribute each count is within one
# of the table's. Then units are moved between cells as long as that brings the measurements, and
# the counts of each single attribute, nearer.
#
# What that moves, on columns of the Adult data with all counts over one and two attributes measured
# (10^4 to 10^6 joint cells, standard deviations 3 to 30): counts over one attribute by 0.3 on
# average and by 1 at most. Counts over two attributes by 0.2 to 0.8 on average, which makes their
# error larger by 1 % where it was 10 and more, and by 6 % where it was 2.5. Where counts may be
# negative there are many more cells to round: over two attributes, by 0.7 to 5.5 on average.


MAX_MOVES = 500
"""Rounds in which units are moved, many at a time."""
MAX_SINGLES = 2000
"""Units that are moved one by one after these rounds."""
TRIES = 8
"""Units that are tried before it is given up."""
_GAIN = 1e-9
MAX_CANDIDATES = 1 << 18
"""Units are moved between so many cells at most: those that rounding changed most."""


def whole_table(
    component: MeasuredTable, values: Array, table: Array, total: int, *, nonnegative: bool
) -> Array:
    """Round a table to whole numbers that sum to `total`.

    Args:
        component: what was measured.
        values: the measurements, in units of their standard deviation.
        table: the fitted table.
        total: what the numbers sum to.
        nonnegative: whether they may not be below zero; then the table has none below.
    """
    start = _rounded(table, total, nonnegative=nonnegative)
    return _Moves(component, values, table, start, nonnegative=nonnegative).settled()


def evenly(total: float, cells: int, *, integers: bool) -> Array:
    """Spread a total over cells of which nothing is known."""
    if not integers:
        return np.full(cells, total / cells)
    whole = int(total)
    return np.diff([whole * i // cells for i in range(cells + 1)]).astype(np.float64)


def _rounded(table: Array, total: int, *, nonnegative: bool) -> Array:
    """Round running sums, and take differences of adjacent ones: the total stays what it is.

    First the table is brought to the total: by a factor, which keeps all counts from falling
    below zero, or else by the same number for each cell.
    """
    ends = np.cumsum(table)
    if nonnegative:
        ends *= total / ends[-1] if ends[-1] > 0 else 0.0
    else:
        ends += (total - ends[-1]) * np.arange(1, table.size + 1) / table.size
    whole = np.rint(ends)
    if nonnegative and ends[-1] <= 0:
        whole = np.cumsum(evenly(total, table.size, integers=True))
    whole[-1] = total
    return np.diff(whole, prepend=0.0).reshape(table.shape)


class _Moves:
    """Moves of single units between the cells of a table."""

    def __init__(
        self,
        component: MeasuredTable,
        values: Array,
        table: Array,
        start: Array,
        *,
        nonnegative: bool,
    ) -> None:
        self._component, self._table, self._nonnegative = component, start.ravel(), nonnegative
        self._shape = start.shape
        self._cells = _candidates(table.ravel(), self._table, nonnegative=nonnegative)
        self._there = component.at(self._cells)
        self._places = np.unravel_index(self._cells, start.shape)
        self._residual = component.apply(self._table) - values
        self._curvature = self._there.squares() + start.ndim
        axes = range(start.ndim)
        off = start - table
        self._off = [off.sum(axis=tuple(i for i in axes if i != axis)) for axis in axes]
        """The distance of the counts of each attribute from the table's."""

    def settled(self) -> Array:
        """Move units until it does no good: many at a time, then one by one."""
        size = len(self._cells) // 4
        for _ in range(MAX_MOVES):
            if size == 0:
                break
            moved = self._apply(self._many(size))
            size = min(2 * size, len(self._cells) // 4) if moved else size // 2
        for _ in range(MAX_SINGLES):
            if not self._apply(self._one()):
                break
        return self._table.reshape(self._shape)

    def _apply(self, change: Array) -> bool:
        """Change the cells, if that brings them nearer to what was measured."""
        if not change.any():
            return False
        residual = self._residual + self._there.apply(change)
        counted = [
            np.bincount(places, weights=change, minlength=len(off))
            for places, off in zip(self._places, self._off, strict=True)
        ]
        off = [old + new for old, new in zip(self._off, counted, strict=True)]
        if _distance(residual, off) >= _distance(self._residual, self._off):
            return False
        self._table[self._cells] += change
        self._residual, self._off = residual, off
        return True

    def _gradient(self) -> Array:
        gradient = self._there.adjoint(self._residual)
        for places, off in zip(self._places, self._off, strict=True):
            gradient += off[places]
        return gradient

    def _givers(self, order: Ints) -> Ints:
        """Return those that may give a unit away."""
        return order[self._table[self._cells[order]] >= 1] if self._nonnegative else order

    def _many(self, size: int) -> Array:
        """Move up to `size` units from cells that have too much to cells that have too little.

        The gradient says by how much the square of the distance grows, to first order, with each
        unit that a cell gets. Moves of many at a time are tried, and kept only if they help.
        """
        gradient = self._gradient()
        order = np.argsort(gradient, kind="stable")
        giving = self._givers(order)
        count = min(size, len(giving), len(order) // 2)
        takers, givers = order[:count], giving[::-1][:count]
        better = gradient[takers] < gradient[givers]
        change = np.zeros(len(gradient))
        change[takers[better]] += 1
        change[givers[better]] -= 1
        return change

    def _one(self) -> Array:
        """Move the unit that has most to gain, or one of the next, to where it gains most.

        The distance is a square ‖Mx − y‖² with the gradient g = Mᵀ(Mx − y), in halves. Moving a
        unit from cell i to cell j changes half of it by g_j − g_i + (m_i·m_i + m_j·m_j)/2 − m_i·m_j
        with the columns m of M: `curvature` has m·m, and `_shared` the products with column i.
        """
        gradient, change = self._gradient(), np.zeros(len(self._cells))
        less, more = gradient - self._curvature / 2, gradient + self._curvature / 2
        for giver in self._givers(np.argsort(less, kind="stable"))[::-1][:TRIES].tolist():
            gains = more - self._shared(giver) - less[giver]
            gains[giver] = np.inf
            taker = int(np.argmin(gains))
            if gains[taker] < -_GAIN:
                change[taker], change[giver] = 1, -1
                break
        return change

    def _shared(self, cell: int) -> Array:
        """Return the products of a cell's column with those of all cells."""
        measured = self._component.at(self._cells[cell : cell + 1]).apply(np.ones(1))
        shared = self._there.adjoint(measured)
        for places in self._places:
            shared += places == places[cell]
        return shared


def _candidates(table: Array, whole: Array, *, nonnegative: bool) -> Ints:
    """Return the cells between which units are moved, in ascending order."""
    cells = np.flatnonzero(table) if nonnegative else np.arange(len(table))
    if len(cells) > MAX_CANDIDATES:
        changed = np.abs(table - whole)[cells]
        cells = np.sort(cells[np.argsort(-changed, kind="stable")[:MAX_CANDIDATES]])
    return cells


def _distance(residual: Array, off: list[Array]) -> float:
    """Weigh the counts of single attributes as if measured with a standard deviation of one."""
    return float(residual @ residual) + sum(float(o @ o) for o in off)
