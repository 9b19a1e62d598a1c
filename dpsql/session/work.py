"""The work of a session, step by step: compile, plan, charge, count, measure, release."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from dpsql.engines.duckdb import DuckDBEngine
from dpsql.errors import (
    ExecutionError,
    InternalError,
    LedgerError,
    ResourceLimitError,
    StaleSchemaError,
    UndeterminedError,
)
from dpsql.mechanism.measure import ChargedPlan, NoisyMeasurements, measure
from dpsql.planner import querysmasher
from dpsql.planner.past.given import Past, plan_given
from dpsql.planner.past.source import Source, splits
from dpsql.planner.past.targets import least_budget_given
from dpsql.planner.plan import Plan
from dpsql.privacy import MAX_CONTENT, Budget, Entry, Ledger, Purpose, Receipt
from dpsql.privacy.budget import SMALLEST_MU_SQUARED
from dpsql.release import Before, Release, Wishes, from_before, from_plan, rehearse
from dpsql.release.build import again, facts_of, measurements_of
from dpsql.release.facts import Earlier, Facts
from dpsql.release.measurements import decode, encode
from dpsql.schema import Table
from dpsql.schema.catalog import current_database, verify_unchanged
from dpsql.session.declared import Declared, compile_statements
from dpsql.session.requests import Asked, purpose
from dpsql.sql.compiled import Script
from dpsql.workload import Workload
from dpsql.workload.cells import Ints

Progress = Callable[[str, int, int], None]
"""Called with a phase (`planning`, `counting`, `measuring`), steps done and steps in all."""

NO_PLAN = "00"
"""In place of a plan's digest, before there is one."""


def quiet(phase: str, done: int, of: int) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """What is asked, compiled, and what was measured before that can be used for it."""

    asked: Asked
    script: Script
    before: Before


class Work:
    """What a session does on its connection; its caller sees to it that threads take turns."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        declared: Declared,
        ledger: Ledger,
        database: tuple[str, Path | None],
        vintage: str,
        accept_schema: bool,
    ) -> None:
        self._con, self._declared, self._ledger = con, declared, ledger
        self._database, self._vintage, self._accept_schema = database, vintage, accept_schema
        self._known: dict[str, Before] = {}
        """Request → what it measured."""
        self._paid: Receipt | None = None
        """What the call at work was charged."""

    # ── what is asked, and what is known ───────────────────────────────────────────────────

    def asked(self, asked: Asked) -> Compiled:
        """Compile statements over cells as fine as those of earlier measurements of the same rows.

        Raises:
            SqlError, SchemaError, ResourceLimitError: they can't be answered.
            LedgerError: the ledger can't be read.
        """
        try:
            compiled = self._over(asked, lambda _: asked.how.reuse)
            guards = compiled.script.guards
            if all(source.guards == guards for source in compiled.before.sources):
                return compiled
            return self._over(asked, _counting(guards))
        except ResourceLimitError:
            if not asked.how.reuse:
                raise
        # Too large over such fine cells, maybe; then what was measured over them is not used.
        return self._over(asked, lambda _: False)

    def _over(self, asked: Asked, usable: Callable[[Source], bool]) -> Compiled:
        """Compile statements over cells as fine as those of some earlier measurements."""
        found = [self._nothing]

        def split(table: Table) -> Mapping[str, Ints]:
            found.append(self._before(asked, table).where(usable))
            return splits(found[-1].sources)

        return Compiled(asked, self._compile(asked, split), found[-1])

    @property
    def _nothing(self) -> Before:
        return Before(vintage=self._vintage)

    def _compile(self, asked: Asked, split: Callable[[Table], Mapping[str, Ints]]) -> Script:
        statements = dict(asked.statements)
        weights = asked.how.weights
        return compile_statements(self._con, statements, self._declared, weights, split)

    def _before(self, asked: Asked, table: Table) -> Before:
        """Return what was measured of a table, under its present description."""
        wanted = self._purpose(asked, table)
        self._ledger.check(wanted, accept_schema=self._accept_schema)
        parts = [
            self._decoded(entry)
            for entry in self._ledger.entries()
            if entry.content and entry.purpose.same_data(wanted)
        ]
        sources = tuple(source for part in parts for source in part.sources)
        return Before(sources, tuple(e for part in parts for e in part.earlier), self._vintage)

    def _decoded(self, entry: Entry) -> Before:
        """Return what one release measured itself: the last of what it rests on."""
        if entry.request not in self._known:
            *_, own = decode(self._ledger.content(entry) or b"")
            earlier = Earlier(entry.seq, entry.request, entry.mu_squared, entry.time)
            self._known[entry.request] = Before((own,), (earlier,), self._vintage)
        return self._known[entry.request]

    def _purpose(self, asked: Asked, table: Table, plan: str = NO_PLAN) -> Purpose:
        return purpose(asked, table, self._vintage, plan)

    # ── planning ───────────────────────────────────────────────────────────────────────────

    def plan(self, compiled: Compiled) -> Plan:
        """Plan on what was measured before; spends nothing.

        Raises:
            ResourceLimitError, WorkloadError: that can't be done.
        """
        how, script = compiled.asked.how, compiled.script
        alone = self._alone(compiled, script.workload, how.budget, how.targets)
        if not compiled.before.sources or not alone.planned:
            return alone
        past = Past(compiled.before.sources, script.merged)

        def planner(workload: Workload, budget: Budget) -> Plan:
            plan = self._alone(compiled, workload, budget, None)
            return plan_given(plan, past, how.tolerance, uniform=how.residuals == "uniform")

        try:
            if how.targets is not None:
                return least_budget_given(alone, how.targets, planner)
            return plan_given(alone, past, how.tolerance, uniform=how.residuals == "uniform")
        except ResourceLimitError:  # an earlier measurement is too large to be put together with
            return alone

    def _alone(
        self,
        compiled: Compiled,
        workload: Workload,
        budget: Budget | None,
        targets: Mapping[str, float] | None,
    ) -> Plan:
        """Plan a workload as if nothing were known."""
        how, table = compiled.asked.how, compiled.script.table
        return querysmasher.plan(
            workload,
            budget,
            tolerance=how.tolerance,
            residuals=how.residuals,
            objective=how.objective,
            targets=targets,
            contributions=table.contributions,
            neighbours=table.neighbours,
        )

    # ── releases ───────────────────────────────────────────────────────────────────────────

    def free(self, asked: Asked, wishes: Wishes) -> Release:
        """Answer from earlier measurements alone.

        Best from those that counted the same rows as the statements would. Else from those that
        counted only rows with a value in further columns too: then answers are about these, as
        the facts of the release say.

        Raises:
            UndeterminedError: they don't determine what is asked.
        """
        first = self._over(asked, lambda _: True)
        own = first.script.guards
        rehearse(first.script)
        kinds = {source.guards for source in first.before.sources if source.guards >= own}
        error: UndeterminedError | None = None
        for guards in sorted(kinds or {own}, key=lambda g: (len(g), sorted(g))):
            compiled = self._over(asked, _counting(guards))
            try:
                return from_before(compiled.script, compiled.before, wishes)
            except UndeterminedError as raised:
                error = error or raised
        raise error or InternalError("nothing was tried")

    def answer(self, asked: Asked, wishes: Wishes, tell: Progress, target: Path | None) -> Release:
        """Answer with a charge, and hand the answer out.

        If that fails or is interrupted, what was measured is there for a later call.
        """
        self._paid = None
        try:
            return self.handed_out(self.release(self.asked(asked), wishes, tell), target)
        except BaseException:
            if self._paid is not None:
                self._ledger.abandon(self._paid)
            raise

    def release(self, compiled: Compiled, wishes: Wishes, tell: Progress) -> Release:
        """Answer with a charge, or hand out what the same request paid for before a crash."""
        tell("planning", 0, 1)
        budget = compiled.asked.how.budget
        paid = None if budget is None else self._again(compiled, budget, wishes)
        if paid is not None:
            return paid
        rehearse(compiled.script)
        plan = self.plan(compiled)
        if budget is None:
            if plan.budget.mu_squared < 2 * SMALLEST_MU_SQUARED:  # the targets are met already
                with suppress(UndeterminedError):
                    return from_before(compiled.script, compiled.before, wishes)
            paid = self._again(compiled, plan.budget, wishes)
            if paid is not None:
                return paid
        facts = facts_of(compiled.script, plan, compiled.before, wishes)
        tell("planning", 1, 1)
        if not plan.planned:
            nothing = NoisyMeasurements(plan.certified, {})
            return from_plan(compiled.script, plan, facts, nothing, encode(()))
        return self._run(compiled, plan, facts, tell)

    def handed_out(self, release: Release, target: Path | None) -> Release:
        """Write a release to a folder, if asked, and note that it was handed out."""
        if target is not None:
            release.save(target)
        if release.receipt is not None:
            # It was paid for and stored. Not to hand it out because the note about that failed
            # would help nobody: at worst, the same answers are handed out again.
            with suppress(LedgerError):
                self._ledger.deliver(release.receipt)
        return release

    def _again(self, compiled: Compiled, budget: Budget, wishes: Wishes) -> Release | None:
        """Return the release that an equal request paid for, if it was never handed out."""
        wanted = self._purpose(compiled.asked, compiled.script.table)
        found = self._ledger.undelivered(wanted, budget.mu_squared)
        if found is None:
            return None
        receipt, content = found
        sources = decode(content)
        script = self._compile(compiled.asked, lambda _: splits(sources))
        *others, _ = sources
        before = Before(sources, self._places(compiled.asked, script.table, others), self._vintage)
        try:
            return again(script, before, wishes, receipt, budget)
        except UndeterminedError:  # a public table that the statements join has changed since
            return None

    def _places(self, asked: Asked, table: Table, sources: Sequence[Source]) -> tuple[Earlier, ...]:
        """Say where in the ledger some measurements are."""
        known = self._before(asked, table)
        places = {
            encode((source,)): place
            for source, place in zip(known.sources, known.earlier, strict=True)
        }
        found = (places.get(encode((source,))) for source in sources)
        return tuple(place for place in found if place is not None)

    def _run(self, compiled: Compiled, plan: Plan, facts: Facts, tell: Progress) -> Release:
        """Check, charge and measure, all on one snapshot of the database."""
        plan.check_variances()  # nothing that can fail by its size is left for after the charge
        script = compiled.script
        engine = DuckDBEngine(self._con, on_step=lambda done, of: tell("counting", done, of))
        with engine.snapshot():
            self._verify(script.table)
            charged = self._charge(compiled, plan)

            def measure_charged() -> Release:
                wanted = [space for block in plan.certified.blocks for space in block.spaces]
                marginals = engine.marginals(script.table, wanted, script.columns, script.merged)
                tell("measuring", 0, 1)
                measured = measure(charged, marginals)
                content = measurements_of(plan, script, measured, compiled.before)
                # What can't be kept is handed out all the same: it was paid for.
                with suppress(LedgerError):
                    kept = content if len(content) <= MAX_CONTENT else None
                    self._ledger.release(charged.receipt, kept)
                tell("measuring", 1, 1)
                paid = replace(facts, receipt=charged.receipt)
                return from_plan(script, plan, paid, measured, content)

            return opaquely(measure_charged)

    def _verify(self, table: Table) -> None:
        """Check that the table is the planned one, and in the database the ledger is for."""
        if current_database(self._con) != self._database:
            raise StaleSchemaError(
                "The connection was moved to another database, and this ledger is not for that.",
                hint="USE the first database again, or make a new session.",
            )
        verify_unchanged(self._con, table, self._declared.schema, self._declared.unit)

    def _charge(self, compiled: Compiled, plan: Plan) -> ChargedPlan:
        """Charge the whole budget that was asked for, durably, before any row is read."""
        receipt = self._ledger.charge(
            plan.budget.mu_squared,
            asked=plan.budget,
            purpose=self._purpose(compiled.asked, compiled.script.table, plan.certified.digest),
            accept_schema=self._accept_schema,
        )
        self._paid = receipt
        return ChargedPlan(plan.certified, receipt, self._ledger)


def _counting(guards: frozenset[str]) -> Callable[[Source], bool]:
    """Choose the sources that counted the rows with a value in these columns."""
    return lambda source: source.guards == guards


def opaquely(work: Callable[[], Release]) -> Release:
    """Let no error that is raised after the data was touched say anything about it."""
    error: BaseException
    try:
        return work()
    except (KeyboardInterrupt, SystemExit) as asked:
        error = type(asked)()
    except BaseException:  # whatever it was, its text and frames may hold counts
        error = ExecutionError()
    # Raised outside the handler, so that it has no context that could be inspected.
    raise error
