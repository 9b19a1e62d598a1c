"""Damage to the ledger's file, by accident or by hand, and what notices it."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from fractions import Fraction as Q
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import LedgerError
from dpsql.privacy import Budget, Ledger
from dpsql.privacy.amount import EVERY, Amount
from dpsql.privacy.event import Event, Line, TableRows
from dpsql.privacy.history import History
from tests.privacy.ledger_tools import (
    CONTENT,
    PURPOSE,
    answer,
    edit,
    refused,
    rows,
    spend,
    unguarded,
)

FAR = "0" * 64
OTHER = "ab" * 32
TABLE = TableRows(PURPOSE.table, PURPOSE.schema, (PURPOSE.unit,))
CHARGE: dict[str, Any] = {
    "request": "r", "amounts": Amount({EVERY: Q(1)}), "plan": "ab", "script": "ab", "owner": "o",
    "rows": (replace(TABLE, version="ab"),),
}  # fmt: skip


def reworded(seq: int, old: str, new: str) -> list[str]:
    """Change the text of an event."""
    old, new = (text.replace("'", "''") for text in (old, new))
    return unguarded(f"UPDATE chain SET event = replace(event, '{old}', '{new}') WHERE seq = {seq}")


def added(seq: int, kind: str, amount: str) -> list[str]:
    """Add an event with a false hash."""
    text = f'{{"amounts":{{"mu_squared":{{"*":"{amount}"}}}},"format":3,"kind":"{kind}"'
    return [f"INSERT INTO chain VALUES ({seq}, '{text},\"time\":\"now\"}}', '{FAR}')"]


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TRIGGER chain_update"],
        ["DROP TRIGGER measurement_delete"],
        reworded(3, '"1/5"', '"1/100"'),
        reworded(3, '"1/5"', '"-1/5"'),
        reworded(3, '"1/5"', '"0.2"'),
        reworded(1, '"2/1"', '"100/1"'),
        reworded(3, '"time":"', '"time":"about '),
        unguarded(f"UPDATE chain SET hash = '{FAR}' WHERE seq = 5"),
        reworded(4, '"released"', '"delivered"'),
        reworded(2, PURPOSE.schema, OTHER),
        reworded(2, PURPOSE.unit, OTHER),
        [*reworded(2, PURPOSE.unit, OTHER), *reworded(3, PURPOSE.unit, OTHER)],
        reworded(4, hashlib.sha256(CONTENT).hexdigest(), OTHER),
        reworded(3, '"owner":"', '"owner":"0'),
        unguarded("DELETE FROM chain WHERE seq = 2"),
        unguarded("DELETE FROM chain WHERE seq = 5"),
        unguarded("DELETE FROM chain WHERE seq = 3"),
        unguarded("DELETE FROM chain"),
        added(6, "charged", "-2/1"),
        added(9, "total", "1/1"),
        unguarded("UPDATE meta SET format = 0"),
        unguarded("DELETE FROM meta WHERE true"),
        ["INSERT INTO meta VALUES (2, 'x', 'adult')"],
        ["INSERT INTO meta SELECT 2, ledger, dataset FROM meta"],
        ["ALTER TABLE meta RENAME COLUMN format TO version"],
        ["CREATE TABLE more (x)"],
        ["CREATE INDEX more ON chain (hash)"],
        ["DROP TABLE chain"],
        ["DROP TABLE measurement"],
    ],
)
def test_tampering_is_noticed(path: Path, statements: list[str]) -> None:
    ledger = Ledger.open(path, dataset="adult")
    ledger.set_total(Budget(rho=1))
    receipt = answer(ledger)  # a total, a binding, a charge and its release: 1 to 4
    spend(ledger)
    edit(path, *statements)
    refused(path)
    for use in (
        lambda: spend(ledger),
        lambda: ledger.spent,
        ledger.entries,
        ledger.audit,
        lambda: ledger.check(PURPOSE),
        lambda: ledger.deliver(receipt),
        lambda: ledger.undelivered(PURPOSE, Q(1, 5)),
        lambda: Ledger.existing(path),
    ):
        with pytest.raises(LedgerError):
            use()


def test_no_row_that_is_still_there_is_computed_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(path, dataset="adult")
    ledger.set_total(Budget(rho=1))
    answer(ledger)
    computed: list[int] = []
    add = History.add
    monkeypatch.setattr(
        History, "add", lambda self, row: (computed.append(row.seq), add(self, row))[1]
    )
    assert len(ledger.entries()) == 1
    assert computed == [4]  # written last, and read for the first time
    computed.clear()
    assert ledger.spent == ledger.spent
    assert computed == []
    Ledger.open(path, dataset="adult").check(PURPOSE)
    assert computed == [1, 2, 3, 4]  # by another object
    computed.clear()
    ledger.audit()
    assert computed == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("total", {"amounts": Amount({EVERY: Q(2)})}),  # a second one
        ("bound", {"request": "r", "rows": (replace(TABLE, roots=("other",)),)}),
        ("bound", {"request": "r", "rows": (TABLE,)}),
        ("bound", {"request": "r", "rows": (TableRows("ab", "ab", ()),)}),  # no unit
        ("bound", {"request": "r", "rows": (TableRows("ab", "ab", ("ab",), version="ab"),)}),
        ("charged", CHARGE | {"rows": (TableRows("ab", "ab", ("ab",), version="ab"),)}),
        ("charged", CHARGE | {"rows": (replace(TABLE, schema="ab", version="ab"),)}),
        ("charged", CHARGE | {"rows": (TABLE,)}),  # of no version
        ("charged", CHARGE | {"amounts": Amount()}),
        ("released", {"request": "unknown"}),
        ("released", {"request": "first"}),  # a second time
        ("delivered", {"request": "second"}),  # not released
        ("failed", {"request": "unknown"}),
        ("failed", {"request": "first"}),  # released
        ("failed", {"request": "second", "owner": "o"}),
        ("failed", {"request": "second", "content": "ab"}),
        ("retried", {"request": "unknown", "owner": "o"}),
        ("retried", {"request": "second", "owner": "o"}),  # not failed
        ("failed", {"request": "third"}),  # a second time
        ("released", {"request": "third"}),  # failed
        ("delivered", {"request": "third"}),
        ("retried", {"request": "third"}),  # by nobody
        ("retried", {"request": "third", "owner": "o", "amounts": Amount({EVERY: Q(1)})}),
        ("failed", {"request": "fourth"}),  # it was retried
        ("retried", {"request": "fourth", "owner": "o"}),
        ("delivered", {"request": "first", "content": "ab"}),
        ("delivered", {"request": "first", "amounts": Amount({EVERY: Q(1)})}),
        ("forgiven", {"request": "first"}),
    ],
)
def test_an_impossible_event_is_refused_whatever_its_hash(
    ledger: Ledger, kind: str, fields: dict[str, Any]
) -> None:
    ledger.set_total(Budget(rho=1))
    requests = {"first": answer(ledger).request, "second": spend(ledger).request}
    for name in ("third", "fourth"):
        receipt = spend(ledger, plan=name)
        ledger.fail(receipt)
        requests[name] = receipt.request
    assert spend(ledger, plan="fourth").request == requests["fourth"]
    if "request" in fields:
        fields = fields | {"request": requests.get(fields["request"], fields["request"])}
    before = ledger.audit()
    with (
        pytest.raises(LedgerError, match="impossible"),
        ledger._store.writing() as now,
    ):
        now.append(Event(kind, **fields))
    assert ledger.audit() == before


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('{"format":4,"kind":"lent","to":"me"}', "of format version 4"),
        (Event("bound", rows=(TABLE, TABLE)).text, "about several tables"),
        (Event("bound", rows=(replace(TABLE, roots=("ab", "cd")),)).text, "several kinds of units"),
        (Event("charged", amounts=Amount({"ab": Q(1)})).text, "several kinds of units"),
        (Event("total", amounts=Amount({EVERY: Q(1), "ab": Q(1)})).text, "several kinds of units"),
        (Event("charged", rows=(replace(TABLE, data="ab"),)).text, "that a catalog identifies"),
    ],
)
def test_what_a_later_version_writes_is_refused_by_name(path: Path, text: str, match: str) -> None:
    ledger = Ledger.open(path, dataset="adult")
    receipt = spend(ledger)
    with ledger._store.writing() as now:
        line = Line(now.history.seq + 1, text, "")
        line = line._replace(hash=line.linked(now.history.hash))
        now.connection.execute("INSERT INTO chain VALUES (?, ?, ?)", line)
    for use in (lambda: spend(ledger), lambda: ledger.release(receipt, b""), lambda: ledger.spent):
        with pytest.raises(LedgerError, match=match) as caught:
            use()
        assert caught.value.hint == "update dpsql."
    refused(path, match)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "[]",
        "{}",
        '{"kind":"total","time":"now"}',
        '{"format":"3","kind":"delivered","request":"r","time":"now"}',
        '{"format":2,"kind":"delivered","request":"r","time":"now"}',
        '{"format":true,"kind":"delivered","request":"r","time":"now"}',
        '{"format":3,"kind":"delivered","request":"r","request":"s","time":"now"}',
        '{"format":3,"kind":"delivered","time":"now","request":"r"}',
        '{"format":3, "kind":"delivered","request":"r","time":"now"}',
        '{"format":3,"kind":"delivered","plan":"","request":"r","time":"now"}',
        '{"format":3,"kind":"delivered","more":"r","request":"r","time":"now"}',
        '{"format":3,"kind":"delivered","request":5,"time":"now"}',
        '{"format":3,"kind":"bound","request":"r","rows":{},"time":"now"}',
        '{"format":3,"kind":"bound","request":"r","rows":["ab"],"time":"now"}',
        '{"format":3,"kind":"bound","request":"r","rows":[{"roots":"ab","schema":"s",'
        '"table":"t"}],"time":"now"}',
        '{"format":3,"kind":"bound","request":"r","rows":[{"roots":[1],"schema":"s",'
        '"table":"t"}],"time":"now"}',
        '{"format":3,"kind":"bound","request":"r","rows":[{"roots":[["ab"]],"schema":"s",'
        '"table":"t"}],"time":"now"}',
        '{"amounts":{"mu_squared":{"*":"2/4"}},"format":3,"kind":"total","time":"now"}',
        '{"amounts":{"mu_squared":{"*":"0/1"}},"format":3,"kind":"total","time":"now"}',
        '{"amounts":{"mu_squared":{"*":"-1/4"}},"format":3,"kind":"total","time":"now"}',
        '{"amounts":{"mu_squared":{"*":0.5}},"format":3,"kind":"total","time":"now"}',
        '{"amounts":{"mu_squared":["*"]},"format":3,"kind":"total","time":"now"}',
        '{"amounts":{"epsilon":"1/2"},"format":3,"kind":"total","time":"now"}',
        '{"amounts":[],"format":3,"kind":"total","time":"now"}',
        "[" * 100_000,
    ],
)
def test_a_text_that_no_event_has_can_not_be_read(text: str) -> None:
    with pytest.raises(LedgerError, match="entry 7 can't be read"):
        _ = Line(7, text, FAR).event


# Damage to pages


def pages_of(path: Path, table: str) -> list[int]:
    """The numbers of a table's first page and of those below it that are no overflow pages."""
    content = path.read_bytes()
    (root,) = rows(path, f"SELECT rootpage FROM sqlite_schema WHERE name = '{table}'")[0]
    assert isinstance(root, int)
    start = (root - 1) * 4096
    if content[start] != 5:  # not an inner page
        return [root]
    cells = struct.unpack(">H", content[start + 3 : start + 5])[0]
    pointers = struct.unpack(f">{cells}H", content[start + 12 : start + 12 + 2 * cells])
    below = [struct.unpack(">I", content[start + p : start + p + 4])[0] for p in pointers]
    return [root, *below, struct.unpack(">I", content[start + 8 : start + 12])[0]]


def overwrite(path: Path, offset: int, new: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + len(new)] = new
    path.write_bytes(bytes(content))


@pytest.fixture
def filled(path: Path) -> Ledger:
    ledger = Ledger.open(path, dataset="adult")
    for _ in range(12):
        answer(ledger)
    return ledger


def test_zeroed_pages_of_the_tables_that_count(path: Path, filled: Ledger) -> None:
    intact = path.read_bytes()
    pages = [p for t in ("chain", "meta", "sqlite_sequence", "probe") for p in pages_of(path, t)]
    assert len(pages) > 6
    for page in pages:
        path.write_bytes(intact)
        overwrite(path, (page - 1) * 4096, b"\0" * 4096)
        refused(path)
        with pytest.raises(LedgerError):
            spend(filled)


def test_single_changed_bytes_of_the_chain(path: Path, filled: Ledger) -> None:
    """Every 97th byte of the pages with events, unless it is unused space."""
    intact = path.read_bytes()
    noticed = 0
    for page in pages_of(path, "chain"):
        for offset in range((page - 1) * 4096, page * 4096, 97):
            path.write_bytes(intact)
            overwrite(path, offset, bytes([intact[offset] ^ 0x15]))
            try:
                assert filled.spent == Q(12, 5)
                assert len(Ledger.existing(path).entries()) == 12
            except LedgerError:
                noticed += 1
    assert noticed > 100


def test_a_false_list_of_free_pages(path: Path, filled: Ledger) -> None:
    """SQLite would write the next row over a page in use; checks of single tables miss that."""
    used, new = pages_of(path, "chain")[1], path.stat().st_size // 4096 + 1
    with path.open("ab") as file:
        file.write(struct.pack(">III", 0, 1, used).ljust(4096, b"\0"))
    overwrite(path, 28, struct.pack(">III", new, new, 2))
    for table in ("sqlite_schema", "chain"):
        assert rows(path, f"PRAGMA integrity_check({table})") == [("ok",)]
    refused(path, "not intact")
    with pytest.raises(LedgerError, match="not intact"):
        spend(filled)


def test_no_page_is_ever_free(path: Path, filled: Ledger) -> None:
    filled.release(spend(filled), None)
    for entry in filled.entries():
        filled.deliver(filled._receipt(entry))
    assert rows(path, "PRAGMA freelist_count") == [(0,)]


def test_damage_to_contents_does_not_stop_charges(path: Path, filled: Ledger) -> None:
    """It is noticed when they are read, and by an audit."""
    offset = path.read_bytes().rindex(CONTENT[:100])
    overwrite(path, offset, b"\1")
    filled = Ledger.open(path, dataset="adult")
    spend(filled)
    *intact, last, _ = filled.entries()
    assert {filled.content(entry) for entry in intact} == {CONTENT}
    for use in (
        lambda: filled.content(last),
        filled.audit,
        lambda: filled.measurements(
            table=PURPOSE.table, unit=PURPOSE.unit, vintage=PURPOSE.vintage
        ),
    ):
        with pytest.raises(LedgerError, match="what is kept"):
            use()


def test_only_an_audit_reads_the_whole_file(path: Path, filled: Ledger) -> None:
    """A lost page is a fault of the file, though no decision rests on it."""
    with path.open("ab") as file:
        file.write(b"\0" * 4096)
    overwrite(path, 28, struct.pack(">I", path.stat().st_size // 4096))
    spend(filled)
    with pytest.raises(LedgerError, match="not intact"):
        filled.audit()
