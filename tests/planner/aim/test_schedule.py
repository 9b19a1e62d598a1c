from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.measurement.exponential import selection_cost
from dpsql.planner.mechanisms.aim_rounds import (
    Price,
    expected_noise,
    first_price,
    first_shares,
    next_price,
)


@pytest.mark.parametrize("exponent", [-14, -6, -1, 0, 1, 3, 8, 15])
def test_a_choice_costs_no_more_than_its_price(exponent):
    for digits in (1, 2, 3.7, 9.999):
        parts = Price.of(Fraction(digits) * Fraction(10) ** exponent)
        cost = selection_cost(parts.epsilon)
        assert cost <= parts.choosing
        if exponent < -1:
            assert cost > Fraction(99, 100) * parts.choosing
        assert parts.choosing + parts.measuring == Fraction(digits) * Fraction(10) ** exponent


def test_rounds_that_find_nothing_get_dearer_and_the_last_takes_all():
    price, left = Fraction(1), Fraction(100)
    assert next_price(price, left, moved=5.0, noise=4.0) == price
    assert next_price(price, left, moved=4.0, noise=4.0) == 4
    assert next_price(price, Fraction(7), moved=0.0, noise=4.0) == 7
    assert next_price(price, Fraction(3, 2), moved=5.0, noise=4.0) == Fraction(3, 2)
    assert next_price(price, Fraction(0), moved=5.0, noise=4.0) == 0
    assert next_price(price, left, moved=4.0, noise=4.0, several=True) == 2
    assert next_price(price, left, moved=5.0, noise=4.0, several=True) == price


@pytest.mark.parametrize("moved", [0.0, 10.0])
def test_the_rounds_end_and_use_all(moved):
    left, rounds = Fraction(65, 100), 0
    price = first_price(left, marginals=10)
    while price > 0:
        left -= price
        assert left >= 0
        price = next_price(price, left, moved, noise=1.0)
        rounds += 1
    assert left == 0
    assert rounds == (84 if moved else 4)


def test_the_expected_noise_is_that_of_counting_all_cells():
    generator = np.random.default_rng(0)
    price, k = Fraction(1, 50), 2
    sigma = k / math.sqrt(price)
    sums = np.abs(generator.normal(0, sigma, (4000, 30))).sum(axis=1)
    assert sums.mean() == pytest.approx(expected_noise(30, price, k), rel=0.01)


def test_first_shares_are_exact_and_best():
    """No other shares make Σ w/√c smaller; together they cost at most the total."""
    weights = {("a",): 8.0, ("b",): 27.0, (): 1.0}
    shares = first_shares(weights, Fraction(1, 3))
    assert Fraction(1, 3) * (1 - Fraction(1, 10**9)) < sum(shares.values()) <= Fraction(1, 3)
    assert float(shares[("b",)] / shares[()]) == pytest.approx(9)

    def noise(of):
        return sum(w / math.sqrt(of[a]) for a, w in weights.items())

    for shift in (Fraction(1, 1000), Fraction(-1, 1000)):
        other = {**shares, ("a",): shares[("a",)] + shift, ("b",): shares[("b",)] - shift}
        assert noise(other) > noise(shares)
