"""From a request to its release: plan, charge, count, measure, keep, hand out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

from dpsql.answers.answers import rehearse
from dpsql.answers.facts import BoundedColumn, Earlier, FoundColumn
from dpsql.answers.sources import in_order, together
from dpsql.engines.base import Counted, Counting, Engine, Step
from dpsql.engines.interrupts import EndedStatementError, is_interrupted
from dpsql.engines.several import CountedTable, count_several
from dpsql.errors import (
    ExecutionError,
    InternalError,
    LedgerError,
    MechanismError,
    ResourceLimitError,
    UndeterminedError,
)
from dpsql.measurement.certify import is_laplace
from dpsql.measurement.measure import ChargedPlan, ready
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.reconstruction.sources import Source
from dpsql.planner.reuse.past import least_divisible
from dpsql.privacy import Budget, Ledger, Receipt
from dpsql.privacy.finding import rest_of
from dpsql.release import Before, Release, from_before
from dpsql.release.assembly import (
    again,
    facts_of,
    facts_of_pairs,
    facts_of_rounds,
    from_pairs,
    rounds_again,
    rounds_fit,
)
from dpsql.release.measurements import decode
from dpsql.request import Request
from dpsql.schema import Table
from dpsql.session.checks import check_cost
from dpsql.session.data import PrivateData
from dpsql.session.planning import (
    AdaptiveTask,
    Compiled,
    MeasuredPlan,
    MeasuredRounds,
    PlannedTask,
    Task,
    adaptive_plan,
    compiled,
    compiled_on_past,
    compiled_over,
    plan_of,
    planned,
    referred,
)
from dpsql.sql.binding.core import OTHER_FORMS
from dpsql.sql.compiled import Script


def answer(data: PrivateData, request: Request) -> Release:
    """Answer statements with a charge: the one way from the public calls to the private rows.

    What must hold at every line, and why it does:

    1. Nothing is read but the catalog, public tables and the ledger until `_charge` has returned.
       Compiling reads names, types and constraints; `rehearse` computes on invented answers;
       planning needs no data; `counting.check` has DuckDB bind the counting statements, without
       running them. So all errors up to there may say what they like, and cost nothing.
    2. The charge is durable before any row is read: `_charge` returns after the commit, and counts
       are only made by `counting.run()`, below it. It is the whole budget that was asked for.
    3. What is counted is what was planned: on one snapshot the tables are verified, the statements
       are bound, and the rows are counted, by statements made once. Of several tables that is so
       of all of them before the charge, so that they are counted as they were at one moment.
    4. Only noisy numbers leave `measure`. Exact counts have no name here: this frame is part of
       the traceback of any error from here on, and those that held counts are not.
    5. No error after the charge carries data: whatever it was, another one takes its place, which
       is raised when the first one is gone. An interrupt stays an interrupt, without its text.
    6. What was measured is kept before a release is made of it, and that before it is handed out.
       A call that ends in between leaves it to the next equal request, which `_paid_before`
       finds by the digest of the request and which is charged nothing; `abandon` tells that
       nobody else is about to hand it out. If the ledger can't keep it, it is handed out all the
       same, as it was paid for; unless the ledger has it that the charge failed, or was used.
    7. If counting fails, the charge is marked as failed, and pays for the next equal request: no
       noise was drawn, so nothing that the charge was for has come out. It is so once for a
       charge, and neither for an interrupt nor for anything that fails later.

    Raises:
        StaleSchemaError: the connection or the table is not the one it was.
        ExecutionError: something failed after the charge, which stands.
        UndrawnError: quantiles are to be drawn first.
        DpsqlError: it can't be answered; nothing was charged.
    """
    with data.held():
        request.tell("planning", 0, 1)
        asked = compiled_on_past(data, request)
    _check_drawn(data, asked)
    paid_before = _paid_before(data, asked)
    if paid_before is not None:
        return _handed_out(data, paid_before, request)
    rehearse(asked.script)
    task = _planned(data, asked)
    request.tell("planning", 1, 1)
    if isinstance(task, Release):  # nothing has to be measured
        return _handed_out(data, task, request)
    step = partial(request.tell, "counting")
    engine = data.declared.source.engine(None if task.asked.script.apart else step)
    receipt: Receipt | None = None
    failure: BaseException | None = None
    try:
        with engine.snapshot():
            data.verify(*task.asked.script.tables)
            counting = _prepared(engine, task, step)
            counting.check()
            ready(task.payable)
            receipt = _charge(data, task)
            charged = ChargedPlan(task.payable, receipt, data.ledger)
            try:
                measured = task.measure(charged, _counted(data.ledger, receipt, counting))
                keep(data.ledger, receipt, measured.content)
                request.tell("measuring", 1, 1)
                release = _made(measured, receipt, request)
            except (KeyboardInterrupt, SystemExit) as error:
                failure = type(error)()
            except BaseException:  # whatever it was, its text and frames may hold counts
                failure = ExecutionError()
            if failure is not None:  # outside the handlers, so that it has no context
                raise failure
        return _handed_out(data, release, request)
    except BaseException:
        if receipt is not None:
            data.ledger.abandon(receipt)
        raise


class UndrawnError(Exception):
    """Quantiles are to be drawn first, see `draws.with_draws`; nothing was charged.

    Args:
        asked: what was compiled so far.
    """

    def __init__(self, asked: Compiled) -> None:
        super().__init__()
        self.asked = asked


def _check_drawn(data: PrivateData, asked: Compiled) -> None:
    """Make sure that quantiles were drawn that statements ask for.

    Raises:
        UndrawnError: they weren't.
    """
    if asked.script.drawn and not data.declared.drawn:
        raise UndrawnError(asked)


def check_answerable(data: PrivateData, request: Request) -> None:
    """Check that statements can be compiled, answered and planned; reads and spends nothing.

    Raises:
        DpsqlError: they can't.
    """
    with data.held():
        request.tell("planning", 0, 1)
        asked = compiled_on_past(data, request)
    check_plannable(data, asked)


def check_plannable(data: PrivateData, asked: Compiled) -> None:
    """Check that compiled statements can be answered and planned; reads and spends nothing.

    Raises:
        DpsqlError: they can't.
    """
    rehearse(asked.script)
    _planned(data, asked)


def answer_free(data: PrivateData, request: Request) -> Release:
    """Answer from earlier measurements alone.

    Raises:
        UndeterminedError: they don't determine what is asked.
        StaleSchemaError: the connection or the table is not the one it was.
    """
    with data.held():
        request.tell("planning", 0, 1)
        compiled_ = compiled(data, request)
    _check_drawn(data, compiled_)
    rehearse(compiled_.script)
    try:
        return _from_measurements(data, compiled_)
    except UndeterminedError:
        for other in (
            OTHER_FORMS if any(script.measures for script in compiled_.script.each) else ()
        ):
            with suppress(UndeterminedError):
                return _from_measurements(data, compiled(data, request, other))
        raise


def _from_measurements(data: PrivateData, compiled_: Compiled) -> Release:
    """Answer what was compiled from earlier measurements alone.

    From those that combine, together; else from one of the others by itself, the last first.

    Raises:
        UndeterminedError: they don't determine what is asked.
    """
    request, sources = compiled_.request, compiled_.before.sources
    ways = [[s for s in sources if s.combines], *_alone(compiled_.before, compiled_.script)]
    error: UndeterminedError | None = None
    for way in ways:
        usable = compiled_.before.where(partial(_is_one_of, way))
        asked = compiled_over(data, compiled_, usable)
        try:
            others = data.archive.compared_with(usable, asked.script.tables)
            release = from_before(asked.script, usable, request, others)
            return _handed_out(data, release, request)
        except UndeterminedError as raised:
            if error is None or usable.sources:  # these say what is missing
                error = raised
    raise error or InternalError("nothing was tried")


def _alone(before: Before, script: Script) -> list[list[Source]]:
    """Return sources that don't combine, the last first; of several tables by their release."""
    by_script: dict[object, list[Source]] = {}
    for i, source in enumerate(before.sources):
        if not source.combines:
            by_script.setdefault(before.earlier[i].request if script.apart else i, []).append(
                source
            )
    return list(reversed(by_script.values()))


def _is_one_of(sources: Sequence[Source], source: Source) -> bool:
    return any(source is other for other in sources)


def _planned(data: PrivateData, asked: Compiled) -> Task | Release:
    """Plan what is to be measured; make the release at once if that is nothing.

    Raises:
        DpsqlError: it can't be planned, or not within the budget.
    """
    request = asked.request
    if MECHANISMS[request.mechanism].is_adaptive and asked.script.workload.count:
        adaptive_ = adaptive_plan(asked)
        facts = facts_of_rounds(asked.script, adaptive_, data.archive.state.vintage)
        return AdaptiveTask(asked, adaptive_, facts)
    asked, plan = planned(data, asked)
    check_cost(plan.budget, request.at_most)
    if request.amount is None and plan.budget.mu_squared < 2 * least_divisible(plan):
        with suppress(UndeterminedError):  # the targets are met already
            return from_before(asked.script, asked.before, request)
    plan.check_accuracy(accept_gap=request.accept_gap)
    if MECHANISMS[plan.mechanism].is_biased:
        return PlannedTask(asked, plan, facts_of_pairs(asked.script, plan, asked.before.vintage))
    task = PlannedTask(asked, plan, facts_of(asked.script, plan, asked.before, request))
    return task if plan.planned else task.release_unmeasured()


def _prepared(engine: Engine, task: Task, step: Step) -> Counting:
    """Say how what a task measures is counted; reads nothing."""
    script = task.asked.script
    if not script.apart:
        return engine.prepared(
            script.table,
            task.wanted,
            script.merged,
            script.measures,
            script.keys,
            script.units,
        )
    tables = [
        CountedTable(of, part.table, part.merged, part.measures, part.keys, part.units)
        for of, part in script.apart
    ]
    return count_several(engine, tables, task.wanted, step)


def _counted(ledger: Ledger, receipt: Receipt, counting: Counting) -> Counted:
    """Count; if that fails, note that nothing can come of the charge, and pass the error on.

    A count that was ended from outside hasn't failed: its moment is chosen by whoever asks.

    What is raised here never gets out: the caller puts another error in its place.
    """
    try:
        return counting.run()
    except EndedStatementError:
        raise
    except Exception:
        if not is_interrupted():
            with suppress(LedgerError):  # it isn't noted then; an equal request is charged anew
                ledger.fail(receipt)
        raise


def _charge(data: PrivateData, task: Task) -> Receipt:
    """Charge the whole budget that was asked for; it is durable when this returns."""
    budget, tables = task.facts.budget, task.asked.script.tables
    if budget is None:
        raise InternalError("nothing was asked that could be charged")
    digest, seen = task.payable.digest, referred(task.asked.script)
    return data.ledger.charge(
        budget.mu_squared,
        asked=budget,
        purpose=data.archive.purpose(task.asked.request, tables, digest, charged=True),
        accept_schema=data.archive.accepted((*tables, *seen)),
        each_row=all(table.each_row for table in tables),
        referred=data.archive.referred(task.asked.request, seen),
    )


def _made(measured: MeasuredPlan | MeasuredRounds, receipt: Receipt, request: Request) -> Release:
    """Make a release of what was measured; to fit one table to it all may take long."""
    adjusts = request.nonnegative or request.integers
    if adjusts:
        request.tell("adjusting", 0, 1)
    release = measured.release(receipt)
    if adjusts:
        request.tell("adjusting", 1, 1)
    return release


def keep(ledger: Ledger, receipt: Receipt, content: bytes) -> None:
    """Keep what was measured; if that fails it is handed out all the same: it was paid for.

    Raises:
        LedgerError: by the ledger, something else came of the charge.
    """
    try:
        ledger.release(receipt, content)
    except LedgerError:
        if _is_used_otherwise(ledger, receipt, content):
            raise


def _is_used_otherwise(ledger: Ledger, receipt: Receipt, content: bytes) -> bool:
    """Whether the ledger says that a charge failed, or paid for another release than this content.

    As where a process was forked while it counted. That a commit was lost which got through, or
    that nobody can be asked, is no such thing.
    """
    digest = hashlib.sha256(content).hexdigest()
    with suppress(LedgerError):
        (entry,) = (entry for entry in ledger.entries() if entry.request == receipt.request)
        return entry.state == "failed" or (not entry.is_open and entry.digest != digest)
    return False


def charges_of(data: PrivateData, release: Release) -> tuple[Earlier, ...]:
    """Return the charges on which a release rests, its own as the last."""
    before, receipt = release.facts.charges_before, release.receipt
    charges = () if receipt is None else (Earlier.of(data.charge_of(receipt.request)),)
    return (*before, *charges)


def _handed_out(data: PrivateData, release: Release, request: Request) -> Release:
    """Write a release to a folder, if asked, and hand it out as it is to be shown."""
    declared, tables = data.declared, release.facts.tables
    if declared.found or declared.drawn or declared.valued:
        keys = declared.found_of(tables, FoundColumn)
        if not request.reuse:  # scores are earlier measurements, too
            keys = tuple(column.without_scores for column in keys)
        bounded = declared.found_of(tables, BoundedColumn)
        release = release.resting_on(keys, bounded, declared.drawn, declared.valued)
    if request.out is not None:
        release.save(Path(request.out))
    if release.receipt is not None:
        data.declared.source.catalog.forget()  # who goes on looks again
        # It was paid for and stored. Not to hand it out because the note about that failed
        # would help nobody: at worst, the same answers are handed out again.
        with suppress(LedgerError):
            data.ledger.deliver(release.receipt)
    below = request.suppress_below
    release = release if below is None else release.suppressed(below)
    return release.with_standard_errors() if request.standard_errors else release


def _paid_before(data: PrivateData, asked: Compiled) -> Release | None:
    """Return the release that an equal request paid for, if it was never handed out.

    Without a budget, whatever it paid.
    """
    request = asked.request
    tables = asked.script.tables
    budget, wanted = request.amount, data.archive.purpose(request, tables)
    paid_for = data.ledger.undelivered(wanted, None if budget is None else budget.mu_squared)
    if paid_for is None and budget is not None:  # of which a part has found keys and bounds
        rest = _rest(data, budget, tables)
        paid_for = None if rest is None else data.ledger.undelivered(wanted, rest.mu_squared)
        budget = rest if paid_for is not None else budget
    if paid_for is None:
        return None
    receipt, content = paid_for
    sources = decode(content)
    try:
        if MECHANISMS[request.mechanism].is_adaptive:
            return _rounds_again(data, asked, receipt, sources)
        if MECHANISMS[request.mechanism].is_biased:
            return _pairs_again(data, asked, receipt, sources)
        (source,) = together(asked.script, sources)
        if budget is not None and is_laplace(source.measured) != budget.pure:
            return None
        before = data.archive.with_own(in_order(asked.script, sources), asked.script.tables)
        script = compiled_over(data, asked, before).script
        paid = budget or Budget(rho=receipt.mu_squared / 2)
        return again(script, before, request, receipt, paid)
    except (MechanismError, UndeterminedError, ResourceLimitError):
        return None  # a joined public table has changed since


def _rest(data: PrivateData, budget: Budget, tables: Sequence[Table]) -> Budget | None:
    """Return the rest of a budget of which a part has found what is known of columns now.

    None if nothing was found, or nothing is left.
    """
    declared = data.declared
    columns = declared.found_of(tables, FoundColumn), declared.found_of(tables, BoundedColumn)
    kinds = (*columns, declared.drawn)
    every = [column.charge for kind in kinds for column in kind]
    every += (charge for values in declared.valued for charge in values.charges)
    charges = {charge.seq: charge for charge in every}.values()
    if not charges or (budget.pure and (columns[1] or declared.drawn or declared.valued)):
        return None
    if budget.pure:
        left = budget.amount - sum((column.rule.epsilon for column in columns[0]), Fraction(0))
        return Budget(epsilon=left, delta=0) if left > 0 else None
    delta = sum((charge.delta or Fraction(0) for charge in charges), Fraction(0))
    return rest_of(budget, sum((charge.mu_squared for charge in charges), Fraction(0)), delta)


def _pairs_again(
    data: PrivateData, asked: Compiled, receipt: Receipt, sources: Sequence[Source]
) -> Release | None:
    """Plan again what was measured, and make the release of it; None if that would be another."""
    plan = plan_of(asked)
    if plan.certified.digest != receipt.plan or not rounds_fit(asked.script, sources):
        return None
    (source,) = together(asked.script, sources)
    facts = facts_of_pairs(asked.script, plan, data.archive.state.vintage)
    facts = replace(facts, receipt=receipt)
    return from_pairs(asked.script, plan, facts, source.values or {}, sources)


def _rounds_again(
    data: PrivateData, asked: Compiled, receipt: Receipt, sources: Sequence[Source]
) -> Release | None:
    before = Before(tuple(sources))
    asked = compiled_over(data, asked, before)
    sources, plan = asked.before.sources, adaptive_plan(asked)
    if plan.digest != receipt.plan or not rounds_fit(asked.script, sources):
        return None
    return rounds_again(asked.script, plan, sources, receipt, data.archive.state.vintage)
