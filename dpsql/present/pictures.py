"""Pictures of answers: which one fits, and what it shows in words.

One key of labels makes bars, one of numbers or times a line, two keys a table with shades; lines
and tables have a panel for each group of further keys, and whatever it is, each value has its own.
Values that their marks say to mean little are hollow or left out. Of more rows than can be told
apart the largest are shown, or along a line their means; of more panels than one can look at,
those with the largest numbers. All that is said.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from dpsql.answers.frames import DIVIDED, NOISE, SUPPRESSED, noise_marked
from dpsql.answers.noise import CONFIDENCE
from dpsql.charts.axes import Scale, Span
from dpsql.charts.specs import Figure, Grid, Mark, Panel, Points, Square, from_zero, span_together
from dpsql.errors import PlotError, printable, shown
from dpsql.markup import plain
from dpsql.present.shown import LARGEST, decimals_of, error_of, number_of

# ── One panel of a picture: the numbers of an answer, or of a part of it, by one key or by two ───


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
    """The confidence of intervals, if there are any."""

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
    values = column.unique(maintain_order=True)
    dtype = column.dtype
    if dtype.is_numeric() or dtype.is_temporal() or isinstance(dtype, pl.Enum):
        return values.sort(nulls_last=True)
    return values


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


# ── The layout of an answer as a picture: which keys are along axes, and which have panels ───────


MOST_PANELS = 12


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys that are along axes, and those that have a panel for each of their groups."""

    keys: tuple[str, ...]
    scale: Scale
    """The scale of the first key, if it is the only one; two keys are labels."""
    by: tuple[str, ...] = ()


def layout_of(frame: pl.DataFrame, keys: Sequence[str]) -> Layout:
    """Choose the layout: a line along the one key of numbers or times, or labels of two keys."""
    scales = {key: scale_of(frame[key]) for key in keys}
    if len(keys) == 1:
        return Layout((keys[0],), scales[keys[0]])
    continuous = [key for key in keys if scales[key] != "nominal"]
    many = {key: frame[key].n_unique() for key in keys}
    if len(continuous) == 1:
        by = tuple(key for key in keys if key not in continuous)
        if frame.select(by).n_unique() <= MOST_PANELS:
            return Layout((continuous[0],), scales[continuous[0]], by)
    chosen = sorted(keys, key=lambda key: -many[key])[:2]  # in order, where they are equal
    down, over = chosen  # the longer side goes down the page
    return Layout((down, over), "nominal", tuple(key for key in keys if key not in chosen))


def sizes_of(frame: pl.DataFrame, by: Sequence[str], value: str) -> tuple[pl.DataFrame, pl.Series]:
    """Return groups in order of appearance, and the sums of the magnitudes of a value in them."""
    size = "".join([*by, "size"])  # like none of the others
    sized = frame.select(by).with_columns(finite(frame[value]).abs().alias(size))
    sizes = sized.group_by(by, maintain_order=True).agg(pl.col(size).sum())
    return sizes.select(by), sizes[size]


def finite(column: pl.Series) -> pl.Series:
    """Return numbers as floats, and NULL where there are none."""
    numbers = column.cast(pl.Float64)
    return pl.select(pl.when(numbers.is_finite()).then(numbers)).to_series()


MOST_BARS, MOST_SIDE = 40, 24
MOST_VALUES = 6
WEAK = "less than its own standard error from zero"


def chart_of(
    frame: pl.DataFrame,
    described: pl.DataFrame,
    confidence: float | None,
    values: Sequence[str] | None = None,
    panels: int = MOST_PANELS,
    marks: pl.DataFrame | None = None,
) -> Figure | None:
    """Choose the picture of an answer; None if there is none that fits.

    Args:
        frame: the answer.
        described: its columns, see `Release.columns`.
        confidence: that of intervals, if there are any.
        values: the columns that are drawn; by default all, up to `MOST_VALUES`.
        panels: as many as there may be, at most `MOST_PANELS`.
        marks: of its values, see `Release.marks`; by default what the answer alone tells.
    """
    keys, own = (
        described.filter(pl.col("role") == role)["column"].to_list() for role in ("key", "value")
    )
    drawable = [each for each in own if frame[each].dtype.is_numeric()]
    wanted = drawable if values is None else [each for each in values if each in drawable]
    if not wanted or frame.height < 2 or not keys or frame.select(keys).is_duplicated().any():
        return None
    notes = []
    most = min(MOST_VALUES, panels)
    if len(wanted) > most:
        notes.append(f"the first {most} of {len(wanted):,} values")
    known = Drawable(frozenset(described["column"]), confidence)
    draft = _Drafted(wanted[:most], layout_of(frame, keys), known, panels, notes)
    marked = noise_marked(frame, wanted) if marks is None else marks
    return draft.figure(with_marks(frame, marked.select(wanted[:most])))


def chart_wanted(
    statement: str,
    frame: pl.DataFrame,
    described: pl.DataFrame,
    confidence: float | None,
    value: str | Sequence[str] | None,
    marks: pl.DataFrame | None = None,
) -> Figure:
    """Choose the picture of an answer that somebody wants to see.

    Raises:
        PlotError: there is none that fits, or no such value; or they are too many.
    """
    values = described.filter(pl.col("role") == "value")["column"].to_list()
    wanted = value if value is None else [value] if isinstance(value, str) else _listed(value)
    for each in wanted or ():
        if each not in values:
            said = printable(each) if isinstance(each, str) else shown(each)
            listed = ", ".join(map(printable, values)) or "none"
            raise PlotError(
                f"{printable(statement)} has no value {said}.", hint=f"its values are {listed}."
            )
    if wanted is not None and not 1 <= len(wanted) <= MOST_VALUES:
        raise PlotError(
            f"A picture has one value to {MOST_VALUES}, not {len(wanted)}.",
            hint=f"name some of them: value={values[:MOST_VALUES]!r}.",
        )
    chart = chart_of(frame, described, confidence, wanted, marks=marks)
    if chart is not None:
        return chart
    keys = described.filter(pl.col("role") == "key").height
    raise PlotError(
        f"No picture fits {printable(statement)}: a picture needs a number for each row, at least "
        f"two rows, and key columns that tell rows apart; here are {frame.height:,} rows and "
        f"{keys} keys.",
        hint='ask for other groups, which is free: release.query("SELECT …"); or see the rows: '
        f"release[{statement!r}].",
    )


def _listed(values: object) -> list[Any]:
    return list(values) if isinstance(values, Iterable) else [values]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A panel, and what is in it."""

    value: str
    panel: Panel
    shown: Points | Grid

    @property
    def numbers(self) -> list[float | None]:
        """Values that mean something."""
        if isinstance(self.shown, Points):
            marked = zip(self.shown.values, self.shown.all_marks, strict=True)
            return [value for value, mark in marked if not mark.said]
        return [square.value for square in self.shown.squares if not square.mark.said]

    def marked(self) -> tuple[int, int]:
        """Return how many are hollow, and how many say nothing."""
        marks = (
            self.shown.all_marks
            if isinstance(self.shown, Points)
            else [square.mark for square in self.shown.squares]
        )
        return sum(mark.is_hollow for mark in marks), sum(bool(mark.said) for mark in marks)


class _Drafted:
    """A picture in the making: its values, its layout, and what has to be said of it."""

    def __init__(
        self,
        values: Sequence[str],
        layout: Layout,
        known: Drawable,
        panels: int,
        notes: list[str],
    ) -> None:
        self._values, self._layout, self._known = values, layout, known
        self._most, self._notes = max(panels // len(values), 1), notes
        self._is_single = True

    def figure(self, frame: pl.DataFrame) -> Figure | None:
        """Draw an answer."""
        parts = self._parts(frame)
        self._is_single = len(parts) * len(self._values) == 1
        draw = self._lines_or_bars if len(self._layout.keys) == 1 else self._heat_maps
        panels, told = draw(parts)
        if not panels:
            return None
        meant = self._meant(frame) if len(self._layout.keys) == 1 and not told else []
        self._say_marks(panels)
        what = self._what(len(panels))
        title = f"{what}{f' with {meant[0]}' if len(meant) == 1 else ''}"
        notes = [*(meant if len(meant) > 1 else ()), *told, *self._notes]
        made = Figure(tuple(each.panel for each in panels), title, tuple(notes))
        words = f"{title}: {self._ranges(panels)} {made.legend}".rstrip()
        return replace(made, words=words, notes=(*(meant if len(meant) == 1 else ()), *notes))

    def _say_marks(self, panels: Sequence[_Drawn]) -> None:
        """Say what is hollow or left out, and what shades mean."""
        hollow, nothing = map(sum, zip(*(each.marked() for each in panels), strict=True))
        grids = [each.shown for each in panels if isinstance(each.shown, Grid)]
        if grids:
            below = any(n is not None and n < 0 for each in panels for n in each.numbers)
            self._note("the darker, the farther from zero" + "; below zero in orange" * below)
        if hollow and all(grid.has_numbers for grid in grids) and grids:
            self._note(f"in italics and without shade: {WEAK}")
        elif hollow:
            self._note(f"{'a circle' if grids else 'hollow'}: {WEAK}")
        if nothing:
            self._note(f"left out: {nothing:,} that say nothing, or rest on too few rows")

    def _meant(self, frame: pl.DataFrame) -> list[str]:
        """Name the kind of the intervals, value by value if there are several kinds."""
        meanings = {value: self._known.meaning(frame, value) for value in self._values}
        if len({*meanings.values()}) == 1:
            return [kind for kind in list(meanings.values())[:1] if kind]
        return [f"{name(value)}: {kind or 'no intervals'}" for value, kind in meanings.items()]

    def _what(self, panels: int) -> str:
        layout = self._layout
        kind = "Bars"
        if len(layout.keys) == 2:
            kind = "A table" if panels == 1 else "Tables"
        elif layout.scale != "nominal":
            kind = "A line" if panels == 1 else "Lines"
        words = f"{kind}: {_and([name(v) for v in self._values])} by {_and(map(name, layout.keys))}"
        return f"{words}, for each {_and(map(name, layout.by))}" if layout.by else words

    def _ranges(self, panels: Sequence[_Drawn]) -> str:
        """Say from where to where values go."""
        ranges = []
        for value in self._values:
            own = [each.numbers for each in panels if each.value == value]
            said = _range([number for each in own for number in each if number is not None])
            ranges.append(said if len(self._values) == 1 else f"{name(value)}: {said}")
        return " ".join(ranges)

    def _parts(self, frame: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
        """Return what each panel shows, with its title: one part, or one for each group."""
        by = list(self._layout.by)
        if not by:
            return [("", frame)]
        groups, sizes = sizes_of(frame, by, self._values[0])
        if groups.height > self._most:
            self._notes.append(
                f"of {groups.height:,} groups by {_and(map(name, by))} the {self._most} with the "
                "largest numbers"
            )
            groups = groups[sizes.arg_sort(descending=True)[: self._most].sort()]
        labels = {key: Labels(ordered(frame[key])) for key in by}
        places = {key: {label: i for i, label in enumerate(labels[key].all)} for key in by}
        named = {key: labels[key].of(groups[key]) for key in by}
        order = sorted(range(groups.height), key=lambda i: [places[k][named[k][i]] for k in by])
        return [
            (
                ", ".join(f"{name(key)}: {named[key][i]}" for key in by),
                frame.join(groups[[i]], on=by, how="semi", nulls_equal=True),
            )
            for i in order
        ]

    def _labels(self, values: Iterable[object]) -> Labels:
        return Labels(values, LONGEST_LABEL if self._is_single else SHORTER_LABEL)

    def _title(self, value: str, part: str) -> str:
        """Say what a panel has of all, if there are several."""
        named = [name(value)] if len(self._values) > 1 else []
        return ", ".join([*named, *([part] if part else [])])

    def _lines_or_bars(
        self, parts: Sequence[tuple[str, pl.DataFrame]]
    ) -> tuple[list[_Drawn], list[str]]:
        (key,), scale = self._layout.keys, self._layout.scale
        told: dict[str, None] = {}
        parts = [(title, self._kept(part, key)) for title, part in parts]
        labels = self._labels(
            parts[0][1][key].unique(maintain_order=True) if scale == "nominal" else []
        )
        panels: list[_Drawn] = []
        for value in self._values:
            made = [
                (title, *points_of(part, key, value, scale, self._known, labels))
                for title, part in parts
            ]
            span = span_together([points for _, points, _ in made])
            if scale != "nominal" and not from_zero(span):
                self._note("the axis doesn't begin at zero")
            for title, points, said in made:
                told |= {said: None} if said else {}
                panels.append(self._panel(value, title, points, span))
        return panels, [*told]

    def _kept(self, frame: pl.DataFrame, key: str) -> pl.DataFrame:
        """Keep the rows that can be drawn, and are not too many."""
        if self._layout.scale != "nominal":
            known = frame.filter(pl.col(key).is_not_null())
            if known.height < frame.height:
                self._note("without the row of NULL")
            return known
        if frame.height <= MOST_BARS:
            return frame
        first = "" if len(self._values) == 1 else f" by {name(self._values[0])}"
        self._note(f"the {MOST_BARS} largest of {frame.height:,} rows{first}")
        number = finite(frame[self._values[0]])
        largest = number.arg_sort(descending=True, nulls_last=True)[:MOST_BARS]
        return frame[largest.sort()]

    def _note(self, said: str) -> None:
        if said not in self._notes:
            self._notes.append(said)

    def _heat_maps(
        self, parts: Sequence[tuple[str, pl.DataFrame]]
    ) -> tuple[list[_Drawn], list[str]]:
        down, over = self._layout.keys
        share = 1 if self._is_single else 2
        parts = self._in_blocks(parts, down, 2 * MOST_SIDE // share)
        parts = self._in_blocks(parts, over, MOST_SIDE // share)
        whole = pl.concat([part for _, part in parts])
        kept = {
            down: self._largest(whole, down, 2 * MOST_SIDE // share),
            over: self._largest(whole, over, MOST_SIDE // share),
        }
        labels = self._labels(kept[down]), self._labels(kept[over])
        panels: list[_Drawn] = []
        for value in self._values:
            grids = [
                (title, grid_of(_among(part, kept), (down, over), value, self._known, labels))
                for title, part in parts
            ]
            span = span_together([grid for _, grid in grids])
            panels += [self._panel(value, title, grid, span) for title, grid in grids]
        return panels, []

    def _panel(self, value: str, title: str, shown: Points | Grid, span: Span) -> _Drawn:
        made = Panel(shown, self._title(value, title), span, is_narrow=not self._is_single)
        return _Drawn(value, made, shown)

    def _in_blocks(
        self, parts: Sequence[tuple[str, pl.DataFrame]], key: str, most: int
    ) -> Sequence[tuple[str, pl.DataFrame]]:
        """Take numbers and times together that are too many to have a label each."""
        whole = pl.concat([part.select(key) for _, part in parts])[key]
        if scale_of(whole) == "nominal" or whole.n_unique() <= most + 1:  # and NULL
            return parts
        wanted = [*self._layout.keys, *self._values]
        plain = [without_marked(part, self._values).select(wanted) for _, part in parts]
        made, said = zip(
            *(in_blocks(part, key, self._values, whole, most) for part in plain), strict=True
        )
        self._note(said[0])
        return [(title, part) for (title, _), part in zip(parts, made, strict=True)]

    def _largest(self, frame: pl.DataFrame, key: str, most: int) -> pl.Series:
        """Return the values of a key in order: those of the largest numbers, if too many."""
        keys = ordered(frame[key])
        if keys.len() <= most:
            return keys
        groups, sizes = sizes_of(frame, [key], self._values[0])
        chosen = groups[key][sizes.arg_sort(descending=True)[:most]]
        self._note(f"of {keys.len():,} values of {name(key)} the {most} with the largest numbers")
        return keys.filter(keys.is_in(chosen.implode(), nulls_equal=True))


def _among(frame: pl.DataFrame, kept: dict[str, pl.Series]) -> pl.DataFrame:
    for key, values in kept.items():
        frame = frame.filter(frame[key].is_in(values.implode(), nulls_equal=True))
    return frame


def _range(known: Sequence[float]) -> str:
    if not known:
        return "of which none is known."
    if len(known) == 1:
        return f"1 value, {_text_of(known[0])}."
    return f"{len(known):,} values from {_text_of(min(known))} to {_text_of(max(known))}."


def _text_of(value: float) -> str:
    """Write a number with about four digits, and its thousands apart."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:,.4g}"


def _and(names: Iterable[str]) -> str:
    """List names as one says them."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
