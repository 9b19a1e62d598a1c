"""What the catalog said is taken for what it is, but no longer than a script is compiled."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.catalog import DuckDBCatalog
from dpsql.errors import SchemaError, StaleSchemaError
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


def test_a_plan_asks_once_and_the_next_one_again():
    con = Watched(create())
    session = dpsql.Session(
        con, schema={"people": {"age": dpsql.Domain.integers(0, 9)}}
    )  # described to be checked, too
    for _ in range(2):
        con.ran.clear()
        session.plan("SELECT sex, COUNT(*) FROM people GROUP BY sex", budget=dpsql.Budget(rho=1))
        described = [
            n for (sql, _), n in con.ran.items() if "duckdb_" in sql and "_names" not in sql
        ]
        assert len(described) > 4
        assert set(described) == {1}


def test_what_changes_after_the_plan_is_noticed(monkeypatch):
    """The catalog is read again on the snapshot that is counted."""
    con = create()
    session = dpsql.Session(con)
    other = con.cursor()
    check = session._data.check_database

    def altered():
        check()
        altered.times += 1
        if altered.times == 1:
            return
        other.execute("ALTER TABLE people ADD COLUMN more INTEGER")

    altered.times = 0
    monkeypatch.setattr(type(session._data), "check_database", lambda self: altered())
    with pytest.raises(StaleSchemaError):
        session.query("SELECT COUNT(*) FROM people", budget=dpsql.Budget(rho=1))
    assert not session.history.height
