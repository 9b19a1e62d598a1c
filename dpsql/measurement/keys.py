"""Found keys: exact scores plus exact noise, and those that reach the threshold. Trusted core.

Guarantees:
    1. Only a charged plan is carried out, and only once: with a receipt for at least its μ² and its
       δ, which its ledger holds and has not noted as used (`ChargedPlan`).
    2. Each key that occurs gets noise of its own, round(N(0, V)) or discrete Laplace noise of scale
       b drawn exactly, in each round; it
       is told if as many units have it as the rule says and its noisy score reaches the threshold.
       So each round is private as `privacy/keys.py` proves: the scores are those of the weights
       that the rule was made for, which is checked, and what a unit adds to them is the matter of
       `engines/key_scores.py`. What a second round is asked without, the first has told.
    3. All is decided in integers of 64 bits, and nothing overflows: scores are at most 2^60, as is
       checked; noise beyond ±2^61 is taken for that, which decides the same.
    4. What leaves this file are keys that were told, with their noisy scores. Which of them are
       left out because there are too many, follows from these. Exact scores are held piece by
       piece, and no longer than the piece.
    5. How long it takes depends on how many keys occur.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from fractions import Fraction
from heapq import nsmallest

import numpy as np

from dpsql.engines.key_scores import KeyScores, ScoredKeys
from dpsql.errors import InternalError
from dpsql.measurement.gaussian import rounded_gaussian
from dpsql.measurement.laplace import discrete_laplace
from dpsql.measurement.measure import ChargedPlan
from dpsql.measurement.randomness import RandomBits, fresh_bits
from dpsql.privacy.keys import KeyRound, KeyRule

LARGEST_SCORE = 1 << 60
_FAR = 1 << 61


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """A plan for finding keys; see `measure.Payable`.

    Args:
        rule: the rule.
        most: how many are told at most.
    """

    rule: KeyRule
    most: int

    @property
    def digest(self) -> str:
        """A hash of all that decides what is told of scores; `Purpose` says whose they are."""
        rounds = [
            (*(("laplace", r.scale) if r.is_pure else (r.variance,)), r.threshold, r.most, r.least)
            for r in self.rule.rounds
        ]
        return hashlib.sha256(repr(("keys", rounds, self.most)).encode()).hexdigest()

    @property
    def privacy_cost(self) -> Fraction:
        """The μ² that it spends."""
        return self.rule.privacy_cost

    @property
    def delta(self) -> Fraction:
        """The δ that it spends besides."""
        return self.rule.delta

    @property
    def contributions(self) -> int:
        """The most keys of a unit that count."""
        return self.rule.rounds[0].most


@dataclass(frozen=True, slots=True, order=True)
class ToldKey:
    """A key that was told, after those with more certainty."""

    round: int
    below: int
    """The noisy score, with a minus sign."""
    key: bytes


def find_keys(
    charged: ChargedPlan,
    scores: KeyScores,
    on_round: Callable[[int, int], None] = lambda done, of: None,
    *,
    _bits: RandomBits | None = None,
) -> tuple[ToldKey, ...]:
    """Find keys, round by round.

    Args:
        charged: the plan, paid for.
        scores: what is scored.
        on_round: called with how many rounds are done, and of how many.
        _bits: a source of random bits for tests; see `measure.measure`.

    Raises:
        InternalError: it was done before, is for other scores, or is no plan for keys.
    """
    plan = charged.certified
    if not isinstance(plan, KeyPlan):
        raise InternalError("a plan that finds no keys can't find them")
    if tuple(scores.weights) != plan.rule.weights:
        raise InternalError("keys are scored by other weights than are paid for")
    charged.use_once()
    bits = fresh_bits() if _bits is None else _bits
    told: dict[bytes, ToldKey] = {}
    for number, round_ in enumerate(plan.rule.rounds):
        on_round(number, len(plan.rule.rounds))
        if len(told) < plan.most:
            for key_found in _round(number, round_, plan.most, scores, frozenset(told), bits):
                told.setdefault(key_found.key, key_found)
    return tuple(sorted(told.values())[: plan.most])


def _round(
    number: int,
    round_: KeyRound,
    most: int,
    scores: KeyScores,
    known: Collection[bytes],
    bits: RandomBits,
) -> list[ToldKey]:
    """Return the keys that one round tells, those of the largest noisy scores first."""
    told: list[ToldKey] = []
    for piece in scores.run(known):
        told += (ToldKey(number, -score, key) for score, key in _reaching(round_, piece, bits))
        if len(told) > 2 * most:
            told = nsmallest(most, told)
    return nsmallest(most, told)


def _reaching(round_: KeyRound, piece: ScoredKeys, bits: RandomBits) -> list[tuple[int, bytes]]:
    """Return those of some keys that reach the threshold, with their noisy scores."""
    units, exact = piece.units, piece.scores
    if units.dtype != np.int64 or exact.dtype != np.int64 or units.shape != exact.shape:
        raise InternalError("scores are integers of 64 bits, one for each key")
    if len(exact) and not 0 <= int(exact.min()) <= int(exact.max()) <= LARGEST_SCORE:
        raise InternalError("a score is out of range")
    if round_.is_pure:
        noise = discrete_laplace(round_.scale, len(exact), bits)
    else:
        noise = rounded_gaussian(round_.variance, len(exact), bits)
    noisy = exact + np.clip(noise, -_FAR, _FAR)
    reached = np.flatnonzero((units >= round_.least) & (noisy >= round_.threshold))
    return list(zip(noisy[reached].tolist(), piece.pick(reached), strict=True))
