"""Sessions: a schema, an engine and a ledger around one connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import duckdb
import polars as pl

from dpsql.engines.duckdb import DuckDBEngine
from dpsql.engines.public import PublicReader, PublicTables
from dpsql.errors import (
    BudgetError,
    ExecutionError,
    LedgerError,
    SchemaError,
    SqlError,
    StaleSchemaError,
)
from dpsql.mechanism.measure import ChargedPlan, NoisyMeasurements, measure
from dpsql.planner import querysmasher
from dpsql.planner.plan import Plan
from dpsql.privacy import Budget, Ledger
from dpsql.release import Release, build_release, rehearse
from dpsql.schema import Domain, Schema, Table, Unit
from dpsql.schema.catalog import (
    check_declared,
    current_database,
    read_table,
    verify_unchanged,
)
from dpsql.sql.compiled import Script
from dpsql.sql.frontend import compile_script

Statements = str | Sequence[str] | Mapping[str, str]
Progress = Callable[[str, int, int], None]
"""Called with a phase (`planning`, `counting`, `measuring`), steps done and steps in all."""


class Session:
    """Answers SQL on one DuckDB database and keeps account of what was spent.

        session = dpsql.Session(con, budget=dpsql.Budget(rho=1))
        release = session.release({"by_sex": "SELECT …"}, budget=dpsql.Budget(rho=0.1))

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
            By default each row is protected by itself.
        max_rows: how many rows of one unit count at most. Needed with `unit`.

    Raises:
        LedgerError: the ledger can't be opened or written, or has another total.
        SchemaError: the schema or the unit is malformed.
    """

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        *,
        budget: Budget | None = None,
        schema: Schema | None = None,
        ledger: str | Path | None = None,
        public: PublicTables | None = None,
        unit: str | None = None,
        max_rows: int | None = None,
    ) -> None:
        check_connection(con)
        if budget is not None:
            check_budget(budget)
        self._con = con
        self._declared = Declared.of(con, schema, public, unit, max_rows)
        self._lock = threading.RLock()
        self._database = current_database(con)
        _, file = self._database
        path = Path(ledger) if ledger is not None else _beside(file)
        self._ledger = Ledger.open(path, dataset=":memory:" if file is None else file.name)
        if budget is not None:
            self._ledger.set_total(budget)

    @property
    def ledger(self) -> Ledger:
        """The account of what was spent on this data set."""
        return self._ledger

    @property
    def remaining(self) -> Fraction | None:
        """What is left of the total, as an exact ρ; None if there is no total."""
        left = self._ledger.remaining
        return None if left is None else left / 2

    def plan(
        self,
        statements: Statements,
        *,
        budget: Budget | None = None,
        targets: Mapping[str, float] | None = None,
        objective: querysmasher.ObjectiveName = "total",
        weights: Mapping[str, float] | None = None,
        tolerance: float = 1e-3,
        residuals: querysmasher.Residuals = "weighted",
    ) -> Plan:
        """Plan statements jointly. Reads the catalog and no rows; spends nothing.

        For the arguments see `dpsql.plan`.

        Raises:
            SqlError: a statement can't be answered.
            SchemaError: an unknown table or column, or one without a public domain.
            ResourceLimitError: the answers or a marginal are too large.
        """
        check_amount(budget, targets)
        with self._lock:  # a release in another thread must not have its rows read as a catalog
            script = self._compile(statements, weights)
        return querysmasher.plan(
            script.workload,
            budget,
            tolerance=tolerance,
            residuals=residuals,
            objective=objective,
            targets=targets,
            contributions=script.table.contributions,
            neighbours=script.table.neighbours,
        )

    def query(self, sql: str, *, budget: Budget, confidence: float | None = None) -> pl.DataFrame:
        """Answer one statement; see `release`."""
        if not isinstance(sql, str):
            raise SqlError("A query is one SQL text.", hint="for several use session.release.")
        return next(iter(self.release(sql, budget=budget, confidence=confidence).values()))

    def release(
        self,
        statements: Statements,
        *,
        budget: Budget | None = None,
        targets: Mapping[str, float] | None = None,
        objective: querysmasher.ObjectiveName = "total",
        weights: Mapping[str, float] | None = None,
        confidence: float | None = None,
        progress: Progress | None = None,
    ) -> Release:
        """Answer statements jointly, with one plan and one charge.

        Args:
            statements: a text, several texts, or name → text.
            budget: what this release is charged, exactly.
            targets: in place of a budget, statement → the largest standard error that its
                answers may have; charged is the least budget found, see `dpsql.plan`.
            objective: what the plan makes small, see `dpsql.plan`.
            weights: statement → importance, 1 by default; goes before `/*+ weight(5) */`.
            confidence: if given, the columns `<alias>_lower` and `<alias>_upper` bound each
                value with this probability, for example 0.95.
            progress: called as the work goes on, with public information only.

        Raises:
            SqlError, SchemaError, ResourceLimitError, BudgetError: before anything is charged
                and before any row is read.
            LedgerError: the charge can't be recorded; no row was read.
            ExecutionError: after the charge; nothing is released, and the charge stands.
        """
        check_amount(budget, targets)
        check_confidence(confidence)
        tell = progress or (lambda phase, done, of: None)
        with self._lock:
            tell("planning", 0, 1)
            script = self._compile(statements, weights)
            rehearse(script)
            plan = querysmasher.plan(
                script.workload,
                budget,
                objective=objective,
                targets=targets,
                contributions=script.table.contributions,
                neighbours=script.table.neighbours,
            )
            tell("planning", 1, 1)
            if not plan.planned:
                nothing = NoisyMeasurements(plan.certified, {})
                return build_release(script, plan, nothing, None, confidence)
            return self._run(script, plan, confidence, tell)

    def _run(self, script: Script, plan: Plan, confidence: float | None, tell: Progress) -> Release:
        """Check, charge and measure, all on one snapshot of the database."""
        plan.check_variances()  # nothing that can fail by its size is left for after the charge
        engine = DuckDBEngine(self._con, on_step=lambda done, of: tell("counting", done, of))
        with engine.snapshot():
            self._verify(script.table)
            charged = self._charge(plan, script.table)

            def measure_charged() -> Release:
                wanted = [space for block in plan.certified.blocks for space in block.spaces]
                marginals = engine.marginals(script.table, wanted, script.columns, script.merged)
                tell("measuring", 0, 1)
                measured = measure(charged, marginals)
                tell("measuring", 1, 1)
                return build_release(script, plan, measured, charged.receipt, confidence)

            release = _opaquely(measure_charged)
        # The charge is on disk, which is what counts. Not to hand out what was paid for because
        # the note about it failed would help nobody.
        with suppress(LedgerError):
            self._ledger.mark_released(charged.receipt)
        return release

    def _compile(
        self, statements: Statements, weights: Mapping[str, float] | None = None
    ) -> Script:
        return compile_statements(self._con, statements, self._declared, weights)

    def _verify(self, table: Table) -> None:
        """Check that the table is the planned one, and in the database the ledger is for."""
        if current_database(self._con) != self._database:
            raise StaleSchemaError(
                "The connection was moved to another database, and this ledger is not for that.",
                hint="USE the first database again, or make a new session.",
            )
        verify_unchanged(self._con, table, self._declared.schema, self._declared.unit)

    def _charge(self, plan: Plan, table: Table) -> ChargedPlan:
        """Charge the whole budget that was asked for, durably, before any row is read."""
        receipt = self._ledger.charge(
            plan.budget.mu_squared,
            asked=plan.budget,
            plan=plan.certified.digest,
            schema=table.fingerprint,
        )
        return ChargedPlan(plan.certified, receipt, self._ledger)


def named(statements: Statements) -> list[tuple[str, str]]:
    """Give every statement a name: `query`, or `query_1`, `query_2`, … or the mapping's."""
    if isinstance(statements, str):
        return [("query", statements)]
    if isinstance(statements, Mapping):
        pairs = list(statements.items())
    elif isinstance(statements, Sequence):
        pairs = [(f"query_{i + 1}", sql) for i, sql in enumerate(statements)]
    else:
        pairs = [("", statements)]
    if not pairs:
        raise SqlError("There are no statements.", hint="pass at least one SELECT.")
    for name, sql in pairs:
        if not isinstance(name, str) or not isinstance(sql, str):
            raise SqlError("Statements are SQL texts.", hint='pass {"name": "SELECT …"}.')
    return pairs


def _opaquely(work: Callable[[], Release]) -> Release:
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


@dataclass(frozen=True, slots=True)
class Declared:
    """What the data owner declares besides what the catalog says."""

    schema: Schema | None
    unit: Unit | None
    public: PublicReader

    @classmethod
    def of(
        cls,
        con: duckdb.DuckDBPyConnection,
        schema: Schema | Mapping[str, Mapping[str, Domain]] | None,
        public: PublicTables | None,
        unit: str | None,
        max_rows: int | None,
    ) -> Declared:
        """Check declarations as a caller gives them.

        Raises:
            SchemaError: one is malformed.
        """
        plain = schema is None or isinstance(schema, Schema)
        checked = schema if plain else Schema(schema)  # type: ignore[arg-type]
        return cls(checked, Unit.given(unit, max_rows), PublicReader(con, public))  # type: ignore[arg-type]


def compile_statements(
    con: duckdb.DuckDBPyConnection,
    statements: Statements,
    declared: Declared,
    weights: Mapping[str, float] | None = None,
) -> Script:
    """Compile statements against the catalog of `con` and what is declared."""
    check_connection(con)
    check_declared(con, declared.schema)
    return compile_script(
        named(statements),
        lambda parts: read_table(con, parts, declared.schema, declared.unit),
        declared.public.read,
        weights,
    )


def _beside(database: Path | None) -> Path | None:
    return None if database is None else database.with_name(database.name + ".ledger")


def check_connection(con: duckdb.DuckDBPyConnection) -> None:
    """Refuse what is not a connection, such as the path of a database."""
    if not callable(getattr(con, "execute", None)):
        raise SchemaError(
            f"{type(con).__name__!r} is not a DuckDB connection.",
            hint='pass duckdb.connect("data.duckdb").',
        )


def check_amount(budget: Budget | None, targets: Mapping[str, float] | None) -> None:
    """Refuse a missing budget, unless there are targets."""
    if targets is None or budget is not None:
        check_budget(budget)


def check_budget(budget: Budget | None) -> None:
    """Refuse anything that is not a budget."""
    if not isinstance(budget, Budget):
        raise BudgetError(
            f"A budget must be a dpsql.Budget, not a {type(budget).__name__}.",
            hint="write budget=dpsql.Budget(epsilon=1, delta=1e-9), or rho=0.5, or mu=1.",
        )


def check_confidence(confidence: float | None) -> None:
    """Refuse a confidence that is no probability."""
    if confidence is None:
        return
    number = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
    if not number or not 0 < confidence < 1:
        raise SqlError(
            f"A confidence of {confidence!r} is not a probability.", hint="for example 0.95."
        )
