"""The check of a ledger's file that precedes each decision, and the full audit. Trusted.

Guarantees:
    1. `read_history` returns a history only if the tables that decisions rest on are intact, are
       the tables of the formats that the ledger was written in and hold an unbroken chain of
       possible events, none missing at the end. Contents are not read. Of rows that were checked
       before, it is checked that they are the same, byte by byte: `History.add` is a function of
       what was added before and of the row, so that the same rows have the same history. Hashes
       and events of the rows that came since are all that is computed, whatever there was before.
    2. `read_content` returns nothing but the bytes whose digest is in that chain.
    3. `audit` checks everything there is.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpsql.errors import LedgerError
from dpsql.privacy.event import FORMAT, Line, Row, damaged
from dpsql.privacy.history import Entry, History
from dpsql.privacy.sqlite import format2
from dpsql.privacy.sqlite.tables import DDL, MOVED
from dpsql.privacy.store import Audit

_LAYOUTS = {
    (FORMAT,): DDL,
    (FORMAT, format2.FORMAT): (*DDL, *format2.KEPT),
    (format2.FORMAT,): format2.DDL,
}
"""The formats that a ledger was written in, the newest first → its tables and triggers."""
_CONTENTS = "measurement"
"""The only table on which no decision rests."""
_SEQUENCE = "CREATE TABLE sqlite_sequence(name,seq)"
"""SQLite's own table of the last number given out."""


@dataclass(frozen=True, slots=True)
class LedgerIdentity:
    """The identity of the ledger in a file, and the data set that it belongs to."""

    ledger: str
    dataset: str
    is_moved: bool
    """Whether it is closed for good."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A history as it was read, and the rows that it was read from."""

    identity: LedgerIdentity
    history: History
    """Nobody adds to it: whoever goes on from it takes a copy."""
    rows: tuple[Row, ...]


def read_history(
    connection: sqlite3.Connection, seen: tuple[int, str], before: Checked | None = None
) -> Checked:
    """Read the whole history within an open transaction, and check it.

    Args:
        connection: in a transaction, so that all is read from one state.
        seen: number and hash of an event that was read before; (0, "") for none.
        before: what was read before, whose rows aren't computed again if they are there.

    Raises:
        LedgerError: the file is damaged, is not a ledger, or has another format.
    """
    identity, formats = _checked_tables(connection)
    rows = tuple(_rows(connection, formats))
    history, known = History(formats[-1], identity.ledger, identity.dataset), 0
    # Rows of different formats are never equal: they have different numbers of fields.
    if before is not None and (before.identity.ledger, before.identity.dataset) == (
        identity.ledger, identity.dataset,
    ) and rows[: len(before.rows)] == before.rows:  # fmt: skip
        history, known = before.history.copy(), len(before.rows)
    for row in rows[known:]:
        history.add(row)
        if history.seq == seen[0] and history.hash != seen[1]:
            raise damaged("its history was changed")
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
    if history.seq < seen[0] or history.seq != last or history.format != formats[0]:
        raise damaged("entries are missing")
    return Checked(identity, history, rows)


def _rows(connection: sqlite3.Connection, formats: Sequence[int]) -> Iterator[Row]:
    """Yield all events, oldest first."""
    if format2.FORMAT in formats:
        yield from format2.rows(connection)
    if FORMAT in formats:
        yield from map(Line._make, connection.execute("SELECT * FROM chain ORDER BY seq"))


def read_content(connection: sqlite3.Connection, entry: Entry) -> bytes:
    """Read the content that is kept for an entry which has one.

    Raises:
        LedgerError: it is not there, or is not what the chain says.
    """
    row = connection.execute(
        "SELECT content FROM measurement WHERE seq = ?", (entry.released,)
    ).fetchone()
    content = b"" if row is None else bytes(row[0])
    if row is None or hashlib.sha256(content).hexdigest() != entry.content:
        raise damaged(f"what is kept for entry {entry.seq} was changed")
    return content


def exported(connection: sqlite3.Connection) -> Iterator[tuple[Line, bytes | None]]:
    """Yield all lines, oldest first, with what is kept for each.

    Raises:
        LedgerError: it has some of an earlier format.
    """
    (old,) = connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE name = 'event'"
    ).fetchone()
    if old:
        raise LedgerError(
            "This ledger was begun in an earlier format, which only a file can hold.",
            hint="leave it where it is.",
        )
    for *line, content in connection.execute(
        "SELECT chain.*, content FROM chain LEFT JOIN measurement USING (seq) ORDER BY seq"
    ):
        yield Line._make(line), content


def audit(connection: sqlite3.Connection, history: History) -> Audit:
    """Check the whole file, with all contents, and compute the chain anew.

    Raises:
        LedgerError: anything is amiss.
    """
    _check_intact(connection, "PRAGMA integrity_check")
    read_history(connection, (history.seq, history.hash))
    kept = [entry for entry in history.entries.values() if entry.content]
    size = sum(len(read_content(connection, entry)) for entry in kept)
    if connection.execute("SELECT count(*) FROM measurement").fetchone() != (len(kept),):
        raise damaged("it keeps something that no entry names")
    return Audit(len(history.entries), history.seq, len(kept), size)


def _checked_tables(connection: sqlite3.Connection) -> tuple[LedgerIdentity, tuple[int, ...]]:
    """Check the tables; say which ledger it is, and in which formats it was written."""
    objects = connection.execute("SELECT name, type, sql FROM sqlite_schema").fetchall()
    tables = {name for name, kind, _ in objects if kind == "table"}
    if "meta" not in tables:
        raise damaged("the file is not a ledger")
    meta = connection.execute("SELECT format, ledger, dataset FROM meta ORDER BY rowid").fetchall()
    formats = tuple(row[0] for row in meta)
    moved = formats[:1] == (MOVED,)
    formats = formats[moved:]
    if formats not in _LAYOUTS or len({row[1:] for row in meta}) != 1:
        raise _wrong_format(formats)
    if sorted(str(sql) for *_, sql in objects) != sorted([*_LAYOUTS[formats], _SEQUENCE]):
        raise damaged("its tables were changed")
    # Rows are only ever appended, so no page is ever freed. If pages in use were listed as free,
    # SQLite would write over them, and the checks of single tables don't compare the two.
    if connection.execute("PRAGMA freelist_count").fetchone() != (0,):
        raise damaged("the file is not intact")
    for table in [*sorted(tables - {_CONTENTS}), "sqlite_schema"]:
        _check_intact(connection, f"PRAGMA integrity_check({table})")
    _, ledger, dataset = meta[0]
    return LedgerIdentity(ledger, dataset, moved), formats


def _check_intact(connection: sqlite3.Connection, pragma: str) -> None:
    if connection.execute(pragma).fetchall() != [("ok",)]:
        raise damaged("the file is not intact")


def _wrong_format(formats: tuple[object, ...]) -> LedgerError:
    version = formats[0] if formats else None
    if not isinstance(version, int) or version < 1:
        return damaged("its format version is wrong")
    if version > FORMAT:
        return LedgerError(
            f"The ledger has format version {version}; this dpsql knows version {FORMAT}.",
            hint="update dpsql.",
        )
    if version < format2.FORMAT:
        return LedgerError(
            f"The ledger has format version {version}: it was made by an earlier development "
            "version of dpsql, which this one can't continue.",
            hint="go on with the version that made it. A new ledger would forget what was spent.",
        )
    return damaged("its format version is wrong")
