"""Assembly of releases from what was measured: by plans, of pairs, in rounds, or before."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dpsql.answers.adjusted import (
    AGREE,
    AdjustedFrames,
    AskedMarginals,
    Fits,
    MarginalTables,
    asked_of,
    by_table,
    check_adjusted,
    unbiased_tables,
)
from dpsql.answers.answers import Answers, Marginal
from dpsql.answers.facts import Earlier, Facts, unmeasured
from dpsql.answers.frames import AnsweredFrames
from dpsql.answers.requery import answers_of
from dpsql.answers.sources import about, apart, identity_of, lifted, together
from dpsql.engines.base import rule_of
from dpsql.errors import InternalError
from dpsql.linalg.arrays import Array, Ints
from dpsql.measurement.certify import is_laplace, privacy_cost
from dpsql.measurement.distributions import Gaussian
from dpsql.measurement.measure import NoisyMeasurements
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.plans.plan import TOTAL, Plan
from dpsql.planner.reconstruction.base import EXPECTED, Reconstruction, error_table
from dpsql.planner.reconstruction.measured import Noisy
from dpsql.planner.reconstruction.sources import Source, along, lies_on, with_values
from dpsql.planner.residuals.references import Reference
from dpsql.planner.reuse.past import source_of
from dpsql.privacy import Budget, Receipt
from dpsql.release.measurements import encode
from dpsql.release.release import Release
from dpsql.request import Request
from dpsql.schema.domain import Cuts
from dpsql.sql.compiled import Script

if TYPE_CHECKING:
    from dpsql.planner.mechanisms.aim import AdaptivePlan, TableTargets
    from dpsql.planner.mechanisms.aim_rounds import Estimates, Measured


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """The earlier measurements that may be used."""

    sources: tuple[Source, ...] = ()
    earlier: tuple[Earlier, ...] = ()
    """Their entries in the ledger."""
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
    objective = TOTAL if plan.objective is None else plan.objective.name
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
    script: Script,
    plan: Plan,
    facts: Facts,
    measured: NoisyMeasurements,
    sources: Sequence[Source],
    content: bytes | None = None,
) -> Release:
    """Make the release of a plan that was measured.

    Args:
        script: what was asked.
        plan: what was measured for it.
        facts: with the receipt.
        measured: the noisy integers of the plan.
        sources: all that answers rest on, the plan's own measurements last.
        content: these, as `encode` writes them, if they have been written already.
    """
    values = plan.values(measured.values)
    laplace = is_laplace(plan.certified.blocks)
    answers = Answers.measured(plan.workload, plan.reconstruction, values, laplace=laplace)
    content = encode(sources) if content is None else content
    return Release(facts, _frames(script, answers, facts, sources), content, plan)


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
    (source,) = together(script, before.sources[-len(script.tables) :])
    facts = replace(
        release.facts,
        budget=budget,
        receipt=receipt,
        privacy_cost=privacy_cost(
            source.measured,
            script.contributions,
            script.spreads,
            source.differences,
            script.supports,
        ),
        spaces=sum(len(block.spaces) for block in source.measured),
        whole=source.whole,
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


# ── Releases of pairs of columns: answers of largest entropy, without negative cells ─────────────
#
# What was measured is kept like any other measurements of residual spaces: it answers further
# questions, and later releases are planned on it, without bias.


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
    facts = unmeasured(script, without_errors(script), f"{TOTAL} of pairs")
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


# ── Releases that choose what they measure by the data: biased answers, and what is kept of them ─
#
# When all rounds are done, what each measured is kept as a source of its own, so that a call that
# dies from then on can be made good. Estimates depend on all rounds together, so that nothing else
# is answered from these sources. The mechanism is imported where it is needed: few releases choose
# what they measure, and whoever planned one has loaded it before the charge.


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

    rounds = [one for one in measured if one.measure == table.measure]
    columns = {a for one in rounds for a in one.attributes}
    sizes = {a: n for a, n in table.sizes.items() if a in columns}
    return Source(
        tuple(block_of(one.attributes, sizes, one.variance) for one in rounds),
        {a: Reference.of_cells(n) for a, n in sizes.items()},
        sizes,
        {a: of for a, of in script.merged.items() if a in columns},
        {frozenset(one.attributes): one.values for one in rounds},
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
