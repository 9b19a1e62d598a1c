"""Units that are told apart by several columns: what is made of their rows tells all of them."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.errors import SqlError
from tests.release.test_rows_made_of_rows import EXACT, answers

TABLES = """
CREATE TABLE p (s INTEGER, i INTEGER, x INTEGER CHECK (x BETWEEN 0 AND 5), PRIMARY KEY (s, i));
CREATE TABLE q (s INTEGER, i INTEGER, y INTEGER CHECK (y BETWEEN 0 AND 5), d DOUBLE,
    FOREIGN KEY (s, i) REFERENCES p(s, i));
CREATE TABLE w (s INTEGER, i INTEGER, y INTEGER CHECK (y BETWEEN 0 AND 5), d DOUBLE,
    FOREIGN KEY (s, i) REFERENCES p(s, i));
"""
ROWS = {
    "p": "SELECT r % 3, r // 3, r % 6 FROM range(18) t(r)",
    "q": "SELECT r % 3, r // 3, r % 4, r / 2 FROM range(12) t(r) UNION ALL"
    " SELECT r % 3, r // 3, r % 5, 1 FROM range(9) t(r) UNION ALL SELECT NULL, 1, 2, 3",
    "w": "SELECT r % 3, r // 3, r % 3, r / 2 FROM range(4, 18) t(r)",
}
UNIT = dpsql.Unit("p", max_rows={"p": 1, "q": 2, "w": 1, "q, w": 4, "p, q": 4, "p, q, w": 8})
TOLD = {
    "FULL JOIN": "SELECT k, COUNT(*) AS n FROM (SELECT s, i, COUNT(*) AS k FROM q FULL JOIN w"
    " USING (s, i) GROUP BY s, i) GROUP BY k",
    "COALESCE": "SELECT k, COUNT(*) AS n FROM (SELECT COALESCE(q.s, w.s) AS s, COALESCE(q.i, w.i)"
    " AS i, COUNT(*) AS k FROM q FULL JOIN w ON q.s = w.s AND q.i = w.i GROUP BY 1, 2) GROUP BY k",
    "a join with that": "SELECT x, COUNT(*) AS n FROM p JOIN (SELECT s, i FROM q FULL JOIN w"
    " USING (s, i)) f USING (s, i) GROUP BY x",
    "EXISTS for that": "SELECT COUNT(*) AS n FROM (SELECT s, i FROM q FULL JOIN w USING (s, i)) f"
    " WHERE EXISTS (SELECT 1 FROM p WHERE p.s = f.s AND p.i = f.i AND x > 2)",
    "UNION": "SELECT COUNT(*) AS n FROM (SELECT s, i FROM q UNION SELECT s, i FROM w)",
    "UNION ALL": "SELECT k, COUNT(*) AS n FROM (SELECT s, i, COUNT(*) AS k FROM (SELECT s, i FROM q"
    " UNION ALL SELECT s, i FROM w) GROUP BY s, i) GROUP BY k",
    "INTERSECT": "SELECT y, COUNT(*) AS n FROM (SELECT s, y, i FROM q INTERSECT SELECT s, y, i"
    " FROM w) GROUP BY y",
    "EXCEPT": "SELECT y, COUNT(*) AS n FROM (SELECT s, i, y FROM q EXCEPT SELECT s, i, y FROM w)"
    " GROUP BY y",
    "IN": "SELECT x, COUNT(*) AS n FROM p WHERE (s, i) IN (SELECT s, i FROM q WHERE y > 1 UNION ALL"
    " SELECT s, i FROM w WHERE y = 0) GROUP BY x",
    "groups that are joined": "SELECT x, k, COUNT(*) AS n FROM p JOIN (SELECT s, i, COUNT(*) AS k"
    " FROM q GROUP BY s, i) g ON g.s = p.s AND g.i = p.i GROUP BY x, k",
    "a number after USING": "SELECT COUNT(*) AS n FROM q JOIN w USING (s, i, d)",
    "a number after USING of both": "SELECT COUNT(d) AS n FROM q FULL JOIN w USING (s, i, d)"
    " WHERE d > 1",
}
UNTOLD = {
    "a part": "SELECT COUNT(*) AS n FROM (SELECT s, y FROM q INTERSECT SELECT s, y FROM w)",
    "turned": "SELECT COUNT(*) AS n FROM (SELECT s, i FROM q EXCEPT SELECT i, s FROM w)",
    "a part of UNION ALL": "SELECT COUNT(*) AS n FROM p WHERE (s, i) IN (SELECT s, i FROM q"
    " UNION ALL SELECT s, y FROM w)",
    "a part after USING": "SELECT COUNT(*) AS n FROM q FULL JOIN w USING (s, y)",
    "computed": "SELECT COUNT(*) AS n FROM (SELECT s, i + 1 AS i FROM q INTERSECT SELECT s, i"
    " FROM w)",
}


def filled(where="true"):
    con = duckdb.connect()
    con.execute(TABLES)
    for name, rows in ROWS.items():
        con.execute(f"INSERT INTO {name} SELECT * FROM ({rows}) t(s, i, y, d) WHERE {where}"
                    if name != "p" else f"INSERT INTO p SELECT * FROM ({rows}) t(s, i, x)"
                    f" WHERE {where}")  # fmt: skip
    return con


def exact(con, sql):
    return answers(con.execute(sql).fetchall())


@pytest.mark.parametrize("sql", TOLD.values(), ids=TOLD)
def test_what_tells_all_columns_of_a_unit_is_answered(sql):
    con = filled("s IS NOT NULL")  # rows of nobody aren't there
    frame = dpsql.query(filled(), sql, budget=EXACT, unit=UNIT)
    names = [column[0] for column in con.execute(sql).description]
    assert answers(frame.select(names).rows()) == exact(con, sql)


@pytest.mark.parametrize("sql", TOLD.values(), ids=TOLD)
def test_an_answer_is_the_sum_of_those_of_single_units(sql):
    """So to remove a unit removes its part, and nothing of others'."""
    whole, added = exact(filled("s IS NOT NULL"), sql), {}
    for s, i in filled().execute("SELECT s, i FROM p").fetchall():
        for key, n in exact(filled(f"s = {s} AND i = {i}"), sql).items():
            added[key] = added.get(key, 0) + n
    assert added == whole


@pytest.mark.parametrize("sql", UNTOLD.values(), ids=UNTOLD)
def test_what_tells_a_part_of_the_columns_is_refused(sql):
    session = dpsql.Session(filled(), unit=UNIT)
    with pytest.raises(SqlError) as error:
        session.query(sql, budget=EXACT)
    assert error.value.span is not None
    assert not session.history.height
