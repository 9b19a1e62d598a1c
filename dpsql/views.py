"""What a plan, a release and an account look like in a notebook, as HTML.

The protocols say what is shown of each, so that the classes can use these functions, and nothing
is imported here from where they are made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from dpsql.errors import DpsqlError
from dpsql.markup import Html, bar, card, facts, folded, plain, preformatted, table
from dpsql.privacy import Budget, Entry

if TYPE_CHECKING:
    import polars as pl

DELTA = Fraction(1, 10**9)
"""The δ at which amounts are shown as (ε, δ), unless another one is asked for."""
MOST_TABLES = 12
MOST_ROWS = 5
MOST_UNFOLDED = 500
"""Rows of a statement that a card can show."""
MOST_ENTRIES = 20


class ShownPlan(Protocol):
    """What is shown of a plan."""

    @property
    def budget(self) -> Budget:
        """What it may spend."""

    @property
    def rmse(self) -> float:
        """The root mean squared error over all answers."""

    @property
    def gap(self) -> float:
        """How far it is from the best, relative."""

    @property
    def neighbours(self) -> str:
        """Whom it protects."""

    @property
    def binding(self) -> tuple[str, ...]:
        """The statements that decide it."""

    def expected_error(self) -> pl.DataFrame:
        """Return the error of each statement."""

    def explain(self) -> str:
        """Describe what is measured."""


class ShownRelease(Protocol):
    """What is shown of a release."""

    @property
    def charged(self) -> Budget | None:
        """What it was charged."""

    @property
    def neighbours(self) -> str:
        """Whom it protects."""

    def __iter__(self) -> Iterator[str]:
        """Name the statements."""

    def __len__(self) -> int:
        """Count the statements."""

    def batches(self, name: str, rows: int = ...) -> Iterator[pl.DataFrame]:
        """Give an answer piece by piece."""


class ShownAccount(Protocol):
    """What is shown of a ledger."""

    @property
    def dataset(self) -> str:
        """The name of the data set."""

    @property
    def total(self) -> Fraction | None:
        """The most μ² that may be spent."""

    @property
    def spent(self) -> Fraction:
        """The μ² spent."""

    @property
    def protected(self) -> object:
        """For whom that is a promise."""

    def entries(self) -> Sequence[Entry]:
        """List the charges."""


def amount(mu_squared: Fraction, *, up: bool, delta: Fraction = DELTA) -> str:
    """Word an amount of μ² in all three forms, rounded up or down.

    What was spent is rounded up and what is left down, so that what is read here can be asked.
    """
    forms = (Budget(rho=1), Budget(mu=1), Budget(epsilon=1, delta=delta))
    # Each form adds ρ in brackets, which stands in front here.
    words = [form.describe(mu_squared, up=up).split(" (")[0] for form in forms]
    return "; ".join(dict.fromkeys(words))


def plan_card(plan: ShownPlan) -> Html:
    """Show what a plan costs and how well it answers."""
    known: dict[str, object] = {
        "budget": plan.budget,
        "neighbours": plan.neighbours,
        "overall RMSE": plain(plan.rmse),
        "certified gap": f"{plan.gap:.2%}" if math.isfinite(plan.gap) else "not known",
    }
    if plan.binding:
        known["decided by"] = ", ".join(plan.binding)
    errors = plan.expected_error()
    header = [name.replace("_", " ") for name in errors.columns]
    return card(
        "Plan (planning spends nothing)",
        facts(known),
        table(header, errors.rows()),
        folded("what is measured, and its share of the budget", preformatted(plan.explain())),
    )


def release_card(release: ShownRelease) -> Html:
    """Show what a release cost, and the first rows of its answers."""
    known = {"charged": release.charged or "nothing", "neighbours": release.neighbours}
    heads = [_head(release, name) for name in islice(release, MOST_TABLES)]
    rest = len(release) - len(heads)
    return card(
        f"Release of {len(release):,} statement{'' if len(release) == 1 else 's'}",
        facts(known),
        *heads,
        *([f"… and {rest:,} more statements"] if rest else []),
    )


def account_card(account: ShownAccount, *, delta: Fraction = DELTA) -> Html:
    """Show what was spent on a data set, what is left, and the last charges."""
    total, spent = account.total, account.spent
    known: dict[str, object] = {"spent": amount(spent, up=True, delta=delta)}
    known["protects"] = account.protected
    parts: list[Html] = []
    if total is None:
        known["total"] = "not fixed: spending is recorded and not limited"
    else:
        known["left"] = amount(total - spent, up=False, delta=delta)
        known["total"] = amount(total, up=True, delta=delta)
        share = float(spent / total)
        parts.append(bar(share, f"{share:.1%} of the total is spent"))
    entries = list(account.entries())
    rows = [(e.seq, e.time, e.state, f"{float(e.mu_squared / 2):.6g}") for e in entries]
    hidden = len(rows) - MOST_ENTRIES
    charges = table(
        ["entry", "time (UTC)", "state", "ρ"],
        rows[-MOST_ENTRIES:],
        more=f"… and {hidden:,} older ones" if hidden > 0 else "",
    )
    parts += [facts(known), folded(f"{len(entries):,} charges", charges)]
    return card(f"Privacy budget of {account.dataset}", *parts)


def _head(release: ShownRelease, name: str) -> Html:
    """Show the first rows of a statement, and behind a click the next; or why they can't be had."""
    try:
        frame = next(release.batches(name, MOST_UNFOLDED + 1))
    except DpsqlError as error:
        return card(name, error.message)
    rows = frame.rows()
    parts = [table(frame.columns, rows[:MOST_ROWS])]
    if len(rows) > MOST_ROWS:
        more = f"… and more: release[{name!r}]" if len(rows) > MOST_UNFOLDED else ""
        title = f"the first {MOST_UNFOLDED:,} rows" if more else f"all {len(rows):,} rows"
        parts.append(folded(title, table(frame.columns, rows[:MOST_UNFOLDED], more=more)))
    return card(name, *parts)
