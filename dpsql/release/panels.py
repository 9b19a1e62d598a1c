"""One panel of a picture: the numbers of an answer, or of a part of it, by one key or by two."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from dpsql.charts.axes import Scale
from dpsql.charts.specs import Grid, Mark, Points, Square
from dpsql.errors import printable
from dpsql.markup import plain
from dpsql.release.confidence import CONFIDENCE
from dpsql.release.marks import DIVIDED, NOISE, SUPPRESSED
from dpsql.release.shown import LARGEST, decimals_of, error_of, number_of

MOST_POINTS = 1_000
LONGEST_NAME, LONGEST_LABEL, SHORTER_LABEL = 60, 28, 18
FEWEST_POINTS = 13
"""Numbers from which on there is a line, and bars below."""
_MEANS = MOST_POINTS // 2
_PART = "part"


@dataclass(frozen=True, slots=True)
class Drawable:
    """The facts about an answer that panels need besides its rows."""

    said: frozenset[str]
    """Columns that are keys or values themselves, whatever they are called."""
    confidence: float | None
    """That of intervals, if there are any."""

    def meaning(self, frame: pl.DataFrame, value: str) -> str:
        """Say what is drawn beside a value; nothing, if nothing is known."""
        if self._own(frame, value, "lower") and self._own(frame, value, "upper"):
            return f"{100 * (self.confidence or CONFIDENCE):g} % intervals"
        return ONE_ERROR if self._own(frame, value, "variance") else ""

    def ends(self, frame: pl.DataFrame, value: str) -> list[tuple[float, float] | None]:
        """Return intervals, or a standard error to each side, where they are known."""
        meant = self.meaning(frame, value)
        if not meant:
            return [None] * frame.height
        if meant == ONE_ERROR:
            error = self._error(frame, value)
            middle = frame[value].cast(pl.Float64)
            return _pairs(numbers(middle - error), numbers(middle + error))
        return _pairs(*(numbers(frame[f"{value}_{end}"]) for end in ("lower", "upper")))

    def marks(self, frame: pl.DataFrame, value: str) -> list[Mark]:
        """Say of each number whether it means something; see `with_marks`."""
        beside = mark_of(value)
        if beside not in frame.columns:
            return [Mark()] * frame.height
        return [_MARKS[mark] for mark in frame[beside].to_list()]

    def errors(self, frame: pl.DataFrame, value: str) -> list[float | None]:
        """Return standard errors, where they are known."""
        if not self._own(frame, value, "variance"):
            return [None] * frame.height
        return self._error(frame, value).to_list()

    def _error(self, frame: pl.DataFrame, value: str) -> pl.Series:
        return frame[f"{value}_variance"].cast(pl.Float64).sqrt()

    def _own(self, frame: pl.DataFrame, value: str, end: str) -> bool:
        return f"{value}_{end}" in frame.columns and f"{value}_{end}" not in self.said


ONE_ERROR = "one standard error to each side"
_MARKS: Mapping[str | None, Mark] = {
    None: Mark(),
    NOISE: Mark(is_hollow=True),
    DIVIDED: Mark("says nothing"),
    SUPPRESSED: Mark("left out"),
}


def mark_of(value: str) -> str:
    """Return the column with the marks of a value: no column of SQL has a name like this."""
    return f"{value}\0mark"


def with_marks(frame: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Put the marks of values beside them."""
    return frame.with_columns(marks[value].alias(mark_of(value)) for value in marks.columns)


def points_of(
    frame: pl.DataFrame, key: str, value: str, scale: Scale, known: Drawable, labels: Labels
) -> tuple[Points, str]:
    """Return a point for each row, or for means of many, and what is said of those."""
    if scale != "nominal" and frame.height > MOST_POINTS:
        return _means(frame, key, value, scale)
    points = Points(
        value=name(value),
        by=name(key),
        scale=scale,
        keys=_keys(frame[key], scale, labels),
        values=numbers(frame[value]),
        ends=known.ends(frame, value),
        marks=known.marks(frame, value),
    )
    return points, ""


def _means(frame: pl.DataFrame, key: str, value: str, scale: Scale) -> tuple[Points, str]:
    """Draw means of many rows, with a band from the least to the largest."""
    size = -(-frame.height // _MEANS)
    frame = without_marked(frame, [value])
    own = pl.DataFrame({"key": frame[key], "value": frame[value].cast(pl.Float64)}).sort("key")
    number = pl.col("value").filter(pl.col("value").is_finite())
    found = (
        own.with_row_index(_PART)
        .group_by(pl.col(_PART) // size, maintain_order=True)
        .agg(pl.col("key").first(), number.mean(), number.min().alias("low"),
             number.max().alias("high"))
    )  # fmt: skip
    points = Points(
        value=name(value),
        by=name(key),
        scale=scale,
        keys=_keys(found["key"], scale, Labels([])),
        values=numbers(found["value"]),
        ends=_pairs(numbers(found["low"]), numbers(found["high"])),
    )
    return points, (
        f"means of {size:,} rows each, of {frame.height:,}, "
        "with a band from the least to the largest of these"
    )


def grid_of(
    frame: pl.DataFrame,
    keys: tuple[str, str],
    value: str,
    known: Drawable,
    labels: tuple[Labels, Labels],
) -> Grid:
    """Return a square for each row, by the labels of two keys, of which the first goes down."""
    rows, columns = (own.of(frame[key]) for own, key in zip(labels, keys, strict=True))
    values, errors = numbers(frame[value]), known.errors(frame, value)
    texts = [_written(*each) for each in zip(values, errors, strict=True)]
    marks = known.marks(frame, value)
    squares = [Square(*each) for each in zip(rows, columns, values, texts, marks, strict=True)]
    each, beside, below = _told(squares, errors)
    return Grid(
        value=name(value),
        rows=name(keys[0]),
        columns=name(keys[1]),
        down=labels[0].all,
        across=labels[1].all,
        squares=squares,
        each=each,
        beside=beside,
        below=below,
    )


def _written(value: float | None, error: float | None) -> str:
    """Write a number with as many digits as mean something."""
    if value is None:
        return ""
    if error is None and value.is_integer() and abs(value) < LARGEST:
        return f"{value:,.0f}"
    return number_of(value, decimals_of(error))


def _told(
    squares: Sequence[Square], errors: Sequence[float | None]
) -> tuple[str, dict[str, str], dict[str, str]]:
    """Say standard errors once for all numbers, for those of each row, or for those of a column."""
    known = [error for error in errors if error is not None and math.isfinite(error) and error > 0]
    if not known:
        return "", {}, {}
    said = [error_of(error) for error in errors]
    if len({*said}) == 1:
        return f"each with a standard error of {said[0]}", {}, {}
    for side in ("row", "column"):
        own: dict[str, set[str]] = {}
        for square, text in zip(squares, said, strict=True):
            own.setdefault(getattr(square, side), set()).add(text)
        if all(len(texts) == 1 for texts in own.values()):
            one = {label: texts.pop() for label, texts in own.items()}
            return "", *((one, {}) if side == "row" else ({}, one))
    return f"with standard errors of {error_of(min(known))} to {error_of(max(known))}", {}, {}


def without_marked(frame: pl.DataFrame, values: Sequence[str]) -> pl.DataFrame:
    """Leave out the numbers that say nothing, of which there are no means."""
    return frame.with_columns(
        pl.when(pl.col(mark_of(value)).is_null() | (pl.col(mark_of(value)) == NOISE))
        .then(pl.col(value))
        .alias(value)
        for value in values
        if mark_of(value) in frame.columns
    )


def in_blocks(
    frame: pl.DataFrame, key: str, values: Sequence[str], among: pl.Series, most: int
) -> tuple[pl.DataFrame, str]:
    """Take numbers or times beside each other together, as means of values, and say so.

    Args:
        frame: the rows, with a column for each key and value, and others that are dropped.
        key: whose values are too many.
        values: of which there are means.
        among: the key of all panels, which have the same blocks.
        most: blocks.
    """
    own = among.drop_nulls().unique().sort()
    size = -(-own.len() // most)
    ends = [own.gather_every(size), own.gather_every(size, size - 1)]
    last = ends[1] if ends[1].len() == ends[0].len() else pl.concat([ends[1], own[-1:]])
    texts = [f"{word(a)} to {word(b)}" for a, b in zip(ends[0], last, strict=True)]
    if len({*texts}) < len(texts):
        texts = [f"{text} ({i})" for i, text in enumerate(texts, 1)]
    place = own.search_sorted(frame[key]) // size
    named = pl.Series(key, texts, dtype=pl.Enum(texts))[place].zip_with(
        frame[key].is_not_null(), pl.Series(key, [None], dtype=pl.Enum(texts))
    )
    others = [each for each in frame.columns if each not in {key, *values}]
    finite = [pl.col(value).cast(pl.Float64) for value in values]
    found = (
        frame.with_columns(named)
        .group_by([key, *others], maintain_order=True)
        .agg(number.filter(number.is_finite()).mean() for number in finite)
    )
    return found, f"means of {size:,} values of {name(key)} each, of {own.len():,}"


class Labels:
    """The labels of a key's values in a picture: short, and no two alike.

    Args:
        values: all of them, in order, each once.
        longest: characters.
    """

    def __init__(self, values: Iterable[object], longest: int = LONGEST_LABEL) -> None:
        listed = list(values)
        texts = [word(value) for value in listed]
        if len({*texts}) < len(texts):  # numbers that differ in the third decimal
            texts = [word(str(v) if isinstance(v, float) else v) for v in listed]
        short = [_short(printable(text), longest) for text in texts]
        often, seen = Counter(short), Counter[str]()
        self.all: list[str] = []
        """In order."""
        for text in short:
            seen[text] += 1
            self.all.append(text if often[text] == 1 else f"{text} ({seen[text]})")
        self._of = {repr(value): text for value, text in zip(listed, self.all, strict=True)}

    def of(self, column: pl.Series) -> list[str]:
        """Return the label of each row."""
        return [self._of[repr(value)] for value in column.to_list()]


def ordered(column: pl.Series) -> pl.Series:
    """Return each value once: numbers, times and ENUMs in their order, others as they come."""
    found = column.unique(maintain_order=True)
    dtype = column.dtype
    if dtype.is_numeric() or dtype.is_temporal() or isinstance(dtype, pl.Enum):
        return found.sort(nulls_last=True)
    return found


def scale_of(column: pl.Series) -> Scale:
    """Say how the values of a key stand beside each other: as times, as numbers, or as labels."""
    if isinstance(column.dtype, (pl.Date, pl.Datetime)):
        return "temporal"
    enough = column.dtype.is_numeric() and column.drop_nulls().n_unique() >= FEWEST_POINTS
    return "quantitative" if enough else "nominal"


def word(value: object) -> str:
    """Write a key as a label: what would not be seen stands in quotes."""
    text = plain(value)
    return text if text.strip() else f'"{text}"'


def name(column: Any) -> str:
    """Write the name of a column as a title."""
    return printable(word(str(column)))[:LONGEST_NAME]


def numbers(column: pl.Series) -> list[float | None]:
    """Return those that can be drawn, and None for others."""
    return [None if v is None or not math.isfinite(v) else float(v) for v in column.to_list()]


def _short(text: str, longest: int) -> str:
    """Cut a long label in its middle: the ends tell labels apart."""
    if len(text) <= longest:
        return text
    end = longest // 3
    return f"{text[: longest - end - 1]}…{text[-end:]}"


def _keys(column: pl.Series, scale: Scale, labels: Labels) -> list[str | float]:
    if scale == "quantitative":
        return column.cast(pl.Float64).to_list()
    if scale == "temporal":
        return [_moment(value) for value in column.to_list()]
    return [*labels.of(column)]


def _moment(value: dt.date) -> str:
    """Write what a clock shows, as if that were UTC: so it is drawn alike everywhere."""
    if isinstance(value, dt.datetime):
        return f"{value.replace(tzinfo=None).isoformat()}Z"
    return f"{value.isoformat()}T00:00:00Z"


def _pairs(
    lower: Sequence[float | None], upper: Sequence[float | None]
) -> list[tuple[float, float] | None]:
    return [None if a is None or b is None else (a, b) for a, b in zip(lower, upper, strict=True)]
