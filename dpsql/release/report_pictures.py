"""The picture of an answer: which one fits it, and what it shows in words.

One key of labels makes bars, one of numbers or times a line, two keys of labels a heat map. Of
several values the first is drawn. Answers of more keys, or of too many rows to be told apart in a
picture, have none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from dpsql.errors import printable
from dpsql.markup import plain
from dpsql.release.confidence import CONFIDENCE
from dpsql.report import Picture
from dpsql.report.charts import Grid, Points, Scale, bars, heat, line
from dpsql.report.pictures import drawn

MOST_BARS, MOST_POINTS, MOST_SIDE = 40, 1_000, 24
LONGEST_LABEL = 60
FEWEST_POINTS = 13
"""Numbers from which on there is a line, and bars below."""


def picture_of(
    frame: pl.DataFrame, described: pl.DataFrame, confidence: float | None
) -> Picture | None:
    """Draw an answer.

    Args:
        frame: the answer.
        described: its columns, see `Release.columns`.
        confidence: that of intervals, if there are any.
    """
    keys, values = (
        described.filter(pl.col("role") == role)["column"].to_list() for role in ("key", "value")
    )
    values = [value for value in values if frame[value].dtype.is_numeric()]
    if not values or frame.height < 2 or not 1 <= len(keys) <= 2:
        return None
    if len(keys) == 2:
        return _of_two(frame, keys, values[0])
    return _of_one(frame, keys[0], values[0], set(described["column"]), confidence)


def _of_one(
    frame: pl.DataFrame, key: str, value: str, said: set[str], confidence: float | None
) -> Picture | None:
    column = frame[key]
    scale = _scale(column)
    if frame.height > (MOST_BARS if scale == "nominal" else MOST_POINTS):
        return None
    labels = _keys(column, scale)
    if len(set(labels)) < frame.height:
        return None
    ends, meant = _ends(frame, value, said, confidence)
    points = Points(
        value=_name(value),
        by=_name(key),
        scale=scale,
        keys=labels,
        values=_numbers(frame[value]),
        ends=ends,
    )
    what = "Bars" if scale == "nominal" else "A line"
    chart = bars(points) if scale == "nominal" else line(points)
    words = f"{what}: {_name(value)} by {_name(key)}{meant}: {_range(points.values)}"
    return Picture(drawn(chart), words)


def _of_two(frame: pl.DataFrame, keys: Sequence[str], value: str) -> Picture | None:
    first, second = (_labels(frame[key]) for key in keys)
    sides = len(set(first)), len(set(second))
    apart = len(set(zip(first, second, strict=True))) == frame.height
    if not apart or max(sides) > 2 * MOST_SIDE or min(sides) > MOST_SIDE:
        return None
    tall = sides[0] >= sides[1]  # the longer side goes down the page
    rows, columns = (first, second) if tall else (second, first)
    over, down = (keys[1], keys[0]) if tall else (keys[0], keys[1])
    values = _numbers(frame[value])
    grid = Grid(
        value=_name(value),
        rows=_name(down),
        columns=_name(over),
        cells=list(zip(rows, columns, values, strict=True)),
    )
    words = f"A heat map: {_name(value)} by {_name(down)} and {_name(over)}: {_range(values)}"
    return Picture(drawn(heat(grid)), words)


def _scale(column: pl.Series) -> Scale:
    if column.null_count():
        return "nominal"
    if isinstance(column.dtype, (pl.Date, pl.Datetime)):
        return "temporal"
    enough = column.len() >= FEWEST_POINTS
    return "quantitative" if column.dtype.is_numeric() and enough else "nominal"


def _keys(column: pl.Series, scale: Scale) -> list[str | float]:
    if scale == "quantitative":
        return column.cast(pl.Float64).to_list()
    if scale == "temporal":
        return [value.isoformat() for value in column.to_list()]
    return [*_labels(column)]


def _labels(column: pl.Series) -> list[str]:
    return [printable(plain(value))[:LONGEST_LABEL] for value in column.to_list()]


def _numbers(column: pl.Series) -> list[float | None]:
    return [None if v is None or not math.isfinite(v) else float(v) for v in column.to_list()]


def _ends(
    frame: pl.DataFrame, value: str, said: set[str], confidence: float | None
) -> tuple[list[tuple[float, float] | None], str]:
    """Return intervals, or a standard error to each side, and which of them these are."""

    def own(end: str) -> bool:
        return f"{value}_{end}" in frame.columns and f"{value}_{end}" not in said

    if own("lower") and own("upper"):
        lower, upper = (_numbers(frame[f"{value}_{end}"]) for end in ("lower", "upper"))
        share = f"{100 * (confidence or CONFIDENCE):g}"
        return _pairs(lower, upper), f" with {share} % intervals"
    if own("variance"):
        error = frame[f"{value}_variance"].cast(pl.Float64).sqrt()
        middle = frame[value].cast(pl.Float64)
        ends = _numbers(middle - error), _numbers(middle + error)
        return _pairs(*ends), " with one standard error to each side"
    return [None] * frame.height, ""


def _pairs(
    lower: Sequence[float | None], upper: Sequence[float | None]
) -> list[tuple[float, float] | None]:
    return [None if a is None or b is None else (a, b) for a, b in zip(lower, upper, strict=True)]


def _range(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "of which none is known."
    return (
        f"{len(known):,} values from {min(known):,.4g} to {max(known):,.4g}. All are in the table."
    )


def _name(column: Any) -> str:
    return printable(str(column))[:LONGEST_LABEL]
