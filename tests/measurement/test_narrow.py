"""Answers of tables of any size: against Python's integers, around each place where words end."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.engines.base import LOW_BITS, Counted
from dpsql.errors import InternalError
from dpsql.measurement import narrow as module
from dpsql.measurement.differences import Difference
from dpsql.measurement.distributions import CoarseGaussian, Gaussian, Laplace
from dpsql.measurement.factors import (
    CenteredFactor,
    DenseFactor,
    IdentityFactor,
    MeasureFactor,
    UnitFactor,
)
from dpsql.measurement.measure import _measure_difference, measuring
from dpsql.measurement.narrow import MOST_KEPT, apply, kept_integers, measure_narrow
from dpsql.measurement.strategy import BlockStrategy
from tests.helpers.seeded import SeededBits

EDGES = [2**b + e for b in (28, 31, 32, 33, 52, 53, 54, 58, 62) for e in (-1, 0, 1)]
"""Numbers of rows next to which something ends: a word, an int64 of products, a float's digits."""
MODULUS = 2 ** (64 + LOW_BITS)


def dense(axis, cells, largest, draws):
    """A factor whose entries have any signs, and of which one is as large as may be."""
    rows = int(draws.integers(1, 4))
    matrix = draws.integers(-largest, largest, (rows, cells), endpoint=True)
    matrix[0, draws.integers(cells)] = largest
    return DenseFactor((axis,), (cells,), matrix)


def blocks():
    """Blocks of all kinds of factors, with products of up to 31 bits."""
    draws = np.random.default_rng(1)
    most = 2**31 - 1
    yield (DenseFactor((), (), np.array([[most]])),)
    yield (dense(0, 7, most, draws),)
    yield (dense(0, 3, 2**15, draws), dense(1, 4, 2**15, draws))
    yield (CenteredFactor((0,), (5,), 2**28), IdentityFactor((1,), (3,), 1))
    yield (CenteredFactor((0,), (9,), 1000), CenteredFactor((1,), (6,), 10))
    yield (UnitFactor((0,), (4,), 2**30, 2**28, 2),)
    yield (MeasureFactor((0,), 2**20), dense(1, 6, 2**10, draws))
    yield (MeasureFactor((0,), most), IdentityFactor((1,), (4,), 1))
    # Rows with so large sums that the lower word is taken in two pieces.
    yield (DenseFactor((0,), (2**10,), np.full((2, 2**10), -most)),)


def block_of(factors):
    """A block of one space."""
    names = tuple("abcd"[: sum(len(f.axes) for f in factors)])
    return BlockStrategy((names,), factors, Gaussian(10**9))


BLOCKS = [block_of(factors) for factors in blocks()]
LARGE = block_of(
    (
        DenseFactor((0,), (2**9,), np.full((1, 2**9), 2**15 - 1)),
        DenseFactor((1,), (2**10,), np.full((1, 2**10), 2**15)),
    )
)


def exact(block, values):
    """B x in Python's integers."""
    found = np.asarray(values, dtype=object)
    found = found.reshape([math.prod(f.shape) for f in block.factors])
    for axis, factor in enumerate(block.factors):
        matrix = factor.matrix.astype(object)
        found = np.moveaxis(np.tensordot(matrix, found, (1, axis)), 0, axis)
    return found.ravel().tolist()


def rows_in_cells(block, rows, seed):
    """As many rows in the cells of a block: in one, in a few, or in all of them."""
    draws = np.random.default_rng(seed)
    cells = math.prod(block.shape)
    weights = draws.integers(0, 2, cells) * draws.integers(0, 1000, cells)
    weights[draws.integers(cells)] += 1
    total = int(weights.sum())
    counts = [rows * int(weight) // total for weight in weights]
    counts[int(np.argmax(weights))] += rows - sum(counts)
    return np.array(counts, dtype=np.int64).reshape(block.shape)


def measured(block, counts, noise, above=None):
    """What is kept with some noise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "draw", lambda law, n, bits: np.array(noise, dtype=np.int64))
        found = measure_narrow(block, counts, above, SeededBits(0))
    return found.ravel().tolist()


@pytest.mark.parametrize("number", range(len(BLOCKS)))
@pytest.mark.parametrize("rows", EDGES)
def test_answers_of_any_number_of_rows_are_exact(number, rows):
    block = BLOCKS[number]
    counts = rows_in_cells(block, rows, number)
    assert int(counts.sum()) == rows
    answers = exact(block, counts)
    draws = np.random.default_rng(rows % 2**32)
    noise = draws.integers(-(2**45), 2**45, len(answers))
    expected = [a + int(z) for a, z in zip(answers, noise, strict=True)]
    if max(map(abs, expected)) <= MOST_KEPT:
        assert measured(block, counts, noise) == expected
    else:
        assert rows > 2**58
    if rows < 2**32:
        assert apply(block, counts).ravel().tolist() == answers


NOISE = st.one_of(
    st.integers(-(2**63) + 1, 2**63 - 1), st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63) + 1])
)
WORDS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1, -1]))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.integers(0, len(BLOCKS) - 2), st.data())
def test_what_is_kept_is_a_function_of_the_answer_plus_noise(number, data):
    """Whatever the counts and the noise are: what is said of privacy rests on it."""
    block = BLOCKS[number]
    cells = math.prod(block.shape)
    counts = np.array(data.draw(st.lists(WORDS, min_size=cells, max_size=cells)), dtype=np.int64)
    high = data.draw(st.none() | st.lists(WORDS, min_size=cells, max_size=cells))
    answers = math.prod(f.measurements for f in block.factors)
    noise = data.draw(st.lists(NOISE, min_size=answers, max_size=answers))
    above = None if high is None else np.array(high, dtype=np.int64).reshape(block.shape)
    values = counts.tolist()
    if high is not None:
        values = [2**LOW_BITS * h + c % 2**LOW_BITS for h, c in zip(high, values, strict=True)]
    expected = [a + z for a, z in zip(exact(block, values), noise, strict=True)]
    found = measured(block, counts.reshape(block.shape), noise, above)
    half = MODULUS // 2
    wrapped = [(y + half) % MODULUS - half for y in expected]
    assert found == [max(-MOST_KEPT, min(MOST_KEPT, y)) for y in wrapped]


@pytest.mark.parametrize("block", [*BLOCKS, LARGE])
def test_pieces_never_overflow(block):
    """Products of pieces and rows are at most 2^62, and pieces make up the word."""
    sums = [np.abs(f.matrix.astype(object)).sum(axis=1).max() for f in block.factors]
    assert [f.largest_row_sum for f in block.factors] == sums
    pieces = list(module._pieces(block))
    assert [shift for shift, _ in pieces] == [
        sum(width for _, width in pieces[:i]) for i in range(len(pieces))
    ]
    assert sum(width for _, width in pieces) == LOW_BITS
    assert all(width >= 1 and math.prod(sums) << width <= 2**62 for _, width in pieces)


def test_some_blocks_are_taken_in_several_pieces():
    assert {len(list(module._pieces(block))) for block in [*BLOCKS, LARGE]} == {1, 2, 3}


def test_as_many_answers_as_there_may_be_are_exact():
    """All of the lower word, all entries as large as may be, and of one sign."""
    for block in (BLOCKS[-1], LARGE):
        for fill in (2**LOW_BITS - 1, 2**40 - 1):
            counts = np.full(block.shape, fill)
            noise = np.full(math.prod(f.measurements for f in block.factors), 2**63 - 1)
            expected = [y + 2**63 - 1 for y in exact(block, counts)]
            assert measured(block, counts, noise) == expected


def test_far_too_many_cells_are_refused():
    one, other = (
        DenseFactor((i,), (n,), np.full((1, n), most))
        for i, n, most in ((0, 2**15, 2**16 - 1), (1, 2**16, 2**15 - 1))
    )
    block = BlockStrategy((("a", "b"),), (one, other), Gaussian(10))
    with pytest.raises(InternalError, match="too many cells"):
        list(module._pieces(block))


def test_the_order_and_shape_of_operations_do_not_depend_on_counts(monkeypatch):
    """Replay: a record of all that is done to counts, for an empty table and for large ones."""
    block, seen = BLOCKS[2], []
    for kind in (DenseFactor,):
        real = kind.apply

        def recorded(self, counts, axis, real=real):
            seen.append((self.content, counts.shape, str(counts.dtype), axis))
            return real(self, counts, axis)

        monkeypatch.setattr(kind, "apply", recorded)
    records = []
    for rows in (0, 1, 2**31, 2**52, 2**62):
        seen.clear()
        measure_narrow(block, rows_in_cells(block, rows, 0), None, SeededBits(1))
        records.append(tuple(seen))
    assert len(set(records)) == 1
    assert len(records[0]) == 4


# ── noise ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.statistical
@pytest.mark.parametrize("rows", [2**31, 2**40, 2**52 + 1])
@pytest.mark.parametrize("law", [Gaussian(10**12), Laplace(10**6), CoarseGaussian(2**110, 40)])
def test_noise_is_that_of_the_law_for_large_tables(law, rows):
    """10,000 draws see a variance that is wrong by 0.12, and a mean by 0.05 deviations.

    Those in wide integers are 1,000, as they take longer, and see three times as much.
    """
    wide = isinstance(law, CoarseGaussian)
    cells = 500 if wide else 5000
    matrix = np.array([[2**30 + 5, -(2**29)], [3, 2**30 - 1]]) << (20 if wide else 0)
    factors = (DenseFactor((0,), (2,), matrix), IdentityFactor((1,), (cells,), 1))
    block = BlockStrategy((("a", "b"),), factors, law)
    counts = np.stack([np.full(cells, rows), np.arange(cells) + rows // 3])
    found = measuring(block)(block, counts, None, SeededBits(5))
    apart = found.astype(object) * law.unit - matrix.astype(object) @ counts.astype(object)
    errors = apart.astype(float).ravel() / math.sqrt(law.variance)
    assert abs(errors.mean()) < 5 / math.sqrt(errors.size)
    kurtosis = 6 if isinstance(law, Laplace) else 3
    assert abs(np.square(errors).mean() - 1) < 5 * math.sqrt((kurtosis - 1) / errors.size)
    assert np.unique(errors).size > errors.size * 0.9


# ── totals of tables, and what is kept ─────────────────────────────────────────────────────


@pytest.mark.parametrize("rows", EDGES)
def test_differences_of_large_totals_are_exact(rows, monkeypatch):
    difference = Difference(("r", "s"), (2**31 - 1, 2**31 - 1), (1, 1), Gaussian(10**9))
    monkeypatch.setattr(
        "dpsql.measurement.measure.draw", lambda law, n, bits: np.array([-12345], dtype=np.int64)
    )
    for first, second in itertools.product((rows, 3), repeat=2):
        totals = Counted({("r",): np.array([first]), ("s",): np.array([second])}, 1)
        (found,) = _measure_difference(difference, totals, SeededBits(0)).tolist()
        expected = (2**31 - 1) * (first - second) - 12345
        assert found == max(-MOST_KEPT, min(MOST_KEPT, expected))
        assert found == expected or rows > 2**58


def test_what_is_kept_has_64_bits_if_all_fit():
    for values in ([2**63 - 1, -(2**63)], [], [0]):
        found = kept_integers(values, (len(values),))
        assert found.dtype == np.int64
        assert found.tolist() == values
    for values in ([2**63], [5, -(2**63) - 1], [2**90, -(2**90)]):
        found = kept_integers(values, (1, len(values)))
        assert found.dtype == object
        assert found.tolist() == [values]
    assert kept_integers([2**91, -(2**99)], (2,)).tolist() == [2**90, -(2**90)]
