"""Many factors, tiny budgets, coefficients of all sizes: exact or refused, never wrong."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import DpsqlError, InternalError, ResourceLimitError
from dpsql.measurement.certify import CertifiedPlan
from dpsql.measurement.distributions import VARIANCE_BITS, CoarseGaussian, Gaussian
from dpsql.measurement.factors import ENTRY_BITS, DenseFactor
from dpsql.measurement.narrow import apply
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.mechanisms.querysmasher import plan
from dpsql.privacy import Budget
from dpsql.workload import Identity, Matrix, Prefix, Workload


def cube(attributes: int, values: int, factor) -> Workload:
    names = [f"a{i}" for i in range(attributes)]
    return Workload(dict.fromkeys(names, values)).add(names, [factor] * attributes)


@pytest.mark.parametrize(
    ("workload", "rho"),
    [
        (cube(10, 3, Identity()), Fraction(1, 2)),
        (cube(8, 3, Identity()), Fraction(5, 10**13)),
        (cube(8, 3, Prefix()), Fraction(10**12)),
        (cube(11, 2, Prefix()), Fraction(1, 2)),
    ],
)
def test_products_stay_within_their_bits(workload, rho):
    planned = plan(workload, Budget(rho=rho))
    assert planned.privacy_cost <= 2 * rho
    for block in planned.certified.blocks:
        if isinstance(block.law, CoarseGaussian):
            kept = block.law.unit << ENTRY_BITS
            assert block.largest_product < kept
            assert block.law.width < (block.law.unit << 46) ** 2
        else:
            assert block.largest_product < 2**ENTRY_BITS
            assert block.law.width < 2**VARIANCE_BITS


def test_a_wide_product_is_applied_without_wrapping_around():
    """Against exact integers of Python, at the 2^31 rows that a count may have."""
    planned = plan(cube(10, 3, Identity()), Budget(rho=1))
    block = max(planned.certified.blocks, key=lambda b: len(b.shape))
    counts = np.zeros(block.shape, dtype=np.int64)
    counts[(1,) * counts.ndim] = 2**31
    columns = [f.matrix[:, 1].astype(object) for f in block.factors]
    expected = np.array([2**31], dtype=object)
    for column in columns:
        expected = np.multiply.outer(expected, column)
    assert apply(block, counts).ravel().tolist() == expected.ravel().tolist()


def test_queries_of_very_different_sizes_keep_their_variances():
    """The small query is measured too; its answer doesn't come for free."""
    workload = Workload({"a": 2}).add(["a"], Matrix([[1e9, 0], [0, 1e-5]]))
    planned = plan(workload, Budget(mu=1))
    variances = planned.variances[0].ravel()
    assert 0.9e18 < variances[0] < 1.2e18
    # One count has variance at least 1 at mu = 1, so 1e-5 times a count has 1e-10 at least.
    assert variances[1] > 0.9e-10


def test_a_plan_is_not_changed_by_what_is_added_to_its_workload_later():
    workload = Workload({"a": 3}).add(["a"], [Identity()])
    planned = plan(workload, Budget(mu=1))
    workload.add(["a"], [Prefix()])
    assert len(planned.workload.families) == len(planned.variances) == 1


@pytest.mark.parametrize(
    "matrix",
    [
        np.random.default_rng(0).integers(0, 2**20, (15, 150)),
        pytest.param(
            np.random.default_rng(0).integers(0, 2**20, (40, 400)), marks=pytest.mark.long
        ),
        np.random.default_rng(0).integers(-(2**40), 2**40, (12, 30)),
        np.random.default_rng(0).integers(-(2**62), 2**62, (3, 5)),
        np.random.default_rng(0).normal(size=(5, 7)) * 10.0 ** np.arange(-6, 8, 2),
    ],
    ids=["20 bits", "20 bits, wider", "40 bits", "62 bits", "reals"],
)
def test_large_coefficients_are_planned_or_refused(matrix):
    try:
        queries = Matrix(matrix)
        planned = plan(Workload({"a": matrix.shape[1]}).add(["a"], queries), Budget(mu=1))
    except DpsqlError as error:
        assert error.hint  # noqa: PT017
        return
    assert planned.privacy_cost <= 1
    assert planned.gap >= -1e-9
    assert np.isfinite(planned.variances[0]).all()


@pytest.mark.parametrize(
    ("entries", "axes", "spaces", "variance"),
    [
        ([2**20, 2**11], [0, 1], [("a", "b")], 1),
        ([1], [0], [("a",)], 0),
        ([1], [0], [("a",)], 2**VARIANCE_BITS),
        ([1], [0], [("a",)], 1.0),
        ([1], [1], [("a",)], 1),
        ([1, 1], [0, 0], [("a", "b")], 1),
        ([1, 1], [0, 1], [("a", "b"), ("a",)], 1),
        ([1, 1], [0, 1], [("a", "a")], 1),
        ([1], [0], [], 1),
    ],
)
def test_blocks_beyond_the_limits_cannot_exist(entries, axes, spaces, variance):
    parts = tuple(
        DenseFactor((axis,), (1,), np.array([[entry]], dtype=np.int64))
        for axis, entry in zip(axes, entries, strict=True)
    )
    with pytest.raises(InternalError):
        BlockStrategy(tuple(spaces), parts, Gaussian(variance))


def test_no_residual_space_is_measured_twice():
    """Also not under its attributes in another order."""
    part = DenseFactor((0,), (1,), np.array([[1]], dtype=np.int64))
    other = DenseFactor((1,), (1,), np.array([[1]], dtype=np.int64))
    block = BlockStrategy((("a", "b"), ("b", "a")), (part, other), Gaussian(1))
    with pytest.raises(InternalError, match="twice"):
        CertifiedPlan((block,), Budget(mu=1e3))


def test_an_integer_factor_keeps_its_own_matrix():
    matrix = np.eye(2, dtype=np.int64)
    factor = DenseFactor((0,), (2,), matrix)
    matrix[0, 0] = 5
    assert factor.largest_entry == 1
    with pytest.raises(ValueError, match="read-only"):
        factor.matrix[0, 0] = 5


def test_a_rank_that_no_solver_takes_is_refused_at_once():
    with pytest.raises(ResourceLimitError, match="in more than 2,500 ways") as error:
        plan(Workload({"a": 2600}).add(["a"], [Prefix()]), Budget(mu=1))
    assert error.value.hint


def test_a_condition_over_many_columns_is_refused():
    names = [f"b{i}" for i in range(14)]
    workload = Workload(dict.fromkeys(names, 2)).add(names, Matrix(np.arange(2**14)[None, :] > 0))
    with pytest.raises(ResourceLimitError, match="joins 14 columns") as error:
        plan(workload, Budget(mu=1), residuals="uniform")
    assert "column of its own" in error.value.hint


def test_too_many_residual_spaces_are_refused():
    with pytest.raises(ResourceLimitError, match="residual spaces") as error:
        plan(cube(20, 2, Prefix()), Budget(mu=1))
    assert "fewer columns" in error.value.hint
