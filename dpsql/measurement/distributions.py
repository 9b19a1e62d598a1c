"""Noise laws: what is added to exact integers. Trusted.

All laws are over the integers, and a number of each says how wide they are. A measurement of
sensitivity Δ with noise of width w costs an amount that is exact:

    Gaussian   round(N(0, σ²))         μ² = Δ₂²/σ², and amounts of μ² add up
    Laplace    P(z) ∝ e^(−|z|/b)       ε = Δ₁/b, and amounts of ε add up

with Δ₂ the Euclidean and Δ₁ the absolute norm of the largest column (proofs in `certify`).

Guarantees:
    A law exists only if `measurement/` can draw it exactly, and its variance is never understated
    (for σ² + 1/12 see below). What is kept of an answer a is the integer y; `unit`·y has the mean a
    and the variance `variance`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import InternalError

NOISE_ROUNDING_VARIANCE = Fraction(1, 12)
"""The variance that rounding adds to σ².

Var(round(N(0, σ²))) = σ² + 1/12 + Σ_{n≥1} (−1)^n (4σ² + 1/(π²n²)) e^{−2π²n²σ²}, from the Fourier
series of the rounding error. The sum alternates with falling terms, so it is negative and below
(4σ² + 1/π²) e^{−2π²σ²} < 1.1e-8 in absolute value for σ² ≥ 1: σ² + 1/12 is never too small.
"""
VARIANCE_BITS = 100
"""σ² < 2^100: noise stays far inside an int64, and every σ² that is planned can be drawn."""
WIDE_VARIANCE_BITS = 300
"""σ² < 2^300 where noise is drawn in integers of any size."""
SCALE_BITS = 50
"""b < 2^50: |z| reaches 2^62 with probability e^−4096, and all numbers that are drawn fit words."""


@dataclass(frozen=True, slots=True)
class Gaussian:
    """The distribution of round(N(0, σ²)), a Gaussian rounded to integers."""

    squared: int
    """σ², a whole number from 1 to 2^100 − 1."""

    def __post_init__(self) -> None:
        if type(self.squared) is not int or not 1 <= self.squared < 1 << VARIANCE_BITS:
            raise InternalError("a noise variance is out of range")

    @property
    def width(self) -> int:
        """The number that tells this law from others of its kind."""
        return self.squared

    @property
    def variance(self) -> float:
        """The variance of an integer that is drawn."""
        return float(self.squared + NOISE_ROUNDING_VARIANCE)

    @property
    def unit(self) -> int:
        """The unit of the number that is kept: 1, as it is the noisy answer itself."""
        return 1


@dataclass(frozen=True, slots=True)
class CoarseGaussian:
    """round((a + round(N(0, σ²)))/2^s): for answers a of more bits than an int64 has.

    Rounding comes after the noise, so it costs no privacy. Ties go to the even number. With
    σ ≥ 4·2^s the distribution of the noisy answer is flat over 2^s: its Fourier series at the
    frequencies n/2^s is below e^(−2π²·16) ≈ 10^−137. But for terms of that size rounding is
    unbiased, and adds the mean square of a remainder that is uniform on −h, …, h with h = 2^(s−1)
    (its ends count half), (4^s + 2)/12.
    """

    squared: int
    """σ², a whole number, at least 16·4^s and below 2^300."""
    shift: int
    """s, from 1: a noisy answer is kept in steps of 2^s."""

    def __post_init__(self) -> None:
        if type(self.squared) is not int or type(self.shift) is not int or self.shift < 1:
            raise InternalError("a noise variance is out of range")
        if (
            not 4 ** (min(self.shift, WIDE_VARIANCE_BITS) + 2)
            <= self.squared
            < 1 << WIDE_VARIANCE_BITS
        ):
            raise InternalError("a noise variance is out of range")

    @property
    def width(self) -> int:
        """The number that tells this law from others of the same shift."""
        return self.squared

    @property
    def variance(self) -> float:
        """The variance of `unit` times what is kept."""
        return float(self.squared + NOISE_ROUNDING_VARIANCE + Fraction(4**self.shift + 2, 12))

    @property
    def unit(self) -> int:
        """The unit of the noisy number that is kept: the power 2^s."""
        return 1 << self.shift


@dataclass(frozen=True, slots=True)
class Laplace:
    """The discrete Laplace distribution, P(z) = (e^(1/b) − 1)/(e^(1/b) + 1) · e^(−|z|/b)."""

    scale: int
    """b, a whole number from 1 to 2^50 − 1."""

    def __post_init__(self) -> None:
        if type(self.scale) is not int or not 1 <= self.scale < 1 << SCALE_BITS:
            raise InternalError("a noise scale is out of range")

    @property
    def width(self) -> int:
        """The number that tells this law from others of its kind."""
        return self.scale

    @property
    def variance(self) -> float:
        """The variance of an integer that is drawn: 2e^(1/b)/(e^(1/b) − 1)² = 1/(2 sinh²(1/2b))."""
        return 1 / (2 * math.sinh(1 / (2 * self.scale)) ** 2)

    @property
    def unit(self) -> int:
        """The unit of the number that is kept: 1, as it is the noisy answer itself."""
        return 1


Law = Gaussian | CoarseGaussian | Laplace
