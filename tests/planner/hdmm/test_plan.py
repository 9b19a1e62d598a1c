"""HDMM's plans against dense linear algebra: variances, unbiasedness, exact sensitivity."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import MechanismError
from dpsql.planner.comparison import svd_bound
from dpsql.planner.mechanisms import hdmm as hdmm
from dpsql.planner.mechanisms import hdmm_products
from dpsql.planner.mechanisms.base import Cost
from dpsql.planner.mechanisms.direct import assemble
from dpsql.privacy import Budget
from dpsql.workload import AllRange, Identity, Matrix, Prefix, Ranges, Total, Workload
from tests.helpers.mechanisms import planned_by, reason_of
from tests.oracle import every_space, family_matrix, space_matrix

BUDGETS = [Budget(mu=1), Budget(epsilon=1, delta=0)]


def mixed() -> Workload:
    w = Workload({"a": 6, "b": 3, "c": 5})
    w.add(["a"], [Prefix()], weight=2.0).add(["a", "b"], [AllRange(), Identity()])
    return w.add(["c"], [Prefix()]).add(["b", "c"], [Identity(), Identity()]).add([], [])


def joint() -> Workload:
    w = Workload({"a": 4, "b": 3, "c": 2}).add(["a", "b"], Matrix.affine((4, 3), (1, 1)))
    return w.add(["c"], [Identity()])


def marginals() -> Workload:
    w = Workload({"a": 4, "b": 3, "c": 2})
    for names in (["a", "b"], ["b", "c"], ["a"]):
        w.add(names, [Identity()] * len(names))
    return w


def zero() -> Workload:
    w = Workload({"a": 4, "b": 3}).add(["a", "b"], [Matrix(np.zeros((2, 4))), Prefix()])
    return w.add(["b"], [Identity()])


def few() -> Workload:
    w = Workload({"a": 8, "b": 3}).add(["a"], [Ranges([(0, 2), (1, 5)])])
    return w.add(["b"], [Total()]).add(["a", "b"], [Ranges([(2, 7)]), Prefix()])


def plans(workload, budget):
    """Every candidate, not only the best."""
    cost = Cost(budget, 2)
    for candidate in hdmm.candidates(workload, cost):
        strategies, reading = candidate.strategies, candidate.reading
        yield candidate, assemble(workload, cost, strategies, reading)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("workload", [mixed(), joint(), marginals(), few(), zero()])
def test_variances_and_costs_are_those_of_the_integer_matrices(workload, budget):
    count = 0
    for candidate, plan in plans(workload, budget):
        count += 1
        norms, spent = [], Fraction(0)
        for block, space in every_space(plan.certified.blocks):
            matrix = space_matrix(block, space, workload.domain)
            columns = np.abs(matrix).sum(axis=0) if budget.pure else (matrix**2).sum(axis=0)
            norms.append([Fraction(int(c), block.law.width) for c in columns])
        spent = max(map(sum, zip(*norms, strict=True)))
        limit = budget.amount / 2 if budget.pure else budget.mu_squared / 4
        assert limit * Fraction(999_999, 1_000_000) < spent <= limit
        error = sum(
            f.weight * float(v.sum())
            for f, v in zip(workload.families, plan.variances, strict=True)
        )
        assert plan.rmse**2 * workload.count == pytest.approx(error)
        noise = 2 / float(limit) ** 2 if budget.pure else 1 / float(limit)
        # Several products may answer a query; each is then answered from the best.
        assert error <= candidate.error * noise * (1 + 1e-3)
        if candidate.reading == "pooled" or len(candidate.strategies) == 1:
            assert error == pytest.approx(candidate.error * noise, rel=1e-3)
        assert error >= svd_bound(workload).at(budget, 2) * (1 - 1e-9)
    assert count >= 2


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("workload", [mixed(), joint(), marginals(), few(), zero()])
def test_answers_are_unbiased_and_linear_with_the_stated_variances(workload, budget):
    """Apply the reconstruction to each single measurement: that gives its matrix."""
    rng = np.random.default_rng(5)
    table = rng.integers(0, 50, tuple(workload.domain.values()))
    for _, plan in plans(workload, budget):
        exact, units = {}, []
        for block, space in every_space(plan.certified.blocks):
            rows = space_matrix(block, space, workload.domain).astype(np.int64)
            shape = [f.measurements for f in block.factors]
            exact[frozenset(space)] = (rows @ table.ravel()).reshape(shape)
            units += [(frozenset(space), at, block.law.variance) for at in range(len(rows))]
        answers = answered(plan, workload, exact)
        for family, found in zip(workload.families, answers, strict=True):
            expected = family_matrix(family, workload.domain) @ table.ravel()
            np.testing.assert_allclose(found.ravel(), expected, rtol=1e-6, atol=1e-4)
        zero = {key: np.zeros_like(values) for key, values in exact.items()}
        totals = [np.zeros(f.shape) for f in workload.families]
        for key, at, variance in units:
            one = zero[key].copy()
            one.flat[at] = 1
            for total, found in zip(
                totals, answered(plan, workload, zero | {key: one}), strict=True
            ):
                total += variance * found**2
        for total, stated in zip(totals, plan.variances, strict=True):
            np.testing.assert_allclose(total, stated, rtol=1e-5, atol=1e-9)


def answered(plan, workload, noisy):
    values = plan.values(noisy)
    answers = []
    for family in workload.families:
        names = [a for block in family.blocks for a in block.attributes]
        marginal = np.asarray(plan.reconstruction.marginal(names, values))
        tensor = marginal.reshape([block.queries.cells for block in family.blocks])
        for axis, block in enumerate(family.blocks):
            tensor = block.queries.apply(tensor, axis)
        answers.append(tensor)
    return answers


@pytest.mark.parametrize("budget", [*BUDGETS, Budget(epsilon=1e-4, delta=0)], ids=str)
def test_the_best_candidate_is_taken(budget):
    best = min(c.error for c in hdmm.candidates(mixed(), Cost(budget)))
    plan = planned_by("hdmm", mixed(), budget)
    assert plan.mechanism == "hdmm"
    unit = 2 / float(budget.amount) ** 2 if budget.pure else 1.0
    assert plan.rmse**2 * mixed().count == pytest.approx(best * unit, rel=1e-4)


def test_large_domains_are_measured_by_their_marginals():
    w = Workload({f"a{i}": 50 for i in range(10)})
    for i in range(9):
        w.add([f"a{i}", f"a{i + 1}"], [Prefix(), Identity()])
    plan = planned_by("hdmm", w, Budget(mu=1))
    assert {len(space) for b in plan.certified.blocks for space in b.spaces} == {2}
    assert plan.rmse**2 * w.count >= svd_bound(w).at(Budget(mu=1))


def test_equal_plans_have_equal_digests():
    first, again = (planned_by("hdmm", mixed(), BUDGETS[1]) for _ in range(2))
    assert first.certified.digest == again.certified.digest


def test_attributes_of_many_cells_are_measured_by_their_cells(monkeypatch):
    monkeypatch.setattr(hdmm_products, "MAX_CELLS", 30)
    w = Workload({"a": 200, "b": 2}).add(["a"], [Prefix()]).add(["a", "b"], [Identity()] * 2)
    assert reason_of("hdmm", w, Budget(mu=1)) is None
    plan = planned_by("hdmm", w, Budget(mu=1))
    assert all("cells" in block.solver for block in plan.planned)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_what_is_too_large_is_refused_with_its_size(budget):
    w = Workload({"a": 5000, "b": 5000}).add(["a", "b"], [Identity()] * 2)
    assert "a x b has 25,000,000 cells" in (reason_of("hdmm", w, budget) or "")
    with pytest.raises(MechanismError, match="25,000,000 cells"):
        planned_by("hdmm", w, budget)
    many = Workload({f"a{i}": 3000 for i in range(8)})
    for i in range(7):
        many.add([f"a{i}", f"a{i + 1}"], [Identity()] * 2)
    assert "63,000,000 cells" in (reason_of("hdmm", many, budget) or "")


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_attributes_that_nobody_asks_about_change_nothing(budget):
    w = Workload({"y": 3, "a": 100, "b": 50, "z": 1000}).add(["a"], [Identity()])
    w.add(["a", "b"], [Identity()] * 2).add(["b"], [Identity()])
    alone = Workload.of({"a": 100, "b": 50}, w.families)
    plan = planned_by("hdmm", w, budget)
    assert plan.certified.digest == planned_by("hdmm", alone, budget).certified.digest
    assert plan.expected_error().height == 3


def test_only_zeros_are_answered_exactly():
    plan = planned_by("hdmm", Workload({"a": 4}).add(["a"], Matrix(np.zeros((2, 4)))), Budget(mu=1))
    assert plan.rmse == 0.0


def test_an_empty_workload_is_refused():
    assert reason_of("hdmm", Workload({"a": 2}), Budget(mu=1)) == "the workload is empty"
    assert reason_of("hdmm", mixed(), Budget(mu=1)) is None


@pytest.mark.parametrize("budget", BUDGETS)
def test_queries_that_are_zero_take_nothing(budget):
    """The first is 0 along `a`. Along `b` its error was infinite, and 0 times that is NaN."""
    last = Matrix(np.array([[0.0, 1.0]]))
    w = Workload({"a": 1, "b": 8, "c": 2, "d": 2, "e": 2})
    w.add(["a", "b"], [Matrix(np.zeros((1, 1))), Identity()])
    w.add(["c"], [last]).add(["c", "d"], [last, last]).add(["c", "e"], [last, last])
    zero, *others = planned_by("hdmm", w, budget).variances
    assert not zero.any()
    alone = Workload({"c": 2, "d": 2, "e": 2})
    alone.add(["c"], [last]).add(["c", "d"], [last, last]).add(["c", "e"], [last, last])
    for found, expected in zip(others, planned_by("hdmm", alone, budget).variances, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0.05)
