"""Plots in notebooks: charts of Altair, to be looked at, changed and saved, and shapes as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpsql.charts.axes import INK, LINE
from dpsql.charts.specs import Figure, titled
from dpsql.charts.svg import BARE, drawn
from dpsql.errors import PlotError, printable
from dpsql.markup import Html, text

if TYPE_CHECKING:
    import altair


# ── Charts as objects of Altair, which people look at, change and save ───────────────────────────


_COLORS = frozenset(["color", "stroke", "fill", "symbolFillColor"])
_THEMED = frozenset(
    ["labelColor", "titleColor", "gridColor", "domainColor", "tickColor", "subtitleColor"]
)
"""What themes of Altair have colors of their own for."""
_OPEN = frozenset(("data", "title", "text", "subtitle", "domain"))
"""What may hold labels."""
_VISIBLE: Mapping[str, str] = {**BARE, INK: "#808080", LINE: "#808080"}
LONGEST_TITLE = 100


def plotted(figure: Figure, title: str) -> altair.Chart | altair.LayerChart:
    """Return a figure of one panel as an object of Altair, see `plotted_panels`."""
    found: altair.Chart = _made(figure, title)
    return found


def plotted_panels(
    figure: Figure, title: str
) -> altair.Chart | altair.LayerChart | altair.ConcatChart:
    """Return a figure as an object of Altair; several panels stand side by side.

    Marks have colors that can be seen on light and on dark; all else those of Altair's theme.

    Raises:
        PlotError: Altair is not installed.
    """
    found: altair.Chart = _made(figure, title)
    return found


def _made(figure: Figure, title: str) -> Any:
    try:
        import altair  # slow to import, and part of an extra
    except ImportError as error:
        raise PlotError(
            f"{printable(str(error.name))} is not installed, which plots are made with.",
            hint='pip install "dpsql[plots]"',
        ) from None
    made = _recolored(titled(figure.spec, printable(title)[:LONGEST_TITLE], figure.notes))
    made.get("config", {}).get("legend", {}).pop("layout", None)  # unknown to Altair's schema
    return altair.Chart.from_dict(made)


def _recolored(chart: Mapping[str, Any]) -> dict[str, Any]:
    """Give marks colors of their own; leave those of axes and the background to a theme."""
    made: dict[str, Any] = {}
    for name, value in chart.items():
        if name in _THEMED or (name == "background" and value is None):
            continue
        if name == "title" and isinstance(value, dict):
            kept = {k: v for k, v in value.items() if k not in _THEMED and k != "color"}
            made[name] = kept
        elif name in _OPEN:
            made[name] = value
        elif name in _COLORS and isinstance(value, str):
            made[name] = _VISIBLE.get(value, value)
        else:
            made[name] = _within(value)
    return made


def _within(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _recolored(value)
    return [_within(each) for each in value] if isinstance(value, list) else value


# ── Pictures in notebooks: shapes and texts as HTML, that fit light and dark pages ───────────────


def inlined(figure: Figure | None) -> list[Html]:
    """Draw a chart as a part of a card, with words below it.

    Returns:
        The part; nothing if there is no chart.
    """
    if figure is None:
        return []
    return [
        Html(
            f'<figure style="margin:.4em 0;max-width:62rem">{drawn(figure, BARE)}'
            f'<figcaption style="font-size:.9em;opacity:.8">{text(figure.words)}</figcaption>'
            "</figure>"
        )
    ]
