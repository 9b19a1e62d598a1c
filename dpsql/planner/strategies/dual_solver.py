"""The solver of what has no special structure: by the dual, over few cells where these decide."""

from __future__ import annotations

import math

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.coordinates import Narrow, narrow
from dpsql.linalg.hull import hull
from dpsql.linalg.matrices import least_rank
from dpsql.linalg.roots import compressed
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.strategies.base import Solution, Solver
from dpsql.planner.strategies.dual import (
    LEAST,
    MAX_RANK,
    WORK,
    Dual,
    DualPoint,
    QueryPart,
    eigen,
    maximize,
)
from dpsql.planner.strategies.express import over_integers
from dpsql.workload import Queries

FEWER = 4
"""How many times fewer cells there must be at corners to be solved alone."""


class DualSolver(Solver):
    """Any component of moderate rank, over any number of cells."""

    name = "dual"

    def accepts(self, component: Component) -> bool:
        """Whether no factorization can exceed `MAX_RANK`."""
        return component.most_rank <= MAX_RANK

    def may_accept(self, queries: Queries) -> bool:
        """Whether the rank isn't known to be above `MAX_RANK`, beside that of the total."""
        return least_rank(queries) <= MAX_RANK + 1

    def work(self, component: Component) -> float:
        """Return that of the evaluations that are made at any rate."""
        return LEAST * 10.0 * component.most_rank**3

    def solve(
        self,
        component: Component,
        tolerance: float,
        work: float = WORK,
        start: Array | None = None,
    ) -> Solution:
        """Solve the dual, then express the strategy over an integer basis."""
        dual, best = solve_dual(component, tolerance, work, start)
        strategy = over_integers(best.root, component, dual.rank)
        rank = len(strategy.basis)
        kind = "dense" if rank == component.dimension else "low rank"
        parts = f", {len(dual.parts)} symmetric parts" if len(dual.parts) > 1 else ""
        name = f"dual ({kind}, rank {rank}{parts})"
        spent = best.evaluations * dual.work
        return Solution(strategy, best.upper, best.lower, name, spent)


def solve_dual(
    component: Component, tolerance: float, work: float, start: Array | None
) -> tuple[Dual, DualPoint]:
    """Solve a component's dual, over its corners where these are few.

    Returns:
        The problem that was solved, and the best point for all cells.
    """
    rows, shape = component.rows, component.shape
    found = narrow(rows, shape) if start is None else None
    solved = None if found is None else _at_corners(found, tolerance, work)
    if solved is not None:
        return solved
    dual = Dual.of(rows, shape)
    return dual, maximize(dual, tolerance, start, work)


def _at_corners(given: Narrow, tolerance: float, work: float) -> tuple[Dual, DualPoint] | None:
    """Solve the dual of rows in few coordinates, over the cells that decide.

    The column of a joint cell is linear in the coordinates that it has along each axis, so the
    diagonal of X is convex in them, and largest at a vertex of their convex hull. The certificate
    is that of all cells. None if most cells decide.
    """
    shape = tuple(len(v) for v in given.along)
    kept = [hull(v.T) if v.shape[1] < len(v) else np.arange(len(v)) for v in given.along]
    if FEWER * math.prod(map(len, kept)) > math.prod(shape):
        return None
    few = np.ravel_multi_index(np.ix_(*kept), shape).ravel()
    q = compressed(given.small)
    spread = given.widen(q)
    here = np.ascontiguousarray(spread[:, few])
    dual = Dual.of(here, tuple(map(len, kept)))
    best = maximize(dual, tolerance, None, work)
    values, vectors = eigen(here, best.delta)
    root = given.widen(values[:, None] ** -0.25 * (vectors.T @ q))
    delta = np.zeros(math.prod(shape))
    delta[few] = best.delta
    diagonal = np.einsum("ij,ij->j", root, root)
    f = float(np.sqrt(values).sum())
    part = QueryPart(spread, None)
    return dual, DualPoint(delta, f, (root,), diagonal, (part,), best.evaluations)
