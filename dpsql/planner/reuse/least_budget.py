"""The least budget for given errors, where something was measured before.

With earlier measurements, errors don't fall in proportion to the budget any more, and the best
weights of the statements change with it. So the budget is found by bisection, with weights that
make all statements at their targets count alike. There is no certificate of how far it is from the
least one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from dpsql.linalg.threads import one_thread
from dpsql.planner.plans.objectives import SHARE, STEP, limits_of, ratios_of, reported, rounded_up
from dpsql.planner.plans.plan import Plan
from dpsql.privacy import Budget
from dpsql.privacy.budget import SMALLEST_MU_SQUARED
from dpsql.workload import Workload

ROUNDS = 6
"""How often weights are changed until all targets are met at once."""
STEPS = 8
"""The budget found is within (largest / smallest)^(1/2^STEPS) of the least for these weights."""
NAME = "least budget for the targets, given earlier measurements"

Planner = Callable[[Workload, Budget], Plan]
"""Plans a workload on earlier measurements."""


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
    low, high = math.log(float(SMALLEST_MU_SQUARED) * 1.01), math.log(budget.mu_squared)
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
            min(max(w * (r / max(ratios)) ** STEP, 1e-9), 1e9) if r else w
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
    found = reported(workload, plan, limits, NAME, math.inf)
    total = plan.reconstruction.total(workload)
    return replace(found, given=plan.given and replace(plan.given, total=total, lower=0.0))
