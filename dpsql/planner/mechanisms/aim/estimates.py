"""What a round measures, and what all measurements together say of every marginal.

*How the price of a round is shared among residual spaces* (conditional ResidualPlanner).

The marginal over B is the sum of what is found in the residual spaces of all A ⊆ B. Measured with

    y_A = s·(⊗_{i∈A} (n_i I − J)) x_A + round(N(0, σ_A²)) ,   Δ_A² = s²·Π_{i∈A} n_i(n_i − 1) ,

the estimate is t_A = C y_A / (s·Π n_i), with C the projection onto the space. Noise of variance V
then gives t_A the variance V/s²·Π (n_i − 1)/n_i³ in each of its cells, and the marginal over B,
where it is spread over the other attributes, that of all cells together

    E_A / p_A ,   E_A = Π_{i∈A} (n_i − 1)² / Π_{i∈B} n_i ,   p_A = Δ_A²/V .

The precision p_A is what was paid for A so far, as μ² (of one record). Paying more so that
Σ E_A/p_A gets smallest is the problem of "AIM+GReM", 4.3; `shares.allocation` has the solution.

*GReM-MLE, updated lazily*: all marginals from noisy residuals, by weighted least squares.
A residual space A that was measured several times has one estimate, the mean weighted by the
precisions, and the precision that they sum to. Unmeasured ones have the estimate 0. The marginal
over B is Σ_{A⊆B} t_A, spread evenly over the other attributes; these marginals agree with each
other, and fit the measurements best among those that do (Mullins, Fuentes, Xiao, Kifer, Musco and
Sheldon, "Efficient and private marginal reconstruction with local non-negativity", NeurIPS 2024).

A new measurement changes t_A only. So a marginal that is kept changes by the spread of the
difference if A ⊆ B, and not at all otherwise ("AIM+GReM", Proposition 4.2).

All is done in axes: centering along an axis, and adding an array with axes of length one to a
larger one, which take time in proportion to the cells (3).

*Answers that are not negative*: what one expects given what was measured. Post-processing.
They are the tables of `reconstruction.entropy`. That of one attribute is the linear estimate, moved
down by a constant and cut off at zero so that it sums to the total (the nearest such table). If the
residual of B itself was measured, the linear estimate y differs from the expected table π by d,
partly because π is wrong and partly by noise of variance v. One number is estimated from the cells:
the variance τ² = max(0, mean d² − v) of the former. The table is then π + d·τ²/(τ² + v), cut off at
zero and fitted to the same marginals (James and Stein, 1961: empirical Bayes).

"AIM+GReM" answers by the linear estimates; on the Adult census extract these tables have a fraction
of their error, see `tests/benchmarks/aim_adult.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.sets import subsets
from dpsql.measurement.distributions import VARIANCE_BITS, Gaussian
from dpsql.measurement.factors import CenteredFactor, DenseFactor, IntegerFactor
from dpsql.measurement.narrow import Kept
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.reconstruction.entropy import LITTLE, Attributes, EntropyTables, Table
from dpsql.planner.shares.allocation import exact_shares, water_level

NEGLIGIBLE = 1e-3
"""A space with a smaller part of the price is not measured: the others then get more."""
_FINE = 1 << 20


def conditional_plan(
    attributes: Attributes,
    sizes: Mapping[str, int],
    precision: Callable[[Attributes], float],
    price: Fraction,
    contributions: int,
) -> tuple[BlockStrategy, ...]:
    """Choose what to measure so that a marginal is known best.

    Args:
        attributes: of the marginal, in domain order.
        sizes: attribute → its number of cells.
        precision: p_A, 0 where nothing was measured.
        price: as μ².
        contributions: k, the most records of one unit that are counted.

    Returns:
        One block for each residual space; together they cost at most the price.
    """
    spaces = list(subsets(attributes))
    while True:
        errors = np.array([_error(space, sizes) for space in spaces])
        known = np.array([precision(space) for space in spaces])
        counts = np.ones(len(spaces))
        costs = water_level(errors, known, counts, float(price) / contributions**2)
        kept = costs > NEGLIGIBLE * costs.sum()
        if kept.all():
            break
        spaces = [space for space, keep in zip(spaces, kept, strict=True) if keep]
    shares = exact_shares(costs.tolist(), [1] * len(spaces), price)
    blocks = (
        residual_block(space, sizes, share, contributions)
        for space, share in zip(spaces, shares, strict=True)
    )
    return tuple(block for block in blocks if block is not None)


def residual_block(
    attributes: Attributes, sizes: Mapping[str, int], price: Fraction, contributions: int
) -> BlockStrategy | None:
    """Measure one residual space for at most a price; None if that would say nothing."""
    finest = block_of(attributes, sizes, 1)
    variance = math.ceil(finest.sensitivity_squared * contributions**2 / price)
    return None if variance >= 1 << VARIANCE_BITS else block_of(attributes, sizes, variance)


def block_of(attributes: Attributes, sizes: Mapping[str, int], variance: int) -> BlockStrategy:
    """Return the measurements of a residual space with noise round(N(0, variance))."""
    return BlockStrategy((attributes,), residual_factors(attributes, sizes), Gaussian(variance))


def residual_factors(attributes: Attributes, sizes: Mapping[str, int]) -> tuple[IntegerFactor, ...]:
    """Return s·⊗ (n_i I − J) over the attributes of a residual space.

    With the whole number s, noise has enough whole numbers to choose from in small spaces too.
    """
    scale = max(1, _FINE // math.prod(sizes[a] for a in attributes))
    if not attributes:
        return (DenseFactor((), (), np.array([[scale]], dtype=np.int64)),)
    scales = (scale, *(1 for _ in attributes[1:]))
    return tuple(
        CenteredFactor((i,), (sizes[a],), s)
        for i, (a, s) in enumerate(zip(attributes, scales, strict=True))
    )


def unit(block: BlockStrategy) -> int:
    """Return what the measurements of a residual space count one record with: s·Π n_i."""
    if not block.shape:
        return block.largest_product
    return math.prod(f.scale for f in block.factors) * math.prod(block.shape)


def _error(attributes: Attributes, sizes: Mapping[str, int]) -> float:
    """Return E_A, up to a factor that all spaces share."""
    return math.prod(float(sizes[a] - 1) ** 2 for a in attributes)


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """What is known of one residual space."""

    estimate: Array
    """t_A over the cells of its attributes: sums to zero along each axis."""
    precision: float
    """p_A = Δ_A²/V, what it was measured for as μ² of one record."""

    def joined(self, other: Residual) -> Residual:
        """Return the mean of two estimates, weighted by their precisions."""
        precision = self.precision + other.precision
        change = (other.estimate - self.estimate) * (other.precision / precision)
        return Residual(self.estimate + change, precision)


def residual_of(block: BlockStrategy, measured: Kept) -> Residual:
    """Return the estimate that measurements of `residual_block` give.

    (s(nI − J))⁺ = (I − J/n)/(sn) along each axis.
    """
    estimate = measured.reshape(block.shape).astype(np.float64) / unit(block)
    for axis in range(estimate.ndim):
        estimate = estimate - estimate.mean(axis=axis, keepdims=True)
    return Residual(estimate, block.sensitivity_squared / block.law.variance)


class LinearMarginals:
    """All marginals of a table, as far as its residuals were measured.

    Args:
        sizes: attribute → its number of cells, at least 2, in domain order.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self._residuals: dict[Attributes, Residual] = {}
        self._kept: dict[Attributes, Array] = {}

    def measured(self, attributes: Attributes) -> bool:
        """Whether something is known of a residual space."""
        return attributes in self._residuals

    def precision(self, attributes: Attributes) -> float:
        """Return p_A; 0 if nothing is known."""
        found = self._residuals.get(attributes)
        return 0.0 if found is None else found.precision

    def add(self, attributes: Attributes, measured: Residual) -> None:
        """Add a measurement; marginals that are kept change where they contain its space."""
        before = self._residuals.get(attributes)
        after = measured if before is None else before.joined(measured)
        self._residuals[attributes] = after
        change = after.estimate if before is None else after.estimate - before.estimate
        inside = frozenset(attributes)
        for names, marginal in self._kept.items():
            if inside.issubset(names):
                marginal += self._spread(change, attributes, names)

    def marginal(self, attributes: Attributes) -> Array:
        """Return the estimate over attributes in domain order, and keep it up to date.

        Returns:
            An array of shape (cells of the first attribute, …), which later measurements change.
        """
        if attributes not in self._kept:
            self._kept[attributes] = self.rebuilt(attributes)
        return self._kept[attributes]

    def rebuilt(self, attributes: Attributes) -> Array:
        """Return the estimate, put together from all residuals.

        Axis by axis: along one axis, what is known of a set without that attribute is spread and
        added to what is known of the set with it. That takes about as many additions of the
        marginal's size as it has axes, where each residual on its own would take one.
        """
        parts = {
            frozenset(part): self._along(self._residuals[part].estimate, part, attributes)
            for part in subsets(attributes)
            if part in self._residuals
        }
        for name in attributes:
            merged: dict[frozenset[str], Array] = {}
            for part, array in parts.items():
                spread = array if name in part else array / self.sizes[name]
                rest = part - {name}
                merged[rest] = merged[rest] + spread if rest in merged else spread
            parts = merged
        total = np.zeros([self.sizes[a] for a in attributes])
        for array in parts.values():
            total += array
        return total

    def variance(self, attributes: Attributes) -> float:
        """Return the variance of each cell that the noise of the measured residuals gives."""
        return math.fsum(
            math.prod((1 - 1 / self.sizes[a]) ** 2 for a in part)
            / self.precision(part)
            / math.prod(self.sizes[a] for a in attributes if a not in part) ** 2
            for part in subsets(attributes)
            if part in self._residuals
        )

    def _spread(self, residual: Array, inside: Attributes, attributes: Attributes) -> Array:
        """Spread a residual evenly over further axes, of length one: adding broadcasts them."""
        others = math.prod(self.sizes[a] for a in attributes if a not in inside)
        return self._along(residual, inside, attributes) / others

    def _along(self, residual: Array, inside: Attributes, attributes: Attributes) -> Array:
        """Give a residual axes of length one for further attributes."""
        return residual.reshape([self.sizes[a] if a in inside else 1 for a in attributes])


LARGEST_TOTAL = 2.0**53
"""Tables of more rows are taken for such."""


class FittedMarginals(EntropyTables):
    """Tables over attribute sets in domain order, kept until measurements change them.

    They are in single precision, because they may be many: rounding, by 6e-8 of a cell, and what
    fitting leaves, up to `CLOSE`, are far below the noise in tables of some millions of rows. In
    larger ones they are most of the error, which for this mechanism isn't known beforehand.
    """

    def __init__(self, linear: LinearMarginals) -> None:
        super().__init__(linear.sizes, np.float32)
        self.linear = linear

    def add(self, attributes: Attributes, measured: Residual) -> None:
        """Add a measurement of a residual space, and forget the tables that it changes."""
        self.linear.add(attributes, measured)
        self.forget(attributes)

    def total(self) -> float:
        """Return the total, which is never 0."""
        return float(np.clip(self.linear.marginal(()), 1.0, LARGEST_TOTAL))

    def single(self, attributes: Attributes) -> Array:
        """Return the nearest table to the linear estimate."""
        return cut_off(self.linear.marginal(attributes), float(self.table(())))

    def known(self, attributes: Attributes) -> bool:
        """Whether the residual space was measured."""
        return self.linear.measured(attributes)

    def moved(self, attributes: Attributes, expected: Table) -> Table:
        """Move an expected table by one share of its distance, for all cells."""
        noise = self.linear.variance(attributes)
        return shrunk(self.linear.marginal(attributes), expected, noise)


def cut_off(values: Array, total: float) -> Array:
    """Return the nearest table without negative cells that sums to a total > 0.

    It is max(0, values − c) for some c (Held, Wolfe and Crowder, 1974).
    """
    descending = np.sort(values, axis=None)[::-1]
    levels = (np.cumsum(descending) - total) / np.arange(1, values.size + 1)
    level = levels[np.flatnonzero(descending > levels)[-1]]
    return np.asarray(np.maximum(values - level, 0.0))


def shrunk(measured: Array, expected: Table, noise: float) -> Table:
    """Move an expected table towards a noisy one, as far as the noise allows; cut off at zero.

    Where nothing would be left a little of what was expected is kept, so that marginals can still
    be fitted.
    """
    difference = measured - expected
    between = max(0.0, float(np.square(difference).mean()) - noise)
    moved = expected + difference * (between / (between + noise))
    return np.asarray(np.maximum(moved, LITTLE * expected), dtype=np.float32)
