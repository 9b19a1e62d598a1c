"""`dpsql query`: an answer on standard output, the account on standard error."""

from __future__ import annotations

import csv
import io
import json

import duckdb
import pytest

from dpsql.privacy import Ledger
from tests.cli.conftest import BY_SEX, Commands

LARGE = ("--rho", "1000")


def spent(commands: Commands) -> float:
    return float(Ledger.open(commands.ledger, dataset="people.duckdb").spent / 2)


def test_an_answer_is_a_table(commands):
    result = commands.run("query", BY_SEX, "--db", commands.db, *LARGE)
    header, female, male = (line.split() for line in result.stdout.splitlines())
    assert header == ["sex", "n", "n_standard_error"]
    assert (female[0], male[0]) == ("female", "male")
    assert float(female[1]) == pytest.approx(600, abs=2)
    assert float(male[1]) == pytest.approx(400, abs=2)
    assert "charged: ρ = 1000" in result.stderr
    assert spent(commands) == 1000


def test_json_has_the_rows_and_the_account(commands):
    commands.done("ledger", "init", "--db", commands.db, "--rho", "3000")
    found = commands.document("query", BY_SEX, "--db", commands.db, *LARGE, "--confidence", "0.9")
    assert found["columns"] == ["sex", "n", "n_variance", "n_lower", "n_upper"]
    assert found["rows"][0]["n_lower"] < found["rows"][0]["n"] < found["rows"][0]["n_upper"]
    assert found["charged"]["rho"] == 1000
    assert found["remaining"]["rho"] == 2000


def test_groups_that_may_be_empty_are_left_out(commands):
    sql = "SELECT age, COUNT(*) AS n FROM people GROUP BY age ORDER BY age DESC LIMIT 5"
    options = ("query", sql, "--db", commands.db, *LARGE)
    assert commands.document(*options)["rows"][0]["age"] == 99
    assert commands.document(*options, "--groups-above", "10")["rows"][0]["age"] == 89
    refused = commands.run(*options, "--groups-above", "-1")
    assert refused.exit_code != 0
    assert "--groups-above 2" in refused.output


def test_csv_has_all_rows(commands):
    sql = "SELECT age, sex, COUNT(*) AS n FROM people GROUP BY age, sex"
    text = commands.done("query", sql, "--db", commands.db, *LARGE, "--csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 200
    assert float(rows[0]["n"]) == pytest.approx(7, abs=2)


def test_csv_has_lists_and_structs_as_json(commands):
    sql = "SELECT sex, {'n': COUNT(*)} AS s, [sex, 'x'] AS l FROM people GROUP BY sex"
    text = commands.done("query", sql, "--db", commands.db, *LARGE, "--csv")
    for row in csv.DictReader(io.StringIO(text)):
        rows = {"female": 600, "male": 400}[row["sex"]]
        assert json.loads(row["s"])["n"] == pytest.approx(rows, abs=2)
        assert json.loads(row["l"]) == [row["sex"], "x"]
        assert row["s_variance"] == ""


def test_a_long_table_is_cut_and_says_so(commands):
    sql = "SELECT age, sex, COUNT(*) AS n FROM people GROUP BY age, sex"
    lines = commands.done("query", sql, "--db", commands.db, *LARGE).splitlines()
    assert len(lines) == 102
    assert "100 more rows" in lines[-1]


def test_sql_comes_from_standard_input_too(commands):
    text = commands.done("query", "-", "--db", commands.db, *LARGE, "--csv", text=BY_SEX)
    assert text.startswith("sex,n,n_variance")


def test_a_repeated_question_of_the_past_is_free(commands):
    commands.done("query", BY_SEX, "--db", commands.db, *LARGE)
    result = commands.run("query", BY_SEX, "--db", commands.db, "--free")
    assert result.exit_code == 0, result.output
    assert "charged: nothing" in result.stderr
    assert float(result.stdout.splitlines()[1].split()[1]) == pytest.approx(600, abs=2)
    assert spent(commands) == 1000


def test_what_the_past_does_not_say_is_not_free(commands):
    commands.done("query", BY_SEX, "--db", commands.db, *LARGE)
    ages = "SELECT age, COUNT(*) AS n FROM people GROUP BY age"
    assert commands.run("query", ages, "--db", commands.db, "--free").exit_code == 3


def test_a_hostile_label_is_printed_harmlessly(commands):
    import duckdb

    with duckdb.connect(commands.db) as con:
        con.execute("CREATE TABLE shop (item ENUM('\x1b[31mred', '\u202etxt'))").fetchall()
    sql = "SELECT item, COUNT(*) AS n FROM shop GROUP BY item"
    text = commands.done("query", sql, "--db", commands.db, *LARGE)
    assert "red" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_wide_frame_is_divided_to_fit_the_terminal(commands, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    sql = "SELECT sex, AVG(age) AS mean, MEDIAN(age) AS half, COUNT(*) AS n FROM people"
    text = commands.done(
        "query", f"{sql} GROUP BY sex", "--db", commands.db, "--rho", "1", "--confidence", "0.9"
    )
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    headers = [line.split() for line in lines if line.startswith("sex")]
    assert all(len(line) > 1 for line in headers)
    shown = [name for line in headers for name in line[1:]]
    expected = [
        name + tail
        for name in ("mean", "half", "n")
        for tail in ("", "_standard_error", "_lower", "_upper")
    ]
    assert [name for name in expected if name in shown] == shown
    assert sum(line.startswith("female") for line in lines) == len(headers)


def test_a_unit_that_is_named_twice_is_refused(commands):
    """The last one alone would be another promise than what was typed."""
    units = ("--unit", "sex", "--unit", "age", "--max-rows", "3")
    refused = commands.run("query", BY_SEX, "--db", commands.db, *LARGE, *units)
    assert refused.exit_code == 4
    assert "several privacy units" in refused.output
    assert commands.ledger.exists() is False


def test_bounds_of_several_tables(commands):
    with duckdb.connect(commands.db) as con:
        con.execute("""
            CREATE TABLE owners (id INTEGER PRIMARY KEY, sex VARCHAR NOT NULL CHECK (sex = 'f'));
            CREATE TABLE pets (owner INTEGER REFERENCES owners (id), old BOOLEAN NOT NULL);
            CREATE TABLE toys (owner INTEGER REFERENCES owners (id));
            INSERT INTO owners VALUES (1, 'f');
            INSERT INTO pets VALUES (1, true), (1, true), (NULL, true);
        """).fetchall()
    sql = "SELECT sex, COUNT(*) AS n FROM pets JOIN owners ON owner = id GROUP BY sex"
    declared = ("--db", commands.db, "--unit", "owners", "--max-rows")
    (row,) = commands.document("query", sql, *declared, "pets=2", *LARGE)["rows"]
    assert row["sex"] == "f"
    assert round(row["n"]) == 2
    twice = (*declared, "pets=2", "--max-rows", "pets=3", *LARGE)
    assert "two bounds" in commands.run("query", sql, *twice).output
    mixed = (*declared, "pets=2", "--max-rows", "3", *LARGE)
    assert "of no table" in commands.run("query", sql, *mixed).output
    assert "no whole number" in commands.run("query", sql, *declared, "pets=x", *LARGE).output
    other = commands.run("query", "SELECT COUNT(*) FROM toys", *declared, "pets=2", *LARGE)
    assert "--max-rows pets=2 --max-rows toys=10" in other.output


def test_bounds_on_groups_and_on_pairs(commands):
    with duckdb.connect(commands.db) as con:
        con.execute("""
            CREATE TABLE customers (id INTEGER PRIMARY KEY);
            CREATE TABLE orders (
                customer_id INTEGER REFERENCES customers (id),
                month INTEGER NOT NULL CHECK (month BETWEEN 1 AND 6)
            );
            CREATE TABLE visits (customer_id INTEGER REFERENCES customers (id));
            INSERT INTO customers VALUES (1);
            INSERT INTO orders SELECT 1, i FROM range(1, 7) AS t(i);
            INSERT INTO visits SELECT 1 FROM range(10);
        """).fetchall()
    asked = ("--db", commands.db, "--rho", 10**12, "--unit", "customers", "--json")
    rows = ("--max-rows", "orders=3", "--max-rows", "visits=4", "--max-rows", "orders, visits=20")
    months = "SELECT month, COUNT(DISTINCT customer_id) AS n FROM orders GROUP BY month"
    found = json.loads(commands.done("query", months, *asked, *rows, "--max-groups", 2))
    assert round(sum(row["n"] for row in found["rows"])) == 2
    pairs = "SELECT COUNT(*) AS n FROM orders o JOIN visits v ON o.customer_id = v.customer_id"
    found = json.loads(commands.done("query", pairs, *asked, *rows))
    assert round(found["rows"][0]["n"]) == 20
    wrong = commands.run("query", months, *asked, *rows, "--max-groups", "orders=2")
    assert wrong.exit_code == 2
    assert "'orders=2' is no whole number" in wrong.stderr
    alone = commands.run("query", BY_SEX, "--db", commands.db, "--rho", 1, "--max-groups", 2)
    assert alone.exit_code == 4
    assert "--unit person_id --max-rows 3" in alone.stderr
    row = commands.run("query", BY_SEX, "--db", commands.db, "--each-row", "--max-groups", 2)
    assert row.exit_code == 2
