"""ResidualPlanner: closed form, the largest variance, and other losses."""

from __future__ import annotations

import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsql
from dpsql.errors import MechanismError, ResourceLimitError, WorkloadError
from dpsql.planner.mechanisms import querysmasher, residualplanner
from dpsql.privacy import Budget
from dpsql.workload import AllRange, Identity, Matrix, Prefix, Total, Workload
from tests.helpers.mechanisms import planned_by, reason_of
from tests.planner.random_workloads import some

BUDGET = Budget(mu=1)


def marginals(sizes, ways, weight=lambda names: 1.0) -> Workload:
    workload = Workload(sizes)
    for k in ways:
        for names in combinations(sizes, k):
            workload.add(list(names), [Identity()] * k, weight=weight(names), name="_".join(names))
    return workload


SMALL = marginals({"a": 2, "b": 3, "c": 10, "d": 7}, (1, 2, 3), lambda names: float(len(names)))


def cell_variances(planned) -> np.ndarray:
    """The variance of a cell of each marginal; all cells of one have the same."""
    for variances in planned.variances:
        np.testing.assert_allclose(variances, variances.flat[0], rtol=1e-6)
    return np.array([v.flat[0] for v in planned.variances])


def largest(planned) -> float:
    weights = [f.weight for f in planned.workload.families]
    return float((weights * cell_variances(planned)).max())


def test_one_attribute_has_the_known_optimum():
    """A histogram is best measured as it is, with one unit of noise on every cell."""
    planned = planned_by("residualplanner", Workload({"a": 50}).add(["a"], [Identity()]), BUDGET)
    assert planned.rmse == pytest.approx(1.0, rel=1e-6)
    assert planned.gap <= 1e-6


def test_the_largest_variance_is_that_of_querysmasher_and_certified():
    planned = planned_by("residualplanner", SMALL, BUDGET, objective="largest")
    ours = querysmasher.plan(SMALL, BUDGET, residuals="uniform", objective="largest")
    assert planned.gap <= 1e-6
    assert largest(planned) <= largest(ours) <= largest(planned) * (1 + 2e-3)
    total = planned_by("residualplanner", SMALL, BUDGET)
    assert total.rmse < planned.rmse
    assert largest(total) > 1.2 * largest(planned)
    assert "a_b_c" in planned.binding


def test_only_the_binding_marginals_bind():
    workload = Workload({"a": 4, "b": 5}).add(["a"], [Identity()], weight=1e-3, name="light")
    workload.add(["a", "b"], [Identity()] * 2, name="heavy")
    planned = planned_by("residualplanner", workload, BUDGET, objective="largest")
    assert planned.binding == ("heavy",)
    assert planned.gap <= 1e-6


@some(25)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 0.02]))
def test_the_bound_on_the_largest_variance_holds_for_random_shares(seed, mu_squared):
    """No way to share the budget is below the certified bound."""
    rng = np.random.default_rng(seed)
    sizes = dict(zip("abc", rng.integers(1, 6, 3).tolist(), strict=True))
    workload = marginals(sizes, (0, 1, 2), lambda names: float(rng.integers(1, 4)))
    budget = Budget(rho=mu_squared / 2)
    planned = planned_by("residualplanner", workload, budget, objective="largest")
    bound = largest(planned) / (1 + planned.gap)
    assert planned.gap <= 1e-5
    weighted = workload.weighted(rng.uniform(0.05, 3, len(workload.families)).tolist())
    other = planned_by("residualplanner", weighted, budget)
    weights = [f.weight for f in workload.families]
    assert (weights * cell_variances(other)).max() >= bound * (1 - 1e-9)


LOSSES = {
    "norm": lambda cp, v: cp.norm(v, 3),
    "squares and largest": lambda cp, v: cp.sum_squares(v) + 5 * cp.max(v),
    "exponential": lambda cp, v: cp.log_sum_exp(v / 50),
    "inverse precision": lambda cp, v: cp.sum(cp.power(v, 1.5)),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("mu", [1, 0.2])
def test_no_nearby_shares_have_a_smaller_loss(name, mu):
    """The loss is convex in what is shared, so that a local optimum is the optimum."""
    import cvxpy as cp

    budget = Budget(mu=mu)
    planned = planned_by("residualplanner", SMALL, budget, loss=lambda v: LOSSES[name](cp, v))
    value = float(LOSSES[name](cp, cp.Constant(cell_variances(planned))).value)
    assert planned.gap <= 1e-5
    assert planned.privacy_cost <= budget.mu_squared
    spread = residualplanner._spread(SMALL, residualplanner.ResidualPlanner().divide(SMALL))
    costs = {
        s: b.sensitivity_squared / b.law.variance
        for b in planned.certified.blocks
        for s in b.spaces
    }
    shares = np.array([costs[space] for space in spread.spaces])
    np.testing.assert_allclose(spread.matrix @ (1 / shares), cell_variances(planned), rtol=1e-6)
    rng = np.random.default_rng(5)
    for size in (0.3, 0.03):
        for _ in range(20):
            moved = shares * np.exp(size * rng.normal(size=len(shares)))
            moved *= shares.sum() / moved.sum()
            other = float(LOSSES[name](cp, cp.Constant(spread.matrix @ (1 / moved))).value)
            assert other >= value * (1 - 1e-5)


def test_a_sum_as_a_loss_is_the_closed_form():
    import cvxpy as cp

    weights = np.array([f.weight * f.count for f in SMALL.families])
    planned = planned_by(
        "residualplanner", SMALL, BUDGET, loss=lambda v: cp.sum(cp.multiply(weights, v))
    )
    assert planned.rmse == pytest.approx(
        planned_by("residualplanner", SMALL, BUDGET).rmse, rel=1e-6
    )


def test_losses_that_are_none_are_refused():
    import cvxpy as cp

    refused = {
        "not convex": lambda v: cp.sum(cp.sqrt(v)),
        "not a number": lambda v: v,
        "no least value": lambda v: -cp.sum(v),
    }
    for message, loss in refused.items():
        with pytest.raises(WorkloadError, match=message):
            planned_by("residualplanner", SMALL, BUDGET, loss=loss)
    with pytest.raises(WorkloadError, match="a loss or an objective"):
        planned_by("residualplanner", SMALL, BUDGET, objective="largest", loss=cp.max)
    with pytest.raises(WorkloadError, match="no objective"):
        planned_by("residualplanner", SMALL, BUDGET, objective="median")


def test_a_program_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(residualplanner, "MAX_PROGRAM", 10)
    with pytest.raises(ResourceLimitError, match="15 residual spaces"):
        planned_by("residualplanner", SMALL, BUDGET, objective="largest")


def test_marginals_are_recognized_however_they_are_written():
    sizes = {"a": 3, "b": 4}
    plain = Workload(sizes).add(["a", "b"], [Identity(), Identity()])
    expected = planned_by("residualplanner", plain, BUDGET).rmse
    for groups, factors in (
        ([("a", "b")], [Identity()]),
        ([("b", "a")], [Matrix(np.eye(12)[::-1])]),
        (["b", "a"], [Matrix(np.eye(4)), Identity()]),
    ):
        written = Workload(sizes).add(groups, factors)
        planned = planned_by("residualplanner", written, BUDGET)
        assert planned.rmse == pytest.approx(expected, rel=1e-6)
        assert [v.shape for v in planned.variances] == [f.shape for f in written.families]
    with_total = Workload(sizes).add(["a", "b"], [Identity(), Total()])
    assert planned_by("residualplanner", with_total, BUDGET).rmse == pytest.approx(1.0, rel=1e-6)


def test_other_queries_and_pure_budgets_are_refused():
    sizes = {"a": 3, "b": 4}
    for factor in (Prefix(), AllRange(), Matrix([[1, 1, 0]])):
        workload = Workload(sizes).add(["b"], [Identity()]).add(["a"], [factor])
        reason = reason_of("residualplanner", workload, BUDGET)
        assert (
            reason
            == "its strategies are for marginals, and the queries over a are not marginal queries"
        )
        with pytest.raises(MechanismError, match="queries over a are not marginal queries"):
            planned_by("residualplanner", workload, BUDGET)
    assert reason_of("residualplanner", Workload(sizes), BUDGET) == "the workload is empty"
    pure = Budget(epsilon=1, delta=0)
    assert "pure" in reason_of("residualplanner", SMALL, pure)


def test_without_cvxpy_there_is_a_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(MechanismError, match=r"pip install 'dpsql\[convex\]'"):
        dpsql.plan(SMALL, budget=BUDGET, mechanism="residualplanner", objective="largest")
    assert dpsql.plan(SMALL, budget=BUDGET, mechanism="residualplanner").gap <= 1e-5
