"""Answers are printed and written in every form; what exists is refused before the charge."""

from __future__ import annotations

import hashlib
import io
import json
import os

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from tests.cli.conftest import BY_SEX

LARGE = ("--rho", "500")


@pytest.fixture
def saved(commands):
    commands.done("release", commands.script, "--db", commands.db, *LARGE, "--out", path(commands))
    return path(commands)


def path(commands):
    return commands.folder / "out"


def spent(commands):
    return dpsql.privacy.Ledger.existing(commands.ledger).spent if commands.ledger.exists() else 0


def test_every_command_with_a_frame_has_every_form(commands, saved):
    asked = {
        "query": ("query", BY_SEX, "--db", commands.db, "--free"),
        "show": ("show", saved, "by_sex"),
    }
    expected = dpsql.Release.load(saved)["by_sex"]
    for name, arguments in asked.items():
        result = commands.run(*arguments, "--parquet")
        assert result.exit_code == 0
        found = pl.read_parquet(io.BytesIO(result.stdout_bytes))
        assert_frame_equal(found, expected)
        for ending in ("csv", "parquet", "json"):
            file = commands.folder / f"{name}.{ending}"
            assert str(file) in commands.done(*arguments, "--out", file)
            assert file.stat().st_mode & 0o777 == 0o600
        assert_frame_equal(pl.read_parquet(commands.folder / f"{name}.parquet"), expected)
        again = pl.read_csv(commands.folder / f"{name}.csv", schema=expected.schema)
        assert_frame_equal(again, expected, check_exact=True)
        document = json.loads((commands.folder / f"{name}.json").read_text())
        assert document["columns"] == expected.columns
        assert document["rows"] == expected.to_dicts()
        odd = commands.folder / f"{name}.dat"
        said = json.loads(commands.done(*arguments, "--parquet", "--out", odd, "--json"))
        assert said["rows"] == 2
        assert "Female" not in json.dumps(said)
        assert_frame_equal(pl.read_parquet(odd), expected)


def test_metadata_go_beside_one_answer(commands, saved):
    file = commands.folder / "answer.parquet"
    query = ("query", BY_SEX, "--db", commands.db, *LARGE, "--suppress-below", "3")
    said = commands.document(*query, "--out", file)
    beside = commands.folder / "answer.parquet.metadata.json"
    assert said["metadata"] == str(beside)
    assert beside.stat().st_mode & 0o777 == 0o600
    about = json.loads(beside.read_text())
    assert about["budget"]["rho"] == 500
    assert about["post_processing"]["suppress_below"] == 3
    ((name, statement),) = about["statements"].items()
    assert name == "query"
    assert statement["sql"] == BY_SEX
    assert statement["file"] == "answer.parquet"
    assert statement["rows"] == 2
    assert statement["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    columns = [column["column"] for column in statement["columns"]]
    assert columns == pl.read_parquet(file).columns
    commands.done("show", saved, "by_sex", "--out", commands.folder / "shown.csv")
    shown = json.loads((commands.folder / "shown.csv.metadata.json").read_text())
    assert list(shown["statements"]) == ["by_sex"]


def test_a_wrong_number_of_rows_is_told_by_its_option(commands, saved):
    result = commands.run("show", saved, "--suppress-below", "0")
    assert result.exit_code != 0
    assert "--suppress-below 10" in result.output


def test_one_row_is_a_row(commands):
    file = commands.folder / "n.csv"
    total = ("query", "SELECT COUNT(*) AS n FROM people", "--db", commands.db, *LARGE)
    assert f"{file}: 1 row\n" in commands.done(*total, "--out", file)


def test_metadata_and_their_file_are_both_there_or_none(commands, saved, monkeypatch):
    file, beside = (commands.folder / f"answer.csv{end}" for end in ("", ".metadata.json"))
    query = ("query", BY_SEX, "--db", commands.db, *LARGE, "--out", file)
    before = spent(commands)
    beside.write_text("mine")
    assert commands.run(*query).exit_code == 7
    assert spent(commands) == before
    beside.unlink()
    link = os.link

    def taken(source, target):
        """Somebody else takes the place while the answer is written."""
        if str(target) == str(file):
            file.write_text("mine")
        link(source, target)

    monkeypatch.setattr(os, "link", taken)
    assert commands.run(*query).exit_code == 7
    assert file.read_text() == "mine"
    assert not beside.exists()


def test_rows_of_units_are_written_too(commands):
    with duckdb.connect(commands.db) as con:
        con.execute("CREATE TABLE visits (person INTEGER)").fetchall()
        con.execute("INSERT INTO visits SELECT i % 10 FROM range(30) AS t(i)").fetchall()
    file = commands.folder / "rows.csv"
    commands.done(
        "rows", "visits", "--db", commands.db, "--unit", "person", *LARGE, "--out", file
    )  # fmt: skip
    assert file.read_text().startswith("max_rows,units")


@pytest.mark.parametrize(
    "options",
    [
        ("--csv", "--parquet"),
        ("--csv", "--json"),
        ("--parquet", "--json"),
        ("--out", "answer"),
        ("--out", "answer.xlsx"),
    ],
)
def test_what_can_not_be_meant(commands, options):
    for arguments in (
        ("query", BY_SEX, "--db", commands.db, *LARGE),
        ("rows", "people", "--db", commands.db, *LARGE),
    ):
        assert commands.run(*arguments, *options).exit_code == 2
    assert spent(commands) == 0


def test_what_exists_is_refused_before_the_charge(commands):
    (commands.folder / "there.csv").write_text("mine")
    (commands.folder / "folder").mkdir()
    (commands.folder / "folder" / "mine").write_text("mine")
    there, folder = commands.folder / "there.csv", commands.folder / "folder"
    query = ("query", BY_SEX, "--db", commands.db, *LARGE)
    release = ("release", commands.script, "--db", commands.db, *LARGE, "--out", path(commands))
    for arguments in (
        (*query, "--out", there),
        (*query, "--out", commands.folder / "no" / "where.csv"),
        (*query, "--out", folder, "--csv"),
        (*release, "--to-csv", folder),
        (*release, "--to-csv", folder, "--overwrite"),
        (*release, "--to-parquet", there),
        (*release, "--to-duckdb", there),
    ):
        result = commands.run(*arguments)
        assert result.exit_code == 7, result.output
    for options in (("--to-csv", path(commands)), ("--overwrite",)):
        assert commands.run(*release, *options).exit_code == 2
    assert spent(commands) == 0
    assert there.read_text() == "mine"
    assert not path(commands).exists()


def test_values_of_few_rows_are_left_out_wherever_they_go(commands):
    """The youngest are 7 each; the release itself has all values."""
    ages = "SELECT age, COUNT(*) AS n FROM people WHERE age > 85 GROUP BY age"
    options = ("--suppress-below", "9")
    place = commands.folder / "csv"
    commands.done(
        "release", commands.script, "--db", commands.db, *LARGE, "--out", path(commands),
        "--to-csv", place, *options,
    )  # fmt: skip
    shown = pl.read_csv(place / "ages.csv")
    release = dpsql.Release.load(path(commands))
    assert release["ages"]["n"].null_count() == 0
    few = (release["ages"]["n"] < 9).to_list()
    assert any(few)
    assert not all(few)
    assert shown["n"].is_null().to_list() == few
    rows = json.loads(commands.done("show", path(commands), "ages", "--json", *options))["rows"]
    assert [row["n"] is None for row in rows] == few
    said = commands.document("show", path(commands), *options)["statements"]["ages"]
    assert "fewer than 9 rows" in said[1]["reason"]
    found = commands.document("query", ages, "--db", commands.db, "--free", *options)
    assert [row["n"] is None for row in found["rows"]] == few[86:]
    assert (
        commands.run("query", ages, "--db", commands.db, "--free", options[0], "-1").exit_code == 9
    )


def test_a_release_is_written_everywhere_at_once(commands):
    places = {
        "--to-csv": commands.folder / "csv",
        "--to-parquet": commands.folder / "parquet",
        "--to-duckdb": commands.folder / "answers.duckdb",
    }
    options = [part for pair in places.items() for part in pair]
    said = commands.document(
        "release", commands.script, "--db", commands.db, *LARGE, "--out", path(commands), *options
    )  # fmt: skip
    assert said["written"] == [str(place) for place in places.values()]
    assert sorted(os.listdir(places["--to-csv"])) == ["ages.csv", "by_sex.csv", "metadata.json"]
    release = dpsql.Release.load(path(commands))
    found = pl.read_parquet(places["--to-parquet"] / "ages.parquet")
    assert_frame_equal(found, release["ages"])
    with duckdb.connect(places["--to-duckdb"], read_only=True) as con:
        rows = con.execute("SELECT * FROM ages ORDER BY age").fetchall()
    assert rows == release["ages"].rows()
    assert sorted(p.name for p in commands.folder.iterdir() if p.name.startswith(".")) == []

    assert commands.run("show", path(commands), *options).exit_code == 7
    text = commands.done("show", path(commands), *options, "--overwrite")
    assert text.count("2 statements") == 3
    assert commands.run("show", path(commands), "ages", *options).exit_code == 2
    assert commands.run("show", path(commands), "--csv").exit_code == 2
