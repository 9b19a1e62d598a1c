"""The page of a release, made of facts and answers, and its card in notebooks.

A page is read by people, and it has to open in any browser. So of large answers it has the first
rows, and no file that would make it larger than some megabytes; each time it says so.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice

import polars as pl

from dpsql.answers.facts import Facts, now
from dpsql.answers.frames import DIVIDED, NOISE, SUPPRESSED, SupportedFrames, as_read, noise_marked
from dpsql.charts.plots import inlined
from dpsql.charts.specs import Grid
from dpsql.charts.svg import drawn
from dpsql.errors import DpsqlError, ResourceLimitError, printable
from dpsql.markup import Html, card, facts
from dpsql.planner.plans.plan import digits
from dpsql.present import formats
from dpsql.present.account import left_of, share_spent, spent_of, total_of
from dpsql.present.disk import MOST_BYTES, as_json, plain_names
from dpsql.present.exports import METADATA, Answered, Style
from dpsql.present.formats import csv_text, parquet_bytes
from dpsql.present.page import ELSEWHERE, Cell, Column, Download, Page, Picture, Section, Shown
from dpsql.present.pictures import MOST_PANELS, chart_of
from dpsql.present.records import lines_of
from dpsql.present.shown import MOST_UNFOLDED, answer_table
from dpsql.present.summary import (
    budget_forms,
    charged_words,
    how_measured,
    in_all,
    limits,
    not_protected,
    promised,
)
from dpsql.privacy import Ledger

# ── One statement's answer as a report has it: its first rows, their marks, and files ────────────


MOST_ROWS = 500
"""Rows of an answer that are shown."""
LEAST_ROWS = 20
MOST_CELLS = 60_000
"""Cells of all tables together."""
FILE_SHARE, FILES_SHARE, WRITTEN_SHARE = 0.15, 0.3, 0.02
"""Shares of its bytes: a file, all files together, and cells of an answer with files."""
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
        self.document = formats.of_statement(facts, frames, name, self._frame.schema)

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
        errors_of_columns = {}
        for name in self._marks.columns:
            if f"{name}_variance" in self._frame.columns:
                off, sure = self._frame[f"{name}_variance"].sqrt(), ""
                ends = self._frame.schema.get(f"{name}_upper")
                if off.null_count() == off.len() and ends is not None and ends.is_numeric():
                    off = (self._frame[f"{name}_upper"] - self._frame[f"{name}_lower"]) / 2
                    sure = f" at {100 * (self._facts.confidence or 0):g} %"
                errors_of_columns[name] = _off(off.drop_nulls(), sure)
        return {name: said for name, said in errors_of_columns.items() if said}

    @property
    def meanings(self) -> list[tuple[str, str]]:
        """The meaning of each column of the files."""
        meant = formats.meanings(self._frame.schema, self._described, self._facts.confidence)
        return [(each.column, f"{each.meaning} ({each.type[:60]})") for each in meant]

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


LONGEST_SQL = 20_000
DOMINATED = 0.5
"""The share of values that are noise from which on a statement has a warning."""
LEGEND = {
    NOISE: "The value is less than its own standard error away from zero: it may as well be zero.",
    DIVIDED: "The value was divided by one that may be zero but for noise: it says nothing.",
    SUPPRESSED: "The value rests on too few rows, by their noisy number, and is left out.",
}
_OVERVIEW = (
    "statement",
    "rows",
    "standard error",
    "may as well be zero",
)


@dataclass(slots=True)
class _Draft:
    """The parts of a page, collected while statements are told one by one."""

    room: Room
    told: list[Section] = field(default_factory=list)
    overview: list[list[Cell]] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)
    dominated: list[str] = field(default_factory=list)
    documents: dict[str, object] = field(default_factory=dict)


def page_of(
    facts: Facts,
    frames: SupportedFrames,
    measurements: bytes,
    title: str | None,
    account: Ledger | None,
    most: int,
    style: Style = "plain",
) -> Page:
    """Make the page of a release.

    Args:
        facts: what is public about it.
        frames: its answers.
        measurements: the noisy integers, of which a digest is told.
        title: what it is called.
        account: the ledger with its charge, if what is left is told.
        most: bytes, of which files get their share.
        style: how tables are written.
    """
    draft = _Draft(Room(max(len(frames.names), 1), most))
    for number, (name, file) in enumerate(plain_names(frames.names).items(), 1):
        answer = Answer(facts, frames, name, file, draft.room, style)
        _tell(draft, facts, answer, f"answer-{number}")
    tables = facts.tables
    earlier = {e.seq: (e.mu_squared, e.delta or Fraction(0)) for e in facts.charges_before}
    document = {**formats.common(facts), "statements": draft.documents}
    return Page(
        title=title or f"Release of {', '.join(table.name for table in tables)}",
        subtitle=f"Answers with differential privacy, made on {_moment(facts.created)}",
        key_facts=_key_facts(facts),
        warnings=_warnings(facts, draft.dominated),
        promised=promised(facts.budget, tables, facts.neighbours, list(earlier.values())),
        not_protected=not_protected(tables),
        budget=_budget(facts, account),
        spent=None if account is None else share_spent(account),
        overview=Shown(_overview_columns(), draft.overview, len(draft.overview)),
        statements=draft.told,
        provenance=_provenance(facts, measurements),
        downloads=[Download(METADATA, "JSON", "application/json", as_json(document).encode())],
        legend=[
            (mark, said)
            for mark, said in LEGEND.items()
            if mark in draft.marks and style == "plain"
        ],
    )


def _moment(written: str) -> str:
    """Write a time of the form 2026-05-04T03:02:01+00:00 as people read it."""
    return written.replace("T", " ").replace("+00:00", " UTC")


def _tell(draft: _Draft, facts: Facts, answer: Answer, anchor: str) -> None:
    """Tell of one statement."""
    name = answer.name
    sql = facts.statements.get(name, "")
    cut = [] if len(sql) <= LONGEST_SQL else [f"Of its SQL the first {LONGEST_SQL:,} characters."]
    noisy, of = answer.noisy, answer.values
    warnings = list(answer.warnings)
    if of and noisy >= DOMINATED * of:
        draft.dominated.append(name)
        warnings.append(
            f"Noise dominates: {noisy:,} of {of:,} values can't be told from zero, or say nothing. "
            "Look at the larger ones, and at totals."
        )
    errors = answer.errors
    downloads = answer.downloads()
    draft.told.append(
        Section(
            name=name,
            anchor=anchor,
            sql=sql[:LONGEST_SQL],
            errors=[(f"standard error of {column}", said) for column, said in errors.items()],
            notes=facts.notes.get(name, ()),
            warnings=warnings,
            shown=answer.shown,
            footnotes=answer.footnotes,
            picture=answer.picture(),
            left_out=[*cut, *answer.left_out],
            columns=answer.meanings,
            downloads=downloads,
        )
    )
    named = [f"{column} {said}" for column, said in errors.items()]
    told = named if len(named) > 1 else [*errors.values()]
    draft.overview.append(
        [
            Cell(name),
            Cell("not known" if answer.rows is None else f"{answer.rows:,}"),
            Cell("; ".join(told) or "not known"),
            Cell(f"{noisy:,} of {of:,} values" if of else ""),
        ]
    )
    draft.marks |= answer.marks
    draft.documents[name] = answer.document


def _overview_columns() -> list[Column]:
    return [Column(name, name == "rows", name == "statement") for name in _OVERVIEW]


def _key_facts(facts: Facts) -> list[tuple[str, str]]:
    charged = "nothing" if facts.budget is None else str(facts.budget)
    return [
        ("statements", f"{len(facts.statements):,}"),
        ("neighbours", facts.neighbours),
        ("charged", charged),
    ]


def _warnings(facts: Facts, dominated: Sequence[str]) -> list[str]:
    warnings = [] if facts.warning is None else [printable(facts.warning)]
    if facts.biased:
        warnings.append(
            "Answers are biased by an amount that is not known: they were fitted to what was "
            "measured, and have no standard errors."
        )
    if dominated:
        names = ", ".join(dominated[:10])
        more = f" and {len(dominated) - 10:,} more" if len(dominated) > 10 else ""
        warnings.append(f"Noise dominates the answers to {names}{more}.")
    if facts.suppress_below is not None:
        warnings.append(
            f"Values that rest on fewer than {facts.suppress_below:g} rows are left out."
        )
    return warnings


def _budget(facts: Facts, account: Ledger | None) -> list[tuple[str, str]]:
    if facts.budget is None:
        facts_of_budget = [
            ("charged", "nothing: all follows from earlier releases or from declarations")
        ]
    else:
        facts_of_budget = [("charged", charged_words(facts.budget, facts))]
        facts_of_budget.append(("the same as", "; ".join(budget_forms(facts.budget))))
    everything = in_all(facts)
    if everything is not None:
        facts_of_budget.append(("in all", everything))
    if account is None:
        return [*facts_of_budget, ("left", "not told here: the ledger was not at hand")]
    facts_of_budget.append(("spent until now", spent_of(account)))
    total, left = total_of(account), left_of(account)
    if total is None:
        return [*facts_of_budget, ("total", "not fixed: spending is recorded and not limited")]
    facts_of_budget.append(("left", left if account.remaining and left else "nothing"))
    return [*facts_of_budget, ("total", total), ("as of", now())]


def _provenance(facts: Facts, measurements: bytes) -> list[tuple[str, str]]:
    provenance = [*how_measured(facts), *limits(facts), *lines_of(facts, "Privacy", "page")]
    digest = hashlib.sha256(measurements).hexdigest()
    return [*provenance, ("SHA-256 of the noisy integers", digest)]


# ── A release as a card in notebooks: the first rows of its answers, and their pictures ──────────


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
