"""The work of a session, step by step: compile, plan, charge, count, measure, release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    printable,
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
from dpsql.release.build import again, facts_of, measured_source, used
from dpsql.release.facts import Earlier, Facts
from dpsql.release.measurements import decode, encode
from dpsql.schema import Table
from dpsql.schema.catalog import current_database, verify_unchanged
from dpsql.session.declared import Declared, compile_statements
from dpsql.session.requests import Asked, purpose
from dpsql.sql.compiled import Script
from dpsql.workload import Workload
from dpsql.workload.cells import Ints, common_refinement

Progress = Callable[[str, int, int], None]
"""Called with a phase (`planning`, `counting`, `measuring`), steps done and steps in all."""

FINE_CELLS = 256
FINER = 4
"""Cells of one column that may be told apart for the sake of earlier measurements: so many, or so
many times those that the statements tell apart."""

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
        own = self._over(asked, lambda _: False)
        if not asked.how.reuse:
            return own
        with suppress(ResourceLimitError):  # too large over such fine cells
            return self._over(asked, lambda source: self._helps(source, own.script))
        return own

    def _helps(self, source: Source, script: Script) -> bool:
        """Whether a source counted the same rows, over cells that are not too fine.

        Planning takes time in the cells that have to be told apart, and hardly gains by them.
        """
        if source.guards != script.guards:
            return False
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
        parts = [self._known[entry.request] for entry in self._read(wanted)]
        sources = tuple(source for part in parts for source in part.sources)
        return Before(sources, tuple(e for part in parts for e in part.earlier), self._vintage)

    def _read(self, wanted: Purpose) -> list[Entry]:
        """List the releases of the wanted data, and read what is not known of them yet."""
        # Listed once: other processes may add to them at any moment.
        entries = [e for e in self._ledger.entries() if e.content and e.purpose.same_data(wanted)]
        if any(entry.request not in self._known for entry in entries):
            data = {"table": wanted.table, "unit": wanted.unit, "vintage": wanted.vintage}
            for entry, content in self._ledger.measurements(**data):
                if entry.request not in self._known:
                    earlier = Earlier(entry.seq, entry.request, entry.mu_squared, entry.time)
                    self._known[entry.request] = Before(decode(content), (earlier,), self._vintage)
        return entries

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
                combined = plan_given(alone, past, how.tolerance)
                return least_budget_given(combined, how.targets, planner)
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

    def free(self, asked: Asked, wishes: Wishes, *, same_rows: bool = False) -> Release:
        """Answer from earlier measurements alone.

        Best from those that counted the same rows as the statements would. Else, unless the
        `same_rows` have to be counted, from those that counted only rows with a value in further
        columns too: then answers are about these, as the facts of the release say.

        Raises:
            UndeterminedError: they don't determine what is asked.
        """
        first = self._over(asked, lambda _: False)
        own = first.script.guards
        rehearse(first.script)
        first = self._over(asked, lambda source: source.guards >= own)
        kinds = {source.guards for source in first.before.sources if source.guards >= own}
        error: UndeterminedError | None = None
        for guards in sorted(kinds | {own}, key=lambda g: (len(g), sorted(g))):
            compiled = self._over(asked, _counting(guards))
            try:
                found = from_before(compiled.script, compiled.before, wishes)
            except UndeterminedError as raised:
                error = error or raised
                continue
            if guards != own and same_rows:
                raise _other_rows(guards - own)
            return found
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
        paid = self._again(compiled, budget, wishes)
        if paid is not None:
            return paid
        rehearse(compiled.script)
        compiled, plan = self.planned(compiled)
        if budget is None and plan.budget.mu_squared < 2 * SMALLEST_MU_SQUARED:
            with suppress(UndeterminedError):  # the targets are met already
                return from_before(compiled.script, compiled.before, wishes)
        facts = facts_of(compiled.script, plan, compiled.before, wishes)
        tell("planning", 1, 1)
        if not plan.planned:
            nothing = NoisyMeasurements(plan.certified, {})
            return from_plan(compiled.script, plan, facts, nothing, ())
        return self._run(compiled, plan, facts, tell)

    def planned(self, compiled: Compiled) -> tuple[Compiled, Plan]:
        """Plan; without what was measured before, if that makes the plan too large."""
        try:
            plan = self.plan(compiled)
            plan.check_variances()  # nothing that can fail by its size is left for after the charge
            return compiled, plan
        except ResourceLimitError:
            if not compiled.before.sources:
                raise
        alone = self._over(compiled.asked, lambda _: False)
        plan = self.plan(alone)
        plan.check_variances()
        return alone, plan

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

    def _again(self, compiled: Compiled, budget: Budget | None, wishes: Wishes) -> Release | None:
        """Return the release that an equal request paid for, if it was never handed out.

        Without a budget, whatever it paid.
        """
        wanted = self._purpose(compiled.asked, compiled.script.table)
        found = self._ledger.undelivered(wanted, None if budget is None else budget.mu_squared)
        if found is None:
            return None
        receipt, content = found
        (own,) = decode(content)
        self._read(wanted)
        others = [self._known[request] for request in own.rests_on]
        before = Before(
            (*(source for other in others for source in other.sources), own),
            tuple(place for other in others for place in other.earlier),
            self._vintage,
        )
        paid = budget or Budget(rho=receipt.mu_squared / 2)
        try:
            script = self._compile(compiled.asked, lambda _: splits(before.sources))
            return again(script, before, wishes, receipt, paid)
        except (UndeterminedError, ResourceLimitError):  # a joined public table has changed since
            return None

    def _run(self, compiled: Compiled, plan: Plan, facts: Facts, tell: Progress) -> Release:
        """Check, charge and measure, all on one snapshot of the database."""
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
                own = measured_source(plan, script, measured, compiled.before)
                content = encode((own,))
                # What can't be kept is handed out all the same: it was paid for.
                with suppress(LedgerError):
                    kept = content if len(content) <= MAX_CONTENT else None
                    self._ledger.release(charged.receipt, kept)
                tell("measuring", 1, 1)
                paid = replace(facts, receipt=charged.receipt)
                sources = (*used(plan, compiled.before).sources, own)
                return from_plan(script, plan, paid, measured, sources)

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


def _other_rows(columns: frozenset[str]) -> UndeterminedError:
    names = ", ".join(printable(name) for name in sorted(columns))
    return UndeterminedError(
        f"Earlier measurements counted only rows with a value of the domain in {names}, and the "
        "statement asks for all.",
        hint="session.release(sql, budget=0) answers about those rows, and says so in its facts; "
        "session.query with a budget counts all.",
    )


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
