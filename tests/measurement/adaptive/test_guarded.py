"""Counts behind the guard: nothing without its price, and never a score that changes too much."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InternalError
from dpsql.measurement import guarded as module
from dpsql.measurement.allowance import Allowance
from dpsql.measurement.distributions import Laplace
from dpsql.measurement.exponential import selection_cost
from dpsql.measurement.guarded import GRID, Candidate, GuardedCounts
from dpsql.measurement.measure import apply
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.mechanisms.aim.estimates import residual_block
from dpsql.planner.reconstruction.sources import of_measure
from tests.helpers.seeded import GivenBits, SeededBits

SIZES = {"a": 3, "b": 2}
COUNTS = np.array([[3, 0], [7, 1], [0, 12]])


def tables(counts=COUNTS):
    return {("a", "b"): counts, ("a",): counts.sum(axis=1), ("b",): counts.sum(axis=0)}


def guard(counts=COUNTS, *, total=Fraction(10), contributions=1, bits=None):
    allowance = Allowance(total)
    chosen = SeededBits(1) if bits is None else bits
    return GuardedCounts(tables(counts), allowance, contributions, chosen), allowance


def block(price=Fraction(1), attributes=("a", "b")):
    return residual_block(attributes, SIZES, price, 1)


def test_a_measurement_is_exact_counts_plus_its_noise(monkeypatch):
    laws = []
    monkeypatch.setattr(module, "draw", lambda law, n, bits: laws.append(law) or np.arange(n))
    counts, allowance = guard()
    measured = counts.measure(block())
    assert laws == [block().law]
    assert (measured - apply(block(), COUNTS)).ravel().tolist() == list(range(6))
    assert allowance.spent == block().privacy_cost


@pytest.mark.parametrize("contributions", [1, 3])
def test_a_measurement_costs_the_square_of_the_contributions(contributions):
    counts, allowance = guard(contributions=contributions)
    counts.measure(block(Fraction(1, 7)))
    assert allowance.spent == contributions**2 * block(Fraction(1, 7)).privacy_cost
    assert 0 < allowance.spent <= contributions**2 * Fraction(1, 7)


@pytest.mark.parametrize("step", ["measure", "choose"])
def test_nothing_is_drawn_that_cannot_be_paid(step):
    counts, allowance = guard(total=Fraction(1, 100), bits=GivenBits())
    counts.compare(("a",), np.zeros(3))
    argument = (block(),) if step == "measure" else ([Candidate(("a",), 1, 0)], Fraction(1))
    with pytest.raises(InternalError, match="allowance"):
        getattr(counts, step)(*argument)
    assert allowance.spent == 0


def test_the_price_is_noted_before_anything_is_drawn(monkeypatch):
    counts, allowance = guard()
    counts.compare(("a",), np.zeros(3))
    seen = []
    monkeypatch.setattr(module, "draw", lambda *a: seen.append(allowance.spent) or np.zeros(6, int))
    monkeypatch.setattr(
        module, "exponential_mechanism", lambda *a: seen.append(allowance.spent) or 0
    )
    counts.measure(block())
    counts.choose([Candidate(("a",), 1, 0)], Fraction(1, 2))
    price = block().privacy_cost
    assert seen == [price, price + selection_cost(Fraction(1, 2))]


@pytest.mark.parametrize("contributions", [1, 2])
def test_scores_of_neighbours_differ_within_the_sensitivity(monkeypatch, contributions):
    """All ways to add up to k records in one cell each; estimates off the grid, far and near."""
    estimates = {
        ("a", "b"): np.array([[3.001, 0.499], [-2.5, 1e6], [0.0, 11.9]]),
        ("a",): np.array([3.0, 8.0, 12.3]),
        ("b",): np.array([9.99, 13.0]),
    }
    candidates = [Candidate(names, weight, 17 * weight)
                  for names, weight in zip(estimates, (5, 3, 1), strict=True)]  # fmt: skip
    seen = []
    monkeypatch.setattr(
        module,
        "exponential_mechanism",
        lambda scores, steep, bits: seen.append((scores, steep)) or 0,
    )

    def scores_of(table):
        counts, _ = guard(table, contributions=contributions)
        for names, estimate in estimates.items():
            counts.compare(names, estimate)
        counts.choose(candidates, Fraction(1, 4))
        return seen[-1]

    before, steepness = scores_of(COUNTS)
    largest = 0
    cells = list(itertools.product(range(3), range(2)))
    for added in itertools.combinations_with_replacement(cells, contributions):
        table = COUNTS.copy()
        for cell in added:
            table[cell] += 1
        after, same = scores_of(table)
        assert same == steepness
        largest = max(largest, *(abs(x - y) for x, y in zip(before, after, strict=True)))
    # The range of s·(q − q') over candidates is at most 2sΔ = ε, and Δ is reached.
    assert 2 * steepness * largest == Fraction(1, 4)
    assert largest == contributions * GRID * 5


def test_distances_are_exact_sums_over_all_chunks(monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 7)
    generator = np.random.default_rng(0)
    counts = generator.integers(0, 2**40, (5, 11))
    estimate = counts + generator.normal(0, 100, counts.shape)
    held = GuardedCounts({("a", "b"): counts}, Allowance(Fraction(1)), 1, SeededBits(0))
    held.compare(("a", "b"), estimate)
    expected = sum(
        abs(GRID * int(x) - round(float(y) * GRID))
        for x, y in zip(counts.ravel(), estimate.ravel(), strict=True)
    )
    assert held._distances[("a", "b")] == expected


def test_the_worst_known_marginal_is_chosen_when_the_choice_is_steep():
    counts, _ = guard(total=Fraction(10**7))
    counts.compare(("a",), np.array([3.0, 8.0, 12.0]))
    counts.compare(("b",), np.zeros(2))
    candidates = [Candidate(("a",), 1, 0), Candidate(("b",), 1, 0)]
    assert counts.choose(candidates, Fraction(1000)) == 1
    candidates = [Candidate(("a",), 1, 0), Candidate(("b",), 1, 100 * GRID)]
    assert counts.choose(candidates, Fraction(1000)) == 0


def test_what_does_not_fit_is_refused():
    counts, allowance = guard()
    for estimate in (np.zeros(4), np.array([0.0, np.nan, 0.0]), np.full(3, 1e300)):
        with pytest.raises(InternalError):
            counts.compare(("a",), estimate)
    with pytest.raises(InternalError, match="missing"):
        counts.compare(("b", "a"), np.zeros((2, 3)))
    with pytest.raises(InternalError, match="not compared"):
        counts.choose([Candidate(("a",), 1, 0)], Fraction(1))
    counts.compare(("a",), np.zeros(3))
    for candidates in ([], [Candidate(("a",), 0, 0)], [Candidate(("a",), 1, 0.5)]):
        with pytest.raises(InternalError):
            counts.choose(candidates, Fraction(1, 10))
    measured = block()
    for wrong in (
        BlockStrategy((("a", "b"), ("b", "a")), measured.factors, measured.law),
        BlockStrategy((("a", "b"),), measured.factors, Laplace(5)),
        BlockStrategy((("a", "c"),), measured.factors, measured.law),
        of_measure(measured, "v", 5),
    ):
        with pytest.raises(InternalError):
            counts.measure(wrong)
    assert allowance.spent <= selection_cost(Fraction(1, 10))


def test_counts_must_be_whole_and_contributions_too():
    for given, k in (({("a",): np.zeros(3)}, 1), (tables(), 0), (tables(), 1.5)):
        with pytest.raises(InternalError):
            GuardedCounts(given, Allowance(Fraction(1)), k, SeededBits(0))
