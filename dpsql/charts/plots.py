"""Plots in notebooks: charts of Altair, to be looked at, changed and saved, and shapes as HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsql.charts.specs import Figure, titled
from dpsql.charts.svg import BARE, drawn
from dpsql.errors import PlotError, printable
from dpsql.markup import Html, text

if TYPE_CHECKING:
    import altair


# ── Charts as objects of Altair, which people look at, change and save ───────────────────────────


LONGEST_TITLE = 100


def plotted(figure: Figure, title: str) -> altair.Chart | altair.LayerChart:
    """Return a figure of one panel as an object of Altair, see `plotted_panels`."""
    chart: altair.Chart = _made(figure, title)
    return chart


def plotted_panels(
    figure: Figure, title: str
) -> altair.Chart | altair.LayerChart | altair.ConcatChart:
    """Return a figure as an object of Altair; several panels stand side by side.

    Marks have colors that can be seen on light and on dark; all else those of Altair's theme.

    Raises:
        PlotError: Altair is not installed.
    """
    chart: altair.Chart = _made(figure, title)
    return chart


def _made(figure: Figure, title: str) -> Any:
    try:
        import altair  # slow to import, and part of an extra
    except ImportError as error:
        raise PlotError(
            f"{printable(str(error.name))} is not installed, which plots are made with.",
            hint='pip install "dpsql[plots]"',
        ) from None
    said = printable(title)[:LONGEST_TITLE]
    return altair.Chart.from_dict(titled(figure.spec, said, figure.notes))


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
