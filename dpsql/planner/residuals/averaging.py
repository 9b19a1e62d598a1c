"""References: the weight vectors ℓ that say what the mean of a query over an attribute is.

For any ℓ with Σℓ = 1 a query q over one attribute is (q − (q·ℓ)·1) + (q·ℓ)·1: what is kept, and
what is dropped to a constant. QuerySmasher (arXiv 2604.00868) and ResidualPlanner use ℓ = 1/n.
Other references are as good for privacy, and for many workloads better for accuracy.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A weight vector ℓ over the n cells of an attribute. It sums to 1, but for `nothing`."""

    weights: Array
    """ℓ, of shape (n,)."""
    numerators: NDArray[np.int64] | None
    """Integers p with ℓ = p/Σp. None while ℓ is only searched for: nothing can be measured."""
    key: bytes
    """Equal references have equal keys."""
    uniform: bool = False

    @staticmethod
    def of_cells(cells: int) -> Reference:
        """Return the uniform reference, the mean of all cells."""
        ones = np.broadcast_to(np.int64(1), cells)  # takes no memory, also for millions of cells
        weights = np.broadcast_to(np.float64(1 / cells), cells)
        return Reference(weights, ones, b"uniform %d" % cells, uniform=True)

    @staticmethod
    def of_integers(numerators: NDArray[np.int64]) -> Reference:
        """Return ℓ = p/Σp for integers p of positive sum."""
        p = numerators // np.gcd.reduce(numerators)
        if (p == p[0]).all():
            return Reference.of_cells(len(p))
        return Reference(p / p.sum(), p, hashlib.sha256(p.tobytes()).digest())

    @staticmethod
    def of_reals(weights: Array) -> Reference:
        """Return any ℓ, for planning with only."""
        return Reference(weights, None, hashlib.sha256(weights.tobytes()).digest())

    @staticmethod
    def nothing(cells: int) -> Reference:
        """Return ℓ = 0, by which all is kept: for marginals that are measured as they are."""
        weights = np.broadcast_to(np.float64(0.0), cells)
        return Reference(weights, None, b"nothing %d" % cells)

    @property
    def total(self) -> int:
        """Return Σp; 0 if p is not known."""
        if self.uniform:
            return len(self.weights)
        return 0 if self.numerators is None else int(self.numerators.sum())


def rounded(weights: Array, denominator: int) -> Reference:
    """Return the reference p/denominator that is nearest to ℓ: largest remainders go up."""
    scaled = weights * denominator
    p = np.floor(scaled).astype(np.int64)
    order = np.argsort(p - scaled, kind="stable")
    p[order[: denominator - int(p.sum())]] += 1
    return Reference.of_integers(p)
