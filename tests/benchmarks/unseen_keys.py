"""How often a key is told that one unit alone has: simulated, against the δ₀ that pays for it.

    python -m tests.benchmarks.unseen_keys [RUNS]

Neighbors differ in one unit, which has t keys that nobody else has. In each run these get noise
and meet thresholds, as `measurement/keys.py` does it, and the run counts if one of them is told.
That is done for Gaussian and for Laplace noise, for units of at most K keys, by one round and by
two, and for t of 1 to K. Beside each rate stands what follows from the rule, and by how many
standard errors they differ; the largest rate of a rule must be within four of δ₀ = 1/1000.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from dpsql.engines.key_scores import ScoredKeys
from dpsql.measurement import keys
from dpsql.privacy.keys import KeyRound, KeyRule
from tests.helpers.seeded import SeededBits

DELTA = Fraction(1, 1000)
RUNS = 10**7
_PIECE = 10**6


def rules() -> Iterator[tuple[str, KeyRule]]:
    """Yield rules of every kind: of one round and of two, for each kind of noise."""
    half = Fraction(1, 2)
    for most in (1, 4):
        yield f"Gaussian, K = {most}, one round", KeyRule((KeyRound(half, DELTA, most),))
        yield f"Laplace, K = {most}, one round", KeyRule((KeyRound.pure(half, DELTA, most),))
    yield "Gaussian, K = 4, two rounds", KeyRule.of(half, DELTA, 4)
    yield "Laplace, K = 4, two rounds", KeyRule.pure(half, DELTA, 4)


def rate(rule: KeyRule, t: int, runs: int, bits: SeededBits) -> float:
    """Return in which part of the runs one of a unit's t keys is told, in any round."""
    told = 0
    for begin in range(0, runs, _PIECE // t):
        count = min(_PIECE // t, runs - begin)
        bad = set[int]()
        for round_ in rule.rounds:  # where none is told, the second is asked for all of them again
            piece = ScoredKeys(
                np.ones(count * t, dtype=np.int64),
                np.full(count * t, round_.weights[t - 1]),
                lambda at: at.tolist(),
            )
            bad |= {int(at) // t for _, at in keys._reaching(round_, piece, bits)}
        told += len(bad)
    return told / runs


def expected(rule: KeyRule, t: int) -> float:
    """Return the probability that one of a unit's t keys is told."""
    kept = (t * math.log1p(-each.probability(1, t)) for each in rule.rounds)
    return -math.expm1(sum(kept))


def main(runs: int = RUNS) -> None:
    """Print all rates.

    Raises:
        SystemExit: one is too far from what it should be.
    """
    delta, bits, good = float(DELTA), SeededBits(7), True
    sd = math.sqrt(delta * (1 - delta) / runs)
    for name, rule in rules():
        rates = {}
        for t in range(1, rule.rounds[0].most + 1):
            rates[t] = rate(rule, t, runs, bits)
            exact = expected(rule, t)
            off = (rates[t] - exact) / math.sqrt(exact * (1 - exact) / runs)
            good &= abs(off) <= 4
            print(f"{name}, t = {t}: {rates[t]:.6f} for {exact:.6f} ({off:+.1f} sd)", flush=True)
        from_delta = (max(rates.values()) - delta) / sd
        good &= abs(from_delta) <= 4
        print(f"{name}: the largest is {from_delta:+.1f} sd from {delta}", flush=True)
    print(f"{runs:,} runs each:", "all within 4 sd" if good else "TOO FAR")
    sys.exit(not good)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
