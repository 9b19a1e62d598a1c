"""Damage to the ledger's file, by accident or by hand, and what notices it."""

from __future__ import annotations

import struct
from fractions import Fraction as Q
from pathlib import Path

import pytest

from dpsql.errors import LedgerError
from dpsql.privacy import Budget, Ledger
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
EVENT = 'INSERT INTO event (seq, kind, request, mu_squared, plan, script, "table", schema, unit,'
EVENT += " vintage, content, owner, time, hash) VALUES "


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TRIGGER event_update"],
        ["DROP TRIGGER measurement_delete"],
        unguarded("UPDATE event SET mu_squared = '1/100' WHERE seq = 3"),
        unguarded("UPDATE event SET mu_squared = '-1/5' WHERE seq = 3"),
        unguarded("UPDATE event SET mu_squared = '0.2' WHERE seq = 3"),
        unguarded("UPDATE event SET mu_squared = '100/1' WHERE seq = 1"),
        unguarded("UPDATE event SET time = 'earlier' WHERE seq = 3"),
        unguarded(f"UPDATE event SET hash = '{FAR}' WHERE seq = 5"),
        unguarded("UPDATE event SET kind = 'delivered' WHERE seq = 4"),
        unguarded(f"UPDATE event SET schema = '{OTHER}' WHERE kind = 'bound'"),
        unguarded(f"UPDATE event SET unit = '{OTHER}' WHERE kind = 'bound'"),
        unguarded(f"UPDATE event SET unit = '{OTHER}' WHERE kind IN ('bound', 'charged')"),
        unguarded(f"UPDATE event SET content = '{OTHER}' WHERE kind = 'released'"),
        unguarded(f"UPDATE event SET owner = '{FAR}' WHERE seq = 3"),
        unguarded("DELETE FROM event WHERE kind = 'bound'"),
        unguarded("DELETE FROM event WHERE seq = 5"),
        unguarded("DELETE FROM event WHERE seq = 3"),
        unguarded("DELETE FROM event"),
        [f"{EVENT} (6, 'charged', 'r', '-2/1', '', '', '', '', '', '', '', '', '', '{FAR}')"],
        [f"{EVENT} (9, 'total', '', '1/1', '', '', '', '', '', '', '', '', '', '{FAR}')"],
        unguarded("UPDATE meta SET format = 0"),
        unguarded("DELETE FROM meta WHERE true"),
        ["INSERT INTO meta VALUES (2, 'x', 'adult')"],
        ["ALTER TABLE meta RENAME COLUMN format TO version"],
        ["CREATE TABLE more (x)"],
        ["CREATE INDEX more ON event (hash)"],
        ["DROP TABLE event"],
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


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("total", {"mu_squared": Q(2)}),  # a second one
        ("bound", {"request": "r", "table": PURPOSE.table, "schema": "ab", "unit": "other"}),
        ("bound", {"request": "r", "table": PURPOSE.table, "schema": PURPOSE.schema,
                   "unit": PURPOSE.unit}),
        ("bound", {"request": "r", "table": "ab", "schema": "ab"}),  # no unit
        ("charged", {"request": "r", "mu_squared": Q(1), "table": "ab", "schema": "ab",
                     "unit": "ab", "plan": "ab", "script": "ab", "vintage": "ab", "owner": "o"}),
        ("charged", {"request": "r", "mu_squared": Q(1), "table": PURPOSE.table, "schema": "ab",
                     "unit": PURPOSE.unit, "plan": "ab", "script": "ab", "vintage": "ab",
                     "owner": "o"}),
        ("released", {"request": "unknown"}),
        ("released", {"request": "first"}),  # a second time
        ("delivered", {"request": "second"}),  # not released
        ("delivered", {"request": "first", "content": "ab"}),
        ("delivered", {"request": "first", "mu_squared": Q(1)}),
        ("forgiven", {"request": "first"}),
    ],
)  # fmt: skip
def test_an_impossible_event_is_refused_whatever_its_hash(
    ledger: Ledger, kind: str, fields: dict[str, object]
) -> None:
    ledger.set_total(Budget(rho=1))
    requests = {"first": answer(ledger).request, "second": spend(ledger).request}
    fields = {name: requests.get(str(value), value) for name, value in fields.items()}
    before = ledger.audit()
    with (
        pytest.raises(LedgerError, match="impossible"),
        ledger._transactions.writing() as (connection, history),
    ):
        ledger._append(connection, history, kind, **fields)  # type: ignore[arg-type]
    assert ledger.audit() == before


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
    pages = [p for t in ("event", "meta", "sqlite_sequence", "probe") for p in pages_of(path, t)]
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
    for page in pages_of(path, "event"):
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
    used, new = pages_of(path, "event")[1], path.stat().st_size // 4096 + 1
    with path.open("ab") as file:
        file.write(struct.pack(">III", 0, 1, used).ljust(4096, b"\0"))
    overwrite(path, 28, struct.pack(">III", new, new, 2))
    for table in ("sqlite_schema", "event"):
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
