"""The budget of privacy loss, in one of three forms that all become one exact number."""

from __future__ import annotations

import math
import numbers
from copy import copy
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Literal, Protocol, SupportsFloat, overload

from dpsql.errors import BudgetError, printable
from dpsql.hints import Hint
from dpsql.hints import budget as budget_hint
from dpsql.privacy.amount import on_fine_grid
from dpsql.privacy.conversions import (
    LARGEST_EPSILON,
    delta_of,
    epsilon_of,
    mu_squared_of,
    mu_squared_of_pure,
)

SMALLEST_MU_SQUARED = Fraction(1, 10**12)
LARGEST_MU_SQUARED = Fraction(10**15)
_SMALLEST_EPSILON = Fraction(1, 10**12)
_LARGEST_EXPONENT = 400
# Enough for every float. Amounts are added up exactly and kept as decimal text, which Python
# reads up to 4,300 digits.
_LARGEST_BITS = 1400
_SHOWN_DIGITS = 6

KEY_SHARE = Fraction(1, 10)
"""The part of the δ of a new total in (ε, δ) that is set aside by default to find keys. It costs
0.63 % of μ² at ε = 1, δ = 1e-9; and a threshold for keys grows only as √(log 1/δ)."""

_EXAMPLES = {
    "rho": "dpsql.Budget(rho=0.5)",
    "mu": "dpsql.Budget(mu=1)",
    "epsilon": "dpsql.Budget(epsilon=1, delta=1e-9)",
    "delta": "dpsql.Budget(epsilon=1, delta=1e-9)",
    "pure": "dpsql.Budget(epsilon=1, delta=0)",
    "key_delta": "key_delta=1e-10",
}


class _Scalar(Protocol):
    """The interface of numpy's scalars that is used here."""

    def item(self) -> SupportsFloat: ...


Number = int | float | Decimal | Fraction | _Scalar


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Budget:
    """An amount of privacy loss: `Budget(rho=…)`, `Budget(mu=…)` or `Budget(epsilon=…, delta=…)`.

    ρ is the parameter of zero-concentrated differential privacy, μ that of Gaussian
    differential privacy; ρ = μ²/2, and amounts of ρ (or μ²) add up. (ε, δ) stands for the
    largest μ² that implies it. With δ = 0 it is pure ε-differential privacy, which only some
    mechanisms give, and μ² is the least one that it implies. Numbers are taken exactly, a float
    as the decimal that it is written as: ten times `Budget(rho=0.1)` is exactly 1.

    Raises:
        BudgetError: not exactly one form, or a number that is not a useful amount.
    """

    form: Literal["rho", "mu", "epsilon"]
    """The form in which it was stated."""
    mu_squared: Fraction
    """The amount, exactly: μ² = 2ρ."""
    amount: Fraction
    """ρ, μ or ε as stated."""
    delta: Fraction | None
    """δ as stated, if the form is (ε, δ)."""
    key_delta: Fraction
    """The δ that is set aside, see `setting_aside`; else 0."""

    @overload
    def __init__(self, *, rho: Number) -> None: ...
    @overload
    def __init__(self, *, mu: Number) -> None: ...
    @overload
    def __init__(self, *, epsilon: Number, delta: Number) -> None: ...
    def __init__(self, *positional: object, **given: object) -> None:
        names = set(given)
        if positional or names not in ({"rho"}, {"mu"}, {"epsilon", "delta"}):
            raise _wrong_form(len(positional), names)
        form = next(name for name in ("rho", "mu", "epsilon") if name in names)
        amount = _positive(form, given[form])
        delta = None
        if form == "rho":
            mu_squared = 2 * amount
        elif form == "mu":
            mu_squared = amount**2
        else:
            delta = _probability(given["delta"], zero=True)
            mu_squared = _converted(amount, delta)
        if not SMALLEST_MU_SQUARED <= mu_squared <= LARGEST_MU_SQUARED:
            raise _useless("pure" if delta == 0 else form, mu_squared)
        for name, value in (
            ("form", form), ("mu_squared", mu_squared), ("amount", amount), ("delta", delta),
            ("key_delta", Fraction(0)),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    def setting_aside(self, key_delta: Number) -> Budget:
        """Return this budget with a δ set aside, from which it is paid which keys exist.

        Whatever is spent of μ² and of that δ, within both, keeps what the budget states. Of (ε, δ)
        it is a part: μ² is the largest one that implies (ε, δ − `key_delta`). To ρ or μ it comes in
        addition, and what is promised holds but for a probability of `key_delta`. It is rounded
        down to a multiple of 10^−60; a pure ε has none.

        Raises:
            BudgetError: it is not between 0 and 1, or leaves nothing of δ; or the budget is pure.
        """
        aside = on_fine_grid(_probability(key_delta, zero=True, name="key_delta"), up=False)
        made = copy(self)
        if self.delta is not None and aside != self.key_delta:
            mu_squared = _beside(self.amount, self.delta, aside)
            object.__setattr__(made, "mu_squared", mu_squared)
        object.__setattr__(made, "key_delta", aside)
        return made

    @property
    def rho(self) -> Fraction:
        """ρ = μ²/2, exactly."""
        return self.mu_squared / 2

    @property
    def mu(self) -> float:
        """The parameter μ of Gaussian differential privacy, rounded up."""
        return _root_above(self.mu_squared)

    @property
    def pure(self) -> bool:
        """Whether δ is 0: pure ε-differential privacy, which Gaussian noise doesn't give."""
        return self.delta == 0

    @property
    def epsilon(self) -> Fraction | None:
        """ε as stated, if the form is (ε, δ)."""
        return self.amount if self.form == "epsilon" else None

    def epsilon_at(self, delta: Number) -> float:
        """Give an ε that this budget implies at `delta`, rounded up: the smallest that μ² does.

        For a pure budget at most the stated ε. Where δ is set aside, that of μ² at the rest of δ.

        Raises:
            BudgetError: no more δ is named than is set aside.
        """
        if not self.pure:
            return epsilon_of(self.mu_squared, self._rest_of(_probability(delta)))
        value = _probability(delta, zero=True)
        stated = _above(self.amount)
        return min(epsilon_of(self.mu_squared, value), stated) if value else stated

    def delta_at(self, epsilon: Number) -> float:
        """Give a δ that this budget implies at `epsilon`, rounded up: the smallest that μ² does.

        For a pure budget 0 from the stated ε on. With the δ that is set aside.
        """
        value = _exact("epsilon", epsilon)
        if value < 0:
            raise BudgetError(
                f"ε can't be negative ({_shown(epsilon)}).", hint="for example delta_at(1)."
            )
        if self.pure and value >= self.amount:
            return 0.0
        delta = delta_of(self.mu_squared, value)
        return _above(Fraction(delta) + self.key_delta) if self.key_delta else delta

    def _rest_of(self, delta: Fraction) -> Fraction:
        """Return what is left of δ beside what is set aside; see `epsilon_at`."""
        if delta <= self.key_delta:
            raise BudgetError(
                f"Of this budget δ = {_shown_fraction(self.key_delta)} is set aside for keys that "
                f"are found, so that nothing is left of δ = {_shown_fraction(delta)}.",
                hint="name a larger δ.",
            )
        return delta - self.key_delta

    def describe(self, mu_squared: Fraction, *, up: bool = True) -> str:
        """Word any amount of μ² in the form of this budget, such as "ρ = 0.3".

        The amount may be 0 or negative (an overdraft). Long numbers are cut to six digits, up
        or down. μ and (ε, δ) do not add up, so ρ is shown beside them.
        """
        if mu_squared == self.mu_squared:
            stated = _plain(self.amount) or _decimal(self.amount, up=up)
            rho = _decimal(self.rho, up=up)
        else:
            stated, rho = "", _decimal(mu_squared / 2, up=up)
        if self.form == "rho" or mu_squared <= 0 or (self.pure and not stated):
            return f"ρ = {stated if self.form == 'rho' and stated else rho}"
        if self.delta is None:
            return f"μ = {stated or _decimal_root(mu_squared, up=up)} (ρ = {rho})"
        if not stated:
            rest = self.delta - self.key_delta
            stated = _decimal(Fraction(epsilon_of(mu_squared, rest)), up=up)
        return f"ε = {stated} at δ = {_shown_fraction(self.delta)} (ρ = {rho})"

    def at_most(self, mu_squared: Fraction) -> Budget | None:
        """Give a budget of this form, short to write, that costs at most `mu_squared`.

        None if nothing useful is left.
        """
        if mu_squared < SMALLEST_MU_SQUARED:
            return None
        mu_squared = min(mu_squared, LARGEST_MU_SQUARED)
        try:
            if self.form == "rho":
                exact = _plain(mu_squared / 2)
                return Budget(rho=Fraction(exact or _decimal(mu_squared / 2, up=False)))
            if self.delta is None:
                return Budget(mu=Fraction(_decimal_root(mu_squared, up=False)))
            if self.pure:
                return _pure_at_most(mu_squared)
            epsilon = Fraction(epsilon_of(mu_squared, self.delta - self.key_delta))
            budget = Budget(epsilon=Fraction(_decimal(epsilon, up=False)), delta=self.delta)
            budget = budget.setting_aside(self.key_delta)
        except BudgetError:
            return None  # what is left is too small for this form
        return budget if budget.mu_squared <= mu_squared else None

    def __str__(self) -> str:
        if self.delta is not None:
            part = f" ({_shown_fraction(self.key_delta)} for keys)" if self.key_delta else ""
            return f"ε = {_shown_fraction(self.amount)}, δ = {_shown_fraction(self.delta)}{part}"
        part = f" and {shown_delta(self.key_delta)}" if self.key_delta else ""
        return f"{'ρ' if self.form == 'rho' else 'μ'} = {_shown_fraction(self.amount)}{part}"

    @property
    def typed(self) -> Hint:
        """The hint on how it is typed, as `dpsql.Budget(…)` or as options."""
        tail = {} if self.delta is None else {"delta": _literal(self.delta)}
        return budget_hint(**{self.form: _literal(self.amount)}, **tail)

    def __repr__(self) -> str:
        tail = "" if self.delta is None else f", delta={_literal(self.delta)}"
        aside = f".setting_aside({_literal(self.key_delta)})" if self.key_delta else ""
        return f"Budget({self.form}={_literal(self.amount)}{tail}){aside}"


def _exact(name: str, value: object) -> Fraction:
    """Read a number exactly; a float means its shortest decimal."""
    if isinstance(value, numbers.Rational) and not isinstance(value, bool):
        result = Fraction(int(value.numerator), int(value.denominator))
    else:
        result = _from_decimal(name, _as_decimal(name, value))
    if max(result.numerator.bit_length(), result.denominator.bit_length()) > _LARGEST_BITS:
        raise _bad(name, "is far too long to be an amount")
    return result


def _as_decimal(name: str, value: object) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _bad(name, f"must be a number, not {_shown(value)}")
    try:
        # numpy's scalars write the shortest decimal too; repr() would name their type.
        return Decimal(str(value))
    except ArithmeticError:
        raise _bad(name, f"must be a plain number, not {_shown(value)}") from None


def _from_decimal(name: str, value: Decimal) -> Fraction:
    if not value.is_finite():
        raise _bad(name, f"must be finite, not {value}")
    # Decimal("1e999999999") is short to write and would fill the memory as a fraction.
    if value and abs(value.adjusted()) > _LARGEST_EXPONENT:
        raise _bad(name, f"is out of range ({_shown(value)})")
    return Fraction(value)


def _positive(name: str, value: object) -> Fraction:
    result = _exact(name, value)
    if result <= 0:
        raise _bad(name, f"must be positive, not {_shown(value)}")
    return result


def _converted(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the μ² of (ε, δ); 0 or far too much for what is out of range."""
    if epsilon < _SMALLEST_EPSILON:
        return Fraction(0)
    if delta == 0:
        too_large = epsilon > LARGEST_EPSILON
        return 2 * LARGEST_MU_SQUARED if too_large else mu_squared_of_pure(epsilon)
    # δ(ε) ≤ δ bounds μ²/2 by about ε, so a greater ε need not be converted.
    return epsilon if epsilon > 2 * LARGEST_MU_SQUARED else mu_squared_of(epsilon, delta)


def _pure_at_most(mu_squared: Fraction) -> Budget | None:
    """Give a pure budget, short to write, that costs at most `mu_squared`."""
    half = math.sqrt(mu_squared) / 2
    # ε = log Φ(μ/2) − log Φ(−μ/2), here in floats; what comes out is checked.
    above, below = (math.erfc(sign * half / math.sqrt(2)) / 2 for sign in (-1, 1))
    if below == 0:
        return None
    epsilon = Fraction(math.log(above / below)) * (1 - Fraction(1, 10**9))
    budget = Budget(epsilon=Fraction(_decimal(epsilon, up=False)), delta=0)
    return budget if budget.mu_squared <= mu_squared else None


def _beside(epsilon: Fraction, delta: Fraction, aside: Fraction) -> Fraction:
    """Return the μ² of (ε, δ) of which a part of δ is set aside.

    Raises:
        BudgetError: that leaves nothing.
    """
    if aside and aside >= delta:
        raise BudgetError(
            "A pure ε has no δ of which some could be set aside."
            if delta == 0
            else f"Of δ = {_shown_fraction(delta)} nothing is left where "
            f"δ = {_shown_fraction(aside)} is set aside for keys that are found.",
            hint="name a larger δ, or a budget in ρ.",
        )
    mu_squared = _converted(epsilon, delta - aside)
    if not SMALLEST_MU_SQUARED <= mu_squared <= LARGEST_MU_SQUARED:
        raise _useless("epsilon", mu_squared)
    return mu_squared


def beside(budget: Budget, aside: Fraction) -> Budget:
    """Return a budget that sets so much δ aside; as it is, where that leaves nothing of its own."""
    if budget.delta is not None and budget.delta <= aside:
        return budget
    return budget.setting_aside(aside)


def shown_delta(delta: Fraction, *, up: bool = True) -> str:
    """Word a δ that pays for keys, such as "δ = 1e-10 for keys"."""
    return f"δ = {_plain(delta) or _decimal(delta, up=up)} for keys"


def _probability(value: object, *, zero: bool = False, name: str = "delta") -> Fraction:
    result = _exact(name, value)
    if not (0 < result < 1 or (zero and result == 0)):
        raise _bad(name, f"must lie strictly between 0 and 1, not {_shown(value)}")
    return result


def _bad(name: str, why: str) -> BudgetError:
    return BudgetError(f"A budget's {name} {why}.", hint=f"for example {_EXAMPLES[name]}.")


def _wrong_form(positional: int, names: set[str]) -> BudgetError:
    if positional:
        what = "A budget's form must be named."
    elif not names:
        what = "A budget needs an amount."
    elif names in ({"epsilon"}, {"delta"}):
        what = "A budget in ε and δ needs both."
    elif unknown := sorted(names - {"rho", "mu", "epsilon", "delta"}):
        what = f"A budget has no {printable(unknown[0])}."
    else:
        what = "A budget has exactly one form."
    examples = f"{_EXAMPLES['rho']}, {_EXAMPLES['mu']} or {_EXAMPLES['epsilon']}"
    return BudgetError(what, hint=f"write {examples}.")


def _useless(form: str, mu_squared: Fraction) -> BudgetError:
    size = "small" if mu_squared < SMALLEST_MU_SQUARED else "large"
    return BudgetError(
        f"The budget is too {size}: there is no useful noise level for it "
        "(ρ must lie between 5e-13 and 5e14).",
        hint=f"for example {_EXAMPLES[form]}.",
    )


def _shown(value: object) -> str:
    """Quote what the caller gave, briefly and harmlessly."""
    if isinstance(value, numbers.Number | str | bool | None):
        try:
            text = str(value) if isinstance(value, numbers.Number) else repr(value)
        except ValueError:  # more digits than Python is willing to print
            return "such a long number"
        return printable(text if len(text) <= 40 else f"{text[:37]}...")
    return f"a {type(value).__name__}"


def _plain(value: Fraction) -> str:
    """Write a fraction as a short decimal if that is exact, else return nothing."""
    if value.denominator == 1 and abs(value) < 10**15:
        return str(value.numerator)
    try:
        text = repr(float(value))
    except OverflowError:
        return ""
    return _tidy(text) if math.isfinite(float(text)) and Fraction(text) == value else ""


def _tidy(text: str) -> str:
    """Write 1e-09 as 1e-9 and 1e+16 as 1e16."""
    mantissa, letter, exponent = text.lower().partition("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}" if letter else mantissa


def _decimal(value: Fraction, *, up: bool) -> str:
    """Write a fraction with at most six digits, rounded up or down."""
    context = Context(
        prec=_SHOWN_DIGITS,
        rounding=ROUND_CEILING if up else ROUND_FLOOR,
        Emin=-(10**6),
        Emax=10**6,
    )
    rounded = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    if rounded and not -5 <= rounded.adjusted() < 15:
        return _tidy(f"{rounded:e}")
    return _tidy(f"{rounded:f}")


def _decimal_root(value: Fraction, *, up: bool) -> str:
    """Write the square root of a fraction with about six digits, rounded up or down."""
    scale = 10**30
    root = Fraction(math.isqrt(value.numerator * scale**2 // value.denominator), scale)
    if root**2 == value:
        return _decimal(root, up=up)
    return _decimal(root + Fraction(1, scale) if up else root, up=up)


def _shown_fraction(value: Fraction) -> str:
    return _plain(value) or _decimal(value, up=True)


def _literal(value: Fraction) -> str:
    """Write a fraction so that reading it back gives exactly the same."""
    return _plain(value) or repr(value)


def _above(value: Fraction) -> float:
    result = float(value)
    return result if Fraction(result) >= value else math.nextafter(result, math.inf)


def _root_above(value: Fraction) -> float:
    result = math.sqrt(value)
    while Fraction(result) ** 2 < value:
        result = math.nextafter(result, math.inf)
    while Fraction(below := math.nextafter(result, 0.0)) ** 2 >= value:
        result = below
    return result
