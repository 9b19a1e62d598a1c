"""TPC-H of private customers: answers with hardly any noise are those of DuckDB."""

from __future__ import annotations

import duckdb
import pytest

from examples.tpch import tpch

SCALE = 0.01
QUERIES = tpch.queries()
PROFIT = """
    SELECT nation, o_year, SUM(amount) AS sum_profit
    FROM (
        SELECT n_name AS nation, EXTRACT(year FROM o_orderdate) AS o_year,
            l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
        FROM part, supplier, lineitem, partsupp, orders, nation
        WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey
            AND p_partkey = l_partkey AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey
            AND p_name LIKE '%green%'
    ) AS profit
    GROUP BY nation, o_year ORDER BY nation, o_year DESC
"""


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as con:
        tpch.load(con, SCALE)
        yield con


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", QUERIES)
def test_it_is_what_duckdb_says(con, name):
    assert tpch.largest_error(tpch.connect(con, SCALE), con, QUERIES[name]) < 1e-3


def test_no_rows_are_left_out(con):
    """So that the answers above are those of all rows."""
    orders = "SELECT max(n) FROM (SELECT count(*) AS n FROM orders GROUP BY o_custkey)"
    lines = "SELECT max(n) FROM (SELECT count(*) AS n FROM lineitem JOIN orders ON "
    lines += "l_orderkey = o_orderkey GROUP BY o_custkey)"
    for sql, table in ((orders, "orders"), (lines, "lineitem")):
        ((most,),) = con.execute(sql).fetchall()
        assert most <= tpch.UNIT.max_rows[table]


def test_what_a_line_cost_is_what_its_part_costs_at_its_supplier(con):
    """So the ninth query is TPC-H's own."""
    assert con.execute(QUERIES["Q9"]).fetchall() == con.execute(PROFIT).fetchall()


def test_each_query_says_something(con):
    for name, sql in QUERIES.items():
        rows = con.execute(sql).fetchall()
        assert rows, name
        assert rows[0][-1], name
