"""One statement's answer as a report has it: its first rows, their marks, and files."""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from dpsql.charts.specs import Grid
from dpsql.charts.svg import drawn
from dpsql.errors import ResourceLimitError
from dpsql.planner.plans.plan import digits
from dpsql.release import metadata
from dpsql.release.disk import MOST_BYTES
from dpsql.release.facts import Facts
from dpsql.release.forms import csv_text, parquet_bytes
from dpsql.release.layouts import MOST_PANELS
from dpsql.release.marks import SupportedFrames, as_read, noise_marked
from dpsql.release.pictures import chart_of
from dpsql.release.publication import Answered, Style
from dpsql.report.page import ELSEWHERE, Download, Picture

MOST_ROWS = 500
"""Rows of an answer that are shown."""
LEAST_ROWS = 20
MOST_CELLS = 60_000
"""Cells of all tables together."""
FILE_SHARE, FILES_SHARE, WRITTEN_SHARE = 0.15, 0.3, 0.02
"""Of its bytes those of a file, of all of them together, and cells of an answer with files."""
MOST_PICTURES, LEAST_PANELS = 48, 6
"""Panels of all pictures together, as many as are drawn within two seconds; and of one of them."""


@dataclass(slots=True)
class Room:
    """The room in a page for rows, pictures and files."""

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
        style: how its table is written.
    """

    def __init__(
        self,
        facts: Facts,
        frames: SupportedFrames,
        name: str,
        file: str,
        room: Room,
        style: Style = "plain",
    ) -> None:
        self.name, self._file, self._room = name, file, room
        self.warnings: list[str] = []
        self.left_out: list[str] = []
        self._facts, self._frames = facts, frames
        self._described = frames.columns(name)
        read, self._marks, self._is_whole = self._found()
        self._frame = frames.frame(name) if self._is_whole else read
        self._read = Answered(read, self._marks, self._described, facts.confidence)
        most = room.rows(len(self._described))
        self.shown = self._read.table(style, most, self.rows)
        self.footnotes = self._read.footnotes(self.shown) if style == "office" else []
        self.document = metadata.of_statement(facts, frames, name, self._frame.schema)

    def _found(self) -> tuple[pl.DataFrame, pl.DataFrame, bool]:
        """Return the frame, or its first rows if it is too large, and marks of its values."""
        try:
            return *as_read(self._frames, self.name), True
        except ResourceLimitError:
            head = next(self._frames.batches(self.name, MOST_ROWS))
        values = self._described.filter(pl.col("role") == "value")["column"].to_list()
        return head, noise_marked(head, values), False

    @property
    def rows(self) -> int | None:
        """The number of rows; None if there are too many to be held."""
        return self._frame.height if self._is_whole else None

    @property
    def values(self) -> int:
        """The number of values that could be marked."""
        return self._marks.height * self._marks.width

    @property
    def noisy(self) -> int:
        """The number of values that are marked."""
        return self.values - sum(self._marks[name].null_count() for name in self._marks.columns)

    @property
    def marks(self) -> set[str]:
        """The marks that values have."""
        return {
            mark
            for name in self._marks.columns
            for mark in self._marks[name].drop_nulls().unique().to_list()
        }

    @property
    def errors(self) -> dict[str, str]:
        """Column of values → how far off they are, in their own unit: half of them, and the most.

        Where standard errors aren't known, it is half of the width of intervals.
        """
        found = {}
        for name in self._marks.columns:
            if f"{name}_variance" in self._frame.columns:
                off, sure = self._frame[f"{name}_variance"].sqrt(), ""
                if off.null_count() == off.len() and f"{name}_upper" in self._frame.columns:
                    off = (self._frame[f"{name}_upper"] - self._frame[f"{name}_lower"]) / 2
                    sure = f" at {100 * (self._facts.confidence or 0):g} %"
                found[name] = _off(off.drop_nulls(), sure)
        return {name: said for name, said in found.items() if said}

    @property
    def meanings(self) -> list[tuple[str, str]]:
        """The meaning of each column of the files."""
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
            self._read.frame,
            self._described,
            self._facts.confidence,
            panels=self._room.panels,
            marks=self._read.marks,
        )
        if found is None:
            return None
        self._room.pictures -= len(found.panels)
        grids = [panel.shown for panel in found.panels if isinstance(panel.shown, Grid)]
        told = [grid.has_numbers and grid.tells_errors for grid in grids]
        squares = sum(len(grid.squares) for grid in grids)
        is_table = bool(grids) and all(told) and squares == self._marks.height * self._marks.width
        return Picture(drawn(found), found.legend if is_table else found.words, is_table)

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


def _off(errors: pl.Series, sure: str) -> str:
    """Say by how much values are off; nothing if that isn't known."""
    half, most = errors.median(), errors.max()
    if not isinstance(half, float) or not isinstance(most, float) or not math.isfinite(most):
        return ""
    if most == 0:
        return "" if sure else "exact"
    further = "" if digits(half) == digits(most) else f", at most ± {digits(most)}"
    return f"± {digits(half)}{further}{sure}"
