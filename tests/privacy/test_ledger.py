"""What the ledger counts, and what it lets pass."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as Q

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.errors import BudgetError, LedgerError, StaleSchemaError
from dpsql.hints import for_command
from dpsql.privacy import Budget, Ledger, Purpose
from dpsql.privacy.purpose import EACH_ROW
from tests.privacy.ledger_tools import PURPOSE, answer, purpose, spend


def test_a_new_ledger(ledger: Ledger) -> None:
    assert (ledger.total, ledger.spent, ledger.remaining) == (None, 0, None)
    assert ledger.entries() == ()
    assert len(ledger.id) == 32


def test_ten_tenths_are_all(ledger: Ledger) -> None:
    ledger.set_total(Budget(rho=1))
    for _ in range(10):
        spend(ledger)
    assert (ledger.total, ledger.spent, ledger.remaining) == (2, 2, 0)
    with pytest.raises(BudgetError, match=r"asked ρ = 5e-13, left ρ = 0, short by ρ = 5e-13"):
        spend(ledger, 5e-13)
    assert ledger.spent == 2
    assert len(ledger.entries()) == 10


def test_a_refusal_says_what_is_left_and_how_to_go_on(ledger: Ledger) -> None:
    ledger.set_total(Budget(rho=1))
    spend(ledger, 0.7)
    before = ledger.entries()
    with pytest.raises(BudgetError) as caught:
        spend(ledger, 0.5)
    assert caught.value.message == (
        "Not enough budget: asked ρ = 0.5, left ρ = 0.3, short by ρ = 0.2."
    )
    assert caught.value.hint == "ask for at most dpsql.Budget(rho=0.3)."
    for asked, offer in (
        (Budget(mu=1), r"dpsql\.Budget\(mu=0\.774596\)"),
        (Budget(epsilon=9, delta=1e-9), r"dpsql\.Budget\(epsilon=[\d.]+, delta=1e-9\)"),
    ):
        with pytest.raises(BudgetError, match=offer):
            ledger.charge(asked.mu_squared, asked=asked, purpose=PURPOSE)
    assert ledger.entries() == before
    spend(ledger, 0.3)
    assert ledger.remaining == 0


def test_without_a_total_spending_is_recorded(ledger: Ledger) -> None:
    spend(ledger, 3)
    assert (ledger.spent, ledger.remaining) == (6, None)
    with pytest.raises(LedgerError, match="already"):
        ledger.set_total(Budget(rho=2))
    ledger.set_total(Budget(rho=3))
    assert ledger.remaining == 0


def test_the_total_is_fixed_once(ledger: Ledger) -> None:
    ledger.set_total(Budget(rho=0.5))
    ledger.set_total(Budget(rho=0.5))
    ledger.set_total(Budget(mu=1))  # the same amount
    for other in (Budget(rho=0.6), Budget(rho=0.4), Budget(epsilon=1, delta=1e-9)):
        with pytest.raises(LedgerError, match="fixed before") as caught:
            ledger.set_total(other)
        assert caught.value.hint
    assert ledger.total == 1


def test_receipts_and_entries(ledger: Ledger) -> None:
    first, second = spend(ledger), spend(ledger, plan="other")
    assert first.ledger == second.ledger == ledger.id
    assert (first.seq, second.seq) == (2, 3)  # the first charge binds the table before
    assert first.request != second.request
    assert (first.mu_squared, first.purpose, first.plan) == (Q(1, 5), PURPOSE, PURPOSE.plan)
    entry, other = ledger.entries()
    assert (entry.seq, entry.request, entry.mu_squared) == (2, first.request, Q(1, 5))
    assert (entry.purpose, other.purpose) == (PURPOSE, purpose(plan="other"))
    assert (entry.content, entry.released) == ("", 0)
    assert entry.time.endswith("+00:00")


def test_states(ledger: Ledger) -> None:
    first, second = spend(ledger), spend(ledger)
    ledger.release(second, b"numbers")
    assert [e.state for e in ledger.entries()] == ["charged", "released"]
    ledger.deliver(second)
    assert [e.state for e in ledger.entries()] == ["charged", "delivered"]
    ledger.deliver(second)
    for again in (b"numbers", b"others", None):
        with pytest.raises(LedgerError, match="used before"):
            ledger.release(second, again)
    with pytest.raises(LedgerError, match="Nothing was released"):
        ledger.deliver(first)
    ledger.release(first, None)
    with pytest.raises(LedgerError, match="used before"):
        ledger.release(first, b"late")
    assert ledger.spent == Q(2, 5)
    assert ledger.audit().events == 6  # a binding, 2 charges, 2 releases, a delivery


def test_only_an_unused_receipt_is_good_for_measuring(ledger: Ledger) -> None:
    receipt = spend(ledger)
    ledger.verify(receipt, unused=True)
    ledger.release(receipt, b"")
    ledger.verify(receipt)
    with pytest.raises(LedgerError, match="used before"):
        ledger.verify(receipt, unused=True)
    ledger.deliver(receipt)
    with pytest.raises(LedgerError, match="used before"):
        ledger.verify(receipt, unused=True)


def test_foreign_receipts(ledger: Ledger) -> None:
    receipt = spend(ledger)
    ledger.verify(receipt)
    other = Ledger.open(None, dataset="adult")
    for held in (
        replace(receipt, ledger="0" * 32),
        replace(receipt, seq=7),
        replace(receipt, request="0" * 32),
        replace(receipt, mu_squared=Q(1, 10)),
        replace(receipt, purpose=purpose(plan="other")),
        replace(receipt, purpose=purpose(vintage="other")),
        spend(other),
    ):
        for use in (ledger.verify, ledger.deliver, lambda held: ledger.release(held, b"")):
            with pytest.raises(LedgerError, match="does not hold"):
                use(held)
    with pytest.raises(LedgerError, match="does not hold"):
        ledger.content(other.entries()[0])
    assert [e.state for e in ledger.entries()] == ["charged"]
    with pytest.raises(AttributeError):
        receipt.mu_squared = Q(0)  # type: ignore[misc]


def test_costs_below_what_was_asked_are_rounded_up_a_little(ledger: Ledger) -> None:
    asked = Budget(rho=0.5)
    cost = Q(10**40 - 1, 3 * 10**40)
    receipt = ledger.charge(cost, asked=asked, purpose=PURPOSE)
    assert cost <= receipt.mu_squared < cost + Q(1, 10**30)
    assert ledger.spent == receipt.mu_squared
    # An amount that the grid can't hold is charged as it was stated, never more.
    third = Budget(rho=Q(1, 3))
    receipt = ledger.charge(third.mu_squared, asked=third, purpose=PURPOSE)
    assert receipt.mu_squared == Q(2, 3)


@pytest.mark.parametrize("cost", [Q(0), Q(-1), 1, 0.5, float("nan"), "1", None, True])
def test_bad_costs(ledger: Ledger, cost: object) -> None:
    with pytest.raises(BudgetError):
        ledger.charge(cost, asked=Budget(rho=1), purpose=PURPOSE)  # type: ignore[arg-type]
    assert ledger.spent == 0


def test_the_longest_amounts_can_be_read_again(ledger: Ledger) -> None:
    """Python refuses to read integers of more than 4,300 digits."""
    longest = (1 << 1399) + 1
    for amount in (Q(longest, 100 * (longest >> 8)), Q(longest >> 10, longest)):
        before = ledger.spent
        budget = Budget(mu=amount)
        ledger.charge(budget.mu_squared, asked=budget, purpose=PURPOSE)
        assert ledger.spent == before + budget.mu_squared


def test_a_cost_above_what_was_asked(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="more than was asked"):
        ledger.charge(Q(2), asked=Budget(rho=0.5), purpose=PURPOSE)
    assert ledger.spent == 0


@pytest.mark.parametrize("field", [f for f in Purpose.__dataclass_fields__ if f != "others"])
@pytest.mark.parametrize("digest", ["SELECT 1", "", "AB", "g" * 64, "a" * 200, None, "ab\n"])
def test_only_digests_are_kept(field: str, digest: str) -> None:
    with pytest.raises(LedgerError, match="digests"):
        replace(PURPOSE, **{field: digest})


@given(st.lists(st.fractions(Q(1, 1000), 1, max_denominator=10**4), max_size=8))
@settings(max_examples=25, deadline=None)
def test_the_sum_never_passes_the_total(amounts: list[Q]) -> None:
    ledger = Ledger.open(None, dataset="t")
    ledger.set_total(Budget(rho=1))
    spent = Q(0)
    for rho in amounts:
        if spent + rho <= 1:
            spend(ledger, rho)
            spent += rho
        else:
            with pytest.raises(BudgetError):
                spend(ledger, rho)
    assert ledger.spent == 2 * spent == sum(e.mu_squared for e in ledger.entries())


# What a table is bound to


def test_a_table_keeps_its_schema(ledger: Ledger) -> None:
    ledger.check(PURPOSE)
    assert ledger.audit().events == 0  # checking binds nothing
    spend(ledger)
    spend(ledger, schema="another", table="another")
    newest = spend(ledger, plan="p", script="s", vintage="v")
    ledger.check(PURPOSE)
    changed = purpose(schema="changed")
    for refuse in (lambda: ledger.check(changed), lambda: spend(ledger, schema="changed")):
        with pytest.raises(StaleSchemaError, match="changed since the release of") as caught:
            refuse()
        assert f"{ledger.entries()[-1].time}, entry {newest.seq}." in caught.value.message
        assert "accept_schema=True" in str(caught.value.hint)
    assert len(ledger.entries()) == 3


def test_a_change_of_schema_can_be_meant(ledger: Ledger) -> None:
    asked = Budget(rho=0.1)

    def accept(schema: str) -> None:
        ledger.charge(
            asked.mu_squared, asked=asked, purpose=purpose(schema=schema), accept_schema=True
        )

    accept("first")  # nothing to be changed yet
    accept("first")
    assert ledger.audit().events == 3
    ledger.check(purpose(schema="second"), accept_schema=True)
    assert ledger.audit().events == 3
    accept("second")
    assert ledger.audit().events == 5
    spend(ledger, schema="second")
    with pytest.raises(StaleSchemaError):  # the first one is now the other one
        spend(ledger, schema="first")
    accept("first")
    assert [e.schema for e in ledger.entries()] == [
        purpose(schema=name).schema for name in ("first", "first", "second", "second", "first")
    ]


def test_a_table_keeps_its_unit(ledger: Ledger) -> None:
    receipt = spend(ledger)
    asked, other = Budget(rho=0.1), purpose(unit="other", schema="other")
    for accept in (False, True):
        with pytest.raises(LedgerError, match=f"Another unit .*, entry {receipt.seq};"):
            ledger.check(other, accept_schema=accept)
        with pytest.raises(LedgerError, match="Another unit"):
            ledger.charge(asked.mu_squared, asked=asked, purpose=other, accept_schema=accept)
    spend(ledger, unit="other", table="other")  # another table may have another one
    assert len(ledger.entries()) == 2


def test_beside_a_table_with_a_unit_others_need_one(ledger: Ledger) -> None:
    assert str(ledger.protected) == "nothing was charged yet"
    spend(ledger, table="rows")  # digests of tests are no EACH_ROW: this is a unit
    single = replace(purpose(table="single"), unit=EACH_ROW)
    asked = Budget(rho=0.1)
    with pytest.raises(LedgerError, match="this one has none") as caught:
        ledger.check(single)
    assert "EACH_ROW" in caught.value.hint
    assert "--each-row" in for_command(caught.value.hint)
    for accept in (False, True):
        with pytest.raises(LedgerError, match="this one has none"):
            ledger.charge(asked.mu_squared, asked=asked, purpose=single, accept_schema=accept)
    assert len(ledger.entries()) == 1
    assert str(ledger.protected) == "privacy units with all their rows"
    ledger.check(single, each_row=True)
    ledger.charge(asked.mu_squared, asked=asked, purpose=single, each_row=True)
    ledger.check(single)  # it is bound so for good
    assert ledger.protected == (1, 1)
    assert str(ledger.protected).endswith("in one table, each row by itself in one table")


def test_a_table_that_was_charged_for_by_rows_before_needs_the_owner_s_word_too(
    ledger: Ledger,
) -> None:
    single, asked = replace(purpose(table="single"), unit=EACH_ROW), Budget(rho=0.1)
    ledger.charge(asked.mu_squared, asked=asked, purpose=single)
    spend(ledger, table="with a unit")
    for accept in (False, True):
        with pytest.raises(LedgerError, match="this one has none") as caught:
            ledger.charge(asked.mu_squared, asked=asked, purpose=single, accept_schema=accept)
        assert "EACH_ROW" in caught.value.hint
        assert "declare its unit" not in caught.value.hint  # it is bound to have none
    with pytest.raises(LedgerError, match="this one has none"):
        ledger.check(single)
    assert len(ledger.entries()) == 2
    ledger.charge(asked.mu_squared, asked=asked, purpose=single, each_row=True)
    ledger.check(single)  # it was said once for all


def test_without_units_each_row_is_protected(ledger: Ledger) -> None:
    asked = Budget(rho=0.1)
    for table in ("one", "other"):
        single = replace(purpose(table=table), unit=EACH_ROW)
        ledger.charge(asked.mu_squared, asked=asked, purpose=single)
    assert str(ledger.protected) == "each row by itself"
    spend(ledger, table="with a unit")
    with pytest.raises(LedgerError, match="Another unit"):
        ledger.check(purpose(table="one"))


def test_a_refused_charge_binds_nothing(ledger: Ledger) -> None:
    ledger.set_total(Budget(rho=1))
    with pytest.raises(BudgetError):
        spend(ledger, 2)
    spend(ledger, 1, schema="another", unit="another")
    assert ledger.remaining == 0


def test_the_budget_is_common_to_all_tables_and_vintages(ledger: Ledger) -> None:
    ledger.set_total(Budget(rho=1))
    for fields in ({"table": "a"}, {"table": "b"}, {"vintage": "a"}, {"vintage": "b"}):
        answer(ledger, **fields)
    assert ledger.spent == Q(4, 5)
    with pytest.raises(BudgetError, match=r"left ρ = 0\.6"):
        spend(ledger, 0.7, table="c")
