"""Few digits: what follows from floats, made the same on every processor.

BLAS and LAPACK add up in an order that depends on the processor, and exponentials differ as well.
The last digits of whatever they give are noise: some 1e-15 relatively, and more where matrices are
nearly singular. An optimum that is flat, a method that looks at differences, or a choice between
things that are equally good make something visible of it. Three rules keep it out of plans:

- *Searches take steps of few digits.* Two processors at one point compute steps that differ by
  noise, round them alike (`few`), and are at one point again: so noise is not handed on, whatever
  the method would make of it. Nothing is lost, since a step is only a guess: one that is off by
  2^−11 of its length gains as much, and what it leads to is evaluated anew.
- *What is kept is rounded first*: integers of strategies, references, shares of a budget. Their
  grids are coarse beside noise, and fine beside what they cost.
- *Of what is equally good the first is taken* (`least`, `first_largest`), not what noise prefers.

Noise takes a number to the other side of a boundary between two grid points with about the
probability noise/grid, 1e-9 for a step. Numbers that lie there for a reason, as halves do, would be
taken across each time. So boundaries are a little off the middle (`nearest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array

T = TypeVar("T")

AT_ONCE = 16
"""Directions that are taken from all columns at once."""
STALE = 1e-4
"""Share of the largest squared length, below which differences of squares are computed anew."""

BITS = 10
"""Bits of a step's largest entry."""
LEAST_BITS = 3
"""Bits of the largest entry, where others count for more."""
OWN = 20
"""Bits of a number that counts by itself: a weight, or a share."""
AS_GOOD = 1e-9
"""Differences up to this, relatively, are noise."""
ASIDE = 2.0**-9 / 3
"""By how much of a grid's width boundaries are nearer to zero than the middle."""


def nearest(values: Array) -> Array:
    """Round to whole numbers; halves, and what is nearly a half, away from zero."""
    return np.asarray(np.copysign(np.floor(np.abs(values) + (0.5 + ASIDE)), values))


def few(values: Array, bits: int = BITS) -> Array:
    """Round all to multiples of one power of two, such that the largest has so many bits."""
    largest = float(np.abs(values).max(initial=0.0))
    if not 0 < largest < np.inf:
        return values
    grid = np.ldexp(1.0, _exponents(largest) - bits)
    return np.asarray(nearest(values / grid) * grid)


def few_of_weighted(values: Array, weights: Array) -> Array:
    """Round values of which each counts by a weight: the larger it is, the finer.

    What counts for nothing may be far larger than the others, and has a few bits at any rate.
    """
    largest = float(np.abs(values).max(initial=0.0))
    counted = float(np.abs(values * weights).max(initial=0.0))
    if not (counted > 0 and largest < np.inf):
        return values
    exponents = _exponents(counted) - BITS - _exponents(weights)
    grid = np.ldexp(1.0, np.minimum(exponents, _exponents(largest) - LEAST_BITS))
    return np.asarray(nearest(values / grid) * grid)


def _exponents(sizes: Array | float) -> NDArray[np.int32]:
    """Return e with sizes of about 2^e at most."""
    return np.asarray(np.frexp(np.multiply(sizes, 1 + ASIDE))[1])


def significant(values: Array | float) -> Array:
    """Round each to `OWN` bits of its own."""
    mantissas, exponents = np.frexp(values)
    return np.asarray(np.ldexp(nearest(np.ldexp(mantissas, OWN)), exponents - OWN))


def least(found: Iterable[T], key: Callable[[T], float]) -> T:
    """Return the first that is as good as the best; what is measured is not negative."""
    listed = [(key(each), each) for each in found]
    limit = min(value for value, _ in listed) * (1 + AS_GOOD)
    return next(each for value, each in listed if value <= limit)


def first_largest(values: Array) -> int:
    """Return the first place of the largest value, none of which are negative."""
    return int((values >= values.max() * (1 - AS_GOOD)).argmax())


def far_apart(table: Array, count: int, negligible: float) -> NDArray[np.intp]:
    """Choose columns that are far apart, one after the other: each is the longest of what is left.

    That is a QR factorization with pivots, in which the first of equally long columns is taken.
    What a direction takes is subtracted from the squared lengths at once, and from the columns with
    the next ones: a product of matrices is far quicker than many of vectors.

    Args:
        table: the columns.
        count: how many are chosen at most.
        negligible: length, relative to the longest, up to which what is left is rounding.
    """
    left, chosen, longest, most = table.copy(), list[int](), 0.0, min(count, *table.shape)
    while len(chosen) < most:
        squares = np.square(left).sum(axis=0)
        fresh, directions = float(squares.max()), np.zeros((0, len(table)))
        while len(directions) < AT_ONCE and len(chosen) < most:
            at = first_largest(squares)
            if len(directions) and squares[at] < STALE * fresh:
                break
            column = left[:, at] - (directions @ left[:, at]) @ directions
            length = float(np.sqrt(column @ column))
            longest = longest or length
            if length <= negligible * longest:
                return np.array(chosen, dtype=np.intp)
            chosen.append(at)
            directions = np.vstack([directions, column / length])
            squares = np.maximum(squares - np.square(directions[-1] @ left), 0.0)
            squares[at] = 0.0
        left = left - directions.T @ (directions @ left)
        left[:, chosen] = 0.0
    return np.array(chosen, dtype=np.intp)
