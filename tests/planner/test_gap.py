"""A gap names the class of plans that it is among, and what is known for all mechanisms."""

from __future__ import annotations

import math
import random
import statistics

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.planner.mechanisms import querysmasher
from dpsql.planner.strategies.product_bound import product_bound
from dpsql.workload import AllRange, Identity, Matrix, Prefix, Total, Workload

BUDGET = dpsql.Budget(mu=1)
SIZES = {"a": 7, "b": 6, "c": 4}
FEW, MANY = 8, 100


def total(plan):
    return plan.rmse**2 * plan.workload.count


def asked(seed):
    """Make a workload of marginals, running totals and ranges, some of them WHERE something."""
    draw = random.Random(seed)  # noqa: S311
    workload = Workload(SIZES)
    kinds = [Identity(), Identity(), Prefix(), AllRange(), Total()]
    for _ in range(draw.randint(2, 5)):
        names = draw.sample(list(SIZES), draw.randint(1, 3))
        factors = [draw.choice(kinds) for _ in names]
        if draw.random() < 0.4:
            n = SIZES[names[0]]
            factors[0] = Matrix(np.arange(n)[None] < draw.randint(1, n))
        workload.add(names, factors, weight=draw.choice([1.0, 1.0, 3.0]))
    return workload


@pytest.mark.parametrize(
    "seeds", [range(FEW), pytest.param(range(MANY), marks=pytest.mark.long)], ids=["few", "many"]
)
def test_the_bound_of_products_holds_for_all_mechanisms_and_is_near(seeds):
    off = []
    for seed in seeds:
        workload = asked(seed)
        best = querysmasher.plan(workload, BUDGET, residuals="none", tolerance=1e-4)
        bound = product_bound(workload)
        assert bound <= total(best) * (1 + 1e-6)
        off.append(best.least / bound - 1)
    assert statistics.median(off) <= 3e-3
    assert max(off) <= 0.04


def test_the_bound_is_that_of_the_prototype():
    """Conditions that mostly hold: residual spaces are a quarter above the optimum there."""
    workload = Workload(dict.fromkeys("xyz", 6))
    most = Matrix(np.array([[1.0] * 5 + [0.0]]))
    workload.add(["x", "y"], [most, Identity()]).add(["y", "z"], [most, Identity()])
    workload.add(["z"], [Identity()]).add(["x", "z"], [Identity(), most])
    assert 79.09 / product_bound(workload) - 1 == pytest.approx(0.2347, abs=2e-3)


def test_a_plan_of_residual_spaces_says_both(never_whole):
    workload = Workload({"a": 12, "b": 9}).add(["a"], [Prefix()]).add(["b"], [Prefix()])
    workload.add(["a", "b"], [Prefix(), Identity()])
    plan = dpsql.plan(workload, budget=BUDGET)
    assert plan.gap_among == "these residual spaces"
    assert plan.gap < 1e-3 < plan.gap_to_all < 0.05
    least = total(plan) / (1 + plan.gap_to_all)
    best = querysmasher.plan(workload, BUDGET, residuals="none", tolerance=1e-5)
    assert least <= total(best)
    said = f"certified gap {plan.gap:.2e} (these residual spaces), at most {plan.gap_to_all:.2e}"
    assert f"{said} (all mechanisms)" in plan.explain()
    assert "of the certified bound (these residual spaces)" in str(plan)


@pytest.mark.parametrize("k", [1, 3])
def test_the_gap_to_all_counts_the_rows_of_a_unit(never_whole, k):
    workload = Workload({"a": 12, "b": 9}).add(["a"], [Prefix()]).add(["b"], [Prefix()])
    workload.add(["a", "b"], [Prefix(), Identity()])
    found = dpsql.plan(workload, budget=BUDGET, max_rows=k).gap_to_all
    assert found == pytest.approx(dpsql.plan(workload, budget=BUDGET).gap_to_all, abs=2e-3)


def test_a_plan_of_all_cells_is_among_all_mechanisms():
    plan = dpsql.plan(Workload({"a": 12, "b": 9}).add(["a", "b"], Identity()), budget=BUDGET)
    assert plan.gap_among == "all mechanisms"
    assert plan.gap_to_all == plan.gap
    assert "at most" not in plan.explain().split("\n\n")[0]


def test_parts_are_named_as_such():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (g INTEGER NOT NULL CHECK (g BETWEEN 0 AND 4), x DOUBLE NOT NULL)"
    ).fetchall()
    schema = dpsql.Schema({"t": {"x": dpsql.Domain.number(0, 100)}})
    sql = "SELECT g, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY g"
    plan = dpsql.plan(con, sql, schema=schema, budget=BUDGET)
    assert plan.gap_among == "each part by itself"
    assert plan.gap_to_all == math.inf
    assert "(each part by itself)" in plan.explain()


def test_mechanisms_without_a_bound_of_their_own_have_that_of_all():
    workload = Workload({"a": 12, "b": 9}).add(["a"], [Prefix()]).add(["a", "b"], Identity())
    plan = dpsql.plan(workload, budget=BUDGET, mechanism="gaussian")
    assert plan.gap == math.inf
    assert 0 < plan.gap_to_all < 10
    assert f"no certified gap, at most {plan.gap_to_all:.2e} (all mechanisms)" in plan.explain()
    pure = dpsql.plan(workload, budget=dpsql.Budget(epsilon=1, delta=0), mechanism="laplace")
    assert pure.gap_to_all == math.inf


def test_what_is_too_much_work_has_no_bound():
    workload = Workload(dict.fromkeys("abcdef", 30))
    for name in workload.domain:
        workload.add([name], [Prefix()])
    plan = dpsql.plan(workload, budget=BUDGET)
    assert product_bound(workload) == 0.0
    assert plan.gap_among == "these residual spaces" or plan.least


@pytest.mark.parametrize("far", [1.0, 1e9, 1e-9])
def test_a_total_and_weights_far_apart_have_bounds(far):
    alone = Workload({"a": 3}).add([], [], weight=2.0)
    assert product_bound(alone) == pytest.approx(2.0)
    plan = dpsql.plan(alone, budget=BUDGET, mechanism="gaussian")
    assert plan.gap_to_all == pytest.approx(0.0, abs=1e-3)
    both = Workload({"a": 6, "b": 5}).add(["a"], [Prefix()]).add(["b"], [Prefix()], weight=far)
    best = querysmasher.plan(both, BUDGET, residuals="none", tolerance=1e-4)
    assert 0 < product_bound(both) <= total(best) * (1 + 1e-6)
