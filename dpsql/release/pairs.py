"""Releases of pairs of columns: answers of largest entropy, without negative cells.

What was measured is kept like any other measurements of residual spaces: it answers further
questions, and later releases are planned on it, without bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from dpsql.linalg.arrays import Array
from dpsql.planner.plans.plan import Plan
from dpsql.planner.reconstruction.base import EXPECTED
from dpsql.planner.reconstruction.measured import Noisy
from dpsql.planner.reconstruction.sources import Source
from dpsql.release.answers import Answers
from dpsql.release.by_marginal import (
    AGREE,
    AskedMarginals,
    MarginalTables,
    asked_of,
    by_table,
    unbiased_tables,
)
from dpsql.release.facts import Facts, unmeasured
from dpsql.release.frames import AnsweredFrames
from dpsql.release.marginals import Marginal
from dpsql.release.measurements import encode
from dpsql.release.release import Release
from dpsql.sql.compiled import Script

REASON = f"biased: of a table of largest entropy with the pairs of its columns; {AGREE}"


def without_errors(script: Script) -> pl.DataFrame:
    """Return the table of expected errors where none are known."""
    rows = {s.name: 0 for s in script.statements}
    for family in script.workload.families:
        rows[family.name] = rows.get(family.name, 0) + family.shown.count
    unknown = [None] * len(rows)
    expected = {"statement": list(rows), "rows": list(rows.values())}
    return pl.DataFrame(
        {**expected, "rmse": unknown, "worst_standard_error": unknown}, schema=EXPECTED
    )


def facts_of_pairs(script: Script, plan: Plan, vintage: str) -> Facts:
    """Return what is public about a release before it is charged or measured.

    Args:
        script: what is asked.
        plan: what will be measured for it.
        vintage: of the rows.
    """
    facts = unmeasured(script, without_errors(script), "total weighted variance of pairs")
    return replace(
        facts,
        budget=plan.budget,
        privacy_cost=plan.privacy_cost,
        gap=plan.gap if math.isfinite(plan.gap) else None,
        spaces=sum(len(block.strategy.spaces) for block in plan.planned),
        whole=plan.whole,
        vintage=vintage,
        mechanism=plan.mechanism,
        warning=plan.warning,
    )


def from_pairs(
    script: Script, plan: Plan, facts: Facts, measured: Noisy, sources: Sequence[Source]
) -> Release:
    """Make the release of pairs that were measured.

    Args:
        script: what was asked.
        plan: what was measured for it.
        facts: with the receipt.
        measured: the noisy integers of the plan.
        sources: the same, as they are kept.
    """
    answers = Answers(script.workload, None, _marginal_of_pairs(script, plan, measured))
    frames = AnsweredFrames(script.statements, answers, biased=REASON)
    return Release(facts, frames, encode(sources), plan)


def _marginal_of_pairs(script: Script, plan: Plan, measured: Noisy) -> Marginal:
    """Make tables of largest entropy; of several tables, of each by itself."""
    values = plan.values(measured)

    def unbiased(names: tuple[str, ...]) -> Array:
        return plan.reconstruction.marginal(names, values)

    tables = unbiased_tables(script, plan.reconstruction, unbiased)
    return by_table(
        [
            (of, MarginalTables(AskedMarginals.of(asked_of(own), known, ()), list).marginal)
            for of, own, known in tables
        ]
    )
