"""A release of answers that are hard to lay out: of any labels, numbers, keys and lengths."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import polars as pl

import dpsql
from tests.report.hostile import HOSTILE
from tests.report.test_report import Frames, given

DAYS = [dt.date(2024, 1, 1) + dt.timedelta(days) for days in range(40)]
LABELS = [
    "x" * 199 + "1",
    "x" * 199 + "2",
    HOSTILE,
    "\u202eevil.exe",
    "العربية",
    "🏳️\u200d🌈 families",
    "W" * 60,
    "",
]
TOWNS = ["North", "East", "South"]


def answers() -> dict[str, pl.DataFrame]:
    """Return name → frame."""
    odd = [math.nan, math.inf, -5e9, None, 1.0, 0.0, 1e-12, -math.inf]
    million = pl.select(number=pl.int_range(1_000_000)).with_columns(pl.col("number").alias("n"))
    return {
        "labels": table({"label": LABELS}, n=1e3),
        "pairs of labels": table({"label": LABELS, "other": LABELS[::-1]}, n=-7.0, m=1e7),
        "numbers that are none": table({"label": LABELS}).with_columns(
            n=pl.Series(odd), n_variance=pl.Series([*odd[1:], 4.0])
        ),
        "three keys": table({"label": LABELS[2:], "town": TOWNS, "sex": ["f", "m"]}, n=3e5),
        "days": table({"day": DAYS, "town": TOWNS}, n=123_456_789.0),
        "years": table({"year": range(1990, 2020), "town": TOWNS}, n=1e-9, m=1e12),
        "many values": table({"sex": ["f", "m"]}, **{f"value {i}": 10.0**i for i in range(12)}),
        "one key": table({"label": [f"label {i}" for i in range(60)]}, n=-1e5),
        "empty": table({"label": LABELS}, n=1e3).clear(),
        "one row": table({"label": LABELS[:1]}, n=1e3),
        "million": million.with_columns(n_variance=pl.lit(1.0)),
    }


def table(keys: dict[str, Sequence[Any]], **values: float) -> pl.DataFrame:
    """Return a row for each combination of keys, with values that grow, and errors."""
    frame = pl.DataFrame([*product(*keys.values())], schema=[*keys], orient="row")
    number = pl.int_range(pl.len()).cast(pl.Float64) + 1
    return frame.with_columns(
        (times * (number - (number - 1) * end) * size).alias(f"{name}{ending}")
        for name, times in values.items()
        for ending, end, size in (("", 0, 1), ("_variance", 1, times))
    )


def odd_release(release: dpsql.Release) -> dpsql.Release:
    """Return a release with these answers, and all else of another one."""
    frames = answers()
    ends = ("_variance", "_lower", "_upper")
    roles = {
        column: "key"
        if column in {"label", "other", "town", "sex", "day", "year", "number"}
        else "value"
        for frame in frames.values()
        for column in frame.columns
        if not column.endswith(ends)
    }
    made = given(release, Frames(frames, roles))
    asked = {name: f"SELECT {HOSTILE} -- {name}" for name in frames}
    return made.with_facts(replace(made.facts, statements=asked))
