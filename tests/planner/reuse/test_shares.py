from __future__ import annotations

from fractions import Fraction

import cvxpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.planner.shares import exact_shares, least_total, water_level
from tests.planner.random_workloads import some

POSITIVE = st.floats(1e-3, 1e3)


@st.composite
def problems(draw):
    count = draw(st.integers(1, 6))
    errors = np.array(draw(st.lists(POSITIVE, min_size=count, max_size=count)))
    known = draw(st.lists(st.one_of(st.just(0.0), POSITIVE), min_size=count, max_size=count))
    counts = draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
    return errors, np.array(known), np.array(counts, dtype=float), draw(POSITIVE)


@given(problems())
@some(40)
def test_the_level_is_optimal(problem):
    """The gains of all spaces that get something are equal, and no other would gain more."""
    errors, known, counts, cost = problem
    shares = water_level(errors, known, counts, cost)
    assert (shares >= 0).all()
    assert counts @ shares == pytest.approx(cost)
    gains = errors / np.square(known + shares)
    best = gains.max()
    assert gains[shares > 0] == pytest.approx(best)


@pytest.mark.parametrize("seed", range(4))
def test_a_convex_solver_finds_the_same(seed):
    rng = np.random.default_rng(seed)
    errors, known = rng.uniform(0.1, 5, 8), rng.choice([0.0, 0.2, 3.0], 8)
    counts, cost = rng.integers(1, 4, 8).astype(float), 2.0
    shares = cvxpy.Variable(8, nonneg=True)
    total = cvxpy.sum(cvxpy.multiply(counts * errors, cvxpy.inv_pos(known + shares)))
    problem = cvxpy.Problem(cvxpy.Minimize(total), [counts @ shares <= cost])
    problem.solve(solver=cvxpy.CLARABEL)
    assert least_total(errors, known, counts, cost) == pytest.approx(problem.value, rel=1e-6)
    assert water_level(errors, known, counts, cost) == pytest.approx(shares.value, abs=1e-3)


def test_what_is_known_well_enough_gets_nothing():
    shares = water_level(np.ones(3), np.array([0.0, 0.0, 10.0]), np.ones(3), 1.0)
    assert shares.tolist() == [0.5, 0.5, 0.0]


def test_exact_shares_are_equal_where_nothing_is_asked():
    assert exact_shares([0.0, 0.0], [1, 1], Fraction(1)) == (Fraction(1, 2), Fraction(1, 2))


def test_exact_shares_stay_within_the_total():
    total = Fraction(1, 3)
    shares = exact_shares(np.array([0.1, 0.2, 0.4]), [3, 1, 2], total)
    assert 3 * shares[0] + shares[1] + 2 * shares[2] <= total
    assert float(3 * shares[0] + shares[1] + 2 * shares[2]) == pytest.approx(1 / 3)
