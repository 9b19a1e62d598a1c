"""The work of a session, step by step: compile, plan, charge, count, measure, release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import duckdb

from dpsql.engines.base import Counted
from dpsql.engines.duckdb import DuckDBEngine
from dpsql.errors import (
    ExecutionError,
    InternalError,
    LedgerError,
    MechanismError,
    ResourceLimitError,
    StaleSchemaError,
    UndeterminedError,
)
from dpsql.measurement.certify import is_laplace
from dpsql.measurement.measure import ChargedPlan, NoisyMeasurements, Payable, measure
from dpsql.planner.mechanisms.aim.rounds import run
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.reconstruction.sources import Source, splits
from dpsql.privacy import MAX_CONTENT, Budget, Ledger, Receipt
from dpsql.privacy.budget import SMALLEST_MU_SQUARED
from dpsql.release import Before, Release, Wishes, adaptive, from_before, from_plan, rehearse
from dpsql.release.build import (
    again,
    facts_of,
    measured_source,
    used,
)
from dpsql.release.facts import Facts
from dpsql.release.measurements import decode, encode
from dpsql.schema import Table
from dpsql.schema.catalog import current_database, verify_unchanged
from dpsql.session.declared import Declared, check_cost
from dpsql.session.planning import Compiled, Planning
from dpsql.session.requests import Asked, State

Progress = Callable[[str, int, int], None]
"""Called with a phase (`planning`, `counting`, `measuring`), steps done and steps in all."""

Taken = tuple[bytes, Callable[[Facts], Release]]
"""What was measured, to be kept; and how a release follows, once its facts have the receipt."""
Take = Callable[[ChargedPlan, Counted], Taken]


def quiet(phase: str, done: int, of: int) -> None:
    """Say nothing."""


class Work:
    """What a session does on its connection; its caller sees to it that threads take turns."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        declared: Declared,
        ledger: Ledger,
        database: tuple[str, Path | None],
        state: State,
        accept_schema: bool,
    ) -> None:
        self._con, self._declared, self._ledger = con, declared, ledger
        self._database = database
        self.planning = Planning(con, declared, ledger, state, accept_schema)
        self._paid: Receipt | None = None
        """What the call at work was charged."""

    def free(self, asked: Asked, wishes: Wishes) -> Release:
        """Answer from earlier measurements alone.

        From those that combine, together; else from one of the others by itself, the last first.

        Raises:
            UndeterminedError: they don't determine what is asked.
            StaleSchemaError: see `check_database`.
        """
        self.check_database()
        rehearse(self.planning.over(asked, lambda _: False).script)
        found = self.planning.over(asked, _any).before.sources
        ways = [_together, *(_only(s) for s in reversed(found) if not s.combines)]
        error: UndeterminedError | None = None
        for usable in ways:
            compiled = self.planning.over(asked, usable)
            try:
                return from_before(compiled.script, compiled.before, wishes)
            except UndeterminedError as raised:
                if error is None or compiled.before.sources:  # these say what is missing
                    error = raised
        raise error or InternalError("nothing was tried")

    def answer(self, asked: Asked, wishes: Wishes, tell: Progress, target: Path | None) -> Release:
        """Answer with a charge, and hand the answer out.

        If that fails or is interrupted, what was measured is there for a later call.

        Raises:
            StaleSchemaError: see `check_database`.
        """
        self.check_database()
        self._paid = None
        try:
            return self.handed_out(self.release(self.planning.asked(asked), wishes, tell), target)
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
        if MECHANISMS[compiled.asked.how.mechanism].is_adaptive:
            return self._adapt(compiled, tell)
        compiled, plan = self.planning.planned(compiled)
        check_cost(plan.budget, compiled.asked.how.at_most)
        if budget is None and plan.budget.mu_squared < 2 * SMALLEST_MU_SQUARED:
            with suppress(UndeterminedError):  # the targets are met already
                return from_before(compiled.script, compiled.before, wishes)
        plan.check_accuracy(accept_gap=compiled.asked.how.accept_gap)
        facts = facts_of(compiled.script, plan, compiled.before, wishes)
        tell("planning", 1, 1)
        if not plan.planned:
            nothing = NoisyMeasurements(plan.certified, {})
            return from_plan(compiled.script, plan, facts, nothing, ())
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

    def _again(self, compiled: Compiled, budget: Budget | None, wishes: Wishes) -> Release | None:
        """Return the release that an equal request paid for, if it was never handed out.

        Without a budget, whatever it paid.
        """
        wanted = self.planning.purpose(compiled.asked, compiled.script.table)
        found = self._ledger.undelivered(wanted, None if budget is None else budget.mu_squared)
        if found is None:
            return None
        receipt, content = found
        if MECHANISMS[compiled.asked.how.mechanism].is_adaptive:
            return self._adaptive_again(compiled, receipt, decode(content))
        (own,) = decode(content)
        if budget is not None and is_laplace(own.blocks) != budget.pure:
            return None
        self.planning.read(wanted)
        others = [self.planning.known[request] for request in own.rests_on]
        before = Before(
            (*(source for other in others for source in other.sources), own),
            tuple(place for other in others for place in other.earlier),
            self.planning.vintage,
        )
        paid = budget or Budget(rho=receipt.mu_squared / 2)
        try:
            script = self.planning.compile(compiled.asked, lambda _: splits(before.sources))
            return again(script, before, wishes, receipt, paid, compiled.asked.how.mechanism)
        except (UndeterminedError, ResourceLimitError):  # a joined public table has changed since
            return None

    def _adaptive_again(
        self, compiled: Compiled, receipt: Receipt, sources: Sequence[Source]
    ) -> Release | None:
        try:
            script = self.planning.compile(compiled.asked, lambda _: splits(sources))
            plan = self.planning.adaptive(replace(compiled, script=script))
            if plan.digest != receipt.plan or not adaptive.fits(script, sources):
                return None
            return adaptive.again(script, plan, sources, receipt, self.planning.vintage)
        except (MechanismError, ResourceLimitError):  # a joined public table has changed since
            return None

    def _run(self, compiled: Compiled, plan: Plan, facts: Facts, tell: Progress) -> Release:
        """Charge a plan, and measure it."""
        script, before = compiled.script, compiled.before

        def take(charged: ChargedPlan, marginals: Counted) -> Taken:
            measured = measure(charged, marginals)
            own = measured_source(plan, script, measured, before)
            sources = (*used(plan, before).sources, own)
            return encode((own,)), lambda paid: from_plan(script, plan, paid, measured, sources)

        wanted = [space for block in plan.certified.blocks for space in block.spaces]
        return self._measured(compiled, facts, plan.certified, wanted, take, tell)

    def _adapt(self, compiled: Compiled, tell: Progress) -> Release:
        """Charge, and spend the charge on what the data show to be worth it."""
        script, plan = compiled.script, self.planning.adaptive(compiled)
        facts = adaptive.facts_of(script, plan, self.planning.vintage)
        tell("planning", 1, 1)

        def take(charged: ChargedPlan, marginals: Counted) -> Taken:
            found = run(charged, marginals)
            kept = encode(tuple(adaptive.sources_of(script, found)))
            return kept, lambda paid: adaptive.from_estimates(script, paid, found, kept)

        return self._measured(compiled, facts, plan, plan.marginals, take, tell)

    def _measured(
        self,
        compiled: Compiled,
        facts: Facts,
        plan: Payable,
        wanted: Sequence[tuple[str, ...]],
        take: Take,
        tell: Progress,
    ) -> Release:
        """Check, charge, count, measure and keep, all on one snapshot of the database."""
        script = compiled.script
        engine = DuckDBEngine(self._con, on_step=lambda done, of: tell("counting", done, of))
        with engine.snapshot():
            self._verify(script.table)
            # What DuckDB would refuse is refused before it is paid for.
            counting = engine.prepared(script.table, wanted, script.merged)
            counting.check()
            charged = self._charge(compiled, facts, plan)

            def measure_charged() -> Release:
                marginals = counting.run()
                tell("measuring", 0, 1)
                content, release_of = take(charged, marginals)
                self._keep(charged.receipt, content)
                tell("measuring", 1, 1)
                return release_of(replace(facts, receipt=charged.receipt))

            return opaquely(measure_charged)

    def _keep(self, receipt: Receipt, content: bytes) -> None:
        """Keep what was measured; if that fails it is handed out all the same: it was paid for."""
        with suppress(LedgerError):
            self._ledger.release(receipt, content if len(content) <= MAX_CONTENT else None)

    def check_database(self) -> None:
        """Check that the connection is at the database that the ledger is for.

        Tables of another one may have the same names and domains. What was measured here would
        pass for what is asked of these.

        Raises:
            StaleSchemaError: it was moved.
        """
        if current_database(self._con) != self._database:
            raise StaleSchemaError(
                "The connection was moved to another database, and this ledger is not for that.",
                hint="USE the first database again, or make a new session.",
            )

    def _verify(self, table: Table) -> None:
        """Check that the table is the planned one, and in the database the ledger is for."""
        self.check_database()
        verify_unchanged(self._con, table, self._declared.schema, self._declared.unit)

    def _charge(self, compiled: Compiled, facts: Facts, plan: Payable) -> ChargedPlan:
        """Charge the whole budget that was asked for, durably, before any row is read."""
        budget = facts.budget
        if budget is None:
            raise InternalError("nothing was asked that could be charged")
        table = compiled.script.table
        purpose = self.planning.purpose(compiled.asked, table, plan.digest)
        receipt = self._ledger.charge(
            budget.mu_squared,
            asked=budget,
            purpose=purpose,
            accept_schema=self.planning.accepts(table, purpose),
            each_row=table.each_row,
        )
        self._paid = receipt
        return ChargedPlan(plan, receipt, self._ledger)


Usable = Callable[[Source], bool]


def _any(_: Source) -> bool:
    return True


def _together(source: Source) -> bool:
    return source.combines


def _only(chosen: Source) -> Usable:
    return lambda source: source is chosen


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
