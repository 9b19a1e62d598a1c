"""Counts that a data-adaptive mechanism may ask about, each time for its price. Trusted.

What is counted of one table, or of several with rows of the same units; there each marginal has the
axis of its table's counts among its attributes, a measure m (see `engines.base.Counted`). Let

    c_r = k·M_m   if the marginal r has the measure m, of which a record adds at most M_m,
    c_r = k       if nothing but rows is counted, and there are no measures,

with k the most records of one unit that are counted. k and M_m are what those who counted say of
what they have done; nothing that was planned has a say in prices. c_r is the *change* of r: all
that one unit adds to the cells of r has magnitudes that are together at most c_r. For it has at
most k records, each of which adds v to one cell, |v| <= M_m (v = 1 without a measure); of several
tables, k is 1, the record is all that a unit has in them, and M_m bounds what its rows in the one
table of m add together. A marginal that is not counted but summed from one that is, along axes of
keys, has the same change: where two cells become one, |a + b| <= |a| + |b|.

Guarantees:
    1. Exact counts and distances from them never leave `GuardedCounts`. What does is a noisy
       measurement or the number of a chosen candidate, and its cost was spent before from the
       allowance of the charge.
    2. A measurement y = B x_r + round(N(0, σ²)) costs k²Δ²/σ² as μ², exactly. Where r has a
       measure, Δ is the largest norm of a column times what the block's `MeasureFactor` states, and
       that is no less than M_m (`measure.check_measures`, with the proof at `_check_sums` there).
       It looks at the rows of one table. What one unit has in the others doesn't change it, and
       what it has in this one changes B x_r by at most c_r times the largest norm of a column: the
       step is kΔ/σ-GDP, as in a certified plan.
    3. A choice costs `selection_cost(ε)`. Its scores are

           q_r = w_r · Σ_cells |G·[x_r] − X_r| − b_r

       with integers X_r, w_r > 0 and b_r that are public, G = 2^8, and [x] the nearest number to x
       from −L to L, L = 2^53. As |[x] − [y]| <= |x − y|, a unit changes Σ |G·[x_r] − X_r| by at
       most c_r·G, whatever its rows are. It changes all scores at once, of all tables, and none by
       more than Δ = G·max_r c_r·w_r, over the candidates r. The candidate is drawn with
       P(r) ∝ e^(ε q_r/(2Δ)), which has a range of at most ε (see `exponential`): that asks for no
       more than a bound on each score's change.
    4. So each step is μ_i-GDP for adding or removing one unit with all its rows in all tables,
       given what came before, and μ_i² was spent. What all steps are together is proved at
       `Allowance`.
    5. All is computed in integers. Nothing overflows in a choice, whatever the counts are: with
       |X_r| <= 2^62 in each cell, |G·[x] − X| is at most 2^61 + 2^62 < 2^63. Of these numbers the
       upper bits and the lower 31 are added up apart, of a chunk of 2^17 cells at a time, so that
       both sums are below 2^49; and what follows are Python integers. For measurements see
       `narrow`. Sums that may have more than 64 bits are refused: nothing is asked of them.
    6. Which operations are done, and of which size, depends on what is public. Only drawing may
       take a time that depends on the scores (see `exponential`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.engines.base import Counted, Counts, Marginal
from dpsql.errors import InternalError
from dpsql.measurement.distributions import Gaussian
from dpsql.measurement.exponential import exponential_mechanism, selection_cost
from dpsql.measurement.measure import check_measures
from dpsql.measurement.narrow import Kept, arranged, measure_narrow
from dpsql.measurement.randomness import RandomBits
from dpsql.measurement.strategy import BlockStrategy

# ── The allowance: what may still be spent of a charge, where steps follow from others ───────────
#
# A data-adaptive mechanism takes steps that are each μ_i-GDP given what came before, and both the
# step and its μ_i depend on earlier outputs. If Σ μ_i² ≤ μ² whatever happens, the whole is μ-GDP
# (Smith and Thakurta, "Fully adaptive composition for Gaussian differential privacy", arXiv
# 2210.17520). The reason: being μ_i-GDP means that the step, for either of two neighbors b = 0, 1,
# is a randomized function of one draw from N(μ_i b, 1) and of what came before (Blackwell's
# theorem; Dong, Roth and Su, arXiv 1905.02383, Theorem 2.10). Let W be a Brownian motion with drift
# b, and let step i use the increment of W between the times T and T + μ_i², with T the sum of the
# earlier squares. T and μ_i are functions of the past, so that the increment divided by μ_i has
# just that distribution given the past. All steps together are then a randomized function of W up
# to time μ², of which the end W(μ²) ~ N(μ² b, μ²) says all about b: telling the neighbors apart is
# as hard as telling N(0, 1) from N(μ, 1).
#
# Guarantees:
#     1. What was granted never sums to more than the total: compared and added as rationals, under
#        a lock, before anything is drawn.
#     2. What is refused is not noted as spent, and `InternalError` is raised.


class Allowance:
    """An amount of μ² that is spent step by step.

    Raises:
        InternalError: the total is not an exact, nonnegative number.
    """

    def __init__(self, total: Fraction) -> None:
        self._left = _checked(total)
        self._total = self._left
        self._lock = threading.Lock()

    @property
    def left(self) -> Fraction:
        """The amount that may still be spent, as μ²."""
        return self._left

    @property
    def spent(self) -> Fraction:
        """The amount that was spent, as μ²."""
        return self._total - self._left

    def spend(self, amount: Fraction) -> None:
        """Note an amount as spent. Only after this may the step be taken.

        Raises:
            InternalError: it is more than what is left, or no exact, nonnegative number.
        """
        amount = _checked(amount)
        with self._lock:
            if amount > self._left:
                raise InternalError("a step would spend more than its allowance")
            self._left -= amount


def _checked(amount: Fraction) -> Fraction:
    if type(amount) is not Fraction or amount < 0:
        raise InternalError("an allowance is counted in exact, nonnegative fractions")
    return amount


GRID = 1 << 8
"""G: distances are taken from estimates that are rounded to multiples of 1/G."""
LARGEST_COUNT = 1 << 53
"""L: for a distance, counts that are larger are taken for this; floats don't tell them apart."""
_LARGEST = 2.0**62
_HALF_BITS = 31
_CHUNK = 1 << 17
"""Cells that are compared at once; what they need then stays in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A marginal that may be chosen, with the public part of its score."""

    marginal: Marginal
    weight: int
    """w_r > 0, a whole number: errors count in proportion to it."""
    penalty: int
    """b_r, in units of w·G·rows."""


class GuardedCounts:
    """The exact marginals of one charge.

    Args:
        counted: exact marginals as int64, of shape (cells of the first attribute, …), and by how
            much a unit changes them.
        asked: the marginals that may be asked about: those that were counted, or sums of them over
            one attribute after the other, where these are asked about, too.
        allowance: what questions are paid from.
        bits: where noise and choices come from.

    Raises:
        InternalError: the counts are not int64, or are of units; one that is asked about is missing
            or has not one measure, where there are measures; or a bound is no whole number from 1.
    """

    def __init__(
        self, counted: Counted, asked: Iterable[Marginal], allowance: Allowance, bits: RandomBits
    ) -> None:
        if any(counts.dtype != np.int64 for counts in counted.values()):
            raise InternalError("exact counts are int64")
        self._contributions, self._bounds = counted.contributions, counted.bounds
        if any(type(n) is not int or n < 1 for n in (self._contributions, *self._bounds.values())):
            raise InternalError("a unit adds a whole number to what is counted, at least one")
        if counted.above:
            raise InternalError("rounds measure numbers of 64 bits")
        if counted.units:
            raise InternalError("rounds measure counts of rows, not of units")
        self._marginals = _summed(counted, asked)
        self._changes = {marginal: self._change(marginal) for marginal in self._marginals}
        self._allowance, self._bits = allowance, bits
        self._distances: dict[Marginal, int] = {}

    def measure(self, block: BlockStrategy) -> Kept:
        """Measure the one space of a block, with noise of its own.

        Raises:
            InternalError: it costs more than what is left, its noise is not Gaussian, it has
                several spaces, is of units, or of sums to which a record may add more than it
                states; or its marginal is missing or has another shape.
        """
        if len(block.spaces) != 1 or not isinstance(block.law, Gaussian):
            raise InternalError("one space is measured at a time, with Gaussian noise")
        if block.of_units:
            raise InternalError("rounds measure counts of rows, not of units")
        check_measures(block, self._bounds)
        counts = self._counts(block.spaces[0])
        arranged(block, counts)  # which refuses another shape, before anything is spent
        self._allowance.spend(self._contributions**2 * block.privacy_cost)
        return measure_narrow(block, counts, None, self._bits)

    def compare(self, marginal: Marginal, estimate: NDArray[np.floating]) -> None:
        """Take note of how far a public estimate is from the exact marginal, and tell nobody.

        Args:
            marginal: one that may be asked about.
            estimate: finite numbers in its shape.

        Raises:
            InternalError: the estimate has another shape, or is not finite or far too large.
        """
        counts = self._counts(marginal)
        if estimate.shape != counts.shape:
            raise InternalError("an estimate has the wrong shape")
        if not float(np.abs(estimate).max(initial=0.0)) * GRID < _LARGEST:
            raise InternalError("an estimate is far too large")
        exact, near = counts.reshape(-1), estimate.reshape(-1)
        total = 0
        for begin in range(0, exact.size, _CHUNK):
            piece = slice(begin, begin + _CHUNK)
            rounded = np.rint(near[piece].astype(np.float64) * GRID).astype(np.int64)
            held = np.clip(exact[piece], -LARGEST_COUNT, LARGEST_COUNT)
            apart = np.abs(GRID * held - rounded)
            total += int((apart >> _HALF_BITS).sum()) << _HALF_BITS
            total += int((apart & (1 << _HALF_BITS) - 1).sum())
        self._distances[marginal] = total

    def choose(self, candidates: Sequence[Candidate], epsilon: Fraction) -> int:
        """Choose one of some marginals that were compared; give its number.

        Raises:
            InternalError: it costs more than what is left, or a candidate was not compared.
        """
        if not candidates or any(type(c.weight) is not int or c.weight < 1 for c in candidates):
            raise InternalError("the weight of a candidate is a whole number from 1")
        if not all(c.marginal in self._distances for c in candidates):
            raise InternalError("a candidate was not compared")
        sensitivity = GRID * max(self._changes[c.marginal] * c.weight for c in candidates)
        scores = [c.weight * self._distances[c.marginal] - c.penalty for c in candidates]
        self._allowance.spend(selection_cost(epsilon))
        return exponential_mechanism(scores, epsilon / (2 * sensitivity), self._bits)

    def _change(self, marginal: Marginal) -> int:
        """Return c_r: the magnitudes of what one unit adds to a marginal are together no more."""
        bounds = [self._bounds[name] for name in marginal if name in self._bounds]
        if len(bounds) != bool(self._bounds):
            raise InternalError("a marginal is of the counts of one table")
        return self._contributions * (bounds[0] if bounds else 1)

    def _counts(self, marginal: Marginal) -> Counts:
        counts = self._marginals.get(marginal)
        if counts is None:
            raise InternalError("a marginal is missing")
        return counts


def _summed(counted: Counted, asked: Iterable[Marginal]) -> dict[Marginal, Counts]:
    """Return the marginals that are asked about; those that were counted are not copied."""
    marginals: dict[Marginal, Counts] = {}
    larger: dict[Marginal, tuple[Marginal, int]] = {}
    wanted = dict.fromkeys(asked)
    for marginal in sorted(wanted, key=len, reverse=True):
        if marginal in counted:
            marginals[marginal] = counted[marginal]
        elif marginal in larger:
            inside_of, axis = larger[marginal]
            marginals[marginal] = np.asarray(marginals[inside_of].sum(axis=axis, dtype=np.int64))
        else:
            raise InternalError("a marginal is missing")
        if marginals[marginal].ndim != len(marginal):
            raise InternalError("a marginal has the wrong shape")
        for axis, name in enumerate(marginal):
            smaller = (*marginal[:axis], *marginal[axis + 1 :])
            if name not in counted.bounds and smaller in wanted:
                larger.setdefault(smaller, (marginal, axis))
    return marginals
