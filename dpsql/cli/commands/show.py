"""`dpsql show`: a release on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.cli import amounts as money
from dpsql.cli import options, output

if TYPE_CHECKING:
    from dpsql.release import Release


@click.command(short_help="Print a release on disk.")
@click.argument(
    "folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.argument("name", required=False)
@click.option("--csv", "as_csv", is_flag=True, help="Print all rows of NAME as CSV.")
@options.json_option
def show(folder: Path, name: str | None, *, as_csv: bool, as_json: bool) -> None:
    """Print the summary of the release in DIR, or its statement NAME.

    This reads the folder only, and costs nothing.
    """
    from dpsql.release import Release

    if as_csv and (as_json or name is None):
        raise click.UsageError("--csv is for one statement, and without --json.")
    release = Release.load(folder)
    if name is None:
        if as_json:
            output.say_json(_document(release))
        else:
            output.say(release.summary())
        return
    if name not in release:
        raise click.UsageError(f"There is no statement {name}; there are {', '.join(release)}.")
    frame = release[name]
    if as_json:
        output.say_json({"columns": frame.columns, "rows": frame.to_dicts()})
    elif as_csv:
        output.say_csv(frame)
    else:
        output.say_frame(frame)


def _document(release: Release) -> dict[str, object]:
    charged = release.charged
    return {
        "statements": {name: release.columns(name).to_dicts() for name in release},
        "charged": None if charged is None else money.as_json(charged.mu_squared, options.DELTA),
        "neighbours": release.neighbours,
    }
