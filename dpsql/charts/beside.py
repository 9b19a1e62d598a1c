"""Pictures in notebooks: shapes and texts as HTML, that fit light and dark pages."""

from __future__ import annotations

from dpsql.charts.specs import Figure
from dpsql.charts.svg import BARE, drawn
from dpsql.markup import Html, text


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
