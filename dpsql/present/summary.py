"""The summary of a release, by the items of NIST SP 800-226, and its promise in plain words."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from fractions import Fraction
from statistics import NormalDist

from dpsql.answers.facts import Facts
from dpsql.errors import printable
from dpsql.present.account import amount
from dpsql.present.records import DELTAS, lines_of
from dpsql.privacy import Budget
from dpsql.privacy.budget import shown_delta
from dpsql.privacy.conversions import epsilon_of
from dpsql.schema import Table

WIDTH = 100
_LABEL = 16
_TRUST = (
    "central: the curator holds the rows; from the release, nobody learns more about one unit "
    "than the budget allows"
)
_NOT_COVERED = (
    "errors of the data themselves, sampling, and what can be read from timing or memory of the "
    "curator's machine"
)


def summarize(facts: Facts) -> str:
    """Say in plain text what a data user must know."""
    lines = [
        f"Release of {_tables(facts)}: {_statements(len(facts.statements))}, {facts.created}",
        *_section("Privacy", _privacy(facts)),
        *_section("Mechanism", how_measured(facts)),
        *_section("Accuracy", _accuracy(facts)),
        *_section("Limits", limits(facts)),
    ]
    return "\n".join(lines)


def _tables(facts: Facts) -> str:
    return ", ".join(printable(table.name) for table in facts.tables)


def _section(title: str, items: Iterator[tuple[str, str]]) -> Iterator[str]:
    yield ""
    yield title
    for label, text in items:
        first, *rest = textwrap.wrap(text, WIDTH - _LABEL - 2) or [""]
        yield f"  {label:<{_LABEL}}{first}"
        yield from (" " * (_LABEL + 2) + line for line in rest)


def _privacy(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "neighbours", f"{facts.neighbours}. The release hides this change"
    for table in facts.tables:
        rows = table.contributions
        counted = "one row"
        if table.unit is not None and not table.is_bounded:
            counted = "a unit with all of its rows"
        elif table.unit is not None:
            most = "one row that counts" if rows == 1 else f"up to {rows:,} rows that count"
            counted = f"a unit with {most}"
        of = f" of {printable(table.name)}" if facts.others else ""
        yield "privacy unit", counted + of
    if facts.budget is None:
        yield "budget", "nothing was charged: all follows from earlier releases or from the domains"
    else:
        yield "budget", charged_words(facts.budget, facts)
        yield from (("", line) for line in budget_forms(facts.budget))
    everything = in_all(facts)
    if everything is not None:
        yield "in all", everything
    yield from lines_of(facts, "Privacy")
    yield "trust model", _TRUST


def charged_words(budget: Budget, facts: Facts) -> str:
    """Word what was charged for what was measured: all that was asked, or the rest of it."""
    return f"{budget}" if facts.rests_on_found else f"{budget} (as asked)"


def in_all(facts: Facts) -> str | None:
    """Word the sum of all charges on which a release rests; None if its own says it.

    Of a pure ε that is not the sum of the ε, which is less: nothing is said then.
    """
    budget, before = facts.budget, facts.charges_before
    if not before or (budget is not None and budget.pure):
        return None
    mu_squared, delta = _together(budget, [(e.mu_squared, e.delta or Fraction(0)) for e in before])
    return f"{amount(mu_squared, up=True, key_delta=delta)}: with the charges on which it rests"


def _together(
    budget: Budget | None, earlier: Sequence[tuple[Fraction, Fraction]]
) -> tuple[Fraction, Fraction]:
    """Add up, as μ² and δ, what was charged for a release and for all that it rests on."""
    charges = [] if budget is None else [(budget.mu_squared, budget.key_delta)]
    mu_squared, delta = (sum(parts, Fraction(0)) for parts in zip(*earlier, *charges, strict=True))
    return mu_squared, delta


def budget_forms(budget: Budget) -> list[str]:
    """Word a budget in all forms; ε is rounded up."""
    deltas = [d for d in (budget.delta, *DELTAS) if d is not None and d > budget.key_delta]
    rho, mu = (_in_form(form, budget.mu_squared) for form in (Budget(rho=1), Budget(mu=1)))
    forms = [f"{rho}, {mu}"]
    for delta in deltas:
        small = f"{float(delta):g}".replace("e-0", "e-")
        forms.append(f"ε = {budget.epsilon_at(delta):.6g} at δ = {small}")
    if budget.key_delta:
        forms.append(f"{shown_delta(budget.key_delta)}, in what is said of ε")
    return list(dict.fromkeys(forms))


def _in_form(form: Budget, mu_squared: Fraction) -> str:
    """Word an amount as others are worded, rounded up."""
    return form.describe(mu_squared, up=True).split(" (")[0]


def how_measured(facts: Facts) -> Iterator[tuple[str, str]]:
    """Say what measured, with which noise, and what was done afterwards."""
    if facts.budget is not None and facts.adaptive:
        yield "mechanism", f"{facts.traits.title}: chooses what it measures by the data"
    elif facts.budget is not None:
        yield "matrix", _matrix(facts)
        gap = "not known" if facts.gap is None else f"{facts.gap:.2e}"
        yield "certified gap", f"{gap}, of the objective: {facts.objective}"
        if facts.warning is not None:
            yield "WARNING", printable(facts.warning)
    yield "noise", facts.noise
    yield "sensitivity", "exact, from the integer matrices that were measured"
    yield "invariants", "none: no count is released without noise"
    yield "post-processing", _post_processing(facts)


def _post_processing(facts: Facts) -> str:
    if facts.suppress_below is None:
        return _adjusting(facts)
    return (
        f"values are NULL if they rest on fewer than {facts.suppress_below:g} rows, by their noisy "
        f"number; beside that, {_adjusting(facts)}"
    )


def _adjusting(facts: Facts) -> str:
    if facts.biased:
        return "answers are fitted to what was measured, and not negative; they are biased"
    if not facts.adjusted:
        return "none that makes answers biased: values may be negative and fractional"
    kinds = ["not negative"] * facts.nonnegative + ["whole numbers"] * facts.integers
    return (
        f"columns named …_adjusted are {' and '.join(kinds)}, from tables that fit the "
        "measurements; they are biased, and `columns` says which agree. The other value columns "
        "are unbiased."
    )


def _matrix(facts: Facts) -> str:
    """Name the mechanism, and the number of things that it measured."""
    title = facts.traits.title + facts.traits.comment
    if facts.whole:
        return f"{title} over all joint cells at once"
    return f"{title} over {facts.spaces:,} {'marginals' if facts.cells else 'residual spaces'}"


def _accuracy(facts: Facts) -> Iterator[tuple[str, str]]:
    if facts.biased:
        yield "expected error", "not known: it depends on the data"
        yield "variances", "none: answers are biased by an unknown amount"
        return
    for row in facts.expected.iter_rows(named=True):
        yield (
            "expected error",
            f"{printable(row['statement'])}: {row['rows']:,} answers, RMSE {row['rmse']:.4g}, "
            f"largest standard error {row['worst_standard_error']:.4g}",
        )
    known = "known beforehand"
    if any(one.scores for one in facts.found):
        known += ", but where values were found: there they are estimated, and smaller"
    yield "variances", f"beside each value; they are about the noise alone, and {known}"


def limits(facts: Facts) -> Iterator[tuple[str, str]]:
    """Say what answers are of, and what they say nothing about."""
    yield "domains", _learned(facts)
    bounded = [table for table in facts.tables if table.unit is not None and table.is_bounded]
    if bounded:
        of = [f" of {printable(table.name)}" * bool(facts.others) for table in bounded]
        rows = [f"{table.contributions:,}" for table in bounded]
        each = ", ".join(map(str.__add__, rows, of))
        yield (
            "rows",
            (
                f"at most {each} of each unit count; values, variances and intervals are about "
                "these, not about the rows that are left out"
            ),
        )
    for statement, columns in facts.guards.items():
        names = ", ".join(map(printable, columns))
        yield (
            "rows",
            f"{printable(statement)}: a SELECT that names {names} counts only rows whose value "
            "there is in the domain",
        )
    for statement, notes in facts.notes.items():
        yield from (("note", f"{printable(statement)}: {printable(note)}") for note in notes)
    yield (
        "data",
        f"vintage {printable(facts.vintage)!r}" if facts.vintage else "no vintage declared",
    )
    yield "not covered", _NOT_COVERED
    yield from lines_of(facts, "Limits")


def _learned(facts: Facts) -> str:
    """Say what is known of columns without the rows, and what was found in these."""
    learned = [
        f"{what} of {', '.join(f'{printable(one.path[-1])}.{printable(one.label)}' for one in of)}"
        for what, of in (("values", facts.found), ("bounds", facts.bounded))
        if of
    ]
    if not learned:
        return "declared by the data owner, not learned"
    return (
        f"{' and '.join(learned)} were found in the rows, and charged; "
        "all others are declared by the data owner, not learned"
    )


def _statements(number: int) -> str:
    return "1 statement" if number == 1 else f"{number:,} statements"


# ── The promise of a release in plain words: who is protected, from what, and from what not ──────


DELTA = Fraction(1, 10**9)
"""The δ for which ε is told, if none was stated."""


def promised(
    budget: Budget | None,
    tables: Sequence[Table],
    neighbours: str,
    earlier: Sequence[tuple[Fraction, Fraction]],
) -> list[tuple[str, str]]:
    """Say who is protected and what ε means, as questions and answers.

    Args:
        budget: what was charged.
        tables: whose rows were counted.
        neighbours: what is hidden, in words.
        earlier: what was charged, as μ² and δ, for earlier releases on which answers rest as well.
    """
    promises = [("Who is protected?", _protected(tables)), ("What is hidden?", _hidden(neighbours))]
    if budget is None:
        promises.append(("What does this release cost?", _FREE))
    if earlier:
        promises.append(("What does ε mean here?", _with_earlier(budget, earlier)))
    elif budget is not None:
        promises += [
            ("What does ε mean here?", _meaning(budget)),
            ("How well could somebody guess?", _guessing(budget)),
        ]
    return promises


_FREE = (
    "Nothing: all answers follow from earlier releases of the same data, or from public "
    "declarations. They tell nothing new to a person who has those."
)


def not_protected(tables: Sequence[Table]) -> list[str]:
    """Say what the promise does not cover."""
    bounded = [table for table in tables if table.unit is not None and table.is_bounded]
    rows = [table for table in tables if table.unit is None and not table.each_row]
    exceptions = [
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
        exceptions.insert(
            1,
            f"People with several rows in {names}, as persons: each row is protected by itself. "
            "For k rows of one person together, the protection is that of a budget in which μ, a "
            "measure of the loss of privacy, is k times as large.",
        )
    if any(table.unit is not None for table in tables):
        exceptions.insert(
            1,
            "Several units together, such as all members of a household: for k of them, the "
            "protection is that of a budget in which μ, a measure of the loss of privacy, is k "
            "times as large.",
        )
    if bounded:
        exceptions.append(
            "Rows beyond the bound. They are not counted, so totals may be too low by their number."
        )
    return exceptions


def _protected(tables: Sequence[Table]) -> str:
    said = []
    for table in tables:
        name = printable(table.name)
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
    delta = budget.delta or max(DELTA, 10 * budget.key_delta)
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
    Φ(μ/2) by what is μ-GDP, and e^ε/(1 + e^ε) by what is ε-differentially private. Where δ = Δ pays
    for keys, P ≤ P′ + δ_μ(0) + Δ for each event, so that it is at most Φ(μ/2) + Δ/2.
    """
    if budget.pure:
        return 1 / (1 + math.exp(-float(budget.amount)))
    return min(_told_apart(budget.mu_squared) + float(budget.key_delta) / 2, 1.0)


def _told_apart(mu_squared: Fraction) -> float:
    return NormalDist().cdf(math.sqrt(mu_squared) / 2)


def _guessing(budget: Budget) -> str:
    return (
        "Think of somebody who knows all other rows, and wants to know whether one of those who "
        "are protected is in the data. By mere guessing, they are right in 50 of 100 cases. With "
        f"this release they are right in at most {_percent(guessed(budget))} of 100."
    )


def _with_earlier(budget: Budget | None, earlier: Sequence[tuple[Fraction, Fraction]]) -> str:
    total, aside = _together(budget, earlier)
    delta = max(DELTA, 10 * aside)
    epsilon = epsilon_of(total, delta - aside)
    adds = "" if budget is None else f" This one alone was charged {budget}, and adds that to them."
    return (
        "Answers also use measurements of earlier releases, so the charges of all these releases "
        f"are added up. Together they are ε = {_above(Fraction(epsilon))} at δ = {_small(delta)}: "
        f"any result of all of them is at most e^ε = {_factor(epsilon)} times as likely if one of "
        "those who are protected is in the data as if not, and the other way round, except for a "
        f"probability of {_small(delta)} at most. Somebody who would be right in 50 of 100 cases "
        "by guessing whether one of them is in the data is then right in at most "
        f"{_percent(_told_apart(total) + float(aside) / 2)} of 100.{adds}"
    )


def _percent(share: float) -> str:
    """Write a share in hundredths, rounded up to one decimal."""
    return f"{min(math.ceil(share * 1000) / 10, 100.0):.1f}"


def _names(tables: Sequence[Table]) -> str:
    return ", ".join(printable(table.name) for table in tables)
