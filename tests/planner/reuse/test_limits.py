"""Where measurements are too large, or too far apart, to be put together in full."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given

import dpsql
from dpsql.planner.reconstruction import combine, whole
from dpsql.planner.reconstruction.sources import entries
from dpsql.planner.reuse import past as planning
from dpsql.workload import Identity, Matrix, Prefix, Total, Workload
from dpsql.workload.workload import spread_out
from tests.oracle import family_matrix
from tests.planner.random_workloads import some
from tests.planner.reuse.rounds import SIZES, answers, exact, plan_rounds, rounds
from tests.planner.reuse.test_combining import TABLE


@given(rounds())
@some(25)
def test_answers_are_exact_also_where_little_can_be_joined(given_rounds):
    small = {"DENSE_CELLS": 0, "JOINT_CELLS": 6, "MOST_ROWS": 4}
    with mock.patch.multiple(combine, **small):
        for alone, plan, _ in plan_rounds(given_rounds, TABLE):
            if not plan.planned:
                continue
            assert plan.rmse <= alone.rmse * (1 + 1e-9)
            found = answers(plan, exact(plan, TABLE).values)
            for family, values in zip(plan.workload.families, found, strict=True):
                true = family_matrix(family, SIZES) @ TABLE
                scale = max(1.0, np.abs(true).max(initial=0))
                np.testing.assert_allclose(values, true, atol=1e-6 * scale)


def test_classes_that_do_not_span_each_other_are_not_mixed_up():
    """Each tells other classes of x apart, by y; neither answers what the other is asked."""
    rng = np.random.default_rng(0)

    def classes(count):
        return Matrix(np.eye(count)[:, rng.integers(0, count, 60)])

    domain = {"x": 60, "y": 60}
    first = Workload(domain).add(["x", "y"], [classes(9), Identity()])
    second = Workload(domain).add(["x", "y"], [classes(7), Identity()])
    budget = dpsql.Budget(rho=5)
    alone = dpsql.plan(second, budget=budget)
    plan = dpsql.plan(second, budget=budget, given=[dpsql.plan(first, budget=budget)])
    assert alone.rmse * 0.7 < plan.rmse <= alone.rmse
    assert plan.gap >= 0


def test_the_past_may_be_about_other_columns():
    domain = {"x": 20, "y": 3, "z": 4}
    budget = dpsql.Budget(rho=0.1)
    before = dpsql.plan(Workload(domain).add(["x", "y"], [Total(), Identity()]), budget=budget)
    cube = Workload({"y": 3, "z": 4})
    for names in (["y"], ["z"], ["y", "z"]):
        cube.add(names, [Identity()] * len(names))
    from dpsql.planner.reuse.past import Past, plan_given, source_of

    past = Past((source_of(dpsql.plan(Workload({"x": 20}).add(["x"], Prefix()), budget=budget)),))
    plan = plan_given(dpsql.plan(cube, budget=budget), past, 1e-3)
    assert plan.rmse <= dpsql.plan(cube, budget=budget).rmse
    assert before.rmse > 0


@pytest.mark.parametrize("rho", [100, 1e6, 1e-9])
@pytest.mark.parametrize("now", [1e-12, 1e-3, 1e9])
def test_budgets_may_be_far_apart(rho, now):
    domain = {"x": 12, "y": 3}
    first = Workload(domain).add(["x", "y"], [Prefix(), Identity()])
    second = Workload(domain).add(["x"], [Identity()]).add(["y"], [Identity()])
    before = dpsql.plan(first, budget=dpsql.Budget(rho=rho))
    alone = dpsql.plan(second, budget=dpsql.Budget(rho=now))
    plan = dpsql.plan(second, budget=dpsql.Budget(rho=now), given=[before])
    assert plan.rmse <= alone.rmse * (1 + 1e-9)


def test_each_source_is_looked_at_once_however_often_it_is_put_together(monkeypatch):
    looked = []
    monkeypatch.setattr(combine, "entries", lambda n, *rest: looked.append(n) or entries(n, *rest))
    monkeypatch.setattr(planning, "QUICK_CELLS", 0)
    domain, budget = {"x": 30, "y": 40, "z": 3}, dpsql.Budget(rho=0.1)
    sources = [
        planning.source_of(dpsql.plan(Workload(domain).add([name], Prefix()), budget=budget))
        for name in domain
    ]
    asked = Workload(domain).add(["x", "z"], [Identity()] * 2).add(["y", "z"], [Identity()] * 2)
    alone, past = dpsql.plan(asked, budget=budget), planning.Past(tuple(sources))
    assert planning.plan_given(alone, past, 1e-3).given is not None
    assert [looked.count(number) for number in range(3)] == [1, 1, 1]
    planning.plan_given(alone, past, 1e-3)
    assert [looked.count(number) for number in range(3)] == [1, 1, 1]
    assert looked.count(3) >= 2  # what the plan would measure, each time


def test_what_lies_outside_of_the_past_is_seen_without_a_look_at_each_joint_cell(monkeypatch):
    """Of what is asked, the total alone is in the span of four counts of two columns."""
    written = []
    monkeypatch.setattr(
        whole,
        "spread_out",
        lambda part, *rest: written.append(part.count) or spread_out(part, *rest),
    )
    domain, budget = {"x": 60, "y": 50, "z": 3}, dpsql.Budget(rho=1)
    halves = {"x": np.arange(60) // 30, "y": np.arange(50) // 25}
    before = dpsql.plan(Workload({"x": 2, "y": 2}).add(["x", "y"], [Identity()] * 2), budget=budget)
    past = planning.Past((planning.source_of(before, halves),))
    asked = Workload(domain)
    for names in (["x", "y"], ["x", "z"], ["y", "z"], ["x"], ["y"]):
        asked.add(names, [Identity()] * len(names))
    asked.add([], [])
    _, missing = planning.known(asked, past)
    assert {("x",), ("y",), ("x", "y")} <= set(missing)
    assert () not in missing
    assert sum(written) <= 1
    half = Matrix((np.arange(2)[:, None] == halves["x"]).astype(float))
    assert planning.known(Workload(domain).add(["x"], [half]), past)[1] == ()
