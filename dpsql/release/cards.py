"""A release as a card in notebooks: the first rows of its answers, and their pictures."""

from __future__ import annotations

from itertools import islice

import polars as pl

from dpsql.charts.plots import inlined
from dpsql.errors import DpsqlError
from dpsql.markup import Html, card, facts
from dpsql.release.facts import Facts
from dpsql.release.marks import SupportedFrames, as_read
from dpsql.release.pictures import chart_of
from dpsql.release.shown import MOST_UNFOLDED, answer_table

MOST_TABLES = 12
"""Statements that a card shows."""


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
