"""Conditional ResidualPlanner: how the price of a round is shared among residual spaces.

The marginal over B is the sum of what is found in the residual spaces of all A ⊆ B. Measured with

    y_A = s·(⊗_{i∈A} (n_i I − J)) x_A + round(N(0, σ_A²)) ,   Δ_A² = s²·Π_{i∈A} n_i(n_i − 1) ,

the estimate is t_A = C y_A / (s·Π n_i), with C the projection onto the space. Noise of variance V
then gives t_A the variance V/s²·Π (n_i − 1)/n_i³ in each of its cells, and the marginal over B,
where it is spread over the other attributes, that of all cells together

    E_A / p_A ,   E_A = Π_{i∈A} (n_i − 1)² / Π_{i∈B} n_i ,   p_A = Δ_A²/V .

The precision p_A is what was paid for A so far, as μ² (of one record). Paying more so that
Σ E_A/p_A gets smallest is the problem of "AIM+GReM", 4.3; `shares.water_level` has the solution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np

from dpsql.measurement.distributions import VARIANCE_BITS, Gaussian
from dpsql.measurement.integer import BlockStrategy, CentredFactor, DenseFactor, IntegerFactor
from dpsql.planner.mechanisms.aim.candidates import Attributes, subsets
from dpsql.planner.shares.water_level import exact_shares, water_level

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
    shares = exact_shares(costs, [1] * len(spaces), price)
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
        CentredFactor((i,), (sizes[a],), s)
        for i, (a, s) in enumerate(zip(attributes, scales, strict=True))
    )


def unit(block: BlockStrategy) -> int:
    """Return what the measurements of a residual space count one record with: s·Π n_i."""
    return math.prod(
        f.scale * f.cells if isinstance(f, CentredFactor) else f.largest_entry
        for f in block.factors
    )


def _error(attributes: Attributes, sizes: Mapping[str, int]) -> float:
    """Return E_A, up to a factor that all spaces share."""
    return math.prod(float(sizes[a] - 1) ** 2 for a in attributes)
