"""The least budget of any matrix mechanism that meets limits, by a semidefinite program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.workload import Family, Workload

ACCURACY = 1e-7


def least_budget(workload: Workload, limits: Sequence[float | None]) -> float:
    """Return the least μ² at which no variance of a family is above its limit; small domains only.

    A strategy with the precision X costs max diag(X), and queries A have the covariance AX⁻¹Aᵀ.
    That this is at most T is the linear condition that [[T, A], [Aᵀ, X]] is positive semidefinite.
    Nothing here is taken from the planner.
    """
    import cvxpy as cp

    pairs = [(f, limit) for f, limit in zip(workload.families, limits, strict=True) if limit]
    parts = [np.unique(rows(family, workload), axis=0) / limit**0.5 for family, limit in pairs]
    asked = np.vstack(parts)
    scale = np.square(asked).sum(axis=1).max()
    m, n = asked.shape
    both, cost = cp.Variable((m + n, m + n), PSD=True), cp.Variable()
    conditions = [
        cp.diag(both)[:m] <= 1,
        both[:m, m:] == asked / scale**0.5,
        cp.diag(both)[m:] <= cost,
    ]
    problem = cp.Problem(cp.Minimize(cost), conditions)
    enough = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), ACCURACY)
    problem.solve(solver=cp.CLARABEL, **enough)
    if problem.status != cp.OPTIMAL:
        raise AssertionError(problem.status)
    return float(cost.value) * float(scale)


def rows(family: Family, workload: Workload) -> NDArray[np.float64]:
    """Write the queries of a family out over all cells; its attributes are in domain order."""
    product = np.ones((1, 1))
    of = {block.attributes[0]: block for block in family.blocks}
    inside = {name for block in family.blocks for name in block.attributes}
    for name, size in workload.domain.items():
        if name in of:
            product = np.kron(product, of[name].queries.matrix)
        elif name not in inside:
            product = np.kron(product, np.ones((1, size)))
    return product
