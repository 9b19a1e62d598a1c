"""Measure: exact integer answers plus exact noise. The only place where counts meet noise.

Trusted core.

Guarantees:
    1. Only a `ChargedPlan` can be measured, and only once: a certified plan together with a
       receipt for at least its cost, which its ledger holds on disk and has not noted as used.
       Its cost is for as many rows of one privacy unit as the counts hold: counts that hold
       another number of them are refused. So are sums to which a row may add more than is paid
       for, and sums where counts are paid for, or the other way round (proof at `_check_sums`);
       and counts of units, if one may be in more groups than is paid for (proof at `_check_units`).
       And counts in which rows of a unit may be less far apart than is paid for (see `spread`), or
       sums to which rows may add in more cells (see `rel.support`), and differences of what are not
       the totals of tables (see `differences`).
    2. Each space of a block is measured once, with noise of its own from a generator keyed for this
       release: y = B x + noise, drawn exactly from the block's law, where B x is computed in
       integers, exactly for all tables of fewer than 2^58 rows: in two words, see `narrow`; or, if
       the entries of a block need more bits, in integers of any size, see `wide`.
    3. The order, number and shape of the operations depend on the plan only, never on counts. How
       many bits a noisy integer is kept in depends on it alone.
    4. Counts are not kept: `NoisyMeasurements` holds the noisy integers and the public plan.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from dpsql.engines.base import Counted, Counts
from dpsql.errors import InternalError
from dpsql.measurement.certify import CertifiedPlan
from dpsql.measurement.differences import Condition, Difference, check_totals
from dpsql.measurement.distributions import CoarseGaussian
from dpsql.measurement.factors import MeasureFactor, UnitFactor
from dpsql.measurement.gaussian import quantile_for
from dpsql.measurement.narrow import Kept, draw, kept_integers, measure_narrow
from dpsql.measurement.randomness import RandomBits, fresh_bits
from dpsql.measurement.strategy import BlockStrategy
from dpsql.measurement.wide import measure_wide
from dpsql.privacy import Ledger, Receipt
from dpsql.workload.spread import SpreadRows

if TYPE_CHECKING:
    from dpsql.rel.support import Support


class Payable(Protocol):
    """A payable plan: a certified one, or one that chooses on the way what it measures."""

    @property
    def digest(self) -> str:
        """A hash of all that decides what may be measured, and for whom."""

    @property
    def privacy_cost(self) -> Fraction:
        """The most that it spends, as μ²."""

    @property
    def delta(self) -> Fraction:
        """The probability that it pays besides; 0 if it only adds noise to what is measured."""

    @property
    def contributions(self) -> int:
        """The most rows of one privacy unit that may be among those counted, at that cost."""


@runtime_checkable
class Choosing(Payable, Protocol):
    """A plan that chooses on the way what it measures, and pays for each step; see `guarded`."""

    @property
    def bounds(self) -> Mapping[str, int]:
        """Measure → how much one record may add to its sums in magnitude, at that cost."""


class ChargedPlan:
    """A certified plan that has been paid for. Only this can be measured.

    Raises:
        InternalError: the receipt is for another plan, or for less than it costs.
        LedgerError: the ledger doesn't hold the receipt, or it was used before.
    """

    def __init__(self, certified: Payable, receipt: Receipt, ledger: Ledger) -> None:
        if receipt.plan != certified.digest:
            raise InternalError("the receipt is for another plan")
        if receipt.mu_squared < certified.privacy_cost or receipt.delta < certified.delta:
            raise InternalError("the receipt is for less than the plan costs")
        ledger.verify(receipt, unused=True)
        self.certified = certified
        self.receipt = receipt
        self._use = threading.Lock()

    def use_up(self, counted: Counted) -> None:
        """Let the first call pass, of any number and from any threads.

        Raises:
            InternalError: these counts, or a second measurement, would give away more than was
                paid for.
        """
        if counted.contributions != self.certified.contributions:
            raise InternalError("the counts hold another number of rows of a unit than is paid for")
        _check_sums(self.certified, counted)
        _check_units(self.certified, counted.units)
        _check_spreads(self.certified, counted.spreads)
        _check_supports(self.certified, counted.supports)
        if isinstance(self.certified, CertifiedPlan):
            check_totals(self.certified.differences, counted.totals)
            _check_rows(self.certified, counted)
        self.use_once()

    def use_once(self) -> None:
        """Let the first call pass, whatever is measured.

        Raises:
            InternalError: it isn't the first.
        """
        if not self._use.acquire(blocking=False):
            raise InternalError("a charged plan can be measured once only")


@dataclass(frozen=True, slots=True, eq=False)
class NoisyMeasurements:
    """The noisy integers of one release. Everything made from them is post-processing."""

    certified: CertifiedPlan
    values: Mapping[frozenset[str], Kept]
    """Residual space → measurements, of shape (measurements of the first factor, …); two tables →
    the difference of their totals, of shape (1,)."""


def ready(payable: Payable) -> None:
    """Load what noise is drawn by, so that nothing is left to load when the budget is gone."""
    if isinstance(payable, CertifiedPlan):
        quantile_for(max((block.measurements for block in payable.blocks), default=0))
    else:  # what is drawn is chosen later
        quantile_for(sys.maxsize)


def measure(
    charged: ChargedPlan,
    marginals: Counted,
    *,
    _bits: RandomBits | None = None,
) -> NoisyMeasurements:
    """Measure every residual space of a charged plan.

    Args:
        charged: what to measure.
        marginals: for each space's attributes, in its order, the exact counts as int64 of shape
            (cells of the first attribute, …); sums of a measure, if it is one of them.
        _bits: a source of random bits for tests. The default is keyed by the operating system
            for this call alone.

    Raises:
        InternalError: the plan was measured before, or is for another number of rows of a unit,
            or for smaller values of rows; or a marginal is missing or has the wrong shape.
    """
    certified = charged.certified
    if not isinstance(certified, CertifiedPlan):
        raise InternalError("a plan that is not certified can't be measured")
    charged.use_up(marginals)
    bits = fresh_bits() if _bits is None else _bits
    spaces = {
        frozenset(space): measuring(block)(block, *counts_of(marginals, space), bits)
        for block in certified.blocks
        for space in block.spaces
    }
    compared = {d.space: _measure_difference(d, marginals, bits) for d in certified.differences}
    return NoisyMeasurements(certified, spaces | compared)


def _check_sums(certified: Payable, counted: Counted) -> None:
    """Refuse sums of which a row may add more than is paid for.

    *What is checked.* The bounds are of those who count: which attributes are measures, and that no
    row adds more than M' = bounds[m] to a sum of m, in magnitude. They say so of what they have
    done, whatever was planned. For each set A of a certified plan: an axis of A has a
    `MeasureFactor` exactly if its attribute is a measure, and then its `change` is M >= M' and all
    other axes of A are of keys. A plan that chooses what it measures names the measures that the
    counted marginals have, each with M >= M'. What its steps cost is not left to it: that follows
    from M', see `guarded`.

    *Why that is enough.* Let A have the measure m. A row lies in one cell of the keys of A, and
    moves the sum there by v, |v| <= M'. So it changes the exact answers (⊗ factors) x_A by v times
    a column c of the other factors: by at most |v|·‖c‖ <= M·‖c‖ <= Δ_A, as M is the norm that the
    `MeasureFactor` states, and Δ_A is the product of the largest norms. k rows of a unit, one after
    another, change them by Σ_i v_i c_i, of norm at most Σ_i |v_i|·‖c_i‖ <= k·Δ_A, whatever their
    signs and cells. v may depend on the other rows, and on A, as where sums are rounded.
    Where a record is all rows of a unit in several tables, k is 1, and M' >= Σ_i |v_i| over its
    rows in the table that m belongs to: the same sum is at most M'·max ‖c_i‖ <= M·max ‖c‖ = Δ_A.
    If A has no measure, it is of counts, v = 1, and no `MeasureFactor` is there. In both cases, and
    in both norms, a unit changes the answers in A by at most the kΔ_A that `certify` charges for.

    Raises:
        InternalError: a plan would give away more than was paid for.
    """
    bounds = counted.bounds
    if any(type(bound) is not int or bound < 0 for bound in bounds.values()):
        raise InternalError("the bound of a measure is a whole number")
    if isinstance(certified, CertifiedPlan):
        for block in certified.blocks:
            check_measures(block, bounds)
        return
    paid = certified.bounds if isinstance(certified, Choosing) else {}
    if paid.keys() != {name for marginal in counted for name in marginal if name in bounds}:
        raise InternalError("a plan that chooses what it measures is paid for by other counts")
    if any(most < bounds[measure] for measure, most in paid.items()):
        raise InternalError("a row may add more to a sum than is paid for")


def check_measures(block: BlockStrategy, bounds: Mapping[str, int]) -> None:
    """Refuse to measure sets of attributes by a block that states too little of their measures.

    Args:
        block: what is measured.
        bounds: of those who count, see `_check_sums`.

    Raises:
        InternalError: it would give away more than it costs.
    """
    paid = {f.axes[0]: f.change for f in block.factors if isinstance(f, MeasureFactor)}
    for space in block.spaces:
        measured = {axis: bounds[name] for axis, name in enumerate(space) if name in bounds}
        if measured.keys() != paid.keys() or len(measured) > 1:
            raise InternalError("sums are paid for as sums of one measure, counts as counts")
        if any(paid[axis] < bound for axis, bound in measured.items()):
            raise InternalError("a row may add more to a sum than is paid for")


def _check_rows(certified: CertifiedPlan, counted: Counted) -> None:
    """Refuse sums of several rows of a unit where one row is paid for.

    *What is checked.* Where several tables are counted, `rows` are of those who count: how many
    rows of a unit are in the sums of each measure. A `MeasureFactor` on the axis of one is for as
    many. Then its M = change/rows bounds what each of them adds, by `_check_sums`.

    *Why it matters.* All rows of a unit are one record there. What `certify` charges for a record
    that is one row, with a cell that it has in all sets at once, must not be paid for several rows.

    Raises:
        InternalError: a plan would give away more than was paid for.
    """
    if not counted.totals:
        return
    for block in certified.blocks:
        for factor in block.factors:
            if isinstance(factor, MeasureFactor) and not block.of_units:
                measures = {space[factor.axes[0]] for space in block.spaces}
                if any(counted.rows.get(name, math.inf) > factor.rows for name in measures):
                    raise InternalError("a unit may have more rows in a sum than is paid for")


def _check_units(certified: Payable, units: Mapping[str, int]) -> None:
    """Refuse counts of units of which one may be in more cells than is paid for.

    *What is checked.* `units` are of those who count: which attributes say that units are counted,
    and that one counts in no more than m' = units[u] cells, once in each; or, if the attribute has
    a bound l' > 1 as well, that it adds a number from 0 to l' to each cell, and l'·m' at most to
    all of them. For each set A of a certified plan: A has such an attribute exactly if its block
    has a `UnitFactor`; it is one then, an axis of one cell, and `most` is m >= m'. By
    `_check_sums` the block has a `MeasureFactor` on that axis exactly if there is an l', and it is
    of l >= l'.

    *Why that is enough.* Then a unit adds a vector h of zeros and ones to x_A, with s <= m' <= m
    ones, whatever the size of the other axes: exactly what the `UnitFactor` states the largest
    norm of Bh for. Or it adds l'·h with 0 <= h <= 1 and Σh <= m', for which l times that norm holds
    (see there). If A has no such attribute, rows are counted or added up in it, and its block
    has no `UnitFactor`: then k = `contributions` is part of what it costs.

    Raises:
        InternalError: a plan would give away more than was paid for.
    """
    if not isinstance(certified, CertifiedPlan):
        if units:
            raise InternalError("a plan that chooses what it measures is paid for by rows")
        return
    if any(type(most) is not int or most < 1 for most in units.values()):
        raise InternalError("a unit is in a whole number of groups")
    for block in certified.blocks:
        paid = [factor for factor in block.factors if isinstance(factor, UnitFactor)]
        for space in block.spaces:
            counted = [units[name] for name in space if name in units]
            if len(counted) != len(paid):
                raise InternalError("units are paid for as units, and rows as rows")
            if any(most > factor.most for factor, most in zip(paid, counted, strict=True)):
                raise InternalError("a unit may be in more groups than is paid for")


def _check_spreads(certified: Payable, kept: Sequence[SpreadRows]) -> None:
    """Refuse counts of which rows of a unit may be less far apart than is paid for.

    `kept` is of those who count: they say so of what they have done, whatever was planned.

    Raises:
        InternalError: a plan would give away more than was paid for.
    """
    paid = certified.spreads if isinstance(certified, CertifiedPlan) else ()
    if not all(any(limit.implies(spread) for limit in kept) for spread in paid):
        raise InternalError("rows of a unit may agree in more attributes than is paid for")


def _check_supports(certified: Payable, known: Sequence[Support]) -> None:
    """Refuse sums to which rows may add something in more cells than is paid for.

    `known` is of those who count: they say so of what they have done, whatever was planned.

    Raises:
        InternalError: a row may add something to a sum where that isn't paid for.
    """
    paid = certified.supports if isinstance(certified, CertifiedPlan) else ()
    if not all(any(added.implies(support) for added in known) for support in paid):
        raise InternalError("a row may add to a sum in a cell in which that isn't paid for")


def measuring(block: BlockStrategy) -> Callable[..., Kept]:
    """Return how a block is measured: by the counts and their higher words, with random bits."""
    return measure_wide if isinstance(block.law, CoarseGaussian) else measure_narrow


def counts_of(marginals: Counted, space: tuple[str, ...]) -> tuple[Counts, Counts | None]:
    """Return what was counted of a space, and the higher words if it has some."""
    counts = marginals.get(space)
    if counts is None:
        raise InternalError("a marginal is missing")
    return counts, marginals.above.get(space)


def _measure_difference(difference: Difference, marginals: Counted, bits: RandomBits) -> Kept:
    """Measure how many more rows one table has, in Python's integers: exact for any counts."""
    first, second = (
        _rows_of(marginals.get(names), condition) * times
        for names, condition, times in zip(
            difference.marginals, difference.conditions, difference.times, strict=True
        )
    )
    return kept_integers([first - second + int(draw(difference.law, 1, bits)[0])], (1,))


def _rows_of(counts: Counts | None, condition: Condition | None) -> int:
    """Return how many rows of a table are in some cells of a marginal, or how many it has."""
    shape = condition.shape if condition else ()
    if counts is None or counts.shape != (*shape, 1):
        raise InternalError("the total of a table is missing")
    rows = np.asarray(counts, dtype=np.int64)[..., 0]
    return sum(rows[condition.counted].tolist()) if condition else int(rows)
