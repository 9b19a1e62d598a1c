"""Pay for a plan from a ledger of its own, in memory."""

from __future__ import annotations

from dpsql.measurement.measure import ChargedPlan
from dpsql.planner.plans.plan import Plan
from dpsql.privacy import Ledger, Purpose, Receipt


def charge(plan: Plan) -> tuple[Ledger, Receipt]:
    ledger = Ledger.open(None, dataset="test")
    purpose = Purpose(plan.certified.digest, "1", "2", "3", "4", "5")
    return ledger, ledger.charge(plan.budget.mu_squared, asked=plan.budget, purpose=purpose)


def pay(plan: Plan) -> ChargedPlan:
    ledger, receipt = charge(plan)
    return ChargedPlan(plan.certified, receipt, ledger)
