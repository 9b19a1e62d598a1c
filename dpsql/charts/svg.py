"""Pictures as parts of a page: HTML and shapes that are as wide as the page is, in its colors.

Numbers of two keys are a table with shades, all else is drawn here as SVG whose places are shares
of the width, so that letters are as large on a phone as on a desk. Every text is escaped; nothing
of what is shown becomes a name, an address or a style. There is no script, and no style sheet is
needed: looks stand with each part, as viewers of notebooks take style sheets away.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from types import MappingProxyType
from typing import TypeVar

from dpsql.charts.axes import (
    BLUE,
    DIM,
    GRAY,
    INK,
    LETTER,
    LINE,
    ONE,
    RUST,
    TWO,
    Scale,
    Span,
    key_ticks,
    place,
    round_numbers,
    tick,
    unit_of,
)
from dpsql.charts.specs import (
    DEEPEST,
    EACH,
    FEW,
    HEIGHT,
    Curves,
    Drawn,
    Figure,
    Grid,
    Panel,
    Points,
    Square,
    ends_of_axis,
    span_of,
)
from dpsql.errors import printable

NUMBERED = ("one", "two", "three", "four", "five", "six")
PAGE: Mapping[str, str] = MappingProxyType(
    {
        INK: "var(--ink)",
        DIM: "var(--dim)",
        LINE: "var(--line)",
        **dict(zip(EACH, [f"var(--{n})" for n in NUMBERED], strict=True)),
    }
)
"""Color in a chart → that of a page with a style sheet, which may be dark."""
BARE: Mapping[str, str] = MappingProxyType(
    {
        INK: "currentColor",
        DIM: GRAY,
        LINE: "#80808059",
        **dict(
            zip(
                EACH,
                (BLUE, RUST, "#46994a", "#a07cc0", "#d0587f", "#8a949e"),
                strict=True,
            )
        ),
    }
)
"""Color in a chart → one that can be seen on light and on dark."""
SHADES = {True: "#3f8fd0", False: "#d9702b"}
"""Behind numbers: of zero and above, and below zero; light enough and dark enough for any ink."""
ROW = 20
"""The height of a row of bars, in pixels."""
_CUT = "white-space:nowrap;overflow:hidden;text-overflow:ellipsis"
_SMALL = "font-size:.82rem;line-height:1.35"
_SIZE = 12
NARROWEST, PHONE = 190, 280
"""Pixels across one of several panels, and across one on a phone, where half of the labels go."""
T = TypeVar("T")


@lru_cache(maxsize=10_000)
def text(value: str) -> str:
    """Escape a text; characters that could disguise what is shown are replaced."""
    return html.escape(printable(value), quote=True)


def drawn(figure: Figure, colors: Mapping[str, str] = PAGE) -> str:
    """Draw all panels of a picture."""
    parts = [panel(each, colors) for each in figure.panels]
    if len(parts) == 1:
        return parts[0]
    least = max(_least_width(each.shown) for each in figure.panels)
    columns = f"repeat(auto-fit,minmax(min(100%,{least:.0f}px),1fr))"
    return (
        f'<div style="display:grid;grid-template-columns:{columns};gap:1.2rem 2rem;'
        f'align-items:start">{"".join(parts)}</div>'
    )


def panel(shown: Panel, colors: Mapping[str, str] = PAGE) -> str:
    """Draw a panel, with its title."""
    pen = _Pen(colors, shown.is_narrow)
    match shown.shown:
        case Grid():
            made = _table(shown.shown, shown.span)
        case Curves():
            made = pen.curves(shown.shown)
        case Points(scale="nominal"):
            made = pen.bars(shown.shown, shown.span)
        case Points():
            made = pen.line(shown.shown, shown.span)
    title = f'<p style="font-weight:600;margin:0 0 .3rem">{text(shown.title)}</p>'
    return f'<div style="min-width:0">{title if shown.title else ""}{made}</div>'


def _least_width(shown: Points | Grid | Curves) -> float:
    """Return the pixels that a panel beside others needs."""
    if not isinstance(shown, Grid) or not shown.has_numbers:
        return 272
    widest = max((len(square.text) for square in shown.squares), default=0)
    columns = [*shown.across, *([_ERROR] if shown.beside else [])]
    words = [max(map(len, re.split(r"[\s-]+", label))) for label in columns]
    return 120 + sum(LETTER * 1.2 * max(word, widest) + 20 for word in words)


@dataclass(frozen=True, slots=True)
class _Series:
    """A line, with what is around it."""

    points: Sequence[tuple[float, float | None]]
    color: str
    band: Sequence[tuple[float, float, float] | None] = ()
    circles: Sequence[tuple[float, float, bool]] = ()
    """The place of each, and whether it is hollow."""


@dataclass(frozen=True, slots=True)
class _Ruler:
    """An axis: places of numbers between two ends, in hundredths, and those that are written."""

    ends: Span
    ticks: Sequence[tuple[float, str]]
    title: str

    def at(self, value: float) -> float:
        """Return the place of a number."""
        low, high = self.ends
        return 50.0 if high <= low else 100 * (min(max(value, low), high) - low) / (high - low)


@dataclass(frozen=True, slots=True)
class _Pen:
    """Draws in the colors of a page."""

    colors: Mapping[str, str]
    is_narrow: bool

    def bars(self, points: Points, span: Span | None) -> str:
        """Draw a bar for each label, with its interval and its limit."""
        low, high = points.span if span is None else span
        rows, axis = points.rows(span), _values(points.value, (min(low, 0.0), max(high, 0.0)))
        height = ROW * len(rows)
        shapes = [*self._down(axis, height), *self._across(axis, height)]
        for i, row in enumerate(rows):
            shapes += self._bar(axis, row, ROW * i)
        for i, limit in enumerate(points.limits):
            if limit is not None:
                x, top = axis.at(limit), ROW * i + 3
                shapes.append(self._stroke((x, top), (x, top + 14), TWO, 2.5))
        names = "".join(
            f'<div style="height:{ROW}px;{_CUT}">{text(str(row.key))}</div>' for row in rows
        )
        return (
            '<div style="display:grid;grid-template-columns:fit-content(45%) minmax(0,1fr);'
            f'column-gap:8px;padding-right:1.6em;{_SMALL}">'
            f"{self._titles(points.by, axis.title)}"
            f'<div style="text-align:right;overflow:hidden;line-height:{ROW}px">{names}</div>'
            f"{_svg(shapes, height + ROW)}</div>"
        )

    def _bar(self, axis: _Ruler, row: Drawn, top: int) -> Iterable[str]:
        if row.value is None:
            zero = axis.at(0.0)
            dx, anchor = (4, "start") if zero < 50 else (-4, "end")
            yield self._text(zero, top + 14, row.said, DIM, dx=dx, anchor=anchor)
            return
        left, right = sorted((axis.at(0.0), axis.at(row.value)))
        look = f'fill="{self.colors[ONE]}" fill-opacity=".75"'
        if row.is_hollow:
            look = f'fill="none" stroke="{self.colors[ONE]}" stroke-width="1.5"'
        wide = f"{right - left:.5g}"
        yield f'<rect x="{left:.5g}%" y="{top + 3}" width="{wide}%" height="14" {look}/>'
        if row.end is not None:
            ends = [(axis.at(end), top + 10.0) for end in row.end]
            yield self._stroke(ends[0], ends[1], INK, 1.5)

    def line(self, points: Points, span: Span | None) -> str:
        """Draw a line along numbers or times, with a band around it."""
        rows = points.rows(span)
        at = {row.key: place(points.scale, row.key) for row in rows}
        few = len(rows) <= FEW
        series = _Series(
            [(at[row.key], row.value) for row in rows],
            ONE,
            [None if r.end is None or r.value is None else (at[r.key], *r.end) for r in rows],
            [
                (at[row.key], row.value, row.is_hollow)
                for row in rows
                if row.value is not None and (few or row.is_hollow or row.is_alone)
            ],
        )
        return self._plot(
            _keys(points.by, points.scale, points.keys, is_narrow=self.is_narrow),
            _values(points.value, ends_of_axis(points.span if span is None else span)),
            [series],
        )

    def curves(self, lines: Curves) -> str:
        """Draw lines with a point at each number; both axes are logarithmic."""
        keys = sorted({key for curve in lines.curves for key, _ in curve.points})
        found = span_of([value for curve in lines.curves for _, value in curve.points])
        across = [(math.log(key), f"{key:.3g}") for key in keys]
        up = [(math.log(value), f"{value:.3g}") for value in _powers(*found)]
        series = [
            _Series(
                own := [(math.log(key), math.log(value)) for key, value in curve.points],
                color,
                (),
                [(x, y, False) for x, y in own],
            )
            for curve, color in zip(lines.curves, EACH, strict=False)
        ]
        legend = "".join(
            f'<div style="{_CUT}"><span style="color:{self.colors[color]}">●</span> '
            f"{text(curve.name)}</div>"
            for curve, color in zip(lines.curves, EACH, strict=False)
        )
        plot = self._plot(
            _Ruler((across[0][0], across[-1][0]), across, lines.by),
            _Ruler((math.log(found[0]), math.log(found[1])), up, lines.value),
            series,
        )
        return f'<div style="max-width:46rem">{plot}<div style="{_SMALL}">{legend}</div></div>'

    def _plot(self, across: _Ruler, up: _Ruler, series: Sequence[_Series]) -> str:
        room = 8 + LETTER * max((len(said) for _, said in up.ticks), default=0)
        shapes = [
            shape
            for value, said in up.ticks
            for y in [HEIGHT - HEIGHT * up.at(value) / 100]
            for shape in (
                self._stroke((0, y), (100, y), LINE, 1),
                self._text(0, y + 4, said, DIM, dx=-6, anchor="end"),
            )
        ]
        for each in series:
            shapes += self._series(across, up, each)
        shapes += self._across(across, HEIGHT)
        return (
            f'<div style="padding:0 1.4em 0 {room:.0f}px;{_SMALL}">'
            f'<div style="margin-left:-{room:.0f}px;margin-bottom:8px">{text(up.title)}</div>'
            f"{_svg(shapes, HEIGHT + ROW)}"
            f'<div style="text-align:right">{text(across.title)}</div></div>'
        )

    def _series(self, across: _Ruler, up: _Ruler, series: _Series) -> Iterable[str]:
        """Draw a band and a line, which stretch with the page, and circles, which don't."""

        def at(x: float, y: float) -> str:
            return f"{10 * across.at(x):.5g} {HEIGHT - HEIGHT * up.at(y) / 100:.4g}"

        color, paths = self.colors[series.color], []
        for run in _runs(series.band):
            if len(run) == 1:
                x, low, high = run[0]
                paths.append(
                    f'<path d="M{at(x, low)}L{at(x, high)}" stroke="{color}" stroke-opacity=".6" '
                    'vector-effect="non-scaling-stroke"/>'
                )
                continue
            there = [at(x, low) for x, low, _ in run]
            back = [at(x, high) for x, _, high in reversed(run)]
            paths.append(
                f'<path d="M{"L".join([*there, *back])}Z" fill="{color}" fill-opacity=".3"/>'
            )
        paths += [
            f'<path d="M{"L".join(at(x, y) for x, y in run)}" fill="none" stroke="{color}" '
            'stroke-width="1.5" vector-effect="non-scaling-stroke"/>'
            for run in _runs([None if y is None else (x, y) for x, y in series.points])
        ]
        yield (
            f'<svg width="100%" height="{HEIGHT}" viewBox="0 0 1000 {HEIGHT}" '
            f'preserveAspectRatio="none">{"".join(paths)}</svg>'
        )
        for x, y, is_hollow in series.circles:
            fill = "none" if is_hollow else color
            yield (
                f'<circle cx="{across.at(x):.5g}%" cy="{HEIGHT - HEIGHT * up.at(y) / 100:.4g}" '
                f'r="{3.5 if is_hollow else 2.5}" fill="{fill}" stroke="{color}"/>'
            )

    def _down(self, axis: _Ruler, height: float) -> Iterable[str]:
        """Draw a line down from each tick."""
        for value, _ in axis.ticks:
            x = axis.at(value)
            yield self._stroke((x, 0), (x, height), LINE, 1)

    def _across(self, axis: _Ruler, top: float) -> Iterable[str]:
        """Write the ticks of an axis below what is drawn."""
        wide = not self.is_narrow and _pixels(said for _, said in axis.ticks) > PHONE
        for i, (value, said) in enumerate(axis.ticks):
            x = axis.at(value)
            half = LETTER * len(said) / 2
            anchor = "end" if half > NARROWEST * (100 - x) / 100 + _SIZE else "middle"
            anchor = "start" if half > NARROWEST * x / 100 + _SIZE else anchor
            made = self._text(x, top + 16, said, DIM, anchor=anchor)
            yield made.replace("<text", '<text class="h"', 1) if wide and i % 2 else made

    def _titles(self, left: str, right: str) -> str:
        return f'<div style="text-align:right;{_CUT}">{text(left)}</div><div>{text(right)}</div>'

    def _text(
        self, x: float, y: float, said: str, color: str, dx: int = 0, anchor: str = "middle"
    ) -> str:
        return (
            f'<text x="{x:.5g}%" y="{y:.4g}" dx="{dx}" text-anchor="{anchor}" '
            f'font-size="{_SIZE}" fill="{self.colors[color]}">{text(said)}</text>'
        )

    def _stroke(
        self, start: tuple[float, float], end: tuple[float, float], color: str, width: float
    ) -> str:
        (a, b), (c, d) = start, end
        return (
            f'<line x1="{a:.5g}%" y1="{b:.4g}" x2="{c:.5g}%" y2="{d:.4g}" '
            f'stroke="{self.colors[color]}" stroke-width="{width}"/>'
        )


def _svg(shapes: Iterable[str], height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height:.0f}" '
        'aria-hidden="true" focusable="false" overflow="visible" '
        f'font-family="inherit">{"".join(shapes)}</svg>'
    )


def _values(title: str, span: Span) -> _Ruler:
    """Return the axis of values."""
    said, size = unit_of(title, span)
    return _Ruler(span, [(value, tick(value, size)) for value in round_numbers(*span)], said)


def _keys(title: str, scale: Scale, keys: Sequence[str | float], *, is_narrow: bool) -> _Ruler:
    """Return the axis along which a line goes, with as many ticks as there is room for."""
    places = [place(scale, key) for key in keys]
    for most in (4, 3, 2) if is_narrow else (6,):
        ticks = key_ticks(scale, keys, most)
        if _pixels(said for _, said in ticks) <= NARROWEST:
            break
    return _Ruler(span_of(places), [(place(scale, key), said) for key, said in ticks], title)


def _pixels(labels: Iterable[str]) -> float:
    """Return how wide labels beside one another are."""
    return sum(LETTER * len(label) + 12 for label in labels)


def _powers(low: float, high: float) -> list[float]:
    """Return numbers between two others that look well on a logarithmic axis."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 2 else (1,)
    powers = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return [each for each in powers if low <= each <= high]


def _runs(items: Sequence[T | None]) -> Iterator[list[T]]:
    """Yield what is known of a list, in pieces without gaps."""
    for is_known, run in groupby(items, lambda each: each is not None):
        if is_known:
            yield [each for each in run if each is not None]


def _table(grid: Grid, span: Span | None) -> str:
    """Write a table of two keys, the darker a number the farther it is from zero."""
    places = {(each.row, each.column): each for each in grid.squares}
    look = _HEAD if grid.has_numbers else _TURNED
    errors = [_ERROR] if grid.beside else []
    head = "".join(
        f'<th scope="col" style="{look}">{text(label)}</th>' for label in [*grid.across, *errors]
    )
    body = "".join(
        _row(label, [_square(grid, places.get((label, column)), span) for column in grid.across],
             [_dim(grid.beside[label])] if grid.beside else [])
        for label in grid.down
    )  # fmt: skip
    if grid.below:
        body += _row(_ERROR, [_dim(grid.below[column]) for column in grid.across], [])
    name = f"{grid.value} by {grid.rows} and {grid.columns}"
    said = f"{name}{f', {grid.each}' if grid.each else ''}"
    return (
        f'<p style="margin:0 0 .3rem;{_SMALL}">{text(said)}</p>'
        f'<div class="scroll" style="overflow-x:auto" tabindex="0" role="group" '
        f'aria-label="{text(name)}"><table style="{_TABLE}"><thead><tr>'
        f'<th scope="col" style="{_LEFT}">{text(grid.rows)}</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(label: str, cells: Sequence[str], more: Sequence[str]) -> str:
    content = "".join([*cells, *more])
    return f'<tr><th scope="row" style="{_LEFT}">{text(label)}</th>{content}</tr>'


def _dim(said: str) -> str:
    return f'<td style="{_NUMBER};opacity:.85">{text(said)}</td>'


def _square(grid: Grid, square: Square | None, span: Span | None) -> str:
    if square is None:
        return f'<td style="{_NUMBER}"></td>'
    shade = grid.shade(square, span)
    said = square.text if grid.has_numbers else "○" if square.mark.is_hollow else ""
    if square.value is None or square.mark.said:
        said = square.mark.said if square.mark.said and grid.has_numbers else "–"
    look = _NUMBER
    if shade is not None and square.value is not None:
        alpha = round(255 * DEEPEST * shade)
        look += f";background:{SHADES[square.value >= 0]}{alpha:02x}"
    elif grid.has_numbers:
        look += ";font-style:italic"
    return f'<td style="{look}">{text(said)}</td>'


_ERROR = "standard error"
_TABLE = "border-collapse:collapse;width:auto;font-variant-numeric:tabular-nums"
_NUMBER = "text-align:right;padding:.15em .6em;white-space:nowrap"
_LEFT = "text-align:left;padding:.15em .6em .15em 0;font-weight:normal"
_HEAD = "text-align:right;padding:.15em .6em;font-weight:600;vertical-align:bottom"
_TURNED = f"writing-mode:vertical-rl;text-align:right;font-weight:normal;max-height:11em;{_SMALL}"
