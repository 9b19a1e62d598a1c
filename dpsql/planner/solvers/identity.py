"""Closed form: all cells of one attribute, equally weighted."""

from __future__ import annotations

from dpsql.planner.divide.component import Component
from dpsql.planner.solvers.base import Centred, Solution, Solver


class IdentitySolver(Solver):
    """The Gram matrix is w·(I − J/n) (ResidualPlanner, arXiv 2305.08175, §4).

    The optimal X is (I − J/n)·n/(n−1), whose diagonal is 1: every cell is in the same position,
    so the dual optimum is uniform, and both bounds are w·(n−1)²/n.
    """

    name = "closed form (identity)"

    def accepts(self, component: Component) -> bool:
        """Whether the component is known to be an identity."""
        return component.identity is not None

    def solve(self, component: Component, tolerance: float, work: float) -> Solution:
        """Return the exact optimum."""
        error = identity_error(component)
        return Solution(Centred(component.shape[0]), error, error, self.name)


def identity_error(component: Component) -> float:
    """Return the least error of an identity at privacy cost 1: w·(n−1)²/n."""
    (n,) = component.shape
    return (component.identity or 0.0) * (n - 1) ** 2 / n
