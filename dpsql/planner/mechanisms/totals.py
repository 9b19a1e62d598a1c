"""Totals of several tables compared: what costs nothing more, and makes them more exact.

Each table is planned by itself, and C_r is what its measurements cost. As no unit has less than
no rows, differences between totals may be measured besides for nothing, with the weights w_ij of
`measurement.differences`, as long as Σ_j w_ij <= C_i for each table. Whatever they are, no
combination of answers has more variance for them: so the plan is never worse than without. Of R
totals alone, with equal shares, w = C/(R − 1) makes the variance of each

    R²/(2R − 1)  in place of R,  at the cost 1:

1.5 times less for two tables, 1.67 for three, 1.9 for ten; that of their sum is R² as before, and
that of the difference of two 2/(2R − 1)·R(R − 1) in place of 2R. (To make the sum of all variances
the least, and that of the sum of all tables larger, would be 1.5, 1.67, 2.3: see `units`.) Where
tables are grouped as well, C_r is for all that is measured of them, so that differences may be much
more exact than totals are; but then totals are a small part of the error.

*The weights.* More is never worse, so all tables get as much as they may, as evenly as can be:
w_ij = u_i u_j with rows that sum to C_i, as far as there are such u (they are found by scaling all
rows again and again), and what is left is filled up pair by pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.measurement.differences import Difference, times_of
from dpsql.measurement.distributions import VARIANCE_BITS, Gaussian

LARGEST = 1 << 30
"""How often the rows of a table are taken in a difference, at most, so that its noise is fine."""
COARSER = 16
"""By so much less often, if the noise would be too wide for an int64."""
MOST_TABLES = 16
"""Of which each is compared with each other."""
ROUNDS = 200
NEGLIGIBLE = 1e-6
"""Relative weight from which a difference is measured."""
SLACK = Fraction(10**9 - 1, 10**9)
"""Of a weight in floats, so that sums of them are below what they may be."""


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """One of several tables, of which the total is known with some noise."""

    name: str
    """The axis of its counts."""
    rows: int
    """How many rows of one unit count at most."""
    cost: Fraction
    """What all that is measured of its rows costs."""


def differences_of(tables: Sequence[ComparedTable]) -> tuple[Difference, ...]:
    """Choose the differences of totals to measure, for which nothing has to be paid."""
    found: list[Difference] = []
    for start in range(0, len(tables), MOST_TABLES):
        found += _differences(tables[start : start + MOST_TABLES])
    return tuple(found)


def _differences(tables: Sequence[ComparedTable]) -> Iterator[Difference]:
    costs = np.array([float(table.cost) for table in tables])
    weights = weights_of(costs)
    for i, one in enumerate(tables):
        for j, other in enumerate(tables[:i]):
            if weights[i, j] > NEGLIGIBLE * min(costs[i], costs[j]):
                found = _difference(other, one, Fraction(float(weights[i, j])) * SLACK)
                if found is not None:
                    yield found


def _difference(one: ComparedTable, other: ComparedTable, weight: Fraction) -> Difference | None:
    """Return a difference of at most some weight; None if none fits 64-bit integers."""
    rows, largest = (one.rows, other.rows), LARGEST
    while (times := times_of(rows, largest)) is not None:
        change = times[0] * rows[0]
        squared = max(1, math.ceil(change**2 / weight))
        if squared < 1 << VARIANCE_BITS:
            return Difference((one.name, other.name), times, rows, Gaussian(squared))
        largest //= COARSER
    return None


def weights_of(costs: Array) -> Array:
    """Return weights w_ij >= 0, of which those of table i sum to its cost at most."""
    count = len(costs)
    apart = 1 - np.eye(count)
    if count < 2 or not (costs > 0).all():
        return np.zeros((count, count))
    weights = apart * np.multiply.outer(costs, costs) / costs.sum()
    for _ in range(ROUNDS):
        free = np.sqrt(costs / weights.sum(axis=1))
        weights = weights * np.multiply.outer(free, free)
    free = costs / weights.sum(axis=1)
    weights = weights * np.minimum(np.minimum.outer(free, free), 1)
    for i in range(count):
        for j in range(i):
            left = costs - weights.sum(axis=1)
            more = max(0.0, min(left[i], left[j]))
            weights[i, j] += more
            weights[j, i] += more
    return np.asarray(weights)
