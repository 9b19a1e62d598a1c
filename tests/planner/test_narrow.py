"""Sums of two columns by groups, where rows may be outside of a domain: little along one axis."""

from __future__ import annotations

import numpy as np
import pytest

import dpsql
from dpsql.linalg.coordinates import WORTHWHILE, narrow
from dpsql.measurement.factors import DenseFactor
from dpsql.planner.mechanisms.querysmasher import plan
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.residuals.references import Reference
from dpsql.planner.strategies import dual
from dpsql.planner.strategies.dual import solve_dual
from dpsql.workload import Identity, Matrix, Workload
from tests.oracle import every_space, family_matrix, space_matrix

GROUPS, VALUES = 24, 180
BUDGET = dpsql.Budget(rho=0.5)


def sums(groups: int, values: int, step: float) -> Workload:
    """SUM(x) and SUM(g) BY g, of rows whose x is inside its domain; the last cell is outside."""
    inside, keys = [1] * values + [0], np.diag(np.arange(groups))
    amounts = [step * value for value in range(values)] + [0]
    workload = Workload({"g": groups, "x": values + 1})
    workload.add(["g", "x"], [Identity(), Matrix([amounts])], 1 / step**2)
    return workload.add(["g", "x"], [Matrix(keys), Matrix([inside])], 25.0)


def rows(groups: int, cells: int) -> np.ndarray:
    """Two tables of rows by groups, each with its own row along the other axis."""
    draw = np.random.default_rng(3)
    pairs = [(np.eye(groups), draw.integers(-9, 9, cells)), (np.diag(range(groups)), [1] * cells)]
    return np.vstack([np.kron(table, row) for table, row in pairs])


def test_few_coordinates_say_it_all():
    table = rows(GROUPS, VALUES)
    found = narrow(table, (GROUPS, VALUES))
    assert table.shape[1] > WORTHWHILE
    assert found.small.shape == (2 * GROUPS, 2 * GROUPS)
    assert found.widen(found.small) == pytest.approx(table, abs=1e-9)
    assert found.project(table) == pytest.approx(found.small, abs=1e-9)
    assert found.small @ found.small.T == pytest.approx(table @ table.T, rel=1e-9)


@pytest.mark.parametrize("spoil", [1e-6, 1.0])
def test_a_single_entry_more_is_not_lost(spoil):
    table = rows(GROUPS, VALUES)
    table[7, 1234] += spoil
    found = narrow(table, (GROUPS, VALUES))
    assert found is None or found.widen(found.small) == pytest.approx(table, abs=1e-9)


def test_what_is_asked_of_all_cells_stays_as_it_is():
    assert narrow(np.random.default_rng(0).normal(size=(9, 80 * 80)), (80, 80)) is None


def test_the_inverse_is_the_pseudo_inverse():
    table = rows(GROUPS, VALUES).astype(np.int64)
    table = table[table.any(axis=1)]
    factor = DenseFactor((0, 1), (GROUPS, VALUES), table)
    assert factor.real.pinv(factor.shape).matrix == pytest.approx(np.linalg.pinv(table), abs=1e-9)


def test_corners_give_the_certificate_of_all_cells():
    table = rows(GROUPS, VALUES)
    shape = (GROUPS, VALUES)
    uniform = tuple(map(Reference.of_cells, shape))
    component = Component((0, 1), uniform, b"", table)
    problem, few = solve_dual(component, 1e-4, 1e12, None)
    again = dual.evaluate(dual.Dual.of(table, shape), few.delta)
    assert problem.cells < len(few.delta) == table.shape[1]
    assert few.gap <= 1e-4
    assert (few.lower, few.upper) == pytest.approx((again.lower, again.upper), rel=1e-9)


def test_two_sums_by_groups_of_wide_values_are_planned():
    planned = plan(sums(40, 240, 1000.5), BUDGET)  # this took minutes
    assert planned.gap <= 1e-3
    assert planned.certified.privacy_cost <= BUDGET.mu_squared
    assert max(block.measurements for block in planned.certified.blocks) < 2 * 40


def test_a_cell_outside_costs_no_more_than_none():
    without = Workload({"g": GROUPS, "x": VALUES})
    without.add(["g", "x"], [Identity(), Matrix([range(VALUES)])])
    without.add(["g"], [Matrix(np.diag(np.arange(GROUPS)))], 25.0)
    planned = plan(sums(GROUPS, VALUES, 1.0), BUDGET)
    assert planned.rmse <= plan(without, BUDGET).rmse * 1.001


def test_variances_are_those_of_dense_least_squares():
    planned = plan(sums(GROUPS, VALUES, 1.0), BUDGET)
    domain = planned.workload.domain
    measured = np.vstack(
        [
            space_matrix(block, space, domain).astype(float)
            / np.sqrt(float(block.law.variance) + 1 / 12)
            for block, space in every_space(planned.certified.blocks)
        ]
    )
    for family, variances in zip(planned.workload.families, planned.variances, strict=True):
        asked = family_matrix(family, domain)
        found, *_ = np.linalg.lstsq(measured.T, asked.T, rcond=1e-12)
        assert asked == pytest.approx(found.T @ measured, abs=1e-9 * np.abs(asked).max())
        assert variances.ravel() == pytest.approx(np.square(found).sum(axis=0), rel=1e-6)
