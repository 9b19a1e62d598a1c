"""The part of a budget that finds what nobody knows beforehand: keys of columns, or bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from statistics import NormalDist

from dpsql.calls import check_switch, checked
from dpsql.errors import ArgumentError, BudgetError, shown
from dpsql.hints import Hint
from dpsql.privacy.budget import KEY_SHARE, Budget, Number, shown_delta
from dpsql.privacy.keys import FIRST_SHARE, LARGEST_DELTA, SMALLEST_EPSILON, KeyRule

SURE = 0.95
"""The probability with which keys of `at_least` units are found."""
MOST_FOUND = 50_000
"""The largest `max_keys`: so many texts fit into what a ledger keeps of one release."""
_MOST_UNITS = 10**9
_NEAR = Fraction(999, 1000)
_NONE = Fraction(1, 10**30)
_EXAMPLE = "for example dpsql.Keys(at_least=100)."
_PARTS = 'for example dpsql.Keys(share=0.2, delta="1e-10").'


@dataclass(frozen=True, slots=True, init=False)
class Keys:
    """The rule by which keys are found that nobody knows beforehand.

        session.find_keys("flights", "tailnum", budget=dpsql.Budget(epsilon=1, delta=1e-9),
                          keys=dpsql.Keys(at_least=100))

    A key is told if enough units have it; which ones those of few units are, nobody learns. Of a
    pure ε, as in `dpsql.Budget(epsilon=1, delta=0)`, numbers of units get Laplace noise: for one
    question alone it tells more keys than Gaussian noise does.

    Args:
        share: the part of the budget that is spent: all of it by default.
        at_least: or so much of it that keys of so many units are found with a probability of 95 %.
        delta: the probability that a key of one unit alone is told. By default a tenth of the
            budget's δ, which the rest of it is smaller by. Budgets in ρ and μ and of a pure ε have
            none: with them it must be said, and is spent besides.
        max_keys: how many are told at most: those with the largest noisy scores.
        pre_threshold: how many units must have a key in any case, for those who have promised it.

    Raises:
        ArgumentError, BudgetError: it can't be so.
    """

    share: Fraction | None
    at_least: int | None
    delta: Fraction | None
    max_keys: int
    pre_threshold: int

    @checked
    def __init__(
        self,
        share: Number | None = None,
        *,
        at_least: int | None = None,
        delta: Number | str | None = None,
        max_keys: int = 10_000,
        pre_threshold: int = 1,
    ) -> None:
        if share is not None and at_least is not None:
            raise ArgumentError(
                "A share and a number of units both say how much is spent on keys.",
                hint="leave share= or at_least= out.",
            )
        for name, value, low, high in (
            ("at_least", at_least, 2, _MOST_UNITS),
            ("max_keys", max_keys, 1, MOST_FOUND),
            ("pre_threshold", pre_threshold, 1, _MOST_UNITS),
        ):
            if value is not None and (type(value) is not int or not low <= value <= high):
                raise ArgumentError(
                    f"{name} is a whole number from {low:,} to {high:,}, not {shown(value)}.",
                    hint=_EXAMPLE,
                )
        for name, given in (
            ("share", None if share is None else _part("share", share, Fraction(1))),
            ("at_least", at_least),
            ("delta", None if delta is None else _part("delta", delta, LARGEST_DELTA)),
            ("max_keys", max_keys),
            ("pre_threshold", pre_threshold),
        ):
            object.__setattr__(self, name, given)

    def rule(self, budget: Budget, most: int = 1, delta: Fraction | None = None) -> KeyRule:
        """Return the rule by which keys are found for a budget: before anything is spent.

            dpsql.Keys().rule(dpsql.Budget(epsilon=1, delta=1e-9)).least(0.95)

        Args:
            budget: what is given for it.
            most: how many keys one unit may have of those that count: its `max_groups`, or
                `max_rows`.
            delta: the δ that pays for keys, if nothing else is said.

        Raises:
            BudgetError: the budget has no δ, or is too small.
        """
        delta = delta_of(self, budget, delta)
        aside = bool(budget.delta) and not budget.key_delta
        left = (budget.setting_aside(delta) if aside else budget).mu_squared
        left = budget.amount if budget.pure else left
        least = SMALLEST_EPSILON / FIRST_SHARE if budget.pure else Fraction(0)
        if left * (self.share or 1) < least:
            raise BudgetError(
                f"Of {budget} too small a part is for keys.",
                hint="give a larger share, for example dpsql.Keys(share=0.5).",
            )
        if self.at_least is None:
            return self._rule_of(budget, left * (self.share or 1), delta, most)
        return self._rule_for(self.at_least, (max(least, _NONE), left), delta, most, budget)

    def _rule_of(self, budget: Budget, part: Fraction, delta: Fraction, most: int) -> KeyRule:
        """Return the rule for a part of a budget: of its ε if that is pure, else of its μ²."""
        make = KeyRule.pure if budget.pure else KeyRule.of
        return make(part, delta, most, self.pre_threshold)

    def _rule_for(
        self,
        units: int,
        between: tuple[Fraction, Fraction],
        delta: Fraction,
        most: int,
        budget: Budget,
    ) -> KeyRule:
        """Return the cheapest rule, to three digits, that finds keys of so many units."""
        least, left = between

        def rule(part: Fraction) -> KeyRule:
            return self._rule_of(budget, part, delta, most)

        beyond = units - self.pre_threshold
        if beyond < 1 or rule(left).probability(units) < SURE:
            enough = rule(left).least(SURE)
            raise BudgetError(
                f"For {budget}, keys of {units:,} units can't be found with a probability of 95 %.",
                hint=f"give at_least={enough}, or a larger budget.",
            )
        quantile, odds = NormalDist().inv_cdf, max(float(delta), 1e-300)
        if budget.pure:
            guess = -math.log(4 * odds * (1 - SURE)) / beyond
        else:
            guess = ((quantile(SURE) - quantile(odds)) / beyond) ** 2
        low, high = max(min(_rounded_up(Fraction(guess)), left), least), left
        if rule(low).probability(units) >= SURE:
            return rule(low)
        while (middle := _rounded_up(Fraction(math.sqrt(low * high)))) < high * _NEAR:
            sure = rule(middle).probability(units) >= SURE
            low, high = (low, middle) if sure else (middle, high)
        return rule(high)


@dataclass(frozen=True, slots=True, init=False)
class Bounds:
    """The rule by which bounds of numbers are found that nobody knows beforehand.

        dpsql.query(con, "SELECT SUM(price) AS s FROM sales", budget=…, bounds=dpsql.Bounds())

    Values are counted between powers of two. Sums of skewed numbers are then within 7 % of the
    error with the best bounds, or 33 % with half of the share (`tests/benchmarks/found_bounds.py`).

    Args:
        share: the part of the budget that is spent for it, however many columns need bounds.

    Raises:
        ArgumentError: it is no part.
    """

    share: Fraction

    @checked
    def __init__(self, share: Number = Fraction(1, 5)) -> None:
        example = "for example dpsql.Bounds(share=0.2)."
        object.__setattr__(self, "share", _part("share", share, _NEAR, example))


@dataclass(frozen=True, slots=True, init=False)
class Quantiles:
    """The rule by which quantiles are drawn, of columns that nobody has declared, or by request.

        dpsql.query(con, "SELECT MEDIAN(price) AS m FROM sales", budget=…,
                    quantiles=dpsql.Quantiles(share=0.5))

    Args:
        share: the part of the budget that is spent on all that are drawn. By default nine tenths
            where nothing else is asked, and else a half; the rest answers that, and counts the
            rows that they are of.
        always: whether quantiles of columns with few declared values are drawn, too, in place of
            being read off noisy running totals. Alone, a drawn one is nearer to the true value;
            totals have intervals, and answer more.

    Raises:
        ArgumentError: it is no part.
    """

    share: Fraction | None
    always: bool

    @checked
    def __init__(self, share: Number | None = None, *, always: bool = False) -> None:
        check_switch(always=always)
        example = "for example dpsql.Quantiles(share=0.5)."
        given = None if share is None else _part("share", share, _NEAR, example)
        object.__setattr__(self, "share", given)
        object.__setattr__(self, "always", always)


RULES: Mapping[str, type[Keys | Bounds | Quantiles]] = {
    "keys": Keys,
    "bounds": Bounds,
    "quantiles": Quantiles,
}
"""Option → the rule that it is, made of a share."""


def delta_of(keys: Keys, budget: Budget, otherwise: Fraction | None) -> Fraction:
    """Return the δ that pays for keys, of however many columns.

    Args:
        keys: by which rule they are found.
        budget: what is given for them.
        otherwise: the δ, if nothing else is said.

    Raises:
        BudgetError: there is none.
    """
    if keys.delta is not None:
        if budget.delta and keys.delta >= budget.delta:
            raise BudgetError(
                "The δ of keys is not less than all of the budget's.",
                hint="leave delta= of dpsql.Keys out: then it is a tenth of that.",
            )
        if budget.key_delta and keys.delta > budget.key_delta:
            raise BudgetError(
                "The δ of keys is more than the budget sets aside, "
                f"{shown_delta(budget.key_delta)}.",
                hint="leave delta= of dpsql.Keys out: then it is that.",
            )
        return keys.delta
    most = budget.key_delta or (budget.delta or 0) * KEY_SHARE
    delta = otherwise or most
    if not delta:
        raise BudgetError(
            f"Keys that nobody knows need a δ, and {budget} has none.",
            hint=Hint(
                'pass keys=dpsql.Keys(delta="1e-10").',
                "give the budget as --epsilon 1 --delta 1e-9.",
            ),
        )
    return min(delta, most or delta, LARGEST_DELTA)


def part_of(budget: Budget, share: Fraction) -> Budget:
    """Return a part of a budget: of its ε, if that is pure, and else of its μ²."""
    if budget.pure:
        return Budget(epsilon=budget.amount * share, delta=0)
    return Budget(rho=budget.mu_squared * share / 2)


def rest_of(budget: Budget, mu_squared: Fraction, delta: Fraction) -> Budget | None:
    """Return the budget that is left for answers where a part of it has found something.

    Args:
        budget: all of it, with or without δ set aside.
        mu_squared: the part that was charged, as μ².
        delta: the δ that was charged.

    Returns:
        The rest; None if nothing is left.
    """
    if delta and budget.delta is not None and not budget.key_delta:
        if delta >= budget.delta:
            return None
        budget = budget.setting_aside(delta)
    left = budget.mu_squared - mu_squared
    return Budget(rho=left / 2) if left > 0 else None


def _part(name: str, value: object, most: Fraction, example: str = _PARTS) -> Fraction:
    """Read a number above 0; a float as the decimal that it is written as."""
    try:
        part = value if isinstance(value, Fraction) else Fraction(Decimal(str(value)))
    except (ArithmeticError, ValueError):
        part = Fraction(0)
    if isinstance(value, bool) or not 0 < part <= most:
        raise ArgumentError(
            f"{name} is a number above 0, up to {float(most):g}, not {shown(value)}.",
            hint=example,
        )
    return part


def _rounded_up(value: Fraction) -> Fraction:
    """Round up to three digits."""
    unit = Fraction(10) ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit) * unit
