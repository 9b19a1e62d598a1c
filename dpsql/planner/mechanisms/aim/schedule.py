"""What is paid for each round: budget annealing (AIM, 4.3).

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
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from dpsql.planner.mechanisms.aim.candidates import Attributes

FIRST_SHARE = Fraction(7, 20)
"""Of the budget, for the total and the one-way marginals."""
ROUNDS = 64
"""Besides two for each marginal, how many rounds of the first price can be paid."""
MOST_ROUNDS = 1000
CHOOSING_SHARE = Fraction(1, 10)
"""Of a round's price."""
GROWTH = 4
_LARGEST_EPSILON = Fraction(2000)
_GRAIN = 1 << 40


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
    parts = {a: w ** (2 / 3) for a, w in weights.items()}
    largest = max(parts.values())
    whole = {a: max(1, int(part / largest * _GRAIN)) for a, part in parts.items()}
    unit = total / sum(whole.values())
    return {a: unit * share for a, share in whole.items()}
