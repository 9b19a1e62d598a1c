"""Sessions: a schema, an engine and a ledger around one connection, and the account of each."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Self, Unpack

import polars as pl

from dpsql.calls import check_callable, checked
from dpsql.engines import data_source
from dpsql.engines.interrupts import interruptible
from dpsql.engines.source import DataSource
from dpsql.engines.unit_rows import no_units
from dpsql.errors import BudgetError, SchemaError, SqlError, UnsupportedSqlError
from dpsql.hints import FREE, call
from dpsql.linalg.threads import interruptibly, one_thread
from dpsql.planner.plans.plan import Plan
from dpsql.present.account import account_card
from dpsql.privacy import Budget, Ledger, data_id, is_address, open_ledger, uid_of
from dpsql.privacy.finding import Keys
from dpsql.privacy.place import IN_MEMORY
from dpsql.progress import Progress, Watch, watched
from dpsql.release import Release
from dpsql.release.found_keys import FoundKeys
from dpsql.request import (
    AnswerOptions,
    Declared,
    Free,
    PlanningOptions,
    RedeclaredOptions,
    ReleaseOptions,
    Request,
    SessionCompareOptions,
    SessionOptions,
    SessionPlanOptions,
    Statements,
    named,
    part,
    spelled_out,
)
from dpsql.schema import Table
from dpsql.schema.domain import OTHER
from dpsql.schema.facts import Database
from dpsql.schema.names import as_sql
from dpsql.session.answer import UndrawnError, answer, answer_free, check_answerable
from dpsql.session.archive import Archive
from dpsql.session.checks import check_budget, check_key_delta, check_most, check_request
from dpsql.session.data import DeclaredData, PrivateData, check_up_to, histogram, without_last
from dpsql.session.keys import KeyQuestion, answer_keys, with_keys
from dpsql.session.planning import Compiled, compared, compiled_held, planned
from dpsql.session.purpose import DataState

if TYPE_CHECKING:
    from dpsql.planner.comparison import Comparison
    from dpsql.privacy.budget import Number
    from dpsql.release.found_bounds import FoundBounds
    from dpsql.request import PrivateRows
    from dpsql.session.wanted import FirstSteps


# ── The account of a session: its ledger, and by what it knows the rows that are charged for ─────


_HISTORY = {
    "entry": pl.Int64(),
    "time": pl.String(),
    "state": pl.String(),
    "rho": pl.Float64(),
    "delta": pl.Float64(),
    "measurements": pl.Boolean(),
    "request": pl.String(),
}


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """A ledger, and the data set that it is opened for."""

    ledger: Ledger
    database: Database
    data: str
    """Tells its rows from those of other data sets of the ledger; see `dpsql.privacy.data_id`."""
    dataset: str | None
    """The name that its owner gave it, if it is in no file."""

    @classmethod
    def of(cls, source: DataSource, declared: Declared) -> Account:
        """Open the ledger of private data, or begin one.

        Raises:
            SchemaError: the data set can't be told now.
            LedgerError: the ledger can't be opened or written, or is another one.
        """
        database = source.identity()
        source.check_ledger(declared.ledger, shared=is_address(declared.ledger))
        ledger = open_ledger(database.file, declared.ledger, declared.dataset)
        return cls(ledger, database, data_id(database.file), declared.dataset)

    def joined(self, data: DeclaredData, declared: Declared) -> PrivateData:
        """Join what is declared with the account, and with what it keeps of earlier releases."""
        state = DataState(declared.vintage, self._known(declared.vintage))
        archive = Archive(self.ledger, data.source, state, declared.accept_schema)
        data = replace(data, can_find=self._can_find)
        return PrivateData(data, self.ledger, self.database, archive)

    def _can_find(self) -> bool:
        """Whether any δ is left to pay for finding keys."""
        return self.ledger.remaining_delta != 0

    def _known(self, vintage: str) -> str:
        """Return by what rows of a vintage are known in the ledger.

        Of rows in memory nothing tells whether they are those of an earlier session, but what
        their owner calls them: their vintage, beside the name of the data set if it has one.
        """
        if self.database.file is not None or not vintage:
            return self.data
        if self.dataset is not None:
            return uid_of(self.dataset)
        return "" if self.ledger.dataset == IN_MEMORY else IN_MEMORY

    @property
    def history(self) -> pl.DataFrame:
        """All charges, oldest first; see `Session.history`."""
        rows = [
            (
                e.seq,
                e.time,
                e.state,
                float(e.mu_squared / 2),
                float(e.delta),
                bool(e.content),
                e.request,
            )
            for e in self.ledger.entries()
        ]
        return pl.DataFrame(rows, schema=_HISTORY, orient="row")


class Session:
    """Answers SQL on private rows and keeps account of what was spent.

        session = dpsql.Session("people.csv", budget=dpsql.Budget(rho=1), schema=schema)
        release = session.release({"by_sex": "SELECT …"}, budget=dpsql.Budget(rho=0.1))

    What was measured is kept with the account: later questions that it answers are free, and
    others are planned on it.

    Args:
        con: the private rows. A path: of a file of CSV, Parquet or DuckDB, of a folder, or a
            pattern, `trips/*.parquet`; the table is called as the file or the folder is. A frame
            of Polars, pandas or Arrow, which is the table `self`, and copied. Several of these, by
            the names of tables. Or a connection to DuckDB, or a local Spark session, of the
            caller's; one for each thread. No SQL of the analyst reaches it, but counting
            statements. An unread result on it is lost.
        budget: the total for this data set, kept in the ledger across processes. It can be set
            once. None takes the total that the ledger has; without any, spending is recorded
            and not limited.
        key_delta: the part of the total's δ, or beside ρ and μ the δ, that is set aside to find out
            which keys exist; see `Budget.setting_aside`. By default what was set aside before
            stays so; of a new total in (ε, δ) a tenth of its δ, if nothing was spent, and else
            nothing. It can be set once, before anything is spent.
        schema: domains that go before DuckDB's catalog: a `Schema`, its tables, or the path of a
            schema file, which `dpsql schema people.csv` drafts. What is in CSV is text, but where
            it is declared otherwise.
        ledger: the ledger's file; by default beside the file that is given, as `<file>.ledger`, or
            beside the folder; frames, and a database in memory, have it in memory, for as long as
            the session lives: nothing limits two of them together. An attached database has
            its account beside its file, and files that a view reads beside their folder, or here,
            if it was the first; another one is refused. Of tables of Spark it is always named. Or
            the address of the server where it is.
        dataset: with a server as `ledger`: the name of rows that are in no file of DuckDB, such as
            frames, databases in memory and tables of Spark, which the owner has bound to an account
            there. What is asked under one name is added up in one account; rows under two names
            have two.
        version: of tables with versions, as Delta's in Spark, which one is asked; by default the
            last one. Measurements of different versions are never put together, but where a vintage
            is named.
        public: tables that hold no private row and may be joined: names of tables or views of
            the database, or name → frame. All of their content is taken to be public.
        unit: the column that tells to whom a row of the queried table belongs; see `dpsql.Unit`.
            By default each row is protected by itself. Once the ledger has charges for a table with
            a unit, other tables need one too, or `dpsql.EACH_ROW`: the owner's word that their rows
            belong to nobody who has rows there.
        max_rows: how many rows of one unit count at most, or table → how many. Without, rows of
            units are looked into and not counted.
        max_groups: with `unit`, in how many groups one counts at most where units are counted, by
            COUNT(DISTINCT unit); by default in as many as `max_rows`.
        max_values: with `unit`, how many values of one count at most in each group where distinct
            values of other columns are counted; by default as many as `max_rows`.
        references: with `unit`, keys that the database doesn't know, see `dpsql.Unit`.
        vintage: the owner's name for the present state of the data, such as "2026-Q4".
            Measurements of different vintages are never put together; the budget is common to
            all. Name a new one when rows have changed. Databases that share a ledger are told
            apart without it; those in memory are only by it: with a ledger in a file, a session
            builds on what an earlier one measured only if both name the same vintage.
        accept_schema: whether a table whose public description has changed since its last
            release is meant to be so.

    Raises:
        LedgerError: the ledger can't be opened or written, or has another total.
        BudgetError: no such δ can be set aside of the total, or there is none.
        SchemaError: the schema, the unit or the vintage is malformed.
    """

    @checked
    @spelled_out(SessionOptions)
    def __init__(
        self,
        con: PrivateRows,
        *,
        budget: Budget | None = None,
        key_delta: Number | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        declared = Declared(**options)
        data = DeclaredData.of(data_source(con, declared.version), declared)
        if budget is not None:
            check_budget(budget)
        check_key_delta(budget, key_delta)
        self._account = Account.of(data.source, declared)
        if budget is not None:
            ledger = self._account.ledger
            ledger.set_total(budget, key_delta=key_delta)
        self._lock = threading.RLock()
        self._data = self._account.joined(data, declared)

    def close(self) -> None:
        """Close files that were opened for it, such as a DuckDB file; no connection of a caller.

        What was opened is closed, too, when nothing refers to the session any more, and at the end
        of `with dpsql.Session("people.duckdb") as session:`. Others can write to it from then on.
        """
        self._data.declared.source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return account_card(self.ledger)

    @checked
    @spelled_out(RedeclaredOptions)
    def redeclared(self, **options: Unpack[RedeclaredOptions]) -> Session:
        """Return a session on the same connection and account, with other declarations.

        An account in memory is kept so. For the arguments see `Session`; what isn't given is
        declared no more.

        Raises:
            SchemaError: the schema, the unit or the vintage is malformed.
        """
        declared = Declared(**options)
        other = copy(self)
        data = DeclaredData.of(self._data.declared.source, declared)
        other._data = self._account.joined(data, declared)
        return other

    @property
    def ledger(self) -> Ledger:
        """The account of what was spent on this data set."""
        return self._account.ledger

    @property
    def remaining(self) -> Fraction | None:
        """The rest of the total, as an exact ρ; None if there is no total."""
        left = self.ledger.remaining
        return None if left is None else left / 2

    @property
    def remaining_delta(self) -> Fraction | None:
        """The rest of the δ that the total sets aside for keys; None if there is no total."""
        return self.ledger.remaining_delta

    @property
    def history(self) -> pl.DataFrame:
        """All charges, oldest first.

        Columns: `entry` (its number in the ledger), `time` (UTC), `state` (`charged`: paid and
        not measured, `failed`: counting failed, and the same request is free once, `retried`: it
        was asked again, and not measured, `released`: measured and not handed out, `delivered`),
        `rho` and `delta` (charged), `measurements` (whether what was measured is kept) and
        `request` (its name).
        """
        return self._account.history

    @checked
    @one_thread
    @spelled_out(SessionPlanOptions)
    def plan(
        self,
        statements: Statements,
        *,
        budget: Budget | None = None,
        **options: Unpack[SessionPlanOptions],
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
        request = Request(named(statements), budget, **options)
        if request.free:
            raise BudgetError(
                "A plan is for measurements, which need a budget.",
                hint=call("session.release", FREE) + " answers from earlier ones, without a plan.",
            )
        check_request(request)
        request = _understood(request, self.ledger)
        # A release in another thread must not have its rows read as a catalog.
        with self._lock, watched(request.progress) as watch, self._data.held():
            request = replace(request, progress=watch)
            request.tell("planning", 0, 1)
            try:
                return _planned(self._data, request)
            except UnsupportedSqlError as error:
                return _assuming_values(self._data, request, error)
            except SchemaError as error:
                first = _first_steps(self._data, request, error, planned=True)
            plan = _planned(first.planned, first.request)
            return replace(plan, notes=(*plan.notes, *first.notes))

    @checked
    @one_thread
    @spelled_out(SessionCompareOptions)
    def compare(
        self, statements: Statements, *, budget: Budget, **options: Unpack[SessionCompareOptions]
    ) -> Comparison:
        """Plan statements by several mechanisms, side by side; see `dpsql.compare`.

        Earlier measurements are left aside. Reads the catalog and no rows; spends nothing.

        Raises:
            DpsqlError: see `plan`; `MechanismError` for a name that no mechanism has.
        """
        check_budget(budget)
        request = Request(named(statements), budget, reuse=False, **part(options, PlanningOptions))
        request = _understood(request, self.ledger)
        with self._lock, watched(options.get("progress")) as watch, self._data.held():
            watch("planning by each mechanism", 0, 1)
            data = self._data
            try:
                asked = compiled_held(data, request)
            except SchemaError as error:
                first = _first_steps(data, request, error, planned=True)
                asked = compiled_held(first.planned, first.request)
            asked = _beside(data, asked)
            return interruptibly(partial(compared, asked, options.get("mechanisms")))

    @checked
    def rows_per_unit(self, table: str, *, budget: Budget | Free, up_to: int = 100) -> pl.DataFrame:
        """Answer how many rows of a table units have, to choose `max_rows` by.

        A unit is counted once, whatever rows it has: all of them have a say, no bound is needed,
        and the noise is that for one. So a small part of the total is enough.

        Args:
            table: its name; its rows belong to units. Or the names of several, as "orders, visits",
                of whose rows all that are of one unit meet: each order each visit.
            budget: what is charged; 0 answers again what was asked before.
            up_to: the largest bound to choose from, known beforehand. More rows pass for one more.

        Returns:
            A row for each bound: `max_rows`; `units`, with so many rows, and more than the bound
            before; `units_cut`, with more rows than that; `rows_cut`, how many rows are left out by
            it, as if those between two bounds lay in their middle; and what share of all that is,
            `units_cut_share` and `rows_cut_share`; each with its variance. In the last row are the
            units with more rows than all bounds.

        Raises:
            SchemaError: there is no such table, or its rows have no units.
            DpsqlError: see `release`.
        """
        check_up_to(up_to)
        declared = self._data.declared
        with self._data.held():
            of = declared.related(table)
            if of.unit is None:
                raise no_units(of)
            made = declared.unit_counts(of, 1, up_to + 1)
        frame = self._asked_of(made, histogram(made.name, up_to), budget)
        return without_last(frame, up_to)

    @checked
    def rows_without_unit(self, table: str, *, budget: Budget | Free) -> pl.DataFrame:
        """Answer how many rows of a table belong to no unit, and are left out of all answers.

        Their key is NULL, or that of a row that they lead to. No unit has a say in how many they
        are: it comes and goes with all of its rows, and these are none of them. Each of them is
        protected by itself, as if it were a unit: the noise is that for one row, and the account
        has them as a table of single rows. Where a step of the way to the unit is not a FOREIGN
        KEY, they can't be counted: rows of a unit could stay behind, without one.

        Args:
            table: its name; its rows belong to units.
            budget: what is charged; 0 answers again what was asked before.

        Returns:
            One row: `rows`, and their variance.

        Raises:
            SchemaError: there is no such table, its rows have no units, or some may stay behind.
            DpsqlError: see `release`.
        """
        declared = self._data.declared
        with self._data.held():
            made = declared.source.rows_without_unit(declared.described(table))
        return self._asked_of(made, f"SELECT COUNT(*) AS rows FROM {as_sql(made.name)}", budget)

    @checked
    def find_keys(
        self,
        table: str,
        column: str | Sequence[str],
        *,
        budget: Budget | Free,
        keys: Keys | None = None,
        other: str = OTHER,
        refresh: bool = False,
        progress: Progress | bool | None = None,
    ) -> FoundKeys:
        """Find values of a column that many units have, where nobody has declared any.

            found = session.find_keys("flights", "tailnum", budget=…)
            session.query("SELECT tailnum, COUNT(*) AS n FROM flights GROUP BY tailnum", budget=…)

        Each value that occurs gets a noisy number of units, and is told if that is large enough:
        one that a single unit has is told with a probability of δ at most. The values that are
        found become the column's domain in this session, all other texts one label; `domain` is it
        for schemas. They are kept with the account: asked again, also by another session, the same
        are handed out, and nothing is charged.

        Args:
            table: its name.
            column: a column of texts, whole numbers, dates or times without a zone, of which the
                days are found. Texts of more than 1,000 bytes are none that are found. Or an
                expression of such columns by which statements group, as `"substr(zip, 1, 3)"`. Or a
                list of them, as `["carrier", "flight"]`, of which groups by all are found together.
            budget: what is charged, μ² and a part of δ; 0 answers again what was found before.
            keys: how much of it, and how many are found; see `dpsql.Keys`.
            other: the label for all texts that aren't found.
            refresh: whether new ones are found, and charged for, whatever was found before.
            progress: see `release`.

        Returns:
            The values that were found, and by which rule.

        Raises:
            BudgetError: there is no δ to pay with, or too little.
            SchemaError: the column has a domain, or another type; or nothing says how many values
                of a unit count.
            DpsqlError: see `release`.
        """
        asked = KeyQuestion(table, column, budget, Keys() if keys is None else keys, other, refresh)
        if progress is not None and not isinstance(progress, bool):
            check_callable(progress=progress)
        with _at_work(self, progress) as watch:
            key_values = answer_keys(self._data, asked, watch)
            self._data = with_keys(self._data, asked, key_values)
            return key_values

    @checked
    def find_bounds(
        self,
        table: str,
        column: str,
        *,
        budget: Budget | Free,
        progress: Progress | bool | None = None,
    ) -> FoundBounds:
        """Find between which numbers most values of a column lie, where nobody knows any bounds.

            session.find_bounds("sales", "price", budget=dpsql.Budget(rho=0.001))
            session.query("SELECT SUM(price) AS s FROM sales", budget=…)

        Values are counted between powers of two, and the outermost counts that are surely above 0
        tell the bounds. They are those of the column in this session from then on: values beyond
        them count as the nearer one. `bounds` has them for schemas.

        Args:
            table: its name.
            column: a column of numbers without a domain and without bounds; or an expression of a
                row, such as "TRY_CAST(amount AS DOUBLE)" or "price * weight".
            budget: what is charged; a fifth of what sums will cost is enough. 0 answers again from
                what was measured before.
            progress: see `release`.

        Returns:
            The bounds.

        Raises:
            SchemaError: the column has a domain or bounds, or no numbers.
            DpsqlError: see `release`.
        """
        from dpsql.session.bounds import BoundsQuestion, answer_bounds, with_bounds

        asked = BoundsQuestion(table, column, budget)
        if progress is not None and not isinstance(progress, bool):
            check_callable(progress=progress)
        with _at_work(self, progress) as watch:
            bounds = answer_bounds(self._data, asked, watch)
            self._data = with_bounds(self._data, table, bounds)
            return bounds

    def _asked_of(self, made: Table, sql: str, budget: Budget | Free) -> pl.DataFrame:
        """Answer a statement over what is made of the rows of a table."""
        other = copy(self)
        declared = replace(self._data.declared, made={made.name: made})
        other._data = replace(self._data, declared=declared)
        return next(iter(answered(other, Request(named(sql), budget)).values()))

    @checked
    @spelled_out(AnswerOptions)
    def query(
        self, sql: str, *, budget: Budget | Free, **options: Unpack[AnswerOptions]
    ) -> pl.DataFrame:
        """Answer one statement; see `release`."""
        if not isinstance(sql, str):
            raise SqlError("A query is one SQL text.", hint="for several use session.release.")
        return next(iter(answered(self, Request(named(sql), budget, **options)).values()))

    @checked
    @spelled_out(ReleaseOptions)
    def release(
        self,
        statements: Statements,
        *,
        budget: Budget | Free | None = None,
        **options: Unpack[ReleaseOptions],
    ) -> Release:
        """Answer statements jointly, with one plan and one charge.

        Args:
            statements: a text, several texts, or name → text; over one private table, or over
                several with rows of the same units.
            budget: what this release is charged, exactly. With 0 it is answered from earlier
                measurements alone, which is free.
            targets: in place of a budget, statement → the largest standard error that its
                answers may have; charged is the least budget found, see `dpsql.plan`. Needs
                `at_most`, unless the data set has a total.
            objective: what the plan makes small, see `dpsql.plan`.
            weights: statement → importance, 1 by default; goes before `/*+ weight(5) */`. Or
                "marginal": each table of answers counts alike.
            confidence: if given, the columns `<alias>_lower` and `<alias>_upper` bound each
                value with this probability, for example 0.95.
            progress: called as the work goes on, with public information only. By default work
                of some seconds is shown on a terminal and in notebooks; with False it is not.
            reuse: whether earlier measurements of the same table, unit and vintage are used.
            nonnegative: adds columns `<alias>_adjusted`, of tables of numbers that aren't negative
                and fit the measurements. They are biased; `Release.columns` says what agrees.
            integers: the same, with whole numbers.
            out: a folder to which the release is written before it counts as handed out. If the
                process dies before, the same call gives the same answers, and charges nothing.
            keys: how values of columns are found that nobody has declared, and that statements
                group by: `dpsql.Keys()`, or of columns that are declared by `Domain.keys` anything
                else. A part of the budget pays for that, half of it if statements only count by
                such columns, else a fifth; they are answered with the rest. What was found before
                is used for nothing. If something is refused after keys were found, these stay.
            mechanism: what plans and measures, see `dpsql.compare`. Only `querysmasher` builds on
                earlier measurements. Answers by `aim` are biased and have no variances, and are
                not kept for a later call.
            at_most: with targets, the most that may be charged to meet them.
            accept_gap: whether a plan may be charged that has more than twice the variance that is
                known to be possible (its `warning` says why).
            bounds: how bounds of columns are found that are added up and that nobody has declared:
                `dpsql.Bounds()`, or of columns that are declared by `Domain.number()` anything
                else, by the same rules; a fifth of the budget pays for it.
            assume: with targets, the rows for which those of averages, shares, deviations and
                quantiles hold, see `dpsql.plan`; else counts of earlier measurements, if any.
            report_cut: whether to count besides how many units have more rows than `max_rows` lets
                count, and how many there are: as one more answer, `units_cut`, planned with the
                others, to which little of the budget goes.
            report_moved: whether to count besides how many values of the columns that statements
                show or add up count as others, because domains and bounds are declared so: as one
                more answer, `values_moved`.
            groups_above: leaves out groups whose noisy count is below so many of its standard
                errors, before windows, ranks, outer aggregates and LIMIT, as HAVING would.
            suppress_below: shows values as NULL that rest on fewer rows, by their noisy number;
                rows stay. What is saved has all values, see `Release.suppressed`.
            standard_errors: has `<alias>_standard_error` in place of `<alias>_variance`, see
                `Release.with_standard_errors`. What is saved has variances.

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
        return answered(self, Request(named(statements), budget, **options))


def _understood(request: Request, ledger: Ledger) -> Request:
    """Return a request whose budgets are what they are in this account; see `Ledger.understood`.

    Raises:
        BudgetError: one has no more δ than the account sets aside.
    """
    amount, most = request.amount, request.at_most
    return replace(
        request,
        budget=request.budget if amount is None else ledger.understood(amount),
        at_most=None if most is None else ledger.understood(most),
    )


@contextmanager
def _at_work(session: Session, progress: Progress | bool | None) -> Iterator[Watch]:
    """Work while no other thread uses the connection, in a way that an interrupt ends.

    What the catalog tells is held, see `PrivateData.held`.
    """
    source = session._data.declared.source
    with (
        one_thread,
        session._lock,
        watched(progress) as watch,
        interruptible(source),
        session._data.held(),
    ):
        yield watch


def answered(session: Session, request: Request) -> Release:
    """Answer a request, while no other thread uses the connection.

    Raises:
        DpsqlError: see `Session.release`.
    """
    check_request(request)
    check_most(request, session.ledger)
    request = _understood(request, session.ledger)
    with _at_work(session, request.progress) as watch:
        request = replace(request, progress=watch)
        way = answer_free if request.free else answer
        ready, steps = (session._data, request), dict(_FIRST)
        while True:
            try:
                return way(*ready)
            except (UndrawnError, SchemaError, UnsupportedSqlError) as error:
                refused = error
            kind = next((step for step in steps if isinstance(refused, step)), None)
            if kind is None:
                raise refused
            ready = steps.pop(kind)(session, ready[1], refused, watch)


def _found_first(
    session: Session, request: Request, refused: Exception, watch: Watch
) -> tuple[PrivateData, Request]:
    """Find keys and bounds that are wanting, which the session knows from then on.

    Raises:
        DpsqlError: none are to be found, or what is asked can't be answered with them.
    """
    if not isinstance(refused, SchemaError):
        raise refused
    first = _first_steps(session._data, request, refused, planned=False)
    if first.steps:
        check_answerable(first.planned, first.request)
    session._data = first.data
    for data in first.found(watch):
        session._data = data
    return session._data, first.request


def _drawn_first(
    session: Session, request: Request, refused: Exception, watch: Watch
) -> tuple[PrivateData, Request]:
    """Draw quantiles that statements ask for; the session knows of them by its account alone."""
    from dpsql.session.draws import with_draws  # which few need

    if not isinstance(refused, UndrawnError):
        raise refused
    return with_draws(session._data, refused.asked)


def _released_first(
    session: Session, request: Request, refused: Exception, watch: Watch
) -> tuple[PrivateData, Request]:
    """Release values of all units' rows that statements compare with, and write them there.

    Raises:
        DpsqlError: there are none, or what is asked can't be answered with them.
    """
    if not isinstance(refused, UnsupportedSqlError) or refused.value is None:
        raise refused
    from dpsql.session.values import with_values  # which few need

    return with_values(session._data, request, lambda statement: answered(session, statement))


_FIRST = {
    SchemaError: _found_first,
    UndrawnError: _drawn_first,
    UnsupportedSqlError: _released_first,
}
"""The errors after which something is done first, once."""


def _assuming_values(data: PrivateData, request: Request, refused: UnsupportedSqlError) -> Plan:
    """Plan a request with invented values of all units' rows that it compares with.

    Raises:
        DpsqlError: there are none; or it can't be planned with them.
    """
    if refused.value is None:
        raise refused
    from dpsql.session.values import assumed_values, notes_of  # which few need

    known, assumed = assumed_values(data, request)
    plan = _planned(data, assumed)
    return replace(plan, notes=(*plan.notes, *notes_of(known, request.amount)))


def _planned(data: PrivateData, request: Request) -> Plan:
    """Plan a request on what was measured before, beside quantiles that are drawn."""
    return planned(data, _beside(data, compiled_held(data, request)))[1]


def _beside(data: PrivateData, asked: Compiled) -> Compiled:
    """Return what is planned beside quantiles that are drawn."""
    if not asked.script.drawn or asked.request.free:
        return asked
    from dpsql.session.draws import planned_beside  # which few need

    return planned_beside(asked, data)


def _first_steps(
    data: PrivateData, request: Request, refused: SchemaError, *, planned: bool
) -> FirstSteps:
    """Say which keys and bounds have to be found before a request is answered.

    Raises:
        SchemaError: the error by which it is refused, if none are wanting; or another one.
    """
    if refused.wanted is None:
        raise refused
    from dpsql.session.wanted import ASSUMED, FEW, FirstSteps  # which most don't need

    with data.held():  # statements are compiled again with each column that is assumed
        return FirstSteps.of(data, request, refused, ASSUMED if planned else FEW)
