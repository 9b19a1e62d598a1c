"""The least error, or budget, of any matrix mechanism, by a semidefinite program.

Nothing here is taken from the planner.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.workload import Family, Workload

ACCURACY = 1e-7


def least_error_by_conic_program(rows: NDArray[np.float64]) -> float:
    """Return the least error of queries at privacy cost 1: min tr(G X⁺) subject to diag(X) <= 1.

    Their Gram matrix is G; tr B is at least tr(G X⁺) where [[B, root], [rootᵀ, X]] is positive
    semidefinite. For rows in a residual space this is the least error among its strategies.
    """
    import cvxpy as cp

    values, vectors = np.linalg.eigh(rows.T @ rows)
    kept = values > values[-1] * 1e-10
    root = vectors[:, kept] * np.sqrt(values[kept])
    n, r = root.shape
    x = cp.Variable((n, n), PSD=True)
    bound = cp.Variable((r, r), symmetric=True)
    problem = cp.Problem(
        cp.Minimize(cp.trace(bound)),
        [cp.bmat([[bound, root.T], [root, x]]) >> 0, cp.diag(x) <= 1],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


def least_budget(workload: Workload, limits: Sequence[float | None]) -> float:
    """Return the least μ² at which no variance of a family is above its limit; small domains only.

    A strategy with the precision X costs max diag(X), and queries A have the covariance AX⁻¹Aᵀ.
    That this is at most T is the linear condition that [[T, A], [Aᵀ, X]] is positive semidefinite.
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
