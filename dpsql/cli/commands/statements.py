"""Commands that answer statements, plan them, compare mechanisms on them, or count rows."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from dpsql.cli import forms, opening, options, output
from dpsql.cli.application import Exit, GroupedCommand
from dpsql.cli.forms import Elsewhere, FrameForm
from dpsql.cli.options import BudgetOptions, DatabaseOptions
from dpsql.flags import FLAGS
from dpsql.hints import for_command
from dpsql.request import (
    AnswerOptions,
    Free,
    ReleaseOptions,
    SessionCompareOptions,
    SessionPlanOptions,
)

if TYPE_CHECKING:
    from dpsql.planner.comparison import Comparison
    from dpsql.planner.plans.plan import Plan
    from dpsql.privacy import Budget
    from dpsql.release import Release


# ── `dpsql query`: one statement, printed ────────────────────────────────────────────────────────


@click.command(cls=GroupedCommand, short_help="Answer one SELECT.")
@click.argument("sql")
@options.source
@options.amounts
@options.typed("free")
@options.taking(AnswerOptions)
@forms.frame_form
@options.json_option
def query(
    sql: str,
    source: DatabaseOptions,
    amounts: BudgetOptions,
    asked: AnswerOptions,
    form: FrameForm,
    *,
    free: bool,
    as_json: bool,
) -> None:
    """Answer one SELECT with differential privacy.

    SQL is the statement, or - for standard input. The answer goes to standard output, what was
    charged and what is left to standard error.
    """
    from dpsql.present.formats import of_answer

    budget = amounts.budget()
    options.check_free(free=free, other=budget is not None or not asked["reuse"])
    form.check(as_json=as_json)
    amount: Budget | Literal[0] = 0 if free else amounts.needed()
    with opening.session(source) as session:
        text = opening.statement(sql)
        with output.progress_on_terminal(asked["progress"]) as watch:
            asked["progress"] = watch
            made = session.release(text, budget=amount, **asked)
        account = output.account(budget, session.ledger, amounts.shown_delta)
    ((name, frame),) = made.items()
    about = partial(of_answer, made.facts, made, name, frame)
    form.say(frame, account, as_json=as_json, about=about)


# ── `dpsql release`: a script, answered with one plan and one charge, into a folder ──────────────


@click.command(cls=GroupedCommand, short_help="Answer a script, into a folder.")
@click.argument("script", type=options.SCRIPT)
@options.source
@options.amounts
@options.typed("free")
@options.taking(ReleaseOptions)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="The folder to write; it appears whole or not at all.",
)
@forms.elsewhere
@options.json_option
def release(
    script: str,
    source: DatabaseOptions,
    amounts: BudgetOptions,
    asked: ReleaseOptions,
    elsewhere: Elsewhere,
    *,
    free: bool,
    out: Path,
    as_json: bool,
) -> None:
    """Answer SCRIPT with differential privacy, into a folder.

    SCRIPT is a .sql file, a folder of such files, SQL itself, or - for standard input. All
    statements are planned jointly and charged once. The charge is on disk before any row is
    read.
    """
    budget = amounts.budget()
    at_most, targets = bool(asked.pop("at_most")), "targets" in asked
    options.check_budget(budget, targets=targets, free=free, at_most=at_most)
    options.check_free(free=free, other=budget is not None or targets or not asked["reuse"])
    if at_most:
        asked["at_most"] = budget
    statements = opening.script(script)
    elsewhere.check(out)
    with opening.session(source) as session:
        with output.progress_on_terminal(asked["progress"]) as watch:
            asked["out"], asked["progress"] = out, watch
            amount: Budget | Free | None = 0 if free else None if at_most else budget
            made = session.release(statements, budget=amount, **asked)
        finds = budget is not None and made.facts.rests_on_found
        charged = budget if finds and made.charged else made.charged
        account = output.account(charged, session.ledger, amounts.shown_delta)
        written = elsewhere.write(made, session.ledger)
    if as_json:
        also = {"written": written} if written else {}
        output.say_json({"out": str(out), **_released(made, out), **also, **account.document})
        return
    said = output.counted(len(made), "statement")
    output.say(f"{out}: {said}")
    for file in _files(out):
        output.say(f"  {file}")
    for place in written:
        output.say(f"{place}: {said}")
    for line in account.lines:
        output.say(line)
    output.say(f"neighbours: {made.neighbours}")


def _released(made: Release, out: Path) -> dict[str, object]:
    return {"statements": list(made), "files": _files(out), "neighbours": made.neighbours}


def _files(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())


# ── `dpsql plan`: what a script would cost and how well it would be answered ─────────────────────


@click.command(cls=GroupedCommand, short_help="Print the expected error of a script.")
@click.argument("script", type=options.SCRIPT)
@options.source
@options.amounts
@options.taking(SessionPlanOptions)
@click.option("--explain", is_flag=True, help="Print what is measured, too.")
@options.json_option
def plan(
    script: str,
    source: DatabaseOptions,
    amounts: BudgetOptions,
    asked: SessionPlanOptions,
    *,
    explain: bool,
    as_json: bool,
) -> None:
    """Print the expected error of each statement of SCRIPT; spend nothing.

    SCRIPT is a .sql file, a folder of such files, SQL itself, or - for standard input. No row
    is read.
    """
    budget = amounts.budget()
    options.check_budget(budget, targets="targets" in asked)
    statements = opening.script(script)
    with output.progress_on_terminal(asked["progress"]) as watch:
        asked["progress"] = watch
        made = opening.plan(source, statements, budget, asked)
    if as_json:
        output.say_json(_planned(made, amounts, explain=explain))
    else:
        _print(made, amounts, explain=explain)
    if made.warning is not None:
        click.get_current_context().exit(Exit.ACCURACY)


def _print(made: Plan, amounts: BudgetOptions, *, explain: bool) -> None:
    from dpsql.planner.plans.plan import example_note, text_of, told_rows

    expected, errors = made.expected_answers, made.expected_error()
    output.say(text_of(told_rows(expected, errors, made.mechanism)))
    if expected is not None:
        said = expected.filter(expected["group_rows"].is_null()).select("statement", "rows_from")
        for statement, rows in said.unique(maintain_order=True).drop_nulls().rows():
            output.say(f"{statement}: for {rows}")
    if note := example_note(expected):
        output.say(for_command(note))
    output.say()
    known = math.isfinite(made.gap)
    bound = f"within {made.gap:.2%} of the certified bound ({made.gap_among})"
    output.say(f"overall RMSE {made.rmse:.4g}, {bound if known else 'no bound is known'}")
    if made.warning is not None:
        output.say(f"WARNING: {made.warning}")
    output.say(f"budget: {output.budget_forms(made.budget, amounts.shown_delta)}")
    output.say(f"neighbours: {made.neighbours}")
    for note in made.notes:
        output.say(f"note: {for_command(note)}")
    if made.given is None:
        by_budget = made.error_by_budget()
        output.say()
        output.say_table([_HEADS[name] for name in by_budget.columns], by_budget.rows())
        output.say()
    for statement, rows in made.held_for.items():
        output.say(f"the target of {statement} is for {rows}")
    if made.binding:
        output.say(f"decided by: {', '.join(made.binding)}")
    if explain:
        output.say()
        output.say_table([name.replace("_", " ") for name in errors.columns], errors.rows())
        output.say()
        output.say(made.explain())


_HEADS = {
    "budget": "with another budget",
    "times": "times this",
    "errors": "errors times",
    "rmse": "overall RMSE",
}


def _planned(made: Plan, amounts: BudgetOptions, *, explain: bool) -> dict[str, object]:
    document: dict[str, object] = {
        "statements": made.expected_error().to_dicts(),
        "rmse": made.rmse,
        "gap": made.gap if math.isfinite(made.gap) else None,
        "avoidable": made.avoidable,
        "tried": dict(made.tried),
        "warning": made.warning,
        "budget": output.budget_json(made.budget, amounts.shown_delta),
        "privacy_cost": output.as_json(made.privacy_cost, amounts.shown_delta),
        "neighbours": made.neighbours,
        "binding": made.binding,
        "targets_for": dict(made.held_for),
    }
    if made.given is None:
        document["error_by_budget"] = made.error_by_budget().to_dicts()
    if made.expected_answers is not None:
        document["expected_answers"] = made.expected_answers.to_dicts()
    return {**document, "explanation": made.explain()} if explain else document


# ── `dpsql compare`: the expected error of a script by every mechanism, side by side ─────────────


@click.command(cls=GroupedCommand, short_help="Compare mechanisms on a script.")
@click.argument("script", type=options.SCRIPT)
@options.source
@options.amounts
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(FLAGS["mechanism"].choices),
    multiple=True,
    help="One of those to compare [all]. Repeatable.",
)
@options.taking(SessionCompareOptions)
@options.json_option
def compare(
    script: str,
    source: DatabaseOptions,
    amounts: BudgetOptions,
    asked: SessionCompareOptions,
    *,
    mechanisms: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print the expected error of SCRIPT by every mechanism, side by side; spend nothing.

    SCRIPT is a .sql file, a folder of such files, SQL itself, or - for standard input. No row
    is read, and past measurements are left out of account. A budget with --delta 0 asks for
    pure ε.
    """
    budget = amounts.needed()
    asked["mechanisms"] = list(mechanisms) or None
    statements = opening.script(script)
    with output.progress_on_terminal(asked["progress"]) as watch:
        asked["progress"] = watch
        made = opening.compare(source, statements, budget, asked)
    if as_json:
        output.say_json(_compared(made, amounts))
    else:
        output.say(repr(made))


def _compared(made: Comparison, amounts: BudgetOptions) -> dict[str, object]:
    return {
        "queries": made.workload.count,
        "budget": output.budget_json(made.budget, amounts.shown_delta),
        "mechanisms": made.frame.to_dicts(),
    }


# ── `dpsql rows`: how many rows units have, or how many rows have no unit ────────────────────────


@click.command(cls=GroupedCommand, short_help="Count units by how many rows they have.")
@click.argument("table")
@options.source
@options.amounts
@options.typed("free")
@click.option(
    "--up-to",
    type=int,
    default=100,
    show_default=True,
    metavar="K",
    help="The largest bound that you would choose; it is public.",
)
@click.option(
    "--without-unit", is_flag=True, help="Count the rows of the table that have no unit, instead."
)
@forms.frame_form
@options.json_option
def rows(
    table: str,
    source: DatabaseOptions,
    amounts: BudgetOptions,
    form: FrameForm,
    up_to: int,
    *,
    free: bool,
    without_unit: bool,
    as_json: bool,
) -> None:
    """Count the units of TABLE by how many rows they have, to choose --max-rows by.

    Each unit counts once, with the noise that one has: no bound is needed. Of each bound it says
    how many units have more rows, and how many rows it would leave out.
    """
    budget = amounts.budget()
    options.check_free(free=free, other=budget is not None)
    form.check(as_json=as_json)
    amount: Budget | Free = 0 if free else amounts.needed()
    with opening.session(source) as session:
        frame = (
            session.rows_without_unit(table, budget=amount)
            if without_unit
            else session.rows_per_unit(table, budget=amount, up_to=up_to)
        )
        account = output.account(budget, session.ledger, amounts.shown_delta)
    form.say(frame, account, as_json=as_json)
