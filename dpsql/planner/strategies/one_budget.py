"""One budget for each row: shares of measurements that no row pays for all of, or all at once.

Measurements i have the error E_i at the cost 1, and cost a row in the cell d a_i(d) <= 1 then. With
shares s_i their errors are E_i/s_i (E_i/s_i² with Laplace noise), and the plan costs the worst row,
max_d Σ s_i a_i(d). Added up as if each had its worst row for itself, shares would be the best for
Σ s_i = 1. So

    minimize Σ E_i/s_i^p   subject to   Σ_i s_i a_i(d) <= 1  in each cell d ,   p = 1 or 2.

*Dual.* For probabilities π on cells let w_i = Σ_d π_d a_i(d). By what Σ s_i w_i <= 1 allows,

    f(π) = (Σ E_i^r w_i^(1 − r))^(1/r) ,  r = 1/(p + 1) ,  at  s_i in proportion to (E_i/w_i)^r ,

is at most the minimum, and equal to it at the best π. Cells whose load Σ s_i a_i(d) is above 1 are
given more weight, in proportion to load^1.5, until the shares, divided by the largest load, are as
good as f says: each step has a certificate. (For two sets of cells, of which some measurements have
one each, π shares the cells as a budget is shared among measurements: errors add up, not their
roots.)

*Classes.* Cells where all a_i agree count once. Attributes along which no a_i changes don't count,
and where there would be too many joint cells, those don't along which costs change least: the
largest a_i over them stands for all, which makes shares smaller than they might be.

*Parts solved at once*, by the dual with one δ for all. Parts p ask Q_p of the same cells, a row
adds v_p with |v_p| <= M_p to its cell in part p, and all that is measured of part p is X_p. The
worst row costs max_d Σ_p M_p² (X_p)_dd, so that

    minimize Σ_p tr(G_p X_p⁺) subject to Σ_p M_p² diag(X_p) <= 1 ,   G_p = Q_pᵀQ_p,

has the dual of `dual` with f(δ) = Σ_p tr (M_p² Q_p D Q_pᵀ)^½: the queries M_p Q_p are parts of one
Gram matrix that has nothing between them. What has a strategy already, at the error E for the
cost 1 in all cells, has the summand √E: its share is √E/f.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.coordinates import alike
from dpsql.linalg.matrices import Dense
from dpsql.linalg.roots import compressed
from dpsql.measurement.worst_row import Axis, RowCost
from dpsql.planner.strategies.dual import Dual, QueryPart, maximize
from dpsql.planner.strategies.merged import MergedCells
from dpsql.planner.strategies.whole import QUICK_WORK
from dpsql.workload import Block, Family, Workload

if TYPE_CHECKING:
    from dpsql.rel.support import Support

MOST_ENTRIES = 2**18
"""Joint cells times measurements that are looked at."""
MOST_TERMS = 256
"""Sets of a measurement that are looked at cell by cell; of more, the largest cost of each is."""
DIGITS = 9
"""Digits to which costs of cells have to agree to be of one class."""
STEPS = 2000
WORK = 10**8
"""Entries that all steps look at: half a second's work."""
LEAST_STEPS = 100
STRETCH = 1.5
"""The power of the load by which a class gets more weight."""
MARGIN = Fraction(1, 2_000_000)
"""The part of the budget that is left for what costs by cells lose to rounding."""
ROOM = Fraction(1, 100_000)
"""The part of the budget that may be left over."""
TRIES = 4
CLOSE = 1e-6
"""The relative gap of errors that is aimed for."""
_TINY = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class _RealCost:
    """A product of real tables, of different attributes."""

    times: float
    tables: tuple[tuple[tuple[Axis, ...], Array], ...]

    @classmethod
    def of(cls, cost: RowCost, unit: Fraction) -> _RealCost:
        """Take the cost of one set, in some unit."""
        times = float(1 / (unit * cost.width))
        tables = list[tuple[tuple[Axis, ...], Array]]()
        for table in cost.tables:
            largest = table.largest
            times *= largest
            if table.axes and largest:
                scaled = table.cells / largest
                tables.append((table.axes, scaled.astype(np.float64)))
        return cls(times, tuple(tables))


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """The costs of a row in some measurements, over what they cost at most if that is all."""

    flat: float
    """The part that is the same in all cells."""
    terms: tuple[_RealCost, ...]

    @classmethod
    def of(cls, alone: Fraction, varying: Sequence[RowCost], amount: Fraction, times: int) -> Costs:
        """Take what they cost in any cell, and `times` what a row costs in cells of attributes."""
        if len(varying) > MOST_TERMS:
            alone += times * sum(Fraction(cost.largest, cost.width) for cost in varying)
            varying = ()
        terms = tuple(_RealCost.of(cost, amount / times) for cost in varying)
        return cls(float(alone / amount), terms)


def by_class(costs: Sequence[Costs]) -> Array:
    """Return what each measurement costs in each class of cells: shape (classes, measurements)."""
    tables = [table for cost_ in costs for term in cost_.terms for table in term.tables]
    classes = {axis: _alike(axis, tables) for axis in _counted(tables, len(costs))}
    axes = list(classes)
    sizes = [len(cells) for cells in classes.values()]
    by_class_ = np.zeros((math.prod(sizes), len(costs)))
    for number, cost_ in enumerate(costs):
        total = np.full(sizes, cost_.flat)
        for term in cost_.terms:
            parts = (_along(axes, classes, table) for table in term.tables)
            total = total + term.times * reduce(np.multiply, parts, np.ones([1] * len(axes)))
        by_class_[:, number] = total.ravel()
    return np.asarray(np.round(by_class_[_first_of_equal(by_class_)], DIGITS))


def _counted(tables: Sequence[tuple[tuple[Axis, ...], Array]], count: int) -> list[Axis]:
    """Choose attributes by whose cells costs are told apart: those along which they change most."""
    change: dict[Axis, float] = {}
    for axes, cells in tables:
        for place, axis in enumerate(axes):
            most = cells.max(axis=place, keepdims=True)
            change[axis] = change.get(axis, 0.0) + float(np.mean(most - cells))
    listed, size = list[Axis](), count
    for axis in sorted(change, key=lambda axis: (-change[axis], repr(axis))):
        classes = len(_alike(axis, tables))
        if change[axis] > 0 and size * classes <= MOST_ENTRIES:
            listed.append(axis)
            size *= classes
    return listed


def _alike(axis: Axis, tables: Sequence[tuple[tuple[Axis, ...], Array]]) -> Ints:
    """Return one cell of each class of an attribute's cells, which no table tells apart."""
    rows = [np.moveaxis(t, axes.index(axis), 0).reshape(axis[1], -1) for axes, t in tables
            if axis in axes]  # fmt: skip
    return _first_of_equal(np.hstack(rows))


def _first_of_equal(rows: Array) -> Ints:
    """Return the number of the first of all rows that are nearly equal, in their order."""
    return np.sort(np.unique(alike(np.round(rows, DIGITS).T), return_index=True)[1])


def _along(
    axes: Sequence[Axis], classes: dict[Axis, Ints], table: tuple[tuple[Axis, ...], Array]
) -> Array:
    """Lay a table along the classes of some attributes; of others, take the largest numbers."""
    axes_here, cells = table
    for axis in [axis for axis in axes_here if axis not in classes]:
        cells = cells.max(axis=axes_here.index(axis))
        axes_here = tuple(other for other in axes_here if other != axis)
    for place, axis in enumerate(axes_here):
        cells = np.take(cells, classes[axis], axis=place)
    order = sorted(range(len(axes_here)), key=lambda i: axes.index(axes_here[i]))
    shape = [len(classes[axis]) if axis in axes_here else 1 for axis in axes]
    return np.asarray(cells.transpose(order).reshape(shape))


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """Shares of one budget, with the error of all measurements."""

    shares: Array
    """s: no class of cells has a load above 1."""
    error: float
    least: float
    """No shares have a smaller one."""


def share(errors: Sequence[float], costs: Array, power: int = 1) -> Shared:
    """Return the best shares.

    Args:
        errors: E > 0, at the cost 1.
        costs: a, of shape (classes, measurements); each measurement costs something in some class.
        power: p, 1 or 2.
    """
    scale = max(errors)
    e, r = np.asarray(errors, dtype=np.float64) / scale, 1 / (power + 1)
    weights = np.full(len(costs), 1 / len(costs))
    best, least = Shared(np.zeros(len(e)), math.inf, 0.0), 0.0
    for _ in range(min(STEPS, max(LEAST_STEPS, WORK // costs.size))):
        seen = np.maximum(weights @ costs, _TINY)
        least = max(least, float(np.sum(e**r * seen ** (1 - r)) ** (1 / r)))
        wanted = (e / seen) ** r
        load = costs @ wanted
        scaled = wanted / load.max()
        error = float(np.sum(e / scaled**power))
        if error < best.error:
            best = Shared(scaled, error, least)
        if best.error <= least * (1 + CLOSE):
            break
        weights = weights * (load / load.max()) ** STRETCH
        weights /= weights.sum()
    shares = filled(best.shares, costs, e)
    return Shared(shares, float(np.sum(e / shares**power)) * scale, least * scale)


def filled(shares: Array, costs: Array, errors: Array) -> Array:
    """Raise shares, one after another, as far as no class of cells pays more than the budget.

    A measurement with next to no part of the error may have a share that is far from its best, and
    all errors together be near theirs.
    """
    filled_shares = np.minimum(shares, 1.0)  # what costs nothing anywhere could have any
    load = costs @ filled_shares
    for i in np.argsort(-errors / shares, kind="stable"):
        loaded = costs[:, i] > 0
        more = max(
            0.0, float(((1 - load[loaded]) / costs[loaded, i]).min(initial=1 - filled_shares[i]))
        )
        filled_shares[i] += more
        load = load + more * costs[:, i]
    return np.asarray(filled_shares)


def fitted(spends: Callable[[Fraction], Fraction], amount: Fraction) -> Fraction | None:
    """Return by what to multiply shares so that what is planned with them fits a budget.

    Shares are in floats, and integers may cost a little more or less than was planned with. So what
    the plans cost is computed, and shares are made as much smaller, or larger.

    Args:
        spends: makes plans with all shares multiplied by a number; returns what these cost.
        amount: the budget.

    Returns:
        None if that fails.
    """
    times, fitting = Fraction(1) - MARGIN, None
    for _ in range(TRIES):
        cost = spends(times)
        if cost <= amount:
            fitting = times
        if not cost or amount * (1 - ROOM) <= cost <= amount:
            break
        times *= amount / cost * (1 - MARGIN)
    return fitting


# ── Parts of a plan that are solved at once ──


@dataclass(frozen=True, slots=True, eq=False)
class PartAsked:
    """The questions of one part."""

    workload: Workload
    change: int
    """M: the most that a row adds to a cell."""
    supports: tuple[Support, ...] = ()
    """The cells of attributes in which rows add something to it."""

    @property
    def families(self) -> Iterator[Family]:
        """Its queries, and rows with a value: in other cells of an attribute nothing is added."""
        for family in self.workload.families:
            blocks = (_supported(s) for s in self.supports if s.attribute not in family.names)
            yield replace(family, blocks=(*family.blocks, *blocks))

    def over(self, attributes: Collection[str]) -> PartAsked:
        """Leave out what is said of attributes that are not among some."""
        kept = tuple(s for s in self.supports if s.attribute in attributes)
        return replace(self, supports=kept)


def _supported(support: Support) -> Block:
    row = np.array([support.cells], dtype=np.float64)
    return Block((support.attribute,), (len(support.cells),), Dense(row))


@dataclass(frozen=True, slots=True, eq=False)
class StrategyOfPart:
    """A strategy for one part, beside those of others."""

    merged: MergedCells
    """The classes of its cells."""
    root: Array
    """R over these with RᵀR = X, whose largest column is 1."""
    share: float
    """The cost of that column, of a budget of 1."""


@dataclass(frozen=True, slots=True, eq=False)
class SolvedTogether:
    """The best strategies of several parts."""

    strategies: tuple[StrategyOfPart, ...]
    others: Array
    """The shares of parts that had a strategy."""
    upper: float
    """The error of all, at the cost 1."""
    lower: float
    """No strategies that look at one part each have a smaller one."""


def solve_together(
    parts: Sequence[PartAsked], others: Sequence[float], tolerance: float
) -> SolvedTogether | None:
    """Solve parts at once; None if that is much work.

    Args:
        parts: what is asked.
        others: the errors E of further parts, at the cost 1 in all cells.
        tolerance: the gap to aim for.
    """
    names = {name for part in parts for family in part.workload.families for name in family.names}
    parts = [part.over(names) for part in parts]
    queries = _queries_over_classes(parts)
    if queries is None:
        return None
    merged, roots = queries
    fixed = [np.full((1, merged.count), math.sqrt(error)) for error in others]
    dual = Dual(merged.count, tuple(QueryPart(rows, None) for rows in (*roots, *fixed)))
    best = maximize(dual, tolerance)
    exact = [part.exact_root(best.delta) for part in dual.parts]
    known = [root for root in exact if root is not None]
    if len(known) < len(exact):
        return None
    squares = np.array([np.square(root).sum(axis=0) for root in known])
    lengths = squares.max(axis=1)
    shares = filled(
        lengths / best.diagonal.max(), (squares / lengths[:, None]).T, np.square(lengths)
    )
    strategies = list[StrategyOfPart]()
    for part, root, length, share in zip(parts, known, lengths, shares, strict=False):
        classes = MergedCells.of(part.workload)
        if classes is None:
            return None
        over = root[:, _within(classes, merged, part.supports)] / math.sqrt(length)
        strategies.append(StrategyOfPart(classes, over, float(share)))
    return SolvedTogether(tuple(strategies), shares[len(parts) :], best.upper, best.lower)


def _queries_over_classes(
    parts: Sequence[PartAsked],
) -> tuple[MergedCells, list[Array]] | None:
    """Return the classes of cells that no part tells apart, and M_p times a root of each G_p there.

    None, if that is much work or a part asks nothing.
    """
    domain = {name: n for part in parts for name, n in part.workload.domain.items()}
    families = [
        replace(family, weight=family.weight * part.change**2)
        for part in parts
        for family in part.families
    ]
    merged = MergedCells.of(Workload.of(domain, families))
    if merged is None or not merged.count:
        return None
    rank = sum(min(part.workload.count, merged.count) for part in parts)
    if rank**2 * merged.count > QUICK_WORK:
        return None
    roots = [
        compressed(merged.root(Workload.of(domain, part.families)) * part.change) for part in parts
    ]
    return (merged, roots) if all(map(len, roots)) else None


def _within(merged: MergedCells, all_: MergedCells, supports: Sequence[Support]) -> Ints:
    """Return for each class of a part's cells one of the classes of all that lies in it.

    That is one in which rows add something to the part.
    """
    zero: Ints = np.zeros(merged.count, dtype=np.int64)
    if not all_.names:
        return zero
    places = {s.attribute: zero + s.cells.index(True) for s in supports} | merged.places
    cells = np.ravel_multi_index([places.get(name, zero) for name in all_.names], all_.shape)
    return np.asarray(all_.classes[cells])
