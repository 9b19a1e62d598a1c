"""A page that is no larger than it may be: what is left out of one that would be, and said to be.

Left out are, in this order and of each the largest first, files, rows of tables after the first
`KEPT_ROWS`, pictures, and whole tables. What a page always has is what was asked and promised, what
it was charged, errors, warnings, and where all comes from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dpsql.errors import ReleaseFormatError
from dpsql.hints import Hint
from dpsql.report.page import Download, Page, Section, Shown
from dpsql.report.render import rendered

KEPT_ROWS = 20
FILE, ROWS, PICTURE, TABLE = range(4)
"""What may be left out, in the order in which it is."""
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
    """Of a file, which one."""


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
    found = []
    for part in parts:
        found.append(part)
        over -= part.size
        if over <= 0:
            break
    return found


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
    own: dict[int | None, list[_LeftOut]] = {}
    for part in parts:
        own.setdefault(part.section, []).append(part)
    kept = _kept(page.downloads, own.get(None, ()))
    told = [_shorter(section, own.get(i, ())) for i, section in enumerate(page.statements)]
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
