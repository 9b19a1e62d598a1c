"""Rows of a unit that are spread out: what they cost is no less than what they can change."""

from __future__ import annotations

import itertools
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.engines.base import Counted
from dpsql.errors import InternalError
from dpsql.measurement.certify import CertifiedPlan, spent
from dpsql.measurement.distributions import CoarseGaussian, Gaussian, Laplace
from dpsql.measurement.factors import (
    CenteredFactor,
    DenseFactor,
    IdentityFactor,
    MeasureFactor,
    UnitFactor,
)
from dpsql.measurement.measure import measure
from dpsql.measurement.strategy import BlockStrategy
from dpsql.privacy import Budget
from dpsql.workload.spread import SpreadRows
from tests.helpers.charging import pay
from tests.helpers.seeded import SeededBits

BUDGET = Budget(rho=10**9)
BY_A = SpreadRows(frozenset("a"), Fraction(1, 3))
MATRICES = st.integers(1, 3).flatmap(
    lambda n: st.lists(st.lists(st.integers(-9, 9), min_size=n, max_size=n), min_size=1, max_size=4)
)


def dense(rows, axes=(0,)):
    matrix = np.array(rows, dtype=np.int64)
    return DenseFactor(axes, (matrix.shape[1],), matrix)


def block(*factors, space="ab", law=None):
    return BlockStrategy((tuple(space[: len(factors)]),), factors, law or Gaussian(10**4))


@settings(deadline=None)
@given(MATRICES)
def test_a_bound_on_eigenvalues_holds(rows):
    factor = dense(rows)
    largest = np.linalg.eigvalsh(factor.matrix.T @ factor.matrix).max()
    assert factor.stretch_squared >= largest - 1e-9
    assert factor.stretch_squared >= factor.largest_column_norm_squared


@pytest.mark.parametrize("n", [2, 3, 17])
@pytest.mark.parametrize("kind", [CenteredFactor, IdentityFactor])
def test_it_is_tight_where_cells_are_alike(n, kind):
    factor = kind((0,), (n,), 5)
    largest = np.linalg.eigvalsh(factor.matrix.T @ factor.matrix).max()
    assert factor.stretch_squared == round(largest)
    assert dense(factor.matrix.tolist()).stretch_squared == round(largest)


def test_it_is_the_trace_of_what_is_large():
    factor = dense(np.full((400, 400), 3).tolist())
    assert factor.stretch_squared == 400 * 400 * 9


@settings(max_examples=60, deadline=None)
@given(MATRICES, MATRICES, st.lists(st.integers(1, 3), min_size=3, max_size=3), st.integers(1, 3),
       st.integers(1, 3), st.integers(1, 3), st.booleans())  # fmt: skip
def test_no_unit_changes_more_than_it_costs(first, second, sizes, most, own, bound, of_sums):
    """All ways in which up to k rows of a unit may lie, at most m of them in each cell of `a`.

    Of these, as many as `sizes` says are counted together in a class.
    """
    own = min(own, most)
    factors = [dense(first, (0,)), dense(second, (1,))]
    if of_sums:
        factors.append(MeasureFactor((2,), bound))
    made = block(*factors, space="abv")
    n, width = factors[0].shape[0], factors[1].shape[0]
    spread = SpreadRows(frozenset("a"), Fraction(own, most), (("a", tuple(sizes[:n])),))
    paid = float(spent((made,), most, (spread,))) * made.law.width
    evenly = float(made.cost((spread,), evenly=True)) * most**2 * made.law.width
    assert paid <= evenly * (1 + 1e-12)
    matrix = np.kron(factors[0].matrix, factors[1].matrix)
    magnitudes = block(*factors, space="abv", law=Laplace(10**4))
    paid_1 = spent((magnitudes,), most, (spread,)) * 10**4
    evenly_1 = magnitudes.cost((spread,), evenly=True) * most * 10**4
    assert paid_1 <= evenly_1
    reached_1 = 0
    for rows in range(1, most + 1):
        for cells in itertools.combinations_with_replacement(range(n * width), rows):
            if any(sum(c // width == a for c in cells) > own * sizes[a] for a in range(n)):
                continue
            for signs in itertools.product((bound, -bound) if of_sums else (1,), repeat=rows):
                change = np.zeros(n * width)
                np.add.at(change, list(cells), signs)
                reached = float(np.square(matrix @ change).sum())
                assert reached <= paid * (1 + 1e-12)
                assert reached <= evenly * rows / most * (1 + 1e-12)
                changed = int(np.abs(matrix @ change).sum())
                assert changed <= min(paid_1, evenly_1 * rows / most)
                reached_1 = max(reached_1, changed)
    assert reached_1 == paid_1 or of_sums or most > own, "no unit reaches it"


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_rows_that_are_told_apart_by_two_columns_cost_enough(data):
    """A limit for cells of two axes, which stand in one factor with a third, or in two."""
    numbers = st.integers(-5, 5)
    entries = data.draw(st.lists(st.lists(numbers, min_size=8, max_size=8), min_size=1, max_size=3))
    other = data.draw(st.lists(st.lists(numbers, min_size=2, max_size=2), min_size=1, max_size=2))
    joint = np.array(entries, dtype=np.int64)
    factors = DenseFactor((2, 0, 3), (2, 2, 2), joint), dense(other, (1,))
    made = BlockStrategy((("a", "b", "c", "d"),), factors, Gaussian(10**4))
    sizes = data.draw(st.lists(st.integers(1, 2), min_size=2, max_size=2))
    k, m = 3, data.draw(st.integers(1, 2))
    spread = SpreadRows(frozenset("bc"), Fraction(m, k), (("c", tuple(sizes)),))
    paid = float(spent((made,), k, (spread,))) * made.law.width
    laplace = BlockStrategy(made.spaces, factors, Laplace(10**4))
    paid_1 = spent((laplace,), k, (spread,)) * 10**4
    whole = np.einsum("icad,jb->ijabcd", joint.reshape(-1, 2, 2, 2), np.array(other))
    matrix = whole.reshape(-1, 16)
    cells = np.arange(16)
    group = np.stack(np.unravel_index(cells, (2, 2, 2, 2)))[1:3]
    for rows in itertools.combinations_with_replacement(range(16), k):
        lying = [tuple(group[:, row].tolist()) for row in rows]
        if all(lying.count(g) <= m * sizes[g[1]] for g in lying):
            change = np.bincount(rows, minlength=16)
            assert np.square(matrix @ change).sum() <= paid * (1 + 1e-12)
            assert np.abs(matrix @ change).sum() <= paid_1


def classes(*sizes, share=Fraction(1, 12)):
    return SpreadRows(frozenset("a"), share, (("a", sizes),))


def test_what_is_counted_of_one_cell_alone_costs_what_may_lie_there():
    """WHERE month = 3, of 12 rows of a unit of which one is in each month: 1 and not 144."""
    alone = block(dense([[7, 0]]))
    assert spent((alone,), 12, (classes(1, 11),)) == Fraction(49, 10**4)
    assert spent((alone,), 12, (classes(11, 1),)) == Fraction(49 * 11**2, 10**4)
    assert spent((alone,), 12, (classes(5, 7, share=Fraction(1, 2)),)) == spent((alone,), 12)
    each = block(dense([[7, 0, 0], [0, 7, 0]]))
    assert spent((each,), 12, (classes(1, 1, 10),)) == Fraction(2 * 49, 10**4)
    by_other = block(dense([[7, 0]]), IdentityFactor((1,), (9,), 2))
    assert spent((by_other,), 12, (classes(1, 11),)) == Fraction(49 * 4, 10**4)


def test_a_bound_by_classes_is_rounded_up_where_numbers_are_large():
    largest = 2**61 - 1
    alone = block(dense([[largest, 0], [largest - 2, 1]]), law=CoarseGaussian(2**130, 40))
    paid = spent((alone,), 12, (classes(1, 11),)) * 2**130
    exact = largest**2 + (largest - 2) ** 2
    # 11 rows in the other class besides, whose products with the one are small.
    assert exact < paid < exact * (1 + Fraction(1, 2**30))


def test_classes_of_which_others_are_counted_are_no_limit():
    alone = block(dense([[7, 0]]))
    with pytest.raises(InternalError, match="other classes"):
        spent((alone,), 12, (classes(1, 1, 10),))
    with pytest.raises(InternalError, match="whole number of cells"):
        classes(0, 12)
    with pytest.raises(InternalError, match="attributes of a limit"):
        SpreadRows(frozenset("a"), Fraction(1, 2), (("b", (1, 2)),))


def test_distinct_cells_cost_as_many_as_there_are():
    """k instead of k² where each row has a cell of its own (identities: exactly)."""
    plain = block(IdentityFactor((0,), (9,), 7))
    alone = SpreadRows(frozenset("a"), Fraction(1, 5))
    assert spent((plain,), 5, (alone,)) * 5 == spent((plain,), 5)


def test_other_sets_cost_what_they_cost():
    other = block(IdentityFactor((0,), (9,), 7), space="b")
    assert spent((other,), 5, (BY_A,)) == spent((other,), 5)
    both = block(IdentityFactor((0,), (2,), 1), IdentityFactor((1,), (2,), 1))
    assert spent((both,), 3, (SpreadRows(frozenset("ab"), Fraction(1, 3)),)) * 3 == spent(
        (both,), 3
    )
    assert spent((both,), 3, (SpreadRows(frozenset("abc"), Fraction(1, 3)),)) == spent((both,), 3)


def test_counts_of_units_and_magnitudes_that_are_alike_cost_what_they_cost():
    laplace = block(IdentityFactor((0,), (9,), 7), law=Laplace(100))
    factors = IdentityFactor((0,), (1,), 1), UnitFactor((1,), (4,), 3, 1, 4)
    for made in (laplace, block(*factors), block(*factors, law=Laplace(100))):
        assert spent((made,), 5, (BY_A,)) == spent((made,), 5)


def test_magnitudes_of_one_cell_alone_cost_what_may_lie_there():
    alone = block(dense([[7, 0]]), law=Laplace(100))
    assert spent((alone,), 12, (classes(1, 11),)) == Fraction(7, 100)
    assert spent((alone,), 12, (classes(11, 1),)) == Fraction(7 * 11, 100)
    more = block(dense([[7, 0, -1], [-3, 2, 0]]), IdentityFactor((1,), (9,), 2), law=Laplace(100))
    assert spent((more,), 12, (classes(1, 1, 10),)) == Fraction(2 * (10 + 2 + 10), 100)
    assert more.cost((classes(1, 1, 10),), evenly=True) == more.cost()
    large = block(dense([[2**61, 0], [2**61, 1]]), law=CoarseGaussian(2**130, 40))
    assert large.factors[0].column_sums((0,)).tolist() == [2**62, 1]


@pytest.mark.parametrize("size", [2**9 + 1, 2**18])
def test_magnitudes_over_many_cells_cost_no_less(size):
    made = block(IdentityFactor((0,), (size,), 7), law=Laplace(100))
    spread = SpreadRows(frozenset("a"), Fraction(1, 3))
    assert spent((made,), 3, (spread,)) == Fraction(3 * 7, 100)


def test_the_share_that_is_least_is_paid_for():
    made = block(IdentityFactor((0,), (9,), 1), IdentityFactor((1,), (9,), 1))
    half = SpreadRows(frozenset("b"), Fraction(1, 2))
    assert (
        spent((made,), 6, (half, BY_A)) == spent((made,), 6, (BY_A,)) < spent((made,), 6, (half,))
    )


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_bound_over_many_cells_needs_few_numbers(rows):
    """Entries just below 2^62, over so many cells that all pairs of these take minutes."""
    matrix = np.full((rows, 40_000), 2**62 - 1)
    matrix[:, ::2] *= -1
    factor = DenseFactor((0,), (40_000,), matrix)
    assert factor.stretch_squared == rows * 40_000 * (2**62 - 1) ** 2


@pytest.mark.parametrize("shape", [(3, 600), (200, 600)])
def test_a_bound_over_many_cells_holds(shape):
    factor = dense(np.random.default_rng(1).integers(-9, 9, shape).tolist())
    largest = np.linalg.eigvalsh(factor.matrix @ factor.matrix.T).max()
    assert largest - 1e-6 <= factor.stretch_squared <= np.square(factor.matrix).sum()


@pytest.mark.parametrize("share", [Fraction(0), Fraction(-1), Fraction(4, 3), 0.5, 1])
def test_a_share_is_a_share(share):
    with pytest.raises(InternalError):
        SpreadRows(frozenset("a"), share)


def charged(spreads, contributions=6):
    made = block(IdentityFactor((0,), (3,), 1000))
    certified = CertifiedPlan((made,), BUDGET, contributions, spreads)
    return pay(SimpleNamespace(certified=certified, budget=BUDGET))


def counted(*spreads, contributions=6):
    return Counted({("a",): np.ones(3, dtype=np.int64)}, contributions, spreads=spreads)


@pytest.mark.parametrize(
    "kept",
    [
        (),
        (SpreadRows(frozenset("a"), Fraction(1, 2)),),
        (SpreadRows(frozenset("ab"), Fraction(1, 6)),),
        (SpreadRows(frozenset("b"), Fraction(1, 6)),),
        (SpreadRows(frozenset("a"), Fraction(1, 6), (("a", (1, 2, 1)),)),),
    ],
)
def test_rows_that_are_less_apart_than_is_paid_for_are_not_measured(kept):
    with pytest.raises(InternalError, match="agree in more"):
        measure(charged((BY_A,)), counted(*kept), _bits=SeededBits(1))


@pytest.mark.parametrize("share", [Fraction(1, 3), Fraction(1, 6)])
def test_rows_that_are_as_far_apart_are(share):
    kept = SpreadRows(frozenset("a"), share)
    found = measure(charged((BY_A,)), counted(kept), _bits=SeededBits(1))
    assert found.values[frozenset("a")].shape == (3,)


def test_a_charge_is_for_rows_that_are_so_far_apart():
    """Two plans that differ in that alone have two digests, so a receipt is for one of them."""
    made = block(IdentityFactor((0,), (3,), 1000))
    plans = [
        CertifiedPlan((made,), BUDGET, 6, spreads)
        for spreads in ((), (BY_A,), (SpreadRows(frozenset("a"), Fraction(1, 6)),))
    ]
    assert len({plan.digest for plan in plans}) == 3
    costs = [plan.privacy_cost for plan in plans]
    assert costs == [costs[0], costs[0] / 3, costs[0] / 12]  # one of six rows in each of 3 cells
