from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest

from dpsql.errors import InternalError
from dpsql.measurement.guarded import Allowance


def test_what_is_spent_adds_up_exactly():
    allowance = Allowance(Fraction(1))
    for _ in range(3):
        allowance.spend(Fraction(1, 3))
    assert (allowance.left, allowance.spent) == (0, 1)
    allowance.spend(Fraction(0))


def test_a_step_too_many_is_refused_and_not_noted():
    allowance = Allowance(Fraction(1, 10))
    allowance.spend(Fraction(1, 20))
    with pytest.raises(InternalError, match="allowance"):
        allowance.spend(Fraction(1, 20) + Fraction(1, 10**300))
    assert allowance.left == Fraction(1, 20)


@pytest.mark.parametrize("amount", [0.5, 1, Fraction(-1, 2), float("nan")])
def test_amounts_are_exact_and_not_negative(amount):
    with pytest.raises(InternalError):
        Allowance(Fraction(2)).spend(amount)
    with pytest.raises(InternalError):
        Allowance(amount)


def test_threads_together_spend_no_more():
    allowance = Allowance(Fraction(100))

    def spend(_):
        try:
            allowance.spend(Fraction(1))
        except InternalError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(spend, range(500))) == 100
    assert allowance.left == 0
