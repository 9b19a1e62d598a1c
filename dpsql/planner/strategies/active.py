"""The dual of few queries over many cells: only few of the cells matter.

At the optimum of the dual (see `dual`) δ is zero but where diag(X) is largest, and by
Carathéodory's theorem some optimal δ differs from zero on at most r(r + 1)/2 cells: QDQᵀ is a
convex combination of the matrices q_j q_jᵀ, for the columns q_j of Q, which lie in a space of that
dimension. So the dual is solved over some cells, those are added at which diag(X) is too large,
and so on. A sum, an average and a standard deviation have r <= 3.

The certificate is that of all cells: δ that is zero elsewhere is as good for the lower bound as any
other, and the upper bound has the largest diag(X) of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array
from dpsql.linalg.digits import AS_GOOD, far_apart, few

Cells = NDArray[np.intp]

MANY = 4
"""How many times r(r + 1)/2 cells there must be for a choice among them to be worth it."""
ROUNDS = 60
ADDED = 4
"""Cells that a round adds, for each query and once more."""
NOTHING = 1e-9
BITS = 30
"""Bits of the largest diagonal entry, by which cells are compared."""
FIRST = 0.1
"""The weight of a cell that is left out, and that of all cells that are added."""
SHARE = 1 / 4
"""Of the tolerance, to which the dual over some cells is solved."""


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """What the dual over some cells gave, seen from all cells."""

    delta: Array
    diagonal: Array
    """Of X, for each cell."""
    f: float
    """The root of the lower bound."""

    @property
    def ratio(self) -> float:
        """The upper bound by the lower one."""
        return float(self.diagonal.max()) / self.f


def is_worthwhile(rank: int, cells: int) -> bool:
    """Whether there are far more cells than can matter."""
    return cells > MANY * max(8, rank * (rank + 1) // 2)


def over_few_cells(
    q: Array, tolerance: float, start: Array | None, solve: Callable[[Cells, Array | None], Tried]
) -> Array:
    """Return δ over all cells, zero on most of them, whose gap is at most `tolerance` if it can be.

    Args:
        q: the queries' rows, of full rank.
        tolerance: the gap to aim for.
        start: δ that was good for something similar.
        solve: solves the dual over some cells, from δ on these.
    """
    first = far_apart(q, len(q), NOTHING)
    others = np.setdiff1d(np.arange(q.shape[1]), first)
    chosen: Cells = np.union1d(first, others[far_apart(q[:, others], len(q), NOTHING)])
    if start is not None:
        chosen = np.union1d(chosen, np.flatnonzero(start > 2 / start.size)).astype(np.intp)
    tried = best = solve(chosen, None)
    for _ in range(ROUNDS):
        if best.ratio <= 1 + tolerance:
            break
        order = np.argsort(-few(tried.diagonal, BITS), kind="stable")[: ADDED * (len(q) + 1)]
        above = tried.diagonal[order] > tried.f * (1 + AS_GOOD)
        added = np.setdiff1d(order[above], chosen)
        if not len(added):
            break
        # Cells without weight go, so that the problem stays small; new ones start with a little.
        weights = tried.delta[chosen]
        kept = weights > NOTHING
        joined = np.concatenate([chosen[kept], added])
        shares = np.concatenate([weights[kept], np.full(len(added), FIRST / len(added))])
        at = np.argsort(joined)
        chosen = joined[at]
        tried = solve(chosen, shares[at] / shares.sum())
        best = min(best, tried, key=lambda t: t.ratio)
    return best.delta
