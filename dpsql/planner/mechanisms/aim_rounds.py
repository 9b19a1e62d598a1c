"""Run a data-adaptive plan: choose a marginal, measure it, estimate all, and again.

What is done with counts is done by `GuardedCounts`, which takes the price from the allowance of the
charge before it answers. All the rest works on what came out, so that no mistake in here can spend
more than was charged.

Of several tables there is one list of rounds: each chooses among the marginals of all tables, and
measures the one that was chosen. What they are worth to each other, `aim` says.

*What is paid for each round: budget annealing (AIM, 4.3).*
First, the total and all one-way marginals are measured, of each table. Then each round costs the
same, most of it for measuring and the rest for choosing what; at that price, some more than two
rounds for each of the workload's marginals could be paid, though no more than a thousand. If the
answers over the chosen marginal moved by no more than noise would, rounds of this price have
nothing left to find, and the next ones cost four times as much: half the noise. Of several tables
that says nothing of the others yet, and the next ones cost twice as much. When two more rounds
can't be paid, the last one takes all that is left.

The shares were chosen by measuring the error on the Adult census extract (14 attributes, all
three-way marginals, ε from 0.1 to 10); the error changes little around them. AIM gives the
one-way marginals a sixteenth of the budget, and AIM+GReM less: too little for the smallest budgets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.engines.base import Counted
from dpsql.errors import InternalError
from dpsql.linalg.arrays import Array
from dpsql.linalg.sets import subsets
from dpsql.measurement.distributions import VARIANCE_BITS, Gaussian
from dpsql.measurement.factors import CenteredFactor, DenseFactor, IntegerFactor
from dpsql.measurement.guarded import GRID, Allowance, Candidate, GuardedCounts
from dpsql.measurement.measure import ChargedPlan
from dpsql.measurement.narrow import Kept
from dpsql.measurement.randomness import RandomBits, fresh_bits
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.mechanisms.aim import AdaptivePlan, TableTargets
from dpsql.planner.reconstruction.cellwise import LITTLE, Attributes, EntropyTables, Table
from dpsql.planner.shares import exact_shares, water_level

# ── Estimates: what a round measures, and what all measurements say of every marginal ────────────
#
# *How the price of a round is shared among residual spaces* (conditional ResidualPlanner).
#
# The marginal over B is the sum of what is found in the residual spaces of all A ⊆ B. Measured with
#
#     y_A = s·(⊗_{i∈A} (n_i I − J)) x_A + round(N(0, σ_A²)) ,   Δ_A² = s²·Π_{i∈A} n_i(n_i − 1) ,
#
# the estimate is t_A = C y_A / (s·Π n_i), with C the projection onto the space. Noise of variance V
# then gives t_A the variance V/s²·Π (n_i − 1)/n_i³ in each of its cells, and the marginal over B,
# where it is spread over the other attributes, that of all cells together
#
#     E_A / p_A ,   E_A = Π_{i∈A} (n_i − 1)² / Π_{i∈B} n_i ,   p_A = Δ_A²/V .
#
# The precision p_A is what was paid for A so far, as μ² (of one record). Paying more so that
# Σ E_A/p_A gets smallest is the problem of "AIM+GReM", 4.3; `shares.allocation` has the solution.
#
# *GReM-MLE, updated lazily*: all marginals from noisy residuals, by weighted least squares.
# A residual space A that was measured several times has one estimate, the mean weighted by the
# precisions, and the precision that they sum to. Unmeasured ones have the estimate 0. The marginal
# over B is Σ_{A⊆B} t_A, spread evenly over the other attributes; these marginals agree with each
# other, and fit the measurements best among those that do (Mullins, Fuentes, Xiao, Kifer, Musco and
# Sheldon, "Efficient and private marginal reconstruction with local non-negativity", NeurIPS 2024).
#
# A new measurement changes t_A only. So a marginal that is kept changes by the spread of the
# difference if A ⊆ B, and not at all otherwise ("AIM+GReM", Proposition 4.2).
#
# All is done in axes: centering along an axis, and adding an array with axes of length one to a
# larger one, which take time in proportion to the cells (3).
#
# *Answers that are not negative*: what one expects given what was measured. Post-processing. They
# are the tables of `reconstruction.entropy`. That of one attribute is the linear estimate, moved
# down by a constant and cut off at zero so that it sums to the total (the nearest such table). If
# the residual of B itself was measured, the linear estimate y differs from the expected table π by
# d, partly because π is wrong and partly by noise of variance v. One number is estimated from the
# cells: the variance τ² = max(0, mean d² − v) of the former. The table is then π + d·τ²/(τ² + v),
# cut off at zero and fitted to the same marginals (James and Stein, 1961: empirical Bayes).
#
# "AIM+GReM" answers by the linear estimates; on the Adult census extract these tables have a
# fraction of their error, see `tests/benchmarks/aim_adult.py`.


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
    """The estimate of one residual space, and its precision."""

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
        marginal = self._residuals.get(attributes)
        return 0.0 if marginal is None else marginal.precision

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


FIRST_SHARE = Fraction(7, 20)
"""Share of the budget for the total and the one-way marginals."""
ROUNDS = 64
"""Besides two for each marginal, how many rounds of the first price can be paid."""
MOST_ROUNDS = 1000
CHOOSING_SHARE = Fraction(1, 10)
"""Share of a round's price that its choice takes."""
GROWTH, GROWTH_OF_SEVERAL = 4, 2
"""By what the price grows after a round that found nothing; of one table, and of several."""
_LARGEST_EPSILON = Fraction(2000)

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Price:
    """The most that one round costs, as μ²."""

    choosing: Fraction
    measuring: Fraction

    @classmethod
    def of(cls, price: Fraction) -> Price:
        """Split the price of a round."""
        choosing = price * CHOOSING_SHARE
        return cls(choosing, price - choosing)

    @property
    def epsilon(self) -> Fraction:
        """The parameter of the exponential mechanism, for at most that price.

        A range bounded by ε costs less than (π/8)·ε², see `measurement.exponential`.
        """
        epsilon = math.sqrt(8 / math.pi * self.choosing)
        return min(Fraction(epsilon) * (1 - Fraction(1, 10**9)), _LARGEST_EPSILON)


def first_price(left: Fraction, marginals: int) -> Fraction:
    """Return the price of the first round.

    Args:
        left: what is left for rounds, as μ².
        marginals: how many marginals are asked for that are inside no other.
    """
    return left / min(ROUNDS + 2 * marginals, MOST_ROUNDS)


def next_price(
    price: Fraction, left: Fraction, moved: float, noise: float, *, several: bool = False
) -> Fraction:
    """Return the price of the next round.

    Args:
        price: of the last one.
        left: what is left for further rounds, 0 after the last one.
        moved: how far the answers over the chosen marginal moved, as a sum over its cells.
        noise: how far noise alone would have moved them.
        several: whether the rounds are over several tables.
    """
    if moved <= noise:
        price = (GROWTH_OF_SEVERAL if several else GROWTH) * price
    return left if 2 * price > left else price


def expected_noise(cells: int, price: Fraction, contributions: int) -> float:
    """Return the mean of Σ|noise| if a marginal were measured cell by cell at a price.

    Counting all cells has the sensitivity k, so that σ = k/μ; the mean of |N(0, σ²)| is σ√(2/π).
    """
    return contributions * cells * math.sqrt(2 / math.pi / price)


def first_shares(weights: Mapping[Key, float], total: Fraction) -> dict[Key, Fraction]:
    """Share what is paid for the first measurements.

    The mean sum of |noise| over a marginal at a price c is proportional to w/√c, with w its number
    of cells times what the noise of a unit is worth there; c ∝ w^(2/3) makes the sum of all
    smallest.
    """
    parts = [w ** (2 / 3) for w in weights.values()]
    return dict(zip(weights, exact_shares(parts, [1] * len(parts), total), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The noisy integers of one residual space of a table."""

    attributes: Attributes
    variance: int
    """σ² of the noise; with the sizes of the domain it tells what was measured."""
    values: Kept
    measure: str | None = None
    """The axis of the counts of its table, if there are several tables."""


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """The record of one round; public."""

    chosen: Attributes | None
    """The marginal that was chosen; None in the first round, where nothing is."""
    epsilon: Fraction
    """The parameter of the choice."""
    measured: tuple[Measured, ...]
    cost: Fraction
    """The cost of the round as μ²; exact."""


Fitted = Mapping[str | None, FittedMarginals]
"""Axis of a table's counts → what is known of it; None if it is the only table."""


def nothing_known(plan: AdaptivePlan) -> Fitted:
    """Return what is known of each table before anything is measured."""
    return {t.measure: FittedMarginals(LinearMarginals(t.sizes)) for t in plan.tables}


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """The findings of a data-adaptive release. All from here on is post-processing.

    Estimates are biased, and have no variances.
    """

    plan: AdaptivePlan
    measured: tuple[tuple[Measured, ...], ...]
    """The measurements of each round; rounds that measured nothing are left out."""
    fitted: Fitted
    rounds: tuple[Round, ...] = ()
    """A record of each round; none where estimates were made again."""

    @property
    def spent(self) -> Fraction:
        """The amount that was spent, as μ²; at most the plan's cost."""
        return sum((r.cost for r in self.rounds), Fraction(0))

    @classmethod
    def of(cls, plan: AdaptivePlan, measured: Sequence[tuple[Measured, ...]]) -> Estimates:
        """Make estimates again, from what the rounds measured."""
        fitted = nothing_known(plan)
        for marginal in (marginal for some in measured for marginal in some):
            block = block_of(
                marginal.attributes, plan.table(marginal.measure).sizes, marginal.variance
            )
            fitted[marginal.measure].add(marginal.attributes, residual_of(block, marginal.values))
        return cls(plan, tuple(measured), fitted)

    def marginal(self, attributes: Sequence[str]) -> Array:
        """Return the estimated counts: not negative, and near what was measured.

        Args:
            attributes: inside one of the workload's attribute sets, in any order; of one of several
                tables, with the axis of its counts.

        Returns:
            An array of shape (cells of the first attribute, …).

        Raises:
            InternalError: the attributes are not inside one of the workload's sets.
        """
        measure, inside = self._inside(attributes)
        return self._ordered(attributes, self.fitted[measure].table(inside))

    def linear(self, attributes: Sequence[str]) -> Array:
        """Return the estimated counts of GReM-MLE: consistent, and linear in what was measured.

        Raises:
            InternalError: the attributes are not inside one of the workload's sets.
        """
        measure, inside = self._inside(attributes)
        return self._ordered(attributes, self.fitted[measure].linear.rebuilt(inside))

    def _inside(self, attributes: Sequence[str]) -> tuple[str | None, Attributes]:
        """Return of which table attributes are, and those of them that have several cells."""
        bounded = [name for name in attributes if name in self.plan.bounds]
        table = self.plan.table(bounded[0] if bounded else None)
        domain = self.plan.workload.domain
        if len(bounded) > 1 or not set(attributes) <= domain.keys():
            raise InternalError("a marginal was asked for that was not estimated")
        inside = tuple(name for name in domain if name in attributes and domain[name] > 1)
        if inside and inside not in table.candidates:
            raise InternalError("a marginal was asked for that was not estimated")
        return table.measure, inside

    def _ordered(self, attributes: Sequence[str], table: NDArray[np.floating]) -> Array:
        """Bring axes from domain order into the given one, and put those of one cell back."""
        domain = list(self.plan.workload.domain)
        ordered = sorted(attributes, key=domain.index)
        full = table.reshape([self.plan.workload.domain[a] for a in ordered])
        return full.transpose([ordered.index(a) for a in attributes]).astype(np.float64)


def run(
    charged: ChargedPlan,
    marginals: Counted,
    *,
    _bits: RandomBits | None = None,
) -> Estimates:
    """Spend a charge on estimates of all marginals of a workload.

    Args:
        charged: an `AdaptivePlan` that was paid for.
        marginals: for each of the plan's `marginals`, the exact counts as int64 of shape (cells of
            the first attribute, …).
        _bits: a source of random bits for tests. The default is keyed by the operating system
            for this call alone.

    Raises:
        InternalError: the plan is of another kind, was run before, or is for another number of
            rows of a unit; or a marginal is missing or has the wrong shape.
    """
    plan: object = charged.certified
    if not isinstance(plan, AdaptivePlan):
        raise InternalError("only an adaptive plan can be run")
    for name in plan.marginals:
        shape = tuple(plan.workload.domain[a] for a in name)
        if name not in marginals or marginals[name].shape != shape:
            raise InternalError("a marginal is missing or has the wrong shape")
    charged.use_up(marginals)
    bits = fresh_bits() if _bits is None else _bits
    allowance = Allowance(plan.privacy_cost)
    asked = (table.marginal(inside) for table in plan.tables for inside in table.targets.closure)
    return _Run(plan, GuardedCounts(marginals, asked, allowance, bits), allowance).estimates()


class _Run:
    """The rounds of one release."""

    def __init__(self, plan: AdaptivePlan, counts: GuardedCounts, allowance: Allowance) -> None:
        self._plan, self._tables = plan, plan.tables
        self._counts, self._allowance = counts, allowance
        self._fitted = nothing_known(plan)
        self._compared: dict[Attributes, object] = {}
        self._rounds: list[Round] = []
        self._left = plan.privacy_cost

    def estimates(self) -> Estimates:
        """Run all rounds, and return what they found; once."""
        total = self._plan.privacy_cost
        adaptive = any(len(r) > 1 for table in self._tables for r in table.candidates)
        self._begin(total * FIRST_SHARE if adaptive else total)
        price = first_price(self._left, len(self._plan.marginals))
        while adaptive and price > 0:
            price = self._round(price)
        measured = tuple(r.measured for r in self._rounds if r.measured)
        return Estimates(self._plan, measured, self._fitted, tuple(self._rounds))

    def _begin(self, price: Fraction) -> None:
        """Measure the total and the one-way marginals of each table."""
        self._left -= price
        weights = {
            (number, a): float(worth * table.change * table.targets.cells(a))
            for number, table in enumerate(self._tables)
            for a, worth in table.worth.items()
            if len(a) < 2
        }
        blocks = []
        for (number, a), share in first_shares(weights, price).items():
            table = self._tables[number]
            blocks.append((table, residual_block(a, table.sizes, share, table.change)))
        self._measure(None, Fraction(0), [(t, block) for t, block in blocks if block is not None])

    def _round(self, price: Fraction) -> Fraction:
        """Choose and measure one marginal; return the price of the next round."""
        self._left -= price
        parts = Price.of(price)
        table, chosen = self._choose(parts)
        fitted = self._fitted[table.measure]
        before, precision = fitted.table(chosen), fitted.linear.precision
        blocks = conditional_plan(chosen, table.sizes, precision, parts.measuring, table.change)
        marginal = table.marginal(chosen)
        self._measure(marginal, parts.epsilon, [(table, block) for block in blocks])
        moved = float(np.abs(fitted.table(chosen) - before).sum(dtype=np.float64))
        noise = expected_noise(before.size, parts.measuring, table.change)
        several = len(self._tables) > 1
        return next_price(price, self._left, moved, noise, several=several)

    def _choose(self, parts: Price) -> tuple[TableTargets, Attributes]:
        """Choose among all candidates the one whose measurement is worth most."""
        places, candidates = [], []
        for table in self._tables:
            for attributes, weight in table.candidates.items():
                marginal = table.marginal(attributes)
                self._compare(marginal, self._fitted[table.measure].table(attributes))
                cells = table.targets.cells(attributes)
                noise = expected_noise(cells, parts.measuring, table.change)
                candidates.append(Candidate(marginal, weight, round(weight * GRID * noise)))
                places.append((table, attributes))
        return places[self._counts.choose(candidates, parts.epsilon)]

    def _compare(self, marginal: Attributes, table: NDArray[np.floating]) -> None:
        """Have a table compared with the counts, unless that very table was."""
        if self._compared.get(marginal) is not table:
            shape = [self._plan.workload.domain[name] for name in marginal]
            self._counts.compare(marginal, table.reshape(shape))
            self._compared[marginal] = table

    def _measure(
        self,
        chosen: Attributes | None,
        epsilon: Fraction,
        blocks: Sequence[tuple[TableTargets, BlockStrategy]],
    ) -> None:
        measured = []
        for table, block in blocks:
            (space,) = block.spaces
            shape = [factor.measurements for factor in block.factors]
            values = self._counts.measure(table.block(block)).reshape(shape)
            self._fitted[table.measure].add(space, residual_of(block, values))
            measured.append(Measured(space, block.law.width, values, table.measure))
        before = sum((r.cost for r in self._rounds), Fraction(0))
        cost = self._allowance.spent - before
        self._rounds.append(Round(chosen, epsilon, tuple(measured), cost))
