"""What is made of the rows of units: their numbers, and the rows that belong to nobody."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.columns import source_of
from dpsql.engines.duckdb.source import DuckDBSource
from dpsql.errors import InternalError, SchemaError
from tests.helpers.described import describe_table
from tests.helpers.inserted import insert
from tests.helpers.random_databases import RandomDatabase

MOST = 50
MADE = DuckDBSource(duckdb.connect())
unit_counts, rows_without_unit = MADE.unit_counts, MADE.rows_without_unit


def counted(con, table, least=1, most=MOST):
    """Return unit → how many rows it has, as SQL finds them."""
    sql = source_of(unit_counts(table, "root", least, most))
    found = con.execute(f"SELECT unit::VARCHAR, rows FROM {sql}").fetchall()
    assert len(dict(found)) == len(found)
    return dict(found)


def nobodys(con, table):
    ((n,),) = con.execute(f"SELECT COUNT(*) FROM {source_of(rows_without_unit(table))}").fetchall()
    return n


def shop(*, enforced=True):
    con = duckdb.connect()
    refers = "REFERENCES {}" if enforced else ""
    con.execute(f"""
        CREATE TABLE customers (id INTEGER {"PRIMARY KEY" if enforced else ""});
        CREATE TABLE orders (
            nr INTEGER {"PRIMARY KEY" if enforced else ""},
            customer_id INTEGER {refers.format("customers (id)")}
        );
        CREATE TABLE items (order_nr INTEGER {refers.format("orders (nr)")}, unit INTEGER);
    """)
    insert(con, "customers", [(i,) for i in range(6)])
    orders = [(i, i % 5 if i % 7 else None) for i in range(40)]
    insert(con, "orders", orders)
    insert(con, "items", [(i % 40 if i % 9 else None, i) for i in range(200)])
    return con


def test_they_are_counted_along_the_way():
    con = shop()
    joined = "items i JOIN orders o ON i.order_nr = o.nr WHERE customer_id IS NOT NULL"
    true = dict(
        con.execute(f"SELECT customer_id::VARCHAR, COUNT(*) FROM {joined} GROUP BY 1").fetchall()
    )
    items = describe_table(con, ("items",), None, dpsql.Unit("customers"))
    assert counted(con, items) == true
    assert max(true.values()) > 30
    clamped = {unit: min(max(n, 28), 30) for unit, n in true.items()}
    assert counted(con, items, 28, 30) == clamped
    left = "SELECT COUNT(*) FROM items i LEFT JOIN orders o ON order_nr = nr WHERE customer_id "
    ((none,),) = con.execute(f"{left} IS NULL").fetchall()
    assert nobodys(con, items) == none == 200 - sum(true.values())
    customers = describe_table(con, ("customers",), None, dpsql.Unit("customers"))
    assert counted(con, customers) == {str(i): 1 for i in range(6)}
    assert nobodys(con, customers) == 0


def test_ids_are_told_apart_by_their_bytes():
    con = duckdb.connect()
    con.execute("CREATE TABLE t (who VARCHAR COLLATE NOCASE, u_unit INTEGER, rows INTEGER)")
    insert(con, "t", [("a", 1, 1), ("A", 2, 2), ("A", 3, 3), (None, 4, 4), ("á", 5, 5)])
    table = describe_table(con, ("t",), None, dpsql.Unit("who"))
    assert Counter(counted(con, table).values()) == {1: 2, 2: 1}
    assert nobodys(con, table) == 1


def test_ids_of_several_columns():
    con = duckdb.connect()
    con.execute("CREATE TABLE t (chain INTEGER, shop VARCHAR)")
    insert(con, "t", [(1, "a"), (1, "a"), (1, "b"), (2, "a"), (None, "a"), (3, None)])
    table = describe_table(con, ("t",), None, dpsql.Unit("chain, shop"))
    assert sorted(counted(con, table).values()) == [1, 1, 2]
    assert nobodys(con, table) == 2


def test_views_of_files(tmp_path):
    con = duckdb.connect()
    file = tmp_path / "t.parquet"
    con.execute(f"COPY (SELECT nullif(i % 4, 3) AS who FROM range(10) AS t(i)) TO '{file}'")
    con.execute(f"CREATE VIEW t AS FROM '{file}'")
    table = describe_table(con, ("t",), None, dpsql.Unit("who"))
    assert counted(con, table) == {"0": 3, "1": 3, "2": 2}
    assert nobodys(con, table) == 2


def test_keys_that_nothing_enforces():
    """A row may have several units, and when one is gone some of its rows may stay behind."""
    con = shop(enforced=False)
    insert(con, "orders", [(3, 4)])  # another customer's order with the same number
    unit = dpsql.Unit("orders.customer_id", references={"items.order_nr": "orders.nr"})
    items = describe_table(con, ("items",), None, unit)
    ((of_3,),) = con.execute("SELECT COUNT(*) FROM items WHERE order_nr = 3").fetchall()
    only = describe_table(shop(), ("items",), None, dpsql.Unit("customers"))
    before = counted(shop(), only)
    assert counted(con, items) == {**before, "4": before["4"] + of_3}
    with pytest.raises(SchemaError, match="rows could stay") as refused:
        rows_without_unit(items)
    assert "order_nr" in refused.value.message
    assert "store the id of the unit in a column of items" in refused.value.hint
    con.execute("ALTER TABLE items ADD COLUMN customer INTEGER")
    stored = describe_table(con, ("items",), None, dpsql.Unit("customer"))
    assert nobodys(con, stored) == 200


def test_without_units_there_is_nothing_to_count():
    con = shop()
    table = describe_table(con, ("items",))
    with pytest.raises(SchemaError, match="protected by itself"):
        rows_without_unit(table)
    with pytest.raises(InternalError):
        unit_counts(table, "root", 1, 9)


def test_what_it_is_called_says_nothing_of_bounds():
    """So that a table with another bound has the same units."""
    con = shop()
    paths = {
        unit_counts(
            describe_table(con, ("items",), None, dpsql.Unit("customers", rows)), "c.id", 1, 9
        ).path
        for rows in (None, 3, {"items": 5})
    }
    assert len(paths) == 1


def described(database, con):
    for kind in database.kinds:
        with suppress(SchemaError):  # several ways
            yield describe_table(con, (kind.name,), database.schema)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(300))
def test_a_unit_takes_its_own_row_with_it_and_changes_no_other(seed):
    database = RandomDatabase(random.Random(seed))  # noqa: S311
    con = database.connect()
    fewer = database.connect(without=database.apart)
    for table in described(database, con):
        before, after = counted(con, table), counted(fewer, table)
        assert after.items() <= before.items()
        assert len(before) - len(after) <= 1
        if all(join.enforced for join in table.unit.joins):
            assert nobodys(con, table) == nobodys(fewer, table)


def test_some_units_have_rows_and_some_rows_have_none():
    """So that the test above has to do with these."""
    kinds = ("gone", "nobody's", "by several steps", "not enforced")
    seen = Counter(dict.fromkeys(kinds, 0))
    for seed in range(40):
        if min(seen.values()) > 2:
            return
        database = RandomDatabase(random.Random(seed))  # noqa: S311
        con, fewer = database.connect(), database.connect(without=database.apart)
        for table in described(database, con):
            enforced = all(join.enforced for join in table.unit.joins)
            seen["gone"] += len(counted(con, table)) > len(counted(fewer, table))
            seen["nobody's"] += enforced and nobodys(con, table) > 0
            seen["by several steps"] += enforced and len(table.unit.joins) > 0
            seen["not enforced"] += not enforced
    pytest.fail(f"too few are among them: {seen}")


def test_a_row_of_nobody_counts_as_one():
    con = shop()
    items = describe_table(con, ("items",), None, dpsql.Unit("customers"))
    before, units = nobodys(con, items), counted(con, items)
    insert(con, "items", [(None, 5)])
    assert nobodys(con, items) == before + 1
    assert counted(con, items) == units
