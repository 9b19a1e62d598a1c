"""Tables without negative cells, from what any measurements say, with a prior for each cell.

They are those of largest entropy (`EntropyTables`), each with the best unbiased estimates y of its
cells, and their variances v_c.

*One attribute.* Among all tables x >= 0 of the total, that whose running totals are nearest to
those of y (isotonic regression). The running totals of such tables are a closed convex set, and
these are the projection on it. So if the true ones are in it (that is, if the total is right, or no
running total is above it), their sum of squared errors is at most that of the unbiased ones,
whatever the noise was. Cutting cells off at zero would take a constant from many small cells, and
running totals would add it up.

*Several.* The expected table π differs from the truth where columns depend on each other, by more
where more is expected: a cell of 0.01 rows can't be off by 50. So cell c has the prior N(π_c, t_c)
with t_c = a·π_c^g, and y_c ~ N(π_c, t_c + v_c) before anything is known. The two numbers a and g
are those under which y is likeliest,

    (a, g) = argmin Σ_c [ln(t_c + v_c) + (y_c − π_c)²/(t_c + v_c)] ,

over a grid (empirical Bayes). Given y, cell c has the mean m_c = π_c + (y_c − π_c)·t_c/(t_c + v_c)
and the variance s_c = t_c·v_c/(t_c + v_c), and of all tables x >= 0 of the total, the likeliest is

    x_c = max(0, m_c − λ s_c)

with the λ for which it has the total (the condition for the least Σ (x_c − m_c)²/s_c). That is
fitted to the same marginals as π. Noise is taken as Gaussian here, which Laplace noise is not.

*What agrees.* Every table agrees with those of its single attributes, up to rounding in floats,
and so in its total: proportional fitting ends near its goal only, and what is left is moved from
where there is too much to where there is too little (Altschuler, Weed and Rigollet, "Near-linear
time approximation algorithms for optimal transport via Sinkhorn iteration", NeurIPS 2017,
Algorithm 2, for any number of axes). Tables that share two or more attributes agree in these up to
about `CLOSE` of the total, or less well, where no table has all of the marginals.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dpsql.linalg.arrays import Array
from dpsql.linalg.sets import subsets
from dpsql.planner.reconstruction.base import Reconstruction
from dpsql.workload import Block, Family, Identity
from dpsql.workload.workload import UnitTable

# ── Tables of largest entropy with given marginals, moved towards noisy ones ─────────────────────
#
# Linear estimates say nothing about interactions that were not measured, that is, they set them to
# zero as sums: most cells of a sparse marginal come out negative or far too large. So each marginal
# B gets a table of its own, without negative cells:
#
# - One attribute: a table that is near what was measured and has the total; in which way is left to
#   those who make tables.
# - Otherwise, the expected table π is that of largest entropy with the tables over the largest
#   subsets of B of which something is known: independence, conditional independence and so on.
#   Iterative proportional fitting finds it.
# - If B itself is known, the linear estimate y differs from π, partly because π is wrong and partly
#   by noise. The table is moved from π towards y, cut off at zero, and fitted to the same
#   marginals.
#
# Tables over different attributes nearly agree in what they have in common, not exactly. They are
# biased, and how much is not known without the data. Post-processing.


Attributes = tuple[str, ...]
Table = NDArray[Any]
"""In single or double precision."""

SWEEPS = 10
"""Rounds of proportional fitting; one is enough unless marginals form a cycle."""
CLOSE = 1e-4
"""Part of the total by which marginals may differ after fitting."""
LITTLE = 1e-9
"""Share of its expected count that a cell keeps at least, so that marginals can still be fitted."""


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
        maximal: list[Attributes] = []
        for part in reversed(list(subsets(attributes))[:-1]):
            larger = (set(part) <= set(other) for other in maximal)
            if self.known(part) and not any(larger):
                maximal.append(part)
        return maximal

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


POWERS = (0.5, 1.0, 1.5, 2.0)
"""Those of what is expected to which the variance of a prior may be proportional."""
LOG_SCALES = tuple(np.linspace(-8, 6, 29).tolist())
"""Logarithms of by what it may be."""
LOOKED_AT = 1 << 18
"""Cells of a table by which both are chosen."""
LEAST = 1e-12
"""Rows that a cell is expected to have at least, in the variance of its prior."""
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True, eq=False)
class Unbiased:
    """The unbiased estimates of the cells of one table, from measurements."""

    sizes: Mapping[str, int]
    """Attribute → number of cells."""
    domain: Mapping[str, int]
    """The same, of all that is asked; of several tables, in the names that they have there."""
    reconstruction: Reconstruction
    marginal: Callable[[Attributes], Array]
    """Makes the estimates over some attributes of the domain."""
    of: UnitTable | None = None
    """The table, if it is one of several."""

    def determined(self, attributes: Attributes) -> bool:
        """Whether all cells of a marginal follow from the measurements."""
        return not self.reconstruction.missing(self._cells(attributes), self.domain)

    def estimates(self, attributes: Attributes) -> Array:
        """Return the estimates of all cells, of shape (cells of the first attribute, …)."""
        names = self._cells(attributes).names
        return self.marginal(names).reshape([self.sizes[a] for a in attributes])

    def variances(self, attributes: Attributes) -> Array:
        """Return the variances of these estimates."""
        variances = self.reconstruction.variances(self._cells(attributes))
        return variances.reshape([self.sizes[a] for a in attributes])

    def _cells(self, attributes: Attributes) -> Family:
        """Return the queries for all cells of a marginal."""
        blocks = ((a, self.sizes[a]) for a in attributes)
        cells = tuple(Block((a,), (n,), Identity().bind(n)) for a, n in blocks)
        family = Family("cells", cells, 1.0)
        return family if self.of is None else self.of.family(family)


class CellwiseTables(EntropyTables):
    """Tables of what is known without bias.

    Args:
        unbiased: what that is.
        asked: the attribute sets, in domain order, of which tables will be asked. Only what these
            are made of is kept.
    """

    def __init__(self, unbiased: Unbiased, asked: Collection[Attributes]) -> None:
        super().__init__(unbiased.sizes)
        self._unbiased = unbiased
        self._asked = [frozenset(attributes) for attributes in asked]
        self._determined: dict[Attributes, bool] = {}

    def keeps(self, attributes: Attributes) -> bool:
        """Whether it is inside of another one that is asked, or small."""
        names = frozenset(attributes)
        return len(names) < 2 or any(names < other for other in self._asked)

    def total(self) -> float:
        """Return the best estimate, or 0; 0 if nothing tells it."""
        return max(0.0, float(self._unbiased.estimates(()))) if self.known(()) else 0.0

    def single(self, attributes: Attributes) -> Array:
        """Return the table whose running totals are nearest; an even one if nothing is known."""
        total = float(self.table(()))
        if not self.known(attributes):
            cells = self.sizes[attributes[0]]
            return np.full(cells, total / cells)
        return nearest_running(self._unbiased.estimates(attributes), total)

    def known(self, attributes: Attributes) -> bool:
        """Whether all cells follow from the measurements."""
        if attributes not in self._determined:
            self._determined[attributes] = self._unbiased.determined(attributes)
        return self._determined[attributes]

    def moved(self, attributes: Attributes, expected: Table) -> Table:
        """Move each cell by its own share of the distance."""
        estimates = self._unbiased.estimates(attributes)
        return shrunk_by_cell(estimates, expected, self._unbiased.variances(attributes))

    def _make(self, attributes: Attributes) -> Table:
        made = super()._make(attributes)
        if len(attributes) > 1:
            agree(made, [self.table((a,)) for a in attributes])
        return made


def nearest_running(values: Array, total: float) -> Array:
    """Return numbers >= 0 of a total whose running totals are nearest to those of some values."""
    from scipy.optimize import isotonic_regression  # half a second to import, and rarely needed

    if len(values) == 1:
        return np.array([total])
    running = np.clip(isotonic_regression(np.cumsum(values)[:-1]).x, 0.0, total)
    return np.diff(running, prepend=0.0, append=total)


def shrunk_by_cell(estimates: Array, expected: Table, variances: Array) -> Table:
    """Move an expected table towards noisy estimates, cell by cell, and keep its total."""
    prior = prior_variances(estimates, expected, variances)
    share = prior / (prior + variances)
    moved = expected + (estimates - expected) * share
    counts = likeliest(moved, share * variances, float(expected.sum()))
    return np.asarray(np.maximum(counts, LITTLE * expected))


def prior_variances(estimates: Array, expected: Table, variances: Array) -> Array:
    """Return how far, squared, cells may be from what is expected, going by all of them."""
    scale, power = _prior(estimates.ravel(), expected.ravel(), variances.ravel())
    return np.asarray(scale * np.maximum(expected, LEAST) ** power)


def likeliest(means: Array, variances: Array, total: float) -> Array:
    """Return the likeliest numbers >= 0 of a total, where each is Gaussian: max(0, m − λ s)."""
    m, s = means.ravel(), np.maximum(variances.ravel(), np.finfo(np.float64).tiny)
    order = np.argsort(-m / s)
    levels = (np.cumsum(m[order]) - total) / np.cumsum(s[order])
    above = np.flatnonzero(m[order] > levels * s[order])
    if not len(above):  # the total is 0
        return np.zeros(means.shape)
    return np.asarray(np.maximum(means - levels[above[-1]] * variances, 0.0))


def _prior(estimates: Array, expected: Table, variances: Array) -> tuple[float, float]:
    """Return a and g under which the estimates are likeliest; of many cells, some are looked at.

    These lie at multiples of the golden ratio, which keep no step with any axis.
    """
    if len(estimates) > LOOKED_AT:
        places = np.arange(LOOKED_AT) * _GOLDEN % 1.0 * len(estimates)
        chosen = places.astype(np.int64)
        estimates, expected, variances = estimates[chosen], expected[chosen], variances[chosen]
    squares, expected = np.square(estimates - expected), np.maximum(expected, LEAST)
    best = math.inf, 1.0, 1.0
    for power in POWERS:
        shape = expected**power
        for log in LOG_SCALES:
            spread = math.exp(log) * shape + variances
            worth = float(np.log(spread).sum() + (squares / spread).sum())
            best = min(best, (worth, math.exp(log), power))
    return best[1], best[2]


def agree(table: Array, margins: Sequence[Array]) -> None:
    """Give a table >= 0 the sums along all of its axes but one, in place, for each of the axes.

    Where a slice has too much, its cells are made smaller; then all lack something, and as much
    along each axis, for the margins have one total. That is spread over the product of what slices
    lack.
    """
    for axis, margin in enumerate(margins):
        now = _margin(table, axis)
        table *= _along(
            np.minimum(1.0, np.divide(margin, now, out=np.ones_like(now), where=now > 0)),
            axis,
            table.ndim,
        )
    lacking = [
        np.maximum(margin - _margin(table, axis), 0.0) for axis, margin in enumerate(margins)
    ]
    mass = float(lacking[0].sum())
    if mass > 0:
        parts = (_along(part / mass, axis, table.ndim) for axis, part in enumerate(lacking))
        table += mass * reduce(np.multiply, parts)


def _margin(table: Array, axis: int) -> Array:
    return np.asarray(table.sum(axis=tuple(a for a in range(table.ndim) if a != axis)))


def _along(values: Array, axis: int, axes: int) -> Array:
    return values.reshape([-1 if a == axis else 1 for a in range(axes)])
