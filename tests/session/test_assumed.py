"""Expected errors in the units of what is selected, for an assumed number of rows."""

from __future__ import annotations

import math

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.errors import WorkloadError
from dpsql.workload import Identity, Workload

BUDGET = dpsql.Budget(rho=0.5)
SCHEMA = dpsql.Schema(
    {
        "flights": {
            "origin": dpsql.Domain.labels(["EWR", "JFK"]),
            "delay": dpsql.Domain.integers(0, 9),
            "late": dpsql.Domain.boolean(nullable=True),
        }
    }
)
SCRIPT = {
    "means": "SELECT origin, AVG(delay) AS m, COUNT(*) AS n FROM flights GROUP BY origin",
    "shares": "SELECT origin, COUNT(*) / SUM(COUNT(*)) OVER () AS s FROM flights GROUP BY origin",
    "median": "SELECT MEDIAN(delay) AS q FROM flights",
    "sum": "SELECT SUM(delay) AS s FROM flights WHERE origin = 'JFK'",
}


@pytest.fixture(scope="module")
def con():
    """A table whose 6,000 rows are spread evenly over all values, as assumed."""
    con = duckdb.connect()
    con.execute(
        """
        CREATE TABLE flights AS SELECT ['EWR', 'JFK'][1 + i % 2] AS origin, i // 2 % 10 AS delay,
            [true, false, NULL][1 + i // 20 % 3] AS late
        FROM range(6000) AS t(i)
        """
    ).fetchall()
    return con


def test_errors_are_those_of_a_release_of_such_rows(con):
    plan = dpsql.plan(con, SCRIPT, budget=BUDGET, schema=SCHEMA, assume={"rows": 6000})
    release = dpsql.query(con, SCRIPT, budget=BUDGET, schema=SCHEMA)
    assert plan.expected_answers.height == 5
    for name, column, typical, mean, largest, width, *_ in plan.expected_answers.rows():
        found = release[name]
        assert typical == pytest.approx(found[column].mean(), rel=0.02, abs=0.6)
        if column == "q":
            assert (mean, largest) == (None, None)
            assert width == pytest.approx((found["q_upper"] - found["q_lower"]).item(), abs=1.1)
            continue
        variances = found[f"{column}_variance"].to_numpy()
        assert mean == pytest.approx(math.sqrt(variances.mean()), rel=0.02)
        assert largest == pytest.approx(math.sqrt(variances.max()), rel=0.02)
        assert width is None


def test_rows_of_a_group_can_be_assumed(con):
    session = dpsql.Session(con, schema=SCHEMA)
    found = session.plan(SCRIPT, budget=BUDGET, assume={"rows": 6000}).expected_answers
    groups = {"means": 3000, "shares": 3000, "median": 6000, "sum": 3000}
    same = session.plan(SCRIPT, budget=BUDGET, assume=groups).expected_answers
    np.testing.assert_allclose(
        same.drop("statement", "column", "rows_from").to_numpy().astype(float)[:3],
        found.drop("statement", "column", "rows_from").to_numpy().astype(float)[:3],
    )
    few = session.plan(SCRIPT, budget=BUDGET, assume={"means": 30}).expected_answers
    error = {row[1]: row[3] for row in few.rows() if row[0] == "means"}
    assert error["m"] == pytest.approx(100 * found["standard_error"][0], rel=0.01)
    assert few.filter(statement="shares")["standard_error"].to_list() == [None]


def test_nothing_is_spent_and_nothing_is_said_without_an_assumption(con):
    session = dpsql.Session(con, schema=SCHEMA)
    spent = session.ledger.spent
    assert session.plan(SCRIPT, budget=BUDGET).expected_answers is None
    session.plan(SCRIPT, budget=BUDGET, assume={"rows": 10})
    assert session.ledger.spent == spent


@pytest.mark.parametrize(
    ("assume", "said"),
    [
        ({"row": 5}, "no statement 'row'"),
        ({"rows": 0}, "not a number of rows"),
        ({"rows": "many"}, "not a number of rows"),
        ({"rows": math.nan}, "not a number of rows"),
        ({}, "is a mapping"),
        (5, "is a mapping"),
    ],
)
def test_what_can_not_be_assumed(con, assume, said):
    with pytest.raises((WorkloadError, dpsql.errors.ArgumentError)) as error:
        dpsql.plan(con, SCRIPT, budget=BUDGET, schema=SCHEMA, assume=assume)
    assert said in str(error.value) or isinstance(error.value, dpsql.errors.ArgumentError)


def test_a_workload_has_no_columns():
    workload = Workload({"a": 4}).add(["a"], Identity(), name="cells")
    with pytest.raises(WorkloadError, match="no columns"):
        dpsql.plan(workload, budget=BUDGET, assume={"rows": 5})
