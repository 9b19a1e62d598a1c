"""Keys that nobody knows beforehand: by which rule those that many units have are told. Trusted.

A unit with t ≤ K distinct keys adds the integer w_t = ⌊S/√t⌋ to the score of each of them, with
S = 2^20. A key that occurs, among at least m units, is told if its score and round(N(0, V)) are
together at least T′ = T + (m − 1)·S: V = ⌈S²/μ²⌉ is what a round is paid, and T the least integer
of which ball arithmetic can show that

    1 − (1 − Q((T − w_t − 1/2)/√V))^t ≤ δ₀   for all t = 1, …, K,   with Q(x) = Φ(−x).

With Laplace noise, for a pure ε, w_t is ⌊S/t⌋; the noise Z is an integer with P(z) ∝ e^(−|z|/b),
b = ⌈S/ε⌉, and T the least integer of which it can be shown that

    1 − (1 − P(Z ≥ T − w_t))^t ≤ δ₀          for all t = 1, …, K.

P(Z ≥ x) = p^x/(1 + p) for whole x ≥ 0, with p = e^(−1/b): the sum of (1 − p)/(1 + p) p^z from x on.

Guarantees:
    1. A round is (μ, δ₀)-private for adding or removing one unit with all of its keys: there are an
       event of probability at most δ₀, and a mechanism that is μ-GDP, so that the round is that
       mechanism where the event doesn't happen.

       *Proof.* Let D′ be D and one more unit u, with t ≤ K keys. (i) To the scores of keys u adds a
       vector of norm² t·w_t² ≤ S², and nothing to any other score: what another unit adds follows
       from its own keys. An integer and rounded N(0, V) are the integer and N(0, V), rounded. So
       all noisy scores of the keys that at least m units have in D are S/√V-GDP, and S²/V ≤ μ².
       (ii) All other keys that D′ might tell are keys of u, so at most t; each has m − 1 units in
       D, which add S each at most, and u adds w_t. Their noise is independent, and rounding takes
       what is at least T′ − 1/2 to T′ or more. So one of them is told with a probability of at
       most 1 − (1 − Q((T′ − (m − 1)·S − w_t − 1/2)/√V))^t ≤ δ₀, whatever the other noise is. If
       none is, D′ tells of the keys of (i) what D tells of them. ∎

       How many units a key has, m′ ≥ m, is not told, and decides nothing but that.

       With Laplace noise, (i) the vector that u adds to scores has a sum of t·w_t ≤ S. So the noisy
       scores of the keys that at least m units have in D are S/b-differentially private, S/b ≤ ε,
       and so μ-GDP with the μ² that `mu_squared_of_pure` gives of S/b: that is what it costs. (ii)
       holds with the tail of Z, and without 1/2, as Z is whole. By itself such a round is (S/b,
       δ₀)-differentially private: with p ≤ δ₀ the probability that one of the keys of u is told,
       and P, P′ the laws under D and D′, P′ = (1 − p)·P₀′ + p·P₁′ and e^(−ε)P₀′ ≤ P ≤ e^ε P₀′.
    2. Rounds that follow one another, each with what the earlier ones told taken out of every
       unit's keys, cost the sums of their μ² and δ₀: see docs/explanation/accounting.md. To take
       out keys that are known is the same for all units, and leaves of each what follows from its
       own keys.
    3. All is decided in integers. T is never too small, whatever the precision of balls is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from statistics import NormalDist

from flint import arb

from dpsql.errors import InternalError
from dpsql.privacy.conversions import LARGEST_EPSILON, exact_ball, mu_squared_of_pure, precision

SCALE = 1 << 20
"""S: a unit with a single key adds so much to its score."""
MOST_KEYS = 1_000
"""The most keys of one unit that count."""
LARGEST_DELTA = Fraction(1, 4)
"""The largest δ₀ of a round: T is positive where it is less than a half."""
FIRST_SHARE = Fraction(1, 5)
"""The part of μ² and δ₀ that goes to the first of two rounds: it finds what most units have, so
that in the second their weights are larger. It found 14 to 63 percent more than one round
(`tests/benchmarks/words_of_python.py`)."""
SMALLEST_EPSILON = Fraction(1, 1 << 29)
"""The least ε of a round with Laplace noise, which is drawn for b below 2^50."""
_PRECISIONS = (128, 512, 2048)
_NORMAL = NormalDist()
_TINY = 1e-300


def weights(most: int, *, pure: bool = False) -> tuple[int, ...]:
    """Return w_1, …, w_K: ⌊S/√t⌋ = ⌊√⌊S²/t⌋⌋, so that t·w_t² ≤ S².

    Args:
        most: K.
        pure: whether noise is Laplace noise: then ⌊S/t⌋, so that t·w_t ≤ S.
    """
    if pure:
        return tuple(SCALE // t for t in range(1, most + 1))
    return tuple(math.isqrt(SCALE**2 // t) for t in range(1, most + 1))


@dataclass(frozen=True, slots=True)
class KeyRound:
    """A round in which keys are found.

    Args:
        mu_squared: μ², at most what it is paid.
        delta: δ₀, above 0.
        most: K.
        least: m.
        epsilon: ε, if noise is Laplace noise; 0 if it is Gaussian. μ² is at least what it costs.

    Raises:
        InternalError: one of these is out of range.
    """

    mu_squared: Fraction
    delta: Fraction
    most: int
    least: int = 1
    epsilon: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        exact = all(type(p) is Fraction for p in (self.mu_squared, self.delta, self.epsilon))
        whole = all(type(number) is int for number in (self.most, self.least))
        if not exact or not whole or not 0 < self.delta <= LARGEST_DELTA or self.mu_squared <= 0:
            raise InternalError("keys are found for exact, positive amounts")
        if not 1 <= self.most <= MOST_KEYS or self.least < 1:
            raise InternalError("a unit has a number of keys out of range")
        if self.epsilon and not SMALLEST_EPSILON <= self.epsilon <= LARGEST_EPSILON:
            raise InternalError("keys are found for an ε out of range")
        if self.mu_squared < self.privacy_cost:
            raise InternalError("a round costs more than it is paid")

    @classmethod
    def pure(cls, epsilon: Fraction, delta: Fraction, most: int, least: int = 1) -> KeyRound:
        """Return the round with Laplace noise for an ε, which is paid the μ² that this implies."""
        return cls(mu_squared_of_pure(epsilon), delta, most, least, epsilon)

    @property
    def is_pure(self) -> bool:
        """Whether noise is Laplace noise."""
        return bool(self.epsilon)

    @property
    def weights(self) -> tuple[int, ...]:
        """w_1, …, w_K."""
        return weights(self.most, pure=self.is_pure)

    @property
    def scale(self) -> int:
        """b, of Laplace noise in a score."""
        return math.ceil(SCALE / self.epsilon)

    @property
    def variance(self) -> int:
        """V, of Gaussian noise in a score; rounded, the variance of Laplace noise."""
        if self.is_pure:
            return round(2 * self.scale**2 - Fraction(1, 6))
        return math.ceil(SCALE**2 / self.mu_squared)

    @property
    def privacy_cost(self) -> Fraction:
        """The μ² that it costs: S²/V, or what S/b implies."""
        if self.is_pure:
            return mu_squared_of_pure(Fraction(SCALE, self.scale))
        return Fraction(SCALE**2, self.variance)

    @property
    def threshold(self) -> int:
        """T′: what a noisy score must reach."""
        noise = self.scale if self.is_pure else self.variance
        threshold = least_threshold(noise, self.delta, self.most, pure=self.is_pure)
        return threshold + (self.least - 1) * SCALE

    def probability(self, units: int, each: int = 1) -> float:
        """Give the probability that a key is found which so many units have, each beside others.

        Args:
            units: how many.
            each: how many keys each of them has.
        """
        if units < self.least:
            return 0.0
        beyond = units * weights(each, pure=self.is_pure)[-1] - self.threshold
        if not self.is_pure:
            return _NORMAL.cdf(float(beyond + 0.5) / math.sqrt(self.variance))
        below = math.exp(-abs(beyond) / self.scale) / (1 + math.exp(-1 / self.scale))
        return 1 - below * math.exp(-1 / self.scale) if beyond >= 0 else below


@dataclass(frozen=True)
class KeyRule:
    """The rule by which keys are found that many units have.

    Args:
        rounds: the rounds, one after the other.

    Raises:
        InternalError: there is none, or a unit may have more keys in one than in another.
    """

    rounds: tuple[KeyRound, ...]

    def __post_init__(self) -> None:
        if len({(each.most, each.least, each.is_pure) for each in self.rounds}) != 1:
            raise InternalError("all rounds are for as many keys of a unit")

    @classmethod
    def of(cls, mu_squared: Fraction, delta: Fraction, most: int, least: int = 1) -> KeyRule:
        """Return the rule for an amount: two rounds, or one where a unit has a single key.

        Args:
            mu_squared: what is paid.
            delta: δ₀, which is paid besides.
            most: how many keys of a unit count at most.
            least: how many units a key must have in any case.
        """
        shares = _shares(most)
        return cls(tuple(KeyRound(s * mu_squared, s * delta, most, least) for s in shares))

    @classmethod
    def pure(cls, epsilon: Fraction, delta: Fraction, most: int, least: int = 1) -> KeyRule:
        """Return the rule with Laplace noise for a pure ε; see `of`."""
        shares = _shares(most)
        return cls(tuple(KeyRound.pure(s * epsilon, s * delta, most, least) for s in shares))

    @property
    def weights(self) -> tuple[int, ...]:
        """The numbers that a unit with 1, 2, …, K keys adds to the score of each."""
        return self.rounds[0].weights

    @property
    def tells_units(self) -> bool:
        """Whether scores are numbers of units, times S: of one round, with one key of a unit."""
        return len(self.rounds) == 1 and self.rounds[0].most == 1

    @property
    def epsilon(self) -> Fraction:
        """The pure ε that is paid for all rounds; 0 if noise is Gaussian."""
        return sum((each.epsilon for each in self.rounds), Fraction(0))

    @property
    def privacy_cost(self) -> Fraction:
        """The μ² that all rounds cost."""
        return sum((each.privacy_cost for each in self.rounds), Fraction(0))

    @property
    def mu_squared(self) -> Fraction:
        """The μ² that is paid for all rounds, at least what they cost."""
        return sum((each.mu_squared for each in self.rounds), Fraction(0))

    @property
    def delta(self) -> Fraction:
        """The δ that is paid besides."""
        return sum((each.delta for each in self.rounds), Fraction(0))

    @cached_property
    def threshold(self) -> float:
        """The number of units, each with one key, at which a key is found with probability 1/2.

        Of two rounds, in the second.
        """
        return self.rounds[-1].threshold / SCALE

    def probability(self, units: int, each: int = 1) -> float:
        """Give the probability that a key is found which so many units have.

        Args:
            units: how many.
            each: how many keys each of them has, of those that count; it is larger if the first
                round finds some of these.
        """
        each = min(max(each, 1), self.rounds[0].most)
        missed = (1.0 - round_.probability(units, each) for round_ in self.rounds)
        return 1.0 - math.prod(missed)

    def least(self, probability: float = 0.95, each: int = 1) -> int:
        """Give the least number of units with which a key is found with some probability."""
        high = 1
        while self.probability(high, each) < probability:
            high *= 2
        return _least(high // 2, high, lambda n: self.probability(n, each) >= probability)

    def __str__(self) -> str:
        half, sure = (self.least(p) for p in (0.5, 0.95))
        return f"keys of {half:,} units are found every other time, of {sure:,} in 95 % of cases"


def _shares(most: int) -> tuple[Fraction, ...]:
    return (FIRST_SHARE, 1 - FIRST_SHARE) if most > 1 else (Fraction(1),)


@lru_cache(maxsize=256)
def least_threshold(noise: int, delta: Fraction, most: int, *, pure: bool = False) -> int:
    """Return T, the least integer of which the inequality can be shown.

    Args:
        noise: V; b, if the noise is Laplace noise.
        delta: δ₀.
        most: K.
        pure: whether it is.

    *Proof that it is never too small.* What is returned has passed `_is_safe` for all t: it is the
    upper end of a bisection, and each upper end has. That none below it passes holds as each side
    of the inequality falls with T, and balls are narrow enough to tell integers apart. ∎ Where the
    search begins is a guess of floats.
    """
    added, tail = weights(most, pure=pure), _laplace_tail if pure else _gaussian_tail

    def is_safe(at: int) -> bool:
        each = enumerate(added, start=1)
        return all(_is_safe(partial(tail, at - w, noise), t, delta) for t, w in each)

    tails = (max(float(delta) / t, _TINY) for t in range(1, most + 1))
    if pure:
        reach = [-noise * math.log(2 * p) for p in tails]
    else:
        reach = [-math.sqrt(noise) * _NORMAL.inv_cdf(p) for p in tails]
    guess = max(w + more for w, more in zip(added, reach, strict=True))
    step = max(1, int(guess) >> 30)
    low = high = max(1, int(guess))
    while not is_safe(high):
        low, high, step = high, high + step, 2 * step
    while low > 0 and is_safe(low):
        low, high, step = max(0, low - step), low, 2 * step
    return _least(low, high, is_safe)


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Bisect to the least number of which something holds that holds of `high`, not of `low`."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _gaussian_tail(beyond: int, variance: int) -> arb:
    """Enclose Q((x − 1/2)/√V), the probability that round(N(0, V)) is at least x."""
    return (arb(2 * beyond - 1) / (8 * arb(variance)).sqrt()).erfc() / 2


def _laplace_tail(beyond: int, scale: int) -> arb:
    """Enclose P(Z ≥ x) of Laplace noise; 1 where x is below 0, which is more than it is."""
    if beyond < 0:
        return arb(1)
    return (-arb(beyond) / scale).exp() / (1 + (-arb(1) / scale).exp())


def _is_safe(tail: Callable[[], arb], keys: int, delta: Fraction) -> bool:
    """Whether a unit's own keys are told with probability δ₀ at most; what is unclear is not.

    Args:
        tail: encloses the probability of one of them, at the precision of the time.
        keys: how many they are.
        delta: δ₀.
    """
    for bits in _PRECISIONS:
        with precision(bits):
            each, bound = tail(), exact_ball(delta)
            if each >= 1:
                return False
            told = -(keys * (-each).log1p()).expm1()
            if told <= bound:
                return True
            if told > bound:
                return False
    return False
