"""`dpsql synthetic`: rows of a release on disk."""

from __future__ import annotations

import json

import polars as pl
import pytest

from dpsql.cli.application import Exit
from tests.cli.conftest import PEOPLE, Commands, stored

SCRIPT = "SELECT sex, age, COUNT(*) AS n FROM people GROUP BY sex, age;"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A release that tests only read."""
    commands = Commands(tmp_path_factory.mktemp("saved"))
    commands.db.write_bytes(stored(PEOPLE))
    folder = commands.folder / "saved"
    commands.script.write_text(SCRIPT)
    commands.done("release", commands.script, "--db", commands.db, "--rho", "1000", "--out", folder)
    return folder


def test_rows_are_printed_and_written(commands, saved):
    result = commands.run("synthetic", saved, "--seed", "1")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].split() == ["sex", "age"]
    assert "more rows" in result.stdout
    assert "income: left out" in result.stderr
    file = commands.folder / "rows.parquet"
    commands.done(
        "synthetic", saved, "--seed", "1", "--rows", "500", "--updates", "2", "--out", file
    )
    rows = pl.read_parquet(file)
    assert rows.height == 500
    assert (rows["sex"].cast(pl.String) == "female").sum() == pytest.approx(300, abs=10)
    about = json.loads((commands.folder / "rows.parquet.metadata.json").read_text())
    assert "nobody is in them" in about["what"]
    assert about["made"] == {"table": None, "updates": 2, "seed": 1}
    assert (about["file"], about["rows"]) == ("rows.parquet", 500)
    assert [column["column"] for column in about["columns"]] == ["sex", "age"]
    assert about["mechanism"]["name"] == "querysmasher"
    refused = commands.run("synthetic", saved, "--out", file)
    assert refused.exit_code == Exit.RELEASE


def test_the_same_seed_gives_the_same_rows(commands, saved):
    first, again = (commands.done("synthetic", saved, "--seed", "7", "--csv") for _ in range(2))
    assert first == again
    assert first != commands.done("synthetic", saved, "--seed", "8", "--csv")
    assert commands.document("synthetic", saved, "--rows", "3")["columns"] == ["sex", "age"]


def test_quality(commands, saved):
    found = commands.document("synthetic", saved, "--quality")
    assert [row["columns"] for row in found["rows"]] == ["sex", "age", "sex, age", "income"]
    assert found["rows"][2]["tv_estimated"] < 0.05
    assert "tv_estimated" in commands.done("synthetic", saved, "--quality")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rows", "-1"), "--rows 10"),
        (("--updates", "-1"), "--updates 10"),
        (("--table", "peeple"), "people"),
        (("--rows", "many"), "Invalid value"),
        (("--rows", "0", "--quality"), "no rows"),
    ],
)
def test_what_is_wrong_is_said(commands, saved, arguments, said):
    result = commands.run("synthetic", saved, *arguments)
    assert result.exit_code != 0
    assert said in result.output


def test_no_rows(commands, saved):
    assert commands.done("synthetic", saved, "--rows", "0").split() == ["sex", "age"]


def test_what_is_no_release(commands):
    assert commands.run("synthetic", commands.folder).exit_code == Exit.RELEASE
