"""The ledger's file: tables, creation, connections. Trusted.

Guarantees:
    1. A new ledger appears under its name in one atomic step, complete and readable only by its
       owner, also if several processes create it at once (`files.published`).
    2. A connection writes with a rollback journal and synchronous=EXTRA: what is committed is
       on disk.
    3. Rows are only ever appended; triggers forbid the rest.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

from dpsql.privacy.event import FORMAT, Event, damaged
from dpsql.privacy.files import published
from dpsql.privacy.history import History
from dpsql.privacy.store import line_after

MOVED = 1000
"""Stands before the format of a ledger that is kept elsewhere now, as no format ever will."""
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
"""Tables of ledgers of formats 2 and 3 alike: the contents have the number of the event that holds
their digest."""

# No indexes: tables that grow at the end only never free a page (see `check`), and each event is
# checked when the chain is read. No text of an event begins with a minus: amounts aren't negative.
CHAIN = (
    "CREATE TABLE chain (seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " event TEXT NOT NULL CHECK (event NOT GLOB '*\"-*'),"
    " hash TEXT NOT NULL CHECK (length(hash) = 64)) STRICT",
    *guards("chain", "delete", "update"),
)
DDL = (*COMMON, *CHAIN)


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
    line = line_after(history, event)
    connection.execute("INSERT INTO chain VALUES (?, ?, ?)", line)
    return line.seq


def close_for_good(connection: sqlite3.Connection) -> None:
    """Mark a ledger as moved, within a transaction: from then on nobody writes to it.

    Versions of dpsql that don't know the mark read a later format in it, and refuse the ledger.
    """
    connection.execute(
        "INSERT INTO meta (rowid, format, ledger, dataset) SELECT 0, ?, ledger, dataset FROM meta"
        " WHERE NOT EXISTS (SELECT * FROM meta WHERE format = ?)",
        (MOVED, MOVED),
    )


def create_file(path: Path, dataset: str) -> None:
    """Create a ledger, unless there is something at its place already."""
    with published(path) as draft, closing(_blank(draft)) as connection:
        create(connection, dataset)


def _blank(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("PRAGMA page_size = 4096")  # a pointer is smaller, see `pointer`
    return connection
