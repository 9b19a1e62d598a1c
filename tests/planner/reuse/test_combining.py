"""Answers from several releases: unbiased, with the stated variances, never worse than alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.planner.mechanisms import querysmasher
from dpsql.planner.mechanisms.base import Cost
from dpsql.planner.mechanisms.querysmasher import divide_by, stitch
from dpsql.planner.plans.plan import Given
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import References
from dpsql.planner.reuse import past
from dpsql.planner.reuse.past import Past, plan_given
from dpsql.planner.reuse.past import known as known_of
from dpsql.privacy import Budget
from dpsql.workload import Identity, Prefix, Suffix, Workload
from tests.oracle import every_space, family_matrix
from tests.planner.random_workloads import references, some
from tests.planner.reuse.rounds import (
    SIZES,
    answers,
    exact,
    least_squares_variances,
    plan_rounds,
    rounds,
)

TABLE = np.random.default_rng(0).integers(0, 50, int(np.prod(list(SIZES.values()))))


@given(rounds())
@some(25)
def test_answers_without_noise_are_exact(given_rounds):
    for _, plan, _ in plan_rounds(given_rounds, TABLE):
        if not plan.planned:
            continue
        measured = exact(plan, TABLE).values
        for family, found in zip(plan.workload.families, answers(plan, measured), strict=True):
            true = family_matrix(family, SIZES) @ TABLE
            scale = max(1.0, np.abs(true).max(initial=0))
            np.testing.assert_allclose(found, true, atol=1e-6 * scale)


@given(rounds())
@some(25)
def test_no_variance_is_below_least_squares_and_the_total_is_never_above_the_plan_alone(rounds_):
    for alone, plan, sources in plan_rounds(rounds_, TABLE):
        if not plan.planned:
            continue
        stated = np.concatenate([v.ravel() for v in plan.variances])
        least = least_squares_variances([*sources, exact(plan, TABLE)], plan.workload)
        assert (stated >= least * (1 - 1e-6) - 1e-9).all()
        assert plan.rmse <= alone.rmse * (1 + 1e-9)
        assert plan.privacy_cost <= plan.budget.mu_squared
        weights = np.concatenate([np.full(f.count, f.weight) for f in plan.workload.families])
        total = float(weights @ stated)
        np.testing.assert_allclose(plan.rmse, np.sqrt(total / plan.workload.count), rtol=1e-9)
        if plan.given is not None:
            assert plan.given.lower <= total * (1 + 1e-9)


def with_contexts(first, second, found, residuals):
    """Two rounds, of which the first has references of its own in some contexts."""
    planned = stitch(first, Cost(Budget(rho=1)), divide_by(first, found, 1e-3))
    source = exact(planned, TABLE)
    alone = querysmasher.plan(second, Budget(rho=1), residuals=residuals)
    return [source], alone, plan_given(alone, Past((source,)), 1e-3)


@pytest.mark.parametrize("quick", [0, 400])
@given(st.data(), rounds(most=2))
@some(25)
def test_a_plan_rests_on_residual_spaces_of_several_contexts(quick, data, rounds_):
    (first, _, _), (second, _, residuals) = rounds_
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(past, "QUICK_CELLS", quick)
        found = data.draw(references(SIZES))
        sources, alone, plan = with_contexts(first, second, found, residuals)
    if plan.given is None:
        return
    measured = exact(plan, TABLE)
    together = replace(plan, given=replace(plan.given, measured=(sources[0].values,)))
    for family, found in zip(second.families, answers(together, measured.values), strict=True):
        true = family_matrix(family, SIZES) @ TABLE
        np.testing.assert_allclose(found, true, atol=1e-6 * max(1.0, np.abs(true).max(initial=0)))
    stated = np.concatenate([v.ravel() for v in plan.variances])
    least = least_squares_variances([*sources, measured], second)
    assert (stated >= least * (1 - 1e-6) - 1e-9).all()
    assert plan.rmse <= alone.rmse * (1 + 1e-9)


def test_what_was_measured_in_a_context_counts_there(monkeypatch):
    """The same again is as good as twice the budget."""
    monkeypatch.setattr(past, "QUICK_CELLS", 0)
    asked = Workload(SIZES).add(["a", "b"], [Identity(), Prefix()])
    asked.add(["b", "c"], [Suffix(), Identity()])
    ours = {name: Reference.of_cells(n) for name, n in SIZES.items()}
    other = Reference.of_integers(np.array([1, 0, 2]))
    found = References(ours, frozenset("ac"), {("b", frozenset("a")): other})
    planned = stitch(asked, Cost(Budget(rho=1)), divide_by(asked, found, 1e-3))
    plan = plan_given(planned, Past((exact(planned, TABLE),)), 1e-3)
    assert plan.given is not None
    assert plan.rmse == pytest.approx(planned.rmse / np.sqrt(2), rel=1e-3)
    assert References.of(plan.references).special.keys() == found.special.keys()
    known, missing = known_of(asked, Past((exact(planned, TABLE),)))
    assert not missing
    assert known.reconstruction.total(asked) == pytest.approx(planned.rmse**2 * asked.count)


@given(rounds(most=2))
@some(25)
def test_the_stated_variances_are_those_of_the_estimates(rounds_):
    """The estimates are linear: their coefficients are found by unit vectors."""
    _, (_, plan, sources) = plan_rounds(rounds_, TABLE)
    if plan.given is None:
        return
    own = exact(plan, TABLE)
    total = 0.0
    for number, source in enumerate([*sources, own]):
        for block, space in every_space(source.blocks):
            noise = block.law.variance
            for index in range(block.measurements):
                coefficients = _moved(plan, sources, own, number, frozenset(space), index)
                total = total + noise * np.square(coefficients)
    stated = np.concatenate([v.ravel() for v in plan.variances])
    np.testing.assert_allclose(total, stated, rtol=1e-6, atol=1e-9)


def _moved(plan, sources, own, number, space, index):
    """How all answers move with one measurement, per unit."""
    found = []
    for step in (0, 1 << 20):
        values = []
        for i, source in enumerate([*sources, own]):
            copied = {name: np.zeros_like(v) for name, v in source.values.items()}
            if i == number:
                copied[space].flat[index] = step
            values.append(copied)
        moved = replace(plan, given=Given(plan.given.combination, tuple(values[:-1]), 0.0, 0.0))
        found.append(np.concatenate(answers(moved, values[-1])))
    return (found[1] - found[0]) / (1 << 20)
