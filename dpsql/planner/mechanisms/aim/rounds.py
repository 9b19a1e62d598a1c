"""Run a data-adaptive plan: choose a marginal, measure it, estimate all, and again.

What is done with counts is done by `GuardedCounts`, which takes the price from the allowance of the
charge before it answers. All the rest works on what came out, so that no mistake in here can spend
more than was charged.

*What is paid for each round: budget annealing (AIM, 4.3).*
First, the total and all one-way marginals are measured. Then each round costs the same, most of
it for measuring and the rest for choosing what; at that price, some more than two rounds for each
of the workload's marginals could be paid, though no more than a thousand. If the answers over the
chosen marginal moved by no more than noise would, rounds of this price have nothing left to find,
and the next ones cost four times as much: half the noise. When two more rounds can't be paid, the
last one takes all that is left.

The shares were chosen by measuring the error on the Adult census extract (14 attributes, all
three-way marginals, ε from 0.1 to 10); the error changes little around them. AIM gives the
one-way marginals a sixteenth of the budget, and AIM+GReM less: too little for the smallest budgets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.engines.base import Counted, Counts
from dpsql.errors import InternalError
from dpsql.linalg.arrays import Array, Ints
from dpsql.measurement.allowance import Allowance
from dpsql.measurement.guarded import GRID, Candidate, GuardedCounts
from dpsql.measurement.measure import ChargedPlan
from dpsql.measurement.randomness import RandomBits, fresh_bits
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.mechanisms.aim.estimates import (
    FittedMarginals,
    LinearMarginals,
    block_of,
    conditional_plan,
    residual_block,
    residual_of,
)
from dpsql.planner.mechanisms.aim.plan import AdaptivePlan, Attributes, Targets
from dpsql.planner.shares.allocation import exact_shares

FIRST_SHARE = Fraction(7, 20)
"""Of the budget, for the total and the one-way marginals."""
ROUNDS = 64
"""Besides two for each marginal, how many rounds of the first price can be paid."""
MOST_ROUNDS = 1000
CHOOSING_SHARE = Fraction(1, 10)
"""Of a round's price."""
GROWTH = 4
_LARGEST_EPSILON = Fraction(2000)


@dataclass(frozen=True, slots=True)
class Price:
    """What one round costs, as μ²; at most."""

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


def next_price(price: Fraction, left: Fraction, moved: float, noise: float) -> Fraction:
    """Return the price of the next round.

    Args:
        price: of the last one.
        left: what is left for further rounds, 0 after the last one.
        moved: how far the answers over the chosen marginal moved, as a sum over its cells.
        noise: how far noise alone would have moved them.
    """
    if moved <= noise:
        price = GROWTH * price
    return left if 2 * price > left else price


def expected_noise(cells: int, price: Fraction, contributions: int) -> float:
    """Return the mean of Σ|noise| if a marginal were measured cell by cell at a price.

    Counting all cells has the sensitivity k, so that σ = k/μ; the mean of |N(0, σ²)| is σ√(2/π).
    """
    return contributions * cells * math.sqrt(2 / math.pi / price)


def first_shares(
    weights: Mapping[Attributes, float], total: Fraction
) -> dict[Attributes, Fraction]:
    """Share what is paid for the first measurements.

    The mean sum of |noise| over a marginal at a price c is proportional to w/√c, with w its number
    of cells times the weight of what is asked about it; c ∝ w^(2/3) makes the sum of all smallest.
    """
    parts = [w ** (2 / 3) for w in weights.values()]
    return dict(zip(weights, exact_shares(parts, [1] * len(parts), total), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The noisy integers of one residual space."""

    attributes: Attributes
    variance: int
    """σ² of the noise; with the sizes of the domain it tells what was measured."""
    values: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """What one round did; public."""

    chosen: Attributes | None
    """The marginal that was chosen; None in the first round, where nothing is."""
    epsilon: Fraction
    """The parameter of the choice."""
    measured: tuple[Measured, ...]
    cost: Fraction
    """What the round spent, as μ²; exact."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """What a data-adaptive release found. All from here on is post-processing.

    Estimates are biased, and have no variances.
    """

    plan: AdaptivePlan
    measured: tuple[tuple[Measured, ...], ...]
    """What each round measured; without rounds that measured nothing."""
    fitted: FittedMarginals
    rounds: tuple[Round, ...] = ()
    """What each round did; none where estimates were made again."""

    @property
    def spent(self) -> Fraction:
        """What was spent, as μ²; at most the plan's cost."""
        return sum((r.cost for r in self.rounds), Fraction(0))

    @classmethod
    def of(cls, plan: AdaptivePlan, measured: Sequence[tuple[Measured, ...]]) -> Estimates:
        """Make estimates again, from what the rounds measured."""
        fitted = FittedMarginals(LinearMarginals(plan.targets.sizes))
        for one in (one for some in measured for one in some):
            block = block_of(one.attributes, plan.targets.sizes, one.variance)
            fitted.add(one.attributes, residual_of(block, one.values))
        return cls(plan, tuple(measured), fitted)

    def marginal(self, attributes: Sequence[str]) -> Array:
        """Return the estimated counts: not negative, and near what was measured.

        Args:
            attributes: inside one of the workload's attribute sets, in any order.

        Returns:
            An array of shape (cells of the first attribute, …).

        Raises:
            InternalError: the attributes are not inside one of the workload's sets.
        """
        return self._ordered(attributes, self.fitted.table(self._inside(attributes)))

    def linear(self, attributes: Sequence[str]) -> Array:
        """Return the estimated counts of GReM-MLE: consistent, and linear in what was measured.

        Raises:
            InternalError: the attributes are not inside one of the workload's sets.
        """
        inside = self._inside(attributes)
        return self._ordered(attributes, self.fitted.linear.rebuilt(inside))

    def _inside(self, attributes: Sequence[str]) -> Attributes:
        targets = self.plan.targets
        inside = tuple(name for name in targets.sizes if name in attributes)
        known = set(attributes) <= set(self.plan.workload.domain)
        if not known or (inside and inside not in targets.candidates):
            raise InternalError("a marginal was asked for that was not estimated")
        return inside

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
    charged.use_up(marginals)
    bits = fresh_bits() if _bits is None else _bits
    allowance = Allowance(plan.privacy_cost)
    counts = _inside(plan.targets, marginals)
    guarded = GuardedCounts(counts, allowance, plan.contributions, bits)
    return _Run(plan, guarded, allowance).estimates()


class _Run:
    """The rounds of one release."""

    def __init__(self, plan: AdaptivePlan, counts: GuardedCounts, allowance: Allowance) -> None:
        self._plan, self._targets = plan, plan.targets
        self._counts, self._allowance = counts, allowance
        self._fitted = FittedMarginals(LinearMarginals(plan.targets.sizes))
        self._compared: dict[Attributes, object] = {}
        self._rounds: list[Round] = []
        self._left = plan.privacy_cost

    def estimates(self) -> Estimates:
        """Run all rounds, and return what they found; once."""
        total = self._plan.privacy_cost
        adaptive = any(len(r) > 1 for r in self._targets.candidates)
        self._begin(total * FIRST_SHARE if adaptive else total)
        price = first_price(self._left, len(self._targets.largest))
        while adaptive and price > 0:
            price = self._round(price)
        measured = tuple(r.measured for r in self._rounds if r.measured)
        return Estimates(self._plan, measured, self._fitted, tuple(self._rounds))

    def _begin(self, price: Fraction) -> None:
        """Measure the total and the one-way marginals."""
        self._left -= price
        single = {a: w for a, w in self._targets.candidates.items() if len(a) == 1}
        weights: dict[Attributes, float] = {(): max(single.values(), default=1)}
        weights.update({a: w * self._targets.cells(a) for a, w in single.items()})
        shares = first_shares(weights, price)
        sizes, k = self._targets.sizes, self._plan.contributions
        blocks = [residual_block(a, sizes, share, k) for a, share in shares.items()]
        self._measure(None, Fraction(0), [b for b in blocks if b is not None])

    def _round(self, price: Fraction) -> Fraction:
        """Choose and measure one marginal; return the price of the next round."""
        self._left -= price
        parts, k = Price.of(price), self._plan.contributions
        chosen = self._choose(parts)
        before = self._fitted.table(chosen)
        precision = self._fitted.linear.precision
        blocks = conditional_plan(chosen, self._targets.sizes, precision, parts.measuring, k)
        self._measure(chosen, parts.epsilon, blocks)
        moved = float(np.abs(self._fitted.table(chosen) - before).sum(dtype=np.float64))
        noise = expected_noise(before.size, parts.measuring, k)
        return next_price(price, self._left, moved, noise)

    def _choose(self, parts: Price) -> Attributes:
        """Choose among all candidates the one whose measurement is worth most."""
        candidates = []
        for attributes, weight in self._targets.candidates.items():
            self._compare(attributes)
            cells = self._targets.cells(attributes)
            noise = expected_noise(cells, parts.measuring, self._plan.contributions)
            candidates.append(Candidate(attributes, weight, round(weight * GRID * noise)))
        return candidates[self._counts.choose(candidates, parts.epsilon)].attributes

    def _compare(self, attributes: Attributes) -> None:
        """Have a table compared with the counts, unless that very table was."""
        table = self._fitted.table(attributes)
        if self._compared.get(attributes) is not table:
            self._counts.compare(attributes, table)
            self._compared[attributes] = table

    def _measure(
        self, chosen: Attributes | None, epsilon: Fraction, blocks: Sequence[BlockStrategy]
    ) -> None:
        measured = []
        for block in blocks:
            (space,) = block.spaces
            values = self._counts.measure(block)
            self._fitted.add(space, residual_of(block, values))
            measured.append(Measured(space, block.law.width, values))
        before = sum((r.cost for r in self._rounds), Fraction(0))
        cost = self._allowance.spent - before
        self._rounds.append(Round(chosen, epsilon, tuple(measured), cost))


def _inside(targets: Targets, marginals: Mapping[Attributes, Counts]) -> dict[Attributes, Counts]:
    """Sum the exact marginals over all subsets. The largest ones are not copied."""
    found: dict[Attributes, Counts] = {}
    for largest in targets.largest:
        counts = marginals.get(largest)
        if counts is None or counts.shape != tuple(targets.sizes[a] for a in largest):
            raise InternalError("a marginal is missing or has the wrong shape")
        found[largest] = counts
    for attributes in reversed(targets.closure):
        if attributes not in found:
            found[attributes] = _summed(attributes, found, targets)
    return found


def _summed(attributes: Attributes, found: Mapping[Attributes, Counts], targets: Targets) -> Counts:
    """Sum a marginal from one with one attribute more, which is there already."""
    for name in targets.sizes:
        if name not in attributes:
            larger = tuple(a for a in targets.sizes if a in attributes or a == name)
            if larger in found:
                summed = found[larger].sum(axis=larger.index(name), dtype=np.int64)
                return np.asarray(summed)
    raise InternalError("a marginal is inside no other")
