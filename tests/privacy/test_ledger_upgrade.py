"""Ledgers of format 2, which earlier versions wrote, become ledgers of the present format.

Those in tests/fixtures/ledgers were written by this script, run in a checkout of version 8e72129
(`new`, `spent` and `asked_8e72129`) and of f8d93e1 (`rows` and `asked_f8d93e1`), the last before
format 3:

    import sys
    from dataclasses import replace
    from fractions import Fraction as Q
    from hashlib import sha256
    from inspect import signature
    from pathlib import Path

    import dpsql
    import duckdb
    from dpsql.privacy import Budget, Ledger, Purpose

    folder = Path(sys.argv[1])
    ROWS = sha256(b'"each row"').hexdigest()


    def digest(text):
        return sha256(text.encode()).hexdigest()


    def charge(ledger, amount, table="flights", *, schema="s", unit="", vintage="2026", **more):
        asked = Budget(rho=amount / 2)
        names = ("plan", "script", table, schema, unit or f"unit of {table}", vintage)
        purpose = Purpose(*map(digest, names))
        if unit == "row":
            purpose = replace(purpose, unit=ROWS)
        return ledger.charge(amount, asked=asked, purpose=purpose, accept_schema=True, **more)


    Ledger.open(folder / "new.ledger", dataset="new.duckdb")

    ledger = Ledger.open(folder / "spent.ledger", dataset="spent.duckdb")
    ledger.set_total(Budget(rho=5))
    asked = Budget(rho=Q(1, 2))  # its cost is rounded up to the grid, the next one is not on it
    names = ("plan", "script", "flights", "s", "unit of flights", "2026")
    purpose = Purpose(*map(digest, names))
    ledger.charge(Q(1, 7), asked=asked, purpose=purpose)
    ledger.release(charge(ledger, Q(1, 3)), b"undelivered")
    delivered = charge(ledger, Q(1, 5), vintage="2027")
    ledger.release(delivered, b"delivered")
    ledger.deliver(delivered)
    ledger.release(charge(ledger, Q(2, 9), "planes"), None)
    ledger.release(charge(ledger, Q(1, 11), schema="another"), b"of another schema")
    digits = 10**400 + 1
    charge(ledger, Q(digits, 10**401), "planes")

    ledger = Ledger.open(folder / "rows.ledger", dataset="rows.duckdb")
    charge(ledger, Q(1, 5), "stations", unit="row")
    charge(ledger, Q(1, 5), "visits")
    if "each_row" in signature(ledger.charge).parameters:
        charge(ledger, Q(1, 5), "stations", unit="row", each_row=True)

    con = duckdb.connect(folder / "asked.duckdb")
    con.execute("CREATE TYPE city AS ENUM ('Bern', 'Basel')")
    con.execute("CREATE TABLE people (id INTEGER, city city)")
    con.execute("INSERT INTO people SELECT i, ['Bern', 'Basel'][1 + i % 2] FROM range(1000) t(i)")
    session = dpsql.Session(con, unit="id", max_rows=1, budget=Budget(rho=1))
    statement = "SELECT city, COUNT(*) AS n FROM people GROUP BY city"
    session.query(statement, budget=Budget(rho=0.1))
    ledger = session.ledger
    ledger.deliver = lambda receipt: None  # as if the process had ended before
    session.query(statement, budget=Budget(rho=0.2))
    con.close()
    (folder / "asked.duckdb.ledger").rename(folder / "asked.ledger")
    (folder / "asked.duckdb").unlink()
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from dataclasses import replace
from fractions import Fraction as Q
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.errors import BudgetError, LedgerError, StaleSchemaError
from dpsql.privacy import Budget, Ledger, Purpose, Receipt, owner
from dpsql.privacy.purpose import EACH_ROW
from dpsql.privacy.sqlite import store, tables
from tests.privacy.ledger_tools import digest, edit, python, rows, unguarded

FIXTURES = Path(__file__).parents[1] / "fixtures" / "ledgers"
ALL = sorted(path.name for path in FIXTURES.glob("*.ledger"))
DATASET = "spent.duckdb"
ROUNDED = Q(-(-(10**30) // 7), 10**30)
"""A seventh, on the grid."""
SPENT = [ROUNDED, Q(1, 3), Q(1, 5), Q(2, 9), Q(1, 11), Q(10**400 + 1, 10**401)]
STATES = ["charged", "released", "delivered", "released", "released", "charged"]


def copied(name: str, path: Path) -> Path:
    return Path(shutil.copyfile(FIXTURES / name, path))


def opened(path: Path) -> Ledger:
    return Ledger.open(path, dataset=Ledger.existing(path).dataset)


def purpose(table: str = "flights", schema: str = "s", vintage: str = "2026") -> Purpose:
    names = ("plan", "script", table, schema, f"unit of {table}", vintage)
    return Purpose(*map(digest, names))


def spend(ledger: Ledger, amount: Q, wanted: Purpose) -> Receipt:
    return ledger.charge(amount, asked=Budget(rho=amount / 2), purpose=wanted)


def formats(path: Path) -> list[tuple[object, ...]]:
    """What versions that know only format 2 look at, in their words."""
    return rows(path, "SELECT format FROM meta")


@pytest.fixture
def spent(path: Path) -> Path:
    return copied("spent.ledger", path)


@pytest.fixture
def upgraded(spent: Path) -> Path:
    """An upgraded ledger, with a charge and a release of its own."""
    ledger = opened(spent)
    ledger.release(spend(ledger, Q(1, 13), purpose("planes")), b"new")
    return spent


@pytest.fixture
def on_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be on the computer that wrote the fixtures, where their processes are gone."""
    owners = {entry.owner for name in ALL for entry in Ledger.existing(FIXTURES / name).entries()}
    (host,) = {owner.split(":")[0] for owner in owners}
    monkeypatch.setattr(owner, "_host", lambda: host)
    owner._named.cache_clear()


@pytest.mark.parametrize("name", ALL)
def test_what_it_says_stays_the_same(name: str, path: Path) -> None:
    copied(name, path)
    before = Ledger.existing(path)
    said = before.id, before.dataset, before.total, before.spent, before.protected
    entries, audit = before.entries(), before.audit()
    contents = [before.content(entry) for entry in entries]
    assert path.read_bytes() == (FIXTURES / name).read_bytes()  # to read it changes nothing
    assert formats(path) == [(2,)]

    ledger = opened(path)
    assert formats(path) == [(3,), (2,)]
    for after in (ledger, before, Ledger.existing(path), opened(path)):
        assert said == (after.id, after.dataset, after.total, after.spent, after.protected)
        assert after.entries() == entries
        assert [after.content(entry) for entry in entries] == contents
        assert after.audit() == replace(audit, events=audit.events + 1)  # the upgrade
        for entry in entries:
            after.verify(after._receipt(entry))
    assert rows(path, "SELECT count(*) FROM chain") == [(1,)]
    assert rows(path, "PRAGMA freelist_count") == [(0,)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert os.listdir(path.parent) == [path.name]


def test_no_digit_is_lost(spent: Path) -> None:
    ledger = opened(spent)
    entries = ledger.entries()
    assert [entry.mu_squared for entry in entries] == SPENT
    assert [entry.state for entry in entries] == STATES
    assert (ledger.total, ledger.spent, ledger.remaining) == (10, sum(SPENT), 10 - sum(SPENT))
    left = 10 - sum(SPENT)
    asked = Budget(rho=left)
    with pytest.raises(BudgetError, match="short by"):
        ledger.charge(left + Q(1, 10**30), asked=asked, purpose=purpose("planes"))
    ledger.charge(left, asked=Budget(rho=left / 2), purpose=purpose("planes"))
    assert ledger.remaining == 0


def test_tables_stay_bound(spent: Path) -> None:
    ledger = opened(spent)
    with pytest.raises(StaleSchemaError, match="entry 13"):
        ledger.check(purpose())
    ledger.check(purpose(schema="another"))
    with pytest.raises(LedgerError, match="Another unit"):
        ledger.check(replace(purpose("planes"), unit=digest("other")))
    with pytest.raises(LedgerError, match="this one has none"):
        ledger.check(replace(purpose("new"), unit=EACH_ROW))
    with pytest.raises(LedgerError, match="another data set"):
        Ledger.open(spent, dataset="other")


def test_rows_beside_units_stay_told_apart(path: Path) -> None:
    ledger = opened(copied("rows.ledger", path))
    assert ledger.protected == (1, 1)
    ledger.check(replace(purpose("stations"), unit=EACH_ROW))  # the owner has said so
    with pytest.raises(LedgerError, match="this one has none"):
        ledger.check(replace(purpose("more"), unit=EACH_ROW))


@pytest.mark.usefixtures("on_its_host")
def test_what_was_undelivered_is_handed_out(spent: Path) -> None:
    before = Ledger.existing(spent).undelivered(purpose(), Q(1, 3))
    assert before is not None
    assert before[1] == b"undelivered"
    ledger = opened(spent)
    assert ledger.undelivered(purpose(), Q(1, 3)) == before
    ledger.deliver(before[0])
    assert ledger.undelivered(purpose(), Q(1, 3)) is None
    assert ledger.spent == sum(SPENT)
    assert [entry.state for entry in opened(spent).entries()][1] == "delivered"


def test_a_receipt_from_before_is_good_once(spent: Path) -> None:
    before = Ledger.existing(spent)
    receipt = before._receipt(before.entries()[0])
    ledger = opened(spent)
    ledger.verify(receipt, unused=True)
    ledger.release(receipt, b"late")
    assert ledger.content(ledger.entries()[0]) == b"late"
    with pytest.raises(LedgerError, match="used before"):
        ledger.release(receipt, b"later")


def test_measurements_from_before_and_after_are_read_together(upgraded: Path) -> None:
    ledger = opened(upgraded)
    wanted = purpose()
    ledger.release(spend(ledger, Q(1, 13), purpose(schema="another")), b"newest")
    found = ledger.measurements(table=wanted.table, unit=wanted.unit, vintage=wanted.vintage)
    assert [content for _, content in found] == [b"undelivered", b"of another schema", b"newest"]
    seqs = [entry.seq for entry in ledger.entries()]
    assert seqs == sorted(seqs)
    assert seqs[-2:] == [17, 19]  # the upgrade is 16
    assert ledger.audit().contents == 5


@pytest.mark.parametrize("name", ["asked_8e72129.ledger", "asked_f8d93e1.ledger"])
@pytest.mark.usefixtures("on_its_host")
def test_a_session_goes_on(name: str, tmp_path: Path) -> None:
    """It hands out what was paid for, and builds on what it measures itself.

    What was measured before is of other rows of units: they were kept by another rule.
    """
    copied(name, tmp_path / "asked.duckdb.ledger")
    paid = Ledger.existing(tmp_path / "asked.duckdb.ledger").entries()[-1]
    with duckdb.connect(tmp_path / "asked.duckdb") as con:
        con.execute("CREATE TYPE city AS ENUM ('Bern', 'Basel')")
        con.execute("CREATE TABLE people (id INTEGER, city city)")
        con.execute(
            "INSERT INTO people SELECT i, ['Bern', 'Basel'][1 + i % 2] FROM range(1000) t(i)"
        )
        session = dpsql.Session(con, unit="id", max_rows=1, budget=Budget(rho=1))
        assert session.history["state"].to_list() == ["delivered", "released"]
        statement = "SELECT city, COUNT(*) AS n FROM people GROUP BY city"
        frame = session.query(statement, budget=Budget(rho=0.2))
        assert session.remaining == Q(7, 10)  # it was paid for
        assert session.history["state"].to_list() == ["delivered", "delivered"]
        assert session.history["entry"].to_list()[-1] == paid.seq
        assert frame["n"].sum() == pytest.approx(1000, abs=60)
        alone = session.query(statement, budget=Budget(rho=0.2))
        assert session.remaining == Q(5, 10)
        assert alone["n_variance"][0] == pytest.approx(1 / 0.4)
        more = session.query(statement, budget=Budget(rho=0.2))
        assert more["n_variance"][0] < alone["n_variance"][0] / 1.9  # 0.4 in all, after 0.2


def test_an_empty_ledger_is_begun(path: Path) -> None:
    ledger = opened(copied("new.ledger", path))
    ledger.set_total(Budget(rho=1))
    assert spend(ledger, Q(1, 5), purpose()).seq == 4  # after upgrade, total and binding
    assert opened(path).remaining == Q(9, 5)


# Tampering


OLD = [
    unguarded("UPDATE event SET mu_squared = '1/900' WHERE seq = 3"),
    unguarded("UPDATE event SET owner = 'me' WHERE seq = 3"),
    unguarded(f"UPDATE event SET hash = '{'0' * 64}' WHERE seq = 15"),
    unguarded("DELETE FROM event WHERE seq = 15"),
    unguarded("DELETE FROM event WHERE seq = 3"),
    unguarded("DELETE FROM event"),
    ["DROP TRIGGER event_update"],
    ["DROP TABLE event"],
    unguarded("UPDATE meta SET dataset = 'other' WHERE format = 2"),
    unguarded("UPDATE meta SET ledger = 'other'"),
]
NEW = [
    unguarded("UPDATE chain SET event = replace(event, '1/13', '1/900')"),
    unguarded("UPDATE chain SET event = replace(event, 'upgraded', 'delivered') WHERE seq = 16"),
    unguarded("DELETE FROM chain WHERE seq = 16"),
    unguarded("DELETE FROM chain"),
    unguarded("DELETE FROM meta WHERE format = 2"),
    unguarded("DELETE FROM meta WHERE format = 3"),
    unguarded("UPDATE meta SET format = 5 - format"),
    ["DROP TRIGGER event_insert"],
    ["DROP TABLE chain"],
]


@pytest.mark.parametrize("statements", OLD + NEW)
def test_tampering_with_either_part_is_noticed(upgraded: Path, statements: list[str]) -> None:
    ledger = opened(upgraded)
    edit(upgraded, *statements)
    for use in (
        lambda: spend(ledger, Q(1, 13), purpose("planes")),
        lambda: ledger.spent,
        lambda: Ledger.existing(upgraded),
        lambda: Ledger.open(upgraded, dataset=DATASET),
    ):
        with pytest.raises(LedgerError):
            use()


@pytest.mark.parametrize("statements", OLD)
def test_a_ledger_that_was_tampered_with_is_not_upgraded(
    spent: Path, statements: list[str]
) -> None:
    edit(spent, *statements)
    before = spent.read_bytes()
    with pytest.raises(LedgerError):
        Ledger.open(spent, dataset=DATASET)
    assert spent.read_bytes() == before


def test_contents_from_before_are_checked(upgraded: Path) -> None:
    edit(upgraded, *unguarded("UPDATE measurement SET content = x'00' WHERE seq = 5"))
    ledger = opened(upgraded)
    for use in (ledger.audit, lambda: ledger.content(ledger.entries()[1])):
        with pytest.raises(LedgerError, match="what is kept"):
            use()


def test_the_old_events_take_no_more_rows(upgraded: Path) -> None:
    copy = 'kind, request, mu_squared, plan, script, "table", schema, unit, vintage, content,'
    with pytest.raises(sqlite3.IntegrityError, match="only appended to"):
        edit(
            upgraded,
            f"INSERT INTO event ({copy} owner, time, hash)"
            f" SELECT {copy} owner, time, hash FROM event WHERE seq = 3",
        )


def test_an_older_copy_is_noticed(spent: Path) -> None:
    old = spent.read_bytes()
    ledger = opened(spent)
    receipt = spend(ledger, Q(1, 13), purpose("planes"))
    spent.write_bytes(old)
    with pytest.raises(LedgerError, match="entries are missing"):
        _ = ledger.spent
    with pytest.raises(LedgerError, match="does not hold"):
        opened(spent).verify(receipt)


# While it happens


def test_a_failure_leaves_the_old_one(spent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = spent.read_bytes()

    def failing(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tables, "append", failing)
    with pytest.raises(KeyboardInterrupt):
        opened(spent)
    monkeypatch.undo()
    assert spent.read_bytes() == before
    monkeypatch.setattr(store, "connect", lambda p: tables.connect(p, mode="ro"))
    with pytest.raises(LedgerError, match="readonly"):
        opened(spent)
    assert Ledger.existing(spent).spent == sum(SPENT)  # to read it no right is needed


KILLED = """
    import os, shutil, signal, sys
    from fractions import Fraction as Q
    from dpsql.privacy import Budget, Ledger
    from dpsql.privacy.sqlite import store, tables
    from tests.privacy.test_ledger_upgrade import DATASET, purpose, spend

    def work(path, moment):
        steps = 0
        def count(statement):
            nonlocal steps
            steps += 1
            if steps == moment:
                os.kill(os.getpid(), signal.SIGKILL)
        def connect(place):
            connection = tables.connect(place)
            connection.execute("PRAGMA cache_size = 1")  # what is written goes to the file at once
            connection.set_trace_callback(count)
            return connection
        store.connect = connect
        ledger = Ledger.open(path, dataset=DATASET)
        with open(path + ".diary", "w", buffering=1) as diary:
            print("opened", file=diary)
            receipt = spend(ledger, Q(1, 13), purpose("planes"))
            print("charged", file=diary)
        return steps

    original, folder = sys.argv[1:]
    def copy(name):
        return shutil.copyfile(original, f"{folder}/{name}")
    steps = work(copy("whole"), 0)
    print(steps)
    for moment in range(1, steps + 1):
        path = copy(moment)
        child = os.fork()
        if child == 0:
            work(path, moment)
            os._exit(0)
        if os.waitpid(child, 0)[1] != signal.SIGKILL:
            sys.exit(f"{moment} was not reached")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="uses fork and SIGKILL")
def test_kill_at_each_statement(tmp_path: Path) -> None:
    """The file is then partly written; whoever opens it next takes that back."""
    child = python(KILLED, FIXTURES / "spent.ledger", tmp_path)
    out, err = child.communicate(timeout=300)
    assert child.returncode == 0, err
    old = Ledger.existing(FIXTURES / "spent.ledger").entries()
    found, torn = [], 0
    for moment in range(1, int(out) + 1):
        path = tmp_path / str(moment)
        diary = path.with_name(f"{moment}.diary")
        said = diary.read_text().split() if diary.exists() else []
        journal = path.with_name(f"{moment}-journal")
        torn += journal.exists() and path.read_bytes() != (FIXTURES / "spent.ledger").read_bytes()
        left = Ledger.existing(path)
        entries = left.entries()
        assert entries[: len(old)] == old
        assert (formats(path) == [(3,), (2,)]) >= ("opened" in said)
        assert formats(path) in ([(2,)], [(3,), (2,)])
        assert len(entries) - len(old) in ([1] if "charged" in said else [0, 1])
        assert left.spent == sum(SPENT) + (len(entries) - len(old)) * Q(1, 13)
        found.append((len(formats(path)), len(entries) - len(old)))
        again = opened(path)
        assert again.entries() == entries
        spend(again, Q(1, 13), purpose("planes"))
        assert not journal.exists()
        assert again.audit().contents == 3
    assert found == sorted(found)
    assert {(1, 0), (2, 0)} <= set(found)
    assert torn > 10


AT_ONCE = """
    import os, sys
    from fractions import Fraction as Q
    from dpsql.errors import BudgetError
    from dpsql.privacy import Ledger
    from tests.privacy.test_ledger_upgrade import DATASET, purpose, spend

    go, start = os.pipe()
    for _ in range(6):
        if os.fork() == 0:
            os.close(start)
            os.read(go, 1)  # until the last one has this end
            ledger, done = Ledger.open(sys.argv[1], dataset=DATASET), 0
            for _ in range(3):
                try:
                    spend(ledger, Q(1), purpose("planes"))
                    done += 1
                except BudgetError:
                    pass
            os.write(1, b'%d\\n' % done)  # at once: others write, too
            os._exit(0)
    os.close(start)
    for _ in range(6):
        os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_that_upgrade_at_once(spent: Path) -> None:
    """It is upgraded once, and the total holds: 8 of the 18 charges fit."""
    child = python(AT_ONCE, spent)
    out, err = child.communicate(timeout=120)
    done = [int(line) for line in out.split()]
    assert (len(done), sum(done)) == (6, 8), err
    ledger = opened(spent)
    assert ledger.spent == sum(SPENT) + 8
    assert [entry.mu_squared for entry in ledger.entries()] == [*SPENT, *[Q(1)] * 8]
    kinds = "SELECT count(*) FROM chain WHERE event LIKE '%\"upgraded\"%'"
    assert rows(spent, kinds) == [(1,)]
    assert os.listdir(spent.parent) == [spent.name]
