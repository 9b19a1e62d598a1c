"""Answers from several releases: unbiased, with the stated variances, never worse than alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given

from dpsql.planner.plans.plan import Given
from tests.oracle import every_space, family_matrix
from tests.planner.random_workloads import some
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
@some(40)
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
@some(40)
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
