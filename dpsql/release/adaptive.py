"""Releases that choose what they measure by the data: biased answers, and what is kept of them.

When all rounds are done, what each measured is kept as a source of its own, so that a call that
dies from then on can be made good. Estimates depend on all rounds together, so that nothing else is
answered from these sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from dpsql.engines.bounded import rule_of
from dpsql.errors import InternalError
from dpsql.measurement.distributions import Gaussian
from dpsql.planner.mechanisms.aim.estimates import block_of
from dpsql.planner.mechanisms.aim.plan import AdaptivePlan
from dpsql.planner.mechanisms.aim.rounds import Estimates, Measured
from dpsql.planner.reconstruction.base import EXPECTED
from dpsql.planner.reconstruction.sources import Source
from dpsql.planner.residuals.references import Reference
from dpsql.privacy import Receipt
from dpsql.release.answers import Answers
from dpsql.release.facts import Facts, unmeasured
from dpsql.release.frames import AnsweredFrames
from dpsql.release.measurements import encode
from dpsql.release.release import Release
from dpsql.sql.compiled import Script


def facts_of(script: Script, plan: AdaptivePlan, vintage: str) -> Facts:
    """Return what is public about a release before it chooses what it measures."""
    rows = {s.name: 0 for s in script.statements}
    for family in plan.workload.families:
        rows[family.name] = rows.get(family.name, 0) + family.shown.count
    unknown = [None] * len(rows)
    expected = {"statement": list(rows), "rows": list(rows.values())}
    table = pl.DataFrame(
        {**expected, "rmse": unknown, "worst_standard_error": unknown}, schema=EXPECTED
    )
    return replace(
        unmeasured(script, table, "the worst of all marginals, round by round"),
        budget=plan.budget,
        privacy_cost=plan.privacy_cost,
        vintage=vintage,
        mechanism=plan.mechanism,
    )


def from_estimates(script: Script, facts: Facts, estimates: Estimates, content: bytes) -> Release:
    """Make the release of estimates; the facts have the receipt.

    Args:
        script: what was asked.
        facts: what is public about it.
        estimates: what answers follow from.
        content: what they were made of, encoded; see `sources_of`.
    """
    answers = Answers(script.workload, None, estimates.marginal)
    return Release(facts, AnsweredFrames(script.statements, answers), content)


def again(
    script: Script, plan: AdaptivePlan, sources: Sequence[Source], receipt: Receipt, vintage: str
) -> Release:
    """Make a release again that was measured and not handed out."""
    facts = replace(facts_of(script, plan, vintage), receipt=receipt)
    estimates = Estimates.of(plan, tuple(_measured(sources)))
    return from_estimates(script, facts, estimates, encode(sources))


def fits(script: Script, sources: Sequence[Source]) -> bool:
    """Whether rounds measured the cells over which a script asks now."""
    return all(
        source.has_cells(name, script.workload.domain.get(name), script.merged.get(name))
        for source in sources
        for name in source.sizes
    )


def sources_of(script: Script, estimates: Estimates) -> Iterator[Source]:
    """Yield what each round measured, in terms of the table's cells."""
    sizes = estimates.plan.targets.sizes
    for measured in estimates.measured:
        used = {a for m in measured for a in m.attributes}
        yield Source(
            tuple(block_of(m.attributes, sizes, m.variance) for m in measured),
            {a: Reference.of_cells(sizes[a]) for a in sizes if a in used},
            {a: n for a, n in sizes.items() if a in used},
            {a: of for a, of in script.merged.items() if a in used},
            {frozenset(m.attributes): m.values for m in measured},
            reading="adaptive",
            described=script.table.described,
            kept_by=rule_of(script.table),
        )


def _measured(sources: Sequence[Source]) -> Iterator[tuple[Measured, ...]]:
    """Yield what each round measured, as it was."""
    for source in sources:
        if source.values is None:
            raise InternalError("measurements that were not made can't be read")
        yield tuple(
            Measured(names, _variance(block.law), np.asarray(source.values[frozenset(names)]))
            for block in source.blocks
            for names in block.spaces
        )


def _variance(law: object) -> int:
    if not isinstance(law, Gaussian):
        raise InternalError("rounds have Gaussian noise")
    return law.squared
