"""Sessions on databases and folders whose account is in PostgreSQL."""

from __future__ import annotations

import json
import os
import shutil
from fractions import Fraction as Q
from pathlib import Path

import duckdb
import polars as pl
import psycopg
import pytest

import dpsql
from dpsql.cli.application import Exit
from dpsql.errors import BudgetError, LedgerError
from dpsql.privacy import begin, bind, pointer
from dpsql.privacy.place import begin_shared
from tests.cli.conftest import BY_SEX, Commands
from tests.cli.conftest import commands as commands

pytestmark = pytest.mark.postgres
RHO = dpsql.Budget(rho=0.1)


def ask(db: Path, address: str, *, sql: str = BY_SEX) -> pl.DataFrame:
    with duckdb.connect(db, read_only=True) as con:
        return dpsql.Session(con, ledger=address).query(sql, budget=RHO, reuse=False)


def refused(db: Path, given: str | None, match: str) -> LedgerError:
    with duckdb.connect(db) as con, pytest.raises(LedgerError, match=match) as caught:
        dpsql.Session(con, ledger=given)
    assert caught.value.hint
    return caught.value


def test_an_unbound_database_is_refused(commands: Commands, address: str) -> None:
    begin(commands.db, address)
    shutil.copy(commands.db, commands.folder / "copy.duckdb")
    error = refused(commands.folder / "copy.duckdb", address, "isn't bound")
    assert "dpsql ledger bind --db" in str(error.hint)
    assert not (commands.folder / "copy.duckdb.ledger").exists()  # nothing was begun


def test_the_same_account_by_all_ways(commands: Commands, address: str) -> None:
    server = ("--ledger", address)
    init = ("ledger", "init", "--db", commands.db, *server, "--rho", "0.35")
    assert "GRANT EXECUTE ON FUNCTION dpsql.append" in commands.done(*init)
    assert "GRANT" not in commands.done(*init)  # only where it is new
    assert ask(commands.db, address).height == 2
    with duckdb.connect(commands.db) as con:
        assert dpsql.query(con, BY_SEX, budget=RHO, ledger=address, reuse=False).height == 2
        session = dpsql.Session(con, ledger=address)
        assert session.remaining == pytest.approx(0.15)
        release = session.release({"by_sex": BY_SEX}, budget=RHO, reuse=False)
        release.save(commands.folder / "release")
        assert session.query(BY_SEX, budget=0).height == 2  # from what is kept on the server
    ledger = session.ledger
    dpsql.Release.load(commands.folder / "release", ledger=ledger)
    dpsql.Release.load(commands.folder / "release", ledger=address)
    more = commands.run("query", BY_SEX, "--db", commands.db, *server, "--rho", "0.1", "--no-reuse")
    assert more.exit_code == Exit.BUDGET
    assert commands.done("plan", commands.script, "--db", commands.db, *server, "--rho", "0.1")
    shown = commands.document("ledger", address)
    assert shown == commands.document("ledger", "--db", commands.db, *server)
    assert shown["path"] == ledger.place
    assert [entry["state"] for entry in shown["entries"]] == ["delivered"] * 3
    checked = commands.done("ledger", "verify", address, "--release", commands.folder / "release")
    assert "3 charges" in checked


def test_databases_that_share_a_budget_share_nothing_else(commands: Commands, address: str) -> None:
    begin(commands.db, address, "office")
    other = commands.folder / "other.duckdb"
    shutil.copy(commands.db, other)
    name = ("--ledger", address, "--dataset")
    assert commands.run("ledger", "bind", "--db", other, *name, "x").exit_code == Exit.LEDGER
    assert "as office" in commands.done("ledger", "bind", "--db", other, *name, "office")
    assert "as office" in commands.done("ledger", "bind", "--db", other, *name, "office")
    ask(commands.db, address)
    with duckdb.connect(other) as con:
        session = dpsql.Session(con, ledger=address)
        assert session.ledger.spent == Q(1, 5)
        with pytest.raises(dpsql.DpsqlError):
            session.query(BY_SEX, budget=0)  # its rows are others
    with pytest.raises(LedgerError, match="charged for as office already") as caught:
        begin(commands.db, address, "office-2")
    assert caught.value.hint


def test_a_ledger_of_that_name_that_is_of_other_rows(commands: Commands, address: str) -> None:
    begin(commands.db, address)
    (commands.folder / "elsewhere").mkdir()
    other = commands.folder / "elsewhere" / "people.duckdb"
    shutil.copy(commands.db, other)
    with pytest.raises(LedgerError, match=r"ledger of people\.duckdb already") as caught:
        begin(other, address)
    assert "dpsql ledger bind" in str(caught.value.hint)
    assert not other.with_name("people.duckdb.ledger").exists()


def test_two_accounts_of_one_database(commands: Commands, address: str) -> None:
    """The first stays, in a file or on a server."""
    begin(commands.db, address, "first")
    with pytest.raises(LedgerError, match="charged for as first already"):
        begin(commands.db, address, "second")
    with pytest.raises(LedgerError, match="isn't a ledger of second"):
        bind(commands.db, address, "second")
    begin(commands.folder / "none.duckdb", address, "second")
    with pytest.raises(LedgerError, match="bound to another ledger"):
        bind(commands.db, address, "second")
    for given in (None, str(commands.folder / "x.ledger"), str(commands.ledger)):
        error = refused(commands.db, given, "has its account in PostgreSQL")
        assert "postgresql://" in str(error.hint)
    other = commands.folder / "other.duckdb"
    shutil.copy(commands.db, other)
    with duckdb.connect(other) as con:
        dpsql.Session(con)
    refused(other, address, "has its account in a file")
    with pytest.raises(LedgerError, match="has its account in a file"):
        bind(other, address, "first")


def test_a_binding_that_was_not_finished_goes_on(
    commands: Commands, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dpsql.privacy.place.bind_on_server", killed)
    with pytest.raises(KeyboardInterrupt):
        begin(commands.db, address)
    monkeypatch.undo()
    refused(commands.db, address, "server doesn't know")
    begin(commands.db, address)
    assert ask(commands.db, address).height == 2
    monkeypatch.setattr(pointer, "leave_shared", killed)
    with pytest.raises(KeyboardInterrupt):
        begin(commands.folder / "other.duckdb", address)
    monkeypatch.undo()
    shutil.copy(commands.db, commands.folder / "other.duckdb")
    bind(commands.folder / "other.duckdb", address, "other.duckdb")


def test_who_is_bound_first_decides(commands: Commands, address: str) -> None:
    """A pointer that was made by hand leads nowhere: the server has the pair, too."""
    ledger, _ = begin(commands.db, address, "first")
    second, _ = begin_shared(commands.folder / "x.ledger", address, "second")
    found = json.loads(commands.ledger.read_text())
    commands.ledger.chmod(0o644)
    commands.ledger.write_text(json.dumps(found | {"ledger": second.id}))
    refused(commands.db, address, "server doesn't know")
    with pytest.raises(LedgerError, match="charged for in another ledger"):
        bind(commands.db, address, "second")
    assert (ledger.spent, second.spent) == (0, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"ledger": "../x"},
        {"ledger": 7},
        {"data": "x"},
        {"data": "", "path": "/x"},
        {"path": "/x"},
        {"dpsql ledger": 3},
        {"dpsql ledger": True},
        {"dpsql ledger": 5},
    ],
)
def test_pointers_that_are_none(
    commands: Commands, address: str, change: dict[str, object]
) -> None:
    begin(commands.db, address)
    found = json.loads(commands.ledger.read_text())
    commands.ledger.write_text(json.dumps(found | change))
    refused(commands.db, address, "neither a ledger nor a pointer|format version 5")


def test_a_pointer_for_moved_rows_that_were_not_moved(commands: Commands, address: str) -> None:
    begin(commands.db, address)
    found = json.loads(commands.ledger.read_text())
    commands.ledger.write_text(json.dumps(found | {"data": ""}))
    refused(commands.db, address, "server doesn't know")


def test_a_pointer_says_nothing_of_the_server(commands: Commands, address: str) -> None:
    begin(commands.db, address)
    text = commands.ledger.read_text()
    assert set(json.loads(text)) == {"dpsql ledger", "ledger", "data"}
    assert "127.0.0.1" not in text
    assert os.stat(commands.ledger).st_mode & 0o777 == 0o644  # others ask the same rows


def test_rows_in_memory_have_no_name(address: str) -> None:
    error = refused(Path(":memory:"), address, "in memory")
    assert 'dataset="hr.people"' in str(error.hint)
    with pytest.raises(LedgerError, match="in memory"):
        pl.DataFrame({"x": [True]}).dp.session(ledger=address)


def test_files_and_attached_databases_are_bound_one_by_one(
    commands: Commands, address: str
) -> None:
    begin(commands.db, address, "office")
    folder = commands.folder / "trips"
    folder.mkdir()
    other = commands.folder / "other.duckdb"
    with duckdb.connect(other) as con:
        con.execute("CREATE TABLE few (sex ENUM ('F', 'M') NOT NULL)")
        con.execute("INSERT INTO few VALUES ('F')")
        con.execute(f"COPY (SELECT true AS b FROM range(9)) TO '{folder}/a.parquet'")
    with duckdb.connect(commands.db) as con:
        con.execute(f"CREATE VIEW trips AS FROM read_parquet('{folder}/*.parquet')")
        con.execute(f"ATTACH '{other}' AS other")
        session = dpsql.Session(con, ledger=address)
        questions = {
            folder: "SELECT b, COUNT(*) AS n FROM trips GROUP BY b",
            other: "SELECT sex, COUNT(*) AS n FROM other.few GROUP BY sex",
        }
        for rows, sql in questions.items():
            with pytest.raises(LedgerError, match="isn't bound") as caught:
                session.query(sql, budget=RHO)
            assert str(rows) in str(caught.value.hint)
            assert not rows.with_name(f"{rows.name}.ledger").exists()
            which = "--folder" if rows is folder else "--db"
            named = ("--ledger", address, "--dataset", "office")
            commands.done("ledger", "bind", which, rows, *named)
            assert session.query(sql, budget=RHO).height >= 2
        assert session.ledger.spent == Q(2, 5)


def test_a_server_that_is_gone_charges_nothing(commands: Commands, address: str) -> None:
    begin(commands.db, address)
    with duckdb.connect(commands.db) as con:
        session = dpsql.Session(con, ledger=address)
        with psycopg.connect(address, autocommit=True) as other:
            other.execute("ALTER SCHEMA dpsql RENAME TO gone")
            with pytest.raises(LedgerError, match="has no ledgers"):
                session.query(BY_SEX, budget=RHO)
            other.execute("ALTER SCHEMA gone RENAME TO dpsql")
        assert session.ledger.spent == 0
        assert session.query(BY_SEX, budget=RHO).height == 2


def test_a_server_that_goes_away_after_the_charge(
    commands: Commands, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paid for, so it is handed out; what can't be kept is not there to build on."""
    begin(commands.db, address)
    with duckdb.connect(commands.db) as con:
        session = dpsql.Session(con, ledger=address)
        charge = type(session.ledger).charge

        def and_gone(*arguments: object, **named: object) -> object:
            receipt = charge(*arguments, **named)  # type: ignore[arg-type]
            with psycopg.connect(address, autocommit=True) as other:
                other.execute("ALTER FUNCTION dpsql.append RENAME TO gone")
            return receipt

        monkeypatch.setattr(type(session.ledger), "charge", and_gone)
        assert session.query(BY_SEX, budget=RHO).height == 2
        monkeypatch.undo()
        with psycopg.connect(address, autocommit=True) as other:
            other.execute("ALTER FUNCTION dpsql.gone RENAME TO append")
        assert [entry.state for entry in session.ledger.entries()] == ["charged"]
        with pytest.raises(BudgetError):
            session.ledger.set_total(dpsql.Budget(epsilon=1, delta=0))


@pytest.mark.parametrize(
    "arguments",
    [
        ("bind", "--ledger", "postgresql://x", "--dataset", "y"),
        ("bind", "--db", "{db}", "--folder", "{folder}", "--ledger", "postgresql://x",
         "--dataset", "y"),
        ("bind", "--db", "{db}", "--ledger", "x.ledger", "--dataset", "y"),
        ("init", "--db", "{db}", "--dataset", "y", "--rho", "1"),
        ("show", "--db", "{db}", "--ledger", "x.ledger"),
        ("show", "postgresql://x", "--ledger", "postgresql://x"),
        ("show", "--db", "{db}", "--dataset", "y"),
    ],
)  # fmt: skip
def test_commands_that_name_no_ledger(commands: Commands, arguments: tuple[str, ...]) -> None:
    typed = (a.format(db=commands.db, folder=commands.folder) for a in arguments)
    assert commands.run("ledger", *typed).exit_code == Exit.USAGE
