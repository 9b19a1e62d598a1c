"""`dpsql synthetic`: rows that are made up, of a release on disk."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.cli import forms, options, output
from dpsql.cli.forms import FrameForm

if TYPE_CHECKING:
    import polars as pl


@click.command(short_help="Make up rows that are like those of a release.")
@click.argument(
    "folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--table", metavar="NAME", help="Of several tables, the one whose rows are meant.")
@click.option("--rows", type=int, metavar="N", help="How many [as many as the release says].")
@click.option(
    "--updates", type=int, default=0, metavar="K", help="Rounds that bring pairs nearer [0]."
)
@click.option("--seed", type=int, metavar="S", help="Gives the same rows each time.")
@click.option("--quality", is_flag=True, help="Print how near the rows are, in place of them.")
@forms.frame_form
@options.json_option
def synthetic(
    folder: Path,
    table: str | None,
    rows: int | None,
    updates: int,
    seed: int | None,
    form: FrameForm,
    *,
    quality: bool,
    as_json: bool,
) -> None:
    """Make up rows that are like those of a table, as far as the release in DIR says.

    This reads the folder only, and costs nothing.
    """
    from dpsql.present.formats import of_made_up
    from dpsql.release import Release

    form.check(as_json=as_json)
    release = Release.load(folder)
    made = release.synthetic(rows, updates=updates, seed=seed, table=table)
    if made.height or quality:
        found = release.synthetic_quality(made, table=table)
    if quality:
        form.say(_named(found), None, as_json=as_json)
        return
    how = {"table": table, "updates": updates, "seed": seed}
    about = partial(of_made_up, release.facts, made, how)
    form.say(made, None, as_json=as_json, about=about)
    for columns, why in found.select("columns", "note").rows() if made.height else ():
        if why is not None:
            output.note(f"{', '.join(columns)}: {why}")


def _named(found: pl.DataFrame) -> pl.DataFrame:
    """Write lists of columns as one text each."""
    names = [", ".join(columns) for columns in found["columns"].to_list()]
    series = type(found["columns"])
    return found.with_columns(series("columns", names))
