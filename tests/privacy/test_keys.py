"""The rule by which keys are told: exact at the last integer, by another way to compute it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction as Q

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.errors import InternalError
from dpsql.measurement.laplace import discrete_laplace
from dpsql.privacy.conversions import mu_squared_of, mu_squared_of_pure
from dpsql.privacy.keys import (
    MOST_KEYS,
    SCALE,
    KeyRound,
    KeyRule,
    least_threshold,
    weights,
)
from tests.helpers.seeded import SeededBits

MU_SQUARED = mu_squared_of(Q(1), Q(9, 10**10))
DELTA = Q(1, 10**10)


def told(at: int, variance: int, keys: int, others: int = 0) -> mpmath.mpf:
    """The probability that any of a unit's keys is told, each with so many other units."""
    with mpmath.workdps(60):
        weight = math.isqrt(SCALE**2 // keys)
        x = (mpmath.mpf(at) - others * SCALE - weight - mpmath.mpf("0.5")) / mpmath.sqrt(variance)
        return -mpmath.expm1(keys * mpmath.log1p(-mpmath.ncdf(-x)))


def worst(at: int, variance: int, most: int, others: int = 0) -> mpmath.mpf:
    return max(told(at, variance, keys, others) for keys in range(1, most + 1))


amounts = st.fractions(Q(1, 10**6), 50, max_denominator=10**7)
deltas = st.builds(lambda a, b: Q(a, 10**b), st.integers(1, 9), st.integers(2, 40))


@settings(max_examples=25, deadline=None)
@given(amounts, deltas, st.integers(1, 12), st.integers(1, 30))
def test_the_threshold_is_the_least_that_keeps_to_delta(mu_squared, delta, most, least):
    round_ = KeyRound(mu_squared, delta, most, least)
    at, variance = round_.threshold, round_.variance
    bound = mpmath.mpf(delta.numerator) / delta.denominator
    assert worst(at, variance, most, least - 1) <= bound
    assert worst(at - 1, variance, most, least - 1) > bound
    assert Q(SCALE**2, variance) == round_.privacy_cost <= mu_squared
    assert Q(SCALE**2, variance - 1) > mu_squared if variance > 1 else True


def test_known_thresholds():
    variance = math.ceil(SCALE**2 / MU_SQUARED)
    assert least_threshold(variance, DELTA, 1) == 37_820_702
    assert least_threshold(variance, DELTA, 10) / SCALE == pytest.approx(37.285, abs=1e-3)


def test_other_units_weigh_as_much_as_one_can():
    """Nine other units with this key alone add S each, however little the unit's own weight is."""
    round_ = KeyRound(MU_SQUARED, DELTA, 10, 10)
    own = least_threshold(round_.variance, DELTA, 10)
    lower = own + 9 * weights(10)[-1]
    assert worst(lower, round_.variance, 10, others=9) > 1000 * float(DELTA)
    assert worst(round_.threshold, round_.variance, 10, others=9) <= float(DELTA)


def test_weights_are_the_largest_that_one_unit_may_add():
    for keys, weight in enumerate(weights(10**5), start=1):
        assert keys * weight**2 <= SCALE**2 < keys * (weight + 1) ** 2


@settings(max_examples=50, deadline=None)
@given(amounts, deltas, st.integers(1, 50), st.integers(1, 5))
def test_rounds_cost_no_more_than_what_is_paid(mu_squared, delta, most, least):
    rule = KeyRule.of(mu_squared, delta, most, least)
    assert len(rule.rounds) == (2 if most > 1 else 1)
    assert rule.delta == delta
    assert rule.privacy_cost <= rule.mu_squared == mu_squared
    assert {(each.most, each.least) for each in rule.rounds} == {(most, least)}


@pytest.mark.parametrize(("most", "least"), [(1, 1), (1, 25), (4, 1)])
def test_probabilities_are_those_of_simulated_keys(most, least):
    """10^5 keys of n units, each with one key: both rounds, as they are carried out."""
    rule, n, generator = (
        KeyRule.of(MU_SQUARED, DELTA, most, least),
        100_000,
        np.random.default_rng(1),
    )
    for units in (20, 35, 40, 45, 60):
        found = np.zeros(n, dtype=bool)
        for round_ in rule.rounds:
            noise = np.rint(generator.normal(0, math.sqrt(round_.variance), n))
            found |= (units * SCALE + noise >= round_.threshold) & (units >= least)
        expected = rule.probability(units)
        sd = math.sqrt(expected * (1 - expected) / n)
        assert abs(found.mean() - expected) <= 4 * sd + 1e-9


def test_least_is_the_least():
    for most in (1, 3):
        rule = KeyRule.of(MU_SQUARED, DELTA, most)
        for probability in (0.05, 0.5, 0.95, 0.999):
            units = rule.least(probability)
            assert rule.probability(units) >= probability > rule.probability(units - 1)
    assert KeyRule.of(MU_SQUARED, DELTA, 1).least(0.5) == 37
    assert KeyRule.of(MU_SQUARED, DELTA, 1).least(0.95) == 46
    assert KeyRule.of(Q(1000), Q(1, 4), 1, least=30).least(0.5) == 31
    assert KeyRule.of(MU_SQUARED, DELTA, 1, least=30).probability(29) == 0.0


def test_units_with_more_keys_make_them_harder_to_find():
    rule = KeyRule.of(MU_SQUARED, DELTA, 10)
    found = [rule.probability(60, each) for each in (1, 2, 5, 10)]
    assert found == sorted(found, reverse=True)
    assert rule.probability(60, 10) == rule.probability(60, 99)
    assert str(rule) == "keys of 42 units are found every other time, of 52 in 95 % of cases"


def test_many_keys_of_a_unit():
    assert least_threshold(10**14, DELTA, MOST_KEYS) > least_threshold(10**14, DELTA, 1)


@pytest.mark.parametrize(
    "given_",
    [
        (MU_SQUARED, Q(0), 1, 1),
        (MU_SQUARED, Q(1, 3), 1, 1),
        (MU_SQUARED, 1e-10, 1, 1),
        (Q(0), DELTA, 1, 1),
        (1, DELTA, 1, 1),
        (MU_SQUARED, DELTA, 0, 1),
        (MU_SQUARED, DELTA, MOST_KEYS + 1, 1),
        (MU_SQUARED, DELTA, 1, 0),
        (MU_SQUARED, DELTA, True, 1),
    ],
)
def test_amounts_out_of_range_are_refused(given_):
    with pytest.raises(InternalError):
        KeyRound(*given_)


def test_rounds_are_for_as_many_keys_of_a_unit():
    (first, second) = KeyRule.of(MU_SQUARED, DELTA, 3).rounds
    for rounds in (
        (),
        (first, KeyRound(MU_SQUARED, DELTA, 4)),
        (second, KeyRound(MU_SQUARED, DELTA, 3, 2)),
    ):
        with pytest.raises(InternalError):
            KeyRule(rounds)


# ── Laplace noise, for a pure ε ──────────────────────────────────────────────────────────────────


def told_purely(at: int, scale: int, keys: int, others: int = 0) -> mpmath.mpf:
    """The probability that any of a unit's keys is told: the tail is summed as a geometric one."""
    with mpmath.workdps(60):
        beyond = at - others * SCALE - SCALE // keys
        ratio = mpmath.exp(-mpmath.mpf(1) / scale)
        first = (1 - ratio) / (1 + ratio)
        tail = first * ratio**beyond / (1 - ratio) if beyond > 0 else 1
        return mpmath.mpf(1) if tail == 1 else -mpmath.expm1(keys * mpmath.log1p(-tail))


@settings(max_examples=25, deadline=None)
@given(st.fractions(Q(1, 10**4), 20, max_denominator=10**6), deltas, st.integers(1, 12),
       st.integers(1, 30))  # fmt: skip
def test_the_threshold_of_laplace_noise_is_the_least_that_keeps_to_delta(eps, delta, most, least):
    round_ = KeyRound.pure(eps, delta, most, least)
    at, scale = round_.threshold, round_.scale
    assert Q(SCALE, scale) <= eps < Q(SCALE, scale - 1) if scale > 1 else True
    bound = mpmath.mpf(delta.numerator) / delta.denominator

    def worst_at(at):
        return max(told_purely(at, scale, t, least - 1) for t in range(1, most + 1))

    assert worst_at(at) <= bound < worst_at(at - 1)
    assert round_.privacy_cost == mu_squared_of_pure(Q(SCALE, scale)) <= round_.mu_squared


def test_one_unit_adds_no_more_than_epsilon_to_all_its_scores():
    for keys, weight in enumerate(weights(10**5, pure=True), start=1):
        assert keys * weight <= SCALE < keys * (weight + 1)


def test_known_thresholds_of_laplace_noise():
    rule = KeyRule.pure(Q(1), Q(1, 10**9), 1)
    assert (rule.least(0.5), rule.least(0.95)) == (22, 24)
    assert math.sqrt(rule.rounds[0].variance) / SCALE == pytest.approx(2**0.5)
    assert rule.epsilon == 1
    assert rule.mu_squared == mu_squared_of_pure(Q(1))
    assert float(rule.mu_squared) == pytest.approx(1.518, abs=1e-3)
    two = KeyRule.pure(Q(1), Q(1, 10**9), 5)
    assert [each.epsilon for each in two.rounds] == [Q(1, 5), Q(4, 5)]
    assert (two.epsilon, two.delta) == (1, Q(1, 10**9))


@pytest.mark.parametrize(("most", "least"), [(1, 1), (1, 25), (4, 1)])
def test_probabilities_with_laplace_noise_are_those_of_simulated_keys(most, least):
    rule, n = KeyRule.pure(Q(1), Q(1, 10**9), most, least), 100_000
    bits = SeededBits(1)
    for units in (15, 20, 22, 25, 40):
        found = np.zeros(n, dtype=bool)
        for round_ in rule.rounds:
            noise = discrete_laplace(round_.scale, n, bits)
            found |= (units * SCALE + noise >= round_.threshold) & (units >= least)
        expected = rule.probability(units)
        assert abs(found.mean() - expected) <= 4 * math.sqrt(expected * (1 - expected) / n) + 1e-9


@pytest.mark.parametrize("change", [{"epsilon": Q(1, 1 << 30)}, {"epsilon": Q(1001)},
                                    {"mu_squared": Q(1)}, {"epsilon": 1}])  # fmt: skip
def test_laplace_rounds_out_of_range_are_refused(change):
    with pytest.raises(InternalError):
        replace(KeyRound.pure(Q(1), DELTA, 1), **change)


def test_rounds_of_both_kinds_of_noise_make_no_rule():
    with pytest.raises(InternalError):
        KeyRule((KeyRound(MU_SQUARED, DELTA, 2), KeyRound.pure(Q(1), DELTA, 2)))
