"""The second sum of an account: δ, beside μ²."""

from __future__ import annotations

import math
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction as Q
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.errors import BudgetError, LedgerError
from dpsql.privacy import Budget, Ledger, Receipt, move, open_ledger
from dpsql.privacy.amount import EVERY, Amount, on_fine_grid
from dpsql.privacy.budget import KEY_SHARE
from dpsql.privacy.conversions import mu_squared_of
from dpsql.privacy.event import Event
from dpsql.privacy.history import rows_of
from dpsql.privacy.store import Writing
from tests.privacy.ledger_tools import PURPOSE, killed, purpose
from tests.privacy.test_conversions import true_delta

FIXTURES = Path(__file__).parents[1] / "fixtures" / "ledgers"
STATED = Budget(epsilon=1, delta=1e-9)
ASIDE = Q(1, 10**10)
SPLIT = STATED.setting_aside(ASIDE)
LAST = Q(1, 10**30)


def pay(ledger: Ledger, rho: object = 0.1, delta: Q = ASIDE, **fields: str) -> Receipt:
    asked = Budget(rho=rho)  # type: ignore[call-overload]
    return ledger.charge(asked.mu_squared, asked=asked, purpose=purpose(**fields), delta=delta)


def sums(ledger: Ledger) -> tuple[Q, Q]:
    return ledger.spent, ledger.spent_delta


# ── Budgets that set δ aside ─────────────────────────────────────────────────────────────────────


@given(st.fractions(Q(1, 100), 20, max_denominator=1000), st.integers(1, 40), st.integers(1, 999))
@settings(max_examples=25, deadline=None)
def test_what_is_promised_is_what_is_stated(epsilon: Q, digits: int, thousandths: int) -> None:
    delta = Q(1, 10**digits)
    aside = delta * thousandths / 1000
    try:
        budget = Budget(epsilon=epsilon, delta=delta).setting_aside(aside)
    except BudgetError as error:
        assert "too small" in error.message  # noqa: PT017
        return
    assert (budget.epsilon, budget.delta, budget.key_delta) == (epsilon, delta, aside)
    assert budget.mu_squared == mu_squared_of(epsilon, delta - aside)
    with mpmath.workdps(80):
        part = mpmath.mpf(aside.numerator) / aside.denominator
        whole = mpmath.mpf(delta.numerator) / delta.denominator
        assert true_delta(budget.mu_squared, epsilon) + part <= whole
        assert true_delta(budget.mu_squared * (1 + Q(1, 10**16)), epsilon) + part > whole
    assert Q(budget.delta_at(epsilon)) <= delta * (1 + Q(1, 10**12))
    assert budget.epsilon_at(delta) <= float(epsilon) * (1 + 1e-12)


def test_a_tenth_of_delta_costs_0_63_percent() -> None:
    loss = 1 - SPLIT.mu_squared / STATED.mu_squared
    assert float(loss) == pytest.approx(0.00634, abs=1e-5)
    assert STATED.setting_aside(KEY_SHARE * STATED.delta) == SPLIT


def test_to_rho_and_mu_it_comes_in_addition() -> None:
    for plain in (Budget(rho=0.5), Budget(mu=1)):
        budget = plain.setting_aside(1e-10)
        assert (budget.mu_squared, budget.key_delta) == (plain.mu_squared, ASIDE)
        assert budget != plain == budget.setting_aside(0)
        assert budget.epsilon_at(1e-9) == plain.epsilon_at(9e-10)
        assert Q(budget.delta_at(3)) >= Q(plain.delta_at(3)) + ASIDE
        with pytest.raises(BudgetError, match="set aside"):
            budget.epsilon_at(1e-10)
        assert str(budget) == f"{plain} and δ = 1e-10 for keys"


def test_words_of_a_budget_that_sets_delta_aside() -> None:
    assert str(SPLIT) == "ε = 1, δ = 1e-9 (1e-10 for keys)"
    assert eval(repr(SPLIT), {"Budget": Budget}) == SPLIT  # noqa: S307
    assert SPLIT.describe(SPLIT.mu_squared) == "ε = 1 at δ = 1e-9 (ρ = 0.0164525)"
    half = SPLIT.at_most(SPLIT.mu_squared / 2)
    assert half is not None
    assert (half.key_delta, half.delta) == (ASIDE, STATED.delta)
    assert half.mu_squared <= SPLIT.mu_squared / 2 < half.mu_squared * Q(1001, 1000)
    assert SPLIT.setting_aside(0) == STATED


@pytest.mark.parametrize(
    ("budget", "aside"),
    [
        (STATED, 1e-9), (STATED, 1e-8), (STATED, -1e-10), (STATED, 1), (STATED, math.nan),
        (STATED, "x"), (STATED, None), (STATED, True), (Budget(epsilon=1, delta=0), 1e-10),
        (Budget(epsilon=Q(1, 10**6), delta=1e-6), Q(999999, 10**12)),
        (Budget(rho=1), 1), (Budget(mu=1), -1),
    ],
)  # fmt: skip
def test_what_can_not_be_set_aside(budget: Budget, aside: object) -> None:
    with pytest.raises(BudgetError) as caught:
        budget.setting_aside(aside)  # type: ignore[arg-type]
    assert caught.value.hint


@given(st.fractions(0, 1), st.fractions(0, 1))
@settings(max_examples=100, deadline=None)
def test_what_fits_exactly_fits_on_the_grid(cost: Q, total: Q) -> None:
    limit, charged = on_fine_grid(total, up=False), on_fine_grid(cost, up=True)
    assert limit <= total
    assert charged >= cost
    assert (cost <= limit) == (charged <= limit)


# ── The last fraction of both sums ───────────────────────────────────────────────────────────────


def test_both_sums_end_at_their_totals(ledger: Ledger) -> None:
    ledger.set_total(Budget(rho=1), key_delta=1e-9)
    assert (ledger.total, ledger.total_delta, ledger.spent_delta) == (2, Q(1, 10**9), 0)
    for _ in range(9):
        pay(ledger)
    assert (ledger.remaining, ledger.remaining_delta) == (Q(1, 5), ASIDE)
    before = ledger.audit()
    for rho, delta, what in (
        (Q(1, 10), ASIDE + LAST, "δ for keys: asked δ = 1.00001e-10 for keys, left δ = 1e-10"),
        (Q(1, 10) + LAST, ASIDE, "Not enough budget: asked ρ = 0.100001, left ρ = 0.1"),
        (Q(1, 10) + LAST, ASIDE + LAST, "Not enough budget"),
        (Q(1, 10), Q(1, 2), "Not enough δ"),
    ):
        with pytest.raises(BudgetError, match=what):
            pay(ledger, rho, delta)
    assert ledger.audit() == before
    receipt = pay(ledger)
    assert (ledger.remaining, ledger.remaining_delta) == (0, 0)
    ledger.verify(receipt, unused=True)
    assert (receipt.mu_squared, receipt.delta) == (Q(1, 5), ASIDE)
    assert {entry.delta for entry in ledger.entries()} == {ASIDE}
    ledger.audit()


def test_delta_ends_before_the_rest(ledger: Ledger) -> None:
    ledger.set_total(Budget(rho=1), key_delta=1e-10)
    pay(ledger)
    with pytest.raises(BudgetError, match=r"left δ = 0 for keys\.") as caught:
        pay(ledger, delta=LAST)
    assert "declare them" in str(caught.value.hint)
    pay(ledger, delta=Q(0))
    assert sums(ledger) == (Q(2, 5), ASIDE)


@pytest.mark.parametrize("share", [Q(1), Q(1, 2), Q(0)])
def test_the_total_itself_fits(share: Q, ledger: Ledger) -> None:
    """A release that is given what the total states fits, whatever part of Δ it spends."""
    ledger.set_total(STATED, key_delta=ASIDE)
    asked = ledger.understood(STATED)
    assert (asked, ledger.total) == (SPLIT, SPLIT.mu_squared)
    with pytest.raises(BudgetError, match="asked ε = 1 at δ = 1e-9"):
        ledger.charge(STATED.mu_squared, asked=STATED, purpose=PURPOSE)
    ledger.charge(asked.mu_squared, asked=asked, purpose=PURPOSE, delta=share * ASIDE)
    assert (ledger.remaining, ledger.remaining_delta) == (0, ASIDE - share * ASIDE)
    with pytest.raises(BudgetError, match="Not enough budget"):
        ledger.charge(Q(1, 10**12), asked=Budget(rho=5e-13), purpose=PURPOSE)


def test_what_is_left_of_delta_never_becomes_noise(ledger: Ledger) -> None:
    """That would break the promise, see `test_totals_can_not_be_exchanged`."""
    ledger.set_total(STATED, key_delta=ASIDE)
    with pytest.raises(BudgetError, match="Not enough budget"):
        ledger.charge(SPLIT.mu_squared + LAST, asked=STATED, purpose=PURPOSE)
    assert ledger.entries() == ()


def test_a_delta_is_charged_rounded_up_and_a_total_is_rounded_down(ledger: Ledger) -> None:
    third = Q(1, 3 * 10**9)
    ledger.set_total(Budget(rho=1), key_delta=third)
    ledger.set_total(Budget(rho=1), key_delta=third)
    total = ledger.total_delta
    assert total is not None
    assert 0 < third - total < Q(1, 10**60)
    with pytest.raises(BudgetError, match="Not enough δ"):
        pay(ledger, delta=third)
    receipt = pay(ledger, delta=total / 7)
    assert 0 <= receipt.delta - total / 7 < Q(1, 10**60)
    pay(ledger, delta=total - receipt.delta)
    assert ledger.remaining_delta == 0


@pytest.mark.parametrize("delta", [-ASIDE, Q(1), Q(2), 1e-10, 0, None])
def test_what_is_no_charge_of_delta(delta: Q, ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="fraction from 0 to below 1"):
        pay(ledger, delta=delta)
    assert ledger.entries() == ()


# ── The total of an account ──────────────────────────────────────────────────────────────────────


def test_a_new_total_sets_a_tenth_of_its_delta_aside_unless_it_says_otherwise() -> None:
    for total, key_delta, expected in (
        (STATED, None, ASIDE), (STATED, 0, 0), (STATED, 1e-11, Q(1, 10**11)),
        (STATED.setting_aside(1e-11), None, Q(1, 10**11)), (Budget(rho=1), None, 0),
        (Budget(rho=1), 1e-11, Q(1, 10**11)), (Budget(mu=1), None, 0),
    ):  # fmt: skip
        ledger = Ledger.open(None, dataset="adult")
        ledger.set_total(total, key_delta=key_delta)
        assert ledger.total_delta == expected
        assert ledger.total == total.setting_aside(expected).mu_squared
        ledger.set_total(total)  # as it was fixed
        assert ledger.total_delta == expected


def test_the_same_total_is_named_again(ledger: Ledger) -> None:
    ledger.set_total(STATED, key_delta=ASIDE)
    for again in (None, 1e-10, ASIDE):
        ledger.set_total(STATED, key_delta=again)
    ledger.set_total(Budget(rho=SPLIT.rho))  # the same amount
    ledger.set_total(Budget(rho=SPLIT.rho), key_delta=ASIDE)
    for other, aside in (
        (STATED, 0), (STATED, 2e-10), (STATED, ASIDE + LAST), (Budget(rho=STATED.rho), None),
        (Budget(rho=SPLIT.rho), 0), (Budget(epsilon=1, delta=1e-10), None),
        (Budget(epsilon=1, delta=1e-8), None), (Budget(epsilon=1, delta=1e-11), None),
    ):  # fmt: skip
        with pytest.raises(LedgerError, match=r"fixed before.*1e-10 for keys"):
            ledger.set_total(other, key_delta=aside)
    assert (ledger.total, ledger.total_delta) == (SPLIT.mu_squared, ASIDE)


def test_an_account_without_delta_is_as_it_was(ledger: Ledger) -> None:
    ledger.set_total(STATED, key_delta=0)
    assert (ledger.total, ledger.total_delta) == (STATED.mu_squared, 0)
    assert ledger.understood(STATED) is STATED
    with pytest.raises(BudgetError, match="sets no δ aside") as caught:
        pay(ledger, Q(1, 10**6))
    assert "key_delta=" in str(caught.value.hint)
    with pytest.raises(LedgerError, match="fixed before"):
        ledger.set_total(STATED, key_delta=ASIDE)
    ledger.charge(STATED.mu_squared, asked=STATED, purpose=PURPOSE)
    assert (ledger.remaining, ledger.remaining_delta) == (0, 0)


def test_delta_is_set_aside_before_anything_is_spent(ledger: Ledger) -> None:
    pay(ledger, Q(1, 1000), Q(0))
    for total, key_delta in ((STATED, ASIDE), (Budget(rho=1), ASIDE)):
        with pytest.raises(LedgerError, match="already, and δ = 1e-10 for keys can be set aside"):
            ledger.set_total(total, key_delta=key_delta)
    ledger.set_total(STATED)  # what would be so by default isn't
    assert ledger.total_delta == 0


def test_without_a_total_delta_is_recorded(ledger: Ledger) -> None:
    pay(ledger, 0.1, ASIDE)
    assert (ledger.total_delta, ledger.remaining_delta) == (None, None)
    assert sums(ledger) == (Q(1, 5), ASIDE)
    assert ledger.understood(STATED) is STATED
    with pytest.raises(LedgerError, match="δ = 1e-10 for keys was spent"):
        ledger.set_total(Budget(rho=1))


def test_a_total_without_delta_sets_none_aside(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="pure"):
        ledger.set_total(Budget(epsilon=1, delta=0), key_delta=ASIDE)
    assert ledger.total is None
    ledger.set_total(Budget(rho=1))
    assert ledger.total_delta == 0


def test_a_budget_of_a_release_is_understood_as_the_total_was(ledger: Ledger) -> None:
    ledger.set_total(STATED, key_delta=ASIDE)
    for plain in (Budget(rho=0.01), Budget(mu=0.1), Budget(epsilon=0.1, delta=0)):
        assert ledger.understood(plain) is plain
    half = ledger.understood(Budget(epsilon=0.5, delta=1e-9))
    assert half.mu_squared == mu_squared_of(Q(1, 2), Q(9, 10**10))
    for small in (1e-10, 1e-12):  # of a release alone, without all keys that are ever found
        alone = Budget(epsilon=1, delta=small)
        assert ledger.understood(alone) is alone


def test_an_account_of_an_earlier_format_has_none(path: Path) -> None:
    shutil.copyfile(FIXTURES / "spent.ledger", path)
    before = Ledger.existing(path)
    assert (before.total, before.total_delta, before.spent_delta) == (10, 0, 0)
    ledger = Ledger.open(path, dataset="spent.duckdb")
    for key_delta in (None, 0):
        ledger.set_total(Budget(rho=5), key_delta=key_delta)
    with pytest.raises(LedgerError, match="fixed before"):
        ledger.set_total(Budget(rho=5), key_delta=ASIDE)
    with pytest.raises(BudgetError, match="sets no δ aside"):
        pay(ledger, Q(1, 10**6))
    spent = ledger.spent
    pay(ledger, Q(1, 10**6), Q(0))
    assert (ledger.total, ledger.total_delta) == (10, 0)
    assert sums(ledger) == (spent + Q(2, 10**6), 0)
    assert {entry.delta for entry in ledger.entries()} == {0}


@pytest.mark.postgres
def test_an_account_is_moved_with_both_sums(tmp_path: Path, address: str) -> None:
    database = tmp_path / "people.duckdb"
    database.touch()
    ledger = open_ledger(database)
    ledger.set_total(STATED, key_delta=ASIDE)
    receipt = pay(ledger, Q(1, 10**3), ASIDE / 2)
    moved = move(database, address)
    assert (moved.total, moved.total_delta) == (SPLIT.mu_squared, ASIDE)
    assert sums(moved) == (Q(2, 10**3), ASIDE / 2)
    moved.verify(receipt, unused=True)
    with pytest.raises(BudgetError, match="Not enough δ"):
        pay(moved, Q(1, 10**3), ASIDE / 2 + LAST)
    pay(moved, Q(1, 10**3), ASIDE / 2)
    assert moved.audit().entries == 2


# ── Charges that are found again ─────────────────────────────────────────────────────────────────


def test_a_failed_charge_pays_for_the_same_delta_only(ledger: Ledger) -> None:
    first = pay(ledger)
    ledger.fail(first)
    other = pay(ledger, delta=ASIDE + LAST)
    assert other.request != first.request
    assert pay(ledger, delta=Q(0)).request != first.request
    before = sums(ledger)
    assert pay(ledger).request == first.request
    assert sums(ledger) == before


def test_a_charge_of_which_nobody_was_told_is_for_the_same_delta_only(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = ledger.store.writing

    @contextmanager
    def untold() -> Iterator[Writing]:
        with writing() as now:
            yield now
        raise LedgerError("The connection was lost.")

    monkeypatch.setattr(ledger.store, "writing", untold)
    with pytest.raises(LedgerError):
        pay(ledger)
    monkeypatch.undo()
    (lost,) = ledger.entries()
    other = pay(ledger, delta=2 * ASIDE)
    assert (other.request != lost.request, other.delta) == (True, 2 * ASIDE)
    assert pay(ledger).request == lost.request
    assert sums(ledger) == (Q(2, 5), 3 * ASIDE)


def test_what_was_not_handed_out_is_found_by_both_amounts(ledger: Ledger) -> None:
    receipt = pay(ledger)
    ledger.release(receipt, b"numbers")
    ledger.abandon(receipt)
    assert ledger.undelivered(PURPOSE, Q(1, 5)) is None
    assert ledger.undelivered(PURPOSE, Q(1, 5), ASIDE + LAST) is None
    for found in (
        ledger.undelivered(PURPOSE, Q(1, 5), ASIDE), ledger.undelivered(PURPOSE, None)
    ):  # fmt: skip
        assert found == (receipt, b"numbers")


@pytest.mark.parametrize(
    "event",
    [
        Event("total", amounts=Amount(delta=ASIDE)),
        Event("charged", "ab", Amount(delta=ASIDE), plan="p", script="s", owner="o"),
    ],
)
def test_delta_alone_is_no_amount(event: Event, ledger: Ledger) -> None:
    before = ledger.audit()
    with pytest.raises(LedgerError), ledger.store.writing() as now:
        now.append(event)
    assert ledger.audit() == before


def test_more_delta_than_the_total_is_impossible(ledger: Ledger) -> None:
    """Whoever writes past the decision is refused by the history itself, and by a server."""
    ledger.set_total(Budget(rho=1), key_delta=ASIDE)
    pay(ledger, 0.1, ASIDE)
    (entry,) = ledger.entries()
    more = Event(
        "charged", "ab", Amount({EVERY: Q(1, 10)}, LAST), tuple(map(rows_of, entry.purpose.tables)),
        plan="ab", script="cd", owner="o",
    )  # fmt: skip
    before = ledger.audit()
    with (
        pytest.raises(LedgerError, match="more was spent than its total"),
        ledger.store.writing() as now,
    ):
        now.append(more)
    assert ledger.audit() == before


# ── Many at once, and processes that are killed ──────────────────────────────────────────────────


def test_threads_spend_both_sums(ledger: Ledger) -> None:
    ledger.set_total(Budget(rho=1), key_delta=1e-9)
    results: list[str] = []

    def work(rho: Q, delta: Q) -> None:
        for _ in range(6):
            try:
                pay(ledger, rho, delta)
                results.append("spent")
            except BudgetError:
                results.append("refused")

    kinds = [(Q(1, 100), Q(3, 10**10)), (Q(3, 20), Q(0)), (Q(1, 100), Q(3, 10**10))]
    workers = [threading.Thread(target=work, args=kind) for kind in kinds]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 18
    assert results.count("spent") == 9  # 3 of the 12 that want 3e-10, and 6 of 0.15
    assert sums(ledger) == (2 * (3 * Q(1, 100) + 6 * Q(3, 20)), Q(9, 10**10))
    ledger.audit()


KILLED = """
    import os, signal, sys
    from fractions import Fraction as Q
    from dpsql.privacy import Budget, Ledger
    from tests.privacy.test_delta import pay

    def work(path):
        ledger = Ledger.open(path, dataset="adult")
        ledger.set_total(Budget(rho=1), key_delta=1e-9)
        for _ in range(3):
            pay(ledger)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="uses fork and SIGKILL")
def test_kill(tmp_path: Path) -> None:
    """Wherever a process was killed, as much was charged of the one as of the other."""
    (tmp_path / "before").mkdir()
    steps = killed(KILLED, tmp_path / "before", [])
    moments = sorted(int(m) for m in 1 + np.random.default_rng(3).choice(steps - 2, 25, False))
    assert killed(KILLED, tmp_path, moments) == steps
    reached = set()
    for moment in moments:
        ledger = Ledger.open(tmp_path / str(moment), dataset="adult")
        count = len(ledger.entries())
        assert sums(ledger) == (count * Q(1, 5), count * ASIDE)
        assert (ledger.total is None) == (ledger.total_delta is None)
        ledger.set_total(Budget(rho=1), key_delta=None if ledger.total else 1e-9)
        assert (ledger.total, ledger.total_delta) == (2, Q(1, 10**9))
        ledger.audit()
        reached.add(count)
    assert {0, 1, 2} <= reached


# ── The promise ──────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()), max_size=12))
@settings(max_examples=60, deadline=None)
def test_whatever_is_asked_next_both_sums_stay_within(asked: list[tuple[int, int, bool]]) -> None:
    """Each charge is chosen after the ones before, also as just what is left, or a bit more."""
    ledger = Ledger.open(None, dataset="adult")
    ledger.set_total(Budget(rho=1), key_delta=1e-9)
    for rho, delta, rest in asked:
        left, left_delta = ledger.remaining, ledger.remaining_delta
        assert left is not None is not left_delta
        cost = left * rho / 10 if rest else Q(rho, 10)
        cost_delta = left_delta * delta / 10 if rest else Q(delta, 10**10)
        if cost < Q(1, 10**11):
            continue
        before = sums(ledger)
        try:
            ledger.charge(cost, asked=Budget(rho=cost), purpose=PURPOSE, delta=cost_delta)
        except BudgetError:
            assert cost > left or cost_delta > left_delta
            assert sums(ledger) == before
        else:
            assert cost <= left
            assert cost_delta <= left_delta
    assert 0 <= ledger.spent <= 2
    assert 0 <= ledger.spent_delta <= Q(1, 10**9)


def test_totals_can_not_be_exchanged() -> None:
    """What an account would lose that let what is left of μ² be spent as δ, or turned over.

    Let it admit whatever keeps δ_μ(ε) + Δ ≤ δ at each moment, without totals that were fixed
    before. Spend 70 % of μ². If the unit seems to be absent, spend all of δ that is admitted then,
    else the rest of μ². With r = dP/dP′ so far, the rest of μ² is worth E(r·L − e^ε)⁺, and δ is
    worth r·δ, so it pays to look at r first: (ε, 1.99 δ) is what is kept, not (ε, δ).
    """
    epsilon, delta = 1.0, 1e-9
    whole = float(STATED.mu_squared)
    first = 0.7 * whole

    def worth(ratio: float, mu_squared: float) -> float:
        mu = math.sqrt(mu_squared)
        at = (math.log(ratio) - epsilon) / mu + mu / 2
        return ratio * _normal(at) - math.exp(epsilon) * _normal(at - mu)

    paid = delta - worth(1.0, first)
    assert worth(1.0, whole) == pytest.approx(delta, rel=1e-6)
    total, step = 0.0, 1 / 256
    for i in range(-10 * 256, 12 * 256):
        z = (i + 0.5) * step
        ratio = math.exp(-first / 2 + math.sqrt(first) * z)
        as_noise = worth(ratio, whole - first)
        as_delta = ratio * paid + (1 - paid) * max(ratio - math.exp(epsilon), 0.0)
        total += max(as_noise, as_delta) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi) * step
    assert total / delta == pytest.approx(1.997, abs=0.002)


def _normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
