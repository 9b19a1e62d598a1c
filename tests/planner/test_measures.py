"""Measures: sums of bounded values, planned beside counts."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpsql.engines.base import Counted
from dpsql.errors import InternalError, WorkloadError
from dpsql.linalg.labeled import LabeledArray
from dpsql.measurement.measure import measure
from dpsql.planner import registry
from dpsql.planner.mechanisms.base import Solved
from dpsql.planner.reconstruction.base import Aligned
from dpsql.privacy import Budget
from dpsql.workload import Identity, Matrix, Measure, Prefix, Total, Workload
from tests.helpers.charging import pay
from tests.helpers.seeded import SeededBits
from tests.oracle import reconstruct

KEYS = ("city", "day", "there")
DOMAIN = {"city": 5, "day": 7, "there": 2, "price": 1, "qty": 1}
THERE = Matrix([[0.0, 1.0]])
BUDGET = Budget(rho=0.5)
BOUNDS = {"price": 1000, "qty": 2**24}
MECHANISMS = ("querysmasher", "residualplanner+", "fourier", "hdmm", "gaussian")


def workload():
    """Counts, and two measures of different sizes and units."""
    w = Workload(DOMAIN)
    w.add(["city"], [Identity()], name="n")
    w.add(["city", "day"], [Identity(), Prefix()], name="n by day")
    w.add(["city", "price"], [Identity(), Measure(1000, 0.01)], weight=0.01, name="price")
    w.add(["price", "day"], [Measure(1000, 0.01), Prefix()], weight=0.02, name="price by day")
    w.add(["qty"], [Measure(2**24)], weight=1e-9, name="qty")
    w.add(["price", "city"], [Measure(1000, 0.01, 7.5), Identity()], weight=0.005, name="all")
    w.add(["there"], [THERE], name="there")
    w.add(
        ["day", "price"],
        [Identity(), Measure(1000, 0.01, -4)],
        weight=0.003,
        name="some",
        present=counts(["day", "there"], [Identity(), THERE]),
    )
    return w


def counts(names, factors):
    """Return a family of counts over the same domain."""
    return Workload(DOMAIN).add(names, factors).families[0]


def only(w, *numbers):
    return Workload.of(w.domain, [w.families[i] for i in numbers])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_part_is_planned_as_counts_are_and_shares_are_the_best(mechanism):
    """Total error (Σ M √E)²/C, with E the error of the counts alone at privacy cost 1.

    Two families have a center: they ask for counts, besides sums; one of them for those of some
    rows only.
    """
    w = workload()
    roots = 0.0
    for numbers, bound in (((0, 1, 5, 6, 7), 1), ((2, 3, 5, 7), 1000), ((4,), 2**24)):
        families = [w.families[i] for i in numbers]
        counted = [f.counted if bound > 1 else f.restored for f in families]
        weights = [f.weight * (f.unit if bound > 1 else f.center or 1) ** 2 for f in families]
        keys = {name: DOMAIN[name] for name in KEYS}
        alone = Workload.of(keys, counted).weighted([1e6 * x for x in weights])
        plan = registry.plan(alone, Budget(mu=1), mechanism)
        roots += bound * np.sqrt(plan.rmse**2 * alone.count / 1e6)
    plan = registry.plan(w, BUDGET, mechanism)
    assert plan.rmse**2 * w.count == pytest.approx(roots**2, rel=2e-3)
    variances = zip(w.families, plan.variances, strict=True)
    assert sum(f.weight * v.sum() for f, v in variances) == pytest.approx(roots**2, rel=2e-3)
    assert plan.certified.privacy_cost <= BUDGET.mu_squared
    assert float(plan.certified.privacy_cost) == pytest.approx(1.0, rel=1e-6)


def test_a_record_costs_what_its_largest_value_does():
    w = Workload({"city": 3, "v": 1}).add(["city", "v"], [Identity(), Measure(50)])
    plan = registry.plan(w, BUDGET)
    for block in plan.certified.blocks:
        norms = [np.square(f.matrix.astype(object)).sum(axis=0).max() for f in block.factors]
        assert block.sensitivity_squared == math.prod(norms) * 50**2
        assert block.privacy_cost == Fraction(block.sensitivity_squared, block.law.width)


def summed(tables, space):
    """Sum a table of all keys over those that a space doesn't have; in the space's order."""
    of = tables[next((name for name in space if name in tables), "n")]
    keys = [name for name in space if name in KEYS]
    projected = LabeledArray(KEYS, of).project(keys)
    return np.ascontiguousarray(projected.reshape([DOMAIN[name] for name in space]))


@pytest.mark.sampled(1)
@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ["querysmasher", "hdmm", "gaussian"])
def test_answers_are_unbiased_and_vary_as_stated(mechanism):
    """Of 400 releases: means within 5 standard errors, variances within 45 % (6 of theirs)."""
    w, random, bits = workload(), np.random.default_rng(3), SeededBits(11)
    plan = registry.plan(w, BUDGET, mechanism)
    n = random.integers(0, 40, (5, 7, 2))
    price, qty = random.integers(-1000, 1000, n.shape) * n, random.integers(0, 2**24, n.shape)
    tables = {"n": n, "price": price, "qty": qty}
    spaces = [space for block in plan.certified.blocks for space in block.spaces]
    counted = Counted({space: summed(tables, space) for space in spaces}, 1, BOUNDS)
    drawn = [[] for _ in w.families]
    for _ in range(400):
        measured = measure(pay(plan), counted, _bits=bits)
        for family, kept in zip(w.families, drawn, strict=True):
            kept.append(reconstruct(plan, measured, family))
    for family, variances, kept in zip(w.families, plan.variances, drawn, strict=True):
        exact = family.queries @ summed(tables, family.names).ravel().astype(float)
        if family.center:
            rows = summed(tables, family.restored.names).ravel()
            exact += family.center * (family.restored.queries @ rows)
        error = (np.mean(kept, axis=0) - exact.reshape(family.shape)) / np.sqrt(variances / 400)
        assert np.abs(error).max() < 5
        np.testing.assert_allclose(np.var(kept, axis=0), variances, rtol=0.45)


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({}, "counts as counts"),
        ({"price": 1000}, "counts as counts"),
        (BOUNDS | {"day": 1}, "counts as counts"),
        ({"price": 1001, "qty": 2**24}, "more to a sum than is paid for"),
    ],
)
def test_sums_of_which_a_row_may_add_more_than_is_paid_for_are_refused(bounds, said):
    w = workload()
    plan = registry.plan(w, BUDGET)
    spaces = [space for block in plan.certified.blocks for space in block.spaces]
    counted = Counted(
        {s: np.zeros([DOMAIN[a] for a in s], dtype=np.int64) for s in spaces}, 1, bounds
    )
    with pytest.raises(InternalError, match=said):
        measure(pay(plan), counted)


def test_answers_of_two_measures_are_independent():
    w = workload()
    reconstruction = registry.plan(w, BUDGET).reconstruction
    n, _, price, by_day, *_ = w.families
    ours, theirs = Aligned(n, ((0,),)), Aligned(price, ((0,), ()))
    assert not reconstruction.covariances(ours, theirs, (5,)).any()
    own = reconstruction.covariances(theirs, theirs, (5,))
    np.testing.assert_allclose(own, reconstruction.variances(price).ravel(), rtol=1e-9)
    weights = [(n, np.ones((1, 5))), (price, 3 * np.ones((1, 5))), (by_day, np.ones((1, 7)))]
    both = reconstruction.combined_variances(weights, w.domain)
    apart = sum(
        reconstruction.combined_variances(part, w.domain) for part in (weights[:1], weights[1:])
    )
    np.testing.assert_allclose(both, apart)
    assert both > 9 * reconstruction.combined_variances([(price, np.ones((1, 5)))], w.domain)


def test_sums_around_a_center_rest_on_counts_too():
    w = workload()
    reconstruction = registry.plan(w, BUDGET).reconstruction
    n, price, centered = (w.families[i] for i in (0, 2, 5))
    counts, sums, both = (
        Aligned(n, ((0,),)),
        Aligned(price, ((0,), ())),
        Aligned(centered, ((), (0,))),
    )
    of_n, of_price, of_both = (reconstruction.covariances(a, a, (5,)) for a in (counts, sums, both))
    np.testing.assert_allclose(of_both, of_price + 7.5**2 * of_n)
    np.testing.assert_allclose(of_both, reconstruction.variances(centered).ravel())
    np.testing.assert_allclose(reconstruction.covariances(both, counts, (5,)), 7.5 * of_n)
    np.testing.assert_allclose(reconstruction.covariances(sums, both, (5,)), of_price)
    less = [(centered, np.eye(5)), (price, -np.eye(5)), (n, -7.5 * np.eye(5))]
    left = reconstruction.combined_variances(less, w.domain)
    np.testing.assert_allclose(left, 0, atol=1e-9 * of_both.max())


def test_sums_of_some_rows_rest_on_the_counts_of_these():
    """In every part of it, and beside other answers, they are unit·Σv + center·N."""
    w = workload()
    reconstruction = registry.plan(w, BUDGET).reconstruction
    some = w.families[7]
    rows = some.present
    sums = replace(some, present=None, blocks=(some.blocks[0], replace(some.blocks[1], center=0.0)))
    ours, own, theirs = (Aligned(f, ((0,), ())) for f in (some, sums, rows))
    of_sums, of_rows = (reconstruction.covariances(a, a, (7,)) for a in (own, theirs))
    np.testing.assert_allclose(reconstruction.variances(some).ravel(), of_sums + 16 * of_rows)
    np.testing.assert_allclose(reconstruction.covariances(ours, theirs, (7,)), -4 * of_rows)
    np.testing.assert_allclose(reconstruction.covariances(own, ours, (7,)), of_sums)
    np.testing.assert_allclose(
        reconstruction.extent(some, w.domain)[0], (of_sums + 16 * of_rows).sum()
    )
    less = [(some, np.eye(7)), (sums, -np.eye(7)), (rows, 4 * np.eye(7))]
    np.testing.assert_allclose(reconstruction.combined_variances(less, w.domain), 0, atol=1e-6)
    for part in some.parts(3):
        assert part.present.shape == part.shape
        assert reconstruction.variances(part).shape == part.shape
    weights = [np.arange(1.0, 8), np.ones(1)]
    emphasised = some.emphasised(weights)
    np.testing.assert_allclose(
        emphasised.present.blocks[0].queries.matrix, emphasised.blocks[0].queries.matrix
    )
    assert not reconstruction.missing(some, w.domain)
    assert some.counted.present is None
    assert some.shown.present == rows


@pytest.mark.parametrize(
    ("factor", "names", "factors"),
    [
        (Measure(5, center=1.0), ["city"], [Identity()]),
        (Measure(5, center=1.0), ["there", "day"], [Identity(), Identity()]),
        (Measure(5), ["day", "there"], [Identity(), THERE]),
    ],
)
def test_the_counts_of_sums_are_of_the_same_groups(factor, names, factors):
    with pytest.raises(WorkloadError, match="are of other groups"):
        Workload(DOMAIN).add(["day", "price"], [Identity(), factor], present=counts(names, factors))


def by_city(*measures):
    """COUNT(*) and sums by city, each weighted by the largest value of a row."""
    w = Workload(DOMAIN).add(["city"], [Identity()], name="n")
    for bound, center in measures:
        of = Measure(bound, center=center)
        w.add(["city", "price"], [Identity(), of], weight=(bound + center) ** -2, name="sum")
    return w


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_values_around_their_middle_are_never_worse(mechanism):
    """A sum alone has the same error; with counts (√(5/4) + 1/2)² in place of (1 + 1)²."""
    direct, centered = by_city((1000, 0.0)), by_city((500, 500.0))
    alone = [registry.plan(only(w, 1), BUDGET, mechanism).rmse for w in (direct, centered)]
    assert alone[1] == pytest.approx(alone[0], rel=1e-3)
    both = [registry.plan(w, BUDGET, mechanism).rmse ** 2 for w in (direct, centered)]
    assert both[1] / both[0] == pytest.approx((math.sqrt(5 / 4) + 1 / 2) ** 2 / 4, rel=2e-3)


def test_two_measures_in_a_family_are_refused():
    w = Workload(DOMAIN).add(["price", "qty"], [Measure(5), Measure(6)])
    with pytest.raises(WorkloadError, match="two measures at once"):
        registry.plan(w, BUDGET)


def test_a_measure_has_one_bound():
    w = Workload(DOMAIN).add(["price"], [Measure(5)]).add(["city", "price"], [Total(), Measure(6)])
    with pytest.raises(WorkloadError, match="several bounds"):
        registry.plan(w, BUDGET)


@pytest.mark.parametrize("bound", [0, -1, 2**31, 1.5, True, None])
def test_bounds_are_whole_numbers(bound):
    with pytest.raises(WorkloadError, match="is not a whole number from 1"):
        Workload(DOMAIN).add(["price"], [Measure(bound)])


@pytest.mark.parametrize("center", [math.nan, math.inf, -math.inf])
def test_centers_are_finite(center):
    with pytest.raises(WorkloadError, match="is not a finite number"):
        Workload(DOMAIN).add(["price"], [Measure(5, center=center)])


def test_a_measure_has_an_attribute_of_its_own():
    with pytest.raises(WorkloadError, match="one cell, not in 5"):
        Workload(DOMAIN).add(["city"], [Measure(5)])


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "laplace"])
def test_errors_of_sums_that_ask_alike_are_learned_once(mechanism, monkeypatch):
    bounds = {f"x{i}": 1000 * 3**i for i in range(5)}
    w = Workload({"city": 4, **dict.fromkeys(bounds, 1)})
    for i, (name, bound) in enumerate(bounds.items()):
        w.add(["city", name], [Identity(), Measure(bound)], weight=2.0**-i)
    w.add(["city"], [Prefix()])
    budget = Budget(epsilon=1, delta=0) if mechanism == "laplace" else BUDGET
    planner, plans = type(registry.mechanism_of(mechanism)), []
    own = planner.plan
    monkeypatch.setattr(
        planner, "plan", lambda self, *args: plans.append(own(self, *args)) or plans[-1]
    )
    found = registry.plan(w, budget, mechanism)
    assert len(plans) == 2 + len(found.parts)  # one of the sums, the counts, and each with a share
    errors = [p.rmse**2 * p.workload.count for p in found.parts.values()]
    shares = [
        float(p.budget.amount if p.budget.pure else p.budget.mu_squared)
        for p in found.parts.values()
    ]
    marginal = [e / s for e, s in zip(errors, shares, strict=True)]  # the same for all, at best
    assert marginal == pytest.approx([marginal[0]] * len(marginal), rel=2e-3)


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "laplace"])
def test_sums_of_one_measure_are_planned_once_with_all_of_the_budget(mechanism, monkeypatch):
    w = Workload({"city": 4, "x": 1}).add(["city", "x"], [Identity(), Measure(1000)])
    budget = Budget(epsilon=1, delta=0) if mechanism == "laplace" else BUDGET
    planner, plans = type(registry.mechanism_of(mechanism)), []
    own = planner.plan
    monkeypatch.setattr(
        planner, "plan", lambda self, *args: plans.append(own(self, *args)) or plans[-1]
    )
    found = registry.plan(w, budget, mechanism)
    assert len(plans) == 1
    (part,) = found.parts.values()
    assert (part.budget.amount, part.budget.mu_squared) == (budget.amount, budget.mu_squared)
    assert found.privacy_cost == pytest.approx(float(budget.mu_squared), rel=1e-6)


def test_parts_are_solved_once_and_planned_as_if_each_time(monkeypatch, never_whole):
    """What is solved of a part doesn't depend on its share of the budget, which is found by it."""
    w = workload()
    once = registry.plan(w, BUDGET)
    solved, of = [], Solved.once

    def noted(self, workload, what, tolerance, solve):
        def noting():
            solved.append((workload, what))  # kept, so that no other has its id
            return solve()

        return of(self, workload, what, tolerance, noting)

    monkeypatch.setattr(Solved, "once", noted)
    registry.plan(w, BUDGET)
    steps = [(id(workload), what) for workload, what in solved]
    assert len(set(steps)) == len(steps) >= 3
    monkeypatch.setattr(Solved, "once", lambda self, workload, what, tolerance, solve: solve())
    again = registry.plan(w, BUDGET)
    assert [b.law for b in again.certified.blocks] == [b.law for b in once.certified.blocks]
    assert again.rmse == once.rmse
