"""Transactions on a ledger in PostgreSQL. Trusted.

Guarantees:
    Those of `dpsql.privacy.store`, if the server keeps what it says that it has committed.

    1. A transaction that writes begins by locking the ledger's row, and is READ COMMITTED: each
       statement sees what was committed before it began. So what is read after the lock was
       granted is all that the ones before have written, and nobody writes until this one ends. (At
       a stricter level the state would be the one before the lock, and waiting would end in an
       error.) One that only reads sees one state, by REPEATABLE READ.
    2. Of the chain, the lines from the last one that this object has checked are read, with that
       one again; they must lead to the head that the ledger's row has. The first transaction, and
       `audit`, read it whole.
    3. What is committed is on the server's disk: `synchronous_commit` is on in each transaction,
       and a server with `fsync` or `full_page_writes` off, or one that is a standby, is refused in
       each. If the connection is lost while committing, a new one waits for the lock, and so for
       the end of the transaction in question, and looks: the block has ended well only if its last
       line is there. If nobody can be asked, that is an error.
    4. A client that stops within a transaction loses it, and with it the lock, after
       `_IDLE_TIMEOUT`; nothing of it is written then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dpsql.errors import LedgerError
from dpsql.privacy import owner
from dpsql.privacy.event import FORMAT, Event, Line, damaged
from dpsql.privacy.history import Entry, History
from dpsql.privacy.postgres import check
from dpsql.privacy.postgres.connection import Server, driver, server_errors
from dpsql.privacy.postgres.tables import MAX_CONTENT
from dpsql.privacy.store import Audit, line_after

if TYPE_CHECKING:
    import psycopg

_IDLE_TIMEOUT = "10s"
_LOCK_TIMEOUT = "30s"
_STATEMENT_TIMEOUT = "120s"
_HELD_SECONDS = 300
"""Seconds for which a release that was stored is left to whoever measured it, by the server's
clock."""
_UNSURE_SECONDS = 30.0
"""Seconds for which the server is asked what became of a transaction."""

_BEGIN = {
    True: "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE",
    False: "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
}
_SETTINGS = f"""SELECT set_config('synchronous_commit', 'on', true),
    set_config('idle_in_transaction_session_timeout', '{_IDLE_TIMEOUT}', true),
    set_config('lock_timeout', '{_LOCK_TIMEOUT}', true),
    set_config('statement_timeout', '{_STATEMENT_TIMEOUT}', true)"""
_CHECKED = """SELECT pg_is_in_recovery()::text, current_setting('fsync'),
    current_setting('full_page_writes'), current_setting('synchronous_commit')"""
_LASTING = {
    "is a standby, which may lack what was spent": ("false", "name the primary server."),
    "has fsync off, so that it may forget what was spent": ("on", "set fsync = on."),
    "has full_page_writes off, so that it may lose what was spent": (
        "on",
        "set full_page_writes = on.",
    ),
    "does not wait for its disk": ("on", "leave synchronous_commit to dpsql."),
}
"""Faults of settings → what `_CHECKED` gives otherwise, and what helps."""
_HEAD = {
    True: "SELECT seq, hash, time FROM dpsql.locked(%s)",
    False: "SELECT seq, hash, clock_timestamp() FROM dpsql.ledger WHERE ledger = %s",
}
_SINCE = "SELECT seq, event, hash FROM dpsql.chain WHERE ledger = %s AND seq >= %s ORDER BY seq"
_ORPHANED = f"""SELECT clock_timestamp() - stored > interval '{_HELD_SECONDS} seconds'
    FROM dpsql.measurement WHERE ledger = %s AND seq = %s"""


@dataclass(slots=True)
class PostgresTransaction:
    """A transaction; see `dpsql.privacy.store.Writing`."""

    connection: psycopg.Connection[Any]
    history: History
    time: datetime
    """When it began, by the server's clock."""
    written: Line | None = None
    """The last line that was written."""

    def content(self, entry: Entry) -> bytes:
        """Read the content that is kept for an entry; see `Reading`."""
        with server_errors():
            return check.read_content(self.connection, self.history.ledger, entry)

    def is_orphaned(self, entry: Entry) -> bool:
        """Tell whether whoever charged is gone, or has had enough time; see `Reading`."""
        if owner.is_gone(entry.owner, entry.request):
            return True
        with server_errors():
            row = self.connection.execute(
                _ORPHANED, (self.history.ledger, entry.released)
            ).fetchone()
        return row is not None and bool(row[0])

    def audit(self) -> Audit:
        """Check the whole ledger, with all contents, and the server's rules; see `Reading`."""
        with server_errors():
            return check.audit(self.connection, self.history)

    def append(self, event: Event, content: bytes | None = None) -> int:
        """Write an event, and what is kept for it; see `Writing`."""
        line = line_after(self.history, event, self.time)
        function = "write" if event.kind == "total" else "append"
        with server_errors():
            (link,) = self.connection.execute(
                f"SELECT dpsql.{function}(%s, %s, %s, %s)",
                (self.history.ledger, line.seq, line.text, content),
            ).fetchone()  # type: ignore[misc]
        if link != line.hash:
            raise damaged("the server's hash of an entry is another one")
        self.written = line
        return line.seq


class PostgresStore:
    """One ledger, open.

    Args:
        server: where it is.
        ledger: its identity.
        dataset: the name of its data set.
        place: where it is, in words.
    """

    path = None
    is_shared = True
    most = MAX_CONTENT

    def __init__(self, server: Server, ledger: str, dataset: str, place: str) -> None:
        self.id, self.dataset, self.place = ledger, dataset, place
        self._server = server
        self._known = History(FORMAT, ledger, dataset)

    @contextmanager
    def reading(self) -> Iterator[PostgresTransaction]:
        """Open a transaction for reading."""
        with self._server.connection() as connection:
            begun = self._begun(connection, write=False)
            yield begun

    @contextmanager
    def writing(self) -> Iterator[PostgresTransaction]:
        """Open a transaction for writing; it is on the server's disk when the block has ended."""
        with self._server.connection() as connection:
            begun = self._begun(connection, write=True)
            yield begun
            if begun.written is None:
                return
            if _commit(connection):
                self._known = begun.history
                return
        if not self._holds(begun.written):
            raise LedgerError(
                "The connection to the ledger's server was lost, and nothing was written.",
                hint="ask again.",
            )

    def is_bound(self, uid: str) -> bool:
        """Tell whether rows with this identity are charged for here."""
        with self._server.connection() as connection, server_errors():
            row = connection.execute(
                "SELECT ledger FROM dpsql.binding WHERE uid = %s", (uid,)
            ).fetchone()
        return row is not None and row[0] == self.id

    def _begun(self, connection: psycopg.Connection[Any], *, write: bool) -> PostgresTransaction:
        """Begin a transaction, and read what was written since the last one."""
        known = self._known
        with server_errors():
            connection.execute(_BEGIN[write])
            connection.execute(_SETTINGS)
            _check_lasting(connection)
            head = connection.execute(_HEAD[write], (self.id,)).fetchone()
            rows = connection.execute(_SINCE, (self.id, known.seq)).fetchall()
        if head is None:
            raise damaged("it is not there any more")
        history = check.followed(known, map(Line._make, rows), *head[:2])
        if history.seq > known.seq:
            self._known = history.copy() if write else history  # what is known never changes
        return PostgresTransaction(connection, history, head[2])

    def _holds(self, line: Line) -> bool:
        """Find out whether the transaction that wrote a line was committed.

        Raises:
            LedgerError: the server doesn't say.
        """
        end = time.monotonic() + _UNSURE_SECONDS
        while True:
            try:
                with self._server.connection() as connection:
                    self._begun(connection, write=True)
                    with server_errors():
                        return check.holds(connection, self.id, line)
            except LedgerError as error:
                if time.monotonic() > end:
                    raise LedgerError(
                        "The connection to the ledger's server was lost while it was written to. "
                        "What was charged may have been recorded, and counts as spent then.",
                        hint=error.hint or "ask again.",
                    ) from None
            time.sleep(0.2)


def _commit(connection: psycopg.Connection[Any]) -> bool:
    """Commit; False if it isn't known whether that was done."""
    try:
        return connection.execute("COMMIT").statusmessage == "COMMIT"
    except driver().Error:
        connection.close()
        return False


def _check_lasting(connection: psycopg.Connection[Any]) -> None:
    """Refuse a server that may forget what it has committed."""
    row = connection.execute(_CHECKED).fetchone()
    for is_, (what, (wanted, hint)) in zip(row or (), _LASTING.items(), strict=True):
        if is_ != wanted:
            raise LedgerError(f"The ledger's server {what}.", hint=hint)
