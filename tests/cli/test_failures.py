"""Exit codes and messages: what a script can rely on when something is wrong."""

from __future__ import annotations

import json

import click
import duckdb
import pytest

from dpsql import errors
from dpsql.cli.application import Exit, describe, exit_of
from dpsql.hints import Hint
from tests.cli.conftest import BY_SEX

CODES = {
    errors.SqlError("…"): Exit.SQL,
    errors.SqlParseError("…"): Exit.SQL,
    errors.SqlSchemaError("…"): Exit.SQL,
    errors.SchemaError("…"): Exit.SCHEMA,
    errors.StaleSchemaError("…"): Exit.SCHEMA,
    errors.BudgetError("…"): Exit.BUDGET,
    errors.LedgerError("…"): Exit.LEDGER,
    errors.ReleaseFormatError("…"): Exit.RELEASE,
    errors.ExecutionError(): Exit.EXECUTION,
    errors.ResourceLimitError("…"): Exit.OTHER,
    errors.WorkloadError("…"): Exit.OTHER,
    errors.InternalError("…"): Exit.UNEXPECTED,
    OSError("…"): Exit.UNEXPECTED,
    click.UsageError("…"): Exit.USAGE,
    click.Abort(): Exit.INTERRUPTED,
}


@pytest.mark.parametrize(("error", "code"), CODES.items(), ids=lambda x: type(x).__name__)
def test_each_kind_of_error_has_its_code(error, code):
    assert exit_of(error) == code


def test_too_much_asked_says_asked_left_and_short_by(commands):
    commands.done("ledger", "init", "--db", commands.db, "--epsilon", "1", "--delta", "1e-9")
    result = commands.run("query", BY_SEX, "--db", commands.db, "--epsilon", "2", "--delta", "1e-9")
    assert result.exit_code == Exit.BUDGET
    for words in ("asked ε = 2", "left ε = 1 at δ = 1e-9", "short by ρ ="):
        assert words in result.stderr
    assert result.stdout == ""


def test_the_hint_for_too_much_works_when_typed(commands):
    commands.done("ledger", "init", "--db", commands.db, "--rho", "0.1")
    query = ("query", BY_SEX, "--db", commands.db)
    commands.done(*query, "--rho", "0.07")
    refused = commands.run(*query, "--rho", "0.07")
    hint = refused.stderr.splitlines()[-1]
    assert hint == "Hint: ask for at most --rho 0.03."
    commands.done(*query, *hint.removesuffix(".").split()[-2:])


def test_an_error_shows_the_place_in_the_sql(commands):
    result = commands.run("query", "SELECT sexx, COUNT(*) FROM people GROUP BY sexx",
                          "--db", commands.db, "--rho", "1")  # fmt: skip
    assert result.exit_code == Exit.SQL
    assert "^^^^" in result.stderr
    assert result.stderr.splitlines()[-1] == "Hint: did you mean sex?"


def test_errors_as_json_are_one_object(commands):
    result = commands.run("query", "SELECT sexx, COUNT(*) FROM people GROUP BY sexx",
                          "--db", commands.db, "--rho", "1", "--json")  # fmt: skip
    assert result.exit_code == Exit.SQL
    found = json.loads(result.stderr)
    assert found["error"] == "SqlSchemaError"
    assert found["hint"] == "did you mean sex?"
    start, end = found["span"]
    assert found["sql"][start:end] == "sexx"
    assert result.stdout == ""


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--epsilon", "1"),
        ("--delta", "1e-9"),
        ("--rho", "1", "--mu", "1"),
        ("--rho", "much"),
        ("--rho", "1", "--target", "by_sex=25"),
        ("--target", "by_sex"),
        ("--target", "by_sex=nan"),
        ("--target", "by_sex=1", "--target", "by_sex=2"),
        ("--rho", "1", "--objective", "best"),
        ("--rho", "1", "--bogus"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_a_usage_error(commands, options):
    arguments = ("plan", commands.script, "--db", commands.db, *options)
    text, as_json = commands.run(*arguments), commands.run(*arguments, "--json")
    assert text.exit_code == as_json.exit_code == Exit.USAGE
    assert "Error: " in text.stderr
    found = json.loads(as_json.stderr)
    assert found["message"]
    assert set(found) == {"error", "message", "hint", "sql", "span", "statement"}


@pytest.mark.parametrize("amount", ["0", "-1", "nan", "inf", "1e-50", "1e999999999"])
def test_a_useless_amount_is_a_budget_error(commands, amount):
    result = commands.run("plan", commands.script, "--db", commands.db, f"--rho={amount}")
    assert result.exit_code == Exit.BUDGET


def test_files_that_do_not_exist_are_usage_errors(commands):
    missing = commands.folder / "missing"
    for arguments in (
        ("plan", missing, "--db", commands.db, "--rho", "1"),
        ("plan", commands.script, "--db", missing, "--rho", "1"),
        ("show", missing),
        ("ledger", missing),
    ):
        assert commands.run(*arguments).exit_code == Exit.USAGE
    assert not missing.exists()


def test_a_file_that_is_no_database_is_a_schema_error(commands):
    commands.db.write_bytes(b"not a database at all" * 500)
    result = commands.run("query", BY_SEX, "--db", commands.db, "--rho", "1")
    assert result.exit_code == Exit.SCHEMA
    assert "can't be opened" in result.stderr


def test_a_file_that_is_no_ledger_is_a_ledger_error(commands):
    commands.ledger.write_bytes(b"not a ledger at all" * 500)
    assert commands.run("ledger", commands.ledger).exit_code == Exit.LEDGER
    result = commands.run("query", BY_SEX, "--db", commands.db, "--rho", "1")
    assert result.exit_code == Exit.LEDGER


@pytest.mark.parametrize("data", [b"SELECT '\xff\xfe'", b"\xff" * 3_000_000, b""])
def test_a_script_that_is_no_text_is_a_sql_error(commands, data):
    commands.script.write_bytes(data)
    result = commands.run("plan", commands.script, "--db", commands.db, "--rho", "1")
    assert result.exit_code == Exit.SQL


def test_what_is_unexpected_has_no_traceback(commands, monkeypatch):
    def broken(*args: object, **kwargs: object) -> None:
        raise errors.InternalError("a strategy does not fit")

    monkeypatch.setattr("dpsql.api.plan", broken)
    monkeypatch.setattr("dpsql.session.Session.plan", broken)
    result = commands.run("plan", commands.script, "--db", commands.db, "--rho", "1")
    assert result.exit_code == Exit.UNEXPECTED
    assert "InternalError: a strategy does not fit" in result.stderr


def test_nothing_that_is_printed_of_an_error_can_disguise_it():
    error = errors.SqlError("no \x1b[2Jsuch\u202e thing", hint="\x07ring")
    text = describe(error, as_json=False)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x07" not in text
    assert describe(error, as_json=True).isascii()


def test_hints_are_worded_as_options():
    hint = "pass " + Hint("accept_schema=True", "--accept-schema") + "."
    error = errors.SchemaError("Changed.", hint=hint)
    assert describe(error, as_json=False) == "Error: Changed.\nHint: pass --accept-schema."
    assert json.loads(describe(error, as_json=True))["hint"] == "pass --accept-schema."


def test_without_a_command_the_help_is_shown_line_by_line(commands):
    result = commands.run()
    assert result.exit_code == Exit.USAGE
    lines = result.stderr.splitlines()
    assert lines[0].startswith("Usage: ")
    assert any(line.split()[:1] == ["release"] for line in lines)
    assert "�" not in result.stderr


def test_the_hint_for_a_forgotten_public_table_works_when_typed(commands):
    with duckdb.connect(commands.db) as con:
        con.execute("CREATE TABLE zones (sex VARCHAR, zone VARCHAR)").fetchall()
        con.execute("INSERT INTO zones VALUES ('female', 'a'), ('male', 'b')").fetchall()
    sql = "SELECT zone, COUNT(*) AS n FROM people JOIN zones USING (sex) GROUP BY zone"
    asked = ("query", sql, "--db", commands.db, "--rho", "1", "--csv")
    refused = commands.run(*asked)
    assert refused.exit_code == Exit.SQL
    hint = refused.stderr.splitlines()[-1]
    assert "only if zones has no private row" in hint.lower()
    assert hint.endswith(": --public zones.")
    assert commands.done(*asked, "--public", "zones").count("\n") == 3


def test_the_hint_for_free_answers_names_an_option(commands):
    commands.done("query", BY_SEX, "--db", commands.db, "--rho", "1")
    ages = "SELECT age, COUNT(*) AS n FROM people GROUP BY age"
    refused = commands.run("query", ages, "--db", commands.db, "--free")
    assert refused.exit_code == Exit.SQL
    hint = refused.stderr.splitlines()[-1]
    assert "for example --rho 0.01" in hint
    commands.done("query", ages, "--db", commands.db, "--rho", "0.01")
