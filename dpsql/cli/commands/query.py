"""`dpsql query`: one statement, printed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import click

from dpsql.cli import forms, opening, options
from dpsql.cli import output as money
from dpsql.cli.application import GroupedCommand
from dpsql.cli.forms import FrameForm
from dpsql.cli.options import BudgetOptions, DatabaseOptions
from dpsql.cli.progress import progress_on_terminal
from dpsql.request import AnswerOptions

if TYPE_CHECKING:
    from dpsql.privacy import Budget


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
        with progress_on_terminal(asked["progress"]) as watch:
            asked["progress"] = watch
            made = session.release(text, budget=amount, **asked)
        account = money.account(budget, session.ledger.remaining, amounts.shown_delta)
    ((name, frame),) = made.items()
    about = partial(of_answer, made.facts, made, name, frame)
    form.say(frame, account, as_json=as_json, about=about)
