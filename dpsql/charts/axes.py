"""Axes and legends of pictures: what stands beside numbers, times and labels, and where.

Letters are as wide as those of Arial, which most machines have or have an equal of, so that what is
laid out here fits where it is looked at. Titles stand above what goes down the page, and never
across it. Large numbers are told in millions and more, and the title says so.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

INK, DIM, LINE, ONE, TWO = "#101112", "#606162", "#c0c1c2", "#1f6fb1", "#c15a11"
GRAY, BLUE, RUST = "#808080", "#4c8fca", "#d9702b"
"""Colors that can be seen on light and on dark."""
FONT = "Arial, 'Liberation Sans', Helvetica, sans-serif"
TEXT = 12
LETTER = 6.5
"""The width of a letter, about."""
Scale = Literal["nominal", "quantitative", "temporal"]
Span = tuple[float, float]
"""The least and the largest number."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""The name of the language; nothing is asked for there."""
_UNITS = ((1e12, "trillions"), (1e9, "billions"), (1e6, "millions"))
_LARGEST, _LEAST = 1e15, 1e-3
"""Between which numbers are written out."""
_PLAIN = 1e5
"""Below which keys have no thousands apart: they may be years."""
_APART = {"labelOverlap": "greedy", "labelSeparation": 12, "labelFlush": False}
"""Labels that would touch each other are left out."""


def number_axis(title: str, span: Span, width: float) -> dict[str, Any]:
    """Describe an axis of values.

    Args:
        title: what they are called.
        span: the least and the largest that is shown.
        width: pixels along which there is room for labels.
    """
    said, labels = in_units(title, span)
    wide = LETTER * (3 if labels else max(len(f"{end:,.0f}") for end in span) + 1)
    ticks = min(max(int(width / (wide + 2 * TEXT)), 2), 6)
    return {
        "type": "quantitative",
        "title": said,
        "axis": {**_APART, **labels, "tickCount": ticks},
    }


def in_units(title: str, span: Span) -> tuple[str, dict[str, Any]]:
    """Return a title with its unit, and how numbers are written in that unit.

    The expressions are these, whatever is shown.
    """
    said, size = unit_of(title, span)
    if size == 0:
        return said, {"format": ".3~g"}
    if size > 1:
        return said, {"labelExpr": f"format(datum.value / {size:.0f}, ',~g')"}
    return said, {}


def unit_of(title: str, span: Span) -> tuple[str, float]:
    """Return a title with its unit, and how large that is; 0 where numbers are told in powers."""
    largest = max(map(abs, span))
    if largest >= _LARGEST or 0 < largest < _LEAST:
        return title, 0.0
    for size, name in _UNITS:
        if largest >= size:
            return f"{title} ({name})", size
    return title, 1.0


def tick(value: float, size: float) -> str:
    """Write a number beside an axis, in a unit; see `unit_of`."""
    return f"{value:.3g}" if size == 0 else f"{value / size:,.9g}"


def key_ticks(
    scale: Scale, keys: Sequence[str | float], most: int
) -> list[tuple[str | float, str]]:
    """Return some keys along a line, or round numbers between them, and how they are written."""
    if scale == "temporal":
        return _time_ticks([str(key) for key in keys], most)
    numbers = [float(key) for key in keys]
    span = (min(numbers, default=0.0), max(numbers, default=0.0))
    plain = max(map(abs, span)) < _PLAIN
    return [
        (each, f"{each:.9g}" if plain else f"{each:,.9g}") for each in round_numbers(*span, most)
    ]


def _time_ticks(times: Sequence[str], most: int) -> list[tuple[str | float, str]]:
    """Return times at the beginning of years, of months or of days, or any if there are none."""
    all_of = {written: _time(written) for written in sorted({*times})}
    midnights = {w: t for w, t in all_of.items() if t.time() == dt.time()}
    months = {w: t for w, t in midnights.items() if t.day == 1}
    years = {w: t for w, t in months.items() if t.month == 1}
    forms = ((years, "%Y"), (months, "%Y-%m"), (midnights, "%Y-%m-%d"))
    enough = [each for each in forms if len(each[0]) >= min(3, len(all_of))]
    ticks, form = enough[0] if enough else (all_of, "%m-%d %H:%M")
    every = max(-(-len(ticks) // most), 1)
    return [(written, f"{t:{form}}") for written, t in list(ticks.items())[::every]]


def place(scale: Scale, key: str | float) -> float:
    """Return where a key is along a line."""
    return _time(str(key)).timestamp() if scale == "temporal" else float(key)


def key_axis(title: str, scale: Scale, keys: Sequence[str | float], width: float) -> dict[str, Any]:
    """Describe an axis along which a line goes.

    Times are shown as they are written, wherever the picture is looked at.
    """
    ticks: dict[str, Any] = {**_APART, "tickCount": 6 if width > 300 else 3}
    if scale == "temporal":
        properties: dict[str, Any] = {"scale": {"type": "utc"}}
        ticks |= {"format": _clock([str(key) for key in keys]), "labelSeparation": 18}
    else:
        properties = {"scale": {"zero": False, "nice": False}}
        numbers = [float(key) for key in keys]
        if max(map(abs, numbers), default=0) < _PLAIN:
            ticks["format"] = ".9~f"
    return {"field": "key", "type": scale, "title": title, "axis": ticks, **properties}


def _clock(times: Sequence[str]) -> str:
    """Return how times are written, by how far apart the first and the last are."""
    if not times:
        return "%Y"
    days = (_time(max(times)) - _time(min(times))) / dt.timedelta(days=1)
    if days >= 3 * 366:
        return "%Y"
    if days >= 120:
        return "%Y-%m"
    if days >= 4:
        return "%Y-%m-%d"
    return "%m-%d %H:%M" if days >= 1 else "%H:%M"


def _time(written: str) -> dt.datetime:
    return dt.datetime.fromisoformat(written)


def down(name: str, title: str, labels: Sequence[str], limit: int) -> dict[str, Any]:
    """Describe an axis with labels below one another, and its title above them."""
    axis = {**above("right", -6), "labelLimit": limit, "titleLimit": limit}
    return _labeled(name, title, labels, axis)


def across(name: str, title: str, labels: Sequence[str], step: float) -> dict[str, Any]:
    """Describe an axis with labels beside one another, above what is below them."""
    longest = max(map(len, labels), default=0) * LETTER
    turned = {"labelAngle": 0} if longest + 8 <= step else {"labelAngle": -45, "labelLimit": 150}
    axis = {"orient": "top", "titleAnchor": "start", "labelOverlap": False, **turned}
    return _labeled(name, title, labels, axis)


def _labeled(
    name: str, title: str, labels: Sequence[str], axis: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "field": name,
        "type": "nominal",
        "title": title,
        "sort": None,
        "scale": {"domain": list(dict.fromkeys(labels))},  # those without a value, too
        "axis": axis,
    }


def above(align: str, start: float) -> dict[str, Any]:
    """Put the title of an axis that goes down the page above it, to be read from left to right."""
    return {
        "titleAngle": 0,
        "titleAlign": align,
        "titleAnchor": "end",
        "titleBaseline": "bottom",
        "titleX": start,
        "titleY": -8,
    }


def shades(title: str, span: Span) -> dict[str, Any]:
    """Describe a legend of shades, below the picture."""
    said, labels = in_units(title, span)
    return {
        "orient": "bottom",
        "direction": "horizontal",
        "title": said,
        "values": round_numbers(*span),
        "symbolType": "square",
        "symbolFillColor": BLUE,
        "symbolStrokeColor": DIM,
        "symbolStrokeWidth": 0.5,
        "symbolSize": 180,
        "columnPadding": 14,
        "titlePadding": 5,
        **labels,
    }


def round_numbers(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers from one number to another, at most so many and some fewer."""
    if not high > low:
        return [high]
    size = 10.0 ** math.floor(math.log10((high - low) / (most - 1)))
    step = next(s * size for s in (1, 2, 2.5, 5, 10) if (high - low) / (s * size) <= most - 0.5)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [step * i for i in range(first, last + 1)]


def chart(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a picture of its own, with the looks of all but for colors, which themes have."""
    axis = {
        "labelFont": FONT,
        "titleFont": FONT,
        "labelFontSize": TEXT,
        "titleFontSize": TEXT,
        "titleFontWeight": "normal",
        "labelLimit": 150,
        "titleLimit": 320,
        "titlePadding": 10,
    }
    text = {"font": FONT, "fontSize": TEXT}
    title = {**text, "fontWeight": "normal", "anchor": "start"}
    config = {
        "axis": axis,
        "legend": axis,
        "text": text,
        "title": title,
        "view": {"stroke": None},
        "aria": False,
    }
    return {"$schema": SCHEMA, **parts, "config": config}
