"""ResidualPlanner (Xiao, He, Zhang and Kifer, arXiv 2305.08175): marginals, optimally.

Every marginal is a sum of residuals, one for each subset of its attributes (4). The residual of A
is measured by ⊗(I − J/n), with noise that leaves the whole loss to one number for each A, its
share c_A of the privacy cost. One cell of the marginal over B has the variance

    v_B = Σ_{A⊆B} m_BA / c_A ,   m_BA = ∏_{i∈A} ((n_i − 1)/n_i)² · ∏_{i∈B∖A} 1/n_i² ,

and c_A is free: a closed form for the weighted total of all variances, a conic program for the
largest one and for any other convex function of the v_B (5).

No matrix mechanism has a smaller total, or a smaller largest variance (4; Lebeda et al., "Weighted
Fourier Factorizations", arXiv 2512.21499, 5).

*The conic program.* Let u_A be the variance scale of the residual space A, 1/u_A its share of the
privacy cost C. The variances v = M u of one cell of each marginal are linear in u, so that

    minimize L(M u)  subject to  Σ_A 1/u_A <= C

is convex if L is.

Certificates. For the largest of the weighted variances: whatever w >= 0 with Σw = 1,

    max_B W_B v_B  >=  Σ_B w_B W_B v_B  >=  (Σ_A √(Mᵀ(w∘W))_A)² / C

by Cauchy-Schwarz, and the program's dual variables are the w for which both sides meet; the bound
is evaluated here, whatever the solver's accuracy. Any other loss is at least its tangent at the
solution v*, L(v) >= L(v*) + g·(v − v*) with the dual variables g as its slope, and g·v is bounded
as above. That g is a slope of L rests on the solver, whose accuracy is 1e-8.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse

from dpsql.errors import MechanismError, ResourceLimitError, WorkloadError
from dpsql.linalg.arrays import Array
from dpsql.planner.mechanisms.base import DEFAULT, Cost, Options, budget_of
from dpsql.planner.mechanisms.querysmasher import Divided, divide_within, stitch_shares
from dpsql.planner.mechanisms.restricted import IDENTITY, RestrictedMechanism
from dpsql.planner.plans.contents import Objective
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.residuals.equivalence import by_size
from dpsql.planner.residuals.structure import Product, analyze
from dpsql.planner.shares.allocation import allocate
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
        cost = Cost(budget_of(budget), options.contributions, options.bound)
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
        structure = analyze(terms)
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


MAX_PROGRAM = 2**15
"""Residual spaces of a conic program: it takes about a minute then."""
BINDING = 0.98
SAME = 9
"""Digits in which shares agree that are taken to be equal: such spaces make one block."""


@dataclass(frozen=True, slots=True)
class Spread:
    """v = M u: how the variances of cells follow from those of residuals."""

    spaces: tuple[tuple[str, ...], ...]
    matrix: scipy.sparse.csr_array
    """M, of shape (families, spaces)."""


def share_by_largest(workload: Workload, marginals: Workload, cost: Cost, divided: Divided) -> Plan:
    """Share the budget so that the largest weight·variance is as small as possible."""
    cp = _cvxpy()
    spread = _spread(marginals, divided)
    weights = np.array([family.weight for family in marginals.families])
    relative = weights / weights.max()  # so that the program is well scaled
    scaled = scipy.sparse.csr_array(scipy.sparse.diags_array(relative) @ spread.matrix)
    solved = _solve(scaled, cp.max, 1.0)
    planned = _stitched(workload, cost, divided, spread, solved.shares)
    reached = np.array([f.weight for f in workload.families]) * _variances(planned, spread)
    w = np.maximum(solved.prices, 0.0)
    least = _least_sum(scaled, w / w.sum()) * weights.max() / float(cost.per_record)
    binding = [
        f.name
        for f, variance in zip(workload.families, reached, strict=True)
        if variance >= BINDING * reached.max()
    ]
    gap = max(0.0, float(reached.max() / least) - 1)
    return _reported(planned, "least largest variance", tuple(dict.fromkeys(binding)), gap)


def share_by_loss(
    workload: Workload,
    marginals: Workload,
    cost: Cost,
    divided: Divided,
    loss: Callable[[Any], Any],
) -> Plan:
    """Share the budget so that a convex function of the variances is as small as possible."""
    spread = _spread(marginals, divided)
    solved = _solve(spread.matrix, loss, float(cost.per_record))
    planned = _stitched(workload, cost, divided, spread, solved.shares)
    reached = _value(loss, _variances(planned, spread))
    distance = max(0.0, reached - solved.least)
    gap = distance / abs(solved.least) if solved.least else math.inf
    return _reported(planned, "least loss of the marginals' variances", (), gap)


@dataclass(frozen=True, slots=True)
class _SolvedCone:
    shares: Array
    """1/u_A, of each residual space."""
    prices: Array
    """What a larger variance of each family costs: the dual variables of v = M u."""
    least: float
    """A bound from below on the loss, by its tangent at the solution."""


def _solve(matrix: scipy.sparse.csr_array, loss: Callable[[Any], Any], cost: float) -> _SolvedCone:
    """Solve the program, with u in units of 1/cost.

    Raises:
        WorkloadError: the loss is not convex, or has no least value.
        ResourceLimitError: the program is too large.
    """
    cp = _cvxpy()
    families, spaces = matrix.shape
    if spaces > MAX_PROGRAM:
        raise ResourceLimitError(
            f"A conic program over {spaces:,} residual spaces is too large.",
            hint='use objective="total", or ask for fewer marginals.',
        )
    u, v = cp.Variable(spaces, pos=True), cp.Variable(families)
    objective = _checked(loss(v))
    linear = v == (matrix / cost) @ u
    program = cp.Problem(cp.Minimize(objective), [linear, cp.sum(cp.inv_pos(u)) <= 1])
    program.solve(solver=cp.CLARABEL)
    if program.status != cp.OPTIMAL:
        raise WorkloadError(
            "The loss has no least value over the variances that the budget allows.",
            hint="use a loss that grows with every variance, for example cvxpy.norm(v, 3).",
        )
    prices = -np.asarray(linear.dual_value).ravel()
    least = float(program.value) - float(prices @ v.value) + _least_sum(matrix, prices) / cost
    return _SolvedCone(np.asarray(cost / u.value), prices, least)


def _least_sum(matrix: scipy.sparse.csr_array, prices: Array) -> float:
    """Return the least Σ prices·v at privacy cost 1, (Σ √(Mᵀ prices))²."""
    return float(np.sqrt(np.maximum(matrix.T @ prices, 0.0)).sum()) ** 2


def _checked(objective: Any) -> Any:
    """Return a loss if it is a convex number.

    Raises:
        WorkloadError: it isn't.
    """
    cp = _cvxpy()
    if not isinstance(objective, cp.Expression) or not objective.is_scalar():
        raise WorkloadError(
            "The loss is not a number that CVXPY can minimize.",
            hint="return a scalar expression, for example lambda v: cvxpy.norm(v, 3).",
        )
    if not objective.is_convex():
        raise WorkloadError(
            "The loss is not convex by the rules of CVXPY.",
            hint="see cvxpy.org on disciplined convex programming, and use its functions.",
        )
    return objective


def _cvxpy() -> Any:
    """Import CVXPY, which is slow to import, seldom needed, and not installed with dpsql.

    Raises:
        MechanismError: it is not installed.
    """
    try:
        import cvxpy
    except ImportError:
        raise MechanismError(
            "ResidualPlanner finds these shares with CVXPY, which is not installed.",
            hint="pip install 'dpsql[convex]'",
        ) from None
    return cvxpy


def _value(loss: Callable[[Any], Any], variances: Array) -> float:
    return float(loss(_cvxpy().Constant(variances)).value)


def _spread(marginals: Workload, divided: Divided) -> Spread:
    """Write M down, which has 2^k entries for a marginal over k attributes."""
    spaces = tuple(space for c in divided.conquered for space in c.spaces)
    column = {frozenset(space): i for i, space in enumerate(spaces)}
    rows: list[int] = []
    columns: list[int] = []
    entries: list[float] = []
    for row, family in enumerate(marginals.families):
        found = {frozenset[str](): 1.0}
        for name in (name for block in family.blocks for name in block.attributes):
            n = marginals.domain[name]
            kept = {a | {name}: m * ((n - 1) / n) ** 2 for a, m in found.items()} if n > 1 else {}
            found = {a: m / n**2 for a, m in found.items()} | kept
        rows += [row] * len(found)
        columns += [column[a] for a in found]
        entries += found.values()
    shape = (len(marginals.families), len(spaces))
    return Spread(spaces, scipy.sparse.csr_array((entries, (rows, columns)), shape=shape))


def _stitched(
    workload: Workload, cost: Cost, divided: Divided, spread: Spread, shares: Array
) -> Plan:
    """Plan with given shares; spaces that are measured alike, at equal shares, make one block."""
    share_of = dict(zip(spread.spaces, shares.tolist(), strict=True))
    conquered: list[Conquered] = []
    for c in divided.conquered:
        groups: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for space in c.spaces:
            groups[f"{share_of[space]:.{SAME}g}"].append(space)
        conquered += [replace(c, spaces=tuple(spaces)) for spaces in groups.values()]
    wanted = [share_of[c.spaces[0]] for c in conquered]
    counts = [len(c.spaces) for c in conquered]
    exact: tuple[Fraction, ...] = allocate([s**2 for s in wanted], counts, cost.per_record)
    return stitch_shares(workload, cost, replace(divided, conquered=tuple(conquered)), exact)


def _variances(planned: Plan, spread: Spread) -> Array:
    """Return the variance of one cell of each marginal, from the integers that are measured."""
    per_cost: dict[tuple[str, ...], float] = {}
    for block in planned.certified.blocks:
        scale = block.law.variance / block.sensitivity_squared
        per_cost |= dict.fromkeys(block.spaces, scale)
    u = np.array([per_cost[space] for space in spread.spaces])
    return np.asarray(spread.matrix @ u)


def _reported(planned: Plan, name: str, binding: tuple[str, ...], gap: float) -> Plan:
    total = math.fsum(block.error for block in planned.planned)
    return replace(planned, objective=Objective(name, binding, gap, total))
