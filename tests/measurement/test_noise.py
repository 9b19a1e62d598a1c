from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from scipy import stats
from scipy.special import ndtr, ndtri

from dpsql.errors import InternalError
from dpsql.measurement import gaussian as noise
from dpsql.measurement.distributions import NOISE_ROUNDING_VARIANCE
from dpsql.measurement.gaussian import quantile_of_few, quantile_of_many, rounded_gaussian
from tests.helpers.seeded import GivenBits, SeededBits

ALPHA = 1e-6
DRAWS = 200_000


def interval_mass(sigma: float, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """P(low ≤ σN < high), computed in the lower tail for accuracy."""
    flip = low > 0
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    return ndtr(b / sigma) - ndtr(a / sigma)


def chi_square(sample: np.ndarray, sigma: float) -> float:
    """p-value against round(N(0, σ²)), in about forty bins that follow the integers."""
    step = max(1, round(sigma / 8))
    edges = np.arange(-5 * max(sigma, 1) // step, 5 * max(sigma, 1) // step + 1) * step - 0.5
    edges = np.concatenate([[-np.inf], edges, [np.inf]])
    expected = interval_mass(sigma, edges[:-1], edges[1:]) * sample.size
    observed = np.bincount(np.searchsorted(edges, sample) - 1, minlength=expected.size)
    rare = expected < 10
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(stats.chi2.sf(statistic, expected.size - 1))


def kolmogorov(sample: np.ndarray, sigma: float) -> float:
    return float(stats.kstest(sample / sigma, "norm").pvalue)


def check_law(sigma: int, draws: int, seed: int) -> None:
    """Accept σ, and notice noise of two thirds and of three halves of it."""
    test = chi_square if sigma <= 10**6 else kolmogorov
    sample = rounded_gaussian(sigma**2, draws, SeededBits(seed))
    assert test(sample, sigma) > ALPHA
    assert test(sample, sigma * 1.5) < ALPHA
    assert test(sample, sigma / 1.5) < ALPHA


@pytest.mark.statistical
@pytest.mark.parametrize("sigma", [1, 10, 10**4, 10**9, 2**40])
def test_the_law(sigma: int) -> None:
    check_law(sigma, DRAWS if sigma < 2**40 else 50_000, seed=sigma)


@pytest.mark.long
@pytest.mark.statistical
@pytest.mark.parametrize("sigma", [1, 2, 10, 1000, 10**4, 10**9, 2**40])
def test_the_law_with_many_draws(sigma: int) -> None:
    check_law(sigma, 4_000_000, seed=sigma + 1)


@pytest.mark.statistical
@pytest.mark.parametrize("sigma_squared", [1, 2, 3, 100, 10**8, 10**18])
def test_moments_symmetry_and_tails(sigma_squared: int) -> None:
    sigma = sigma_squared**0.5
    sample = rounded_gaussian(sigma_squared, DRAWS, SeededBits(sigma_squared + 7)).astype(float)
    root = DRAWS**0.5
    variance = sigma_squared + float(NOISE_ROUNDING_VARIANCE)
    assert abs(sample.mean()) < 5 * variance**0.5 / root
    assert abs((sample**2).mean() - variance) < 5 * variance * 2**0.5 / root
    assert abs((sample > 0).mean() - (sample < 0).mean()) < 5 / root
    assert abs((sample**3).mean()) < 5 * (15 * variance**3) ** 0.5 / root
    for t in (2, 3, 4):
        cut = np.floor(t * sigma) + 0.5
        tail = 2 * ndtr(-cut / sigma)
        assert abs((np.abs(sample) > cut).mean() - tail) < 5 * tail**0.5 / root + 5 / DRAWS


@pytest.mark.statistical
def test_the_variance_includes_the_rounding() -> None:
    draws = 2_000_000
    sample = rounded_gaussian(1, draws, SeededBits(3)).astype(float)
    second = (sample**2).mean()
    margin = 6 * (2 / draws) ** 0.5
    assert abs(second - 1 - 1 / 12) < margin < 1 / 24  # tells σ² + 1/12 from σ²


@pytest.mark.parametrize("sigma_squared", [1, 2, 5])
def test_the_rounding_variance(sigma_squared: int) -> None:
    k = np.arange(-80, 81, dtype=float)
    mass = interval_mass(sigma_squared**0.5, k - 0.5, k + 0.5)
    excess = (mass * k**2).sum() - sigma_squared - float(NOISE_ROUNDING_VARIANCE)
    bound = (4 * sigma_squared + np.pi**-2) * np.exp(-2 * np.pi**2 * sigma_squared)
    assert -bound - 1e-14 <= excess <= 1e-14
    assert bound < 1.1e-8
    assert Fraction(1, 12) == NOISE_ROUNDING_VARIANCE


@pytest.mark.parametrize("sigma", [1, 10, 10**4, 10**9, 2**40])
@pytest.mark.parametrize("margin", [0.5, 2.0**-9])
def test_the_filter_and_the_exact_path_agree(
    sigma: int, margin: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = rounded_gaussian(sigma**2, 4000, SeededBits(11))
    monkeypatch.setattr(noise, "_MARGIN", margin)
    calls = []
    decide = noise._decide
    monkeypatch.setattr(noise, "_decide", lambda *a: calls.append(1) or decide(*a))
    exact = rounded_gaussian(sigma**2, 4000, SeededBits(11))
    assert np.array_equal(usual, exact)
    if sigma >= 10**4:
        assert len(calls) > 3500


@pytest.mark.parametrize("sigma", [1, 10**4, 2**40])
def test_few_are_drawn_as_many_are(sigma: int, monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = rounded_gaussian(sigma**2, 40_000, SeededBits(12))
    monkeypatch.setattr(noise, "_FEW", 0)
    assert np.array_equal(one_by_one, rounded_gaussian(sigma**2, 40_000, SeededBits(12)))


@pytest.mark.statistical
def test_the_exact_path_alone_has_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "_MARGIN", 1.0)
    check_law(10, 20_000, seed=5)


def test_extension_bits_do_not_shift_the_words() -> None:
    """The words come first: whatever is drawn later, each integer has a word of its own."""
    words = [int(w) for w in SeededBits(1).words(50)]
    extended = GivenBits(*words, *[2**63] * 20)
    alone = [rounded_gaussian(2**90, 1, GivenBits(w, *[2**63] * 4))[0] for w in words]
    assert rounded_gaussian(2**90, 50, extended).tolist() == alone


def word(uniform: int, positive: bool = True) -> int:
    return uniform << 11 | positive


def test_the_farthest_tail_takes_more_bits() -> None:
    """U = 0: the uniform lies below 2^−54, where the first word decides nothing."""
    for sigma, further, expected in (
        (10**6, [2**63], 8207094),  # v = 2^−55: −Φ⁻¹ = 8.3720…
        (10**6, [0, 2**63], None),
    ):
        found = rounded_gaussian(sigma**2, 1, GivenBits(word(0), *further, *[2**63] * 3))[0]
        shift = 2.0 ** -(55 + 64 * (len(further) - 1))
        exact = -float(ndtri(shift)) * sigma
        assert abs(found - exact) < 1
        assert expected is None or found == round(exact)
        mirrored = GivenBits(word(0, positive=False), *further, *[2**63] * 3)
        assert rounded_gaussian(sigma**2, 1, mirrored)[0] == -found


def test_zeros_and_the_middle() -> None:
    assert rounded_gaussian(1, 1, GivenBits(word(2**53 - 1)))[0] == 0
    assert rounded_gaussian(2**99, 1, GivenBits(word(2**53 - 1), 2**64 - 1, 2**63))[0] == 0


def test_a_boundary_is_decided_by_as_many_bits_as_it_takes() -> None:
    """Walk along the boundary between 0 and 1: each further word must be the boundary's own."""
    before = ctx.prec
    ctx.prec = 512
    try:
        boundary = (arb(1) / 2 / arb(2).sqrt()).erfc() / 2  # Φ(−1/2)
        scaled = (boundary * arb(2) ** (54 + 128)).floor().unique_fmpz()
    finally:
        ctx.prec = before
    digits = int(scaled)
    words = [digits >> 128, digits >> 64 & (2**64 - 1), digits & (2**64 - 1)]
    for last, expected in ((words[2] - 1, 1), (words[2] + 1, 0)):
        bits = GivenBits(word(words[0]), words[1], last)
        assert rounded_gaussian(1, 1, bits)[0] == expected
        assert bits.left == []  # all of them were needed


def test_integers_leave_no_trace_in_the_low_bits() -> None:
    """Releases of counts 0 and 1 have the same support: every integer near the middle."""
    noise_ = rounded_gaussian(25, 20_000, SeededBits(2))
    assert noise_.dtype == np.int64
    for count in (0, 1):
        assert set(range(-10, 11)) <= set((noise_ + count).tolist())
    odd = rounded_gaussian(10**18, 20_000, SeededBits(4)) & 1
    assert abs(odd.mean() - 0.5) < 0.02  # σ = 1e9: the last bit is a fair coin


def test_saturation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "LARGEST_SIGMA_SQUARED", 2**200)
    far = rounded_gaussian(2**130, 2, GivenBits(word(0), word(0, positive=False), *[2**63] * 9))
    assert far.tolist() == [2**63 - 1, -(2**63) + 1]


@pytest.mark.parametrize("sigma_squared", [0, -1, 2**100, 1.0, True, None, "1", np.int64(4)])
def test_bad_variances(sigma_squared: int) -> None:
    with pytest.raises(InternalError):
        rounded_gaussian(sigma_squared, 1, SeededBits(1))


def test_bad_counts_and_sources() -> None:
    for count in (-1, 1.0, True):
        with pytest.raises(InternalError):
            rounded_gaussian(1, count, SeededBits(1))  # type: ignore[arg-type]
    assert rounded_gaussian(1, 0, SeededBits(1)).shape == (0,)

    class Short:
        def words(self, count: int) -> np.ndarray:
            return np.zeros(count - 1, dtype=np.uint64)

    with pytest.raises(InternalError):
        rounded_gaussian(1, 5, Short())


def test_extreme_variances() -> None:
    for sigma_squared in (1, 2**100 - 1):
        sample = rounded_gaussian(sigma_squared, 500, SeededBits(1))
        assert 0.8 < sample.std() / sigma_squared**0.5 < 1.25


@pytest.mark.parametrize("quantile", [quantile_of_few, quantile_of_many()])
def test_the_margin_of_quantiles(quantile) -> None:
    """Relative error below 2^−48, a quarter of what the filter allows, at floats of all sizes."""
    grid = SeededBits(9).words(3000) >> np.uint64(11)
    tails = [2**power + offset for power in range(52) for offset in (0, 1, 3)]
    branch = int(np.exp(-2.0) * 2**54)
    middle = [2**53 - 2**power for power in range(50)]
    points = [*grid.tolist(), *tails, *range(branch - 50, branch + 50), *middle]
    for end in (0.075, np.exp(-25.0)):  # where the parts of AS 241 meet
        points += range(int(end * 2**54) - 50, int(end * 2**54) + 50)
    worst = 0.0
    before = ctx.prec
    ctx.prec = 200
    try:
        for u in points:
            exact = -arb(2).sqrt() * (arb(u) / 2**53).erfcinv()
            found = float(quantile(np.array([u * 2.0**-54]))[0])
            worst = max(worst, float(abs(arb(found) / exact - 1).upper()))
    finally:
        ctx.prec = before
    assert quantile(np.array([0.5, 0.0])).tolist() == [0.0, -np.inf]
    assert 0 < worst < 2.0**-48
