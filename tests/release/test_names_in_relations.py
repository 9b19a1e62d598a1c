"""Names in queries of private rows: CTEs, subqueries and columns mean what they do in DuckDB."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.errors import SqlError

HUGE = dpsql.Budget(rho=10**10)
SUBQUERIES = (
    "SELECT x AS k, COUNT(*) AS n FROM (SELECT x FROM (SELECT x FROM people WHERE EXISTS (SELECT 1 "
    "FROM a e WHERE e.k = x)) y WHERE x < (SELECT SUM(k) FROM a WHERE s <> x) OR x IN (SELECT k "
    "FROM b WHERE s < x)) z WHERE x < (SELECT MAX(k + s) FROM b WHERE k <> x AND s <> x) GROUP BY 1"
)
CTES = [
    "WITH r AS (SELECT * FROM p WHERE x < 3), u AS (WITH r AS (SELECT * FROM p WHERE x > 1) SELECT "
    "g FROM people JOIN r USING (x) UNION ALL SELECT g FROM people JOIN r ON r.x = y) "
    "SELECT g AS k, COUNT(*) AS n FROM u GROUP BY g",
    "SELECT g AS k, COUNT(*) AS n FROM (WITH r AS (SELECT * FROM p WHERE x < 3) SELECT g FROM "
    "people JOIN r USING (x) UNION ALL SELECT g FROM people JOIN r ON r.x = y) GROUP BY g",
    "SELECT g AS k, COUNT(*) AS n FROM (WITH p AS (SELECT * FROM p WHERE x < 3) SELECT z, p.g FROM "
    "(SELECT x AS z FROM people UNION ALL SELECT y FROM people) u JOIN p ON p.x = u.z) GROUP BY g",
    "SELECT x AS k, COUNT(*) AS n FROM (WITH people AS (SELECT id, LEAST(x + 1, 5) AS x FROM "
    "people) SELECT x FROM people UNION ALL SELECT x FROM people WHERE id > 9) GROUP BY x",
]
UNUSED = [
    "CASE WHEN x = 'A' THEN 1 END",
    "(SELECT COUNT(*) FROM people)",
    "(SELECT n FROM (SELECT COUNT(*) AS n FROM people))",
    "row_number() OVER (ORDER BY x)",
]
OPAQUE = [
    "SELECT c, COUNT(*) FROM t WHERE u IN (SELECT u FROM w WHERE li IS NOT NULL) GROUP BY c",
    "SELECT c, COUNT(*) FROM t WHERE EXISTS (SELECT 1 FROM w WHERE w.u = t.u AND w.li = t.li) "
    "GROUP BY c",
    "SELECT c, COUNT(*) FROM t WHERE (SELECT COUNT(*) FROM w WHERE w.u = t.u AND iv IS NULL) > 1 "
    "GROUP BY c",
    "SELECT c, COUNT(*) FROM t JOIN (SELECT u, COUNT(*) m FROM w WHERE li IS NULL GROUP BY u) q "
    "USING (u) GROUP BY c",
    "SELECT c, COUNT(*) FROM t LEFT JOIN w ON w.u = t.u AND w.li IS NOT NULL GROUP BY c",
    "SELECT a.c, COUNT(*) FROM t a JOIN t b USING (id) WHERE b.li IS NOT NULL GROUP BY a.c",
    "SELECT a.c, COUNT(b.li) FROM t a JOIN t b USING (id) GROUP BY a.c",
    "SELECT c, COUNT(*) FROM t JOIN w ON w.u = t.u AND w.li = t.li GROUP BY c",
    "SELECT c, COUNT(*) FROM (SELECT c, iv, u FROM t) q JOIN w USING (u) WHERE q.iv IS NULL "
    "GROUP BY c",
]


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE people (id INTEGER PRIMARY KEY, x INTEGER CHECK (x BETWEEN 0 AND 5), "
        "y INTEGER CHECK (y BETWEEN 0 AND 5))"
    )
    con.execute("INSERT INTO people SELECT i, i % 6, (i // 6) % 6 FROM range(72) t(i)")
    con.execute("CREATE TABLE p AS SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, 'a')) v(x, g)")
    con.execute("CREATE TABLE a AS SELECT * FROM (VALUES (1, 3), (2, 5), (4, 1)) v(k, s)")
    con.execute("CREATE TABLE b AS SELECT * FROM (VALUES (0, 2), (2, 4), (3, 1)) v(k, s)")
    for name in ("t", "w"):
        con.execute(
            f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, u INTEGER NOT NULL, "
            "c INTEGER CHECK (c BETWEEN 0 AND 3), iv INTERVAL, li INTEGER[])"
        )
        con.execute(
            f"INSERT INTO {name} SELECT i, i // 3, i % 4, INTERVAL (i) DAY, [i] FROM range(30) r(i)"
        )
    return con


def check_equal(session, con, sql):
    true = {key: n for key, n in con.execute(sql).fetchall() if n}
    frame = session.query(sql, budget=HUGE)
    assert {key: round(n) for key, n in frame.select("k", "n").rows() if round(n)} == true


@pytest.mark.parametrize("unit", [None, dpsql.Unit("id", max_rows=1)], ids=["rows", "units"])
@pytest.mark.parametrize("sql", CTES)
def test_ctes_in_front_of_a_union_are_known_in_its_queries(con, sql, unit):
    check_equal(dpsql.Session(con, public=["a", "b", "p"], unit=unit), con, sql)


def test_columns_from_outside_are_those_of_their_own_subquery(con):
    session = dpsql.Session(con, public=["a", "b", "p"])
    for number in range(12):  # nodes that are gone have given their place in memory to others
        check_equal(session, con, SUBQUERIES + " " * number)


@pytest.mark.parametrize("column", UNUSED)
def test_a_column_that_nobody_uses_needs_no_meaning(con, column):
    session = dpsql.Session(con, public=["a", "b", "p"])
    inner = f"(SELECT {column} AS z, x AS k FROM people) AS q"
    frame = session.query(f"SELECT k, COUNT(*) AS n FROM {inner} GROUP BY k", budget=HUGE)
    assert [round(n) for n in frame["n"]][:6] == [12] * 6
    with pytest.raises(SqlError) as caught:
        session.query(f"SELECT z, COUNT(*) AS n FROM {inner} GROUP BY z", budget=HUGE)
    assert caught.value.hint


def test_a_name_that_means_nothing_is_refused_wherever_it_is(con):
    session = dpsql.Session(con, public=["a", "b", "p"])
    with pytest.raises(SqlError, match="no column nothing"):
        session.query("SELECT COUNT(*) FROM (SELECT nothing AS z, x FROM people)", budget=HUGE)


@pytest.mark.parametrize("sql", OPAQUE)
def test_columns_that_cannot_be_read_are_refused_in_words(con, sql):
    units = {name: dpsql.Unit("u", max_rows=3) for name in ("t", "w")}
    session = dpsql.Session(con, schema=dpsql.Schema({}, units=units))
    with pytest.raises(SqlError, match=r"can't be read|no column") as caught:
        session.query(sql, budget=HUGE)
    assert caught.value.span is not None
    assert not session.history.height


def test_rows_without_units_meet_no_others_whatever_is_equal(con):
    session = dpsql.Session(con, public=["a", "b", "p"])
    for on in ("a.id = b.id", "a.id = b.id AND a.x = b.x AND a.y = b.y"):
        with pytest.raises(SqlError, match="protected by itself"):
            session.query(f"SELECT COUNT(*) FROM people a JOIN people b ON {on}", budget=HUGE)
