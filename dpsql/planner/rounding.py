"""Round real strategies to integers, wide enough that the loss is of second order."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from dpsql.errors import ResourceLimitError
from dpsql.planner.balance import balance
from dpsql.planner.divide.component import Component
from dpsql.planner.integer import (
    ENTRY_BITS,
    BlockStrategy,
    CentredFactor,
    DenseFactor,
    IntegerFactor,
)
from dpsql.planner.laws import VARIANCE_BITS, Gaussian
from dpsql.planner.solvers.base import Centred, Solution, Triangular

PLENTY = 20
"""Bits from which plain rounding loses less than a millionth."""
SMALL = 40
"""Rows up to which several scales are tried."""
SHRINK = tuple(1 - i / 40 for i in range(8))
NOISE_BITS = 40
"""σ stays below about 2^40: far from the end of an int64, and where noise is drawn fast."""


class Rounding:
    """Rounds the strategies of one plan. A strategy that serves many blocks is rounded once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, tuple[int, ...]], IntegerFactor] = {}
        self._matrices: dict[tuple[int, int], NDArray[np.int64]] = {}
        self._kept: list[Solution] = []  # so that no id is given away while it is a key

    def block(
        self,
        spaces: tuple[tuple[str, ...], ...],
        solved: tuple[tuple[Component, Solution], ...],
        cost: Fraction,
    ) -> BlockStrategy:
        """Round a block's strategy and give it the least noise variance that `cost` allows.

        Args:
            spaces: the residual spaces that it measures.
            solved: their components with the real strategies; none for the total.
            cost: the share of μ² that each of the spaces may spend.

        Returns:
            A block whose sensitivity² / noise variance is at most `cost`, exactly.

        Raises:
            ResourceLimitError: no width fits 64-bit integers.
        """
        for total in range(_bits(cost), 0, -2):
            factors = self._factors(solved, total)
            norms = math.prod(f.largest_column_norm_squared for f in factors)
            variance = max(1, math.ceil(norms / cost))
            fits = math.prod(f.largest_entry for f in factors) < 1 << ENTRY_BITS
            if fits and variance < 1 << VARIANCE_BITS:
                return BlockStrategy(spaces, factors, Gaussian(variance))
        raise ResourceLimitError(
            f"The queries over {' x '.join(spaces[0])} have coefficients too large to be "
            "measured in 64-bit integers at this budget.",
            hint="use fewer attributes, smaller coefficients, or a larger budget.",
        )

    def _factors(
        self, solved: tuple[tuple[Component, Solution], ...], total: int
    ) -> tuple[IntegerFactor, ...]:
        if not solved:
            return (DenseFactor((), (), np.array([[1 << total]], dtype=np.int64)),)
        widths = _widths([s.strategy for _, s in solved], total)
        return tuple(self._factor(c, s, w) for (c, s), w in zip(solved, widths, strict=True))

    def _factor(self, component: Component, solution: Solution, bits: int) -> IntegerFactor:
        key = (id(solution), bits, component.axes)
        if key not in self._known:
            self._kept.append(solution)
            self._known[key] = self._rounded(component, solution, bits)
        return self._known[key]

    def _rounded(self, component: Component, solution: Solution, bits: int) -> IntegerFactor:
        """Round, or take the matrix from the same solution on other axes."""
        if isinstance(solution.strategy, Centred):
            return _centred(component, bits)
        key = (id(solution), bits)
        if key not in self._matrices:
            self._matrices[key] = round_strategy(solution.strategy, bits)
            self._matrices[key].setflags(write=False)
        return DenseFactor(component.axes, component.shape, self._matrices[key])


def _bits(cost: Fraction) -> int:
    """Choose the width of a block's entries, from public numbers only.

    Wide entries keep rounding harmless, but at a small cost they would blow σ = Δ/√cost up.
    """
    shrink = max(0.0, -math.log2(float(cost)) / 2)
    return max(8, min(ENTRY_BITS - 1, int(NOISE_BITS - shrink)))


def _widths(strategies: list[Triangular | Centred], total: int) -> list[int]:
    """Divide the width among the factors of a Kronecker product.

    A centred identity is in integers, and so is a strategy of one row, which is its basis. They
    take only the bits that they have; the others, which do lose by rounding, share the rest.
    """
    own = [_own_bits(s) for s in strategies]
    sharing = [i for i, bits in enumerate(own) if not bits] or list(range(len(own)))[:1]
    rest = total - sum(bits for i, bits in enumerate(own) if i not in sharing)
    share = max(1, rest // max(1, len(sharing)))
    return [share if i in sharing else bits for i, bits in enumerate(own)]


def _centred(component: Component, bits: int) -> IntegerFactor:
    """Scale a centred identity to entries of `bits` bits; over two cells one row says it all."""
    (n,) = component.shape
    scale = 1 << max(0, bits - n.bit_length())
    if n == 2:
        row = np.array([[-scale, scale]], dtype=np.int64)
        return DenseFactor(component.axes, component.shape, row)
    return CentredFactor(component.axes, component.shape, scale)


def _own_bits(strategy: Triangular | Centred) -> int:
    """Return the width of a strategy that is in integers already; 0 for the others."""
    if isinstance(strategy, Centred):
        return strategy.cells.bit_length()
    one_row = len(strategy.basis) == 1
    return int(np.abs(strategy.basis).max()).bit_length() if one_row else 0


def round_strategy(strategy: Triangular, bits: int) -> NDArray[np.int64]:
    """Scale coefficients @ basis to entries of `bits` bits and round the coefficients.

    Few bits are made the best of: rotated rows measure the same with smaller entries, the columns
    are balanced, and of several scales the one with the shortest columns is taken.
    """
    if bits >= PLENTY:
        return _product(_round_triangular(strategy, bits), strategy.basis)
    found: list[tuple[float, int, NDArray[np.int64]]] = []
    for coefficients in (strategy.coefficients, _rotated(strategy.coefficients)):
        largest = float(np.abs(coefficients @ strategy.basis).max())
        for shrink in SHRINK if len(coefficients) <= SMALL else SHRINK[:1]:
            scaled = coefficients * (shrink * (1 << bits) / largest)
            rounded = balance(scaled, np.rint(scaled).astype(np.int64), strategy.basis)
            matrix = _product(rounded, strategy.basis)
            if int(np.abs(matrix).max()) <= 1 << bits and _has_full_rank(rounded):
                lengths = np.square(matrix.astype(np.float64)).sum(axis=0)
                excess = float(lengths.max() / np.square(scaled @ strategy.basis).sum(axis=0).max())
                found.append((excess, len(found), matrix))
    if found:
        return min(found)[2]
    return _product(_round_triangular(strategy, bits), strategy.basis)


def _round_triangular(strategy: Triangular, bits: int) -> NDArray[np.int64]:
    """Round the coefficients to an upper triangular matrix with a diagonal of at least 1.

    It has full rank, so the row space of its product with the basis is exactly that of the basis.
    """
    scale = (1 << bits) / float(np.abs(strategy.coefficients @ strategy.basis).max())
    while True:
        coefficients = np.rint(strategy.coefficients * scale).astype(np.int64)
        at = np.diag_indices(len(coefficients))
        coefficients[at] = np.maximum(coefficients[at], 1)
        largest = int(np.abs(_product(coefficients, strategy.basis)).max())
        # Rounding may tip the largest entry over. The unit matrix is as small as it gets.
        if largest <= 1 << bits or not np.triu(coefficients, 1).any():
            return coefficients
        scale *= 0.9


def _rotated(coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn the rows by an orthogonal matrix that makes the largest entries smaller."""
    r = len(coefficients)
    signs = np.where(np.arange(r) * 7919 % 31 % 2, 1.0, -1.0)
    turned: NDArray[np.float64] = scipy.fft.dct(signs[:, None] * coefficients, norm="ortho", axis=0)
    return turned


def _has_full_rank(coefficients: NDArray[np.int64]) -> bool:
    """Whether the rank is full for certain: singular values in floats are off by far less."""
    values = np.linalg.svd(coefficients.astype(np.float64), compute_uv=False)
    return bool(values[-1] > 1e-6 * values[0])


def _product(coefficients: NDArray[np.int64], basis: NDArray[np.int64]) -> NDArray[np.int64]:
    """Multiply integer matrices, by the fast float product where all sums are exact in it."""
    bound = int(np.abs(coefficients).max()) * int(np.abs(basis).max()) * len(basis)
    if bound < 1 << 53:
        product = coefficients.astype(np.float64) @ basis.astype(np.float64)
        return product.astype(np.int64)
    return coefficients @ basis
