"""Transactions on a ledger in an SQLite file or in memory. Trusted.

Guarantees:
    Those of `dpsql.privacy.store`. Reading what was spent, deciding and writing are one IMMEDIATE
    transaction of SQLite (1, 2); the tables have triggers that forbid the rest (3). A ledger of
    format 2 becomes one of the present format with what is written first (`format2`). What one
    transaction has read and checked is kept for the next (`check`, 1), without what it wrote.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.privacy import owner, refusals
from dpsql.privacy.event import Event, damaged
from dpsql.privacy.files import ledger_errors
from dpsql.privacy.history import Entry, History
from dpsql.privacy.sqlite import check, format2
from dpsql.privacy.sqlite.tables import MAX_CONTENT, append, connect, create
from dpsql.privacy.store import Audit, check_dataset


@dataclass(frozen=True, slots=True)
class SqliteTransaction:
    """A transaction; see `dpsql.privacy.store.Writing`."""

    connection: sqlite3.Connection
    history: History

    def content(self, entry: Entry) -> bytes:
        """Read the content that is kept for an entry; see `Reading`."""
        return check.read_content(self.connection, entry)

    def is_orphaned(self, entry: Entry) -> bool:
        """Tell whether whoever charged is gone; see `Reading`."""
        return owner.is_gone(entry.owner, entry.request)

    def audit(self) -> Audit:
        """Check the whole file, with all contents; see `Reading`."""
        return check.audit(self.connection, self.history)

    def append(self, event: Event, content: bytes | None = None) -> int:
        """Write an event, and what is kept for it; see `Writing`."""
        seq = append(self.connection, self.history, event)
        if content is not None:
            self.connection.execute("INSERT INTO measurement VALUES (?, ?)", (seq, content))
        return seq


class SqliteStore:
    """One ledger, open: `id` and `dataset` are known once it was read.

    Args:
        path: its file; None creates it in memory, where it lives as long as this object.
        dataset: the data set that it must be for; "" for whichever it is for.
        moved: whether it may be one that was moved to a server.
    """

    is_shared = False
    most = MAX_CONTENT

    def __init__(self, path: Path | None, dataset: str, *, moved: bool = False) -> None:
        self.path = path
        self._may_be_moved = moved
        self.dataset = dataset
        self.id = ""
        self._seen: tuple[int, str] = (0, "")
        self._checked: check.Checked | None = None
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._memory: sqlite3.Connection | None = None
        if path is None:
            self._memory = sqlite3.connect(
                ":memory:", isolation_level=None, check_same_thread=False
            )
            weakref.finalize(self, self._memory.close)
            create(self._memory, dataset)

    @property
    def place(self) -> str:
        """The place where it is kept, in words."""
        return "memory" if self.path is None else str(self.path)

    def is_bound(self, uid: str) -> bool:
        """Tell that no server knows; see `Store`."""
        return False

    @contextmanager
    def reading(self) -> Iterator[SqliteTransaction]:
        """Open a transaction for reading."""
        with self._begun("BEGIN") as begun:
            yield begun

    @contextmanager
    def writing(self) -> Iterator[SqliteTransaction]:
        """Open a transaction for writing; it is on disk when the block has ended."""
        with self._begun("BEGIN IMMEDIATE") as begun:
            connection, history = begun.connection, begun.history
            if history.format == format2.FORMAT:
                format2.upgrade(connection, history)
                self._read(connection, (history.seq, history.hash))  # it reads as it should
            yield begun

    def probe(self) -> None:
        """Check everything, and really write: a read-only file passes BEGIN IMMEDIATE.

        Raises:
            LedgerError: the ledger can't be trusted or written.
        """
        with self.writing() as begun:
            begun.connection.execute("UPDATE probe SET opened = opened + 1")

    @contextmanager
    def _begun(self, begin: str) -> Iterator[SqliteTransaction]:
        with ledger_errors(self.path), self._connection() as connection:
            # Taken before the snapshot: another thread may see more while this one waits.
            seen = self._seen
            connection.execute(begin)
            try:
                checked = self._read(connection, seen)
                history = checked.history.copy()
                yield SqliteTransaction(connection, history)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    with suppress(sqlite3.Error):  # the first error is the one to report
                        connection.execute("ROLLBACK")
                raise
            self._seen, self._checked = (history.seq, history.hash), checked

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

    def _read(self, connection: sqlite3.Connection, seen: tuple[int, str]) -> check.Checked:
        """Read and check the history, and that it is of the ledger that was opened."""
        checked = check.read_history(connection, seen, self._checked)
        identity = checked.identity
        if identity.is_moved and not self._may_be_moved:
            raise refusals.moved()
        check_dataset(identity.dataset)
        self.dataset = self.dataset or identity.dataset
        self.id = self.id or identity.ledger
        if identity.dataset != self.dataset:
            raise refusals.other_dataset(identity.dataset, self.dataset)
        if identity.ledger != self.id:
            raise damaged("it was replaced by another ledger")
        return checked
