"""Marginals that are measured as they are: against dense linear algebra over all joint cells."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from dpsql.engines.base import Counted
from dpsql.errors import InternalError
from dpsql.measurement.factors import DenseFactor, IdentityFactor
from dpsql.measurement.measure import measure
from dpsql.planner.mechanisms.base import Cost
from dpsql.planner.mechanisms.direct import MarginalStrategy, assemble, error_of, shares
from dpsql.planner.plans.plan import Plan
from dpsql.planner.reconstruction.base import Aligned
from dpsql.planner.reconstruction.marginals import MarginalReconstruction, PooledReconstruction
from dpsql.planner.reconstruction.measured import Space
from dpsql.privacy import Budget
from dpsql.workload import AllRange, Identity, Matrix, Prefix, Total, Workload
from tests.helpers.charging import pay
from tests.helpers.mechanisms import planned_by
from tests.helpers.seeded import SeededBits
from tests.oracle import family_matrix, reconstruct

SIZES = {"a": 4, "b": 3, "c": 2, "d": 1}
BUDGETS = [Budget(rho=0.5), Budget(epsilon=1, delta=0)]
DIRECT = [("gaussian", BUDGETS[0]), ("laplace", BUDGETS[1])]
"""Mechanisms of which each query is answered from one marginal."""


def workload() -> Workload:
    found = Workload(SIZES)
    found.add(["a"], [Prefix()], name="prefix")
    found.add(["b", "a"], [Identity(), Identity()], weight=2.0, name="table")
    found.add([("c", "b")], Matrix(np.arange(18).reshape(3, 6) % 5), name="joint")
    found.add(["d", "a"], [Identity(), AllRange()], name="single")
    found.add([], [], name="total")
    return found


def directly(asked: Workload, budget: Budget, **options: Any) -> Plan:
    return planned_by("laplace" if budget.pure else "gaussian", asked, budget, **options)


def pooled(budget: Budget) -> Plan:
    """Weighted marginals, of which no one says it all."""
    sets = [(("c", "b"), 0.3), (("b", "a"), 0.5), (("d", "a"), 0.1), ((), 0.1)]
    strategies = []
    for names, share in sets:
        factors = tuple(
            IdentityFactor((i,), (SIZES[a],), 1 if i else 1000) for i, a in enumerate(names)
        ) or (DenseFactor((), (), np.array([[1000]])),)
        strategies.append(MarginalStrategy(names, factors, share, "weights"))
    return assemble(workload(), Cost(budget), strategies, "pooled")


def written(space: Space) -> np.ndarray:
    """The measurements of one marginal over all joint cells, in the order of SIZES."""
    product = np.ones((1, 1))
    for factor in space.factors:
        product = np.kron(product, factor.matrix)
    order = [a for f in space.factors for a in space.of(f)]
    rows = product.reshape(-1, *(SIZES[a] for a in order))
    rows = rows.transpose(0, *(1 + order.index(a) for a in SIZES if a in order))
    spread = [SIZES[a] if a in order else 1 for a in SIZES]
    full = np.broadcast_to(rows.reshape(-1, *spread), (len(product), *SIZES.values()))
    return full.reshape(len(product), -1)


def dense(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """All measurements with unit noise, and the covariance of the cells by least squares."""
    rows = np.vstack(
        [
            written(Space.of_block(space, block)) / math.sqrt(block.law.variance)
            for block in plan.certified.blocks
            for space in block.spaces
        ]
    )
    return rows, np.linalg.pinv(rows.T @ rows)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_pooled_marginals_are_least_squares(budget: Budget) -> None:
    plan = pooled(budget)
    rows, covariance = dense(plan)
    for family, variances in zip(plan.workload.families, plan.variances, strict=True):
        queries = family_matrix(family, SIZES)
        if family.name != "joint":  # b x c is measured, so that all of it is determined
            np.testing.assert_allclose(queries @ np.linalg.pinv(rows) @ rows, queries, atol=1e-9)
        exact = np.einsum("ij,jk,ik->i", queries, covariance, queries)
        np.testing.assert_allclose(variances.ravel(), exact, rtol=1e-9)
    total = sum(
        f.weight * v.sum() for f, v in zip(plan.workload.families, plan.variances, strict=True)
    )
    assert plan.rmse == pytest.approx(math.sqrt(total / plan.workload.count), rel=1e-9)
    assert math.fsum(b.error for b in plan.planned) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize(("name", "budget"), DIRECT)
def test_each_query_follows_from_its_marginal_alone(name: str, budget: Budget) -> None:
    plan = planned_by(name, workload(), budget)
    reconstruction = plan.reconstruction
    assert isinstance(reconstruction, MarginalReconstruction)
    for family, variances in zip(plan.workload.families, plan.variances, strict=True):
        space = reconstruction.place(family.attributes).space
        rows = written(space)
        answering = family_matrix(family, SIZES) @ np.linalg.pinv(rows)
        np.testing.assert_allclose(answering @ rows, family_matrix(family, SIZES), atol=1e-9)
        exact = space.noise * np.square(answering).sum(axis=1)
        np.testing.assert_allclose(variances.ravel(), exact, rtol=1e-9)
        sums = (exact.sum(), exact.max())
        np.testing.assert_allclose(reconstruction.extent(family, SIZES), sums, rtol=1e-9)
        np.testing.assert_allclose(reconstruction._large_extent(family, SIZES), sums, rtol=1e-9)


@pytest.mark.sampled(1)
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("make", "budget"),
    [
        pytest.param(make, budget, id=f"{name}, {budget}", marks=[pytest.mark.long] * long)
        for name, make, budget, long in [
            ("direct", lambda b: directly(workload(), b), BUDGETS[0], False),
            ("direct", lambda b: directly(workload(), b), BUDGETS[1], True),
            ("pooled", pooled, BUDGETS[0], True),
            ("pooled", pooled, BUDGETS[1], False),
        ]
    ],
)
def test_answers_are_unbiased_and_vary_as_stated(make, budget: Budget) -> None:
    plan, draws = make(budget), 600  # so the variances have 6 standard errors of room
    counts = np.arange(24).reshape(*SIZES.values()) * 3
    marginals = {}
    for block in plan.certified.blocks:
        for space in block.spaces:
            gone = tuple(i for i, a in enumerate(SIZES) if a not in space)
            left = [a for a in SIZES if a in space]
            tensor = counts.sum(axis=gone).transpose([left.index(a) for a in space])
            marginals[space] = tensor
    bits = SeededBits(11)
    found: list[list[np.ndarray]] = [[] for _ in plan.workload.families]
    for _ in range(draws):
        measured = measure(pay(plan), Counted(marginals, 1), _bits=bits)
        for answers, family in zip(found, plan.workload.families, strict=True):
            answers.append(reconstruct(plan, measured, family).ravel())
    for answers, family, variances in zip(
        found, plan.workload.families, plan.variances, strict=True
    ):
        sample = np.array(answers)
        exact = family_matrix(family, SIZES) @ counts.ravel()
        error = np.sqrt(variances.ravel() / draws)
        assert (np.abs(sample.mean(axis=0) - exact) < 5.5 * error).all()
        assert (np.abs(sample.var(axis=0) / variances.ravel() - 1) < 0.35).all()


def aligned(plan: Plan, name: str, axes: tuple[tuple[int, ...], ...]) -> Aligned:
    return Aligned(plan.families(name)[0], axes)


@pytest.mark.parametrize(
    "make", [pooled, lambda b: directly(workload(), b)], ids=["pooled", "direct"]
)
def test_covariances(make) -> None:
    plan = make(BUDGETS[0])
    reconstruction = plan.reconstruction
    first, second = aligned(plan, "prefix", ((0,),)), aligned(plan, "table", ((1,), (0,)))
    ours, theirs = (family_matrix(f, SIZES) for f in (first.family, second.family))
    if isinstance(reconstruction, PooledReconstruction):
        _, covariance = dense(plan)
    else:
        places = [reconstruction.place(s.family.attributes) for s in (first, second)]
        assert places[0] is not places[1]
        covariance = np.zeros((24, 24))
    prefix = Aligned(first.family, ((0,),))
    both = reconstruction.covariances(prefix, prefix, (4,))
    np.testing.assert_allclose(both, reconstruction.variances(first.family), rtol=1e-9)
    sums = np.array([[1.0, 0, -1, 2], [0, 0, 1, 1]])
    cells = np.eye(2, 12)
    found = reconstruction.combined_variances([(first.family, sums), (second.family, cells)], SIZES)
    rows = (sums @ ours, cells @ theirs)
    if isinstance(reconstruction, PooledReconstruction):
        exact = np.einsum("ij,jk,ik->i", sum(rows), covariance, sum(rows))
    else:
        exact = np.zeros(2)
        for part, place in zip(rows, places, strict=True):
            answering = part @ np.linalg.pinv(written(place.space))
            exact += place.space.noise * np.square(answering).sum(axis=1)
    np.testing.assert_allclose(found, exact, rtol=1e-9)


def test_covariances_inside_one_marginal() -> None:
    """Families over other attributes of the same marginal are correlated."""
    space = Space(("b", "a"), (IdentityFactor((0,), (3,), 2), IdentityFactor((1,), (4,), 1)), 7.0)
    reconstruction = MarginalReconstruction([space])
    families = (
        Workload(SIZES).add(["a"], [Prefix()]).add(["b", "a"], [Total(), Identity()]).families
    )
    first, second = Aligned(families[0], ((0,),)), Aligned(families[1], ((), (0,)))
    inverse = np.linalg.pinv(written(space))
    one, two = (family_matrix(f, SIZES) @ inverse for f in families)
    exact = 7.0 * np.einsum("ij,ij->i", one, two)
    np.testing.assert_allclose(reconstruction.covariances(first, second, (4,)), exact, rtol=1e-12)


def test_what_no_marginal_holds_is_missing() -> None:
    reconstruction = MarginalReconstruction([Space(("a",), (IdentityFactor((0,), (4,), 1),), 1.0)])
    families = Workload(SIZES).add(["a"], [Prefix()]).add(["b"], [Prefix()]).add([], []).families
    assert [reconstruction.missing(f, SIZES) for f in families] == [(), (("b",),), ()]
    with pytest.raises(InternalError):
        reconstruction.variances(families[1])


def test_few_queries_are_measured_themselves() -> None:
    total = np.add.outer(np.arange(12), np.arange(10))
    few = Matrix((total[None] <= np.arange(3, 18, 3)[:, None, None]).reshape(5, -1).astype(float))
    sizes = {"x": 12, "y": 10, "z": 3}
    asked = Workload(sizes).add([("x", "y"), "z"], [few, Identity()]).add(["x"], [Prefix()])
    for budget in BUDGETS:
        plan = directly(asked, budget)
        assert [block.solver for block in plan.planned] == ["queries", "cells"]
        queries, cells = asked.families
        rows = family_matrix(queries, sizes)
        costs = [float(block.strategy.privacy_cost) for block in plan.planned]
        if budget.pure:
            exact = 2 * (np.abs(rows).sum(axis=0).max() / costs[0]) ** 2
        else:
            exact = np.square(rows).sum(axis=0).max() / costs[0]
        np.testing.assert_allclose(plan.variances[0], exact, rtol=1e-4)
        other = Workload(sizes).add(["x", "y", "z"], [Identity()] * 3).families[0]
        reconstruction = plan.reconstruction
        assert isinstance(reconstruction, MarginalReconstruction)
        assert [reconstruction.missing(f, sizes) for f in (queries, cells)] == [(), ()]
        assert reconstruction.missing(other, sizes) == (("x", "y", "z"),)


@pytest.mark.parametrize("factor", [Identity(), Prefix(), AllRange()])
def test_many_queries_are_answered_from_cells(factor) -> None:
    asked = Workload({"x": 20}).add(["x"], [factor])
    plan = directly(asked, BUDGETS[0])
    assert plan.planned[0].solver == "cells"
    rows = family_matrix(asked.families[0], {"x": 20})
    assert plan.rmse == pytest.approx(math.sqrt(np.square(rows).sum() / len(rows)), rel=1e-4)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("alone", [True, False])
def test_queries_that_are_always_zero(budget: Budget, alone: bool) -> None:
    asked = Workload(SIZES).add(["b"], Matrix(np.zeros((2, 3))), name="zeros")
    if not alone:
        asked.add(["a"], [Prefix()])
    plan = directly(asked, budget)
    assert (plan.variances[0] == 0).all()
    assert plan.privacy_cost <= budget.mu_squared
    if not alone:  # next to nothing is spent on them
        without = directly(Workload(SIZES).add(["a"], [Prefix()]), budget)
        np.testing.assert_allclose(plan.variances[1], without.variances[0], rtol=1e-3)


@pytest.mark.parametrize("pure", [False, True])
def test_shares_are_the_best(pure: bool) -> None:
    errors = [1.0, 8.0, 1000.0]
    found = np.array(shares(errors, pure=pure))
    found /= found.sum()
    power = 2 if pure else 1

    def total(at: np.ndarray) -> float:
        return float((np.array(errors) / at**power).sum())

    for i, j in itertools.permutations(range(3), 2):
        moved = found.copy()
        moved[i] += 1e-3
        moved[j] -= 1e-3
        assert total(moved) > total(found)


@pytest.mark.parametrize("scale", [1, 7, 1 << 29, (1 << 31) - 1])
@pytest.mark.parametrize(
    "budget", [*BUDGETS, Budget(mu=10), Budget(mu=10**6), Budget(epsilon=1000, delta=0)], ids=str
)
def test_the_scale_of_integers_does_not_matter(budget: Budget, scale: int) -> None:
    """Noise of whole parameters loses next to nothing, whatever a mechanism hands over."""
    asked = Workload({"a": 3, "b": 2}).add(["a", "b"], [Identity(), Identity()]).add([], [])
    matrix = np.array([[scale, 0, 0], [0, scale, 0], [0, 0, scale]])
    table = (DenseFactor((0,), (3,), matrix), IdentityFactor((1,), (2,), 1))
    total = (DenseFactor((), (), np.array([[scale]])),)
    strategies = [
        MarginalStrategy(("a", "b"), table, 2.0, "cells"),
        MarginalStrategy((), total, 1.0, "total"),
    ]
    plan = assemble(asked, Cost(budget), strategies, "marginals")
    spent = [block.privacy_cost for block in plan.certified.blocks]
    limit = budget.amount if budget.pure else budget.mu_squared
    assert 0.999 * limit < sum(spent) <= limit
    cost = [2 * float(limit) / 3, float(limit) / 3]
    least = [2 / c**2 if budget.pure else 1 / c for c in cost]
    for variances, exact in zip(plan.variances, least, strict=True):
        np.testing.assert_allclose(variances, exact, rtol=2e-3)
    assert all(block.largest_product < 2**31 for block in plan.certified.blocks)


def test_the_error_of_a_strategy_does_not_depend_on_its_scale() -> None:
    families = Workload(SIZES).add(["a"], [Prefix()], weight=2.0).families
    for budget in BUDGETS:
        found = {
            error_of(("a",), (IdentityFactor((0,), (4,), scale),), families, Cost(budget))
            for scale in (1, 1024)
        }
        assert found == {2.0 * 10}  # 1 + 2 + 3 + 4 cells in all


@pytest.mark.parametrize("contributions", [1, 3])
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_the_budget_is_used_up_and_no_more(budget: Budget, contributions: int) -> None:
    plan = directly(workload(), budget, contributions=contributions)
    assert plan.privacy_cost <= budget.mu_squared
    assert plan.privacy_cost > budget.mu_squared * 0.99999
    alone = directly(workload(), budget)
    assert plan.rmse == pytest.approx(contributions * alone.rmse, rel=1e-4)
