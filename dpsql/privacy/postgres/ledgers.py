"""The ledgers that a server has, and the rows that are charged for in each. Trusted.

Guarantees:
    1. There is one ledger of each name in a database, and each identity of rows is bound to one
       ledger, for good: both are keys of the server. Whoever is first decides, also at once.
    2. Only the owner creates and binds: the tables allow it to nobody else. Whoever creates brings
       tables of the version before up to this one, and changes nothing that they hold.
    3. A ledger that is begun for rows with an identity is bound to them in the same transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dpsql.errors import LedgerError, printable
from dpsql.hints import Hint, option
from dpsql.privacy.event import FORMAT, Line, damaged
from dpsql.privacy.history import History
from dpsql.privacy.postgres.connection import Server, server_errors
from dpsql.privacy.postgres.store import PostgresStore
from dpsql.privacy.postgres.tables import BEFORE, DDL, LAYOUT, MAX_CONTENT, UPGRADE
from dpsql.privacy.store import check_dataset

if TYPE_CHECKING:
    import psycopg

_IS_THERE = "SELECT to_regnamespace('dpsql') IS NOT NULL"
_VERSION = "SELECT version FROM dpsql.layout"
_LISTED = "SELECT ledger, format, dataset FROM dpsql.ledger ORDER BY dataset"
_MADE = """INSERT INTO dpsql.ledger (ledger, format, dataset, hash) VALUES (%s, %s, %s, %s)
    ON CONFLICT DO NOTHING"""
_LEDGER_OF = "SELECT ledger FROM dpsql.binding WHERE uid = %s"
_BOUND = "INSERT INTO dpsql.binding VALUES (%s, %s) ON CONFLICT (uid) DO NOTHING"


def find(address: str, *, dataset: str = "", ledger: str = "") -> PostgresStore:
    """Open a ledger by its name or its identity, or the only one there is.

    Raises:
        LedgerError: there is none, or there are several; the server can't be asked; or the ledger
            is damaged.
    """
    server = Server(address)
    with server.connection() as connection:
        ledgers = [
            row for row in _listed(connection)
            if row[0] == ledger or row[2] == dataset or not (ledger or dataset)
        ]  # fmt: skip
        place = _place(connection)
    if len(ledgers) > 1:
        raise LedgerError(
            f"There are {len(ledgers):,} ledgers in {place}.",
            hint="name one with "
            + option("dataset", ledgers[0][2])
            + Hint("; of a release, pass that of a session, ledger=session.ledger.", "."),
        )
    if not ledgers:
        what = f"a ledger of {printable(dataset)}" if dataset else "this ledger"
        raise LedgerError(
            f"There isn't {what} in {place}.",
            hint="name the server and the database where it was begun, or begin one there with "
            "dpsql ledger init.",
        )
    ((name, _, data),) = ledgers
    store = PostgresStore(server, name, data, place)
    with store.reading():
        return store


def create(address: str, dataset: str, uid: str = "") -> tuple[PostgresStore, bool]:
    """Open the ledger of a name, or create it, and the tables if there are none.

    Args:
        address: where the server is.
        dataset: the ledger's name.
        uid: the identity of rows that a new one is bound to at once.

    Returns:
        The ledger, and whether it is new.

    Raises:
        LedgerError: this user may not, or the server can't be asked; or there is no ledger of that
            name, and the rows are bound to another one.
    """
    check_dataset(dataset)
    server, start = Server(address), History(FORMAT, uuid.uuid4().hex, dataset)
    with server.connection() as connection, server_errors(), connection.transaction():
        made = _begin(connection, start)
        if made and uid and connection.execute(_BOUND, (uid, start.ledger)).rowcount != 1:
            raise _bound_elsewhere(_place(connection))
    return find(address, dataset=dataset), made


def bring_up(address: str) -> None:
    """Bring tables of the version before up to this one, if there are such.

    Raises:
        LedgerError: this user may not, or the server can't be asked.
    """
    with Server(address).connection() as connection, server_errors(), connection.transaction():
        _bring_up(connection)


def find_bound(address: str, uid: str) -> PostgresStore | None:
    """Open the ledger that rows are bound to, by their identity alone; None if there is none.

    Raises:
        LedgerError: the server can't be asked, or the ledger is damaged.
    """
    with Server(address).connection() as connection, server_errors():
        _check_layout(connection)
        row = connection.execute(_LEDGER_OF, (uid,)).fetchone()
    return None if row is None else find(address, ledger=row[0])


def take_over(
    address: str, history: History, lines: Iterable[tuple[Line, bytes | None]]
) -> PostgresStore:
    """Write a whole ledger, in one transaction; or what is new in it since that was last done.

    Args:
        address: where the server is.
        history: what it says.
        lines: all of its lines, oldest first, and what is kept for each.

    Raises:
        LedgerError: the server has another ledger of its name, or goes on otherwise with this one;
            or something is too large.
    """
    start, server = History(FORMAT, history.ledger, history.dataset), Server(address)
    with server.connection() as connection, server_errors(), connection.transaction():
        _begin(connection, start)
        head = connection.execute(
            "SELECT seq, hash FROM dpsql.locked(%s)", (history.ledger,)
        ).fetchone()
        if head is None:
            raise LedgerError(
                f"The server has another ledger of {printable(history.dataset)}.",
                hint="move this one to another database of the server.",
            )
        known = start.hash if head[0] == 0 else ""
        for line, content in lines:
            if line.seq > head[0]:
                if content is not None and len(content) > MAX_CONTENT:
                    raise LedgerError(
                        f"It keeps a release of {len(content):,} bytes, and a server at most "
                        f"{MAX_CONTENT:,}.",
                        hint="leave it where it is.",
                    )
                connection.execute(
                    "SELECT dpsql.write(%s, %s, %s, %s)",
                    (history.ledger, line.seq, line.text, content),
                )
            known = line.hash if line.seq == head[0] else known
        if known != head[1]:
            raise damaged("the server goes on otherwise with it")
    moved = find(address, ledger=history.ledger)
    with moved.reading() as now:
        if (now.history.seq, now.history.hash) != (history.seq, history.hash):
            raise damaged("the server has other entries")
        now.audit()
    return moved


def bind(address: str, store: PostgresStore, uid: str) -> None:
    """Bind rows to a ledger, durably. To do it twice is fine.

    Raises:
        LedgerError: they are bound to another one, or this user may not.
    """
    with Server(address).connection() as connection, server_errors(), connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = on")
        connection.execute(_BOUND, (uid, store.id))
    if not store.is_bound(uid):
        raise _bound_elsewhere(store.place)


def _bound_elsewhere(place: str) -> LedgerError:
    return LedgerError(
        f"These rows are charged for in another ledger of {place}.",
        hint="dpsql ledger show lists what there is; a second account would forget what was "
        "spent in the first.",
    )


def _bring_up(connection: psycopg.Connection[Any]) -> bool:
    """Bring tables up to this version within a transaction; tell whether there are any."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('dpsql'))")
    connection.execute("SET LOCAL synchronous_commit = on")
    if connection.execute(_IS_THERE).fetchone() != (True,):
        return False
    if connection.execute(_VERSION).fetchall() == [(BEFORE,)]:
        connection.execute(UPGRADE)
    return True


def _begin(connection: psycopg.Connection[Any], start: History) -> bool:
    """Begin a ledger within a transaction, unless there is one; tell whether it is new."""
    if not _bring_up(connection):
        connection.execute(DDL)
    _check_layout(connection)
    row = start.ledger, FORMAT, start.dataset, start.hash
    return connection.execute(_MADE, row).rowcount == 1


def _listed(connection: psycopg.Connection[Any]) -> list[tuple[str, int, str]]:
    with server_errors():
        _check_layout(connection)
        rows = connection.execute(_LISTED).fetchall()
    for _, _, dataset in rows:
        check_dataset(dataset)
    return rows


def _check_layout(connection: psycopg.Connection[Any]) -> None:
    rows = connection.execute(_VERSION).fetchall()
    if rows == [(BEFORE,)]:
        raise LedgerError(
            f"The server's tables have version {BEFORE}; this dpsql needs version {LAYOUT}.",
            hint="the owner brings them up to it, without a change of what they hold, by any "
            "dpsql ledger init on this server.",
        )
    if len(rows) == 1 and rows[0][0] > LAYOUT:
        raise LedgerError(
            f"The server's tables have version {rows[0][0]}; this dpsql knows version {LAYOUT}.",
            hint="update dpsql.",
        )
    if rows != [(LAYOUT,)]:
        raise damaged("the version of its tables is wrong")


def _place(connection: psycopg.Connection[Any]) -> str:
    """Say where a connection leads, without a user or anything secret."""
    info = connection.info
    host = "" if info.host.startswith("/") else f"{info.host}:{info.port}"
    return printable(f"postgresql://{host}/{info.dbname}")
