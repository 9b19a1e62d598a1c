"""SUM(DISTINCT x), AVG(DISTINCT x): DuckDB's numbers, what is refused, what a unit changes."""

from __future__ import annotations

import random

import duckdb
import pytest

import dpsql
from dpsql import Domain
from dpsql.errors import SqlError
from tests.helpers.inserted import insert
from tests.release.test_distinct_units import BUDGET
from tests.release.test_rows_made_of_rows import EXACT, answers
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent

COLUMNS = {
    "i": ("INTEGER", Domain.integers(0, 12)),
    "n": ("INTEGER", Domain.integers(-9, 9, nullable=True)),
    "c": ("BIGINT", Domain.integers(3, 20, outside="clamp", nullable=True)),
    "b": ("SMALLINT", Domain.number(-5, 100)),
    "d": ("DECIMAL(6,2)", Domain.number(0, 30)),
    "g": ("DOUBLE", Domain.decimals(0, 5, step="0.1", nullable=True)),
    "e": ("DECIMAL(4,1)", Domain.decimals("0.5", 8, step="0.5", nullable=True)),
    "t": ("VARCHAR", Domain.labels(["a", "b"], nullable=True)),
    "f": ("DOUBLE", Domain.number(0, 9)),
}
SEEN = {
    "i": "CASE WHEN i BETWEEN 0 AND 12 THEN i END",
    "n": "CASE WHEN n BETWEEN -9 AND 9 THEN n END",
    "c": "CASE WHEN c IS NOT NULL THEN greatest(3, least(20, c)) END",
    "b": "CASE WHEN b IS NOT NULL THEN greatest(-5, least(100, b)) END",
    "d": "CASE WHEN d IS NOT NULL THEN greatest(0, least(30, d)) END",
    "g": "CASE WHEN g BETWEEN 0 AND 5 THEN g END",
    "e": "CASE WHEN e BETWEEN 0.5 AND 8 THEN e END",
}
STATEMENTS = {
    "alone": "SELECT 100 * SUM(DISTINCT {x}) AS n FROM r WHERE {x} IS NOT NULL",
    "groups": "SELECT t, 100 * SUM(DISTINCT {x}) AS n FROM r WHERE {x} IS NOT NULL GROUP BY t",
    "a filter": "SELECT 100 * SUM(DISTINCT {x}) FILTER (WHERE t = 'a') AS n FROM r"
    " WHERE {x} IS NOT NULL",
    "beside others": "SELECT 100 * SUM(DISTINCT {x}) - COUNT(*) AS n FROM r WHERE {x} IS NOT NULL",
    "an average": "SELECT t, 1000 * AVG(DISTINCT {x}) AS n FROM r WHERE {x} IS NOT NULL"
    " GROUP BY t HAVING COUNT(*) > 2",
    "an inner query": "SELECT 100 * SUM(DISTINCT y) AS n FROM (SELECT {x} AS y FROM r"
    " WHERE {x} IS NOT NULL)",
}


def rows_of(seed, units=30):
    rng = random.Random(seed)  # noqa: S311

    def one(u):
        return (
            u,
            rng.randint(-3, 15),
            rng.choice([None, rng.randint(-12, 12)]),
            rng.choice([None, rng.randint(0, 30)]),
            rng.choice([None, rng.randint(-9, 120)]),
            rng.choice([None, rng.randint(-200, 4000) / 100]),
            rng.choice([None, rng.randint(-10, 70) / 10]),
            rng.choice([None, rng.randint(-2, 20) / 2]),
            rng.choice([None, "a", "b", "c"]),
            rng.random() * 9,
        )

    return [one(u) for u in range(units) for _ in range(rng.randint(0, 5))]


def filled(rows):
    con = duckdb.connect()
    listed = ", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items())
    con.execute(f"CREATE TABLE r (u INTEGER NOT NULL, {listed})").fetchall()
    insert(con, "r", rows)
    return con


def schema(unit=None):
    declared = {"r": {name: of for name, (_, of) in COLUMNS.items()}}
    return dpsql.Schema(declared, units={} if unit is None else {"r": unit})


def exact(con, sql, column):
    """Return what DuckDB says of the values that SQL sees."""
    seen = f"SELECT * REPLACE ({SEEN[column]} AS {column}, CASE WHEN t IN ('a', 'b') THEN t END"
    return answers(con.execute(f"WITH r AS ({seen} AS t) FROM main.r) {sql}").fetchall())


@pytest.mark.parametrize("column", SEEN)
@pytest.mark.parametrize("form", STATEMENTS.values(), ids=STATEMENTS)
def test_sums_of_distinct_values_are_those_of_duckdb(form, column):
    con, sql = filled(rows_of(ord(column))), form.format(x=column)
    frame = dpsql.query(con, sql, budget=EXACT, schema=schema(), accept_schema=True)
    names = [name for name in ("t", "n") if name in frame.columns]
    assert answers(frame.select(names).rows()) == exact(con, sql, column)


@pytest.mark.parametrize("column", ["i", "c", "d", "g", "e"])
def test_of_units_with_several_rows_they_are_lower_bounds(column):
    con, sums = filled(rows_of(7)), []
    sql = f"SELECT 100 * SUM(DISTINCT {column}) AS n FROM r WHERE {column} IS NOT NULL"
    for most in (1, 2, 99):
        session = dpsql.Session(con, schema=schema(dpsql.Unit("u", 99, max_values=most)))
        release = session.release({"q": sql}, budget=EXACT)
        sums.append(round(release["q"]["n"][0]))
        assert "lower bound" in " ".join(map(str, release.columns("q")["reason"]))
    (whole,) = exact(con, sql, column).values()
    assert sums == sorted(sums)
    assert sums[-1] == whole


def test_the_average_of_units_with_one_row_each_is_known():
    rows = [row for i, row in enumerate(rows_of(8)) if row[0] not in {r[0] for r in rows_of(8)[:i]}]
    con, sql = filled(rows), "SELECT 100 * AVG(DISTINCT n) AS n FROM r WHERE n IS NOT NULL"
    session = dpsql.Session(con, schema=schema(dpsql.Unit("u", 1)))
    assert answers(session.query(sql, budget=EXACT).select("n").rows()) == exact(con, sql, "n")


@pytest.mark.parametrize(
    ("sql", "said", "hint"),
    [
        ("SELECT AVG(DISTINCT i) FROM r", "units cover", "SUM\\(DISTINCT i\\) and COUNT"),
        ("SELECT SUM(DISTINCT n) FROM r", "units cover", "GROUP BY n"),
        ("SELECT SUM(DISTINCT b) FROM r", "units cover", "GROUP BY b"),
        ("SELECT SUM(DISTINCT i + 1) FROM r", "DISTINCT in an aggregate", "GROUP BY i"),
        ("SELECT SUM(DISTINCT f) FROM r", "DISTINCT in an aggregate", "GROUP BY f"),
        ("SELECT SUM(DISTINCT t) FROM r", "DISTINCT in an aggregate", "GROUP BY t"),
        ("SELECT SUM(DISTINCT u) FROM r", "DISTINCT in an aggregate", "GROUP BY u"),
        ("SELECT t, SUM(SUM(DISTINCT i)) OVER (ORDER BY t) FROM r GROUP BY t", "DISTINCT", ""),
        ("SELECT STDDEV_POP(DISTINCT i) FROM r", "DISTINCT in an aggregate", "GROUP BY i"),
    ],
)
def test_of_units_with_several_rows_others_are_refused(sql, said, hint):
    con = filled(rows_of(9))
    session = dpsql.Session(con, schema=schema(dpsql.Unit("u", 5)))
    with pytest.raises(SqlError, match=said) as refused:
        session.query(sql, budget=BUDGET)
    assert refused.value.span is not None
    refused.match(hint)
    assert not session.history.height


def test_something_bounds_the_values_of_a_unit():
    session = dpsql.Session(filled(rows_of(9)), schema=schema(dpsql.Unit("u")))
    with pytest.raises(SqlError, match="Nothing says how many of these values"):
        session.query("SELECT SUM(DISTINCT i) FROM r", budget=BUDGET)


@pytest.mark.parametrize("unit", [None, dpsql.Unit("u", 4, max_values=2, max_groups=2)])
def test_neighbors_differ_in_noisy_integers_alone_and_as_little_as_is_charged(unit):
    rows = rows_of(11, 12)
    script = {
        "a": "SELECT SUM(DISTINCT i) AS n FROM r",
        "b": "SELECT t, SUM(DISTINCT d) FILTER (WHERE i > 3) AS n FROM r GROUP BY t",
    }
    asked = {"script": script, "schema": schema(unit)}
    whole = recorded(filled(rows), asked, budget=BUDGET)
    for i in range(0, len(rows), 6):
        gone = {i} if unit is None else {j for j, row in enumerate(rows) if row[0] == rows[i][0]}
        left = [row for j, row in enumerate(rows) if j not in gone]
        fewer = recorded(filled(left), asked, budget=BUDGET)
        check_alike(whole, fewer)
        assert spent(whole, fewer) <= charged(whole)


def test_a_sum_has_little_more_noise_than_it_needs():
    """Parts of a sum are measured as exactly as their factors are large."""
    con = filled(rows_of(12))
    sql = "SELECT SUM(DISTINCT b) AS n FROM r"
    plan = dpsql.plan(con, sql, budget=dpsql.Budget(rho=1), schema=schema())
    assert plan.rmse < 2.5 * 105 / 2**0.5
