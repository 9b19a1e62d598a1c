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

from dpsql.planner.extent import extent
from dpsql.planner.fitness import BINDING, SHARE, limits_of, rounded_up
from dpsql.planner.past.given import total_error
from dpsql.planner.plan import Objective, Plan
from dpsql.privacy import Budget
from dpsql.privacy.budget import SMALLEST_MU_SQUARED
from dpsql.workload import Workload

STEPS = 8
"""The budget found is within (largest / smallest)^(1/2^STEPS) of the least for these weights."""
NAME = "least budget for the targets, given earlier measurements"

Planner = Callable[[Workload, Budget], Plan]
"""Plans a workload on earlier measurements."""


def least_budget_given(alone: Plan, targets: Mapping[str, float], planner: Planner) -> Plan:
    """Find a budget at which all targets are met, at most that of the plan that ignores the past.

    Args:
        alone: the plan for the targets without earlier measurements.
        targets: family name → the largest standard error that its answers may have.
        planner: plans on earlier measurements.
    """
    workload = alone.workload
    limits = limits_of(workload, targets)
    weighted = workload.weighted(_weights(workload, limits))
    low, high = math.log(float(SMALLEST_MU_SQUARED) * 1.01), math.log(alone.budget.mu_squared)
    least = planner(weighted, rounded_up(math.exp(low)))
    if _excess(least, limits) <= 1:
        return _reported(least, workload, limits)
    best = planner(weighted, alone.budget)
    if _excess(best, limits) > 1:  # the weights are not good enough; those of `alone` are
        return replace(planner(workload, alone.budget), objective=alone.objective)
    for _ in range(STEPS):
        middle = (max(low, high - 12.0) + high) / 2
        plan = planner(weighted, rounded_up(math.exp(middle)))
        if _excess(plan, limits) <= 1:
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


def _excess(plan: Plan, limits: list[float | None]) -> float:
    """Return the largest variance in units of its limit."""
    families = zip(plan.workload.families, limits, strict=True)
    ratios = [
        extent(plan.recovery, f, plan.workload.domain)[1] / limit for f, limit in families if limit
    ]
    return max(ratios, default=0.0)


def _reported(plan: Plan, workload: Workload, limits: list[float | None]) -> Plan:
    """Say what was reached, in the weights that were asked for."""
    most = _excess(plan, limits)
    binding = dict.fromkeys(
        f.name
        for f, limit in zip(workload.families, limits, strict=True)
        if limit and extent(plan.recovery, f, workload.domain)[1] / limit >= BINDING * most
    )
    total = total_error(plan.recovery, workload)
    given = None if plan.given is None else replace(plan.given, total=total, lower=0.0)
    objective = Objective(NAME, tuple(binding), math.inf, total)
    return replace(plan, workload=workload.copy(), objective=objective, given=given)
