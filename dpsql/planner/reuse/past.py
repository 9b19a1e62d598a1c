"""Plan on what was measured before: the new budget goes where it helps most.

Two plans are made: one as if nothing were known, and one for what is known. With either, answers
follow from old and new measurements together (see `combine`); the one with less error is taken.

*For targets.* With earlier measurements, errors don't fall in proportion to the budget any more,
and the best weights of the statements change with it. So the budget is found by bisection, with
weights that make all statements at their targets count alike. There is no certificate of how far it
is from the least one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.digits import least, significant
from dpsql.linalg.threads import one_thread
from dpsql.planner.mechanisms.base import Cost
from dpsql.planner.mechanisms.measures import LEAST_SHARE, fits, parts, together
from dpsql.planner.mechanisms.querysmasher import Conquered, divide_by
from dpsql.planner.plans.objectives import SHARE, STEP, limits_of, ratios_of, reported, rounded_up
from dpsql.planner.plans.plan import Given, Plan, PlannedBlock
from dpsql.planner.reconstruction.base import CombinedReconstruction, Missing, Reconstruction
from dpsql.planner.reconstruction.combine import Combination, Gathered, combine
from dpsql.planner.reconstruction.marginals import of_marginals
from dpsql.planner.reconstruction.measured import Space
from dpsql.planner.reconstruction.parts import (
    Follows,
    LastAlone,
    PartedCombination,
    PartedReconstruction,
)
from dpsql.planner.reconstruction.sources import Ground, Source, differences_in
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import References
from dpsql.planner.reuse.joint_cells import QUICK_CELLS, least_joint_error, plan_joint_cells
from dpsql.planner.shares import exact_shares, least_total, water_level
from dpsql.planner.strategies.rounding import Rounding
from dpsql.privacy import Budget
from dpsql.privacy.budget import SMALLEST_MU_SQUARED
from dpsql.workload import Workload
from dpsql.workload.workload import joint_cells


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """Earlier measurements, and which cells of the domain a workload merges."""

    sources: tuple[Source, ...]
    merged: Mapping[str, Ints] = field(default_factory=lambda: MappingProxyType({}))
    _gathered: dict[tuple[tuple[str, int], ...], Gathered] = field(default_factory=dict)

    def over(self, domain: Mapping[str, int]) -> Gathered:
        """Look at them over the cells of a domain, once, however often something is planned."""
        key = tuple(domain.items())
        if key not in self._gathered:
            ground = Ground.of(self.sources, domain, self.merged)
            self._gathered[key] = Gathered.over(ground, self.sources)
        return self._gathered[key]

    def of_measure(self, measure: str | None) -> tuple[Past, tuple[int, ...]]:
        """Return what was measured of one measure, or of counts, and in which of the sources."""
        if measure is None:
            return self, tuple(range(len(self.sources)))
        numbers = tuple(i for i, source in enumerate(self.sources) if measure in source.measures)
        sources = tuple(self.sources[i].measures[measure] for i in numbers)
        return Past(sources, self.merged), numbers


def source_of(plan: Plan, merged: Mapping[str, Ints] = MappingProxyType({})) -> Source:
    """Return what a plan measures, without what it was planned on."""
    if plan.parts:
        parts = {measure: source_of(part, merged) for measure, part in plan.parts.items()}
        reading = next(iter(parts.values())).reading  # all are by one mechanism
        counts = parts.pop(None, Source((), {}, {}, reading=reading))
        sums = {
            m: replace(part, bound=plan.parts[m].bound, rows=plan.parts[m].rows)
            for m, part in parts.items()
            if m is not None
        }
        return replace(counts, measures=sums, differences=plan.certified.differences)
    used = {a for block in plan.certified.blocks for space in block.spaces for a in space}
    return Source(
        plan.certified.blocks,
        References.of(plan.references).only(used),
        {name: n for name, n in plan.workload.domain.items() if name in used},
        {name: of for name, of in merged.items() if name in used},
        reading=plan.reconstruction.reading,
    )


def alone(source: Source, workload: Workload) -> Reconstruction:
    """Return how answers to a workload follow from a source that does not combine with others."""
    if not source.measures:
        return _alone(source, workload)
    nothing = Source((), {}, {}, reading=source.reading)
    divided = {part.measure: part.workload for part in parts(workload)}
    return PartedReconstruction(
        {
            measure: _alone(
                source if measure is None else source.measures.get(measure, nothing), of_measure
            )
            for measure, of_measure in divided.items()
        }
    )


def _alone(source: Source, workload: Workload) -> Reconstruction:
    spaces = [Space.of_block(names, b) for b in source.blocks for names in b.spaces]
    return of_marginals(spaces, workload.families, source.reading)


@one_thread
def known(
    workload: Workload, past: Past, beside: Iterable[str] = ()
) -> tuple[Combination | PartedCombination, Missing]:
    """Return what earlier measurements alone say of a workload, and of tables beside it.

    Returns:
        The combination, and the attribute sets of which too little was measured; none if all
        queries of the workload follow.
    """
    measures = {*(part.measure for part in parts(workload)), *beside}
    put, domain = put_together(workload.domain, past, measures), workload.domain
    lacking: dict[tuple[str, ...], None] = {}
    for family in workload.families:
        if put.reconstruction.missing(family, domain):  # what isn't shown need not be known
            lacking |= dict.fromkeys(put.reconstruction.missing(family.shown, domain))
    return put, tuple(lacking)


@one_thread
def put_together(
    domain: Mapping[str, int], past: Past, measures: Iterable[str | None] = ()
) -> Combination | PartedCombination:
    """Return one reconstruction from earlier measurements, over the cells of a domain.

    Args:
        domain: attribute → number of cells.
        past: what was measured.
        measures: the attributes of the domain that are added up; None for counts beside them.
    """
    if (measures := frozenset(measures)) - {None}:
        counted = {name: n for name, n in domain.items() if name not in measures}
        apart = {}
        for measure in sorted(measures, key=lambda name: name or ""):
            of_measure, numbers = past.of_measure(measure)
            apart[measure] = _combined(counted, of_measure), numbers
        parts = {measure: follows.reconstruction for measure, (follows, _) in apart.items()}
        grounds = {m: past.of_measure(m)[0].over(counted).ground for m in apart}
        differences, compared = differences_in(past.sources, grounds)
        return PartedCombination(PartedReconstruction(parts, differences), apart, compared)
    return _combined(domain, past)


def _combined(domain: Mapping[str, int], past: Past) -> Combination:
    gathered = past.over(domain)
    return combine(gathered, gathered.references.over(_uniform(gathered.ground)))


def _uniform(ground: Ground) -> dict[str, Reference]:
    return {name: Reference.of_cells(n) for name, n in ground.sizes.items()}


@one_thread
def plan_given(alone: Plan, past: Past, tolerance: float, *, uniform: bool = False) -> Plan:
    """Plan again on what was measured before.

    Args:
        alone: a plan for the workload and the budget that ignores the past.
        past: earlier measurements of the same data.
        tolerance: the relative gap to aim for.
        uniform: whether residual spaces have to keep uniform references.

    Returns:
        A plan of the same cost. Its reconstruction, variances and gap are those with all
        measurements; or it leaves them aside, and says so.
    """
    if alone.parts:
        return _parts_given(alone, past, tolerance, uniform=uniform)
    if not alone.planned:  # nothing is asked that depends on rows
        return alone
    plan = alone
    with suppress(np.linalg.LinAlgError):  # budgets too far apart for floats
        plan = _plan_given(alone, past, tolerance, uniform=uniform)
    if plan.given is None:
        return replace(plan, aside=bool(past.sources))
    if plan.objective is not None:  # its bound is for plans that rest on nothing earlier
        return replace(plan, objective=replace(plan.objective, gap=math.inf))
    return plan


def _parts_given(alone: Plan, past: Past, tolerance: float, *, uniform: bool) -> Plan:
    """Plan counts and each measure on what was measured of it, with the shares that they have.

    The shares are those that are best if nothing is known; no bound is known for the whole. Where
    tables are measured for what differences of their counts leave to them, that may be better than
    what is best for each of them. Where parts share what a row may cost, what is best for each may
    cost too much together; and shares that are added up may be better given what is known.
    """
    ways = [_each_given(alone, past, tolerance, uniform=uniform)]
    if alone.shared or alone.reconstruction.saved(alone.workload) != alone.saved:
        ways.append(_each_given(alone, past, tolerance, uniform=uniform, keep=True))
    if alone.added is not None:
        by, whose = alone.mechanism, alone.neighbours
        added = replace(alone.added(), neighbours=whose, mechanism=by)
        ways.append(_each_given(added, past, tolerance, uniform=uniform))
    plans = [plan for plan in ways if plan is not None]
    if not plans:  # what is known of each would cost too much together
        return replace(alone, aside=True)
    return least(plans, lambda plan: plan.rmse)


def _each_given(
    alone: Plan, past: Past, tolerance: float, *, uniform: bool, keep: bool = False
) -> Plan | None:
    """Plan each part on what was measured of it, or keep the strategies of all.

    None if they cost too much together.
    """
    divided = parts(alone.workload)
    apart: dict[str | None, tuple[Follows, tuple[int, ...]]] = {}
    plans, number = [], len(past.sources)
    for part in divided:
        before, numbers = past.of_measure(part.measure)
        own_plan = alone.parts[part.measure]
        if keep and own_plan.planned and not part.of_units:
            known = before.over(part.workload.domain)
            plan = Rounds(own_plan, before, known).combined(own_plan, 0.0)
        else:
            plan = plan_given(own_plan, before, tolerance, uniform=uniform)
        follows: Follows = LastAlone(plan.reconstruction, len(numbers))
        if plan.given is not None and isinstance(plan.given.combination, Combination):
            follows = plan.given.combination
        apart[part.measure] = follows, (*numbers, number)
        plans.append(plan)
    if all(plan.given is None for plan in plans):
        return replace(alone, aside=bool(past.sources))
    said = alone.certified
    cost = Cost(alone.budget, alone.contributions, 1, said.spreads, said.supports)
    shared = alone.shared or any(part.shared for part in alone.parts.values())
    if shared and not fits(cost, divided, plans):
        return None
    compare = bool(alone.certified.differences)
    together_ = together(alone.workload, cost, divided, plans, compare=compare)
    own_parts = {p.measure: plan.reconstruction for p, plan in zip(divided, plans, strict=True)}
    grounds = {
        p.measure: past.of_measure(p.measure)[0].over(p.workload.domain).ground for p in divided
    }
    sources = (*past.sources, source_of(together_, past.merged))
    differences, compared = differences_in(sources, grounds)
    reconstruction = PartedReconstruction(own_parts, differences)
    measured = tuple(s.values for s in past.sources if s.values is not None)
    total = reconstruction.total(alone.workload)
    given = Given(PartedCombination(reconstruction, apart, compared), measured, total, 0.0)
    return replace(
        together_,
        reconstruction=reconstruction,
        given=given,
        neighbours=alone.neighbours,
        mechanism=alone.mechanism,
        real=0.0,
    )


def _plan_given(alone: Plan, past: Past, tolerance: float, *, uniform: bool) -> Plan:
    work = Rounds(alone, past, past.over(alone.workload.domain))
    if alone.objective is not None:  # it has weights of its own, and is as good as it gets
        return least((work.combined(alone, 0.0), alone), lambda plan: plan.rmse)
    joint = [] if uniform else work.joint_cells(tolerance)
    if joint and alone.whole:
        plans = joint
    else:
        plans = [
            *joint,
            *(work.whole() if alone.whole else work.residual_spaces(tolerance, uniform)),
        ]
    # Where not all could be put together, the plan alone may be better than with the past.
    return least([*plans, alone], lambda plan: plan.rmse)


@dataclass(frozen=True, slots=True, eq=False)
class Rounds:
    """Plans for one workload after earlier rounds."""

    alone: Plan
    past: Past
    known: Gathered
    """The past over the cells that are asked."""

    @property
    def cost(self) -> Cost:
        """The limit on what the new round may spend."""
        bound, spreads = self.alone.bound, self.alone.certified.spreads
        return Cost(self.alone.budget, self.alone.contributions // bound, bound, spreads)

    def joint_cells(self, tolerance: float) -> list[Plan]:
        """Plan all joint cells at once, if they are few or the plan alone does so."""
        workload = self.alone.workload
        if not self.alone.whole and joint_cells(workload) > QUICK_CELLS:
            return []
        block = plan_joint_cells(workload, self.cost, tolerance, self.known)
        if block is None:
            return []
        fresh = self._planned((block,), {})
        return [self.combined(plan, block.lower) for plan in (fresh, self.alone)]

    def whole(self) -> list[Plan]:
        """Take the plan alone, which is for joint cells. Its bound is for the cost of all."""
        spent = math.fsum(source.cost for source in self.past.sources)
        (planned,) = self.alone.planned
        lower = planned.lower / (spent + float(self.cost.at_best))
        return [self.combined(self.alone, lower)]

    def residual_spaces(self, tolerance: float, uniform: bool) -> list[Plan]:
        """Plan residual spaces."""
        workload, known = self.alone.workload, self.known
        asked = [(b.lower, space) for b in self.alone.planned for space in b.strategy.spaces]
        # What is known of the least error is known of spaces whose costs are added up.
        plans = [self.combined(self.alone, 0.0 if self.alone.shared else asked)]
        earlier = References({}) if uniform else known.references
        references = earlier.over(self.alone.references).over(_uniform(known.ground))
        with suppress(ResourceLimitError):  # then the plan that ignores the past has to do
            drafted = plan_residual_spaces(workload, self.cost, tolerance, references, known)
            of_domain = references.only(workload.domain)
            plans.append(self.combined(self._planned(drafted.blocks, of_domain), drafted.asked))
        return plans

    def _planned(
        self, blocks: tuple[PlannedBlock, ...], references: Mapping[str, Reference]
    ) -> Plan:
        certified = self.cost.certified(tuple(block.strategy for block in blocks))
        # What the plan would lose alone, to rounding or to others, says nothing of these shares.
        return replace(
            self.alone,
            planned=blocks,
            certified=certified,
            references=references,
            real=0.0,
            least=0.0,
            tried={},
        )

    def combined(self, plan: Plan, least: float | Sequence[tuple[float, tuple[str, ...]]]) -> Plan:
        """Let answers rest on earlier measurements too, where these fit together with the plan's.

        The total is bounded from below by `least`, or by that for each residual space.
        """
        known, new = self.known, len(self.known.sources)
        both = known.beside(source_of(plan, self.past.merged))
        references = (
            References.of(plan.references).over(known.references).over(_uniform(known.ground))
        )
        combination = combine(both, references, new, plan.workload)
        domain = plan.workload.domain
        # What is too large to be put together is left out. Then the plan alone has to do.
        if new not in combination.used or any(
            combination.reconstruction.missing(f, domain) for f in plan.workload.families
        ):
            return self.alone
        total = combination.reconstruction.total(plan.workload)
        if not isinstance(least, float):
            cost = self.cost.at_best
            least = least_residual_error(least, combination.reconstruction, self.past.sources, cost)
            least += least_joint_error(plan.workload, combination, new, cost)
        values = [source.values for source in self.past.sources]
        measured = tuple(v for v in values if v is not None)
        given = Given(combination, measured, total, least)
        return replace(plan, reconstruction=combination.reconstruction, given=given)


ROUNDS = 6
"""Changes of weights at most, until all targets are met at once."""
STEPS = 8
"""The budget found is within (largest / smallest)^(1/2^STEPS) of the least for these weights."""
NAME = "least budget for the targets, given earlier measurements"

Planner = Callable[[Workload, Budget], Plan]
"""Plans a workload on earlier measurements."""


def least_divisible(plan: Plan) -> Fraction:
    """Return the smallest μ² that can be planned with: each part of a plan needs a budget, too."""
    parts = len(plan.parts)
    return SMALLEST_MU_SQUARED * (Fraction(parts) / Fraction(LEAST_SHARE) if parts else 1)


@one_thread
def least_budget_given(combined: Plan, targets: Mapping[str, float], planner: Planner) -> Plan:
    """Find a budget at which all targets are met, at most that of the plan that ignores the past.

    Args:
        combined: the plan for the targets that ignores the past, put together with it.
        targets: family name → the largest standard error that its answers may have.
        planner: plans on earlier measurements.
    """
    workload, budget = combined.workload, combined.budget
    limits = limits_of(workload, targets)
    weights = _weights(workload, limits)
    low, high = math.log(float(least_divisible(combined)) * 1.01), math.log(budget.mu_squared)
    least = planner(workload.weighted(weights), rounded_up(math.exp(low)))
    if max(ratios_of(least, workload, limits)) <= 1:
        return _reported(least, workload, limits)
    for _ in range(ROUNDS):
        weighted = workload.weighted(weights)
        best = planner(weighted, budget)
        ratios = ratios_of(best, workload, limits)
        if max(ratios) <= 1:
            break
        weights = [
            min(max(float(significant(w * (r / max(ratios)) ** STEP)), 1e-9), 1e9) if r else w
            for w, r in zip(weights, ratios, strict=True)
        ]
    else:
        return combined
    for _ in range(STEPS):
        middle = (max(low, high - 12.0) + high) / 2
        plan = planner(weighted, rounded_up(math.exp(middle)))
        if max(ratios_of(plan, workload, limits)) <= 1:
            best, high = plan, middle
        else:
            low = middle
    return _reported(best, workload, limits)


def _weights(workload: Workload, limits: list[float | None]) -> list[float]:
    """Let statements at their targets count alike, and the others hardly."""
    raw = [1 / (limit * max(1, f.count)) if limit else 0.0
           for f, limit in zip(workload.families, limits, strict=True)]  # fmt: skip
    least = SHARE * min(w for w in raw if w)
    return [min(max((w or least) / max(raw), 1e-9), 1e9) for w in raw]


def _reported(plan: Plan, workload: Workload, limits: list[float | None]) -> Plan:
    """Say what was reached, in the weights that were asked for; no bound is known for that."""
    best = reported(workload, plan, limits, NAME, math.inf)
    total = plan.reconstruction.total(workload)
    return replace(best, given=plan.given and replace(plan.given, total=total, lower=0.0))


# ── Residual spaces that are planned given what is known about each ──────────────────────────────


NEGLIGIBLE = 1e-4
"""Spaces that would get less than this share of the budget, and are known, are not measured."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownSpaces:
    """Residual spaces of which the same is asked and equally much is known."""

    conquered: Conquered
    spaces: tuple[tuple[str, ...], ...]
    known: float
    """The privacy cost that the earlier measurements are worth."""


@dataclass(frozen=True, slots=True, eq=False)
class Drafted:
    """Blocks to be measured, and the least error of what is asked of each space, at cost 1."""

    blocks: tuple[PlannedBlock, ...]
    asked: tuple[tuple[float, tuple[str, ...]], ...]


def plan_residual_spaces(
    workload: Workload,
    cost: Cost,
    tolerance: float,
    references: References,
    past: Gathered,
) -> Drafted:
    """Plan every residual space that helps, for references over all attributes of the ground.

    Raises:
        ResourceLimitError: no solver can take a subworkload.
    """
    divided = divide_by(workload, references.only(workload.domain), tolerance)
    known = combine(past, references, asked=workload).reconstruction
    conquered = (part for c in divided.conquered for part in c.by_limits(cost.spreads))
    asked = tuple(a for c in conquered for a in _by_knowledge(c, known))
    shares = _shares(asked, float(cost.per_record))
    measured = [i for i in range(len(asked)) if shares[i] > 0]
    counts = [len(asked[i].spaces) for i in measured]
    rounding = Rounding(cost.bound, cost.spreads)
    blocks = []
    for i, share in zip(
        measured, exact_shares(shares[measured].tolist(), counts, cost.per_record), strict=True
    ):
        solved = asked[i].conquered
        block = rounding.block(asked[i].spaces, solved.solved, share)
        error = len(asked[i].spaces) * solved.upper / float(share)
        blocks.append(PlannedBlock(block, error, solved.lower, solved.solver))
    least = tuple((a.conquered.lower, space) for a in asked for space in a.spaces)
    return Drafted(tuple(blocks), least)


def _shares(asked: Sequence[KnownSpaces], total: float) -> Array:
    """Return the privacy cost of each single space; none where it is known and hardly helped."""
    errors, known, counts = (
        np.array([value(a) for a in asked], dtype=np.float64)
        for value in (lambda a: a.conquered.upper, lambda a: a.known, lambda a: len(a.spaces))
    )
    shares = water_level(errors, known, counts, total)
    shares = np.where((shares < NEGLIGIBLE * total) & (known > 0), 0.0, shares)
    # All is known so well that in floats the budget makes no difference anywhere.
    return shares if shares.any() else water_level(errors, 0.0 * known, counts, total)


def _by_knowledge(conquered: Conquered, known: CombinedReconstruction) -> list[KnownSpaces]:
    """Group spaces of which the same is asked by what is known about them."""
    groups: dict[float, list[tuple[str, ...]]] = defaultdict(list)
    for space in conquered.spaces:
        error = known.residual_error(conquered.terms, space)
        worth = conquered.upper / error if error else 0.0
        groups[float(f"{worth:.6g}")].append(space)
    return [KnownSpaces(conquered, tuple(spaces), worth) for worth, spaces in groups.items()]


def least_residual_error(
    asked: Sequence[tuple[float, tuple[str, ...]]],
    reconstruction: CombinedReconstruction,
    sources: Sequence[Source],
    cost: Fraction,
) -> float:
    """Bound the total error from below, whatever is measured besides the sources.

    Args:
        asked: the least error of what is asked of a residual space, at cost 1, for each.
        reconstruction: that of all measurements, old and new.
        sources: the old ones.
        cost: what the new ones may cost.

    The measurements of a space that cost c and π, by a record, together cost c + π at most, so
    that its error is at least lower/(c + π). Spaces inside joint cells, whose estimates are
    correlated, are not counted: see `joint_cells.least_joint_error`.
    """
    joint = set() if reconstruction.joint is None else set(reconstruction.joint.attributes)
    costs: dict[frozenset[str], float] = defaultdict(float)
    for block in (b for source in sources for b in source.blocks):
        for names in block.spaces:
            costs[frozenset(names)] += float(block.privacy_cost / len(block.spaces))
    bounds = [
        (lower, costs.get(frozenset(space), 0.0))
        for lower, space in asked
        if reconstruction.joint is None or not set(space) <= joint
    ]
    if not bounds:
        return 0.0
    lowers, spent = np.array(bounds).T
    return least_total(lowers, spent, np.ones(len(bounds)), float(cost))
