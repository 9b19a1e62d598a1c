"""Amounts of privacy loss, in all of their forms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

    from dpsql.privacy import Budget


@dataclass(frozen=True, slots=True)
class AccountReport:
    """A report of what was charged and what is left, for people and for machines."""

    lines: tuple[str, ...]
    document: dict[str, object]


def account(charged: Budget | None, left: Fraction | None, delta: Decimal) -> AccountReport:
    """Word a charge, and what is left of the total as μ²; None without a total."""
    lines = [f"charged: {'nothing' if charged is None else budget_forms(charged, delta)}"]
    lines += [] if left is None else [f"left: {forms(left, delta, up=False)}"]
    document: dict[str, object] = {
        "charged": None if charged is None else budget_json(charged, delta),
        "remaining": None if left is None else as_json(left, delta, up=False),
    }
    return AccountReport(tuple(lines), document)


def budget_forms(budget: Budget, delta: Decimal) -> str:
    """Word a budget in all forms, as it was asked first if it is pure."""
    found = forms(budget.mu_squared, delta)
    return f"{budget}; {found}" if budget.pure else found


def budget_json(budget: Budget, delta: Decimal) -> dict[str, object]:
    """Give a budget in all forms; ε and δ as they were asked if it is pure."""
    found = as_json(budget.mu_squared, delta)
    return {**found, "epsilon": float(budget.amount), "delta": 0.0} if budget.pure else found


def forms(mu_squared: Fraction, delta: Decimal, *, up: bool = True) -> str:
    """Word an amount in all forms."""
    from dpsql.present.account import amount

    return amount(mu_squared, up=up, delta=Fraction(delta))


def as_json(mu_squared: Fraction, delta: Decimal, *, up: bool = True) -> dict[str, object]:
    """Give an amount in all forms; μ² exactly, ε rounded up or down."""
    return {
        "mu_squared": mu_squared,
        "rho": float(mu_squared / 2),
        "mu": math.sqrt(mu_squared),
        "epsilon": _epsilon(mu_squared, delta, up=up),
        "delta": float(delta),
    }


def _epsilon(mu_squared: Fraction, delta: Decimal, *, up: bool) -> float:
    from dpsql.privacy import Budget
    from dpsql.privacy.conversions import epsilon_of

    if up or mu_squared <= 0:
        return epsilon_of(max(mu_squared, Fraction(0)), Fraction(delta))
    affordable = Budget(epsilon=1, delta=delta).at_most(mu_squared)
    return 0.0 if affordable is None else float(affordable.amount)
