"""Nested sets, as cumulative counts are over: factorizations in quadratic time, and less.

For sets A_1 ⊂ … ⊂ A_m of cells with weights w_k > 0, let level l(i) be the first set that has cell
i. Rows Q = S·L·P, for S = diag(√w), L with ones on and below the diagonal, and P with P_li = 1 if
l = l(i), have the Gram matrix G_ij = Σ w_k over k >= max(l(i), l(j)). As G_ii falls with l(i), this
is min(G_ii, G_jj), and a matrix of that form has such rows.

For weights δ of cells, with Δ = P diag(δ) Pᵀ the diagonal matrix of what each level gets,

    (Q diag(δ) Qᵀ)⁻¹ = S⁻¹ L⁻ᵀ Δ⁻¹ L⁻¹ S⁻¹

has three diagonals, as L⁻¹ takes differences of neighbours. Its eigenvectors V take quadratic time,
and so do VᵀQ = (VᵀS)L·P, which are running totals.

The diagonal of X = Qᵀ M^{-1/2} Q, for M = Q diag(δ) Qᵀ, takes linear time: with N = SL,

    M^{-1/2} = 1/π ∫ e^{u/2} (M + e^u)⁻¹ du   and   Nᵀ(N Δ Nᵀ + s)⁻¹N = (Δ + s·(NᵀN)⁻¹)⁻¹ ,

where the last matrix is the inverse of one of three diagonals again, and its own diagonal follows
from pivots from both ends. The trapezoidal rule in u has an error of e^{−2π²/h} for steps of h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array, Ints

STEP, TAILS = 1.25, 20.0
"""h, and how far u goes beyond the logarithms of the eigenvalues: errors of 1e-7 and 3e-5."""
EXACT = 1e-8
"""The trace must agree as well: the large eigenvalues are the inverses of differences."""

NOISE = 1e-13
"""Relative difference up to which entries are equal: processors multiply with other last digits."""

TINY = 1e-200


def nested_rows(gram: Array) -> Array | None:
    """Return the rows Q, from the smallest set to the largest, if G_ij = min(G_ii, G_jj)."""
    least = np.diag(gram)
    if not _equal(gram[0], np.minimum(least[0], least)):  # nearly always this says it
        return None
    both = np.minimum(least[:, None], least)
    if not _equal(gram, both) or not least.any():
        return None
    falling = np.unique(least[least > 0])[::-1]
    if (gram != both).any():  # then entries are equal that only seem to differ
        last = np.append(falling[1:], 0.0) < falling * (1 - NOISE)
        falling = falling[last]
    weights = falling - np.append(falling[1:], 0.0)
    return np.asarray(np.sqrt(weights)[:, None] * (least >= falling[:, None]))


def _equal(values: Array, others: Array) -> bool:
    """Whether all values are equal but for rounding."""
    return bool((np.abs(values - others) <= NOISE * others).all())


@dataclass(frozen=True, slots=True, eq=False)
class Nested:
    """Rows over nested sets."""

    scales: Array
    """√w_k, of shape (sets,), from the smallest set to the largest."""
    levels: NDArray[np.intp]
    """l(i); the number of sets where none has the cell."""

    @staticmethod
    def of(rows: Array) -> Nested | None:
        """Recognize the rows of `nested_rows`."""
        scales = rows.max(axis=1, initial=0.0)
        inside = rows != 0
        levels = len(rows) - inside.sum(axis=0)
        grows = inside == (levels <= np.arange(len(rows))[:, None])
        sizes = np.bincount(levels, minlength=len(rows))[: len(rows)]
        if not grows.all() or not sizes.all() or not _equal(rows, inside * scales[:, None]):
            return None
        return Nested(scales, levels)

    @property
    def basis(self) -> Ints:
        """Integer rows that span the same: the sum of each level's cells."""
        return np.asarray(self.levels == np.arange(len(self.scales))[:, None], dtype=np.int64)

    def decompose(self, delta: Array) -> tuple[Array, Array] | None:
        """Return the eigenvalues of Q diag(δ) Qᵀ and VᵀQ; None if floats are not enough for it."""
        m, s = len(self.scales), self.scales
        shares = self._shares(delta)
        if not shares.all():
            return None
        diagonal, beside = self._inverse(shares)
        try:
            small, vectors = scipy.linalg.eigh_tridiagonal(diagonal, beside)
        except scipy.linalg.LinAlgError:
            return None
        trace = float(s**2 @ np.cumsum(shares))
        if small[0] <= 0 or abs(float((1 / small).sum()) - trace) > EXACT * trace:
            return None
        totals = np.zeros((m + 1, m))
        np.cumsum((s[:, None] * vectors)[::-1], axis=0, out=totals[m - 1 :: -1])
        return 1 / small, totals[self.levels].T

    def diagonal(self, delta: Array) -> Array:
        """Return the diagonal of X, up to some 1e-4."""
        shares = np.maximum(self._shares(delta), TINY)
        largest = self.scales**2 @ np.cumsum(shares)
        middle, beside = self._inverse(shares)
        least = 1 / (middle + np.append(np.abs(beside), 0) + np.append(0, np.abs(beside))).max()
        s = np.exp(np.arange(math.log(least) - TAILS, math.log(largest) + TAILS, STEP))
        rungs = 1 / self.scales**2
        a = shares[:, None] + s * (rungs + np.append(0, rungs[:-1]))[:, None]
        squares = np.square(s * rungs[:-1, None])
        down, up = a.copy(), a.copy()
        for k in range(1, len(a)):
            down[k] -= squares[k - 1] / down[k - 1]
            up[-k - 1] -= squares[-k] / up[-k]
        entries = (1 / (down + up - a)) @ (STEP / math.pi * np.sqrt(s))
        return np.asarray(np.append(entries, 0.0)[self.levels])

    def _shares(self, delta: Array) -> Array:
        """Return the weights of the levels."""
        m = len(self.scales)
        return np.asarray(np.bincount(self.levels, delta, minlength=m)[:m], dtype=np.float64)

    def _inverse(self, shares: Array) -> tuple[Array, Array]:
        """Return the diagonal of M⁻¹, and what is beside it."""
        inverse, s = 1 / shares, self.scales
        return (inverse + np.append(inverse[1:], 0.0)) / s**2, -inverse[1:] / (s[1:] * s[:-1])
