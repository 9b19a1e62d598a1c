"""Pieces of HTML for notebooks, of plain strings and rows. Everything that is shown is escaped.

Looks are inline and made of the surrounding text's own color, so that the pieces fit light and
dark pages and need no style sheet, which notebook viewers take away.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from dpsql.errors import printable

LONGEST_TEXT = 300
"""Characters of a cell that are shown."""

_LINE = "border-bottom:1px solid;padding:.1em .6em;"
_NUMBER = f"{_LINE}text-align:right;font-variant-numeric:tabular-nums;"
_TEXT = f"{_LINE}text-align:left;"
_BAR = "display:inline-block;vertical-align:middle;width:12em;height:.7em;border:1px solid;"
_FILL = "height:100%;background:currentColor;opacity:.5;"


class Html(str):
    """Text that is safe to show as HTML. Anything else is escaped before it gets there."""

    __slots__ = ()


def text(value: object) -> Html:
    """Escape any value but HTML; characters that could disguise what is shown are replaced."""
    if isinstance(value, Html):
        return value
    whole = plain(value)
    cut = whole if len(whole) <= LONGEST_TEXT else f"{whole[:LONGEST_TEXT]}…"
    return Html(html.escape(printable(cut), quote=True))


def plain(value: object) -> str:
    """Write a value as text: floats with about two decimals, None as SQL's NULL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    return f"{value:.2f}" if value == 0 or 0.01 <= abs(value) < 1e15 else f"{value:.3g}"


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, more: str = "") -> Html:
    """Lay out rows below a header; `more` stands below them. Numbers stand to the right."""
    listed = list(rows)
    right = [numeric([row[i] for row in listed]) for i in range(len(header))]
    head = "".join(
        f'<th style="{_NUMBER if number else _TEXT}">{text(name)}</th>'
        for name, number in zip(header, right, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row, right))}</tr>" for row in listed)
    rest = f"<div>{text(more)}</div>" if more else ""
    return Html(
        f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>{rest}"
    )


def facts(values: Mapping[str, object]) -> Html:
    """Lay out names and what is known of each."""
    rows = "".join(
        f'<tr><th style="{_TEXT}">{text(name)}</th><td style="{_TEXT}">{text(value)}</td></tr>'
        for name, value in values.items()
    )
    return Html(f'<table style="border-collapse:collapse"><tbody>{rows}</tbody></table>')


def bar(share: float, label: str) -> Html:
    """Draw a share, from 0 to 1, as a filled bar that is read out as `label`."""
    percent = 100 * min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    return Html(
        f'<span role="img" aria-label="{text(label)}" title="{text(label)}" style="{_BAR}">'
        f'<span style="display:block;{_FILL}width:{percent:.4g}%"></span></span>'
    )


def preformatted(value: str) -> Html:
    """Keep the lines and spaces of a text."""
    lines = (html.escape(printable(line), quote=True) for line in value.split("\n"))
    return Html('<pre style="margin:.3em 0;overflow-x:auto">' + "\n".join(lines) + "</pre>")


def folded(title: str, content: Html) -> Html:
    """Hide content until its title is clicked."""
    return Html(f"<details><summary>{text(title)}</summary>{text(content)}</details>")


def card(title: str, *parts: object) -> Html:
    """Put parts below each other in one block with a title."""
    inner = "".join(f'<div style="margin:.4em 0">{text(part)}</div>' for part in parts)
    return Html(f'<div style="color:inherit"><strong>{text(title)}</strong>{inner}</div>')


def numeric(values: Sequence[object]) -> bool:
    """Whether a column has numbers, and nothing else."""
    kinds = {type(value) for value in values} - {type(None)}
    return bool(kinds) and kinds <= {int, float, Decimal}


def _cell(value: object, to_the_right: bool) -> str:
    return f'<td style="{_NUMBER if to_the_right else _TEXT}">{text(value)}</td>'
