"""An account, in words and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpsql.markup import Html, bar, card, facts, folded, table
from dpsql.privacy import Budget, Entry, Ledger

DELTA = Fraction(1, 10**9)
"""The δ at which amounts are shown as (ε, δ), unless another one is asked for."""
MOST_ENTRIES = 20
CHARGES = ("entry", "time (UTC)", "state", "ρ")


def amount(mu_squared: Fraction, *, up: bool, delta: Fraction = DELTA) -> str:
    """Word an amount of μ² in all three forms, rounded up or down.

    What was spent is rounded up and what is left down, so that what is read here can be asked.
    """
    forms = (Budget(rho=1), Budget(mu=1), Budget(epsilon=1, delta=delta))
    # Each form adds ρ in brackets, which stands in front here.
    words = [form.describe(mu_squared, up=up).split(" (")[0] for form in forms]
    return "; ".join(dict.fromkeys(words))


def charges(entries: Sequence[Entry]) -> list[tuple[object, ...]]:
    """Give charges as rows below `CHARGES`."""
    return [(e.seq, e.time, e.state, f"{float(e.mu_squared / 2):.6g}") for e in entries]


def account_card(account: Ledger, *, delta: Fraction = DELTA) -> Html:
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
    entries = account.entries()
    rows = charges(entries)
    hidden = len(rows) - MOST_ENTRIES
    more = f"… and {hidden:,} older ones" if hidden > 0 else ""
    listed = table(CHARGES, rows[-MOST_ENTRIES:], more=more)
    parts += [facts(known), folded(f"{len(entries):,} charges", listed)]
    return card(f"Privacy budget of {account.dataset}", *parts)
