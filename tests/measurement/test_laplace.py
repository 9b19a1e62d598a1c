"""Discrete Laplace noise: its law, in both directions, and the edges of its parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpsql.errors import InternalError
from dpsql.measurement import laplace
from dpsql.measurement.distributions import Laplace
from dpsql.measurement.laplace import below, bernoulli_exp, discrete_laplace
from tests.helpers.seeded import GivenBits, SeededBits

ALPHA = 1e-6
DRAWS = 200_000


def cumulative(scale: float, z: np.ndarray) -> np.ndarray:
    """P(Z ≤ z) for whole z."""
    q = math.exp(-1 / scale)
    tail = np.exp(-(np.abs(z + (z < 0) * 0.0) + (z >= 0)) / scale) / (1 + q)
    return np.where(z < 0, tail, 1 - tail)


def chi_square(sample: np.ndarray, scale: float) -> float:
    """p-value, in about sixty bins of whole numbers."""
    step = max(1, round(scale / 4))
    ends = np.arange(-8 * max(scale, 1) // step, 8 * max(scale, 1) // step + 1) * step
    edges = np.concatenate([[0.0], cumulative(scale, ends), [1.0]])
    expected = np.diff(edges) * sample.size
    observed = np.bincount(np.searchsorted(ends, sample), minlength=expected.size)
    rare = expected < 10
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    statistic = ((observed - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    return float(stats.chi2.sf(statistic, expected.size - 1))


def check_law(scale: int, draws: int, seed: int) -> None:
    """Accept the scale, and notice noise of two thirds and of three halves of it."""
    sample = discrete_laplace(scale, draws, SeededBits(seed))
    assert chi_square(sample, scale) > ALPHA
    assert chi_square(sample, scale * 1.5) < ALPHA
    assert chi_square(sample, scale / 1.5) < ALPHA


@pytest.mark.statistical
@pytest.mark.parametrize("scale", [1, 2, 10, 10**4, 10**9, 2**50 - 1])
def test_the_law(scale: int) -> None:
    check_law(scale, DRAWS, seed=scale)


@pytest.mark.long
@pytest.mark.statistical
@pytest.mark.parametrize("scale", [1, 2, 3, 1000, 10**12])
def test_the_law_with_many_draws(scale: int) -> None:
    check_law(scale, 4_000_000, seed=scale + 1)


@pytest.mark.statistical
@pytest.mark.parametrize("scale", [1, 2, 7, 10**6])
def test_moments_and_symmetry(scale: int) -> None:
    sample = discrete_laplace(scale, DRAWS, SeededBits(scale + 5)).astype(float)
    variance = Laplace(scale).variance
    root = DRAWS**0.5
    assert abs(sample.mean()) < 5 * variance**0.5 / root
    assert abs((sample**2).mean() / variance - 1) < 5 * 5**0.5 / root
    assert abs((sample > 0).mean() - (sample < 0).mean()) < 5 / root
    zero = (math.exp(1 / scale) - 1) / (math.exp(1 / scale) + 1)
    assert abs((sample == 0).mean() - zero) < 5 * max(zero, 1e-4) ** 0.5 / root


def test_the_stated_variance_is_the_sum_over_all_integers() -> None:
    for scale in (1, 2, 5, 40):
        z = np.arange(-60 * scale, 60 * scale + 1)
        weights = np.exp(-np.abs(z) / scale)
        exact = float((weights * z.astype(float) ** 2).sum() / weights.sum())
        assert Laplace(scale).variance == pytest.approx(exact, rel=1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize(("u", "d"), [(0, 1), (1, 1), (1, 3), (2**40, 2**41), (7, 7)])
def test_bernoulli_of_an_exponential(u: int, d: int) -> None:
    found = bernoulli_exp(np.full(DRAWS, u), d, SeededBits(u + d)).mean()
    p = math.exp(-u / d)
    assert abs(found - p) <= 5 * (p * (1 - p) / DRAWS) ** 0.5


def test_a_bernoulli_by_its_words() -> None:
    """γ = 1/2: the first factor is lost by the word 1 (K = 1, true), won by 0; then 1/2 again."""
    assert bernoulli_exp(np.array([1]), 2, GivenBits(1)).tolist() == [True]
    # Won at k = 1 (word 0); at k = 2 the words for γ and 1/k: γ lost, so K = 2: false.
    assert bernoulli_exp(np.array([1]), 2, GivenBits(0, 1, 0)).tolist() == [False]
    # Won, won (0 below 1/2, and 0 of two), and lost at k = 3: true.
    assert bernoulli_exp(np.array([1]), 2, GivenBits(0, 0, 0, 1, 0)).tolist() == [True]


def test_uniform_numbers_refuse_words_that_would_favor_some() -> None:
    assert below(3, 1, GivenBits(2**64 - 1, 5)).tolist() == [2]  # 2^64 − 1 = 3·k: one too many
    assert below(3, 1, GivenBits(2**64 - 2)).tolist() == [(2**64 - 2) % 3]
    assert below(2, 2, GivenBits(2**64 - 1, 4)).tolist() == [1, 0]
    assert below(1, 3, GivenBits()).tolist() == [0, 0, 0]


@pytest.mark.parametrize("count", [6_000, pytest.param(20_000, marks=pytest.mark.long)])
def test_pieces_do_not_change_the_law_or_the_count(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(laplace, "_CHUNK", 7)
    sample = discrete_laplace(3, count, SeededBits(1))
    assert sample.dtype == np.int64
    assert sample.shape == (count,)
    assert chi_square(sample, 3) > ALPHA
    assert discrete_laplace(3, 0, SeededBits(1)).shape == (0,)


@pytest.mark.parametrize(
    ("scale", "count"), [(0, 1), (-1, 1), (2**50, 1), (1.0, 1), (True, 1), (1, -1), (1, 1.0)]
)
def test_parameters_out_of_range(scale: object, count: object) -> None:
    with pytest.raises(InternalError):
        discrete_laplace(scale, count, SeededBits(1))  # type: ignore[arg-type]
    with pytest.raises(InternalError):
        bernoulli_exp(np.array([2]), 1, SeededBits(1))
