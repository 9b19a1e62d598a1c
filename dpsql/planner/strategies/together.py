"""Parts of a plan solved at once, for one budget that each row pays: the dual with one δ for all.

Parts p ask Q_p of the same cells, a row adds v_p with |v_p| <= M_p to its cell in part p, and all
that is measured of part p is X_p. The worst row costs max_d Σ_p M_p² (X_p)_dd, so that

    minimize Σ_p tr(G_p X_p⁺) subject to Σ_p M_p² diag(X_p) <= 1 ,   G_p = Q_pᵀQ_p,

has the dual of `dual` with f(δ) = Σ_p tr (M_p² Q_p D Q_pᵀ)^½: the queries M_p Q_p are parts of one
Gram matrix that has nothing between them. What has a strategy already, at the error E for the
cost 1 in all cells, has the summand √E: its share is √E/f.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.matrices import Dense
from dpsql.linalg.roots import compressed
from dpsql.planner.strategies.dual import Dual, QueryPart, maximize
from dpsql.planner.strategies.merged import MergedCells
from dpsql.planner.strategies.one_budget import filled
from dpsql.planner.strategies.whole import QUICK_WORK
from dpsql.workload import Block, Family, Workload

if TYPE_CHECKING:
    from dpsql.rel.support import Support


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
    families = [
        replace(family, weight=family.weight * part.change**2)
        for part in parts
        for family in part.families
    ]
    domain = {name: n for part in parts for name, n in part.workload.domain.items()}
    merged = MergedCells.of(Workload.of(domain, families))
    if merged is None or not merged.count:
        return None
    rank = sum(min(part.workload.count, merged.count) for part in parts)
    if rank**2 * merged.count > QUICK_WORK:
        return None
    each = [
        compressed(merged.root(Workload.of(domain, part.families)) * part.change) for part in parts
    ]
    if not all(map(len, each)):
        return None
    fixed = [np.full((1, merged.count), math.sqrt(error)) for error in others]
    dual = Dual(merged.count, tuple(QueryPart(rows, None) for rows in (*each, *fixed)))
    best = maximize(dual, tolerance)
    roots = [part.exact_root(best.delta) for part in dual.parts]
    squares = np.array([np.square(root).sum(axis=0) for root in roots if root is not None])
    if len(squares) < len(roots):
        return None
    lengths = squares.max(axis=1)
    shares = filled(
        lengths / best.diagonal.max(), (squares / lengths[:, None]).T, np.square(lengths)
    )
    found = list[StrategyOfPart]()
    for part, root, length, of in zip(parts, roots, lengths, shares, strict=False):
        own = MergedCells.of(part.workload)
        if own is None or root is None:
            return None
        over = root[:, _within(own, merged, part.supports)] / math.sqrt(length)
        found.append(StrategyOfPart(own, over, float(of)))
    return SolvedTogether(tuple(found), shares[len(parts) :], best.upper, best.lower)


def _within(own: MergedCells, all_: MergedCells, supports: Sequence[Support]) -> Ints:
    """Return for each class of a part's cells one of the classes of all that lies in it.

    That is one in which rows add something to the part.
    """
    zero: Ints = np.zeros(own.count, dtype=np.int64)
    if not all_.names:
        return zero
    places = {s.attribute: zero + s.cells.index(True) for s in supports} | own.places
    cells = np.ravel_multi_index([places.get(name, zero) for name in all_.names], all_.shape)
    return np.asarray(all_.classes[cells])
