"""Expressions as readers would write them: DuckDB reads them back as they were."""

import duckdb
import pytest

from dpsql.rows.expression import RowColumn, RowConstant, canonical, spelled, sum_spelled
from dpsql.rows.read import read_expression
from dpsql.sql.sandbox.database import Sandbox

SQL = [
    "price * (1 - disc) * (1 + tax)",
    "a - (b - c) - -d",
    "a / (b * c) % 7 // 2",
    "NOT (a IS NULL OR b > 2) AND c IS NOT NULL",
    "(a = 1 OR b = 2) AND NOT c BETWEEN 1 AND 2",
    "CASE WHEN a > 1 THEN b + 1 WHEN c THEN 0.5 ELSE NULL END * 2",
    "color IN ('red', 'it''s') AND d < DATE '2020-01-02'",
    "CAST(least(a, greatest(b, 1)) AS DOUBLE)",
    "name LIKE 'a%' OR \"Odd Name\" = 1",
    "(a + b) IS NULL",
]


@pytest.fixture(scope="module")
def sandbox():
    return Sandbox()


@pytest.mark.parametrize("sql", SQL)
def test_what_is_spelled_is_read_as_the_same(sandbox, sql):
    expression = read_expression(sandbox.tree(sql))
    again = read_expression(sandbox.tree(spelled(expression)))
    assert canonical(again) == canonical(expression)


@pytest.mark.parametrize("sql", [SQL[0], "x IS NOT NULL AND NOT y > 2", "-a * 3"])
def test_it_is_spelled_as_it_was_written(sandbox, sql):
    assert spelled(read_expression(sandbox.tree(sql))) == sql


def test_sums_are_spelled_with_what_is_taken_off_of_each_row(sandbox):
    x, five = RowColumn("x"), RowConstant("DOUBLE", "5.0")
    y = read_expression(sandbox.tree("a + b"))
    high = read_expression(sandbox.tree("x > 1"))
    zero = RowConstant("DOUBLE", "0.0")
    assert sum_spelled([x], [], []) == "SUM(x)"
    assert sum_spelled([], [], [high, high]) == "COUNT(*) WHERE x > 1 AND x > 1"
    assert sum_spelled([x, y], [five, zero], []) == "SUM((x - 5) * (a + b))"
    assert len(sum_spelled([x] * 2, [five] * 2, [high] * 100)) == 200


def test_duckdb_takes_what_is_spelled():
    sql = spelled(RowColumn('odd "name"'))
    con = duckdb.connect()
    con.execute('CREATE TABLE t AS SELECT 1 AS "odd ""name"""')
    assert con.execute(f"SELECT {sql} FROM t").fetchall() == [(1,)]
