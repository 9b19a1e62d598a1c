"""The ledger in PostgreSQL: what it promises when connections, clients and servers fail."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction as Q
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpsql.errors import BudgetError, LedgerError
from dpsql.privacy import Budget, Ledger
from dpsql.privacy.postgres import create, find
from dpsql.privacy.postgres import store as module
from tests.helpers import postgres
from tests.helpers.cutting import CuttingProxy
from tests.privacy.ledger_tools import CONTENT, PURPOSE, answer, python, spend

pytestmark = pytest.mark.postgres


@pytest.fixture
def shared(address: str) -> Ledger:
    found = postgres.begun(address, "adult")
    found.set_total(Budget(rho=1))
    return found


@pytest.fixture
def proxy(server: postgres.Postgres, shared: Ledger) -> Iterator[CuttingProxy]:
    found = CuttingProxy(server.port)
    yield found
    found.close()


def opened(address: str) -> Ledger:
    return Ledger(find(address))


def through(proxy: CuttingProxy) -> Ledger:
    return opened(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres")


def test_it_survives_reopening(shared: Ledger, address: str) -> None:
    receipt = spend(shared)
    again = opened(address)
    assert (again.id, again.total, again.spent) == (shared.id, 2, Q(1, 5))
    assert (again.path, again.dataset, again.store.is_shared) == (None, "adult", True)
    again.release(receipt, CONTENT)
    assert shared.entries() == again.entries() == Ledger.existing(address).entries()
    assert again.place.startswith("postgresql://127.0.0.1:")
    assert "postgres@" not in again.place


def test_only_new_lines_are_read(
    shared: Ledger, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        spend(shared, 0.01)
    other = opened(address)
    spend(other, 0.01)
    read: list[int] = []
    followed = module.check.followed

    def counting(known: Any, lines: Any, *head: Any) -> Any:
        found = [*lines]
        read.append(len(found))
        return followed(known, found, *head)

    monkeypatch.setattr(module.check, "followed", counting)
    for ledger in (shared, other):
        ledger.entries()
        spend(ledger, 0.01)
    assert read == [2, 1, 2, 1]  # the last one that was seen, and those of the other
    shared.audit()
    assert read[-1] == 2 + 5 + 1 + 2  # of a total, a binding and charges all are read anew


# Losing the connection


def test_a_commit_that_got_through_counts_once(proxy: CuttingProxy, shared: Ledger) -> None:
    ledger = through(proxy)
    proxy.cut = "after"
    receipt = spend(ledger)
    assert proxy.cuts == 1
    assert [e.request for e in shared.entries()] == [receipt.request]
    shared.verify(receipt, unused=True)
    ledger.release(receipt, CONTENT)


def test_a_commit_that_got_lost_counts_not(
    proxy: CuttingProxy, shared: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = through(proxy)
    proxy.cut = "before"
    with pytest.raises(LedgerError, match="nothing was written") as caught:
        spend(ledger)
    assert caught.value.hint == "ask again."
    assert shared.spent == 0
    spend(ledger)
    assert shared.spent == Q(1, 5)


@pytest.mark.parametrize(("cut", "before"), [("after", Q(1, 5)), ("before", Q(0))])
def test_a_retry_never_pays_twice_for_what_was_recorded(
    proxy: CuttingProxy,
    shared: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    cut: str,
    before: Q,
) -> None:
    monkeypatch.setattr(module, "_UNSURE_SECONDS", 0.5)
    ledger = through(proxy)
    spend(ledger, 0.2, plan="another")
    proxy.cut, proxy.down = cut, False
    begun = module._commit

    def and_down(connection: Any) -> bool:
        done = begun(connection)
        proxy.down = True
        return done

    monkeypatch.setattr(module, "_commit", and_down)
    with pytest.raises(LedgerError, match="may have been recorded"):
        spend(ledger)
    monkeypatch.setattr(module, "_commit", begun)
    proxy.down = False
    assert shared.spent == before + Q(2, 5)  # it counts as spent if it was recorded
    spend(ledger, 0.01)  # another amount is another charge
    receipt = spend(through(proxy))  # the same again, by another object of the same process
    assert shared.spent == Q(1, 5) + Q(2, 5) + Q(2, 100)
    shared.verify(receipt, unused=True)
    assert receipt.request != spend(ledger).request  # found once, and not again
    assert shared.spent == Q(2, 5) + Q(2, 5) + Q(2, 100)


def test_a_server_that_went_away_between_two_calls(shared: Ledger) -> None:
    spend(shared)
    with shared.store._server.connection() as connection:  # type: ignore[attr-defined]
        number = connection.info.backend_pid
    time.sleep(1.1)  # then a connection is asked before it is used
    with psycopg.connect(_superuser(shared)) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (number,))
    spend(shared)
    assert shared.spent == Q(2, 5)


def _superuser(ledger: Ledger) -> str:
    return ledger.place.replace("://", "://postgres@")


FORKED = """
    import os, sys
    from dpsql.privacy import Ledger
    from tests.privacy.ledger_tools import spend

    ledger = Ledger.existing(sys.argv[1])
    spend(ledger)
    child = os.fork()
    spend(ledger)
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    spend(ledger)
    print(len(ledger.entries()))
"""


def test_a_forked_process_has_a_connection_of_its_own(shared: Ledger, address: str) -> None:
    out, err = python(FORKED, address).communicate(timeout=60)
    assert out == "4\n", err
    assert len(shared.entries()) == 4


# Clients that stop


FROZEN = """
    import sys
    from dpsql.privacy import Ledger
    from dpsql.privacy.postgres import store
    from tests.privacy.ledger_tools import spend

    store._SETTINGS = store._SETTINGS.replace(store._IDLE_TIMEOUT, "1s")
    ledger = Ledger.existing(sys.argv[1])
    try:
        with ledger.store.writing() as now:
            print("locked", flush=True)
            sys.stdin.readline()
            now.connection.execute("SELECT 1")
    except Exception as error:
        print(type(error).__name__)
    spend(ledger)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
def test_a_frozen_client_loses_its_lock(shared: Ledger, address: str) -> None:
    import subprocess

    child = python(FROZEN, address, stdin=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "locked\n"
        os.kill(child.pid, signal.SIGSTOP)
        start = time.monotonic()
        spend(shared)  # waits for the lock
        assert time.monotonic() - start < 20
        os.kill(child.pid, signal.SIGCONT)
        out, err = child.communicate("go on\n", timeout=60)
        assert child.returncode == 0, err
        assert out.strip(), err  # it was told that its transaction is gone
    finally:
        child.kill()
    assert shared.spent == Q(2, 5)


def test_a_lock_that_others_hold_too_long(
    shared: Ledger, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = module._SETTINGS.replace(module._LOCK_TIMEOUT, "200ms")
    monkeypatch.setattr(module, "_SETTINGS", quick)
    with psycopg.connect(address) as other:
        other.execute("SELECT * FROM dpsql.ledger FOR UPDATE")
        with pytest.raises(LedgerError, match="locked by another") as caught:
            spend(shared)
    assert "ask again" in str(caught.value.hint)
    spend(shared)


def test_what_the_state_is_that_a_lock_gives(shared: Ledger, address: str) -> None:
    """READ COMMITTED sees what was written while it waited; anything stricter fails instead."""
    for level, sees in (("READ COMMITTED", True), ("REPEATABLE READ", False)):
        with psycopg.connect(address, autocommit=True) as waiting:
            waiting.execute(f"BEGIN ISOLATION LEVEL {level}")
            waiting.execute("SELECT count(*) FROM dpsql.chain")  # its state begins here
            spend(shared, 0.1)
            if not sees:
                with pytest.raises(psycopg.errors.SerializationFailure):
                    waiting.execute("SELECT * FROM dpsql.locked(%s)", (shared.id,))
                continue
            head = waiting.execute("SELECT * FROM dpsql.locked(%s)", (shared.id,)).fetchone()
            lines = waiting.execute("SELECT seq, hash FROM dpsql.chain ORDER BY seq").fetchall()
            assert head is not None
            assert lines[-1] == head[:2]


EIGHT = """
    import os, sys
    from dpsql.errors import BudgetError
    from dpsql.privacy import Ledger
    from tests.privacy.ledger_tools import spend

    go, start = os.pipe()
    for _ in range(8):
        if os.fork() == 0:
            os.close(start)
            ledger, done = Ledger.existing(sys.argv[1]), 0
            os.read(go, 1)  # until the last one has this end
            for _ in range(int(sys.argv[2])):
                try:
                    spend(ledger, 0.025)
                    done += 1
                except BudgetError:
                    continue
            os.write(1, b"%d\\n" % done)
            os._exit(0)
    os.close(start)
    for _ in range(8):
        os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_that_spend_at_once(shared: Ledger, address: str) -> None:
    """A race between reading and writing would let more through than ⌊ρ / 0.025⌋ = 40."""
    out, err = python(EIGHT, address, 8).communicate(timeout=120)
    done = [int(line) for line in out.split()]
    assert (len(done), sum(done)) == (8, 40), err
    assert shared.remaining == 0
    assert shared.audit().entries == 40


# Servers that forget


def test_a_crash_of_the_server_loses_nothing_acknowledged(tmp_path: Path) -> None:
    with postgres.server() as crashing:
        ledger = postgres.begun(crashing.address(), "adult")
        acknowledged = [spend(ledger, 0.01).request for _ in range(5)]
        crashing.stop("immediate")
        with pytest.raises(LedgerError, match="server"):
            spend(ledger, 0.01)
        crashing.start()
        acknowledged.append(spend(ledger, 0.01).request)
        assert {*acknowledged} <= {e.request for e in ledger.entries()}
        ledger.audit()


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_may_forget_is_refused(
    server: postgres.Postgres, shared: Ledger, address: str, setting: str
) -> None:
    try:
        server.query(f"ALTER SYSTEM SET {setting} = off")
        server.query("SELECT pg_reload_conf()")
        deadline = time.monotonic() + 10
        while server.query(f"SHOW {setting}") == [("on",)] and time.monotonic() < deadline:
            time.sleep(0.05)
        for use in (lambda: spend(shared), lambda: shared.spent, lambda: opened(address)):
            with pytest.raises(LedgerError, match=f"{setting} off") as caught:
                use()
            assert caught.value.hint == f"set {setting} = on."
    finally:
        server.query(f"ALTER SYSTEM RESET {setting}")
        server.query("SELECT pg_reload_conf()")
    time.sleep(0.3)
    assert shared.spent == 0


def test_commits_wait_for_the_disk_whatever_the_user_has_set(
    server: postgres.Postgres, shared: Ledger, address: str
) -> None:
    server.query("ALTER ROLE postgres SET synchronous_commit = off")
    try:
        ledger = opened(address)
        with ledger.store.writing() as now:
            found = now.connection.execute("SHOW synchronous_commit").fetchone()  # type: ignore[attr-defined]
        assert found == ("on",)
    finally:
        server.query("ALTER ROLE postgres RESET synchronous_commit")


def test_a_standby_is_refused(server: postgres.Postgres, shared: Ledger) -> None:
    with postgres.standby(server) as behind:
        assert behind.query("SELECT pg_is_in_recovery()") == [(True,)]
        with pytest.raises(LedgerError, match="standby") as caught:
            Ledger.existing(behind.address())
        assert caught.value.hint == "name the primary server."


def test_an_older_state_of_the_server_is_noticed(
    server: postgres.Postgres, shared: Ledger, address: str
) -> None:
    """As after an asynchronous standby was promoted: what this process saw is not there."""
    receipt = spend(shared)
    with psycopg.connect(address) as other:
        other.execute("SET session_replication_role = replica")  # no triggers, no keys
        other.execute("DELETE FROM dpsql.chain WHERE seq = %s", (receipt.seq,))
        other.execute(
            "UPDATE dpsql.ledger AS l SET seq = c.seq, hash = c.hash, spent_over = 0"
            " FROM dpsql.chain AS c WHERE c.seq = 2"
        )
    for use in (lambda: spend(shared), lambda: shared.spent):
        with pytest.raises(LedgerError, match="entries are missing"):
            use()
    with pytest.raises(LedgerError, match="does not hold"):
        opened(address).verify(receipt)  # who didn't see it has the receipt of a release


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dpsql.chain SET event = replace(event, '1/5', '1/9') WHERE seq = 3",
        "UPDATE dpsql.chain SET hash = repeat('0', 64) WHERE seq = 3",
        "DELETE FROM dpsql.chain WHERE seq = 2",
        "UPDATE dpsql.ledger SET hash = repeat('0', 64)",
        "UPDATE dpsql.ledger SET seq = 3",
        "UPDATE dpsql.ledger SET dataset = 'another'",
        "UPDATE dpsql.ledger SET ledger = repeat('0', 32)",
    ],
)
def test_tampering_is_noticed(shared: Ledger, address: str, statement: str) -> None:
    answer(shared)
    with psycopg.connect(address) as other:
        other.execute("SET session_replication_role = replica")
        other.execute(statement)
    with pytest.raises(LedgerError):
        opened(address)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dpsql.ledger SET spent_over = 0",
        "UPDATE dpsql.ledger SET total_over = 100",
        "UPDATE dpsql.measurement SET content = 'x'",
        "DELETE FROM dpsql.measurement",
        "INSERT INTO dpsql.measurement SELECT ledger, 1, content FROM dpsql.measurement",
        "ALTER TABLE dpsql.chain DISABLE TRIGGER chain_fixed",
        "DROP TRIGGER ledger_update ON dpsql.ledger",
        "ALTER TABLE dpsql.ledger DROP CONSTRAINT within_total",
        "UPDATE dpsql.layout SET version = 0",
    ],
)
def test_an_audit_notices_the_rest(shared: Ledger, address: str, statement: str) -> None:
    answer(shared)
    assert shared.audit().contents == 1
    with psycopg.connect(address) as other:
        other.execute("SET session_replication_role = replica")
        other.execute(statement)
    with pytest.raises(LedgerError):
        shared.audit()


def test_later_tables_are_refused_by_name(
    server: postgres.Postgres, shared: Ledger, address: str
) -> None:
    with psycopg.connect(address) as other:
        other.execute("SET session_replication_role = replica")
        other.execute("UPDATE dpsql.layout SET version = 9")
    with pytest.raises(LedgerError, match="version 9") as caught:
        opened(address)
    assert caught.value.hint == "update dpsql."


# What was measured, and who hands it out


def test_what_another_machine_measured_is_left_to_it_for_a_while(
    shared: Ledger, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.privacy.owner.this_process", lambda: "elsewhere:1:2")
    receipt = answer(shared)
    monkeypatch.undo()
    other = opened(address)
    assert other.undelivered(PURPOSE, Q(1, 5)) is None
    with psycopg.connect(address) as clock:
        clock.execute("SET session_replication_role = replica")
        clock.execute("UPDATE dpsql.measurement SET stored = stored - interval '301 seconds'")
    assert other.undelivered(PURPOSE, Q(1, 5)) == (receipt, CONTENT)
    other.deliver(receipt)
    shared.deliver(receipt)  # the late one has the same bytes; to note it twice is fine
    assert other.undelivered(PURPOSE, Q(1, 5)) is None


def test_several_ledgers_of_one_database(shared: Ledger, address: str) -> None:
    other = postgres.begun(address, "census")
    spend(other)
    assert (shared.spent, other.spent) == (0, Q(1, 5))
    with pytest.raises(LedgerError, match="2 ledgers") as caught:
        opened(address)
    assert 'dataset="adult"' in str(caught.value.hint)
    assert Ledger.existing(address, dataset="census").id == other.id
    with pytest.raises(LedgerError, match="isn't a ledger of people"):
        find(address, dataset="people")
    again, made = create(address, "census")
    assert (again.id, made) == (other.id, False)
    with pytest.raises(LedgerError, match="does not hold"):
        shared.verify(replace(spend(other), ledger=shared.id))


def test_what_is_kept_is_bounded(shared: Ledger, address: str) -> None:
    shared.release(spend(shared), b"x" * (2**26 + 1))
    receipt = spend(shared)
    with psycopg.connect(address) as other:
        other.execute("SET session_replication_role = replica")
        other.execute("UPDATE dpsql.ledger SET kept = 2::bigint ^ 34")
    with pytest.raises(LedgerError, match="against the rules"):
        shared.release(receipt, CONTENT)
    assert hashlib.sha256(CONTENT).hexdigest() not in {e.content for e in shared.entries()}


# Addresses and passwords


def test_without_psycopg_a_hint_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerError, match="psycopg") as caught:
        Ledger.existing("postgresql://localhost/x")
    assert caught.value.hint == 'pip install "dpsql[postgres]"'


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:s3cret@127.0.0.1/x",
        "postgresql://ann@127.0.0.1/x?password=s3cret",
        "postgresql://127.0.0.1/x?sslpassword=s3cret",
        "service=hr password=s3cret",
        "service=hr s3cret",
        "postgresql://127.0.0.1/x?s3cret=1",
        "postgresql://ann:%s3cret@127.0.0.1/x",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(LedgerError, match=r"password|malformed") as caught:
        Ledger.existing(address)
    assert caught.value.hint
    assert "s3cret" not in str(caught.value) + repr(caught.value.__context__)


def test_passwords_come_from_the_environment_or_a_service_file(
    server: postgres.Postgres, shared: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.query("DROP ROLE IF EXISTS secretive")
    server.query("CREATE ROLE secretive LOGIN SUPERUSER PASSWORD 's3cret'")
    address = server.address(user="secretive")
    monkeypatch.setenv("PGPASSWORD", "wr0ng")
    with pytest.raises(LedgerError, match="refuses the database, the user") as caught:
        Ledger.existing(address)
    assert "PGPASSWORD" in str(caught.value.hint)
    assert "wr0ng" not in str(caught.value) + repr(caught.value.__context__)
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    ledger = Ledger.existing(address)
    spend(ledger)
    assert "s3cret" not in repr(ledger) + ledger.place
    monkeypatch.delenv("PGPASSWORD")
    file = tmp_path / "services"
    file.write_text(
        f"[accounts]\nhost=127.0.0.1\nport={server.port}\ndbname=postgres\n"
        "user=secretive\npassword=s3cret\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    for named in ("service=accounts", "postgresql://?service=accounts"):
        assert Ledger.existing(named).spent == Q(1, 5)
    for text in server.query("SELECT event FROM dpsql.chain"):
        assert "s3cret" not in str(text)


@pytest.mark.parametrize(
    ("address", "match", "hint"),
    [
        ("postgresql://postgres@127.0.0.1:1/x", "can't be reached", "PGHOST"),
        ("postgresql://postgres@127.0.0.1:{port}/nothing", "refuses the database", "PGDATABASE"),
        ("postgresql://postgres@127.0.0.1:{port}/template1", "has no ledgers", "ledger init"),
        (
            "postgresql://nobody@127.0.0.1:{port}/postgres",
            "refuses the database, the user",
            "PGUSER",
        ),
    ],
)
def test_servers_that_can_not_be_used(
    server: postgres.Postgres, address: str, match: str, hint: str
) -> None:
    with pytest.raises(LedgerError, match=match) as caught:
        Ledger.existing(address.format(port=server.port))
    assert hint in str(caught.value.hint)


def test_a_refusal_leaves_the_connection_as_it_was(shared: Ledger) -> None:
    with pytest.raises(BudgetError):
        spend(shared, 5)
    with shared.store._server.connection() as connection:  # type: ignore[attr-defined]
        number = connection.info.backend_pid
    spend(shared)
    with shared.store._server.connection() as connection:  # type: ignore[attr-defined]
        assert connection.info.backend_pid == number


# A second try


@pytest.mark.parametrize("cut", ["after", "before"])
def test_another_try_of_which_nobody_was_told_is_never_taken_twice(
    proxy: CuttingProxy, shared: Ledger, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    """It counts as taken if it was recorded; another process may take it if it was not."""
    monkeypatch.setattr(module, "_UNSURE_SECONDS", 0.5)
    ledger = through(proxy)
    failed = spend(ledger)
    ledger.fail(failed)
    proxy.cut, proxy.down = cut, False
    begun = module._commit

    def and_down(connection: Any) -> bool:
        done = begun(connection)
        proxy.down = True
        return done

    monkeypatch.setattr(module, "_commit", and_down)
    with pytest.raises(LedgerError, match="may have been recorded"):
        spend(ledger)
    monkeypatch.setattr(module, "_commit", begun)
    proxy.down = False
    assert len(shared.entries()) == 1
    receipts = {spend(shared).request, spend(ledger).request, spend(through(proxy)).request}
    assert len(receipts) == 3  # each is of one call
    assert (failed.request in receipts) == (cut == "before")
    assert shared.spent == (4 - (cut == "before")) * Q(1, 5)
    shared.audit()
