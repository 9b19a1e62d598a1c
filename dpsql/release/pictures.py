"""The picture of an answer: which one fits it, and what it shows in words.

One key of labels makes bars, one of numbers or times a line, two keys of labels a heat map. Of
several values the first is drawn. Answers of more keys have none. Of more rows than can be told
apart the largest are shown, or along a line their means, and that is said.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from dpsql.charts.specs import Figure, Grid, Points, Scale, bars, heat, line
from dpsql.errors import PlotError, printable, shown
from dpsql.markup import plain
from dpsql.release.confidence import CONFIDENCE

MOST_BARS, MOST_POINTS, MOST_SIDE = 40, 1_000, 24
LONGEST_LABEL = 60
FEWEST_POINTS = 13
"""Numbers from which on there is a line, and bars below."""


def chart_of(
    frame: pl.DataFrame,
    described: pl.DataFrame,
    confidence: float | None,
    value: str | None = None,
) -> Figure | None:
    """Choose the picture of an answer; None if there is none that fits.

    Args:
        frame: the answer.
        described: its columns, see `Release.columns`.
        confidence: that of intervals, if there are any.
        value: the column that is drawn; by default the first one.
    """
    keys, values = (
        described.filter(pl.col("role") == role)["column"].to_list() for role in ("key", "value")
    )
    values = [name for name in values if frame[name].dtype.is_numeric()]
    if value is not None:
        values = [name for name in values if name == value]
    if not values or frame.height < 2 or not 1 <= len(keys) <= 2:
        return None
    if len(keys) == 2:
        return _of_two(frame, keys, values[0])
    return _of_one(frame, keys[0], values[0], set(described["column"]), confidence)


def chart_wanted(
    name: str,
    frame: pl.DataFrame,
    described: pl.DataFrame,
    confidence: float | None,
    value: str | None,
) -> Figure:
    """Choose the picture of an answer that somebody wants to see.

    Raises:
        PlotError: there is none that fits, or no such value.
    """
    own = described.filter(pl.col("role") == "value")["column"].to_list()
    if value is not None and value not in own:
        said = printable(value) if isinstance(value, str) else shown(value)
        listed = ", ".join(map(printable, own)) or "none"
        raise PlotError(f"{printable(name)} has no value {said}.", hint=f"its values are {listed}.")
    found = chart_of(frame, described, confidence, value)
    if found is not None:
        return found
    keys = described.filter(pl.col("role") == "key").height
    raise PlotError(
        f"No picture fits {printable(name)}: one has a number for each row, at least two rows, and "
        f"one key or two that tell rows apart; here are {frame.height:,} rows and {keys} keys.",
        hint='ask for other groups, which is free: release.query("SELECT …"); or see the rows: '
        f"release[{name!r}].",
    )


def _of_one(
    frame: pl.DataFrame, key: str, value: str, said: set[str], confidence: float | None
) -> Figure | None:
    known = frame.filter(pl.col(key).is_not_null())
    scale = _scale(known[key])
    notes = []
    if scale == "nominal":
        known = frame
    elif known.height < frame.height:
        notes.append("without the row of NULL")
    if known[key].is_duplicated().any():
        return None
    if scale != "nominal" and known.height > MOST_POINTS:
        return _of_many(known, key, value, scale, notes)
    ends, meant = _ends(known, value, said, confidence)
    if scale == "nominal" and known.height > MOST_BARS:
        notes.append(f"the {MOST_BARS} largest of {known.height:,} rows")
        chosen = known.with_row_index(_ROW).top_k(MOST_BARS, by=pl.col(value))[_ROW].sort()
        known, ends = known[chosen], [ends[i] for i in chosen]
    labels = _keys(known[key], scale)
    if len(set(labels)) < known.height:
        return None
    points = Points(
        value=_name(value),
        by=_name(key),
        scale=scale,
        keys=labels,
        values=_numbers(known[value]),
        ends=ends,
    )
    chart = bars(points) if scale == "nominal" else line(points)
    what = "Bars" if scale == "nominal" else "A line"
    title = f"{what}: {_name(value)} by {_name(key)}{f' with {meant}' if meant else ''}"
    return _told(chart, title, points.values, [*([meant] if meant else []), *notes])


_ROW, _PART = "row", "part"
_MEANS = MOST_POINTS // 2


def _of_many(
    frame: pl.DataFrame, key: str, value: str, scale: Scale, notes: Sequence[str]
) -> Figure:
    """Draw means of many rows, with a band from the least to the largest."""
    size = -(-frame.height // _MEANS)
    own = pl.DataFrame({"key": frame[key], "value": frame[value].cast(pl.Float64)}).sort("key")
    number = pl.col("value").filter(pl.col("value").is_finite())
    found = (
        own.with_row_index(_PART)
        .group_by(pl.col(_PART) // size, maintain_order=True)
        .agg(pl.col("key").first(), number.mean(), number.min().alias("low"),
             number.max().alias("high"))
    )  # fmt: skip
    points = Points(
        value=_name(value),
        by=_name(key),
        scale=scale,
        keys=_keys(found["key"], scale),
        values=_numbers(found["value"]),
        ends=_pairs(_numbers(found["low"]), _numbers(found["high"])),
    )
    said = [
        f"means of {size:,} rows each, of {frame.height:,}",
        "the band goes from the least to the largest of these",
    ]
    title = f"A line: {_name(value)} by {_name(key)}"
    return _told(line(points), title, points.values, [*said, *notes])


def _of_two(frame: pl.DataFrame, keys: Sequence[str], value: str) -> Figure | None:
    if frame.select(keys).is_duplicated().any():
        return None
    sides = [frame[key].n_unique() for key in keys]
    tall = sides[0] >= sides[1]  # the longer side goes down the page
    down, over = keys if tall else (keys[1], keys[0])
    notes: list[str] = []
    for key, most in ((down, 2 * MOST_SIDE), (over, MOST_SIDE)):
        frame = _largest(frame, key, value, most, notes)
    rows, columns = _labels(frame[down]), _labels(frame[over])
    if len(set(zip(rows, columns, strict=True))) < frame.height:
        return None
    values = _numbers(frame[value])
    grid = Grid(
        value=_name(value),
        rows=_name(down),
        columns=_name(over),
        cells=list(zip(rows, columns, values, strict=True)),
    )
    title = f"A heat map: {_name(value)} by {_name(down)} and {_name(over)}"
    return _told(heat(grid), title, values, notes)


def _largest(
    frame: pl.DataFrame, key: str, value: str, most: int, notes: list[str]
) -> pl.DataFrame:
    """Keep the rows of the keys with the largest sums of magnitudes, if there are too many."""
    if (many := frame[key].n_unique()) <= most:
        return frame
    own = pl.DataFrame({"key": frame[key], "value": frame[value].cast(pl.Float64).abs()})
    number = pl.col("value").filter(pl.col("value").is_finite())
    kept = own.group_by("key", maintain_order=True).agg(number.sum())
    chosen = kept.top_k(most, by="value")["key"]
    notes.append(f"of {many:,} values of {_name(key)} the {most} with the largest numbers")
    return frame.filter(frame[key].is_in(chosen.implode(), nulls_equal=True))


def _told(
    spec: dict[str, Any], title: str, values: Sequence[float | None], notes: Sequence[str]
) -> Figure:
    left_out = [note for note in notes if note not in title]
    words = "".join(f" ({note})" for note in left_out)
    return Figure(spec, f"{title}{words}: {_range(values)}", tuple(notes))


def _scale(column: pl.Series) -> Scale:
    if isinstance(column.dtype, (pl.Date, pl.Datetime)):
        return "temporal"
    enough = column.len() >= FEWEST_POINTS
    return "quantitative" if column.dtype.is_numeric() and enough else "nominal"


def _keys(column: pl.Series, scale: Scale) -> list[str | float]:
    if scale == "quantitative":
        return column.cast(pl.Float64).to_list()
    if scale == "temporal":
        return [_moment(value) for value in column.to_list()]
    return [*_labels(column)]


def _moment(value: dt.date) -> str:
    """Write what a clock shows, as if that were UTC: so it is drawn alike everywhere."""
    if isinstance(value, dt.datetime):
        return f"{value.replace(tzinfo=None).isoformat()}Z"
    return f"{value.isoformat()}T00:00:00Z"


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
        return _pairs(lower, upper), f"{share} % intervals"
    if own("variance"):
        error = frame[f"{value}_variance"].cast(pl.Float64).sqrt()
        middle = frame[value].cast(pl.Float64)
        ends = _numbers(middle - error), _numbers(middle + error)
        return _pairs(*ends), "one standard error to each side"
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
