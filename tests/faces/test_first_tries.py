"""What people type first, and get wrong, ends in a hint that works when it is typed."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.calls import DECLARED
from dpsql.errors import SqlSchemaError, UnsupportedSqlError
from dpsql.request import RedeclaredOptions

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE visits (
            person INT, clinic VARCHAR, age INT NOT NULL CHECK (age BETWEEN 0 AND 9)
        );
        INSERT INTO visits SELECT i % 30, 'Bonn', i % 10 FROM range(100) AS t(i);
    """)
    return con


@pytest.mark.parametrize(
    ("tried", "hint", "mended"),
    [
        ("SELECT age, COUNT(*) FROM visits GROUP BY age ORDER BY count",
         "give it a name in the SELECT list, COUNT(*) AS n, and sort by that: ORDER BY n",
         "SELECT age, COUNT(*) AS n FROM visits GROUP BY age ORDER BY n"),
        ("SELECT age, COUNT(*) AS total FROM visits GROUP BY age ORDER BY totl DESC",
         "did you mean total?",
         "SELECT age, COUNT(*) AS total FROM visits GROUP BY age ORDER BY total DESC"),
        ("SELECT age, COUNT(*) AS n FROM visits GROUP BY age ORDER BY xyz",
         "known names are age, n.",
         "SELECT age, COUNT(*) AS n FROM visits GROUP BY age ORDER BY n"),
        ("SELECT age + 1 AS next, COUNT(*) AS n FROM visits GROUP BY age ORDER BY agee",
         "did you mean age?",
         "SELECT age + 1 AS next, COUNT(*) AS n FROM visits GROUP BY age ORDER BY age"),
        ('SELECT COUNT(*) AS n FROM visits WHERE clinic = "Bonn"',
         "strings take single quotes: 'Bonn'.",
         "SELECT COUNT(*) AS n FROM visits WHERE clinic = 'Bonn'"),
        ('SELECT COUNT(*) AS n FROM visits WHERE "agee" = 3',
         "did you mean age?",
         'SELECT COUNT(*) AS n FROM visits WHERE "age" = 3'),
    ],
)  # fmt: skip
def test_sql_with_a_wrong_name(con, tried, hint, mended):
    with pytest.raises(SqlSchemaError) as error:
        dpsql.query(con, tried, budget=BUDGET)
    assert error.value.hint == hint
    assert dpsql.query(con, mended, budget=BUDGET).height


def test_persons_are_counted_as_units(con):
    """Without a unit they are values of rows, of which a plan tells."""
    counted = "SELECT COUNT(DISTINCT person) AS n FROM visits"
    (note,) = dpsql.plan(con, counted, budget=BUDGET).notes
    assert 'If the values are those of persons, pass unit="person"' in note
    assert dpsql.plan(con, counted, budget=BUDGET, unit="person").notes == ()
    assert dpsql.query(con, counted, budget=BUDGET, unit="person")["n"][0] == pytest.approx(
        30, abs=60
    )


def test_several_distinct_values_are_read_off_groups(con):
    with pytest.raises(UnsupportedSqlError) as error:
        dpsql.query(con, "SELECT COUNT(DISTINCT age, clinic) AS n FROM visits", budget=BUDGET)
    assert "SELECT age, clinic, COUNT(*) … GROUP BY age, clinic" in error.value.hint


def test_a_table_with_the_key_of_the_unit_is_not_called_public(con):
    visits = "SELECT COUNT(*) AS n FROM visits"
    with pytest.raises(SqlSchemaError) as error:
        dpsql.query(con, visits, budget=BUDGET, unit="person")
    assert error.value.hint == "say how many, for example max_rows=10."
    dpsql.query(con, visits, budget=BUDGET, unit="person", max_rows=10)


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda s: s.plan("SELECT COUNT(*) AS n FROM visits"), dpsql.BudgetError,
         "There is no budget.\nHint: pass budget=dpsql.Budget(epsilon=1, delta=1e-9),"),
        (lambda s: s.query("SELECT COUNT(*) AS n FROM visits", BUDGET), dpsql.ArgumentError,
         "Session.query takes only sql without a name.\nHint: name the others: budget=…."),
        (lambda _: dpsql.Domain.integers(0, 1, 2), dpsql.ArgumentError,
         "takes only low, high without a name.\nHint: name the others: nullable=…."),
        (lambda s: s.query("SELECT COUNT(*) AS n FROM visits", budget=BUDGET, schema={}),
         dpsql.ArgumentError,
         "takes no schema.\nHint: a session declares it: session.redeclared(schema=…)."),
        (lambda _: dpsql.Session("my.duckdb"), dpsql.SchemaError,
         "There is no file "),
        (lambda _: dpsql.Domain.labels(["a", "b", "a"]), dpsql.SchemaError,
         "A domain lists 'a' twice."),
        (lambda _: dpsql.Release.load("nowhere"), dpsql.ReleaseFormatError,
         "nowhere: there is no such place.\nHint: check the path"),
    ],
)  # fmt: skip
def test_calls(con, call, kind, said):
    with pytest.raises(kind) as error:
        call(dpsql.Session(con))
    assert said in str(error.value)


def test_answers_that_there_are_not_are_named(con):
    release = dpsql.Session(con).release(
        {"ages": "SELECT age, COUNT(*) AS n FROM visits GROUP BY age"}, budget=BUDGET
    )
    with pytest.raises(KeyError, match="there is no answer 'age': the answers are 'ages'"):
        release["age"]
    assert "age" not in release
    assert release.get("age") is None


def test_what_a_session_declares_is_what_the_hint_knows():
    assert set(RedeclaredOptions.__annotations__) == DECLARED


def test_one_statement_is_one(con):
    frame = "SELECT age, COUNT(*) AS n FROM visits GROUP BY age"
    release = dpsql.Session(con).release({"ages": frame}, budget=BUDGET)
    assert "Release of visits: 1 statement, " in release.summary()
