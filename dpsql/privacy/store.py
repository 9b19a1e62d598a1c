"""The interface of a store of ledgers: transactions with a checked history. Trusted.

What a ledger says is a chain of events, and `History` knows which are possible. `Ledger` decides
what is written. A store knows neither budgets nor purposes: it keeps lines and contents, so that
what was read, what was decided on it and what is written are one. `sqlite` has one in files.

Guarantees:
    Every `Store` promises these, and says in its own folder how it keeps them.

    1. The history that a transaction starts with was read and checked in it: an unbroken chain of
       possible events, none missing at the end, which holds what this object saw before and is of
       the ledger that was opened.
    2. Between the beginning of `writing` and its end nobody else writes to this ledger. When its
       block has ended, what was written is durable; if the block raises, nothing of it is.
    3. Lines and contents are only ever appended.
    4. `content` returns nothing but the bytes whose digest is in the chain.
    5. Nothing but `LedgerError` comes from the store.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from dpsql.errors import LedgerError
from dpsql.privacy.event import Event, Line
from dpsql.privacy.history import Entry, History


@dataclass(frozen=True, slots=True)
class Audit:
    """The contents of a ledger that a full check found to be in order."""

    entries: int
    """The number of charges."""
    events: int
    """Rows of the chain: totals, bindings, charges, releases, deliveries, and an upgrade."""
    contents: int
    """Releases whose noisy integers are kept."""
    content_bytes: int
    """The size of these together."""


class Reading(Protocol):
    """A transaction that reads."""

    @property
    def history(self) -> History:
        """All that the ledger said when the transaction began, and what was written in it since."""

    def content(self, entry: Entry) -> bytes:
        """Read the content that is kept for an entry which has one.

        Raises:
            LedgerError: it is not there, or is not what the chain says.
        """

    def is_orphaned(self, entry: Entry) -> bool:
        """Tell whether nobody is about to hand out what was measured for an entry."""

    def audit(self) -> Audit:
        """Check everything there is.

        Raises:
            LedgerError: anything is amiss.
        """


class Writing(Reading, Protocol):
    """A transaction that reads and writes."""

    def append(self, event: Event, content: bytes | None = None) -> int:
        """Write an event, with the time, and what is kept for it.

        Returns:
            Its number.

        Raises:
            LedgerError: it is impossible.
        """


class Store(Protocol):
    """One ledger, open."""

    @property
    def id(self) -> str:
        """Its random identity."""

    @property
    def dataset(self) -> str:
        """The name of the data set that it is for."""

    @property
    def path(self) -> Path | None:
        """Its file; None if it is in none."""

    @property
    def place(self) -> str:
        """The place where it is kept, in words."""

    @property
    def is_shared(self) -> bool:
        """Whether it is on a server, which knows whose rows are charged for where."""

    @property
    def most(self) -> int:
        """The most bytes that are kept of one release."""

    def is_bound(self, uid: str) -> bool:
        """Tell whether the server knows that rows with this identity are charged for here."""

    def reading(self) -> AbstractContextManager[Reading]:
        """Open a transaction for reading."""

    def writing(self) -> AbstractContextManager[Writing]:
        """Open a transaction for writing; it is durable when the block has ended."""


def line_after(history: History, event: Event, time: datetime | None = None) -> Line:
    """Take a new event into a history, with the time, and return the line to be written for it.

    Raises:
        LedgerError: it is impossible.
    """
    written = (time or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds")
    return history.follow(replace(event, time=written))


def check_dataset(dataset: object) -> None:
    """Refuse what is not the name of a data set.

    Raises:
        LedgerError: it is not a short text that can be shown.
    """
    if not isinstance(dataset, str) or not 0 < len(dataset) <= 1000 or not dataset.isprintable():
        raise LedgerError(
            "A data set's name must be a short text without control characters.",
            hint='for example dataset="adult".',
        )
