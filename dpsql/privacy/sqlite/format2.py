"""Ledgers of format 2: how they are read, and become ledgers of format 3. Trusted.

Format 2 had one amount, one table and one unit for each charge, in a table `event` with a column
for each field. A ledger becomes one of format 3 the first time that it is opened to be written,
in the transaction of the first write. Nothing in it is changed or removed: the new tables come
beside the old ones, which take no more rows, and the new format's row is put before the old one in
`meta`, where versions that know only format 2 read it first and say that dpsql must be updated.

Guarantees:
    1. Events of format 2 are checked as they were then: a hash over their fields as written. What
       they add up to is the same fraction. What was measured is kept where it was, by its digest.
    2. The chain goes on over the step: the event `upgraded` holds the hash of the last old one.
    3. If the process is killed, the ledger is of format 2, with all it had, or of format 3; never
       anything else. Others wait meanwhile, and then find format 3.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from dpsql.privacy.amount import EVERY, Amount, fraction
from dpsql.privacy.event import FORMAT as PRESENT
from dpsql.privacy.event import Event, Row, TableRows, damaged
from dpsql.privacy.history import History
from dpsql.privacy.sqlite import tables

FORMAT = 2

_EVENT = (
    "CREATE TABLE event (seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " kind TEXT NOT NULL CHECK (kind IN ('total', 'bound', 'charged', 'released', 'delivered')),"
    " request TEXT NOT NULL,"
    " mu_squared TEXT NOT NULL CHECK (mu_squared NOT GLOB '*[^0-9/]*'),"
    " plan TEXT NOT NULL, script TEXT NOT NULL,"
    ' "table" TEXT NOT NULL, schema TEXT NOT NULL, unit TEXT NOT NULL, vintage TEXT NOT NULL,'
    " content TEXT NOT NULL, owner TEXT NOT NULL, time TEXT NOT NULL,"
    " hash TEXT NOT NULL CHECK (length(hash) = 64)) STRICT",
    *tables.guards("event", "delete", "update"),
)
_CLOSED = tables.guards("event", "insert")
DDL = (*tables.COMMON, *_EVENT)
"""The tables of a ledger of format 2."""
KEPT = (*_EVENT, *_CLOSED)
"""Tables and guards that a ledger of format 3 has besides its own, if it was one of format 2."""


class _OldRow(NamedTuple):
    """A row of `event`. Texts that an event did not need are empty."""

    seq: int
    kind: str
    request: str
    mu_squared: str
    plan: str
    script: str
    table: str
    schema: str
    unit: str
    vintage: str
    content: str
    owner: str
    time: str
    hash: str

    @property
    def format(self) -> int:
        """The version of its format."""
        return FORMAT

    def linked(self, last: str) -> str:
        """Compute the hash that it must have after a row with the hash `last`."""
        return hashlib.sha256(json.dumps([last, *self[:-1]]).encode()).hexdigest()

    @property
    def event(self) -> Event:
        """The event it stands for, in today's words: all amounts are for units of every table."""
        try:
            amounts = Amount({EVERY: fraction(self.mu_squared)})
        except ValueError:
            raise damaged(f"entry {self.seq} has no amount") from None
        named = (self.table, self.schema, self.unit, self.vintage)
        rows = TableRows(self.table, self.schema, (self.unit,), self.vintage)
        return Event(
            self.kind, self.request, amounts, (rows,) if any(named) else (),
            self.plan, self.script, self.content, self.owner, self.time,
        )  # fmt: skip


def rows(connection: sqlite3.Connection) -> Iterator[Row]:
    """Yield the events of format 2, oldest first."""
    return map(_OldRow._make, connection.execute("SELECT * FROM event ORDER BY seq"))


def upgrade(connection: sqlite3.Connection, history: History) -> None:
    """Make a ledger one of format 3, within a transaction that began with its history."""
    for statement in (*tables.CHAIN, *_CLOSED):
        connection.execute(statement)
    connection.execute(
        "INSERT INTO meta (rowid, format, ledger, dataset) SELECT 0, ?, ledger, dataset FROM meta",
        (PRESENT,),
    )
    tables.append(connection, history, Event("upgraded"))
