"""Pay for a plan from a ledger of its own, in memory; add up what sessions have paid."""

from __future__ import annotations

from fractions import Fraction

import dpsql
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


def charged(session: dpsql.Session) -> tuple[Fraction, Fraction]:
    """Return the sum of all charges of a session's account, as ρ and δ."""
    entries = session.ledger.entries()
    assert len(entries) == session.history.height
    return (
        sum((e.mu_squared for e in entries), Fraction(0)) / 2,
        sum((e.delta for e in entries), Fraction(0)),
    )
