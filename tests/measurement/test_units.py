"""Counts of units by groups: what a unit can change is what is charged, or it is refused."""

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
from dpsql.measurement.distributions import Gaussian, Laplace
from dpsql.measurement.factors import (
    CenteredFactor,
    DenseFactor,
    IdentityFactor,
    MeasureFactor,
    UnitFactor,
)
from dpsql.measurement.guarded import Allowance, GuardedCounts
from dpsql.measurement.measure import measure
from dpsql.measurement.narrow import apply
from dpsql.measurement.strategy import BlockStrategy
from dpsql.privacy import Budget
from tests.helpers.charging import pay
from tests.helpers.seeded import SeededBits

BUDGET = Budget(rho=10**9)
LAW = Gaussian(10**6)
ONE = IdentityFactor((1,), (1,), 1)
SPACE = ("g", "u")


def units(groups=4, own=8, all_=1, most=3, law=LAW):
    return BlockStrategy((SPACE,), (UnitFactor((0,), (groups,), own, all_, most), ONE), law)


def worst(factor, norm):
    """Try all that a unit can add."""
    n, found = factor.groups, 0
    for chosen in itertools.product((0, 1), repeat=n):
        if sum(chosen) <= factor.most:
            found = max(found, norm(factor.matrix.astype(object) @ np.array(chosen, dtype=object)))
    return found


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_a_unit_changes_is_the_largest_of_all_that_it_can_add(data):
    groups = data.draw(st.integers(1, 7))
    own, all_ = data.draw(st.integers(1, 60)), data.draw(st.integers(0, 90))
    factor = UnitFactor((0,), (groups,), own, all_, data.draw(st.integers(1, groups)))
    assert factor.largest_column_norm_squared == worst(factor, lambda y: sum(v * v for v in y))
    assert factor.largest_column_sum == worst(factor, lambda y: sum(abs(v) for v in y))
    assert factor.largest_entry >= int(np.abs(factor.matrix).max())


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 400), st.integers(1, 2**40), st.integers(0, 2**40), st.data())
def test_of_many_groups_no_number_is_worse(groups, own, all_, data):
    """Of s groups all sets are alike, so that one of each size tells."""
    most = data.draw(st.integers(1, groups))
    factor = UnitFactor((0,), (groups,), own, all_, most)
    changes = [(s, [own - all_ * s] * s + [-all_ * s] * (groups - s)) for s in range(1, most + 1)]
    squared = (s * (own - all_ * s) ** 2 + (groups - s) * (all_ * s) ** 2 for s, _ in changes)
    assert factor.largest_column_norm_squared == max(squared)
    assert factor.largest_column_sum == max(sum(map(abs, y)) for _, y in changes)


@pytest.mark.parametrize(
    "given_",
    [
        ((0,), (4,), 0, 1, 2),
        ((0,), (4,), 8, -1, 2),
        ((0,), (4,), 8, 1, 0),
        ((0,), (4,), 8, 1, 5),
        ((0,), (0,), 8, 1, 1),
        ((0, 1), (4, 1), 8, 1, 1),
        ((0,), (4,), 8.0, 1, 2),
        ((0,), (4,), 8, True, 2),
        ((0,), (4,), 2**62, 1, 2),
        ((0,), (4,), 8, 2**62, 2),
    ],
)
def test_strategies_out_of_range_are_refused(given_):
    with pytest.raises(InternalError):
        UnitFactor(*given_)


def test_answers_are_those_of_the_matrix():
    factor = UnitFactor((0,), (5,), 9, 2, 3)
    counts = np.arange(5, dtype=np.int64) ** 3
    assert (factor.apply(counts, 0) == factor.matrix @ counts).all()
    assert factor.real.matrix == pytest.approx(factor.matrix)
    plain = UnitFactor((0,), (5,), 9, 0, 3)
    assert (plain.apply(counts, 0) == 9 * counts).all()


# ── what it costs ──────────────────────────────────────────────────────────────────────────


def test_a_unit_is_one_record_whatever_rows_it_has():
    block, rows = units(), BlockStrategy((("a",),), (IdentityFactor((0,), (3,), 2),), LAW)
    change = worst(block.factors[0], lambda y: sum(v * v for v in y))
    assert block.privacy_cost == Fraction(change, 10**6)
    assert spent((block,), 50) == block.privacy_cost
    assert spent((block, rows), 50) == block.privacy_cost + 2500 * rows.privacy_cost
    pure = units(law=Laplace(1000))
    assert spent((pure,), 50) == Fraction(worst(pure.factors[0], lambda y: sum(map(abs, y))), 1000)


def test_a_plan_that_costs_more_than_its_budget_is_refused():
    cost = units().privacy_cost
    CertifiedPlan((units(),), Budget(rho=cost / 2), 9)
    with pytest.raises(InternalError, match="more than its budget"):
        CertifiedPlan((units(),), Budget(rho=cost / 2 * Fraction(999_999, 10**6)), 9)


@pytest.mark.parametrize(
    "other",
    [
        IdentityFactor((1,), (2,), 1),
        IdentityFactor((1,), (1,), 2),
        CenteredFactor((1,), (2,), 1),
        DenseFactor((1,), (1,), np.ones((1, 1), dtype=np.int64)),
        UnitFactor((1,), (1,), 1, 0, 1),
    ],
    ids=lambda factor: type(factor).__name__,
)
def test_nothing_is_multiplied_with_counts_of_units(other):
    """A unit is in several groups at once, which a product of norms does not bound."""
    with pytest.raises(InternalError, match="units are counted by"):
        BlockStrategy((SPACE,), (UnitFactor((0,), (4,), 8, 1, 3), other), LAW)


def values(each, groups=4, own=8, all_=1, most=3, law=LAW):
    """Measure values of units, of which one covers so many in a group."""
    factors = (UnitFactor((0,), (groups,), own, all_, most), MeasureFactor((1,), each))
    return BlockStrategy((SPACE,), factors, law)


@pytest.mark.parametrize(
    ("groups", "own", "all_"), [(1, 3, 0), (2, 5, 2), (3, 7, 1), (3, 2, 5), (4, 8, 1)]
)
@pytest.mark.parametrize("each", [1, 2, 3])
def test_values_of_a_unit_change_no_more_than_is_charged(groups, own, all_, each):
    """Whatever it covers: up to l in a group, and up to l·m in all, in whatever groups."""
    for most in range(1, groups + 1):
        block = values(each, groups, own, all_, most)
        pure = values(each, groups, own, all_, most, Laplace(1000))
        squares, sums = [0], [0]
        for added in itertools.product(range(each + 1), repeat=groups):
            if sum(added) <= each * most:
                change = block.factors[0].matrix @ np.array(added)
                squares.append(int((change**2).sum()))
                sums.append(int(np.abs(change).sum()))
        assert block.privacy_cost == Fraction(max(squares), 10**6) == spent((block,), 50)
        assert pure.privacy_cost == Fraction(max(sums), 1000) == spent((pure,), 50)


def test_one_in_all_groups_is_bounded_by_what_its_pairs_are():
    """With m = 1 and l = 6 six values of one group are the worst, and of six groups no more."""
    block = values(6, 6, 1, 0, 1)
    assert block.privacy_cost == Fraction(36, 10**6)


def test_plans_with_other_bounds_on_groups_have_other_digests():
    digests = {
        CertifiedPlan((units(own=own, all_=all_, most=most),), BUDGET).digest
        for own, all_, most in ((8, 1, 3), (8, 1, 2), (8, 2, 3), (9, 1, 3))
    }
    assert len(digests) == 4


# ── what is counted ────────────────────────────────────────────────────────────────────────


def measured(block, units_, bounds=None):
    certified = CertifiedPlan((block,), BUDGET)
    charged = pay(SimpleNamespace(certified=certified, budget=BUDGET))
    tables = {space: np.ones(block.shape, dtype=np.int64) for space in block.spaces}
    return measure(charged, Counted(tables, 1, bounds or {}, units_), _bits=SeededBits(2))


@pytest.mark.parametrize("most", [1, 2, 3])
def test_units_are_measured_that_are_in_no_more_groups_than_is_paid_for(most):
    found = measured(units(), {"u": most})
    assert found.values[frozenset(SPACE)].shape == (4, 1)
    assert measured(units(), {"u": most, "other": 99}).values


@pytest.mark.parametrize("each", [1, 2, 3])
def test_values_are_measured_of_which_a_unit_covers_no_more_than_is_paid_for(each):
    assert measured(values(3), {"u": 3}, {"u": each}).values


@pytest.mark.parametrize(
    ("block", "units_", "bounds"),
    [
        # Values, of which a unit may cover more, or in more groups; and units in their place.
        (values(3), {"u": 3}, {"u": 4}),
        (values(3), {"u": 4}, {"u": 3}),
        (values(3), {"u": 3}, {}),
        (values(3), {}, {"u": 3}),
        (units(), {"u": 3}, {"u": 3}),
        (units(), {"u": 4}, {}),
        (units(), {"u": 0}, {}),
        (units(), {"u": 2.0}, {}),
        # Rows, measured as if they were units.
        (units(), {}, {}),
        (units(), {}, {"u": 1}),
        (units(), {"g": 3, "u": 3}, {}),
        # Units, measured as if they were rows, or sums.
        (BlockStrategy((SPACE,), (IdentityFactor((0,), (4,), 8), ONE), LAW), {"u": 1}, {}),
        (
            BlockStrategy((SPACE,), (IdentityFactor((0,), (4,), 8), MeasureFactor((1,), 9)), LAW),
            {"u": 1},
            {"u": 1},
        ),
    ],
)
def test_other_counts_are_refused(block, units_, bounds):
    with pytest.raises(InternalError):
        measured(block, units_, bounds)


def test_rounds_measure_no_units():
    counted = Counted({SPACE: np.ones((4, 1), dtype=np.int64)}, 1)
    counts = GuardedCounts(counted, (SPACE,), Allowance(Fraction(10)), SeededBits(1))
    with pytest.raises(InternalError, match="not of units"):
        counts.measure(units())


def test_of_all_that_a_unit_adds_noise_hides_the_worst():
    """The cost is that of the change, for the Gaussian mechanism: no more, and no less."""
    block = units(groups=12, own=1000, all_=60, most=12)
    costs = []
    for s in range(13):
        added = np.array([[1]] * s + [[0]] * (12 - s), dtype=np.int64)
        change = apply(block, added).astype(object)
        costs.append(Fraction(int((change**2).sum()), 10**6))
    assert max(costs) == block.privacy_cost == spent((block,), 7)
