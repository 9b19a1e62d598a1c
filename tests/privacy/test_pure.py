"""Pure ε: the μ² that it stands for, and budgets with δ = 0."""

from __future__ import annotations

import math
from fractions import Fraction as Q

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.special import ndtr, ndtri

from dpsql.errors import BudgetError
from dpsql.privacy import Budget, Ledger
from dpsql.privacy.conversions import LARGEST_EPSILON, mu_squared_of_pure

EPSILONS = [Q(1, 10**12), Q(1, 1000), Q(1, 2), Q(1), Q(5), Q(60), LARGEST_EPSILON]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_it_is_the_first_decimal_that_is_enough(epsilon: Q) -> None:
    """μ²: the next smaller one of 18 digits would be below 4 Φ⁻¹(e^ε/(1 + e^ε))²."""
    with mp.workdps(60):
        tail = 1 / (1 + mp.exp(mpf(epsilon.numerator) / epsilon.denominator))
        guess = mp.sqrt(max(mpf(0), -2 * mp.log(2 * tail)))
        z = mp.findroot(lambda x: mp.log(mp.ncdf(-x)) - mp.log(tail), guess or mpf("1e-12"))
        exact = 4 * z**2
        found = mu_squared_of_pure(epsilon)
        assert mpf(found.numerator) / found.denominator >= exact
        assert (mpf(found.numerator) / found.denominator) / exact - 1 < mpf("1e-16")


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0])
def test_the_gaussian_trade_off_is_below_the_pure_one_and_touches_it(epsilon: float) -> None:
    mu = math.sqrt(mu_squared_of_pure(Q(epsilon)))
    alpha = np.linspace(0, 1, 100_001)
    pure = np.maximum(0, np.maximum(1 - np.exp(epsilon) * alpha, np.exp(-epsilon) * (1 - alpha)))
    with np.errstate(invalid="ignore"):
        gaussian = ndtr(ndtri(1 - alpha) - mu)
    assert (gaussian <= pure + 1e-12).all()
    assert np.abs(gaussian - pure)[1:-1].min() < 1e-5
    smaller = ndtr(ndtri(1 - alpha) - 0.999 * mu)
    assert (smaller > pure + 1e-6).any(), "a smaller μ would claim too much"


@settings(max_examples=40, deadline=None)
@given(st.fractions(0, 50), st.fractions(0, 50))
def test_it_grows(first: Q, second: Q) -> None:
    low, high = sorted((first, second))
    assert mu_squared_of_pure(low) <= mu_squared_of_pure(high)


@pytest.mark.parametrize("epsilon", [Q(-1), LARGEST_EPSILON + 1])
def test_out_of_range(epsilon: Q) -> None:
    with pytest.raises(BudgetError, match="pure ε"):
        mu_squared_of_pure(epsilon)


def test_a_pure_budget() -> None:
    budget = Budget(epsilon=1, delta=0)
    assert budget.pure
    assert not Budget(epsilon=1, delta=1e-9).pure
    assert not Budget(rho=1).pure
    assert budget.mu_squared == mu_squared_of_pure(Q(1))
    assert (str(budget), repr(budget)) == ("ε = 1, δ = 0", "Budget(epsilon=1, delta=0)")
    assert budget.epsilon_at(1e-9) == 1.0
    assert budget.epsilon_at(0.4) < 1.0
    assert budget.delta_at(1) == 0.0
    assert (math.e - math.exp(0.5)) / (1 + math.e) < budget.delta_at(0.5) < 0.34
    assert budget.describe(budget.mu_squared) == "ε = 1 at δ = 0 (ρ = 0.758956)"
    assert budget.describe(budget.mu_squared / 2) == "ρ = 0.379478"


@pytest.mark.parametrize("epsilon", [Q(1, 10**5), Q(1, 3), Q(2), Q(30)])
def test_what_is_left_is_never_overstated(epsilon: Q) -> None:
    asked = Budget(epsilon=3, delta=0)
    left = asked.at_most(mu_squared_of_pure(epsilon))
    assert left is not None
    assert left.pure
    assert left.mu_squared <= mu_squared_of_pure(epsilon)
    assert left.amount > epsilon * Q(9999, 10000)


def test_the_total_of_an_account_is_not_pure() -> None:
    ledger = Ledger.open(None, dataset="test")
    with pytest.raises(BudgetError, match="can't be pure"):
        ledger.set_total(Budget(epsilon=1, delta=0))
    assert ledger.remaining is None


@pytest.mark.parametrize("epsilon", [0, -1, 1001, 1e-13])
def test_useless_pure_budgets(epsilon: float) -> None:
    with pytest.raises(BudgetError):
        Budget(epsilon=epsilon, delta=0)
