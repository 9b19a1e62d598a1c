"""Found keys: what is told is paid for, reaches the threshold, and seldom is one unit's alone."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpsql.engines.key_scores import ScoredKeys
from dpsql.errors import InternalError
from dpsql.measurement import keys
from dpsql.measurement.certify import CertifiedPlan
from dpsql.measurement.keys import KeyPlan, ToldKey, find_keys
from dpsql.measurement.measure import ChargedPlan
from dpsql.privacy import Budget, Ledger, Purpose
from dpsql.privacy.conversions import mu_squared_of
from dpsql.privacy.keys import SCALE, KeyRound, KeyRule, weights
from tests.helpers.seeded import SeededBits

DELTA = Fraction(1, 10**10)
MU_SQUARED = mu_squared_of(Fraction(1), Fraction(9, 10**10))
RULE = KeyRule.of(MU_SQUARED, DELTA, 1)


class Scores:
    """The scores of keys that so many units have, in pieces."""

    def __init__(self, counts, most=1, size=1000):
        self.counts, self.weights, self.size = counts, weights(most), size
        self.asked = []

    def check(self):
        pass

    def run(self, known=()):
        self.asked.append(frozenset(known))
        rows = [(k, n) for k, n in self.counts.items() if k not in known]
        for i in range(0, len(rows), self.size):
            names = [k for k, _ in rows[i : i + self.size]]
            units = np.array([n for _, n in rows[i : i + self.size]], dtype=np.int64)
            yield ScoredKeys(
                units,
                units * self.weights[-1],
                lambda at, names=names: [names[i] for i in at.tolist()],
            )


def paid(plan, delta=None, mu_squared=None):
    ledger = Ledger.open(None, dataset="test")
    mu_squared = mu_squared or plan.rule.mu_squared
    receipt = ledger.charge(
        mu_squared,
        delta=plan.delta if delta is None else delta,
        asked=Budget(rho=mu_squared / 2),
        purpose=Purpose(plan.digest, "1", "2", "3", "4", "5"),
    )
    return ChargedPlan(plan, receipt, ledger)


def found(plan, scores, seed=0):
    return find_keys(paid(plan), scores, _bits=SeededBits(seed))


def test_keys_of_many_units_are_told_and_others_are_not():
    counts = {f"k{n}".encode(): n for n in range(1, 400)}
    told = [one.key for one in found(KeyPlan(RULE, 1000), Scores(counts))]
    assert {f"k{n}".encode() for n in range(70, 400)} <= {*told}
    assert not {f"k{n}".encode() for n in range(1, 10)} & {*told}
    assert told[0] == b"k399" or counts[told[0]] > 370


@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_what_is_told_is_what_reaches_the_threshold(size):
    """The same words of random bits give the same noise, however keys come in pieces."""
    counts = {f"{n:04}".encode(): n for n in range(20, 60)}
    told = found(KeyPlan(RULE, 1000), Scores(counts, size=size), seed=3)
    noise = keys.rounded_gaussian(RULE.rounds[0].variance, len(counts), SeededBits(3)).tolist()
    noisy = {k: n * SCALE + z for (k, n), z in zip(counts.items(), noise, strict=True)}
    reached = {k: s for k, s in noisy.items() if s >= RULE.rounds[0].threshold}
    assert {one.key: -one.below for one in told} == reached
    assert [one.below for one in told] == sorted(one.below for one in told)


def test_at_most_so_many_are_told_those_of_the_largest_scores():
    counts = {f"k{n}".encode(): 1000 + n for n in range(500)}
    every = found(KeyPlan(RULE, 1000), Scores(counts, size=50))
    some = found(KeyPlan(RULE, 20), Scores(counts, size=50))
    assert some == every[:20]
    assert len(every) == 500


def test_a_second_round_is_asked_without_what_the_first_told():
    plan = KeyPlan(KeyRule.of(MU_SQUARED, DELTA, 3), 1000)
    scores = Scores({b"large": 10_000, b"middle": 110, b"small": 1}, most=3)
    told = found(plan, scores)
    assert scores.asked == [frozenset(), frozenset({b"large"})]
    assert [(one.round, one.key) for one in told] == [(0, b"large"), (1, b"middle")]
    few = Scores({b"large": 10_000, b"middle": 110}, most=3)
    assert [one.key for one in found(KeyPlan(plan.rule, 1), few)] == [b"large"]
    assert len(few.asked) == 1


def test_a_key_that_is_found_again_is_told_once():
    """Some can't be taken out of the sets, as a text with NUL."""

    class Again(Scores):
        def run(self, known=()):
            return super().run(())

    plan = KeyPlan(KeyRule.of(MU_SQUARED, DELTA, 3), 1000)
    assert [one.key for one in found(plan, Again({b"a\0": 10**6}, most=3))] == [b"a\0"]


def test_keys_have_as_many_units_as_was_promised():
    """With so much noise, one of fewer units would be told now and then by its score alone."""
    counts = {b"a": 49, b"b": 50}
    scores = Scores(counts)
    scores.weights = weights(1)
    plan = KeyPlan(KeyRule.of(Fraction(1), Fraction(1, 4), 1, least=50), 10)
    told = {one.key for seed in range(30) for one in found(plan, scores, seed)}
    assert told == {b"b"}


@pytest.mark.parametrize("most", [1, 4, 10])
@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("runs", [10**6, pytest.param(10**7, marks=pytest.mark.long)])
@pytest.mark.statistical
def test_keys_that_one_unit_has_are_told_with_probability_delta(most, runs, pure):
    """A unit comes with t keys that nobody else has, as many times as there are runs."""
    delta = Fraction(1, 1000)
    round_ = KeyRound(Fraction(1, 2), delta, most)
    round_ = KeyRound.pure(Fraction(1, 2), delta, most) if pure else round_
    bits, rates = SeededBits(most), []
    for t in sorted({1, most}):
        told, done = 0, 0
        while done < runs:
            count = min(runs - done, 10**6 // t)
            piece = ScoredKeys(
                np.ones(count * t, dtype=np.int64),
                np.full(count * t, round_.weights[t - 1]),
                lambda at: at.tolist(),
            )
            told += len({at // t for _, at in keys._reaching(round_, piece, bits)})
            done += count
        rates.append(told / runs)
    sd = math.sqrt(float(delta) / runs)
    assert max(rates) <= float(delta) + 4 * sd
    assert max(rates) >= float(delta) - 4 * sd


def test_what_is_not_paid_for_is_not_found():
    plan, scores = KeyPlan(RULE, 10), Scores({b"a": 1000})
    charged = paid(plan)
    find_keys(charged, scores, _bits=SeededBits(0))
    with pytest.raises(InternalError, match="once"):
        find_keys(charged, scores)
    for wrong in ({"delta": DELTA / 2}, {"mu_squared": MU_SQUARED / 2}):
        with pytest.raises(InternalError, match="less"):
            paid(plan, **wrong)
    with pytest.raises(InternalError, match="weights"):
        find_keys(paid(plan), Scores({b"a": 1000}, most=2))
    for pure in (False, True):  # each kind of noise has weights of its own
        rule = KeyRule.pure(Fraction(1), DELTA, 3) if pure else KeyRule.of(MU_SQUARED, DELTA, 3)
        wrong_scores = Scores({b"a": 1000})
        wrong_scores.weights = weights(3, pure=not pure)
        with pytest.raises(InternalError, match="weights"):
            find_keys(paid(KeyPlan(rule, 10)), wrong_scores)
    charged.certified = CertifiedPlan((), Budget(rho=1))
    with pytest.raises(InternalError, match="no keys"):
        find_keys(charged, scores)


def test_a_plan_is_told_from_others_by_all_that_decides_what_is_told():
    plan = KeyPlan(KeyRule.of(MU_SQUARED, DELTA, 3), 1000)
    (first, second) = plan.rule.rounds
    others = [
        replace(plan, most=999),
        replace(plan, rule=KeyRule((first,))),
        replace(plan, rule=KeyRule.pure(Fraction(1), DELTA, 3)),
        replace(plan, rule=KeyRule.pure(Fraction(1, 2), DELTA, 3)),
        replace(plan, rule=KeyRule((second, first))),
        replace(plan, rule=KeyRule((replace(first, most=4), replace(second, most=4)))),
        replace(plan, rule=KeyRule((replace(first, least=2), replace(second, least=2)))),
        *(
            replace(plan, rule=KeyRule((first, replace(second, **change))))
            for change in (
                {"delta": DELTA / 2},
                {"mu_squared": MU_SQUARED / 7},
            )
        ),
    ]
    assert len({one.digest for one in [plan, *others]}) == len(others) + 1
    assert (plan.delta, plan.contributions) == (DELTA, 3)
    assert plan.privacy_cost <= MU_SQUARED


@pytest.mark.parametrize(
    ("units", "scores"),
    [
        (np.ones(1, dtype=np.int64), np.ones(2, dtype=np.int64)),
        (np.ones(1), np.ones(1, dtype=np.int64)),
        (np.ones(1, dtype=np.int64), np.full(1, 2**60 + 1)),
        (np.ones(1, dtype=np.int64), np.full(1, -1)),
    ],
)
def test_scores_that_are_none_are_refused(units, scores):
    piece = ScoredKeys(units, scores, lambda at: [b"secret"] * len(at))
    with pytest.raises(InternalError) as caught:
        keys._reaching(RULE.rounds[0], piece, SeededBits(0))
    assert "secret" not in str(caught.value)


def test_told_keys_are_sorted_by_their_certainty():
    told = [ToldKey(1, -9, b"a"), ToldKey(0, -5, b"b"), ToldKey(0, -7, b"z"), ToldKey(0, -7, b"c")]
    assert [one.key for one in sorted(told)] == [b"c", b"z", b"b", b"a"]
