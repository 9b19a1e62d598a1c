"""The picture of an answer: which one fits it, and what it shows in words.

One key of labels makes bars, one of numbers or times a line, two keys a table with shades; lines
and tables have a panel for each group of further keys, and whatever it is, each value has its own.
Values that their marks say to mean little are hollow or left out. Of more rows than can be told
apart the largest are shown, or along a line their means; of more panels than one can look at,
those with the largest numbers. All that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from dpsql.charts.axes import Span
from dpsql.charts.specs import (
    Figure,
    Grid,
    Panel,
    Points,
    from_zero,
    span_together,
)
from dpsql.errors import PlotError, printable, shown
from dpsql.release.layouts import MOST_PANELS, Layout, finite, layout_of, sizes_of
from dpsql.release.marks import noise_marked
from dpsql.release.panels import (
    LONGEST_LABEL,
    SHORTER_LABEL,
    Drawable,
    Labels,
    grid_of,
    in_blocks,
    name,
    ordered,
    points_of,
    scale_of,
    with_marks,
    without_marked,
)

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
    found = noise_marked(frame, wanted) if marks is None else marks
    return draft.figure(with_marks(frame, found.select(wanted[:most])))


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
    own = described.filter(pl.col("role") == "value")["column"].to_list()
    wanted = value if value is None else [value] if isinstance(value, str) else _listed(value)
    for each in wanted or ():
        if each not in own:
            said = printable(each) if isinstance(each, str) else shown(each)
            listed = ", ".join(map(printable, own)) or "none"
            raise PlotError(
                f"{printable(statement)} has no value {said}.", hint=f"its values are {listed}."
            )
    if wanted is not None and not 1 <= len(wanted) <= MOST_VALUES:
        raise PlotError(
            f"A picture has one value to {MOST_VALUES}, not {len(wanted)}.",
            hint=f"name some of them: value={own[:MOST_VALUES]!r}.",
        )
    found = chart_of(frame, described, confidence, wanted, marks=marks)
    if found is not None:
        return found
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
        """Say which intervals there are; of which value, if they are of different kinds."""
        found = {value: self._known.meaning(frame, value) for value in self._values}
        if len({*found.values()}) == 1:
            return [kind for kind in list(found.values())[:1] if kind]
        return [f"{name(value)}: {kind or 'no intervals'}" for value, kind in found.items()]

    def _what(self, panels: int) -> str:
        layout = self._layout
        kind = "Bars"
        if len(layout.keys) == 2:
            kind = "A table" if panels == 1 else "Tables"
        elif layout.scale != "nominal":
            kind = "A line" if panels == 1 else "Lines"
        found = f"{kind}: {_and([name(v) for v in self._values])} by {_and(map(name, layout.keys))}"
        return f"{found}, for each {_and(map(name, layout.by))}" if layout.by else found

    def _ranges(self, panels: Sequence[_Drawn]) -> str:
        """Say from where to where values go."""
        found = []
        for value in self._values:
            own = [each.numbers for each in panels if each.value == value]
            said = _range([number for each in own for number in each if number is not None])
            found.append(said if len(self._values) == 1 else f"{name(value)}: {said}")
        return " ".join(found)

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
        found = ordered(frame[key])
        if found.len() <= most:
            return found
        groups, sizes = sizes_of(frame, [key], self._values[0])
        chosen = groups[key][sizes.arg_sort(descending=True)[:most]]
        self._note(f"of {found.len():,} values of {name(key)} the {most} with the largest numbers")
        return found.filter(found.is_in(chosen.implode(), nulls_equal=True))


def _among(frame: pl.DataFrame, kept: dict[str, pl.Series]) -> pl.DataFrame:
    for key, values in kept.items():
        frame = frame.filter(frame[key].is_in(values.implode(), nulls_equal=True))
    return frame


def _range(known: Sequence[float]) -> str:
    if not known:
        return "of which none is known."
    if len(known) == 1:
        return f"1 value, {_written(known[0])}."
    return f"{len(known):,} values from {_written(min(known))} to {_written(max(known))}."


def _written(value: float) -> str:
    """Write a number with about four digits, and its thousands apart."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:,.4g}"


def _and(names: Iterable[str]) -> str:
    """List names as one says them."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
