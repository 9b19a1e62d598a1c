"""The command line."""

from __future__ import annotations

import runpy
from pathlib import Path

import click

from dpsql.errors import DpsqlError


def examples_folder() -> Path:
    """Return the folder of examples: in the wheel beside this module, in a checkout above it."""
    here = Path(__file__).parent
    packed = here / "examples"
    return packed if packed.is_dir() else here.parent / "examples"


@click.group()
@click.version_option(package_name="dpsql")
def main() -> None:
    """Differentially private SQL over DuckDB."""


@main.command()
def demo() -> None:
    """Release real census data."""
    try:
        runpy.run_path(str(examples_folder() / "demo.py"), run_name="__main__")
    except DpsqlError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main(prog_name="dpsql")
