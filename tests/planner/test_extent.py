"""Families of more answers than can be gone through: their sums and largest variances."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

import dpsql
from dpsql.errors import ResourceLimitError
from dpsql.planner.reconstruction import base
from dpsql.planner.reconstruction import residual as search
from dpsql.planner.reconstruction.residual import front
from dpsql.workload import AllRange, CircularRange, Identity, Matrix, Prefix, Workload
from tests.planner.random_workloads import RESIDUALS, some, workloads

BUDGET = dpsql.Budget(mu=1)
SETTINGS = some(40)
pytestmark = pytest.mark.usefixtures("quick_cells")


def checked(planned):
    """Yield (true sum, true largest, sum, largest) of every family, as for very large ones."""
    for family, variances in zip(planned.workload.families, planned.variances, strict=True):
        found = planned.reconstruction.extent(family, planned.workload.domain)
        yield (variances.sum(), variances.max(initial=0.0), *found)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("limits", "exact"),
    [
        ({}, True),
        ({"CHUNK": 1}, True),
        ({"FRONT": 5, "GROUPED": 2}, False),
        ({"PRODUCT": 2}, False),
        ({"CHUNK": 1, "SEARCH": 2}, False),
        ({"TABLE": 0}, False),
    ],
    ids=["exact", "chunks", "front", "product", "search", "table"],
)
def test_large_families_are_treated_as_small_ones(limits, exact, monkeypatch):
    monkeypatch.setattr(base, "LARGE", -1)
    for name, value in limits.items():
        monkeypatch.setattr(search, name, value)

    @SETTINGS
    @given(workloads(), RESIDUALS)
    def check(workload, residuals):
        planned = dpsql.plan(workload, budget=BUDGET, residuals=residuals)
        for total, largest, our_total, our_largest in checked(planned):
            assert our_total == pytest.approx(total, rel=1e-7, abs=1e-9)
            assert our_largest >= largest * (1 - 1e-9)
            if exact and not planned.whole:
                assert our_largest == pytest.approx(largest, rel=1e-9, abs=1e-9)

    check()


@pytest.mark.parametrize("residuals", ["weighted", "uniform"])
def test_ranges_of_three_attributes(residuals, monkeypatch):
    workload = Workload({"a": 16, "b": 10, "c": 10})
    workload.add(["a", "b", "c"], [AllRange(), CircularRange(), AllRange()])
    workload.add(["c", "a"], [AllRange(), Prefix()])
    workload.add([("a", "b")], Matrix.difference((16, 10)))
    planned = dpsql.plan(workload, budget=BUDGET, residuals=residuals)
    plain = planned.expected_error()
    monkeypatch.setattr(base, "LARGE", -1)
    for total, largest, our_total, our_largest in checked(planned):
        assert our_total == pytest.approx(total, rel=1e-9)
        assert our_largest == pytest.approx(largest, rel=1e-9)
    for column in ("rmse", "worst_standard_error"):
        np.testing.assert_allclose(planned.expected_error()[column], plain[column])


def test_fronts():
    rows = np.random.default_rng(1).integers(0, 6, (200, 3)).astype(float)
    kept = {tuple(row) for row in front(rows)}
    for row in rows:
        above = ((rows >= row).all(axis=1) & (rows > row).any(axis=1)).any()
        assert above == (tuple(row) not in kept)


def test_hundreds_of_billions_of_ranges_are_planned():
    workload = Workload({"age": 100, "hours": 100, "education": 100})
    workload.add(list(workload.domain), [AllRange()] * 3, name="ranges")
    planned = dpsql.plan(workload, budget=BUDGET)
    (row,) = planned.expected_error().to_dicts()
    assert row["rows"] == workload.count == 5050**3
    assert planned.gap < 1e-3
    assert row["rmse"] == pytest.approx(planned.rmse, rel=1e-6)
    (family,) = workload.families
    samples = next(family.parts(10**6)), family.box([slice(2500, 2510)] * 3)
    largest = max(planned.reconstruction.variances(part).max() for part in samples)
    assert row["worst_standard_error"] >= math.sqrt(largest)
    planned.check_variances()
    with pytest.raises(ResourceLimitError, match="128,787,625,000 answers") as error:
        _ = planned.variances
    assert "batches" in error.value.hint


def test_the_other_objectives_take_large_families():
    workload = Workload({"a": 60, "b": 60, "c": 6})
    workload.add(["a", "b", "c"], [AllRange()] * 3, name="ranges")
    workload.add(["a"], [Identity()], name="groups")
    largest = dpsql.plan(workload, budget=BUDGET, objective="largest")
    total = dpsql.plan(workload, budget=BUDGET)
    worst = "worst_standard_error"
    assert largest.expected_error()[worst].max() <= total.expected_error()[worst].max()
    aimed = dpsql.plan(workload, targets={"ranges": 40})
    assert aimed.expected_error()[worst][0] <= 40


def test_parts_are_never_larger_than_asked():
    workload = Workload({"a": 5, "b": 4, "c": 3})
    workload.add(["a", "b", "c"], [AllRange()] * 3).add([], [])
    planned = dpsql.plan(workload, budget=BUDGET)
    for family, variances in zip(workload.families, planned.variances, strict=True):
        for size in (1, 7, 100, 10**6):
            parts = list(family.parts(size))
            assert max(part.count for part in parts) <= size
            found = [planned.reconstruction.variances(part).ravel() for part in parts]
            np.testing.assert_allclose(np.concatenate(found), variances.ravel())
