"""Counts behind the guard: nothing without its price, and never a score that changes too much."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dpsql.engines.base import Counted
from dpsql.errors import InternalError
from dpsql.measurement import guarded as module
from dpsql.measurement import narrow
from dpsql.measurement.distributions import Laplace
from dpsql.measurement.exponential import selection_cost
from dpsql.measurement.factors import DenseFactor
from dpsql.measurement.guarded import GRID, Allowance, Candidate, GuardedCounts
from dpsql.measurement.narrow import apply
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.mechanisms.aim_rounds import residual_block
from dpsql.planner.reconstruction.sources import of_measure
from tests.helpers.seeded import GivenBits, SeededBits

SIZES = {"a": 3, "b": 2}
COUNTS = np.array([[3, 0], [7, 1], [0, 12]])


ASKED = (("a", "b"), ("a",), ("b",))


def guard(counts=COUNTS, *, total=Fraction(10), contributions=1, bits=None):
    return guard_of(Counted({("a", "b"): counts}, contributions), ASKED, total, bits)


def guard_of(counted, asked, total=Fraction(10), bits=None):
    allowance = Allowance(total)
    chosen = SeededBits(1) if bits is None else bits
    return GuardedCounts(counted, asked, allowance, chosen), allowance


def block(price=Fraction(1), attributes=("a", "b")):
    return residual_block(attributes, SIZES, price, 1)


def test_a_measurement_is_exact_counts_plus_its_noise(monkeypatch):
    laws = []
    monkeypatch.setattr(narrow, "draw", lambda law, n, bits: laws.append(law) or np.arange(n))
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
    monkeypatch.setattr(narrow, "draw", lambda *a: seen.append(allowance.spent) or np.zeros(6, int))
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
    counts = generator.integers(0, 2**37, (5, 11))
    estimate = counts + generator.normal(0, 100, counts.shape)
    held, _ = guard(counts)
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
    for given, k in ((np.zeros((3, 2)), 1), (COUNTS, 0), (COUNTS, 1.5), (COUNTS, True)):
        with pytest.raises(InternalError):
            guard(given, contributions=k)
    with pytest.raises(InternalError, match="not of units"):
        guard_of(Counted({("a", "b"): COUNTS}, 1, units={"b": 1}), ASKED)


def test_marginals_are_sums_of_those_that_were_counted():
    both = {("a", "b"): COUNTS, ("c",): np.array([5, 6])}
    counts, _ = guard_of(Counted(both, 1), [*ASKED, ("c",), ()])
    assert counts._marginals[("a", "b")] is COUNTS
    for names, expected in {("a",): [3, 8, 12], ("b",): [10, 13], ("c",): [5, 6]}.items():
        assert counts._marginals[names].tolist() == expected
    assert counts._marginals[()] in (23, 11)  # that of either; the rows of a table are the same
    for missing in (("a", "c"), ("b", "a"), ("d",)):
        with pytest.raises(InternalError, match="missing"):
            guard_of(Counted(both, 1), [*ASKED, ("c",), missing])
    with pytest.raises(InternalError, match="missing"):  # nothing is summed over two axes at once
        guard_of(Counted({("a", "b"): COUNTS}, 1), [("a", "b"), ()])
    with pytest.raises(InternalError, match="wrong shape"):
        guard_of(Counted({("a", "b"): COUNTS.ravel()}, 1), [("a", "b")])


# ── several tables ─────────────────────────────────────────────────────────────────────────

OTHER = np.array([[4, 90, 0, 1]]).T
"""Rows of the table `s`, by its attribute d; a unit has up to 5, and of `r` up to 2."""
BOUNDS = {"r": 2, "s": 5}
OF_BOTH = (("a", "b", "r"), ("a", "r"), ("b", "r"), ("r",), ("d", "s"), ("s",))


def two(counts=COUNTS, other=OTHER, *, bounds=BOUNDS, total=Fraction(10**4), bits=None):
    counted = Counted({("a", "b", "r"): counts[..., None], ("d", "s"): other}, 1, bounds)
    return guard_of(counted, OF_BOTH, total, bits)


def of_table(names, rows, price=Fraction(1, 3)):
    """A residual space of one of the tables, for k rows of a unit."""
    sizes = {**SIZES, "d": 4}
    measured = residual_block(names[:-1], sizes, price, 1)
    return of_measure(measured, names[-1], 1, rows), measured


@pytest.mark.parametrize(("names", "k"), [(("a", "b", "r"), 2), (("r",), 2), (("d", "s"), 5)])
def test_a_measurement_of_one_of_several_tables_costs_the_square_of_its_rows(names, k):
    counts, allowance = two()
    measured, alone = of_table(names, k)
    found = counts.measure(measured)
    assert found.size == measured.measurements
    assert allowance.spent == k**2 * alone.privacy_cost
    more, _ = of_table(names, k + 3)  # what states more is paid for as such
    counts.measure(more)
    assert allowance.spent == (k**2 + (k + 3) ** 2) * alone.privacy_cost


@pytest.mark.parametrize(("names", "k"), [(("a", "b", "r"), 1), (("d", "s"), 4), (("s",), 2)])
def test_a_measurement_that_states_too_few_rows_is_refused(names, k):
    counts, allowance = two(bits=GivenBits())
    for block_, said in (
        (of_table(names, k)[0], "more to a sum than is paid for"),
        (BlockStrategy((names,), plain(names), of_table(names, k)[1].law), "counts as counts"),
        (of_table(names, k)[1], "counts as counts|missing"),
    ):
        with pytest.raises(InternalError, match=said):
            counts.measure(block_)
    assert allowance.spent == 0


def plain(names):
    """The factors of a residual space, with nothing that says what a unit adds."""
    one = DenseFactor((len(names) - 1,), (1,), np.ones((1, 1), dtype=np.int64))
    factors = of_table(names, 1)[1].factors if len(names) > 1 else ()
    return (*factors, one)


def test_each_marginal_is_of_the_counts_of_one_table():
    for marginals, asked, bounds in (
        ({("a", "b"): COUNTS}, ("a", "b"), {"r": 2}),  # of none
        ({("a", "b", "r"): COUNTS[..., None]}, ("a", "b"), {"r": 2}),
        ({("r", "s"): np.ones((1, 1), int)}, ("r", "s"), BOUNDS),  # of two
    ):
        wanted = [*marginals, asked]
        with pytest.raises(InternalError):
            guard_of(Counted(marginals, 1, bounds), wanted)
    for bound in (0, -1, 2.0, True, None):
        with pytest.raises(InternalError, match="whole number"):
            two(bounds={**BOUNDS, "s": bound})


def scores_of(monkeypatch, weights, estimates, counts, other):
    """What the choice among all marginals of two tables is made by."""
    seen = []
    monkeypatch.setattr(
        module, "exponential_mechanism", lambda scores, steep, bits: seen.append((scores, steep))
    )
    guarded, _ = two(counts, other)
    for names, estimate in estimates.items():
        guarded.compare(names, estimate)
    guarded.choose([Candidate(n, w, 3) for n, w in weights.items()], Fraction(1, 4))
    return seen[0]


@pytest.mark.parametrize("heaviest", OF_BOTH)
def test_scores_of_several_tables_differ_within_the_sensitivity(monkeypatch, heaviest):
    """All that one unit can have: up to 2 rows in the one table, and up to 5 in the other."""
    weights = {names: 50 if names == heaviest else 3 for names in OF_BOTH}
    generator = np.random.default_rng(4)
    shapes = {names: [{**SIZES, "d": 4}.get(n, 1) for n in names] for names in OF_BOTH}
    estimates = {names: generator.uniform(-50, 50, shape) for names, shape in shapes.items()}
    estimates[heaviest] = np.full(shapes[heaviest], 1e4)
    before, steepness = scores_of(monkeypatch, weights, estimates, COUNTS, OTHER)
    largest = 0
    cells = list(itertools.product(range(3), range(2)))
    for rows, others in itertools.product(
        itertools.combinations_with_replacement(cells, 2),
        itertools.combinations_with_replacement(range(4), 5),
    ):
        counts, other = COUNTS.copy(), OTHER.copy()
        for cell in rows:
            counts[cell] += 1
        for cell in others:
            other[cell, 0] += 1
        after, same = scores_of(monkeypatch, weights, estimates, counts, other)
        assert same == steepness
        largest = max(largest, *(abs(x - y) for x, y in zip(before, after, strict=True)))
    # Neither more than the sensitivity nor less: that of the marginal that weighs most.
    assert 2 * steepness * largest == Fraction(1, 4)
    assert largest == GRID * 50 * BOUNDS[heaviest[-1]]


def test_counts_of_any_size_keep_scores_within_the_sensitivity():
    """What is too large for the grid is taken for the largest, so that nothing overflows."""
    for value in (2**37, 2**52, 2**53, 2**54, 2**62, -(2**63)):
        counts, _ = guard(np.full((3, 2), value))
        counts.compare(("a", "b"), np.zeros((3, 2)))
        assert counts._distances[("a", "b")] == 6 * GRID * min(abs(value), 2**53)
    near, _ = guard(np.array([[2**53 - 1, 2**53], [2**53 + 1, 0], [0, -3]]))
    near.compare(("a", "b"), np.zeros((3, 2)))
    assert near._distances[("a", "b")] == GRID * (3 * 2**53 - 1 + 3)
    with pytest.raises(InternalError, match="far too large"):
        near.compare(("a", "b"), np.full((3, 2), 2.0**55))
    with pytest.raises(InternalError, match="far too large"):
        near.compare(("a", "b"), np.full((3, 2), np.nan))


def test_distances_do_not_overflow_where_all_cells_are_far_off():
    counts = np.full((2**18, 1), 2**62)
    held, _ = guard_of(Counted({("a", "b"): counts}, 1), [("a", "b")])
    held.compare(("a", "b"), np.full(counts.shape, -(2.0**53)))
    assert held._distances[("a", "b")] == 2**18 * GRID * 2**54


def test_sums_of_more_than_64_bits_are_refused():
    above = {("a", "b"): np.zeros_like(COUNTS)}
    with pytest.raises(InternalError, match="64 bits"):
        guard_of(Counted({("a", "b"): COUNTS}, 1, above=above), [("a", "b")])


@pytest.mark.statistical
@pytest.mark.parametrize("neighbor", [True, False])
def test_choices_among_tables_have_the_ratio_that_is_paid_for(neighbor):
    """P/P' of neighbors stays within e^ε, and comes near: in both directions."""
    epsilon, draws = Fraction(2), 4000
    candidates = [Candidate(("a", "b", "r"), 5, 0), Candidate(("d", "s"), 2, 0)]
    unit = np.array([[0, 0], [0, 2], [0, 0]]), np.array([[0, 5, 0, 0]]).T
    bits = SeededBits(11)

    def share(counts, other):
        guarded, _ = two(counts, other, bits=bits, total=Fraction(10**6))
        guarded.compare(("a", "b", "r"), COUNTS[..., None] + 100.0)
        guarded.compare(("d", "s"), OTHER - 300.0)
        # Both are as far off, weighed, so that nobody is ahead.
        even = [Candidate(candidates[0].marginal, 5, 5 * GRID * 600),
                Candidate(candidates[1].marginal, 2, 2 * GRID * 1200)]  # fmt: skip
        return np.mean([guarded.choose(even, epsilon) for _ in range(draws)])

    times = 1 if neighbor else 2  # as much as one unit can have
    here, there = share(COUNTS, OTHER), share(COUNTS + times * unit[0], OTHER + times * unit[1])
    odds = np.log(there / (1 - there)) - np.log(here / (1 - here))
    # A unit brings the first nearer by 2·5, and the second farther off by 5·2: each by Δ.
    assert (odds < float(epsilon) + 0.25) == neighbor
    assert odds > float(epsilon) - 0.25
