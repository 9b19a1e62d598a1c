"""Values that mean nothing: marked in a frame of their own, or left out of the answer.

Both are views of frames that are there. They are decided by noisy values and by errors that are
known beforehand, so they cost nothing, and nothing of what is kept of a release changes by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import polars as pl

from dpsql.errors import (
    DpsqlError,
    ResourceLimitError,
    SchemaError,
    SqlError,
    UndeterminedError,
    printable,
)
from dpsql.hints import option
from dpsql.release.frames import DESCRIBED, Frames
from dpsql.release.support import Support

SUPPRESSED = "suppressed"
DIVIDED = "divided by noise"
NOISE = "noise"
ROUNDING = 1e-6
"""How far apart values are that were computed twice."""
MARKS = pl.Enum([SUPPRESSED, DIVIDED, NOISE])
"""The marks of values, of which each has the first that fits."""
SUPPRESSES = "NULL where fewer than {:g} rows are behind it, by their noisy number"
KEEPS = "not suppressed: no count of its rows is known"


class SupportedFrames(Frames, Protocol):
    """Frames of which it is known what their values rest on."""

    def supported(self, name: str) -> tuple[pl.DataFrame, Support]:
        """Return the frame of a statement, and what its values rest on."""

    def supported_batches(self, name: str, rows: int) -> Iterator[tuple[pl.DataFrame, Support]]:
        """Yield it in pieces."""


class AnsweredAgain:
    """Frames that were stored. What they rest on is found by answering their statements again.

    That follows from the measurements, and gives the same frame up to rounding.

    Args:
        stored: the frames.
        answer: answers a statement again.
        fitted: whether the answers are of tables that were fitted to measurements.
    """

    def __init__(
        self, stored: Frames, answer: Callable[[str], SupportedFrames], fitted: bool
    ) -> None:
        self._stored, self._answer, self._fitted = stored, answer, fitted

    @property
    def names(self) -> tuple[str, ...]:
        """The statements, in order."""
        return self._stored.names

    def frame(self, name: str) -> pl.DataFrame:
        """Return the frame of a statement."""
        return self._stored.frame(name)

    def batches(self, name: str, rows: int) -> Iterator[pl.DataFrame]:
        """Yield it in pieces."""
        return self._stored.batches(name, rows)

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of the frame."""
        return self._stored.columns(name)

    def supported(self, name: str) -> tuple[pl.DataFrame, Support]:
        """Return the frame of a statement, and what its values rest on.

        Raises:
            UndeterminedError: the statement can't be answered again, for a public table that isn't
                there, or is answered otherwise than it was.
        """
        frame = self._stored.frame(name)
        if self._fitted:
            raise UndeterminedError(
                "These answers come from tables that were fitted to what was measured. The tables "
                "are not in the folder, so it is no longer known how many rows a value rests on.",
                hint="suppress when the release is made, "
                + option("suppress_below", 10)
                + ", and have it written as CSV or Parquet then.",
            )
        try:
            answers = self._answer(name)
        except (SchemaError, SqlError):
            known = False
        else:
            known = True
        if not known:
            raise UndeterminedError(
                f"The answers to {printable(name[:60])} don't follow from the folder alone: its "
                "statement is over a public table, or was answered with other measurements.",
                hint="answer it again with its public tables, as frames by name: "
                f"release.query(release.facts.statements[{name[:60]!r}], public={{…: frame}}, "
                "suppress_below=10).",
            )
        (asked,) = answers.names
        again, support = answers.supported(asked)
        if not _is_same(frame, again):
            raise UndeterminedError(
                f"The answers to {printable(name[:60])} don't follow from what was measured alone.",
                hint="make the release again, which is free with a budget of 0.",
            )
        return frame, support

    def supported_batches(self, name: str, rows: int) -> Iterator[tuple[pl.DataFrame, Support]]:
        """Yield it in pieces."""
        frame, support = self.supported(name)
        for start in range(0, max(frame.height, 1), rows):
            yield frame.slice(start, rows), support.part(start, rows)


class SuppressedFrames:
    """Frames whose values are NULL where too few rows are behind them; no row is left out.

    Args:
        plain: with all values.
        below: how many rows are enough.
    """

    def __init__(self, plain: SupportedFrames, below: float) -> None:
        self.plain, self._below = plain, below

    @property
    def names(self) -> tuple[str, ...]:
        """The statements, in order."""
        return self.plain.names

    def frame(self, name: str) -> pl.DataFrame:
        """Return the frame of a statement."""
        return self.suppressed(name, *self.plain.supported(name))

    def batches(self, name: str, rows: int) -> Iterator[pl.DataFrame]:
        """Yield it in pieces."""
        for frame, support in self.plain.supported_batches(name, rows):
            yield self.suppressed(name, frame, support)

    def supported(self, name: str) -> tuple[pl.DataFrame, Support]:
        """Return the frame of a statement, and what its values rest on."""
        frame, support = self.plain.supported(name)
        return self.suppressed(name, frame, support), support

    def supported_batches(self, name: str, rows: int) -> Iterator[tuple[pl.DataFrame, Support]]:
        """Yield it in pieces."""
        for frame, support in self.plain.supported_batches(name, rows):
            yield self.suppressed(name, frame, support), support

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of the frame."""
        described = self.plain.columns(name)
        _, support = next(self.plain.supported_batches(name, 1_000_000))
        counted = {value for value, rows in support.rows.items() if rows.null_count() < rows.len()}
        rows = []
        for row in described.iter_rows(named=True):
            if row["role"] != "key":
                value = row["column"].removesuffix("_adjusted" * (row["role"] == "adjusted"))
                said = SUPPRESSES.format(self._below) if value in counted else KEEPS
                row = {**row, "reason": "; ".join(filter(None, (row["reason"], said)))}
            rows.append(row)
        return pl.DataFrame(rows, schema=dict.fromkeys(DESCRIBED, pl.String))

    def few(self, support: Support, value: str) -> pl.Series:
        """Say of each value whether too few rows are behind it."""
        return (support.rows[value] < self._below).fill_null(value=False)

    def suppressed(self, name: str, frame: pl.DataFrame, support: Support) -> pl.DataFrame:
        """Return a frame without the values of few rows."""
        changed = []
        for value in support.rows:
            few = self.few(support, value)
            beside = (f"{value}{end}" for end in ("", "_variance", "_lower", "_upper", "_adjusted"))
            own = _roles(self.plain, name)
            changed += [
                pl.select(pl.when(~few).then(frame[column])).to_series().alias(column)
                for column in beside
                if column in frame.columns and (column == value or column not in own)
            ]
        return frame.with_columns(changed)


def _roles(frames: Frames, name: str) -> set[str]:
    """Return the columns that a statement itself names."""
    described = frames.columns(name)
    return set(described.filter(pl.col("role") != "adjusted")["column"])


def marks(frames: SupportedFrames, name: str) -> pl.DataFrame:
    """Mark the values of a frame; see `Release.marks`."""
    return shown_and_marked(frames, name)[1]


def shown_and_marked(frames: SupportedFrames, name: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return a frame as it is shown, see `as_read`, and the marks of its values."""
    plain = frames.plain if isinstance(frames, SuppressedFrames) else frames
    frame, support = plain.supported(name)
    found, shown = [], frame
    if isinstance(frames, SuppressedFrames):
        shown = frames.suppressed(name, frame, support)
    for value in support.rows:
        suppressed = frames.few(support, value) if isinstance(frames, SuppressedFrames) else None
        flags: dict[str, pl.Series | None] = {
            SUPPRESSED: suppressed,
            DIVIDED: support.unfounded.get(value),
            NOISE: _is_noise(frame, value, support.ranges.get(value)),
        }
        found.append(_first(flags, frame.height).alias(value))
    return shown, pl.DataFrame(found, height=frame.height)


def as_read(frames: SupportedFrames, name: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return a frame as people read it, and the marks of its values.

    Of a release that was loaded and can't be answered again, there are the marks that the frame
    alone tells.

    Raises:
        KeyError: there is no such statement.
        ResourceLimitError: its frame is too large.
    """
    described = frames.columns(name).filter(pl.col("role") == "value")
    values = described["column"].to_list()
    # Sums of counts are neither quotients nor quantiles. Of others it takes the statement to be
    # answered again, after loading, which takes longer than all the rest of a report.
    is_plain = not isinstance(frames, SuppressedFrames) and described["variance"].eq("exact").all()
    if not is_plain:
        try:
            return shown_and_marked(frames, name)
        except ResourceLimitError:
            raise
        except DpsqlError:  # what was loaded can't always be answered again
            pass
    frame = frames.frame(name)
    return frame, noise_marked(frame, values)


def noise_marked(frame: pl.DataFrame, values: Iterable[str]) -> pl.DataFrame:
    """Mark what a frame alone tells: values below their own standard errors."""
    found = [
        _first({NOISE: _is_noise(frame, value, None)}, frame.height).alias(value)
        for value in values
    ]
    return pl.DataFrame(found, height=frame.height)


def _first(flags: dict[str, pl.Series | None], height: int) -> pl.Series:
    """Give each value the first mark whose flag is up."""
    marked = pl.Series([None] * height, dtype=MARKS)
    for mark, flag in reversed(flags.items()):
        if flag is not None:
            marked = pl.select(
                pl.when(flag).then(pl.lit(mark, dtype=MARKS)).otherwise(marked)
            ).to_series()
    return marked


def _is_noise(frame: pl.DataFrame, value: str, values: pl.Series | None) -> pl.Series | None:
    """Say of each value whether it is below its own standard error; None where none is known.

    Args:
        frame: with the value and what is beside it.
        value: its name.
        values: of a quantile, all that it may be: noise is one of which none is excluded.
    """
    beside = f"{value}_variance"
    if values is not None:
        return _excludes_nothing(frame, value, values)
    if beside not in frame.columns or not frame[value].dtype.is_numeric():
        return None
    error = frame[beside].cast(pl.Float64).sqrt()
    size = frame[value].cast(pl.Float64).abs()
    return ((error > 0) & (size < error)).fill_null(value=False)


def _excludes_nothing(frame: pl.DataFrame, value: str, values: pl.Series) -> pl.Series | None:
    """Say of each quantile whether its interval is all of its domain; None if it has none."""
    ends = f"{value}_lower", f"{value}_upper"
    if values.n_unique() < 2 or not {*ends} <= set(frame.columns):
        return None
    at = ((frame[ends[0]], values.head(1)), (frame[ends[1]], values.tail(1)))
    lower, upper = (bound == end.cast(bound.dtype, strict=False) for bound, end in at)
    return (lower & upper).fill_null(value=False)


def _is_same(frame: pl.DataFrame, again: pl.DataFrame) -> bool:
    """Whether two frames have the same rows, up to rounding; one may have more columns."""
    if frame.height != again.height:
        return False
    return all(_alike(frame[c], again[c]) for c in again.columns if c in frame.columns)


def _alike(one: pl.Series, other: pl.Series) -> bool:
    if one.dtype != other.dtype:
        return False
    if not one.dtype.is_float():
        return one.eq_missing(other).all()
    near = (one - other).abs() <= ROUNDING * (1 + other.abs())
    return (near.fill_null(value=False) | one.eq_missing(other)).all()
