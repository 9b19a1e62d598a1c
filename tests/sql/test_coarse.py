"""Columns known by ranges: what cuts through a range is refused, all else equals DuckDB."""

import duckdb
import pytest

import dpsql
from dpsql import Domain

SCHEMA = dpsql.Schema(
    {
        "t": {
            "income": Domain.bins([0, 10, 20, 50, 100]),
            "day": Domain.dates("2020-01-01", "2020-12-31", grain="month"),
        }
    }
)


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute("CREATE TABLE t (income DOUBLE, day DATE)").fetchall()
    con.execute(
        "INSERT INTO t SELECT (range * 37) % 1000 / 10.0, DATE '2020-01-01' + (range % 366)::INT"
        " FROM range(3000)"
    ).fetchall()
    return con


def count(con, condition, column="COUNT(*)"):
    sql = f"SELECT {column} AS n FROM t WHERE {condition}"
    frame = dpsql.query(con, sql, budget=dpsql.Budget(rho=10**10), schema=SCHEMA)
    return frame["n"][0], con.execute(sql).fetchall()[0][0]


@pytest.mark.parametrize(
    "condition",
    [
        "income >= 10",
        "income < 50",
        "NOT (income < 20 OR income >= 50)",
        "income >= 10 AND income < 20",
        "income IS NOT NULL",
        "CASE WHEN income < 20 THEN TRUE ELSE FALSE END",
        "income > 1000",
        "day >= DATE '2020-03-01'",
        "month(day) IN (2, 3)",
        "quarter(day) = 2",
        "day < '2020-07-01' AND year(day) = 2020",
        "strftime(day, '%Y-%m') = '2020-05'",
    ],
)
def test_whole_ranges_are_counted(con, condition):
    ours, theirs = count(con, condition)
    assert ours == pytest.approx(theirs, abs=0.01)


@pytest.mark.parametrize(
    "condition",
    [
        "income > 25",
        "income = 37",
        "income <> 37",
        "income BETWEEN 3 AND 5",
        "income IN (10, 11)",
        "income <= 10",
        "income * 2 > 40",
        "(income - 15) * (income - 15) < 1",
        "income::INTEGER = 12",
        "day = DATE '2020-02-15'",
        "day BETWEEN DATE '2020-02-10' AND DATE '2020-02-20'",
        "day(day) = 15",
        "dayname(day) = 'Monday'",
        "income < month(day)",
    ],
)
def test_what_cuts_through_a_range_is_refused(con, condition):
    with pytest.raises(dpsql.SqlError, match="ranges only") as error:
        count(con, condition)
    assert error.value.hint


@pytest.mark.parametrize(
    "aggregate", ["SUM(income)", "AVG(income)", "MEDIAN(income)", "SUM(day(day))"]
)
def test_ranges_are_not_added_up(con, aggregate):
    with pytest.raises(dpsql.SqlError, match="ranges only"):
        count(con, "TRUE", aggregate)


def test_a_public_table_of_limits(con):
    join = "SELECT COUNT(*) AS n FROM t JOIN (VALUES ({})) AS b(limit_) ON income < b.limit_"
    budget = dpsql.Budget(rho=10**10)
    frame = dpsql.query(con, join.format(20), budget=budget, schema=SCHEMA)
    assert frame["n"][0] == pytest.approx(con.execute(join.format(20)).fetchall()[0][0], abs=0.01)
    with pytest.raises(dpsql.SqlError, match="ranges only"):
        dpsql.query(con, join.format(25), budget=budget, schema=SCHEMA)
