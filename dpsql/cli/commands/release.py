"""`dpsql release`: a script, answered with one plan and one charge, into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.cli import amounts as money
from dpsql.cli import opening, options, output
from dpsql.cli.options import Aims, Amounts, Source
from dpsql.cli.progress import progress_on_terminal

if TYPE_CHECKING:
    from dpsql.release import Release


@click.command(short_help="Answer a script, into a folder.")
@click.argument("script", type=options.SCRIPT)
@options.source
@options.amounts
@options.aims
@options.free_option
@options.accept_gap_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="The folder to write; it appears whole or not at all.",
)
@click.option(
    "--at-most",
    is_flag=True,
    help="With --target: the budget given is the most that may be charged.",
)
@options.confidence_option
@options.groups_above_option
@click.option("--nonnegative", is_flag=True, help="Add columns without negative counts (biased).")
@click.option("--integers", is_flag=True, help="Add columns of whole numbers (biased).")
@options.json_option
def release(
    script: str,
    source: Source,
    amounts: Amounts,
    aims: Aims,
    *,
    free: bool,
    accept_gap: bool,
    out: Path,
    at_most: bool,
    confidence: float | None,
    groups_above: float | None,
    nonnegative: bool,
    integers: bool,
    as_json: bool,
) -> None:
    """Answer SCRIPT with differential privacy, into a folder.

    SCRIPT is a .sql file, or - for standard input. All statements are planned jointly and charged
    once. The charge is on disk before any row is read.
    """
    budget = amounts.budget()
    aims.check_against(budget, free=free, at_most=at_most)
    statements = opening.script(script)
    with opening.session(source) as session:
        with progress_on_terminal() as tell:
            made = session.release(
                statements,
                budget=0 if free else None if at_most else budget,
                targets=aims.targets,
                objective=aims.objective,
                weights=aims.weights,
                confidence=confidence,
                progress=tell,
                reuse=not aims.no_reuse,
                nonnegative=nonnegative,
                integers=integers,
                out=out,
                mechanism=aims.mechanism,
                at_most=budget if at_most else None,
                accept_gap=accept_gap,
                assume=aims.assumed,
                groups_above=groups_above,
            )
        account = money.account(made.charged, session.ledger.remaining, amounts.shown_delta)
    if as_json:
        output.say_json({"out": str(out), **_document(made, out), **account.document})
        return
    output.say(f"{out}: {len(made):,} statements")
    for file in _files(out):
        output.say(f"  {file}")
    for line in account.lines:
        output.say(line)
    output.say(f"neighbours: {made.neighbours}")


def _document(made: Release, out: Path) -> dict[str, object]:
    return {"statements": list(made), "files": _files(out), "neighbours": made.neighbours}


def _files(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
