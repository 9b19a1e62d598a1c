"""Round real strategies to integers, wide enough that the loss is of second order.

How wide is a matter of the basis in which a strategy's coefficients are rounded. Let B = L·S, with
entries of B up to M, be scaled by s = 2^b/M and L rounded, to s·L + Δ with |Δ| ≤ 1/2. The rows
become (1 + E)·s·B with E = ΔL⁻¹/s, and the queries Q = W·B, of error ‖W‖², get the error

    ‖W(1 + E)⁻¹‖² = ‖W‖² − 2⟨W, WE⟩ + ‖WE‖² + … .

Balanced columns take the second term away (see `balance`); for independent Δ of variance 1/12
the third has the mean ‖W‖²·‖L⁻¹‖²/12s². So the relative loss is about (M‖L⁻¹‖)²/12·4^b, in
Frobenius norms, and b = log₂(M‖L⁻¹‖) + `MARGIN` bits lose less than 10^−5. That is what a factor
needs. It is much where the basis has large entries, as bases of few vectors have that references
make zero along several axes.

A block gets 30 bits in all where its factors need no more. Else it is measured in wide integers
(see `wide`), unless it has too many measurements for these. So is a block that could
do with 30 bits if its columns were balanced, but where that takes seconds: wide integers have bits
enough to go without.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from dpsql.errors import ResourceLimitError
from dpsql.linalg.balance import ENOUGH, balance, is_dear
from dpsql.linalg.digits import AS_GOOD, nearest
from dpsql.measurement.distributions import (
    VARIANCE_BITS,
    WIDE_VARIANCE_BITS,
    CoarseGaussian,
    Gaussian,
)
from dpsql.measurement.factors import (
    ENTRY_BITS,
    WIDE_BITS,
    CenteredFactor,
    DenseFactor,
    IntegerFactor,
)
from dpsql.measurement.strategy import BlockStrategy, change_squared
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.strategies.base import Centered, Solution, Triangular
from dpsql.workload.spread import SpreadRows, by_limits

T = TypeVar("T", np.int64, np.float64)

MARGIN = 7
"""Bits beyond those of the coefficients: with them rounding loses less than 10^−5."""
PLENTY = 6
"""Bits beyond what is needed from which plain rounding is as good as a balanced one."""
FINE, SPARE = 22, 3
"""Bits of coefficients, in all and beyond those that are needed: with both the loss is below 10^−6.
What is wider ends in zeros, where noise of floats would be seen."""
GRID = 10
"""Bits after the point of coefficients that are balanced."""
SMALL = 40
"""Rows up to which several scales are tried."""
SHRINK = tuple(1 - i / 40 for i in range(8))
NOISE_BITS = 40
"""σ stays below about 2^40: far from the end of an int64, and where noise is drawn fast."""
KEPT_NOISE_BITS = 45
"""The same for what is kept of noise in wide integers: it leaves room for large tables."""
SPARSE = 16
"""Entries for each that isn't 0, from which a basis is multiplied as a sparse matrix,"""
TALL = 500
"""if it has so many rows: floats are multiplied faster than fewer can be looked through."""
WIDE_MEASUREMENTS = 2**17
"""Measurements of one block in wide integers, some 20 µs each, where narrow ones would do;"""
MOST_WIDE_MEASUREMENTS = 2**20
"""where they would not, as for sums by many groups to which a row may add much. And a marginal"""
WIDE_CELLS = 2**24
"""may have so many cells."""


class Rounding:
    """Rounds the strategies of a plan.

    Args:
        bound: the largest magnitude of what one row adds to its cell, 1 for counts. Products of
            entries with it have the width that products of entries alone have for counts.
        spreads: how far apart the rows of a unit are: changes of answers are smaller then.
    """

    def __init__(self, bound: int = 1, spreads: Sequence[SpreadRows] = ()) -> None:
        self._bound, self._room = bound, (bound - 1).bit_length()
        self._spreads = tuple(spreads)

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
            ResourceLimitError: no width fits 64-bit integers, and there are too many for wide ones.
        """
        needs = [_needed(s.strategy) for _, s in solved]
        strategies = [s.strategy for _, s in solved]
        bits = max(1, min(_bits(cost), ENTRY_BITS - 1 - self._room))
        widths = _widths(strategies, needs, bits)
        dear = any(map(_is_dear, strategies, widths, needs))
        if sum(needs) > bits or dear:
            wide = self._wide(spaces, solved, needs, cost, WIDE_MEASUREMENTS)
            if wide is not None:
                return wide
        for total in range(bits, 0, -2):
            factors = _factors(solved, _widths(strategies, needs, total))
            if not solved:
                factors = (DenseFactor((), (), np.array([[1 << total]], dtype=np.int64)),)
            variance = self._variance(spaces, factors, cost)
            largest = math.prod(f.largest_entry for f in factors) * self._bound
            fits = largest < 1 << ENTRY_BITS
            if fits and variance < 1 << VARIANCE_BITS:
                return BlockStrategy(spaces, factors, Gaussian(variance))
        wide = self._wide(spaces, solved, needs, cost, MOST_WIDE_MEASUREMENTS)
        if wide is not None:
            return wide
        raise ResourceLimitError(
            f"The queries over {' x '.join(spaces[0])} have coefficients too large to be "
            "measured in 64-bit integers at this budget.",
            hint="use fewer attributes, smaller coefficients, or a larger budget.",
        )

    def _wide(
        self,
        spaces: tuple[tuple[str, ...], ...],
        solved: tuple[tuple[Component, Solution], ...],
        needs: list[int],
        cost: Fraction,
        most: int,
    ) -> BlockStrategy | None:
        """Round to wide integers; None if there are too many of them, or noise is too small."""
        if math.prod(math.prod(c.shape) for c, _ in solved) > WIDE_CELLS:
            return None
        free = [_is_free(s.strategy) for _, s in solved]
        widths = [
            min(WIDE_BITS - 1, need + PLENTY + 1) if able else need
            for need, able in zip(needs, free, strict=True)
        ]
        factors = _factors(solved, widths)
        if len(spaces) * math.prod(f.measurements for f in factors) > most:
            return None
        variance = self._variance(spaces, factors, cost)
        entry = (math.prod(f.largest_entry for f in factors) * self._bound).bit_length()
        spread = variance.bit_length() // 2
        shift = max(1, entry - ENTRY_BITS, spread - KEPT_NOISE_BITS)
        if not 4 ** (shift + 2) <= variance < 1 << WIDE_VARIANCE_BITS:
            return None
        return BlockStrategy(spaces, factors, CoarseGaussian(variance, shift))

    def relative_change(self, block: BlockStrategy) -> float:
        """Return the squared change of answers over what it is for rows that all agree."""
        largest = self._change_squared(block.spaces, block.factors)
        return float(largest / block.sensitivity_squared)

    def _variance(
        self,
        spaces: tuple[tuple[str, ...], ...],
        factors: tuple[IntegerFactor, ...],
        cost: Fraction,
    ) -> int:
        """Return the least noise variance that a cost allows."""
        return max(1, math.ceil(self._change_squared(spaces, factors) / cost))

    def _change_squared(
        self, spaces: tuple[tuple[str, ...], ...], factors: tuple[IntegerFactor, ...]
    ) -> Fraction:
        """Return the largest squared change of answers in one of some spaces."""
        return max(change_squared(factors, of) for of in by_limits(spaces, self._spreads))


def _factors(
    solved: tuple[tuple[Component, Solution], ...], widths: list[int]
) -> tuple[IntegerFactor, ...]:
    return tuple(_factor(c, s.strategy, w) for (c, s), w in zip(solved, widths, strict=True))


def _factor(component: Component, strategy: Triangular | Centered, bits: int) -> IntegerFactor:
    """Round a strategy for the axes of a component."""
    if isinstance(strategy, Centered):
        return _centered(component, bits)
    axes, shape = component.axes, component.shape
    return strategy.once(
        (bits, axes, shape), lambda: DenseFactor(axes, shape, _matrix(strategy, bits))
    )


def _matrix(strategy: Triangular, bits: int) -> NDArray[np.int64]:
    """Return the integers of a strategy, over all cells; nobody can change them."""

    def rounded() -> NDArray[np.int64]:
        rows = round_strategy(strategy, bits, _needed(strategy))
        matrix = np.ascontiguousarray(strategy.over_cells(rows))
        matrix.setflags(write=False)
        return matrix

    return strategy.once(bits, rounded)


def _needed(strategy: Triangular | Centered) -> int:
    """Return the width with which a strategy loses nothing, or hardly anything."""
    if isinstance(strategy, Centered):
        return strategy.cells.bit_length()
    return strategy.once("needed bits", lambda: _needed_bits(strategy))


def _bits(cost: Fraction) -> int:
    """Choose the width of a block's entries, from public numbers only.

    Wide entries keep rounding harmless, but at a small cost they would blow σ = Δ/√cost up.
    """
    shrink = max(0.0, -math.log2(float(cost)) / 2)
    return max(8, min(ENTRY_BITS - 1, int(NOISE_BITS - shrink)))


def _widths(strategies: list[Triangular | Centered], needs: list[int], total: int) -> list[int]:
    """Divide the width among the factors of a Kronecker product, by what they need.

    A centered identity is in integers, and so is a strategy of one row, which is its basis. They
    take only the bits that they have; the others, which do lose by rounding, share the rest.
    """
    sharing = [i for i, s in enumerate(strategies) if _is_free(s)] or list(range(len(needs)))[:1]
    more = (total - sum(needs)) // max(1, len(sharing))
    return [max(1, need + more) if i in sharing else need for i, need in enumerate(needs)]


def _centered(component: Component, bits: int) -> IntegerFactor:
    """Scale a centered identity to entries of `bits` bits; over two cells one row says it all."""
    (n,) = component.shape
    scale = 1 << max(0, bits - n.bit_length())
    if n == 2:
        row = np.array([[-scale, scale]], dtype=np.int64)
        return DenseFactor(component.axes, component.shape, row)
    return CenteredFactor(component.axes, component.shape, scale)


def _is_free(strategy: Triangular | Centered) -> bool:
    """Whether a strategy has coefficients to be rounded."""
    return isinstance(strategy, Triangular) and len(strategy.basis) > 1


def _is_dear(strategy: Triangular | Centered, bits: int, needed: int) -> bool:
    """Whether the rounding to so many bits needs a balance that takes seconds."""
    if not isinstance(strategy, Triangular) or not _is_free(strategy):
        return False
    return bits < needed + PLENTY and is_dear(strategy.basis)


def _needed_bits(strategy: Triangular) -> int:
    if not _is_free(strategy):
        return _largest(strategy.basis).bit_length()
    upper = strategy.coefficients
    inverse, _ = scipy.linalg.lapack.dtrtri(upper)
    largest = float(np.abs(_times(upper, strategy.basis.astype(np.float64))).max())
    return MARGIN + math.ceil(math.log2(largest * float(np.linalg.norm(inverse))) - AS_GOOD)


def _largest(basis: NDArray[np.int64]) -> int:
    """Return the largest magnitude of an entry."""
    return max(int(basis.max()), -int(basis.min()))


def round_strategy(strategy: Triangular, bits: int, needed: int | None = None) -> NDArray[np.int64]:
    """Scale coefficients @ basis to entries of `bits` bits and round the coefficients.

    Few bits are made the best of: rotated rows measure the same with smaller entries, the columns
    are balanced, and of several scales the one with the shortest columns is taken. A single row
    loses nothing, whatever the scale. Where a balance takes seconds, the bits that are needed will
    do: the longest column is a thousandth too long then. More bits than are of use are filled with
    zeros, so that integers don't depend on the last digits of floats (see `linalg.digits`).

    Args:
        strategy: the real one.
        bits: how wide entries may be.
        needed: how wide they need to be, if that is known.

    Returns:
        Integers over the cells of the strategy's basis.
    """
    if len(strategy.basis) == 1:
        return np.asarray(max(1, (1 << bits) // _largest(strategy.basis)) * strategy.basis)
    needed = _needed_bits(strategy) if needed is None else needed
    if bits >= needed + (0 if is_dear(strategy.basis) else PLENTY):
        zeros = max(0, bits - max(FINE, needed + SPARE))
        return _round_triangular(strategy, bits - zeros) << zeros
    matrices: list[tuple[float, int, NDArray[np.int64]]] = []
    for coefficients in (strategy.coefficients, _rotated(strategy.coefficients)):
        largest = float(np.abs(coefficients @ strategy.basis).max())
        for shrink in SHRINK if len(coefficients) <= SMALL else SHRINK[:1]:
            # With few digits all that a balance compares is exact, and so are ties.
            scaled = nearest(coefficients * (shrink * 2**GRID * (1 << bits) / largest)) / 2**GRID
            rounded = balance(scaled, nearest(scaled).astype(np.int64), strategy.basis)
            matrix = _product(rounded, strategy.basis)
            if int(np.abs(matrix).max()) <= 1 << bits and _has_full_rank(rounded):
                lengths = np.square(matrix.astype(np.float64)).sum(axis=0)
                excess = float(lengths.max() / np.square(scaled @ strategy.basis).sum(axis=0).max())
                matrices.append((excess, len(matrices), matrix))
                if excess <= 1 + ENOUGH:
                    return matrix
    if matrices:
        return min(matrices)[2]
    return _round_triangular(strategy, bits)


def _round_triangular(strategy: Triangular, bits: int) -> NDArray[np.int64]:
    """Round the coefficients to an upper triangular matrix with a diagonal of at least 1.

    It has full rank, so the row space of its product with the basis, which is returned, is exactly
    that of the basis.
    """
    scale = (1 << bits) / float(
        np.abs(_times(strategy.coefficients, strategy.basis.astype(np.float64))).max()
    )
    while True:
        coefficients = nearest(strategy.coefficients * scale).astype(np.int64)
        at = np.diag_indices(len(coefficients))
        coefficients[at] = np.maximum(coefficients[at], 1)
        matrix = _product(coefficients, strategy.basis)
        largest = int(np.abs(matrix).max())
        # Rounding may tip the largest entry over. The unit matrix is as small as it gets.
        if largest <= 1 << bits or not np.triu(coefficients, 1).any():
            return matrix
        scale *= 0.9


def _rotated(coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn the rows by an orthogonal matrix that makes the largest entries smaller."""
    from scipy.fft import dct  # slow to import, and needed where bits are few only

    r = len(coefficients)
    signs = np.where(np.arange(r) * 7919 % 31 % 2, 1.0, -1.0)
    turned: NDArray[np.float64] = dct(signs[:, None] * coefficients, norm="ortho", axis=0)
    return turned


def _has_full_rank(coefficients: NDArray[np.int64]) -> bool:
    """Whether the rank is full for certain: singular values in floats are off by far less."""
    values = np.linalg.svd(coefficients.astype(np.float64), compute_uv=False)
    return bool(values[-1] > 1e-6 * values[0])


def _product(coefficients: NDArray[np.int64], basis: NDArray[np.int64]) -> NDArray[np.int64]:
    """Multiply integer matrices, by the fast float product where all sums are exact in it."""
    bound = int(np.abs(coefficients).max()) * int(np.abs(basis).max()) * len(basis)
    if bound < 1 << 53:
        return _times(coefficients.astype(np.float64), basis.astype(np.float64)).astype(np.int64)
    return _times(coefficients, basis)


def _times(coefficients: NDArray[T], basis: NDArray[T]) -> NDArray[T]:
    """Multiply by a basis, most of whose vectors compare two cells of many."""
    short = len(basis) < TALL and basis.dtype == np.float64
    if short or basis.size < SPARSE * np.count_nonzero(basis):
        return np.asarray(coefficients @ basis)
    import scipy.sparse  # slow to import, and no plain count needs it

    sparse = scipy.sparse.csr_array(basis.T)
    return np.ascontiguousarray((sparse @ coefficients.T).T)
