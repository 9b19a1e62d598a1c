"""Conversions between μ² and (ε, δ), always rounded against the claim. Trusted.

The Gaussian mechanism with sensitivity Δ and variance σ² is μ-GDP with μ = Δ/σ, and then
(ε, δ)-differentially private exactly if δ ≥ δ(ε), where

    δ(ε) = Φ(−a) − e^ε·Φ(−b),    a = ε/μ − μ/2,    b = ε/μ + μ/2

(Balle and Wang, 2018, theorem 8; Dong, Roth and Su, 2022, corollary 2.13). It falls as ε grows
and rises with μ.

Guarantees:
    Everything is computed with balls that contain the true value (Arb), from exact rationals;
    a decision counts only if it holds for the whole ball. So a reported δ or ε is never below
    the truth and a μ² found for (ε, δ) never above it, at whatever precision the balls have.
    Precision only makes the answers tight: it grows until they are, or until `_LAST_PRECISION`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

from flint import arb, ctx, fmpq

from dpsql.errors import BudgetError

_FIRST_PRECISION = 128
_LAST_PRECISION = 4096
_TIGHT = 64
"""Relative accuracy in bits at which a ball rounds to a float well."""
_SERIES_FROM = 64
"""The argument at which Mills' ratio switches to the confluent hypergeometric function. Both are
exact; the complementary error function loses all its digits in extreme tails."""
_MAX_EXPONENT = 40
"""`mu_squared_of` looks between 10^−40 and 10^40."""
_DIGITS = 18


def delta_of(mu_squared: Fraction, epsilon: Fraction) -> float:
    """Give the smallest δ for which μ-GDP implies (ε, δ), rounded up to a float.

    Underflow gives the smallest positive float: δ(ε) is 0 only if μ is.

    Raises:
        BudgetError: μ² or ε is negative.
    """
    _check_nonnegative(mu_squared, epsilon)
    if mu_squared == 0:
        return 0.0
    upper = arb(1)
    for bits in _precisions():
        with precision(bits):
            ball = _delta_ball(mu_squared, epsilon)
            if not ball.is_finite():
                continue
            upper = ball.upper()
            if ball.rel_accuracy_bits() >= _TIGHT or upper <= arb(2) ** -1074:
                break
    return min(_float_above(upper), 1.0)


def epsilon_of(mu_squared: Fraction, delta: Fraction) -> float:
    """Give the smallest float ε at which μ-GDP certainly implies (ε, δ), 0.0 if all do.

    Raises:
        BudgetError: μ² is negative, δ is not positive, or ε is too large for a float.
    """
    _check_nonnegative(mu_squared, delta)
    if _implies(mu_squared, Fraction(0), delta):
        return 0.0
    if delta == 0:
        raise BudgetError(
            "Gaussian noise gives no (ε, 0) guarantee.", hint="use a positive delta, such as 1e-9."
        )
    # Floats are ordered as their bit patterns, which makes bisection over them exact.
    low, high = 0, _pattern(_epsilon_guess(mu_squared, delta))
    while not _implies(mu_squared, Fraction(_from_pattern(high)), delta):
        low, high = high, _pattern(2 * _from_pattern(high))
    while high - low > 1:
        middle = (low + high) // 2
        if _implies(mu_squared, Fraction(_from_pattern(middle)), delta):
            high = middle
        else:
            low = middle
    return _from_pattern(high)


def mu_squared_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Give the largest μ² of 18 significant digits for which μ-GDP certainly implies (ε, δ).

    The result is 0 if it would be below 10^−40, and below 10^40 in any case.

    Raises:
        BudgetError: ε or δ is negative.
    """
    _check_nonnegative(epsilon, delta)
    low, high = -_MAX_EXPONENT, _MAX_EXPONENT
    if not _implies(_power_of_ten(low), epsilon, delta):
        return Fraction(0)
    while high - low > 1:  # the decade: 10^low is allowed, 10^high is not or not looked at
        middle = (low + high) // 2
        if _implies(_power_of_ten(middle), epsilon, delta):
            low = middle
        else:
            high = middle
    unit = _power_of_ten(low - _DIGITS + 1)
    first, last = int(10 ** (_DIGITS - 1)), int(10**_DIGITS)
    while last - first > 1:  # the digits
        middle = (first + last) // 2
        if _implies(middle * unit, epsilon, delta):
            first = middle
        else:
            last = middle
    return first * unit


def exact_ball(value: Fraction) -> arb:
    """Give a ball around `value`, exact up to the current precision."""
    return arb(fmpq(value.numerator, value.denominator))


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Compute balls with `bits` bits inside the block.

    The precision belongs to the process. Another thread that changes it can make balls wider
    than asked, never wrong, and the loops in here then ask for more.
    """
    before = ctx.prec
    ctx.prec = bits
    try:
        yield
    finally:
        ctx.prec = before


def _implies(mu_squared: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    """Tell whether δ(ε) ≤ δ for certain. What can't be decided counts as no."""
    if mu_squared == 0:
        return True
    for bits in _precisions():
        with precision(bits):
            ball, bound = _delta_ball(mu_squared, epsilon), exact_ball(delta)
            if ball <= bound:
                return True
            if ball > bound:
                return False
    return False


def _delta_ball(mu_squared: Fraction, epsilon: Fraction) -> arb:
    """Enclose δ(ε) for μ² > 0.

    With Mills' ratio M(x) = Φ(−x)/φ(x) and φ(a) = e^ε·φ(b), δ(ε) = φ(a)·(M(a) − M(b)), which
    neither overflows nor loses the exponent. Where a ≤ 0 the first term is simply Φ(−a).
    """
    mu, level = exact_ball(mu_squared).sqrt(), exact_ball(epsilon)
    a, b = level / mu - mu / 2, level / mu + mu / 2
    density = (-a * a / 2).exp() / (2 * arb.pi()).sqrt()
    if a > 0:
        return density * (_mills(a) - _mills(b))
    return (a / arb(2).sqrt()).erfc() / 2 - density * _mills(b)


def _mills(x: arb) -> arb:
    """Enclose Φ(−x)/φ(x) for x > 0 (DLMF 7.11.5: erfc as a confluent function U)."""
    half_square = x * x / 2
    if x > _SERIES_FROM:
        return half_square.hypgeom_u(arb(1) / 2, arb(1) / 2) / arb(2).sqrt()
    return half_square.exp() * (x / arb(2).sqrt()).erfc() * (arb.pi() / 2).sqrt()


def _precisions() -> Iterator[int]:
    bits = _FIRST_PRECISION
    while bits <= _LAST_PRECISION:
        yield bits
        bits *= 2


def _float_above(value: arb) -> float:
    """Round an exact, nonnegative ball up to a float."""
    result = max(float(value), 0.0)
    while not arb(result) >= value:
        result = math.nextafter(result, math.inf)
    return result


def _epsilon_guess(mu_squared: Fraction, delta: Fraction) -> float:
    """Bound ε from above by δ(ε) ≤ Φ(−a) ≤ exp(−a²/2); only a place to start from."""
    try:
        square = float(mu_squared)
        log_inverse = math.log(delta.denominator) - math.log(delta.numerator)
        return max(square / 2 + math.sqrt(2 * square * max(log_inverse, 1.0)), 1e-300)
    except OverflowError:
        raise _too_large() from None


def _power_of_ten(exponent: int) -> Fraction:
    return Fraction(f"1e{exponent}")


def _pattern(value: float) -> int:
    if math.isinf(value):
        raise _too_large()
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def _from_pattern(pattern: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", pattern))[0])


def _too_large() -> BudgetError:
    return BudgetError("The ε of such a budget is too large.", hint="use a smaller budget.")


def _check_nonnegative(*values: Fraction) -> None:
    if any(value < 0 for value in values):
        raise BudgetError(
            "μ², ε and δ can't be negative.",
            hint="for example dpsql.Budget(epsilon=1, delta=1e-9).",
        )


# ── Pure ε-differential privacy as Gaussian differential privacy, rounded against the claim ──────
#
# A mechanism that is ε-differentially private has the trade-off function
#
#     f(α) = max(0, 1 − e^ε·α, e^−ε·(1 − α))
#
# or a greater one (Dong, Roth and Su, "Gaussian differential privacy", arXiv 1905.02383, 2.1): the
# line from (0, 1) to the point (α*, α*), α* = 1/(1 + e^ε), and its mirror image. That of μ-GDP,
# G(α) = Φ(Φ⁻¹(1 − α) − μ), is convex, is its own mirror image, begins in (0, 1) and passes through
# (Φ(−μ/2), Φ(−μ/2)). With Φ(−μ/2) = α* both meet in these points, so that G ≤ f between them by
# convexity: an ε-private mechanism is μ-GDP with
#
#     μ = 2·Φ⁻¹(e^ε / (1 + e^ε)) ,
#
# and no smaller μ would do. So charges for Laplace noise add up with those for Gaussian noise.
#
# Guarantees:
#     `mu_squared_of_pure` is never below that μ², and grows with ε: it is computed with balls that
#     contain the true value.


LARGEST_EPSILON = Fraction(1000)
"""Beyond, no noise is left, and e^ε would grow without a use."""
_BITS = 256


def mu_squared_of_pure(epsilon: Fraction) -> Fraction:
    """Give a μ² of 18 significant digits for which every ε-private mechanism is μ-GDP.

    It is the least one, rounded up.

    Raises:
        BudgetError: ε is negative, or above 1,000.
    """
    if not 0 <= epsilon <= LARGEST_EPSILON:
        raise BudgetError(
            "A pure ε lies between 0 and 1,000.",
            hint="for example dpsql.Budget(epsilon=1, delta=0).",
        )
    if epsilon == 0:
        return Fraction(0)
    with precision(_BITS):
        # Φ(−z) = 1/(1 + e^ε), and Φ(−z) = erfc(z/√2)/2; then μ² = 4z².
        tail = 2 / (1 + exact_ball(epsilon).exp())
        square = 8 * tail.erfcinv() ** 2
        return _above(square)


def _above(value: arb) -> Fraction:
    """Round the upper end of a ball up to 18 significant digits."""
    mantissa, exponent = value.upper().man_exp()
    exact = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    unit = Fraction(1)
    while exact < unit * 10 ** (_DIGITS - 1):
        unit /= 10
    while exact >= unit * 10**_DIGITS:
        unit *= 10
    return -(-exact // unit) * unit
