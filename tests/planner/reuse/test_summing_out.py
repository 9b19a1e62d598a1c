"""What is known of sums over attributes, and of joint cells, however that is computed."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import dpsql
from dpsql.linalg.roots import regular_root, root_of
from dpsql.planner.reconstruction import combine
from dpsql.planner.reuse import joint_cells
from dpsql.workload import Identity, Prefix, Workload
from dpsql.workload.factors import Total

DRAW = np.random.default_rng(3)


def schur(total, cells, rest):
    """The precision of the sums over the last axis, by the Schur complement."""
    sums = np.kron(np.eye(cells), np.ones((1, rest))) / rest
    apart = np.kron(np.eye(cells), scipy.linalg.null_space(np.ones((1, rest))))
    both = sums @ total @ apart
    return sums @ total @ sums.T - both @ np.linalg.pinv(apart.T @ total @ apart) @ both.T


@pytest.mark.parametrize(("cells", "rest"), [(1, 6), (3, 4), (5, 2), (4, 1)])
@pytest.mark.parametrize("count", [0, 1, 4, 9, 40])
def test_the_precision_of_sums(cells, rest, count):
    rows = DRAW.integers(-2, 3, (count, cells * rest)).astype(float)
    total = rows.T @ rows
    expected = schur(total, cells, rest)
    scale = np.abs(total).max(initial=0)
    for root in (rows, root_of(total)):
        found = joint_cells._summed_over(root, cells, rest)
        np.testing.assert_allclose(found, expected, atol=1e-9 * scale)
    if (root := regular_root(total)) is not None:
        found = joint_cells._summed_over_all_known(root, cells, rest)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * scale)


def test_rows_that_are_alike_along_the_rest_lose_nothing():
    rows = np.repeat(DRAW.integers(0, 3, (5, 4)), 7, axis=1) / 3.0
    found = joint_cells._summed_over(rows, 4, 7)
    np.testing.assert_allclose(found, rows[:, ::7].T @ rows[:, ::7], atol=1e-12)


def test_sums_of_which_only_differences_are_known():
    """Nothing is known of a sum if some of its cells were not measured."""
    rows = np.zeros((1, 6))
    rows[0, 0] = 1
    np.testing.assert_allclose(joint_cells._summed_over(rows, 2, 3), np.zeros((2, 2)), atol=1e-12)


@pytest.mark.parametrize("factors", [[Identity(), Identity()], [Prefix(), Total()]])
def test_entries_are_joined_alike_by_their_rows_and_by_their_cells(factors, monkeypatch):
    domain = {"x": 8, "y": 5}
    wide = Workload(domain).add(["x", "y"], factors).add(["y"], [Identity()])
    narrow = Workload(domain).add(["x"], [Prefix()])
    before = dpsql.plan(wide, budget=dpsql.Budget(rho=1))
    found = []
    for few in (0, 1, 1000):  # always by rows; by what are fewer; always by cells
        monkeypatch.setattr(combine, "FEW", few)
        plan = dpsql.plan(narrow, budget=dpsql.Budget(rho=0.1), given=[before])
        assert plan.given is not None
        found.append((plan.rmse, plan.gap))
    np.testing.assert_allclose(found, [found[0]] * 3, rtol=1e-5)
