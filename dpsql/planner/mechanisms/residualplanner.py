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

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.errors import MechanismError, ResourceLimitError, WorkloadError
from dpsql.linalg.arrays import Array
from dpsql.linalg.roots import ROUNDING, compressed, independent_root
from dpsql.planner.mechanisms.base import DEFAULT, Basis, Cost, Options, budget_of
from dpsql.planner.mechanisms.querysmasher import (
    IDENTITY,
    Divided,
    FewRows,
    PlanBounds,
    RestrictedMechanism,
    divide_within,
    stitch_shares,
    tells_apart,
)
from dpsql.planner.plans.plan import Objective, Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import by_size
from dpsql.planner.residuals.structure import Product, analyze
from dpsql.planner.shares import allocate
from dpsql.planner.strategies.base import Conquered, Solution, StrategyFamily
from dpsql.planner.strategies.choose import product_error
from dpsql.planner.strategies.dual import MAX_RANK, Dual, maximize
from dpsql.planner.strategies.express import over_integers
from dpsql.privacy import Budget
from dpsql.workload import AllRange, Block, Factor, Family, Identity, Matrix, Prefix, Workload

if TYPE_CHECKING:
    import scipy.sparse


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
    import scipy.sparse  # slow to import, and no plain count needs it

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
    """The price of a larger variance of each family: the dual variables of v = M u."""
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
    import scipy.sparse  # slow to import, and no plain count needs it

    spaces = tuple(space for c in divided.conquered for space in c.spaces)
    column = {frozenset(space): i for i, space in enumerate(spaces)}
    rows: list[int] = []
    columns: list[int] = []
    entries: list[float] = []
    for row, family in enumerate(marginals.families):
        shares = {frozenset[str](): 1.0}
        for name in (name for block in family.blocks for name in block.attributes):
            n = marginals.domain[name]
            kept = {a | {name}: m * ((n - 1) / n) ** 2 for a, m in shares.items()} if n > 1 else {}
            shares = {a: m / n**2 for a, m in shares.items()} | kept
        rows += [row] * len(shares)
        columns += [column[a] for a in shares]
        entries += shares.values()
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


# ── ResidualPlanner+ (Xiao et al., arXiv 2305.08175v3): one strategy per attribute ───────────────
#
# Each attribute has a basis: queries W that its own strategy is made for. The strategy of the
# residual space of A is the Kronecker product of those of its attributes, whatever is asked of A,
# so that planning takes one small problem per attribute. It isn't optimal, not even for products.
#
# The strategy of an attribute is made as the authors' code makes it: with C = I − J/n, take the X
# of least error for the queries WC and the total together, over all n cells; then CXC, scaled to
# sensitivity 1, is measured of every residual space that contains the attribute. (The best X for WC
# alone would need less error: it is QuerySmasher's, and 1 to 8 % better where all is prefixes.)
#
# With prefixes for numeric attributes and points for the others, and whole plans made for prefixes
# where ranges are asked, this reproduces the numbers that are published for ResidualPlanner+
# (QuerySmasher, arXiv 2604.00868, Tables 2 to 5; `tests/benchmarks/published_tables.py`).


TOLERANCE = 1e-7
"""The gap to which the strategy of an attribute is solved."""
NAMED: dict[str, Factor] = {"identity": Identity(), "prefix": Prefix(), "range": AllRange()}


class ResidualPlannerPlus(RestrictedMechanism):
    """Plans with one strategy per attribute.

    `Options.bases` are attribute → the queries that its strategy is made for. By default these are
    what the workload asks of the attribute, on average over its families (see `queries_of`).
    """

    traits = MECHANISMS["residualplanner+"]

    def reason_of_queries(self, workload: Workload) -> str | None:
        """Name an attribute that has too many cells for its strategy to be searched."""
        for block in (b for family in workload.families for b in family.blocks):
            points = block.queries.is_identity
            for name, n in zip(block.attributes, block.shape, strict=True):
                if n > MAX_RANK and not (points and len(block.attributes) == 1):
                    return (
                        f"its strategy for the {n:,} cells of {name} would be found among those "
                        f"of rank up to {MAX_RANK:,}"
                    )
        return None

    def divide(self, workload: Workload, options: Options = DEFAULT) -> Divided:
        """Solve one small problem per attribute; equal ones once.

        Raises:
            WorkloadError: a basis is not one.
        """
        bases = options.bases or {}
        asked = {name: _asked(name, workload, bases) for name in workload.domain}
        _check_names(bases, workload)
        solved: dict[tuple[int, bytes], Solution] = {}
        for queries in asked.values():
            if queries.cells > 1 and queries.kind not in solved:
                solved[queries.kind] = strategy_for(queries)
        by_name = {name: solved[q.kind] for name, q in asked.items() if q.cells > 1}
        return divide_within(PerAttribute(by_name), workload, by_size(workload))


class PerAttribute(StrategyFamily):
    """Kronecker products of given strategies, one for each attribute."""

    def __init__(self, strategies: Mapping[str, Solution]) -> None:
        self._strategies, self._bounds, self._few_rows = strategies, PlanBounds(), FewRows()

    def kind(self, space: tuple[str, ...]) -> Hashable:
        """Tell spaces of different strategies apart."""
        return tuple(id(self._strategies[name]) for name in space)

    def conquer(self, terms: tuple[Product, ...], spaces: tuple[tuple[str, ...], ...]) -> Conquered:
        """Return the product of the attributes' strategies, which answers whatever is asked."""
        terms = self._few_rows.of(terms)
        solutions = [self._strategies[name] for name in spaces[0]]
        references = terms[0].references
        solved = tuple(
            (_component(axis, references[axis]), solution)
            for axis, solution in enumerate(solutions)
        )
        error = product_error(terms, {axis: s.strategy for axis, s in enumerate(solutions)})
        named = " (x) ".join(
            f"{s.solver} on {a}" for s, a in zip(solutions, spaces[0], strict=True)
        )
        return Conquered(
            spaces, terms, solved, error, self._bounds.of(terms), named or "closed form"
        )


@dataclass(frozen=True, slots=True, eq=False)
class BasisQueries:
    """The queries that an attribute's strategy is made for."""

    cells: int
    rows: Array | None
    """Rows with their Gram matrix; None for all cells, which need not be written out."""
    name: str
    kind: tuple[int, bytes]
    """Bases of one kind have one strategy."""


def strategy_for(asked: BasisQueries) -> Solution:
    """Make the strategy of an attribute, of sensitivity 1 on its residual space."""
    n = asked.cells
    reference = Reference.of_cells(n)
    component = _component(0, reference)
    if asked.rows is None:
        return IDENTITY.solve(component, 0.0, 0.0)
    centered = asked.rows - asked.rows.mean(axis=1, keepdims=True)
    glued = np.vstack([centered, np.ones((1, n))])
    best = maximize(Dual.of(glued, (n,)), TOLERANCE)
    root = best.root - best.root.mean(axis=1, keepdims=True)
    strategy = over_integers(compressed(root), component, component.dimension)
    error = float(np.square(centered @ strategy.inverse()).sum())
    return Solution(strategy, error, 0.0, f"basis ({asked.name})")


def queries_of(name: str, workload: Workload) -> BasisQueries:
    """Return what a workload asks of an attribute, on average over its families.

    A family counts by its weight and by the sum of squares of its queries over other attributes.
    Queries over several attributes together count with what they ask of this one for fixed cells
    of the others.
    """
    n = workload.domain[name]
    asked_of: dict[tuple[bytes, int], tuple[Block, float]] = {}
    for family in workload.families:
        for block in (b for b in family.blocks if name in b.attributes):
            key = block.queries.key, block.attributes.index(name)
            weight = asked_of[key][1] if key in asked_of else 0.0
            asked_of[key] = block, weight + family.weight * _others(family, block)
    asked = [(b, weight) for b, weight in asked_of.values() if weight and tells_apart(b)]
    if all(b.queries.is_identity and len(b.attributes) == 1 for b, _ in asked):
        return _points(n)
    total = math.fsum(weight for _, weight in asked)
    gram = sum((_gram(block, name) * (weight / total) for block, weight in asked), np.zeros((n, n)))
    rows, _ = independent_root(gram, ROUNDING * n)
    return _written(rows, "own queries")


def _asked(name: str, workload: Workload, bases: Mapping[str, Basis]) -> BasisQueries:
    if name not in bases:
        return queries_of(name, workload)
    basis, n = bases[name], workload.domain[name]
    if not isinstance(basis, str):
        return _written(Matrix(basis).bind(n).matrix, "given")
    if basis not in NAMED:
        raise WorkloadError(
            f"There is no basis {basis!r}.",
            hint=f"use {', '.join(map(repr, NAMED))}, or a matrix of queries x cells.",
        )
    return _points(n) if basis == "identity" else _written(NAMED[basis].bind(n).matrix, basis)


def _check_names(bases: Mapping[str, Basis], workload: Workload) -> None:
    for name in bases:
        if name not in workload.domain:
            raise WorkloadError(
                f"There is no attribute {name!r} that could have a basis.",
                hint=f"the attributes are {', '.join(list(workload.domain)[:10])}.",
            )


def _points(cells: int) -> BasisQueries:
    return BasisQueries(cells, None, "identity", (cells, b"identity"))


def _written(rows: Array, name: str) -> BasisQueries:
    # Attributes that are asked the same may be summed up in another order.
    gram = rows.T @ rows
    rounded = np.round(gram / max(float(np.abs(gram).max()), np.finfo(float).tiny), 9) + 0.0
    cells = rows.shape[1]
    return BasisQueries(cells, rows, name, (cells, hashlib.sha256(rounded.tobytes()).digest()))


def _component(axis: int, reference: Reference) -> Component:
    """Return all cells of one attribute: where its strategy is measured."""
    return Component((axis,), (reference,), b"cells", None, None, 1.0)


def _others(family: Family, block: Block) -> float:
    """Return the sum of squares of a family's queries over the attributes of other blocks."""
    others = (b.queries for b in family.blocks if b is not block)
    return math.prod(float(queries.squares().sum()) for queries in others)


def _gram(block: Block, name: str) -> Array:
    """Return the Gram matrix over one attribute, averaged over the cells of the others."""
    if len(block.attributes) == 1:
        return block.queries.gram()
    at = block.attributes.index(name)
    tensor = block.queries.matrix.reshape(-1, *block.shape)
    slices = np.moveaxis(tensor, at + 1, -1).reshape(-1, block.shape[at])
    return np.asarray(slices.T @ slices) * (block.shape[at] / block.queries.cells)
