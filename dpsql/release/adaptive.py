"""Releases that choose what they measure by the data: biased answers, and what is kept of them.

When all rounds are done, what each measured is kept as a source of its own, so that a call that
dies from then on can be made good. Estimates depend on all rounds together, so that nothing else is
answered from these sources. The mechanism is imported where it is needed: few releases choose what
they measure, and whoever planned one has loaded it before the charge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpsql.engines.base import rule_of
from dpsql.errors import InternalError
from dpsql.linalg.arrays import Ints
from dpsql.measurement.distributions import Gaussian
from dpsql.planner.reconstruction.sources import Source
from dpsql.planner.residuals.references import Reference
from dpsql.privacy import Receipt
from dpsql.release.answers import Answers
from dpsql.release.facts import Facts, unmeasured
from dpsql.release.frames import AnsweredFrames
from dpsql.release.measurements import encode
from dpsql.release.pairs import without_errors
from dpsql.release.release import Release
from dpsql.release.tables import about, apart, identity_of, lifted
from dpsql.sql.compiled import Script

if TYPE_CHECKING:
    from dpsql.planner.mechanisms.aim import AdaptivePlan, TableTargets
    from dpsql.planner.mechanisms.aim_rounds import Estimates, Measured


def facts_of_rounds(script: Script, plan: AdaptivePlan, vintage: str) -> Facts:
    """Return what is public about a release before it chooses what it measures."""
    return replace(
        unmeasured(script, without_errors(script), "the worst of all marginals, round by round"),
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
        content: what they were made of, encoded; see `sources_of_rounds`.
    """
    answers = Answers(script.workload, None, estimates.marginal)
    return Release(facts, AnsweredFrames(script.statements, answers), content)


def rounds_again(
    script: Script, plan: AdaptivePlan, sources: Sequence[Source], receipt: Receipt, vintage: str
) -> Release:
    """Make a release again that was measured and not handed out."""
    from dpsql.planner.mechanisms.aim_rounds import Estimates

    facts = replace(facts_of_rounds(script, plan, vintage), receipt=receipt)
    estimates = Estimates.of(plan, tuple(_measured_rounds(script, sources)))
    return from_estimates(script, facts, estimates, encode(sources))


def rounds_fit(script: Script, sources: Sequence[Source]) -> bool:
    """Whether rounds measured the cells over which a script asks now."""
    return all(
        source.has_cells(name, own.workload.domain.get(name), own.merged.get(name))
        for own in script.each
        for source in about(script, own, sources)
        for name in source.sizes
    )


def sources_of_rounds(script: Script, estimates: Estimates) -> Iterator[Source]:
    """Yield what each round measured, in terms of the table's cells.

    Of several tables, what it measured of each. All have a source, so that a release names each:
    one without measurements, where no round could pay for any.
    """
    several = bool(script.apart)
    for number, measured in enumerate(estimates.measured or [()]):
        parts = {
            table.measure: _of_round(script, table, measured) for table in estimates.plan.tables
        }
        named = {name: part for name, part in parts.items() if name is not None}
        whole = parts.get(None, Source((), {}, {}, values={}, reading="adaptive", measures=named))
        for own, of in zip(script.each, apart(script, (whole,)), strict=True):
            if of.blocks or not number:
                yield replace(
                    of,
                    described=own.table.described,
                    kept_by=rule_of(own.table),
                    table=identity_of(own.table) if several else "",
                )


def _of_round(script: Script, table: TableTargets, measured: Sequence[Measured]) -> Source:
    """Return what a round measured of a table."""
    from dpsql.planner.mechanisms.aim_rounds import block_of

    own = [one for one in measured if one.measure == table.measure]
    columns = {a for one in own for a in one.attributes}
    sizes = {a: n for a, n in table.sizes.items() if a in columns}
    return Source(
        tuple(block_of(one.attributes, sizes, one.variance) for one in own),
        {a: Reference.of_cells(n) for a, n in sizes.items()},
        sizes,
        {a: of for a, of in script.merged.items() if a in columns},
        {frozenset(one.attributes): one.values for one in own},
        reading="adaptive",
    )


def _measured_rounds(script: Script, sources: Sequence[Source]) -> Iterator[tuple[Measured, ...]]:
    """Yield what each round measured, as it was; of several tables, one after the other."""
    from dpsql.planner.mechanisms.aim_rounds import Measured

    for source in lifted(script, sources):
        each = source.measures.items() or [(None, source)]
        yield tuple(
            Measured(names, _variance_of(block.law), _values_of(part, names), measure)
            for measure, part in each
            for block in part.blocks
            for names in block.spaces
        )


def _values_of(source: Source, names: tuple[str, ...]) -> Ints:
    if source.values is None:
        raise InternalError("measurements that were not made can't be read")
    return np.asarray(source.values[frozenset(names)])


def _variance_of(law: object) -> int:
    if not isinstance(law, Gaussian):
        raise InternalError("rounds have Gaussian noise")
    return law.squared
