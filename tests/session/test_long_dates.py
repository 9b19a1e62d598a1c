"""The first and the last of very many days: one near the end is drawn, or it is told by months."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)


@pytest.mark.parametrize(("function", "end"), [("MIN", 2015), ("MAX", 2024)])
def test_the_end_of_very_many_days_is_answered(function: str, end: int):
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (day DATE NOT NULL "
        "CHECK (day BETWEEN DATE '2015-01-01' AND DATE '2024-12-30'))"
    )
    con.execute("INSERT INTO t SELECT DATE '2015-01-01' + i::INTEGER FROM range(3650) r(i)")
    (drawn,) = dpsql.query(con, f"SELECT {function}(day) AS m FROM t", budget=BUDGET)["m"]
    assert drawn.year == end
    by_months = f"SELECT {function}(DATE_TRUNC('month', day)) AS m FROM t"
    assert dpsql.query(con, by_months, budget=BUDGET)["m"][0].day == 1
