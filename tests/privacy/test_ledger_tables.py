"""Charges for several tables: one amount, and each table as if it were the only one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as Q
from pathlib import Path

import pytest

from dpsql.errors import BudgetError, LedgerError, StaleSchemaError
from dpsql.privacy import Budget, Ledger, Purpose, Receipt
from dpsql.privacy.event import Event, Line, TableRows
from dpsql.privacy.history import History
from dpsql.privacy.purpose import EACH_ROW, ChargedTable
from tests.privacy.ledger_tools import CONTENT, PURPOSE, digest

ASKED = Budget(rho=Q(1, 10))


def table(name: str, **fields: str) -> ChargedTable:
    said = {"schema": "", "unit": "", "vintage": ""} | fields
    return ChargedTable(digest(name), *(digest(n + of) for n, of in said.items()))


ORDERS, ITEMS = table("orders"), table("items")
TWO = replace(PURPOSE, others=(ORDERS,))


def charge(ledger: Ledger, purpose: Purpose = TWO, **how: object) -> Receipt:
    return ledger.charge(ASKED.mu_squared, asked=ASKED, purpose=purpose, **how)  # type: ignore[arg-type]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger.open(None, dataset="shop")


def test_one_amount_is_charged_and_each_table_is_bound(ledger: Ledger) -> None:
    receipt = charge(ledger)
    assert ledger.spent == Q(1, 5)
    (entry,) = ledger.entries()
    assert entry.purpose == TWO == receipt.purpose
    assert ledger.protected == (2, 0)
    ledger.verify(receipt, unused=True)
    charge(ledger)
    charge(ledger, PURPOSE)
    charge(ledger, replace(PURPOSE, others=(ITEMS, ORDERS)))
    assert ledger.spent == Q(4, 5)
    assert ledger.protected == (3, 0)


@pytest.mark.parametrize("others", [(ORDERS,), (ITEMS, ORDERS), (ORDERS, ITEMS)])
def test_a_table_with_another_unit_stops_all(ledger: Ledger, others: tuple[ChargedTable]) -> None:
    first = ORDERS
    charge(ledger, Purpose(PURPOSE.plan, PURPOSE.script, *first))
    wrong = tuple(o if o != ORDERS else table("orders", unit="x") for o in others)
    with pytest.raises(LedgerError, match="Another unit"):
        charge(ledger, replace(PURPOSE, others=wrong))
    with pytest.raises(LedgerError, match="Another unit"):
        ledger.check(replace(PURPOSE, others=wrong))
    assert ledger.spent == Q(1, 5)
    assert ledger.protected == (1, 0)
    assert len(ledger.entries()) == 1


def test_schemas_are_accepted_one_by_one(ledger: Ledger) -> None:
    charge(ledger)
    new = replace(PURPOSE, schema=digest("new"), others=(table("orders", schema="new"),))
    for accepted in (False, frozenset({PURPOSE.table}), frozenset({ORDERS.table})):
        with pytest.raises(StaleSchemaError):
            charge(ledger, new, accept_schema=accepted)
        with pytest.raises(StaleSchemaError):
            ledger.check(new, accept_schema=accepted)
    assert ledger.spent == Q(1, 5)
    charge(ledger, new, accept_schema=frozenset({PURPOSE.table, ORDERS.table}))
    newer = replace(new, others=(table("orders", schema="newer"),))
    charge(ledger, newer, accept_schema=frozenset({ORDERS.table}))
    assert ledger.spent == Q(3, 5)


def test_more_than_is_left_is_refused_and_binds_nothing(ledger: Ledger) -> None:
    ledger.set_total(Budget(rho=Q(1, 20)))
    with pytest.raises(BudgetError):
        charge(ledger)
    assert ledger.protected == (0, 0)


def test_rows_that_are_protected_one_by_one_are_not_charged_with_others() -> None:
    for purpose_ in (
        lambda: replace(PURPOSE, unit=EACH_ROW, others=(ORDERS,)),
        lambda: replace(PURPOSE, others=(ORDERS._replace(unit=EACH_ROW),)),
        lambda: replace(PURPOSE, others=(ORDERS, ORDERS)),
        lambda: replace(PURPOSE, others=(ORDERS._replace(table=PURPOSE.table),)),
    ):
        with pytest.raises(LedgerError, match="names each table once"):
            purpose_()


@pytest.mark.parametrize("field", ChargedTable._fields)
@pytest.mark.parametrize("said", ["SELECT 1", "", "AB", None, "ab\n"])
def test_only_digests_are_kept_of_further_tables(field: str, said: str) -> None:
    with pytest.raises(LedgerError, match="digests"):
        replace(PURPOSE, others=(ORDERS._replace(**{field: said}),))


def test_what_is_kept_is_found_for_each_table(ledger: Ledger) -> None:
    ledger.release(charge(ledger), CONTENT)
    for one in TWO.tables:
        ((entry, content),) = ledger.measurements(
            table=one.table, unit=one.unit, vintage=one.vintage
        )
        assert (entry.purpose, content) == (TWO, CONTENT)
    assert not ledger.measurements(table=ITEMS.table, unit=ITEMS.unit, vintage=ITEMS.vintage)
    other = {"unit": PURPOSE.unit, "vintage": digest("vintage" + "later")}
    assert not ledger.measurements(table=ORDERS.table, **other)
    assert TWO.of(ORDERS.table) == ORDERS
    assert TWO.of(ITEMS.table) is None


def test_a_question_is_the_same_only_for_the_same_tables(ledger: Ledger) -> None:
    receipt = charge(ledger)
    ledger.release(receipt, CONTENT)
    ledger.abandon(receipt)
    for other in (
        PURPOSE,
        replace(PURPOSE, others=(ORDERS, ITEMS)),
        replace(PURPOSE, others=(table("orders", vintage="x"),)),
        replace(PURPOSE, others=(table("orders", schema="x"),)),
    ):
        assert ledger.undelivered(other, ASKED.mu_squared) is None
    assert ledger.undelivered(TWO, ASKED.mu_squared) == (receipt, CONTENT)


def test_a_receipt_for_other_tables_is_refused(ledger: Ledger) -> None:
    receipt = charge(ledger)
    for other in (PURPOSE, replace(PURPOSE, others=(ITEMS,))):
        with pytest.raises(LedgerError, match="does not hold"):
            ledger.release(replace(receipt, purpose=other), CONTENT)


def rows(*tables: ChargedTable, version: str | None = None) -> tuple[TableRows, ...]:
    return tuple(
        TableRows(t.table, t.schema, (t.unit,), t.vintage if version is None else version)
        for t in tables
    )


def following(history: History, event: Event) -> None:
    line = Line(history.seq + 1, event.text, "")
    history.add(line._replace(hash=line.linked(history.hash)))


def begun() -> History:
    history = History(3, "x", "y")
    for name, one in (("1", ORDERS), ("2", ITEMS)):
        following(history, Event("bound", name, rows=rows(one, version=""), time="now"))
    return history


def charged(*tables: TableRows) -> Event:
    from dpsql.privacy.amount import EVERY, Amount

    amount = Amount({EVERY: Q(1, 5)})
    return Event("charged", "ab", amount, tables, plan="aa", script="bb", owner="o", time="now")


def test_a_possible_history_is_taken() -> None:
    history = begun()
    following(history, charged(*rows(ORDERS, ITEMS)))
    assert history.spent.of("*") == Q(1, 5)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (rows(ORDERS, ORDERS), "impossible"),
        (rows(ORDERS, table("other")), "impossible"),
        (rows(ORDERS, table("items", unit="x")), "impossible"),
        (rows(ORDERS, table("items", schema="x")), "impossible"),
        (rows(ORDERS, ITEMS._replace(unit=EACH_ROW)), "impossible"),
        (rows(ORDERS, ITEMS, version=""), "impossible"),
        ((), "impossible"),
        ((replace(rows(ORDERS)[0], roots=(ORDERS.unit, "ab")), *rows(ITEMS)), "several kinds"),
    ],
)
def test_an_impossible_charge_is_refused(tables: tuple[TableRows], said: str) -> None:
    history = begun()
    with pytest.raises(LedgerError, match=said):
        following(history, charged(*tables))
    assert history.spent.of("*") == 0


def test_several_tables_are_not_bound_at_once() -> None:
    with pytest.raises(LedgerError, match="several tables"):
        following(begun(), Event("bound", "3", rows=rows(ORDERS, ITEMS, version=""), time="now"))


def test_ledgers_on_disk_keep_all_tables(tmp_path: Path) -> None:
    path = tmp_path / "shop.ledger"
    receipt = charge(Ledger.open(path, dataset="shop"))
    again = Ledger.open(path, dataset="shop")
    assert [entry.purpose for entry in again.entries()] == [TWO]
    again.verify(receipt)
    assert again.audit()


def test_purposes_of_one_table_are_as_they_were() -> None:
    assert PURPOSE.tables == (
        ChargedTable(PURPOSE.table, PURPOSE.schema, PURPOSE.unit, PURPOSE.vintage),
    )
