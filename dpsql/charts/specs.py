"""Pictures as charts of Vega-Lite: bars, a line with a band, a heat map.

Charts have the inks of `svg.py`, and of what they show nothing but labels and numbers. Names of
columns are titles, never names of fields, which have a syntax of their own there, and no expression
is made of anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

INK, DIM, LINE, ONE, TWO = "#101112", "#606162", "#c0c1c2", "#1f6fb1", "#c15a11"
EACH = (ONE, TWO, "#2f7d32", "#7b4ea1", "#a01c48", "#55606a")
"""Colors of curves."""
WIDTH, STEP, HEIGHT, PADDING = 380, 19, 220, 14
FONT = "system-ui, sans-serif"
Scale = Literal["nominal", "quantitative", "temporal"]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""The name of the language; nothing is asked for there."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart, and what it is in words."""

    spec: dict[str, Any] = field(repr=False)
    words: str
    """What it shows, for who doesn't see it."""
    notes: tuple[str, ...] = ()
    """What must be known of it: which intervals there are, and what is left out."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Numbers of pairs of labels."""

    value: str
    rows: str
    columns: str
    cells: Sequence[tuple[str, str, float | None]]


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


def bars(points: Points) -> dict[str, Any]:
    """Draw a bar for each label, its interval as a line across its end, and its limit as a tick."""
    every = {"domain": list(points.keys)}  # those without a value, too
    key = {**_labeled("key", points.by, map(str, points.keys)), "scale": every}
    data, sure = _data(points)
    least = zip(points.keys, points.limits or [None] * len(points.keys), strict=True)
    limits = [{"key": name, "limit": number} for name, number in least if number is not None]
    return _chart(
        {
            "width": WIDTH,
            "height": {"step": STEP},
            "layer": [
                {
                    "data": {"values": data},
                    "mark": {"type": "bar", "color": ONE, "opacity": 0.75},
                    "encoding": {"y": key, "x": _axis("value", points.value, "quantitative")},
                },
                {
                    "data": {"values": sure},
                    "mark": {"type": "rule", "color": INK, "strokeWidth": 1.5},
                    "encoding": {
                        "y": key,
                        "x": {"field": "low", "type": "quantitative"},
                        "x2": {"field": "high"},
                    },
                },
                {
                    "data": {"values": limits},
                    "mark": {"type": "tick", "color": TWO, "thickness": 2.5},
                    "encoding": {"y": key, "x": {"field": "limit", "type": "quantitative"}},
                },
            ],
        }
    )


def line(points: Points) -> dict[str, Any]:
    """Draw a line along numbers or times, and intervals as a band around it.

    Times are shown as they are written, with a Z behind, wherever the picture is looked at.
    """
    key = _axis("key", points.by, points.scale)
    data, sure = _data(points)
    return _chart(
        {
            "width": WIDTH,
            "height": HEIGHT,
            "layer": [
                {
                    "data": {"values": sure},
                    "mark": {"type": "area", "color": ONE, "opacity": 0.3},
                    "encoding": {
                        "x": key,
                        "y": {"field": "low", "type": "quantitative"},
                        "y2": {"field": "high"},
                    },
                },
                {
                    "data": {"values": data},
                    "mark": {"type": "line", "color": ONE, "strokeWidth": 1.5},
                    "encoding": {"x": key, "y": _axis("value", points.value, "quantitative")},
                },
            ],
        }
    )


def curves(lines: Curves) -> dict[str, Any]:
    """Draw lines with a point at each number; both axes are logarithmic."""
    names = [curve.name for curve in lines.curves]
    data = [{"of": c.name, "key": key, "value": v} for c in lines.curves for key, v in c.points]
    keys = sorted({key for curve in lines.curves for key, _ in curve.points})
    across = {"type": "log", "domain": [keys[0], keys[-1]], "nice": False}
    own = {"domain": names, "range": list(EACH[: len(names)])}
    below = {"orient": "bottom", "direction": "vertical", "symbolType": "circle", "title": None}
    return _chart(
        {
            "width": WIDTH,
            "height": HEIGHT,
            "data": {"values": data},
            "mark": {"type": "line", "point": True, "strokeWidth": 1.5},
            "encoding": {
                "x": {
                    **_axis("key", lines.by, "quantitative"),
                    "scale": across,
                    "axis": {"values": keys, "format": ".3~g"},
                },
                "y": {
                    **_axis("value", lines.value, "quantitative"),
                    "scale": {"type": "log"},
                    "axis": {"format": ".3~g"},
                },
                "color": {"field": "of", "type": "nominal", "scale": own, "legend": below},
            },
        }
    )


def heat(grid: Grid) -> dict[str, Any]:
    """Draw a cell for each pair of labels, the darker the larger."""
    data = [{"row": row, "column": column, "value": v} for row, column, v in grid.cells]
    across = len({column for _, column, _ in grid.cells})
    shade = {
        "field": "value",
        "type": "quantitative",
        "title": grid.value,
        "scale": {"range": [0.04, 1]},
        "legend": {"orient": "right", "symbolFillColor": ONE, "symbolType": "square"},
    }
    return _chart(
        {
            "width": {"step": min(max(WIDTH / max(across, 1), STEP), 4 * STEP)},
            "height": {"step": STEP},
            "data": {"values": data},
            "mark": {"type": "rect", "color": ONE, "stroke": LINE, "strokeWidth": 0.5},
            "encoding": {
                "y": _labeled("row", grid.rows, (row for row, _, _ in grid.cells)),
                "x": {**_axis("column", grid.columns, "nominal"), "sort": None},
                "opacity": shade,
            },
        }
    )


def titled(chart: Mapping[str, Any], title: str, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Put a title above a picture, and what must be known of it below that."""
    above: dict[str, Any] = {"text": title, "anchor": "start", "color": INK}
    if notes:
        above |= {"subtitle": list(notes), "subtitleColor": DIM}
    return {**chart, "title": above}


def _data(points: Points) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return values, and the ends of intervals, each with their keys."""
    ends = zip(points.keys, points.ends, strict=True)
    return (
        [{"key": k, "value": v} for k, v in zip(points.keys, points.values, strict=True)],
        [{"key": k, "low": end[0], "high": end[1]} for k, end in ends if end is not None],
    )


def _axis(name: str, title: str, scale: Scale) -> dict[str, Any]:
    found: dict[str, Any] = {"field": name, "type": scale, "title": title}
    return found | ({"scale": {"type": "utc"}} if scale == "temporal" else {})


def _labeled(name: str, title: str, labels: Iterable[str]) -> dict[str, Any]:
    """Describe an axis that has labels beside each other's ends, below one another.

    Browsers have wider letters than what lays the picture out: by about a pixel each.
    """
    wider = min(max(map(len, labels), default=0), 25)
    axis = {"titlePadding": PADDING + wider}
    return {**_axis(name, title, "nominal"), "sort": None, "axis": axis}


def _chart(parts: Mapping[str, Any]) -> dict[str, Any]:
    axis = {
        "labelColor": INK,
        "titleColor": INK,
        "labelFont": FONT,
        "titleFont": FONT,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "gridColor": LINE,
        "domainColor": DIM,
        "tickColor": DIM,
        "labelLimit": 150,
        "titleLimit": 320,
        "titlePadding": PADDING,
    }
    legend = {name: axis[name] for name in axis if name.startswith(("label", "title"))}
    config = {"axis": axis, "legend": legend, "view": {"stroke": None}, "aria": False}
    return {"$schema": SCHEMA, "background": None, **parts, "config": config}
