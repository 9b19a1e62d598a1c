"""The table of the units themselves: each has one row there, if the database sees to it."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

BUDGET = dpsql.Budget(rho=1)
COUNT = "SELECT COUNT(*) AS n FROM customers"
KEYS = {"PRIMARY KEY": True, "UNIQUE": True, "": False}


def tables(key):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE customers (id INTEGER NOT NULL {key}, age INTEGER)")
    con.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL)")
    con.execute("INSERT INTO customers SELECT i, i % 90 FROM range(100) t (i)")
    con.execute("INSERT INTO orders SELECT i, i % 100 FROM range(300) t (i)")
    return con


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("unit", ["id", "customers.id"])
def test_no_bound_is_asked_for_where_the_key_is_unique(key, unit):
    """A reference that is declared doesn't make it so: rows of a unit would be left out unsaid."""
    references = {"orders.customer": "customers.id"}
    session = dpsql.Session(tables(key), unit=unit, max_rows={"orders": 3}, references=references)
    if KEYS[key]:
        frame = session.query(COUNT, budget=BUDGET)
        assert frame["n_variance"][0] == pytest.approx(0.5, rel=0.01)
        return
    with pytest.raises(dpsql.SchemaError):
        session.query(COUNT, budget=BUDGET)
    assert not session.history.height


def test_what_is_said_goes_before():
    session = dpsql.Session(tables("PRIMARY KEY"), unit="id", max_rows={"customers": 2})
    frame = session.query(COUNT, budget=BUDGET)
    assert frame["n_variance"][0] == pytest.approx(2, rel=0.01)
