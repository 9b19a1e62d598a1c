"""Several releases of one table, planned one after the other, with a dense oracle for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from dpsql.answers.answers import NoisyMarginals
from dpsql.planner.mechanisms import querysmasher
from dpsql.planner.plans.plan import Plan
from dpsql.planner.reconstruction.sources import Source
from dpsql.planner.reuse.past import Past, plan_given, source_of
from dpsql.privacy import Budget
from dpsql.workload import Workload
from tests.oracle import every_space, family_matrix, space_matrix
from tests.planner.random_workloads import _add_family

SIZES = {"a": 4, "b": 3, "c": 3}


@st.composite
def rounds(draw, most: int = 3) -> list[tuple[Workload, Budget, str]]:
    """Two or three workloads over one domain, with budgets and kinds of residuals."""
    found = []
    for _ in range(draw(st.integers(2, most))):
        workload = Workload(SIZES)
        for _ in range(draw(st.integers(1, 2))):
            _add_family(draw, workload)
        budget = Budget(rho=draw(st.sampled_from([0.05, 0.5, 2])))
        found.append((workload, budget, draw(st.sampled_from(["weighted", "uniform", "none"]))))
    return found


def exact(plan: Plan, table: np.ndarray) -> Source:
    """What a plan would measure of a table without noise."""
    values = {
        frozenset(space): np.rint(
            space_matrix(block, space, SIZES).astype(float) @ table
        ).astype(np.int64).reshape([f.measurements for f in block.factors])
        for block, space in every_space(plan.certified.blocks)
    }  # fmt: skip
    return replace(source_of(plan), values=values)


def plan_rounds(
    given: list[tuple[Workload, Budget, str]], table: np.ndarray
) -> list[tuple[Plan, Plan, list[Source]]]:
    """Plan each round on those before: (alone, with the past, sources before)."""
    sources: list[Source] = []
    found = []
    for workload, budget, residuals in given:
        alone = querysmasher.plan(workload, budget, residuals=residuals)
        plan = alone
        if sources and alone.planned:
            past = Past(tuple(sources))
            plan = plan_given(alone, past, 1e-3, uniform=residuals == "uniform")
        found.append((alone, plan, list(sources)))
        if plan.planned:
            sources.append(exact(plan, table))
    return found


def answers(plan: Plan, measured) -> list[np.ndarray]:
    values = plan.values(measured)
    made = NoisyMarginals(lambda names: plan.reconstruction.marginal(names, values))
    return [made.answers(family).ravel() for family in plan.workload.families]


def rows_of(source: Source) -> np.ndarray:
    """All measurements of a source over the full domain, in units of their noise."""
    parts = [
        space_matrix(block, space, SIZES).astype(float) / np.sqrt(block.law.variance)
        for block, space in every_space(source.blocks)
    ]
    return np.vstack(parts)


def least_squares_variances(sources: list[Source], workload: Workload) -> np.ndarray:
    """The variances of the best unbiased linear estimates from all measurements."""
    rows = np.vstack([rows_of(source) for source in sources])
    queries = np.vstack([family_matrix(f, SIZES) for f in workload.families])
    return np.square(queries @ np.linalg.pinv(rows, rcond=1e-9)).sum(axis=1)
