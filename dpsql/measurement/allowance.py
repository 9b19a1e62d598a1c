"""An allowance: what may still be spent of a charge, where steps follow from others. Trusted.

A data-adaptive mechanism takes steps that are each μ_i-GDP given what came before, and both the
step and its μ_i depend on earlier outputs. If Σ μ_i² ≤ μ² whatever happens, the whole is μ-GDP
(Smith and Thakurta, "Fully adaptive composition for Gaussian differential privacy", arXiv
2210.17520). The reason: being μ_i-GDP means that the step, for either of two neighbors b = 0, 1,
is a randomized function of one draw from N(μ_i b, 1) and of what came before (Blackwell's theorem;
Dong, Roth and Su, arXiv 1905.02383, Theorem 2.10). Let W be a Brownian motion with drift b, and
let step i use the increment of W between the times T and T + μ_i², with T the sum of the earlier
squares. T and μ_i are functions of the past, so that the increment divided by μ_i has just that
distribution given the past. All steps together are then a randomized function of W up to time μ²,
of which the end W(μ²) ~ N(μ² b, μ²) says all about b: telling the neighbors apart is as hard as
telling N(0, 1) from N(μ, 1).

Guarantees:
    1. What was granted never sums to more than the total: compared and added as rationals, under
       a lock, before anything is drawn.
    2. What is refused is not noted as spent, and `InternalError` is raised.
"""

from __future__ import annotations

import threading
from fractions import Fraction

from dpsql.errors import InternalError


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
