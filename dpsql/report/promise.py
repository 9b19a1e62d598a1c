"""The promise of a release in plain words: who is protected, from what, and from what not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist

from dpsql.errors import printable
from dpsql.privacy import Budget
from dpsql.privacy.conversions import epsilon_of
from dpsql.schema import Table

DELTA = Fraction(1, 10**9)
"""The δ for which ε is told, if none was stated."""


def promised(
    budget: Budget | None, tables: Sequence[Table], neighbours: str, earlier: Sequence[Fraction]
) -> list[tuple[str, str]]:
    """Say who is protected and what ε means, as questions and answers.

    Args:
        budget: what was charged.
        tables: whose rows were counted.
        neighbours: what is hidden, in words.
        earlier: what was charged, as μ², for earlier releases on which answers rest as well.
    """
    found = [("Who is protected?", _protected(tables)), ("What is hidden?", _hidden(neighbours))]
    if budget is None:
        found.append(("What does this release cost?", _FREE))
    if earlier:
        found.append(("What does ε mean here?", _with_earlier(budget, sum(earlier, Fraction(0)))))
    elif budget is not None:
        found += [
            ("What does ε mean here?", _meaning(budget)),
            ("How well could somebody guess?", _guessing(budget)),
        ]
    return found


_FREE = (
    "Nothing: all answers follow from earlier releases of the same data, or from public "
    "declarations. They tell nothing new to a person who has those."
)


def not_protected(tables: Sequence[Table]) -> list[str]:
    """Say what the promise does not cover."""
    bounded = [table for table in tables if table.unit is not None and table.is_bounded]
    rows = [table for table in tables if table.unit is None and not table.each_row]
    found = [
        "Facts about many people. Readers can learn that two things go together in the data, and "
        "apply this to people who are in the data and to people who are not.",
        "Public declarations: the names, labels and bounds of columns, public tables that "
        "statements join, and the statements themselves.",
        "Other releases. Each of them tells a little more, and their costs add up. A ledger, the "
        "account of the data, adds up only what was charged to it.",
        "Errors of the data. Intervals and standard errors are about the noise alone.",
        "Other ways to learn about the data: from the data itself, from its copies and backups, or "
        "from the time that the computer took.",
    ]
    if rows:
        names = _names(rows)
        found.insert(
            1,
            f"People with several rows in {names}, as persons: each row is protected by itself. "
            "For k rows of one person together, the protection is that of a budget in which μ, a "
            "measure of the loss of privacy, is k times as large.",
        )
    if any(table.unit is not None for table in tables):
        found.insert(
            1,
            "Several units together, such as all members of a household: for k of them, the "
            "protection is that of a budget in which μ, a measure of the loss of privacy, is k "
            "times as large.",
        )
    if bounded:
        found.append(
            "Rows beyond the bound. They are not counted, so totals may be too low by their number."
        )
    return found


def _protected(tables: Sequence[Table]) -> str:
    said = []
    for table in tables:
        name = printable(table.shown)
        if table.unit is None:
            said.append(f"Each single row of {name}.")
        else:
            who = f"Each unit, identified by {printable(table.unit.name)}, with all of its "
            most = ""
            if table.is_bounded:
                k = table.contributions
                most = f", of which {'one counts' if k == 1 else f'at most {k:,} count'}"
            said.append(f"{who}rows in {name}{most}.")
    return " ".join(said)


def _hidden(neighbours: str) -> str:
    return (
        f"Whether this change was made to the data: {neighbours}. That holds however much somebody "
        "knows already."
    )


def _meaning(budget: Budget) -> str:
    if budget.pure:
        stated = float(budget.amount)
        return (
            f"ε = {_above(budget.amount)}: each possible result of this release is at most e^ε = "
            f"{_factor(stated)} times as likely if one of those who are protected is in the data "
            "as if not, and the other way round."
        )
    delta = budget.delta or DELTA
    amount = budget.amount if budget.delta is not None else None
    epsilon = budget.epsilon_at(delta) if amount is None else float(amount)
    known = _above(Fraction(epsilon) if amount is None else amount)
    small = _small(delta)
    return (
        f"ε = {known} at δ = {small}: any result of this release is at most e^ε = "
        f"{_factor(epsilon)} times as likely if one of those who are protected is in the data as "
        f"if not, and the other way round, except for a probability of {small} at most."
    )


def _above(epsilon: Fraction) -> str:
    """Write ε with four digits, rounded up."""
    digits = 3 - math.floor(math.log10(epsilon))
    scale = Fraction(10) ** digits
    return f"{float(math.ceil(epsilon * scale) / scale):.4g}"


def _small(share: Fraction) -> str:
    """Write δ: 1e-9, and not 1e-09."""
    return f"{float(share):g}".replace("e-0", "e-")


def _factor(epsilon: float) -> str:
    """Write e^ε, rounded up."""
    if epsilon > 20:
        return f"10^{epsilon / math.log(10):.0f}"
    return f"{math.ceil(math.exp(epsilon) * 100) / 100:,.2f}"


def guessed(budget: Budget) -> float:
    """Return how often a guess is right at best, if it was right half of the time before.

    Of two cases, equally likely, the one is told from the other with at most the probability
    Φ(μ/2) by what is μ-GDP, and e^ε/(1 + e^ε) by what is ε-differentially private.
    """
    if budget.pure:
        return 1 / (1 + math.exp(-float(budget.amount)))
    return _told_apart(budget.mu_squared)


def _told_apart(mu_squared: Fraction) -> float:
    return NormalDist().cdf(math.sqrt(mu_squared) / 2)


def _guessing(budget: Budget) -> str:
    return (
        "Think of somebody who knows all other rows, and wants to know whether one of those who "
        "are protected is in the data. By mere guessing, they are right in 50 of 100 cases. With "
        f"this release they are right in at most {_percent(guessed(budget))} of 100."
    )


def _with_earlier(budget: Budget | None, earlier: Fraction) -> str:
    total = earlier + (Fraction(0) if budget is None else budget.mu_squared)
    epsilon = epsilon_of(total, DELTA)
    adds = "" if budget is None else f" This one alone was charged {budget}, and adds that to them."
    return (
        "Answers also use measurements of earlier releases, so the charges of all these releases "
        f"are added up. Together they are ε = {_above(Fraction(epsilon))} at δ = {_small(DELTA)}: "
        f"any result of all of them is at most e^ε = {_factor(epsilon)} times as likely if one of "
        "those who are protected is in the data as if not, and the other way round, except for a "
        f"probability of {_small(DELTA)} at most. Somebody who would be right in 50 of 100 cases "
        "by guessing whether one of them is in the data is then right in at most "
        f"{_percent(_told_apart(total))} of 100.{adds}"
    )


def _percent(share: float) -> str:
    """Write a share in hundredths, rounded up to one decimal."""
    return f"{min(math.ceil(share * 1000) / 10, 100.0):.1f}"


def _names(tables: Sequence[Table]) -> str:
    return ", ".join(printable(table.shown) for table in tables)
