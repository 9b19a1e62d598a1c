"""`dpsql show`: a release on disk."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.cli import forms, options, output
from dpsql.cli import output as money
from dpsql.cli.forms import Elsewhere, FrameForm

if TYPE_CHECKING:
    from dpsql.release import Release


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
        "charged": None if charged is None else money.as_json(charged.mu_squared, options.DELTA),
        "neighbours": release.neighbours,
    }
