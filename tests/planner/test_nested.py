"""Cumulative counts: solved in quadratic time, so whole columns are planned at once."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.linalg.nested import Nested, nested_rows
from dpsql.linalg.roots import full_rank_root, root_of
from dpsql.planner.mechanisms.querysmasher import plan
from dpsql.planner.strategies.dual import Dual, QueryPart, evaluate, maximize
from dpsql.privacy import Budget
from dpsql.workload import Identity, Prefix, Suffix, Workload

BUDGET = Budget(mu=1)


def gram_of(levels: list[int], weights: list[float]) -> np.ndarray:
    """Return the Gram matrix of nested sets; a cell of level −1 is in none."""
    sizes = np.array([sum(weights[level:]) if level >= 0 else 0.0 for level in levels])
    return np.minimum.outer(sizes, sizes)


LEVELS = [2, 0, 5, 5, -1, 1, 3, 4, 6, 7, 7, 2]
WEIGHTS = [1.0, 4.0, 0.25, 1.0, 1.0, 2.0, 8.0, 0.5]


@pytest.mark.parametrize("root", [root_of, full_rank_root, nested_rows])
def test_a_root_of_nested_sets_has_their_gram_matrix(root):
    gram = gram_of(LEVELS, WEIGHTS)
    rows = root(gram)
    assert rows.T @ rows == pytest.approx(gram)
    found = Nested.of(rows)
    assert found.basis.sum(axis=0).tolist() == [int(level >= 0) for level in LEVELS]
    assert np.linalg.matrix_rank(np.vstack([found.basis, rows])) == len(WEIGHTS)


def test_what_is_not_nested_is_not_taken_for_it():
    gram = gram_of(LEVELS, WEIGHTS)
    gram[3, 7] = gram[7, 3] = gram[3, 7] / 2
    assert nested_rows(gram) is None
    assert nested_rows(np.eye(9)) is None
    assert nested_rows(np.zeros((9, 9))) is None
    rows = nested_rows(gram_of(LEVELS, WEIGHTS))
    for spoiled in (rows[::-1], rows[[0, 0, 2]], -rows, rows + np.eye(*rows.shape) / 9):
        assert Nested.of(spoiled) is None


def test_factorizations_are_those_of_dense_matrices():
    rows = nested_rows(gram_of(LEVELS, WEIGHTS))
    delta = np.random.default_rng(0).uniform(0.1, 1.0, rows.shape[1])
    fast = evaluate(Dual.of(rows, (len(delta),)), delta)
    dense = evaluate(Dual(len(delta), (QueryPart(rows, None),)), delta)
    assert fast.f == pytest.approx(dense.f, rel=1e-12)
    assert fast.root.T @ fast.root == pytest.approx(dense.root.T @ dense.root, abs=1e-12)
    assert Nested.of(rows).diagonal(delta) == pytest.approx(dense.diagonal, rel=1e-4)


@pytest.mark.parametrize("spread", [1, 10])
def test_weights_that_floats_are_not_enough_for_are_solved_as_dense_ones_are(spread):
    weights = np.random.default_rng(1).uniform(0.1, 1.0, 60) ** spread
    rows = nested_rows(gram_of(list(range(60)), weights))
    fast = maximize(Dual.of(rows, (60,)), 1e-4)
    dense = maximize(Dual(60, (QueryPart(rows, None),)), 1e-4)
    assert fast.gap <= 1e-4
    assert fast.lower == pytest.approx(dense.lower, rel=2e-4)
    assert fast.lower <= dense.upper * (1 + 1e-9)
    assert dense.lower <= fast.upper * (1 + 1e-9)


def test_zero_weights_are_no_division_by_zero():
    rows = nested_rows(gram_of(list(range(9)), [1.0] * 9))
    delta = np.array([0.0, *[1.0] * 8])
    point = evaluate(Dual.of(rows, (9,)), delta)
    assert np.isfinite(point.diagonal).all()
    assert np.isfinite(Nested.of(rows).diagonal(delta)).all()


@pytest.mark.parametrize("queries", [Prefix(), Suffix()], ids=["prefix", "suffix"])
def test_a_median_of_many_values_is_planned_as_a_whole(queries):
    planned = plan(Workload({"x": 1300}).add(["x"], [queries]), BUDGET)
    assert planned.whole  # with uniform references it would lose 3.7 %
    assert planned.gap <= 1e-3


def test_medians_of_many_values_by_groups_lose_nothing():
    workload = Workload({"x": 1300, "g": 3}).add(["g", "x"], [Identity(), Prefix()])
    planned = plan(workload, BUDGET)
    assert planned.gap <= 1e-3
    assert planned.least == pytest.approx(planned.rmse**2 * planned.workload.count, rel=1e-3)
