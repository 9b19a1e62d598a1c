"""What a report has, as plain texts: the page knows nothing of releases, frames or plans.

None of the texts is HTML. All are escaped where they are written, see `render.py`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

ERROR = "±"
"""The title above standard errors."""
ELSEWHERE = "Release.to_csv, to_parquet and save write all rows."


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    numeric: bool = False
    is_key: bool = False
    """Whether it says what a row is about."""
    beside: tuple[str, ...] = ()
    """Words for the numbers beside each of its values."""

    @property
    def look(self) -> str:
        """The classes of its numbers in the style sheet: some have an interval alone."""
        return "n q" if self.beside and self.beside[0] != ERROR else "n"


@dataclass(frozen=True, slots=True)
class Cell:
    """A value as it is shown, and how it is marked."""

    text: str
    mark: str = ""
    beside: tuple[str, ...] = ()
    """Numbers beside it: its standard error, its interval."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A table, or its first rows."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    total: int | None = None
    """How many rows there are; None if that isn't known, and more than are shown."""

    @property
    def widths(self) -> str:
        """The widths of standard errors and intervals, as CSS."""
        longest = {True: 0, False: 0}
        for i, column in enumerate(self.columns):
            for j, head in enumerate(column.beside):
                most = max((len(row[i].beside[j]) for row in self.rows), default=0)
                longest[head == ERROR] = max(longest[head == ERROR], most, len(head))
        named = {"--a": longest[True], "--b": longest[False]}
        return ";".join(f"{name}:{size}ch" for name, size in named.items() if size)

    @property
    def is_whole(self) -> bool:
        """Whether all rows are shown."""
        return self.total == len(self.rows)

    @property
    def cut(self) -> str:
        """What is said where rows are missing."""
        if self.is_whole:
            return ""
        of = "too many to be held" if self.total is None else f"{self.total:,}"
        return f"These are the first {len(self.rows):,} rows of {of}. {ELSEWHERE}"


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, and what it shows in words."""

    content: str = field(repr=False)
    """Drawn as HTML, in which every text is escaped."""
    described: str
    is_table: bool = False
    """Whether it has the numbers themselves, with their standard errors."""


@dataclass(frozen=True, slots=True)
class Download:
    """A file inside the page."""

    file: str
    form: str
    """Its format, in words."""
    media: str
    content: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """The SHA-256 of its content."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def size(self) -> str:
        """How large it is, in words."""
        count = len(self.content)
        return f"{count:,} bytes" if count < 10_000 else f"{count / 1000:,.0f} kB"

    @property
    def address(self) -> str:
        """The file itself, as an address that needs no network."""
        return f"data:{self.media};base64,{base64.b64encode(self.content).decode()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What is told of one statement."""

    name: str
    anchor: str
    """Its place in the page: of letters, digits and dashes."""
    sql: str
    errors: Sequence[tuple[str, str]] = ()
    """What was expected, and what it is."""
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    shown: Shown | None = None
    footnotes: Sequence[str] = ()
    """Meanings of signs in the table."""
    picture: Picture | None = None
    left_out: Sequence[str] = ()
    """What is not in the page, and why."""
    gone: Sequence[str] = ()
    """What is left out for the size of the page."""
    columns: Sequence[tuple[str, str]] = ()
    """Column → what it means."""
    downloads: Sequence[Download] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a report has, in the order of the page."""

    title: str
    subtitle: str
    key_facts: Sequence[tuple[str, str]]
    warnings: Sequence[str]
    promised: Sequence[tuple[str, str]]
    """Question → answer."""
    not_protected: Sequence[str]
    budget: Sequence[tuple[str, str]]
    spent: float | None
    """The share of the total that is spent, if there is one."""
    overview: Shown
    """A row for each statement, in order."""
    statements: Sequence[Section]
    provenance: Sequence[tuple[str, str]]
    downloads: Sequence[Download] = ()
    legend: Sequence[tuple[str, str]] = ()
    """Mark → what it means."""
    fitted: str = ""
    """What is said of all that is left out for the size of the page."""

    @property
    def files(self) -> list[Download]:
        """All files in the page."""
        return [*(d for each in self.statements for d in each.downloads), *self.downloads]

    def as_mapping(self) -> dict[str, Any]:
        """Return its parts by name."""
        return {name: getattr(self, name) for name in (*self.__slots__, "files")}
