"""Differences of totals: what they cost beside what is measured of each table, or a refusal."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.engines.base import Counted
from dpsql.errors import InternalError
from dpsql.measurement import differences
from dpsql.measurement.certify import CertifiedPlan, spent
from dpsql.measurement.differences import (
    Condition,
    Difference,
    beyond,
    check_totals,
    cost_of,
    costs_by,
    times_of,
)
from dpsql.measurement.distributions import Gaussian, Laplace
from dpsql.measurement.factors import DenseFactor, IdentityFactor, MeasureFactor, UnitFactor
from dpsql.measurement.measure import measure
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.mechanisms.compared import ComparedTable, differences_of, weights_of
from dpsql.privacy import Budget
from dpsql.workload.spread import SpreadRows
from tests.helpers.charging import pay
from tests.helpers.seeded import SeededBits

HUGE = Budget(rho=10**9)
LAW = Gaussian(10**4)


def counts(table, rows, *matrices, law=LAW):
    """One block for each matrix over the cells of a key of the table."""
    blocks = []
    for number, matrix in enumerate(matrices):
        given_ = np.array(matrix, dtype=np.int64)
        keys = DenseFactor((0,), (given_.shape[1],), given_)
        space = (f"{table}.key{number}", table)
        blocks.append(BlockStrategy((space,), (keys, MeasureFactor((1,), 1, rows)), law))
    return blocks


def difference(one="a", other="b", rows=(1, 1), times=None, law=LAW, conditions=(None, None)):
    return Difference((one, other), times or times_of(rows, 12 * max(rows)), rows, law, conditions)


def some(*cells, name="key0"):
    return Condition((name,), (len(cells),), bytes(cells))


def worst(tables, differences, most=None):
    """Try all that a unit can have: its rows in each table, each in any cell.

    A difference counts all of them, or those in the cells of its conditions.

    Args:
        tables: name → (k, matrices with their laws).
        differences: what is compared.
        most: name → how many of these rows may be in each cell of all keys.
    """
    found = Fraction(0)
    choices = []
    for name, (rows, matrices, law) in tables.items():
        own = []
        for count in range(rows + 1):
            for cells in itertools.combinations_with_replacement(range(3), count):
                added = np.bincount(np.array(cells, dtype=int), minlength=3)
                if most is not None and name in most and (added > most[name]).any():
                    continue
                cost = sum(int(((np.array(m) @ added) ** 2).sum()) for m in matrices)
                own.append((name, added, Fraction(cost, law.squared)))
        choices.append(own)
    for chosen in itertools.product(*choices):
        added = {name: cells for name, cells, _ in chosen}
        cost = sum((c for _, _, c in chosen), Fraction(0))
        for one in differences:
            first, second = (
                int((added[name] if of is None else added[name][of.counted]).sum()) * times
                for (name, of), times in zip(one.sides, one.times, strict=True)
            )
            cost += Fraction((first - second) ** 2, one.law.squared)
        found = max(found, cost)
    return found


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_unit_costs_more_than_is_charged(data):
    names = ["a", "b", "c"][: data.draw(st.integers(2, 3))]
    entry = st.integers(-3, 3)
    tables, blocks = {}, []
    for name in names:
        rows = data.draw(st.integers(1, 3))
        row = st.lists(entry, min_size=3, max_size=3)
        matrices = data.draw(st.lists(st.lists(row, min_size=1, max_size=2), max_size=2))
        law = Gaussian(data.draw(st.integers(1, 50)))
        tables[name] = rows, matrices, law
        blocks += counts(name, rows, *matrices, law=law)
    differences = []
    for one, other in itertools.combinations(names, 2):
        if data.draw(st.booleans()):
            rows = tables[one][0], tables[other][0]
            law = Gaussian(data.draw(st.integers(1, 2000)))
            differences.append(difference(one, other, rows, law=law))
    charged = spent(tuple(blocks), differences=tuple(differences))
    assert worst(tables, differences) <= charged
    assert charged >= spent(tuple(blocks))


@pytest.mark.parametrize("seed", range(250))
def test_conditional_differences_cost_what_the_worst_unit_does(seed, monkeypatch):
    """Exactly, where one block is measured of each table; and no less by the bound for many."""
    random = np.random.default_rng(seed)
    names = "abc"[: int(random.integers(2, 4))]
    rows = {name: int(random.integers(1, 3)) for name in names}
    of = {}
    for name in names:
        cells = random.integers(0, 2, 3)
        cells[int(random.integers(3))] = 1
        of[name] = None if random.random() < 0.2 else some(*cells.tolist())
    several = seed % 5 == 4
    tables, blocks = {}, []
    for name in names:
        law = Gaussian(int(random.integers(1, 50)))
        matrices = [
            random.integers(-3, 4, (int(random.integers(1, 3)), 3)) for _ in range(1 + several)
        ]
        if random.random() < 0.5 and of[name] is not None:
            matrices[0] = matrices[0] * of[name].counted
        tables[name] = rows[name], matrices, law
        own = counts(name, rows[name], *matrices, law=law)
        if several:  # of other attributes: nothing is known of the cells of the condition there
            blocks += own[1:]
        blocks += own[:1]
    compared = []
    for one, other in itertools.combinations(names, 2):
        law = Gaussian(int(random.integers(1, 3000)))
        both = rows[one], rows[other]
        compared.append(difference(one, other, both, law=law, conditions=(of[one], of[other])))
    paid = spent(tuple(blocks), differences=tuple(compared))
    found = worst(tables, compared)
    assert found <= paid
    assert several or found == paid or paid == spent(tuple(blocks))
    monkeypatch.setattr(differences, "MOST_TABLES", 0)
    assert paid <= spent(tuple(blocks), differences=tuple(compared))


def test_what_is_measured_of_other_rows_leaves_less_for_conditional_differences():
    """C¹ = 25 of the rows that are counted, C⁰ = 9 of the others: 16 may be spent for nothing."""
    law, both = Gaussian(1), (some(1, 0, 0), some(1, 0, 0))
    blocks = [*counts("a", 1, [[5, 3, 0]], law=law), *counts("b", 1, [[5, 3, 0]], law=law)]
    for times, extra in ((4, 0), (5, 9)):
        one = difference(times=(times, times), law=law, conditions=both)
        assert costs_by(blocks, "a", 1, (), both[0]) == (25, 9)
        assert beyond(blocks, [one]) == extra
    # A unit with a row of each kind: 25 + 9 + 25 in place of 25 + 25.
    all_rows = difference(times=(5, 5), law=law)
    assert beyond(blocks, [all_rows]) == 0


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_conditional_differences_of_rows_that_are_spread_out_cost_enough(data):
    entry, numbers = st.integers(0, 3), st.integers(1, 3)
    tables, blocks, most, spreads, of = {}, [], {}, [], {}
    for name in "ab":
        rows, own = data.draw(st.integers(2, 3)), data.draw(st.integers(1, 2))
        matrix = [data.draw(st.lists(entry, min_size=3, max_size=3)) for _ in range(2)]
        law = Gaussian(data.draw(st.integers(1, 50)))
        tables[name] = rows, [matrix], law
        blocks += counts(name, rows, matrix, law=law)
        sizes = data.draw(st.lists(numbers, min_size=3, max_size=3))
        most[name], key = own * np.array(sizes), f"{name}.key0"
        share = Fraction(min(own, rows), rows)
        spreads.append(SpreadRows(frozenset([key]), share, ((key, tuple(sizes)),)))
        of[name] = some(*data.draw(st.sampled_from([(1, 0, 0), (0, 1, 1), (1, 1, 1)])))
    rows = tables["a"][0], tables["b"][0]
    law = Gaussian(data.draw(st.integers(1, 2000)))
    compared = (difference("a", "b", rows, law=law, conditions=(of["a"], of["b"])),)
    assert worst(tables, compared, most) <= spent(tuple(blocks), 1, tuple(spreads), compared)


@settings(max_examples=200, deadline=None)
@given(*[st.integers(0, 12)] * 4)
def test_what_one_table_pays_for_is_the_largest_of_its_bound(charged, counted, others, weight):
    """min(c, C¹z + C⁰(1 − z)) + (1 − z)W − c, which is largest at 0, at 1 or at its bend."""
    charged = min(charged, max(counted, others))
    own = differences._Own(*map(Fraction, (charged, counted, others, weight)))
    shares = [Fraction(i, 5 * 12) for i in range(5 * 12 + 1)]
    if counted != others:
        shares.append(
            min(max(Fraction(charged - others, counted - others), Fraction(0)), Fraction(1))
        )
    found = max(
        min(own.charged, own.counted * z + own.others * (1 - z))
        + (1 - z) * own.weight
        - own.charged
        for z in shares
    )
    assert own.beyond == max(0, found)


def test_a_condition_on_two_attributes_finds_its_cells_in_any_order():
    """Attributes of a block in another order, joint in one factor or each in its own."""
    law = Gaussian(1)
    joint = np.array([[1, 2, 3], [4, 5, 6]])  # by y, x
    one = DenseFactor((1, 0), (2, 3), joint.reshape(1, -1).astype(np.int64))
    own = BlockStrategy((("a.x", "a.y", "a"),), (one, MeasureFactor((2,), 1, 1)), law)
    each = [DenseFactor((i,), (n,), np.arange(1, n + 1)[None]) for i, n in ((0, 3), (1, 2))]
    apart = BlockStrategy((("a.x", "a.y", "a"),), (*each[::-1], MeasureFactor((2,), 1, 1)), law)
    for block, numbers in ((own, joint), (apart, np.array([[1, 2, 3], [2, 4, 6]]))):
        for at in range(6):
            cells = np.zeros((2, 3), dtype=np.uint8)
            cells.ravel()[at] = 1
            for names, by in ((("y", "x"), cells), (("x", "y"), cells.T)):
                of = Condition(names, by.shape, by.tobytes())
                others = (numbers[cells == 0] ** 2).max()
                assert costs_by([block], "a", 1, (), of) == (numbers[cells == 1] ** 2, others)


@pytest.mark.parametrize(
    ("names", "shape", "cells"),
    [
        ((), (), b"\1"),
        (("k", "k"), (1, 1), b"\1"),
        (("k",), (2,), b"\1"),
        (("k",), (2, 1), b"\1\0"),
        (("k",), (2,), b"\0\0"),
        (("k",), (2,), b"\2\1"),
        (("k",), (0,), b""),
        (("k",), (True,), b"\1"),
    ],
)
def test_conditions_that_are_none_are_refused(names, shape, cells):
    with pytest.raises(InternalError):
        Condition(names, shape, cells)


def test_a_condition_on_other_cells_than_are_measured_is_refused():
    one = difference(conditions=(some(1, 0), None))
    with pytest.raises(InternalError, match="other cells"):
        beyond(counts("a", 1, [[1, 1, 1]]), [one])
    with pytest.raises(InternalError, match="has a condition"):
        replace(one, conditions=(None,))
    others = difference("a", "c", conditions=(some(1, 1), None))
    with pytest.raises(InternalError, match="several numbers"):
        beyond([], [one, others])


def test_the_rows_of_a_condition_are_counted():
    blocks = (*counts("a", 2, [[5, 5, 0]]), *counts("b", 1, [[7, 0, 0]]))
    one = difference("a", "b", (2, 1), (50, 100), Gaussian(1), (some(1, 1, 0), some(1, 0, 0)))
    assert one.marginals == (("a.key0", "a"), ("b.key0", "b"))
    assert one.content != replace(one, conditions=(None, None)).content
    plan = CertifiedPlan(blocks, HUGE, differences=(one,))
    assert plan.digest != CertifiedPlan(blocks, HUGE).digest
    a, b = (np.array(n, dtype=np.int64)[:, None] for n in ([30, 4, 99], [6, 77, 88]))
    bounds, totals = {"a": 2, "b": 1}, {"a": 2, "b": 1}
    counted = Counted({("a.key0", "a"): a, ("b.key0", "b"): b}, 1, bounds, totals=totals)
    found = measure(charged(plan), counted, _bits=SeededBits(1)).values[frozenset("ab")]
    assert abs(int(found[0]) - (50 * 34 - 100 * 6)) <= 6
    lacking = Counted({("a.key0", "a"): a[:2], ("b.key0", "b"): b}, 1, bounds, totals=totals)
    with pytest.raises(InternalError):
        measure(charged(plan), lacking, _bits=SeededBits(1))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_unit_whose_rows_are_spread_out_costs_more(data):
    """Of one cell alone few rows cost as much as is charged for many, and they are compared."""
    entry, numbers = st.integers(0, 3), st.integers(1, 3)
    tables, blocks, most, spreads = {}, [], {}, []
    for name in "ab":
        rows, own = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 2))
        matrix = [data.draw(st.lists(entry, min_size=3, max_size=3))]
        law = Gaussian(data.draw(st.integers(1, 50)))
        tables[name] = rows, [matrix], law
        blocks += counts(name, rows, matrix, law=law)
        sizes = data.draw(st.lists(numbers, min_size=3, max_size=3))
        most[name] = own * np.array(sizes)
        key = f"{name}.key0"
        spreads.append(SpreadRows(frozenset([key]), Fraction(own, rows), ((key, tuple(sizes)),)))
    rows = tables["a"][0], tables["b"][0]
    compared = (difference("a", "b", rows, law=Gaussian(data.draw(st.integers(1, 2000)))),)
    charged = spent(tuple(blocks), 1, tuple(spreads), compared)
    assert worst(tables, compared, most) <= charged
    evenly = sum(block.cost(tuple(spreads), evenly=True) for block in blocks)
    assert charged <= evenly + 2 * compared[0].weight


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 30)), min_size=2, max_size=4))
def test_differences_that_are_planned_are_free_and_no_other_is(given_):
    """The largest cost of a unit is that of all rows in all tables, exactly."""
    tables, blocks, measured = {}, [], []
    for name, (rows, scale) in zip("abcd", given_, strict=False):
        law = Gaussian(1000)
        tables[name] = rows, [[[scale] * 3]], law
        own = counts(name, rows, [[scale] * 3], law=law)
        blocks += own
        measured.append(ComparedTable(name, rows, cost_of(own, name, rows, evenly=True)))
    differences = differences_of(measured)
    assert differences
    assert beyond(blocks, differences) == 0
    cost = spent(tuple(blocks), differences=differences)
    assert cost == spent(tuple(blocks)) == worst(tables, differences)
    CertifiedPlan(tuple(blocks), Budget(rho=cost / 2), differences=differences)
    more = [replace(d, law=Gaussian(d.law.squared // 4)) for d in differences]
    assert beyond(blocks, more) > 0
    with pytest.raises(InternalError, match="more than its budget"):
        CertifiedPlan(tuple(blocks), Budget(rho=cost / 2), differences=tuple(more))


def test_a_difference_alone_costs_what_either_table_changes():
    one = difference("a", "b", (2, 3))
    assert one.change == one.times[0] * 2 == one.times[1] * 3
    # Nothing else is measured of the two: a unit with all rows of one of them is the worst.
    assert spent((), differences=(one,)) == one.weight
    three = (one, difference("b", "c", (3, 1)), difference("a", "c", (2, 1)))
    one_of_three = (sum(d.weight for d in three if name in d.tables) for name in "abc")
    assert spent((), differences=three) == max(one_of_three)


def test_of_many_tables_each_pays_for_its_own_differences(monkeypatch):
    monkeypatch.setattr(differences, "MOST_TABLES", 0)
    three = (difference("a", "b"), difference("b", "c"), difference("a", "c"))
    assert spent((), differences=three) == 2 * sum(d.weight for d in three)


def test_only_what_is_of_the_same_rows_counts_against_differences():
    one = difference("a", "b", (2, 2))
    own, other = counts("a", 2, [[5, 5, 5]]), counts("b", 2, [[5, 5, 5]])
    free = [*own, *other]
    assert cost_of(free, "a", 2, evenly=True) == Fraction(4 * 25, 10**4)
    assert cost_of(free, "a", 3, evenly=True) == cost_of(free, "c", 2, evenly=True) == 0
    keys = IdentityFactor((0,), (3,), 5)
    space = ("a.key", "a")
    sums = BlockStrategy((space,), (keys, MeasureFactor((1,), 2, 1)), LAW)
    two = BlockStrategy((("a.key", "a"), ("a.other", "b")), (keys, MeasureFactor((1,), 1, 2)), LAW)
    one_cell = IdentityFactor((1,), (1,), 1)
    units = BlockStrategy((space,), (UnitFactor((0,), (3,), 5, 1, 2), one_cell), LAW)
    plain = BlockStrategy((("a.key",),), (keys,), LAW)
    for block in (sums, two, units, plain):
        assert cost_of([block], "a", 2, evenly=True) == 0
        assert beyond([block], [one]) == one.weight


def test_rows_that_are_spread_out_cost_less_and_leave_less_for_differences(monkeypatch):
    monkeypatch.setattr(differences, "MOST_TABLES", 0)
    spread = SpreadRows(frozenset({"a.key0"}), Fraction(1, 2))
    (own,) = counts("a", 2, [[5, 0, 0], [0, 5, 0], [0, 0, 5]])
    assert cost_of([own], "a", 2, [spread], evenly=True) == cost_of([own], "a", 2, evenly=True) / 2
    one = difference("a", "b", (2, 2), law=Gaussian(1))
    assert (
        beyond([own], [one], [spread]) - beyond([own], [one])
        == cost_of([own], "a", 2, evenly=True) / 2
    )


@pytest.mark.parametrize(
    ("tables", "times", "rows", "law"),
    [
        (("a", "a"), (1, 1), (1, 1), LAW),
        (("a",), (1,), (1,), LAW),
        (("a", "b"), (1, 1), (1, 2), LAW),
        (("a", "b"), (2, 2), (1, 2), LAW),
        (("a", "b"), (0, 0), (1, 1), LAW),
        (("a", "b"), (-1, -1), (1, 1), LAW),
        (("a", "b"), (1.0, 1.0), (1, 1), LAW),
        (("a", "b"), (True, True), (1, 1), LAW),
        (("a", "b"), (2**31, 2**31), (1, 1), LAW),
        (("a", "b"), (1, 1), (0, 0), LAW),
        (("a", "b"), (1, 1), (1, 1), Laplace(10)),
    ],
)
def test_differences_out_of_range_are_refused(tables, times, rows, law):
    with pytest.raises(InternalError):
        Difference(tables, times, rows, law)


def test_differences_are_for_one_number_of_rows_of_each_table_and_taken_once():
    with pytest.raises(InternalError, match="several numbers of rows"):
        beyond([], [difference("a", "b", (1, 2)), difference("a", "c", (2, 2))])
    with pytest.raises(InternalError, match="compared twice"):
        beyond([], [difference("a", "b"), difference("b", "a")])


def test_differences_are_for_units_that_are_one_record():
    blocks = (*counts("a", 1, [[9, 9, 9]]), *counts("b", 1, [[9, 9, 9]]))
    CertifiedPlan(blocks, HUGE, differences=(difference(),))
    with pytest.raises(InternalError, match="one record"):
        CertifiedPlan(blocks, HUGE, 2, differences=(difference(),))
    pure = tuple(counts("a", 1, [[9, 9, 9]], law=Laplace(5)))
    with pytest.raises(InternalError, match="one record"):
        CertifiedPlan(pure, Budget(epsilon=100, delta=0), differences=(difference(),))


def test_the_digest_is_for_the_differences_too():
    blocks = (*counts("a", 1, [[9, 9, 9]]), *counts("b", 1, [[9, 9, 9]]))
    plans = [
        CertifiedPlan(blocks, HUGE, differences=differences)
        for differences in (
            (),
            (difference(),),
            (difference("b", "a"),),
            (difference(times=(3, 3)),),
            (difference(law=Gaussian(7)),),
        )
    ]
    assert len({plan.digest for plan in plans}) == 5


def test_what_is_measured_is_the_difference_of_the_totals():
    blocks = (*counts("a", 2, [[9, 9, 9]]), *counts("b", 3, [[9, 9, 9]]))
    one = Difference(("a", "b"), (3000, 2000), (2, 3), Gaussian(1))
    plan = CertifiedPlan(blocks, HUGE, differences=(one,))
    marginals = {("a.key0", "a"): (3, 1), ("b.key0", "b"): (3, 1), ("a",): (1,), ("b",): (1,)}
    zeros = {names: np.zeros(shape, dtype=np.int64) for names, shape in marginals.items()}
    found = zeros | {("a",): np.array([2**31]), ("b",): np.array([7])}
    bounds = {"a": 2, "b": 3}

    def counted(of):
        return Counted(of, 1, bounds, totals=bounds)

    noisy = measure(charged(plan), counted(found), _bits=SeededBits(1)).values[one.space]
    assert noisy.dtype == np.int64
    assert abs(int(noisy[0]) - (3000 * 2**31 - 2000 * 7)) < 10
    for missing in (("a",), ("b",)):
        less = {name: array for name, array in found.items() if name != missing}
        with pytest.raises(InternalError, match="total of a table is missing"):
            measure(charged(plan), counted(less))
    with pytest.raises(InternalError, match="total of a table is missing"):
        measure(charged(plan), counted(found | {("a",): np.zeros((2,), dtype=np.int64)}))


def charged(certified):
    class Planned:
        """What `pay` needs of a plan."""

        def __init__(self):
            self.certified, self.budget = certified, certified.budget

    return pay(Planned())


def test_who_counts_says_what_totals_are():
    one = difference("a", "b", (2, 3))
    check_totals((one,), {"a": 2, "b": 3, "c": 100})
    check_totals((one,), {"a": 0, "b": 1})
    for totals in ({}, {"a": 2}, {"a": 3, "b": 3}, {"a": 2, "b": 4}, {"a": -1, "b": 3}):
        with pytest.raises(InternalError):
            check_totals((one,), totals)


# ── which differences are planned ──────────────────────────────────────────────────────────


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=12))
def test_weights_are_symmetric_and_within_what_is_free(costs):
    weights = weights_of(np.array(costs))
    assert (weights >= 0).all()
    assert (weights == weights.T).all()
    assert not weights.diagonal().any()
    assert (weights.sum(axis=1) <= np.array(costs) * (1 + 1e-9)).all()
    left = np.sort(costs - weights.sum(axis=1))
    if len(costs) > 1:  # of two tables, one has all that it may have
        assert left[:-1].max() <= 1e-6 * max(costs)


@pytest.mark.parametrize("count", range(2, 17))
def test_equal_tables_are_compared_evenly(count):
    weights = weights_of(np.full(count, 3.0))
    expected = 3 / (count - 1) * (1 - np.eye(count))
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("rows", "cost"),
    [((1, 1), 1), ((3, 7), 1e-9), ((10**6, 10**6 - 1), 1e12), ((1, 10**9), 1.0), ((5, 5), 1e13)],
)
def test_noise_is_as_wide_as_it_has_to_be(rows, cost):
    tables = [ComparedTable(n, k, Fraction(cost)) for n, k in zip("ab", rows, strict=True)]
    (found,) = differences_of(tables)
    assert found.weight <= Fraction(cost)
    assert float(found.weight) == pytest.approx(cost, rel=1e-6)


def test_what_fits_no_integers_is_not_compared():
    huge = [ComparedTable("a", 2**40, Fraction(1)), ComparedTable("b", 2**40 - 1, Fraction(1))]
    assert differences_of(huge) == ()
    assert differences_of([ComparedTable("a", 1, Fraction(1))]) == ()
    nothing = [ComparedTable("a", 1, Fraction(1)), ComparedTable("b", 1, Fraction(0))]
    assert differences_of(nothing) == ()


def test_many_tables_are_compared_some_at_a_time():
    tables = [ComparedTable(str(i), 1, Fraction(1)) for i in range(40)]
    found = differences_of(tables)
    assert len(found) == 2 * 16 * 15 // 2 + 8 * 7 // 2
    assert beyond([b for t in tables for b in counts(t.name, 1, [[100, 0, 0]])], found) == 0
