"""Several tables in one plan: shares, costs and certificates as of plans for each."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.engines.base import Counted
from dpsql.errors import InternalError, WorkloadError
from dpsql.linalg.labeled import LabeledArray
from dpsql.measurement.certify import CertifiedPlan
from dpsql.measurement.measure import measure
from dpsql.planner import registry
from dpsql.planner.mechanisms import compared, measures
from dpsql.planner.mechanisms.base import Options
from dpsql.planner.mechanisms.measures import parts
from dpsql.privacy import Budget
from dpsql.workload import Identity, Matrix, Measure, Prefix, Total, Workload
from dpsql.workload.workload import UnitTable, named, over_all
from tests.benchmarks import several_parts
from tests.helpers.charging import pay
from tests.helpers.seeded import SeededBits
from tests.oracle import reconstruct

BUDGET = Budget(rho=0.5)
ROWS = {"customers": 1, "orders": 10, "items": 30}


def customers():
    w = Workload({"region": 4, "age": 6})
    w.add(["region"], Identity(), name="regions")
    return w.add(["region", "age"], [Identity(), Prefix()], name="ages")


def orders():
    w = Workload({"region": 5, "status": 3})
    w.add(["status"], Identity(), name="status")
    return w.add(["region", "status"], [Identity(), Identity()], weight=2.0, name="both")


def items():
    return Workload({"kind": 7}).add([], [], name="all").add(["kind"], Prefix(), name="kinds")


def bought():
    """Orders with sums: one around a center that all have, one that some rows have."""
    w = Workload({"status": 3, "there": 2, "price": 1, "qty": 1})
    w.add(["status"], Identity(), name="n")
    w.add(["price", "status"], [Measure(100, 0.5), Identity()], weight=1e-4, name="plain")
    w.add(["status", "qty"], [Identity(), Measure(7, 1.0, 3.0)], weight=1e-2, name="all")
    some = Workload({"status": 3, "there": 2})
    some.add(["status", "there"], [Identity(), Matrix([[0.0, 1.0]])])
    w.add(
        ["status", "qty"],
        [Identity(), Measure(7, 1.0, 3.0)],
        weight=1e-2,
        name="some",
        present=some.families[0],
    )
    return w


def joined(**workloads):
    tables = [UnitTable(name, ROWS[name]) for name in workloads]
    weights = [[f.weight for f in w.families] for w in workloads.values()]
    return over_all(list(zip(tables, workloads.values(), strict=True)), weights)


def alone(workload, rows, budget=BUDGET, mechanism="querysmasher"):
    return registry.plan(workload, budget, mechanism, Options(contributions=rows))


def total(plan):
    return plan.rmse**2 * plan.workload.count


@pytest.mark.parametrize("mechanism", ["querysmasher", "residualplanner+", "hdmm", "gaussian"])
@pytest.mark.parametrize("third", [{}, {"items": items()}])
def test_the_total_is_what_the_best_shares_of_single_plans_make_it(mechanism, third):
    """(Σ_r √(w_r T_r))², with T_r the total of the plan for one table alone, and w_r = 1/k²."""
    given = {"customers": customers(), "orders": orders()} | third
    plan = registry.plan(joined(**given), BUDGET, mechanism)
    roots = [
        np.sqrt(total(alone(w, ROWS[name], mechanism=mechanism)) / ROWS[name] ** 2)
        for name, w in given.items()
    ]
    assert total(plan) + plan.saved == pytest.approx(sum(roots) ** 2, rel=1e-6)
    assert (plan.saved > 0) == (mechanism == "querysmasher")
    assert plan.certified.contributions == 1
    assert float(plan.privacy_cost) == pytest.approx(float(BUDGET.mu_squared), rel=1e-6)
    shares = [float(part.privacy_cost) for part in plan.parts.values()]
    expected = [float(BUDGET.mu_squared) * root / sum(roots) for root in roots]
    # Where counts are compared, tables are measured for what that leaves, which moves shares a bit.
    assert shares == pytest.approx(expected, rel=2e-2 if plan.saved else 1e-6)


def test_the_shares_of_tables_do_not_depend_on_how_many_rows_of_a_unit_they_have():
    few = registry.plan(joined(customers=customers(), orders=orders()), BUDGET)
    weights = [[f.weight for f in w.families] for w in (customers(), orders())]
    tables = (UnitTable("customers", 1), UnitTable("orders", 1000))
    pairs = list(zip(tables, (customers(), orders()), strict=True))
    many = registry.plan(over_all(pairs, weights), BUDGET)
    for one, other in zip(few.parts.values(), many.parts.values(), strict=True):
        assert float(one.privacy_cost) == pytest.approx(float(other.privacy_cost), rel=1e-6)


def test_one_table_is_planned_as_without_others():
    (one,) = registry.plan(joined(orders=orders()), BUDGET).parts.values()
    other = alone(orders().weighted([f.weight / 100 for f in orders().families]), 10)
    assert total(one) == pytest.approx(total(other), rel=1e-9)
    assert one.privacy_cost == other.privacy_cost
    found = registry.plan(joined(orders=orders()), BUDGET)
    assert found.privacy_cost == other.privacy_cost
    assert found.gap == pytest.approx(other.gap, abs=1e-9)


@pytest.mark.parametrize("budget", [BUDGET, Budget(epsilon=1, delta=0)])
def test_the_cost_is_that_of_all_rows_of_a_unit_in_all_tables(budget):
    """Σ_r k_r² Σ Δ²/σ², exactly; with Laplace noise Σ_r k_r Σ Δ/b."""
    mechanism = "laplace" if budget.pure else "querysmasher"
    plan = registry.plan(joined(customers=customers(), orders=bought()), budget, mechanism)
    cost = Fraction(0)
    for block in plan.certified.blocks:
        *keys, of = block.factors
        k, bound = (1, 1) if "customers" in block.spaces[0] else (10, of.bound)
        power = 1 if budget.pure else 2
        norms = [np.abs(f.matrix.astype(object) ** power).sum(axis=0).max() for f in keys]
        change = (k * bound) ** power * int(np.prod(norms, dtype=object))
        cost += len(block.spaces) * Fraction(change, block.law.width)
    amount = budget.amount if budget.pure else budget.mu_squared
    assert cost <= amount
    assert float(cost) == pytest.approx(float(amount), rel=1e-6)
    if not budget.pure:
        assert plan.certified.privacy_cost == cost
    short = cost * 999 / 1000
    less = Budget(epsilon=short, delta=0) if budget.pure else Budget(rho=short / 2)
    with pytest.raises(InternalError, match="costs more"):
        CertifiedPlan(plan.certified.blocks, less)


def test_the_certified_gap_is_that_of_the_tables_together():
    plan = registry.plan(joined(customers=customers(), orders=orders(), items=items()), BUDGET)
    gaps = [alone(w, 1).gap for w in (customers(), orders(), items())]
    assert plan.gap <= max(gaps) + 1e-6


def tables_of(rng, domain):
    keys = [name for name in domain if name not in ("price", "qty")]
    n = rng.integers(0, 30, [domain[name] for name in keys])
    return keys, {"n": n, "price": rng.integers(-100, 101, n.shape) * n, "qty": n * 2}


def marginal(found, domain, names):
    keys, tables = found
    of = tables[next((name for name in names if name in tables), "n")]
    wanted = [name for name in names if name in keys]
    return LabeledArray(keys, of).project(wanted).reshape([domain[name] for name in names])


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ["querysmasher", "gaussian"])
def test_answers_are_unbiased_and_vary_as_stated(mechanism):
    """Of 300 releases over two tables, one of them with sums around centers."""
    rng, bits = np.random.default_rng(5), SeededBits(12)
    given = {"customers": customers(), "orders": bought()}
    data = {name: tables_of(rng, w.domain) for name, w in given.items()}
    w = joined(**given)
    plan = registry.plan(w, BUDGET, mechanism)

    def exact(names):
        name = next(n for n in given if n in names or any(a.startswith(f"{n}.") for a in names))
        own = [a.removeprefix(f"{name}.") for a in names if a != name]
        sizes = [w.domain[a] for a in names]
        return np.ascontiguousarray(marginal(data[name], given[name].domain, own).reshape(sizes))

    spaces = [space for block in plan.certified.blocks for space in block.spaces]
    bounds = {"customers": 1, "orders": 10, "orders.price": 1000, "orders.qty": 70}
    spaces += [(table,) for table in given]
    own = {"orders.price": 10, "orders.qty": 10}
    counted = Counted({s: exact(s) for s in spaces}, 1, bounds, totals=ROWS, rows=own)
    drawn = [[] for _ in w.families]
    for _ in range(300):
        measured = measure(pay(plan), counted, _bits=bits)
        for family, kept in zip(w.families, drawn, strict=True):
            kept.append(reconstruct(plan, measured, family))
    for family, variances, kept in zip(w.families, plan.variances, drawn, strict=True):
        truth = family.queries @ exact(family.names).ravel().astype(float)
        if family.center:
            rows = exact(family.restored.names).ravel()
            truth += family.center * (family.restored.queries @ rows)
        error = (np.mean(kept, axis=0) - truth.reshape(family.shape)) / np.sqrt(variances / 300)
        assert np.abs(error).max() < 5
        np.testing.assert_allclose(np.var(kept, axis=0), variances, rtol=0.5)


@pytest.mark.parametrize(
    ("bounds", "contributions", "said"),
    [
        ({}, 1, "counts as counts"),
        ({"customers": 1}, 1, "counts as counts"),
        ({"customers": 1, "orders": 11}, 1, "more to a sum than is paid for"),
        ({"customers": 2, "orders": 10}, 1, "more to a sum than is paid for"),
        ({"customers": 1, "orders": 10}, 2, "another number of rows"),
        ({"customers": 1, "orders": 10}, 10, "another number of rows"),
        ({"customers": 1, "orders": 10, "orders.status": 1}, 1, "counts as counts"),
    ],
)
def test_counts_of_more_rows_of_a_unit_than_are_paid_for_are_refused(bounds, contributions, said):
    w = joined(customers=customers(), orders=orders())
    plan = registry.plan(w, BUDGET)
    spaces = [space for block in plan.certified.blocks for space in block.spaces]
    spaces += [("customers",), ("orders",)]
    counts = {s: np.zeros([w.domain[a] for a in s], dtype=np.int64) for s in spaces}
    with pytest.raises(InternalError, match=said):
        measure(pay(plan), Counted(counts, contributions, bounds, totals=ROWS))
    charged = pay(plan)
    bounds = {"customers": 1, "orders": 10}
    assert measure(charged, Counted(counts, 1, bounds, totals=bounds)).values


@pytest.mark.parametrize(
    ("totals", "said"),
    [
        ({}, "not the total of a table"),
        ({"customers": 1}, "not the total of a table"),
        ({"customers": 1, "orders": 11}, "more rows in a table than is paid for"),
        ({"customers": 2, "orders": 10}, "more rows in a table than is paid for"),
        ({"customers": 1, "orders": -1}, "whole number of rows"),
        ({"customers": 1, "orders": 9.5}, "whole number of rows"),
    ],
)
def test_what_is_compared_are_totals_of_so_many_rows_of_a_unit(totals, said):
    w = joined(customers=customers(), orders=orders())
    plan = registry.plan(w, BUDGET)
    spaces = [space for block in plan.certified.blocks for space in block.spaces]
    spaces += [("customers",), ("orders",)]
    counts = {s: np.zeros([w.domain[a] for a in s], dtype=np.int64) for s in spaces}
    bounds = {"customers": 1, "orders": 10}
    with pytest.raises(InternalError, match=said):
        measure(pay(plan), Counted(counts, 1, bounds, totals=totals))


def test_no_block_is_of_two_tables():
    """All that is measured of two of them are differences of totals."""
    w = joined(customers=customers(), orders=bought())
    plan = registry.plan(w, BUDGET)
    for part in parts(w):
        table = str(part.measure).partition(".")[0]
        assert all(a.startswith(f"{table}.") for f in part.workload.families for a in f.names)
    for block in plan.certified.blocks:
        for space in block.spaces:
            assert len({name.partition(".")[0] for name in space}) == 1


def test_counts_that_go_with_sums_are_no_sums():
    w = Workload({"a": 3, "v": 1, "u": 1})
    for factor in (Measure(5), Measure(1, 0.5), Measure(1, 1.0, 2.0)):
        counts = Workload(w.domain).add(["a", "u"], [Identity(), factor]).families[0]
        own = Workload(w.domain).add(["a", "v"], [Identity(), Measure(9, 1.0, 4.0)], present=counts)
        with pytest.raises(WorkloadError, match="sums themselves"):
            registry.plan(own, BUDGET)


def test_a_table_with_several_bounds_is_refused():
    w = joined(orders=orders())
    other = over_all([(UnitTable("orders", 11), orders())], [[1.0, 1.0]])
    with pytest.raises(WorkloadError, match="several bounds"):
        parts(Workload.of(w.domain, [*w.families, *other.families]))
    with pytest.raises(WorkloadError, match="rows that count"):
        Workload({"t": 1}).add(["t"], Measure(1, rows=0))


def test_a_table_of_which_nothing_is_asked_costs_nothing():
    nothing = Workload({"kind": 7})
    w = joined(customers=customers(), items=nothing)
    assert total(registry.plan(w, BUDGET)) == pytest.approx(total(alone(customers(), 1)), rel=1e-9)


def test_targets_are_met_at_the_least_cost_of_each_table():
    w = joined(customers=customers(), orders=orders())
    names = {f.name for f in w.families}
    plan = registry.plan(w, None, options=Options(targets=dict.fromkeys(names, 20.0)))
    for family, variances in zip(w.families, plan.variances, strict=True):
        assert np.sqrt(variances.max()) <= 20 * (1 + 1e-9), family.name
    apart = sum(
        registry.plan(
            one, None, options=Options(targets=dict.fromkeys(names_of(one), 20.0), contributions=k)
        ).privacy_cost
        for one, k in ((customers(), 1), (orders(), 10))
    )
    assert float(plan.privacy_cost) <= float(apart) * 1.02


def names_of(workload):
    return [family.name for family in workload.families]


def test_what_is_shown_and_cut_is_so_for_what_is_restored_too():
    (family,) = [f for f in joined(orders=bought()).families if f.name == "all"]
    assert family.restored.measure.attributes == ("orders",)
    assert family.box((slice(1, 3),)).restored.shape == (2, 1)
    weights = [np.array([1.0, 2.0, 3.0]), np.ones(1)]
    assert family.emphasised(weights).restored.shape == family.shape
    hidden = replace(family, hidden=frozenset({0}))
    assert hidden.shown.restored.shape == hidden.shown.shape


NAMES = st.lists(st.text(st.sampled_from('ab."2 ,é'), min_size=1, max_size=4), max_size=4)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(NAMES, NAMES)
def test_no_two_columns_of_different_tables_have_one_name(tables, columns):
    found = [UnitTable(name, 1) for name in named(tables)]
    every = [(t.name, c, t.attribute(c)) for t in found for c in columns]
    assert len({t.name for t in found}) == len(found)
    for table in found:
        assert not any(a == table.name for _, _, a in every)
        for of, column, attribute in every:
            assert table.own(attribute) == (column if of == table.name else None)


def test_the_total_of_a_table_is_its_axis_alone():
    w = over_all(
        [(UnitTable("t", 3), Workload({"a": 2}).add([], []).add(["a"], Total()))], [[1, 1]]
    )
    assert w.families[0].names == ("t",)
    assert w.families[1].names == ("t.a", "t")
    assert registry.plan(w, BUDGET).marginals


def above_the_best(seeds):
    """By how many percent the RMSE of scripts over several tables is above that of the best."""
    found = []
    for seed in seeds:
        con, script, rows = several_parts.tables(seed)
        plan = dpsql.plan(con, script, budget=BUDGET, unit=dpsql.Unit("u", max_rows=rows))
        assert plan.certified.privacy_cost <= BUDGET.mu_squared
        least = several_parts.least_of_all(plan.workload)
        found.append(100 * (np.sqrt(total(plan) / least) - 1))
    return found


def test_plans_are_near_the_best_of_all_mechanisms():
    found = above_the_best(range(several_parts.SCRIPTS))
    assert np.median(found) <= 0.05
    assert max(found) <= 0.5


def test_without_blocks_for_what_they_answer_plans_are_nearly_as_near(monkeypatch):
    monkeypatch.setattr(measures, "MOST_AGAIN", 0)
    found = above_the_best(range(several_parts.SCRIPTS))
    assert np.median(found) <= 1.1
    assert max(found) <= 2.7


def test_counts_under_conditions_are_compared():
    """Two counts, each of some cells: 4/3 in place of 2, as for totals."""
    workload = Workload({"c": 5}).add(["c"], Matrix([[0, 1, 1, 0, 1]]))
    plan = registry.plan(joined(customers=workload, orders=workload), BUDGET)
    (one,) = plan.certified.differences
    assert [of and of.counted.tolist() for of in one.conditions] == [
        [False, True, True, False, True]
    ] * 2
    assert one.conditions[0].attributes == ("c",)
    variances = [plan.reconstruction.variances(f).item() for f in plan.workload.families]
    assert variances == pytest.approx([4 / 3, 4 / 3 * 100], rel=1e-5)
    also = registry.plan(joined(customers=workload, orders=orders()), BUDGET)
    (one,) = also.certified.differences
    assert one.conditions[0] is not None
    assert one.conditions[1] is None


@pytest.mark.parametrize("seed", [4, 12, 20])
def test_the_error_that_is_minimised_is_that_of_the_plan(seed):
    """Of one covariance of all tables, by least squares; and the plan's own before rounding."""
    con, script, rows = several_parts.tables(seed)
    plan = dpsql.plan(con, script, budget=BUDGET, unit=dpsql.Unit("u", max_rows=rows))
    asked = [compared.AskedTable.of(part.workload, part.change) for part in parts(plan.workload)]
    found = compared.resolved(asked, (), 1e-4)
    assert total(plan) == pytest.approx(found.error, rel=1e-3)  # weights are scaled for longer
    weights = compared.weights_of(found.shares, compared.FEW_ROUNDS)
    sizes = [one.rows.shape[1] for one in asked]
    ends = np.cumsum([0, *sizes])
    precision, queries = np.zeros((ends[-1], ends[-1])), []
    for i, (share, again, one) in enumerate(
        zip(found.shares, found.strategies, asked, strict=True)
    ):
        here = slice(ends[i], ends[i + 1])
        precision[here, here] = share * again.root.T @ again.root
        placed = np.zeros((len(one.rows), ends[-1]))
        placed[:, here] = one.rows
        queries.append(placed)
        for j in range(i):
            pair = np.zeros(ends[-1])
            pair[here], pair[ends[j] : ends[j + 1]] = 1, -1
            precision += weights[i, j] * np.outer(pair, pair)
    stacked = np.vstack(queries)
    error = np.trace(stacked @ np.linalg.pinv(precision, rcond=1e-12) @ stacked.T)
    assert error == pytest.approx(found.error, rel=1e-5)
