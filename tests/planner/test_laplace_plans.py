"""Certificates of Laplace noise: exact, and nothing else fits a pure budget."""

from __future__ import annotations

from fractions import Fraction as Q
from itertools import product

import numpy as np
import pytest

from dpsql.errors import InternalError
from dpsql.measurement.certify import CertifiedPlan, privacy_cost
from dpsql.measurement.distributions import Gaussian, Laplace
from dpsql.measurement.factors import CenteredFactor, DenseFactor
from dpsql.measurement.narrow import draw
from dpsql.measurement.strategy import BlockStrategy
from dpsql.privacy import Budget
from dpsql.privacy.conversions import mu_squared_of_pure
from tests.helpers.seeded import SeededBits


def dense(axis: int, rows: list[list[int]]) -> DenseFactor:
    matrix = np.array(rows, dtype=np.int64)
    return DenseFactor((axis,), (matrix.shape[1],), matrix)


MIXED = (dense(0, [[1, -2, 0], [3, 3, -4]]), CenteredFactor((1,), (4,), 5))


def test_the_l1_sensitivity_is_that_of_the_written_product() -> None:
    block = BlockStrategy((("a", "b"),), MIXED, Laplace(10))
    written = np.kron(MIXED[0].matrix, MIXED[1].matrix)
    assert block.sensitivity_1 == np.abs(written).sum(axis=0).max()
    assert block.sensitivity_squared == (written**2).sum(axis=0).max()
    assert block.privacy_cost == Q(int(np.abs(written).sum(axis=0).max()), 10)


def test_large_entries_are_added_up_exactly() -> None:
    largest = 2**31 - 1
    factor = dense(0, [[largest]] * 5000)
    assert factor.largest_column_sum == 5000 * largest
    assert CenteredFactor((0,), (7,), 2**20).largest_column_sum == 2 * 2**20 * 6


@pytest.mark.parametrize("contributions", [1, 3])
def test_epsilon_adds_up_and_grows_with_the_rows_of_a_unit(contributions: int) -> None:
    blocks = (
        BlockStrategy((("a",), ("b",)), (dense(0, [[1, 0], [0, 1]]),), Laplace(8)),
        BlockStrategy(((),), (DenseFactor((), (), np.array([[2]])),), Laplace(8)),
    )
    epsilon = contributions * (2 * Q(1, 8) + Q(2, 8))
    plan = CertifiedPlan(blocks, Budget(epsilon=epsilon, delta=0), contributions)
    assert plan.privacy_cost == mu_squared_of_pure(epsilon)
    assert privacy_cost(blocks, contributions) == mu_squared_of_pure(epsilon)
    with pytest.raises(InternalError, match="more than its budget"):
        CertifiedPlan(blocks, Budget(epsilon=epsilon * Q(999, 1000), delta=0), contributions)


def test_the_two_kinds_of_noise_have_budgets_of_their_own() -> None:
    factors = (dense(0, [[1]]),)
    gaussian = BlockStrategy((("a",),), factors, Gaussian(100))
    laplace = BlockStrategy((("b",),), factors, Laplace(100))
    CertifiedPlan((gaussian,), Budget(rho=1))
    CertifiedPlan((laplace,), Budget(epsilon=1, delta=0))
    for blocks, budget in product(
        [(gaussian,), (laplace,), (gaussian, laplace)],
        [Budget(rho=1), Budget(epsilon=1, delta=0), Budget(epsilon=1, delta=1e-6)],
    ):
        fits = (blocks == (gaussian,) and not budget.pure) or (blocks == (laplace,) and budget.pure)
        if not fits:
            with pytest.raises(InternalError):
                CertifiedPlan(blocks, budget)


def test_the_digest_tells_laws_apart() -> None:
    factors = (dense(0, [[1]]),)
    laws = [Gaussian(100), Gaussian(101)]
    plans = [CertifiedPlan((BlockStrategy((("a",),), factors, w),), Budget(rho=1)) for w in laws]
    pure = CertifiedPlan(
        (BlockStrategy((("a",),), factors, Laplace(100)),), Budget(epsilon=1, delta=0)
    )
    assert len({plan.digest for plan in (*plans, pure)}) == 3


@pytest.mark.parametrize("law", [Gaussian, Laplace])
@pytest.mark.parametrize("width", [0, -1, 2**100, 1.5, True])
def test_widths_out_of_range(law: type[Gaussian] | type[Laplace], width: object) -> None:
    with pytest.raises(InternalError):
        law(width)  # type: ignore[arg-type]


@pytest.mark.statistical
def test_the_privacy_loss_is_bounded_where_it_should_be_and_reached() -> None:
    """One record moves an answer by Δ: no event is more than e^ε times as probable."""
    scale, change, draws = 4, 4, 400_000
    noise = draw(Laplace(scale), draws, SeededBits(3))
    near, far = noise, noise[::-1] + change
    for low in range(-8, 9):
        p, q = (near >= low).mean(), (far >= low).mean()
        error = 6 * (1 / draws) ** 0.5
        assert q <= np.exp(change / scale) * p + error
    p, q = (near >= 8).mean(), (far >= 8).mean()
    assert q > np.exp(0.9 * change / scale) * p, "half the noise would be noticed"
