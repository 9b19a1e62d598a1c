"""What the catalog said is taken for what it is, but no longer than a script is compiled."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.catalog import DuckDBCatalog
from dpsql.errors import SchemaError, StaleSchemaError
from dpsql.session.data import PrivateData
from tests.session.tools import create

TABLES = "SELECT table_name FROM system.main.duckdb_tables() ORDER BY 1"


class Watched:
    """A connection that notes what runs on it."""

    def __init__(self, con):
        self.con, self.ran = con, Counter()

    def __getattr__(self, name):
        return getattr(self.con, name)

    def execute(self, sql, *given):
        self.ran[sql, str(given)] += 1
        return self.con.execute(sql, *given)


def test_nothing_is_run_twice_until_it_ends():
    con = Watched(duckdb.connect())
    con.con.execute("CREATE TABLE a (i INTEGER)")
    catalog = DuckDBCatalog(con)
    with catalog.held():
        found = catalog.fetch(TABLES)
        found.append("the caller's own")
        con.con.execute("CREATE TABLE b (i INTEGER)")
        assert catalog.fetch(TABLES) == [("a",)]
        with catalog.held():
            assert catalog.fetch(TABLES) == [("a",), ("b",)]
        assert catalog.fetch(TABLES) == [("a",)]
        assert DuckDBCatalog(con.con).fetch(TABLES) == [("a",), ("b",)]
    assert catalog.fetch(TABLES) == [("a",), ("b",)]
    assert list(con.ran.values()) == [3]


def test_what_it_is_asked_with_is_told_apart():
    catalog = DuckDBCatalog(duckdb.connect())
    with catalog.held():
        assert [catalog.fetch("SELECT ?", [x]) for x in "aba"] == [[("a",)], [("b",)], [("a",)]]


def test_it_ends_with_an_error_too():
    catalog = DuckDBCatalog(duckdb.connect())
    with catalog.held():
        catalog.fetch(TABLES)
        with pytest.raises(SchemaError), catalog.held():
            catalog.fetch("SELECT nothing")
    with pytest.raises(ZeroDivisionError), catalog.held():
        print(1 // 0)
    catalog.con.execute("CREATE TABLE a (i INTEGER)")
    assert catalog.fetch(TABLES) == [("a",)]


@pytest.mark.parametrize("statements", [1, 12])
def test_a_plan_reads_the_catalog_once_and_the_next_one_again(statements):
    con = Watched(create())
    con.con.execute("CREATE TABLE pets (kind VARCHAR CHECK (kind IN ('cat', 'dog')))")
    session = dpsql.Session(
        con, schema={"people": {"age": dpsql.Domain.integers(0, 9)}}
    )  # described to be checked, too
    sql = "SELECT sex, COUNT(*) FROM people GROUP BY sex"
    for _ in range(2):
        con.ran.clear()
        session.plan({f"s{i}": sql for i in range(statements)}, budget=dpsql.Budget(rho=1))
        # Names, and where they are looked up with settings; columns and constraints.
        assert sum(con.ran.values()) == 4
        assert set(con.ran.values()) == {1}


def test_a_query_reads_the_catalog_twice():
    """When it is compiled, and on the snapshot that is counted, whatever its statements are."""
    con = Watched(create())
    session = dpsql.Session(con)
    sql = "SELECT sex, COUNT(*) FROM people GROUP BY sex"
    ran = []
    for statements in (1, 12):
        con.ran.clear()
        asked = {f"s{i}": sql for i in range(statements)}
        session.release(asked, budget=dpsql.Budget(rho=1), reuse=False)
        read = [n for (sql, _), n in con.ran.items() if "duckdb_" in sql]
        assert read == [2] * 4
        ran.append(sum(con.ran.values()))
    assert ran[0] == ran[1]


def test_names_are_told_as_they_are():
    """All of them are read at once; each is told as it is."""
    con = duckdb.connect()
    con.execute("""
        ATTACH ':memory:' AS other;
        CREATE SCHEMA "S";
        CREATE TABLE a (i INTEGER, s VARCHAR COLLATE NOCASE, CHECK (i > 0));
        CREATE TABLE "S"."A" (i INTEGER PRIMARY KEY, CHECK (i > 0));
        CREATE TABLE other.main.a (i INTEGER);
        CREATE TEMP TABLE a (i INTEGER);
        CREATE VIEW v AS SELECT 1 AS x;
        CREATE VIEW "S".v AS FROM "S"."A";
        CREATE TEMP VIEW v AS SELECT 2 AS x;
        COMMENT ON TABLE memory.main.a IS 'dpsql: unit';
        COMMENT ON VIEW v IS 'plain'
    """)
    catalog = DuckDBCatalog(con)
    tables = {one.path: one.hidden for one in catalog.tables_named("A")}
    assert tables == {
        ("memory", "main", "a"): False,
        ("memory", "S", "A"): False,
        ("other", "main", "a"): False,
        ("temp", "main", "a"): True,
    }
    views = {one.path: (one.sql, one.comment) for one in catalog.views_named("V")}
    texts = "SELECT database_name, schema_name, view_name, sql, comment FROM duckdb_views()"
    assert views == {
        row[:3]: row[3:] for row in con.execute(f"{texts} WHERE NOT internal").fetchall()
    }
    assert len(views) == 3
    assert catalog.table_names() == [("main", "a"), ("S", "A")]
    assert catalog.view_names() == [("main", "v"), ("S", "v")]
    assert sorted(catalog.schemas()) == [
        ("memory", "S"), ("memory", "main"), ("other", "main"), ("temp", "main")
    ]  # fmt: skip
    assert [one.path for one in catalog.comments("dpsql: ")] == [("memory", "main", "a")]
    found = catalog.table(("memory", "main", "a"))
    assert found is not None
    assert (found.checks, found.collated, found.comment) == (
        ("(i > 0)",),
        {"s"},
        "dpsql: unit",
    )
    assert catalog.table(("memory", "main", "v")) is None
    assert catalog.columns(("memory", "main", "v"))
    assert [(one.kind, one.table) for one in catalog.keys(("memory", "S")).keys] == [
        ("PRIMARY KEY", "A")
    ]
    con.execute("USE other")
    assert catalog.current() == ("other", "main")
    assert catalog.table_names() == [("main", "a")]
    assert (catalog.database("other"), catalog.database("none")) == (("other", None), None)


def test_what_changes_after_the_plan_is_noticed(monkeypatch):
    """The catalog is read again on the snapshot that is counted."""
    con = create()
    session, other, verify = dpsql.Session(con), con.cursor(), PrivateData.verify

    def altered(data, *tables):
        other.execute("ALTER TABLE people ADD COLUMN more INTEGER")
        verify(data, *tables)

    monkeypatch.setattr(PrivateData, "verify", altered)
    with pytest.raises(StaleSchemaError):
        session.query("SELECT COUNT(*) FROM people", budget=dpsql.Budget(rho=1))
    assert not session.history.height
