"""`dpsql compare`: the expected error of a script by every mechanism, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dpsql.cli import opening, options, output
from dpsql.cli import output as money
from dpsql.cli.application import GroupedCommand
from dpsql.cli.options import BudgetOptions, DatabaseOptions
from dpsql.cli.progress import progress_on_terminal
from dpsql.flags import FLAGS
from dpsql.request import SessionCompareOptions

if TYPE_CHECKING:
    from dpsql.planner.comparison.compare import Comparison


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
    with progress_on_terminal(asked["progress"]) as watch:
        asked["progress"] = watch
        made = opening.compare(source, statements, budget, asked)
    if as_json:
        output.say_json(_document(made, amounts))
    else:
        output.say(repr(made))


def _document(made: Comparison, amounts: BudgetOptions) -> dict[str, object]:
    return {
        "queries": made.workload.count,
        "budget": money.budget_json(made.budget, amounts.shown_delta),
        "mechanisms": made.frame.to_dicts(),
    }
