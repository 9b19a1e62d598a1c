"""A release as a card in notebooks: the first rows of its answers, and their pictures."""

from __future__ import annotations

from itertools import islice

import polars as pl

from dpsql.charts.plots import inlined
from dpsql.errors import DpsqlError
from dpsql.markup import Html, card, facts, folded, table
from dpsql.release.facts import Facts
from dpsql.release.marks import SupportedFrames, as_read
from dpsql.release.pictures import chart_of
from dpsql.release.shown import shown_rows, with_errors

MOST_TABLES = 12
MOST_ROWS = 5
MOST_UNFOLDED = 500
"""What a card shows: statements, rows of each, and rows of each behind a click."""


def release_card(known: Facts, frames: SupportedFrames) -> Html:
    """Show a release: what was charged, and the answers to its first statements.

    Args:
        known: what is public about it.
        frames: its answers.
    """
    shown = {"charged": known.budget or "nothing", "neighbours": known.neighbours}
    heads = [_head(known, frames, name) for name in islice(frames.names, MOST_TABLES)]
    many = len(frames.names)
    return card(
        f"Release of {many:,} statement{'' if many == 1 else 's'}",
        facts(shown),
        *heads,
        *([f"… and {many - len(heads):,} more statements"] if many > len(heads) else []),
    )


def beside(known: Facts, frames: SupportedFrames, name: str, frame: pl.DataFrame) -> list[Html]:
    """Return the picture of an answer that a card shows whole, if there is one."""
    if frame.height > MOST_UNFOLDED:
        return []
    seen, marks = as_read(frames, name)
    return inlined(chart_of(seen, frames.columns(name), known.confidence, marks=marks))


def _head(known: Facts, frames: SupportedFrames, name: str) -> Html:
    """Show the first rows of a statement, and behind a click the next; or why they can't be had."""
    try:
        frame = next(frames.batches(name, MOST_UNFOLDED + 1))
    except DpsqlError as error:
        return card(name, error.message)
    return card(name, answer_table(frame, name), *beside(known, frames, name, frame))


def answer_table(frame: pl.DataFrame, name: str = "") -> Html:
    """Show the first rows of an answer, and behind a click the next.

    Args:
        frame: all of them, or one more than are shown at most.
        name: by which a release has them, if it does.
    """
    frame = with_errors(frame)
    rows = shown_rows(frame.head(MOST_UNFOLDED + 1))
    if len(rows) <= MOST_ROWS:
        return table(frame.columns, rows)
    head, more = table(frame.columns, rows[:MOST_ROWS]), ""
    if len(rows) > MOST_UNFOLDED:
        more = f"… and more: release[{name!r}]" if name else "… and more"
    title = f"the first {MOST_UNFOLDED:,} rows" if more else f"all {len(rows):,} rows"
    unfolded = folded(title, table(frame.columns, rows[:MOST_UNFOLDED], more=more))
    return Html(f"{head}{unfolded}")
