"""One statement's answer as a report has it: its first rows, their marks, and files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl

from dpsql.charts.svg import drawn
from dpsql.errors import DpsqlError, ResourceLimitError
from dpsql.markup import plain
from dpsql.release import metadata
from dpsql.release.confidence import CONFIDENCE
from dpsql.release.disk import MOST_BYTES
from dpsql.release.facts import Facts
from dpsql.release.forms import csv_text, parquet_bytes
from dpsql.release.layouts import MOST_PANELS
from dpsql.release.marks import (
    SupportedFrames,
    SuppressedFrames,
    noise_marked,
    shown_and_marked,
)
from dpsql.release.panels import word
from dpsql.release.pictures import chart_of
from dpsql.release.shown import decimals_of, shown_rows, shown_value
from dpsql.report import ELSEWHERE, Cell, Column, Download, Drawing, Picture, Shown

MOST_ROWS = 500
"""Rows of an answer that are shown."""
LEAST_ROWS = 20
MOST_CELLS = 60_000
"""Cells of all tables together."""
LONGEST_TEXT = 120
"""Characters of a cell."""
FILE_SHARE, FILES_SHARE, WRITTEN_SHARE = 0.15, 0.3, 0.02
"""Of its bytes those of a file, of all of them together, and cells of an answer with files."""
MOST_PICTURES, LEAST_PANELS = 48, 6
"""Panels of all pictures together, as many as are drawn within two seconds; and of one of them."""
NOT_KNOWN = "not known"


@dataclass(slots=True)
class Room:
    """How much there is room for in a page."""

    statements: int
    size: int = MOST_BYTES
    """Bytes that the page may have."""
    taken: int = 0
    """Bytes of files."""
    pictures: int = MOST_PICTURES
    told: int = 0
    """Statements that had their share of pictures."""

    def rows(self, columns: int) -> int:
        """Return how many rows of so many columns are shown of each statement."""
        share = MOST_CELLS // self.statements // max(columns, 1)
        return min(max(share, LEAST_ROWS), MOST_ROWS)

    @property
    def panels(self) -> int:
        """Return how many panels the next picture may have: those after it get one each."""
        share = max(MOST_PICTURES // self.statements, LEAST_PANELS)
        left = max(self.pictures - (self.statements - self.told - 1), 1)
        return min(share, left, self.pictures, MOST_PANELS)

    def takes(self, size: int) -> bool:
        """Make room for a file, if there is any."""
        left = FILES_SHARE * self.size - self.taken
        fits = size <= min(FILE_SHARE * self.size, left)
        self.taken += size if fits else 0
        return fits

    def writes(self, cells: int) -> bool:
        """Whether files of so many cells may be small enough to be made."""
        return cells <= WRITTEN_SHARE * self.size


class Answer:
    """The answer to a statement, as far as it is told.

    Args:
        facts: what is public about the release.
        frames: its answers.
        name: the statement.
        file: what its files are called.
        room: what there is room for.
    """

    def __init__(
        self, facts: Facts, frames: SupportedFrames, name: str, file: str, room: Room
    ) -> None:
        self.name, self._file, self._room = name, file, room
        self.warnings: list[str] = []
        self.left_out: list[str] = []
        self._facts, self._frames = facts, frames
        self._described = frames.columns(name)
        self._frame, self._marks, self._is_whole = self._found()
        self.shown = self._table()
        self.document = metadata.of_statement(facts, frames, name, self._frame.schema)

    def _found(self) -> tuple[pl.DataFrame, pl.DataFrame, bool]:
        """Return the frame, or its first rows if it is too large, and marks of its values."""
        try:
            if self._is_plain:
                frame = self._frames.frame(self.name)
                return frame, noise_marked(frame, self._values), True
            return *shown_and_marked(self._frames, self.name), True
        except ResourceLimitError:
            head, is_whole = next(self._frames.batches(self.name, MOST_ROWS)), False
        except DpsqlError:  # what was loaded can't always be answered again
            head, is_whole = self._frames.frame(self.name), True
        return head, noise_marked(head, self._values), is_whole

    @property
    def _values(self) -> list[str]:
        described = self._described
        return described.filter(pl.col("role") == "value")["column"].to_list()

    @property
    def _is_plain(self) -> bool:
        """Whether a frame tells by itself how its values are marked.

        Sums of counts are neither quotients nor quantiles. Of others it takes the statement to be
        answered again, after loading, which takes longer than all the rest of a report.
        """
        kinds = self._described.filter(pl.col("role") == "value")["variance"]
        return not isinstance(self._frames, SuppressedFrames) and kinds.eq("exact").all()

    @property
    def rows(self) -> int | None:
        """How many rows there are; None if there are too many to be held."""
        return self._frame.height if self._is_whole else None

    @property
    def values(self) -> int:
        """How many values could be marked."""
        return self._marks.height * self._marks.width

    @property
    def noisy(self) -> int:
        """How many are."""
        return self.values - sum(self._marks[name].null_count() for name in self._marks.columns)

    @property
    def marks(self) -> set[str]:
        """With what."""
        return {
            mark
            for name in self._marks.columns
            for mark in self._marks[name].drop_nulls().unique().to_list()
        }

    @property
    def meanings(self) -> list[tuple[str, str]]:
        """What each column of the files means."""
        found = metadata.meanings(self._frame.schema, self._described, self._facts.confidence)
        return [(each.column, f"{each.meaning} ({each.type[:60]})") for each in found]

    def picture(self) -> Picture | None:
        """Draw the answer, if there is a picture that fits."""
        self._room.told += 1
        if not self._is_whole:
            return None
        if self._room.pictures <= 0:
            self.left_out.append(f"Only the first {MOST_PICTURES} pictures are drawn.")
            return None
        found = chart_of(
            self._frame, self._described, self._facts.confidence, panels=self._room.panels
        )
        if found is None:
            return None
        self._room.pictures -= len(found.panels)
        panels = [Drawing(drawn(panel.spec), panel.title) for panel in found.panels]
        return Picture(panels, found.words)

    def downloads(self) -> list[Download]:
        """Return the answer as files, as far as there is room."""
        if not self._is_whole or not self._room.writes(self._frame.height * self._frame.width):
            self.left_out.append("Its files would be too large for this page. " + ELSEWHERE)
            return []
        made = [
            Download(f"{self._file}.csv", "CSV", "text/csv", csv_text(self._frame).encode()),
            Download(
                f"{self._file}.parquet",
                "Parquet",
                "application/vnd.apache.parquet",
                bytes(parquet_bytes(self._frame)),
            ),
        ]
        kept = [each for each in made if self._room.takes(len(each.content))]
        gone = [each.form for each in made if each not in kept]
        if gone:
            said = "There was no more room in this page for its "
            self.left_out.append(f"{said}{' and '.join(gone)} file. {ELSEWHERE}")
        return kept

    def _table(self) -> Shown:
        """Lay out the first rows: keys, and each value with its error and its interval."""
        layout = _Layout(self._frame.columns, self._described, self._facts.confidence)
        head = self._frame.head(self._room.rows(len(layout.columns)))
        names = {name: i for i, name in enumerate(head.columns)}
        marks = self._marks.head(head.height).to_dicts() or [{}] * head.height
        rows = [
            [part.cell(row, names, mark) for part in layout.parts]
            for row, mark in zip(shown_rows(head), marks, strict=True)
        ]
        return Shown(layout.columns, rows, self.rows)


@dataclass(frozen=True, slots=True)
class _TablePart:
    """A column of the table, and of which columns of the frame it is made."""

    column: Column
    name: str
    kind: str
    """`key`, `value`, `error` or `interval`."""

    def cell(
        self, row: Sequence[object], names: dict[str, int], marks: dict[str, str | None]
    ) -> Cell:
        """Word what a row has there."""
        if self.kind == "error":
            return Cell(_error(row[names[f"{self.name}_variance"]]))
        if self.kind == "interval":
            ends = [row[names[f"{self.name}_{end}"]] for end in ("lower", "upper")]
            return Cell(NOT_KNOWN if None in ends else " to ".join(map(_worded, ends)))
        value = row[names[self.name]]
        if self.kind == "key":
            return Cell(_cut(word(value)))
        return Cell(_worded(value), marks.get(self.name) or "")


class _Layout:
    """The columns of a table, as they are read: a value beside its error and its interval."""

    def __init__(
        self, columns: Sequence[str], described: pl.DataFrame, confidence: float | None
    ) -> None:
        said = {row["column"]: row["role"] for row in described.iter_rows(named=True)}
        share = f"{100 * (confidence or CONFIDENCE):g} % interval"
        self.parts: list[_TablePart] = []
        for name in columns:
            role = said.get(name)
            if role is None:
                continue
            self._add(name, name, "key" if role == "key" else "value")
            if role != "value":
                continue
            beside = [f"{name}_{end}" for end in ("variance", "lower", "upper")]
            own = [each in columns and each not in said for each in beside]
            if own[0]:
                self._add(f"standard error of {name}", name, "error")
            if own[1] and own[2]:
                self._add(f"{share} of {name}", name, "interval")

    @property
    def columns(self) -> list[Column]:
        """What is above the table."""
        return [part.column for part in self.parts]

    def _add(self, title: str, name: str, kind: str) -> None:
        column = Column(_cut(word(title)), numeric=kind != "key", is_key=kind == "key")
        self.parts.append(_TablePart(column, name, kind))


def _worded(value: object) -> str:
    """Write a value, with its thousands apart."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "infinite" if value > 0 else "minus infinite"
        return f"{value:,.2f}" if value == 0 or 0.01 <= abs(value) < 1e15 else f"{value:.3g}"
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return f"{value:,}"
    return "none" if value is None else _cut(plain(value))


def _error(variance: Any) -> str:
    """Write the standard error with two digits."""
    if not isinstance(variance, (int, float)) or math.isnan(variance) or variance < 0:
        return NOT_KNOWN
    if math.isinf(variance):
        return "infinite"
    error = math.sqrt(variance)
    return _worded(shown_value(error, decimals_of(error)))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
