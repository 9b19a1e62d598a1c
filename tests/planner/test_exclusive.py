"""Counts under conditions that exclude each other, over more cells than are planned at once."""

from __future__ import annotations

import math
import random

import duckdb
import pytest

import dpsql
from dpsql.planner.mechanisms import querysmasher
from dpsql.planner.mechanisms.querysmasher import plan
from dpsql.privacy import Budget
from dpsql.workload import Identity, Matrix, Prefix, Workload
from tests.oracle import assert_best_and_as_stated, exact_cost

pytestmark = pytest.mark.usefixtures("never_whole")
BUDGET = Budget(mu=1)
DOMAIN = {"a": 2, "b": 3, "g": 4, "h": 3}


def condition(cells, some):
    return Matrix([[float(cell in some) for cell in range(cells)]])


def some_workload(seed):
    """Ask marginals and running totals under conditions on g and h that leave a cell out."""
    rng, workload = random.Random(seed), Workload(DOMAIN)  # noqa: S311
    for _ in range(rng.randint(2, 5)):
        names = rng.choice([["a"], ["b"], ["a", "b"]])
        queries = [rng.choice([Identity(), Identity(), Prefix()]) for _ in names]
        for name, chance in (("g", 0.9), ("h", 0.3)):
            if rng.random() < chance:
                cells = DOMAIN[name]
                some = rng.sample(range(cells - 1), rng.randint(1, cells - 2))
                names, queries = [*names, name], [*queries, condition(cells, some)]
        workload.add(names, queries, weight=rng.choice([1, 1, 0.3, 4]))
    return workload


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(80))
def test_answers_are_as_stated_at_the_cost_of_the_worst_row(seed, monkeypatch):
    workload = some_workload(seed)
    found = plan(workload, BUDGET)
    assert_best_and_as_stated(found)
    cost = exact_cost(found.certified.blocks, workload.domain)
    assert cost <= found.privacy_cost <= 1
    assert found.gap >= 0
    monkeypatch.setattr(querysmasher, "_exclude_each_other", lambda *_: False)
    added = plan(workload, BUDGET)
    assert found.rmse <= added.rmse * (1 + 1e-9)
    if found.shared:
        assert 1 - 2e-5 <= cost == found.privacy_cost
        assert found.gap < 1e-3


def exclusive(count, cells):
    """Ask pairs of columns with running totals, each under a condition of its own."""
    workload = Workload({"a": 8, "b": 8, "c": 8, "g": cells})
    for i, names in zip(range(count), (("a", "b"), ("b", "c"), ("a", "c")), strict=False):
        queries = [Prefix() if i == 1 else Identity(), Identity(), condition(cells, {i})]
        workload.add([*names, "g"], queries)
    return workload


@pytest.mark.parametrize(("count", "above"), [(2, 1.02), (3, 1.04)])
def test_each_is_nearly_as_exact_as_if_it_were_asked_alone(count, above):
    """Errors would be √2 or √3 times as large, if each paid for all.

    What is left is that running totals and single values of one column have one reference.
    """
    workload = exclusive(count, 4)
    each = [plan(Workload.of(workload.domain, [f]), BUDGET) for f in workload.families]
    alone = math.sqrt(sum(p.rmse**2 * p.workload.count for p in each) / workload.count)
    found = plan(workload, BUDGET)
    assert alone <= found.rmse < above * alone
    assert 1 - 2e-5 <= found.privacy_cost <= 1
    assert "shares are more than 100 % together" in found.explain()


def test_weights_far_apart_and_conditions_that_no_cell_meets(monkeypatch):
    workload = Workload(DOMAIN)
    workload.add(["a", "g"], [Prefix(), condition(4, {0})], weight=1e9)
    workload.add(["b", "g"], [Identity(), condition(4, {1})], weight=1e-9)
    workload.add(["a", "g"], [Identity(), condition(4, set())])
    found = plan(workload, BUDGET)
    assert not found.variances[2].any()
    monkeypatch.setattr(querysmasher, "_exclude_each_other", lambda *_: False)
    assert found.rmse <= plan(workload, BUDGET).rmse


@pytest.mark.parametrize("how", [{"objective": "largest"}, {"targets": 1.0}])
def test_the_largest_errors_are_less_too(how, monkeypatch):
    workload = exclusive(2, 3)
    if "targets" in how:
        how = {"targets": {family.name: 1.0 for family in workload.families}}

    def found():
        planned = plan(workload, None if "targets" in how else BUDGET, **how)
        return planned, max(v.max() for v in planned.variances) * planned.budget.mu_squared

    planned, needed = found()
    assert planned.privacy_cost <= planned.budget.mu_squared
    monkeypatch.setattr(querysmasher, "_exclude_each_other", lambda *_: False)
    _, before = found()
    assert needed < 0.8 * before


@pytest.mark.parametrize("rows", [(1, 1), (2, 3)])
@pytest.mark.parametrize("asked", ["total", "groups", "both"])
def test_tables_that_are_compared_add_up_what_each_costs(rows, asked):
    """The cost of the worst row holds where each record is one row, and totals aren't compared."""
    con, sizes = duckdb.connect(), {"k": 6, "m": 20, "g": 4, "q": 15}
    domains = {name: dpsql.Domain.integers(0, n - 1) for name, n in sizes.items()}
    units = {}
    for table, most in zip("tr", rows, strict=True):
        con.execute(f"CREATE TABLE {table} (p INTEGER, k INTEGER, m INTEGER, g INTEGER, q INTEGER)")
        units[table] = dpsql.Unit("p", most)

    def pair(table):
        return {
            f"{table}{k}": f"SELECT {by}, COUNT(*) AS n FROM {table} WHERE k = {k} GROUP BY {by}"
            for k, by in enumerate(("m, g", "g, q"))
        }

    more = {
        "total": {"n": "SELECT COUNT(*) AS n FROM r"},
        "groups": {"n": "SELECT m, COUNT(*) AS n FROM r GROUP BY m"},
        "both": pair("r"),
    }
    session = dpsql.Session(con, schema=dpsql.Schema(dict.fromkeys("tr", domains), units=units))
    found = session.plan(pair("t") | more[asked], budget=BUDGET)
    assert found.privacy_cost <= 1
    assert found.gap >= 0


def test_the_bound_of_single_answers_is_one_of_shared_costs():
    workload = exclusive(2, 4)
    found = plan(workload, BUDGET, objective="largest")
    assert 0 < found.gap < 0.3
    assert found.gap_among == "these residual spaces in other shares"


def inside(cells, rows):
    """Return queries that leave out the last cell."""
    return Matrix([[*map(float, row), 0.0] for row in rows(cells - 1)])


def totals(cells):
    return [[1.0] * (i + 1) + [0.0] * (cells - i - 1) for i in range(cells)]


def each(cells):
    return [[float(i == j) for j in range(cells)] for i in range(cells)]


def everything(cells):
    return [[1.0] * cells]


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("asked", [totals, each])
def test_aggregates_of_columns_that_leave_rows_out_are_planned_among_the_rows_that_are_left(
    monkeypatch, asked, columns
):
    """As well as if nothing was left out: columns of which nobody asks cost nothing."""
    sizes = {f"c{i}": 4 + i for i in range(columns)}
    whole, with_others = Workload(sizes), Workload({name: n + 1 for name, n in sizes.items()})
    for i, name in enumerate(sizes):
        weight = 1.0 + i
        whole.add([name], [Matrix(asked(sizes[name]))], weight=weight)
        queries = [
            inside(n + 1, asked if other == name else everything) for other, n in sizes.items()
        ]
        with_others.add(list(sizes), queries, weight=weight)
    found = plan(with_others, BUDGET)
    assert_best_and_as_stated(found)
    assert exact_cost(found.certified.blocks, with_others.domain) <= found.privacy_cost <= 1
    assert found.rmse <= plan(whole, BUDGET).rmse * (1 + 1e-3)
    monkeypatch.setattr(querysmasher, "_leave_out_alike", lambda *_: set())
    assert found.rmse <= plan(with_others, BUDGET).rmse * (1 + 1e-9)
