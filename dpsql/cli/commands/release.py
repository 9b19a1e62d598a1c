"""`dpsql release`: a script, answered with one plan and one charge, into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.cli import forms, opening, options, output
from dpsql.cli import output as money
from dpsql.cli.application import GroupedCommand
from dpsql.cli.forms import Elsewhere
from dpsql.cli.options import BudgetOptions, DatabaseOptions
from dpsql.cli.progress import progress_on_terminal
from dpsql.request import Free, ReleaseOptions

if TYPE_CHECKING:
    from dpsql.privacy import Budget
    from dpsql.release import Release


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
        with progress_on_terminal(asked["progress"]) as watch:
            asked["out"], asked["progress"] = out, watch
            amount: Budget | Free | None = 0 if free else None if at_most else budget
            made = session.release(statements, budget=amount, **asked)
        account = money.account(made.charged, session.ledger.remaining, amounts.shown_delta)
        written = elsewhere.write(made, session.ledger)
    if as_json:
        also = {"written": written} if written else {}
        output.say_json({"out": str(out), **_document(made, out), **also, **account.document})
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


def _document(made: Release, out: Path) -> dict[str, object]:
    return {"statements": list(made), "files": _files(out), "neighbours": made.neighbours}


def _files(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
