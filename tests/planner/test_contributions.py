"""Plans for units of several records: what they cost, and how the error grows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import dpsql
from dpsql.errors import InternalError, SchemaError, WorkloadError
from dpsql.measurement.certify import CertifiedPlan, privacy_cost
from dpsql.planner.mechanisms.querysmasher import plan
from dpsql.privacy import Budget
from dpsql.workload import AllRange, Identity, Prefix, Workload

BUDGET = Budget(rho=2)
KINDS = ["whole", "residuals", "uniform", "largest"]


def workload(kind="residuals"):
    sizes = {"a": 4, "b": 3, "c": 2} if kind == "whole" else {"a": 24, "b": 40, "c": 2, "d": 500}
    made = Workload(sizes)
    made.add(["a", "c"], [Prefix(), Identity()], name="one")
    made.add(["b"], [AllRange()], name="two", weight=0.5)
    if kind != "whole":  # too much to be planned at once
        made.add(["d"], [Identity()], name="three", weight=0.1)
    return made


def planned(kind, k, budget=BUDGET):
    options = {"uniform": {"residuals": "uniform"}, "largest": {"objective": "largest"}}
    return plan(workload(kind), budget, contributions=k, **options.get(kind, {}))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 2, 7, 1000])
def test_the_cost_is_that_of_k_records_in_the_worst_cell(kind, k):
    made = planned(kind, k)
    blocks = made.certified.blocks
    per_record = sum(
        (len(b.spaces) * Fraction(b.sensitivity_squared, b.law.width) for b in blocks),
        Fraction(0),
    )
    assert made.privacy_cost == made.certified.privacy_cost == k**2 * per_record
    assert made.privacy_cost <= BUDGET.mu_squared
    assert float(made.privacy_cost / BUDGET.mu_squared) > 0.999
    assert made.contributions == k
    assert made.budget == BUDGET
    assert made.whole == (kind == "whole")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [2, 7])
def test_variances_grow_with_the_square_and_the_gap_stays(kind, k):
    one, many = planned(kind, 1), planned(kind, k)
    for few, more in zip(one.variances, many.variances, strict=True):
        np.testing.assert_allclose(more, k**2 * few, rtol=2e-3)
    assert many.rmse == pytest.approx(k * one.rmse, rel=1e-3)
    assert many.gap == pytest.approx(one.gap, abs=1e-3)
    assert 0 <= many.gap < 2e-3 + one.gap
    shares = [line.split("%")[0] for line in many.explain().splitlines() if "%" in line]
    assert sum(map(float, shares)) <= 100.5


@pytest.mark.parametrize("k", [2, 7])
def test_targets_need_a_budget_that_is_the_square_as_large(k):
    targets = {"one": 30.0, "two": 50.0}
    one, many = (plan(workload(), targets=targets, contributions=c) for c in (1, k))
    ratio = float(many.budget.mu_squared / one.budget.mu_squared)
    assert ratio == pytest.approx(k**2, rel=5e-3)
    assert many.binding == one.binding
    assert many.gap == pytest.approx(one.gap, abs=5e-3)
    for name, target in targets.items():
        for family, variances in zip(many.workload.families, many.variances, strict=True):
            assert family.name != name or variances.max() <= target**2


def test_the_digest_tells_how_many_records_count():
    blocks = planned("whole", 3).certified.blocks
    large = Budget(rho=100)
    assert CertifiedPlan(blocks, large, 3).digest != CertifiedPlan(blocks, large, 2).digest
    assert privacy_cost(blocks, 3) == 9 * privacy_cost(blocks)


def test_a_plan_for_one_record_is_not_certified_for_two():
    blocks = planned("whole", 1).certified.blocks
    CertifiedPlan(blocks, BUDGET)
    with pytest.raises(InternalError, match="more than its budget"):
        CertifiedPlan(blocks, BUDGET, 2)


@pytest.mark.parametrize("k", [0, -1, 1.0, True, None, "2"])
def test_malformed(k):
    blocks = planned("whole", 1).certified.blocks
    with pytest.raises(InternalError, match="whole number"):
        CertifiedPlan(blocks, BUDGET, k)
    with pytest.raises(WorkloadError) as caught:
        plan(workload(), BUDGET, contributions=k)
    assert caught.value.hint


def test_neighbours_are_stated():
    assert plan(workload(), BUDGET).neighbours == "add or remove one record"
    made = dpsql.plan(workload(), budget=BUDGET, unit="person", max_rows=2)
    stated = "add or remove one person with all of its rows, of which at most 2 are kept"
    assert made.neighbours == stated
    assert stated in made.explain()
    assert made.contributions == 2
    assert dpsql.plan(workload(), budget=BUDGET, max_rows=5).contributions == 5
    with pytest.raises(SchemaError):
        dpsql.plan(workload(), budget=BUDGET, unit="person")
