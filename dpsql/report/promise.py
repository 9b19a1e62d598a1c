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
    "Nothing: it follows from what earlier releases of the same data had told, or from public "
    "declarations alone. Whoever has those learns nothing from this one."
)


def not_protected(tables: Sequence[Table]) -> list[str]:
    """Say what the promise does not cover."""
    bounded = [table for table in tables if table.unit is not None and table.is_bounded]
    rows = [table for table in tables if table.unit is None and not table.each_row]
    found = [
        "What is true of many. That two things go together in the data can be learned here, and be "
        "applied to people who are in the data and to people who are not.",
        "What was declared public: the names, labels and bounds of columns, public tables that "
        "statements join, and the statements themselves.",
        "Other releases. Each of them tells a little more, and what they cost adds up. One ledger "
        "adds up what was charged to it, and nothing else.",
        "Errors of the data. Intervals and standard errors are of the noise alone.",
        "What can be learned otherwise: from the data itself, its copies and backups, or from how "
        "long the computer took.",
    ]
    if rows:
        names = _names(rows)
        found.insert(
            1,
            f"Whoever has several rows in {names} as one person: each row is protected by itself, "
            "and k rows of one person together only as if μ, the strength of the loss, were k "
            "times as large.",
        )
    if any(table.unit is not None for table in tables):
        found.insert(
            1,
            "Several together, such as all members of a household: of k of them it is protected "
            "who they are as if μ, the strength of the loss, were k times as large.",
        )
    if bounded:
        found.append(
            "Rows beyond the bound are not counted. Nothing is told of them, and totals may be too "
            "low by as many."
        )
    return found


def _protected(tables: Sequence[Table]) -> str:
    said = []
    for table in tables:
        name = printable(table.shown)
        if table.unit is None:
            said.append(f"Each single row of {name}.")
        else:
            who = f"Each unit that is told apart by {printable(table.unit.name)}, with all of its "
            most = ""
            if table.is_bounded:
                k = table.contributions
                most = f", of which {'one counts' if k == 1 else f'at most {k:,} count'}"
            said.append(f"{who}rows in {name}{most}.")
    return " ".join(said)


def _hidden(neighbours: str) -> str:
    return (
        f"Whether the data is as it is, or differs by this: {neighbours}. What somebody knows "
        "besides, however much, does not weaken that."
    )


def _meaning(budget: Budget) -> str:
    if budget.pure:
        stated = float(budget.amount)
        return (
            f"ε = {_above(budget.amount)}: whatever this release says, it was at most e^ε = "
            f"{_factor(stated)} times as likely to say so with one of those who are protected in "
            "the data as without."
        )
    delta = budget.delta or DELTA
    amount = budget.amount if budget.delta is not None else None
    epsilon = budget.epsilon_at(delta) if amount is None else float(amount)
    known = _above(Fraction(epsilon) if amount is None else amount)
    small = _small(delta)
    return (
        f"ε = {known} at δ = {small}: whatever this release says, it was at most "
        f"e^ε = {_factor(epsilon)} times as likely to say so with one of those who are protected "
        f"in the data as without, except for a probability of {small} at most."
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
        "are protected is in the data. Who has no idea before is right in 50 of 100 cases; with "
        f"this release in at most {_percent(guessed(budget))} of 100."
    )


def _with_earlier(budget: Budget | None, earlier: Fraction) -> str:
    total = earlier + (Fraction(0) if budget is None else budget.mu_squared)
    epsilon = epsilon_of(total, DELTA)
    adds = "" if budget is None else f" This one alone was charged {budget}, and adds that to them."
    return (
        "Answers rest on measurements of earlier releases, too, and say what those say: so what "
        f"was charged counts together. It is ε = {_above(Fraction(epsilon))} at δ = "
        f"{_small(DELTA)}: whatever all of it says, it was at most e^ε = {_factor(epsilon)} "
        "times as likely to say so with "
        "one of those who are protected in the data as without, except for a probability of "
        f"{_small(DELTA)} at most. Somebody who has no idea before and guesses whether one of them "
        f"is in the data is right in at most {_percent(_told_apart(total))} of 100 cases.{adds}"
    )


def _percent(share: float) -> str:
    """Write a share in hundredths, rounded up to one decimal."""
    return f"{min(math.ceil(share * 1000) / 10, 100.0):.1f}"


def _names(tables: Sequence[Table]) -> str:
    return ", ".join(printable(table.shown) for table in tables)
