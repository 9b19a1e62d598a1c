"""Sums along an axis: few rows, however many cells; few cells decide what they need."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.planner.residuals.spaces import by_role
from dpsql.planner.strategies import dual
from dpsql.planner.weights import search as weighted
from dpsql.planner.weights.axes import FreeAxis, Vertices
from dpsql.workload import Identity, Matrix, Ranges, Workload
from tests.oracle import every_space, family_matrix, space_matrix

BUDGET = dpsql.Budget(rho=0.5)


def average(values: int) -> Matrix:
    """Count and sum of a nullable column; NULL is the last cell."""
    return Matrix([[1] * values + [0], [*range(values), 0]])


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
def test_few_cells_give_the_certificate_of_all(rows):
    q = np.random.default_rng(rows).normal(size=(rows, 900)) ** 3
    problem = dual.Dual.of(q, (900,))
    few = dual.maximize(problem, 1e-5)
    every = dual._over_all_cells(problem, 1e-4, None, 600)
    assert few.gap <= 1e-5
    assert few.lower <= every.upper * (1 + 1e-12)
    assert every.lower <= few.upper
    again = dual.evaluate(problem, few.delta)
    assert (again.lower, again.upper) == (few.lower, few.upper)
    assert np.count_nonzero(few.delta > 1e-6) <= max(8, 2 * rows * (rows + 1))


def test_groups_over_many_cells_need_no_choice_among_them(monkeypatch):
    """Equal weights are nearly best there; to choose a few of so many alike took 18 rounds."""
    shape = (6, 3, 5, 9, 2, 2)
    cells = np.indices(shape).reshape(len(shape), -1)
    q = np.vstack([cells[axis] == k for axis in range(4) for k in range(shape[axis])])
    problem = dual.Dual.of(np.where(cells[4] == 1, q, 0.0) + 0.5 * q, (q.shape[1],))
    assert dual.is_worthwhile(problem.rank, problem.cells)
    chosen = dual.maximize(problem, 1e-4, np.full(problem.cells, 1 / problem.cells))
    monkeypatch.delattr(dual, "_over_few_cells")
    even = dual.maximize(problem, 1e-4)
    assert even.gap <= 1e-4
    assert even.evaluations <= dual.CHECK + dual.PATIENCE
    assert chosen.lower <= even.upper * (1 + 1e-12)
    assert even.lower <= chosen.upper * (1 + 1e-12)


@pytest.mark.parametrize("table", [
    [range(50)],
    [[1] * 49 + [0], [*range(49), 0]],
    [[1] * 49 + [0], [*range(49), 0], np.square(range(50))],
], ids=["sum", "average", "spread"])  # fmt: skip
def test_the_vertices_have_the_longest_columns(table):
    rows = np.array([list(row) for row in table], dtype=np.float64)
    axis = FreeAxis.of(rows)
    draw = np.random.default_rng(0)
    for _ in range(50):
        reference = draw.dirichlet(np.ones(50))
        kept = rows - rows @ reference[:, None]
        root = draw.normal(size=(3, len(rows)))
        lengths = np.square(root @ kept).sum(axis=0)
        assert lengths[axis.vertices].max() >= lengths.max() * (1 - 1e-9)
        same = axis.on_support(reference)
        assert rows @ same == pytest.approx(rows @ reference)
        assert same.sum() == pytest.approx(1)
        assert set(np.flatnonzero(same)) <= set(axis.support)
    if len(rows) < 3:
        assert len(axis.vertices) == len(rows) + 1


def sums() -> Workload:
    workload = Workload({"a": 40, "b": 30, "g": 3})
    workload.add(["g", "a"], [Identity(), average(39)])
    workload.add([("a", "b")], [Matrix(np.subtract.outer(range(40), range(30)).reshape(1, -1))])
    return workload.add(["b"], [Matrix([[0] * 10 + [1] * 20])], 2.0)


def test_a_search_over_vertices_finds_what_one_over_all_cells_does(never_whole, monkeypatch):
    few = dpsql.plan(sums(), budget=BUDGET)
    assert few.gap < 1e-3
    monkeypatch.setattr(
        FreeAxis, "of", lambda rows: FreeAxis(rows, *[np.arange(rows.shape[1])] * 2)
    )
    every = dpsql.plan(sums(), budget=BUDGET)
    assert few.rmse <= every.rmse * 1.001


def test_variances_over_few_cells_are_those_of_dense_least_squares(never_whole):
    plan = dpsql.plan(sums(), budget=BUDGET)
    domain = plan.workload.domain
    measured = np.vstack(
        [
            space_matrix(block, space, domain).astype(float)
            / np.sqrt(float(block.law.variance) + 1 / 12)
            for block, space in every_space(plan.certified.blocks)
        ]
    )
    for family, variances in zip(plan.workload.families, plan.variances, strict=True):
        rows = family_matrix(family, domain)
        found, *_ = np.linalg.lstsq(measured.T, rows.T, rcond=1e-12)
        assert rows == pytest.approx(found.T @ measured, abs=1e-9 * np.abs(rows).max())
        assert variances.ravel() == pytest.approx(np.square(found).sum(axis=0), rel=1e-6)


def test_what_is_searched_asks_the_same_of_fewer_cells():
    workload = sums()
    coloring = by_role(workload)
    free = weighted.free_axes(workload, coloring)
    small = Vertices.of(workload, coloring, free)
    assert small.workload.domain == {"a": 3, "b": 4, "g": 3}
    assert small.workload.count == workload.count


@pytest.mark.parametrize("query", [
    "SELECT AVG(age), AVG(income) FROM people",
    "SELECT SUM(age), SUM(income) FROM people",
    "SELECT married, AVG(income) AS i FROM people GROUP BY married",
])  # fmt: skip
def test_averages_of_half_a_million_values_are_planned(query):
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE people (age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 100), married BOOLEAN "
        "NOT NULL, income INTEGER NOT NULL CHECK (income BETWEEN 0 AND 500000))"
    )
    assert dpsql.plan(con, query, budget=BUDGET).gap < 1e-3


def test_a_spread_of_thousands_of_values_measures_three_numbers():
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x INTEGER NOT NULL CHECK (x BETWEEN 0 AND 4999))")
    plan = dpsql.plan(con, "SELECT AVG(x) AS a, STDDEV(x) AS s FROM t", budget=BUDGET)
    assert plan.gap < 1e-3
    assert sum(block.measurements for block in plan.certified.blocks) == 3


def test_averages_of_a_difference_and_by_thousands_of_labels_are_planned():
    difference = np.subtract.outer(range(361), range(361)).reshape(1, -1)
    workload = Workload({"a": 361, "b": 361, "g": 16})
    workload.add(["g", ("a", "b")], [Identity(), Matrix(difference)])
    assert dpsql.plan(workload, budget=BUDGET).gap < 1e-3
    labels = Workload({"label": 4044, "x": 362})
    labels.add(["label", "x"], [Identity(), average(361)])
    assert dpsql.plan(labels, budget=BUDGET).gap < 1e-3


@pytest.mark.parametrize("weights", [[1] * 8 + [0], [1, 0, 0, 0], [3, 1, 0, 2, 2, 0, 5]])
def test_single_cells_have_a_closed_form(weights):
    n = len(weights)
    rows = np.sqrt(np.diag(np.array(weights, dtype=np.float64)))
    whole = Workload({"a": n}).add(["a"], [Matrix(rows[np.any(rows > 0, axis=1)])])
    uniform = dpsql.plan(whole, budget=BUDGET, residuals="uniform")
    assert uniform.gap < 1e-6
    assert "closed form (identity)" in uniform.explain()
    # Cells by themselves, each with the noise of a count, are the best there is.
    assert sum(v.sum() for v in uniform.variances) == pytest.approx(sum(weights), rel=1e-5)
    centered = rows - np.sqrt(np.array(weights, dtype=np.float64))[:, None] / n
    best = dual.maximize(dual.Dual.of(centered, (n,)), 1e-7)
    assert best.lower == pytest.approx(sum(weights) * (n - 1) ** 2 / n**2, rel=1e-6)


def test_some_of_many_labels_are_planned_without_a_factorization():
    workload = Workload({"label": 5001, "g": 3})
    runs = Ranges([(i, i) for i in range(5000)])
    workload.add(["label"], [runs]).add(["g", "label"], [Identity(), runs], 2.0)
    plan = dpsql.plan(workload, budget=BUDGET)
    assert plan.gap < 1e-6
    alone = Workload({"label": 5001}).add(["label"], [runs])
    assert dpsql.plan(alone, budget=BUDGET).rmse == pytest.approx(1, rel=1e-6)
