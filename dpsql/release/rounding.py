"""Whole numbers near a fitted table, with its total.

Running sums over the cells, in order, are rounded, and each cell gets the difference of two: so the
total is kept, no count falls below zero, and of the first attribute each count is within one of
the table's. Then units are moved between cells as long as that brings the measurements, and the
counts of each single attribute, nearer.

What that moves, on columns of the Adult data with all counts over one and two attributes measured
(10^4 to 10^6 joint cells, standard deviations 3 to 30): counts over one attribute by 0.3 on
average and by 1 at most. Counts over two attributes by 0.2 to 0.8 on average, which makes their
error larger by 1 % where it was 10 and more, and by 6 % where it was 2.5. Where counts may be
negative there are many more cells to round: over two attributes, by 0.7 to 5.5 on average.
"""

from __future__ import annotations

import numpy as np

from dpsql.linalg.arrays import Array, Ints
from dpsql.release.cells import MeasuredTable

MAX_ROUNDS = 500
"""How often units are moved, many at a time."""
MAX_SINGLES = 2000
"""How many units are then moved one by one."""
TRIES = 8
"""How many units are tried before it is given up."""
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
        """How far the counts of each attribute are from the table's."""

    def settled(self) -> Array:
        """Move units until it does no good: many at a time, then one by one."""
        size = len(self._cells) // 4
        for _ in range(MAX_ROUNDS):
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
        found = self._there.adjoint(self._residual)
        for places, off in zip(self._places, self._off, strict=True):
            found += off[places]
        return found

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
        found = self._there.adjoint(measured)
        for places in self._places:
            found += places == places[cell]
        return found


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
