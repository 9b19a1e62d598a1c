"""ResidualPlanner (Xiao, He, Zhang and Kifer, arXiv 2305.08175): marginals, optimally.

Every marginal is a sum of residuals, one for each subset of its attributes (4). The residual of A
is measured by ⊗(I − J/n), with noise that leaves the whole loss to one number for each A, its
share c_A of the privacy cost. One cell of the marginal over B has the variance

    v_B = Σ_{A⊆B} m_BA / c_A ,   m_BA = ∏_{i∈A} ((n_i − 1)/n_i)² · ∏_{i∈B∖A} 1/n_i² ,

and c_A is free: a closed form for the weighted total of all variances, a conic program for the
largest one and for any other convex function of the v_B (5; `marginal_variances`).

No matrix mechanism has a smaller total, or a smaller largest variance (4; Lebeda et al., "Weighted
Fourier Factorizations", arXiv 2512.21499, 5).
"""

from __future__ import annotations

import math

from dpsql.errors import WorkloadError
from dpsql.planner.mechanisms.base import DEFAULT, Cost, Options, budget_of
from dpsql.planner.mechanisms.marginal_variances import share_by_largest, share_by_loss
from dpsql.planner.mechanisms.querysmasher import Divided, divide_within
from dpsql.planner.mechanisms.restricted import IDENTITY, RestrictedMechanism
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.residuals.equivalence import by_size
from dpsql.planner.residuals.structure import Product, analyse
from dpsql.planner.strategies.base import Conquered, StrategyFamily
from dpsql.privacy import Budget
from dpsql.workload import Block, Family, Identity, Workload


class ResidualPlanner(RestrictedMechanism):
    """Plans marginals: families of all cells over some attributes.

    `Options.objective` may be `largest`, for the largest weight·variance. `Options.loss` is any
    other convex function that CVXPY takes, of the vector of variances: one entry for each family
    of the workload, in order, the variance of any of its cells, in rows squared. For example
    `lambda v: cvxpy.norm(v, 3)`.
    """

    traits = MECHANISMS["residualplanner"]

    def reason_of_queries(self, workload: Workload) -> str | None:
        """Name attributes of which something else is asked than a marginal."""
        for block in (b for family in workload.families for b in family.blocks):
            if _attributes(block) is None:
                names = " x ".join(block.attributes)
                return (
                    f"its strategies are for marginals, and the queries over {names} are not "
                    "marginal queries"
                )
        return None

    def divide(self, workload: Workload, options: Options = DEFAULT) -> Divided:
        """Split products of all cells of single attributes."""
        marginals = _marginals(workload)
        return divide_within(MarginalStrategies(), marginals, by_size(marginals))

    def plan(self, workload: Workload, budget: Budget | None, options: Options) -> Plan:
        """Share the budget by a closed form, or by a conic program.

        Raises:
            WorkloadError: the loss is not convex, or has no least value.
            ResourceLimitError: there are too many residual spaces for a conic program.
        """
        if options.loss is None and options.objective == "total":
            return super().plan(workload, budget, options)
        cost = Cost(budget_of(budget), options.contributions)
        marginals = _marginals(workload)
        divided = self.divide(workload)
        if options.loss is None:
            return share_by_largest(workload, marginals, cost, divided)
        if options.objective != "total":
            raise WorkloadError("A plan has a loss or an objective.", hint="leave one of them out.")
        return share_by_loss(workload, marginals, cost, divided, options.loss)


class MarginalStrategies(StrategyFamily):
    """⊗(I − J/n), which is optimal for all cells, equally weighted."""

    def conquer(self, terms: tuple[Product, ...], spaces: tuple[tuple[str, ...], ...]) -> Conquered:
        """Return the one strategy."""
        structure = analyse(terms)
        solved = tuple((c, IDENTITY.solve(c, 0.0, 0.0)) for c in structure.components)
        error = structure.weight * math.prod(s.upper for _, s in solved)
        asked = (Product(structure.weight, structure.components),)
        return Conquered(spaces, asked, solved, error, error, "closed form")


def _marginals(workload: Workload) -> Workload:
    """Write the families as products of all cells of single attributes."""
    families = [
        Family(family.name, tuple(_cells(family, workload)), family.weight)
        for family in workload.families
    ]
    return Workload.of(workload.domain, families)


def _cells(family: Family, workload: Workload) -> list[Block]:
    names = [name for block in family.blocks for name in _attributes(block) or ()]
    sizes = [(name, workload.domain[name]) for name in names]
    return [Block((name,), (n,), Identity().bind(n)) for name, n in sizes]


def _attributes(block: Block) -> tuple[str, ...] | None:
    """Return the attributes whose cells a block asks for; none for a total, None for others."""
    queries = block.queries
    if queries.is_total and queries.cells > 1:
        return ()
    squares = queries.cell_squares() if queries.rows == queries.cells else None
    if squares is None:
        return None
    permutes = bool((squares == 1).all() and (queries.sums() == 1).all())
    return block.attributes if permutes else None
