"""Integer strategies: what is measured, in numbers whose sensitivity is exact.

Trusted core. Nothing here depends on how good a plan is.

Guarantees:
    1. The entries of an `IntegerFactor` are integers of magnitude below 2^31, checked at birth,
       and read-only.
    2. `largest_column_norm_squared` is exact for every such matrix (proof at the function), so
       `BlockStrategy.sensitivity_squared` is exact: a column of a Kronecker product is a
       Kronecker product of columns, hence its norm is the product of the norms, and the largest
       one is the product of the largest ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError

ENTRY_BITS = 31
"""|entry| < 2^31, the same for products over the factors of a block."""
ROW_BITS = 31
"""Answers are exact for tables of up to 2^31 rows: 31 + 31 bits fit a signed 64-bit integer.

A larger table would wrap around. That is a function of the exact answer plus noise, so it costs
accuracy and not privacy; an error that depended on the number of rows would cost privacy.
"""
NOISE_ROUNDING_VARIANCE = Fraction(1, 12)
"""What rounding adds to the variance σ².

Var(round(N(0, σ²))) = σ² + 1/12 + Σ_{n≥1} (−1)^n (4σ² + 1/(π²n²)) e^{−2π²n²σ²}, from the Fourier
series of the rounding error. The sum alternates with falling terms, so it is negative and below
(4σ² + 1/π²) e^{−2π²σ²} < 1.1e-8 in absolute value for σ² ≥ 1: σ² + 1/12 is never too small.
"""
VARIANCE_BITS = 100
"""σ² < 2^100: noise stays far inside an int64, and every σ² that is planned can be drawn."""
_HALF = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class IntegerFactor:
    """Integer measurements over the joint cells of some attributes.

    `matrix` has shape (measurements, cells), cells in C order.
    """

    attributes: tuple[str, ...]
    shape: tuple[int, ...]
    matrix: NDArray[np.int64]

    def __post_init__(self) -> None:
        matrix = self.matrix
        if matrix.flags.writeable or matrix.base is not None or not matrix.flags.c_contiguous:
            matrix = np.array(matrix, order="C")  # nobody else may hold a way to change it
        if matrix.dtype != np.int64 or matrix.ndim != 2:
            raise InternalError("an integer factor must be a matrix of int64")
        if matrix.shape[1] != math.prod(self.shape) or len(self.shape) != len(self.attributes):
            raise InternalError("an integer factor does not fit its attributes")
        # Not np.abs: the magnitude of the smallest int64 does not fit an int64.
        limit = 1 << ENTRY_BITS
        if matrix.size and not (-limit < int(matrix.min()) and int(matrix.max()) < limit):
            raise InternalError("an entry of an integer factor has 31 bits or more")
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    @property
    def largest_entry(self) -> int:
        """The largest magnitude of an entry."""
        return max(int(self.matrix.max(initial=0)), -int(self.matrix.min(initial=0)))

    @property
    def largest_column_norm_squared(self) -> int:
        """The largest squared Euclidean norm of a column, exact.

        Write an entry as b = 2^16·h + l with 0 <= l < 2^16. As |b| < 2^31, |h| <= 2^15, so each
        of h², hl and l² is at most 2^32 in magnitude and its sum over fewer than 2^30 rows fits
        an int64. The three sums are put together in Python integers, which have no width.
        """
        if self.matrix.shape[0] >= 1 << 30:
            raise InternalError("an integer factor has 2^30 rows or more")
        high, low = np.divmod(self.matrix, _HALF)
        squares = (high * high).sum(axis=0), (high * low).sum(axis=0), (low * low).sum(axis=0)
        columns = zip(*(s.tolist() for s in squares), strict=True)
        return max((_HALF**2 * hh + 2 * _HALF * hl + ll for hh, hl, ll in columns), default=0)


@dataclass(frozen=True, slots=True, eq=False)
class BlockStrategy:
    """The measurements of one residual space: ⊗ factors, each plus round(N(0, noise_variance))."""

    attributes: tuple[str, ...]
    factors: tuple[IntegerFactor, ...]
    noise_variance: int

    def __post_init__(self) -> None:
        covered = [a for f in self.factors for a in f.attributes]
        if sorted(covered) != sorted(self.attributes) or len(set(covered)) != len(covered):
            raise InternalError("the factors of a block must partition its attributes")
        if (
            type(self.noise_variance) is not int
            or not 1 <= self.noise_variance < 1 << VARIANCE_BITS
        ):
            raise InternalError("a noise variance is out of range")
        if math.prod(f.largest_entry for f in self.factors) >= 1 << ENTRY_BITS:
            raise InternalError("the products of a block's entries have 31 bits or more")

    @property
    def sensitivity_squared(self) -> int:
        """The largest squared change that adding or removing one record can make, exact."""
        return math.prod(f.largest_column_norm_squared for f in self.factors)

    @property
    def measurements(self) -> int:
        """The number of noisy integers."""
        return math.prod(f.matrix.shape[0] for f in self.factors)
