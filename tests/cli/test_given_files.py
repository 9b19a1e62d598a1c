"""Commands on files of rows: `--db` takes what sessions take, and `dpsql schema` drafts of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib

import click
import polars as pl
import pytest
from click.testing import CliRunner

import dpsql
from dpsql.cli import main
from dpsql.cli.application import GROUPS, GroupedCommand
from dpsql.schema.document import TODO

HUGE = ("--rho", "1e12")
ROWS = pl.DataFrame(
    {
        "patient_id": [i % 100 for i in range(300)],
        "race_name": [["a", "b, c", 'd"'][i % 3] for i in range(300)],
        "smoker": [i % 2 for i in range(300)],
        "year_born": [1950 + i % 60 for i in range(300)],
        "score": [[2, 3, 9][i % 3] for i in range(300)],
        "income": [i * 113.5 for i in range(300)],
        "came": [f"20{20 + i % 3}-01-0{1 + i % 9}" for i in range(300)],
        "note": [f"note {i}" for i in range(300)],
        "member": [i % 3 > 0 for i in range(300)],
        "first_name": [["Ada", "Bo"][i % 2] for i in range(300)],
    }
)


@pytest.fixture
def file(tmp_path):
    ROWS.write_csv(tmp_path / "people.csv")
    return tmp_path / "people.csv"


def run(*arguments):
    found = CliRunner().invoke(main, [*map(str, arguments)])
    return found.exit_code, found.stdout, found.stderr


def drafted(*arguments):
    code, text, errors = run("schema", *arguments)
    assert code == 0, errors
    return text


def lines(text):
    """Column → what stands behind it, and what is said of it."""
    found = re.findall(r"(?m)^(# TODO )?(\w+) = (\{.*?\})(?:  # (.*))?$", text)
    return {name: (bool(todo), entry, said) for todo, name, entry, said in found}


def test_a_draft_looks_at_rows_for_types_alone_and_says_so(file):
    text = drafted(file)
    assert "The types of columns were found by looking at the rows" in text
    assert "Values were read" not in text
    found = lines(text)
    undecided = {name for name, (todo, *_) in found.items() if todo}
    assert undecided == set(ROWS.columns) - {"smoker", "member", "patient_id"}
    assert found["smoker"][1] == "{ boolean = true, nullable = true }"
    assert "# patient_id is BIGINT: ids need no entry." in text
    assert "persons apart" in found["first_name"][2]
    assert "persons apart" not in found["race_name"][2]
    assert found["year_born"][1] == "{ number = true }"
    assert "If its ends are known: { number = [1900, 2030] }" in found["year_born"][2]
    assert 'unit = "patient_id"' in text
    told = [*ROWS["note"], *ROWS["first_name"], "b, c", "1950", "2009", "113.5", "33936"]
    assert not [value for value in told if value in text]


def test_other_rows_of_the_same_types_have_the_same_draft(file):
    before = drafted(file)
    ROWS.with_columns(pl.col("income") * 7, pl.lit("x").alias("note")).write_csv(file)
    assert drafted(file) == before


def test_values_are_read_if_the_owner_says_so_and_nothing_is_left_to_type(file, tmp_path):
    text = drafted(file, "--values")
    assert "keep this file as private as the data" in text
    found = lines(text)
    assert found["race_name"] == (
        False,
        '{ labels = ["a", "b, c", "d\\""] }',
        "read from rows",
    )
    assert found["year_born"][1] == "{ integers = [1950, 2009] }"
    assert found["score"][1] == "{ values = [2, 3, 9] }"
    assert found["income"][1] == "{ number = [0, 40000] }"
    assert "2020-01-01, 2022-12-31" in found["came"][1]
    undecided = {name for name, (todo, *_) in found.items() if todo}
    assert undecided == {"note", "first_name"}
    schema = tmp_path / "people.toml"
    schema.write_text(text)
    sql = "SELECT race_name, smoker, COUNT(*) AS n, AVG(income) AS a FROM people GROUP BY ALL"
    code, out, errors = run("query", sql, "--db", file, "--schema", schema, *HUGE, "--json")
    assert code == 0, errors
    rows = json.loads(out)["rows"]
    exact = ROWS.group_by("race_name", "smoker").agg(pl.len(), pl.col("income").mean())
    wanted = {(r, bool(s)): (n, round(a, 1)) for r, s, n, a in exact.rows()}
    assert {
        (r["race_name"], r["smoker"]): (round(r["n"]), round(r["a"], 1)) for r in rows if r["n"] > 1
    } == wanted


def test_values_of_a_database(tmp_path):
    import duckdb

    with duckdb.connect(tmp_path / "x.duckdb") as con:
        con.register("rows", ROWS)
        con.execute("CREATE TABLE people AS FROM rows").fetchall()
    text = drafted("--db", tmp_path / "x.duckdb", "--values")
    assert lines(text)["score"][1] == "{ values = [2, 3, 9] }"
    assert "types of columns were found" not in text
    assert "read from rows" not in drafted("--db", tmp_path / "x.duckdb", "--toml")


TIMES = pl.DataFrame(
    {
        "Visit ID": range(400),
        "Patient": [f"P{i % 60}" for i in range(400)],
        "came": [f"2024-{1 + i % 12:02}-05 {i % 24:02}:30:00" for i in range(400)],
        "born": [f"19{50 + i % 40}-01-0{1 + i % 9}" for i in range(400)],
        "built": [f"{1900 + i % 100}-01-01 0{i % 9}:00:00" for i in range(400)],
    }
)


@pytest.mark.parametrize("more", [["--values"], []])
def test_times_of_a_file_of_csv_are_kept_by_its_draft(tmp_path, more):
    TIMES.write_csv(tmp_path / "visits.csv")
    text = drafted(tmp_path / "visits.csv", *more)
    kept = text.replace("max_rows = 3", "max_rows = 7")
    (tmp_path / "visits.toml").write_text(kept.replace(TODO, ""))
    found = lines(text)
    assert 'grain = "hour"' in found["came"][1]
    assert "hour" not in found["born"][1]
    if more:
        assert "hour" not in found["built"][1]  # a hundred years of hours are too many
    assert 'unit = "Patient"' in text
    sql = "SELECT hour(came) AS h, COUNT(*) AS n FROM visits GROUP BY h ORDER BY h LIMIT 24"
    command = ("query", sql, "--db", tmp_path / "visits.csv", "--json", *HUGE)
    code, out, errors = run(*command, "--schema", tmp_path / "visits.toml")
    assert code == 0, errors
    wanted = TIMES.group_by(pl.col("came").str.slice(11, 2).cast(pl.Int64)).len().sort("came")
    assert [row["h"] for row in json.loads(out)["rows"]] == wanted["came"].to_list()
    assert [round(row["n"]) for row in json.loads(out)["rows"]] == wanted["len"].to_list()


def test_persons_by_a_word_for_them_are_not_listed(tmp_path):
    few = TIMES.with_columns(
        pl.col("Patient").alias("customer no"), pl.col("Patient").alias("ward"), member=True
    )
    few.write_csv(tmp_path / "visits.csv")
    text = drafted(tmp_path / "visits.csv", "--values")
    assert text.count('"P1"') == 1  # of the ward
    assert "ward = { labels = [" in text
    assert '"customer no" = { keys = true }' in text


def test_a_draft_with_all_marks_taken_away_is_read(file, tmp_path):
    for more in ([], ["--values"]):
        text = drafted(file, *more).replace(TODO, "")
        assert tomllib.loads(text)
        (tmp_path / "x.toml").write_text(text)
        assert dpsql.Schema.load(tmp_path / "x.toml")


def test_every_command_takes_files(file, tmp_path):
    (tmp_path / "people.toml").write_text(drafted(file, "--values"))
    (tmp_path / "s.sql").write_text("SELECT race_name, COUNT(*) AS n FROM people GROUP BY 1;")
    rows = ("--db", file, "--schema", tmp_path / "people.toml")
    budget = ("--rho", "0.1")
    script = tmp_path / "s.sql"
    for command in (
        ("plan", script, *rows, *budget),
        ("ledger", "init", "--db", file, "--rho", "1"),
        ("plan", script, *rows, *budget),
        ("compare", script, *rows, *budget, "--mechanism", "gaussian"),
        ("release", script, *rows, *budget, "--out", tmp_path / "out"),
        ("rows", "people", *rows, *budget, "--unit", "patient_id", "--max-rows", "3"),
        ("schema", "--db", file, "--schema", tmp_path / "people.toml"),
        ("schema", "--db", f"p={file}", "--json"),
        ("ledger", "--db", file),
        ("ledger", "verify", "--db", file),
    ):
        code, out, errors = run(*command)
        # The account is bound to rows as its units: a unit afterwards is refused, and told.
        assert code == (6 if command[0] == "rows" else 0), (command, out, errors)
    assert sorted(path.name for path in tmp_path.glob("*.ledger")) == ["people.csv.ledger"]
    assert "left" in run("ledger", "--db", file)[1]


def test_several_files_are_given_by_their_names(file, tmp_path):
    (tmp_path / "bands.csv").write_text("score,band\n2,low\n3,low\n9,high\n")
    (tmp_path / "s.toml").write_text("[people.columns]\nscore = { integers = [0, 9] }\n")
    rows = ("--db", f"people={file}", "--db", f"bands={tmp_path / 'bands.csv'}")
    sql = "SELECT band, COUNT(*) AS n FROM people JOIN bands USING (score) GROUP BY band"
    more = ("--public", "bands", "--schema", tmp_path / "s.toml", "--json")
    code, out, errors = run("query", sql, *rows, *more, *HUGE)
    assert code == 0, errors
    assert {row["band"]: round(row["n"]) for row in json.loads(out)["rows"]} == {
        "low": 200,
        "high": 100,
    }
    assert run("query", sql, "--db", file, "--db", file, *HUGE)[0] == 2
    assert run("query", sql, "--db", tmp_path / "nowhere.csv", *HUGE)[0] == 2


def test_dpsql_alone_says_where_to_begin():
    for command in ([sys.executable, "-m", "dpsql"],):
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.returncode == 2
        assert "dpsql schema people.csv > people.toml" in found.stderr
        assert found.stderr.index("Where to begin") < found.stderr.index("Options:")
    assert dpsql.__version__ == run("--version")[1].split()[-1]


def test_long_helps_have_their_options_in_groups_with_an_example_each():
    """No option is left over but for two, and each example is understood by some command."""
    with_groups = [c for c in main.commands.values() if isinstance(c, GroupedCommand)]
    assert {c.name for c in with_groups} == {"plan", "compare", "release", "query", "rows"}
    names = {"help"}
    for command in with_groups:
        _, text, _ = run(command.name, "--help")
        others = text.split("Other options:")[1]
        assert set(re.findall(r"^  (--[\w-]+)", others, re.MULTILINE)) <= {
            "--help",
            "--no-progress",
        }
        names |= {p.name for p in command.params if isinstance(p, click.Option)}
        spelled = [o for p in command.params if isinstance(p, click.Option) for o in p.opts]
        assert all(option in text for option in spelled)
    listed = [name for *_, group in GROUPS for name in group]
    assert len(listed) == len(set(listed))
    assert set(listed) <= names
    spelled = {o for c in with_groups for p in c.params for o in p.opts}
    for _, example, _ in GROUPS:
        assert set(re.findall(r"--[\w-]+", example)) <= spelled


def test_null_is_a_value_of_a_column_that_has_one(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("a,b\nx,1\n,2\nx,3\n")
    found = lines(drafted(path, "--values"))
    assert found["a"][1] == '{ labels = ["x"], nullable = true }'
    assert found["b"][1] == "{ integers = [1, 3] }"
