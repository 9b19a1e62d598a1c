"""The words in which the ledger refuses a charge or a total: in the caller's own unit."""

from __future__ import annotations

from fractions import Fraction

from dpsql.errors import BudgetError, LedgerError
from dpsql.hints import option
from dpsql.privacy.budget import Budget

EXAMPLE = "postgresql://db.example.org/accounts"
"""An address of a server."""


def too_much(asked: Budget, cost: Fraction, left: Fraction) -> BudgetError:
    """Word that a charge is more than is left, and how much would do."""
    affordable = asked.at_most(left) if left * 1000 > cost else None
    return BudgetError(
        f"Not enough budget: asked {asked.describe(cost)}, "
        f"left {asked.describe(left, up=False)}, short by {_difference(asked, cost - left)}.",
        hint="nothing useful is left; only the data owner can decide on more."
        if affordable is None
        else "ask for at most " + affordable.typed + ".",
    )


def check_cost(cost: Fraction, asked: Budget) -> None:
    """Refuse what a release can't cost, or what is above the budget that was given for it.

    Raises:
        BudgetError: it is.
    """
    if not isinstance(cost, Fraction) or cost <= 0:
        raise BudgetError("A charge must be a positive fraction.", hint="pass a Fraction above 0.")
    if cost > asked.mu_squared:
        raise BudgetError(
            f"The release costs {asked.describe(cost)}, more than was asked: "
            f"{asked.describe(asked.mu_squared)}.",
            hint="plan it again for this budget.",
        )


def other_total(dataset: str, place: str, budget: Budget, total: Fraction) -> LedgerError:
    """Word that another total was fixed before."""
    return LedgerError(
        f"The total of {dataset} was fixed before, at {budget.describe(total)}, and can't become "
        f"{budget.describe(budget.mu_squared)}.",
        hint="leave the total out to go on with what is left of the first one. The account is "
        f"kept in {place}.",
    )


def total_too_small(dataset: str, budget: Budget, spent: Fraction) -> LedgerError:
    """Word that a total would not cover what was spent before it was fixed."""
    return LedgerError(
        f"{budget.describe(spent)} was spent on {dataset} already, "
        f"more than {budget.describe(budget.mu_squared)}.",
        hint="choose a total that covers what was spent.",
    )


def other_dataset(found: str, wanted: str) -> LedgerError:
    """Word that a ledger is not for this data set."""
    return LedgerError(
        f"This ledger belongs to another data set ({found!r}, not {wanted!r}).",
        hint="the database file must keep the name under which its ledger began; it may be "
        "in another folder. A new ledger would forget what was spent.",
    )


def moved() -> LedgerError:
    """Word that an account is on a server."""
    return LedgerError(
        "This data set has its account in PostgreSQL.",
        hint="name the server, " + option("ledger", EXAMPLE) + "; ask the owner which it is.",
    )


def _difference(asked: Budget, amount: Fraction) -> str:
    """Word a difference in ρ if the budget is in ε, which can't be subtracted."""
    described = asked.describe(amount)
    return described if asked.form == "rho" else described[described.index("ρ") :].rstrip(")")


def pure_total(budget: Budget) -> BudgetError:
    """Say that the total of an account can't be a pure ε."""
    return BudgetError(
        f"A total can't be pure ({budget}): an account adds up μ², which keeps no pure ε.",
        hint="for example dpsql.Budget(rho=0.5) as the total; single releases may be pure.",
    )
