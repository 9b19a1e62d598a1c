"""An account, in words and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpsql.markup import Html, bar, card, facts, folded, table
from dpsql.privacy import Budget, Entry, Ledger
from dpsql.privacy.budget import shown_delta

DELTA = Fraction(1, 10**9)
"""The δ at which amounts are shown as (ε, δ), unless another one is asked for."""
MOST_ENTRIES = 20
_CHARGES = ("entry", "time (UTC)", "state", "ρ")


def amount(
    mu_squared: Fraction,
    *,
    up: bool,
    delta: Fraction = DELTA,
    key_delta: Fraction = Fraction(0),
    aside: Fraction | None = None,
) -> str:
    """Word an amount of μ² in all three forms, rounded up or down.

    What was spent is rounded up and what is left down, so that what is read here can be asked.

    Args:
        mu_squared: the amount.
        up: whether it is rounded up.
        delta: where ε is shown.
        key_delta: the δ that belongs to the amount. It is a part of `delta`; where that is no more,
            there is no ε.
        aside: the δ that an account sets aside: ε is shown beside that, if it is less than `delta`.
    """
    forms = [Budget(rho=1), Budget(mu=1)]
    beside = key_delta if aside is None or aside >= delta else aside
    if beside < delta:
        forms.append(Budget(epsilon=1, delta=delta).setting_aside(beside))
    # Each form adds ρ in brackets, which stands in front here.
    words = [form.describe(mu_squared, up=up).split(" (")[0] for form in forms]
    words += [shown_delta(key_delta, up=up)] if key_delta else []
    return "; ".join(dict.fromkeys(words))


def charges(entries: Sequence[Entry]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Give charges as a table: its columns, with δ if any has some, and its rows."""
    rows = [(e.seq, e.time, e.state, f"{float(e.mu_squared / 2):.6g}") for e in entries]
    if not any(entry.delta for entry in entries):
        return _CHARGES, [*rows]
    deltas = [f"{float(entry.delta):.6g}" for entry in entries]
    return (*_CHARGES, "δ"), [(*row, delta) for row, delta in zip(rows, deltas, strict=True)]


def spent_of(account: Ledger, *, delta: Fraction = DELTA) -> str:
    """Word what was spent on a data set: ε as releases are charged, see `Ledger.understood`."""
    spent_delta, aside = account.spent_delta, account.total_delta
    return amount(account.spent, up=True, delta=delta, key_delta=spent_delta, aside=aside)


def left_of(account: Ledger, *, delta: Fraction = DELTA) -> str | None:
    """Word what is left of the total of a data set, if there is one; ε can be asked for."""
    left, left_delta, aside = account.remaining, account.remaining_delta, account.total_delta
    if left is None or left_delta is None:
        return None
    return amount(left, up=False, delta=delta, key_delta=left_delta, aside=aside)


def total_of(account: Ledger, *, delta: Fraction = DELTA) -> str | None:
    """Word the total of a data set, if there is one."""
    total, total_delta = account.total, account.total_delta
    if total is None or total_delta is None:
        return None
    return amount(total, up=True, delta=delta, key_delta=total_delta)


def account_card(account: Ledger, *, delta: Fraction = DELTA) -> Html:
    """Show what was spent on a data set, what is left, and the last charges."""
    total, left = total_of(account, delta=delta), left_of(account, delta=delta)
    known: dict[str, object] = {"spent": spent_of(account, delta=delta)}
    known["protects"] = account.protected
    parts: list[Html] = []
    if total is None:
        known["total"] = "not fixed: spending is recorded and not limited"
    else:
        known["left"] = left
        known["total"] = total
        share = share_spent(account) or 0.0
        parts.append(bar(share, f"{share:.1%} of the total is spent"))
    entries = account.entries()
    columns, rows = charges(entries)
    hidden = len(rows) - MOST_ENTRIES
    more = f"… and {hidden:,} older ones" if hidden > 0 else ""
    listed = table(columns, rows[-MOST_ENTRIES:], more=more)
    parts += [facts(known), folded(f"{len(entries):,} charges", listed)]
    return card(f"Privacy budget of {account.dataset}", *parts)


def share_spent(account: Ledger) -> float | None:
    """Return what share of the total of μ² is spent, if there is one."""
    total = account.total
    return min(float(account.spent / total), 1.0) if total else None
