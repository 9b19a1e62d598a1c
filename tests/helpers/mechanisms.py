"""Plans by mechanisms of a name."""

from __future__ import annotations

from typing import Any

from dpsql.planner import registry
from dpsql.planner.mechanisms.base import Options
from dpsql.planner.plans.plan import Plan
from dpsql.privacy import Budget
from dpsql.workload import Workload


def planned_by(mechanism: str, workload: Workload, budget: Budget, **options: Any) -> Plan:
    return registry.plan(workload, budget, mechanism, Options(**options))


def reason_of(mechanism: str, workload: Workload, budget: Budget) -> str | None:
    return registry.reason_unsupported(mechanism, workload, budget)
