"""`dpsql release` and `dpsql show`: a folder that appears whole or not at all."""

from __future__ import annotations

import csv
import io

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.cli.application import Exit
from tests.cli.conftest import BY_SEX, Commands
from tests.helpers.counting import counted


def arguments(commands: Commands, *options: object) -> tuple[object, ...]:
    return ("release", commands.script, "--db", commands.db, *options)


def charges(commands: Commands) -> list[str]:
    if not commands.ledger.exists():
        return []
    found = commands.document("ledger", "--db", commands.db)
    return [entry["state"] for entry in found["entries"]]


@pytest.fixture
def out(commands):
    """A release of the script, with a large budget."""
    folder = commands.folder / "out"
    commands.done(*arguments(commands, "--rho", "1000", "--out", folder))
    return folder


def test_it_says_what_was_written_and_charged(commands):
    commands.done("ledger", "init", "--db", commands.db, "--epsilon", "3", "--delta", "1e-9")
    text = commands.done(
        *arguments(commands, "--epsilon", "1", "--delta", "1e-9", "--out", commands.folder / "out")
    )
    lines = text.splitlines()
    assert lines[0].endswith("out: 2 statements")
    assert {"  by_sex.parquet", "  ages.parquet", "  release.json"} <= set(lines)
    assert any(line.startswith("charged: ") and "ε = 1 at δ = 1e-9" in line for line in lines)
    assert any(line.startswith("left: ") for line in lines)
    assert lines[-1] == "neighbours: add or remove one row of people"
    assert charges(commands) == ["delivered"]


def test_as_json(commands):
    folder = commands.folder / "out"
    found = commands.document(*arguments(commands, "--rho", "0.5", "--out", folder))
    assert found["statements"] == ["by_sex", "ages"]
    assert found["out"] == str(folder)
    assert set(found["files"]) == {path.name for path in folder.iterdir()}
    assert found["charged"]["mu_squared"] == "1/1"
    assert found["remaining"] is None


def test_the_folder_holds_the_answers(commands, out):
    release = dpsql.Release.load(out, ledger=commands.ledger)
    assert release["by_sex"]["n"].to_list() == pytest.approx([600, 400], abs=2)
    assert release.charged == dpsql.Budget(rho=1000)


def test_columns_that_are_asked_for(commands):
    folder = commands.folder / "out"
    options = ("--confidence", "0.95", "--nonnegative", "--integers", "--no-reuse")
    commands.done(*arguments(commands, "--rho", "1000", *options, "--out", folder))
    frame = dpsql.Release.load(folder)["by_sex"]
    assert {"n", "n_variance", "n_lower", "n_upper", "n_adjusted"} <= set(frame.columns)
    assert frame["n_adjusted"].to_list() == pytest.approx(frame["n"].round().to_list(), abs=1)


def test_a_target_charges_the_least_budget(commands):
    folder = commands.folder / "out"
    options = arguments(commands, "--target", "by_sex=20", "--out", folder)
    refused = commands.run(*options)
    assert refused.exit_code == Exit.BUDGET
    assert "--at-most --rho 0.5" in refused.stderr
    assert commands.run(*arguments(commands, "--at-most", "--out", folder)).exit_code == Exit.USAGE
    found = commands.document(*options, "--at-most", "--rho", "10")
    planned = commands.document(
        "plan", commands.script, "--db", commands.db, "--target", "by_sex=20", "--no-reuse"
    )
    assert found["charged"] == planned["budget"]


def test_a_target_of_an_average_holds_for_rows_assumed(commands):
    mean = "SELECT sex, AVG(age) AS m FROM people GROUP BY sex"
    commands.script.write_text(f"-- name: means\n{mean};", encoding="utf-8")
    out = ("--out", commands.folder / "out")
    most = ("--target", "means=0.5", "--at-most", "--rho", "10")
    refused = commands.run(*arguments(commands, *most, *out))
    assert refused.exit_code != 0
    assert "add --assume means=1000" in refused.stderr
    found = commands.document(*arguments(commands, *most, "--assume", "means=1000", *out))
    planned = commands.document(
        *("plan", commands.script, "--db", commands.db, "--no-reuse"),
        *("--target", "means=0.5", "--assume", "means=1000"),
    )
    assert found["charged"] == planned["budget"]
    assert 0.3 < planned["expected_answers"][0]["largest_standard_error"] <= 0.5


def test_past_measurements_can_be_released_for_nothing(commands, out):
    commands.script.write_text(f"-- name: again\n{BY_SEX};", encoding="utf-8")
    second = commands.folder / "second"
    found = commands.document(*arguments(commands, "--free", "--out", second))
    assert found["charged"] is None
    assert charges(commands) == ["delivered"]
    first, again = dpsql.Release.load(out)["by_sex"], dpsql.Release.load(second)["again"]
    assert again["n"].to_list() == pytest.approx(first["n"].to_list(), abs=1e-6)


def test_free_excludes_a_budget(commands):
    folder = commands.folder / "out"
    for other in (("--rho", "1"), ("--target", "by_sex=2"), ("--no-reuse",)):
        result = commands.run(*arguments(commands, "--free", *other, "--out", folder))
        assert result.exit_code == Exit.USAGE
    assert not folder.exists()


def test_an_existing_output_is_refused_before_the_charge(commands):
    folder = commands.folder / "out"
    folder.mkdir()
    (folder / "mine.txt").write_text("keep me")
    result = commands.run(*arguments(commands, "--rho", "1", "--out", folder))
    assert result.exit_code == Exit.RELEASE
    assert "exists already" in result.stderr
    assert (folder / "mine.txt").read_text() == "keep me"
    assert charges(commands) == []


@pytest.mark.parametrize("where", ["missing/out", "release.sql/out", "release.sql"])
def test_an_output_that_cannot_be_made_is_refused_before_the_charge(commands, where):
    before = sorted(commands.folder.iterdir())
    result = commands.run(*arguments(commands, "--rho", "1", "--out", commands.folder / where))
    assert result.exit_code == Exit.RELEASE
    assert charges(commands) == []
    assert set(commands.folder.iterdir()) - set(before) <= {commands.ledger}


def test_nothing_is_written_when_the_budget_is_short(commands):
    commands.done("ledger", "init", "--db", commands.db, "--rho", "0.1")
    folder = commands.folder / "out"
    result = commands.run(*arguments(commands, "--rho", "0.2", "--out", folder))
    assert result.exit_code == Exit.BUDGET
    assert not folder.exists()
    assert charges(commands) == []


def test_a_failure_after_the_charge_publishes_nothing(commands):
    def broken(*args: object) -> None:
        raise RuntimeError("600 rows of a private table")

    folder = commands.folder / "out"
    with counted(broken):
        result = commands.run(*arguments(commands, "--rho", "0.2", "--out", folder))
    assert result.exit_code == Exit.EXECUTION
    assert "600" not in result.stderr
    assert not folder.exists()
    assert charges(commands) == ["failed"]
    commands.done(*arguments(commands, "--rho", "0.2", "--out", folder))
    assert charges(commands) == ["delivered"]


def test_the_summary_of_a_release(commands, out):
    text = commands.done("show", out)
    for words in ("by_sex", "ages", "add or remove one row of people"):
        assert words in text
    found = commands.document("show", out)
    assert [c["column"] for c in found["statements"]["by_sex"]] == ["sex", "n"]
    assert found["charged"]["rho"] == 1000


def test_one_statement_of_a_release(commands, out):
    frame = dpsql.Release.load(out)["by_sex"]
    rows = list(csv.DictReader(io.StringIO(commands.done("show", out, "by_sex", "--csv"))))
    assert [float(row["n"]) for row in rows] == frame["n"].to_list()
    assert commands.document("show", out, "by_sex")["rows"] == frame.to_dicts()
    header, female, _ = commands.done("show", out, "by_sex").splitlines()
    assert header.split() == [name.replace("variance", "standard_error") for name in frame.columns]
    assert female.split()[0] == "female"


def test_an_unknown_statement_is_a_usage_error(commands, out):
    result = commands.run("show", out, "by_sx")
    assert result.exit_code == Exit.USAGE
    assert "there are by_sex, ages" in result.stderr


def test_showing_needs_no_database(commands, out):
    commands.db.unlink()
    commands.ledger.unlink()
    assert "by_sex" in commands.done("show", out)


def test_a_release_that_was_changed_is_refused(commands, out):
    pl.DataFrame({"sex": ["female"], "n": [1.0]}).write_parquet(out / "by_sex.parquet")
    result = commands.run("show", out)
    assert result.exit_code == Exit.RELEASE
    assert "changed" in result.stderr


def test_a_folder_that_is_no_release_is_refused(commands):
    assert commands.run("show", commands.folder).exit_code == Exit.RELEASE


def test_a_changed_schema_has_to_be_accepted(commands, out):
    with duckdb.connect(commands.db) as con:
        con.execute("ALTER TABLE people ADD COLUMN known BOOLEAN").fetchall()
    query = ("query", BY_SEX, "--db", commands.db, "--rho", "1000")
    refused = commands.run(*query)
    assert refused.exit_code == Exit.SCHEMA
    assert "--accept-schema" in refused.stderr
    commands.done(*query, "--accept-schema")


def test_another_vintage_is_measured_anew(commands, out):
    free = ("query", BY_SEX, "--db", commands.db, "--free")
    commands.done(*free)
    assert commands.run(*free, "--vintage", "2026-Q4").exit_code == Exit.SQL


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ((), "SCRIPT, --db PATH, --out PATH and a budget"),
        (("SELECT 1",), "--db PATH, --out PATH and a budget"),
        (("SELECT 1", "--rho", "1"), "--db PATH and --out PATH."),
        (("SELECT 1", "--free"), "--db PATH and --out PATH."),
        (("SELECT 1", "--target", "q=3"), "--db PATH and --out PATH."),
    ],
)
def test_all_that_is_missing_is_named_at_once(commands, given, missing):
    ran = commands.run("release", *given)
    assert ran.exit_code == Exit.USAGE
    assert f"Missing are {missing}" in ran.stderr


def test_the_one_option_that_is_missing_is_named(commands):
    ran = commands.run(*arguments(commands, "--rho", "1"))
    assert ran.exit_code == Exit.USAGE
    assert "Missing option '--out'" in ran.stderr
