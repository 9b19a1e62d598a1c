"""Pictures as charts of Vega-Lite: bars, a line with a band, a heat map; one, or several panels.

Charts have the inks of `svg.py`, and of what they show nothing but labels and numbers. Names of
columns are titles, never names of fields, which have a syntax of their own there, and no expression
is made of anything that is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpsql.charts.axes import (
    DIM,
    INK,
    LETTER,
    LINE,
    ONE,
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
    shades,
)

EACH = (ONE, TWO, "#2f7d32", "#7b4ea1", "#a01c48", "#55606a")
"""Colors of curves."""
WIDTH, NARROW, STEP, HEIGHT = 430, 280, 19, 210
"""Pixels: how wide a picture by itself is, and one of several, so that phones have room for it and
pages for three; how high a label is, and a line.
"""
LIGHTEST = 0.1
"""The shade of the least number, which is still one."""
FEW = 40
"""Points of a line, up to which each is to be seen."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart, and which part of what is shown it has."""

    spec: dict[str, Any] = field(repr=False)
    title: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart or several, and what they are in words."""

    panels: tuple[Panel, ...]
    words: str
    """What it shows, for who doesn't see it."""
    notes: tuple[str, ...] = ()
    """What must be known of it: which intervals there are, and what is left out."""

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


_WHOLE = frozenset(("$schema", "background", "config"))
"""What a chart has once, however many panels it has."""
_SHADED = ("opacity", "fill")


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Numbers, and what they are about."""

    value: str
    """What the numbers are called."""
    by: str
    """What they are about."""
    scale: Scale
    keys: Sequence[str | float]
    values: Sequence[float | None]
    ends: Sequence[tuple[float, float] | None]
    """Of intervals, where they are known."""
    limits: Sequence[float | None] = ()
    """What bars could be at best."""

    @property
    def span(self) -> Span:
        """The least and the largest of all numbers, with those of intervals."""
        return span_of([*self.values, *self.limits, *(e for end in self.ends for e in end or ())])


@dataclass(frozen=True, slots=True)
class Square:
    """A number of a pair of labels."""

    row: str
    column: str
    value: float | None
    is_noise: bool = False
    """Whether it can't be told from zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Numbers of pairs of labels."""

    value: str
    rows: str
    """What the rows are about."""
    columns: str
    down: Sequence[str]
    """The labels of rows, in order."""
    across: Sequence[str]
    squares: Sequence[Square]

    @property
    def span(self) -> Span:
        """The least and the largest number."""
        return span_of([square.value for square in self.squares])


def span_of(numbers: Sequence[float | None]) -> Span:
    """Return the least and the largest of those that are known."""
    known = [number for number in numbers if number is not None]
    return (min(known), max(known)) if known else (0.0, 0.0)


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
    data, sure = _data(points)
    known = [row for row in data if row["value"] is not None]
    none = [{"key": row["key"]} for row in data if row["value"] is None]
    least = zip(points.keys, points.limits or [None] * len(points.keys), strict=True)
    limits = [{"key": name, "limit": number} for name, number in least if number is not None]
    low, high = points.span if span is None else span
    value = number_axis(points.value, (min(low, 0), max(high, 0)), width)
    layers = [
        _layer(
            known, {"type": "bar", "color": ONE, "opacity": 0.75}, y=key, x=_field("value", value)
        ),
        _layer(
            sure,
            {"type": "rule", "color": INK, "strokeWidth": 1.5},
            y=key,
            x=_field("low", {"type": "quantitative"}),
            x2={"field": "high"},
        ),
        _layer(
            limits,
            {"type": "tick", "color": TWO, "thickness": 2.5},
            y=key,
            x=_field("limit", {"type": "quantitative"}),
        ),
    ]
    if none:
        mark = {"type": "text", "text": "no number", "align": "left", "dx": 4, "color": DIM}
        layers.append(_layer(none, mark, y=key, x={"datum": 0, "type": "quantitative"}))
    drawn = [layer for layer in layers if layer["data"]["values"]] or layers[:1]
    return chart({"width": width, "height": {"step": STEP}, "layer": drawn})


def line(points: Points, span: Span | None = None, *, width: int = WIDTH) -> dict[str, Any]:
    """Draw a line along numbers or times, and intervals as a band around it.

    Args:
        points: the numbers.
        span: the least and the largest of all panels, which then have the same axis.
        width: pixels.
    """
    width = _left(width, ["10,000"])
    key = key_axis(points.by, points.scale, points.keys, width)
    data, sure = _data(points)
    low, high = points.span if span is None else span
    axis = number_axis(points.value, (low, high), width=2 * HEIGHT)
    axis["axis"] |= above("left", 0)
    axis["scale"] = {"nice": True}
    if high > low:
        ends = (min(low, 0.0), max(high, 0.0)) if from_zero((low, high)) else (low, high)
        axis["scale"]["domain"] = list(ends)
    mark: dict[str, Any] = {"type": "line", "color": ONE, "strokeWidth": 1.5}
    if len(data) <= FEW:
        mark["point"] = {"size": 14, "color": ONE}
    return chart(
        {
            "width": width,
            "height": HEIGHT,
            "layer": [
                _layer(
                    sure,
                    {"type": "area", "color": ONE, "opacity": 0.3},
                    x=key,
                    y=_field("low", axis),
                    y2={"field": "high"},
                ),
                _layer(data, mark, x=key, y=_field("value", axis)),
            ],
        }
    )


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
    own = {"domain": names, "range": list(EACH[: len(names)])}
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
                "color": {"field": "of", "type": "nominal", "scale": own, "legend": below},
            },
        }
    )


def heat(grid: Grid, span: Span | None = None, *, width: int = WIDTH) -> dict[str, Any]:
    """Draw a cell for each pair of labels, the darker the farther from zero.

    Numbers below zero have another color. Those that can't be told from zero have a dot, and what
    has no number a dash.

    Args:
        grid: the numbers.
        span: the least and the largest of all panels, which then have the same shades.
        width: pixels, about.
    """
    low, high = grid.span if span is None else span
    shaded = (low, high) if low > high / 2 else (0.0, max(-low, high))
    step = min(max(_left(width, grid.down) / max(len(grid.across), 1), STEP), 4 * STEP)
    places = {
        "y": down("row", grid.rows, grid.down, limit=_room(width)),
        "x": across("column", grid.columns, grid.across, step),
    }
    named = grid.value if low >= 0 else f"{grid.value}, away from zero"
    shade: dict[str, Any] = {
        "field": "size",
        "type": "quantitative",
        "scale": {"domain": list(shaded), "range": [LIGHTEST, 1]},
        "legend": shades(named, shaded, ONE if low >= 0 else DIM),
    }
    if not shaded[1] > shaded[0]:
        shade |= {"scale": {"domain": [0, 1], "range": [LIGHTEST, 1]}, "legend": None}
    known = [
        {**_place(s), "size": abs(s.value), "sign": _ABOVE if s.value >= 0 else _BELOW}
        for s in grid.squares
        if s.value is not None
    ]
    none = [_place(s) for s in grid.squares if s.value is None]
    noise = [_place(s) for s in grid.squares if s.value is not None and s.is_noise]
    rect = {"type": "rect", "stroke": LINE, "strokeWidth": 0.5}
    dot = {"type": "point", "filled": True, "shape": "circle", "size": 12, "color": INK}
    dash = {"type": "text", "text": "–", "color": DIM}
    fill = _signs() if low < 0 else {"value": ONE}
    layers = [_layer(known, rect, **places, opacity=shade, fill=fill)]
    layers += [_layer(noise, {**dot, "opacity": 1}, **places)] if noise else []
    layers += [_layer(none, dash, **places)] if none else []
    size = {"width": {"step": step}, "height": {"step": STEP}}
    return chart({**size, "layer": layers})


_ABOVE, _BELOW = "zero and above", "below zero"


def _signs() -> dict[str, Any]:
    """Give numbers below zero a color of their own."""
    return {
        "field": "sign",
        "type": "nominal",
        "scale": {"domain": [_ABOVE, _BELOW], "range": [ONE, TWO]},
        "legend": {
            "orient": "bottom",
            "direction": "horizontal",
            "title": None,
            "symbolType": "square",
            "symbolSize": 180,
            "columnPadding": 14,
        },
    }


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
    above: dict[str, Any] = {"text": title, "anchor": "start", "color": INK}
    if notes:
        above |= {"subtitle": list(notes), "subtitleColor": DIM}
    return {**spec, "title": above}


def _layer(data: Sequence[Mapping[str, Any]], mark: object, **encoding: Any) -> dict[str, Any]:
    return {"data": {"values": list(data)}, "mark": mark, "encoding": encoding}


def _field(name: str, axis: Mapping[str, Any]) -> dict[str, Any]:
    return {"field": name, **axis}


def _data(points: Points) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return values, and the ends of intervals, each with their keys."""
    ends = zip(points.keys, points.ends, strict=True)
    return (
        [{"key": k, "value": v} for k, v in zip(points.keys, points.values, strict=True)],
        [{"key": k, "low": end[0], "high": end[1]} for k, end in ends if end is not None],
    )
