"""Run a data-adaptive plan: choose a marginal, measure it, estimate all, and again.

What is done with counts is done by `GuardedCounts`, which takes the price from the allowance of the
charge before it answers. All the rest works on what came out, so that no mistake in here can spend
more than was charged.

Of several tables there is one list of rounds: each chooses among the marginals of all tables, and
measures the one that was chosen. What they are worth to each other, `targets` says.

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
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.engines.base import Counted
from dpsql.errors import InternalError
from dpsql.linalg.arrays import Array
from dpsql.measurement.allowance import Allowance
from dpsql.measurement.guarded import GRID, Candidate, GuardedCounts
from dpsql.measurement.measure import ChargedPlan
from dpsql.measurement.narrow import Kept
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
from dpsql.planner.mechanisms.aim.plan import AdaptivePlan
from dpsql.planner.mechanisms.aim.targets import Attributes, TableTargets
from dpsql.planner.shares.allocation import exact_shares

FIRST_SHARE = Fraction(7, 20)
"""Of the budget, for the total and the one-way marginals."""
ROUNDS = 64
"""Besides two for each marginal, how many rounds of the first price can be paid."""
MOST_ROUNDS = 1000
CHOOSING_SHARE = Fraction(1, 10)
"""Of a round's price."""
GROWTH, GROWTH_OF_SEVERAL = 4, 2
"""By what the price grows after a round that found nothing; of one table, and of several."""
_LARGEST_EPSILON = Fraction(2000)

Key = TypeVar("Key", bound=Hashable)


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
    """Of which table, if it is one of several: the axis of its counts."""


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


Fitted = Mapping[str | None, FittedMarginals]
"""Axis of a table's counts → what is known of it; None if it is the only table."""


def nothing_known(plan: AdaptivePlan) -> Fitted:
    """Return what is known of each table before anything is measured."""
    return {t.measure: FittedMarginals(LinearMarginals(t.sizes)) for t in plan.tables}


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """What a data-adaptive release found. All from here on is post-processing.

    Estimates are biased, and have no variances.
    """

    plan: AdaptivePlan
    measured: tuple[tuple[Measured, ...], ...]
    """What each round measured; without rounds that measured nothing."""
    fitted: Fitted
    rounds: tuple[Round, ...] = ()
    """What each round did; none where estimates were made again."""

    @property
    def spent(self) -> Fraction:
        """What was spent, as μ²; at most the plan's cost."""
        return sum((r.cost for r in self.rounds), Fraction(0))

    @classmethod
    def of(cls, plan: AdaptivePlan, measured: Sequence[tuple[Measured, ...]]) -> Estimates:
        """Make estimates again, from what the rounds measured."""
        fitted = nothing_known(plan)
        for one in (one for some in measured for one in some):
            block = block_of(one.attributes, plan.table(one.measure).sizes, one.variance)
            fitted[one.measure].add(one.attributes, residual_of(block, one.values))
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
        own = [name for name in attributes if name in self.plan.bounds]
        table = self.plan.table(own[0] if own else None)
        domain = self.plan.workload.domain
        if len(own) > 1 or not set(attributes) <= domain.keys():
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
