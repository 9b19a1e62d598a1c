"""Sums over the subsets and the supersets of attribute sets.

Over up to 15 attributes all sets are there, numbered by their bits, and sums over all supersets
take one pass for each attribute (Yates's algorithm). Over more, only listed sets are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain, combinations
from typing import Protocol

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

Array = NDArray[np.float64]

MAX_BITS = 15
MAX_PAIRS = 2**23
"""Pairs of a listed set and a listed superset of it."""


class Subsets(Protocol):
    """Sets of the attributes 0..d−1, in a fixed order."""

    @property
    def sets(self) -> Sequence[tuple[int, ...]]:
        """All of them, each ascending."""

    def index(self, attributes: Collection[int]) -> int:
        """Return the number of a set."""

    def above(self, values: Array) -> Array:
        """Return, for each set, the sum of the values of its supersets and of its own."""

    def below(self, values: Array) -> Array:
        """Return, for each set, the sum of the values of its subsets and of its own."""


class AllSubsets:
    """All 2^d sets."""

    def __init__(self, count: int) -> None:
        self._count = count
        numbers = range(1 << count)
        self.sets = [tuple(i for i in range(count) if n >> i & 1) for n in numbers]

    def index(self, attributes: Collection[int]) -> int:
        """Set the bits."""
        return sum(1 << i for i in attributes)

    def above(self, values: Array) -> Array:
        """Add what has a bit to what hasn't, bit by bit."""
        return self._passes(values, 0, 1)

    def below(self, values: Array) -> Array:
        """Add what hasn't a bit to what has, bit by bit."""
        return self._passes(values, 1, 0)

    def _passes(self, values: Array, into: int, of: int) -> Array:
        result = np.array(values)
        for i in range(self._count):
            pairs = result.reshape(-1, 2, 1 << i)
            pairs[:, into] += pairs[:, of]
        return result


class ListedSubsets:
    """Listed sets, of which pairs are kept."""

    def __init__(self, sets: Sequence[tuple[int, ...]]) -> None:
        self.sets = list(sets)
        self._numbers = {frozenset(s): i for i, s in enumerate(self.sets)}
        lower, upper = [], []
        for at, larger in enumerate(self.sets):
            for smaller in parts(larger):
                number = self._numbers.get(frozenset(smaller))
                if number is not None:
                    lower.append(number)
                    upper.append(at)
        shape = (len(self.sets),) * 2
        pairs = scipy.sparse.coo_array((np.ones(len(lower)), (lower, upper)), shape)
        self._above, self._below = pairs.tocsr(), pairs.T.tocsr()

    def index(self, attributes: Collection[int]) -> int:
        """Look it up."""
        return self._numbers[frozenset(attributes)]

    def above(self, values: Array) -> Array:
        """Multiply."""
        return np.asarray(self._above @ values)

    def below(self, values: Array) -> Array:
        """Multiply."""
        return np.asarray(self._below @ values)


def closure(sets: Collection[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the sets and all subsets of them, small ones first."""
    found = set(chain.from_iterable(map(parts, sets)))
    return sorted(found, key=lambda s: (len(s), s))


def parts(attributes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return all subsets of a set."""
    sizes = range(len(attributes) + 1)
    return list(chain.from_iterable(combinations(attributes, size) for size in sizes))


def subsets(count: int, wanted: Collection[tuple[int, ...]]) -> Subsets | None:
    """Return all sets if there are few attributes, else the closure of those wanted.

    None if they are too many.
    """
    if count <= MAX_BITS:
        return AllSubsets(count)
    if sum(1 << len(s) for s in wanted) > MAX_PAIRS:
        return None
    listed = closure(wanted)
    if sum(1 << len(s) for s in listed) > MAX_PAIRS:
        return None
    return ListedSubsets(listed)
