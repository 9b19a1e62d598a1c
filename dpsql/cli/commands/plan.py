"""`dpsql plan`: what a script would cost and how well it would be answered."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from dpsql.cli import opening, options, output
from dpsql.cli import output as money
from dpsql.cli.application import Exit, GroupedCommand
from dpsql.cli.options import BudgetOptions, DatabaseOptions
from dpsql.cli.progress import progress_on_terminal
from dpsql.hints import for_command
from dpsql.request import SessionPlanOptions

if TYPE_CHECKING:
    from dpsql.planner.plans.plan import Plan


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
    with progress_on_terminal(asked["progress"]) as watch:
        asked["progress"] = watch
        made = opening.plan(source, statements, budget, asked)
    if as_json:
        output.say_json(_document(made, amounts, explain=explain))
    else:
        _print(made, amounts, explain=explain)
    if made.warning is not None:
        click.get_current_context().exit(Exit.ACCURACY)


def _print(made: Plan, amounts: BudgetOptions, *, explain: bool) -> None:
    from dpsql.planner.plans.plan import example_note, text_of, told_rows

    found, errors = made.expected_answers, made.expected_error()
    output.say(text_of(told_rows(found, errors, made.mechanism)))
    if found is not None:
        said = found.filter(found["group_rows"].is_null()).select("statement", "rows_from")
        for statement, rows in said.unique(maintain_order=True).drop_nulls().rows():
            output.say(f"{statement}: for {rows}")
    if note := example_note(found):
        output.say(for_command(note))
    output.say()
    known = math.isfinite(made.gap)
    bound = f"within {made.gap:.2%} of the certified bound" if known else "no bound is known"
    output.say(f"overall RMSE {made.rmse:.4g}, {bound}")
    if made.warning is not None:
        output.say(f"WARNING: {made.warning}")
    output.say(f"budget: {money.budget_forms(made.budget, amounts.shown_delta)}")
    output.say(f"neighbours: {made.neighbours}")
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


def _document(made: Plan, amounts: BudgetOptions, *, explain: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "statements": made.expected_error().to_dicts(),
        "rmse": made.rmse,
        "gap": made.gap if math.isfinite(made.gap) else None,
        "avoidable": made.avoidable,
        "tried": dict(made.tried),
        "warning": made.warning,
        "budget": money.budget_json(made.budget, amounts.shown_delta),
        "privacy_cost": money.as_json(made.privacy_cost, amounts.shown_delta),
        "neighbours": made.neighbours,
        "binding": made.binding,
        "targets_for": dict(made.held_for),
    }
    if made.given is None:
        found["error_by_budget"] = made.error_by_budget().to_dicts()
    if made.expected_answers is not None:
        found["expected_answers"] = made.expected_answers.to_dicts()
    return {**found, "explanation": made.explain()} if explain else found
