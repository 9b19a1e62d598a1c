"""A page as HTML, which asks nothing of any other place.

Every text is escaped, by Jinja2 or for the many cells of tables here, and characters that could
disguise what is shown are replaced. The one thing that is put in as it is are pictures, in which
`dpsql/charts/svg.py` has escaped every text. There is no script, and a policy in the page forbids
browsers to run one or to load anything: so even what got past all that could not ask a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from dpsql.charts.svg import text
from dpsql.errors import ReleaseFormatError, printable
from dpsql.report.page import Cell, Column, Page, Shown

if TYPE_CHECKING:
    from jinja2 import Environment

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
