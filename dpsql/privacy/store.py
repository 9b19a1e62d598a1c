"""The ledger's file: tables, creation, connections and what their errors mean. Trusted.

Guarantees:
    1. A new ledger appears under its name in one atomic step, complete and readable only by its
       owner, also if several processes create it at once. So does a pointer to one.
    2. A connection writes with a rollback journal and synchronous=EXTRA: what is committed is
       on disk.
    3. Nothing but `LedgerError` leaves `ledger_errors`.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from dpsql.errors import LedgerError, printable
from dpsql.privacy.event import FORMAT, Event, damaged
from dpsql.privacy.history import History

MAX_CONTENT = 2**29
"""The most bytes that are kept of one release."""
_TIMEOUT_SECONDS = 30.0


def guards(table: str, *verbs: str) -> tuple[str, ...]:
    """Write triggers that forbid changing a table."""
    return tuple(
        f"CREATE TRIGGER {table}_{verb} BEFORE {verb.upper()} ON {table}"
        f" BEGIN SELECT RAISE(ABORT, 'a ledger is only appended to'); END"
        for verb in verbs
    )


META = "CREATE TABLE meta (format INTEGER NOT NULL, ledger TEXT NOT NULL, dataset TEXT NOT NULL)"
META += " STRICT"
MEASUREMENT = "CREATE TABLE measurement (seq INTEGER PRIMARY KEY, content BLOB NOT NULL"
MEASUREMENT += f" CHECK (length(content) <= {MAX_CONTENT})) STRICT"
PROBE = "CREATE TABLE probe (opened INTEGER NOT NULL) STRICT"
COMMON = (
    META,
    MEASUREMENT,
    PROBE,
    *guards("meta", "delete", "update"),
    *guards("measurement", "delete", "update"),
)
"""What ledgers of formats 2 and 3 have in common: the contents have the number of the event that
holds their digest."""

# No indexes: tables that grow at the end only never free a page (see `check`), and each event is
# checked when the chain is read. No text of an event begins with a minus: amounts aren't negative.
CHAIN = (
    "CREATE TABLE chain (seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " event TEXT NOT NULL CHECK (event NOT GLOB '*\"-*'),"
    " hash TEXT NOT NULL CHECK (length(hash) = 64)) STRICT",
    *guards("chain", "delete", "update"),
)
DDL = (*COMMON, *CHAIN)

_HINTS = {
    "SQLITE_READONLY": "make the ledger and its folder writable for this user.",
    "SQLITE_CANTOPEN": "check that the folder of the ledger exists and can be written to.",
    "SQLITE_FULL": "free some disk space, then ask again.",
    "SQLITE_BUSY": "another process holds the ledger; wait for it to end, then ask again.",
    "SQLITE_IOERR": "check the disk; if the ledger is on a network drive, put it on a local one.",
}
_RESTORE = "if this file should be a ledger, restore its newest copy; else name another file."
_SYSTEM_HINTS = {
    errno.ENOENT: "create the folder first; if the ledger was there before, restore it.",
    errno.EACCES: "make the ledger and its folder writable for this user.",
    errno.EROFS: "make the ledger and its folder writable for this user.",
    errno.ENOSPC: "free some disk space, then ask again.",
}
_OTHER_SYSTEM_HINT = "keep the ledger on a local disk of the usual kind."


def connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """Open an existing ledger file.

    Raises:
        LedgerError: it is empty, as a truncated file is, or can't keep a rollback journal.
        sqlite3.Error, OSError: it can't be opened.
    """
    if os.stat(path).st_size == 0:  # not open(): closing it would drop SQLite's locks
        raise damaged("the file is empty")
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=_TIMEOUT_SECONDS
    )
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA synchronous = EXTRA")
        if connection.execute("PRAGMA journal_mode = DELETE").fetchone() != ("delete",):
            raise damaged("its journal mode can't be set")
    except BaseException:
        connection.close()
        raise
    return connection


def create(connection: sqlite3.Connection, dataset: str) -> None:
    """Write the tables of a new ledger with a random identity."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in DDL:
        connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES (?, ?, ?)", (FORMAT, uuid.uuid4().hex, dataset))
    connection.execute("INSERT INTO probe VALUES (0)")
    connection.execute("COMMIT")


def append(connection: sqlite3.Connection, history: History, event: Event) -> int:
    """Write an event, with the time, in a transaction that began with this history.

    Returns:
        Its number.

    Raises:
        LedgerError: it is impossible.
    """
    time = datetime.now(UTC).isoformat(timespec="seconds")
    line = history.follow(replace(event, time=time))
    connection.execute("INSERT INTO chain VALUES (?, ?, ?)", line)
    return line.seq


def create_file(path: Path, dataset: str) -> None:
    """Create a ledger, unless there is something at its place already."""
    with _published(path) as draft, closing(_blank(draft)) as connection:
        create(connection, dataset)


def create_text(path: Path, text: str) -> None:
    """Write a small text file, unless there is something at its place already."""
    with _published(path) as draft, open(draft, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _published(path: Path) -> Iterator[Path]:
    """Let a file be written apart, then give it its name: whoever finds it finds it complete."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        yield draft
        with suppress(FileExistsError):  # another process was first
            os.link(draft, path)
    finally:
        draft.unlink()
    sync_folder(path.parent)


def _blank(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("PRAGMA page_size = 4096")  # a pointer is smaller, see `pointer`
    return connection


def sync_folder(folder: Path) -> None:
    """Make the file's name durable. Only POSIX systems can, and need to."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def ledger_errors(path: Path | str | None) -> Iterator[None]:
    """Turn what SQLite and the operating system raise into a `LedgerError` with a hint."""
    where = "The ledger in memory" if path is None else f"The ledger {printable(str(path))}"
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        hint = next((h for prefix, h in _HINTS.items() if name.startswith(prefix)), _RESTORE)
        raise LedgerError(f"{where} can't be used: {error}.", hint=hint) from None
    except OSError as error:
        hint = _SYSTEM_HINTS.get(error.errno or 0, _OTHER_SYSTEM_HINT)
        raise LedgerError(f"{where} can't be used: {error.strerror}.", hint=hint) from None
    except ValueError as error:
        raise LedgerError(
            f"{where} can't be used: {error}.", hint="use a plain file name."
        ) from None
