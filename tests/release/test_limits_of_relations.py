"""Limits of relations: rows of a unit that agree in something, and what becomes of them above."""

from __future__ import annotations

import duckdb
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import SqlError

HUGE = dpsql.Budget(rho=10**9)
GROUPS = "(SELECT person, kind, COUNT(*) AS c FROM visits GROUP BY person, kind)"
FIRST = (
    "(SELECT * FROM visits QUALIFY row_number() OVER (PARTITION BY person, kind ORDER BY id) = 1)"
)


@pytest.fixture
def con():
    found = duckdb.connect()
    found.execute("""
        CREATE TABLE people (id INTEGER PRIMARY KEY, nick VARCHAR UNIQUE);
        CREATE TABLE visits (
            id INTEGER PRIMARY KEY, person INTEGER NOT NULL REFERENCES people (id),
            kind VARCHAR NOT NULL CHECK (kind IN ('x', 'y')), n INTEGER CHECK (n BETWEEN 0 AND 9));
        CREATE TABLE prices (kind VARCHAR, price INTEGER);
        INSERT INTO people SELECT i, CASE WHEN i % 3 = 0 THEN 'p' || i END FROM range(12) AS t(i);
        INSERT INTO visits SELECT i, i % 12, CASE WHEN i % 7 < 4 THEN 'x' ELSE 'y' END, i % 10
            FROM range(48) AS t(i);
        INSERT INTO prices VALUES ('x', 1), ('x', 2), ('y', 1), ('y', 2), ('y', 3);
    """).fetchall()
    with found:
        yield found


def session_on(con, visits=50, **options):
    unit = dpsql.Unit("people", {"visits": visits, "people": 1}, **options)
    return dpsql.Session(con, unit=unit, public=["prices"])


MULTIPLIED = {
    "groups": f"SELECT v.kind, COUNT(*) AS n FROM {GROUPS} v JOIN prices p ON p.kind = v.kind "
    "GROUP BY v.kind",
    "groups, kept": f"SELECT v.kind, COUNT(*) AS n FROM {GROUPS} v LEFT JOIN prices p "
    "ON p.kind = v.kind GROUP BY v.kind",
    "places": f"SELECT v.kind, COUNT(*) AS n FROM {FIRST} v JOIN prices p ON p.kind = v.kind "
    "GROUP BY v.kind",
    "within": f"SELECT kind, COUNT(*) AS n FROM (SELECT v.kind, p.price FROM {GROUPS} v "
    "JOIN prices p ON p.kind = v.kind) GROUP BY kind",
    "rows of a group": f"SELECT v.kind, COUNT(*) AS n FROM {GROUPS} g LEFT JOIN visits v "
    "ON v.person = g.person AND v.kind = g.kind GROUP BY v.kind",
}


@pytest.mark.parametrize("sql", MULTIPLIED.values(), ids=MULTIPLIED)
def test_a_join_that_multiplies_rows_leaves_no_limit(con, sql):
    found = dict(session_on(con).query(sql, budget=HUGE).select("kind", "n").rows())
    true = dict(con.execute(sql).fetchall())
    assert {kind: round(n) for kind, n in found.items() if round(n)} == true


def test_units_that_are_cut_behind_such_a_join_are_reported(con):
    sql = (
        "SELECT v.kind, COUNT(*) AS n FROM (SELECT person, MAX(n) AS m FROM visits GROUP BY person)"
        " g LEFT JOIN visits v ON v.person = g.person GROUP BY v.kind"
    )
    release = session_on(con, visits=2).release(sql, budget=HUGE, report_cut=True)
    assert round(release["units_cut"]["units_cut"][0]) == 12


@pytest.mark.parametrize("rows", [GROUPS, FIRST], ids=["groups", "places"])
def test_a_release_with_limits_is_read_and_answers_the_same(con, rows, tmp_path):
    sql = f"SELECT kind, COUNT(*) AS n FROM {rows} GROUP BY kind"
    release = session_on(con).release({"q": sql}, budget=HUGE)
    release.save(tmp_path / "out")
    loaded = dpsql.Release.load(tmp_path / "out")
    for known in (release, loaded):
        assert_frame_equal(known.query(sql), release["q"])


def test_a_unit_counts_in_all_groups_that_public_rows_put_its_rows_in(con):
    sql = (
        "SELECT price, COUNT(DISTINCT person) AS n FROM (SELECT * FROM visits QUALIFY row_number() "
        "OVER (PARTITION BY person ORDER BY id) = 1) v, prices p GROUP BY price"
    )
    found = dict(session_on(con).query(sql, budget=HUGE).select("price", "n").rows())
    true = dict(con.execute(sql).fetchall())
    assert {price: round(n) for price, n in found.items()} == true == {1: 12, 2: 12, 3: 12}


CELLS = ["r <= 3 AND md5(r::VARCHAR) > '5'", "r <= 3 AND (r = 1 OR md5(kind) > '5')", "r <= 3"]


@pytest.mark.parametrize("condition", CELLS)
def test_conditions_that_cells_alone_can_tell_stand_beside_places(con, condition):
    sql = (
        "SELECT COUNT(*) AS n FROM (SELECT *, row_number() OVER (PARTITION BY person ORDER BY id) "
        f"AS r FROM visits) WHERE {condition}"
    )
    ((true,),) = con.execute(sql).fetchall()
    assert round(session_on(con).query(sql, budget=HUGE)["n"][0]) == true


@pytest.mark.parametrize(
    "rows",
    [
        "SELECT DISTINCT nick FROM people",
        "SELECT nick FROM people QUALIFY row_number() OVER (PARTITION BY nick ORDER BY id) = 1",
    ],
)
def test_a_key_that_may_be_null_does_not_tell_the_unit(con, rows):
    """DuckDB puts the rows of all units together that have none."""
    session = session_on(con)
    with pytest.raises(SqlError):
        session.query(f"SELECT COUNT(*) AS n FROM ({rows})", budget=HUGE)
    assert session.ledger.spent == 0
