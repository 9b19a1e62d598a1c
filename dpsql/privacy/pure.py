"""Pure ε-differential privacy as Gaussian differential privacy, rounded against the claim. Trusted.

A mechanism that is ε-differentially private has the trade-off function

    f(α) = max(0, 1 − e^ε·α, e^−ε·(1 − α))

or a greater one (Dong, Roth and Su, "Gaussian differential privacy", arXiv 1905.02383, 2.1): the
line from (0, 1) to the point (α*, α*), α* = 1/(1 + e^ε), and its mirror image. That of μ-GDP,
G(α) = Φ(Φ⁻¹(1 − α) − μ), is convex, is its own mirror image, begins in (0, 1) and passes through
(Φ(−μ/2), Φ(−μ/2)). With Φ(−μ/2) = α* both meet in these points, so that G ≤ f between them by
convexity: an ε-private mechanism is μ-GDP with

    μ = 2·Φ⁻¹(e^ε / (1 + e^ε)) ,

and no smaller μ would do. So charges for Laplace noise add up with those for Gaussian noise.

Guarantees:
    `mu_squared_of_pure` is never below that μ², and grows with ε: it is computed with balls that
    contain the true value.
"""

from __future__ import annotations

from fractions import Fraction

from flint import arb

from dpsql.errors import BudgetError
from dpsql.privacy.conversions import exact_ball, precision

LARGEST_EPSILON = Fraction(1000)
"""Beyond, no noise is left, and e^ε would grow without a use."""
_BITS = 256
_DIGITS = 18


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
