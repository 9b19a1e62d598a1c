"""GReM-MLE against dense weighted least squares; lazy updates against rebuilding."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.linalg.sets import subsets
from dpsql.planner.mechanisms.aim_rounds import (
    LinearMarginals,
    residual_block,
    residual_of,
    unit,
)
from tests.oracle import space_matrix

SIZES = {"a": 3, "b": 2, "c": 4}
ALL = ("a", "b", "c")
MEASURED = [(), ("a",), ("a",), ("b",), ("a", "b"), (), ("c",), ("b", "c"), ("a", "b"), ("a", "c")]
"""In this order, some twice."""


def measurements(seed=0):
    """Blocks, noisy integers, and the counts they are of."""
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 40, tuple(SIZES.values()))
    for names in MEASURED:
        block = residual_block(names, SIZES, Fraction(int(generator.integers(1, 9)), 10), 1)
        exact = np.asarray(space_matrix(block, names, SIZES), dtype=np.int64) @ counts.ravel()
        noise = np.rint(generator.normal(0, block.law.squared**0.5, exact.shape)).astype(np.int64)
        yield block, (exact + noise).reshape(block.shape or (1,)), counts


def filled(seed=0, keep=()):
    marginals = LinearMarginals(SIZES)
    for block, noisy, _ in measurements(seed):
        for names in keep:
            marginals.marginal(names)
        marginals.add(block.spaces[0], residual_of(block, noisy))
    return marginals


def test_marginals_minimize_the_weighted_squared_error():
    """The data array of least norm among those that fit the measurements best, by lstsq."""
    rows, targets = [], []
    for block, noisy, _ in measurements():
        dense = np.asarray(space_matrix(block, block.spaces[0], SIZES), dtype=float)
        rows.append(dense / block.law.variance**0.5)
        targets.append(noisy.ravel() / block.law.variance**0.5)
    best = np.linalg.lstsq(np.vstack(rows), np.concatenate(targets))[0].reshape(
        tuple(SIZES.values())
    )
    marginals = filled()
    for names in subsets(ALL):
        drop = tuple(i for i, a in enumerate(ALL) if a not in names)
        assert np.allclose(marginals.marginal(names), best.sum(axis=drop), atol=1e-6)


def test_lazy_updates_are_what_rebuilding_gives():
    every = list(subsets(ALL))
    marginals = filled(keep=every)
    for names in every:
        assert np.allclose(marginals.marginal(names), marginals.rebuilt(names))
        assert np.allclose(marginals.marginal(names), filled().rebuilt(names))


def test_marginals_that_do_not_contain_a_space_stay_as_they_are():
    marginals = filled()
    kept = {names: marginals.marginal(names) for names in subsets(ALL)}
    before = {names: table.copy() for names, table in kept.items()}
    block, noisy, _ = next(m for m in measurements(1) if m[0].spaces[0] == ("b", "c"))
    marginals.add(("b", "c"), residual_of(block, noisy))
    changed = {names for names in kept if not np.array_equal(kept[names], before[names])}
    assert changed == {("b", "c"), ALL}


def test_marginals_agree_with_each_other():
    marginals = filled()
    whole = marginals.marginal(ALL)
    assert np.allclose(whole.sum(axis=2), marginals.marginal(("a", "b")))
    assert np.allclose(whole.sum(axis=(0, 2)), marginals.marginal(("b",)))
    assert marginals.marginal(()) == pytest.approx(whole.sum())


@pytest.mark.statistical
def test_estimates_are_unbiased_and_vary_as_stated():
    runs, names = 600, ("a", "b")
    found = np.array([filled(seed).marginal(names) for seed in range(runs)])
    truth = np.array([next(measurements(seed))[2].sum(axis=2) for seed in range(runs)])
    errors = found - truth
    # The prices are drawn anew each time, so the variance is a mean as well.
    stated = np.mean([filled(seed).variance(names) for seed in range(0, runs, 10)])
    assert (np.abs(errors.mean(axis=0)) < 5 * (stated / runs) ** 0.5).all()
    assert np.square(errors).mean() == pytest.approx(stated, rel=0.12)


def test_repeated_measurements_count_by_their_precision():
    marginals = filled()
    blocks = [b for b, _, _ in measurements() if b.spaces[0] == ("a",)]
    gained = [b.sensitivity_squared / b.law.variance for b in blocks]
    assert marginals.precision(("a",)) == pytest.approx(sum(gained))
    assert not marginals.measured(ALL)
    assert marginals.precision(ALL) == 0.0
    assert unit(blocks[0]) % 3 == 0
