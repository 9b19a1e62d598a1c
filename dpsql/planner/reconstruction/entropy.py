"""Tables without negative cells: of largest entropy with given marginals, moved towards noisy ones.

Linear estimates say nothing about interactions that were not measured, that is, they set them to
zero as sums: most cells of a sparse marginal come out negative or far too large. So each marginal B
gets a table of its own, without negative cells:

- One attribute: a table that is near what was measured and has the total; in which way is left to
  those who make tables.
- Otherwise, the expected table π is that of largest entropy with the tables over the largest
  subsets of B of which something is known: independence, conditional independence and so on.
  Iterative proportional fitting finds it.
- If B itself is known, the linear estimate y differs from π, partly because π is wrong and partly
  by noise. The table is moved from π towards y, cut off at zero, and fitted to the same marginals.

Tables over different attributes nearly agree in what they have in common, not exactly. They are
biased, and how much is not known without the data. Post-processing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dpsql.linalg.arrays import Array
from dpsql.linalg.sets import subsets

Attributes = tuple[str, ...]
Table = NDArray[Any]
"""In single or double precision."""

SWEEPS = 10
"""Rounds of proportional fitting; one is enough unless marginals form a cycle."""
CLOSE = 1e-4
"""Part of the total by which marginals may differ after fitting."""
LITTLE = 1e-9
"""Of what was expected, is left of a cell in any case, so that marginals can still be fitted."""


class EntropyTables(ABC):
    """Tables over attribute sets in domain order, made when asked for, and kept.

    Args:
        sizes: attribute → its number of cells, in domain order.
        dtype: the precision of what is kept.
    """

    def __init__(self, sizes: Mapping[str, int], dtype: DTypeLike = np.float64) -> None:
        self.sizes = sizes
        self._dtype = dtype
        self._kept: dict[Attributes, Table] = {}

    @abstractmethod
    def total(self) -> float:
        """Return the total of all tables."""

    @abstractmethod
    def single(self, attributes: Attributes) -> Array:
        """Return the table of one attribute, of that total."""

    @abstractmethod
    def known(self, attributes: Attributes) -> bool:
        """Whether something was measured that only the table of these attributes can show."""

    @abstractmethod
    def moved(self, attributes: Attributes, expected: Table) -> Table:
        """Move an expected table towards what was measured; only where that is known."""

    def table(self, attributes: Attributes) -> Table:
        """Return the table over some attributes, of shape (cells of the first one, …); read-only.

        It is the same object as long as it is kept.
        """
        if attributes not in self._kept:
            made = self._make(attributes).astype(self._dtype, copy=False)
            made.setflags(write=False)
            if not self.keeps(attributes):
                return made
            self._kept[attributes] = made
        return self._kept[attributes]

    def keeps(self, attributes: Attributes) -> bool:
        """Whether a table is kept, as others are made with it."""
        return True

    def forget(self, attributes: Attributes) -> None:
        """Forget the tables that have all of some attributes."""
        inside = frozenset(attributes)
        self._kept = {b: table for b, table in self._kept.items() if not inside.issubset(b)}

    def _make(self, attributes: Attributes) -> Table:
        if not attributes:
            return np.asarray(self.total())
        if len(attributes) == 1:
            return self.single(attributes)
        given = self.given(attributes)
        shape = [self.sizes[a] for a in attributes]
        expected = self._fit(np.ones(shape, dtype=self._dtype), attributes, given)
        if not self.known(attributes):
            return expected
        better = self.moved(attributes, expected).astype(self._dtype, copy=False)
        return self._fit(better, attributes, given)

    def given(self, attributes: Attributes) -> list[Attributes]:
        """Return the largest proper subsets of which something is known."""
        found: list[Attributes] = []
        for part in reversed(list(subsets(attributes))[:-1]):
            larger = (set(part) <= set(other) for other in found)
            if self.known(part) and not any(larger):
                found.append(part)
        return found

    def _fit(self, table: Table, attributes: Attributes, given: Sequence[Attributes]) -> Table:
        """Scale a table until it has the given marginals, in place."""
        for _ in range(SWEEPS):
            farthest = max((self._scale(table, attributes, part) for part in given), default=0.0)
            if farthest <= CLOSE * float(self.table(())):
                break
        return table

    def _scale(self, table: Table, attributes: Attributes, part: Attributes) -> float:
        """Give a table one of its marginals; return how far it was from that before."""
        others = tuple(i for i, a in enumerate(attributes) if a not in part)
        now = table.sum(axis=others, dtype=np.float64, keepdims=True)
        wanted = self.table(part).reshape(now.shape).astype(np.float64)
        ratio = np.divide(wanted, now, out=np.zeros_like(now), where=now > 0)
        table *= ratio.astype(self._dtype, copy=False)
        return float(np.abs(wanted - now).sum())
