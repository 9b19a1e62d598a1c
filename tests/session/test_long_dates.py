"""The largest of very many days: refused, with a hint that works when it is typed."""

from __future__ import annotations

import re

import duckdb
import pytest

import dpsql

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)


@pytest.mark.parametrize("function", ["MIN", "MAX"])
def test_what_the_hint_says_of_days_is_answered(function: str):
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (day DATE NOT NULL "
        "CHECK (day BETWEEN DATE '2015-01-01' AND DATE '2024-12-30'))"
    )
    con.execute("INSERT INTO t SELECT DATE '2015-01-01' + i::INTEGER FROM range(3650) r(i)")
    with pytest.raises(dpsql.ResourceLimitError) as refused:
        dpsql.query(con, f"SELECT {function}(day) AS m FROM t", budget=BUDGET)
    (typed,) = re.findall(r"MAX\((.*\))\)", refused.value.hint or "")
    answer = dpsql.query(con, f"SELECT {function}({typed}) AS m FROM t", budget=BUDGET)
    assert answer["m"][0].day == 1
