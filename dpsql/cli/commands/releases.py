"""Commands that read a release on disk: print it, write it as a page, make up rows like its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.cli import forms, options, output
from dpsql.cli.forms import Elsewhere, FrameForm

if TYPE_CHECKING:
    import polars as pl

    from dpsql.present.exports import Style
    from dpsql.release import Release


# ── `dpsql show`: a release on disk ──────────────────────────────────────────────────────────────


@click.command(short_help="Print a release on disk.")
@click.argument(
    "folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.argument("name", required=False)
@forms.frame_form
@forms.elsewhere
@options.typed("suppress_below")
@options.typed("standard_errors")
@options.json_option
def show(
    folder: Path,
    name: str | None,
    form: FrameForm,
    elsewhere: Elsewhere,
    suppress_below: float | None,
    *,
    standard_errors: bool,
    as_json: bool,
) -> None:
    """Print the summary of the release in DIR, or its statement NAME.

    This reads the folder only, and costs nothing. The answers can be written elsewhere, too.
    """
    from dpsql.calls import check_rows
    from dpsql.present.formats import of_answer
    from dpsql.release import Release

    check_rows(suppress_below=suppress_below)
    form.check(as_json=as_json, alone=name is not None)
    if elsewhere and name is not None:
        raise click.UsageError(
            "--to-csv, --to-parquet, --to-duckdb and --report are for a whole release."
        )
    elsewhere.check()
    release = Release.load(folder)
    release = release if suppress_below is None else release.suppressed(suppress_below)
    release = release.with_standard_errors() if standard_errors else release
    if name is not None:
        if name not in release:
            raise click.UsageError(f"There is no statement {name}; there are {', '.join(release)}.")
        frame = release[name]
        about = partial(of_answer, release.facts, release, name, frame)
        form.say(frame, None, as_json=as_json, about=about)
        return
    written = elsewhere.write(release)
    if as_json:
        output.say_json({**_document(release), **({"written": written} if written else {})})
    elif written:
        said = output.counted(len(release), "statement")
        output.say("\n".join(f"{place}: {said}" for place in written))
    else:
        output.say(release.summary())


def _document(release: Release) -> dict[str, object]:
    charged = release.charged
    return {
        "statements": {name: release.columns(name).to_dicts() for name in release},
        "charged": None if charged is None else output.as_json(charged.mu_squared, options.DELTA),
        "neighbours": release.neighbours,
    }


# ── `dpsql report`: a release on disk as one page for people ─────────────────────────────────────


@click.command(short_help="Write a release on disk as one HTML page.")
@click.argument(
    "folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file to write; it appears whole or not at all. [beside the folder, DIR.html]",
)
@click.option("--title", metavar="TEXT", help="What the page is called.")
@options.typed("ledger")
@options.typed("suppress_below")
@options.style
@options.max_bytes
@click.option("--overwrite", is_flag=True, help="Replace a report that is there.")
@options.json_option
def report(
    folder: Path,
    out: Path | None,
    title: str | None,
    ledger: str | Path | None,
    suppress_below: float | None,
    style: Style,
    max_bytes: int | None,
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write the release in DIR as one HTML page for people, with all that is in it.

    The page needs no network and costs nothing. With --ledger it says what is left, too.
    """
    from dpsql.release import Release

    place = out or Path(f"{folder.absolute()}.html")
    release = Release.load(folder)
    release = release if suppress_below is None else release.suppressed(suppress_below)
    size = options.most_bytes(max_bytes)
    release.report(
        place, title=title, ledger=ledger, style=style, max_bytes=size, overwrite=overwrite
    )
    if as_json:
        output.say_json({"out": str(place), "statements": list(release)})
    else:
        output.say(f"{place}: {output.counted(len(release), 'statement')}")


# ── `dpsql synthetic`: rows that are made up, of a release on disk ───────────────────────────────


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
        quality_of_rows = release.synthetic_quality(made, table=table)
    if quality:
        form.say(_named(quality_of_rows), None, as_json=as_json)
        return
    how = {"table": table, "updates": updates, "seed": seed}
    about = partial(of_made_up, release.facts, made, how)
    form.say(made, None, as_json=as_json, about=about)
    for columns, why in quality_of_rows.select("columns", "note").rows() if made.height else ():
        if why is not None:
            output.note(f"{', '.join(columns)}: {why}")


def _named(keys: pl.DataFrame) -> pl.DataFrame:
    """Write lists of columns as one text each."""
    names = [", ".join(columns) for columns in keys["columns"].to_list()]
    series = type(keys["columns"])
    return keys.with_columns(series("columns", names))
