"""Sessions: a schema, an engine and a ledger around one connection."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from copy import copy
from fractions import Fraction
from pathlib import Path

import duckdb
import polars as pl

from dpsql.calls import check_above, check_callable, check_path, check_switch, checked
from dpsql.engines.interrupts import interruptible
from dpsql.engines.public import PublicTables
from dpsql.errors import BudgetError, SqlError
from dpsql.hints import FREE, call
from dpsql.linalg.threads import one_thread
from dpsql.planner.comparison.compare import Comparison
from dpsql.planner.mechanisms.base import DEFAULT_TOLERANCE, ObjectiveName, Residuals
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import QUERYSMASHER
from dpsql.privacy import Budget, Ledger, data_id, open_ledger
from dpsql.release import Release, Wishes
from dpsql.release.assumed import assuming
from dpsql.release.confidence import check_confidence
from dpsql.release.folder import check_target
from dpsql.schema import EachRow, Schema
from dpsql.schema.catalog import current_database
from dpsql.session.declared import (
    Declared,
    Free,
    Statements,
    check_amount,
    check_budget,
    check_connection,
    check_mechanism,
    check_most,
    is_free,
)
from dpsql.session.requests import Asked, How, State, check_vintage
from dpsql.session.work import Progress, Work, quiet
from dpsql.views import account_card


class Session:
    """Answers SQL on one DuckDB database and keeps account of what was spent.

        session = dpsql.Session(con, budget=dpsql.Budget(rho=1))
        release = session.release({"by_sex": "SELECT …"}, budget=dpsql.Budget(rho=0.1))

    What was measured is kept with the account: later questions that it answers are free, and
    others are planned on it.

    Args:
        con: the caller's connection. It runs nothing but counting statements that the library
            builds; the analyst's SQL never reaches it. An unread result of the caller's own on
            it is lost, as with any statement. Give each thread a session and a cursor of its own.
        budget: the total for this data set, kept in the ledger across processes. It can be set
            once. None takes the total that the ledger has; without any, spending is recorded
            and not limited.
        schema: domains that go before DuckDB's catalog.
        ledger: the ledger's file; by default beside the database, as `<database>.ledger`. An
            in-memory database has its ledger in memory, for as long as the session lives.
        public: tables that hold no private row and may be joined: names of tables or views of
            the database, or name → frame. All of their content is taken to be public.
        unit: the column that tells to whom a row of the queried table belongs; see `dpsql.Unit`.
            By default each row is protected by itself. Once the ledger has charges for a table with
            a unit, other tables need one too, or `dpsql.EACH_ROW`: the owner's word that their rows
            belong to nobody who has rows there.
        max_rows: how many rows of one unit count at most. Needed with `unit`.
        vintage: the owner's name for the present state of the data, such as "2026-Q4".
            Measurements of different vintages are never put together; the budget is common to
            all. Name a new one when rows have changed. Databases that share a ledger are told
            apart without it; those in memory are only by it: with a ledger in a file, a session
            builds on what an earlier one measured only if both name the same vintage.
        accept_schema: whether a table whose public description has changed since its last
            release is meant to be so.

    Raises:
        LedgerError: the ledger can't be opened or written, or has another total.
        SchemaError: the schema, the unit or the vintage is malformed.
    """

    @checked
    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        *,
        budget: Budget | None = None,
        schema: Schema | None = None,
        ledger: str | Path | None = None,
        public: PublicTables | None = None,
        unit: str | EachRow | None = None,
        max_rows: int | None = None,
        vintage: str = "",
        accept_schema: bool = False,
    ) -> None:
        check_connection(con)
        check_vintage(vintage)
        check_path(ledger=ledger)
        check_switch(accept_schema=accept_schema)
        if budget is not None:
            check_budget(budget)
        declared = Declared.of(con, schema, public, unit, max_rows)
        _, file = self._database = current_database(con)
        self._ledger = open_ledger(file, ledger)
        if budget is not None:
            self._ledger.set_total(budget)
        self._con = con
        self._lock = threading.RLock()
        self._data = data_id(file)
        self._work = self._working(declared, vintage, accept_schema)

    def _working(self, declared: Declared, vintage: str, accept_schema: bool) -> Work:
        _, file = self._database
        # Of rows in memory nothing is known but the name that their owner gives them.
        state = State(vintage, "" if file is None and vintage else self._data)
        return Work(self._con, declared, self._ledger, self._database, state, accept_schema)

    def _repr_html_(self) -> str:
        return account_card(self._ledger)

    @checked
    def redeclared(
        self,
        *,
        schema: Schema | None = None,
        public: PublicTables | None = None,
        unit: str | EachRow | None = None,
        max_rows: int | None = None,
        vintage: str = "",
        accept_schema: bool = False,
    ) -> Session:
        """Return a session on the same connection and account, with other declarations.

        An account in memory is kept so. For the arguments see `Session`; what isn't given is
        declared no more.

        Raises:
            SchemaError: the schema, the unit or the vintage is malformed.
        """
        check_vintage(vintage)
        check_switch(accept_schema=accept_schema)
        declared = Declared.of(self._con, schema, public, unit, max_rows)
        other = copy(self)
        other._work = other._working(declared, vintage, accept_schema)
        return other

    @property
    def ledger(self) -> Ledger:
        """The account of what was spent on this data set."""
        return self._ledger

    @property
    def remaining(self) -> Fraction | None:
        """What is left of the total, as an exact ρ; None if there is no total."""
        left = self._ledger.remaining
        return None if left is None else left / 2

    @property
    def history(self) -> pl.DataFrame:
        """All charges, oldest first.

        Columns: `entry` (its number in the ledger), `time` (UTC), `state` (`charged`: paid and
        not measured, `released`: measured and not handed out, `delivered`), `rho` (charged),
        `measurements` (whether what was measured is kept) and `request` (its name).
        """
        entries = self._ledger.entries()
        return pl.DataFrame(
            {
                "entry": [e.seq for e in entries],
                "time": [e.time for e in entries],
                "state": [e.state for e in entries],
                "rho": [float(e.mu_squared / 2) for e in entries],
                "measurements": [bool(e.content) for e in entries],
                "request": [e.request for e in entries],
            },
            schema={
                "entry": pl.Int64(),
                "time": pl.String(),
                "state": pl.String(),
                "rho": pl.Float64(),
                "measurements": pl.Boolean(),
                "request": pl.String(),
            },
        )

    @checked
    @one_thread
    def plan(
        self,
        statements: Statements,
        *,
        budget: Budget | None = None,
        targets: Mapping[str, float] | None = None,
        objective: ObjectiveName = "total",
        weights: Mapping[str, float] | None = None,
        tolerance: float = DEFAULT_TOLERANCE,
        residuals: Residuals = "weighted",
        reuse: bool = True,
        mechanism: str = QUERYSMASHER,
        assume: Mapping[str, float] | None = None,
        groups_above: float | None = None,
    ) -> Plan:
        """Plan statements jointly. Reads the catalog and no rows; spends nothing.

        For the arguments see `dpsql.plan` and `release`. Where no rows are assumed, noisy counts
        of earlier measurements tell what errors to expect of averages and the like, if there are
        any.

        Raises:
            SqlError: a statement can't be answered.
            SchemaError: an unknown table or column, or one without a public domain.
            ResourceLimitError: the answers or a marginal are too large.
            MechanismError: the mechanism can't answer them, or not within such a budget.
            LedgerError: the ledger can't be read.
        """
        if is_free(budget):
            raise BudgetError(
                "A plan is for measurements, which need a budget.",
                hint=call("session.release", FREE) + " answers from earlier ones, without a plan.",
            )
        check_amount(budget, targets)
        check_switch(reuse=reuse)
        check_mechanism(mechanism, Wishes())
        check_above(groups_above=groups_above)
        how = How(
            budget, targets, objective, weights, reuse, tolerance, residuals, mechanism,
            assume=assume, groups_above=groups_above,
        )  # fmt: skip
        planning = self._work.planning
        with self._lock:  # a release in another thread must not have its rows read as a catalog
            self._work.check_database()
            compiled, plan = planning.planned(planning.asked(Asked.of(statements, how)))
            return assuming(compiled.script, plan, assume, planning.counts(compiled))

    @checked
    @one_thread
    def compare(
        self,
        statements: Statements,
        *,
        budget: Budget,
        mechanisms: Sequence[str] | None = None,
        weights: Mapping[str, float] | None = None,
        tolerance: float = DEFAULT_TOLERANCE,
    ) -> Comparison:
        """Plan statements by several mechanisms, side by side; see `dpsql.compare`.

        Earlier measurements are left aside. Reads the catalog and no rows; spends nothing.

        Raises:
            DpsqlError: see `plan`; `MechanismError` for a name that is no mechanism's.
        """
        check_budget(budget)
        how = How(budget, None, "total", weights, False, tolerance)
        planning = self._work.planning
        with self._lock:
            self._work.check_database()
            return planning.compare(planning.asked(Asked.of(statements, how)), mechanisms)

    @checked
    @one_thread
    def query(
        self,
        sql: str,
        *,
        budget: Budget | Free,
        confidence: float | None = None,
        reuse: bool = True,
        mechanism: str = QUERYSMASHER,
        accept_gap: bool = False,
        groups_above: float | None = None,
    ) -> pl.DataFrame:
        """Answer one statement; see `release`."""
        if not isinstance(sql, str):
            raise SqlError("A query is one SQL text.", hint="for several use session.release.")
        check_switch(reuse=reuse, accept_gap=accept_gap)
        check_mechanism(mechanism, Wishes(confidence), free=is_free(budget))
        if is_free(budget):
            check_confidence(confidence)
            check_above(groups_above=groups_above)
            free = How(None, None, "total", None, True, groups_above=groups_above)
            asked = Asked.of(sql, free)
            with self._lock:  # a frame can't say about which rows it is
                release = self._work.free(asked, Wishes(confidence))
        else:
            release = self.release(
                sql,
                budget=budget,
                confidence=confidence,
                reuse=reuse,
                mechanism=mechanism,
                accept_gap=accept_gap,
                groups_above=groups_above,
            )
        return next(iter(release.values()))

    @checked
    @one_thread
    def release(
        self,
        statements: Statements,
        *,
        budget: Budget | Free | None = None,
        targets: Mapping[str, float] | None = None,
        objective: ObjectiveName = "total",
        weights: Mapping[str, float] | None = None,
        confidence: float | None = None,
        progress: Progress | None = None,
        reuse: bool = True,
        nonnegative: bool = False,
        integers: bool = False,
        out: str | Path | None = None,
        mechanism: str = QUERYSMASHER,
        at_most: Budget | None = None,
        accept_gap: bool = False,
        assume: Mapping[str, float] | None = None,
        groups_above: float | None = None,
    ) -> Release:
        """Answer statements jointly, with one plan and one charge.

        Args:
            statements: a text, several texts, or name → text.
            budget: what this release is charged, exactly. With 0 it is answered from earlier
                measurements alone, which is free.
            targets: in place of a budget, statement → the largest standard error that its
                answers may have; charged is the least budget found, see `dpsql.plan`. Needs
                `at_most`, unless the data set has a total.
            objective: what the plan makes small, see `dpsql.plan`.
            weights: statement → importance, 1 by default; goes before `/*+ weight(5) */`.
            confidence: if given, the columns `<alias>_lower` and `<alias>_upper` bound each
                value with this probability, for example 0.95.
            progress: called as the work goes on, with public information only.
            reuse: whether earlier measurements of the same table, unit and vintage are used.
            nonnegative: adds columns `<alias>_adjusted`, computed from one table of numbers
                that aren't negative and fit all measurements. They are biased, and consistent
                with each other.
            integers: the same, with whole numbers.
            out: a folder to which the release is written before it counts as handed out. If the
                process dies before, the same call gives the same answers, and charges nothing.
            mechanism: what plans and measures, see `dpsql.compare`. Only `querysmasher` builds on
                earlier measurements. Answers by `aim` are biased and have no variances, and are
                not kept for a later call.
            at_most: with targets, the most that may be charged to meet them.
            accept_gap: whether a plan may be charged that has more than twice the variance that is
                known to be possible (its `warning` says why).
            assume: with targets, the rows for which those of averages, shares, deviations and
                quantiles hold, see `dpsql.plan`; else counts of earlier measurements, if any.
            groups_above: leaves out groups whose noisy count is below so many of its standard
                errors, before windows, ranks, outer aggregates and LIMIT, as HAVING would.

        Raises:
            SqlError, SchemaError, ResourceLimitError, BudgetError, WorkloadError: before anything
                is charged and before any row is read. `UndeterminedError` if the budget is 0 and
                too little is known; `StaleSchemaError` if the table's description changed.
            MechanismError: the mechanism can't answer them, or not within such a budget.
            AccuracyError: the plan loses accuracy that it need not; nothing was charged.
            LedgerError: the charge can't be recorded; no row was read.
            ReleaseFormatError: the folder exists or can't be written; this is looked at before
                the charge, and may still fail after it.
            ExecutionError: after the charge; nothing is handed out, and the charge stands.
        """
        check_amount(budget, targets)
        check_most(self._ledger, targets, at_most, assume)
        check_confidence(confidence)
        check_switch(reuse=reuse, nonnegative=nonnegative, integers=integers, accept_gap=accept_gap)
        check_callable(progress=progress)
        check_path(out=out)
        wishes = Wishes(confidence, nonnegative, integers)
        above = groups_above is not None
        check_mechanism(mechanism, wishes, free=is_free(budget), above=above)
        target = None if out is None else Path(out)
        if target is not None:
            check_target(target)
        paid = None if is_free(budget) else budget
        check_above(groups_above=groups_above)
        how = How(
            paid or None, targets, objective, weights, reuse, mechanism=mechanism, at_most=at_most,
            accept_gap=accept_gap, assume=assume, groups_above=groups_above,
        )  # fmt: skip
        with self._lock, interruptible(self._con):
            asked = Asked.of(statements, how)
            if is_free(budget):
                return self._work.handed_out(self._work.free(asked, wishes), target)
            return self._work.answer(asked, wishes, progress or quiet, target)
