"""Declared keys that lead through views, to other databases, or elsewhere than before."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.errors import LedgerError, SchemaError
from tests.release.test_private_joins import HUGE

BUDGET = dpsql.Budget(rho=Fraction(1))
OF_CUSTOMERS = {"orders.customer_id": "customers.id"}
BY_REGION = (
    "SELECT region, COUNT(*) AS n FROM orders JOIN customers ON customer_id = customers.id "
    "GROUP BY 1"
)


@pytest.mark.parametrize(
    "orders",
    [
        "SELECT nr, MIN(customer_id) AS customer_id FROM stored GROUP BY nr",
        "SELECT nr, customer_id FROM stored ORDER BY customer_id LIMIT 1",
        "SELECT nr, customer_id FROM stored",
    ],
)
def test_no_way_leads_through_a_view(orders):
    """Whose an item is would follow from other units' rows."""
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE stored (nr INTEGER, customer_id INTEGER);
        CREATE TABLE customers (id INTEGER);
        CREATE TABLE items (order_nr INTEGER);
        INSERT INTO stored VALUES (7, 1), (7, 2);
        INSERT INTO items VALUES (7), (7);
    """)
    con.execute(f"CREATE VIEW orders AS {orders}")
    references = OF_CUSTOMERS | {"items.order_nr": "orders.nr"}
    unit = dpsql.Unit("customers", {"items": 3, "orders": 3}, references=references)
    with pytest.raises(SchemaError, match="orders, which is a view") as caught:
        dpsql.plan(con, "SELECT COUNT(*) AS n FROM items", budget=HUGE, unit=unit)
    assert "CREATE TABLE orders_stored" in str(caught.value.hint)


def attached(folder, name):
    """A database with orders, of customers that another one has."""
    con = duckdb.connect(str(folder / f"{name}.duckdb"))
    con.execute(f"ATTACH '{folder}/people.duckdb' AS people")
    con.execute("""
        CREATE TABLE orders (customer_id INTEGER);
        INSERT INTO orders VALUES (1), (2), (2);
        CREATE VIEW customers AS SELECT * FROM people.main.customers;
    """)
    return con


def test_rows_of_another_database_are_charged_for_in_one_account(tmp_path):
    own = duckdb.connect(str(tmp_path / "people.duckdb"))
    own.execute("CREATE TABLE customers (id INTEGER, region VARCHAR CHECK (region IN ('n', 's')))")
    own.execute("INSERT INTO customers VALUES (1, 'n'), (2, 's')")
    own.close()
    unit = dpsql.Unit("customers", {"orders": 3}, references=OF_CUSTOMERS)
    con, shared = attached(tmp_path, "main"), tmp_path / "all.ledger"
    session = dpsql.Session(con, unit=unit, ledger=shared)
    session.query("SELECT COUNT(*) AS n FROM orders", budget=BUDGET)
    assert not (tmp_path / "people.duckdb.ledger").exists()
    session.query(BY_REGION, budget=BUDGET)
    con.close()
    other = attached(tmp_path, "other")
    with pytest.raises(LedgerError, match="have their account in"):
        dpsql.Session(other, unit=unit).query(BY_REGION, budget=BUDGET)
    other.close()
    own = duckdb.connect(str(tmp_path / "people.duckdb"))
    assert dpsql.Session(own).ledger.spent == 2 * BUDGET.mu_squared
    own.close()
    (tmp_path / "third").mkdir()
    with attached(tmp_path, "third/main") as third:  # whose orders are other ones
        session = dpsql.Session(third, unit=unit, ledger=shared)
        with pytest.raises(dpsql.DpsqlError, match=r"don't say what is asked|Nothing was measured"):
            session.query(BY_REGION, budget=0)


def test_files_beside_tables_of_another_database(tmp_path):
    """The account is joined for both, and the state of both is looked at."""
    place = tmp_path / "customers"
    place.mkdir()
    own = duckdb.connect(str(tmp_path / "people.duckdb"))
    own.execute(f"COPY (SELECT 1 AS id, 'n' AS region) TO '{place}/one.parquet'")
    own.execute(f"CREATE VIEW customers AS SELECT * FROM read_parquet('{place}/*.parquet')")
    own.execute("CREATE TABLE orders (customer_id INTEGER)")
    own.execute("INSERT INTO orders VALUES (1), (2)")
    own.close()
    con = duckdb.connect(str(tmp_path / "main.duckdb"))
    con.execute(f"ATTACH '{tmp_path}/people.duckdb' AS people")
    rows = {"people.main.orders": 3, "people.main.customers": 1}
    regions = {"region": dpsql.Domain.labels(["n", "s"], nullable=True)}
    session = dpsql.Session(
        con,
        unit=dpsql.Unit("customers", rows, references=OF_CUSTOMERS),
        schema={"people.main.customers": regions},
    )
    sql = BY_REGION.replace("JOIN customers", "JOIN people.main.customers")
    sql = sql.replace("FROM orders", "FROM people.main.orders")
    session.query(sql, budget=BUDGET)
    assert (tmp_path / "customers.ledger").exists()
    assert (tmp_path / "people.duckdb.ledger").exists()
    assert session.query(sql, budget=0).height
    con.execute(f"COPY (SELECT 2 AS id, 's' AS region) TO '{place}/two.parquet'")
    with pytest.raises(dpsql.DpsqlError, match=r"don't say what is asked|Nothing was measured"):
        session.query(sql, budget=0)


def units(references, **columns):
    found = {table: dpsql.Unit(column, 5) for table, column in columns.items()}
    return dpsql.Schema({}, units=found, references=references)


@pytest.mark.parametrize("shown", ["note = 'a'", "note = 'a' AND balance > 3"])
def test_what_was_measured_of_other_rows_is_not_put_together_with_these(shown):
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE customers (id INTEGER, note VARCHAR, balance BIGINT);
        CREATE TABLE vips (id INTEGER, note VARCHAR, balance BIGINT);
        CREATE TABLE orders (customer_id INTEGER);
    """)
    own = {"customers": "id", "vips": "id", "orders": "customer_id"}
    sql = (
        f"SELECT {shown} AS a, COUNT(*) AS n FROM orders JOIN TABLES t ON customer_id = t.id "
        "GROUP BY 1"
    )
    session = dpsql.Session(con, schema=units(OF_CUSTOMERS, **own))
    session.query(sql.replace("TABLES", "customers"), budget=BUDGET)
    assert session.query(sql.replace("TABLES", "customers"), budget=0).height
    other = session.redeclared(schema=units({"orders.customer_id": "vips.id"}, **own))
    with pytest.raises(dpsql.DpsqlError, match="don't say what is asked"):
        other.query(sql.replace("TABLES", "vips"), budget=0)


def test_what_was_measured_by_another_way_is_not_put_together_with_these():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE customers (id INTEGER, region VARCHAR CHECK (region IN ('n', 's')));
        CREATE TABLE orders (nr INTEGER, id INTEGER, customer_id INTEGER);
        CREATE TABLE items (order_id INTEGER, customer_id INTEGER);
    """)
    own = {"customers": "id", "orders": "customer_id", "items": "customer_id"}
    references = OF_CUSTOMERS | {"items.customer_id": "customers.id"}
    sql = (
        "SELECT region, COUNT(*) AS n FROM items JOIN orders o ON order_id = o.KEY "
        "JOIN customers c ON o.customer_id = c.id GROUP BY 1"
    )
    one, other = (
        units(references | {"items.order_id": f"orders.{k}"}, **own) for k in ("nr", "id")
    )
    session = dpsql.Session(con, schema=one)
    session.query(sql.replace("KEY", "nr"), budget=BUDGET)
    assert session.query(sql.replace("KEY", "nr"), budget=0).height
    with pytest.raises(dpsql.DpsqlError, match="don't say what is asked"):
        session.redeclared(schema=other).query(sql.replace("KEY", "id"), budget=0)
