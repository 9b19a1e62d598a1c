"""The ledger's file: what is accepted as one, and what is noticed."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from fractions import Fraction as Q
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import LedgerError
from dpsql.privacy import Budget, Ledger
from dpsql.privacy.sqlite import store, tables
from tests.privacy.ledger_tools import (
    CONTENT,
    PURPOSE,
    answer,
    digest,
    edit,
    python,
    refused,
    rows,
    spend,
    unguarded,
)


def test_it_survives_reopening(path: Path) -> None:
    first = Ledger.open(path, dataset="adult")
    first.set_total(Budget(rho=1))
    receipt = spend(first)
    again = Ledger.open(str(path), dataset="adult")
    assert (again.id, again.total, again.spent) == (first.id, 2, Q(1, 5))
    again.release(receipt, CONTENT)
    assert first.entries() == again.entries()
    assert os.listdir(path.parent) == [path.name]  # no draft, no journal


def test_only_the_owner_can_read_it(path: Path) -> None:
    before = os.umask(0)
    try:
        Ledger.open(path, dataset="adult")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["a b", "x?mode=memory", "y#z", "100%", "é", "'quote\""])
def test_odd_file_names(tmp_path: Path, name: str) -> None:
    spend(Ledger.open(tmp_path / name, dataset="adult"))
    assert os.listdir(tmp_path) == [name]
    assert Ledger.open(tmp_path / name, dataset="adult").spent == Q(1, 5)


def test_a_ledger_belongs_to_its_data_set(path: Path) -> None:
    Ledger.open(path, dataset="adult")
    refused(path, "another data set", dataset="adult2")
    for name in ("", "a\nb", "\ud800", "x" * 2000, None):
        refused(None, "short text", dataset=name)  # type: ignore[arg-type]


def test_a_ledger_is_read_without_knowing_its_data_set(path: Path) -> None:
    with pytest.raises(LedgerError, match="No such file"):
        Ledger.existing(path)
    assert not path.exists()
    ledger = Ledger.open(path, dataset="adult")
    answer(ledger)
    (probes,) = rows(path, "SELECT opened FROM probe")
    reader = Ledger.existing(str(path))
    assert (reader.id, reader.dataset, reader.path) == (ledger.id, "adult", path)
    assert reader.entries() == ledger.entries()
    assert rows(path, "SELECT opened FROM probe") == [probes]  # nothing was written


def test_no_amount_is_negative(path: Path) -> None:
    spend(Ledger.open(path, dataset="adult"))
    forged = "SELECT seq + 2, replace(event, '\"1/5', '\"-1/5'), hash FROM chain WHERE seq = 2"
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        rows(path, f"INSERT INTO chain {forged}")


def test_a_name_that_would_disguise_a_message(path: Path) -> None:
    Ledger.open(path, dataset="adult")
    edit(path, *unguarded("UPDATE meta SET dataset = 'a' || char(8238) || 'b'"))
    with pytest.raises(LedgerError, match="short text") as caught:
        Ledger.existing(path)
    assert str(caught.value).isascii()


def test_impossible_places(tmp_path: Path) -> None:
    assert "folder" in str(refused(tmp_path / "missing" / "ledger"))
    refused(tmp_path)
    refused(tmp_path / "nul\0byte")
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file" / "ledger")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    refused(tmp_path / "dangling")


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"garbage" * 1000, b"SQLite format 3\0"])
def test_files_that_are_no_ledger(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refused(path)
    assert path.read_bytes() == content


def test_other_sqlite_files(path: Path) -> None:
    edit(path, "CREATE TABLE t (x)")
    refused(path, "not a ledger")


@pytest.mark.parametrize("keep", [0, 100, 4096, 0.5, -1])
def test_truncation(path: Path, keep: float) -> None:
    ledger = Ledger.open(path, dataset="adult")
    spend(ledger)
    content = path.read_bytes()
    size = int(len(content) * keep) if keep == 0.5 else int(keep) % len(content)
    path.write_bytes(content[:size])
    refused(path)
    with pytest.raises(LedgerError):
        spend(ledger)
    with pytest.raises(LedgerError):
        _ = ledger.spent


def test_the_triggers_guard_the_rows(path: Path) -> None:
    answer(Ledger.open(path, dataset="adult"))
    for statement in (
        "DELETE FROM chain",
        "UPDATE chain SET event = '{}'",
        "DELETE FROM meta",
        "UPDATE meta SET format = 4",
        "DELETE FROM measurement",
        "UPDATE measurement SET content = x'00'",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="only appended to"):
            edit(path, statement)


def test_a_newer_format_is_named(path: Path) -> None:
    Ledger.open(path, dataset="adult")
    edit(path, *unguarded("UPDATE meta SET format = 7"))
    assert "version 7" in str(refused(path, "this dpsql knows version 3"))


def test_an_older_format_is_named(path: Path) -> None:
    """Made with the statements of format 1, as far as they matter."""
    edit(
        path,
        "CREATE TABLE meta (format INTEGER NOT NULL, ledger TEXT NOT NULL, dataset TEXT NOT NULL)"
        " STRICT",
        "CREATE TABLE event (seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL,"
        " request TEXT NOT NULL, hash TEXT NOT NULL UNIQUE) STRICT",
        "INSERT INTO meta VALUES (1, 'ab', 'adult')",
    )
    before = path.read_bytes()
    refused(path, "made by an earlier development version")
    with pytest.raises(LedgerError, match="made by an earlier development version"):
        Ledger.existing(path)
    assert path.read_bytes() == before


def test_an_older_copy_is_noticed_by_who_knows_better(path: Path) -> None:
    ledger = Ledger.open(path, dataset="adult")
    spend(ledger)
    old = path.read_bytes()
    receipt = spend(ledger)
    path.write_bytes(old)
    with pytest.raises(LedgerError, match="missing"):
        spend(ledger)
    rolled_back = Ledger.open(path, dataset="adult")  # undetectable, as documented …
    assert rolled_back.spent == Q(1, 5)
    spend(rolled_back)
    with pytest.raises(LedgerError, match="does not hold"):
        rolled_back.verify(receipt)  # … but for the receipt
    with pytest.raises(LedgerError, match="changed"):
        spend(ledger)  # the same length, another history


def test_a_replaced_or_deleted_ledger(path: Path) -> None:
    ledger = Ledger.open(path, dataset="adult")
    path.unlink()
    with pytest.raises(LedgerError, match="No such file"):
        spend(ledger)
    Ledger.open(path, dataset="adult")
    with pytest.raises(LedgerError, match="replaced"):
        spend(ledger)


def test_a_journal_mode_that_others_set_is_set_back(path: Path) -> None:
    ledger = Ledger.open(path, dataset="adult")
    edit(path, "PRAGMA journal_mode = WAL")
    spend(ledger)
    assert path.read_bytes()[18:20] == b"\x01\x01"  # the header's mark of a rollback journal
    connection = tables.connect(path)
    assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
    connection.close()


def test_a_read_only_ledger_is_noticed_at_opening(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(path, dataset="adult")
    paid, released = spend(ledger), answer(ledger)
    monkeypatch.setattr(store, "connect", lambda p: tables.connect(p, mode="ro"))
    assert "writable" in str(refused(path, "readonly"))
    for use in (
        lambda: spend(ledger),
        lambda: ledger.release(paid, CONTENT),
        lambda: ledger.deliver(released),
        lambda: ledger.set_total(Budget(rho=1)),
    ):
        with pytest.raises(LedgerError, match="readonly"):
            use()
    for reader in (ledger, Ledger.existing(path)):  # reading is still possible
        assert reader.spent == Q(2, 5)
        assert reader.audit().contents == 1
        assert reader.content(reader.entries()[1]) == CONTENT


@pytest.mark.skipif(os.name != "posix", reason="file size limits are a POSIX matter")
def test_a_full_disk(path: Path) -> None:
    Ledger.open(path, dataset="adult")
    child = python(
        """
        import resource, signal, sys
        from dpsql.errors import LedgerError
        from dpsql.privacy import Ledger
        from tests.privacy.ledger_tools import CONTENT, answer, spend
        path = sys.argv[1]
        ledger = Ledger.open(path, dataset="adult")
        paid, released = spend(ledger), answer(ledger)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        for use in (
            lambda: spend(ledger),
            lambda: ledger.release(paid, CONTENT),
            lambda: ledger.release(paid, None),
            lambda: ledger.deliver(released),
            lambda: Ledger.open(path, dataset="adult"),
            lambda: Ledger.open(path + "2", dataset="adult"),
        ):
            try:
                use()
            except LedgerError as error:
                print("refused", error.hint)
        """,
        path,
    )
    out, err = child.communicate(timeout=30)
    assert out.count("refused") == 6, out + err
    ledger = Ledger.open(path, dataset="adult")
    assert [e.state for e in ledger.entries()] == ["charged", "released"]
    assert (ledger.spent, ledger.audit().contents) == (Q(2, 5), 1)
    assert os.listdir(path.parent) == [path.name]


def test_a_lock_that_others_hold_too_long(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open(path, dataset="adult")
    receipt = spend(ledger)
    monkeypatch.setattr(tables, "_TIMEOUT_SECONDS", 0.1)
    holder = sqlite3.connect(path, isolation_level=None)
    try:
        holder.execute("BEGIN EXCLUSIVE")
        for use in (
            lambda: spend(ledger),
            lambda: ledger.release(receipt, CONTENT),
            lambda: ledger.undelivered(PURPOSE, Q(1, 5)),
        ):
            with pytest.raises(LedgerError, match="locked") as caught:
                use()
            assert "another process" in str(caught.value)
    finally:
        holder.close()
    ledger.release(receipt, CONTENT)
    ledger.deliver(receipt)


def test_a_failure_inside_a_transaction_changes_nothing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger._store.reading() as now:
        transaction, append = type(now), type(now).append

    def interrupted(*arguments: Any) -> None:
        append(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(transaction, "append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        spend(ledger)
    monkeypatch.undo()
    assert ledger.spent == 0
    receipt = spend(ledger)
    assert ledger.entries()[0].seq == 2  # the binding went too
    monkeypatch.setattr(transaction, "append", interrupted)
    for use in (lambda: ledger.release(receipt, CONTENT), lambda: ledger.release(receipt, None)):
        with pytest.raises(KeyboardInterrupt):
            use()
    monkeypatch.undo()
    ledger.release(receipt, CONTENT)
    assert ledger.audit().contents == 1


def test_nothing_but_amounts_and_digests_is_kept(path: Path) -> None:
    ledger = Ledger.open(path, dataset="adult")
    receipt = spend(ledger)
    ledger.release(receipt, b"noisy integers")
    ledger.deliver(receipt)
    table = {"roots": [PURPOSE.unit], "schema": PURPOSE.schema, "table": PURPOSE.table}
    found = [json.loads(text) for (text,) in rows(path, "SELECT event FROM chain")]
    kept = [
        {name: value for name, value in event.items() if name not in ("owner", "request", "time")}
        for event in found
    ]
    assert kept == [
        {"format": 3, "kind": "bound", "rows": [table]},
        {
            "format": 3,
            "kind": "charged",
            "amounts": {"mu_squared": {"*": "1/5"}},
            "plan": PURPOSE.plan,
            "rows": [table | {"version": PURPOSE.vintage}],
            "script": PURPOSE.script,
        },
        {"format": 3, "kind": "released", "content": digest("noisy integers")},
        {"format": 3, "kind": "delivered"},
    ]
    assert ["owner" in event for event in found] == [False, True, False, False]
    assert all(event["time"] for event in found)
    assert [e["request"] == receipt.request for e in found] == [False, True, True, True]
    assert rows(path, "SELECT * FROM measurement") == [(3, b"noisy integers")]
