"""Exact rounded Gaussian noise. Trusted.

`rounded_gaussian` draws round(N(0, σ²)). Added to an integer that is the same as rounding the
integer plus N(0, σ²), so it has exactly the privacy of the continuous Gaussian mechanism (see
docs/explanation/accounting.md), provided that each integer comes with exactly its probability.

How it is drawn, per integer, from one word of 64 random bits:

    Bit 0 is the sign. The upper 53 bits U say that a uniform v on (0, 1/2) lies in
    [U, U+1]/2^54; both ends are exact floats. Further bits of v are drawn only when needed. The
    result is ±k with k = floor(σ·Φ⁻¹(v) + 1/2) ≤ 0: as Φ⁻¹(v) is distributed as −|N(0, 1)| and
    rounding is symmetric (ties have probability 0), that is round(N(0, σ²)).

    Filter. k grows with v, so if k is the same at both ends it is decided. The ends are computed
    in floats and moved apart by the relative margin 2^−46. Rounding contributes less than
    2^−50 (σ 2^−52, two products and the sum 2^−53 each; near −1/2 the sum is exact), and Φ⁻¹
    2^−50 at worst among the points that the tests compare with ball arithmetic. It is `ndtri` of
    SciPy where there are many integers; for a few, Python has Wichura's AS 241, to the same digits,
    which spares a release of a few counts the time to load SciPy.

    Exact decision. Otherwise Φ((k − 1/2)/σ) ≤ v ≤ Φ((k + 1/2)/σ) is verified in ball arithmetic
    for all v of the interval, drawing 64 more bits of v until it holds. This ends with
    probability 1. The candidate k is only a guess, so nothing rests on how it is found.

Guarantees:
    1. If Φ⁻¹ has a relative error below 2^−47, each integer has exactly its probability. So the
       integers are the same by whatever function it is computed.
    2. The set of possible results does not depend on floating point: all are integers. They
       would saturate at ±(2^63 − 1), which for σ < 2^50 takes |N(0, 1)| > 2^13.
    3. How many bits and how much time are used depends on the noise alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from flint import arb
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.measurement.randomness import RandomBits
from dpsql.privacy.conversions import exact_ball, precision

LARGEST_SIGMA_SQUARED = 2**100 - 1
_MARGIN = 2.0**-46
_DRAWN_BITS = 54
"""The uniform v is known to 2^−54 from the first word."""
_WORD_BITS = 64
_GUARD_BITS = 64
_CHUNK = 2**15
"""Samples handled together; what they need then stays in the processor's cache."""
_LARGEST = 2**63 - 1
_FEW = 100_000
"""Samples that Python draws in less time than SciPy takes to load: a quarter of a second."""

Floats = NDArray[np.float64]
Quantile = Callable[[Floats], Floats]
"""Φ⁻¹ of probabilities from 0, where it is −∞, to 1/2."""


def rounded_gaussian(sigma_squared: int, count: int, bits: RandomBits) -> NDArray[np.int64]:
    """Draw `count` independent integers distributed exactly as round(N(0, σ²)).

    Args:
        sigma_squared: σ², a whole number from 1 to 2^100 − 1.
        count: how many, at least 0.
        bits: uniform random bits; one word for each integer, then more as needed.

    Returns:
        An int64 array of shape (count,). Its variance is
        σ² + `distributions.NOISE_ROUNDING_VARIANCE`.

    Raises:
        InternalError: σ² or the count is out of range.
        RandomnessError: there are no random bits.
    """
    for value, low, high in ((sigma_squared, 1, LARGEST_SIGMA_SQUARED), (count, 0, _LARGEST)):
        if type(value) is not int or not low <= value <= high:
            raise InternalError("noise was asked for with a parameter out of range")
    words = bits.words(count)
    if words.dtype != np.uint64 or words.shape != (count,):
        raise InternalError("the source of random bits gave something else")
    quantile = quantile_for(count)
    result = np.empty(count, dtype=np.int64)
    for begin in range(0, count, _CHUNK):
        piece = slice(begin, begin + _CHUNK)
        result[piece] = _from_words(sigma_squared, words[piece], bits, quantile)
    return result


def quantile_for(count: int) -> Quantile:
    """Return the function for so many samples, and load it."""
    return quantile_of_many() if count > _FEW else quantile_of_few


def quantile_of_few(probabilities: Floats) -> Floats:
    """Compute Φ⁻¹ one by one: Wichura (1988), algorithm AS 241, PPND16, as Python has it."""
    inverse = NormalDist().inv_cdf
    quantiles = (inverse(p) if p > 0 else -math.inf for p in probabilities.tolist())
    return np.fromiter(quantiles, np.float64, len(probabilities))


def quantile_of_many() -> Quantile:
    """Return the function of SciPy for Φ⁻¹ of arrays."""
    from scipy.special import ndtri  # slow to import, and few releases are so large

    return ndtri


def _from_words(
    sigma_squared: int, words: NDArray[np.uint64], bits: RandomBits, quantile: Quantile
) -> NDArray[np.int64]:
    uniform = words >> np.uint64(11)
    magnitude, decided = _filter(math.sqrt(sigma_squared), uniform, quantile)
    for index in np.flatnonzero(~decided):
        magnitude[index] = _decide(sigma_squared, int(uniform[index]), bits)
    return np.where(words & np.uint64(1), magnitude, -magnitude)


def _filter(
    sigma: float, uniform: NDArray[np.uint64], quantile: Quantile
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Decide what floats can decide; give −k (0 where undecided) and where it is decided."""
    lower = uniform.astype(np.float64)
    ends = lower * 2.0**-_DRAWN_BITS, (lower + 1.0) * 2.0**-_DRAWN_BITS
    # Φ⁻¹ ≤ 0 on (0, 1/2], so a factor above 1 moves an end down. U = 0 gives −∞: undecided.
    low = np.floor(quantile(ends[0]) * (sigma * (1.0 + _MARGIN)) + 0.5)
    high = np.floor(quantile(ends[1]) * (sigma * (1.0 - _MARGIN)) + 0.5)
    decided = low == high
    return np.where(decided, -high, 0.0).astype(np.int64), decided


def _decide(sigma_squared: int, uniform: int, bits: RandomBits) -> int:
    """Give −k for the uniform that begins with these bits, drawing more until it is certain."""
    known = _DRAWN_BITS
    while True:
        with precision(known + _GUARD_BITS):
            sigma = arb(sigma_squared).sqrt()
            low = exact_ball(Fraction(uniform, 2**known))
            high = exact_ball(Fraction(uniform + 1, 2**known))
            k = _guess(sigma, exact_ball(Fraction(2 * uniform + 1, 2 ** (known + 1))))
            if _phi((2 * k - 1) / (2 * sigma)) <= low and high <= _phi((2 * k + 1) / (2 * sigma)):
                return min(-k, _LARGEST)
        uniform = (uniform << _WORD_BITS) | int(bits.words(1)[0])
        known += _WORD_BITS


def _guess(sigma: arb, v: arb) -> int:
    """Guess k = floor(σ·Φ⁻¹(v) + 1/2) from the middle of a ball around it."""
    position = arb(1) / 2 - sigma * arb(2).sqrt() * (2 * v).erfcinv()
    nearest = position.mid().floor().unique_fmpz()
    return 0 if nearest is None else int(nearest)


def _phi(x: arb) -> arb:
    """Enclose the distribution function Φ(x) of N(0, 1)."""
    return (-x / arb(2).sqrt()).erfc() / 2
