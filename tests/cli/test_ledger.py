"""`dpsql ledger`: the account, fixed, printed and checked."""

from __future__ import annotations

import shutil
import sqlite3

import pytest

from dpsql.cli.application import Exit
from tests.cli.conftest import BY_SEX, Commands


def ask(commands: Commands, rho: str) -> None:
    commands.done("query", BY_SEX, "--db", commands.db, "--rho", rho, "--no-reuse")


def test_a_total_is_fixed_once(commands):
    init = ("ledger", "init", "--db", commands.db)
    assert "ε = 3 at δ = 1e-9" in commands.done(*init, "--epsilon", "3", "--delta", "1e-9")
    commands.done(*init, "--epsilon", "3", "--delta", "1e-9")
    again = commands.run(*init, "--epsilon", "4", "--delta", "1e-9")
    assert again.exit_code == Exit.LEDGER
    assert "was fixed before" in again.stderr


def test_a_total_needs_a_budget(commands):
    assert commands.run("ledger", "init", "--db", commands.db).exit_code == Exit.USAGE


def test_the_account_adds_up(commands):
    commands.done("ledger", "init", "--db", commands.db, "--rho", "0.5")
    ask(commands, "0.1")
    ask(commands, "0.2")
    found = commands.document("ledger", "--db", commands.db)
    assert found["dataset"] == "people.duckdb"
    assert [found[k]["rho"] for k in ("total", "spent", "remaining")] == pytest.approx(
        [0.5, 0.3, 0.2]
    )
    assert found["spent"]["mu_squared"] == "3/5"
    assert [entry["state"] for entry in found["entries"]] == ["delivered", "delivered"]
    text = commands.done("ledger", "--db", commands.db)
    assert "spent  ρ = 0.3; " in text
    assert "for    each row by itself\n" in text
    assert "left   ρ = 0.2; " in text


def test_what_is_left_can_be_asked_for(commands):
    commands.done("ledger", "init", "--db", commands.db, "--epsilon", "1", "--delta", "1e-9")
    ask(commands, "0.001")
    left = commands.document("ledger", "--db", commands.db)["remaining"]["epsilon"]
    amount = ("--epsilon", repr(left), "--delta", "1e-9")
    commands.done("query", BY_SEX, "--db", commands.db, *amount)


def test_without_a_total_nothing_is_left_to_show(commands):
    ask(commands, "0.1")
    found = commands.document("ledger", "--db", commands.db)
    assert found["total"] is None
    assert found["remaining"] is None
    assert "not fixed" in commands.done("ledger", "--db", commands.db)


def test_it_is_named_by_its_file_or_by_the_database(commands):
    ask(commands, "0.1")
    by_file = commands.done("ledger", commands.ledger)
    assert by_file == commands.done("ledger", "--db", commands.db)
    assert by_file == commands.done("ledger", "show", commands.ledger)
    for arguments in (("ledger", "show"), ("ledger", commands.ledger, "--db", commands.db)):
        assert commands.run(*arguments).exit_code == Exit.USAGE


def test_delta_says_where_epsilon_is_shown(commands):
    ask(commands, "0.1")
    loose = commands.document("ledger", commands.ledger, "--delta", "1e-3")["spent"]
    tight = commands.document("ledger", commands.ledger)["spent"]
    assert loose["delta"] == 1e-3
    assert loose["epsilon"] < tight["epsilon"]


def test_a_database_without_a_ledger_gets_none(commands):
    result = commands.run("ledger", "--db", commands.db)
    assert result.exit_code == Exit.LEDGER
    assert "dpsql ledger init" in result.stderr
    assert not commands.ledger.exists()


def test_a_ledger_elsewhere_is_found_again(commands):
    place = commands.folder / "safe" / "people.ledger"
    place.parent.mkdir()
    commands.done("ledger", "init", "--db", commands.db, "--ledger", place, "--rho", "1")
    ask(commands, "0.25")
    found = commands.document("ledger", "--db", commands.db)
    assert found["path"] == str(place)
    assert found["remaining"]["rho"] == 0.75


def test_a_whole_ledger_is_verified_with_its_release(commands):
    out = commands.folder / "out"
    commands.done("release", commands.script, "--db", commands.db, "--rho", "1", "--out", out)
    text = commands.done("ledger", "verify", "--db", commands.db, "--release", out)
    assert "is intact: 1 charges" in text
    assert "its charge is in the ledger" in text
    found = commands.document("ledger", "verify", commands.ledger, "--release", out)
    assert (found["entries"], found["contents"], found["releases"]) == (1, 1, 1)


def test_a_release_of_another_ledger_is_refused(commands):
    copy = commands.folder / "earlier.ledger"
    ask(commands, "0.1")
    shutil.copy(commands.ledger, copy)
    out = commands.folder / "out"
    commands.done("release", commands.script, "--db", commands.db, "--rho", "1", "--out", out)
    commands.done("ledger", "verify", commands.ledger, "--release", out)
    result = commands.run("ledger", "verify", copy, "--release", out)
    assert result.exit_code == Exit.LEDGER
    assert "does not hold this receipt" in result.stderr


def test_a_damaged_ledger_is_refused(commands):
    ask(commands, "0.1")
    with sqlite3.connect(commands.ledger) as connection:
        connection.execute("DROP TRIGGER chain_update")
        connection.execute("UPDATE chain SET event = replace(event, '\"1/', '\"1/1000')")
    connection.close()
    for command in (("ledger", commands.ledger), ("ledger", "verify", commands.ledger)):
        assert commands.run(*command).exit_code == Exit.LEDGER


def test_delta_is_set_aside_and_shown(commands):
    init = ("ledger", "init", "--db", commands.db, "--epsilon", "1", "--delta", "1e-9")
    said = commands.done(*init, "--key-delta", "1e-10")
    assert "ε = 1 at δ = 1e-9; δ = 1e-10 for keys" in said
    assert commands.document(*init)["remaining"]["key_delta"] == "1/10000000000"
    again = commands.run(*init, "--key-delta", "0")
    assert again.exit_code == Exit.LEDGER
    asked = commands.run(
        "query", BY_SEX, "--db", commands.db, "--epsilon", "0.5", "--delta", "1e-9"
    )
    assert "charged: ρ = " in asked.stderr
    assert asked.stderr.count("δ = 1e-10 for keys") == 2
    found = commands.document("ledger", "--db", commands.db)
    assert [found[k]["key_delta"] for k in ("total", "spent", "remaining")] == [
        "1/10000000000", "0/1", "1/10000000000",
    ]  # fmt: skip
    assert "left   ρ = " in (text := commands.done("ledger", "--db", commands.db))
    assert text.count("δ = 1e-10 for keys") == 2
    far = commands.document("ledger", "--db", commands.db, "--delta", "1e-11")
    assert (far["total"]["epsilon"], far["spent"]["epsilon"] > 0) == (None, True)
    small = commands.run("query", BY_SEX, "--db", commands.db, "--epsilon", "1", "--delta", "1e-11")
    assert small.exit_code == Exit.BUDGET
    plan = commands.document(
        "plan", BY_SEX, "--db", commands.db, "--epsilon", "0.5", "--delta", "1e-9"
    )
    assert plan["budget"]["key_delta"] == "1/10000000000"


def test_without_delta_nothing_is_said_of_it(commands):
    commands.done("ledger", "init", "--db", commands.db, "--rho", "0.5")
    ask(commands, "0.1")
    assert "keys" not in commands.done("ledger", "--db", commands.db)
    found = commands.document("ledger", "--db", commands.db)
    assert "key_delta" not in found["total"]
    assert "delta" not in found["entries"][0]
