"""The exponential mechanism: exact probabilities, and a cost that is a proven bound."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from scipy import stats
from scipy.special import expit, ndtri

from dpsql.errors import BudgetError, InternalError
from dpsql.measurement import exponential as selection
from dpsql.measurement.exponential import exponential_mechanism, selection_cost
from dpsql.privacy.conversions import exact_ball, precision
from tests.helpers.seeded import GivenBits, SeededBits

ALPHA = 1e-6


def law(scores, steepness):
    weights = np.exp(float(steepness) * (np.array(scores, float) - max(scores)))
    return weights / weights.sum()


@pytest.mark.statistical
@pytest.mark.parametrize("steepness", [Fraction(0), Fraction(1, 3), Fraction(2)])
def test_candidates_come_with_their_probabilities(steepness):
    scores, draws, bits = [3, 0, -2, 3, 1], 6000, SeededBits(5)
    found = [exponential_mechanism(scores, steepness, bits) for _ in range(draws)]
    observed = np.bincount(found, minlength=len(scores))

    def p_value(of):
        expected = law(scores, of) * draws
        rare = expected < 10
        pool = lambda x: np.append(x[~rare], x[rare].sum())  # noqa: E731
        return stats.chisquare(*(pool(x) if rare.any() else x for x in (observed, expected))).pvalue

    assert p_value(steepness) > ALPHA
    assert p_value(steepness * Fraction(3, 2) + Fraction(1, 5)) < ALPHA  # notices another law


def test_the_first_sum_above_the_uniform_wins():
    weights = law([0, -1, -2], Fraction(1))
    for index, (low, high) in enumerate(
        zip(np.cumsum(weights) - weights, np.cumsum(weights), strict=True)
    ):
        for u in (low + 1e-6, (low + high) / 2, high - 1e-6):
            bits = GivenBits(int(u * 2**64))
            assert exponential_mechanism([0, -1, -2], Fraction(1), bits) == index


def test_a_uniform_at_the_border_takes_more_bits():
    """The border of the first of two candidates is 1/(1 + e^−1), irrational."""
    with precision(400):
        border = 1 / (1 + arb(-1).exp()) * arb(2) ** 128
        digits = int(border.floor().unique_fmpz())
    first, second = digits >> 64, digits & (2**64 - 1)
    for word, expected in ((second - 1, 0), (second + 1, 1), (0, 0), (2**64 - 1, 1)):
        bits = GivenBits(first, word)
        assert exponential_mechanism([0, -1], Fraction(1), bits) == expected
        assert not bits.left
    bits = GivenBits(first, second, 0)
    assert exponential_mechanism([0, -1], Fraction(1), bits) == 0
    bits = GivenBits(first - 1)
    assert exponential_mechanism([0, -1], Fraction(1), bits) == 0


def test_huge_scores_neither_overflow_nor_vanish():
    bits = SeededBits(1)
    assert exponential_mechanism([0, 10**30, -(10**300)], Fraction(1), bits) == 1
    tiny = Fraction(1, 10**30)
    assert {exponential_mechanism([0, 10**20], tiny, bits) for _ in range(40)} == {0, 1}


def test_the_number_of_words_does_not_depend_on_the_scores():
    for scores in ([0] * 50, list(range(50)), [10**9, *[0] * 49]):
        bits = SeededBits(2)
        exponential_mechanism(scores, Fraction(1, 7), bits)
        assert bits.drawn == 1


def test_every_candidate_is_compared(monkeypatch):
    """Whichever is chosen, as many comparisons are made."""
    real, calls = selection._compare, []
    monkeypatch.setattr(selection, "_compare", lambda *a: calls.append(1) or real(*a))
    for word in (0, 2**63, 2**64 - 1):
        calls.clear()
        exponential_mechanism([0, 5, 2, 1], Fraction(1), GivenBits(word))
        assert len(calls) == 3


@pytest.mark.parametrize(
    ("scores", "steepness"),
    [
        ([], Fraction(1)),
        ([1.5], Fraction(1)),
        ([1], 0.5),
        ([1], Fraction(-1)),
        ([True], Fraction(1)),
    ],
)
def test_what_is_not_exact_is_refused(scores, steepness):
    with pytest.raises(InternalError):
        exponential_mechanism(scores, steepness, SeededBits(0))


@pytest.mark.parametrize("epsilon", ["0.001", "0.1", "1", "5", "40"])
def test_the_cost_is_that_of_the_worst_pair(epsilon):
    """μ = h(x + ε) − h(x) at x = −ε/2, and nowhere more; also at most ε√(2π)/4."""
    epsilon = Fraction(epsilon)
    cost = selection_cost(epsilon)
    e = float(epsilon)
    x = np.linspace(-e - 8, 8, 4001)
    worst = (ndtri(expit(np.minimum(x + e, 30))) - ndtri(expit(x)))[x + e < 30].max()
    at = -2 * ndtri(expit(-e / 2))
    assert worst <= at * (1 + 1e-9)
    assert math.isclose(float(cost), at**2, rel_tol=1e-9)
    assert cost <= Fraction(355, 904) * epsilon**2  # π < 355/113


def test_the_cost_is_rounded_up_and_refuses_what_it_cannot_be():
    for epsilon in map(Fraction, ("1e-9", "0.37", "3")):
        with precision(300):
            tail = 2 / (1 + (exact_ball(epsilon) / 2).exp())
            assert exact_ball(selection_cost(epsilon)) >= 8 * tail.erfcinv() ** 2
    assert selection_cost(Fraction(0)) == 0
    with pytest.raises(BudgetError):
        selection_cost(Fraction(-1))


def hazard(z: arb) -> arb:
    """λ(z) = φ(z)/Φ(−z)."""
    return (-z * z / 2).exp() * (2 / arb.pi()).sqrt() / (z / arb(2).sqrt()).erfc()


def test_the_slope_of_the_probit_of_the_logistic_falls():
    """The claim behind the cost: h' = Φ(z)Φ(−z)/φ(z) at z = h(x), even, falls for z ≥ 0.

    −(log h')' = d(z) = λ(z) − λ(−z) − z. It is 0 at 0, and

        d' = λ(z)(λ(z) − z) + λ(−z)(λ(−z) + z) − 1 > 0   on [0, 1/2],
        d > 0                                            on [1/2, 6],

    in balls that cover the intervals. Beyond, λ(z) > (3z + √(z² + 8))/4 (Sampford, 1953) leaves
    d > 2/(z + √(z² + 8)) − φ(z)/Φ(z), of which the first term is above 1/(z + 1) and the second
    below 2φ(z); (z + 1)·2φ(z) falls and is below 1 at 6.
    """
    with precision(128):
        for i in range(6 * 512):
            z = arb(2 * i + 1, 1) / 1024  # from i/512 to (i + 1)/512
            up, down = hazard(z), hazard(-z)
            if i < 256:
                assert up * (up - z) + down * (down + z) - 1 > 0
            else:
                assert up - down - z > 0
        z = arb(6)
        assert (z + 1) * 2 * (-z * z / 2).exp() / (2 * arb.pi()).sqrt() < 1


def test_no_pair_of_neighbours_is_easier_to_tell_apart_than_the_cost_says():
    """Over random scores and changes within the sensitivity, all likelihood-ratio tests."""
    generator = np.random.default_rng(3)
    closest = 0.0
    for _ in range(3000):
        size, epsilon = int(generator.integers(2, 6)), float(10 ** generator.uniform(-2, 0.7))
        mu = math.sqrt(selection_cost(Fraction(epsilon)))
        scores = generator.normal(0, 10 ** generator.uniform(-1, 1), size)
        change = generator.choice([-1.0, 1.0, 0.3], size)  # sensitivity 1
        here, there = law(scores, epsilon / 2), law(scores + change, epsilon / 2)
        order = np.argsort(-there / here)
        p, q = np.cumsum(there[order])[:-1], np.cumsum(here[order])[:-1]
        inside = (p < 1 - 1e-9) & (q > 1e-9)
        distances = ndtri(p[inside]) - ndtri(q[inside])
        if distances.size:
            assert distances.max() <= mu * (1 + 1e-6)
            closest = max(closest, float(distances.max()) / mu)
    assert closest > 0.99
