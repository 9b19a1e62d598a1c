"""The units' own table has one row of each unit, however many are stated for other tables."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.schema import catalog

BUDGET = dpsql.Budget(rho=0.1)
OWN = "SELECT city, COUNT(*) AS n FROM customers GROUP BY city"
OTHER = "SELECT kind, COUNT(*) AS n FROM orders GROUP BY kind"
MEETING = (
    "SELECT kind, city, COUNT(*) AS n FROM orders JOIN customers ON customer = id GROUP BY ALL"
)


def database(path=":memory:", key="PRIMARY KEY"):
    con = duckdb.connect(str(path))
    con.execute(f"""
        CREATE TABLE customers (id INTEGER {key}, city VARCHAR CHECK (city IN ('a', 'b')));
        CREATE TABLE orders (customer INTEGER, kind VARCHAR CHECK (kind IN ('x', 'y')),
            {"FOREIGN KEY (customer) REFERENCES customers (id)" if key else ""});
        INSERT INTO customers SELECT i, ['a', 'b'][i % 2 + 1] FROM range(1000) r (i);
        INSERT INTO orders SELECT i % 1000, ['x', 'y'][i % 2 + 1] FROM range(5000) r (i);
    """)
    return con


@pytest.mark.parametrize("key", ["PRIMARY KEY", "UNIQUE"])
@pytest.mark.parametrize("sql", [OWN, OTHER, MEETING])
def test_it_is_charged_for_one_row_of_each(key, sql):
    """As if that were said of it, in plans and in what is charged and measured."""
    found = []
    for rows in (20, {"customers": 1, "orders": 20}):
        session = dpsql.Session(database(key=key), unit="customers.id", max_rows=rows)
        plan = session.plan(sql, budget=BUDGET)
        release = session.release({"a": sql}, budget=BUDGET)
        found.append((plan.rmse, sorted(release["a"]["n_variance"].to_list())))
        assert session.ledger.entries()[0].mu_squared == BUDGET.mu_squared
    assert found[0] == found[1]


def test_where_the_database_lets_a_unit_have_several_as_many_count_as_are_stated():
    con = duckdb.connect()
    con.execute("CREATE TABLE customers (id INTEGER, city VARCHAR CHECK (city IN ('a', 'b')))")
    con.execute("INSERT INTO customers SELECT i % 500, 'a' FROM range(1000) r (i)")
    session = dpsql.Session(con, unit="id", max_rows=2)
    assert session.plan(OWN, budget=BUDGET).contributions == 2


def test_limits_for_its_rows_that_are_more_than_one_say_nothing():
    unit = dpsql.Unit("customers.id", 20, max_rows_per={"customers.city": 5, "orders.kind": 4})
    session = dpsql.Session(database(), unit=unit)
    plan = session.plan([OWN, OTHER], budget=BUDGET)
    assert (
        plan.rmse
        < dpsql.Session(database(), unit="customers.id", max_rows=20)
        .plan([OWN, OTHER], budget=BUDGET)
        .rmse
    )
    with pytest.raises(dpsql.SchemaError, match="no more than 20 rows"):
        dpsql.Session(
            database(), unit=dpsql.Unit("customers.id", 20, max_rows_per={"customers.city": 30})
        ).plan(OWN, budget=BUDGET)


LIMITS = {"customers.city": 5}


@pytest.mark.parametrize("limits", [{}, LIMITS])
def test_an_account_that_was_charged_for_more_rows_goes_on(tmp_path, monkeypatch, limits):
    """Versions before this one took the stated number for the units' own table, too."""
    con = database(tmp_path / "shop.db")
    unit = dpsql.Unit("customers.id", 20, max_rows_per=limits)
    with monkeypatch.context() as old:
        resolved = catalog._resolved
        old.setattr(catalog, "_resolved", lambda *of, for_all: resolved(*of, for_all=False))
        before = dpsql.Session(con, unit=unit)
        first = before.release({"a": OWN}, budget=BUDGET)
        assert before.plan(OWN, budget=BUDGET).contributions == 20
    session = dpsql.Session(con, unit=unit)
    second = session.release({"a": OWN}, budget=BUDGET)
    assert second["a"]["n_variance"].max() < first["a"]["n_variance"].max() / 50
    assert session.history.height == 2


def test_groups_and_values_of_one_row_are_one():
    sql = "SELECT city, COUNT(DISTINCT id) AS n FROM customers GROUP BY city"
    rmse = [
        dpsql.Session(database(), unit="customers.id", max_rows=20, **more)
        .plan(sql, budget=BUDGET)
        .rmse
        for more in ({}, {"max_groups": 5}, {"max_values": 5})
    ]
    assert len(set(rmse)) == 1
