"""`dpsql demo`: the examples, run as they are."""

from __future__ import annotations

import runpy
from pathlib import Path

import click


def examples_folder() -> Path:
    """Return the folder of examples: in the wheel inside the package, in a checkout beside it."""
    package = Path(__file__).parents[2]
    packed = package / "examples"
    return packed if packed.is_dir() else package.parent / "examples"


@click.command(short_help="Release real census data.")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write one HTML page with all of it, too, which stays.",
)
def demo(report: Path | None) -> None:
    """Release real census data, in a temporary folder.

    The Adult extract is planned, released and printed. It needs no network and, but for a report,
    leaves nothing behind.
    """
    if report is not None:
        from dpsql.present.reported import check_report

        check_report(report)
    runpy.run_path(str(examples_folder() / "demo.py"))["main"](report)
