"""Plans of the restricted mechanisms against dense linear algebra, and against simulated noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.planner.registry import mechanism_of
from dpsql.privacy import Budget
from dpsql.workload import AllRange, CircularRange, Identity, Matrix, Prefix, Total, Workload
from tests.helpers.mechanisms import planned_by
from tests.oracle import (
    answers_of,
    assert_best_and_as_stated,
    every_space,
    exact_cost,
    family_matrix,
    planned_estimator,
    space_matrix,
)
from tests.planner.random_workloads import some, workloads

ROUNDS = 2000
MARGINALS = (
    Workload({"a": 2, "b": 3, "c": 4})
    .add(["a", "b"], [Identity(), Identity()], weight=2.0)
    .add(["b", "c"], [Identity(), Total()])
    .add([("a", "c")], [Identity()], weight=0.25)
)
MIXED = (
    Workload({"a": 5, "b": 4})
    .add(["a"], [AllRange()])
    .add(["a", "b"], [Prefix(), Identity()], weight=0.5)
    .add([("a", "b")], Matrix.affine((5, 4), (1, 1)))
    .add(["b"], [CircularRange()])
)
APPLIES = [(name, MARGINALS) for name in ("residualplanner", "residualplanner+", "fourier")] + [
    ("residualplanner+", MIXED),
    ("fourier", MIXED),
]
CASES = pytest.mark.parametrize(
    ("name", "workload"), APPLIES, ids=[f"{n}-{w.count}" for n, w in APPLIES]
)


def check(planned):
    """Compare what a plan says with the best linear unbiased estimate from its integers."""
    blocks = planned.certified.blocks
    if not blocks:
        assert all(not v.any() for v in planned.variances)
        return
    assert_best_and_as_stated(planned)
    total = sum(
        f.weight * v.sum()
        for f, v in zip(planned.workload.families, planned.variances, strict=True)
    )
    assert planned.rmse == pytest.approx(np.sqrt(total / planned.workload.count), rel=1e-6)
    assert exact_cost(blocks, planned.workload.domain) <= planned.privacy_cost


@CASES
def test_variances_are_those_of_the_integers(name, workload):
    check(planned_by(name, workload, Budget(rho=Fraction(1, 3))))


@some(25)
@given(workloads(), st.sampled_from(["residualplanner+", "fourier"]))
def test_random_workloads_are_answered_as_stated(workload, name):
    planned = planned_by(name, workload, Budget(mu=1))
    check(planned)
    assert planned.mechanism == name
    assert planned.gap >= -1e-9
    if planned.planned:
        assert 1 - 1e-4 <= planned.privacy_cost <= 1


@CASES
def test_the_budget_is_spent_and_the_error_is_the_one_expected(name, workload):
    """Integers cost less than 0.1 % of the error that real strategies would have."""
    planned = planned_by(name, workload, Budget(mu=2), contributions=3)
    assert 4 * (1 - 1e-4) <= planned.privacy_cost <= 4
    if name != "residualplanner":
        divided = mechanism_of(name).divide(workload)
        expected = divided.roots * 3 / 2 / np.sqrt(workload.count)
        assert planned.rmse == pytest.approx(expected, rel=1e-3)


@CASES
def test_simulated_answers_are_unbiased_with_the_stated_variances(name, workload):
    planned = planned_by(name, workload, Budget(mu=1))
    rng = np.random.default_rng(7)
    table = rng.integers(0, 50, tuple(workload.domain.values())).ravel()
    exact, deviations = {}, []
    for block, space in every_space(planned.certified.blocks):
        measured = space_matrix(block, space, workload.domain).astype(float) @ table
        exact[frozenset(space)] = measured.reshape([f.measurements for f in block.factors])
        deviations += [block.law.variance**0.5] * len(measured)
    means = np.concatenate([values.ravel() for values in exact.values()])
    noise = np.array(deviations)[:, None] * rng.normal(size=(len(means), ROUNDS))
    # ResidualReconstruction is linear, so that all rounds are found by one matrix.
    answers = planned_estimator(planned) @ (means[:, None] + noise)
    truth = np.concatenate([family_matrix(f, workload.domain) @ table for f in workload.families])
    variances = np.concatenate([v.ravel() for v in planned.variances])
    scores = (answers.mean(axis=1) - truth) / np.sqrt(variances / ROUNDS)
    assert np.abs(scores).max() < 4.5
    ratios = answers.var(axis=1) / variances
    assert 0.8 < ratios.min() <= ratios.max() < 1.2
    assert ratios.mean() == pytest.approx(1.0, abs=0.05)
    without_noise = answers_of(planned, exact, workload.families[0]).ravel()
    np.testing.assert_allclose(without_noise, truth[: len(without_noise)], rtol=1e-9, atol=1e-6)
