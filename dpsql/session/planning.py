"""The planning of what is asked, on what is known already; spends nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from dpsql.answers.counted import Counts, counts_of
from dpsql.answers.expected import assuming
from dpsql.answers.facts import Facts
from dpsql.answers.sources import about, identity_of, lifted
from dpsql.engines.base import Counted, Marginal, columns_read
from dpsql.engines.others import others_of
from dpsql.errors import BudgetError, ResourceLimitError, printable
from dpsql.hints import spend
from dpsql.linalg.arrays import Ints
from dpsql.linalg.threads import interruptibly
from dpsql.measurement.measure import ChargedPlan, NoisyMeasurements, Payable, measure
from dpsql.planner import registry as mechanisms
from dpsql.planner.mechanisms.base import Options
from dpsql.planner.plans.effort import expected_effort
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS, QUERYSMASHER
from dpsql.planner.reconstruction.sources import Source, common_cuts, splits
from dpsql.planner.reuse.past import Past, least_budget_given, plan_given
from dpsql.privacy import Budget, Receipt
from dpsql.rel.related import related_rows
from dpsql.release import Before, Release, from_plan
from dpsql.release.assembly import (
    from_estimates,
    from_pairs,
    measured_source,
    sources_of_rounds,
    used,
)
from dpsql.release.measurements import encode
from dpsql.request import Request
from dpsql.schema.domain import Cuts
from dpsql.schema.grain import made_of
from dpsql.schema.table import Parent, Table, neighbours_of
from dpsql.session.data import PrivateData, Split, split_of
from dpsql.session.targets import plan_for
from dpsql.sql.binding.core import FILLED, SumForm
from dpsql.sql.compiled import Script
from dpsql.workload import Workload
from dpsql.workload.spread import SpreadRows
from dpsql.workload.workload import coarsening, common_refinement

if TYPE_CHECKING:
    from dpsql.planner.comparison import Comparison
    from dpsql.planner.mechanisms.aim import AdaptivePlan
    from dpsql.planner.mechanisms.aim_rounds import Estimates
    from dpsql.rel.support import Support


FINE_CELLS = 256
FINER = 4
"""Cells of one column that may be told apart for the sake of earlier measurements: so many, or so
many times those that the statements tell apart."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled request, and what was measured before that can be used for it."""

    request: Request
    script: Script
    before: Before
    sums: SumForm = FILLED
    """The form in which values are added up row by row."""
    notes: tuple[str, ...] = ()
    """Notes for the plan, besides its own."""
    alone: Script | None = None
    """The script as it is compiled without regard to the past, if it was so before."""

    @cached_property
    def past(self) -> Past:
        """Earlier measurements, in the names of the statements' tables."""
        return Past(lifted(self.script, self.before.sources), self.script.merged)

    @property
    def without_past(self) -> Compiled:
        """The same, with nothing of what was measured before."""
        return replace(self, before=Before(vintage=self.before.vintage))


def compiled(data: PrivateData, request: Request, sums: SumForm = FILLED) -> Compiled:
    """Compile statements as if nothing had been measured, and find what was.

    Args:
        data: what the statements are over.
        request: the statements.
        sums: the form in which values are added up row by row. They are not filled where they were
            measured before in the other form.

    Raises:
        SqlError, SchemaError, ResourceLimitError: they can't be answered.
        LedgerError: the ledger can't be read.
    """
    script = alone = data.declared.compile(request, sums=sums)
    data.archive.referred(request, referred(script))
    before = data.archive.of_tables(request, script.tables)
    around = frozenset[str]()
    for part in script.each:
        known = {name for source in about(script, part, before.sources) for name in source.measures}
        around |= part.known_otherwise(known)
    if around:
        sums = replace(sums, around=around)
        script = alone = data.declared.compile(request, sums=sums)
    cuts = _Cuts.of(script, before.sources)
    if any(
        cuts.of_table(part.table)[name] != of
        for part in script.each
        for name, of in part.table.lines.items()
    ):
        script = data.declared.compile(request, cuts=cuts.of_table, sums=sums)
    return Compiled(request, script, before.along(cuts.of_source), sums, alone=alone)


@dataclass(frozen=True, slots=True)
class _Cuts:
    """The cuts of the lines of each table's columns, in all that was measured or is asked."""

    by_path: Mapping[tuple[str, ...], Mapping[str, Cuts]]
    by_source: Mapping[str, Mapping[str, Cuts]]
    """By the table that a source is about; "" if that is the only one."""

    @classmethod
    def of(cls, script: Script, sources: Sequence[Source]) -> _Cuts:
        """Put those of some sources and of a script together."""
        cuts = {
            part.table.path: common_cuts(about(script, part, sources), part.table.lines)
            for part in script.each
        }
        names = [identity_of(part.table) for part in script.each]
        return cls(cuts, dict(zip(names, cuts.values(), strict=True)))

    def of_table(self, table: Table) -> Mapping[str, Cuts]:
        """Return those of a table."""
        return self.by_path[table.path]

    def of_source(self, source: Source) -> Mapping[str, Cuts]:
        """Return those of the table that a source is about."""
        (first, *others) = self.by_source.values()
        return self.by_source[source.table] if others else first


def referred(script: Script) -> tuple[Table, ...]:
    """Return the tables of which a script asks rows besides those that it counts.

    They are those that the counted rows refer to, those of other rows of the same units, and those
    that these refer to in turn.
    """
    by_path: dict[tuple[str, ...], Table] = {}
    for table, parents in _read(script):
        by_path[table.path] = table.alone
        by_path |= {parent.table.path: parent.table for parent in parents}
    counted = {table.path for table in script.tables}
    return tuple(table for path, table in by_path.items() if path not in counted)


def _read(script: Script) -> Iterator[tuple[Table, Sequence[Parent]]]:
    """Yield each table whose rows are counted or looked into, and the rows that these refer to."""
    for part in script.each:
        asked = [(part.table, _names_read(part))]
        made = [source for source in made_of(part.table) if source.path != part.table.path]
        yield from ((source, source.parents) for source in made)
        for table, names in asked:  # which grows
            others = others_of(table, names)
            yield table, others.parents
            asked += [(met, []) for rows in others.added for met in rows.tables]


def _names_read(script: Script) -> list[str]:
    """Return the columns of its table that a script reads."""
    return columns_read(script.table, script.workload.domain, script.measures.values(), script.keys)


def notes_of(script: Script) -> tuple[str, ...]:
    """Say where answers are not those of a database, other than by noise, and could be.

    Groups without rows take part in what is computed over groups, and in LIMIT.
    Rows of other units are not met, to which a FOREIGN KEY may lead.
    """
    refer = (
        f"if {printable(', '.join(parent.join.columns))} of a row of {printable(table.name)} leads "
        f"to a row of {printable(parent.table.name)} that belongs to another unit, it counts as "
        "if it led to none"
        for table, parents in _read(script)
        for parent in parents
        if not parent.on_way
    )
    windows = (
        f"windows over {printable(part.table.name)} look at all rows of a unit, and at most "
        f"{part.table.contributions:,} of these rows count: the first row of a unit counts only if "
        "it is one of them; COUNT(DISTINCT unit) counts all units"
        for part in script.each
        if others_of(part.table, _names_read(part)).over_all
    )
    related = [(part.table, related_rows(part.table)) for part in script.each]
    loose = (note for _, rows in related if rows is not None for note in rows.notes)
    chosen = (
        f"of {printable(', '.join(of.name for of in rows.counted))} only those rows count that a "
        f"window chooses, at most {table.contributions:,} of each unit"
        for table, rows in related
        if rows is not None and rows.is_chosen
    )
    groups = (
        f"{printable(statement.name)}: {note.text}"
        for statement in script.statements
        for note in statement.notes
        if note.avoidable
    )
    return tuple(dict.fromkeys([*loose, *refer, *chosen, *windows, *groups]))


def compiled_over(data: PrivateData, compiled_: Compiled, before: Before) -> Compiled:
    """Compile statements again, over cells as fine as those of some earlier measurements."""
    cuts = _Cuts.of(compiled_.script, before.sources)
    before = before.along(cuts.of_source)
    finer = {
        part.table.path: (
            part.table,
            _finer(part, splits(about(compiled_.script, part, before.sources))),
        )
        for part in compiled_.script.each
    }
    if not any(split for _, split in finer.values()):
        return replace(
            compiled_, before=before
        )  # the same would come out, after as long a time again

    def split_up(table: Table) -> Split:
        known, split = finer.get(table.path, (table, {}))
        return split_of(known, split, table)

    script = data.declared.compile(compiled_.request, split_up, cuts.of_table, compiled_.sums)
    return replace(compiled_, script=script, before=before)


def _finer(script: Script, split: Mapping[str, Ints]) -> dict[str, Ints]:
    """Return those classes of cells that tell apart what a script over one table doesn't."""
    return {
        name: of
        for name, of in split.items()
        if name in script.merged
        and (len(script.merged[name]) != len(of) or coarsening(script.merged[name], of) is None)
    }


def compiled_on_past(data: PrivateData, request: Request) -> Compiled:
    """Compile statements over cells as fine as those of earlier measurements of the same rows.

    Only QuerySmasher builds on these.

    Raises:
        SqlError, SchemaError, ResourceLimitError: they can't be answered.
        LedgerError: the ledger can't be read.
    """
    compiled_ = compiled(data, request)
    if request.reuse and MECHANISMS[request.mechanism].reuses_measurements:
        with suppress(ResourceLimitError):  # too large over such fine cells
            return compiled_over(
                data, compiled_, compiled_.before.where(partial(_helps, compiled_.script))
            )
    return compiled_.without_past


def _helps(script: Script, source: Source) -> bool:
    """Whether a source can be put together with others, over cells that are not too fine.

    Planning takes time in the cells that have to be told apart, and hardly gains by them.
    """
    if not source.combines:
        return False
    if script.apart:
        return any(_helps(part, source) for part in script.each if about(script, part, [source]))
    for name, cells in script.workload.domain.items():
        if name in source.attributes:
            both = [s[name] for s in (source.merged, script.merged) if name in s]
            fine = (
                int(common_refinement(both).max()) + 1
                if len(both) == 2
                else max(cells, source.sizes[name])
            )
            if fine > max(FINE_CELLS, FINER * cells):
                return False
    return True


def compiled_held(data: PrivateData, request: Request) -> Compiled:
    """Compile statements on what was measured before, while the catalog is held."""
    with data.held():
        return compiled_on_past(data, request)


def planned(data: PrivateData, asked: Compiled) -> tuple[Compiled, Plan]:
    """Plan; without what was measured before, if that makes the plan too large.

    Raises:
        ResourceLimitError, WorkloadError, MechanismError: that can't be done.
    """
    tell_effort(asked)
    try:
        plan = interruptibly(partial(_checked_plan, asked))
        return asked, plan
    except ResourceLimitError:
        if not asked.before.sources:
            raise
    alone = compiled(data, asked.request).without_past
    return alone, interruptibly(partial(_checked_plan, alone, aside=True))


def _checked_plan(asked: Compiled, *, aside: bool = False) -> Plan:
    """Plan, so that nothing that can fail by its size is left for after the charge."""
    plan = plan_of(asked)
    plan = replace(plan, aside=True) if aside else plan
    plan.check_variances()
    return assuming(asked.script, plan, asked.request.assume, partial(counts_before, asked))


def tell_effort(asked: Compiled) -> None:
    """Say beforehand if planning will take long."""
    mechanism = asked.request.mechanism
    if not isinstance(mechanism, str) or mechanism != QUERYSMASHER:  # it may be anything yet
        return
    effort = expected_effort(asked.script.workload)
    if effort is not None:
        asked.request.note(str(effort))


def plan_of(asked: Compiled) -> Plan:
    """Plan on what was measured before.

    Raises:
        ResourceLimitError, WorkloadError, MechanismError: that can't be done.
    """
    request = asked.request
    planner, counts = partial(_on_the_past, asked), partial(counts_before, asked)
    plan = plan_for(asked.script, request.targets, request.assume, request.amount, planner, counts)
    return replace(plan, labels=asked.script.labels, notes=(*notes_of(asked.script), *asked.notes))


def counts_before(asked: Compiled) -> Counts | None:
    """Return what earlier measurements say of the rows of statements."""
    return counts_of(asked.script, asked.past, asked.before.earlier)


def _on_the_past(
    asked: Compiled, budget: Budget | None, targets: Mapping[str, float] | None
) -> Plan:
    """Plan for a budget, or for targets of families."""
    request, script = asked.request, asked.script
    alone = _alone(asked, targets, script.workload, budget)
    if not asked.before.sources or not alone.planned:
        return alone
    past, uniform = asked.past, request.residuals == "uniform"

    def planner(workload: Workload, budget: Budget) -> Plan:
        plan = _alone(asked, None, workload, budget)
        return plan_given(plan, past, request.tolerance, uniform=uniform)

    try:
        if targets is not None:
            combined = plan_given(alone, past, request.tolerance)
            return least_budget_given(combined, targets, planner)
        return plan_given(alone, past, request.tolerance, uniform=uniform)
    except ResourceLimitError:  # an earlier measurement is too large to be put together with
        return replace(alone, aside=True)


def _alone(
    asked: Compiled,
    targets: Mapping[str, float] | None,
    workload: Workload,
    budget: Budget | None,
) -> Plan:
    """Plan a workload as if nothing were known."""
    return mechanisms.plan(workload, budget, asked.request.mechanism, options_of(asked, targets))


def options_of(asked: Compiled, targets: Mapping[str, float] | None = None) -> Options:
    """Say to the planner what a plan is to be like, and whom it protects."""
    script = asked.script
    neighbours = neighbours_of(script.tables)
    rows = script.contributions, neighbours, script.spreads, script.supports
    return options_for(asked.request, targets, *rows)


def options_for(
    request: Request,
    targets: Mapping[str, float] | None,
    contributions: int,
    neighbours: str,
    spreads: tuple[SpreadRows, ...] = (),
    supports: tuple[Support, ...] = (),
) -> Options:
    """Say to the planner what a plan is to be like, and whom it protects."""
    return Options(
        request.tolerance,
        request.residuals,
        request.objective,
        targets,
        contributions,
        neighbours,
        request.bases,
        request.loss,
        spreads=spreads,
        supports=supports,
    )


def adaptive_plan(asked: Compiled) -> AdaptivePlan:
    """Plan a release that chooses what it measures by the data.

    Raises:
        MechanismError: it can't answer the statements, or not within such a budget.
    """
    request = asked.request
    options = options_of(asked, request.targets)
    return mechanisms.adaptive_plan(asked.script.workload, request.amount, options)


def compared(asked: Compiled, names: Sequence[str] | None) -> Comparison:
    """Plan statements by several mechanisms.

    Raises:
        MechanismError: there is no mechanism of some name.
    """
    from dpsql.planner.comparison import compare  # few are compared

    budget = asked.request.amount
    if budget is None:
        raise BudgetError(
            "Mechanisms are compared at a budget.", hint="pass " + spend(rho="0.5") + "."
        )
    return compare(asked.script.workload, budget, names, options_of(asked))


# ── Tasks that are about to be charged and measured, and the release that is made of the results ─


@dataclass(frozen=True, slots=True, eq=False)
class PlannedTask:
    """A certified plan, and what is public about its release but for the receipt."""

    asked: Compiled
    plan: Plan
    facts: Facts

    @property
    def payable(self) -> Payable:
        """The plan that is charged for."""
        return self.plan.certified

    @property
    def wanted(self) -> Sequence[Marginal]:
        """The marginals to count: one for each residual space, and those that are compared."""
        certified = self.plan.certified
        spaces = [space for block in certified.blocks for space in block.spaces]
        return [*spaces, *(names for d in certified.differences for names in d.marginals)]

    def measure(self, charged: ChargedPlan, counts: Counted) -> MeasuredPlan:
        """Measure every residual space."""
        self.asked.request.tell("measuring", 0, 1)
        measured = measure(charged, counts)
        source = measured_source(self.plan, self.asked.script, measured, self.asked.before)
        return MeasuredPlan(self, measured, source, encode(source))

    def release_unmeasured(self) -> Release:
        """Make the release of a plan that measures nothing, as all answers are known."""
        nothing = NoisyMeasurements(self.plan.certified, {})
        return from_plan(self.asked.script, self.plan, self.facts, nothing, ())


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredPlan:
    """The noisy measurements of a certified plan."""

    task: PlannedTask
    measured: NoisyMeasurements
    own: tuple[Source, ...]
    """The sources that are kept of them: one for each table, if these are several."""
    content: bytes
    """The bytes that are kept in the ledger."""

    def release(self, receipt: Receipt) -> Release:
        """Make the release, which may rest on earlier measurements too."""
        plan, asked = self.task.plan, self.task.asked
        earlier = used(plan, asked.before).sources
        sources, facts = (*earlier, *self.own), replace(self.task.facts, receipt=receipt)
        if facts.biased:
            return from_pairs(asked.script, plan, facts, self.measured.values, self.own)
        content = encode(sources) if earlier else self.content
        return from_plan(asked.script, plan, facts, self.measured, sources, content=content)


@dataclass(frozen=True, slots=True, eq=False)
class AdaptiveTask:
    """A plan that chooses what it measures by the data, and what is public about its release."""

    asked: Compiled
    plan: AdaptivePlan
    facts: Facts

    @property
    def payable(self) -> Payable:
        """The plan that is charged for."""
        return self.plan

    @property
    def wanted(self) -> Sequence[Marginal]:
        """The marginals to count: all that may be chosen."""
        return self.plan.marginals

    def measure(self, charged: ChargedPlan, counts: Counted) -> MeasuredRounds:
        """Let each round choose what it measures, by what the ones before have shown."""
        # Whoever planned this has loaded it, before the charge.
        from dpsql.planner.mechanisms.aim_rounds import run

        self.asked.request.tell("measuring", 0, 1)
        estimates = run(charged, counts)
        kept = encode(tuple(sources_of_rounds(self.asked.script, estimates)))
        return MeasuredRounds(self, estimates, kept)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRounds:
    """The measurements of all rounds, and the estimates that follow."""

    task: AdaptiveTask
    estimates: Estimates
    content: bytes
    """The bytes that are kept in the ledger."""

    def release(self, receipt: Receipt) -> Release:
        """Make the release, of answers that follow from the estimates."""
        facts = replace(self.task.facts, receipt=receipt)
        return from_estimates(self.task.asked.script, facts, self.estimates, self.content)


Task = PlannedTask | AdaptiveTask
