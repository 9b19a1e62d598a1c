"""QuerySmasher (arXiv 2604.00868, Algorithm 1): divide, conquer, stitch.

Where this differs from the paper: products of queries stay products, spaces of which the same is
asked are planned once, every subworkload is solved to a certified gap by its dual, and what
comes out is a strategy in integers. Residual spaces are weighted unless asked otherwise, which
is more accurate than the paper's.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from dpsql.errors import ResourceLimitError, WorkloadError
from dpsql.hints import spend
from dpsql.linalg.arrays import Array
from dpsql.linalg.digits import AS_GOOD, least
from dpsql.linalg.roots import compressed
from dpsql.linalg.threads import one_thread
from dpsql.measurement.certify import costs_of_rows, spent
from dpsql.planner.mechanisms.base import (
    DEFAULT,
    DEFAULT_TOLERANCE,
    Cost,
    Mechanism,
    ObjectiveName,
    Options,
    Residuals,
    Solved,
    budget_of,
    check_how,
    reason_of_kind,
)
from dpsql.planner.plans.objectives import Planner, least_budget, least_largest
from dpsql.planner.plans.plan import Plan, PlannedBlock
from dpsql.planner.plans.traits import MECHANISMS, QUERYSMASHER
from dpsql.planner.reconstruction.measured import Space
from dpsql.planner.reconstruction.residual import ResidualReconstruction
from dpsql.planner.reconstruction.whole import WholeReconstruction
from dpsql.planner.residuals.pieces import Component, Splitter
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import (
    Coloring,
    References,
    Subworkload,
    by_reference,
    by_size,
    decompose,
    decomposed,
)
from dpsql.planner.residuals.structure import Product, analyze, products
from dpsql.planner.shares import allocate
from dpsql.planner.strategies.base import Conquered as Conquered
from dpsql.planner.strategies.base import Solution, StrategyFamily
from dpsql.planner.strategies.choose import (
    Solutions,
    least_error,
    least_error_of,
    refuse_unsolvable,
)
from dpsql.planner.strategies.dual import MAX_RANK, Dual, evaluate
from dpsql.planner.strategies.identity import IdentitySolver, identity_error
from dpsql.planner.strategies.merged import MergedCells
from dpsql.planner.strategies.rounding import Rounding
from dpsql.planner.strategies.whole import (
    MAX_CELLS,
    MODERATE_WORK,
    is_quick,
    solve_whole,
    whole_by,
    whole_work,
)
from dpsql.planner.weights.contexts import ContextChoice, choose_by_context
from dpsql.planner.weights.product import closed_form
from dpsql.planner.weights.search import (
    Choice,
    choose_references,
    reference_search,
    uniform_is_best,
)
from dpsql.privacy import Budget
from dpsql.workload import Block, Workload
from dpsql.workload.spread import SpreadRows
from dpsql.workload.workload import joint_cells, touched

INSIDE = "residual spaces of conditions"
IN_OTHER_SHARES = "these residual spaces in other shares"
LEAST = 1e-300
"""The least error of a measurement, so that it has a share."""
ENOUGH = 2
"""Times the tolerance, up to which a gap to all mechanisms is as good as none."""
SHARPER = 8
"""By so much is the tolerance less where single answers count, and the whole domain is planned."""


class QuerySmasher(Mechanism):
    """Plans residual spaces, or few joint cells at once, whichever has the least error."""

    traits = MECHANISMS[QUERYSMASHER]

    def reason_unsupported(self, workload: Workload, budget: Budget) -> str | None:
        """Say that its noise is Gaussian; it can answer whatever is asked."""
        return reason_of_kind(workload, budget)

    def plan(self, workload: Workload, budget: Budget | None, options: Options) -> Plan:
        """See `plan` below."""
        return plan(
            workload,
            budget,
            tolerance=options.tolerance,
            residuals=options.residuals,
            objective=options.objective,
            targets=options.targets,
            contributions=options.contributions,
            bound=options.bound,
            spreads=options.spreads,
            solved=options.solved,
        )


@dataclass(frozen=True, slots=True)
class Divided:
    """A workload split by references, with a strategy for each subworkload."""

    references: References
    conquered: tuple[Conquered, ...]

    @property
    def roots(self) -> float:
        """Σ √E over all residual spaces: the root of the total error at privacy cost 1."""
        return math.fsum(len(c.spaces) * math.sqrt(c.upper) for c in self.conquered)


@one_thread
def plan(
    workload: Workload,
    budget: Budget | None = None,
    *,
    tolerance: float = DEFAULT_TOLERANCE,
    residuals: Residuals = "weighted",
    objective: ObjectiveName = "total",
    targets: Mapping[str, float] | None = None,
    contributions: int = 1,
    bound: int = 1,
    spreads: tuple[SpreadRows, ...] = (),
    solved: Solved | None = None,
) -> Plan:
    """Plan the measurements that answer a workload with the least error, or at the least budget.

    Args:
        workload: what to answer.
        budget: what may be spent; None if there are targets.
        tolerance: the relative gap to aim for, between 1e-8 and 1.
        residuals: `weighted` chooses the references that need the least error; `uniform` takes
            means, as the paper does; `none` plans the whole domain at once, which is best and
            possible up to 2,000 joint cells; `weighted` does so by itself where that is a few
            seconds' work: for queries of rank r over N joint cells, of which those count once
            that are alike in all that is asked, up to r²N = 6.4e7 at once, and up to 3.4e9 where
            the workload is no Kronecker product.
        objective: `total` minimizes Σ weight·variance, `largest` the largest weight·variance.
        targets: family name → the largest standard error that its answers may have, in rows.
            The budget is then the least one found that meets them all.
        contributions: the most records of one privacy unit that are counted. With k of them the
            same noise costs k² as much.
        bound: the largest magnitude of what a record adds to its cell; it costs as k does.
        spreads: how far apart the records of a unit are: what is measured of cells in which only a
            share of them may lie costs less.
        solved: what was solved before for the same workload, and a different budget.

    Raises:
        WorkloadError: the workload is empty, or an option is out of range.
        ResourceLimitError: no solver can take a subworkload of this size.
    """
    if not workload.families:
        raise WorkloadError("The workload is empty.", hint="add at least one family of queries.")
    check_how(tolerance, residuals, objective)
    refuse_unsolvable(workload)
    _check_contributions(contributions)

    whole = residuals == "none" or (residuals == "weighted" and is_quick(workload))
    if whole and (targets is not None or objective != "total"):
        tolerance = tolerance / SHARPER  # a total that is nearly the least says less of its parts

    known = Solved() if solved is None else solved

    def planner(weighted: Workload, at: Budget, like: Plan | None) -> Plan:
        cost = Cost(at, contributions, bound, spreads)
        if like is None:
            return _plan_total(weighted, cost, tolerance, residuals, known)
        return _plan_like(weighted, cost, tolerance, like, known)

    return _plan(workload, budget, objective, targets, planner, whole)


def _plan(
    workload: Workload,
    budget: Budget | None,
    objective: ObjectiveName,
    targets: Mapping[str, float] | None,
    planner: Planner,
    whole: bool,
) -> Plan:
    if targets is not None:
        if budget is not None:
            raise WorkloadError("A plan has a budget or targets.", hint="leave one of them out.")
        if objective != "total":
            raise WorkloadError(
                "A plan has targets or another objective.", hint="leave one of them out."
            )
        return least_budget(workload, targets, planner, whole)
    if budget is None:
        raise WorkloadError("A plan needs a budget.", hint="for example " + spend(rho="0.5") + ".")
    if objective == "largest":
        return least_largest(workload, budget, planner, whole)
    return planner(workload, budget, None)


def _plan_total(
    workload: Workload, cost: Cost, tolerance: float, residuals: Residuals, solved: Solved
) -> Plan:
    count, quick = joint_cells(workload), is_quick(workload)
    if residuals == "none" and count > MAX_CELLS and not quick:
        raise ResourceLimitError(
            f"The workload touches {count:,} joint cells, more than {MAX_CELLS:,}.",
            hint='use residuals="weighted".',
        )
    plans = _groups_apart(workload, cost, tolerance, solved) if residuals == "weighted" else {}
    weigh = residuals == "weighted" and (bool(cost.spreads) or not uniform_is_best(workload))
    moderate = weigh and not quick and whole_work(workload) <= MODERATE_WORK
    for name, wanted, planner in (
        ("the whole domain at once", residuals == "none" or (weigh and quick), _plan_whole),
        ("residual spaces of a product", residuals == "weighted", _product),
        ("the whole domain at once", moderate, _plan_whole),
    ):
        plan = planner(workload, cost, tolerance, solved) if wanted else None
        if plan is not None:
            plan = _with_bound(plan, plans.values())
            if residuals == "none" or plan.gap <= ENOUGH * tolerance:
                return plan  # no mechanism does better by more
            plans[name] = plan
    if not weigh:
        return stitch(workload, cost, _uniform(workload, tolerance, solved))
    return _in_residual_spaces(workload, cost, tolerance, solved, plans)


def _in_residual_spaces(
    workload: Workload, cost: Cost, tolerance: float, solved: Solved, others: Mapping[str, Plan]
) -> Plan:
    """Plan by the references that need the least error, beside plans of the whole domain."""
    plans = dict(others)
    if _leave_out_alike(workload, solved).issuperset(touched(workload)):
        plan = _all_inside(workload, cost, tolerance, solved)
        if plan is not None and plan.gap <= ENOUGH * tolerance:
            return _with_bound(plan, plans.values())
    plans |= _weighted(workload, cost, tolerance, solved)
    if _exclude_each_other(workload, solved):
        added = _best(plans)
        inside = plan_inside(workload, cost, added, tolerance, solved)
        if inside is not None:
            plans[INSIDE] = replace(inside, added=lambda: added)
    return _best(plans)


def _best(plans: Mapping[str, Plan]) -> Plan:
    """Return the plan whose integers have the least error, and note what else was tried."""
    best = least(plans, lambda name: plans[name].rmse)
    others = {name: planned.rmse for name, planned in plans.items() if name != best}
    return replace(_with_bound(plans[best], plans.values()), tried=others)


def _with_bound(planned: Plan, others: Iterable[Plan]) -> Plan:
    """Return a plan with the sharpest bound on all mechanisms that others for the same have."""
    bound = max((other.least for other in others), default=0.0)
    return planned if bound <= planned.least else replace(planned, least=bound)


def _plan_like(
    workload: Workload, cost: Cost, tolerance: float, like: Plan, solved: Solved
) -> Plan:
    """Plan with the references of a plan for the same families with other weights."""
    if like.whole:
        few = joint_cells(workload) <= MAX_CELLS or whole_work(workload) <= MODERATE_WORK
        whole = _plan_whole(workload, cost, tolerance, solved) if few else None
        if whole is None:
            return _plan_total(workload, cost, tolerance, "weighted", solved)
        apart = _groups_apart(workload, cost, tolerance, solved)
        best = least([whole, *apart.values()], lambda planned: planned.rmse)
        return _with_bound(best, [whole, *apart.values()])
    divided = divide_by(workload, like.references, tolerance)
    shared = _stitch_by_class(workload, cost, divided) if like.shared else None
    return shared or stitch(workload, cost, divided)


def _plan_whole(workload: Workload, cost: Cost, tolerance: float, solved: Solved) -> Plan | None:
    """Plan all touched attributes as one space, without residuals; None if that can't be."""
    solution = solved.once(
        workload, "whole", tolerance, lambda: solve_whole(workload, tolerance / 4)
    )
    return None if solution is None else _measured_whole(workload, cost, solution)


def plan_by(
    workload: Workload, cost: Cost, merged: MergedCells, root: Array, lower: float
) -> Plan | None:
    """Plan the whole domain by a strategy that was found for what others ask besides.

    Args:
        workload: what is asked.
        cost: what may be spent.
        merged: its classes of cells.
        root: the strategy over these, with columns of norm 1 at most.
        lower: a bound on the error of all strategies for the workload.

    Returns:
        The plan; None if there is no way to measure the strategy in integers.
    """
    solution = whole_by(workload, merged, root, lower)
    return None if solution is None else _measured_whole(workload, cost, solution)


def plan_inside(
    workload: Workload, cost: Cost, like: Plan, tolerance: float, solved: Solved
) -> Plan | None:
    """Plan with references outside of the cells that are asked; None if all cells are.

    Where no condition on an attribute asks anything of a cell, that cell is a reference with which
    nothing of a condition is dropped, and all is kept as it is asked. So nothing is measured of
    rows that satisfy no condition, and they cost nothing; and rows of conditions that exclude each
    other don't pay for each other. The error of one condition is no larger than with another
    reference for the attribute: a 0/1 row s is split by that into sℓ >= 0 of all rows and s − sℓ,
    which takes sℓ + max(sℓ, 1 − sℓ) >= 1 in place of 1.
    """
    outside = {} if like.whole or cost.spreads else _outside(workload, solved)
    if not outside:
        return None
    return _inside(workload, cost, outside, like.references, tolerance, solved)


def _all_inside(workload: Workload, cost: Cost, tolerance: float, solved: Solved) -> Plan | None:
    """Plan queries that all leave out a cell of each attribute; None if that is too large.

    Such are several aggregates of columns whose domains leave rows out. With these cells as
    references all of them lie in one space, which no other references divide without a loss.
    """
    even = {name: Reference.of_cells(cells) for name, cells in workload.domain.items()}
    outside = {} if cost.spreads else _outside(workload, solved)
    try:
        return _inside(workload, cost, outside, even, tolerance, solved) if outside else None
    except ResourceLimitError:  # smaller spaces may be solved
        return None


def _inside(
    workload: Workload,
    cost: Cost,
    outside: Mapping[str, Reference],
    others: Mapping[str, Reference],
    tolerance: float,
    solved: Solved,
) -> Plan | None:
    known = References.of(others)
    special = {at: reference for at, reference in known.special.items() if at[0] not in outside}
    references = References({**known.usual, **outside}, known.pivots, special)
    divided = solved.once(
        workload, "inside", tolerance, lambda: divide_by(workload, references, tolerance)
    )
    return _stitch_by_class(workload, cost, divided) or stitch(workload, cost, divided)


def _stitch_by_class(workload: Workload, cost: Cost, divided: Divided) -> Plan | None:
    """Share what a row may cost, as conditions exclude each other; None if that gains nothing.

    Spaces of which the same is asked are one measurement, of m spaces: with the error E of each at
    the cost 1 that is m²E at the cost 1 of all. It costs a row in some class of cells what the
    integers say, of strategies that are rounded for even shares.
    """
    from dpsql.planner.strategies.one_budget import Costs, by_class, fitted, share  # for few

    counts = [len(c.spaces) for c in divided.conquered]
    if not counts:  # of all that is asked nothing is left
        return None
    rounding, even = Rounding(cost.bound), cost.per_record / sum(counts)
    costs = list[Costs]()
    for c, count in zip(divided.conquered, counts, strict=True):
        block = rounding.block(c.spaces, c.solved, even)
        alone, varying = costs_of_rows([block], cost.times)
        costs.append(Costs.of(alone, varying, even * count * cost.times, cost.times))
    if not any(cost_.terms for cost_ in costs):
        return None
    classes = by_class(costs)
    upper, lower = (
        share([max(n**2 * e, LEAST) for n, e in zip(counts, errors, strict=True)], classes)
        for errors in ([c.upper for c in divided.conquered], [c.lower for c in divided.conquered])
    )
    shares = [Fraction(s) / n for s, n in zip(upper.shares.tolist(), counts, strict=True)]

    def given(times: Fraction) -> list[Fraction]:
        return [cost.per_record * times * share for share in shares]

    def spends(times: Fraction) -> Fraction:
        each = zip(divided.conquered, given(times), strict=True)
        blocks = (rounding.block(c.spaces, c.solved, share) for c, share in each)
        return spent(tuple(blocks), cost.change)

    times = fitted(spends, cost.amount)
    if times is None:
        return None
    planned = stitch_shares(workload, cost, divided, given(times))
    return replace(planned, shared=lower.least / float(cost.per_record), among=IN_OTHER_SHARES)


def _outside(workload: Workload, solved: Solved) -> dict[str, Reference]:
    """Return a cell of which nothing is asked, as a reference, for each attribute that has one."""
    references = dict[str, Reference]()
    for name, asked in _conditions(workload, solved).items():
        cells = np.sum(asked, axis=0)
        if not cells.all():
            numerators = np.zeros(len(cells), dtype=np.int64)
            numerators[np.flatnonzero(cells == 0)[0]] = 1
            references[name] = Reference.of_integers(numerators)
    return references


def _leave_out_alike(workload: Workload, solved: Solved) -> set[str]:
    """Name the attributes of which all of several families leave out the same cell."""
    count = sum(1 for family in workload.families if family.count)
    return {
        name
        for name, asked in _conditions(workload, solved).items()
        if len(asked) == count > 1 and not np.sum(asked, axis=0).all()
    }


def _exclude_each_other(workload: Workload, solved: Solved) -> bool:
    """Whether no cell of some attribute counts in all families, so that no row pays for all."""
    families = [family for family in workload.families if family.count]
    return any(
        len(asked) == len(families) and not np.all(asked, axis=0).any()
        for asked in _conditions(workload, solved).values()
    )


def _conditions(workload: Workload, solved: Solved) -> dict[str, list[Array]]:
    """Return how much families ask of each cell, of attributes on which they have conditions.

    Where others have none on an attribute, they count its cells alike.
    """
    return solved.once(workload, "conditions", 0.0, lambda: _asked_of_cells(workload))


def _asked_of_cells(workload: Workload) -> dict[str, list[Array]]:
    families = [family for family in workload.families if family.count]
    squares = dict[str, list[Array]]()
    for name in workload.domain:
        blocks = [b for f in families for b in f.blocks if name in b.attributes]
        if blocks and all(len(block.attributes) == 1 for block in blocks):
            squares[name] = [block.queries.column_squares() for block in blocks]
    return squares


def _groups_apart(
    workload: Workload, cost: Cost, tolerance: float, solved: Solved
) -> dict[str, Plan]:
    """Plan all touched attributes as one space, the groups of each limit apart."""
    plans = dict[str, Plan]()
    for spread in cost.spreads:
        limit = spread.within(touched(workload))
        if limit is None or limit.share == 1:
            continue
        from dpsql.planner.strategies.apart import solve_apart  # for limits on rows alone

        name = f"groups by {' x '.join(sorted(spread.attributes))} apart"
        solution = solved.once(
            workload, name, tolerance, partial(solve_apart, workload, limit, tolerance / 4)
        )
        if solution is not None:
            planned, bound = _measured_whole(workload, cost, solution), solution[1].lower
            plans[name] = replace(planned, least=bound / float(cost.per_record))
    return plans


def _measured_whole(workload: Workload, cost: Cost, solved: tuple[Component, Solution]) -> Plan:
    """Round a strategy for all touched attributes at once."""
    component, solution = solved
    spaces, rounding = (touched(workload),), Rounding(cost.bound, cost.spreads)
    block = rounding.block(spaces, (solved,), cost.per_record)
    whole = WholeReconstruction(Space.of_block(block.spaces[0], block))
    planned = PlannedBlock(block, whole.error(component.rows), solution.lower, solution.solver)
    certified = cost.certified((block,))
    real = rounding.relative_change(block) * solution.upper / float(cost.per_record)
    bound = solution.lower / float(cost.at_best)
    return Plan(
        workload.copy(), cost.budget, (planned,), certified, whole, {}, real=real, least=bound
    )


def _product(workload: Workload, cost: Cost, tolerance: float, solved: Solved) -> Plan | None:
    """Plan what is one Kronecker product with the references of its factors; None if it isn't."""

    def solve() -> tuple[float, Divided] | None:
        if (closed := closed_form(workload, tolerance / 8)) is None:
            return None
        how = by_reference(closed.references, workload.domain)
        return closed.error, divide_within(Solutions(tolerance, closed.starts), workload, *how)

    product = solved.once(workload, "product", tolerance, solve)
    if product is None:
        return None
    error, divided = product
    return replace(stitch(workload, cost, divided), least=error / float(cost.at_best))


def _uniform(workload: Workload, tolerance: float, solved: Solved) -> Divided:
    """Divide a workload by means."""

    def solve() -> Divided:
        return divide_and_conquer(workload, by_size(workload), None, tolerance)

    return solved.once(workload, "uniform", tolerance, solve)


def _chosen(workload: Workload) -> tuple[Choice | None, ContextChoice | None]:
    """Search for references that attributes have in all contexts, and for those of each."""
    search = reference_search(workload)
    choice = None if search is None else choose_references(search)
    common = _common(workload, choice)
    return choice, None if search is None else choose_by_context(workload, search, common)


def _weighted(workload: Workload, cost: Cost, tolerance: float, solved: Solved) -> dict[str, Plan]:
    """Plan with the best references found, and with uniform ones unless those can't do better.

    Raises:
        ResourceLimitError: no solver can take what any of them leaves.
    """
    plans, refused = dict[str, Plan](), list[ResourceLimitError]()
    choice, contexts = solved.once(workload, "chosen", tolerance, lambda: _chosen(workload))

    def beat(roots: float) -> bool:
        """Whether a plan is as good as any with references that need Σ √E of so much at least."""
        # Whatever the integers; see `shares.allocation`.
        limit = roots**2 / float(cost.at_best) * (1 + AS_GOOD)
        return any(plan.rmse**2 * workload.count <= limit for plan in plans.values())

    def add(name: str, divide: Callable[[], Divided]) -> None:
        try:
            plans[name] = stitch(workload, cost, divide())
        except ResourceLimitError as error:  # others may be solved
            refused.append(error)

    if contexts is not None:
        by_context = partial(divide_by, workload, contexts.references, tolerance)
        add(
            "references for each context",
            lambda: solved.once(workload, "by context", tolerance, by_context),
        )
    if choice is not None and not (contexts is not None and beat(contexts.common_roots)):
        how = choice.coloring, choice.references
        by_choice = partial(divide_and_conquer, workload, *how, tolerance)
        add(
            "weighted residual spaces",
            lambda: solved.once(workload, "by choice", tolerance, by_choice),
        )
    if not beat(choice.uniform_roots if choice else contexts.common_roots if contexts else 0.0):
        add("uniform residual spaces", lambda: _uniform(workload, tolerance, solved))
    if not plans:
        raise refused[0]
    return plans


def _common(workload: Workload, choice: Choice | None) -> dict[str, Reference]:
    """Return the references that attributes have in all contexts."""
    if choice is None:
        return {name: Reference.of_cells(n) for name, n in workload.domain.items()}
    by_name = zip(workload.domain, choice.coloring.colors, strict=True)
    return {name: choice.references[color] for name, color in by_name}


def divide_and_conquer(
    workload: Workload,
    coloring: Coloring,
    references: Sequence[Reference] | None,
    tolerance: float,
) -> Divided:
    """Split a workload by references, uniform if there are none, and solve each subworkload."""
    return divide_within(Solutions(tolerance), workload, coloring, references)


def divide_within(
    family: StrategyFamily,
    workload: Workload,
    coloring: Coloring,
    references: Sequence[Reference] | None = None,
) -> Divided:
    """Split a workload, and answer each subworkload by a strategy of some family."""
    if references is None:
        references = [Reference.of_cells(n) for n in coloring.sizes]
    splitter = Splitter(references)
    subworkloads = decompose(workload, coloring, splitter.squares)
    conquered = tuple(
        conquer(part, splitter, family) for s in subworkloads for part in _by_kind(s, family)
    )
    by_name = zip(workload.domain, coloring.colors, strict=True)
    return Divided(References({name: references[c] for name, c in by_name}), conquered)


def divide_by(workload: Workload, references: Mapping[str, Reference], tolerance: float) -> Divided:
    """Split a workload by the references of each context, and solve each subworkload."""
    given, family = References.of(references), Solutions(tolerance)
    conquered = tuple(
        conquer(part, splitter, family) for splitter, part in decomposed(workload, given)
    )
    return Divided(given, conquered)


def _by_kind(subworkload: Subworkload, family: StrategyFamily) -> Iterator[Subworkload]:
    """Tell apart the spaces of a subworkload that a family of strategies does."""
    groups: dict[Hashable, list[tuple[str, ...]]] = {}
    for space in subworkload.spaces:
        groups.setdefault(family.kind(space), []).append(space)
    yield from (Subworkload(subworkload.terms, tuple(spaces)) for spaces in groups.values())


def conquer(subworkload: Subworkload, splitter: Splitter, family: StrategyFamily) -> Conquered:
    """Find a strategy for one subworkload.

    Raises:
        ResourceLimitError: no solver can take it.
    """
    return family.conquer(products(subworkload, splitter), subworkload.spaces)


def stitch(workload: Workload, cost: Cost, divided: Divided) -> Plan:
    """Share the budget so that the total error is least, and round the strategies to integers."""
    parts = (part for c in divided.conquered for part in c.by_limits(cost.spreads))
    divided = replace(divided, conquered=tuple(parts))
    counts = [len(c.spaces) for c in divided.conquered]
    errors = [c.upper for c in divided.conquered]
    if cost.spreads and counts:  # what changes less costs as much less as its error is smaller
        rounding, even = Rounding(cost.bound, cost.spreads), cost.per_record / sum(counts)
        alike = (rounding.block(c.spaces, c.solved, even) for c in divided.conquered)
        errors = [e * rounding.relative_change(b) for e, b in zip(errors, alike, strict=True)]
    return stitch_shares(workload, cost, divided, allocate(errors, counts, cost.per_record))


def stitch_shares(
    workload: Workload, cost: Cost, divided: Divided, shares: Sequence[Fraction]
) -> Plan:
    """Round the strategies to integers, with a share of the budget for each space.

    Args:
        workload: what is planned.
        cost: what may be spent.
        divided: its subworkloads.
        shares: for each subworkload what a single one of its spaces may cost.
    """
    conquered = divided.conquered
    rounding = Rounding(cost.bound, cost.spreads)
    blocks = tuple(
        rounding.block(c.spaces, c.solved, share)
        for c, share in zip(conquered, shares, strict=True)
    )
    spaces = [Space.of_block(names, block) for block in blocks for names in block.spaces]
    reconstruction = ResidualReconstruction(spaces, divided.references)
    planned = tuple(
        PlannedBlock(block, reconstruction.error(c.terms, block), c.lower, c.solver)
        for c, block in zip(conquered, blocks, strict=True)
    )
    certified, references = cost.certified(blocks), divided.references
    real = math.fsum(
        len(c.spaces) * c.upper * rounding.relative_change(block) / float(share)
        for c, block, share in zip(conquered, blocks, shares, strict=True)
    )
    return Plan(
        workload.copy(), cost.budget, planned, certified, reconstruction, references, real=real
    )


def _check_contributions(contributions: int) -> None:
    if type(contributions) is not int or contributions < 1:
        raise WorkloadError(
            f"A privacy unit can't contribute {contributions!r} records.",
            hint="use a whole number from 1, for example contributions=3.",
        )


# ── Mechanisms that restrict the strategies of residual spaces: their common parts ────────────────


CLOSE = 1e-2
"""Tolerance of the bound on the optimum over all strategies, where that is quick."""
QUICK = 256
"""Ranks of queries over one attribute up to which it is."""

IDENTITY = IdentitySolver()


class RestrictedMechanism(Mechanism):
    """Measures residual spaces as QuerySmasher does, by strategies of a restricted form."""

    def reason_unsupported(self, workload: Workload, budget: Budget) -> str | None:
        """Say why its noise or its strategies can't answer a workload."""
        return reason_of_kind(workload, budget) or self.reason_of_queries(workload)

    def plan(self, workload: Workload, budget: Budget | None, options: Options) -> Plan:
        """Share the budget among residual spaces so that the total error is least."""
        cost = Cost(budget_of(budget), options.contributions, options.bound, options.spreads)
        return stitch(workload, cost, self.divide(workload, options))

    @abstractmethod
    def reason_of_queries(self, workload: Workload) -> str | None:
        """Say which of the queries of a workload it can't answer; None if there are none."""

    @abstractmethod
    def divide(self, workload: Workload, options: Options = DEFAULT) -> Divided:
        """Split a workload, with the mechanism's strategies for its residual spaces."""


def tells_apart(block: Block) -> bool:
    """Whether any query of a block says different things of different cells."""
    squares, sums = block.queries.squares(), block.queries.sums()
    return bool((squares * block.queries.cells > np.square(sums) * (1 + 1e-12)).any())


class PlanBounds:
    """Lower bounds on the error of any strategy for a residual space, at privacy cost 1.

    A family's own optimum is no bound for other strategies. Queries over one attribute are
    bounded by the dual (see `strategies.dual`), those over several by the dual at uniform δ, which
    is (tr G^{1/2})²/N: the singular value bound (Li and Miklau, "Lower bounds on the error of query
    sets under the differentially-private matrix mechanism", 2015) within the space. Bounds of
    Kronecker factors multiply.
    """

    def __init__(self) -> None:
        self._solutions = Solutions(CLOSE)
        self._known: dict[tuple[tuple[int, ...], bytes], float] = {}

    def of(self, terms: tuple[Product, ...]) -> float:
        """Bound the least weighted variance that answers some terms."""
        structure = analyze(terms)
        if structure.rest:
            return least_error(terms)
        return structure.weight * math.prod(map(self._of_component, structure.components))

    def _of_component(self, component: Component) -> float:
        key = component.shape, component.content
        if key not in self._known:
            self._known[key] = self._bound(component)
        return self._known[key]

    def _bound(self, component: Component) -> float:
        if component.identity is not None:
            return identity_error(component)
        rank = min(component.rows.shape)
        if len(component.axes) == 1 and rank <= QUICK:
            return self._solutions.of(component).lower
        if rank > MAX_RANK:
            return least_error_of(component.rows)
        dual = Dual.of(component.rows, component.shape)
        return evaluate(dual, np.full(dual.cells, 1 / dual.cells)).lower


class FewRows:
    """Writes queries with no more rows than cells; errors depend on their Gram matrices only."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, ...], bytes], Component] = {}

    def of(self, terms: tuple[Product, ...]) -> tuple[Product, ...]:
        """Return terms with the same Gram matrices."""
        return tuple(Product(t.weight, tuple(map(self._of_piece, t.pieces))) for t in terms)

    def _of_piece(self, piece: Component) -> Component:
        if piece.given is None or len(piece.given) <= piece.given.shape[1]:
            return piece
        key = piece.shape, piece.content
        if key not in self._known:
            self._known[key] = replace(piece, given=compressed(piece.given), numerators=None)
        return replace(self._known[key], axes=piece.axes)
