"""Quantiles, read off noisy cumulative counts.

For values v_0 < v_1 < …, F(v) is the noisy count of rows up to v, and N that of all rows. The k-th
smallest value (from 0) is the first v with F(v) >= k + 1. The discrete p-quantile is the first v
with F(v) >= pN; the continuous one lies between the values number ⌊(N−1)p⌋ and the next one.

An interval holds every value that a test of "this is the quantile" doesn't exclude (Woodruff,
"Confidence intervals for medians and other position measures", JASA 1952). Let d(v) = F(v) − pN,
which is a linear query, d⁻(v) its value just before v, and c so many standard deviations of each.
Counts are whole and p = a/b, so that both are multiples of 1/b. A value v is the discrete quantile
if and only if d⁻(v) <= −1/b and d(v) >= 0. So v is excluded if the noisy d(v) < −c, or the noisy
d⁻(v) > c − 1/b. Each of the two happens to the true quantile with at most half of the probability
that is allowed for, so it is excluded with no more than all of it. That other values are tested
too takes nothing away from that. But values that are not excluded need not be adjacent, and the
interval reaches from the first to the last of them, so that it covers somewhat more often than is
asked for where the noise is large.

The least value is the discrete quantile for p = 0: the first v with F(v) >= 1, so that d(v) is
F(v) − 1 there, of which the same tests hold. But it is not where noise first reaches one row, which
among many values without rows it soon does by itself. It is read off from the rows outwards: the
last v before which the noisy count is at most 2σ(v), as the largest value is the first v after
which it is. Without noise that is the same. With noise, the rows beyond what is found are a few σ,
and seldom is it beyond all rows: at the true value, noise exceeds 2σ in 2 % of cases. As no test
excludes that a single row lies further out, the interval reaches to that end of the domain.

For the continuous quantile, (N−1)p = k + r with a whole k and r from 0 to 1 − 1/b. At its lower
neighbor, which value number k is, d >= 1/b − p; at its upper one, where r > 0 and it counts,
d⁻ <= 1 − p − 1/b. The lower bound excludes by the first, the upper one by the second.

Where stored values count as the nearest of a grid, or are known by ranges, the value that is read
off is that of a cell. They are in the same order as their cells, so the interval reaches from the
least to the largest for which its first and its last cell stand.

Beyond the noise all this says nothing about a larger population that the rows may be a sample of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.matrices import Dense
from dpsql.release.marginals import in_group_order
from dpsql.sql.binding.core import Quantile
from dpsql.sql.compiled import StatisticColumn
from dpsql.workload import Family

Axes = Sequence[Sequence[int]]
Compute = Callable[[Family], Array]

OUTERMOST = 2.0
"""Standard deviations of counts beyond the least and the largest value that are taken for none."""
SLACK = 0.25
"""Counts are whole: a step is taken at up to a quarter of a row before it, and less if the noise
is smaller."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantiles:
    """A quantile for every group, and its interval."""

    values: pl.Series
    lower: pl.Series
    upper: pl.Series
    rows: pl.Series
    """Of how many rows each is, by their noisy number."""


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """The counts of rows up to each value, for every group, and their noise.

    Both are of shape (groups, values).
    """

    counts: Array
    """F(v); the last one is N."""
    spread: Array
    """The standard deviations of F(v) − pN."""


def distribution(
    column: StatisticColumn,
    family: Family,
    shape: tuple[int, ...],
    answers: Compute,
    variances: Compute,
) -> Distribution:
    """Return the cumulative counts of every group, and their noise.

    Args:
        column: the quantile.
        family: its cumulative counts.
        shape: the number of groups along each axis.
        answers: computes the answers of a family.
        variances: computes their variances.
    """
    quantile, values = _parts(column)
    grid = (*shape, values.len())
    counts = in_group_order(answers(family), column.axes, grid).reshape(-1, values.len())
    around = _around(family, column.axes, values.len(), quantile.probability)
    noise = in_group_order(variances(around), column.axes, grid).reshape(-1, values.len())
    return Distribution(counts, np.sqrt(noise))


def quantiles(column: StatisticColumn, found: Distribution, reach: float) -> Quantiles:
    """Read a quantile off the cumulative counts of every group.

    Args:
        column: the quantile.
        found: its cumulative counts.
        reach: how many standard deviations the interval reaches to each side.
    """
    quantile, values = _parts(column)
    low, high = column.ends or (values, values)
    counts, spread = found.counts, found.spread
    rows = pl.Series(counts[:, -1])
    slack = np.minimum(4 * spread, SLACK)
    least = quantile.probability == 0 and not quantile.continuous
    away = counts - quantile.probability * counts[:, -1:] - least
    margin = reach * spread + slack
    step = 1 / Fraction(str(quantile.probability)).denominator
    if not quantile.continuous:
        none = OUTERMOST * spread + slack
        if least:
            first = _last(counts <= none)
        else:
            first = _first(away >= -(none if quantile.probability == 1 else slack))
        lower, upper = _first(away >= -margin), _last(away <= margin - step)
        ends = np.minimum(lower, first), np.maximum(upper, first)
        return Quantiles(values.gather(first), low.gather(ends[0]), high.gather(ends[1]), rows)
    numbers = values.cast(pl.Float64).to_numpy()
    between = _between(counts, quantile.probability, numbers, slack)
    lows, highs = (of.cast(pl.Float64).to_numpy() for of in (low, high))
    below = lows[_first(away >= step - quantile.probability - margin)]
    above = highs[_last(away <= 1 - quantile.probability - step + margin)]
    # Noisy counts aren't whole, so what is read off them may be up to one row away.
    bounds = np.minimum(below, between), np.maximum(above, between)
    return Quantiles(pl.Series(between), pl.Series(bounds[0]), pl.Series(bounds[1]), rows)


def _parts(column: StatisticColumn) -> tuple[Quantile, pl.Series]:
    if column.quantile is None or column.values is None:
        raise InternalError("the column is not a quantile")
    return column.quantile, column.values


def _between(counts: Array, probability: float, values: Array, slack: Array) -> Array:
    """Interpolate between two adjacent order statistics."""
    at = np.maximum((counts[:, -1] - 1) * probability, 0.0)
    below = np.floor(at)
    first, second = below[:, None] + 1 - slack, below[:, None] + 2 - slack
    share = at - below
    # Where the place is a value's own, but for noise, the next one is of no account.
    second = np.where(share[:, None] < slack, first, second)
    left, right = values[_first(counts >= first)], values[_first(counts >= second)]
    return np.asarray(left + share * (np.maximum(right, left) - left))


def _first(reached: NDArray[np.bool_]) -> Ints:
    """Return the first place along the last axis that is reached; the last one if none is."""
    found = np.argmax(reached, axis=-1)
    return np.asarray(np.where(reached.any(axis=-1), found, reached.shape[-1] - 1))


def _last(before: NDArray[np.bool_]) -> Ints:
    """Return the last place before which it isn't too much; the first has nothing before it."""
    first = np.ones((*before.shape[:-1], 1), dtype=np.bool_)
    held = np.concatenate([first, before[..., :-1]], axis=-1)
    return np.asarray(before.shape[-1] - 1 - np.argmax(held[..., ::-1], axis=-1))


def _around(family: Family, axes: Axes, values: int, probability: float) -> Family:
    """Return the queries F(v) − pN in place of F(v)."""
    extra = max(axis for block in axes for axis in block)
    at = next(i for i, block in enumerate(axes) if extra in block)
    block = family.blocks[at]
    matrix = block.queries.matrix.reshape(-1, values, block.queries.cells)
    moved = matrix - probability * matrix[:, -1:]
    queries = Dense(moved.reshape(block.queries.rows, -1))
    blocks = list(family.blocks)
    blocks[at] = replace(block, queries=queries)
    return replace(family, blocks=tuple(blocks))
