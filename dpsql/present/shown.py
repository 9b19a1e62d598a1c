"""Frames as they are shown: values with as many digits as their errors leave a meaning.

Two digits of the standard error are shown, so 16206.57 with an error of 20 is 16207, and 0.041183
with one of 0.0057 is 0.0412. Standard errors stand in place of variances, whose size says little
beside a value. What is stored, computed and written stays exact, and has variances.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from decimal import Decimal

import polars as pl

from dpsql.answers.frames import Frames
from dpsql.markup import Html, folded, table

DIGITS = 2
"""Digits of the standard error."""
MOST_DECIMALS = 12
LARGEST = 1e15
NOT_KNOWN = "not known"
MOST_ROWS = 5
MOST_UNFOLDED = 500
"""Rows that a table in a notebook shows at once, and behind a click."""
VARIANCE, ERROR = "_variance", "_standard_error"
_BESIDE = ("", ERROR, "_lower", "_upper", "_adjusted")


def decimals_of(error: float | None) -> int | None:
    """Return how many decimals a value with some standard error has; None if that isn't known."""
    if error is None or not math.isfinite(error) or error <= 0:
        return None
    return min(max(DIGITS - 1 - math.floor(math.log10(error)), 0), MOST_DECIMALS)


def shown_value(value: object, decimals: int | None) -> object:
    """Round a number for display; anything else, and what has no error, stays as it is."""
    if decimals is None or not isinstance(value, float) or not abs(value) < LARGEST:
        return value
    shown = Decimal(f"{value:.{decimals}f}")
    return shown if shown else abs(shown)


def with_errors(frame: pl.DataFrame, values: Collection[str] | None = None) -> pl.DataFrame:
    """Return a frame with standard errors in place of the variances beside its values.

    Args:
        frame: with variances.
        values: which columns are values; by default those that have what looks like a variance.
    """
    columns, known = [], frame.columns if values is None else values
    for column in frame.iter_columns():
        value = column.name.removesuffix(VARIANCE)
        error = f"{value}{ERROR}"
        is_beside = value != column.name and value in known and error not in frame.columns
        is_beside &= column.dtype.is_float()
        columns.append(column.sqrt().alias(error) if is_beside else column)
    return pl.DataFrame(columns)


def number_of(value: object, decimals: int | None = None) -> str:
    """Write a value with its thousands apart, and no more decimals than mean something."""
    value = shown_value(value, decimals)
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "infinite" if value > 0 else "minus infinite"
        return f"{value:,.2f}" if value == 0 or 0.01 <= abs(value) < LARGEST else f"{value:.3g}"
    return f"{value:,}"


def error_of(error: float | None) -> str:
    """Write a standard error with two digits."""
    if error is None or math.isnan(error) or error < 0:
        return NOT_KNOWN
    return number_of(error, decimals_of(error))


def shown_rows(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    """Return the rows of a frame, with values of known errors rounded for display."""
    columns = {name: frame[name].to_list() for name in frame.columns}
    for name in frame.columns:
        errors = _errors(frame, name)
        if errors is None:
            continue
        digits = [decimals_of(error) for error in errors.to_list()]
        for own in (f"{name}{end}" for end in _BESIDE):
            if own in columns:
                columns[own] = [
                    shown_value(value, d) for value, d in zip(columns[own], digits, strict=True)
                ]
    return list(zip(*columns.values(), strict=True))


def _errors(frame: pl.DataFrame, name: str) -> pl.Series | None:
    """Return the standard errors of a value, if they or its variances stand beside it."""
    for end, is_square in ((VARIANCE, True), (ERROR, False)):
        beside = f"{name}{end}"
        if beside in frame.columns and frame[beside].dtype.is_float():
            return frame[beside].sqrt() if is_square else frame[beside]
    return None


def shown_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame to be looked at: what is rounded for display is text in it."""
    frame = with_errors(frame)
    rows = shown_rows(frame)
    series = []
    for i, name in enumerate(frame.columns):
        values = [row[i] for row in rows]
        if any(isinstance(value, Decimal) for value in values) and frame[name].dtype.is_float():
            texts = [None if value is None else str(value) for value in values]
            series.append(pl.Series(name, texts, dtype=pl.String))
        else:
            series.append(frame[name])
    return pl.DataFrame(series)


def answer_table(frame: pl.DataFrame, name: str = "") -> Html:
    """Show the first rows of an answer, and behind a click the next.

    Args:
        frame: all of them, or one more than are shown at most.
        name: by which a release has them, if it does.
    """
    frame = with_errors(frame)
    rows = shown_rows(frame.head(MOST_UNFOLDED + 1))
    if len(rows) <= MOST_ROWS:
        return table(frame.columns, rows)
    head, more = table(frame.columns, rows[:MOST_ROWS]), ""
    if len(rows) > MOST_UNFOLDED:
        more = f"… and more: release[{name!r}]" if name else "… and more"
    title = f"the first {MOST_UNFOLDED:,} rows" if more else f"all {len(rows):,} rows"
    unfolded = folded(title, table(frame.columns, rows[:MOST_UNFOLDED], more=more))
    return Html(f"{head}{unfolded}")


# ── Frames as they are handed out with standard errors in place of variances ─────────────────────
#
# They are a view: what is kept of a release, marked and reported has variances. A column belongs to
# a value by what the statement says, and not by its name alone: an analyst may call any column so.


class ErrorFrames:
    """Frames with standard errors beside their values.

    Args:
        plain: with variances.
    """

    def __init__(self, plain: Frames) -> None:
        self._plain = plain

    @property
    def names(self) -> tuple[str, ...]:
        """The statements, in order."""
        return self._plain.names

    def frame(self, name: str) -> pl.DataFrame:
        """Return the frame of a statement."""
        return with_errors(self._plain.frame(name), self._values(name))

    def batches(self, name: str, rows: int) -> Iterator[pl.DataFrame]:
        """Yield it in pieces."""
        values = self._values(name)
        return (with_errors(frame, values) for frame in self._plain.batches(name, rows))

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of the frame."""
        return self._plain.columns(name)

    def _values(self, name: str) -> frozenset[str]:
        """Return the values of a statement beside which nothing stands that it names itself."""
        described = self._plain.columns(name)
        named = set(described["column"])
        values = described.filter(pl.col("role") == "value")["column"]
        return frozenset(value for value in values if f"{value}{VARIANCE}" not in named)
