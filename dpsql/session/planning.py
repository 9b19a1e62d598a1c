"""What is asked of a session, what is known already, and how it is planned; spends nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import duckdb

from dpsql.errors import BudgetError, ResourceLimitError, StaleSchemaError
from dpsql.hints import spend
from dpsql.planner.comparison.compare import Comparison, compare
from dpsql.planner.mechanisms import registry as mechanisms
from dpsql.planner.mechanisms.aim.plan import AdaptivePlan
from dpsql.planner.mechanisms.base import Options
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.reconstruction.sources import Source, splits
from dpsql.planner.reuse.given import Past, plan_given
from dpsql.planner.reuse.targets import least_budget_given
from dpsql.privacy import Budget, Entry, Ledger, Purpose
from dpsql.release import Before
from dpsql.release.changes import explained, goes_with, only_adds
from dpsql.release.counted import Counts, counts_of
from dpsql.release.facts import Earlier
from dpsql.release.measurements import decode
from dpsql.schema import Table
from dpsql.session.declared import Declared, compile_statements
from dpsql.session.requests import Asked, State, purpose
from dpsql.session.targets import plan_for
from dpsql.sql.compiled import Script
from dpsql.workload import Workload
from dpsql.workload.cells import Ints, common_refinement

FINE_CELLS = 256
FINER = 4
"""Cells of one column that may be told apart for the sake of earlier measurements: so many, or so
many times those that the statements tell apart."""

NO_PLAN = "00"
"""In place of a plan's digest, before there is one."""


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """What is asked, compiled, and what was measured before that can be used for it."""

    asked: Asked
    script: Script
    before: Before


class Planning:
    """Compiles and plans statements, on what the ledger has of earlier releases."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        declared: Declared,
        ledger: Ledger,
        state: State,
        accept_schema: bool,
    ) -> None:
        self._con, self._declared, self._ledger = con, declared, ledger
        self._state, self.accept_schema = state, accept_schema
        self.known: dict[str, Before] = {}
        """Request → what it measured."""
        self._descriptions: dict[str, Mapping[str, str]] = {}
        """Request → how the table was described when it was measured."""

    @property
    def vintage(self) -> str:
        """The owner's name for the present state of the data."""
        return self._state.vintage

    def asked(self, asked: Asked) -> Compiled:
        """Compile statements over cells as fine as those of earlier measurements of the same rows.

        Only QuerySmasher builds on these.

        Raises:
            SqlError, SchemaError, ResourceLimitError: they can't be answered.
            LedgerError: the ledger can't be read.
        """
        own = self.over(asked, lambda _: False)
        if not asked.how.reuse or not MECHANISMS[asked.how.mechanism].reuses_measurements:
            return own
        helps = partial(self._helps, own.script)
        with suppress(ResourceLimitError):  # too large over such fine cells
            before = self._before(asked, own.script.table).where(helps)
            # Over cells that nothing splits, the same would come out, after as long a time again.
            return self.over(asked, helps) if before.sources else replace(own, before=before)
        return own

    def _helps(self, script: Script, source: Source) -> bool:
        """Whether a source can be put together with others, over cells that are not too fine.

        Planning takes time in the cells that have to be told apart, and hardly gains by them.
        """
        if not source.combines:
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

    def over(self, asked: Asked, usable: Callable[[Source], bool]) -> Compiled:
        """Compile statements over cells as fine as those of some earlier measurements."""
        found = [self._nothing]

        def split(table: Table) -> Mapping[str, Ints]:
            found.append(self._before(asked, table).where(usable))
            return splits(found[-1].sources)

        return Compiled(asked, self.compile(asked, split), found[-1])

    @property
    def _nothing(self) -> Before:
        return Before(vintage=self.vintage)

    def compile(self, asked: Asked, split: Callable[[Table], Mapping[str, Ints]]) -> Script:
        """Compile statements over cells that are split at least so far."""
        statements = dict(asked.statements)
        how, declared = asked.how, self._declared
        return compile_statements(
            self._con, statements, declared, how.weights, split, how.groups_above
        )

    def _before(self, asked: Asked, table: Table) -> Before:
        """Return what was measured of a table, under its present description."""
        wanted = self.purpose(asked, table)
        try:
            self._ledger.check(
                wanted, accept_schema=self.accepts(table, wanted), each_row=table.each_row
            )
        except StaleSchemaError as error:
            raise explained(error, self._described(wanted), table) from None
        kept = []
        for entry in self.read(wanted):
            same = entry.purpose.schema == wanted.schema
            part = self.known[entry.request]
            kept.append(part.where(partial(goes_with, table=table, same_schema=same)))
        sources = tuple(source for part in kept for source in part.sources)
        return Before(sources, tuple(e for part in kept for e in part.earlier), self.vintage)

    def accepts(self, table: Table, wanted: Purpose) -> bool:
        """Whether the table may be described otherwise than at its last release."""
        return self.accept_schema or only_adds(self._described(wanted), table)

    def _described(self, wanted: Purpose) -> Mapping[str, str]:
        """Return how the table was described at its last release, if that was kept."""
        entries = [e for e in self._ledger.entries() if e.purpose.table == wanted.table]
        if not entries or entries[-1].purpose.schema == wanted.schema:
            return {}
        for entry in reversed(entries):
            if not entry.content or entry.purpose.schema != entries[-1].purpose.schema:
                continue
            if entry.request not in self._descriptions:
                content = self._ledger.content(entry)
                if content is None:
                    continue
                self._descriptions[entry.request] = decode(content)[-1].described
            return self._descriptions[entry.request]
        return {}

    def read(self, wanted: Purpose) -> list[Entry]:
        """List the releases of the wanted data, and read what is not known of them yet."""
        # Listed once: other processes may add to them at any moment.
        entries = [e for e in self._ledger.entries() if e.content and e.purpose.same_rows(wanted)]
        if any(entry.request not in self.known for entry in entries):
            data = {"table": wanted.table, "unit": wanted.unit, "vintage": wanted.vintage}
            for entry, content in self._ledger.measurements(**data):
                if entry.request not in self.known:
                    self.known[entry.request] = self._kept(entry, decode(content))
        return entries

    def _kept(self, entry: Entry, sources: tuple[Source, ...]) -> Before:
        """Return what can be used of an entry: nothing of one that chose what to measure."""
        if any(source.reading == "adaptive" for source in sources):
            return Before(vintage=self.vintage)
        earlier = Earlier(entry.seq, entry.request, entry.mu_squared, entry.time)
        return Before(sources, (earlier,), self.vintage)

    def purpose(self, asked: Asked, table: Table, plan: str = NO_PLAN) -> Purpose:
        """Say what a charge is for."""
        return purpose(asked, table, self._state, plan)

    def plan(self, compiled: Compiled) -> Plan:
        """Plan on what was measured before; spends nothing.

        Raises:
            ResourceLimitError, WorkloadError: that can't be done.
        """
        how = compiled.asked.how
        planner = partial(self._on_the_past, compiled)
        counts = partial(self.counts, compiled)
        return plan_for(compiled.script, how.targets, how.assume, how.budget, planner, counts)

    def counts(self, compiled: Compiled) -> Counts | None:
        """Return what earlier measurements say of the rows of statements; nothing is spent."""
        return counts_of(compiled.script, compiled.before.sources, compiled.before.earlier)

    def _on_the_past(
        self, compiled: Compiled, budget: Budget | None, targets: Mapping[str, float] | None
    ) -> Plan:
        """Plan for a budget, or for targets of families."""
        how, script = compiled.asked.how, compiled.script
        alone = self._alone(compiled, script.workload, budget, targets)
        if not compiled.before.sources or not alone.planned:
            return alone
        past = Past(compiled.before.sources, script.merged)

        def planner(workload: Workload, budget: Budget) -> Plan:
            plan = self._alone(compiled, workload, budget, None)
            return plan_given(plan, past, how.tolerance, uniform=how.residuals == "uniform")

        try:
            if targets is not None:
                combined = plan_given(alone, past, how.tolerance)
                return least_budget_given(combined, targets, planner)
            return plan_given(alone, past, how.tolerance, uniform=how.residuals == "uniform")
        except ResourceLimitError:  # an earlier measurement is too large to be put together with
            return replace(alone, aside=True)

    def _alone(
        self,
        compiled: Compiled,
        workload: Workload,
        budget: Budget | None,
        targets: Mapping[str, float] | None,
    ) -> Plan:
        """Plan a workload as if nothing were known."""
        how = compiled.asked.how
        options = self._options(compiled, targets)
        return mechanisms.plan(workload, budget, how.mechanism, options)

    def _options(self, compiled: Compiled, targets: Mapping[str, float] | None) -> Options:
        how, table = compiled.asked.how, compiled.script.table
        return Options(
            how.tolerance,
            how.residuals,
            how.objective,
            targets,
            table.contributions,
            table.neighbours,
        )

    def adaptive(self, compiled: Compiled) -> AdaptivePlan:
        """Plan a release that chooses what it measures by the data; spends nothing.

        Raises:
            MechanismError: it can't answer the statements, or not within such a budget.
        """
        how = compiled.asked.how
        options = self._options(compiled, how.targets)
        return mechanisms.adaptive_plan(compiled.script.workload, how.budget, options)

    def compare(self, compiled: Compiled, names: Sequence[str] | None) -> Comparison:
        """Plan statements by several mechanisms; spends nothing.

        Raises:
            MechanismError: there is no mechanism of some name.
        """
        budget = compiled.asked.how.budget
        if budget is None:
            raise BudgetError(
                "Mechanisms are compared at a budget.",
                hint="pass " + spend(rho="0.5") + ".",
            )
        options = self._options(compiled, None)
        return compare(compiled.script.workload, budget, names, options)

    def planned(self, compiled: Compiled) -> tuple[Compiled, Plan]:
        """Plan; without what was measured before, if that makes the plan too large."""
        try:
            plan = self.plan(compiled)
            plan.check_variances()  # nothing that can fail by its size is left for after the charge
            return compiled, plan
        except ResourceLimitError:
            if not compiled.before.sources:
                raise
        alone = self.over(compiled.asked, lambda _: False)
        plan = replace(self.plan(alone), aside=True)
        plan.check_variances()
        return alone, plan
