"""Comparisons with all rows of a query, and with any: as DuckDB has them, also with NULL."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.errors import SqlError
from tests.release.test_rows_made_of_rows import EXACT, answers

TABLES = """
CREATE TABLE u (id INTEGER PRIMARY KEY, r INTEGER CHECK (r BETWEEN 0 AND 4));
INSERT INTO u SELECT range, nullif(range % 6, 5) FROM range(40);
CREATE TABLE b (u INTEGER NOT NULL REFERENCES u(id), x INTEGER CHECK (x BETWEEN 0 AND 4),
    k VARCHAR CHECK (k IN ('p', 'q')));
INSERT INTO b SELECT i % 33, nullif((i * 7 + i // 33) % 6, 5), 'pq'[1 + i % 2] FROM range(90) t(i);
CREATE TABLE pub (v INTEGER, w INTEGER);
INSERT INTO pub VALUES (1, 1), (2, 1), (NULL, 2), (3, 2), (3, 3)
"""
UNIT = dpsql.Unit("u", max_rows={"u": 1, "b": 4, "b, u": 4, "b, b": 16})
SIGNS = ["=", "<>", "<", "<=", ">", ">="]
QUERIES = {
    "rows of the unit": "SELECT x FROM b WHERE b.u = u.id",
    "some of them": "SELECT b.x FROM b WHERE b.u = u.id AND (k = 'p' OR x = 2)",
    "computed of them": "SELECT x + 1 FROM b WHERE b.u = u.id AND x IS NOT NULL",
    "public rows": "SELECT v FROM pub",
    "public rows for each": "SELECT v FROM pub WHERE w = u.r",
    "no rows": "SELECT v FROM pub WHERE w > 9",
    "groups of public rows": "SELECT MAX(v) FROM pub GROUP BY w",
    "several queries": "SELECT v FROM pub WHERE v < 3 UNION ALL SELECT 2",
}
FORMS = {
    "WHERE": "SELECT COUNT(*) AS n FROM u WHERE {}",
    "NOT": "SELECT COUNT(*) AS n FROM u WHERE NOT ({})",
    "a key": "SELECT {} AS k, COUNT(*) AS n FROM u GROUP BY k",
}
ASKED = [(form, sign, word) for form in FORMS for sign in SIGNS for word in ("ANY", "ALL")]
IN = {("=", "ANY"), ("<>", "ALL")}
"""Comparisons that are IN and NOT IN, which is none of NULLs."""


@pytest.fixture(scope="module")
def con():
    found = duckdb.connect()
    found.execute(TABLES).fetchall()
    return found


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_it_is_what_duckdb_says(con, query):
    asked = [one for one in ASKED if one[1:] not in IN]
    script = {
        " ".join(one): FORMS[one[0]].format(f"r {one[1]} {one[2]} ({query})")
        for one in asked[len(query) % 3 :: 3]
    }
    session = dpsql.Session(con, unit=UNIT, public=["pub"])
    release = session.release(script, budget=EXACT)
    for name, sql in script.items():
        frame, exact = release[name], con.execute(sql)
        columns = [column[0] for column in exact.description]
        assert answers(frame.select(columns).rows()) == answers(exact.fetchall()), sql


@pytest.mark.parametrize("word", ["ANY", "ALL"])
def test_rows_of_all_units_are_refused(con, word):
    session = dpsql.Session(con, unit=UNIT)
    sql = f"SELECT COUNT(*) AS n FROM u WHERE r > {word} (SELECT x FROM b)"
    with pytest.raises(SqlError, match="the rows of all units") as refused:
        session.query(sql, budget=EXACT)
    assert refused.value.span is not None
    assert not session.history.height
