"""Tables that are not negative: projections, proportional fitting and shrinking."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from dpsql.linalg.sets import subsets
from dpsql.planner.mechanisms.aim_rounds import (
    FittedMarginals,
    LinearMarginals,
    Residual,
    cut_off,
    shrunk,
)

SIZES = {"a": 3, "b": 4, "c": 2}
ALL = ("a", "b", "c")


def centered(table):
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def known(truth, spaces, precision=1e9):
    """Tables after some residuals of a true table were measured with hardly any noise."""
    fitted = FittedMarginals(LinearMarginals(SIZES))
    for names in spaces:
        drop = tuple(i for i, a in enumerate(ALL) if a not in names)
        fitted.add(names, Residual(centered(truth.sum(axis=drop)), precision))
    return fitted


def table(seed=0):
    return np.random.default_rng(seed).integers(1, 60, tuple(SIZES.values())).astype(float)


@pytest.mark.parametrize("seed", range(4))
def test_cutting_off_finds_the_nearest_table(seed):
    values = np.random.default_rng(seed).normal(3, 5, (4, 3))
    found = cut_off(values, 20.0)
    x = cp.Variable(12, nonneg=True)
    cp.Problem(cp.Minimize(cp.sum_squares(x - values.ravel())), [cp.sum(x) == 20]).solve(
        solver=cp.CLARABEL
    )
    assert np.allclose(found.ravel(), x.value, atol=1e-4)
    assert found.sum() == pytest.approx(20)


def test_what_is_a_table_already_stays():
    values = np.array([3.0, 0.0, 7.0])
    assert np.allclose(cut_off(values, 10.0), values)
    assert cut_off(np.array([-5.0]), 2.0) == pytest.approx(2.0)


def test_unmeasured_interactions_mean_independence():
    truth = table()
    fitted = known(truth, [(), ("a",), ("b",), ("c",)])
    shares = [truth.sum(axis=drop) / truth.sum() for drop in ((1, 2), (0, 2), (0, 1))]
    expected = truth.sum() * np.einsum("i,j,k->ijk", *shares)
    assert np.allclose(fitted.table(ALL), expected, rtol=1e-4)


def test_a_chain_is_conditionally_independent():
    truth = table(1)
    fitted = known(truth, [(), ("a",), ("b",), ("c",), ("a", "b"), ("b", "c")])
    ab, bc, b = truth.sum(axis=2), truth.sum(axis=0), truth.sum(axis=(0, 2))
    assert np.allclose(fitted.table(ALL), np.einsum("ij,jk,j->ijk", ab, bc, 1 / b), rtol=1e-3)
    assert np.allclose(fitted.table(("a", "c")), np.outer(ab.sum(axis=1), bc.sum(axis=0)) / b.sum(),
                       rtol=1e-3)  # fmt: skip


def test_a_cycle_is_fitted_to_all_its_pairs():
    truth = table(2)
    fitted = known(truth, [part for part in subsets(ALL) if len(part) < 3])
    found = fitted.table(ALL)
    for axis in range(3):
        assert np.allclose(found.sum(axis=axis), truth.sum(axis=axis), rtol=5e-3)
    odds = np.log(found)
    assert np.abs(centered(odds)).max() < 1e-3  # no interaction of all three: largest entropy


def test_what_is_known_exactly_is_answered_exactly():
    truth = table(3)
    truth[0, 1, 1] = 0.0
    fitted = known(truth, list(subsets(ALL)))
    assert np.abs(fitted.table(ALL) - truth).sum() < 0.002 * truth.sum()
    assert (fitted.table(ALL) >= 0).all()


def test_noise_without_a_signal_is_shrunk_away():
    generator = np.random.default_rng(4)
    expected = np.full((30, 30), 50.0, dtype=np.float32)
    noisy = expected + generator.normal(0, 40, expected.shape)
    assert np.abs(shrunk(noisy, expected, 1600.0) - expected).mean() < 6
    assert np.abs(shrunk(noisy, expected, 1.0) - np.maximum(noisy, 0)).mean() < 0.1


def test_shrinking_is_better_than_either_table():
    generator = np.random.default_rng(5)
    expected = np.full((40, 40), 200.0, dtype=np.float32)
    truth = expected + generator.normal(0, 30, expected.shape)
    noisy = truth + generator.normal(0, 30, expected.shape)

    def error(of):
        return float(np.square(of - truth).mean())

    assert error(shrunk(noisy, expected, 900.0)) < 0.6 * min(error(expected), error(noisy))


def test_tables_are_kept_until_they_change():
    fitted = known(table(), [(), ("a",), ("b",), ("c",)])
    ab, c = fitted.table(("a", "b")), fitted.table(("c",))
    assert fitted.table(("a", "b")) is ab
    fitted.add(("a", "b"), Residual(centered(np.arange(12.0).reshape(3, 4) ** 2), 1e9))
    assert fitted.table(("c",)) is c
    assert np.abs(fitted.table(("a", "b")) - ab).max() > 1
    with pytest.raises(ValueError, match="read-only"):
        c[0] = 1


def test_an_empty_table_is_answered_without_dividing_by_zero():
    fitted = FittedMarginals(LinearMarginals(SIZES))
    for names in subsets(ALL):
        shape = [SIZES[a] for a in names]
        fitted.add(names, Residual(centered(np.full(shape, -30.0)) - 30.0 * (not names), 1.0))
    assert np.isfinite(fitted.table(ALL)).all()
    assert fitted.table(ALL).sum() == pytest.approx(1.0, rel=1e-3)
