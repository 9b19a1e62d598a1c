"""Exact discrete Laplace noise. Trusted.

Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy" (arXiv 2004.00010,
Algorithms 1 and 2), on whole arrays: only uniform random words, integer arithmetic and comparisons.

    Bernoulli(e^−γ), 0 ≤ γ ≤ 1: let K be the first k ≥ 1 for which Bernoulli(γ/k) gives 0. Then
    P(K > k) = γ^k/k!, so that K is odd with probability Σ (−γ)^k/k! = e^−γ.

    Discrete Laplace of scale b: X = U + bV with U uniform on {0, …, b−1}, kept with probability
    e^(−U/b), and V geometric, P(V = v) ∝ e^−v, has P(X = x) ∝ e^(−x/b) for x ≥ 0. A random sign
    gives the two sides; minus zero is drawn again, so that 0 does not count twice.

Guarantees:
    1. If the words are uniform and independent, each integer has exactly its probability
       (modulo 2^64, which is reached with a probability below e^−4096).
    2. How many words are used depends on the noise alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.measurement.distributions import SCALE_BITS
from dpsql.measurement.randomness import RandomBits

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_CHUNK = 2**15
"""Samples handled together; what they need then stays in the processor's cache."""


def discrete_laplace(scale: int, count: int, bits: RandomBits) -> Ints:
    """Draw `count` independent integers with P(z) ∝ e^(−|z|/scale), exactly.

    Args:
        scale: b, a whole number from 1 to 2^50 − 1.
        count: how many, at least 0.
        bits: uniform random bits.

    Returns:
        An int64 array of shape (count,).

    Raises:
        InternalError: the scale or the count is out of range.
        RandomnessError: there are no random bits.
    """
    for value, low, high in ((scale, 1, (1 << SCALE_BITS) - 1), (count, 0, 2**63 - 1)):
        if type(value) is not int or not low <= value <= high:
            raise InternalError("noise was asked for with a parameter out of range")
    result = np.empty(count, dtype=np.int64)
    for begin in range(0, count, _CHUNK):
        piece = result[begin : begin + _CHUNK]
        left = np.arange(len(piece))
        while left.size:
            values, good = _attempt(scale, left.size, bits)
            piece[left[good]] = values[good]
            left = left[~good]
    return result


def bernoulli_exp(numerators: Ints, denominator: int, bits: RandomBits) -> Bools:
    """Draw true with probability e^(−u/d), exactly, for each numerator u.

    Args:
        numerators: u, from 0 to d.
        denominator: d, from 1 to 2^63 − 1.
        bits: uniform random bits.
    """
    if not 1 <= denominator < 2**63 or (numerators < 0).any() or (numerators > denominator).any():
        raise InternalError("a probability was asked for with a parameter out of range")
    result = np.zeros(numerators.shape, dtype=np.bool_)
    left, k = np.arange(len(numerators)), 1
    while left.size:
        # Bernoulli(γ/k) as Bernoulli(γ) and Bernoulli(1/k): each needs small numbers only.
        more = below(denominator, left.size, bits) < numerators[left]
        more &= below(k, left.size, bits) == 0
        result[left[~more]] = k % 2 == 1
        left, k = left[more], k + 1
    return result


def below(limit: int, count: int, bits: RandomBits) -> Ints:
    """Draw `count` independent whole numbers, uniform on {0, …, limit − 1}, limit < 2^63."""
    if limit == 1:
        return np.zeros(count, dtype=np.int64)
    last = np.uint64(2**64 // limit * limit - 1)  # words above would favor small remainders
    result = np.empty(count, dtype=np.uint64)
    left = np.arange(count)
    while left.size:
        words = bits.words(left.size)
        good = words <= last
        result[left[good]] = words[good] % np.uint64(limit)
        left = left[~good]
    return result.astype(np.int64)


def _attempt(scale: int, count: int, bits: RandomBits) -> tuple[Ints, Bools]:
    """Draw integers of which only the good ones count."""
    remainder = below(scale, count, bits)
    good = bernoulli_exp(remainder, scale, bits)
    magnitude = remainder + np.int64(scale) * _geometric(count, bits)
    negative = below(2, count, bits) == 1
    good &= ~(negative & (magnitude == 0))
    return np.where(negative, -magnitude, magnitude), good


def _geometric(count: int, bits: RandomBits) -> Ints:
    """Draw how often in a row Bernoulli(e^−1) gives true."""
    result = np.zeros(count, dtype=np.int64)
    left = np.arange(count)
    while left.size:
        left = left[bernoulli_exp(np.ones(left.size, dtype=np.int64), 1, bits)]
        result[left] += 1
    return result
