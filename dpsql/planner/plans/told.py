"""Expected errors as people are told them: a line for each column of values, in its own unit.

A count is off by so many rows whatever it is, an average by less the more rows there are. So the
line of an average says for how many: "± 2,300 for a group of 700 rows, ± 230 for 7,000".
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import polars as pl

from dpsql.errors import printable
from dpsql.hints import Hint, option
from dpsql.planner.plans.traits import MECHANISMS

HEADER = ("statement", "answers", "standard error")
DIGITS = 2
WIDTH = 100
MOST_DECIMALS = 12
UNKNOWN = "not known before the release"
BIASED = "not known: it depends on the data"
SURE = " at 95 %"
"""Words on quantiles, which have intervals and no standard errors."""


def told_rows(
    found: pl.DataFrame | None, errors: pl.DataFrame, mechanism: str
) -> list[tuple[str, int, str]]:
    """Return a row for each column of values, below `HEADER`.

    Args:
        found: what `Plan.expected_answers` has.
        errors: what `Plan.expected_error` has, which is told where there is nothing else.
        mechanism: the name of the plan's.
    """
    if found is None:
        biased = MECHANISMS[mechanism].is_biased
        return [
            (name, rows, BIASED if biased else _always(rmse, worst))
            for name, rows, rmse, worst in errors.rows()
        ]
    columns: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in found.iter_rows(named=True):
        columns.setdefault(row["statement"], {}).setdefault(row["column"], []).append(row)
    return [
        (
            statement if len(of) == 1 else f"{statement}: {column}",
            max(row["answers"] for row in rows),
            said(rows),
        )
        for statement, of in columns.items()
        for column, rows in of.items()
    ]


def said(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say what error is expected of a column.

    Args:
        rows: those that `Plan.expected_answers` has of it.
    """
    first = rows[0]
    if first["exact"]:
        return _exact(first)
    told = [(row, error) for row in rows if (error := _error(row)) is not None]
    if not told:
        return "noise alone" if any(row["left_out"] for row in rows) else UNKNOWN
    if first["group_rows"] is None:
        row, error = told[0]
        some = f"; nothing can be said of {row['left_out']:,} of {row['answers']:,} groups"
        return error + (some if row["left_out"] else "")
    (row, error), *others = told
    parts = [f"{error} for a group of {row['group_rows']:,} rows"]
    parts += [f"{error.removesuffix(SURE)} for {row['group_rows']:,}" for row, error in others]
    noise = [row["group_rows"] for row in rows if _error(row) is None and row["left_out"]]
    return ", ".join([*parts, *([f"noise alone for {max(noise):,}"] if noise else [])])


def _exact(row: Mapping[str, Any]) -> str:
    """Say an error that is the same for all rows; of what isn't counted, how large it is beside."""
    if row["standard_error"] is None:
        return UNKNOWN
    said = _always(row["standard_error"], row["largest_standard_error"], row["counts"] or "")
    if row["counts"] or not row["typical"] or not row["standard_error"]:
        return said
    share = f"{digits(100 * row['standard_error'] / abs(row['typical']))} %"
    where = "" if row["group_rows"] is None else f" for a group of {row['group_rows']:,} rows"
    return f"{said}, that is {share}{where}"


def _always(error: float, largest: float, unit: str = "") -> str:
    if not largest:
        return "exact"
    most = "" if digits(error) == digits(largest) else f", at most {digits(largest)}"
    return f"± {digits(error)}{' ' * bool(unit)}{unit}{most}"


def _error(row: Mapping[str, Any]) -> str | None:
    """Say the error of a row; None if there is nothing to say."""
    if row["standard_error"] is not None:
        largest = row["largest_standard_error"] if row["group_rows"] is None else None
        return _always(row["standard_error"], largest or row["standard_error"])
    return None if row["interval"] is None else f"± {digits(row['interval'] / 2)}{SURE}"


def digits(value: float) -> str:
    """Write a size with two digits, in full."""
    if not math.isfinite(value):
        return "∞"
    if value == 0:
        return "0"
    decimals = min(DIGITS - 1 - math.floor(math.log10(abs(value))), MOST_DECIMALS)
    text = f"{round(Decimal(value), decimals):,.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def example_note(found: pl.DataFrame | None) -> str:
    """Say what the groups are that errors are told for; nothing if there are none.

    Args:
        found: what `Plan.expected_answers` has.
    """
    if found is None or not found.filter(~found["exact"])["group_rows"].count():
        return ""
    said = "Groups of so many rows are examples, with all values equally frequent; for others add "
    return Hint(said) + option("assume", {"rows": 100_000}) + "."


def text_of(rows: Sequence[tuple[str, int, str]], *below: str) -> str:
    """Write rows as a table, and lines below it."""
    lines = [HEADER, *((printable(name), f"{answers:,}", told) for name, answers, told in rows)]
    wide = [max(len(line[i]) for line in lines) for i in range(2)]
    table = [f"{name:<{wide[0]}}  {answers:>{wide[1]}}  {told}" for name, answers, told in lines]
    return "\n".join([*table, *(part for line in below for part in textwrap.wrap(line, WIDTH))])
