"""Intervals hold the truth as often as they say, in small groups too.

`tests.benchmarks.coverage` has the whole table; here is a little of it, with fixed seeds.
"""

from __future__ import annotations

import pytest

import dpsql
from tests.benchmarks import coverage


@pytest.fixture(scope="module")
def con():
    return coverage.groups()


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize(
    "name", ["DISC(age, .5)", "CONT(age, .1)", "DISC(hours, .25)", "DISC(hours, .9)"]
)
def test_quantiles_of_small_groups_are_held(con, name, epsilon):
    found = coverage.measured(con, coverage.STATEMENTS[name], epsilon, 30)
    # 90 intervals for each size; 0.88 is three standard errors below 0.95.
    assert min(entry.coverage for entry in found) >= 0.88
    assert sum(entry.coverage for entry in found) / 4 >= 0.95


def test_quantiles_of_large_groups_are_known_well(con):
    found = coverage.measured(con, coverage.STATEMENTS["DISC(age, .5)"], 1.0, 10)
    assert found[-1].width <= 3


def test_quantiles_without_noise_are_their_own_interval(con):
    sql = "SELECT g, MEDIAN(age) AS v, QUANTILE_DISC(hours, 0.25) AS w FROM t GROUP BY g"
    frame = dpsql.query(con, sql, budget=dpsql.Budget(rho=1e9)).sort("g")
    _, medians, quarters = zip(*sorted(con.execute(sql).fetchall()), strict=True)
    assert frame["v"].to_list() == pytest.approx(medians, abs=0.01)
    assert frame["w"].to_list() == list(quarters)
    assert (frame["w_lower"] == frame["w"]).all()
    assert (frame["w_upper"] == frame["w"]).all()


@pytest.mark.parametrize("value", ["QUANTILE_CONT(age, 0.9)", "QUANTILE_DISC(age, 0.9)"])
def test_a_quantile_is_inside_its_interval(con, value):
    sql = f"SELECT g, {value} AS v FROM t GROUP BY g"
    for epsilon in (0.01, 1.0, 100.0):
        budget = dpsql.Budget(epsilon=epsilon, delta=1e-9)
        frame = dpsql.query(con, sql, budget=budget)
        assert (frame["v_lower"] <= frame["v"]).all()
        assert (frame["v"] <= frame["v_upper"]).all()


@pytest.mark.long
@pytest.mark.parametrize("name", coverage.STATEMENTS)
def test_the_table_of_coverage(con, name):
    for epsilon in coverage.EPSILONS:
        found = coverage.measured(con, coverage.STATEMENTS[name], epsilon, 100)
        # 300 intervals, some of them of the same noise.
        assert min(entry.coverage for entry in found) >= 0.91
