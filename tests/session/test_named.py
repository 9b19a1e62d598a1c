"""Sessions on rows that are in no file, whose account is in PostgreSQL by a name."""

from __future__ import annotations

import shlex
import threading
from fractions import Fraction as Q

import duckdb
import polars as pl
import psycopg
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.cli.application import Exit
from dpsql.errors import BudgetError, LedgerError, UndeterminedError
from dpsql.privacy import GRANTS, Ledger, begin, begin_named, bind_named, uid_of
from tests.cli.conftest import BY_SEX, Commands
from tests.cli.conftest import commands as commands
from tests.helpers.interrupted import interrupted
from tests.helpers.postgres import Postgres
from tests.session.tools import create

pytestmark = pytest.mark.postgres
RHO = dpsql.Budget(rho=0.1)
NAME = "hr.people"


def session(address: str | None, name: str = NAME, **how: object) -> dpsql.Session:
    """On a database in memory of its own."""
    return dpsql.Session(create(), ledger=address, dataset=name, **how)  # type: ignore[arg-type]


def bindings(address: str) -> list[tuple[str, str]]:
    with psycopg.connect(address) as connection:
        return connection.execute("SELECT uid, ledger FROM dpsql.binding ORDER BY 1").fetchall()


def test_all_that_is_asked_under_one_name_is_added_up(address: str) -> None:
    ledger, made = begin_named(NAME, address)
    assert made
    ledger.set_total(dpsql.Budget(rho=0.35))
    assert session(address).query(BY_SEX, budget=RHO).height == 2
    frame = pl.DataFrame({"sex": ["F", "M"]}, schema={"sex": pl.Enum(["F", "M"])})
    sql = BY_SEX.replace("people", "self")
    assert frame.dp.sql(sql, budget=RHO, ledger=address, dataset=NAME).height == 3
    assert frame.dp.session(ledger=address, dataset=NAME).query(sql, budget=RHO).height == 3
    other = session(address)  # whatever rows have the name
    other._data.declared.source.con.execute("DELETE FROM people")
    with pytest.raises(BudgetError):
        other.query(BY_SEX, budget=RHO)
    assert other.ledger.spent == ledger.spent == Q(6, 10)
    assert other.remaining == Q(5, 100)
    assert len(other.history) == 3
    with pytest.raises(BudgetError):
        dpsql.query(create(), BY_SEX, budget=RHO, ledger=address, dataset=NAME)
    with pytest.raises(LedgerError, match="total"):
        session(address, budget=dpsql.Budget(rho=1))


@pytest.mark.parametrize("name", [NAME, "Ann's people", "hr.people ", "-x"])
def test_a_name_that_isnt_bound_is_refused_with_what_binds_it(
    commands: Commands, address: str, name: str
) -> None:
    begin(commands.db, address, "office")
    before = bindings(address)
    with pytest.raises(LedgerError, match="No ledger of that server is for") as caught:
        session(address, name)
    assert bindings(address) == before  # nothing was begun
    init, bind = (part.partition(": ")[2] for part in str(caught.value.hint).split("; or "))
    typed = init.replace("ADDRESS", address)
    commands.done(*shlex.split(typed)[1:])
    assert session(address, name).ledger.dataset == name
    typed = bind.replace("ADDRESS", address).replace("NAME", "office")
    assert commands.run(*shlex.split(typed)[1:]).exit_code == Exit.LEDGER  # it is bound by now
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("ALTER TABLE dpsql.binding DISABLE TRIGGER ALL")
        connection.execute("DELETE FROM dpsql.binding WHERE uid = %s", (uid_of(name),))
    commands.done(*shlex.split(typed)[1:])
    assert session(address, name).ledger.dataset == "office"


def test_a_name_is_for_a_server_and_for_rows_in_no_file(commands: Commands, address: str) -> None:
    begin_named(NAME, address)
    begin(commands.db, address, "office")
    with duckdb.connect(commands.db) as con:
        with pytest.raises(LedgerError, match=r"in a file, people\.duckdb") as caught:
            dpsql.Session(con, ledger=address, dataset=NAME)
        assert str(caught.value.hint) == "leave dataset= out."
        assert dpsql.Session(con, ledger=address).ledger.dataset == "office"
    for given in (None, str(commands.folder / "x.ledger")):
        with pytest.raises(LedgerError, match="only on a server") as caught:
            session(given)
        assert 'ledger="postgresql://' in str(caught.value.hint)
    assert not (commands.folder / "x.ledger").exists()
    with pytest.raises(LedgerError, match="in memory") as caught:
        dpsql.Session(create(), ledger=address)
    assert 'dataset="hr.people"' in str(caught.value.hint)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 1001, 7, "\ud800"])
def test_what_is_no_name_is_refused(address: str, name: object) -> None:
    with pytest.raises(LedgerError, match="name must be"):
        session(address, name)  # type: ignore[arg-type]


def test_a_server_without_ledgers(address: str) -> None:
    with pytest.raises(LedgerError, match="has no ledgers") as caught:
        session(address)
    assert "dpsql ledger init" in str(caught.value.hint)


def test_a_name_is_bound_once_and_for_good(commands: Commands, address: str) -> None:
    first, _ = begin_named(NAME, address)
    assert begin_named(NAME, address)[1] is False
    office, _ = begin(commands.db, address, "office")
    with pytest.raises(LedgerError, match="in another ledger"):
        bind_named(NAME, address, "office")
    with pytest.raises(LedgerError, match="isn't a ledger of nowhere"):
        bind_named("other", address, "nowhere")
    with pytest.raises(LedgerError, match="ledger of office already") as caught:
        begin_named("office", address)  # it is for the file
    assert "dpsql ledger bind --rows office" in str(caught.value.hint)
    for _ in range(2):
        assert bind_named("hr.2027", address, "office").id == office.id
    with pytest.raises(LedgerError, match="in another ledger"):
        begin_named("hr.2027", address)
    with pytest.raises(LedgerError, match=r"isn't a ledger of hr\.2027"):  # it was taken back
        Ledger.existing(address, dataset="hr.2027")
    assert dict(bindings(address))[uid_of(NAME)] == first.id


def test_who_begins_at_once_has_one_ledger(address: str) -> None:
    found: list[tuple[str, bool]] = []

    def work() -> None:
        ledger, made = begin_named(NAME, address)
        found.append((ledger.id, made))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({ledger for ledger, _ in found}) == 1
    assert sorted(made for _, made in found) == [False, False, False, True]


def test_only_the_owner_binds_names(server: Postgres, address: str) -> None:
    server.query("CREATE ROLE ann LOGIN")
    try:
        begin_named(NAME, address)
        analyst = server.address(user="ann")
        with pytest.raises(LedgerError, match="doesn't allow"):
            session(analyst)
        server.query(GRANTS + "GRANT dpsql_analyst TO ann;")
        assert session(analyst).query(BY_SEX, budget=RHO).height == 2
        for act in (
            lambda: bind_named("mine", analyst, NAME),
            lambda: begin_named("mine", analyst),
            lambda: session(analyst, budget=dpsql.Budget(rho=9)),
        ):
            with pytest.raises(LedgerError, match="doesn't allow"):
                act()
        with pytest.raises(LedgerError, match="No ledger"):
            session(analyst, "mine")
        for change in (
            f"UPDATE dpsql.binding SET uid = '{uid_of('mine')}'",
            f"INSERT INTO dpsql.binding SELECT '{uid_of('mine')}', ledger FROM dpsql.ledger",
            "DELETE FROM dpsql.binding",
        ):
            with (
                psycopg.connect(analyst, autocommit=True) as connection,
                pytest.raises(psycopg.errors.InsufficientPrivilege),
            ):
                connection.execute(change)
        with pytest.raises(psycopg.DatabaseError, match="only appended to"):
            # Nor may the owner, by mistake.
            server.query("UPDATE dpsql.binding SET ledger = ledger")
    finally:
        server.query("DROP SCHEMA IF EXISTS dpsql CASCADE")
        for role in ("ann", "dpsql_analyst", "dpsql_auditor"):
            server.query(f"DROP ROLE IF EXISTS {role}")


# ── what was measured ──────────────────────────────────────────────────────────────────────


def test_measurements_are_of_the_rows_of_a_name_and_a_vintage(address: str) -> None:
    begin_named(NAME, address)
    bind_named("hr.others", address, NAME)
    plain = session(address)
    answer = plain.query(BY_SEX, budget=RHO)
    assert_frame_equal(plain.query(BY_SEX, budget=0), answer)
    with pytest.raises(UndeterminedError):  # nothing tells that its rows are the same
        session(address).query(BY_SEX, budget=0)
    with pytest.raises(UndeterminedError):
        session(address, vintage="2026-Q4").query(BY_SEX, budget=0)
    answer = session(address, vintage="2026-Q4").query(BY_SEX, budget=RHO)
    again = session(address, vintage="2026-Q4").query(BY_SEX, budget=0)
    assert_frame_equal(again, answer)
    for name, vintage in (("hr.others", "2026-Q4"), (NAME, "2027-Q1")):
        with pytest.raises(UndeterminedError):
            session(address, name, vintage=vintage).query(BY_SEX, budget=0)
    last = plain.redeclared(vintage="2026-Q4")
    assert_frame_equal(last.query(BY_SEX, budget=0), answer)
    assert last.ledger.spent == Q(4, 10)


def test_a_release_that_was_not_handed_out_is_had_by_the_next_process(address: str) -> None:
    begin_named(NAME, address)
    script = {"by_sex": BY_SEX}
    with interrupted() as made:
        session(address, vintage="2026").release(script, budget=RHO)
    again = session(address, vintage="2026").release(script, budget=RHO)
    assert_frame_equal(again["by_sex"], made[0]["by_sex"])
    assert again.receipt is not None
    assert session(address).ledger.spent == Q(2, 10)


def test_files_and_attached_databases_are_known_by_themselves(
    commands: Commands, address: str
) -> None:
    begin_named(NAME, address)
    folder = commands.folder / "trips"
    folder.mkdir()
    asked = session(address)
    con = asked._data.declared.source.con
    con.execute(f"COPY (SELECT true AS b FROM range(9)) TO '{folder}/a.parquet'")
    con.execute(f"CREATE VIEW trips AS FROM read_parquet('{folder}/*.parquet')")
    con.execute(f"ATTACH '{commands.db}' AS other (READ_ONLY)")
    for sql, flag, rows in (
        ("SELECT b, COUNT(*) AS n FROM trips GROUP BY b", "--folder", folder),
        (BY_SEX.replace("people", "other.people"), "--db", commands.db),
    ):
        with pytest.raises(LedgerError, match="isn't bound"):
            asked.query(sql, budget=RHO)
        ledger = ("--ledger", address, "--dataset", NAME)
        commands.done("ledger", "bind", flag, rows, *ledger)
        assert asked.query(sql, budget=RHO).height >= 2
    assert asked.ledger.spent == Q(4, 10)


def test_a_release_is_found_among_several_accounts(commands: Commands, address: str) -> None:
    for name in ("a", NAME, "z"):
        begin_named(name, address)
    asked = session(address)
    asked.release({"by_sex": BY_SEX}, budget=RHO, out=commands.folder / "paid")
    asked.release({"by_sex": BY_SEX}, budget=0, out=commands.folder / "free")
    paid = dpsql.Release.load(commands.folder / "paid", ledger=address)
    assert paid.receipt is not None
    assert paid.receipt.ledger == asked.ledger.id
    with pytest.raises(LedgerError, match="There are 3 ledgers") as caught:
        dpsql.Release.load(commands.folder / "free", ledger=address)
    assert "ledger=session.ledger" in str(caught.value.hint)
    dpsql.Release.load(commands.folder / "free", ledger=asked.ledger)
    shown = commands.run("ledger", "show", address)
    assert shown.exit_code == Exit.LEDGER
    assert "--dataset a" in shown.output


# ── the command line ───────────────────────────────────────────────────────────────────────


def test_accounts_of_names_are_kept_by_commands(commands: Commands, address: str) -> None:
    server = ("--ledger", address, "--dataset", NAME)
    first = commands.done("ledger", "init", *server, "--rho", "0.35")
    assert "GRANT EXECUTE" in first
    assert "ρ = 0.35" in first
    assert "GRANT" not in commands.done("ledger", "init", *server, "--rho", "0.35")
    assert commands.run("ledger", "init", *server, "--rho", "0.5").exit_code == Exit.LEDGER
    session(address).query(BY_SEX, budget=RHO)
    bound = commands.document("ledger", "bind", "--rows", "hr.2027", *server)
    assert bound == {"path": session(address).ledger.place, "dataset": NAME}
    said = commands.done("ledger", "bind", "--rows", "hr.2027", *server)
    assert said.startswith("hr.2027 is charged for in")
    assert session(address, "hr.2027").remaining == Q(1, 4)
    assert len(commands.document("ledger", "show", address)["entries"]) == 1
    assert "1 charges" in commands.done("ledger", "verify", address)


@pytest.mark.parametrize(
    "arguments",
    [
        ("init", "--dataset", "y", "--rho", "1"),
        ("init", "--ledger", "x.ledger", "--dataset", "y", "--rho", "1"),
        ("init", "--ledger", "postgresql://x", "--rho", "1"),
        ("init", "--rho", "1"),
        ("bind", "--rows", "z", "--db", "{db}", "--ledger", "postgresql://x", "--dataset", "y"),
        ("bind", "--ledger", "postgresql://x", "--dataset", "y"),
        ("bind", "--rows", "z", "--ledger", "x.ledger", "--dataset", "y"),
    ],
)
def test_commands_that_name_no_rows(commands: Commands, arguments: tuple[str, ...]) -> None:
    typed = (a.format(db=commands.db) for a in arguments)
    assert commands.run("ledger", *typed).exit_code == Exit.USAGE
