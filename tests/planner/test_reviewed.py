"""Cases that a hostile reader found: vanishing pieces, symmetric single queries, wide spaces."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.errors import WorkloadError
from dpsql.linalg import matrices
from dpsql.planner.reconstruction import inverses
from dpsql.workload import AllRange, Identity, Matrix, Prefix, Ranges, Suffix, Workload

BUDGET = dpsql.Budget(mu=1)


def differences(n: int) -> np.ndarray:
    return np.eye(n)[1:] - np.eye(n)[:-1]


@pytest.mark.parametrize("build", [
    lambda: Workload({"a": 500}).add(["a"], Matrix(differences(500))),
    lambda: Workload({"a": 100, "b": 5}).add(["a", "b"], [Matrix(differences(100)), Prefix()]),
    lambda: Workload({"a": 3, "b": 200}).add(["a", "b"], [Matrix([[1, 0, -1]]), Prefix()]),
    lambda: Workload({"a": 3, "b": 3}).add(["a", "b"], [Matrix(np.zeros((2, 3))), Prefix()]),
])  # fmt: skip
def test_pieces_that_vanish_with_uniform_references(build):
    """√E has no slope there."""
    workload = build()
    planned, uniform = (
        dpsql.plan(workload, budget=BUDGET, residuals=r) for r in ("weighted", "uniform")
    )
    assert planned.rmse <= uniform.rmse * (1 + 1e-3)


@pytest.mark.parametrize("rows", [7, 8, 20])
def test_one_query_asked_often(rows):
    """Rank one, with a symmetry: the best is the query itself."""
    planned = dpsql.plan(Workload({"a": 10}).add(["a"], Ranges([(2, 7)] * rows)), budget=BUDGET)
    assert planned.rmse == pytest.approx(1, rel=5e-4)


def test_one_count_asked_often_in_sql():
    con = duckdb.connect()
    con.execute("CREATE TABLE t (a INT NOT NULL CHECK (a BETWEEN 0 AND 9))")
    script = {f"s{i}": "SELECT COUNT(*) AS n FROM t WHERE a BETWEEN 3 AND 6" for i in range(8)}
    assert dpsql.plan(con, script, budget=BUDGET).rmse == pytest.approx(1, rel=1e-4)


def test_a_broad_count_over_many_cells_is_as_good_as_a_narrow_one():
    for n in (1200, 1201, 5000):
        workload = Workload({"a": n}).add(["a"], Matrix(np.arange(n)[None, :] < n - 50))
        planned = dpsql.plan(workload, budget=BUDGET)
        assert planned.whole
        assert planned.rmse == pytest.approx(1, rel=1e-4)


def test_the_gap_of_targets_does_not_count_what_has_no_target():
    """One count with a standard error of 10 needs μ² = 0.01 and no more."""
    workload = Workload({f"x{i}": 10 for i in range(4)})
    workload.add(["x0"], Matrix([[1] + [0] * 9]), name="one")
    workload.add(list(workload.domain), [Prefix()] * 4, name="cube")
    planned = dpsql.plan(workload, targets={"one": 10.0})
    cost = float(planned.budget.mu_squared)
    assert 0.01 <= cost <= 0.0102
    assert cost / (1 + planned.gap) <= 0.01 * (1 + 1e-6)
    assert planned.binding == ("one",)


@pytest.mark.parametrize("loose", [1e2, 1e5, 1e7])
def test_targets_far_apart_have_a_small_gap(loose):
    workload = Workload({"a": 4, "b": 4})
    workload.add(["a"], Identity(), name="x").add(["b"], Identity(), name="y")
    planned = dpsql.plan(workload, targets={"x": 1.0, "y": loose})
    assert planned.gap <= 0.02


def test_the_largest_variance_is_never_larger_than_that_of_the_least_total():
    for seed in range(6):
        draw = np.random.default_rng(seed)
        workload = Workload({"a": 5, "b": 4})
        workload.add(["a"], Matrix(draw.integers(0, 2, (4, 5))), float(draw.integers(1, 5)))
        workload.add(["a", "b"], [Matrix(draw.integers(-1, 2, (3, 5))), Prefix()])
        total, largest = (
            max(
                f.weight * float(v.max())
                for f, v in zip(workload.families, planned.variances, strict=True)
            )
            for planned in (
                dpsql.plan(workload, budget=BUDGET, objective=o) for o in ("total", "largest")
            )
        )
        assert largest <= total * (1 + 1e-3)


def test_wide_spaces_are_listed_at_once():
    workload = Workload({f"x{i}": 2 for i in range(18)})
    workload.add(list(workload.domain), [Matrix([[1, 0]])] * 18)
    assert dpsql.plan(workload, budget=BUDGET).marginals == (tuple(workload.domain),)
    lonely = Workload({f"x{i}": 1 for i in range(30)})
    lonely.add(list(lonely.domain), [Identity()] * 30)
    assert dpsql.plan(lonely, budget=BUDGET).rmse == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("residuals", ["uniform", "weighted", "none"])
def test_a_family_without_queries_on_an_attribute_of_its_own(residuals):
    workload = Workload({"a": 8, "b": 2}).add(["a"], Prefix()).add(["b"], Matrix(np.zeros((0, 2))))
    planned = dpsql.plan(workload, budget=BUDGET, residuals=residuals)
    assert planned.variances[1].shape == (0,)
    assert planned.expected_error()["rows"].to_list() == [8, 0]


def test_what_can_fail_by_its_size_fails_before_the_charge(monkeypatch):
    """Queries that are too many to be written out are written out some at a time."""
    workload = Workload({"a": 2, "b": 2, "c": 33})
    rows = ([1, 1, 1, 0], [1, 2, 0, 5], [1, 7, 0, 0])
    for row, factor in zip(rows, (AllRange(), Prefix(), Suffix()), strict=True):
        workload.add([("a", "b"), "c"], [Matrix([row]), factor])
    planned = dpsql.plan(workload, budget=BUDGET, residuals="uniform")
    written = planned.variances
    monkeypatch.setattr(matrices, "MAX_ENTRIES", 2**10)
    monkeypatch.setattr(inverses, "CHUNK", 2**10)
    planned.check_variances()
    for family, variances in zip(workload.families, written, strict=True):
        np.testing.assert_allclose(planned.reconstruction.variances(family), variances)

    def refuse(rows, cells):
        raise dpsql.ResourceLimitError("too large", hint="smaller")

    monkeypatch.setattr(matrices, "check_entries", refuse)
    with pytest.raises(dpsql.ResourceLimitError):
        planned.check_variances()


def test_targets_beyond_budgets():
    workload = Workload({"a": 3}).add(["a"], Identity(), name="x")
    assert dpsql.plan(workload, targets={"x": 1e7}).expected_error()["rmse"][0] <= 1e7
    huge = Workload({"a": 3}).add(["a"], Matrix([[1e9, 0, 0]]), name="x")
    with pytest.raises(WorkloadError, match="so small"):
        dpsql.plan(huge, targets={"x": 1e-6})
    for options in ({"targets": [("x", 3)]}, {"targets": {"x": 3}, "objective": "largest"}):
        with pytest.raises(WorkloadError) as error:
            dpsql.plan(workload, **options)
        assert error.value.hint


@pytest.mark.parametrize("entry", [1e200, 1e-200, 1e13])
def test_extreme_coefficients_are_refused(entry):
    with pytest.raises(WorkloadError, match="too large or too small"):
        Matrix([[entry, 1.0]])
