"""Sums of measures: what a row may add to them is what was paid for, or nothing is measured."""

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
from dpsql.measurement.certify import CertifiedPlan
from dpsql.measurement.distributions import CoarseGaussian, Gaussian, Laplace
from dpsql.measurement.factors import CenteredFactor, DenseFactor, IdentityFactor, MeasureFactor
from dpsql.measurement.measure import measure
from dpsql.measurement.narrow import apply
from dpsql.measurement.strategy import BlockStrategy
from dpsql.measurement.wide import exact_answers
from dpsql.planner.mechanisms.aim import AdaptivePlan
from dpsql.planner.mechanisms.aim_rounds import run
from dpsql.privacy import Budget
from dpsql.workload import Identity, Workload
from tests.helpers.charging import pay
from tests.helpers.seeded import SeededBits
from tests.measurement.adaptive import tools

BUDGET = Budget(rho=10**9)
PURE = Budget(epsilon=100, delta=0)
SIZES = {"a": 3, "b": 2, "v": 1, "w": 1}
BOUNDS = {"v": 100, "w": 7}
LAW = Gaussian(10**6)


def of_counts():
    return BlockStrategy((("a",),), (IdentityFactor((0,), (3,), 2),), LAW)


def of_sums(bound=100, names=("a", "v")):
    factors = (IdentityFactor((0,), (3,), 2), MeasureFactor((1,), bound))
    return BlockStrategy((names,), factors, LAW)


def paid(*blocks, contributions=1):
    certified = CertifiedPlan(blocks, BUDGET, contributions)
    return pay(SimpleNamespace(certified=certified, budget=BUDGET))


def counted(certified, bounds, contributions=1):
    spaces = [space for block in certified.blocks for space in block.spaces]
    tables = {s: np.ones([SIZES[name] for name in s], dtype=np.int64) for s in spaces}
    return Counted(tables, contributions, bounds)


def measured(charged, bounds):
    return measure(charged, counted(charged.certified, bounds), _bits=SeededBits(2))


@pytest.mark.parametrize("bound", [100, 99, 1, 0])
def test_sums_are_measured_whose_rows_add_no_more_than_is_paid_for(bound):
    found = measured(paid(of_counts(), of_sums()), {"v": bound})
    assert set(found.values) == {frozenset({"a"}), frozenset({"a", "v"})}


@pytest.mark.parametrize("bound", [101, 2**31, 2**62])
def test_sums_of_which_a_row_may_add_more_are_refused(bound):
    with pytest.raises(InternalError, match="more to a sum than is paid for"):
        measured(paid(of_counts(), of_sums()), {"v": bound})


PLAIN = DenseFactor((1,), (1,), np.ones((1, 1), dtype=np.int64))
JOINT = DenseFactor((0, 1), (3, 1), np.eye(3, dtype=np.int64))
THREE = IdentityFactor((0,), (3,), 2)


@pytest.mark.parametrize(
    ("block", "bounds"),
    [
        # Sums, measured as if they were counts: by any factor but that of a measure.
        (BlockStrategy((("a", "v"),), (THREE, PLAIN), LAW), {"v": 1}),
        (BlockStrategy((("a", "v"),), (THREE, IdentityFactor((1,), (1,), 1)), LAW), {"v": 1}),
        (BlockStrategy((("a", "v"),), (JOINT,), LAW), {"v": 1}),
        (BlockStrategy((("v",),), (IdentityFactor((0,), (1,), 1),), LAW), {"v": 100}),
        # Counts, measured as if they were sums.
        (of_sums(), {}),
        (of_sums(), {"w": 7}),
        (BlockStrategy((("v", "a"),), (MeasureFactor((0,), 9), CenteredFactor((1,), (3,), 1)), LAW),
         {"a": 3}),
        # One set of a block is of a measure, and another one isn't.
        (BlockStrategy((("a", "v"), ("a", "w")), (THREE, MeasureFactor((1,), 100)), LAW),
         {"v": 100}),
        # Two measures at once.
        (BlockStrategy((("v", "w"),), (MeasureFactor((0,), 100), MeasureFactor((1,), 7)), LAW),
         BOUNDS),
        (BlockStrategy((("v", "w"),), (MeasureFactor((0,), 100), PLAIN), LAW), BOUNDS),
    ],
)  # fmt: skip
def test_what_is_paid_for_in_another_way_is_refused(block, bounds):
    with pytest.raises(InternalError, match="counts as counts"):
        measured(paid(block), bounds)


@pytest.mark.parametrize("bound", [-1, 1.0, float("nan"), True, Fraction(1), "1", None])
def test_bounds_that_are_no_numbers_are_refused(bound):
    with pytest.raises(InternalError, match="whole number"):
        measured(paid(of_sums()), {"v": bound})


def test_a_refused_measurement_does_not_use_the_charge_up():
    charged = paid(of_sums())
    for bounds in ({"v": 101}, {}):
        with pytest.raises(InternalError):
            measured(charged, bounds)
    assert measured(charged, {"v": 100}).values


def test_rounds_that_choose_by_the_data_take_counts_only():
    """A choice has a price for rows that count once."""
    sizes = {"a": 3, "b": 2}
    workload = Workload(sizes).add(["a", "b"], [Identity(), Identity()])
    plan = AdaptivePlan(workload, Budget(rho=1))
    codes = {"a": np.array([0, 1, 2]), "b": np.array([0, 1, 1])}
    counts = tools.marginals_of(codes, sizes, plan.marginals)
    with pytest.raises(InternalError, match="paid for by other counts"):
        run(tools.pay(plan), Counted(counts, 1, {"b": 1}), _bits=SeededBits(1))


@pytest.mark.parametrize("bound", [0, -1, 2**31, 1.0, True, None])
def test_the_bound_of_a_factor_is_a_whole_number(bound):
    with pytest.raises(InternalError, match="out of range"):
        MeasureFactor((0,), bound)


@pytest.mark.parametrize("rows", [0, -1, 1.0, True, None, "2"])
def test_the_rows_of_a_record_are_a_whole_number(rows):
    with pytest.raises(InternalError, match="whole number of rows"):
        MeasureFactor((0,), 5, rows)


def test_the_bound_is_part_of_what_is_charged():
    digests = {CertifiedPlan((of_sums(bound),), BUDGET).digest for bound in (99, 100)}
    digests.add(CertifiedPlan((of_sums(names=("a", "w")),), BUDGET).digest)
    factors = (IdentityFactor((0,), (3,), 2), MeasureFactor((1,), 50, 2))
    digests.add(CertifiedPlan((BlockStrategy((("a", "v"),), factors, LAW),), BUDGET).digest)
    assert len(digests) == 4
    assert MeasureFactor((0,), 5, 1).content == MeasureFactor((0,), 5).content == b"measure 5"


@pytest.mark.parametrize(("bound", "rows"), [(100, 3), (1, 300), (300, 1)])
def test_all_rows_of_a_unit_in_one_table_are_paid_for_together(bound, rows):
    """Whoever counts says by how much all rows of a unit change the sums: 300, and no more."""
    factors = (IdentityFactor((0,), (3,), 2), MeasureFactor((1,), bound, rows))
    block = BlockStrategy((("a", "v"),), factors, LAW)
    assert CertifiedPlan((block,), BUDGET).privacy_cost == Fraction((2 * 300) ** 2, LAW.width)
    with pytest.raises(InternalError, match="more to a sum than is paid for"):
        measured(paid(block), {"v": 301})
    assert measured(paid(block), {"v": 300}).values


@st.composite
def blocks(draw, law):
    """A block of sums over one or two keys, of any kinds of factors."""
    keys = draw(st.lists(st.integers(1, 4), max_size=2))
    factors = []
    for axis, cells in enumerate(keys):
        kind = draw(st.integers(0, 2))
        if kind == 0:
            entries = st.integers(-9, 9)
            rows = draw(st.lists(st.lists(entries, min_size=cells, max_size=cells), min_size=1))
            factors.append(DenseFactor((axis,), (cells,), np.array(rows[:5], dtype=np.int64)))
        elif kind == 1 and cells > 1:
            factors.append(CenteredFactor((axis,), (cells,), draw(st.integers(1, 3))))
        else:
            factors.append(IdentityFactor((axis,), (cells,), draw(st.integers(1, 3))))
    bound = draw(st.integers(1, 50))
    factors.append(MeasureFactor((len(keys),), bound))
    names = (*"abc"[: len(keys)], "v")
    return BlockStrategy((names,), tuple(factors), law), bound


UNITS = st.lists(st.tuples(st.integers(0, 99), st.floats(-1, 1)), min_size=1, max_size=4)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.data(), UNITS, st.sampled_from([LAW, Laplace(10**6), CoarseGaussian(10**6, 3)]))
def test_a_unit_changes_exact_answers_by_no_more_than_is_charged(data, unit, law):
    """Rows of one unit in any cells, with values of any sign: both norms, k rows at once."""
    block, bound = data.draw(blocks(law))
    rng = np.random.default_rng(0)
    others = rng.integers(-bound, bound + 1, block.shape) * rng.integers(0, 9, block.shape)
    sums = np.asarray(others, dtype=np.int64)
    more = sums.copy()
    for place, part in unit:
        more.ravel()[place % more.size] += int(part * bound)
    answer = exact_answers if isinstance(law, CoarseGaussian) else apply
    change = [int(d) for d in (answer(block, more) - answer(block, sums)).ravel()]
    k = len(unit)
    assert sum(d * d for d in change) <= k**2 * block.sensitivity_squared
    assert sum(map(abs, change)) <= k * block.sensitivity_1
    budget = PURE if isinstance(law, Laplace) else BUDGET
    certified = CertifiedPlan((block,), budget, k)
    if isinstance(law, Laplace):
        assert Fraction(sum(map(abs, change)), law.width) <= k * block.privacy_cost
    else:
        assert Fraction(sum(d * d for d in change), law.width) <= certified.privacy_cost


def test_the_charge_is_reached():
    """By k rows of the largest value in the cell of the largest column: none of it is slack."""
    matrix = np.array([[1, -3], [2, 4]], dtype=np.int64)
    for k, bound in itertools.product((1, 3), (1, 50)):
        factors = (DenseFactor((0,), (2,), matrix), MeasureFactor((1,), bound))
        block = BlockStrategy((("b", "v"),), factors, LAW)
        change = apply(block, np.array([[0], [-k * bound]], dtype=np.int64)).ravel()
        assert (change**2).sum() == k**2 * block.sensitivity_squared
        assert np.abs(change).sum() == k * block.sensitivity_1
        cost = CertifiedPlan((block,), BUDGET, k).privacy_cost
        assert cost == Fraction(int((change**2).sum()), LAW.width)
