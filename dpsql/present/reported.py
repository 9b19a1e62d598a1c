"""The forms of a release for people to read: pictures, and one page with all that it says.

The code for these is imported where it is needed: most releases are neither drawn nor reported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.answers.facts import Facts
from dpsql.calls import check_path, check_switch, checked
from dpsql.errors import ArgumentError, ReleaseFormatError, printable, shown
from dpsql.hints import option
from dpsql.linalg.threads import one_thread
from dpsql.markup import Html
from dpsql.present.disk import MOST_BYTES, check_file, new_file, system_errors, write
from dpsql.privacy import Ledger

if TYPE_CHECKING:
    import altair

    from dpsql.answers.frames import SupportedFrames
    from dpsql.present.exports import Style


LONGEST_TITLE = 300
LEAST_BYTES = 100_000
"""Bytes that a page may have at least: enough for what a page of few statements always has."""


class Reported(ABC):
    """The readable forms of a release. All of this is post-processing."""

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """The public facts about the release."""

    @property
    @abstractmethod
    def _all(self) -> tuple[SupportedFrames, bytes]:
        """Its answers, and the noisy integers that they follow from."""

    def _repr_html_(self) -> str:
        from dpsql.present.report import release_card

        return release_card(self.facts, self._all[0])

    def beside(self, name: str) -> list[Html]:
        """Return the picture that a notebook shows beside an answer, if there is one."""
        from dpsql.present.report import beside

        frames, _ = self._all
        return beside(self.facts, frames, name, frames.frame(name))

    @checked
    @one_thread
    def report(
        self,
        path: str | Path,
        *,
        title: str | None = None,
        ledger: Ledger | str | Path | None = None,
        style: Style = "plain",
        max_bytes: int = MOST_BYTES,
        overwrite: bool = False,
    ) -> Path:
        """Write one HTML page for people, with all that is in it: it needs no network.

        It says what was asked, what is promised to whom, what was charged, and how exact answers
        are, and has each answer as a table and, as CSV and Parquet, as files. Of a large answer it
        shows the first rows, and says so. It is never larger than `max_bytes`: before that it
        leaves out the largest files, then rows of long tables, then pictures, then tables, and says
        which. It costs nothing. It needs `pip install "dpsql[report]"`.

        Args:
            path: the file, which appears whole or not at all.
            title: what the page is called; by default after the tables.
            ledger: the ledger that has the charge, to say what is spent and left of its total.
            style: how tables are written: `plain`, each value beside its standard error and its
                interval; or `office`, as statistics offices publish them, with the standard error
                in brackets, flags in place of what says nothing, and footnotes.
            max_bytes: how large the file may be.
            overwrite: whether a report that is there is replaced. No other file ever is.

        Returns:
            The file.

        Raises:
            ReleaseFormatError: the file exists, or can't be written; or something that is needed
                is not installed; or `max_bytes` is too little for what a page always has.
            LedgerError: the ledger doesn't hold the charge.
        """
        from dpsql.present.exports import check_style
        from dpsql.present.page import fitted
        from dpsql.present.report import page_of

        check_path(path=path)
        check_switch(overwrite=overwrite)
        check_title(title)
        check_bytes(max_bytes)
        check_style(style)
        place, (frames, measurements) = Path(path), self._all
        check_report(place, overwrite=overwrite)
        account = _account(self.facts, ledger)
        text = fitted(
            page_of(self.facts, frames, measurements, title, account, max_bytes, style), max_bytes
        )
        with new_file(place, replaced=overwrite and place.exists()) as draft:
            write(draft, text)
        return place

    @checked
    @one_thread
    def plot(
        self, name: str, value: str | Sequence[str] | None = None
    ) -> altair.Chart | altair.LayerChart | altair.ConcatChart:
        """Draw the answer to a statement, as a chart of Altair: the picture that its report has.

        One key of labels makes bars, one of numbers or times a line, two keys a heat map. Lines
        and heat maps have a panel for each group of further keys, and each value has panels of its
        own: several make a `ConcatChart`. Intervals are those of the answer; else there is one
        standard error to each side. Of more rows or panels than can be told apart it shows the
        largest, or along a line means, and says so. It costs nothing. It needs
        `pip install "dpsql[plots]"`; `.save("by_sex.svg")` writes a file.

        Args:
            name: the statement.
            value: which of its values, one or several; by default the first six.

        Raises:
            KeyError: there is no such statement.
            PlotError: no picture fits it, it has no such values, or Altair is not installed.
            ResourceLimitError: its frame is too large.
        """
        from dpsql.answers.frames import as_read
        from dpsql.charts.plots import plotted_panels
        from dpsql.present.pictures import chart_wanted

        frames, _ = self._all
        described, confidence = frames.columns(name), self.facts.confidence
        frame, marks = as_read(frames, name)
        chart = chart_wanted(name, frame, described, confidence, value, marks)
        return plotted_panels(chart, name)


def check_title(title: object) -> None:
    """Refuse a title that is none.

    Raises:
        ArgumentError: it isn't a short text.
    """
    if title is None or (isinstance(title, str) and 0 < len(title.strip()) <= LONGEST_TITLE):
        return
    raise ArgumentError(
        f"title is a text of 1 to {LONGEST_TITLE} characters, not {shown(title)[:60]}.",
        hint="for example " + option("title", "People by region") + ".",
    )


def check_bytes(max_bytes: object) -> None:
    """Refuse a size that no page has.

    Raises:
        ArgumentError: it isn't a whole number, or too small.
    """
    is_whole = isinstance(max_bytes, int) and not isinstance(max_bytes, bool)
    if is_whole and max_bytes >= LEAST_BYTES:  # type: ignore[operator]
        return
    raise ArgumentError(
        f"max_bytes is a whole number of at least {LEAST_BYTES:,}, not {shown(max_bytes)[:60]}.",
        hint="for example " + option("max_bytes", MOST_BYTES) + ".",
    )


def check_report(path: Path, *, overwrite: bool = False, max_bytes: int = MOST_BYTES) -> None:
    """Check that a report could be written, before anything is charged for what is in it.

    Raises:
        ArgumentError: it may not be as large as any is.
        ReleaseFormatError: it can't.
    """
    from dpsql.present.page import needed

    check_bytes(max_bytes)
    needed()
    with system_errors(path):
        ours = _is_ours(path)
        if not overwrite and ours:
            raise ReleaseFormatError(
                f"{printable(str(path))} exists already.",
                hint="pass " + option("overwrite", True) + " if this report may be replaced.",
            )
        if overwrite and (path.exists() or path.is_symlink()) and not ours:
            raise ReleaseFormatError(
                f"{printable(str(path))} is not a report.",
                hint="name another file, or remove this one yourself.",
            )
        if not ours:
            check_file(path)


def _is_ours(path: Path) -> bool:
    from dpsql.present.page import is_report

    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return is_report(file.read(10_000))


def _account(facts: Facts, ledger: Ledger | str | Path | None) -> Ledger | None:
    """Return the ledger, if it is one that has the charge."""
    if ledger is None:
        return None
    if not isinstance(ledger, Ledger):
        charged_in = "" if facts.receipt is None else facts.receipt.ledger
        ledger = Ledger.existing(ledger, identity=charged_in)
    if facts.receipt is not None:
        ledger.verify(facts.receipt)
    return ledger
