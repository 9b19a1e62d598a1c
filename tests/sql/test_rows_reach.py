"""Statements over rows that no cells tell apart: TPC-H's over lineitem, and those of flights."""

import duckdb
import pytest

import dpsql
from tests.benchmarks import rows_reach as reach

FAST = 4.0
"""CPU seconds of a plan, on a machine that does other things besides."""


@pytest.fixture(scope="module")
def flights():
    con = reach.flights(5_000)
    yield con
    con.close()


@pytest.fixture(scope="module")
def lineitem():
    con, schema = reach.lineitem(0.01)
    yield con, schema
    con.close()


@pytest.mark.parametrize("name", reach.FLIGHTS)
def test_flights_are_answered_with_the_least_variance_of_bounded_sums(flights, name):
    """Of P sums for G groups, Σ variance / M² = P²·G/C; `rows_reach` derives it.

    An average is planned for its own error, which costs its sum and its count 7.7 %.
    """
    sql, needed = reach.FLIGHTS[name]
    found = reach.reached(flights, reach.FLIGHTS_SCHEMA, sql, needed)
    assert found.error < 1e-5
    assert -0.01 < found.excess < (0.08 if "AVG(" in sql else 0.01)
    assert found.planned < FAST


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", reach.LINEITEM)
def test_tpch_over_lineitem_equals_duckdb(lineitem, name):
    con, schema = lineitem
    found = reach.reached(con, schema, reach.LINEITEM[name])
    assert found.error < 1e-4
    assert found.planned < FAST


@pytest.mark.parametrize(
    "where",
    [
        "(a = 1 AND b > 2) OR (a = 1 AND c) OR (b < 4 AND a = 1 AND NOT c)",
        "a = 1 OR (a = 1 AND b > 2)",
        "(a IS NULL AND b > 1) OR (b > 1 AND c)",
        "NOT ((a = 1 AND b > 2) OR (a = 1 AND c))",
    ],
)
def test_what_all_branches_of_an_or_have_may_be_null(where):
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t AS SELECT CASE WHEN i % 3 > 0 THEN i % 3 END::INTEGER AS a,
            CASE WHEN i % 7 > 0 THEN i % 7 END::INTEGER AS b,
            CASE WHEN i % 5 > 0 THEN i % 2 = 0 END AS c FROM range(420) r(i)
    """)
    domains = {
        "a": dpsql.Domain.integers(1, 2, nullable=True),
        "b": dpsql.Domain.integers(1, 6, nullable=True),
        "c": dpsql.Domain.boolean(nullable=True),
    }
    sql = f"SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE {where}) AS m FROM t WHERE {where}"
    session = dpsql.Session(con, schema=dpsql.Schema({"t": domains}))
    found = session.query(sql, budget=dpsql.Budget(rho=1e12)).row(0)[::2]
    assert found == pytest.approx(con.execute(sql).fetchone(), abs=1e-3)


def test_sums_of_a_select_are_measured_alike():
    """Beside a column that has bounds only, cells of the others would make plans larger."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i % 2 AS k, i % 5 AS q, i % 4 AS d, i / 2 AS p "
                "FROM range(100) r(i)")  # fmt: skip
    domains = {"k": dpsql.Domain.integers(0, 1), "q": dpsql.Domain.integers(0, 4)}
    domains |= {"d": dpsql.Domain.integers(0, 3), "p": dpsql.Domain.number(0, 50)}
    schema = dpsql.Schema({"t": domains})

    def measured(sql):
        plan = dpsql.plan(con, sql, budget=reach.BUDGET, schema=schema)
        return [family.measure is not None for family in plan.workload.families]

    assert measured("SELECT k, SUM(q) AS q FROM t GROUP BY k") == [False]
    assert measured("SELECT k, SUM(p) AS p, SUM(q) AS q, SUM(d) FROM t GROUP BY k") == [True] * 3
    assert measured("SELECT SUM(p) AS p, SUM(q) AS q FROM t WHERE q > 1") == [True, False]
    assert measured("SELECT SUM(p) AS p, SUM(q) AS s, MEDIAN(q) AS m FROM t").count(True) == 1


@pytest.mark.parametrize(
    "until", ["DATE '2020-01-31' + INTERVAL '1' MONTH", "TIMESTAMP '2020-03-01' - INTERVAL 1 DAY"]
)
def test_moments_are_moved_where_nothing_is_private(until):
    """Of a column without a domain: no function of the calendar runs on rows."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT DATE '2020-01-01' + i::INTEGER AS d FROM range(90) r(i)")
    sql = f"SELECT COUNT(*) AS n FROM t WHERE d >= DATE '2020-01-20' AND d < {until}"
    found = dpsql.query(con, sql, budget=dpsql.Budget(rho=1e12))
    assert found["n"][0] == pytest.approx(con.execute(sql).fetchone()[0], abs=1e-3)
    late = "SELECT COUNT(*) AS n FROM t WHERE d < DATE '2020-01-31' + INTERVAL 9999999 YEAR"
    with pytest.raises(dpsql.SqlError, match="out of range"):
        dpsql.query(con, late, budget=dpsql.Budget(rho=1))
