"""Totals of tables that are compared: less variance for all answers, claimed as it is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpsql.engines.base import Counted
from dpsql.linalg.labeled import LabeledArray
from dpsql.measurement.certify import spent
from dpsql.measurement.measure import measure
from dpsql.planner import registry
from dpsql.planner.mechanisms.base import Options
from dpsql.planner.mechanisms.distinct_units import UnitNoise
from dpsql.planner.reconstruction.base import Aligned
from dpsql.planner.reconstruction.parts import PartedReconstruction
from dpsql.privacy import Budget
from dpsql.workload import Identity, Matrix, Measure, Prefix, Workload
from dpsql.workload.workload import UnitTable, over_all
from tests.helpers.charging import pay
from tests.helpers.seeded import SeededBits
from tests.oracle import reconstruct

BUDGET = Budget(rho=0.5)


def totals(*rows):
    """The total of each of some tables, each with its bound."""
    tables = [UnitTable(f"t{i}", k) for i, k in enumerate(rows)]
    asked = [Workload({"a": 2}).add([], [], name=f"n{i}") for i in range(len(rows))]
    return over_all(list(zip(tables, asked, strict=True)), [[1.0]] * len(rows))


def one_by_one(plan):
    """The same plan without the differences."""
    parts = {name: part.reconstruction for name, part in plan.parts.items()}
    return PartedReconstruction(parts)


@pytest.mark.parametrize("rows", [(1, 1), (1, 10), (3, 10, 30), (2,) * 5, tuple(range(1, 11))])
def test_totals_alone_have_the_variance_of_the_formula(rows):
    """R²/(2R − 1) in units of k², in place of R; and R² for the sum, as before."""
    w, count = totals(*rows), len(rows)
    plan = registry.plan(w, BUDGET)
    for k, found in zip(rows, plan.variances, strict=True):
        assert found / k**2 == pytest.approx(count**2 / (2 * count - 1), rel=1e-6)
    assert float(plan.privacy_cost) == pytest.approx(float(BUDGET.mu_squared), rel=1e-6)
    assert plan.certified.privacy_cost == spent(plan.certified.blocks)  # the differences are free
    assert plan.rmse**2 * count == pytest.approx(count**3 / (2 * count - 1), rel=1e-6)
    gain = count * count / (plan.rmse**2 * count)
    assert gain == pytest.approx(2 - 1 / count, rel=1e-6)
    parts = [(f, np.array([[1 / k]])) for f, k in zip(w.families, rows, strict=True)]
    together = plan.reconstruction.combined_variances(parts, w.domain)
    assert together[0] == pytest.approx(count**2, rel=1e-6)
    signs = np.array([[1.0], [-1.0]])
    pair = [(f, s[None] / k) for (f, k, s) in zip(w.families, rows, signs, strict=False)]
    of_two = plan.reconstruction.combined_variances(pair, w.domain)
    assert of_two[0] == pytest.approx(2 * count * (count - 1) / (2 * count - 1), rel=1e-6)


@pytest.mark.parametrize(("count", "near"), [(2, 1e-4), (3, 1e-3), (4, 0.02), (5, 0.09)])
def test_few_equal_totals_are_as_exact_as_any_mechanism_makes_them(count, near):
    """The least error of counts of units by groups is that of totals of tables, too."""
    noise = UnitNoise(count, count)
    plan = registry.plan(totals(*[7] * count), BUDGET)
    assert plan.rmse**2 * count <= noise.error(noise.best()) * (1 + near)


def test_gaps_are_to_plans_for_each_table_and_said_to_be():
    plan = registry.plan(totals(1, 10), BUDGET)
    assert plan.gap == 0
    assert plan.saved / (plan.rmse**2 * 2 + plan.saved) == pytest.approx(1 / 3, rel=1e-6)
    assert "33.3% less variance than the best that measures each by itself" in plan.explain()
    alone = registry.plan(totals(4), BUDGET)
    assert not alone.certified.differences
    assert "compared" not in alone.explain()


@pytest.mark.parametrize("mechanism", ["residualplanner+", "hdmm", "gaussian", "laplace"])
def test_other_mechanisms_compare_nothing(mechanism):
    budget = Budget(epsilon=1, delta=0) if mechanism == "laplace" else BUDGET
    plan = registry.plan(totals(1, 10), budget, mechanism)
    assert not plan.certified.differences
    assert plan.saved == 0


# ── of any scripts ─────────────────────────────────────────────────────────────────────────


def some_table(rng, number):
    """A random workload over three keys, maybe with sums around a center."""
    sizes = {
        "a": int(rng.integers(2, 5)),
        "b": int(rng.integers(2, 4)),
        "c": int(rng.integers(2, 40)),
    }
    w = Workload(sizes | {"v": 1})
    names = list(sizes)
    for i in range(int(rng.integers(1, 4))):
        chosen = [n for n in names if rng.random() < 0.5]
        factors = [Prefix() if rng.random() < 0.3 else Identity() for _ in chosen]
        w.add(chosen, factors, weight=float(rng.uniform(0.2, 3)), name=f"{number} {i}")
    if rng.random() < 0.4:
        w.add(["a", "v"], [Identity(), Measure(9, 1.0, 4.0)], weight=0.05, name=f"{number} sum")
    return w


def some_script(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    tables = [UnitTable(f"t{i}", int(rng.choice([1, 2, 10, 37]))) for i in range(count)]
    asked = [some_table(rng, i) for i in range(count)]
    weights = [[f.weight for f in w.families] for w in asked]
    return rng, over_all(list(zip(tables, asked, strict=True)), weights)


@pytest.mark.parametrize("seed", range(30))
def test_no_answer_and_no_combination_is_worse(seed):
    rng, w = some_script(seed)
    plan = registry.plan(w, BUDGET)
    before = one_by_one(plan)
    assert plan.certified.privacy_cost == spent(plan.certified.blocks) <= BUDGET.mu_squared
    for family, found in zip(w.families, plan.variances, strict=True):
        assert (found <= before.variances(family) * (1 + 1e-9)).all()
    total = sum(f.weight * v.sum() for f, v in zip(w.families, plan.variances, strict=True))
    assert plan.rmse**2 * w.count == pytest.approx(total, rel=1e-6)
    for _ in range(5):
        terms = [(f, rng.normal(size=(3, f.count))) for f in w.families]
        found = plan.reconstruction.combined_variances(terms, w.domain)
        assert (found > 0).all()
        assert (found <= before.combined_variances(terms, w.domain) * (1 + 1e-9)).all()


@pytest.mark.parametrize("seed", range(8))
def test_variances_covariances_and_combinations_agree(seed):
    """Var(a + b) = Var(a) + Var(b) + 2 Cov(a, b), for answers of any two tables."""
    rng, w = some_script(seed)
    plan = registry.plan(w, BUDGET)
    of = plan.reconstruction
    for first, second in itertools.combinations(w.families, 2):
        i, j = (int(rng.integers(f.count)) for f in (first, second))
        one, other = (single(f, n) for f, n in ((first, i), (second, j)))
        axes = [tuple(() for _ in f.blocks) for f in (one, other)]
        sides = [Aligned(f, a) for f, a in zip((one, other), axes, strict=True)]
        covariance = float(of.covariances(*sides, ()))
        apart = sum(float(of.variances(f).sum()) for f in (one, other))
        both = of.combined_variances([(one, np.ones((1, 1))), (other, np.ones((1, 1)))], w.domain)
        assert both[0] == pytest.approx(apart + 2 * covariance, rel=1e-7)
        itself = float(of.covariances(sides[0], sides[0], ()))
        assert itself == pytest.approx(float(of.variances(one).sum()), rel=1e-7)


def single(family, number):
    """One query of a family."""
    places = np.unravel_index(number, family.shape)
    return family.box([slice(int(i), int(i) + 1) for i in places])


def exact_of(rng, w):
    """Random rows: a marginal of each table's keys, with sums."""
    found = {}
    for table in sorted({n for n in w.domain if "." not in n}):
        keys = [n for n in w.domain if n.startswith(f"{table}.") and not n.endswith(".v")]
        n = rng.integers(0, 30, [w.domain[name] for name in keys])
        found[table] = keys, {table: n, f"{table}.v": n * 2}

    def exact(names):
        table = names[0].partition(".")[0]
        keys, arrays = found[table]
        of = arrays[next(a for a in names if a in arrays)]
        own = LabeledArray(keys, of).project([a for a in names if a in keys])
        return np.ascontiguousarray(own.reshape([w.domain[a] for a in names]))

    return exact


@pytest.mark.statistical
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_answers_of_all_tables_are_unbiased_and_vary_together_as_stated(seed):
    """1,000 releases: means, variances, and the variances of combinations across tables."""
    rng, w = some_script(seed)
    plan = registry.plan(w, BUDGET)
    differences = plan.certified.differences
    assert differences
    exact, bits, repeats = exact_of(rng, w), SeededBits(seed), 1000
    spaces = [space for block in plan.certified.blocks for space in block.spaces]
    spaces += [(table,) for one in differences for table in one.tables]
    families = [b for f in w.families for b in f.blocks]
    rows = {b.attributes[0]: b.rows for b in families if b.of_rows}
    bounds = rows | {b.attributes[0]: b.rows * b.bound for b in families if b.bound}
    summed = {b.attributes[0]: b.rows for b in families if b.bound}
    counted = Counted({s: exact(s) for s in spaces}, 1, bounds, totals=rows, rows=summed)
    drawn = [[] for _ in w.families]
    for _ in range(repeats):
        measured = measure(pay(plan), counted, _bits=bits)
        for family, kept in zip(w.families, drawn, strict=True):
            kept.append(reconstruct(plan, measured, family).ravel())
    truths = []
    for family, variances, kept in zip(w.families, plan.variances, drawn, strict=True):
        truth = family.queries @ exact(family.names).ravel().astype(float)
        if family.center:
            truth = truth + family.center * (
                family.restored.queries @ exact(family.restored.names).ravel()
            )
        truths.append(truth)
        error = (np.mean(kept, axis=0) - truth) / np.sqrt(variances.ravel() / repeats)
        assert np.abs(error).max() < 5
        np.testing.assert_allclose(np.var(kept, axis=0), variances.ravel(), rtol=0.25)
    coefficients = [rng.choice([-1.0, 1.0], (6, f.count)) for f in w.families]
    claimed = plan.reconstruction.combined_variances(
        list(zip(w.families, coefficients, strict=True)), w.domain
    )
    sums = sum(np.array(k) @ c.T for k, c in zip(drawn, coefficients, strict=True))
    np.testing.assert_allclose(sums.var(axis=0), claimed, rtol=0.25)


# ── of what else is planned ────────────────────────────────────────────────────────────────


def test_a_table_whose_total_does_not_follow_is_left_out():
    w = [Workload({"a": 5}) for _ in range(3)]
    w[0].add(["a"], Matrix(np.array([[1.0, -1.0, 0, 0, 0], [0, 1.0, -1.0, 0, 0]])), name="apart")
    w[1].add(["a"], Identity(), name="cells")
    w[2].add([], [], name="total")
    pairs = [(UnitTable(f"t{i}", 2), one) for i, one in enumerate(w)]
    plan = registry.plan(over_all(pairs, [[1.0]] * 3), BUDGET)
    (one,) = plan.certified.differences
    assert one.space == {"t1", "t2"}


def test_counts_of_units_and_sums_are_no_totals():
    domain = {"g": 4, "u": 1, "s": 1, "x": 1}
    w = Workload(domain)
    w.add(["u", "g"], [Measure(1, rows=3, of_units=True), Identity()], name="units")
    w.add(["s"], [Measure(1, rows=2)], name="signs")
    w.add(["x"], [Measure(1, rows=2)], name="more signs")
    assert not registry.plan(w, BUDGET).certified.differences


def test_targets_take_no_larger_budget():
    w = totals(1, 10, 30)
    asked = {f.name: 10.0 * k for f, k in zip(w.families, (1, 10, 30), strict=True)}
    plan = registry.plan(w, None, options=Options(targets=asked))
    for family, found in zip(w.families, plan.variances, strict=True):
        assert np.sqrt(found) <= asked[family.name] * (1 + 1e-9)
    # Without: 3/μ² = 100.
    assert float(plan.privacy_cost) == pytest.approx(0.03 / (5 / 3), rel=1e-2)


def test_the_largest_variance_is_no_larger():
    w = totals(1, 10, 30)
    w = w.weighted([1.0, 0.01, 1 / 900])
    plan = registry.plan(w, BUDGET, options=replace(Options(), objective="largest"))
    found = [f.weight * float(v.sum()) for f, v in zip(w.families, plan.variances, strict=True)]
    assert max(found) == pytest.approx(9 / 5, rel=1e-2)


def test_whatever_is_in_a_plan_its_cost_is_that_of_the_worst_unit():
    """By the vertices: a unit has all rows of some tables, and none of the others."""
    _, w = some_script(4)
    plan = registry.plan(w, BUDGET)
    costs, all_ = {}, Fraction(0)
    for block in plan.certified.blocks:
        for space in block.spaces:
            table = space[0].partition(".")[0]
            costs[table] = costs.get(table, Fraction(0)) + block.cost() / len(block.spaces)
    for chosen in itertools.product((0, 1), repeat=len(costs)):
        has = dict(zip(costs, chosen, strict=True))
        cost = sum((c for t, c in costs.items() if has[t]), Fraction(0))
        for one in plan.certified.differences:
            cost += one.weight * (has[one.tables[0]] - has[one.tables[1]]) ** 2
        all_ = max(all_, cost)
    assert all_ == plan.privacy_cost
