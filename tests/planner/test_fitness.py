"""Targets and the largest variance, against a conic program and against their own definition."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

import dpsql
from dpsql.errors import BudgetError, WorkloadError
from dpsql.workload import Identity, Matrix, Prefix, Workload

SIZES = {"a": 3, "b": 4, "c": 5}


def marginals() -> Workload:
    workload = Workload(SIZES)
    for size in (1, 2):
        for names in combinations(SIZES, size):
            workload.add(list(names), [Identity()] * size, weight=float(len(names)))
    return workload


def mixed() -> Workload:
    workload = Workload({"sex": 2, "age": 30, "race": 5})
    workload.add(["sex"], [Identity()], name="by_sex")
    workload.add(["age"], [Prefix()], name="ages")
    workload.add(["sex", "race"], [Identity(), Identity()], name="by_both")
    return workload


def least_largest_by_conic_program(workload: Workload) -> float:
    """ResidualPlanner (arXiv 2305.08175, 5): the shares c_A are the only unknowns.

    An answer of marginal B has the variance Σ_{A⊆B} ∏_A ((n−1)/n)² ∏_{B∖A} 1/n² / c_A.
    """
    import cvxpy as cp

    spaces = sorted({s for f in workload.families for s in subsets(f.attributes)}, key=sorted)
    shares = cp.Variable(len(spaces), pos=True)
    variances = []
    for family in workload.families:
        variance = 0.0
        for space in subsets(family.attributes):
            kept = math.prod((SIZES[a] - 1) / SIZES[a] for a in space)
            dropped = math.prod(1 / SIZES[a] for a in family.attributes - space)
            variance += (kept * dropped) ** 2 * cp.inv_pos(shares[spaces.index(space)])
        variances.append(family.weight * variance)
    problem = cp.Problem(cp.Minimize(cp.max(cp.hstack(variances))), [cp.sum(shares) <= 1])
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


def subsets(attributes):
    names = sorted(attributes)
    return [frozenset(c) for size in range(len(names) + 1) for c in combinations(names, size)]


def test_the_largest_variance_of_marginals_is_the_conic_optimum():
    workload = marginals()
    planned = dpsql.plan(workload, budget=dpsql.Budget(mu=1), objective="largest")
    largest = max(
        family.weight * float(variances.max())
        for family, variances in zip(workload.families, planned.variances, strict=True)
    )
    optimum = least_largest_by_conic_program(workload)
    assert optimum * (1 - 1e-4) <= largest <= optimum * (1 + 5e-3)
    assert planned.gap <= 5e-3
    assert "least largest variance" in planned.explain()


def test_the_largest_variance_is_below_that_of_the_least_total():
    budget = dpsql.Budget(mu=1)
    total, largest = (
        dpsql.plan(mixed(), budget=budget, objective=name) for name in ("total", "largest")
    )
    worst = "worst_standard_error"
    assert largest.expected_error()[worst].max() < 0.95 * total.expected_error()[worst].max()
    assert largest.rmse >= total.rmse
    assert largest.privacy_cost <= 1


@pytest.mark.parametrize(
    "targets",
    [{"by_sex": 5}, {"by_sex": 5.0, "ages": 12}, {"by_sex": 3, "ages": 50, "by_both": 4}],
)
def test_targets_are_met_at_nearly_the_least_budget(targets):
    planned = dpsql.plan(mixed(), targets=targets)
    table = {row["statement"]: row for row in planned.expected_error().to_dicts()}
    reached = {name: table[name]["worst_standard_error"] / t for name, t in targets.items()}
    assert max(reached.values()) <= 1
    assert max(reached, key=reached.__getitem__) in planned.binding
    assert set(planned.binding) <= set(targets)
    assert planned.privacy_cost <= planned.budget.mu_squared
    # Scaled to the same budget, no plan for other weights needs less than the bound says.
    least = float(planned.budget.mu_squared) / (1 + planned.gap)
    plain = dpsql.plan(mixed(), budget=dpsql.Budget(mu=1))
    rows = {row["statement"]: row for row in plain.expected_error().to_dicts()}
    needed = max((rows[name]["worst_standard_error"] / t) ** 2 for name, t in targets.items())
    assert least <= needed * (1 + 1e-6)
    assert float(planned.budget.mu_squared) <= needed * (1 + 1e-3)


def test_one_target_binds_alone():
    """A statement that is far below its target does not decide the budget."""
    assert dpsql.plan(mixed(), targets={"by_sex": 3, "ages": 500}).binding == ("by_sex",)


def test_a_single_table_needs_the_budget_of_its_own_optimum():
    workload = Workload({"a": 6}).add(["a"], [Identity()], name="t")
    planned = dpsql.plan(workload, targets={"t": 10})
    # A histogram alone: variance 1/μ² for each cell.
    assert float(planned.budget.mu_squared) == pytest.approx(0.01, rel=1e-3)


BAD = [0, -1, "5", math.nan, math.inf, True, None]


@pytest.mark.parametrize("targets", [{}, {"no": 5}, *({"by_sex": bad} for bad in BAD)])
def test_bad_targets(targets):
    with pytest.raises(WorkloadError) as error:
        dpsql.plan(mixed(), targets=targets)
    assert error.value.hint


def test_targets_for_what_is_known_without_data():
    workload = Workload({"a": 3}).add(["a"], Matrix(np.zeros((1, 3))), name="zero")
    with pytest.raises(WorkloadError, match="at any budget"):
        dpsql.plan(workload, targets={"zero": 1})


def test_a_budget_or_targets():
    with pytest.raises(WorkloadError, match="a budget or targets"):
        dpsql.plan(mixed(), budget=dpsql.Budget(mu=1), targets={"by_sex": 5})
    with pytest.raises(BudgetError):
        dpsql.plan(mixed())
    for option in ({"objective": "median"}, {"residuals": "other"}, {"tolerance": 0}):
        with pytest.raises(WorkloadError) as error:
            dpsql.plan(mixed(), budget=dpsql.Budget(mu=1), **option)
        assert error.value.hint


def test_a_release_meets_its_targets_and_charges_the_least_budget():
    import duckdb

    con = duckdb.connect()
    con.execute("CREATE TABLE t (a INT NOT NULL CHECK (a BETWEEN 0 AND 9), b BOOLEAN NOT NULL)")
    script = {
        "a": "SELECT a, COUNT(*) AS n FROM t GROUP BY a",
        "b": "SELECT b, COUNT(*) AS n FROM t GROUP BY b",
    }
    session = dpsql.Session(con, budget=dpsql.Budget(rho=1))
    planned = session.plan(script, targets={"a": 5, "b": 2})
    release = session.release(script, targets={"a": 5, "b": 2})
    assert release["a"]["n_variance"].max() <= 25
    assert release["b"]["n_variance"].max() <= 4
    assert session.ledger.spent == planned.budget.mu_squared == release.charged.mu_squared
    with pytest.raises(BudgetError, match="left"):
        session.release(script, targets={"a": 0.1})
    con.close()
