"""Counts that a data-adaptive mechanism may ask about, each time for its price. Trusted.

Guarantees:
    1. Exact counts and distances from them never leave `GuardedCounts`. What does is a noisy
       measurement or the number of a chosen candidate, and its cost was spent before from the
       allowance of the charge.
    2. A measurement y = B x + round(N(0, σ²)) costs k²Δ²/σ² as μ², exactly, with k the most
       records of one unit that are counted (see `measurement.certify`). Sums of a measure have no
       price here: a charge for such rounds is used up by counts only (see `measurement.measure`),
       and a block that is meant for sums is refused.
    3. A choice costs `selection_cost(ε)`. Its scores are

           q_r = w_r · Σ_cells |G·x_r − X_r| − b_r

       with integers X_r, w_r > 0 and b_r that are public, and G = 2^8. One record changes one
       cell of x_r by 1, so that a unit changes Σ |G·x_r − X_r| by at most kG, and q_r by at most
       Δ = kG·max w. The candidate is drawn with P(r) ∝ e^(ε q_r/(2Δ)), which has a range of at
       most ε (see `selection`).
    4. All is computed in integers. Nothing overflows if the table has fewer than 2^48 rows, as
       |X_r| sums to at most 2^58: Σ |G·x_r − X_r| ≤ 2^56 + 2^58, and what follows are Python
       integers.
    5. Which operations are done, and of which size, depends on what is public. Only drawing may
       take a time that depends on the scores (see `selection`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.engines.base import Counts
from dpsql.errors import InternalError
from dpsql.measurement.allowance import Allowance
from dpsql.measurement.distributions import Gaussian
from dpsql.measurement.exponential import exponential_mechanism, selection_cost
from dpsql.measurement.measure import apply, draw
from dpsql.measurement.randomness import RandomBits
from dpsql.measurement.strategy import BlockStrategy
from dpsql.measurement.sums import MeasureFactor

GRID = 1 << 8
"""G: distances are taken from estimates that are rounded to multiples of 1/G."""
_LARGEST_SUM = 2.0**58
_CHUNK = 1 << 17
"""Cells that are compared at once; what they need then stays in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A marginal that may be chosen, with the public part of its score."""

    attributes: tuple[str, ...]
    weight: int
    """w_r > 0, a whole number: errors count in proportion to it."""
    penalty: int
    """b_r, in units of w·G·rows."""


class GuardedCounts:
    """The exact marginals of one charge.

    Args:
        marginals: attributes → exact counts as int64, of shape (cells of the first one, …).
        allowance: what questions are paid from.
        contributions: k, the most records of one unit that are counted.
        bits: where noise and choices come from.

    Raises:
        InternalError: the counts are not int64, or k is not a whole number from 1.
    """

    def __init__(
        self,
        marginals: Mapping[tuple[str, ...], Counts],
        allowance: Allowance,
        contributions: int,
        bits: RandomBits,
    ) -> None:
        if any(counts.dtype != np.int64 for counts in marginals.values()):
            raise InternalError("exact counts are int64")
        if type(contributions) is not int or contributions < 1:
            raise InternalError("a unit contributes a whole number of records, at least one")
        self._marginals, self._allowance = marginals, allowance
        self._contributions, self._bits = contributions, bits
        self._distances: dict[tuple[str, ...], int] = {}

    def measure(self, block: BlockStrategy) -> NDArray[np.int64]:
        """Measure the one space of a block, with noise of its own.

        Raises:
            InternalError: it costs more than what is left, its noise is not Gaussian, it has
                several spaces or is of sums or of units, or its marginal is missing or has another
                shape.
        """
        if len(block.spaces) != 1 or not isinstance(block.law, Gaussian):
            raise InternalError("one space is measured at a time, with Gaussian noise")
        if any(isinstance(factor, MeasureFactor) for factor in block.factors):
            raise InternalError("rounds measure counts, not sums")
        if block.of_units:
            raise InternalError("rounds measure counts of rows, not of units")
        exact = apply(block, self._counts(block.spaces[0]))
        self._allowance.spend(self._contributions**2 * block.privacy_cost)
        return exact + draw(block.law, exact.size, self._bits).reshape(exact.shape)

    def compare(self, attributes: tuple[str, ...], estimate: NDArray[np.floating]) -> None:
        """Take note of how far a public estimate is from the exact marginal, and tell nobody.

        Args:
            attributes: of a marginal.
            estimate: finite numbers in its shape.

        Raises:
            InternalError: the estimate has another shape, or is not finite or far too large.
        """
        counts = self._counts(attributes)
        if estimate.shape != counts.shape:
            raise InternalError("an estimate has the wrong shape")
        if not float(np.abs(estimate).sum(dtype=np.float64)) * GRID + estimate.size < _LARGEST_SUM:
            raise InternalError("an estimate is far too large")
        exact, near = counts.reshape(-1), estimate.reshape(-1)
        total = 0
        for begin in range(0, exact.size, _CHUNK):
            piece = slice(begin, begin + _CHUNK)
            rounded = np.rint(near[piece].astype(np.float64) * GRID).astype(np.int64)
            total += int(np.abs(GRID * exact[piece] - rounded).sum())
        self._distances[attributes] = total

    def choose(self, candidates: Sequence[Candidate], epsilon: Fraction) -> int:
        """Choose one of some marginals that were compared; give its number.

        Raises:
            InternalError: it costs more than what is left, or a candidate was not compared.
        """
        weights = [c.weight for c in candidates]
        if not weights or any(type(w) is not int or w < 1 for w in weights):
            raise InternalError("the weight of a candidate is a whole number from 1")
        if not all(c.attributes in self._distances for c in candidates):
            raise InternalError("a candidate was not compared")
        sensitivity = self._contributions * GRID * max(weights)
        scores = [c.weight * self._distances[c.attributes] - c.penalty for c in candidates]
        self._allowance.spend(selection_cost(epsilon))
        return exponential_mechanism(scores, epsilon / (2 * sensitivity), self._bits)

    def _counts(self, attributes: tuple[str, ...]) -> Counts:
        counts = self._marginals.get(attributes)
        if counts is None:
            raise InternalError("a marginal is missing")
        return counts
