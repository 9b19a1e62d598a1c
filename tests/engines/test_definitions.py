"""Public names below which private rows are: by what the catalog says that they read."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.source import DuckDBSource
from dpsql.errors import DpsqlError, SchemaError

TABLES = """
    CREATE SCHEMA ref;
    CREATE TABLE people (a INTEGER NOT NULL CHECK (a BETWEEN 0 AND 3), s VARCHAR);
    CREATE TABLE codes (a INTEGER, name VARCHAR);
    CREATE TABLE ref.bands (a INTEGER, band VARCHAR);
    INSERT INTO codes VALUES (1, 'x'), (2, 'y');
    INSERT INTO ref.bands VALUES (1, 'low'), (2, 'high');
    CREATE VIEW pv AS SELECT a, s FROM people;
    CREATE MACRO top() AS (SELECT max(s) FROM people);
    CREATE MACRO tops(n) AS TABLE SELECT a, s FROM people LIMIT n;
    CREATE MACRO twice(x) AS x + x;
    CREATE MACRO of_tops() AS TABLE SELECT * FROM tops(3);
"""
PRIVATE = {
    "view": "SELECT a, s FROM people",
    "over a view": "SELECT a FROM pv",
    "subquery": "SELECT a FROM codes WHERE a IN (SELECT a FROM main.people)",
    "scalar": "SELECT a, (SELECT max(s) FROM people) AS s FROM codes",
    "join": "SELECT c.a FROM codes c JOIN ref.bands USING (a) JOIN memory.main.people USING (a)",
    "cte": "WITH z AS (SELECT * FROM pv) SELECT a FROM z",
    "union": "SELECT a FROM codes UNION ALL SELECT a FROM people",
    "lateral": "SELECT c.a FROM codes c, LATERAL (SELECT s FROM people p WHERE p.a = c.a)",
    "macro": "SELECT a, top() AS s FROM codes",
    "table macro": "SELECT a FROM tops(3)",
    "macro of a macro": "SELECT a FROM of_tops()",
    "query_table": "SELECT a FROM query_table('people')",
    "query_table, several": "SELECT a FROM query_table(['codes', 'main.people'], true)",
    "query": "SELECT a FROM query('SELECT a FROM people')",
    "summary": "SELECT 1 AS a, column_name FROM (SUMMARIZE people)",
    "other case": "SELECT a FROM MAIN.PEOPLE",
    "pivot": "FROM (PIVOT people ON a IN (1, 2) USING count(*) GROUP BY s)",
    "values of others": "SELECT a FROM codes ORDER BY (SELECT max(s) FROM people)",
}
PUBLIC = {
    "view": "SELECT a, upper(name) AS name FROM codes",
    "join": "SELECT c.a, band FROM codes c JOIN ref.bands b USING (a)",
    "cte": "WITH z AS (SELECT * FROM codes) SELECT twice(a) AS a FROM z",
    "values": "SELECT * FROM (VALUES (1, 'people')) AS t(a, name)",
    "series": "SELECT range AS a FROM range(3)",
    "query_table": "SELECT a FROM query_table('codes')",
}
UNCLEAR = "SELECT a FROM query_table('peo' || 'ple')"
BUDGET = dpsql.Budget(rho=1)


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute(TABLES)
    return con


def ask(con, **declared):
    session = dpsql.Session(con, public=["open"], **declared)
    sql = 'SELECT o.a, COUNT(*) AS n FROM people p JOIN "open" o ON p.a = o.a GROUP BY 1'
    return session.plan(sql, budget=BUDGET)


@pytest.mark.parametrize("temporary", ["", "TEMP "])
@pytest.mark.parametrize("body", PRIVATE.values(), ids=PRIVATE)
def test_what_reads_private_rows_is_not_public(con, body, temporary):
    con.execute(f'CREATE {temporary}VIEW "open" AS {body}')
    with pytest.raises(SchemaError, match="people is private, and open is public and reads it"):
        ask(con)


@pytest.mark.parametrize("body", PUBLIC.values(), ids=PUBLIC)
def test_what_reads_public_rows_is(con, body):
    con.execute(f'CREATE VIEW "open" AS {body}')
    ask(con)


def test_what_cannot_be_told_is_refused(con):
    con.execute(f'CREATE VIEW "open" AS {UNCLEAR}')
    with pytest.raises(SchemaError, match="can't be told"):
        ask(con)


@pytest.mark.parametrize("how", ["unit", "domain", "comment"])
def test_no_statement_need_name_the_private_table(con, how):
    """What is declared says that it is private."""
    con.execute('CREATE VIEW "open" AS SELECT a, s FROM people')
    given = {
        "unit": {"unit": dpsql.Unit("s", 3)},
        "domain": {"schema": {"people": {"a": dpsql.Domain.integers(0, 3)}}},
        "comment": {},
    }[how]
    if how == "comment":
        con.execute("""COMMENT ON TABLE people IS 'dpsql: {"unit": "s", "max_rows": 3}'""")
    con.execute("CREATE TABLE others (a INTEGER NOT NULL CHECK (a IN (1, 2)), s VARCHAR)")
    session = dpsql.Session(con, public=["open"], **given)
    sql = 'SELECT o.s, COUNT(*) AS n FROM others t JOIN "open" o ON t.a = o.a GROUP BY 1'
    with pytest.raises(DpsqlError, match="people is private, and open is public and reads it"):
        session.plan(sql, budget=BUDGET)
    assert not session.history.height


def test_views_that_read_each_other_end(con):
    con.execute("CREATE VIEW x AS SELECT a FROM codes; CREATE VIEW y AS SELECT a FROM x")
    con.execute("CREATE OR REPLACE VIEW x AS SELECT a FROM codes WHERE a IN (SELECT a FROM codes)")
    found = DuckDBSource(con).tables_below(["y"])
    assert found == {("memory", "main", "codes")}
