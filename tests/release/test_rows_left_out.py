"""Rows whose value a column doesn't list count in no statement that names it, wherever it does.

A condition may stand in WHERE, in a query after FROM, in ON, or beside a subquery for each row: it
is one about the same rows.
"""

from __future__ import annotations

import duckdb
import pytest

import dpsql

HUGE = dpsql.Budget(rho=10**9)
CONDITION = "COALESCE(p.a, 0) < 3"  # true of rows without a value, if these counted
FORMS = {
    "in WHERE": f"SELECT b, COUNT(*) AS n FROM p WHERE {CONDITION} GROUP BY b",
    "in a query after FROM": "SELECT b, COUNT(*) AS n FROM (SELECT b FROM p WHERE "
    f"{CONDITION}) GROUP BY b",
    "in WITH": f"WITH c AS (SELECT * FROM p WHERE {CONDITION}) SELECT b, COUNT(*) AS n FROM c "
    "GROUP BY b",
    "two levels further inside": "SELECT b, COUNT(*) AS n FROM (SELECT * FROM (SELECT b FROM p "
    f"WHERE {CONDITION}) AS i) AS o GROUP BY b",
    "in ON": f"SELECT b, COUNT(*) AS n FROM p JOIN one ON {CONDITION} GROUP BY b",
    "beside a public table": f"SELECT b, COUNT(*) AS n FROM p, one WHERE x = 1 AND {CONDITION} "
    "GROUP BY b",
    "in a query joined with a public table": "SELECT s.b, COUNT(*) AS n FROM (SELECT p.b, one.x "
    f"FROM p JOIN one ON {CONDITION}) AS s GROUP BY s.b",
    "in UNION ALL": "SELECT b, COUNT(*) / 2 AS n FROM (SELECT b FROM p WHERE "
    f"{CONDITION} UNION ALL SELECT b FROM p WHERE {CONDITION}) AS s GROUP BY b",
}
OF_UNITS = {
    "beside EXISTS": "SELECT b, COUNT(*) AS n FROM p WHERE EXISTS (SELECT 1 FROM p q WHERE q.u = "
    f"p.u) AND {CONDITION} GROUP BY b",
    "beside EXISTS in a query after FROM": "SELECT b, COUNT(*) AS n FROM (SELECT b FROM p WHERE "
    f"EXISTS (SELECT 1 FROM p q WHERE q.u = p.u) AND {CONDITION}) GROUP BY b",
}
CASES = [(form, None) for form in FORMS]
CASES += [(form, 10) for form in (*FORMS, *OF_UNITS)]


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE p (u INTEGER NOT NULL, a INTEGER, b VARCHAR NOT NULL CHECK (b IN ('x', 'y')))"
    )
    con.execute(
        "INSERT INTO p SELECT i % 10, CASE WHEN i % 4 > 0 THEN i % 7 END, "
        "CASE WHEN i % 2 = 0 THEN 'x' ELSE 'y' END FROM range(40) t(i)"
    )
    con.execute("CREATE TABLE one AS SELECT 1 AS x")
    return con


@pytest.mark.parametrize(("form", "rows"), CASES, ids=["-".join(map(str, c)) for c in CASES])
def test_a_condition_is_about_the_same_rows_wherever_it_stands(con, form, rows):
    schema = dpsql.Schema({"p": {"a": dpsql.Domain.integers(0, 6, outside="drop")}})
    unit = None if rows is None else dpsql.Unit("u", max_rows=rows)
    session = dpsql.Session(con, schema=schema, unit=unit, public=["one"])
    frame = session.query({**FORMS, **OF_UNITS}[form], budget=HUGE)
    kept = con.execute("SELECT b, COUNT(*) FROM p WHERE a < 3 GROUP BY b").fetchall()
    assert {b: round(n) for b, n in frame.select("b", "n").rows()} == dict(kept)
