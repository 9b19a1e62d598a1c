"""Frames as they are shown: values with as many digits as their errors leave a meaning.

Two digits of the standard error are shown, so 16206.57 with an error of 20 is 16207, and 0.041183
with one of 0.0057 is 0.0412. What is stored, computed and written stays exact.
"""

from __future__ import annotations

import math
from decimal import Decimal

import polars as pl

DIGITS = 2
"""Digits of the standard error."""
MOST_DECIMALS = 12
LARGEST = 1e15
_BESIDE = ("", "_lower", "_upper", "_adjusted")


def decimals_of(error: float | None) -> int | None:
    """Return how many decimals a value with some standard error has; None if that isn't known."""
    if error is None or not math.isfinite(error) or error <= 0:
        return None
    return min(max(DIGITS - 1 - math.floor(math.log10(error)), 0), MOST_DECIMALS)


def shown_value(value: object, decimals: int | None) -> object:
    """Round a number for display; anything else, and what has no error, stays as it is."""
    if decimals is None or not isinstance(value, float) or not abs(value) < LARGEST:
        return value
    found = Decimal(f"{value:.{decimals}f}")
    return found if found else abs(found)


def shown_rows(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    """Return the rows of a frame, with values that have a variance rounded for display."""
    columns = {name: frame[name].to_list() for name in frame.columns}
    for name in frame.columns:
        beside = f"{name}_variance"
        if beside not in columns or not frame[beside].dtype.is_float():
            continue
        errors = frame[beside].sqrt().to_list()
        digits = [decimals_of(error) for error in errors]
        for own in (f"{name}{end}" for end in _BESIDE):
            if own in columns:
                columns[own] = [
                    shown_value(value, d) for value, d in zip(columns[own], digits, strict=True)
                ]
    return list(zip(*columns.values(), strict=True))


def shown_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame to be looked at: what is rounded for display is text in it."""
    rows = shown_rows(frame)
    found = []
    for i, name in enumerate(frame.columns):
        values = [row[i] for row in rows]
        if any(isinstance(value, Decimal) for value in values) and frame[name].dtype.is_float():
            texts = [None if value is None else str(value) for value in values]
            found.append(pl.Series(name, texts, dtype=pl.String))
        else:
            found.append(frame[name])
    return pl.DataFrame(found)
