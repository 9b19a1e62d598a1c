"""The words in which the ledger refuses a charge or a total: in the caller's own unit."""

from __future__ import annotations

from fractions import Fraction

from dpsql.errors import BudgetError, LedgerError
from dpsql.hints import option
from dpsql.privacy.amount import EVERY, Amount
from dpsql.privacy.budget import Budget, beside, shown_delta

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


def check_delta(delta: Fraction) -> None:
    """Refuse what no release can cost besides μ².

    Raises:
        BudgetError: it is.
    """
    if not isinstance(delta, Fraction) or not 0 <= delta < 1:
        raise BudgetError(
            "A charge of δ must be a fraction from 0 to below 1.", hint="pass a Fraction."
        )


def too_much_delta(cost: Fraction, left: Fraction, *, any_aside: bool) -> BudgetError:
    """Word that a charge is more δ than is left of what was set aside, if any was."""
    if not any_aside:
        return BudgetError(
            "This account sets no δ aside to find keys with"
            + (f", and {shown_delta(cost)} was asked." if cost else "."),
            hint="declare the keys, as a domain; only a new account can set δ aside, by "
            + option("key_delta", 1e-10)
            + " beside its total.",
        )
    return BudgetError(
        f"Not enough δ for keys: asked {shown_delta(cost)}, left {shown_delta(left, up=False)}.",
        hint="nothing is left; use the keys that were found before, or declare them, as a domain."
        if left <= 0
        else f"ask for at most {shown_delta(left, up=False)}.",
    )


def set_aside_late(dataset: str, budget: Budget) -> LedgerError:
    """Word that δ can't be set aside any more."""
    return LedgerError(
        f"Something was spent on {dataset} already, and {shown_delta(budget.key_delta)} can be set "
        "aside only before: else it could depend on what was answered.",
        hint="pass " + option("key_delta", 0) + ".",
    )


def other_total(dataset: str, place: str, budget: Budget, total: Amount) -> LedgerError:
    """Word that another total was fixed before."""
    return LedgerError(
        f"The total of {dataset} was fixed before, at {_both(budget, total)}, and can't become "
        f"{_both(budget, Amount({EVERY: budget.mu_squared}, budget.key_delta))}.",
        hint="leave the total out to go on with what is left of the first one. The account is "
        f"kept in {place}.",
    )


def total_too_small(dataset: str, budget: Budget, spent: Amount) -> LedgerError:
    """Word that a total would not cover what was spent before it was fixed."""
    return LedgerError(
        f"{_both(budget, spent)} was spent on {dataset} already, "
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


def _both(budget: Budget, amount: Amount) -> str:
    """Word an amount in the form of a budget, with its δ if it has one."""
    words = beside(budget, amount.delta).describe(amount.of(EVERY))
    return f"{words}, {shown_delta(amount.delta)}" if amount.delta else words


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
