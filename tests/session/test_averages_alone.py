"""Averages and shares are planned as what they are: quotients whose mean isn't known."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

import dpsql

BUDGET = dpsql.Budget(mu=1)
GROUPS = 4
SHARE = "COUNT(*) FILTER (WHERE f) / COUNT(*)"
SHARES = {
    SHARE: 1.0,
    "100.0 * COUNT_IF(f) / COUNT(*)": 100.0,
    "CAST(COUNT(*) FILTER (WHERE f) AS DOUBLE) / NULLIF(COUNT(*), 0)": 1.0,
    "AVG(CASE WHEN f THEN 1 ELSE 0 END)": 1.0,
    "AVG(f::INT)": 1.0,
}


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t (
            g INTEGER NOT NULL CHECK (g BETWEEN 0 AND 3), k INTEGER NOT NULL CHECK (k IN (0, 1)),
            x INTEGER NOT NULL CHECK (x BETWEEN 0 AND 10), f BOOLEAN NOT NULL);
        INSERT INTO t SELECT i % 4, i % 2, i % 11, (i // 4) % 2 = 0 FROM range(4000) AS r(i);
    """).fetchall()
    return con


def weighted(plan):
    """Return the families of a plan with their weights, relative to the largest."""
    largest = max(family.weight for family in plan.workload.families)
    return [family.weight / largest for family in plan.workload.families]


def variance(con, value, mean, middle=0.0, group=""):
    """Return the variance of (the sum of values around the middle) − (mean − middle)·N."""
    keys, by = ("g, ", " GROUP BY g") if group else ("", "")
    plan = dpsql.plan(con, f"SELECT {keys}{value} AS v FROM t{by}", budget=BUDGET)
    first, second, *_ = plan.workload.families
    ones = np.eye(first.count)
    terms = [(first, ones), (second, -(mean - middle) * ones)]
    return plan.reconstruction.combined_variances(terms, plan.workload.domain)


@pytest.mark.parametrize(("mean", "least"), [(0.0, 1.077), (0.25, 0.565), (0.5, 0.394)])
def test_two_spellings_of_a_share_have_one_error(con, mean, least):
    """In units of 1/n²; the best for a share of which nothing is known, of all mechanisms."""
    (quotient,) = variance(con, SHARE, mean)
    (average,) = variance(con, "AVG(CASE WHEN f THEN 1 ELSE 0 END)", mean, 0.5)
    assert quotient == pytest.approx(least, abs=0.01)
    assert average == pytest.approx(quotient, rel=2e-3)


def test_an_average_alone_is_more_exact_around_the_middle(con):
    """By 11 percent there, as N has a third of the weight of the sum; by 4 less at the ends."""
    middle = variance(con, "AVG(x)", 5.0, 5.0, "by g")
    end = variance(con, "AVG(x)", 10.0, 5.0, "by g")
    t = 3**-0.5
    np.testing.assert_allclose(middle, 25 * (1 + t), rtol=2e-3)
    np.testing.assert_allclose(end, 25 * (1 + t) * (1 + 1 / t), rtol=2e-3)
    assert np.sqrt(middle / (2 * 25)) == pytest.approx(0.888, abs=2e-3)


@pytest.mark.parametrize(
    ("outputs", "counts"),
    [
        ("AVG(x) AS a", 1 / 3),
        ("AVG(x) AS a, COUNT(x) AS n", 1.0),
        ("AVG(x) AS a, STDDEV(x) AS s", 1.0),
        ("ROUND(AVG(x), 1) AS a", 1 / 3),
    ],
)
def test_a_count_that_is_shown_keeps_its_own_weight(con, outputs, counts):
    plan = dpsql.plan(con, f"SELECT {outputs} FROM t", budget=BUDGET)
    sums, count, *_ = plan.workload.families
    assert count.weight / (sums.weight * 5**2) == pytest.approx(counts)


def test_a_condition_on_the_count_counts_as_shown(con):
    sql = "SELECT g, AVG(x) AS a FROM t GROUP BY g HAVING COUNT(x) > 100"
    sums, count, *_ = dpsql.plan(con, sql, budget=BUDGET).workload.families
    assert count.weight / (sums.weight * 5**2) == pytest.approx(1.0)


@pytest.mark.parametrize("share", SHARES)
def test_shares_are_right_whatever_is_measured_for_them(con, share):
    session = dpsql.Session(con)
    found = session.query(f"SELECT g, {share} AS v FROM t GROUP BY g ORDER BY g", budget=BUDGET)
    true = con.sql(f"SELECT g, {share} AS v FROM t GROUP BY g ORDER BY g").pl()
    off = (found["v"].cast(float) - true["v"].cast(float)).to_numpy() / SHARES[share]
    errors = np.sqrt(found["v_variance"].to_numpy()) / SHARES[share]
    assert (np.abs(off) <= 6 * errors).all()
    assert (errors < 0.002).all()


def test_a_share_within_its_groups_and_one_that_is_shown(con):
    """Where the condition is on the column of the groups, and where both counts are shown."""
    sql = "SELECT k, COUNT(*) FILTER (WHERE k = 0) / COUNT(*) AS v FROM t GROUP BY k"
    plan = dpsql.plan(con, sql, budget=BUDGET)
    assert any(family.name.endswith("share") for family in plan.workload.families)
    shown = dpsql.plan(con, f"SELECT {SHARE} AS v, COUNT(*) AS n FROM t", budget=BUDGET)
    part, whole, share = weighted(shown)
    assert (whole, share) == pytest.approx((0.25, 1.0))
    assert part < 1e-5


def test_rows_of_others_are_no_share(con):
    """What isn't a part of what it is divided by is no average."""
    sql = "SELECT COUNT(*) FILTER (WHERE f) / COUNT(*) FILTER (WHERE k = 0) AS v FROM t"
    assert weighted(dpsql.plan(con, sql, budget=BUDGET)) == [1.0, 1.0]


def test_targets_hold_wherever_an_average_lies(con):
    """At an end of its range equal weights are best: a third would need 8 percent more budget."""
    script = {"v": "SELECT AVG(x) AS a FROM t"}
    for how in ({"targets": {"v": 0.01}, "assume": {"v": 1000}}, {"objective": "largest"}):
        budget = {} if "targets" in how else {"budget": BUDGET}
        sums, count, *_ = dpsql.plan(con, script, **how, **budget).workload.families
        assert count.weight / (sums.weight * 5**2) == pytest.approx(1.0)
