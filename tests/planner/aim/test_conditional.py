"""Conditional ResidualPlanner against a conic solver and dense matrices."""

from __future__ import annotations

import math
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest

from dpsql.linalg.sets import subsets
from dpsql.measurement.certify import privacy_cost
from dpsql.planner.mechanisms.aim_rounds import conditional_plan, residual_block, unit
from tests.oracle import space_matrix

SIZES = {"a": 3, "b": 2, "c": 4}
ALL = ("a", "b", "c")


def total_variance(blocks, known, sizes=SIZES, names=ALL):
    """Σ E_A/p_A over the spaces that are known or measured, and the precisions."""
    precision = dict(known)
    for block in blocks:
        gained = block.sensitivity_squared / block.law.squared
        precision[block.spaces[0]] = precision.get(block.spaces[0], 0.0) + gained
    cells = math.prod(sizes[a] for a in names)
    return sum(
        math.prod((sizes[a] - 1) ** 2 for a in part) / cells / precision[part]
        for part in subsets(names)
    )


def best(known, cost):
    """The least total variance, by a conic solver."""
    spaces = list(subsets(ALL))
    errors = np.array([math.prod((SIZES[a] - 1) ** 2 for a in part) / 24 for part in spaces])
    more = cp.Variable(len(spaces), nonneg=True)
    after = np.array([known.get(part, 0.0) for part in spaces]) + more
    problem = cp.Problem(
        cp.Minimize(cp.sum(cp.multiply(errors, cp.inv_pos(after)))), [cp.sum(more) <= cost]
    )
    return problem.solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("seed", range(6))
def test_shares_are_as_good_as_those_of_a_conic_solver(seed):
    generator = np.random.default_rng(seed)
    known = {part: float(generator.exponential(0.2)) for part in subsets(ALL)}
    blocks = conditional_plan(ALL, SIZES, lambda part: known[part], Fraction(1), 1)
    assert privacy_cost(blocks) <= 1
    assert total_variance(blocks, known) == pytest.approx(best(known, 1.0), rel=2e-3)


def test_without_earlier_measurements_all_are_measured():
    blocks = conditional_plan(ALL, SIZES, lambda part: 0.0, Fraction(2), 1)
    assert [b.spaces[0] for b in blocks] == list(subsets(ALL))
    assert total_variance(blocks, {}) == pytest.approx(best({}, 2.0), rel=1e-4)


def test_what_is_known_well_is_left_alone():
    known = {(): 50.0, ("a",): 40.0, ("c",): 30.0}
    blocks = conditional_plan(ALL, SIZES, lambda part: known.get(part, 0.0), Fraction(1), 1)
    measured = {b.spaces[0] for b in blocks}
    assert measured.isdisjoint(known)
    assert ("a", "b", "c") in measured


@pytest.mark.parametrize("contributions", [1, 4])
@pytest.mark.parametrize("price", ["1e-9", "0.3", "20000"])
def test_the_cost_is_just_below_the_price(contributions, price):
    price = Fraction(price)
    blocks = conditional_plan(("a", "c"), SIZES, lambda part: 0.0, price, contributions)
    cost = privacy_cost(blocks, contributions)
    assert Fraction(9, 10) * price < cost <= price


def test_a_block_is_the_projection_of_its_space():
    """s·⊗(nI − J) over the attributes, summed over the others; its unit is s·Π n."""
    for names in subsets(ALL):
        block = residual_block(names, SIZES, Fraction(1), 1)
        dense = np.asarray(space_matrix(block, names, SIZES), dtype=float) / unit(block)
        projection = np.ones((1, 1))
        for a, n in SIZES.items():
            axis = np.eye(n) - np.full((n, n), 1 / n) if a in names else np.ones((1, n))
            projection = np.kron(projection, axis)
        assert np.allclose(dense, projection)
        columns = np.square(dense * unit(block)).sum(axis=0)
        assert block.sensitivity_squared == pytest.approx(columns.max())


def test_a_price_that_buys_nothing_is_not_paid():
    assert residual_block(ALL, SIZES, Fraction(1, 10**30), 1) is None
