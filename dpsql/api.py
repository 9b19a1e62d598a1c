"""The one-shot calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

import polars as pl

from dpsql.answers.expected import assuming
from dpsql.calls import check_above, check_switch, checked
from dpsql.engines import data_source
from dpsql.errors import MechanismError, SchemaError, SqlError, WorkloadError
from dpsql.hints import option
from dpsql.linalg.threads import interruptibly, one_thread
from dpsql.planner import registry as mechanisms
from dpsql.planner.mechanisms.base import Options
from dpsql.planner.plans.plan import RECORD, Plan
from dpsql.planner.reuse.past import Past, plan_given, source_of
from dpsql.privacy import Budget
from dpsql.progress import watched
from dpsql.release import Before, Release
from dpsql.request import (
    AnswerOptions,
    CompareOptions,
    Declared,
    Free,
    PlanningOptions,
    PlanOptions,
    QueryOptions,
    ReleaseOptions,
    Request,
    SessionOptions,
    Statements,
    TableOptions,
    named,
    part,
    spelled_out,
)
from dpsql.schema import Unit
from dpsql.schema.units import neighbours_of
from dpsql.session import Session, answered
from dpsql.session.checks import check_amount, check_budget, check_rules
from dpsql.session.data import DeclaredData
from dpsql.session.planning import Compiled, options_for, options_of, plan_of, tell_effort
from dpsql.sql.text.script import read_script_at
from dpsql.workload import Workload

if TYPE_CHECKING:
    from dpsql.planner.comparison import Comparison
    from dpsql.request import PrivateRows


@overload  # a str is a Sequence of str too, and then the first one is meant
def query(  # type: ignore[overload-overlap]
    con: PrivateRows,
    statements: str,
    *,
    budget: Budget | Free,
    **options: Unpack[QueryOptions],
) -> pl.DataFrame: ...
@overload
def query(
    con: PrivateRows,
    statements: Sequence[str] | Mapping[str, str],
    *,
    budget: Budget | Free,
    **options: Unpack[QueryOptions],
) -> Release: ...
@checked
@spelled_out(QueryOptions)
def query(
    con: PrivateRows,
    statements: Statements,
    *,
    budget: Budget | Free,
    **options: Unpack[QueryOptions],
) -> pl.DataFrame | Release:
    """Answer SQL with differential privacy.

        dpsql.query("people.csv", "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex",
                    budget=dpsql.Budget(epsilon=1, delta=1e-9), schema=schema)

    Args:
        con: the private rows: a file, a folder, a frame, a connection, see `Session`.
        statements: one SQL text for one frame; several, or name → text, for a `Release` that
            is planned jointly.
        budget: what the call is charged; 0 answers from earlier measurements alone.
        schema: domains that go before DuckDB's catalog, see `Session`.
        ledger: the ledger's file, see `Session`.
        dataset: the name of rows that are in no file, see `Session`.
        version: of tables with versions, see `Session`.
        public: tables that may be joined, see `Session`.
        weights: statement → importance, see `Session.release`.
        confidence: adds interval columns, see `Session.release`.
        unit: the column that tells to whom a row belongs, see `Session`.
        max_rows: how many rows of one unit count at most, see `Session`.
        max_groups: in how many groups one unit counts at most, see `Session`.
        max_values: how many distinct values of one unit count at most, see `Session`.
        references: keys that the database doesn't know, see `dpsql.Unit`.
        vintage: the state of the data, see `Session`.
        accept_schema: whether a changed description of the table is meant, see `Session`.
        reuse: whether earlier measurements are used, see `Session.release`.
        keys: how values of columns are found that nobody has declared, see `Session.release`.
        bounds: how bounds of numbers are found, see there.
        mechanism: what plans and measures, see `compare`.
        accept_gap: whether a plan may lose accuracy that it need not, see `Session.release`.
        groups_above: leaves out groups that may be empty, see `Session.release`.
        suppress_below: shows values of few rows as NULL, see `Session.release`.
        standard_errors: has standard errors in place of variances, see `Session.release`.

    Raises:
        DpsqlError: see `Session.release`.
    """
    check_amount(Request(budget=budget))
    with Session(con, **part(options, SessionOptions)) as session:
        if isinstance(statements, str):
            alone = Request(named(statements), budget, **part(options, AnswerOptions))
            return next(iter(answered(session, alone).values()))
        asked = Request(named(statements), budget, **part(options, ReleaseOptions))
        return answered(session, asked)


@checked
@one_thread
@spelled_out(PlanOptions)
def plan(
    source: PrivateRows | Workload,
    statements: Statements | None = None,
    *,
    budget: Budget | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Plan SQL statements, or a workload without SQL and data. Spends nothing.

        dpsql.plan(con, {"by_sex": "SELECT …"}, budget=budget).expected_error()
        dpsql.plan(con, {"by_sex": "SELECT …"}, targets={"by_sex": 25}).budget
        dpsql.plan(workload, budget=dpsql.Budget(mu=1)).rmse

    Args:
        source: private rows as in `Session`, of which none is read, or a `Workload`.
        statements: the SQL, if `source` is no `Workload`.
        budget: what the plan may spend.
        targets: in place of a budget, statement → the largest standard error that its answers
            may have, in rows. `plan.budget` is the least one found that meets them all, at most
            by the factor 1 + `plan.gap` above the least there is; `plan.binding` names the
            statements that decide it. Only counts and sums have errors that targets can bound;
            with `assume`, averages, shares and deviations have, too, in their own units, and of
            quantiles the largest width of the 95 % intervals.
        objective: `total` makes the sum of weighted variances small, `largest` the largest one.
        schema: see `Session`.
        public: see `Session`.
        weights: see `Session.release`.
        tolerance: the certified relative gap to aim for.
        residuals: `weighted`, which releases use, takes weighted or uniform residual spaces, or
            few joint cells as a whole, whichever has the least error in integers; `uniform` takes
            the paper's; `none` plans up to 2,000 joint cells as a whole.
        unit: the column that tells to whom a row belongs, see `Session`.
        max_rows: how many rows of one unit count at most, see `Session`; for a `Workload` it
            may be given alone.
        max_groups: see `Session`.
        max_values: see `Session`.
        references: see `dpsql.Unit`.
        given: plans for a `Workload` over the same domain that were measured before; answers
            then follow from all measurements together. (A session does that by itself.)
        mechanism: what plans, see `compare`.
        bases: for `residualplanner+`, attribute → what its strategy is made for: `identity`,
            `prefix`, `range`, or a matrix of queries × cells. By default what is asked of it.
        loss: for `residualplanner`, in place of the total: any convex function, in CVXPY, of the
            vector of variances of the families' cells, for example
            `lambda variances: cvxpy.norm(variances, 3)`.
        keys: how values of columns are found that nobody has declared, see `Session.release`.
        bounds: how bounds of numbers are found, see there.
        assume: `rows` → rows of the table, or statement → rows in each of its groups; or
            `table.column` → how many keys are found there, 100 by default, or to
            which number its bounds go:
            `plan.expected_answers` then has the errors of averages, shares and quantiles, too, in
            their own units, as if rows were spread evenly over all values. Targets of averages
            and shares hold for so many rows, whatever the average is; those of deviations and
            quantiles for such rows.
        groups_above: leaves out groups that may be empty, see `Session.release`.
        report_cut: whether units with too many rows are counted besides, see `Session.release`.
        report_moved: whether values that count as others are, see there.

    Raises:
        DpsqlError: see `Session.plan`; `WorkloadError` for a malformed workload.
    """
    given = options.get("given", ())
    request = Request((), budget, **part(options, PlanningOptions))
    if request.targets is None or budget is not None:
        check_budget(budget)
    check_above(groups_above=request.groups_above)
    check_rules(keys=request.keys, bounds=request.bounds, quantiles=request.quantiles)
    check_switch(report_cut=request.report_cut, report_moved=request.report_moved)
    declared = Declared(**part(options, TableOptions))
    with watched(options.get("progress")) as watch:
        watch("planning", 0, 1)
        request = replace(request, progress=watch)
        workload, how, asked = _asked(source, statements, request, declared)
        _check_given(source, workload, given, request.mechanism)
        if asked is not None:
            tell_effort(asked)
            found = interruptibly(partial(plan_of, asked))
            alone = assuming(asked.script, found, asked.request.assume)
        elif request.assume is None:
            alone = interruptibly(
                partial(mechanisms.plan, workload, budget, request.mechanism, how)
            )
        else:
            raise WorkloadError(
                "A workload has no columns.", hint="leave " + option("assume") + " out."
            )
    if not given:
        return alone
    past = Past(tuple(source_of(plan) for plan in given))
    return plan_given(alone, past, request.tolerance, uniform=request.residuals == "uniform")


@checked
@spelled_out(CompareOptions)
def compare(
    source: PrivateRows | Workload,
    statements: Statements | None = None,
    *,
    budget: Budget,
    **options: Unpack[CompareOptions],
) -> Comparison:
    """Plan SQL statements or a workload by every mechanism, side by side. Spends nothing.

        print(dpsql.compare(con, dpsql.read_script("script.sql"), budget=budget))
        dpsql.compare(workload, budget=budget, mechanisms=["querysmasher", "hdmm"]).frame

    For each mechanism it shows the expected RMSE, the largest standard error, a lower bound, the
    seconds and the memory that planning took, or why it does not apply. Names, as `mechanism=`
    takes them:

    - `querysmasher`, the default, also with uniform references, as it is published;
    - `residualplanner`: marginals only, optimal for them;
    - `residualplanner+`: products of one strategy per column;
    - `fourier`: Weighted Fourier Factorizations;
    - `hdmm`: products, unions of products, or weighted marginals; also with pure ε;
    - `gaussian` and, with pure ε, `laplace`: noise on the queries or on their marginals;
    - `pairs`: pairs of columns. Answers are of largest entropy, biased, without variances;
    - `aim`: chooses what it measures by the data. Answers are biased, without variances.

    Args:
        source: private rows as in `Session`, of which none is read, or a `Workload`.
        statements: the SQL, if `source` is no `Workload`.
        budget: what each may spend; `Budget(epsilon=…, delta=0)` asks for pure ε.
        mechanisms: some of them; all by default.
        schema: see `Session`.
        public: see `Session`.
        weights: see `Session.release`.
        tolerance: the certified relative gap that QuerySmasher aims for.
        unit: see `plan`.
        max_rows: see `plan`.
        max_groups: see `plan`.
        max_values: see `plan`.
        references: see `dpsql.Unit`.

    Raises:
        DpsqlError: see `Session.plan`; `MechanismError` for a name that no mechanism has.
    """
    from dpsql.planner.comparison import compare as compare_workload  # few are compared

    check_budget(budget)
    declared = Declared(**part(options, TableOptions))
    request = Request((), budget, **part(options, PlanningOptions))
    with watched(options.get("progress")) as watch:
        watch("planning by each mechanism", 0, 1)
        workload, how, asked = _asked(source, statements, request, declared)
        names = options.get("mechanisms")
        if asked is not None and asked.request.amount is not None:
            budget = asked.request.amount  # less what finding keys and bounds takes
        return interruptibly(partial(compare_workload, workload, budget, names, how))


def _asked(
    source: PrivateRows | Workload,
    statements: Statements | None,
    request: Request,
    declared: Declared,
) -> tuple[Workload, Options, Compiled | None]:
    """Return a workload, how it is to be planned, and the SQL that it is of."""
    if isinstance(source, Workload):
        if statements is not None:
            raise SqlError(
                "A workload is planned without statements.", hint="pass a connection with SQL."
            )
        for name in ("report_cut", "report_moved"):
            if getattr(request, name):
                raise WorkloadError(
                    "A workload doesn't say which rows are left out, or which values are moved.",
                    hint="leave " + option(name) + " out.",
                )
        return source, options_for(request, request.targets, *_protected(declared)), None
    if statements is None:
        raise SqlError("There are no statements to plan.", hint='pass "SELECT …" after the rows.')
    request = replace(request, statements=named(statements))
    rows, notes = data_source(source), tuple[str, ...]()
    try:
        data = DeclaredData.of(rows, declared)
        with rows.catalog.held():
            try:
                script = data.compile(request)
            except SchemaError as error:
                if error.wanted is None:
                    raise
                from dpsql.session.wanted import planned_alone  # which most don't need

                script, request, notes = planned_alone(data, request, error)
    finally:
        rows.close()
    asked = Compiled(request, script, Before(), notes=notes)
    if script.drawn and request.amount is not None:
        from dpsql.session.draws import planned_beside  # which most don't need

        asked = planned_beside(asked, None)
    return script.workload, options_of(asked), asked


def _check_given(source: object, workload: Workload, given: Sequence[Plan], mechanism: str) -> None:
    """Refuse plans that are for other cells, or can't be planned on.

    Raises:
        WorkloadError: the domains differ, or the plan is not for a workload.
        MechanismError: the mechanism doesn't plan on others.
    """
    listed = isinstance(given, (list, tuple))
    if listed and not given:
        return
    plans = listed and isinstance(source, Workload)
    if not plans or any(
        not isinstance(plan, Plan) or dict(plan.workload.domain) != dict(workload.domain)
        for plan in given
    ):
        raise WorkloadError(
            "Plans can be given for a workload over the same domain only.",
            hint="a session uses what it measured before by itself.",
        )
    if not mechanisms.traits_of(mechanism).reuses_measurements:
        raise MechanismError(
            "Only QuerySmasher plans on earlier measurements.", hint="leave given= out."
        )


def _protected(declared: Declared) -> tuple[int, str]:
    """Return how many rows of one unit count, and what neighbours are, without a table."""
    unit, rows = declared.unit, declared.max_rows
    given = Unit.given("unit" if unit is None and rows is not None else unit, rows)
    if not isinstance(given, Unit):
        return 1, RECORD
    if not isinstance(given.max_rows, int):
        several = "A workload is of one table, and max_rows has bounds for several."
        raise SchemaError(
            several if given.max_rows else "Nothing says how many records of a unit count.",
            hint="give the bound for this one, for example " + option("max_rows", 3) + ".",
        )
    return given.max_rows, neighbours_of(given)


@checked
def read_script(path: str | Path) -> dict[str, str]:
    """Read a `.sql` file of several statements, or a folder of such files, as name → text.

    A comment `-- name: by_sex` above a SELECT names it. In a folder each file has one statement, of
    the file's name; those of folders in it follow, in the order of their names.

    Raises:
        SqlParseError: the text can't be split into statements, or is not UTF-8.
        SqlLimitError: it is too long.
        SqlError: files have names that statements can't have.
        OSError: a file can't be read.
    """
    return dict(read_script_at(Path(path)))
