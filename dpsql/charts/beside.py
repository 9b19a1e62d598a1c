"""Pictures in notebooks, drawn in this process: shapes and texts as HTML, without a network.

They are an addition, so nothing fails where what draws them isn't installed: there are none then.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec

from dpsql.charts.specs import Figure, Panel
from dpsql.charts.svg import BARE, drawn, inline
from dpsql.markup import Html, text


def inlined(figure: Figure | None) -> list[Html]:
    """Draw a chart as a part of a card that fits light and dark pages, with words below it.

    Returns:
        The part; nothing if there is no chart, or Vega-Lite isn't installed.
    """
    if figure is None or not _can_draw():
        return []
    panels = "".join(map(_panel, figure.panels))
    return [
        Html(
            f'<figure style="margin:.4em 0">'
            f'<div style="display:flex;flex-wrap:wrap;gap:.6em 1.6em">{panels}</div>'
            f'<figcaption style="font-size:.9em;opacity:.8">{text(figure.words)}</figcaption>'
            "</figure>"
        )
    ]


def _panel(panel: Panel) -> str:
    svg = drawn(panel.spec)
    prefix = f"dpsql{hashlib.sha256(svg.encode()).hexdigest()[:12]}"  # equal names: equal pictures
    title = f'<div style="font-size:.9em">{text(panel.title)}</div>' if panel.title else ""
    return f"<div>{title}{inline(svg, prefix, BARE)}</div>"


@cache
def _can_draw() -> bool:
    return find_spec("vl_convert") is not None
