"""ResidualPlanner+: the bases of attributes, and what is refused."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dpsql.errors import MechanismError, WorkloadError
from dpsql.planner.mechanisms.base import Options
from dpsql.planner.mechanisms.querysmasher import plan as querysmasher
from dpsql.planner.mechanisms.residualplanner import (
    ResidualPlannerPlus,
    queries_of,
    strategy_for,
)
from dpsql.privacy import Budget
from dpsql.workload import AllRange, Identity, Matrix, Prefix, Total, Workload
from tests.helpers.mechanisms import planned_by, reason_of

BUDGET = Budget(mu=1)
RANGES = Workload({"age": 20, "sex": 2}).add(["age", "sex"], [AllRange(), Identity()])


def rmse(workload, bases=None) -> float:
    return planned_by("residualplanner+", workload, BUDGET, bases=bases).rmse


def prefixes(n: int) -> np.ndarray:
    return np.tril(np.ones((n, n)))


def test_a_named_basis_is_the_matrix_of_its_queries():
    for name, matrix in (("prefix", prefixes(20)), ("identity", np.eye(20))):
        assert rmse(RANGES, {"age": name}) == pytest.approx(rmse(RANGES, {"age": matrix}), rel=1e-5)
    errors = {name: rmse(RANGES, {"age": name}) for name in ("identity", "prefix", "range")}
    assert errors["range"] < errors["prefix"] < errors["identity"]


def test_by_default_the_workload_is_the_basis():
    assert rmse(RANGES) == pytest.approx(
        rmse(RANGES, {"age": "range", "sex": "identity"}), rel=1e-6
    )
    # Other attributes and totals change nothing of what an attribute's queries are.
    wider = Workload({"age": 20, "sex": 2, "job": 5})
    wider.add(["age", "job"], [AllRange(), Prefix()]).add(["age", "sex"], [Total(), Identity()])
    wider.add(["age"], [AllRange()], weight=3.0)
    bases = {"age": "range", "job": "prefix", "sex": "identity"}
    assert rmse(wider) == pytest.approx(rmse(wider, bases), rel=1e-6)


def test_joint_queries_are_asked_slice_by_slice():
    """For a fixed y, the queries x + y <= c over x are prefixes, which few slices cut short."""
    workload = Workload({"x": 6, "y": 4}).add([("x", "y")], [Matrix.affine((6, 4), (1, 1))])
    rows = queries_of("x", workload).rows
    found = {tuple(row) for row in prefixes(6)}
    tensor = Matrix.affine((6, 4), (1, 1)).bind(24).matrix.reshape(-1, 6, 4)
    assert {tuple(q[:, y]) for q in tensor for y in range(4)} == found | {(0.0,) * 6}
    expected = sum(np.outer(q[:, y], q[:, y]) for q in tensor for y in range(4)) / 4
    np.testing.assert_allclose(rows.T @ rows, expected, atol=1e-9)


def test_the_strategy_of_an_attribute_is_the_authors():
    """The least error for centered queries and the total, by a conic program; then projected."""
    import warnings

    import cvxpy as cp

    n = 6
    centering = np.eye(n) - 1 / n
    root = np.vstack([prefixes(n) @ centering, np.ones((1, n))]).T
    x = cp.Variable((n, n), PSD=True)
    bound = cp.Variable((root.shape[1],) * 2, symmetric=True)
    constraints = [cp.bmat([[bound, root.T], [root, x]]) >> 0, cp.diag(x) <= 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cp.Problem(cp.Minimize(cp.trace(bound)), constraints).solve(solver=cp.CLARABEL)
    projected = centering @ x.value @ centering
    workload = Workload({"a": n}).add(["a"], [Prefix()])
    strategy = strategy_for(queries_of("a", workload)).strategy
    rows = strategy.coefficients @ strategy.basis
    np.testing.assert_allclose(
        rows.T @ rows, projected / projected.diagonal().max(), rtol=1e-3, atol=1e-3
    )


def test_attributes_of_one_size_keep_their_own_bases():
    """A strategy kept by size alone would be wrong for one of them, and the cost with it."""
    workload = Workload({"a": 6, "b": 6}).add(["a"], [Prefix()]).add(["b"], [Identity()])
    planned = planned_by("residualplanner+", workload, BUDGET)
    assert planned.privacy_cost <= 1
    both = querysmasher(workload, BUDGET, residuals="uniform").rmse
    assert both <= planned.rmse <= 1.1 * both
    assert planned.rmse < rmse(workload, {"a": "identity", "b": "prefix"})


def test_attributes_that_are_asked_the_same_share_a_strategy():
    """Averages over the workload are summed up in other orders, and differ in the last digit."""
    workload = Workload(dict.fromkeys("abcdefg", 7))
    for a, b in combinations(workload.domain, 2):
        workload.add([(a, b)], [Matrix.affine((7, 7), (1, 1))], weight=0.1)
        workload.add([a, b], [Prefix(), Prefix()], weight=0.7)
    assert len({queries_of(name, workload).kind for name in workload.domain}) == 1
    assert queries_of("a", workload.weighted([1.0] * 42)).kind != queries_of("a", workload).kind


def test_spaces_of_other_bases_are_told_apart():
    workload = Workload(dict.fromkeys("abc", 7))
    for a, b in combinations(workload.domain, 2):
        workload.add([a, b], [Prefix(), Prefix()])
    divided = ResidualPlannerPlus().divide(workload, Options(bases={"c": "range"}))
    assert sorted(len(c.spaces) for c in divided.conquered) == [1, 1, 1, 2, 2]


def test_a_basis_that_lacks_what_is_asked_answers_it_all_the_same():
    poor = rmse(RANGES, {"age": [[1.0] * 10 + [0.0] * 10]})
    assert np.isfinite(poor)
    assert poor > 10 * rmse(RANGES)


def test_bases_that_are_none_are_refused():
    with pytest.raises(WorkloadError, match="no basis 'tree'"):
        rmse(RANGES, {"age": "tree"})
    with pytest.raises(WorkloadError, match="no attribute 'agee'"):
        rmse(RANGES, {"agee": "prefix"})
    with pytest.raises(WorkloadError, match="3 columns"):
        rmse(RANGES, {"age": np.eye(3)})


def test_what_cant_be_answered_is_refused_with_the_reason():
    assert "pure" in reason_of("residualplanner+", RANGES, Budget(epsilon=1, delta=0))
    large = Workload({"a": 100_000}).add(["a"], [Prefix()])
    assert "100,000 cells of a" in reason_of("residualplanner+", large, BUDGET)
    with pytest.raises(MechanismError, match="100,000 cells of a"):
        planned_by("residualplanner+", large, BUDGET)
    points = Workload({"a": 100_000}).add(["a"], [Identity()])
    assert planned_by("residualplanner+", points, BUDGET).rmse == pytest.approx(1.0, rel=1e-4)
