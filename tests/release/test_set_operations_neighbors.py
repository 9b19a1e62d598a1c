"""Units in set operations: one that is removed takes what it says along, and nothing else."""

from __future__ import annotations

import pytest

import dpsql
from tests.helpers.random_queries import BOUNDS, PUBLIC, ROWS, filled, seeded

UNITS = 6
UNIT = dpsql.Unit("customers", max_rows=BOUNDS)
OF = {
    "items": "(SELECT o.customer_id FROM orders o WHERE o.id = order_id)",
    "orders": "customer_id",
    "visits": "customer_id",
    "customers": "id",
}
"""Tables in the order in which rows can be removed, and of whom a row is."""
STATEMENTS = (
    "SELECT COUNT(*) AS n FROM (SELECT customer_id FROM orders INTERSECT SELECT customer_id "
    "FROM visits)",
    "SELECT region, COUNT(*) AS n FROM customers WHERE id IN (SELECT customer_id FROM orders "
    "WHERE price > 3 EXCEPT SELECT customer_id FROM visits WHERE shop < 3) GROUP BY region",
    "SELECT status, SUM(price) AS n FROM orders o JOIN (SELECT customer_id FROM visits UNION "
    "SELECT id FROM customers WHERE region = 'A') s ON s.customer_id = o.customer_id "
    "GROUP BY status",
    "SELECT COUNT(*) AS n FROM (SELECT o.customer_id FROM items i JOIN orders o ON "
    "i.order_id = o.id INTERSECT SELECT customer_id FROM visits EXCEPT SELECT customer_id "
    "FROM orders WHERE status = 'B')",
    "SELECT COUNT(*) AS n FROM (SELECT day, customer_id FROM orders UNION SELECT day, customer_id "
    "FROM visits UNION SELECT NULL, id FROM customers)",
    "SELECT price AS p, COUNT(*) AS n FROM (SELECT price, customer_id FROM orders EXCEPT "
    "SELECT shop, customer_id FROM visits) GROUP BY p",
    "SELECT status, COUNT(*) AS n FROM (SELECT status, customer_id FROM orders INTERSECT "
    "SELECT i.kind, o.customer_id FROM items i JOIN orders o ON i.order_id = o.id) GROUP BY status",
)


def kept(condition):
    """Return the database with the rows of some units alone."""
    con = filled(seeded(4), units=UNITS)
    for table, owner in OF.items():
        con.execute(f"DELETE FROM {table} WHERE NOT ({owner} {condition})").fetchall()
    return con


def counted(con, sql):
    """Return what dpsql counts, without noise, and DuckDB, by group."""
    found = dpsql.query(con, sql, budget=dpsql.Budget(rho=10**12), unit=UNIT, public=PUBLIC)
    rows = con.execute(sql).fetchall()
    names = [column[0] for column in con.description]
    ours = {row[:-1]: round(row[-1] or 0) for row in found.select(names).rows()}
    theirs = {row[:-1]: int(row[-1] or 0) for row in rows}
    return ({key: n for key, n in of.items() if n} for of in (ours, theirs))


@pytest.mark.parametrize("sql", STATEMENTS)
def test_a_removed_unit_takes_along_what_it_says(sql):
    assert set(OF) == set(ROWS)
    whole, exact = counted(kept("IS NOT NULL"), sql)
    assert whole == exact
    for unit in range(UNITS):
        rest, _ = counted(kept(f"<> {unit}"), sql)
        _, alone = counted(kept(f"= {unit}"), sql)
        keys = whole.keys() | rest.keys() | alone.keys()
        assert all(whole.get(k, 0) - rest.get(k, 0) == alone.get(k, 0) for k in keys)
