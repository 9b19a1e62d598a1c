"""Parts that share what a row may cost: each is as exact as the rows it is of allow."""

from __future__ import annotations

import math

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.linalg.roots import compressed
from dpsql.measurement.certify import spent
from dpsql.planner import registry
from dpsql.planner.mechanisms.base import Options
from dpsql.planner.mechanisms.measures import parts
from dpsql.planner.strategies import one_budget
from dpsql.planner.strategies.dual import Dual, QueryPart, maximize
from dpsql.planner.strategies.one_budget import share
from dpsql.workload import Identity, Matrix, Measure, Prefix, Workload
from dpsql.workload.workload import written_out

BUDGET = dpsql.Budget(mu=1)
K = 8


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    columns = "".join(f", x{i} DOUBLE NOT NULL, d{i} DECIMAL(5, 2) NOT NULL" for i in range(K))
    con.execute(
        "CREATE TABLE t (g INTEGER NOT NULL CHECK (g BETWEEN 0 AND 7), f BOOLEAN NOT NULL, "
        f"h INTEGER NOT NULL CHECK (h BETWEEN 0 AND 3){columns})"
    ).fetchall()
    return con


SCHEMA = dpsql.Schema(
    {"t": {f"{c}{i}": dpsql.Domain.number(0, 100) for c in "xd" for i in range(K)}}
)


def planned(con, script, **how):
    return dpsql.plan(con, script, budget=how.pop("budget", BUDGET), schema=SCHEMA, **how)


def least_of_parts(workload):
    """Return the least error of all plans that measure each part by itself, at the cost 1."""
    rows = []
    divided = parts(workload)
    names = {n for part in divided for f in part.workload.families for n in f.names}
    for part in divided:
        asked = Workload.of(part.workload.domain, part.workload.families)
        written = written_out(asked, [n for n in asked.domain if n in names])
        rows.append(compressed(written * part.change))
    return maximize(
        Dual(rows[0].shape[1], tuple(QueryPart(q, None) for q in rows if len(q))), 1e-5
    ).lower


def above(plan):
    """Return how many times as large the RMSE is as that of the best."""
    return math.sqrt(plan.rmse**2 * plan.workload.count / least_of_parts(plan.workload))


SPELLINGS = {
    "FILTER": lambda k: (
        "SELECT "
        + ", ".join(f"SUM(x{i}) FILTER (WHERE g = {i}) AS s{i}" for i in range(k))
        + " FROM t"
    ),
    "WHERE": lambda k: {f"s{i}": f"SELECT SUM(x{i}) AS s FROM t WHERE g = {i}" for i in range(k)},
    "CASE": lambda k: (
        "SELECT "
        + ", ".join(f"SUM(CASE WHEN g = {i} THEN x{i} END) AS s{i}" for i in range(k))
        + " FROM t"
    ),
    "ELSE 0": lambda k: (
        "SELECT "
        + ", ".join(f"SUM(CASE WHEN g = {i} THEN x{i} ELSE 0 END) AS s{i}" for i in range(k))
        + " FROM t"
    ),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("k", [8, 1, 2, 3, 5])
@pytest.mark.parametrize("spelled", SPELLINGS)
def test_sums_under_exclusive_conditions_are_as_exact_as_one_alone(con, spelled, k):
    plan = planned(con, SPELLINGS[spelled](k))
    assert plan.rmse == pytest.approx(100, rel=1e-5)
    assert 1 - 1e-5 <= plan.privacy_cost <= 1


SCRIPTS = {
    "counts, sums of the other rows": (
        {"a": "SELECT COUNT(*) AS n FROM t WHERE f", "b": "SELECT SUM(x0) AS s FROM t WHERE NOT f"},
        1.14412,
    ),
    "averages": (
        {c: f"SELECT AVG(x{i}) AS m FROM t WHERE g = {i}" for i, c in enumerate("abc")},
        2.82843,
    ),
    "by h": (
        {
            "a": "SELECT h, COUNT(*) AS n FROM t WHERE f GROUP BY h",
            "b": "SELECT h, SUM(x1) AS s FROM t WHERE f GROUP BY h",
            "c": "SELECT h, SUM(x2) AS s FROM t WHERE NOT f GROUP BY h",
        },
        1.37116,
    ),
    "nested": (
        {f"s{i}": f"SELECT SUM(x{i}) AS s FROM t WHERE g >= {i}" for i in range(6)},
        193.310,  # as with DECIMALs, as rows with NaN count as 0
    ),
    "decimals": (
        {
            "a": "SELECT g, SUM(d0) AS s FROM t WHERE f GROUP BY g",
            "b": "SELECT h, SUM(d1) AS s FROM t WHERE NOT f AND g < 4 GROUP BY h",
            "c": "SELECT h, COUNT(*) AS n FROM t GROUP BY h",
        },
        None,
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_parts_are_at_the_best_of_plans_that_measure_each_by_itself(con, name):
    script, added = SCRIPTS[name]
    plan = planned(con, script)
    assert 1 - 1e-5 < above(plan) < 1.0005
    if plan.added is not None:
        before = plan.added()
        assert before.rmse > plan.rmse
        assert before.privacy_cost < plan.privacy_cost <= 1  # the worst row doesn't pay all that
        assert sum(spent((b,)) for b in before.certified.blocks) == pytest.approx(1, rel=1e-12)
        assert plan.shared <= plan.rmse**2 * plan.workload.count * (1 + 1e-9)
        assert "shares are more than 100 % together" in plan.explain()
    if added is not None:
        assert (plan if plan.added is None else before).rmse == pytest.approx(added, rel=1e-4)


def exclusive(cells, rows=None, count=3):
    """Return sums of several measures by other keys, each under a condition of its own."""
    names = [f"v{i}" for i in range(count)]
    w = Workload({"kind": cells, "store": 40, "age": 60} | dict.fromkeys(names, 1))
    for i, name in enumerate(names):
        row = np.zeros((1, cells))
        row[0, i if rows is None else rows[i]] = 1
        w.add(["kind", "store", name], [Matrix(row), Identity(), Measure(9)], 1 / 81, name=name)
    return w


def test_large_domains_cost_rows_outside_of_conditions_nothing(never_whole):
    one, three = (registry.plan(exclusive(5, count=n), BUDGET) for n in (1, 3))
    assert three.rmse == pytest.approx(one.rmse, rel=2e-5)
    together = registry.plan(exclusive(5, [1, 1, 1]), BUDGET)
    assert together.rmse > 1.7 * one.rmse


def test_shares_are_certified_and_rows_that_all_have_are_paid_for(never_whole):
    w = exclusive(5)
    w.add(["age"], [Prefix()], name="ages")
    plan = registry.plan(w, BUDGET)
    assert plan.gap_among == "these parts in other shares"
    assert plan.gap < 2e-3
    errors = [registry.plan(exclusive(5, count=1), BUDGET).rmse ** 2 * 40] * 3
    ages = Workload({"age": 60}).add(["age"], [Prefix()])
    errors.append(registry.plan(ages, BUDGET).rmse ** 2 * 60)
    best = share(errors, np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1]]))
    assert plan.rmse**2 * plan.workload.count == pytest.approx(best.error, rel=1e-3)


@pytest.mark.parametrize("power", [1, 2])
def test_shares_are_the_best_there_are(power):
    rng = np.random.default_rng(power)
    for _ in range(20):
        errors = 10.0 ** rng.uniform(-9, 9, 3)
        costs = rng.random((4, 3)) * (rng.random((4, 3)) < 0.6)
        costs[rng.integers(4), :] = 1
        found = share(errors, costs, power)
        assert (costs @ found.shares).max() <= 1 + 1e-12
        assert found.error == pytest.approx(float(np.sum(errors / found.shares**power)))
        assert found.least <= found.error <= found.least * 1.001


def test_weights_and_conditions_of_any_kind(con):
    """Conditions that always or never hold, and weights far apart: never worse than added up."""
    always = "SELECT SUM(x0) AS s FROM t WHERE g >= 0"
    never = "SELECT SUM(x1) AS s FROM t WHERE g > 7"
    both = planned(con, {"a": always, "b": never, "c": "SELECT SUM(x2) AS s FROM t WHERE g = 1"})
    assert above(both) < 1.0005
    far = Workload({"g": 3, "v": 1, "w": 1})
    for i, (name, weight) in enumerate({"v": 1e9, "w": 1}.items()):
        row = np.eye(3)[[i]]
        far.add(["g", name], [Matrix(row), Measure(7)], weight, name=name)
    plan = registry.plan(far, BUDGET)
    assert plan.expected_error()["rmse"].to_list() == pytest.approx([7, 7], rel=1e-5)


def test_units_with_several_rows_pay_for_all_of_them_in_the_worst_cell():
    w = exclusive(5)
    one, four = (registry.plan(w, BUDGET, options=Options(contributions=k)) for k in (1, 4))
    assert four.rmse == pytest.approx(4 * one.rmse, rel=1e-5)
    assert four.privacy_cost <= 1


@pytest.mark.parametrize("objective", ["largest", "targets"])
def test_other_objectives_gain_as_well(con, objective):
    script = SPELLINGS["WHERE"](3)
    if objective == "largest":
        plan = planned(con, script, objective="largest")
        assert plan.rmse == pytest.approx(100, rel=1e-3)
        return
    plan = dpsql.plan(
        con,
        script,
        targets={f"{name}: SUM(x{i})": 100.0 for i, name in enumerate(script)},
        schema=SCHEMA,
    )
    assert float(plan.budget.mu_squared) == pytest.approx(1, rel=1e-2)


def test_a_plan_that_costs_too_much_after_rounding_is_made_again(con, monkeypatch):
    monkeypatch.setattr(one_budget, "MARGIN", 0)
    plan = planned(con, SPELLINGS["WHERE"](3))
    assert plan.privacy_cost <= 1
    assert plan.rmse == pytest.approx(100, rel=1e-5)
