"""The summary of a release, by the items of NIST SP 800-226, "Guidelines for Evaluating DP"."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from fractions import Fraction

from dpsql.errors import printable
from dpsql.privacy import Budget
from dpsql.release.facts import Earlier, Facts

WIDTH = 100
DELTAS = (Fraction(1, 10**6), Fraction(1, 10**9), Fraction(1, 10**12))
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
    return ", ".join(printable(table.shown) for table in facts.tables)


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
        of = f" of {printable(table.shown)}" if facts.others else ""
        yield "privacy unit", counted + of
    if facts.budget is None:
        yield "budget", "nothing was charged: all follows from earlier releases or from the domains"
    else:
        yield "budget", f"{facts.budget} (as asked)"
        yield from (("", line) for line in budget_forms(facts.budget))
    if facts.receipt is not None:
        yield "ledger", f"entry {facts.receipt.seq} of ledger {facts.receipt.ledger}"
    for entry in dict.fromkeys(facts.earlier):  # of several tables it is named once for each
        yield "rests also on", rested_on(entry)
    yield "trust model", _TRUST


def budget_forms(budget: Budget) -> list[str]:
    """Word a budget in all forms; ε is rounded up."""
    deltas = DELTAS if budget.delta is None else (budget.delta, *DELTAS)
    rho, mu = (_in_form(form, budget.mu_squared) for form in (Budget(rho=1), Budget(mu=1)))
    forms = [f"{rho}, {mu}"]
    for delta in deltas:
        small = f"{float(delta):g}".replace("e-0", "e-")
        forms.append(f"ε = {budget.epsilon_at(delta):.6g} at δ = {small}")
    return list(dict.fromkeys(forms))


def rested_on(entry: Earlier) -> str:
    """Name an earlier charge."""
    return f"entry {entry.seq} of {entry.time}, charged {_in_form(Budget(rho=1), entry.mu_squared)}"


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
    """Say which mechanism measured what."""
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
    yield "variances", "beside each value; they are about the noise alone, and known beforehand"


def limits(facts: Facts) -> Iterator[tuple[str, str]]:
    """Say what answers are of, and what they say nothing about."""
    yield "domains", "declared by the data owner, not learned"
    bounded = [table for table in facts.tables if table.unit is not None and table.is_bounded]
    if bounded:
        of = [f" of {printable(table.shown)}" * bool(facts.others) for table in bounded]
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
    yield "versions", ", ".join(f"{k} {v}" for k, v in facts.versions.items())


def _statements(number: int) -> str:
    return "1 statement" if number == 1 else f"{number:,} statements"
