"""A shop: customers, their orders and the items of these are private, products are public.

`python examples/shop.py` makes the tables in memory and asks them in one release: customers by
region, orders with their customer's region, items with the customer's and the product's, how many
orders customers have, and how many have none. Everything that a customer has in any table is
protected together.
"""

from __future__ import annotations

import duckdb

import dpsql

TABLES = """
    CREATE TABLE products (id INTEGER PRIMARY KEY, kind VARCHAR NOT NULL, price DECIMAL(7, 2));
    CREATE TABLE customers (
        id INTEGER PRIMARY KEY,
        region VARCHAR NOT NULL CHECK (region IN ('north', 'south', 'east', 'west')));
    CREATE TABLE orders (
        id INTEGER PRIMARY KEY,
        customer_id INTEGER NOT NULL REFERENCES customers (id),
        month INTEGER NOT NULL CHECK (month BETWEEN 1 AND 12));
    CREATE TABLE items (
        order_id INTEGER NOT NULL REFERENCES orders (id),
        product INTEGER NOT NULL CHECK (product BETWEEN 0 AND 49),
        paid DECIMAL(7, 2) NOT NULL CHECK (paid BETWEEN 0 AND 200));
    INSERT INTO products
        SELECT i, ['book', 'toy', 'tool'][1 + i % 3], 2 + 3 * i FROM range(50) AS t(i);
    INSERT INTO customers
        SELECT i, ['north', 'south', 'east', 'west'][1 + i % 7 % 4] FROM range(20000) AS t(i);
    INSERT INTO orders
        SELECT i, (hash(i) % 15000)::INTEGER, 1 + hash(i + 1) % 12 FROM range(60000) AS t(i);
    INSERT INTO items
        SELECT hash(i + 2) % 60000, p.id, round(p.price * (80 + hash(i) % 21) / 100, 2)
        FROM range(150000) AS t(i) JOIN products AS p ON p.id = hash(i + 3) % 50;
"""
UNIT = dpsql.Unit("customers", max_rows={"customers": 1, "orders": 6, "items": 15})
"""Who is protected, and how many rows of a customer count in each table."""
SCRIPT = {
    "customers": "SELECT region, COUNT(*) AS n FROM customers GROUP BY region",
    "orders": """
        SELECT region, month, COUNT(*) AS n FROM orders
        JOIN customers AS c ON customer_id = c.id GROUP BY ALL
    """,
    "sales": """
        SELECT region, kind, COUNT(*) AS n, SUM(paid) AS paid FROM items
        JOIN orders AS o ON order_id = o.id JOIN customers AS c ON customer_id = c.id
        JOIN products AS p ON product = p.id GROUP BY ALL
    """,
    "frequency": """
        SELECT LEAST((SELECT COUNT(*) FROM orders WHERE customer_id = c.id), 8) AS orders,
            COUNT(*) AS n
        FROM customers AS c GROUP BY 1
    """,
    "without": """
        SELECT region, COUNT(*) AS n FROM customers AS c
        WHERE NOT EXISTS (SELECT 1 FROM orders WHERE customer_id = c.id) GROUP BY region
    """,
}


def load(con: duckdb.DuckDBPyConnection) -> None:
    """Create the tables and fill them."""
    con.execute(TABLES).fetchall()


def connect(con: duckdb.DuckDBPyConnection) -> dpsql.Session:
    """Open a session on the tables."""
    return dpsql.Session(con, unit=UNIT, public=["products"])


def main() -> None:
    """Print what is protected, the errors to expect, and the answers."""
    con = duckdb.connect()
    load(con)
    session = connect(con)
    budget = dpsql.Budget(epsilon=1, delta=1e-9)
    plan = session.plan(SCRIPT, budget=budget)
    print(plan.neighbours)
    print(plan)
    for name, frame in session.release(SCRIPT, budget=budget).items():
        print(name, frame)


if __name__ == "__main__":
    main()
