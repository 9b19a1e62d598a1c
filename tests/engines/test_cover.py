"""Covers contain every marginal, stay small, and sum to the same counts."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.engines.cover import MAX_BLOCK_CELLS, cover, roll_up, tally

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
