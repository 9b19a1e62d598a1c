"""The whole domain at once, where it is small: the best of all matrix mechanisms.

Residual spaces are measured apart, which is what makes large domains possible and costs a little.
Where all attributes that a workload touches have few joint cells, or where there are few queries,
the dual of `dual` is solved for the Gram matrix over all cells. Its lower bound holds for every
matrix mechanism.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array
from dpsql.linalg.roots import root_of
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.residuals.references import Reference, row_basis
from dpsql.planner.strategies.base import Solution
from dpsql.planner.strategies.dual import MAX_RANK, Dual, maximize
from dpsql.planner.strategies.express import over_basis
from dpsql.workload import Workload
from dpsql.workload.workload import gram, joint_cells, spread_out, touched, written_out

SOLVER = "dual over the whole domain"
MAX_CELLS = 2000
"""Joint cells up to which the whole domain can be planned at once."""
QUICK_CELLS = 400
"""Joint cells up to which that takes no longer than residual spaces do."""
ALONE_CELLS = 1200
"""Cells of a single attribute up to which it doesn't: the search for its reference solves problems
of that size many times. Of cumulative counts there may be as many as a solver takes."""
MODERATE_CELLS = 1500
"""Joint cells up to which that takes some seconds, and is done where no other plan is certified
against all mechanisms."""
FEW = 64
"""Queries that are written out over larger domains too: their dual is of low rank."""
FEW_ENTRIES = 2**22
UNWEIGHTED = 1e-12
"""How far from whole numbers, relatively, rows are integers that were multiplied by weights."""


def is_quick(workload: Workload) -> bool:
    """Whether planning the whole domain takes no longer than residual spaces do."""
    n, m = joint_cells(workload), workload.count
    most = QUICK_CELLS
    if len(touched(workload)) == 1:
        most = MAX_RANK if ALONE_CELLS < n <= MAX_RANK and _is_cumulative(workload) else ALONE_CELLS
    return n <= most or (m <= FEW and m * n <= FEW_ENTRIES)


def _is_cumulative(workload: Workload) -> bool:
    """Whether all queries are runs of cells that begin, or that end, at the same one."""
    runs = [b.queries.runs() for f in workload.families for b in f.blocks]
    known = [ends for ends in runs if ends is not None]
    if len(known) < len(runs):
        return False
    return any(len(np.unique(np.concatenate(ends))) == 1 for ends in zip(*known, strict=True))


def solve_whole(workload: Workload, tolerance: float) -> tuple[Component, Solution] | None:
    """Find the best strategy over all cells; None if there is no way to measure it in integers."""
    names = touched(workload)
    shape = tuple(workload.domain[name] for name in names)
    few = workload.count <= min(FEW, math.prod(shape))
    rows = written_out(workload, names) if few else root_of(gram(workload, names))
    if not rows.any():
        return None
    dual = Dual.of(rows, shape)
    nested = dual.parts[0].nested
    basis = nested.basis if nested else integer_basis(workload, names, dual.rank)
    if basis is None:
        return None
    best = maximize(dual, tolerance)
    strategy = over_basis(best.root, basis)
    references = tuple(Reference.of_cells(n) for n in shape)
    component = Component(tuple(range(len(names))), references, b"whole", rows)
    return component, Solution(strategy, best.upper, best.lower, SOLVER)


def integer_basis(
    workload: Workload, names: tuple[str, ...], rank: int
) -> NDArray[np.int64] | None:
    """Take the queries' own rows if they are few and in integers, else all cells if few."""
    n = joint_cells(workload)
    if rank < n and workload.count <= max(FEW, 2 * n):
        families = [f for f in workload.families if f.count]
        written = np.vstack([spread_out(f, names, workload.domain) for f in families])
        rows = _unweighted(written)
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
