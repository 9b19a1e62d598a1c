"""Counts of units and of values under conditions on lines: another constant is another count."""

from __future__ import annotations

from contextlib import suppress

import duckdb
import pytest

import dpsql
from dpsql.errors import UndeterminedError, UnsupportedSqlError

HUGE = dpsql.Budget(rho=10**12)
COUNTS = ["COUNT(DISTINCT id)", "COUNT(DISTINCT nr)", "COUNT(DISTINCT nr // 2)"]
FORMS = {
    "above": "SELECT {count} AS n FROM v WHERE price > {c}",
    "below": "SELECT {count} AS n FROM v WHERE NOT price >= {c}",
    "between": "SELECT {count} AS n FROM v WHERE price BETWEEN {c} AND 250",
    "integers": "SELECT {count} AS n FROM v WHERE nr > {c}",
    "days": "SELECT {count} AS n FROM v WHERE day > DATE '2020-01-01' + {c}",
    "filter": "SELECT {count} FILTER (WHERE price > {c}) AS n FROM v",
    "groups": "SELECT price > {c} AS k, {count} AS n FROM v GROUP BY k ORDER BY k",
    "cases": "SELECT CASE WHEN price < {c} THEN 'a' ELSE 'b' END AS k, {count} AS n FROM v "
             "GROUP BY k ORDER BY k",
    "both": "SELECT m, {count} AS n FROM v WHERE price > {c} GROUP BY m ORDER BY m",
    "a query": "SELECT {count} AS n FROM (SELECT * FROM v WHERE price > {c})",
}  # fmt: skip
OF_GROUPS = (
    "SELECT COUNT(DISTINCT id) AS n FROM (SELECT id, MAX(nr) AS t FROM v GROUP BY id) WHERE t > {c}"
)


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE v (id INTEGER, nr INTEGER NOT NULL, price DOUBLE NOT NULL, day DATE,
            m INTEGER NOT NULL CHECK (m BETWEEN 1 AND 3));
        INSERT INTO v SELECT i // 3, i, i, DATE '2020-01-01' + i::INTEGER, 1 + i % 3
            FROM range(300) t (i);
    """)
    return con


def of_units(con):
    return dpsql.Session(con, unit="id", max_rows=5, max_values=9, max_groups=3)


def answers(frame):
    return [round(n) for n in frame["n"]]


def asked(con, session, sql, constants, tmp_path):
    """Ask with each constant: what was measured for one never answers for another."""
    first, second = (sql.format(c=c) for c in constants)
    true = {one: [row[-1] for row in con.execute(one).fetchall()] for one in (first, second)}
    assert true[first] != true[second]
    release = session.release([first], budget=HUGE, out=tmp_path / "out")
    assert answers(next(iter(release.values()))) == true[first]
    for query in (
        lambda: session.query(second, budget=0),
        lambda: dpsql.Release.load(tmp_path / "out").query(second),
    ):
        with suppress(UndeterminedError, UnsupportedSqlError):
            assert answers(query()) == true[second]
    assert answers(session.query(second, budget=HUGE)) == true[second]
    assert answers(session.query(first, budget=0)) == true[first]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", COUNTS)
def test_another_constant_is_another_count_of_units(con, form, count, tmp_path):
    sql = FORMS[form].replace("{count}", count)
    asked(con, of_units(con), sql, (20, 90), tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_another_constant_is_another_count_of_values_of_rows(con, form, tmp_path):
    sql = FORMS[form].replace("{count}", "COUNT(DISTINCT nr // 2)")
    asked(con, dpsql.Session(con), sql, (200, 290), tmp_path)


def test_another_constant_is_another_count_of_groups_of_units(con, tmp_path):
    asked(con, of_units(con), OF_GROUPS, (90, 200), tmp_path)


def test_two_statements_keep_their_own_constants(con):
    session = of_units(con)
    sql = FORMS["above"].replace("{count}", COUNTS[1])
    for pair in ((20, 250), (100, 290)):
        script = {str(c): sql.format(c=c) for c in pair}
        release = session.release(script, budget=HUGE)
        assert [answers(release[str(c)]) for c in pair] == [
            [row[0] for row in con.execute(sql.format(c=c)).fetchall()] for c in pair
        ]


@pytest.mark.parametrize("unit", [None, "id"])
def test_values_that_are_no_number_are_one_value(unit):
    """A processor gives those that it makes a sign, by which DuckDB doesn't tell them apart."""
    con = duckdb.connect()
    con.execute("CREATE TABLE v (id INTEGER, x DOUBLE, y FLOAT)")
    con.execute("INSERT INTO v VALUES (1, 'nan', 'nan'), (2, -('nan'::DOUBLE), -('nan'::FLOAT)), "
                "(3, 'inf', 'inf'), (4, 0, 0), (5, -0.0, -0.0)")  # fmt: skip
    given = {} if unit is None else {"unit": unit, "max_rows": 2}
    session = dpsql.Session(con, **given)
    for value in ("x", "y", "x - x", "x * 0", "-x"):
        sql = f"SELECT COUNT(DISTINCT {value}) AS n FROM v"
        (true,) = con.execute(sql).fetchone()
        assert answers(session.query(sql, budget=HUGE)) == [true]
