"""Connections to the server of ledgers: its address, and what its errors mean. Trusted.

Guarantees:
    1. Nothing but `LedgerError` leaves `server_errors`, and none repeats what the server, the
       driver or an address says: all that is taken from them is a code.
    2. A connection is used by one thread of one process at a time. A forked child makes its own,
       and never closes the one of its parent.

An address is `postgresql://host:5432/database`, as libpq has it, or `service=name`; what it doesn't
say is taken from the environment (PGHOST, PGSERVICE, …). A password is in neither: libpq finds it
in PGPASSWORD, in a password file or in a service file. So no address is a secret.
"""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from dpsql.errors import LedgerError
from dpsql.privacy.refusals import EXAMPLE

if TYPE_CHECKING:
    from types import ModuleType

    import psycopg

_ADDRESS = re.compile(r"postgres(ql)?://|service=")
_SECRET = frozenset({"password", "sslpassword", "oauth_client_secret"})


def is_address(given: Path | str | None) -> TypeGuard[str]:
    """Tell whether a ledger is given by its address, and not by its file."""
    return isinstance(given, str) and _ADDRESS.match(given) is not None


def driver() -> ModuleType:
    """Import psycopg.

    Raises:
        LedgerError: it is not installed.
    """
    try:
        import psycopg
    except ImportError:
        raise LedgerError(
            "A ledger in PostgreSQL needs psycopg, which is not installed.",
            hint='pip install "dpsql[postgres]"',
        ) from None
    return psycopg


def parameters(address: str) -> dict[str, Any]:
    """Read an address.

    Raises:
        LedgerError: it is malformed, or has a password; what it says is not repeated.
    """
    psycopg = driver()
    try:
        parts: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.Error:
        parts = {}
        malformed = True
    else:
        malformed = False
    if malformed:
        raise LedgerError(
            "The ledger's address is malformed.",
            hint=f'for example ledger="{EXAMPLE}", or ledger="service=accounts".',
        )
    if not _SECRET.isdisjoint(parts):
        raise LedgerError(
            "The ledger's address has a password, which would be seen wherever it is shown.",
            hint="put the password into ~/.pgpass or into a service file, or into the environment "
            "as PGPASSWORD, and leave it out of the address.",
        )
    return parts


_DEFAULTS: dict[str, Any] = {
    "application_name": "dpsql",
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Unless the address says otherwise: a server that is gone is noticed within half a minute."""
_SERVER_SIDE = (
    "SELECT set_config('tcp_keepalives_idle', '10', false),"
    " set_config('tcp_keepalives_interval', '5', false),"
    " set_config('tcp_keepalives_count', '3', false),"
    " set_config('tcp_user_timeout', '20s', false),"
    " set_config('search_path', 'pg_catalog, pg_temp', false),"
    " set_config('client_min_messages', 'error', false),"
    " current_setting('server_version_num')::integer"
)
"""The same for a client that is gone. Names are written with their schema, so no path is needed."""
_IDLE_SECONDS = 1.0
"""After so long a connection may have been lost without a sign."""
_OLDEST = 130_000
"""The first version with a `gcd` of numeric."""

_AGAIN = "ask again."
_HINTS = (
    (
        "42501",
        "doesn't allow that to this user",
        "ask the owner for the role dpsql_analyst, or dpsql_auditor to read; creating, binding "
        "and totals are for the owner.",
    ),
    ("42P01", "has no ledgers", "the owner makes them with dpsql ledger init."),
    ("3F000", "has no ledgers", "the owner makes them with dpsql ledger init."),
    ("42883", "has no ledgers of this version", "update dpsql, or ask the owner to."),
    ("55P03", "has the ledger locked by another session", "wait for it to end, then " + _AGAIN),
    ("57014", "took too long", "see what keeps it busy, then " + _AGAIN),
    ("25P03", "ended a transaction that did nothing for too long", _AGAIN),
    ("53100", "has no disk space left", "free some, then " + _AGAIN),
    ("53", "has no connection or memory left", "wait, or raise its limits, then " + _AGAIN),
    ("57", "is shutting down or starting", "wait until it is up, then " + _AGAIN),
    ("40", "ended the transaction in favor of another", _AGAIN),
    ("54", "refused an entry that is too long", "release less at once."),
    ("23", "refused an entry: it is against the rules of its tables", "update dpsql."),
    ("DP", "refused an entry: it doesn't follow from those before", "update dpsql."),
    ("25006", "is read-only", "name the primary server."),
)
"""Beginning of a code → what the server did, and what helps. The first that fits counts."""
_UNREACHABLE = (
    "can't be reached, or refuses the database, the user or the password",
    "check that it is up, and by psql that the address works with PGHOST, PGPORT, PGDATABASE, "
    "PGUSER, and PGPASSWORD, ~/.pgpass or a service file.",
)
"""Before there is a connection there are no codes."""
_OTHER = ("failed", "look into the server's log, then " + _AGAIN)


@contextmanager
def server_errors() -> Iterator[None]:
    """Turn what the driver raises into a `LedgerError` with a hint."""
    try:
        yield
    except driver().Error as error:
        raise _worded(error) from None


def _worded(error: psycopg.Error) -> LedgerError:
    """Word an error of the driver by its code alone."""
    code = error.sqlstate or ""
    known = next(((what, hint) for start, what, hint in _HINTS if code.startswith(start)), None)
    lost = isinstance(error, driver().OperationalError) and code[:2] in {"", "08"}
    what, hint = known or (_UNREACHABLE if lost else _OTHER)
    return LedgerError(f"The ledger's server {what}.", hint=hint)


class Server:
    """A server, and a connection to it that is made when it is needed.

    Args:
        address: where it is; see `address`.
    """

    def __init__(self, address: str) -> None:
        self._parameters = {**_DEFAULTS, **parameters(address)}
        self._held: _HeldConnection | None = None

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Give a connection outside of a transaction, to this thread alone.

        What is open when the block ends is rolled back.
        """
        held = self._mine()
        with held.lock:
            if not held.is_alive():
                held.connection = self._connect()
            try:
                yield held.connection  # type: ignore[misc]
            finally:
                held.rest()

    def _mine(self) -> _HeldConnection:
        """Return this process's connection. An inherited one is kept, so that nobody closes it."""
        if self._held is None or self._held.process != os.getpid():
            if self._held is not None:
                _inherited.append(self._held)
            self._held = _HeldConnection()
            weakref.finalize(self, self._held.close)
        return self._held

    def _connect(self) -> psycopg.Connection[Any]:
        with server_errors():
            connection: psycopg.Connection[Any] = driver().connect(
                **self._parameters, autocommit=True, prepare_threshold=None
            )
            (*_, version) = connection.execute(_SERVER_SIDE).fetchone()  # type: ignore[misc]
        if version < _OLDEST:
            connection.close()
            raise LedgerError(
                "The ledger's server is older than PostgreSQL 13.", hint="update the server."
            )
        return connection


class _HeldConnection:
    """The connection of one process."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.connection: psycopg.Connection[Any] | None = None
        self._used = 0.0

    def is_alive(self) -> bool:
        """Tell whether there is a connection that can be used; if it was idle, ask."""
        if self.connection is None or self.connection.closed:
            return False
        if time.monotonic() - self._used < _IDLE_SECONDS:
            return True
        try:
            self.connection.execute("SELECT 1")
        except driver().Error:
            self.close()
        return self.connection is not None

    def rest(self) -> None:
        """End what is open, or the connection if that can't be."""
        if self.connection is None:
            return
        with suppress(driver().Error):
            self.connection.rollback()
        if self.connection.info.transaction_status != driver().pq.TransactionStatus.IDLE:
            self.close()
        self._used = time.monotonic()

    def close(self) -> None:
        """Close the connection, if it is of this process."""
        if self.connection is not None and self.process == os.getpid():
            with suppress(driver().Error):
                self.connection.close()
            self.connection = None


_inherited: list[_HeldConnection] = []
