"""Build releases from what was measured, now or before."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from dpsql.engines.base import rule_of
from dpsql.errors import InternalError
from dpsql.measurement.certify import is_laplace, privacy_cost
from dpsql.measurement.measure import NoisyMeasurements
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.plans.plan import Plan
from dpsql.planner.reconstruction.base import Reconstruction, error_table
from dpsql.planner.reconstruction.sources import Source, along, lies_on
from dpsql.planner.reconstruction.tables import with_values
from dpsql.planner.reuse.past import source_of
from dpsql.privacy import Budget, Receipt
from dpsql.release.adjusted import AdjustedFrames, Fits, check_adjusted
from dpsql.release.answers import Answers
from dpsql.release.facts import Earlier, Facts, unmeasured
from dpsql.release.frames import AnsweredFrames
from dpsql.release.measurements import encode
from dpsql.release.release import Release
from dpsql.release.requery import answers_of
from dpsql.release.tables import apart, identity_of, together
from dpsql.request import Request
from dpsql.schema.cuts import Cuts
from dpsql.sql.compiled import Script


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """The earlier measurements that may be used."""

    sources: tuple[Source, ...] = ()
    earlier: tuple[Earlier, ...] = ()
    """Where each of them is in the ledger."""
    vintage: str = ""

    def where(self, usable: Callable[[Source], bool]) -> Before:
        """Return some of the sources."""
        kept = [i for i, source in enumerate(self.sources) if usable(source)]
        return replace(
            self,
            sources=tuple(self.sources[i] for i in kept),
            earlier=tuple(self.earlier[i] for i in kept if i < len(self.earlier)),
        )

    def along(self, cuts: Callable[[Source], Mapping[str, Cuts]]) -> Before:
        """Look at the sources along the same cuts of each line of their tables."""
        usable = self.where(lambda source: lies_on(source, cuts(source)))
        return replace(
            usable, sources=tuple(along(source, cuts(source)) for source in usable.sources)
        )


NOTHING = Before()


def measured_source(
    plan: Plan, script: Script, measured: NoisyMeasurements, before: Before
) -> tuple[Source, ...]:
    """Return what a plan measured, in terms of the table's cells; of several, for each of them."""
    source = with_values(source_of(plan, script.merged), measured.values)
    several, past = bool(script.apart), used(plan, before)
    rests_on = list(zip(past.sources, past.earlier, strict=several))
    return tuple(
        replace(
            of,
            described=own.table.described,
            rests_on=tuple(
                place.request
                for earlier, place in rests_on
                if not several or earlier.table == identity_of(own.table)
            ),
            table=identity_of(own.table) if several else "",
            kept_by=rule_of(own.table),
        )
        for own, of in zip(script.each, apart(script, (source,)), strict=True)
    )


def used(plan: Plan, before: Before) -> Before:
    """Return those of the earlier measurements that a plan builds on."""
    if plan.given is None:
        return replace(before, sources=(), earlier=())
    return before


def facts_of(script: Script, plan: Plan, before: Before, request: Request) -> Facts:
    """Return what is public about a release before it is charged or measured.

    Raises:
        SqlError, ResourceLimitError: adjusted columns are asked for, and can't be made.
    """
    before = used(plan, before)
    objective = "total weighted variance" if plan.objective is None else plan.objective.name
    blocks = plan.certified.blocks
    facts = unmeasured(script, plan.expected_error(), objective, plan.held_for)
    return replace(
        _resting(facts, script, before, request, plan.reconstruction, blocks),
        budget=plan.budget if plan.planned else None,
        privacy_cost=plan.privacy_cost,
        rmse=plan.rmse,
        gap=plan.gap if plan.planned and math.isfinite(plan.gap) else None,
        spaces=sum(len(block.strategy.spaces) for block in plan.planned),
        whole=plan.whole,
        mechanism=plan.mechanism if plan.planned else None,
        laplace=is_laplace(blocks),
        warning=plan.warning,
    )


def _resting(
    facts: Facts,
    script: Script,
    before: Before,
    request: Request,
    reconstruction: Reconstruction,
    blocks: Sequence[BlockStrategy] = (),
) -> Facts:
    """Say what answers rest on, and how they are shown.

    Args:
        facts: the others.
        script: what is asked.
        before: what was measured before and is used.
        request: how answers are to be shown.
        reconstruction: how they follow, without bias.
        blocks: what will be measured.

    Raises:
        SqlError, ResourceLimitError: adjusted columns are asked for, and can't be made.
    """
    if request.nonnegative or request.integers:
        check_adjusted(script, blocks, before.sources, reconstruction, integers=request.integers)
    return replace(
        facts,
        vintage=before.vintage,
        earlier=before.earlier,
        confidence=request.confidence,
        nonnegative=request.nonnegative,
        integers=request.integers,
        groups_above=None if request.groups_above is None else float(request.groups_above),
    )


def from_plan(
    script: Script, plan: Plan, facts: Facts, measured: NoisyMeasurements, sources: Sequence[Source]
) -> Release:
    """Make the release of a plan that was measured.

    Args:
        script: what was asked.
        plan: what was measured for it.
        facts: with the receipt.
        measured: the noisy integers of the plan.
        sources: all that answers rest on, the plan's own measurements last.
    """
    values = plan.values(measured.values)
    laplace = is_laplace(plan.certified.blocks)
    answers = Answers.measured(plan.workload, plan.reconstruction, values, laplace=laplace)
    return Release(facts, _frames(script, answers, facts, sources), encode(sources), plan)


def from_before(
    script: Script, before: Before, request: Request, others: Before = NOTHING
) -> Release:
    """Make a release from earlier measurements alone; it costs nothing.

    Args:
        script: what is asked.
        before: what was measured of its tables.
        request: how answers are to be shown.
        others: what was measured of tables whose totals were compared with those of its own.

    Raises:
        UndeterminedError: they don't determine what is asked.
    """
    return _made(script, before, request, "none: nothing new was measured", others)


def again(
    script: Script,
    before: Before,
    request: Request,
    receipt: Receipt,
    budget: Budget,
) -> Release:
    """Make a release again that was measured and not handed out.

    Args:
        script: what was asked.
        before: all that it rests on; the last source is its own.
        request: how answers are to be shown.
        receipt: what it was charged.
        budget: the amount, as it was asked for.
    """
    release = _made(script, before, request, "that of the plan, made before an interruption")
    (own,) = together(script, before.sources[-len(script.tables) :])
    facts = replace(
        release.facts,
        budget=budget,
        receipt=receipt,
        privacy_cost=privacy_cost(
            own.measured, script.contributions, script.spreads, own.differences
        ),
        spaces=sum(len(block.spaces) for block in own.measured),
        whole=own.whole,
        mechanism=request.mechanism,
    )
    return release.with_facts(facts)


def _made(
    script: Script,
    before: Before,
    request: Request,
    objective: str,
    others: Before = NOTHING,
) -> Release:
    answers = answers_of(script, before.sources, others.sources)
    if answers.reconstruction is None:
        raise InternalError("measurements were read without their variances")
    expected = error_table(answers.reconstruction, script.workload)
    facts = replace(
        _resting(
            unmeasured(script, expected, objective), script, before, request, answers.reconstruction
        ),
        rmse=_rmse(expected),
        earlier=(*before.earlier, *others.earlier),
        laplace=any(is_laplace(source.measured) for source in before.sources),
    )
    frames = _frames(script, answers, facts, before.sources)
    return Release(facts, frames, encode((*before.sources, *others.sources)))


def _frames(
    script: Script, answers: Answers, facts: Facts, sources: Sequence[Source]
) -> AnsweredFrames | AdjustedFrames:
    """Make frames of answers; with adjusted columns, if there shall be any."""
    plain = AnsweredFrames(script.statements, answers, facts.confidence)
    if not facts.adjusted:
        return plain
    wishes = {"nonnegative": facts.nonnegative, "integers": facts.integers}
    fits = Fits.of(script, sources, answers, **wishes)
    adjusted = Answers(script.workload, answers.reconstruction, fits.marginal)
    frames = AnsweredFrames(script.statements, adjusted)
    return AdjustedFrames(script.statements, plain, frames, fits.reason)


def _rmse(expected: pl.DataFrame) -> float:
    rows, errors = expected["rows"].to_numpy(), expected["rmse"].to_numpy()
    return math.sqrt(float(errors**2 @ rows) / max(1, int(rows.sum())))
