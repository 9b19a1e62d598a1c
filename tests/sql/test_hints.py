"""Hints: what they say for what newcomers try, and that they work when typed."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.sql.script import split_script

BUDGET = dpsql.Budget(rho=1)


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE lfs (sex ENUM('F', 'M') NOT NULL, age INTEGER CHECK (age BETWEEN 0 AND 99),"
        ' "Household Size" INTEGER CHECK ("Household Size" IS NULL OR "Household Size" <= 9 AND'
        ' "Household Size" > 0), interview DATE, "Body Weight" INTEGER, code VARCHAR CHECK'
        " (code IN ('a', 'b') OR code IS NULL))"
    ).fetchall()
    return con


def refusal(con, sql) -> dpsql.DpsqlError:
    with pytest.raises(dpsql.DpsqlError) as error:
        dpsql.plan(con, sql, budget=BUDGET)
    return error.value


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("SELECT MIN(age), MAX(age) FROM lfs", "aggregate MIN ", "COUNT"),
        ("SELECT QUANTILE_CONT(age, 0.5) FROM lfs", "aggregate QUANTILE_CONT ", "COUNT"),
        ("SELECT age // 10, COUNT(*) FROM lfs GROUP BY age // 10", "", "BETWEEN 20 AND 29"),
        ("SELECT age / 10 AS g, COUNT(*) FROM lfs GROUP BY g", "", "BETWEEN 20 AND 29"),
        (
            "SELECT CASE WHEN age < 25 THEN 1 END AS g, COUNT(*) FROM lfs GROUP BY g",
            "CASE",
            "BETWEEN 20 AND 29",
        ),
        ("SELECT age > 3 AS g, COUNT(*) FROM lfs GROUP BY g", "computed", "ENUM"),
        ("SELECT COUNT(*) FROM lfs WHERE interview >= DATE '2024-06-01'", "cast", "year"),
        ('SELECT COUNT(*) FROM lfs WHERE sex = "F"', "no column F", "'F'"),
        ("SELECT COUNT(*) FROM lfs WHERE sex = M", "no column M", "'M'"),
        ("SELECT COUNT(*) FROM lfs WHERE [sex] = 'F'", "brackets", 'quoted name "age"'),
        ("SELECT sex, COUNT(*) FROM lfs WHERE age = NULL GROUP BY sex", "", "IS NULL"),
        ("SELECT COUNT(*) FROM lfs WHERE household_size > 2", "", '"Household Size"'),
        ('SELECT COUNT(*) FROM lfs WHERE "body weight" > 2', "", 'CHECK ("Body Weight" BETWEEN'),
        ('SELECT COUNT(*) FROM lfs GROUP BY "Household Size"', "", 'SELECT "Household Size", '),
    ],
)
def test_hints_for_what_newcomers_try(con, sql, message, hint):
    error = refusal(con, sql)
    assert message in error.message
    assert hint in error.hint


def test_a_check_may_allow_null_in_words(con):
    for column, cells in (("Household Size", 10), ("code", 3)):
        sql = f'SELECT "{column}", COUNT(*) AS n FROM lfs GROUP BY "{column}"'
        assert dpsql.plan(con, sql, budget=BUDGET).workload.count == cells


def test_the_hint_for_a_view_works_when_typed():
    con = duckdb.connect()
    con.execute("CREATE VIEW people AS SELECT 'F' AS sex, 30 AS age").fetchall()
    error = refusal(con, "SELECT sex, COUNT(*) FROM people GROUP BY sex")
    typed = error.hint[error.hint.index("CREATE TABLE") :]
    con.execute(typed).fetchall()
    dpsql.plan(con, "SELECT sex, age, COUNT(*) FROM stored GROUP BY sex, age", budget=BUDGET)


def test_an_error_in_a_script_names_the_statement(con):
    broken = "SELECT sex, COUNT(*)\nFROM lfs\nWHERE x > 3 GROUP BY sex"
    script = f"SELECT COUNT(*) FROM lfs;\n-- name: second\n{broken}"
    error = refusal(con, dict(split_script(script)))
    assert error.statement == "second"
    assert "second, line 3: WHERE x > 3" in str(error)


@pytest.mark.parametrize("statements", [5, None, {"a": 5}, [5]])
def test_statements_of_the_wrong_type(con, statements):
    with pytest.raises(dpsql.SqlError) as error:
        dpsql.Session(con).release(statements, budget=BUDGET)
    assert error.value.hint


def test_wrong_schemas_are_refused_at_once(con):
    with pytest.raises(dpsql.SchemaError):
        dpsql.Session(con, schema=5)
    with pytest.raises(dpsql.SchemaError, match="order") as error:
        dpsql.Domain.labels({"b", "a"})
    assert "sorted" in error.value.hint
