"""`dpsql rows`: how many rows units have, or how many rows have no unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dpsql.cli import forms, opening, options
from dpsql.cli import output as money
from dpsql.cli.application import GroupedCommand
from dpsql.cli.forms import FrameForm
from dpsql.cli.options import BudgetOptions, DatabaseOptions
from dpsql.request import Free

if TYPE_CHECKING:
    from dpsql.privacy import Budget


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
        account = money.account(budget, session.ledger.remaining, amounts.shown_delta)
    form.say(frame, account, as_json=as_json)
