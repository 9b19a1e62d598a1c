"""Pictures on pages: a page's Python is run, and its releases are drawn where the page says so.

A page has `<!-- picture: release by_sex -->` where the answer `by_sex` of the release in its
variable `release` is to be drawn; who reads the page elsewhere doesn't see that. An index has
`.. picture: adult release by_sex` for that of another page of its folder. The noise has a fixed
seed, so that the site is the same whenever it is built.
"""

from __future__ import annotations

import contextlib
import html
import io
import re
import tempfile
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from dpsql.answers.frames import as_read
from dpsql.charts.svg import drawn, panel
from dpsql.measurement import measure
from dpsql.present.exports import Answered, whole
from dpsql.present.pictures import chart_of
from tests.docs.pages import blocks
from tests.helpers.seeded import SeededBits

_PICTURE = re.compile(r"^<!-- picture: (\w+) (\w+) -->$", re.MULTILINE)
_PREVIEW = re.compile(r"^\.\. picture: (\w+) (\w+) (\w+)$", re.MULTILINE)
SEED = 20260404
REPORT = "demo-report.html"
ROWS = 6
"""Of an answer that a page has below its picture."""
DOCS = Path(__file__).parents[1]


def with_contents(app: Any, name: str, source: list[str]) -> None:
    """Give the first page the parts of the site, which its readers see above each page."""
    if name == "index":
        parts = ("tutorial", "how-to", "reference", "explanation", "gallery", "coming-from")
        listed = "\n".join(f"{part}/index" for part in parts)
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def with_pictures(app: Any, name: str, source: list[str]) -> None:
    """Put pictures into a page that asks for some."""
    wanted = list(_PICTURE.finditer(source[0]))
    if not wanted:
        return
    values = run(DOCS / f"{name}.md")
    there = " ".join(source[0].split())

    def shown(match: re.Match[str]) -> str:
        release, answer = values[match[1]], match[2]
        sql = textwrap.dedent(release.facts.statements[answer]).strip()
        asked = "" if " ".join(sql.split()) in there else f"```sql\n{sql}\n```\n\n"
        return f"{asked}{figure(release, answer)}\n{table(release, answer)}"

    source[0] = _PICTURE.sub(shown, source[0])


def with_previews(app: Any, name: str, source: list[str]) -> None:
    """Put pictures of other pages of its folder into an index that asks for some."""
    folder = (DOCS / name).parent

    def shown(match: re.Match[str]) -> str:
        page, variable, answer = match.groups()
        drawn = figure(run(folder / f"{page}.md")[variable], answer)
        return ".. raw:: html\n\n   " + drawn.replace("\n", "\n   ").rstrip()

    source[0] = _PREVIEW.sub(shown, source[0])


@cache
def run(page: Path) -> dict[str, Any]:
    """Run a page's Python in an empty folder, with seeded noise, once; return its variables.

    The folder is gone afterwards: what has been released can still be drawn.
    """
    values: dict[str, Any] = {"__name__": "page"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), seeded():
        for block in blocks(page):
            if block.language == "python":
                code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(code, values)  # noqa: S102  the pages are ours
    return values


@contextlib.contextmanager
def seeded() -> Iterator[None]:
    """Draw noise from the seed: for pages that show how answers look, and for nothing private."""
    fresh, bits = measure.fresh_bits, SeededBits(SEED)
    measure.fresh_bits = lambda: bits  # type: ignore[assignment,return-value]
    try:
        yield
    finally:
        measure.fresh_bits = fresh


def figure(release: Any, name: str) -> str:
    """Draw an answer, as a figure of HTML with what it shows in words.

    Raises:
        ValueError: there is no picture of such an answer.
    """
    frame, marks = as_read(release._all[0], name)
    picture = chart_of(frame, release.columns(name), 0.95, marks=marks)
    if picture is None:
        raise ValueError(f"{name} has no picture")
    words = html.escape(picture.words, quote=True)
    if not any("<svg" in panel(each) for each in picture.panels):
        return (
            f'<figure class="picture">{drawn(picture)}<figcaption>{words}</figcaption></figure>\n'
        )
    return f'<figure class="picture" role="img" aria-label="{words}">{drawn(picture)}</figure>\n'


def table(release: Any, name: str) -> str:
    """Write the first rows of an answer, each value with its standard error and its interval."""
    frame, marks = as_read(release._all[0], name)
    answered = Answered(frame, marks, release.columns(name), 0.95)
    found = answered.table("plain", ROWS)
    head = "".join(f"<th>{html.escape(' '.join((c.name, *c.beside)))}</th>" for c in found.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{html.escape(whole(cell))}</td>' for cell in row)}</tr>"
        for row in found.rows
    )
    more = f"<p>The first {ROWS} of {frame.height:,} rows.</p>\n" if frame.height > ROWS else ""
    return (
        f'<div class="answer" tabindex="0" role="region" aria-label="The answer {name}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n{more}"
    )


def write_report(app: Any) -> None:
    """Write the report of the demo beside the pages that point to it."""
    from examples import demo

    with contextlib.redirect_stdout(io.StringIO()), seeded():
        place = Path(app.outdir) / REPORT
        place.unlink(missing_ok=True)
        demo.main(place)
