"""Pictures: numbers with what is known of each, and how they are drawn as charts of Vega-Lite.

A number that means little is hollow, one that says nothing is left out and named in words; scales
follow the others and their intervals. So it is on pages (`svg.py`) and in plots, which are charts.
Marks of these can be seen on light and on dark, and of what is shown they have nothing but labels
and numbers. Names of columns are titles, never names of fields, which have a syntax of their own
there, and no expression is made of anything that is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dpsql.charts.axes import (
    BLUE,
    GRAY,
    LETTER,
    ONE,
    RUST,
    TEXT,
    TWO,
    Scale,
    Span,
    above,
    across,
    chart,
    down,
    key_axis,
    number_axis,
    place,
    shades,
)

EACH = (ONE, TWO, "#2f7d32", "#7b4ea1", "#a01c48", "#55606a")
"""Colors of curves."""
WIDTH, NARROW, STEP, HEIGHT = 430, 280, 19, 210
"""Pixels: how wide a picture by itself is, and one of several, so that phones have room for it and
pages for three; how high a label is, and a line.
"""
LIGHTEST = 0.15
"""The shade of the least number, which is still one."""
DEEPEST = 0.55
"""The darkest shade behind a number."""
FEW = 40
"""Points of a line, up to which each is to be seen."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of a picture, or all of it: what is shown, and on which scale."""

    shown: Points | Grid | Curves = field(repr=False)
    title: str = ""
    span: Span | None = None
    """The least and the largest of all panels, which then have the same scale."""
    is_narrow: bool = False
    """Whether the chart is one of several beside each other."""

    @property
    def spec(self) -> dict[str, Any]:
        """The panel as a chart of Vega-Lite."""
        width = NARROW if self.is_narrow else WIDTH
        match self.shown:
            case Curves():
                return curves(self.shown)
            case Grid():
                return heat(self.shown, self.span, width=width)
            case Points(scale="nominal"):
                return bars(self.shown, self.span, width=width)
            case Points():
                return line(self.shown, self.span, width=width)


@dataclass(frozen=True, slots=True)
class Figure:
    """One panel or several, and what they are in words."""

    panels: tuple[Panel, ...]
    words: str
    """A description for who doesn't see the picture."""
    notes: tuple[str, ...] = ()
    """Notes below the picture: which intervals there are, and what is left out."""

    @property
    def legend(self) -> str:
        """Notes on it, as sentences."""
        return " ".join(map(sentence, self.notes))

    @property
    def spec(self) -> dict[str, Any]:
        """All panels as one chart."""
        if len(self.panels) == 1:
            return self.panels[0].spec
        parts = [
            {k: v for k, v in titled(panel.spec, panel.title).items() if k not in _WHOLE}
            for panel in self.panels
        ]
        apart = {"scale": dict.fromkeys(_SHADED, "independent")}
        return chart({"concat": parts, "columns": 2, "spacing": 24, "resolve": apart})


def sentence(note: str) -> str:
    """Return a note of our own words as a sentence."""
    return f"{note[:1].upper()}{note[1:]}."


_WHOLE = frozenset(("$schema", "config"))
"""Parts that a chart has once, however many panels it has."""
_SHADED = ("opacity", "fill")
NO_NUMBER = "no number"
"""Words in place of a number that isn't there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Numbers, and what they are about."""

    value: str
    """The name of the numbers."""
    by: str
    """The name of the things that they are about."""
    scale: Scale
    keys: Sequence[str | float]
    values: Sequence[float | None]
    ends: Sequence[tuple[float, float] | None]
    """Ends of intervals, where they are known."""
    limits: Sequence[float | None] = ()
    """The best that bars could be."""
    marks: Sequence[Mark] = ()
    """Marks of the numbers, if any has one."""

    @property
    def span(self) -> Span:
        """The least and the largest of the numbers that mean something, with their intervals."""
        return span_together([self])

    def numbers(self, *, hollow: bool) -> list[float]:
        """Return the numbers that are hollow, or those that mean something, with intervals."""
        rows = zip(self.values, self.ends, self.all_marks, strict=True)
        values = [] if hollow else [limit for limit in self.limits if limit is not None]
        for value, end, mark in rows:
            if value is not None and not mark.said and mark.is_hollow == hollow:
                values += [value, *(end or ())]
        return values

    @property
    def all_marks(self) -> Sequence[Mark]:
        """A mark for each number."""
        return self.marks or [Mark()] * len(self.values)

    def rows(self, span: Span | None) -> list[Drawn]:
        """Return what is drawn of each number: of a hollow one, what is within the scale."""
        low, high = self.span if span is None else span
        low, high = (min(low, 0.0), max(high, 0.0)) if self.scale == "nominal" else (low, high)
        each = zip(self.keys, self.values, self.ends, self.all_marks, strict=True)
        found = [
            Drawn(key, *self._within((low, high), value, end, mark), mark.is_hollow, mark.words)
            for key, value, end, mark in each
        ]
        return found if self.scale == "nominal" else self._along(found)

    def _within(
        self, span: Span, value: float | None, end: tuple[float, float] | None, mark: Mark
    ) -> tuple[float | None, tuple[float, float] | None]:
        """Return what is drawn of a number and of its interval."""
        if value is None or mark.said:
            return None, None
        if not mark.is_hollow:
            return value, end
        low, high = span
        shown = min(max(value, low), high) if self.scale == "nominal" else value
        return (shown if low <= shown <= high else None), _cut(end, span)

    def _along(self, found: list[Drawn]) -> list[Drawn]:
        """Put numbers in a line, in which those that can't be drawn are gaps."""
        found.sort(key=lambda row: place(self.scale, row.key))
        kept = [row for row in found if row.value is not None or not row.is_hollow]
        sides = zip([None, *kept], [*kept[1:], None], strict=False)
        return [
            replace(row, is_alone=all(side is None or side.value is None for side in beside))
            for row, beside in zip(kept, sides, strict=False)
        ]


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark of a number that means little or nothing."""

    said: str = ""
    """Why it isn't drawn, in a word or three; nothing if it is."""
    is_hollow: bool = False
    """Whether it is drawn as an outline: it may as well be zero."""

    @property
    def words(self) -> str:
        """Words that stand in place of the number, if it isn't drawn."""
        return self.said or NO_NUMBER


@dataclass(frozen=True, slots=True)
class Drawn:
    """A number as it is drawn."""

    key: str | float
    value: float | None
    end: tuple[float, float] | None
    is_hollow: bool
    said: str
    """The words in place of a number, if there is none."""
    is_alone: bool = False
    """Whether there is no number beside it along a line."""


@dataclass(frozen=True, slots=True)
class Square:
    """A number of a pair of labels."""

    row: str
    column: str
    value: float | None
    text: str = ""
    """Its digits, as they are written."""
    mark: Mark = Mark()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Numbers of pairs of labels."""

    value: str
    rows: str
    """The name of the things that rows are about."""
    columns: str
    down: Sequence[str]
    """The labels of rows, in order."""
    across: Sequence[str]
    squares: Sequence[Square]
    each: str = ""
    """Words on standard errors."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """The label of a row → the standard error of each of its numbers, if they have the same."""
    below: Mapping[str, str] = field(default_factory=dict)
    """The same of columns."""

    @property
    def span(self) -> Span:
        """The least and the largest of the numbers that mean something."""
        return span_together([self])

    def numbers(self, *, hollow: bool) -> list[float]:
        """Return the numbers that are hollow, or those that mean something."""
        known = [(s.value, s.mark) for s in self.squares if s.value is not None and not s.mark.said]
        return [value for value, mark in known if mark.is_hollow == hollow]

    @property
    def tells_errors(self) -> bool:
        """Whether it says each standard error."""
        return bool(self.beside or self.below or self.each.startswith("each"))

    @property
    def has_numbers(self) -> bool:
        """Whether there is room for the numbers in its squares."""
        return len(self.across) <= MOST_ACROSS

    def shade(self, square: Square, span: Span | None) -> float | None:
        """Return how dark a number is, from 0 to 1; None for one that has no shade."""
        low, high = self.shaded(span)
        if square.value is None or square.mark.said or square.mark.is_hollow:
            return None
        share = (abs(square.value) - low) / (high - low) if high > low else 0.0
        return LIGHTEST + (1 - LIGHTEST) * min(max(share, 0.0), 1.0)

    def shaded(self, span: Span | None) -> Span:
        """Return the magnitudes from the lightest to the darkest."""
        low, high = self.span if span is None else span
        return (low, high) if low > high / 2 else (0.0, max(-low, high))


MOST_ACROSS = 12
"""Columns of a table that has its numbers in it."""


def _cut(end: tuple[float, float] | None, span: Span) -> tuple[float, float] | None:
    """Return what is of an interval within a scale."""
    if end is None:
        return None
    low, high = max(end[0], span[0]), min(end[1], span[1])
    return None if low > high else (low, high)


def span_of(numbers: Sequence[float | None]) -> Span:
    """Return the least and the largest of those that are known."""
    known = [number for number in numbers if number is not None]
    return (min(known), max(known)) if known else (0.0, 0.0)


def span_together(shown: Sequence[Points | Grid]) -> Span:
    """Return the scale of panels: of what means something in any, or else of what is hollow."""
    sure = [number for each in shown for number in each.numbers(hollow=False)]
    return span_of(sure or [number for each in shown for number in each.numbers(hollow=True)])


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one of several lines."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Lines beside each other, of positive numbers."""

    value: str
    by: str
    curves: Sequence[Curve]
    """At most as many as there are colors."""


def bars(points: Points, span: Span | None = None, *, width: int = WIDTH) -> dict[str, Any]:
    """Draw a bar for each label, its interval as a line across its end, and its limit as a tick.

    Args:
        points: the numbers.
        span: the least and the largest of all panels, by which they are told in one unit.
        width: pixels.
    """
    names = [str(key) for key in points.keys]
    key = down("key", points.by, names, limit=_room(width))
    width = _left(width, names)
    rows = points.rows(span)
    low, high = points.span if span is None else span
    value = number_axis(points.value, (min(low, 0), max(high, 0)), width)
    if max(high, 0) > min(low, 0):
        value["scale"] = {"domain": [min(low, 0), max(high, 0)], "nice": True}
    number = {"y": key, "x": _field("value", value)}
    least = zip(points.keys, points.limits or [None] * len(points.keys), strict=True)
    limits = [{"key": name, "limit": number} for name, number in least if number is not None]
    layers = [
        _layer(
            _values(rows, hollow=False), {"type": "bar", "color": BLUE, "opacity": 0.75}, **number
        ),
        _layer(_values(rows, hollow=True), {"type": "bar", **_OUTLINE}, **number),
        _layer(
            _ends(rows),
            {"type": "rule", "color": GRAY, "strokeWidth": 1.5},
            y=key,
            x=_field("low", {"type": "quantitative"}),
            x2={"field": "high"},
        ),
        _layer(
            limits,
            {"type": "tick", "color": RUST, "thickness": 2.5},
            y=key,
            x=_field("limit", {"type": "quantitative"}),
        ),
    ]
    for said in dict.fromkeys(row.said for row in rows if row.value is None):
        none = [{"key": row.key} for row in rows if row.value is None and row.said == said]
        mark = {"type": "text", "text": said, "align": "left", "dx": 4, "color": GRAY}
        layers.append(_layer(none, mark, y=key, x={"datum": 0, "type": "quantitative"}))
    drawn = [layer for layer in layers if layer["data"]["values"]] or layers[:1]
    return chart({"width": width, "height": {"step": STEP}, "layer": drawn})


_OUTLINE = {"color": BLUE, "fill": None, "fillOpacity": 0, "stroke": BLUE, "strokeWidth": 1.5}
"""The look of hollow marks."""


def line(points: Points, span: Span | None = None, *, width: int = WIDTH) -> dict[str, Any]:
    """Draw a line along numbers or times, and intervals as a band around it.

    Args:
        points: the numbers.
        span: the least and the largest of all panels, which then have the same axis.
        width: pixels.
    """
    width = _left(width, ["10,000"])
    key = key_axis(points.by, points.scale, points.keys, width)
    rows = points.rows(span)
    low, high = ends_of_axis(points.span if span is None else span)
    axis = number_axis(points.value, (low, high), width=2 * HEIGHT)
    axis["axis"] |= above("left", 0)
    axis["scale"] = {"nice": True}
    if high > low:
        axis["scale"]["domain"] = [low, high]
    mark: dict[str, Any] = {"type": "line", "color": BLUE, "strokeWidth": 1.5}
    if len(rows) <= FEW:
        mark["point"] = {"size": 14, "color": BLUE}
    layers = [
        _layer(
            _ends(rows),
            {"type": "area", "color": BLUE, "opacity": 0.3},
            x=key,
            y=_field("low", axis),
            y2={"field": "high"},
        ),
        _layer(
            [{"key": row.key, "value": row.value} for row in rows],
            mark,
            x=key,
            y=_field("value", axis),
        ),
    ]
    alone = [row for row in rows if row.is_alone]
    if _ends(alone):
        rule = {"type": "rule", "color": BLUE, "opacity": 0.6}
        ends = {"y": _field("low", axis), "y2": {"field": "high"}}
        layers.append(_layer(_ends(alone), rule, x=key, **ends))
    dots = _values(alone, hollow=False)
    if dots and len(rows) > FEW:
        dot = {"type": "point", "filled": True, "size": 14, "color": BLUE}
        layers.append(_layer(dots, dot, x=key, y=_field("value", axis)))
    hollow = _values(rows, hollow=True)
    if hollow:
        outline = {"type": "point", "shape": "circle", "size": 30, **_OUTLINE, "opacity": 1}
        layers.append(_layer(hollow, outline, x=key, y=_field("value", axis)))
    return chart({"width": width, "height": HEIGHT, "layer": layers})


def ends_of_axis(span: Span) -> Span:
    """Return where the axis of a line begins and ends."""
    low, high = span
    return (min(low, 0.0), max(high, 0.0)) if from_zero(span) else (low, high)


def from_zero(span: Span) -> bool:
    """Whether an axis of a line begins at zero: not if all would be in a quarter of it."""
    low, high = span
    far = max(abs(low), abs(high))
    return low <= 0 <= high or high - low >= 0.25 * far


def curves(lines: Curves) -> dict[str, Any]:
    """Draw lines with a point at each number; both axes are logarithmic."""
    names = [curve.name for curve in lines.curves]
    data = [{"of": c.name, "key": key, "value": v} for c in lines.curves for key, v in c.points]
    keys = sorted({key for curve in lines.curves for key, _ in curve.points})
    colors = {"domain": names, "range": list(EACH[: len(names)])}
    below = {
        "orient": "bottom",
        "direction": "vertical",
        "symbolType": "circle",
        "title": None,
        "labelLimit": WIDTH - 100,
    }
    return chart(
        {
            "width": WIDTH - 70,
            "height": HEIGHT,
            "data": {"values": data},
            "mark": {"type": "line", "point": True, "strokeWidth": 1.5},
            "encoding": {
                "x": {
                    "field": "key",
                    "type": "quantitative",
                    "title": lines.by,
                    "scale": {"type": "log", "domain": [keys[0], keys[-1]], "nice": False},
                    "axis": {"values": keys, "format": ".3~g"},
                },
                "y": {
                    "field": "value",
                    "type": "quantitative",
                    "title": lines.value,
                    "scale": {"type": "log"},
                    "axis": {"format": ".3~g", **above("left", 0)},
                },
                "color": {"field": "of", "type": "nominal", "scale": colors, "legend": below},
            },
        }
    )


def heat(grid: Grid, span: Span | None = None, *, width: int = WIDTH) -> dict[str, Any]:
    """Draw a cell for each pair of labels, the darker the farther from zero, with its number in it.

    Where there is no room for numbers, those that may as well be zero are a circle. What is left
    out is a dash.

    Args:
        grid: the numbers.
        span: the least and the largest of all panels, which then have the same shades.
        width: pixels, about.
    """
    step = _step(grid, width)
    places = {
        "y": down("row", grid.rows, grid.down, limit=_room(width)),
        "x": across("column", grid.columns, grid.across, step),
    }
    low, _ = grid.span if span is None else span
    known = [
        {**_place(s), "size": abs(s.value), "sign": "+" if s.value >= 0 else "-"}
        for s in grid.squares
        if s.value is not None and grid.shade(s, span) is not None
    ]
    rect = {"type": "rect", "stroke": GRAY, "strokeWidth": 0.5}
    fill = _SIGNS if low < 0 else {"value": ONE}
    shaded = _layer(known, rect, **places, opacity=_shade(grid, span), fill=fill)
    dash = {"type": "text", "text": "–", "color": GRAY}
    none = [_place(s) for s in grid.squares if _is_dash(grid, s)]
    dashes = [_layer(none, dash, **places)] if none else []
    size = {"width": {"step": step}, "height": {"step": STEP}}
    return chart({**size, "layer": [shaded, *_over_shades(grid, places), *dashes]})


def _step(grid: Grid, width: int) -> float:
    """Return how wide a cell is: as wide as its number, if it has one."""
    step = min(max(_left(width, grid.down) / max(len(grid.across), 1), STEP), 4 * STEP)
    if not grid.has_numbers:
        return step
    longest = max((len(square.text) for square in grid.squares), default=0)
    return max(step, LETTER * longest + 8)


def _shade(grid: Grid, span: Span | None) -> dict[str, Any]:
    """Return the scale of shades: behind numbers they are lighter, and need no legend."""
    low, high = grid.shaded(span)
    lightest, darkest = (LIGHTEST * DEEPEST, DEEPEST) if grid.has_numbers else (LIGHTEST, 1)
    is_told = high > low and not grid.has_numbers
    return {
        "field": "size",
        "type": "quantitative",
        "scale": {"domain": [low, high] if high > low else [0, 1], "range": [lightest, darkest]},
        "legend": shades(grid.value, (low, high)) if is_told else None,
    }


def _over_shades(grid: Grid, places: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what stands in cells: all numbers, or circles for those that may as well be zero."""
    if grid.has_numbers:
        written = [{**_place(s), "text": s.text} for s in grid.squares if not s.mark.said]
        said = {"field": "text", "type": "nominal"}
        return [_layer(written, {"type": "text"}, **places, text=said)]
    dot = {"type": "point", **_OUTLINE, "shape": "circle", "size": 12, "color": GRAY, "opacity": 1}
    noise = [_place(s) for s in grid.squares if s.value is not None and s.mark.is_hollow]
    return [_layer(noise, dot, **places)] if noise else []


def _is_dash(grid: Grid, square: Square) -> bool:
    """Whether a cell has no number where others have one."""
    missing = not square.text if grid.has_numbers else square.value is None
    return missing or bool(square.mark.said)


_SIGNS: Mapping[str, Any] = {
    "field": "sign",
    "type": "nominal",
    "scale": {"domain": ["+", "-"], "range": [ONE, TWO]},
    "legend": None,
}
"""Numbers below zero have a color of their own, which is told in words."""


def _room(width: int) -> int:
    """Return the pixels of labels beside a picture."""
    return 190 if width > NARROW else 125


def _left(width: int, labels: Sequence[str]) -> int:
    """Return the pixels that labels beside a picture leave to it."""
    taken = min(max(map(len, labels), default=0) * LETTER, _room(width))
    return width - round(taken) - 2 * TEXT


def _place(square: Square) -> dict[str, Any]:
    return {"row": square.row, "column": square.column}


def titled(spec: Mapping[str, Any], title: str, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Put a title above a picture, and what must be known of it below that."""
    if not title:
        return dict(spec)
    below = {"subtitle": list(notes)} if notes else {}
    return {**spec, "title": {"text": title, "anchor": "start", **below}}


def _layer(data: Sequence[Mapping[str, Any]], mark: object, **encoding: Any) -> dict[str, Any]:
    return {"data": {"values": list(data)}, "mark": mark, "encoding": encoding}


def _field(name: str, axis: Mapping[str, Any]) -> dict[str, Any]:
    return {"field": name, **axis}


def _values(rows: Sequence[Drawn], *, hollow: bool) -> list[dict[str, Any]]:
    """Return the hollow numbers with their keys, or the filled ones."""
    return [
        {"key": row.key, "value": row.value}
        for row in rows
        if row.value is not None and row.is_hollow == hollow
    ]


def _ends(rows: Sequence[Drawn]) -> list[dict[str, Any]]:
    """Return the ends of intervals with their keys."""
    return [{"key": r.key, "low": r.end[0], "high": r.end[1]} for r in rows if r.end is not None]
