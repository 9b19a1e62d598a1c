"""Quantiles, read off noisy cumulative counts.

For values v_0 < v_1 < …, F(v) is the noisy count of rows up to v, and N that of all rows. The k-th
smallest value (from 0) is the first v with F(v) >= k + 1. The discrete p-quantile is the first v
with F(v) >= pN; the continuous one lies between the values number ⌊(N−1)p⌋ and the next one.

The interval holds every v for which F(v) = pN can't be excluded: |F(v) − pN| is within so many
standard deviations of F(v) − pN, which is itself a linear query (Woodruff, "Confidence intervals
for medians and other position measures", JASA 1952). Beyond the noise it says nothing about a
larger population that the rows may be a sample of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.release.order import in_group_order
from dpsql.sql.compiled import StatisticColumn
from dpsql.workload import Family
from dpsql.workload.queries import DenseQueries

Array = NDArray[np.float64]
Axes = Sequence[Sequence[int]]
Compute = Callable[[Family], Array]

SLACK = 0.25
"""Counts are whole: a step is taken at up to a quarter of a row before it, and less if the noise
is smaller."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantiles:
    """A quantile for every group, and its interval."""

    values: pl.Series
    lower: pl.Series
    upper: pl.Series


def quantiles(
    column: StatisticColumn,
    family: Family,
    shape: tuple[int, ...],
    answers: Compute,
    variances: Compute,
    reach: float,
) -> Quantiles:
    """Read a quantile off the cumulative counts of every group.

    Args:
        column: the quantile.
        family: its cumulative counts.
        shape: the number of groups along each axis.
        answers: computes the answers of a family.
        variances: computes their variances.
        reach: how many standard deviations the interval reaches to each side.
    """
    quantile, values = column.quantile, column.values
    if quantile is None or values is None:
        raise InternalError("the column is no quantile")
    grid = (*shape, values.len())
    counts = in_group_order(answers(family), column.axes, grid).reshape(-1, values.len())
    around = _around(family, column.axes, values.len(), quantile.probability)
    noise = in_group_order(variances(around), column.axes, grid).reshape(-1, values.len())
    spread = np.sqrt(noise)
    totals = counts[:, -1:]
    slack = np.minimum(4 * spread, SLACK)
    if quantile.continuous:
        numbers = values.cast(pl.Float64).to_numpy()
        return _between(counts, totals[:, 0], quantile.probability, numbers, slack, reach * spread)
    away = counts - quantile.probability * totals
    places = (_first(away + shift >= -slack) for shift in (0.0, reach * spread, -reach * spread))
    return Quantiles(*(values.gather(place) for place in places))


def _between(
    counts: Array, totals: Array, probability: float, values: Array, slack: Array, away: Array
) -> Quantiles:
    """Interpolate between two neighbouring order statistics.

    The bounds are those of the lower one less, and of the upper one plus, so much noise.
    """
    at = np.maximum((totals - 1) * probability, 0.0)
    below = np.floor(at)
    first, second = below[:, None] + 1 - slack, below[:, None] + 2 - slack
    share = at - below
    # Where the place is a value's own, but for noise, the next one is of no account.
    second = np.where(share[:, None] < slack, first, second)
    left, right = values[_first(counts >= first)], values[_first(counts >= second)]
    between = left + share * (np.maximum(right, left) - left)
    lower, upper = values[_first(counts + away >= first)], values[_first(counts - away >= second)]
    return Quantiles(pl.Series(between), pl.Series(lower), pl.Series(np.maximum(upper, between)))


def _first(reached: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the first place along the last axis that is reached; the last one if none is."""
    found = np.argmax(reached, axis=-1)
    return np.asarray(np.where(reached.any(axis=-1), found, reached.shape[-1] - 1))


def _around(family: Family, axes: Axes, values: int, probability: float) -> Family:
    """Return the queries F(v) − pN in place of F(v)."""
    extra = max(axis for block in axes for axis in block)
    at = next(i for i, block in enumerate(axes) if extra in block)
    block = family.blocks[at]
    matrix = block.queries.matrix.reshape(-1, values, block.queries.cells)
    moved = matrix - probability * matrix[:, -1:]
    queries = DenseQueries(moved.reshape(block.queries.rows, -1))
    blocks = list(family.blocks)
    blocks[at] = replace(block, queries=queries)
    return replace(family, blocks=tuple(blocks))
