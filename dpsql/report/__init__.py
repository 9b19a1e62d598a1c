"""One self-contained page about a release, as HTML: what it has, and how that is written."""

from dpsql.report.page import (
    ELSEWHERE,
    Cell,
    Column,
    Download,
    Page,
    Picture,
    Section,
    Shown,
    fitted,
    is_report,
    needed,
    rendered,
)

__all__ = [
    "ELSEWHERE",
    "Cell",
    "Column",
    "Download",
    "Page",
    "Picture",
    "Section",
    "Shown",
    "fitted",
    "is_report",
    "needed",
    "rendered",
]
