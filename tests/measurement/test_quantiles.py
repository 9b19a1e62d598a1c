"""Drawn quantiles: exact probabilities, what a row changes, and what is paid for that."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpsql.engines.ranked import RankedRows, check_ranked
from dpsql.errors import InternalError
from dpsql.linalg.floats import (
    number_at,
    place_of,
    places_of,
    single_number_at,
    single_place_of,
    single_places_of,
)
from dpsql.measurement.exponential import selection_cost
from dpsql.measurement.quantiles import (
    DrawPlan,
    draw_quantiles,
    largest_epsilon,
    place_from_end,
    rows_needed,
    score_range,
    stretches,
    uniform_below,
)
from dpsql.rel.ranked import ValueLine
from dpsql.rows.types import DOUBLE, RowType, row_type
from dpsql.sql.lowering.drawn import values_at
from dpsql.workload.unit_groups import GroupedCells
from tests.helpers.seeded import SeededBits
from tests.measurement.ranked_tools import TINY, Rows, beyond_gaussian, paid, values

PROBABILITIES = [Fraction(*of) for of in ((1, 2), (9, 10), (1, 4), (0, 1), (1, 1), (1, 3))]


def plan_of(rows, epsilon=Fraction(1, 2)):
    return DrawPlan.of("q", rows.values, rows.contributions, epsilon)


def scores(own, probability, reach, line=TINY, place=1):
    """The scores of all places, one by one; `place` is that of the value next to an end."""
    a, b = probability.numerator, probability.denominator
    rows = np.array(sorted(own))
    places = np.arange(line.low, line.high + 1)
    below, upto = np.searchsorted(rows, places, "left"), np.searchsorted(rows, places, "right")
    missed = np.maximum(b * below - a * len(rows) + 1, a * len(rows) - b * upto)
    if a == 0:
        missed = np.maximum(below - (place - 1), place - upto)
    elif a == b:
        missed = np.maximum(len(rows) - upto - (place - 1), place - (len(rows) - below))
    return np.maximum(-np.maximum(missed, 0), -reach)


def scores_by(plan, own, line=TINY):
    return scores(own, plan.probability, -plan.least, line, place_from_end(plan))


def by_place(plan, found, own):
    """The scores of all places, as the stretches have them."""
    line = stretches(plan, found, own)
    first, ends = np.array(line.first), np.add(line.first, line.lengths)
    assert first[0] == plan.line.low
    assert ends[-1] == plan.line.high + 1
    assert (first[1:] == ends[:-1]).all()
    return np.repeat(line.scores, line.lengths)


def random_rows(rng, most=40):
    spread = rng.choice([3, 20, 120])
    return [rng.randint(-spread, spread) for _ in range(rng.randint(0, most))]


@pytest.mark.parametrize("probability", PROBABILITIES, ids=str)
@pytest.mark.parametrize("epsilon", [Fraction(1, 50), Fraction(1), Fraction(40)], ids=str)
def test_stretches_have_the_scores_of_all_places(probability, epsilon):
    """Also where values are left out, as far from the quantile: what is cut off is the same."""
    rng = random.Random(1)  # noqa: S311
    for _ in range(40):
        groups = [random_rows(rng, 300) for _ in range(3)]
        rows = Rows(values(probability, 3), groups)
        plan = plan_of(rows, epsilon)
        found = rows.run([plan.window])
        found.check(3, plan.line)
        for group, own in enumerate(groups):
            at = np.searchsorted(found.groups, [group, group + 1])
            expected = scores_by(plan, own)
            np.testing.assert_array_equal(by_place(plan, found, slice(*at.tolist())), expected)


@pytest.mark.parametrize("probability", [Fraction(1, 2), Fraction(10**9 - 1, 10**9)], ids=str)
@pytest.mark.parametrize("rows", [2**53 - 1, 10**12 + 1, 3])
def test_scores_of_any_number_of_rows_are_whole_numbers_of_any_size(probability, rows):
    """Products that don't fit 64 bits, also where they would by their differences alone."""
    a, b = probability.numerator, probability.denominator
    plan = DrawPlan.of("q", values(probability), 1, Fraction(1, 10**15))
    aim = a * rows // b
    ranks = sorted({min(max(n, 0), rows) for n in (0, 1, aim - 1, aim, aim + 1, rows - 1, rows)})
    below, upto = ranks[:-1], ranks[1:]
    places = range(-len(below), 0)
    columns = [0] * len(below), places, below, upto, [rows] * len(below)
    found = RankedRows(*(np.array(column, dtype=np.int64) for column in columns))
    found.check(1, TINY)
    told = stretches(plan, found, slice(None))
    missed = [max(0, b * x - a * rows + 1, a * rows - b * y) for x, y in zip(below, upto)]  # noqa: B905
    assert told.scores[1::2] == [max(-m, plan.least) for m in missed]
    gaps = [max(0, b * x - a * rows + 1, a * rows - b * x) for x in ranks]
    assert told.scores[::2] == [max(-m, plan.least) for m in gaps]
    assert {type(score) for score in told.scores} == {int}


def test_values_beyond_the_line_count_as_its_ends():
    line = replace(TINY, low=-2, high=2)
    own = [-9, -9, -2, 0, 1, 7, 7, 8]
    rows = Rows(values(Fraction(1, 2), line=line), [own])
    plan, found = plan_of(rows), rows.run([plan_of(rows).window])
    found.check(1, line)
    expected = scores_by(plan, np.clip(own, line.low, line.high), line)
    np.testing.assert_array_equal(by_place(plan, found, slice(0, len(found.places))), expected)


@pytest.mark.parametrize("probability", PROBABILITIES, ids=str)
@pytest.mark.parametrize("reach", [3, 10**6])
@pytest.mark.parametrize("place", [1, 2, 4])
def test_a_row_changes_scores_within_the_range_that_is_paid_for(probability, reach, place):
    """All rows of five values that up to six of them have, and all that one more may be."""
    line, widest = ValueLine(RowType("TINYINT"), 0, 4), 0
    for many in range(7):
        for own in itertools.combinations_with_replacement(range(5), many):
            before = scores(own, probability, reach, line, place)
            for row in range(5):
                change = scores((*own, row), probability, reach, line, place) - before
                widest = max(widest, int(change.max() - change.min()))
    assert widest <= score_range(probability)
    assert widest == score_range(probability) or reach < 10 or probability.denominator > 4


def law(own, plan, width):
    line = ValueLine(RowType("TINYINT"), 0, width - 1)
    raised = float(plan.steepness) * scores_by(plan, own, line)
    weights = np.exp(raised - raised.max())
    return weights / weights.sum()


@pytest.mark.parametrize("probability", PROBABILITIES[:5], ids=str)
@pytest.mark.parametrize("epsilon", [Fraction(3, 10), Fraction(3)], ids=str)
def test_units_are_as_hard_to_tell_apart_as_is_charged(probability, epsilon):
    """A unit with two rows, in two groups of values 0 to 2: all rows besides, all of its own."""
    width, worst, cheaper = 3, -1.0, -1.0
    line = ValueLine(RowType("TINYINT"), 0, width - 1)
    plan = DrawPlan.of("q", values(probability, 2, line=line), 2, epsilon)
    each = itertools.combinations_with_replacement
    small = [own for many in range(3) for own in each(range(3), many)]
    mu = math.sqrt(float(plan.privacy_cost))
    places = [(group, value) for group in (0, 1) for value in range(width)]
    for both in itertools.product(small, repeat=2):
        before = np.outer(*(law(own, plan, width) for own in both)).ravel()
        for added in each(places, 2):
            other = [(*own, *(v for g, v in added if g == group)) for group, own in enumerate(both)]
            after = np.outer(*(law(own, plan, width) for own in other)).ravel()
            for pair in ((before, after), (after, before)):
                worst = max(worst, beyond_gaussian(*pair, mu))
                cheaper = max(cheaper, beyond_gaussian(*pair, mu / 3))
    assert worst < 1e-12
    assert cheaper > 0  # a third of the charge would be noticed


def test_a_row_in_several_groups_is_paid_for_in_each():
    once, twice = (DrawPlan.of("q", values(Fraction(1, 2), 4, m), 3, Fraction(1)) for m in (1, 2))
    assert once.privacy_cost == 9 * selection_cost(Fraction(1))
    assert twice.privacy_cost == 2 * once.privacy_cost


@pytest.mark.parametrize(("most", "rows"), [(1, 1), (3, 1), (2, 20)])
@pytest.mark.parametrize("mu_squared", ["1/100000000", "33/1000", "2", "300"])
def test_all_that_is_given_is_spent_and_no_more(most, rows, mu_squared):
    given = Fraction(mu_squared)
    epsilon = largest_epsilon(given, most, rows)
    spent = most * rows**2 * selection_cost(epsilon)
    assert given * (1 - Fraction(1, 10**6)) <= spent <= given


@pytest.mark.statistical
@pytest.mark.parametrize("draws", [100, 3000])
def test_places_come_with_their_probabilities(draws):
    """Few draws see that a stretch counts as one place."""
    own = [-5, -5, 0, 1, 1, 2, 90]
    rows = Rows(values(Fraction(1, 4)), [own])
    plan, bits = plan_of(rows, Fraction(2)), SeededBits(11)
    found = [draw_quantiles(paid(plan), rows, _bits=bits)[0][0] for _ in range(draws)]
    expected = np.exp(float(plan.steepness) * scores_by(plan, own))
    edges = [-128, -60, -20, -5, -4, 0, 1, 2, 50, 90, 128]
    counts = np.histogram(found, edges)[0]
    share = [expected[low + 128 : high + 128].sum() for low, high in itertools.pairwise(edges)]
    share = np.array(share) / expected.sum()
    assert stats.chisquare(counts, share * draws).pvalue > 1e-6
    assert stats.chisquare(counts, np.roll(share, 1) * draws).pvalue < 1e-6


@pytest.mark.parametrize("probability", [Fraction(0), Fraction(1)], ids=str)
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2), Fraction(300)], ids=str)
def test_the_least_and_the_largest_value_are_hardly_ever_beyond_all_rows(probability, epsilon):
    """By the law itself: of rows at one end of the line, as few as are needed, and of many."""
    plan = DrawPlan.of("q", values(probability), 1, epsilon)
    least = math.ceil(rows_needed(plan))
    for many in (least, 4 * least, 2000):
        own = np.linspace(*((-128, -100) if probability else (99, 127)), many).round().astype(int)
        raised = float(plan.steepness) * scores_by(plan, own)
        weights = np.exp(raised - raised.max())
        weights = (weights / weights.sum())[:: 1 if probability else -1]
        assert weights[29:].sum() < math.exp(-7)
        # It is no more than about so many rows away from the end.
        found = np.searchsorted(np.cumsum(weights), 0.01) + plan.line.low
        rows = own if probability else -1 - own
        assert (rows > found).sum() <= 2 * least


def test_each_group_has_a_draw_of_its_own():
    groups = [[10] * 500, [], [-70] * 500]
    rows = Rows(values(Fraction(1, 2), 3), groups)
    (drawn,) = draw_quantiles(paid(plan_of(rows)), rows, _bits=SeededBits(1))
    assert drawn[0] == 10
    assert drawn[2] == -70
    assert [drawn] == draw_quantiles(paid(plan_of(rows)), rows, _bits=SeededBits(1))
    spread = {
        draw_quantiles(paid(plan_of(rows)), rows, _bits=SeededBits(i))[0][1] for i in range(30)
    }
    assert len(spread) > 15  # of no rows, any value is as good


def test_words_make_whole_numbers_of_any_range():
    bits = SeededBits(2)
    assert {uniform_below(3, bits) for _ in range(60)} == {0, 1, 2}
    assert uniform_below(1, bits) == 0
    assert max(uniform_below(2**64, bits) for _ in range(20)) > 2**62
    for none in (0, 2**64 + 1):
        with pytest.raises(InternalError):
            uniform_below(none, bits)


# ── Nothing else is drawn than was paid for ──────────────────────────────────────────────────────

OTHERS = {
    "more rows of a unit": lambda rows: Rows(rows.values, rows.groups, 3),
    "fewer": lambda rows: Rows(rows.values, rows.groups, 1),
    "another probability": lambda rows: Rows(values(Fraction(1, 3), 2), rows.groups, 2),
    "more groups": lambda rows: Rows(values(Fraction(1, 2), 3), [*rows.groups, []], 2),
    "groups that share rows": lambda rows: Rows(values(Fraction(1, 2), 2, 2), rows.groups, 2),
    "a longer line": lambda rows: Rows(
        values(Fraction(1, 2), 2, line=ValueLine(RowType("SMALLINT"), -128, 127)), rows.groups, 2
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_values_are_those_that_were_paid_for(other):
    rows = Rows(values(Fraction(1, 2), 2), [[1], [2]], 2)
    charged, asked = paid(plan_of(rows)), OTHERS[other](rows)
    with pytest.raises(InternalError):
        draw_quantiles(charged, asked, _bits=SeededBits(0))
    assert not asked.windows  # no row was read
    draw_quantiles(charged, rows, _bits=SeededBits(0))  # nor is the charge used up


def test_denominators_are_such_that_no_table_is_too_large():
    DrawPlan.of("q", values(Fraction(1, 10**20)), 1, Fraction(1))
    for probability, epsilon in (
        (Fraction(1, 2**75), Fraction(1)),
        (Fraction(1, 3), Fraction(1, 10**40)),
    ):
        with pytest.raises(InternalError):
            DrawPlan.of("q", values(probability), 1, epsilon)
    with pytest.raises(InternalError):
        DrawPlan.of("q", values(Fraction(1, 2)), 1, Fraction(0))


def test_a_charge_pays_once_and_for_no_more():
    rows = Rows(values(Fraction(1, 2)), [[1]])
    plan = plan_of(rows)
    charged = paid(plan)
    draw_quantiles(charged, rows, _bits=SeededBits(0))
    with pytest.raises(InternalError, match="once"):
        draw_quantiles(charged, rows, _bits=SeededBits(0))
    with pytest.raises(InternalError, match="less than"):
        paid(plan, plan.privacy_cost / 2)


HOSTILE = {
    "another group": ([0, 2], [1, 2], [0, 0], [1, 1], [1, 1]),
    "out of order": ([0, 0], [2, 1], [0, 1], [1, 2], [2, 2]),
    "a gap": ([0, 0], [1, 2], [0, 2], [1, 3], [3, 3]),
    "two values at one place": ([0, 0], [1, 1], [0, 1], [1, 2], [2, 2]),
    "two sizes": ([0, 0], [1, 2], [0, 1], [1, 2], [2, 3]),
    "more than all": ([0], [1], [0], [3], [2]),
    "below none": ([0], [1], [-1], [1], [2]),
    "beyond the line": ([0], [500], [0], [1], [1]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_rows_out_of_order_are_refused(name):
    found = RankedRows(*(np.array(column, dtype=np.int64) for column in HOSTILE[name]))
    with pytest.raises(InternalError):
        found.check(2, TINY)
    assert repr(found) == "<RankedRows>"


def test_rows_are_in_no_more_groups_than_is_said():
    check_ranked(values(Fraction(1, 2), 4, 2))
    one = values(Fraction(1, 2), 4, 2)
    twice = np.array([0, 0]), np.array([1, 1])
    block = GroupedCells(("g",), (4,), *twice)
    for other in (replace(one, most=1), replace(one, blocks=(block,))):
        with pytest.raises(InternalError):
            check_ranked(other)


# ── Lines of values ──────────────────────────────────────────────────────────────────────────────


def test_floats_have_places_in_their_order():
    tiny = float(np.finfo(float).smallest_subnormal)
    numbers = np.array([-np.finfo(float).max, -1e300, -2.0, -1.0, -tiny, 0.0, tiny, 1.0, 1.5, 2.0])
    places = places_of(numbers)
    assert (np.diff(places) > 0).all()
    assert places_of(np.array([-0.0, 0.0])).tolist() == [0, 0]
    assert places_of(np.array([-tiny, tiny])).tolist() == [-1, 1]
    assert [number_at(place) for place in places.tolist()] == numbers.tolist()
    assert [place_of(number) for number in numbers.tolist()] == places.tolist()
    many = np.random.default_rng(3).integers(-(2**62), 2**62, 1000)
    again = places_of(np.array([number_at(place) for place in many.tolist()]))
    np.testing.assert_array_equal(again, many)


TYPES = {
    "TINYINT": ([-128, 0, 127], [-128, 0, 127]),
    "UINTEGER": ([0, 2**32 - 1], [0, 2**32 - 1]),
    "DECIMAL(5,2)": ([-99999, 0, 1], [Decimal("-999.99"), Decimal("0.00"), Decimal("0.01")]),
    "DATE": ([0, -719162, 2932896], [date(1970, 1, 1), date.min, date.max]),
    "TIMESTAMP": ([1], [datetime(1970, 1, 1, 0, 0, 0, 1)]),
    "DOUBLE": ([0, 0x3F800000], [0.0, 1.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_places_have_values(name):
    line = ValueLine.of(row_type(name))
    places, expected = TYPES[name]
    assert values_at(line, places, continuous=False).to_list() == expected
    assert line.low <= min(places)
    assert line.high >= max(places)
    ends = values_at(line, [line.low, line.high], continuous=False)
    assert ends.null_count() == 0


@pytest.mark.parametrize("name", ["VARCHAR", "BOOLEAN", "TIME", "TIMESTAMP_NS"])
def test_other_types_have_no_line(name):
    assert ValueLine.of(row_type(name)) is None


def test_a_line_is_cut_to_bounds():
    cents = ValueLine.of(RowType("DECIMAL", 9, 2))
    assert (
        cents.within(Fraction(1, 3), Fraction(2)).low,
        cents.within(Fraction(0), Fraction(2)).high,
    ) == (34, 200)
    days = ValueLine.of(RowType("DATE")).within(Fraction(10), Fraction(20))
    assert (days.low, days.high) == (10, 20)
    times = ValueLine.of(RowType("TIMESTAMP")).within(Fraction(0), Fraction(1))
    assert times.high == 86_400_000_000
    floats = ValueLine.of(DOUBLE).within(Fraction(0), Fraction(3, 2))
    assert values_at(floats, [floats.low, floats.high], continuous=False).to_list() == [0.0, 1.5]
    assert cents.within(Fraction(-(10**20)), Fraction(10**20)) == cents


def test_floats_have_single_precision_where_that_leaves_many():
    whole = ValueLine.of(DOUBLE)
    assert whole.width < 2**32
    assert whole.is_possible
    for low, high in ((0, 120), (-1, 1), (0, 10**38), (-(10**9), -1)):
        line = whole.within(Fraction(low), Fraction(high))
        assert line.single
        assert line.is_possible
        assert line.ends == (float(np.float32(low)), float(np.float32(high)))
    # Of a million and one there are 16 between, and larger numbers are none.
    for low, high in ((10**6, 10**6 + 1), (0, 10**60), (3, 3)):
        line = whole.within(Fraction(low), Fraction(high))
        assert not line.single
        assert line.is_possible
        assert line.ends == (float(low), float(high))
        assert line != whole.within(Fraction(0), Fraction(120))
    assert not replace(whole, high=whole.high + 1).is_possible
    assert not replace(whole, low=1, high=0).is_possible


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_of_single_precision_are_told_in_few_digits(sign):
    for given in (19.99, 45.6, 0.1, 1e-30, 3.5e7, 0.0, 1.1754944e-38, 1e-44):
        place = single_place_of(sign * given)
        assert single_number_at(place) == float(np.float32(sign * given))
        assert ValueLine.of(DOUBLE).number_at(place) == sign * given
    numbers = np.random.default_rng(5).normal(size=1000).astype(np.float32).astype(float)
    places = single_places_of(numbers)
    assert [single_number_at(place) for place in places.tolist()] == numbers.tolist()
    assert [single_place_of(number) for number in numbers.tolist()] == places.tolist()
    np.testing.assert_array_equal(np.argsort(places), np.argsort(numbers))


def test_places_of_single_precision_are_read_off_bits():
    """A processor that takes the smallest numbers for 0 would put many of them at one place."""
    bits = np.random.default_rng(6).integers(0, 0x7F800000, 5000).astype(np.int32)
    bits = np.concatenate([bits, [0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x7F7FFFFF]])
    numbers = bits.astype(np.int32).view(np.float32).astype(float)
    np.testing.assert_array_equal(single_places_of(numbers), bits)
    np.testing.assert_array_equal(single_places_of(-numbers), -bits.astype(np.int64))
