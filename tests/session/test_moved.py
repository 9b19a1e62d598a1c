"""Ledgers that are moved from a file to a server."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from fractions import Fraction as Q
from pathlib import Path

import duckdb
import psycopg
import pytest

import dpsql
from dpsql.cli.application import Exit
from dpsql.errors import LedgerError
from dpsql.privacy import Ledger, bind, move, open_ledger
from dpsql.privacy import place as of_ledger
from dpsql.privacy.postgres import find
from tests.cli.conftest import BY_SEX, Commands
from tests.cli.conftest import commands as commands
from tests.helpers import postgres
from tests.privacy.ledger_tools import CONTENT, answer, edit, python, spend, unguarded

pytestmark = pytest.mark.postgres
RHO = dpsql.Budget(rho=0.1)


@pytest.fixture
def begun(commands: Commands) -> Ledger:
    """A ledger in a file with a total, and a charge for each state."""
    ledger = open_ledger(commands.db)
    ledger.set_total(dpsql.Budget(rho=1))
    ledger.deliver(answer(ledger))
    answer(ledger, script="another")
    spend(ledger)
    return ledger


def test_a_moved_ledger_says_the_same(commands: Commands, begun: Ledger, address: str) -> None:
    for plan in ("failed", "retried"):
        begun.fail(spend(begun, 0.01, plan=plan))
    spend(begun, 0.01, plan="retried")
    before = begun.id, begun.entries(), begun.total, begun.audit()
    kept = [begun.content(entry) for entry in begun.entries()]
    said = commands.done("ledger", "move", "--db", commands.db, "--ledger", address)
    assert "as people.duckdb" in said
    moved = open_ledger(commands.db, address)
    assert (moved.id, moved.entries(), moved.total, moved.audit()) == before
    assert [moved.content(entry) for entry in moved.entries()] == kept
    assert kept[0] == CONTENT
    spend(moved)
    for use in (lambda: spend(begun), lambda: begun.spent, lambda: open_ledger(commands.db)):
        with pytest.raises(LedgerError):
            use()
    with pytest.raises(LedgerError, match="has its account in PostgreSQL"):
        Ledger.existing(commands.folder / "people.duckdb.ledger.moved")
    assert commands.done("ledger", "move", "--db", commands.db, "--ledger", address) == said


def test_what_was_measured_is_built_on_after_the_move(commands: Commands, address: str) -> None:
    with duckdb.connect(commands.db) as con:
        session = dpsql.Session(con, budget=dpsql.Budget(rho=1))
        first = session.query(BY_SEX, budget=RHO)
        release = session.release({"by_sex": BY_SEX}, budget=RHO, reuse=False)
        release.save(commands.folder / "release")
    move(commands.db, address)
    with duckdb.connect(commands.db) as con:
        session = dpsql.Session(con, ledger=address)
        again = session.query(BY_SEX, budget=0)
        assert again.height == first.height
        assert session.ledger.spent == Q(2, 5)
        session.query(BY_SEX, budget=RHO, reuse=False)
        assert session.ledger.spent == Q(3, 5)
    dpsql.Release.load(commands.folder / "release", ledger=address)


def test_databases_that_shared_the_file_are_bound_to_the_server(
    commands: Commands, begun: Ledger, address: str
) -> None:
    other = commands.folder / "later" / "people.duckdb"
    other.parent.mkdir()
    shutil.copy(commands.db, other)
    spend(open_ledger(other, commands.ledger), vintage="another")
    move(commands.db, address)
    with pytest.raises(LedgerError, match="has its account in PostgreSQL"):
        open_ledger(other)
    with pytest.raises(LedgerError, match="server doesn't know"):
        open_ledger(other, address)
    bind(other, address, "people.duckdb")
    assert open_ledger(other, address).spent == Q(4, 5)


STEPS = ("take_over", "close_for_good", "pointer.put_for_moved", "bind_on_server")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_move_that_was_killed_goes_on(
    commands: Commands,
    begun: Ledger,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    when: str,
) -> None:
    """Wherever it was: the account is in one place or in none, and says the same."""
    entries = begun.entries()
    place, _, name = step.rpartition(".")
    owner = of_ledger.pointer if place else of_ledger
    real = getattr(owner, name)

    def killed(*arguments: object, **named: object) -> None:
        if when == "after":
            real(*arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, killed)
    with pytest.raises(KeyboardInterrupt):
        move(commands.db, address)
    monkeypatch.undo()
    places = []
    for given in (None, address):
        try:
            ledger = open_ledger(commands.db, given)
            places.append(given)
            spend(ledger, 0.01)
        except LedgerError:
            continue
    closed = STEPS.index(step) >= 2
    done = (step, when) == ("bind_on_server", "after")
    assert places == ([address] if done else [] if closed else [None])
    move(commands.db, address)
    moved = open_ledger(commands.db, address)
    assert moved.entries()[: len(entries)] == entries
    assert len(moved.entries()) == len(entries) + len(places)
    moved.audit()
    with pytest.raises(LedgerError):
        open_ledger(commands.db)


def test_who_waited_for_the_lock_finds_it_closed(
    commands: Commands, begun: Ledger, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a charge would go into the file that was replaced, and be forgotten."""
    real, told = of_ledger.take_over, []

    def waiting() -> None:
        try:
            spend(begun)
            told.append("spent")
        except LedgerError:
            told.append("refused")

    thread = threading.Thread(target=waiting)

    def slowly(*arguments: object) -> object:
        found = real(*arguments)  # type: ignore[arg-type]
        thread.start()
        time.sleep(1)
        return found

    monkeypatch.setattr(of_ledger, "take_over", slowly)
    before = len(begun.entries())
    move(commands.db, address)
    thread.join()
    assert told == ["refused"]
    assert len(open_ledger(commands.db, address).entries()) == before


def test_versions_that_do_not_know_of_it_refuse_a_closed_file(
    commands: Commands, begun: Ledger, address: str
) -> None:
    move(commands.db, address)
    closed = commands.folder / "people.duckdb.ledger.moved"
    with sqlite3.connect(closed) as connection:
        first = connection.execute("SELECT format FROM meta ORDER BY rowid").fetchone()
    assert first > (3,)  # they read the first row, and say that dpsql must be updated


def test_a_ledger_that_the_server_goes_on_with_otherwise(
    commands: Commands, begun: Ledger, address: str
) -> None:
    copy = commands.folder / "copy"
    copy.mkdir()
    for file in (commands.db, commands.ledger):
        shutil.copy(file, copy / file.name)
    move(commands.db, address)
    spend(open_ledger(commands.db, address))
    spend(open_ledger(copy / commands.db.name), 0.3)
    with pytest.raises(LedgerError, match="goes on otherwise"):
        move(copy / commands.db.name, address)
    assert open_ledger(copy / commands.db.name).spent == Q(6, 5)  # it stays where it was


def test_a_ledger_of_the_same_name_stays(commands: Commands, begun: Ledger, address: str) -> None:
    postgres.begun(address, "people.duckdb")
    with pytest.raises(LedgerError, match=r"another ledger of people\.duckdb"):
        move(commands.db, address)
    assert begun.spent == Q(3, 5)
    assert find(address).id != begun.id


def test_a_ledger_of_format_2_stays(commands: Commands, address: str) -> None:
    fixture = Path(__file__).parents[1] / "fixtures" / "release_of_format_2.ledger"
    shutil.copy(fixture, commands.ledger)
    with pytest.raises(LedgerError, match="earlier format"):
        move(commands.db, address)
    assert Ledger.existing(commands.ledger).entries()


def test_what_is_too_large_for_a_server_stays(
    commands: Commands, begun: Ledger, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.privacy.postgres.ledgers.MAX_CONTENT", 100)
    with pytest.raises(LedgerError, match="at most 100"):
        move(commands.db, address)
    spend(begun)


def test_a_damaged_ledger_stays(commands: Commands, begun: Ledger, address: str) -> None:
    edit(commands.ledger, *unguarded("UPDATE measurement SET content = X'00'"))
    with pytest.raises(LedgerError):
        move(commands.db, address)
    with psycopg.connect(address) as connection:
        row = connection.execute("SELECT to_regclass('dpsql.ledger')").fetchone()
        assert row == (None,)  # not even the tables were begun


def test_only_the_owner_moves(
    commands: Commands, begun: Ledger, server: postgres.Postgres, address: str
) -> None:
    server.query("DROP ROLE IF EXISTS eve")
    server.query("CREATE ROLE eve LOGIN")
    try:
        with pytest.raises(LedgerError, match="doesn't allow"):
            move(commands.db, server.address(user="eve"))
    finally:
        server.query("DROP ROLE eve")  # other tests of this server make her anew
    spend(begun)
    nothing = ("ledger", "move", "--db", commands.script, "--ledger", address)
    assert commands.run(*nothing).exit_code == Exit.LEDGER
    assert os.path.getsize(commands.ledger) > 4096


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from dpsql.privacy import move

    steps = 0
    def trace(frame, event, argument):
        global steps
        if "privacy" not in frame.f_code.co_filename:
            return None
        steps += 1
        if steps == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)
    move(Path(sys.argv[1]), sys.argv[2])
    sys.settrace(None)
    print(steps)
"""


@pytest.mark.long
def test_a_move_is_killed_at_many_steps(
    commands: Commands, begun: Ledger, server: postgres.Postgres
) -> None:
    entries = begun.entries()
    original = commands.ledger.read_bytes()
    steps, moment = 10**9, 1
    while moment < steps:
        server.query("DROP SCHEMA IF EXISTS dpsql CASCADE")
        commands.ledger.unlink()
        commands.ledger.write_bytes(original)
        child = python(KILLED, commands.db, server.address(), moment)
        out, err = child.communicate(timeout=100)
        if child.returncode == 0:
            steps = int(out)
        else:
            assert child.returncode < 0, err
        move(commands.db, server.address())
        assert open_ledger(commands.db, server.address()).entries() == entries
        moment += max(97, moment // 8)
