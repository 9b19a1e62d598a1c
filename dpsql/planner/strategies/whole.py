"""The whole domain at once: the best of all matrix mechanisms, where that is not too much work.

Residual spaces are measured apart, which is what makes large domains possible and costs a little:
of conditions that tie two columns together, a quarter of the error. Where it is no more than a few
seconds' work, the dual of `dual` is solved for the Gram matrix over all joint cells. Its lower
bound holds for every matrix mechanism.

An evaluation of the dual takes r²N multiplications, for queries of the rank r over N classes of
joint cells (see `merged`). So that, and not the number of cells or of answers, says where the whole
domain is planned: a statement with one more threshold is a little more work, and never makes a plan
another one.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.residuals.references import Reference, row_basis
from dpsql.planner.strategies.base import Solution, Triangular
from dpsql.planner.strategies.dual import MANY_JOINT, MAX_RANK, WORK, Dual, maximize
from dpsql.planner.strategies.express import over_basis
from dpsql.planner.strategies.merged import MergedCells, most_rank
from dpsql.workload import Workload
from dpsql.workload.workload import joint_cells, touched

SOLVER = "dual over the whole domain"
MAX_CELLS = 2000
"""Joint cells up to which the whole domain can be planned at once, whatever is asked."""
QUICK_WORK = 400.0**3
"""r²N up to which planning the whole domain takes no longer than residual spaces do."""
MODERATE_WORK = 1500.0**3
"""r²N up to which it is planned where no product is: some seconds."""
ALONE_CELLS = 1200
"""Cells of a single attribute up to which it takes no longer than residual spaces do: the search
for its reference solves problems of that size many times. Of cumulative counts there may be as many
as a solver takes."""
MOST_ENTRIES = 2**24
"""Rows of a strategy times joint cells: it is written out over all of them."""
FEW = 64
"""Queries of which a basis is chosen, however few classes of cells there are."""
FIRST_TOLERANCE = 1e-3
EVALUATIONS = 60
"""Evaluations of the dual that it takes where queries are fewer than cells."""
SHARPER_WORK = 2e10
"""Multiplications up to which a smaller gap than the first is aimed for then: a second."""
UNWEIGHTED = 1e-12
"""Relative distance from whole numbers, up to which rows are integers multiplied by weights."""


def is_quick(workload: Workload) -> bool:
    """Whether planning the whole domain takes no longer than residual spaces do."""
    n = joint_cells(workload)
    if len(touched(workload)) == 1 and n <= MAX_RANK:
        return n <= ALONE_CELLS or _is_cumulative(workload)
    return whole_work(workload) <= QUICK_WORK


def whole_work(workload: Workload) -> float:
    """Return r²N for all joint cells at once, or more than that; infinite where that can't be.

    Or needn't be: one Kronecker product over single attributes is planned as well by its factors.
    """
    n = joint_cells(workload)
    rank = min(most_rank(workload), n)
    if rank**2 * n <= QUICK_WORK and rank * n <= MOST_ENTRIES:
        return float(rank**2 * n)
    families = [family for family in workload.families if family.count]
    single = all(len(block.attributes) <= 1 for family in families for block in family.blocks)
    if len(families) == 1 and single and len(touched(workload)) > 1:
        return math.inf
    merged = MergedCells.of(workload)
    if merged is None:
        return math.inf
    rank = min(rank, merged.count)
    return float(rank**2 * merged.count) if rank * n <= MOST_ENTRIES else math.inf


def _is_cumulative(workload: Workload) -> bool:
    """Whether all queries are runs of cells that begin, or that end, at the same one."""
    runs = [b.queries.runs() for f in workload.families for b in f.blocks]
    known = [ends for ends in runs if ends is not None]
    if len(known) < len(runs):
        return False
    return any(len(np.unique(np.concatenate(ends))) == 1 for ends in zip(*known, strict=True))


def solve_whole(
    workload: Workload, tolerance: float, work: float = WORK
) -> tuple[Component, Solution] | None:
    """Find the best strategy over all cells; None if there is no way to measure it in integers.

    Args:
        workload: what is asked.
        tolerance: the gap to aim for.
        work: multiplications that it may take.
    """
    merged = MergedCells.of(workload)
    if merged is None or not merged.count:
        return None
    rows = merged.root(workload)
    dual = Dual.of(rows, merged.shape, merged.moved)
    nested = dual.parts[0].nested
    basis = nested.basis if nested else basis_of(workload, merged, dual.rank)
    if basis is None:
        return None
    slow = dual.rank < merged.count and EVALUATIONS * dual.work > SHARPER_WORK
    aim = max(tolerance, FIRST_TOLERANCE) if slow else tolerance
    best = maximize(dual, aim, work=work, many=MANY_JOINT)
    solution = Solution(_strategy(merged, best.root, basis), best.upper, best.lower, SOLVER)
    return asked_of_all(merged, rows), solution


def whole_by(
    workload: Workload, merged: MergedCells, root: Array, lower: float
) -> tuple[Component, Solution] | None:
    """Take a strategy over the classes of cells that was found for what others ask besides.

    Args:
        workload: what is asked of it.
        merged: the classes.
        root: rows of full rank, with columns of norm 1 at most.
        lower: a bound on the error of all strategies.
    """
    basis = basis_of(workload, merged, len(root))
    if basis is None:
        return None
    component = asked_of_all(merged, merged.root(workload))
    error = float(np.square(merged.root(workload) @ np.linalg.pinv(root)).sum())
    return component, Solution(_strategy(merged, root, basis), error, lower, SOLVER)


def asked_of_all(merged: MergedCells, rows: Array) -> Component:
    """Return queries over classes of cells as the problem of the whole domain."""
    references = tuple(Reference.of_cells(n) for n in merged.shape)
    return Component(tuple(range(len(references))), references, b"whole", merged.spread(rows))


def _strategy(merged: MergedCells, root: Array, basis: NDArray[np.int64]) -> Triangular:
    strategy = over_basis(root, basis)
    return replace(strategy, classes=merged)


def integer_basis(workload: Workload, rank: int) -> NDArray[np.int64] | None:
    """Return integer rows over the joint cells that span all queries; None if there are too many.

    They are the queries' own, if these are few and in integers, else the classes of cells.
    """
    merged = MergedCells.of(workload)
    basis = None if merged is None else basis_of(workload, merged, rank)
    return None if merged is None or basis is None else merged.spread(basis)


def basis_of(
    workload: Workload, merged: MergedCells, rank: int, some: NDArray[np.int64] | None = None
) -> NDArray[np.int64] | None:
    """Return the same over the classes of cells, or over some of them, where the rank is less."""
    n = merged.count if some is None else len(some)
    if rank < n and workload.count <= max(FEW, 2 * merged.count):
        rows = _unweighted(merged.rows(replace(f, weight=1.0) for f in workload.families))
        rows = rows if some is None else rows[:, some]
        if (rows == np.rint(rows)).all() and np.abs(rows).max() < 2**20:
            basis = row_basis(rows.astype(np.int64))
            if len(basis) == rank:
                return basis
    return np.eye(n, dtype=np.int64) if n <= MAX_CELLS else None


def _unweighted(rows: Array) -> Array:
    """Return rows that span the same: in integers, if these are integers times weights."""
    if (rows == np.rint(rows)).all():
        return rows
    least = np.where(rows != 0, np.abs(rows), np.inf).min(axis=1, keepdims=True)
    scaled = rows / np.where(np.isfinite(least), least, 1.0)
    whole = np.rint(scaled)
    return whole if np.allclose(scaled, whole, rtol=UNWEIGHTED, atol=0.0) else rows
