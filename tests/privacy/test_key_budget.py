"""The part of a budget that finds keys: what is asked, and what it costs."""

from __future__ import annotations

from fractions import Fraction as Q

import pytest

import dpsql
from dpsql import Budget, Keys
from dpsql.privacy.conversions import mu_squared_of

BUDGET = Budget(epsilon=1, delta=1e-9)
LEFT = mu_squared_of(Q(1), Q(9, 10**10))


def test_all_of_a_budget_and_a_tenth_of_its_delta_by_default():
    rule = Keys().rule(BUDGET)
    assert (rule.mu_squared, rule.delta) == (LEFT, Q(1, 10**10))
    assert Keys() == Keys(max_keys=10_000, pre_threshold=1)


@pytest.mark.parametrize(
    ("keys", "budget", "expected"),
    [
        (Keys(0.2), BUDGET, (LEFT / 5, Q(1, 10**10))),
        (Keys(delta="1e-11"), BUDGET, (mu_squared_of(Q(1), Q(99, 10**11)), Q(1, 10**11))),
        (Keys(delta=1e-8), Budget(rho=0.5), (Q(1), Q(1, 10**8))),
        (Keys(), Budget(rho=0.5).setting_aside(1e-8), (Q(1), Q(1, 10**8))),
        (Keys(), BUDGET.setting_aside(2e-10), (mu_squared_of(Q(1), Q(8, 10**10)), Q(2, 10**10))),
        (
            Keys(delta=1e-10),
            BUDGET.setting_aside(2e-10),
            (mu_squared_of(Q(1), Q(8, 10**10)), Q(1, 10**10)),
        ),
    ],
)
def test_what_is_paid(keys, budget, expected):
    rule = keys.rule(budget)
    assert (rule.mu_squared, rule.delta) == expected
    assert keys.rule(budget, 7).mu_squared == expected[0]


@pytest.mark.parametrize("most", [1, 3, 1000])
@pytest.mark.parametrize(("units", "least"), [(100, 1), (1000, 1), (300, 100)])
def test_the_least_that_finds_keys_of_so_many_units(units, least, most):
    keys = Keys(at_least=units, pre_threshold=least)
    rule = keys.rule(BUDGET, most)
    assert rule.probability(units) >= 0.95
    assert rule.mu_squared < LEFT
    less = Keys(share=rule.mu_squared / LEFT * Q(98, 100), pre_threshold=least).rule(BUDGET, most)
    assert less.probability(units) < 0.95


def test_keys_of_a_hundred_units_take_a_fifth():
    assert float(Keys(at_least=100).rule(BUDGET).mu_squared / LEFT) == pytest.approx(
        0.199, abs=1e-3
    )


def test_too_few_units_to_be_found():
    with pytest.raises(dpsql.BudgetError) as caught:
        Keys(at_least=45).rule(BUDGET)
    assert "at_least=46" in caught.value.hint
    assert Keys(at_least=46).rule(BUDGET).probability(46) >= 0.95
    with pytest.raises(dpsql.BudgetError):
        Keys(at_least=100, pre_threshold=100).rule(BUDGET)


@pytest.mark.parametrize(
    ("keys", "budget", "hint"),
    [
        (Keys(), Budget(rho=1), 'delta="1e-10"'),
        (Keys(), Budget(mu=1), 'delta="1e-10"'),
        (Keys(), Budget(epsilon=1, delta=0), 'delta="1e-10"'),
        (Keys(delta=1e-9), BUDGET, "leave delta="),
        (Keys(delta=9e-10), BUDGET.setting_aside(1e-10), "leave delta="),
        (Keys(delta=2e-8), Budget(rho=0.5).setting_aside(1e-8), "leave delta="),
    ],
)
def test_budgets_without_a_delta_for_keys(keys, budget, hint):
    with pytest.raises(dpsql.BudgetError) as caught:
        keys.rule(budget)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "given_",
    [
        {"share": 0},
        {"share": 1.5},
        {"share": True},
        {"share": "much"},
        {"share": float("nan")},
        {"share": 0.1, "at_least": 100},
        {"at_least": 1},
        {"at_least": 10.0},
        {"delta": 0},
        {"delta": 0.3},
        {"delta": -1e-9},
        {"max_keys": 0},
        {"max_keys": 50_001},
        {"pre_threshold": 0},
        {"pre_threshold": True},
        {"at_most": 3},
    ],
)
def test_what_can_not_be_meant(given_):
    with pytest.raises(dpsql.ArgumentError):
        Keys(**given_)


def test_keys_are_frozen():
    with pytest.raises(AttributeError):
        Keys().max_keys = 3
