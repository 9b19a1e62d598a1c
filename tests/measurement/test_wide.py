"""Measuring in wide integers: exact answers, exact noise, and nothing rounded off before it."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from dpsql.errors import InternalError
from dpsql.measurement.distributions import WIDE_VARIANCE_BITS, CoarseGaussian, Gaussian
from dpsql.measurement.factors import WIDE_BITS, CenteredFactor, DenseFactor, IdentityFactor
from dpsql.measurement.narrow import apply, draw
from dpsql.measurement.strategy import BlockStrategy
from dpsql.measurement.wide import _round_off, exact_answers, measure_wide, wide_gaussian
from tests.helpers.seeded import SeededBits

LAW = CoarseGaussian(2**160, 40)


def wide_block(seed: int, law=LAW) -> BlockStrategy:
    draws = np.random.default_rng(seed)
    entries = draws.integers(-(2**62) + 1, 2**62, (3, 10))
    factors = (
        DenseFactor((2, 0), (5, 2), entries),
        CenteredFactor((1,), (4,), 3),
        IdentityFactor((3,), (2,), 2**20),
    )
    return BlockStrategy((("a", "b", "c", "d"),), factors, law)


@pytest.mark.parametrize("seed", range(4))
def test_answers_are_those_of_integers_without_a_width(seed):
    block = wide_block(seed)
    counts = np.random.default_rng(seed).integers(0, 2**62, block.shape)
    dense, centered, identity = (f.matrix.astype(object) for f in block.factors)
    found = exact_answers(block, counts)
    for i, j, k in product(range(3), range(4), range(2)):
        expected = sum(
            dense[i, c * 2 + a] * centered[j, b] * identity[k, d] * int(counts[a, b, c, d])
            for a, b, c, d in product(range(2), range(4), range(5), range(2))
        )
        assert int(found[i, j, k]) == expected


@pytest.mark.parametrize("seed", range(4))
def test_what_is_multiplied_once_has_the_answers_of_integers_without_a_width(seed):
    """By all factors of a block: of sums, in two words, with what a factor before has made."""
    draws = np.random.default_rng(seed)
    first = draws.integers(-(2**62) + 1, 2**62, (1, 7))
    second = draws.integers(-(2**62) + 1, 2**62, (5, 9))
    factors = DenseFactor((0,), (7,), first), DenseFactor((1,), (9,), second)
    block = BlockStrategy((("a", "b"),), factors, wide_block(0).law)
    high, low = draws.integers(-(2**62), 2**62, (7, 9)), draws.integers(0, 2**28, (7, 9))
    found = exact_answers(block, low, high)
    sums = [[(int(h) << 28) + int(n) for h, n in zip(*pair, strict=True)]
            for pair in zip(high, low, strict=True)]  # fmt: skip
    for row, answer in zip(second.tolist(), found.ravel(), strict=True):
        terms = product(range(7), range(9))
        assert int(answer) == sum(int(first[0, i]) * row[j] * sums[i][j] for i, j in terms)


def test_many_cells_are_multiplied_some_at_a_time(monkeypatch):
    block = wide_block(9)
    counts = np.random.default_rng(9).integers(0, 1000, block.shape)
    at_once = exact_answers(block, counts)
    monkeypatch.setattr("dpsql.measurement.wide._HELD", 7)
    assert exact_answers(block, counts).tolist() == at_once.tolist()


def test_narrow_blocks_have_the_same_answers_in_either_arithmetic():
    factors = (
        DenseFactor((0,), (3,), np.array([[5, -7, 11]])),
        CenteredFactor((1,), (4,), 3),
    )
    block = BlockStrategy((("a", "b"),), factors, Gaussian(10))
    counts = np.random.default_rng(2).integers(0, 2**31, block.shape)
    assert exact_answers(block, counts).tolist() == apply(block, counts).tolist()


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_norms_of_wide_columns_are_exact(rows):
    """Against Python's integers, for entries at the limits and of all sizes."""
    draws = np.random.default_rng(rows)
    sizes = 2 ** draws.integers(0, WIDE_BITS, (rows, 400))
    entries = draws.integers(-sizes, sizes)
    limit = 2**WIDE_BITS - 1
    entries[:, 0], entries[:, 1], entries[:, 2] = limit, -limit, -(2**42)
    factor = DenseFactor((0,), (400,), entries)
    columns = entries.astype(object).T.tolist()
    assert factor.largest_column_norm_squared == max(sum(x * x for x in c) for c in columns)
    assert factor.largest_column_sum == max(sum(map(abs, c)) for c in columns)
    for column in columns[3:]:
        alone = DenseFactor((0,), (1,), np.array(column, dtype=np.int64)[:, None])
        assert alone.largest_column_norm_squared == sum(x * x for x in column)
        assert alone.largest_column_sum == sum(map(abs, column))


def test_norms_are_those_of_python_integers():
    """For random sizes, among them none, and for entries whose parts are 0 or as large as can be.

    Columns are permutations of each other, or differ in one part of one entry, so that the
    largest is found by its last digit only.
    """
    draws = np.random.default_rng(5)
    for _ in range(3000):
        rows, cells, bits = draws.integers(0, 6), draws.integers(0, 7), draws.integers(1, 63)
        most = 2**bits - 1
        edges = [0, most, -most, *(min(most, 2**b - e) for b in (21, 42) for e in (0, 1))]
        matrix = draws.integers(-most, most, (rows, cells), endpoint=True)
        at_edge = draws.random((rows, cells)) < 0.4
        matrix[at_edge] = draws.choice(edges, at_edge.sum())
        if cells > 1 and rows:
            matrix[:, 0] = draws.permutation(matrix[:, 1])
            matrix[0, 0] -= int(abs(matrix[0, 0]) == most) * np.sign(matrix[0, 0])
        factor = DenseFactor((0,), (int(cells),), matrix)
        columns = matrix.astype(object).T.tolist()
        squares = [sum(x * x for x in c) for c in columns]
        assert factor.largest_column_norm_squared == max(squares, default=0), matrix
        assert factor.largest_column_sum == max((sum(map(abs, c)) for c in columns), default=0)


@pytest.mark.parametrize(
    "entry",
    [2**62 - 1, 1 - 2**62, 2**42 - 1, -(2**42), 2**21 - 1, -1, 2**21 - 1 + 2**42 - 2**62],
)
def test_norms_of_as_many_rows_as_there_may_be(entry):
    rows = 2**20 - 1
    factor = DenseFactor((0,), (2,), np.repeat([[entry, 1]], rows, axis=0))
    assert factor.largest_column_norm_squared == rows * entry**2
    assert factor.largest_column_sum == rows * abs(entry)
    more = DenseFactor((0,), (1,), np.full((rows + 1, 1), entry))
    with pytest.raises(InternalError, match="rows or more"):
        _ = more.largest_column_norm_squared
    with pytest.raises(InternalError, match="rows or more"):
        _ = more.largest_column_sum


@pytest.mark.parametrize("entry", [2**WIDE_BITS, -(2**WIDE_BITS), -(2**63)])
def test_wider_entries_cannot_exist(entry):
    with pytest.raises(InternalError, match="62 bits"):
        DenseFactor((0,), (1,), np.array([[entry]], dtype=np.int64))


def test_entries_of_32_bits_need_wide_integers():
    factor = DenseFactor((0,), (1,), np.array([[2**31]]))
    with pytest.raises(InternalError, match="31 bits"):
        BlockStrategy((("a",),), (factor,), Gaussian(10))
    BlockStrategy((("a",),), (factor,), LAW)


def test_a_wide_block_costs_its_exact_sensitivity():
    block = wide_block(0)
    norms = math.prod(f.largest_column_norm_squared for f in block.factors)
    assert block.privacy_cost * 2**160 == norms == block.sensitivity_squared


@pytest.mark.statistical
@pytest.mark.parametrize("bits", [0, 1, 8, 40, 75, 140])
def test_the_law(bits):
    """Accept σ, and notice noise that is narrower or wider by a fifth."""
    sigma = 2**bits
    # Numbers of moderate size are integers; the sub-integer part is drawn anew, so that the
    # continuous distribution can be tested.
    smooth = np.random.default_rng(bits).uniform(-0.5, 0.5, 8000)
    sample = np.array([float(z) for z in wide_gaussian(sigma**2, 8000, SeededBits(bits))]) + smooth
    spread = math.sqrt(sigma**2 + 1 / 6)
    assert abs(np.square(sample).mean() / spread**2 - 1) < 5 * math.sqrt(2 / 8000)
    assert abs(sample.mean()) < 5 * spread / math.sqrt(8000)
    if bits >= 8:
        assert stats.kstest(sample / sigma, "norm").pvalue > 1e-4
        assert stats.kstest(sample / sigma * 1.2, "norm").pvalue < 1e-4
        assert stats.kstest(sample / sigma / 1.2, "norm").pvalue < 1e-4
        # The last bits of wide noise are as good as fair.
        odd = np.mean([z % 2 for z in wide_gaussian(sigma**2, 4000, SeededBits(bits + 1))])
        assert abs(odd - 0.5) < 5 * 0.5 / math.sqrt(4000)


def test_pairs_are_independent():
    drawn = np.array(wide_gaussian(10**6, 8000, SeededBits(3)), dtype=float).reshape(-1, 2)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 5 / math.sqrt(4000)
    assert abs(np.corrcoef(np.square(drawn).T)[0, 1]) < 5 / math.sqrt(4000)


def test_more_bits_are_drawn_where_some_do_not_decide():
    """U = 0.00…0 says nothing of its logarithm; then the next words count."""

    class Zeros:
        def __init__(self) -> None:
            self.calls, self.rest = 0, SeededBits(5)

        def words(self, count):
            self.calls += 1
            return np.zeros(count, dtype=np.uint64) if self.calls == 1 else self.rest.words(count)

    source = Zeros()
    (first,) = wide_gaussian(4, 1, source)
    assert source.calls > 2
    assert isinstance(first, int)
    assert abs(first) <= 2 * math.sqrt(2 * 128)


@pytest.mark.parametrize("squared", [0, -1, 2**WIDE_VARIANCE_BITS, 1.0, True])
def test_noise_out_of_range_is_refused(squared):
    with pytest.raises(InternalError):
        wide_gaussian(squared, 1, SeededBits(0))


@pytest.mark.parametrize(
    ("squared", "shift"),
    [(2**20, 9), (2**20, 0), (2**20, True), (2**WIDE_VARIANCE_BITS, 3), (2.0**40, 3), (2**40, 400)],
)
def test_laws_that_round_off_more_than_the_noise_cannot_exist(squared, shift):
    with pytest.raises(InternalError):
        CoarseGaussian(squared, shift)


@pytest.mark.parametrize(
    ("value", "shift", "expected"),
    [
        (7, 2, 2),
        (6, 2, 2),
        (10, 2, 2),
        (5, 2, 1),
        (-6, 2, -2),
        (-10, 2, -2),
        (-7, 2, -2),
        (8, 3, 1),
    ],
)
def test_ties_go_to_the_even_number(value, shift, expected):
    assert _round_off(value, shift) == expected


@pytest.mark.statistical
def test_measurements_are_unbiased_and_vary_as_stated():
    """Also where nearly as much is rounded off as the law allows."""
    law = CoarseGaussian(16 * 4**30, 30)
    factor = DenseFactor((0,), (2,), np.array([[2**40 + 12345, -(2**39) + 77]]))
    block = BlockStrategy((("a",),), (factor,), law)
    counts = np.array([7, 5])
    exact = int(exact_answers(block, counts)[0])
    bits = SeededBits(1)
    drawn = [
        int(measure_wide(block, counts, None, bits)[0]) * law.unit - exact for _ in range(6000)
    ]
    sample = np.array([float(d) for d in drawn])
    assert abs(sample.mean()) < 5 * math.sqrt(law.variance / 6000)
    assert abs(np.square(sample).mean() / law.variance - 1) < 5 * math.sqrt(2 / 6000)
    assert law.variance > law.squared * (1 + 1 / 200)


def test_each_arithmetic_takes_its_own_laws():
    narrow = BlockStrategy((("a",),), (IdentityFactor((0,), (2,), 1),), Gaussian(10))
    with pytest.raises(InternalError, match="narrow"):
        measure_wide(narrow, np.array([1, 2]), None, SeededBits(0))
    with pytest.raises(InternalError, match="64 bits"):
        draw(LAW, 1, SeededBits(0))
    with pytest.raises(InternalError, match="shape"):
        exact_answers(narrow, np.array([1, 2, 3]))


@pytest.mark.parametrize("sign", [1, -1])
def test_what_is_kept_would_end_where_no_table_gets(sign):
    factor = DenseFactor((0,), (1,), np.array([[2**61]]))
    block = BlockStrategy((("a",),), (factor,), CoarseGaussian(2**60, 20))
    counts = np.array([sign * 2**62])
    assert measure_wide(block, counts, None, SeededBits(0)).tolist() == [sign * 2**90]
    (near,) = measure_wide(block, counts >> 20, None, SeededBits(0)).tolist()
    assert 0 < abs(near - sign * 2**83) < 2**13
    (small,) = measure_wide(block, counts >> 42, None, SeededBits(0))
    assert type(small) is np.int64


def test_sums_in_two_words_are_exact():
    """Also of the blocks whose entries have more than 31 bits."""
    block = wide_block(0)
    high = np.random.default_rng(3).integers(-(2**56), 2**56, block.shape)
    low = np.random.default_rng(4).integers(0, 2**28, block.shape)
    # What stands in a marginal is known modulo 2^64, of which the last 28 bits are looked at.
    found = exact_answers(block, (high << 28) + low, high)
    sums = high.astype(object) * 2**28 + low
    order = [axis for factor in block.factors for axis in factor.axes]
    expected = sums.transpose(order).reshape([math.prod(f.shape) for f in block.factors])
    for axis, factor in enumerate(block.factors):
        matrix = factor.matrix.astype(object)
        expected = np.moveaxis(np.tensordot(matrix, expected, (1, axis)), 0, axis)
    assert found.tolist() == expected.tolist()
    assert max(map(abs, expected.ravel())) > 2**100
