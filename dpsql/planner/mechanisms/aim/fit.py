"""Answers that are not negative: what one expects given what was measured. Post-processing.

The linear estimates of `grem` say nothing about interactions that were not measured, that is, they
set them to zero as sums: most cells of a sparse marginal come out negative or far too large. So
each marginal B is answered by a table of its own, without negative cells:

- One attribute: the linear estimate, moved down by a constant and cut off at zero so that it sums
  to the total (the nearest such table).
- Otherwise, the expected table π is that of largest entropy with given marginals over the largest
  measured subsets of B: independence, conditional independence and so on. Iterative proportional
  fitting finds it.
- If the residual of B itself was measured, the linear estimate y differs from π by d, partly
  because π is wrong and partly by noise of variance v. One number is estimated from the cells: the
  variance τ² = max(0, mean d² − v) of the former. The table is then π + d·τ²/(τ² + v), cut off at
  zero and fitted to the same marginals (James and Stein, 1961: empirical Bayes).

Tables over different attributes nearly agree in what they have in common, not exactly. They are
biased, and how much is not known without the data. "AIM+GReM" answers by the linear estimates; on
the Adult census extract these tables have a fraction of their error, see
`tests/benchmarks/aim_adult.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array
from dpsql.linalg.subsets import subsets
from dpsql.planner.mechanisms.aim.estimates import LinearMarginals, Residual
from dpsql.planner.mechanisms.aim.plan import Attributes

Table = NDArray[np.float32]

SWEEPS = 10
"""Rounds of proportional fitting; one is enough unless marginals form a cycle."""
LARGEST_TOTAL = 2.0**48
CLOSE = 1e-4
"""Part of the total by which marginals may differ after fitting."""


class FittedMarginals:
    """Tables over attribute sets in domain order, made when asked for and kept until they change.

    They are in single precision: rounding is far below the noise, and they may be many.
    """

    def __init__(self, linear: LinearMarginals) -> None:
        self.linear = linear
        self._kept: dict[Attributes, Table] = {}

    def add(self, attributes: Attributes, measured: Residual) -> None:
        """Add a measurement of a residual space, and forget the tables that it changes."""
        self.linear.add(attributes, measured)
        inside = frozenset(attributes)
        self._kept = {b: table for b, table in self._kept.items() if not inside.issubset(b)}

    def table(self, attributes: Attributes) -> Table:
        """Return the table over some attributes, of shape (cells of the first one, …); read-only.

        It is the same object until a measurement changes it.
        """
        if attributes not in self._kept:
            made = self._make(attributes).astype(np.float32)
            made.setflags(write=False)
            self._kept[attributes] = made
        return self._kept[attributes]

    def _make(self, attributes: Attributes) -> NDArray[np.floating]:
        if not attributes:
            return np.asarray(np.clip(self.linear.marginal(()), 1.0, LARGEST_TOTAL))
        if len(attributes) == 1:
            return cut_off(self.linear.marginal(attributes), float(self.table(())))
        given = self._given(attributes)
        shape = [self.linear.sizes[a] for a in attributes]
        expected = self._fit(np.ones(shape, dtype=np.float32), attributes, given)
        if not self.linear.measured(attributes):
            return expected
        better = shrunk(
            self.linear.marginal(attributes), expected, self.linear.variance(attributes)
        )
        return self._fit(better, attributes, given)

    def _given(self, attributes: Attributes) -> list[Attributes]:
        """Return the largest proper subsets of which the residual was measured."""
        found: list[Attributes] = []
        for part in reversed(list(subsets(attributes))[:-1]):
            larger = (set(part) <= set(other) for other in found)
            if self.linear.measured(part) and not any(larger):
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
        table *= np.divide(wanted, now, out=np.zeros_like(now), where=now > 0).astype(np.float32)
        return float(np.abs(wanted - now).sum())


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
    return np.asarray(np.maximum(moved, 1e-9 * expected), dtype=np.float32)
