"""Quotients by what may be zero but for noise: within what is possible, and without a variance."""

import duckdb
import pytest

import dpsql

HUGE = dpsql.Budget(rho=10**12)


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t (g INTEGER NOT NULL CHECK (g BETWEEN 0 AND 3),
                        x INTEGER NOT NULL CHECK (x BETWEEN 0 AND 9));
        INSERT INTO t SELECT i % 3, i % 10 FROM range(100) r(i);
    """)
    return con


@pytest.mark.parametrize(
    "value",
    [
        "AVG(x)",
        "SUM(x) / COUNT(*)",
        "ROUND(AVG(x), 1)",
        "100.0 * SUM(x) / NULLIF(SUM(x * x), 0)",
        "VAR_SAMP(x)",
        "STDDEV(x)",
        "CORR(x, x * x)",
        "COUNT_IF(x > 3) / COUNT(*)",
    ],
)
def test_of_no_rows_they_have_no_variance(con, value):
    sql = f"SELECT g, {value} AS v FROM t GROUP BY g ORDER BY g"
    frame = dpsql.query(con, sql, budget=HUGE)
    *known, _ = frame["v"].to_list()
    assert known == pytest.approx([value for _, value in con.sql(sql).fetchall()], rel=1e-4)
    assert frame["v_variance"][3] is None


def test_by_a_public_zero_they_are_as_in_duckdb(con):
    sql = "SELECT g, COUNT(*) / g AS v, COUNT(*) / 0 AS w FROM t WHERE g < 3 GROUP BY g ORDER BY g"
    frame = dpsql.query(con, sql, budget=HUGE).select("g", "v", "w")
    for ours, theirs in zip(frame.rows(), con.sql(sql).fetchall(), strict=False):
        assert ours == pytest.approx(theirs, rel=1e-4)
