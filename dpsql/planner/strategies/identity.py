"""Closed form: single cells of one attribute, all or some, with any weights."""

from __future__ import annotations

from dpsql.linalg.arrays import Array
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.strategies.base import Centered, Solution, Solver
from dpsql.workload import Queries


class IdentitySolver(Solver):
    """The Gram matrix is G = K W K, for K = I − J/n and W = diag(w) >= 0.

    For equal weights this is the problem of ResidualPlanner (arXiv 2305.08175, 4). With any
    others its strategy X = K·n/(n−1), whose diagonal is 1, is optimal as well:

    - it gives tr(G X⁺) = (n−1)/n · tr(K W K) = (n−1)²/n² · Σw, as the diagonal of K is (n−1)/n;
    - no strategy gives less. The dual (see `dual`) at D = W/Σw is the square of the nuclear norm
      of W^½ K D^½, and by the triangle inequality

        ‖W^½ K D^½‖ >= ‖W^½ D^½‖ − ‖W^½ (J/n) D^½‖ = √Σw − √Σw/n = √Σw · (n−1)/n :

      W^½ D^½ is diagonal with entries w/√Σw, and W^½ J D^½ the product of a column of length √Σw
      and a row of length 1.
    """

    name = "closed form (identity)"

    def accepts(self, component: Component) -> bool:
        """Whether the component is known to ask for single cells."""
        return component.identity is not None

    def may_accept(self, queries: Queries) -> bool:
        """Whether single cells are asked."""
        return queries.cell_squares() is not None

    def solve(
        self, component: Component, tolerance: float, work: float, start: Array | None = None
    ) -> Solution:
        """Return the exact optimum."""
        error = identity_error(component)
        return Solution(Centered(component.shape[0]), error, error, self.name)


def identity_error(component: Component) -> float:
    """Return the least error at privacy cost 1: (n−1)²/n² · Σw, for the mean weight Σw/n."""
    (n,) = component.shape
    return (component.identity or 0.0) * (n - 1) ** 2 / n
