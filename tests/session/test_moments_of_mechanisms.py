"""Moments of columns with very different bounds, by each mechanism: an answer, or what can."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.errors import MechanismError
from dpsql.planner.mechanisms.measures import _share
from dpsql.planner.plans.traits import MECHANISMS

COLUMNS = {
    "a": ("INTEGER", "0", "10"),
    "b": ("DECIMAL(12,2)", "0", "1000000"),
    "c": ("DOUBLE", "0", "0.001"),
    "d": ("BIGINT", "-5", "100000000000"),
    "e": ("DOUBLE", "-1000000000000000", "1000000000000000"),
}
CANNOT = {"residualplanner", "pairs", "aim"}
BUDGETS = {"laplace": dpsql.Budget(epsilon=1, delta=0)}


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    columns = ", ".join(
        f"{name} {type_} CHECK ({name} BETWEEN {low} AND {high})"
        for name, (type_, low, high) in COLUMNS.items()
    )
    con.execute(f"CREATE TABLE t (g BOOLEAN NOT NULL, {columns})")
    con.execute(
        "INSERT INTO t SELECT i % 2 = 0, i % 11, i, i / 1e7, i * 77, i - 50 FROM range(100) r(i)"
    )
    return con


def alone(con, mechanism: str, sql: str) -> list[str] | None:
    """Return the columns of an answer; None if the mechanism says that it can't answer this."""
    budget = BUDGETS.get(mechanism, dpsql.Budget(epsilon=1, delta=1e-9))
    session = dpsql.Session(con)
    if mechanism in CANNOT:
        with pytest.raises(MechanismError) as refused:
            session.release(sql, budget=budget, mechanism=mechanism)
        assert "mechanisms that can: querysmasher" in refused.value.hint
        return None
    return session.release(sql, budget=budget, mechanism=mechanism)["query"].columns


@pytest.mark.parametrize("function", ["CORR", "REGR_SLOPE"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("pair", [("a", "b"), ("c", "d"), ("b", "e")])
def test_moments_of_columns_with_very_different_bounds(con, mechanism, function, pair):
    items = f"{function}({pair[0]}, {pair[1]}) AS m, {function}(a, c) AS other"
    columns = alone(con, mechanism, f"SELECT g, {items} FROM t GROUP BY g")
    assert columns is None or {"g", "m", "other"} <= {*columns}


@pytest.mark.parametrize(
    "long", [Fraction(2**951, 3**600), Fraction(10**300, 3**628), Fraction(5, 3)]
)
@pytest.mark.parametrize("pure", [True, False])
def test_shares_of_many_digits_are_rounded_down(long, pure):
    budget = dpsql.Budget(epsilon=1, delta=0) if pure else dpsql.Budget(rho=1)
    found = _share(budget, long)
    amount = found.amount if pure else 2 * found.amount
    assert long * (1 - Fraction(1, 2**500)) <= amount <= long
