"""Expected errors in the units of what is selected, for an assumed number of rows."""

from __future__ import annotations

import math
import re

import duckdb
import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.errors import WorkloadError
from dpsql.planner.plans.plan import told_rows
from dpsql.workload import Identity, Workload
from tests.helpers.redrawn import Redrawn

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
    numbers = ["typical", "standard_error", "largest_standard_error", "left_out"]
    np.testing.assert_allclose(
        same.select(numbers).to_numpy().astype(float)[:3],
        found.select(numbers).to_numpy().astype(float)[:3],
    )
    few = session.plan(SCRIPT, budget=BUDGET, assume={"means": 30}).expected_answers
    error = {row[1]: row[3] for row in few.rows() if row[0] == "means"}
    assert error["m"] == pytest.approx(100 * found["standard_error"][0], rel=0.01)
    assert few.filter(statement="shares")["group_rows"].to_list() == SIZES[:2]


SIZES = [700, 7_000, 70_000]


def told(plan) -> dict[str, str]:
    """What a plan says of each column, below its header."""
    rows = told_rows(plan.expected_answers, plan.expected_error(), plan.mechanism)
    return {name: said for name, _, said in rows}


def test_nothing_is_spent_and_examples_are_told_without_an_assumption(con):
    session = dpsql.Session(con, schema=SCHEMA)
    spent = session.ledger.spent
    plan = session.plan(SCRIPT, budget=BUDGET)
    found = plan.expected_answers
    means = found.filter(column="m")
    assert means["group_rows"].to_list() == SIZES[:2]
    each = session.plan(SCRIPT, budget=BUDGET, assume={"means": 700, "shares": 700})
    same = each.expected_answers.filter(column="m")
    assert means["standard_error"][0] == pytest.approx(same["standard_error"][0])
    assert means["standard_error"][0] == pytest.approx(10 * means["standard_error"][1])
    assert session.ledger.spent == spent
    lines = told(plan)
    assert lines["means: m"].startswith("± 0.0")
    assert lines["means: m"].count(" for a group of 700 rows, ± 0.0") == 1
    assert lines["means: m"].endswith(" for 7,000")
    assert lines["means: n"].endswith(" rows")
    assert " at 95 % for a group of 700 rows, ± " in lines["median"]
    assert "%" not in lines["sum"]
    text = str(plan)
    assert text.splitlines()[0].split() == ["statement", "answers", "standard", "error"]
    assert 'for others add assume={"rows": 100000}.' in " ".join(text.split())
    assert "examples" not in str(session.plan({"sum": SCRIPT["sum"]}, budget=BUDGET))


def test_sizes_at_which_noise_is_all_there_is_are_passed_over(con):
    session = dpsql.Session(con, schema=SCHEMA)
    plan = session.plan({"means": SCRIPT["means"]}, budget=dpsql.Budget(rho=1e-6))
    means = plan.expected_answers.filter(column="m")
    assert means["standard_error"][0] is None
    assert means["left_out"][0] == means["answers"][0] == 2
    assert means["standard_error"].drop_nulls().len() == 2
    assert re.search(
        r"^± .* for a group of .*000 rows, ± .*, noise alone for ", told(plan)["means: m"]
    )
    sql = "SELECT CORR(delay, delay * delay) AS c FROM flights"
    plan = session.plan(sql, budget=dpsql.Budget(rho=1e-5))  # an error of more than 1 at 700 rows
    assert told(plan)["query"].endswith(" for 70,000, noise alone for 700")


GROUPS = 40
STATISTICS = """
    SELECT g, COUNT(*) AS n, SUM(x) AS total, AVG(x) AS mean, STDDEV(x) AS deviation,
        100.0 * COUNT(*) FILTER (x < 6) / COUNT(*) AS percent,
        SUM(x) / COUNT(*) FILTER (x < 10) AS ratio
    FROM t GROUP BY g
"""


def test_told_errors_are_those_of_repeated_releases():
    """Of groups of 700 rows, spread evenly over all values, as they are told for.

    Each number is the root of 320 squares, of 40 groups in 8 releases, so that its standard error
    is 4 %; 16 % are passed by chance once in 10,000 times. The seed is fixed.
    """
    con = duckdb.connect()
    con.execute(
        f"""
        CREATE TABLE t (
            g INTEGER NOT NULL CHECK (g BETWEEN 0 AND {GROUPS - 1}),
            x INTEGER NOT NULL CHECK (x BETWEEN 0 AND 19)
        );
        INSERT INTO t SELECT i % {GROUPS}, i // {GROUPS} % 20 FROM range({700 * GROUPS}) AS r(i)
        """
    ).fetchall()
    budget = dpsql.Budget(rho=0.05)
    redrawn = Redrawn.of(con, {"query": STATISTICS}, budget=budget)
    plan = redrawn.exact().plan
    assert set(plan.expected_answers["group_rows"]) <= {700, 7_000}
    exact = redrawn.exact()["query"]
    drawn = [release["query"] for release in redrawn.draws(8, seed=1)]
    first = plan.expected_answers.filter(group_rows=700)
    assert first.height == 6
    for column, error in first.select("column", "standard_error").rows():
        off = [frame[column].to_numpy() - exact[column].to_numpy() for frame in drawn]
        assert np.sqrt(np.mean(np.square(off))) == pytest.approx(error, rel=0.16), column


def test_told_intervals_of_quantiles_are_those_of_repeated_releases():
    """They hold the quantile, and are as wide as told, up to the steps of its domain."""
    con = duckdb.connect()
    con.execute(
        """
        CREATE TABLE t (
            g INTEGER NOT NULL CHECK (g BETWEEN 0 AND 7),
            x INTEGER NOT NULL CHECK (x BETWEEN 0 AND 99)
        );
        INSERT INTO t SELECT i % 8, i // 8 % 100 FROM range(5600) AS r(i)
        """
    ).fetchall()
    sql = {"q": "SELECT g, MEDIAN(x) AS middle FROM t GROUP BY g"}
    budget = dpsql.Budget(rho=0.02)
    plan = dpsql.plan(con, sql, budget=budget)
    redrawn = Redrawn.of(con, sql, budget=budget)
    drawn = pl.concat([release["q"] for release in redrawn.draws(10, seed=1)])
    told = plan.expected_answers.filter(group_rows=700)["interval"].item()
    width = (drawn["middle_upper"] - drawn["middle_lower"]).mean()
    assert width == pytest.approx(told, rel=0.25)
    held = drawn.filter((pl.col("middle_lower") <= 49.5) & (pl.col("middle_upper") >= 49.5))
    assert held.height >= 72  # of 80


def test_what_is_counted_is_told():
    con = duckdb.connect()
    con.execute("CREATE TABLE p (id INTEGER, g BOOLEAN NOT NULL, x INTEGER)").fetchall()
    schema = dpsql.Schema(
        {"p": {"x": dpsql.Domain.integers(0, 9)}}, units={"p": dpsql.Unit("id", 3)}
    )
    script = {
        "rows": "SELECT g, COUNT(*) AS n FROM p GROUP BY g",
        "both": "SELECT SUM(n) AS n FROM (SELECT g, COUNT(*) AS n FROM p GROUP BY g)",
        "units": "SELECT COUNT(DISTINCT id) AS n FROM p",
        "twice": "SELECT 2 * COUNT(*) AS n FROM p",
        "sum": "SELECT SUM(x) AS n FROM p",
        "some": "SELECT SUM(x) AS n FROM p WHERE g",
        "public": "SELECT 2 AS two, COUNT(*) AS n FROM p",
        "least": "SELECT MIN(n) AS n FROM (SELECT g, COUNT(*) AS n FROM p GROUP BY g)",
    }
    plan = dpsql.plan(con, script, budget=BUDGET, schema=schema)
    counts = dict(plan.expected_answers.select("statement", "counts").rows())
    assert counts == {
        "rows": "rows", "both": "rows", "units": "units", "twice": None, "sum": None,
        "some": None, "public": "rows", "least": None,
    }  # fmt: skip
    lines = told(plan)
    assert " % for a group of 700 rows" in lines["sum"]
    assert "%" not in lines["some"]  # nobody knows how many rows are added up
    assert lines["units"].endswith(" units")
    assert [name for name in lines if name.startswith("public")] == ["public"]


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
