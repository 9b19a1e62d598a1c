"""Transactions on a ledger, in a file or in memory, each with a checked history. Trusted.

Guarantees:
    1. The history that a transaction starts with was read and checked in it, and holds what this
       object saw before.
    2. When the block of `writing` has ended, what was written in it is on disk; if the block
       raises, nothing of it is. A ledger of format 2 becomes one of the present format with what
       is written first.
    3. Nothing but `LedgerError` comes from the file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.privacy import format2, refusals
from dpsql.privacy.check import read_history
from dpsql.privacy.event import damaged
from dpsql.privacy.history import History
from dpsql.privacy.store import connect, create, ledger_errors


class Transactions:
    """One ledger, open: `id` and `dataset` are known once it was read.

    Args:
        path: its file; None creates it in memory, where it lives as long as this object.
        dataset: the data set that it must be for; "" for whichever it is for.
    """

    def __init__(self, path: Path | None, dataset: str) -> None:
        self.path = path
        self.dataset = dataset
        self.id = ""
        self._seen: tuple[int, str] = (0, "")
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._memory: sqlite3.Connection | None = None
        if path is None:
            self._memory = sqlite3.connect(
                ":memory:", isolation_level=None, check_same_thread=False
            )
            weakref.finalize(self, self._memory.close)
            create(self._memory, dataset)

    @contextmanager
    def reading(self) -> Iterator[tuple[sqlite3.Connection, History]]:
        """Open a transaction for reading."""
        with self._begun("BEGIN") as begun:
            yield begun

    @contextmanager
    def writing(self) -> Iterator[tuple[sqlite3.Connection, History]]:
        """Open a transaction for writing; it is on disk when the block has ended."""
        with self._begun("BEGIN IMMEDIATE") as (connection, history):
            if history.format == format2.FORMAT:
                format2.upgrade(connection, history)
                self._checked(connection, (history.seq, history.hash))  # it reads as it should
            yield connection, history

    def probe(self) -> None:
        """Check everything, and really write: a read-only file passes BEGIN IMMEDIATE.

        Raises:
            LedgerError: the ledger can't be trusted or written.
        """
        with self.writing() as (connection, _):
            connection.execute("UPDATE probe SET opened = opened + 1")

    @contextmanager
    def _begun(self, begin: str) -> Iterator[tuple[sqlite3.Connection, History]]:
        with ledger_errors(self.path), self._connection() as connection:
            # Taken before the snapshot: another thread may see more while this one waits.
            seen = self._seen
            connection.execute(begin)
            try:
                history = self._checked(connection, seen)
                yield connection, history
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    with suppress(sqlite3.Error):  # the first error is the one to report
                        connection.execute("ROLLBACK")
                raise
            self._seen = (history.seq, history.hash)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if self.path is not None:
            with closing(connect(self.path)) as connection:
                yield connection
            return
        if self._memory is None or os.getpid() != self._process:
            # A copy of the memory would allow the budget to be spent twice.
            raise LedgerError(
                "A ledger in memory can't be used by a forked process.",
                hint="keep the database, and with it the ledger, in a file.",
            )
        with self._lock:
            yield self._memory

    def _checked(self, connection: sqlite3.Connection, seen: tuple[int, str]) -> History:
        """Read and check the history, and that it is of the ledger that was opened."""
        identity, history = read_history(connection, seen)
        check_dataset(identity.dataset)
        self.dataset = self.dataset or identity.dataset
        self.id = self.id or identity.ledger
        if identity.dataset != self.dataset:
            raise refusals.other_dataset(identity.dataset, self.dataset)
        if identity.ledger != self.id:
            raise damaged("it was replaced by another ledger")
        return history


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
