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
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from dpsql.charts.svg import drawn, inline
from dpsql.measurement import measure
from dpsql.release.pictures import chart_of
from tests.docs.pages import blocks
from tests.helpers.seeded import SeededBits

_PICTURE = re.compile(r"^<!-- picture: (\w+) (\w+) -->$", re.MULTILINE)
_PREVIEW = re.compile(r"^\.\. picture: (\w+) (\w+) (\w+)$", re.MULTILINE)
SEED = 20260404
REPORT = "demo-report.html"
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
    drawn = iter(
        figure(values[match[1]], match[2], f"picture{i}") for i, match in enumerate(wanted)
    )
    source[0] = _PICTURE.sub(lambda _: next(drawn), source[0])


def with_previews(app: Any, name: str, source: list[str]) -> None:
    """Put pictures of other pages of its folder into an index that asks for some."""
    folder = (DOCS / name).parent

    def shown(match: re.Match[str]) -> str:
        page, variable, answer = match.groups()
        drawn = figure(run(folder / f"{page}.md")[variable], answer, page)
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


def figure(release: Any, name: str, prefix: str) -> str:
    """Draw an answer, as a figure of HTML with what it shows in words.

    Raises:
        ValueError: there is no picture of such an answer.
    """
    picture = chart_of(release[name], release.columns(name), 0.95)
    if picture is None:
        raise ValueError(f"{name} has no picture")
    words = html.escape(picture.words, quote=True)
    panels = "".join(
        f"<div>{html.escape(panel.title)}{inline(drawn(panel.spec), f'{prefix}-{i}')}</div>"
        for i, panel in enumerate(picture.panels)
    )
    return f'<figure class="picture" role="img" aria-label="{words}">{panels}</figure>\n'


def write_report(app: Any) -> None:
    """Write the report of the demo beside the pages that point to it."""
    from examples import demo

    with contextlib.redirect_stdout(io.StringIO()), seeded():
        place = Path(app.outdir) / REPORT
        place.unlink(missing_ok=True)
        demo.main(place)
