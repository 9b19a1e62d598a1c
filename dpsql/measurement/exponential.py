"""The exponential mechanism, drawn exactly. Trusted.

`exponential_mechanism` draws r with P(r) ∝ m_r·e^(s·q_r), for integers q_r, a fraction s, and
fractions m_r: how many candidates have the same score and are drawn together. With the weights
w_r = m_r·e^(−s(max q − q_r)), their partial sums S_r and Z the sum of all, that is the first r
with uZ < S_r for a uniform u on (0, 1). Here 64 random bits say that u lies in [U, U+1]/2^64; the
weights are balls that contain the true values, and if u·Z is certainly above or certainly below
every S_r for all u of the interval, r is decided. Otherwise 64 more bits of u are drawn, and the
balls get smaller. This ends with probability 1, and nearly always at the first attempt.

What it costs. If the numbers by which one unit changes the q_r lie within a range of ρ, as with
ρ = 2Δ if it changes each by at most Δ, then the logarithms of P(r) for two neighbors differ by a
number between t and t + ε for all r, with ε = sρ and some t: a bounded range (Dong, Durfee and
Rogers, "Optimal differential privacy composition for exponential mechanisms", ICML 2020). So the
likelihood ratio ℓ = P/P' has mean 1 under P' and lies in [e^t, e^(t+ε)]. Every convex function of
it has its largest mean if ℓ only takes the two ends; as trade-off functions are decided by the
means of (ℓ − c)₊, the worst pair has two outcomes, with probabilities p and q of the first for
which logit p = logit q + ε. This pair is a function of N(0, 1) and N(μ, 1), namely whether the draw
exceeds −Φ⁻¹(q), if μ = Φ⁻¹(p) − Φ⁻¹(q); and so it is for a greater μ. With h = Φ⁻¹∘logistic, which
is odd, that is h(x + ε) − h(x). The slope h' is even and falls with |x| (compared in ball
arithmetic by the tests), so that the difference is greatest where the interval is in the middle, x
= −ε/2:

    μ = 2h(ε/2) = 2Φ⁻¹(e^(ε/2)/(1 + e^(ε/2))) ≤ ε·h'(0) = ε·√(2π)/4 .

The first form is the μ of a mechanism that is purely ε/2-private, see `privacy.conversions`.

Guarantees:
    1. If the words are uniform and independent, each candidate has exactly its probability.
    2. `selection_cost` is never below μ².
    3. How many exponentials are computed depends on the number of scores that differ and on how
       often further bits are needed, with probability below 2^−40 at a time for 2^16 candidates.
       The time of one exponential may depend a little on its argument, thus on the scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate

from flint import arb

from dpsql.errors import InternalError
from dpsql.measurement.randomness import RandomBits
from dpsql.privacy.conversions import exact_ball, mu_squared_of_pure, precision

_WORD_BITS = 64
_GUARD_BITS = 64


def exponential_mechanism(
    scores: Sequence[int],
    steepness: Fraction,
    bits: RandomBits,
    many: Sequence[int | Fraction] | None = None,
) -> int:
    """Draw the number of a candidate with P(r) ∝ many · e^(steepness · score), exactly.

    Args:
        scores: one whole number for each candidate, at least one.
        steepness: s ≥ 0.
        bits: uniform random bits.
        many: how many candidates are drawn together in place of each, or which part of one: above
            0, and one each if nothing is said.

    Raises:
        InternalError: there are no candidates, or a score or the steepness is not exact.
        RandomnessError: there are no random bits.
    """
    many = [1] * len(scores) if many is None else many
    if set(map(type, scores)) != {int}:
        raise InternalError("candidates are chosen by whole numbers")
    exact = set(map(type, many)) <= {int, Fraction} and min(m.numerator for m in many) > 0
    if len(many) != len(scores) or not exact:
        raise InternalError("an exact number of candidates is drawn together, above 0")
    if type(steepness) is not Fraction or steepness < 0:
        raise InternalError("a steepness is an exact, nonnegative fraction")
    best = max(scores)
    away = [best - q for q in scores]
    uniform, known = 0, 0
    while True:
        uniform = (uniform << _WORD_BITS) | int(bits.words(1)[0])
        known += _WORD_BITS
        with precision(known + _GUARD_BITS):
            slope = exact_ball(-steepness)
            weights = {d: (slope * d).exp() for d in dict.fromkeys(away)}
            each = (
                m.numerator * weights[d] / m.denominator for m, d in zip(many, away, strict=True)
            )
            winner = _first_above(each, uniform, known)
        if winner is not None:
            return winner


def selection_cost(epsilon: Fraction) -> Fraction:
    """Return a μ² for which a mechanism whose range is bounded by ε is μ-GDP.

    Raises:
        BudgetError: ε is negative, or above 2,000.
    """
    return mu_squared_of_pure(epsilon / 2)


def _first_above(weights: Iterable[arb], uniform: int, known: int) -> int | None:
    """Return the first r with u·Z < S_r; None if some comparison can't be decided."""
    *sums, total = accumulate(weights)
    low = exact_ball(Fraction(uniform, 2**known)) * total
    high = exact_ball(Fraction(uniform + 1, 2**known)) * total
    passed = [_compare(s, low, high) for s in sums]  # all of them, wherever the first one is
    return None if None in passed else sum(map(bool, passed))


def _compare(partial: arb, low: arb, high: arb) -> bool | None:
    """Tell whether a partial sum is certainly at most u·Z, or certainly at least."""
    if partial <= low:
        return True
    return False if partial >= high else None
