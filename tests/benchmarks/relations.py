"""Rows of units as relations: how many are as they are defined, and what they cost.

    python -m tests.benchmarks.relations [trees]

1. Random relations over random databases: DuckDB's rows against their meaning in Python, with all
   units and without one of them.
2. CPU seconds of the rows that count in tables of 300,000 orders of 50,000 customers, least of
   seven.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import duckdb

import dpsql
from dpsql.engines.duckdb.relations import kept_rows
from dpsql.rel.nodes import walk
from dpsql.request import Request, named
from tests.rel.test_units import by_meaning, by_sql, cases

PAIRS = "orders JOIN visits v ON orders.customer_id = v.customer_id"
STATEMENTS = {
    "rows": "SELECT kind, COUNT(*) FROM orders GROUP BY 1",
    "rows of rows": "SELECT qty, COUNT(*) FROM items GROUP BY 1",
    "columns of parents": "SELECT region, COUNT(*) FROM items i JOIN orders o ON i.order_id = o.id "
    "JOIN customers c ON o.customer_id = c.id GROUP BY 1",
    "EXISTS": "SELECT region, COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE "
    "o.customer_id = c.id AND o.price > 90) GROUP BY 1",
    "counts of others": "SELECT LEAST((SELECT COUNT(*) FROM items i WHERE i.order_id = o.id), 5) "
    "AS n, COUNT(*) FROM orders o GROUP BY 1",
    "a condition of both": "SELECT kind, COUNT(*) FROM orders o WHERE EXISTS (SELECT 1 FROM visits "
    "v WHERE v.customer_id = o.customer_id AND v.day > o.day) GROUP BY 1",
    "LAG": "SELECT d > 3 AS late, COUNT(*) FROM (SELECT day - lag(day) OVER (PARTITION BY "
    "customer_id ORDER BY day, id) AS d FROM orders) GROUP BY 1",
    "the first": "SELECT kind, COUNT(*) FROM (SELECT * FROM orders QUALIFY row_number() OVER "
    "(PARTITION BY customer_id ORDER BY day, id) = 1) GROUP BY 1",
    "pairs": f"SELECT kind, COUNT(*) FROM {PAIRS} GROUP BY 1",
}


def trees(number: int) -> None:
    """Compare random relations with their meaning."""
    done, wrong, nodes, seed = 0, 0, Counter[str](), 0
    while done < number:
        for relation, places, rng in cases(10_000 + seed, 20):
            nodes.update(type(node).__name__ for node in walk(relation))
            for database, con in places:
                done += 1
                wrong += by_sql(con, relation) != by_meaning(database, relation, rng)
        seed += 1
    print(f"{done:,} relations × databases, {wrong} wrong; nodes: {dict(nodes.most_common())}")


def filled() -> duckdb.DuckDBPyConnection:
    """Return a database of 300,000 orders, some customers of which are crowded."""
    con = duckdb.connect()
    for sql in (
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, region VARCHAR CHECK (region IN ('a', "
        "'b', 'c')))",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES "
        "customers (id), kind VARCHAR CHECK (kind IN ('x', 'y')), day INTEGER, price INTEGER)",
        "CREATE TABLE items (order_id INTEGER NOT NULL REFERENCES orders (id), qty INTEGER CHECK "
        "(qty BETWEEN 0 AND 9))",
        "CREATE TABLE visits (customer_id INTEGER NOT NULL REFERENCES customers (id), day INTEGER)",
        "INSERT INTO customers SELECT range, chr((97 + range % 3)::INTEGER) FROM range(50000)",
        "INSERT INTO orders SELECT range, (hash(range) % 50000)::INTEGER * (hash(range + 7) % 9 > "
        "0)::INTEGER % 50000, chr((120 + hash(range) % 2)::INTEGER), hash(range + 1) % 365, "
        "hash(range + 2) % 100 FROM range(300000)",
        "INSERT INTO items SELECT hash(range) % 300000, hash(range + 3) % 10 FROM range(600000)",
        "INSERT INTO visits SELECT hash(range + 5) % 50000, hash(range + 4) % 365 FROM "
        "range(100000)",
    ):
        con.execute(sql).fetchall()
    return con


def costs() -> None:
    """Time the rows of each statement."""
    con = filled()
    con.execute("SET threads = 1")
    bounds = {"customers": 1, "orders": 6, "items": 12, "visits": 3, "orders, visits": 10}
    print(f"{'':22}CPU s")
    for name, sql in STATEMENTS.items():
        session = dpsql.Session(con, unit=dpsql.Unit("customers", bounds))
        request = Request(named({"q": sql}), dpsql.Budget(rho=1))
        (table,) = session._data.declared.compile(request).tables
        whole = table.without_keys
        rows = kept_rows(whole, [*whole.columns, *whole.computed])
        print(f"{name:22}{min(_cpu(con, rows) for _ in range(7)):.3f}")


def _cpu(con: duckdb.DuckDBPyConnection, sql: str) -> float:
    began = time.process_time()
    con.execute(f"SELECT count(*), count(COLUMNS(*)) FROM ({sql})").fetchall()
    return time.process_time() - began


if __name__ == "__main__":
    given = [int(arg) for arg in sys.argv[1:]]
    trees(given[0] if given else 2_000)
    costs()
