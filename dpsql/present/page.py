"""Page of a report: what it has, as plain texts, how that is written as HTML, and kept small."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from dpsql.charts.svg import text
from dpsql.errors import ReleaseFormatError, printable
from dpsql.hints import Hint

if TYPE_CHECKING:
    from jinja2 import Environment


# ── Parts of a page, as plain texts: it knows nothing of releases, frames or plans ───────────────
#
# None of the texts is HTML. All are escaped where they are written, see `rendered`.


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
    """The number of rows; None if that isn't known, and more than are shown."""

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
        """The note that rows are missing; empty where none are."""
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
        """The size of the content, in words."""
        count = len(self.content)
        return f"{count:,} bytes" if count < 10_000 else f"{count / 1000:,.0f} kB"

    @property
    def address(self) -> str:
        """The file itself, as an address that needs no network."""
        return f"data:{self.media};base64,{base64.b64encode(self.content).decode()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The section of a report about one statement."""

    name: str
    anchor: str
    """Its place in the page: of letters, digits and dashes."""
    sql: str
    errors: Sequence[tuple[str, str]] = ()
    """Expected errors, and those that there are."""
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    shown: Shown | None = None
    footnotes: Sequence[str] = ()
    """Meanings of signs in the table."""
    picture: Picture | None = None
    left_out: Sequence[str] = ()
    """Things that are not in the page, and why."""
    gone: Sequence[str] = ()
    """Parts that are left out for the size of the page."""
    columns: Sequence[tuple[str, str]] = ()
    """Column → its meaning."""
    downloads: Sequence[Download] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The contents of a report, in the order of the page."""

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
    """Mark → its meaning."""
    fitted: str = ""
    """The note on all that is left out for the size of the page."""

    @property
    def files(self) -> list[Download]:
        """All files in the page."""
        return [*(d for each in self.statements for d in each.downloads), *self.downloads]

    def as_mapping(self) -> dict[str, Any]:
        """Return its parts by name."""
        return {name: getattr(self, name) for name in (*self.__slots__, "files")}


# ── A page as HTML, which asks nothing of any other place ────────────────────────────────────────
#
# Every text is escaped, by Jinja2 or for the many cells of tables here, and characters that could
# disguise what is shown are replaced. The one thing that is put in as it is are pictures, in which
# `dpsql/charts/svg.py` has escaped every text. There is no script, and a policy in the page forbids
# browsers to run one or to load anything: so even what got past all that could not ask a server.


MARK = '<meta name="generator" content="dpsql report">'
"""By what a report is known."""
WITHIN = 2_000
"""The bytes in which the mark stands."""
TEMPLATES = "templates"


def needed() -> None:
    """Check that what reports are made with is installed.

    Raises:
        ReleaseFormatError: it isn't.
    """
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise ReleaseFormatError(
            f"{error.name} is not installed, which reports are made with.",
            hint='pip install "dpsql[report]"',
        ) from None


def is_report(head: bytes) -> bool:
    """Whether a file that begins so is a report."""
    return MARK.encode() in head[:WITHIN]


def rendered(page: Page) -> str:
    """Write a page as HTML.

    Raises:
        ReleaseFormatError: Jinja2 is not installed.
    """
    needed()
    return _environment().get_template("report.html").render(**page.as_mapping())


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> object:
        """Replace what could disguise a text; the lines of a text stay."""
        if isinstance(value, Markup) or not isinstance(value, str):
            return value
        return "\n".join(map(printable, value.split("\n")))

    environment = Environment(
        autoescape=True,
        finalize=shown,
        loader=FunctionLoader(_template),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals["mark"] = Markup(MARK)  # noqa: S704 (ours)
    environment.filters["drawn"] = lambda picture: Markup(picture.content)  # noqa: S704
    environment.filters["rows"] = lambda shown, anchors: Markup(_rows(shown, anchors))  # noqa: S704
    return environment


def _rows(shown: Shown, anchors: Sequence[str] | None) -> str:
    """Write the rows of a table, of which there may be very many."""
    parts = []
    for at, row in enumerate(shown.rows):
        cells = "".join(map(_cell, shown.columns, row))
        if anchors is not None:
            name = text(row[0].text)
            cells = cells.replace(f">{name}<", f'><a href="#{text(anchors[at])}">{name}</a><', 1)
        parts.append(f"<tr>{cells}</tr>")
    return "\n".join(parts)


def _cell(column: Column, cell: Cell) -> str:
    said = text(cell.text)
    if cell.beside:
        said += "".join([f"<i>{text(each)}</i>" for each in cell.beside])
    if cell.mark:  # before a number, so that numbers stay below one another
        said = f'<span class="mark">{text(cell.mark)}</span> {said}'
    look = f' class="{column.look}"' if column.numeric else ""
    if column.is_key:
        return f'<th scope="row"{look}>{said}</th>'
    return f"<td{look}>{said}</td>"


def _template(name: str) -> str:
    return (resources.files(__package__) / TEMPLATES / name).read_text(encoding="utf-8")


# ── A page that is no larger than it may be: what is left out of one that would be, and said to be
#
# Left out are, in this order and of each the largest first, files, rows of tables after the first
# `KEPT_ROWS`, pictures, and whole tables. What a page always has is what was asked and promised,
# what it was charged, errors, warnings, and where all comes from.


KEPT_ROWS = 20
FILE, ROWS, PICTURE, TABLE = range(4)
"""Parts that may be left out, in the order in which they are."""
_NAMES = {FILE: "file", ROWS: "long table", PICTURE: "picture", TABLE: "table"}
_CELL, _BESIDE, _LINK = 32, 7, 300
"""Bytes of HTML around a cell, what stands beside it, and a file with its checksum; about."""


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """Something that may be, and how large it is."""

    kind: int
    size: int
    """Bytes, about."""
    section: int | None
    """The statement that it is of; None if it is of the whole page."""
    download: int = 0
    """The number of the file to download, if it is one."""


def fitted(page: Page, most: int) -> bytes:
    """Write a page as HTML of at most so many bytes.

    Raises:
        ReleaseFormatError: that is too little even for what a page always has.
    """
    gone: Counter[int] = Counter()
    made = page
    while len(text := rendered(made).encode()) > most:
        parts = sorted(_parts(made), key=lambda part: (part.kind, -part.size))
        if not parts:
            raise _too_small(len(text), most)
        chosen = _enough(parts, len(text) - most)
        gone.update(part.kind for part in chosen)
        made = _without(made, chosen)
        made = replace(made, fitted=_said(gone, most))
    return text


def _too_small(size: int, most: int) -> ReleaseFormatError:
    enough = -(-size // 10_000) * 10_000
    return ReleaseFormatError(
        f"The page has {size:,} bytes without files, pictures and tables, and may have {most:,}. "
        "Nothing was written.",
        hint=Hint(
            f"pass max_bytes={enough}.",
            f"write it from the release on disk: dpsql report DIR --max-bytes {enough}.",
            f"write it in Python: release.report(…, max_bytes={enough}).",
        ),
    )


def _enough(parts: Sequence[_LeftOut], over: int) -> list[_LeftOut]:
    """Return the first parts, as many as the page is too large by."""
    enough = []
    for part in parts:
        enough.append(part)
        over -= part.size
        if over <= 0:
            break
    return enough


def _parts(page: Page) -> Iterable[_LeftOut]:
    for i, each in enumerate(page.downloads):
        yield _LeftOut(FILE, _size_of(each), None, i)
    for number, section in enumerate(page.statements):
        for i, each in enumerate(section.downloads):
            yield _LeftOut(FILE, _size_of(each), number, i)
        if section.shown is not None:
            rows = section.shown.rows
            if len(rows) > KEPT_ROWS:
                yield _LeftOut(ROWS, _size_of_rows(section.shown, KEPT_ROWS), number)
            yield _LeftOut(TABLE, _size_of_rows(section.shown, 0), number)
        if section.picture is not None:
            yield _LeftOut(PICTURE, len(section.picture.content), number)


def _size_of(file: Download) -> int:
    return 4 * len(file.content) // 3 + _LINK


def _size_of_rows(shown: Shown, first: int) -> int:
    cells = (cell for row in shown.rows[first:] for cell in row)
    return sum(
        len(cell.text) + len(cell.mark) + _CELL + sum(len(each) + _BESIDE for each in cell.beside)
        for cell in cells
    )


def _without(page: Page, parts: Sequence[_LeftOut]) -> Page:
    """Leave parts out, and say in their statements which."""
    left_out: dict[int | None, list[_LeftOut]] = {}
    for part in parts:
        left_out.setdefault(part.section, []).append(part)
    kept = _kept(page.downloads, left_out.get(None, ()))
    told = [_shorter(section, left_out.get(i, ())) for i, section in enumerate(page.statements)]
    return replace(page, downloads=kept, statements=told)


def _kept(downloads: Sequence[Download], parts: Sequence[_LeftOut]) -> list[Download]:
    gone = {part.download for part in parts if part.kind == FILE}
    return [each for i, each in enumerate(downloads) if i not in gone]


def _shorter(section: Section, parts: Sequence[_LeftOut]) -> Section:
    kinds = {part.kind for part in parts}
    kept = _kept(section.downloads, parts)
    said = [f"{each.form} file" for each in section.downloads if each not in kept]
    shown = section.shown
    if TABLE in kinds:
        shown = None
        said.append("table")
    elif ROWS in kinds and shown is not None:
        shown = replace(shown, rows=shown.rows[:KEPT_ROWS])
        said.append(f"rows after the first {KEPT_ROWS}")
    if PICTURE in kinds:
        said.append("picture")
    return replace(
        section,
        downloads=kept,
        shown=shown,
        picture=None if PICTURE in kinds else section.picture,
        gone=[*section.gone, *said],
    )


def _said(gone: Counter[int], most: int) -> str:
    """Say what is left out of the page, and where that is to be had."""
    listed = [
        f"{gone[kind]:,} {name}{'s' * (gone[kind] != 1)}"
        for kind, name in _NAMES.items()
        if gone[kind]
    ]
    return (
        f"This page may have at most {most:,} bytes, so the largest parts are left out: first "
        f"files, then rows of tables after the first {KEPT_ROWS}, then pictures, then tables. Here "
        f"these are {', '.join(listed)}; each statement says what it lacks. Release.to_csv and "
        "to_parquet write all answers, and Release.plot draws them."
    )
