"""Other objectives: the largest variance, and the least budget that meets given errors.

Let every answer of family f be allowed the variance l_f at privacy cost 1. For any weights w on
the families, a plan of cost C has Σ_f w_f Σ_q Var_q >= E(w)/C with E(w) the least total weighted
error, so that no plan meets the limits below

    C >= E(w) / Σ_f w_f n_f l_f .

The best weights make both sides equal if the answers of a family vary alike. They are found by
raising the weights of families that are too noisy and planning again; every round gives a plan
and a lower bound. Families without a limit take no part in that. (Fitness for use: Xiao et al.,
"Optimizing fitness-for-use of differentially private linear queries", VLDB 2021; the largest
variance: ResidualPlanner, arXiv 2305.08175, §5.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.errors import InternalError, WorkloadError
from dpsql.hints import option
from dpsql.planner.allocate import total_error
from dpsql.planner.extent import extent
from dpsql.planner.plan import Objective, Plan
from dpsql.privacy import Budget
from dpsql.privacy.budget import LARGEST_MU_SQUARED, SMALLEST_MU_SQUARED
from dpsql.workload import Workload

Planner = Callable[[Workload, Budget, Plan | None], Plan]
"""Plans a workload; with the references of a plan for other weights, if one is given."""

ROUNDS = 25
CLOSE = 1e-3
"""The rounds end when the bounds are this close, or the plan gets no better any more."""
STEP = 1.3
"""Weights are raised by this power of how far a family is from its limit."""
SMALLEST_WEIGHT = 1e-9
"""Relative to the largest one."""
SHARE = 3e-3
"""What families without a target get, in √(privacy cost), relative to those that have one."""
BINDING = 0.98
_UNIT = Budget(mu=1)


@dataclass(frozen=True, slots=True)
class _Found:
    weights: list[float]
    plan: Plan
    """At privacy cost 1."""
    ratios: list[float]
    """Each family's largest variance in units of its limit."""
    bound: float
    """No plan meets the limits at a smaller privacy cost."""

    @property
    def needed(self) -> float:
        """The privacy cost at which this plan meets all limits."""
        return max(self.ratios)


def least_largest(workload: Workload, budget: Budget, planner: Planner) -> Plan:
    """Plan so that the largest weighted variance of any answer is as small as possible."""
    limits = [1 / family.weight for family in workload.families]
    found = _search(workload, limits, [family.weight for family in workload.families], planner)
    fitted = planner(workload.weighted(found.weights), budget, found.plan)
    gap = found.needed / found.bound - 1
    return _reported(workload, fitted, limits, "least largest variance", gap)


def least_budget(workload: Workload, targets: Mapping[str, float], planner: Planner) -> Plan:
    """Find the least budget at which no answer's standard error is above its target.

    Families without a target get a small share besides, so that they are answered at all.

    Raises:
        WorkloadError: a target is for no family, not a positive number, or can't be met.
    """
    limits = limits_of(workload, targets)
    asked = workload.weighted([None if limit is None else 1.0 for limit in limits])
    given = [limit for limit in limits if limit is not None]
    start = [1 / (limit * max(1, f.count)) for limit, f in zip(given, asked.families, strict=True)]
    found = _search(asked, given, start, planner)
    weighted = _with_the_others(workload, limits, found, planner)
    mu_squared = found.needed
    while True:
        budget = rounded_up(mu_squared)
        fitted = planner(weighted, budget, found.plan)
        excess = max(_ratios(fitted, limits))
        if excess <= 1:
            gap = float(budget.mu_squared) / found.bound - 1
            return _reported(workload, fitted, limits, "least budget for the targets", gap)
        mu_squared = float(budget.mu_squared) * excess * (1 + 1e-6)


def limits_of(workload: Workload, targets: Mapping[str, float]) -> list[float | None]:
    """Return the largest variance that each family's answers may have; None without a target.

    Raises:
        WorkloadError: a target is for no family, or not a positive number.
    """
    names = {family.name for family in workload.families}
    if not isinstance(targets, Mapping) or not targets:
        raise WorkloadError(
            "Targets are a mapping of statements to standard errors.",
            hint="for example " + option("targets", {"by_sex": 25}) + ".",
        )
    for name, target in targets.items():
        if name not in names:
            raise WorkloadError(
                f"There is no statement {name!r} that could have a target.",
                hint=f"the names are {', '.join(sorted(names)[:10])}.",
            )
        number = isinstance(target, (int, float)) and not isinstance(target, bool)
        if not number or not 1e-6 <= target <= 1e12:
            raise WorkloadError(
                f"The target {target!r} of {name!r} is no standard error.",
                hint="a target is a number of rows from 1e-6 to 1e12, for example 25.",
            )
    allowed = {name: float(target) ** 2 for name, target in targets.items()}
    return [allowed.get(family.name) for family in workload.families]


def _search(
    workload: Workload, limits: list[float], start: list[float], planner: Planner
) -> _Found:
    """Change the weights until the families' largest variances stand as their limits do."""
    weights, best, like = _scaled(start), None, None
    bound, stale = 0.0, 0
    for _ in range(ROUNDS):
        weighted = workload.weighted(weights)
        like = planner(weighted, _UNIT, like)
        ratios = _ratios(like, limits)
        if not max(ratios):
            raise WorkloadError(
                "The statements with targets have no error at any budget.",
                hint="their answers are known without data; give a target to another one.",
            )
        bound = max(bound, _bound(like, weighted, limits))
        if best is None or max(ratios) < best.needed * (1 - CLOSE / 10):
            stale = 0
        stale += 1
        if best is None or max(ratios) < best.needed:
            best = _Found(weights, like, ratios, bound)
        if max(ratios) <= bound * (1 + CLOSE) or stale > 5:
            break
        weights = _scaled(
            [w * (ratio / max(ratios)) ** STEP for w, ratio in zip(weights, ratios, strict=True)]
        )
    if best is None:  # there is at least one round
        raise InternalError("no plan was made")
    return replace(best, bound=max(bound, _bound_of_binding(workload, limits, best, planner)))


def _scaled(weights: list[float]) -> list[float]:
    largest = max(weights)
    return [max(w / largest, SMALLEST_WEIGHT) for w in weights]


def _ratios(plan: Plan, limits: Sequence[float | None]) -> list[float]:
    """Return each family's largest variance in units of its limit; 0 where there is none.

    For families of many answers it may be an upper bound (see `extent`), with which limits are
    met and gaps hold as well.
    """
    ratios = []
    for family, limit in zip(plan.workload.families, limits, strict=True):
        largest = extent(plan.recovery, family, plan.workload.domain)[1] if limit else 0.0
        ratios.append(largest / (limit or 1.0))
    return ratios


def _bound(plan: Plan, weighted: Workload, limits: Sequence[float]) -> float:
    """Return E(w) / Σ w n l; all families have a limit.

    With k records of one unit E(w) is k² times as large.
    """
    counts = [len(block.strategy.spaces) for block in plan.planned]
    least = total_error([block.lower for block in plan.planned], counts, 1 / plan.contributions**2)
    pairs = zip(weighted.families, limits, strict=True)
    return least / math.fsum(f.weight * f.count * limit for f, limit in pairs)


def _bound_of_binding(
    workload: Workload, limits: list[float], found: _Found, planner: Planner
) -> float:
    """Bound by the families at their limits alone: the others may be far below theirs."""
    binding = [ratio >= BINDING * found.needed for ratio in found.ratios]
    if all(binding):
        return 0.0
    pairs = zip(found.weights, binding, strict=True)
    subset = workload.weighted([w if binds else None for w, binds in pairs])
    left = [limit for limit, binds in zip(limits, binding, strict=True) if binds]
    return _bound(planner(subset, _UNIT, found.plan), subset, left)


def _with_the_others(
    workload: Workload, limits: list[float | None], found: _Found, planner: Planner
) -> Workload:
    """Add the families without a target, at weights that give them `SHARE`."""
    pairs = list(zip(workload.families, limits, strict=True))
    others = workload.weighted([f.weight if limit is None else None for f, limit in pairs])
    error = _total(planner(others, _UNIT, None)) if others.families else 0.0
    factor = SHARE**2 * _total(found.plan) / error if error else 1.0
    weights = iter(found.weights)
    raw = [f.weight * factor if limit is None else next(weights) for f, limit in pairs]
    # All weights count relative to each other; within 1e-9 to 1e9 they are taken.
    return workload.weighted([min(max(w * 1e6, 1e-9), 1e9) for w in raw])


def _total(plan: Plan) -> float:
    return math.fsum(block.error for block in plan.planned)


def rounded_up(mu_squared: float) -> Budget:
    """Return a budget in ρ of six digits that is at least as large."""
    if mu_squared >= LARGEST_MU_SQUARED:
        raise WorkloadError(
            "The targets are so small that no useful budget meets them.",
            hint="give larger standard errors, in rows.",
        )
    mu_squared = max(mu_squared, float(SMALLEST_MU_SQUARED) * 1.001)
    exponent = math.floor(math.log10(mu_squared / 2)) - 5
    digits = math.ceil(Fraction(mu_squared) / 2 / Fraction(10) ** exponent)
    return Budget(rho=digits * Fraction(10) ** exponent)


def _reported(
    workload: Workload, fitted: Plan, limits: Sequence[float | None], name: str, gap: float
) -> Plan:
    """Say what was reached, in the weights that were asked for."""
    ratios = _ratios(fitted, limits)
    binding = dict.fromkeys(
        family.name
        for family, ratio in zip(workload.families, ratios, strict=True)
        if ratio >= BINDING * max(ratios)
    )
    total = math.fsum(
        family.weight * extent(fitted.recovery, family, workload.domain)[0]
        for family in workload.families
    )
    objective = Objective(name, tuple(binding), max(0.0, gap), total)
    return replace(fitted, workload=workload.copy(), objective=objective)
