"""What all rows of a unit say, counted by units, without a table of units beside theirs."""

from __future__ import annotations

import random

import pytest

import dpsql
from dpsql.errors import SqlError
from tests.release.test_distinct_units import BUDGET, HUGE, filled, rows_of, schema
from tests.release.test_private_joins import answers
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent

PER = "SELECT id, COUNT(*) AS n, LEAST(GREATEST(MIN(m), 1), 6) AS m, COUNT(price) AS paid "
PER += "FROM visits GROUP BY id"
LATE = "SELECT id, COUNT(*) AS n FROM visits WHERE m > 3 GROUP BY id HAVING COUNT(*) > 1"
STATEMENTS = [
    (0, f"SELECT COUNT(*) AS n FROM ({PER})"),
    (0, "SELECT COUNT(*) AS n FROM (SELECT id FROM visits GROUP BY id)"),
    (0, "SELECT COUNT(*) AS n FROM (SELECT DISTINCT id FROM visits WHERE kind = 'a')"),
    (0, "SELECT COUNT(x) AS n FROM (SELECT id AS x, MAX(price > 50) FROM visits GROUP BY id)"),
    (0, f"SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE n > 2) AS k FROM ({LATE}) AS p"),
    (0, f"WITH per AS ({PER}) SELECT 100.0 * COUNT(*) FILTER (WHERE paid > 3) / COUNT(*) FROM per"),
    (1, f"SELECT LEAST(n, 5) AS k, COUNT(*) AS c FROM ({PER}) GROUP BY k"),
    (1, f"SELECT m AS k, COUNT(*) AS c FROM ({PER}) WHERE n < 9 GROUP BY 1 HAVING COUNT(*) > 0"),
    (1, f"SELECT k, COUNT(*) FROM (SELECT LEAST(n, 3) AS k, id FROM ({PER}) WHERE paid > 0) "
        "GROUP BY k ORDER BY k"),
    (1, f"SELECT m, COUNT(*) FROM (SELECT m, x FROM (SELECT id AS x, n + 1 AS k, m FROM ({PER})) "
        "WHERE k > 2) GROUP BY m"),
    (0, "SELECT COUNT(*) FROM (SELECT COUNT(*), y FROM (SELECT x, y FROM (SELECT id AS x, id AS y "
        "FROM visits) GROUP BY x, y) GROUP BY y)"),
    (0, f"SELECT COUNT(*) FROM (SELECT id, MAX(n) AS n FROM ({PER}) GROUP BY id) WHERE n > 2"),
    (0, f"SELECT COUNT(*) FROM ({PER}) p, seasons"),
    (0, f"SELECT COUNT(*) FROM (SELECT n FROM ({PER}), (SELECT 1 AS one), seasons) WHERE n = 1"),
    (0, "SELECT COUNT(*) FROM (SELECT id FROM visits JOIN seasons ON m = month WHERE season = 'x' "
        "GROUP BY id)"),
]  # fmt: skip


@pytest.fixture(scope="module")
def con():
    return filled(
        [row for row in rows_of(random.Random(5)) if row[0] is not None]  # noqa: S311
    )


@pytest.fixture
def session(con):
    return dpsql.Session(con, schema=schema(3, max_groups=9), public=["seasons"])


@pytest.mark.parametrize(("keys", "sql"), STATEMENTS)
def test_it_is_what_duckdb_says(con, session, keys, sql):
    frame = session.query(sql, budget=HUGE)
    shown = [name for name in frame.columns if not name.endswith("_variance")]
    found = {row[:keys]: row[keys:] for row in frame[shown].rows()}
    true = con.execute(sql).fetchall()
    assert len(true) > keys * 2
    for row in true:
        assert found.pop(row[:keys]) == pytest.approx(row[keys:], rel=1e-3, abs=0.01)
    assert all(abs(row[0]) < 0.01 for row in found.values())


def test_all_rows_of_a_unit_have_a_say_and_not_only_those_that_count(con, session):
    """Three visits count elsewhere."""
    sql = f"SELECT COUNT(*) AS n FROM ({PER}) WHERE n > 3"
    (true,) = con.execute(sql).fetchone()
    assert true > 5
    assert session.query(sql, budget=HUGE)["n"][0] == pytest.approx(true, abs=0.01)


AVERAGE = f"SELECT AVG({{}}) FROM ({LATE.replace('COUNT(*) AS n', 'COUNT(price) AS paid')})"


@pytest.mark.parametrize(
    ("sql", "number"),
    [
        (f"SELECT SUM({{}}) FROM (SELECT id, n FROM ({PER}) WHERE n > 1)", "n"),
        (AVERAGE, "paid"),
        (f"SELECT SUM({{}}) FROM ({PER}) JOIN seasons ON m = month", "1"),
        (f"SELECT SUM({{}}) FROM ({PER}) p, seasons WHERE month = p.m", "1"),
        (f"SELECT SUM({{}}) FROM ({PER}) p, seasons WHERE season = 'x'", "n"),
    ],
)
def test_numbers_of_rows_are_added_up_to_as_many_as_count(con, session, sql, number):
    """Three visits count, so a number of them is taken as three at most; conditions see all."""
    (true,) = con.execute(sql.format(f"LEAST({number}, 3)")).fetchone()
    found = answers(session, sql.format(number)).item()
    assert found == pytest.approx(float(true), rel=1e-3, abs=0.01)


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT id, COUNT(*) FROM ({PER}) GROUP BY id",
        f"SELECT COUNT(*) OVER () FROM ({PER})",
        f"SELECT n, COUNT(*) FROM (SELECT LEAST(n, 3) AS n FROM ({PER}) LIMIT 7) GROUP BY n",
        f"SELECT COUNT(*) FROM (SELECT n FROM ({PER}) LIMIT 7 OFFSET 2)",
        f"SELECT COUNT(*) FROM (SELECT n FROM ({PER}) ORDER BY n LIMIT 7)",
        f"SELECT COUNT(*) AS c FROM (SELECT n FROM ({PER}), seasons LIMIT 100000) AS x",
        f"SELECT COUNT(*) FROM ({PER}) p, ({PER}) q",
        f"SELECT COUNT(*) FROM ({PER}) p, visits v",
        "SELECT COUNT(*) FROM (SELECT id, m FROM visits GROUP BY id, m) p, (SELECT price, COUNT(*) "
        "FROM visits GROUP BY price) q",
        f"SELECT COUNT(*) FROM (SELECT n FROM ({PER}) GROUP BY n)",
        f"SELECT COUNT(*) FROM (SELECT id, COUNT(*) OVER () AS k FROM ({PER})) WHERE k > 1",
    ],
)
def test_others_are_refused_before_the_charge(session, sql):
    before = session.history.height
    with pytest.raises(SqlError):
        session.query(sql, budget=dpsql.Budget(rho=1))
    assert session.history.height == before


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(40))
def test_neighbors_differ_by_what_is_charged(seed):
    rng = random.Random(seed)  # noqa: S311
    rows = rows_of(rng, units=25)
    chosen = rng.sample([sql for _, sql in STATEMENTS if "seasons" not in sql], 3)
    asked = {"script": {f"q{i}": sql for i, sql in enumerate(chosen)}, "schema": schema(2)}
    whole = recorded(filled(rows), asked, budget=BUDGET)
    for unit in rng.sample(sorted({row[0] for row in rows if row[0] is not None}), 2):
        fewer = recorded(filled([row for row in rows if row[0] != unit]), asked, budget=BUDGET)
        check_alike(whole, fewer)
        assert spent(whole, fewer) <= charged(whole)
