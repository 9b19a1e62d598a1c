"""Measurements of a whole domain, given what is known: compared with a semidefinite program."""

from __future__ import annotations

import cvxpy
import numpy as np
import pytest

from dpsql.planner.reuse.joint_cells import error, least_conditional_error, measure_given

CELLS = np.kron(np.eye(2), np.ones((1, 5))), np.kron(np.ones((1, 2)), np.eye(5))
"""Sums over each axis of 2 × 5 cells."""


def best(rows, known, cost):
    n = len(known)
    x = cvxpy.Variable((n, n), PSD=True)
    total = sum(cvxpy.matrix_frac(row, known + x + 1e-9 * np.eye(n)) for row in rows)
    problem = cvxpy.Problem(cvxpy.Minimize(total), [cvxpy.diag(x) <= cost])
    problem.solve(solver=cvxpy.CLARABEL)
    return problem.value


def prior(first, second):
    return first * CELLS[0].T @ CELLS[0] + second * CELLS[1].T @ CELLS[1]


@pytest.mark.parametrize(("first", "second"), [(0.01, 0.02), (0.3, 0.0), (2.0, 0.5), (9.0, 9.0)])
@pytest.mark.parametrize("queries", ["cells", "prefixes"])
def test_the_best_measurements_are_found(first, second, queries):
    rows = np.eye(10) if queries == "cells" else np.tril(np.ones((10, 10)))
    known, cost = prior(first, second), 1.0
    found = measure_given(rows, (2, 5), known, cost, 1e-5)
    assert np.square(found.root).sum(axis=0).max() <= cost * (1 + 1e-9)
    reached, optimum = error(rows, known, found.root, cost), best(rows, known, cost)
    assert reached == pytest.approx(optimum, rel=2e-3)
    assert optimum * 0.995 <= found.lower <= optimum * (1 + 1e-4)
    assert least_conditional_error(rows, (2, 5), known, cost, 1e-3) <= optimum * (1 + 1e-4)


def test_the_closed_form_is_taken_where_it_is_feasible():
    rows = np.eye(10)
    assert measure_given(rows, (2, 5), 0.5 * np.eye(10), 1.0, 1e-6).closed
    assert not measure_given(rows, (2, 5), prior(9.0, 9.0), 1.0, 1e-6).closed


def test_the_same_again_adds_up():
    """Knowing what a budget of 2 tells, a budget of 1 makes it 3."""
    rows = np.tril(np.ones((8, 8)))
    once = measure_given(rows, (8,), np.zeros((8, 8)), 1.0, 1e-6)
    known = 2 * once.root.T @ once.root
    found = measure_given(rows, (8,), known, 1.0, 1e-6)
    alone = error(rows, np.zeros((8, 8)), once.root, 1.0)
    assert error(rows, known, found.root, 1.0) == pytest.approx(alone / 3, rel=1e-4)
