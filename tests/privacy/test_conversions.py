from __future__ import annotations

import math
import sys
from fractions import Fraction as Q

import mpmath
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpsql.errors import BudgetError
from dpsql.privacy.conversions import delta_of, epsilon_of, mu_squared_of
from tests.helpers.calls import counted_calls

# μ, δ at ε = 0, 0.5, 1, 2, 4, ε at δ = 1e-6, 1e-10; computed with mpmath at 50 digits.
TABLE = [
    ("0.1", ["0.039877611676744923", "6.8565824558387266e-9", "1.2308359836427042e-25",
             "3.7194507268046404e-91", None], "0.39685737764408359", "0.57464030752631765"),
    ("0.5", ["0.19741265136584745", "0.052440323287669662", "0.0068295949831145754",
             "9.4391686349472338e-6", "2.7060338029569069e-16"],
     "2.2540846502197409", "3.0994303302431961"),
    ("1", ["0.38292492254802621", "0.23842170813487663", "0.12693673750664395",
           "0.020923635821113731", "4.7122412007931199e-5"],
     "4.886554117462212", "6.547924066864951"),
    ("2", ["0.6826894921370859", "0.59918561853393326", "0.50986166005467015",
           "0.33189799877682939", "0.084953318671071063"],
     "10.997151214220651", "14.274089645078006"),
]  # fmt: skip


def true_delta(mu_squared: Q, epsilon: Q) -> mpmath.mpf:
    """δ(ε) by the defining formula. Exponents are unlimited, so 80 digits are plenty."""
    with mpmath.workdps(80):
        mu = mpmath.sqrt(mpmath.mpf(mu_squared.numerator) / mu_squared.denominator)
        level = mpmath.mpf(epsilon.numerator) / epsilon.denominator
        a, b = level / mu - mu / 2, level / mu + mu / 2
        return mpmath.ncdf(-a) - mpmath.exp(level) * mpmath.ncdf(-b)


def is_above(reported: float, truth: mpmath.mpf, ulps: int = 1) -> bool:
    """At or above the truth, and by less than `ulps` floats."""
    low = reported
    for _ in range(ulps):
        low = math.nextafter(low, -math.inf)
    with mpmath.workdps(80):
        return mpmath.mpf(low) < truth <= mpmath.mpf(reported)


@pytest.mark.parametrize(("mu", "deltas", "at_6", "at_10"), TABLE)
def test_the_published_vectors(mu: str, deltas: list[str], at_6: str, at_10: str) -> None:
    square = Q(mu) ** 2
    for epsilon, expected in zip(["0", "0.5", "1", "2", "4"], deltas, strict=True):
        found = delta_of(square, Q(epsilon))
        if expected is None:
            assert found == 5e-324  # 6.74e-352: underflow stays positive
        else:
            assert found == pytest.approx(float(expected), rel=4e-16, abs=0)
            assert is_above(found, true_delta(square, Q(epsilon)))
    for delta, text in (("1e-6", at_6), ("1e-10", at_10)):
        assert epsilon_of(square, Q(delta)) == pytest.approx(float(text), rel=4e-16, abs=0)


def test_the_epsilon_that_others_round_below_the_truth() -> None:
    found = epsilon_of(Q(1), Q("1e-6"))
    assert found > 4.886554117462159
    assert true_delta(Q(1), Q(found)) <= mpmath.mpf(1) / 10**6
    assert true_delta(Q(1), Q(math.nextafter(found, 0))) > mpmath.mpf(1) / 10**6


mu_squares = st.builds(
    lambda digits, power: Q(digits) * Q(10) ** power, st.integers(1, 999), st.integers(-4, 2)
)
epsilons = st.fractions(0, 20, max_denominator=1000)
deltas = st.builds(
    lambda digits, power: Q(digits) / Q(10) ** power, st.integers(1, 9), st.integers(1, 40)
)


@given(mu_squares, epsilons)
@settings(max_examples=60, deadline=None)
def test_delta_is_the_next_float_above_the_truth(mu_squared: Q, epsilon: Q) -> None:
    exponent = (epsilon**2 / mu_squared + mu_squared / 4) / 2
    assume(exponent < 2000)
    truth = true_delta(mu_squared, epsilon)
    found = delta_of(mu_squared, epsilon)
    if truth > sys.float_info.min:
        assert is_above(found, truth, ulps=2)
    else:
        assert found > 0
        assert truth <= found <= 2 * max(float(truth), 5e-324)


@given(mu_squares, deltas)
@settings(max_examples=60, deadline=None)
def test_epsilon_is_the_first_float_that_is_enough(mu_squared: Q, delta: Q) -> None:
    found = epsilon_of(mu_squared, delta)
    with mpmath.workdps(80):
        bound = mpmath.mpf(delta.numerator) / delta.denominator
    assert true_delta(mu_squared, Q(found)) <= bound
    if found > 0:
        assert true_delta(mu_squared, Q(math.nextafter(found, 0))) > bound


@given(epsilons.filter(lambda e: e > Q(1, 100)), deltas)
@settings(max_examples=60, deadline=None)
def test_mu_squared_is_the_last_decimal_that_is_allowed(epsilon: Q, delta: Q) -> None:
    found = mu_squared_of(epsilon, delta)
    power = math.floor(math.log10(found))
    step = Q(10) ** (power - 17)
    assert (found / step).denominator == 1  # 18 significant digits
    with mpmath.workdps(80):
        bound = mpmath.mpf(delta.numerator) / delta.denominator
    assert true_delta(found, epsilon) <= bound
    assert true_delta(found + step, epsilon) > bound
    # Back again: never above the ε that was asked for, and not far below.
    back = Q(epsilon_of(found, delta))
    assert back <= Q(math.nextafter(float(epsilon), math.inf))
    assert float(back) == pytest.approx(float(epsilon), rel=1e-12, abs=1e-12)


@given(mu_squares, mu_squares, epsilons, epsilons, deltas, deltas)
@settings(max_examples=40, deadline=None)
def test_monotonicity(m1: Q, m2: Q, e1: Q, e2: Q, d1: Q, d2: Q) -> None:
    (m1, m2), (e1, e2), (d1, d2) = sorted((m1, m2)), sorted((e1, e2)), sorted((d1, d2))
    assert delta_of(m1, e1) <= delta_of(m2, e1)
    assert delta_of(m1, e2) <= delta_of(m1, e1)
    assert epsilon_of(m1, d1) <= epsilon_of(m2, d1)
    assert epsilon_of(m1, d2) <= epsilon_of(m1, d1)
    assert mu_squared_of(e1, d1) <= mu_squared_of(e2, d1)
    assert mu_squared_of(e1, d1) <= mu_squared_of(e1, d2)


@pytest.mark.parametrize("mu_squared", [Q(1, 10**12), Q(1, 1000), Q(1), Q(10**6), Q(10**15)])
@pytest.mark.parametrize("delta", [Q(1, 10**300), Q(1, 10**9), Q(1, 2), Q(999, 1000)])
def test_huge_ranges_neither_overflow_nor_mislead(mu_squared: Q, delta: Q) -> None:
    epsilon = epsilon_of(mu_squared, delta)
    assert 0 <= epsilon < math.inf
    assert Q(delta_of(mu_squared, Q(epsilon))) <= delta * (1 + Q(1, 2**50))
    if epsilon > 0:
        below = Q(math.nextafter(epsilon, 0))
        assert Q(delta_of(mu_squared, below)) >= delta
        assert float(mu_squared_of(Q(epsilon), delta)) == pytest.approx(float(mu_squared), rel=1e-6)


@pytest.mark.parametrize("epsilon", [Q(1, 10**6), Q(1), Q(1000), Q(10**6)])
@pytest.mark.parametrize("delta", [Q(1, 10**300), Q(1, 10**9), Q(1, 2)])
def test_huge_ranges_round_trip(epsilon: Q, delta: Q) -> None:
    assert epsilon_of(mu_squared_of(epsilon, delta), delta) == pytest.approx(float(epsilon))


def test_a_relative_check_where_the_two_terms_nearly_cancel() -> None:
    mu_squared, epsilon = Q(10**15), Q(5 * 10**14 + 10**9)
    # a = 15.8, b = 3.2e7: δ = φ(a)·(M(a) − M(b)).
    with mpmath.workdps(60):
        mu = mpmath.sqrt(10**15)
        a = mpmath.mpf(epsilon.numerator) / mu - mu / 2
        b = a + mu
        expected = mpmath.ncdf(-a) - mpmath.npdf(a) * (1 / b - 1 / b**3)
    assert delta_of(mu_squared, epsilon) == pytest.approx(float(expected), rel=1e-14)


def test_underflow_stays_positive_and_certainty_is_one_at_most() -> None:
    assert delta_of(Q(1, 10**12), Q(10**6)) == 5e-324
    assert delta_of(Q(10**15), Q(0)) == 1.0
    assert delta_of(Q(0), Q(0)) == 0.0
    assert epsilon_of(Q(0), Q(1, 10**9)) == 0.0
    assert epsilon_of(Q(1), Q(1, 2)) == 0.0  # δ(0) = 0.38 already


def test_out_of_range() -> None:
    for call in (
        lambda: delta_of(Q(-1), Q(1)),
        lambda: delta_of(Q(1), Q(-1)),
        lambda: epsilon_of(Q(1), Q(0)),
        lambda: epsilon_of(Q(10**400), Q(1, 10**9)),
        lambda: mu_squared_of(Q(1), Q(-1)),
    ):
        with pytest.raises(BudgetError):
            call()


def test_conversions_take_few_steps() -> None:
    with counted_calls() as calls:
        epsilon_of(Q(10**15), Q(1, 10**300))
        mu_squared_of(Q(10**6), Q(1, 10**300))
    assert calls.count < 10**4
