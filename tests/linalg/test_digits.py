"""Few digits: what noise in the last ones of floats doesn't change."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.linalg.digits import (
    far_apart,
    few,
    few_of_weighted,
    first_largest,
    least,
    nearest,
    significant,
)
from dpsql.linalg.hull import hull
from dpsql.linalg.iterations import Accelerated, descend
from dpsql.linalg.nested import Nested, nested_rows

DRAW = np.random.default_rng(5)
NOISE = 1e-14


def noisy(values):
    return values * (1 + NOISE * DRAW.standard_normal(np.shape(values)))


@pytest.mark.parametrize("rounded", [
    nearest, few, significant, lambda x: few_of_weighted(x, np.abs(np.cos(np.arange(len(x))))),
])  # fmt: skip
def test_noise_is_rounded_away(rounded):
    """Also at halves, thirds and powers of two, where structure puts numbers."""
    whole = np.arange(-40.0, 41.0)
    for values in (whole / 2, whole / 3, whole / 8, 2.0**whole, DRAW.standard_normal(200) * 100):
        for _ in range(20):
            np.testing.assert_array_equal(rounded(noisy(values)), rounded(values))


def test_how_many_digits_are_kept():
    values = np.array([1000.0, -1.3, 1e-9])
    assert few(values).tolist() == [1000.0, -1.0, 0.0]
    np.testing.assert_allclose(significant(values), values, rtol=2.0**-20)
    assert nearest(np.array([0.5, -0.5, 1.4, -1.6])).tolist() == [1.0, -1.0, 1.0, -2.0]
    assert few(np.zeros(3)).tolist() == [0.0] * 3
    # What counts for nothing is not what the others are measured by.
    rounded = few_of_weighted(np.array([-5.0, 1e-3, 2e-3]), np.array([1e-12, 1.0, 1.0]))
    np.testing.assert_allclose(rounded[1:], [1e-3, 2e-3], rtol=1e-2)
    assert rounded[0] == -5.0


def test_of_what_is_equally_good_the_first_is_taken():
    for _ in range(20):
        assert (
            least(zip("abc", noisy(np.array([2.0, 1.0, 1.0])), strict=True), lambda x: x[1])[0]
            == "b"
        )
    table = np.hstack([np.eye(4), np.eye(4), np.ones((4, 1)) / 2])
    for _ in range(20):
        assert far_apart(noisy(table), 4, 1e-9).tolist() == [0, 1, 2, 3]
    assert far_apart(np.ones((3, 5)), 3, 1e-9).tolist() == [0]


def test_of_equal_vertices_the_first_is_taken():
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    inner = np.full((8, 2), 0.5)
    for points in (
        np.vstack([corners, inner, corners, corners]),
        np.repeat(corners[:2], 9, axis=0),
    ):
        found = hull(points.T)
        for _ in range(20):
            np.testing.assert_array_equal(hull(noisy(points + 1).T), found)
    assert hull(np.vstack([corners, inner, corners, corners]).T).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("sizes", [[1, 2, 3, 4], [2, 2, 5], [7]])
def test_nested_sets_are_recognized_behind_noise(sizes):
    weights = DRAW.uniform(0.5, 2, len(sizes))
    levels = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.sqrt(weights)[:, None] * (levels <= np.arange(len(sizes))[:, None])
    gram = rows.T @ rows
    for _ in range(20):
        found = nested_rows(noisy(gram))
        assert found is not None
        assert found.shape == rows.shape
        np.testing.assert_allclose(found, rows, rtol=1e-12)
        assert Nested.of(noisy(rows)) is not None
    gram[0, -1] *= 1.001
    assert nested_rows(gram) is None


def bowl(x):
    """A curved valley, whose least value is 1 at ones."""
    steep, along = x[1:] - x[:-1] ** 2, 1 - x[:-1]
    slope = np.zeros_like(x)
    slope[:-1] = -40 * x[:-1] * steep - 2 * along
    slope[1:] += 20 * steep
    return 1 + float((10 * steep**2 + along**2).sum()), slope


def test_descents_take_the_same_way_behind_noise():
    def seen(x):
        value, slope = bowl(x)
        points.append(x)
        return value * (1 + NOISE * DRAW.standard_normal()), noisy(slope)

    ways = []
    for _ in range(3):
        points = []
        end = descend(seen, np.full(6, -0.7), evaluations=30)
        ways.append(np.array([*points, end]))
    for way in ways[1:]:
        np.testing.assert_array_equal(way, ways[0])


def test_descents_reach_the_bottom():
    end = descend(bowl, np.full(6, -0.7), evaluations=400)
    np.testing.assert_allclose(end, 1.0, atol=1e-4)
    count = []
    descend(lambda x: count.append(0) or bowl(x), np.full(6, -0.7), evaluations=25)
    assert len(count) <= 25
    assert descend(bowl, np.ones(6), evaluations=9).tolist() == [1.0] * 6


def test_accelerated_steps_take_the_same_way_behind_noise():
    target = DRAW.uniform(0.5, 2, 30)
    target /= target.sum()
    ways = []
    for _ in range(3):
        delta, guess = np.full(30, 1 / 30), Accelerated()
        for _ in range(8):
            delta = guess.next(delta, noisy(0.3 * np.log(target / delta)))
            delta = delta / delta.sum()
        ways.append(delta)
    np.testing.assert_allclose(ways[0], target, rtol=1e-3)
    for way in ways[1:]:
        np.testing.assert_allclose(way, ways[0], rtol=1e-13)


def one_after_the_other(table, negligible):
    """The same choice, with each direction taken from all columns by itself."""
    left, chosen, longest = table.copy(), [], 0.0
    for _ in range(min(table.shape)):
        squares = np.square(left).sum(axis=0)
        at = first_largest(squares)
        length = np.sqrt(squares[at])
        longest = longest or length
        if length <= negligible * longest:
            break
        chosen.append(at)
        direction = left[:, at] / length
        left = left - np.outer(direction, direction @ left)
        left[:, at] = 0.0
    return chosen


@pytest.mark.parametrize("kind", ["any", "ties", "few dimensions", "lengths far apart"])
@pytest.mark.parametrize(("rows", "cells"), [(1, 7), (9, 40), (33, 33), (50, 120), (60, 31)])
def test_columns_are_chosen_as_one_after_the_other_would_be(kind, rows, cells):
    draw = np.random.default_rng(rows)
    table = draw.normal(size=(rows, cells))
    if kind == "ties":
        table = np.sign(table) * (np.abs(table) > 0.7)
    elif kind == "few dimensions":
        few_columns = table[:, : 1 + cells // 4]
        table = few_columns @ draw.integers(-1, 2, (few_columns.shape[1], cells))
    elif kind == "lengths far apart":
        table = table * 10.0 ** -draw.integers(0, 12, cells)
    assert far_apart(table, rows, 1e-9).tolist() == one_after_the_other(table, 1e-9)
