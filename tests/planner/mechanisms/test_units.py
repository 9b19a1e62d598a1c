"""Units by groups: the best strategy of all, and what it gains."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.measurement import measure as measuring
from dpsql.planner.comparison import svd_bound
from dpsql.planner.mechanisms.base import Options
from dpsql.planner.mechanisms.distinct_units import UnitNoise
from dpsql.planner.registry import plan, planned
from dpsql.privacy import Budget
from dpsql.workload import Identity, Measure, Workload
from tests.helpers.seeded import SeededBits

BUDGET = Budget(rho=Fraction(1, 2))


def workload(groups, most, *, rows=0, weight=1.0):
    """Ask for units by groups, and for rows by so many cells besides."""
    found = Workload({"a": max(rows, 1), "g": groups, "u": 1})
    if rows:
        found.add(["a"], Identity(), name="rows")
    counts = Measure(1, rows=most, of_units=True)
    return found.add(["g", "u"], [Identity(), counts], weight=weight, name="units")


def cost(matrix, most):
    """Return the most that a unit in some groups changes."""
    groups = len(matrix)
    return max(
        float(np.square(matrix[:, list(chosen)].sum(axis=1)).sum())
        for s in range(1, most + 1)
        for chosen in itertools.combinations(range(groups), s)
    )


@pytest.mark.parametrize(
    ("groups", "most", "gain"),
    [
        (2, 2, 1.4999),
        (3, 3, 1.66),
        (12, 12, 2.4),
        (100, 100, 3.3),
        (1000, 1000, 3.67),
        (12, 6, 1.28),
    ],
)
def test_groups_less_some_of_their_total_have_less_variance(groups, most, gain):
    """Than independent noise of the same cost: by what is known of these."""
    found = plan(workload(groups, most), BUDGET)
    (variances,) = found.variances
    assert most / float(variances.mean()) > gain
    assert variances.max() / variances.min() == pytest.approx(1)
    assert found.privacy_cost <= BUDGET.mu_squared
    assert found.privacy_cost > BUDGET.mu_squared * (1 - 1e-6)
    assert found.gap < 1e-4


@pytest.mark.parametrize(("groups", "most"), [(1, 1), (7, 1), (40, 1)])
def test_a_unit_in_one_group_is_a_row_in_a_cell(groups, most):
    (variances,) = plan(workload(groups, most), BUDGET).variances
    assert variances == pytest.approx(1.0)


def test_what_is_claimed_is_what_the_integers_have():
    """Their matrix is inverted, and all that a unit can add is tried."""
    for groups, most in [(2, 1), (2, 2), (5, 2), (5, 5), (9, 4), (9, 9)]:
        found = plan(workload(groups, most), BUDGET)
        (block,) = found.certified.blocks
        matrix = block.factors[0].matrix.astype(float)
        assert block.sensitivity_squared == pytest.approx(cost(matrix, most), rel=1e-12)
        inverse = np.linalg.inv(matrix)
        claimed = np.square(inverse).sum(axis=1) * block.law.variance
        (variances,) = found.variances
        assert variances.ravel() == pytest.approx(claimed)


@pytest.mark.parametrize(("groups", "most"), [(2, 2), (3, 2), (4, 4), (5, 3), (6, 6)])
def test_no_other_strategy_has_less_error(groups, most):
    """Whatever it is: groups needn't be alike in it. Found by CVXPY."""
    cvxpy = pytest.importorskip("cvxpy")
    gram = cvxpy.Variable((groups, groups), PSD=True)
    added = [np.array(h) for h in itertools.product((0.0, 1.0), repeat=groups)]
    limits = [h @ gram @ h <= 1 for h in added if 0 < h.sum() <= most]
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.tr_inv(gram)), limits)
    least = problem.solve(solver="SCS", eps=1e-7)
    noise = UnitNoise(groups, most)
    assert noise.error(noise.best()) == pytest.approx(least, rel=1e-3)


@pytest.mark.parametrize("groups", [2, 5, 12, 60])
def test_the_best_is_found_among_many_local_ones(groups):
    for most in {1, 2, groups // 2 or 1, groups}:
        noise = UnitNoise(groups, most)
        tried = min(noise.error(float(t)) for t in np.linspace(0.001, 2, 40_000))
        assert noise.error(noise.best()) <= tried * (1 + 1e-6)


@pytest.mark.parametrize("contributions", [1, 30])
def test_units_share_the_budget_with_rows_by_the_roots_of_their_errors(contributions):
    """√E is k√E for rows, and that of the groups for units, whatever k is."""
    found = planned(
        workload(12, 12, rows=5), BUDGET, "querysmasher", Options(contributions=contributions)
    )
    noise = UnitNoise(12, 12)
    roots = contributions * math.sqrt(5), math.sqrt(noise.error(noise.best()))
    total = found.rmse**2 * found.workload.count
    assert total == pytest.approx(sum(roots) ** 2, rel=1e-4)
    assert found.privacy_cost <= BUDGET.mu_squared
    assert found.gap < 1e-3


@pytest.mark.parametrize("mechanism", ["residualplanner", "fourier", "hdmm", "gaussian", "laplace"])
def test_other_mechanisms_answer_units_too(mechanism):
    budget = Budget(epsilon=1, delta=0) if mechanism == "laplace" else BUDGET
    found = plan(workload(12, 12, rows=3), budget, mechanism)
    spent = found.certified.budget.amount if budget.pure else found.privacy_cost
    assert spent <= (budget.amount if budget.pure else budget.mu_squared)
    units = found.parts["u"]
    independent = 12 / float(units.budget.mu_squared)
    if mechanism == "gaussian":
        assert float(units.variances[0].mean()) == pytest.approx(independent, rel=1e-4)
    elif mechanism != "laplace":
        assert float(units.variances[0].mean()) < independent / 2.4


def test_lower_bounds_hold_for_units():
    """Each of a unit's k rows has no part in them."""
    asked = workload(12, 12, rows=5)
    bound = svd_bound(asked)
    for mechanism in ("querysmasher", "hdmm", "gaussian"):
        for contributions in (1, 9):
            found = planned(asked, BUDGET, mechanism, Options(contributions=contributions))
            total = found.rmse**2 * found.workload.count
            assert bound.at(BUDGET, contributions) <= total


def test_noise_of_units_is_what_is_claimed(monkeypatch):
    """Of 600 answers, releases of counts that are known: their mean square is off by a fifth with
    a chance of 4e-4, as a χ² of so many is; it is more, as answers have some noise in common."""
    bits = SeededBits(11)
    monkeypatch.setattr(measuring, "fresh_bits", lambda: bits)
    con = duckdb.connect()
    con.execute("CREATE TABLE t (id INTEGER, m INTEGER NOT NULL CHECK (m BETWEEN 1 AND 100))")
    con.execute("INSERT INTO t SELECT i % 50, 1 + i // 50 FROM range(5000) AS r(i)").fetchall()
    unit = dpsql.Unit("id", max_rows=100)
    session = dpsql.Session(con, unit=unit, budget=Budget(rho=10**6))
    sql = "SELECT m, COUNT(DISTINCT id) AS n FROM t GROUP BY m"
    errors, claimed = [], []
    for _ in range(6):
        frame = session.query(sql, budget=BUDGET, reuse=False)
        errors += (frame["n"] - 50).to_list()
        claimed += frame["n_variance"].to_list()
    assert np.mean(claimed) < 100 / 3.3
    assert np.mean(np.square(errors)) == pytest.approx(np.mean(claimed), rel=0.2)
