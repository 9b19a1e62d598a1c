"""Certify: recompute what a plan costs from its integer matrices alone.

Trusted core. The planner, its solvers and its floating point are not trusted: whatever they
hand over, the privacy cost is recomputed here in exact integers and rationals.

Guarantees:
    1. With Gaussian noise, `privacy_cost` of a `CertifiedPlan` is Σ_A k_A² Δ_A² / σ_A² over the
       attribute sets A of its blocks, exactly, where Δ_A is the largest change of the exact
       answers in A when one record is added or removed, and k_A is k = `contributions`, or 1 where
       units are counted. Where the records of a unit are `spreads` apart, Δ_A² is the smallest
       bound of `spread`, which then takes the place of the triangle inequality in 3.
       Or it is less, where no single row has the largest change in all sets: sets of counts and of
       sums to which `spreads` have nothing to say then cost k² times what the *worst row* costs in
       all of them at once (`worst_row`), exactly or rounded up.
    2. It is at most the budget's μ², compared as rationals, and the budget is not pure.
    3. Measuring every space once with independent noise round(N(0, σ_A²)) is μ-GDP with
       μ² = privacy_cost, for neighbors of which the counted records differ by at most k that
       were added, or by at most k that were removed. Proof: the exact answers in A are a linear
       map of the histogram, so that they change by a sum of at most k of its columns, each of
       norm at most Δ_A; by the triangle inequality the change has norm at most kΔ_A, and all k
       records in the same cell reach that. Where sums of a measure stand in place of counts, each
       of these columns is multiplied by its record's value v, and Δ_A is for the largest |v| that
       a `MeasureFactor` states; `measure` refuses sums to which a record may add more. Where
       several tables have rows of the same units, a unit is one record, and k is 1: its rows in
       the one table that A is over change the answers in A by Σ_i v_i c_i, of norm at most
       Σ_i |v_i| · max_i ‖c_i‖ ≤ Δ_A, as a `MeasureFactor` states a bound on Σ_i |v_i|. So the
       answers of all tables are one Gaussian mechanism for all rows of the unit: nothing rests on
       its rows being in one table only. Where A is of counts of units, a unit is one record too:
       Δ_A is the largest norm of all that it can add (see `UnitFactor`), and is not multiplied by
       k, which is a number of rows; so are counts of values that units cover, of which one adds up
       to l to a group. Where totals of tables are compared, the differences cost what
       `differences.beyond` says besides: that is for what a unit adds to all tables at once. The
       exact answers are integers, so
       answer + round(noise) = round(answer + noise), and whatever is rounded off from it afterwards
       (`distributions.CoarseGaussian`), is post-processing of the Gaussian mechanism, which is
       kΔ_A/σ_A-GDP (Dong, Roth and Su, "Gaussian differential privacy", arXiv 1905.02383,
       Theorem 2.7); the squares add up under composition (Corollary 3.3).
       *The worst row.* All sets together are one Gaussian mechanism, too: of the exact answers,
       those in A divided by σ_A, with noise of variance 1. So they cost the largest squared norm of
       what a unit changes in that vector. Let it be divided into sets that are charged by
       themselves, as above, and the others: the squared norm is the sum of both. One row changes
       the others by (v_A c_A/σ_A) over the sets A, c_A a column of A for the cell in which the row
       is and |v_A| <= M_A, and v_A = 0 for sums of a measure outside of its `supports`. That has a
       squared norm of Σ_A v_A²‖c_A‖²/σ_A² <= C, what the worst row costs. k rows, the same ones in
       all sets, change them by the sum of k such vectors, of norm at most k√C. That rests on what a
       *row* is (`engines.base.Counted`), so it isn't used where a record is several rows: with
       differences, where a `MeasureFactor` is of more than one (`measure` refuses sums of more rows
       than that), and for counts of units. Rows of different tables have no attribute in common,
       and the worst row of attributes that nothing has in common is the worst of each: a unit that
       has a row in each of several tables changes different sets by each of them.
       Where each record is a unit of its own, k is 1. Where a unit has several, the engine counts
       at most k of them, chosen by looking at that unit's records only: adding or removing a
       unit with all of its records adds or removes those and changes nothing else.
    4. With Laplace noise, ε = Σ_A k_A Δ_A / b_A, exactly, with Δ_A the largest sum of absolute
       changes, or, where the records of a unit are `spreads` apart, k_A Δ_A by the least bound of
       `spread`, is at most that of a pure budget. Measuring every set once with independent noise
       P(z) ∝ e^(−|z|/b_A) is ε-differentially private for the same neighbors: noise of one set
       that has to make up for a change c has a probability that differs by a factor of at most
       e^(‖c‖₁/b_A), ‖c‖₁ ≤ k_AΔ_A by the triangle inequality or by `spread`, and factors multiply
       (Dwork, McSherry, Nissim and Smith, TCC 2006). `privacy_cost` is then the μ² of that ε (see
       `privacy.conversions`). The worst row costs Σ_A |v_A| ‖c_A‖₁/b_A, and k rows k times as much
       at most, as the factors of all sets multiply to e^(Σ_A ‖Σ_i v_iA c_iA‖₁/b_A).
    5. No `CertifiedPlan` exists for which these don't hold, and none with two kinds of noise: all
       is checked at birth, by raising, never by `assert`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import InternalError
from dpsql.measurement.differences import Difference, beyond
from dpsql.measurement.distributions import Laplace
from dpsql.measurement.factors import MeasureFactor
from dpsql.measurement.strategy import BlockStrategy
from dpsql.measurement.worst_row import RowCost, row_cost, worst_row
from dpsql.privacy import Budget
from dpsql.privacy.conversions import mu_squared_of_pure
from dpsql.workload.spread import SpreadRows, by_limits

if TYPE_CHECKING:
    from dpsql.rel.support import Support


def spent(
    blocks: tuple[BlockStrategy, ...],
    contributions: int = 1,
    spreads: tuple[SpreadRows, ...] = (),
    differences: tuple[Difference, ...] = (),
    supports: tuple[Support, ...] = (),
) -> Fraction:
    """Return what measuring some blocks costs, exactly: as μ², or as ε with Laplace noise.

    Args:
        blocks: what is measured.
        contributions: the most records of one unit that are counted.
        spreads: how far these are apart.
        differences: between totals of tables, measured as well.
        supports: the cells in which rows add something to sums.

    Raises:
        InternalError: they have noise of two kinds, or totals are compared where a unit is not one
            record.
    """
    pure = {isinstance(block.law, Laplace) for block in blocks}
    if len(pure) > 1:
        raise InternalError("a plan has noise of two kinds")
    if differences and (pure == {True} or contributions != 1):
        raise InternalError("totals are compared with Gaussian noise, where a unit is one record")
    times = contributions if pure == {True} else contributions**2
    costs = (block.cost(spreads) * (1 if block.of_units else times) for block in blocks)
    apart = sum(costs, beyond(blocks, differences, spreads))
    if differences or not all(map(is_of_rows, blocks)):
        return apart
    alone, varying = costs_of_rows(blocks, times, spreads, supports)
    return min(apart, alone + times * worst_row(varying))


def is_of_rows(block: BlockStrategy) -> bool:
    """Whether a record is one row in a block, or a unit where units are counted."""
    return all(f.rows == 1 for f in block.factors if isinstance(f, MeasureFactor))


def costs_of_rows(
    blocks: Sequence[BlockStrategy],
    times: int,
    spreads: tuple[SpreadRows, ...] = (),
    supports: Sequence[Support] = (),
) -> tuple[Fraction, list[RowCost]]:
    """Return what blocks cost wherever a row is, and in single sets what depends on that.

    Args:
        blocks: what is measured.
        times: k², or k with Laplace noise. The second costs are for one row, and to be multiplied
            by it.
        spreads: how far apart the rows of a unit are.
        supports: the cells in which rows add something to sums.
    """
    by_measure: dict[str, list[Support]] = {}
    for support in supports:
        by_measure.setdefault(support.measure, []).append(support)
    alone, varying = Fraction(0), list[RowCost]()
    for block in blocks:
        if block.of_units:
            alone += block.cost(spreads)
            continue
        cost = row_cost(block)
        most = Fraction(cost.largest, block.law.width)
        for limits, spaces in by_limits(block.spaces, spreads).items():
            least = block.cost_within(limits)
            if least < most:
                alone += times * len(spaces) * least
            elif cost.varies or by_measure:
                each = [_cost_of(cost, space, by_measure) for space in spaces]
                varying += (cost_ for cost_ in each if cost_.varies)
                alone += times * most * sum(not cost_.varies for cost_ in each)
            else:
                alone += times * len(spaces) * most
    return alone, varying


def _cost_of(
    cost: RowCost, space: tuple[str, ...], by_measure: Mapping[str, Sequence[Support]]
) -> RowCost:
    """Return what one set of a block costs a row, of a measure where its rows add something."""
    supports = [support for name in space for support in by_measure.get(name, ())]
    return cost.named(space).supported(supports) if supports else cost.named(space)


def privacy_cost(
    blocks: tuple[BlockStrategy, ...],
    contributions: int = 1,
    spreads: tuple[SpreadRows, ...] = (),
    differences: tuple[Difference, ...] = (),
    supports: tuple[Support, ...] = (),
) -> Fraction:
    """Return what measuring some blocks costs as μ²: exactly, or rounded up from an exact ε."""
    amount = spent(blocks, contributions, spreads, differences, supports)
    return mu_squared_of_pure(amount) if is_laplace(blocks) else amount


def is_laplace(blocks: tuple[BlockStrategy, ...]) -> bool:
    """Whether the noise is Laplace noise, which gives pure ε."""
    return any(isinstance(block.law, Laplace) for block in blocks)


@dataclass(frozen=True, slots=True, eq=False)
class CertifiedPlan:
    """Blocks of integer measurements that provably fit a budget. Only this can be charged."""

    blocks: tuple[BlockStrategy, ...]
    budget: Budget
    contributions: int = 1
    """The most records of one privacy unit that are counted."""
    spreads: tuple[SpreadRows, ...] = ()
    """Distances between these records."""
    differences: tuple[Difference, ...] = ()
    """Measurements of the totals of two tables together."""
    supports: tuple[Support, ...] = ()
    """The cells in which rows add something to sums."""
    privacy_cost: Fraction = field(init=False)
    """The cost as μ², of Gaussian differential privacy."""

    def __post_init__(self) -> None:
        if type(self.contributions) is not int or self.contributions < 1:
            raise InternalError("a unit contributes a whole number of records, at least one")
        spaces = [frozenset(space) for block in self.blocks for space in block.spaces]
        if len(set(spaces)) != len(spaces):
            raise InternalError("an attribute set is measured twice in one plan")
        whose = self.contributions, self.spreads, self.differences, self.supports
        cost = spent(self.blocks, *whose)
        if self.blocks and is_laplace(self.blocks) != self.budget.pure:
            raise InternalError("a pure budget is for Laplace noise, and for nothing else")
        if cost > (self.budget.amount if self.budget.pure else self.budget.mu_squared):
            raise InternalError("a plan costs more than its budget")
        if is_laplace(self.blocks):
            # It grows with ε; should two roundings differ, the budget's own is as true.
            cost = min(mu_squared_of_pure(cost), self.budget.mu_squared)
        object.__setattr__(self, "privacy_cost", cost)

    @property
    def delta(self) -> Fraction:
        """The δ that it costs besides: none, as all that it tells has noise."""
        return Fraction(0)

    @property
    def digest(self) -> str:
        """A hash of everything that will be measured, and for whom, for the ledger."""
        digest = hashlib.sha256(repr(self.contributions).encode())
        for spread in self.spreads:
            said = (
                sorted(spread.attributes),
                spread.share,
                *([spread.classes] * bool(spread.classes)),
            )
            digest.update(repr(said).encode())
        for support in self.supports:
            digest.update(repr((support.measure, support.attribute, support.cells)).encode())
        for block in self.blocks:
            digest.update(repr((block.spaces, block.law)).encode())
            for factor in block.factors:
                digest.update(repr((factor.axes, factor.shape, factor.content)).encode())
        for difference in self.differences:
            digest.update(difference.content)
        return digest.hexdigest()
