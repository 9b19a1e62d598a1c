"""What a session asks of a catalog: nothing outside of a hold, in which nothing is asked twice."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb import catalog
from dpsql.schema import facts

BUDGET, KEYS = dpsql.Budget(rho=0.5), dpsql.Keys(delta="1e-9")
DECLARED = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"
WANTING = "SELECT city, COUNT(*) AS n, SUM(price) AS p FROM people GROUP BY city"
WANTED = {"budget": BUDGET, "keys": KEYS, "bounds": dpsql.Bounds()}
CALLS = {
    "query": lambda session: session.query(DECLARED, budget=BUDGET),
    "plan": lambda session: session.plan([DECLARED], budget=BUDGET),
    "compare": lambda session: session.compare([DECLARED], budget=BUDGET),
    "query that finds": lambda session: session.query(WANTING, **WANTED),
    "release that finds": lambda session: session.release([WANTING, DECLARED], **WANTED),
    "plan that finds": lambda session: session.plan([WANTING], **WANTED),
    "keys": lambda session: session.find_keys("people", "city", budget=BUDGET, keys=KEYS),
    "bounds": lambda session: session.find_bounds("people", "price", budget=BUDGET),
    "rows of units": lambda session: session.rows_per_unit("orders", budget=BUDGET),
    "rows of several": lambda session: session.rows_per_unit("orders, people", budget=BUDGET),
    "rows of nobody": lambda session: session.rows_without_unit("orders", budget=BUDGET),
}


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE people (id INTEGER PRIMARY KEY, sex VARCHAR CHECK (sex IN ('f', 'm')),
            city VARCHAR, price INTEGER);
        CREATE TABLE orders (person INTEGER REFERENCES people (id));
        INSERT INTO people SELECT i, 'f', 'town ' || (i % 2), i % 90 FROM range(900) t (i);
        INSERT INTO orders SELECT i FROM range(900) t (i);
    """)
    return con


@pytest.fixture
def read(monkeypatch):
    """Return the statements that read the catalog, each with whether it was held."""
    found, before = list[tuple[str, bool]](), catalog.fetch

    def fetch(con, sql, parameters=()):
        if "duckdb_" in sql:  # else it reads settings
            found.append((sql, facts._TOLD.get() is not None))
        return before(con, sql, parameters)

    monkeypatch.setattr(catalog, "fetch", fetch)
    return found


@pytest.mark.parametrize("name", CALLS)
def test_a_catalog_is_only_asked_while_it_is_held(con, read, name):
    session = dpsql.Session(con, unit=dpsql.Unit("people", max_rows={"people": 1, "orders": 2}))
    read.clear()
    CALLS[name](session)
    assert read
    assert [sql for sql, held in read if not held] == []


@pytest.mark.parametrize("name", ["plan", "plan that finds"])
def test_so_it_is_without_a_session(con, read, name):
    con.execute("DROP TABLE orders")

    class Alone:
        def plan(self, statements, **options):
            return dpsql.plan(con, statements, **options)

    CALLS[name](Alone())
    assert [sql for sql, held in read if not held] == []
