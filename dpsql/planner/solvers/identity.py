"""Closed form: all cells of one attribute, equally weighted."""

from __future__ import annotations

import numpy as np

from dpsql.planner.basis import residual_basis
from dpsql.planner.solvers.base import Solution, Solver
from dpsql.planner.structure import Component


class IdentitySolver(Solver):
    """The Gram matrix is a multiple of I − J/n (ResidualPlanner, arXiv 2305.08175, §4).

    The optimal X is (I − J/n)·n/(n−1), whose diagonal is 1: every cell is in the same position,
    so the dual optimum is uniform, and both bounds are w·(n−1)²/n.
    """

    name = "closed form (identity)"

    def accepts(self, component: Component) -> bool:
        """Whether the rows are the centred identity, up to one scale."""
        rows, n = component.rows, component.rows.shape[1]
        if len(component.shape) != 1 or rows.shape[0] != n or n < 2:
            return False
        scale = rows[0, 0] * n / (n - 1)
        return bool(np.allclose(rows, scale * (np.eye(n) - 1 / n), rtol=0, atol=1e-12 * scale))

    def solve(self, component: Component, tolerance: float) -> Solution:
        """Return the exact optimum."""
        n = component.rows.shape[1]
        weight = float(component.rows[0, 0] * n / (n - 1)) ** 2
        error = weight * (n - 1) ** 2 / n
        # X restricted to the cells 1..n-1 is the Gram matrix over the basis e_j − e_0; its
        # triangular factor, Cholesky of a(I) − b(J).
        gram = (np.eye(n - 1) - 1 / n) * n / (n - 1)
        coefficients = np.linalg.cholesky(gram).T
        return Solution(coefficients, residual_basis((n,)), error, error, self.name)
