"""Other objectives: the largest variance, and the least budget that meets given errors.

Let every answer of family f be allowed the variance l_f at privacy cost 1. For any weights w on
the families, a plan of cost C has Σ_f w_f Σ_q Var_q >= E(w)/C with E(w) the least total weighted
error, so that no plan meets the limits below

    C >= E(w) / Σ_f w_f n_f l_f .

The best weights make both sides equal if the answers of a family vary alike. They are found by
raising the weights of families that are too noisy and planning again; every round gives a plan
and a lower bound. (Fitness for use: Xiao et al., "Optimizing fitness-for-use of differentially
private linear queries", VLDB 2021; the largest variance: ResidualPlanner, arXiv 2305.08175, §5.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.errors import WorkloadError
from dpsql.planner.allocate import total_error
from dpsql.planner.plan import Objective, Plan
from dpsql.privacy import Budget
from dpsql.workload import Workload

Planner = Callable[[Workload, Budget, Plan | None], Plan]
"""Plans a workload; with the references of a plan for other weights, if one is given."""

ROUNDS = 25
CLOSE = 1e-3
"""The rounds end when the bounds are this close, or the plan gets no better any more."""
STEP = 1.3
"""Weights are raised by this power of how far a family is from its limit."""
FREE = 1e-9
"""The weight of families without a limit, relative to the others."""
BINDING = 0.98
_UNIT = Budget(mu=1)


@dataclass(frozen=True, slots=True)
class _Found:
    weighted: Workload
    plan: Plan
    """At privacy cost 1."""
    needed: float
    """The privacy cost at which all limits are met."""
    bound: float
    """No plan meets them at less."""


def least_largest(workload: Workload, budget: Budget, planner: Planner) -> Plan:
    """Plan so that the largest weighted variance of any answer is as small as possible."""
    limits = [1 / family.weight for family in workload.families]
    found = _search(workload, limits, planner)
    fitted = planner(found.weighted, budget, found.plan)
    gap = found.needed / found.bound - 1
    return _reported(workload, fitted, limits, "least largest variance", gap)


def least_budget(workload: Workload, targets: Mapping[str, float], planner: Planner) -> Plan:
    """Find the least budget at which no answer's standard error is above its target.

    Raises:
        WorkloadError: a target is for no family, or not a positive number.
    """
    limits = _limits(workload, targets)
    found = _search(workload, limits, planner)
    mu_squared = found.needed
    while True:
        budget = _rounded_up(mu_squared)
        fitted = planner(found.weighted, budget, found.plan)
        excess = max(_ratios(fitted, limits))
        if excess <= 1:
            gap = float(budget.mu_squared) / found.bound - 1
            return _reported(workload, fitted, limits, "least budget for the targets", gap)
        mu_squared *= excess * (1 + 1e-6)


def _limits(workload: Workload, targets: Mapping[str, float]) -> list[float | None]:
    names = {family.name for family in workload.families}
    if not targets:
        raise WorkloadError("There are no targets.", hint='for example targets={"by_sex": 25}.')
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


def _search(workload: Workload, limits: Sequence[float | None], planner: Planner) -> _Found:
    """Change the weights until the families' largest variances stand as their limits do."""
    weights = [
        1 / (limit * family.count) if limit and family.count else 0.0
        for family, limit in zip(workload.families, limits, strict=True)
    ]
    if not any(weights):
        raise WorkloadError(
            "No statement with a target has any answers.", hint="give a target to another one."
        )
    best: _Found | None = None
    bound, like, stale = 0.0, None, 0
    for _ in range(ROUNDS):
        weighted = workload.weighted(_floored(weights))
        like = planner(weighted, _UNIT, like)
        ratios = _ratios(like, limits)
        bound = max(bound, _bound(like, weighted, limits))
        if best is None or max(ratios) < best.needed * (1 - CLOSE / 10):
            stale = 0
        stale += 1
        if best is None or max(ratios) < best.needed:
            best = _Found(weighted, like, max(ratios), bound)
        if max(ratios) <= bound * (1 + CLOSE) or stale > 5 or not bound:
            break
        weights = [
            w * (ratio / max(ratios)) ** STEP for w, ratio in zip(weights, ratios, strict=True)
        ]
    if best is None or not bound:
        raise WorkloadError(
            "The statements with targets have no error at any budget.",
            hint="their answers are known without data; give a target to another one.",
        )
    return replace(best, bound=bound)


def _floored(weights: list[float]) -> list[float]:
    largest = max(weights)
    return [max(w / largest, FREE) for w in weights]


def _ratios(plan: Plan, limits: Sequence[float | None]) -> list[float]:
    """Return each family's largest variance in units of its limit; 0 where there is none."""
    return [
        float(variances.max(initial=0.0)) / limit if limit else 0.0
        for variances, limit in zip(plan.variances, limits, strict=True)
    ]


def _bound(plan: Plan, weighted: Workload, limits: Sequence[float | None]) -> float:
    """Return E(w) / Σ w n l. Families without a limit only add to E: they are left out below."""
    counts = [len(block.strategy.spaces) for block in plan.planned]
    least = total_error([block.lower for block in plan.planned], counts, 1.0)
    allowed = math.fsum(
        family.weight * family.count * limit
        for family, limit in zip(weighted.families, limits, strict=True)
        if limit
    )
    return least / allowed


def _rounded_up(mu_squared: float) -> Budget:
    """Return a budget in ρ of six digits that is at least as large."""
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
        family.weight * float(variances.sum())
        for family, variances in zip(workload.families, fitted.variances, strict=True)
    )
    objective = Objective(name, tuple(binding), max(0.0, gap), total)
    return replace(fitted, workload=workload.copy(), objective=objective)
