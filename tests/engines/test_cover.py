"""Covers contain every marginal, stay small, and sum to the same counts."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.engines.base import LOW_BITS
from dpsql.engines.cover import (
    MAX_BLOCK_CELLS,
    MOST_SUM,
    cover,
    low_word,
    roll_up,
    roll_up_sums,
    tally,
    tally_sums,
)

NAMES = list("abcdef")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 60), min_size=6, max_size=6),
    st.lists(st.sets(st.sampled_from(NAMES), max_size=4), min_size=1, max_size=12),
)
def test_every_marginal_is_covered_by_a_block_of_bounded_size(sizes, wanted):
    domain = dict(zip(NAMES, sizes, strict=True))
    marginals = [tuple(sorted(m)) for m in wanted]
    blocks = cover(marginals, domain)
    assert all(any(set(m) <= set(b) for b in blocks) for m in marginals)
    assert len(blocks) <= len(set(marginals))
    largest = max(math.prod(domain[a] for a in m) for m in marginals)
    for block in blocks:
        assert math.prod(domain[a] for a in block) <= max(MAX_BLOCK_CELLS, largest)


def test_two_way_marginals_of_twelve_columns_take_few_scans():
    sizes = dict(zip("abcdefghijkl", (2, 2, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20), strict=True))
    wanted = [(a, b) for a in sizes for b in sizes if a < b]
    assert len(wanted) == 66
    assert len(cover(wanted, sizes)) <= 11


def test_rolling_up_sums_the_other_axes_in_the_order_asked_for():
    counts = np.arange(24).reshape(2, 3, 4)
    result = roll_up([("c", "a"), (), ("b",)], {("a", "b", "c"): counts})
    np.testing.assert_array_equal(result["c", "a"], counts.sum(axis=1).T)
    assert result[()] == counts.sum()
    np.testing.assert_array_equal(result["b",], counts.sum(axis=(0, 2)))


def test_a_row_is_in_one_cell_whatever_keys_are_found():
    keys, rows = np.array([5, 0, -1, 5, 6]), np.array([1, 2, 4, 8, 16])
    assert tally((2, 3), keys, rows).tolist() == [[2, 0, 0], [0, 0, 9]]
    assert tally((), np.array([0]), np.array([3])).tolist() == 3


SUMS = st.one_of(
    st.integers(-MOST_SUM, MOST_SUM),
    st.integers(-(2**63), 2**63),
    st.sampled_from([-MOST_SUM, MOST_SUM, MOST_SUM - 1, 2**62, 2**63, -(2**63) - 1, 0]),
)


def words(sums, shape):
    """Sums in two words."""
    high, low = [s >> LOW_BITS for s in sums], [s % 2**LOW_BITS for s in sums]
    return tuple(np.array(word, dtype=np.int64).reshape(shape) for word in (high, low))


def numbers(sums):
    """What is in two words."""
    high, low = sums
    assert low.min() >= 0
    assert low.max() < 2**LOW_BITS
    return (high.astype(object) * 2**LOW_BITS + low).ravel().tolist()


def between(sum_):
    return min(max(sum_, -MOST_SUM), MOST_SUM)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(SUMS, min_size=6, max_size=6), st.integers(0, 5), st.integers(-(2**31), 2**31))
def test_sums_end_where_91_bits_do_and_no_row_moves_them_by_more_than_it_adds(sums, cell, value):
    """Added up modulo a power of two, a row could move a sum by that."""
    wanted = [("a", "m"), ("m", "b"), ("m",)]

    def rolled(of):
        return roll_up_sums(wanted, {("a", "b", "m"): words(of, (2, 3, 1))}, {"m"})

    moved = [between(s + value * (i == cell)) for i, s in enumerate(sums)]
    before, after = rolled(sums), rolled(moved)
    ends = (
        [sum(sums[:3]), sum(sums[3:])],
        [sum(sums[i::3]) for i in range(3)],
        [sum(sums)],
    )
    for marginal, exact in zip(wanted, ends, strict=True):
        inside = [between(total) for total in exact]
        assert numbers(before[marginal]) == inside
        other = numbers(after[marginal])
        apart = [abs(x - y) for x, y in zip(inside, other, strict=True)]
        assert sorted(apart)[:-1] == [0] * (len(apart) - 1)
        assert max(apart) <= abs(value)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(SUMS, max_size=9))
def test_what_has_one_key_is_added_up_without_a_wrap(sums):
    found = tally_sums((2,), np.ones(len(sums), dtype=np.int64), words(sums, (len(sums),)))
    assert numbers(found) == [0, between(sum(sums))]


def test_as_many_sums_as_fit_are_added_up_without_a_wrap():
    cells = 2**20
    for most in (MOST_SUM, -MOST_SUM, 2**70 - 1):
        found = roll_up_sums([("m",)], {("a", "m"): words([most] * cells, (cells, 1))}, {"m"})
        assert numbers(found["m",]) == [between(most * cells)]


def test_sums_of_64_bits_are_their_low_words():
    sums = [0, -1, 2**63 - 1, -(2**63), 2**28, -(2**28) - 1]
    assert low_word(words(sums, (6,))).tolist() == sums


def test_counts_of_any_size_are_added_up_as_they_are():
    large = 2**53 + 1
    counts = np.array([[large, 1], [0, 2**61]])
    found = roll_up([("a",), ("b",), ()], {("a", "b"): counts})
    assert found["a",].tolist() == [large + 1, 2**61]
    assert found["b",].tolist() == [large, 2**61 + 1]
    assert int(found[()]) == 2**61 + large + 1
    keys = np.array([1, 0, 1])
    assert tally((2,), keys, np.array([large, 3, large])).tolist() == [3, 2 * large]
