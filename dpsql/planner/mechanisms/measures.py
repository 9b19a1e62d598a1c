"""Counts and measures in one plan: each planned by itself, with its share of the budget.

A measure is a data vector of its own, over the same keys as counts: a row adds its value v, with
|v| <= M, to one cell. Measured by a strategy of sensitivity Δ, with noise σ², it costs (MΔ/σ)², as
if a unit had M rows; and costs add up. So a mechanism plans the families of each measure apart, for
rows that count up to M, and what is left is to share the budget. The total error of a part is
E_p/c_p at the cost c_p, and Σ E_p/c_p is least for c_p in proportion to √E_p. With residual spaces,
whose √E_p = M_p Σ_A √E_pA, that makes (Σ_p M_p Σ_A √E_pA)²/C: the same as if all spaces of all
measures shared the budget at once.

Values are taken around a center, where rows that have none add nothing: of values in [0, 2h], h
is taken off, so that M = h, and the answer is Σv + h·N, with N the number of rows that have a value
(`Family.restored`). Alone that is as good as Σ(v + h), whose
bound is 2h: both terms have the error of counts with the weight h², and (h√E + h√E)² = (2h√E)².
Counts that are asked besides, and averages, share N then. With COUNT(*) of the same groups, and the
weight 1/(2h)² of the sum, that is (√(1 + 1/4) + 1/2)²·E = 2.62·E in place of (1 + 1)²·E = 4·E.

With Laplace noise errors fall as 1/ε², and shares go by the cube root.

That is if costs are added up. Where no row pays for all parts, as under conditions that exclude
each other, the worst row (`measurement.worst_row`) pays less than that. Then parts share what a row
may cost (`strategies.one_budget`), with strategies that are found at once where that is little work
(`strategies.together`), or that leave out rows of which nothing is asked (`plan_inside` of
QuerySmasher). Of these plans and the one whose costs are added up, the one with the least error is
taken.

*Units by groups* are a part of their own, too: what a unit adds to them is bounded as a whole, so
that they are planned by themselves (`distinct_units.py`).

*Several tables* with rows of the same units are planned in the same way. The counts of each table
are a measure with M = 1 then, to which every row adds 1; and of a table in which up to k rows of a
unit count, a sum costs (kMΔ/σ)². So √E_p = k_p M_p Σ_A √E_pA, and shares are the best of all plans
whose measurements look at one table each. (To look at two at once can be better, since what rows
add to counts is never negative: so differences of totals are measured besides, see below.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import WorkloadError
from dpsql.linalg.digits import least
from dpsql.measurement.certify import costs_of_rows, spent
from dpsql.measurement.differences import Condition, Difference, cost_of, costs_by
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.mechanisms.base import DEFAULT_TOLERANCE, Cost
from dpsql.planner.mechanisms.compared import (
    MOST_AGAIN,
    NEGLIGIBLE,
    Again,
    AskedTable,
    ComparedTable,
    Resolved,
    differences_of,
    resolved,
)
from dpsql.planner.plans.plan import APART, SHARES, Plan
from dpsql.planner.reconstruction.parts import Measure, PartedReconstruction
from dpsql.planner.reconstruction.sources import of_measure
from dpsql.planner.shares import exact_shares
from dpsql.privacy import Budget
from dpsql.workload import Family, Workload
from dpsql.workload.workload import UnitTable

if TYPE_CHECKING:
    from dpsql.planner.strategies.one_budget import Costs, PartAsked
    from dpsql.rel.support import Support

WORTHWHILE = 1e-5
"""Relative gain in RMSE from which blocks that were solved again are taken."""
SHARPER = 4
"""By so much is the gap less that is aimed for where blocks are solved again."""
LEAST_SHARE = 1e-6
"""Least budget of a part, relative to that of the part with the largest error."""
SURE = 1e-4
"""Relative gain in RMSE from which parts that share what a row may cost need no comparison: more
than rounding to integers takes away or adds."""


@dataclass(frozen=True, slots=True)
class Part:
    """The families of one measure, or those that count rows, as a workload of counts."""

    measure: Measure
    bound: int
    """The largest magnitude of a row's value; 1 for counts."""
    workload: Workload
    rows: int = 1
    """Bound on the rows of one unit that count, where this part has one of its own."""
    of_units: bool = False
    """Whether units are counted, each in up to `rows` cells and once in each; or as often as the
    bound says, where values of theirs are."""
    of_table: bool = False
    """Whether these are the counts of one of several tables."""

    @property
    def change(self) -> int:
        """By how much a unit changes a cell, if all others have one row of each."""
        return self.bound * (1 if self.of_units else self.rows)

    @property
    def asked(self) -> Hashable:
        """The key of what is asked, up to a factor of weights: equal if parts have equal plans."""
        largest = max(family.weight for family in self.workload.families) or 1.0
        units = self.rows if self.of_units else 0
        return (
            units,
            tuple(self.workload.domain.items()),
            tuple(
                (
                    round(family.weight / largest, 12),
                    *((b.attributes, b.queries.key) for b in family.blocks),
                )
                for family in self.workload.families
            ),
        )

    def asked_with(self, supports: Sequence[Support]) -> PartAsked:
        """Return what is asked, and in which cells rows add something to it."""
        from dpsql.planner.strategies.one_budget import PartAsked  # for several parts

        of_measure = tuple(support for support in supports if support.measure == self.measure)
        return PartAsked(self.workload, self.change, of_measure)

    def measured(self, block: BlockStrategy) -> BlockStrategy:
        """Return the same measurements of sums instead of counts.

        They were planned for rows that add M, so the noise is right as it is.
        """
        if self.measure is None:
            return block
        return of_measure(block, self.measure, self.bound, self.rows)


Apart = Callable[[Part, Budget], Plan]
"""Plans the workload of a part at a budget, for rows that add as much to their cells."""


def parts(workload: Workload) -> tuple[Part, ...]:
    """Divide a workload by what its families add up: counts, and each measure.

    Raises:
        WorkloadError: two families give a measure different bounds, or one has two measures; or a
            center is put back with something else than counts.
    """
    if workload.families and all(family.measure is None for family in workload.families):
        return (Part(None, 1, workload),)
    by_measure: dict[Measure, list[Family]] = {}
    bounds: dict[Measure, _Bounds] = {}
    tables: set[Measure] = set()

    def add(family: Family, weight: float) -> None:
        measure, bound = _measure_of(family)
        if bounds.setdefault(measure, bound) != bound:
            raise WorkloadError(
                f"The measure {measure!r} has several bounds.", hint="give it the largest one."
            )
        if family.measure is not None and family.measure.of_rows:
            tables.add(measure)
        by_measure.setdefault(measure, []).append(replace(family.counted, weight=weight))

    for family in workload.families:
        add(family, family.weight * family.unit**2)
    for family in workload.families:
        for counts in family.rests_on[1:]:
            _check_counts(family, counts)
            add(counts, family.weight * family.center**2)
    domain = {name: n for name, n in workload.domain.items() if name not in bounds}
    return tuple(
        Part(measure, bound, Workload.of(domain, families), rows, of_units, measure in tables)
        for measure, families in by_measure.items()
        for bound, rows, of_units in (bounds[measure],)
    )


_Bounds = tuple[int, int, bool]
"""On values and on rows of a unit, and whether units are counted."""


def _measure_of(family: Family) -> tuple[Measure, _Bounds]:
    """Return what a family adds up, with its bounds."""
    if sum(block.bound is not None for block in family.blocks) > 1:
        raise WorkloadError(
            f"{family.name!r} adds up two measures at once.",
            hint="add up their product, as a measure of its own.",
        )
    block = family.measure
    if block is None:
        return None, (1, 1, False)
    return block.attributes[0], (block.bound or 1, block.rows, block.of_units)


def _check_counts(family: Family, counts: Family) -> None:
    """Refuse a center that would be put back for something else than rows."""
    block = counts.measure
    if block is not None and (block.bound, counts.unit, block.center) != (1, 1.0, 0.0):
        raise WorkloadError(
            f"The counts that go with the sums {family.name!r} are sums themselves.",
            hint="count rows, with a measure of bound 1 where there are several tables.",
        )


Inside = Callable[[Part, Budget, Plan], Plan | None]
"""Plans it as another plan, but so that rows of which nothing is asked cost nothing."""
ByStrategy = Callable[[Part, Budget, Again], Plan]
"""Plans it by a strategy that was found before."""


def plan_parts(
    workload: Workload,
    cost: Cost,
    plan_apart: Apart,
    again: ByStrategy | None = None,
    *,
    inside: Inside | None = None,
    by: ByStrategy | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
) -> Plan:
    """Plan each part with the share of the budget that makes the total error least.

    Args:
        workload: what to answer.
        cost: what may be spent.
        plan_apart: plans the families of one part.
        inside: plans them so that rows of which nothing is asked cost nothing; None if none are to
            be planned so.
        again: plans tables whose counts are compared; None if none are to be.
        by: plans parts that are solved together; None if none are to be.
        tolerance: the relative gap to aim for then.

    Raises:
        WorkloadError: see `parts`.
    """
    divided = parts(workload)
    if len(divided) == 1:  # it has all of the budget, whatever its error
        return _plan_added(workload, cost, divided, [1.0], plan_apart, again, tolerance)
    alone = _alone(divided, lambda part: plan_apart(part, cost.budget))
    errors = [single.error for single in alone]

    def added() -> Plan:
        return _plan_added(workload, cost, divided, errors, plan_apart, again, tolerance)

    ways = _ways_to_share(alone, cost, plan_apart, inside, by, tolerance)
    limit = _error_of_sum(errors, cost.budget) / (1 + WORTHWHILE) ** 2
    plans = list[Plan]()
    for way in sorted(ways, key=lambda way: way.error):
        if way.error >= min([limit, *map(_total, plans)]):
            break
        shared = _plan_shared(workload, cost, divided, way)
        plans += [] if shared is None else [shared]
    # Of tables that are compared, costs that are added up leave room for differences.
    sure = again is None and any(_total(plan) < limit / (1 + SURE) ** 2 for plan in plans)
    best = least([*plans, *([] if sure else [added()])], lambda plan: plan.rmse)
    return replace(best, added=added) if best.shared else best


def _plan_added(
    workload: Workload,
    cost: Cost,
    divided: Sequence[Part],
    errors: Sequence[float],
    plan_apart: Apart,
    again: ByStrategy | None,
    tolerance: float,
) -> Plan:
    """Plan parts whose costs are added up, each with its share of the budget."""
    root, budget, amount = (math.cbrt if cost.budget.pure else math.sqrt), cost.budget, cost.amount
    # Of a part in which all queries are zero there is no error, but it has a plan too.
    smallest = (root(max(errors)) or 1.0) * LEAST_SHARE
    shares = exact_shares([max(root(e), smallest) for e in errors], [1] * len(divided), amount)
    plans = [
        plan_apart(part, _share(budget, share)) for part, share in zip(divided, shares, strict=True)
    ]
    plans = _added_up(cost, divided, plans, compare=again is not None)
    shared = together(workload, cost, divided, plans, compare=again is not None)
    better = again and _resolved(shared, divided, tolerance)
    if again is None or better is None:
        return shared
    shares = exact_shares([*better.shares], [1] * len(divided), amount)
    # The tables come first among what was solved again.
    order = sorted(range(len(divided)), key=lambda i: not divided[i].of_table)
    budgets = {i: _share(budget, share) for i, share in zip(order, shares, strict=True)}
    solved = dict(zip(order, better.strategies, strict=False))
    plans = [
        again(part, budgets[i], solved[i]) if i in solved else plan_apart(part, budgets[i])
        for i, part in enumerate(divided)
    ]
    plans = _added_up(cost, divided, plans, compare=True)
    other = together(workload, cost, divided, plans, compare=True)
    if other.rmse >= shared.rmse * (1 - WORTHWHILE):
        return shared
    saved = (shared.rmse**2 - other.rmse**2) * workload.count + shared.saved
    return replace(other, saved=saved)


def _added_up(
    cost: Cost, divided: Sequence[Part], plans: Sequence[Plan], *, compare: bool
) -> list[Plan]:
    """Return plans of parts that fit the budget together.

    What is measured of one part may rest on what the worst row pays for it. Where totals of tables
    are compared, or a unit has several rows in one record, costs of sets are added up instead.
    """
    shared = any(plan.shared for plan in plans)
    if not shared or not (compare or not fits(cost, divided, plans)):
        return list(plans)
    return [plan.added() if plan.shared and plan.added else plan for plan in plans]


def _resolved(added: Plan, divided: Sequence[Part], tolerance: float) -> Resolved | None:
    """Solve tables again for what they answer beside differences; None if none are compared.

    Or if one of the tables isn't, or its count doesn't follow from what is asked, or is much work.
    """
    differences = added.certified.differences
    tables = [part for part in divided if part.of_table]
    compared = {table for difference in differences for table in difference.tables}
    if not 1 < len(tables) <= MOST_AGAIN or compared != {part.measure for part in tables}:
        return None
    asked = [AskedTable.of(part.workload, part.change) for part in tables]
    known = [known_table for known_table in asked if known_table is not None]
    if len(known) < len(asked):
        return None
    share = {m: float(plan.privacy_cost) for m, plan in added.parts.items()}
    others = [
        _total(added.parts[part.measure]) * share[part.measure]
        for part in divided
        if not part.of_table
    ]
    return resolved(known, others, tolerance / SHARPER)


@dataclass(frozen=True, slots=True, eq=False)
class _Alone:
    """A part that has all of the budget."""

    error: float
    part: Part
    plan: Plan
    """The plan for it, or for another part that asks alike."""
    planned: Part
    """The part that it was planned for."""

    @property
    def lower(self) -> float:
        """A bound on the error of any plan, for rows that add 1, at cost 1; 0 if none is known."""
        largest = [max(f.weight for f in p.workload.families) for p in (self.part, self.planned)]
        lower = self.plan.planned[0].lower if self.plan.whole else 0.0
        return lower * largest[0] / largest[1]

    def costs(self, cost: Cost) -> Costs:
        """Return what it costs by cells, over the budget."""
        from dpsql.planner.strategies.one_budget import Costs  # for several parts

        blocks = [self.planned.measured(block) for block in self.plan.certified.blocks]
        measure, named = self.part.measure, self.planned.measure or ""
        supports = [replace(s, measure=named) for s in cost.supports if s.measure == measure]
        alone, varying = costs_of_rows(blocks, cost.times, cost.spreads, supports)
        return Costs.of(alone, varying, cost.amount, cost.times)


def _alone(divided: Sequence[Part], plan: Callable[[Part], Plan]) -> list[_Alone]:
    """Give all of the budget to each part. Of those that ask alike one is planned.

    With all weights k times as large the error is k times as large, and for rows that add c times
    as much the noise has c² times the variance; with Laplace noise, too, whose scale is c times as
    large. So sums of ten columns by the same groups have one error in ten sizes.
    """
    known: dict[Hashable, tuple[float, Plan, Part]] = {}
    priced = []
    for part in divided:
        size = max(family.weight for family in part.workload.families) * part.change**2
        key = part.asked
        if key not in known:
            planned = plan(part)
            known[key] = _total(planned) / size if size else 0.0, planned, part
        error, planned, like = known[key]
        priced.append(_Alone(error * size, part, planned, like))
    return priced


def _error_of_sum(errors: Sequence[float], budget: Budget) -> float:
    """Return the least error of parts whose costs are added up, at the cost at which these are."""
    power = 3 if budget.pure else 2
    return math.fsum(error ** (1 / power) for error in errors) ** power


@dataclass(frozen=True, slots=True, eq=False)
class _Way:
    """A way to share what a row may cost."""

    shares: Sequence[float]
    """Shares of the budget, for each part."""
    plan: Callable[[int, Budget], Plan]
    """Plans a part, by its number, with a share of the budget."""
    error: float
    """The error of all parts at the budget."""
    least: float
    """A bound on it."""
    among: str
    """The plans that it is for."""


def _ways_to_share(
    alone: Sequence[_Alone],
    cost: Cost,
    plan_apart: Apart,
    inside: Inside | None,
    by: ByStrategy | None,
    tolerance: float,
) -> list[_Way]:
    """Share what a row may cost among parts; no way if they cost the same wherever it is.

    Or if a record is several rows, which may be in several cells.
    """
    from dpsql.planner.strategies.one_budget import by_class, share  # for several parts

    if any(single.part.rows > 1 and not single.part.of_units for single in alone):
        return []

    def planned(number: int, share: Budget) -> Plan:
        return plan_apart(alone[number].part, share)

    def planned_inside(number: int, share: Budget) -> Plan:
        single = alone[number]
        inner = inside and inside(single.part, share, single.plan)
        return inner or planned(number, share)

    ways, costs = [], [single.costs(cost) for single in alone]
    floor = max(single.error for single in alone) * LEAST_SHARE**2 or 1.0
    errors = [max(single.error, floor) for single in alone]
    others = [] if inside is None else _inside(alone, cost, inside)
    for plan, these in ((planned, alone), (planned_inside, others)):
        class_costs = costs if these is alone else [single.costs(cost) for single in these]
        if any(single.terms for single in class_costs):
            wanted = [max(single.error, floor) for single in these]
            shared = share(wanted, by_class(class_costs), 2 if cost.budget.pure else 1)
            ways.append(_Way([*shared.shares], plan, shared.error, shared.least, SHARES))
    way = None if by is None else _apart(alone, costs, errors, cost, planned, by, tolerance)
    return ways if way is None else [*ways, way]


def _apart(
    alone: Sequence[_Alone],
    costs: Sequence[Costs],
    errors: Sequence[float],
    cost: Cost,
    planned: Callable[[int, Budget], Plan],
    by: ByStrategy,
    tolerance: float,
) -> _Way | None:
    """Find strategies of parts that a row costs something in, together; None if there is no way."""
    from dpsql.planner.strategies.one_budget import solve_together  # for several parts

    solved = [i for i, single in enumerate(alone) if costs[i].terms]
    if not solved or cost.budget.pure or cost.spreads:
        return None
    rest = [i for i in range(len(alone)) if not costs[i].terms]
    asked = [alone[i].part.asked_with(cost.supports) for i in solved]
    both = solve_together(asked, [errors[i] for i in rest], tolerance / 4)
    if both is None:
        return None
    strategies = dict(zip(solved, both.strategies, strict=True))
    shares = dict(zip(rest, both.others, strict=True)) | {i: s.share for i, s in strategies.items()}

    def planned_by(number: int, share: Budget) -> Plan:
        single = alone[number]
        if number not in strategies:
            return planned(number, share)
        strategy = strategies[number]
        return by(single.part, share, Again(strategy.merged, strategy.root, single.lower))

    unit = 1 / float(cost.per_record)
    return _Way(
        [float(shares[i]) for i in range(len(alone))],
        planned_by,
        both.upper * unit,
        both.lower * unit,
        APART,
    )


def _inside(alone: Sequence[_Alone], cost: Cost, inside: Inside) -> list[_Alone]:
    """Plan parts so that rows of which nothing is asked cost nothing; none if no part can be."""
    plans = [inside(single.part, cost.budget, single.plan) for single in alone]
    if not any(plans):
        return []
    return [
        single
        if plan is None
        else replace(single, error=_total(plan), plan=plan, planned=single.part)
        for single, plan in zip(alone, plans, strict=True)
    ]


def _plan_shared(workload: Workload, cost: Cost, divided: Sequence[Part], way: _Way) -> Plan | None:
    """Plan parts of which the worst row pays no more than the budget; None if that fails."""
    from dpsql.planner.strategies.one_budget import fitted  # for several parts

    tried: dict[Fraction, list[Plan]] = {}

    def spends(times: Fraction) -> Fraction:
        tried[times] = [
            way.plan(number, _share(cost.budget, cost.amount * times * Fraction(share)))
            for number, share in enumerate(map(float, way.shares))
        ]
        return _spent(cost, divided, tried[times])

    times = fitted(spends, cost.amount)
    if times is None:
        return None
    return replace(
        together(workload, cost, divided, tried[times]), shared=way.least, among=way.among
    )


def _total(plan: Plan) -> float:
    return plan.rmse**2 * plan.workload.count


_LONG = 512
"""Binary digits of a share of a budget; another one is rounded down to as many."""


def _share(budget: Budget, amount: Fraction) -> Budget:
    """Return a share as a budget, which is no more: what it is made of may have many digits."""
    if amount.denominator.bit_length() > _LONG:
        places = _LONG - min(0, amount.numerator.bit_length() - amount.denominator.bit_length())
        amount = Fraction(amount.numerator * 2**places // amount.denominator, 2**places)
    return Budget(epsilon=amount, delta=0) if budget.pure else Budget(rho=amount / 2)


def _spent(cost: Cost, divided: Sequence[Part], plans: Sequence[Plan]) -> Fraction:
    """Return what plans for all parts cost together."""
    pairs = zip(divided, plans, strict=True)
    blocks = (part.measured(b) for part, plan in pairs for b in plan.certified.blocks)
    return spent(tuple(blocks), cost.change, cost.spreads, supports=cost.supports)


def fits(cost: Cost, divided: Sequence[Part], plans: Sequence[Plan]) -> bool:
    """Whether plans for all parts may be made together, without differences of totals."""
    return _spent(cost, divided, plans) <= cost.amount


def together(
    workload: Workload,
    cost: Cost,
    divided: Sequence[Part],
    plans: Sequence[Plan],
    *,
    compare: bool = False,
) -> Plan:
    """Certify what all parts measure as one plan, and answer from each what it is asked.

    Args:
        workload: what is asked.
        cost: what may be spent.
        divided: the parts of it.
        plans: for each of them.
        compare: whether differences of totals of tables may be measured besides.
    """
    pairs = list(zip(divided, plans, strict=True))
    planned = tuple(
        replace(
            block,
            strategy=part.measured(block.strategy),
            # Of sets that share what a row may cost it says nothing of the sum of their errors.
            lower=0.0 if plan.shared else block.lower * part.change**2,
        )
        for part, plan in pairs
        for block in plan.planned
    )
    blocks = tuple(block.strategy for block in planned)
    apart = {part.measure: plan.reconstruction for part, plan in pairs}
    differences = _differences(pairs, blocks, cost) if compare else ()
    reconstruction = PartedReconstruction(apart, differences)
    saved = reconstruction.saved(workload)
    if not saved > NEGLIGIBLE * math.fsum(block.error for block in planned):
        differences, reconstruction, saved = (), reconstruction.by_table, 0.0
    return Plan(
        workload.copy(),
        cost.budget,
        planned,
        cost.certified(blocks, differences),
        reconstruction,
        {name: r for plan in plans for name, r in plan.references.items()},
        real=math.fsum(plan.real for plan in plans) if all(p.real for p in plans) else 0.0,
        parts={
            part.measure: replace(plan, bound=part.bound, rows=1 if part.of_units else part.rows)
            for part, plan in pairs
        },
        saved=saved,
    )


def _differences(
    pairs: Sequence[tuple[Part, Plan]], blocks: Sequence[BlockStrategy], cost: Cost
) -> tuple[Difference, ...]:
    """Choose which counts of tables to compare: of those that follow from what is measured.

    And where that may be had for nothing, since what is charged for the table is charged evenly.
    """
    compared = []
    for part, plan in pairs:
        if part.measure is None or not part.of_table:
            continue
        of = part.measure, part.rows
        condition = _seen(plan, UnitTable(*of))
        charged = cost_of(blocks, *of, cost.spreads, evenly=False)
        counted, others = costs_by(blocks, *of, cost.spreads, condition)
        free = counted - others
        known = plan.reconstruction.with_count(part.measure, condition) is not None
        if charged == max(counted, others) and free > 0 and known:
            compared.append(ComparedTable(*of, free, condition))
    return differences_of(compared)


def _seen(plan: Plan, table: UnitTable) -> Condition | None:
    """Return the cells of which anything is measured; None if these are all, or it isn't known.

    Their rows are all that count in what is measured of the table, so that they can be compared
    with all of another one for nothing.
    """
    if len(plan.certified.blocks) != 1 or not plan.whole:
        return None
    (block,) = plan.certified.blocks
    (factor,), (space,) = block.factors, block.spaces
    squares = factor.column_squares(factor.axes) if space else None
    if squares is None or (squares > 0).all():
        return None
    cells = squares > 0
    names = tuple(table.own(name) or name for name in space)
    return Condition(names, cells.shape, cells.tobytes())
