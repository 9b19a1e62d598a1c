"""What commands print: aligned tables, amounts, CSV and JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from dpsql.errors import printable
from dpsql.markup import plain

if TYPE_CHECKING:
    import polars as pl

MOST_ROWS = 100
"""Rows of a frame that are printed as a table; CSV and JSON have all of them."""


def say(text: str = "") -> None:
    """Print lines to standard output, with nothing in them that could disguise them."""
    click.echo("\n".join(printable(line) for line in text.split("\n")))


def note(text: str) -> None:
    """Print lines to standard error, which is for the reader and not for the next program."""
    click.echo("\n".join(printable(line) for line in text.split("\n")), err=True)


def say_json(document: object) -> None:
    """Print one JSON document, in ASCII."""
    click.echo(json.dumps(_json(document), indent=2, allow_nan=False))


def say_frame(frame: pl.DataFrame) -> None:
    """Print the first rows of a frame as a table."""
    say_table(frame.columns, frame.head(MOST_ROWS).rows())
    if frame.height > MOST_ROWS:
        say(f"… and {frame.height - MOST_ROWS:,} more rows: take --csv or --json for all.")


def say_csv(frame: pl.DataFrame) -> None:
    """Print a frame as CSV; on a terminal without characters that could disguise it."""
    text = frame.write_csv()
    if sys.stdout.isatty():
        say(text.removesuffix("\n"))
    else:
        click.echo(text, nl=False)


def say_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows below a header: numbers to the right, all else to the left."""
    from rich.cells import cell_len

    values = [list(row) for row in rows]
    texts = [[plain(value) for value in row] for row in values]
    lines = [[printable(text) for text in line] for line in ([*header], *texts)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    right = [_numeric([row[i] for row in values]) for i in range(len(header))]
    for line in lines:
        cells = []
        for cell, width, to_the_right in zip(line, widths, right, strict=True):
            space = " " * (width - cell_len(cell))
            cells.append(space + cell if to_the_right else cell + space)
        click.echo("  ".join(cells).rstrip())


def _numeric(values: Sequence[object]) -> bool:
    kinds = {type(value) for value in values} - {type(None)}
    return bool(kinds) and kinds <= {int, float, Decimal}


def _json(value: Any) -> Any:
    """Turn a value into one that JSON has; a number that isn't finite becomes null."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    return str(value)
