"""Pictures as charts of Vega-Lite: bars, a line with a band, a heat map.

Charts have the inks of `svg.py`, and of what they show nothing but labels and numbers. Names of
columns are titles, never names of fields, which have a syntax of their own there, and no expression
is made of anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

INK, DIM, LINE, ONE = "#101112", "#606162", "#c0c1c2", "#1f6fb1"
WIDTH, STEP, HEIGHT = 380, 19, 220
FONT = "system-ui, sans-serif"
Scale = Literal["nominal", "quantitative", "temporal"]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""The name of the language; nothing is asked for there."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Numbers of pairs of labels."""

    value: str
    rows: str
    columns: str
    cells: Sequence[tuple[str, str, float | None]]


def bars(points: Points) -> dict[str, Any]:
    """Draw a bar for each label, and its interval as a line across its end."""
    every = {"domain": list(points.keys)}  # those without a value, too
    key = {**_axis("key", points.by, "nominal"), "sort": None, "scale": every}
    data, sure = _data(points)
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
                "y": {**_axis("row", grid.rows, "nominal"), "sort": None},
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
        "titlePadding": 14,  # browsers have wider letters than what lays the picture out
    }
    legend = {name: axis[name] for name in axis if name.startswith(("label", "title"))}
    config = {"axis": axis, "legend": legend, "view": {"stroke": None}, "aria": False}
    return {"$schema": SCHEMA, "background": None, **parts, "config": config}
