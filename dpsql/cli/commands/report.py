"""`dpsql report`: a release on disk as one page for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.cli import options, output

if TYPE_CHECKING:
    from dpsql.present.exports import Style


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
