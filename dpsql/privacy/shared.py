"""Rows whose account is in PostgreSQL, where several machines share it. Trusted.

The owner binds a database or a folder to a ledger, once. At its usual place a pointer says so then,
by the random identity of the ledger and one of its own for the rows, and the server has the same
pair. A pointer has no address: who asks names it.

Guarantees:
    1. Rows are charged for in a ledger of a server only if the pointer beside them and the server
       both say so. What isn't bound is refused, and nothing is begun or left anywhere by sessions.
    2. The pointer is left before the server is told, and the first stays: there and on the server,
       where the identity of the rows is a key. If a process is killed in between, the rows can be
       charged for nowhere, and binding them again goes on.
    3. Copies of a database with its pointer share the account, and are taken for the same rows.

Not defended: who may remove the pointer, or copies the rows without it, can begin another account.
"""

from __future__ import annotations

import os
from pathlib import Path

from dpsql.errors import LedgerError, printable
from dpsql.hints import Hint, option
from dpsql.privacy import pointer
from dpsql.privacy.files import ledger_errors
from dpsql.privacy.ledger import Ledger
from dpsql.privacy.postgres import PostgresStore, bind, create, find, take_over
from dpsql.privacy.sqlite import SqliteStore, close_for_good, exported


def open_shared(usual: Path | None, address: str) -> Ledger:
    """Open the ledger that rows are bound to.

    Args:
        usual: the usual place of their account; None if they are in memory.
        address: where the server is.

    Raises:
        LedgerError: they aren't bound, or bound elsewhere; or the server can't be asked.
    """
    if usual is None:
        raise LedgerError(
            "Rows in memory have no lasting name by which several machines could find their "
            "account.",
            hint="give them the name that the owner has bound, for example "
            + option("dataset", "hr.people")
            + "; or keep the account in a file, "
            + option("ledger", "people.ledger")
            + ".",
        )
    found = _bound(usual)
    ledger = Ledger(find(address, ledger=found.ledger))
    check_shared(usual, ledger)
    return ledger


def begin_shared(usual: Path, address: str, dataset: str) -> tuple[Ledger, bool]:
    """Begin a ledger, and bind rows to it; or go on with the one that they are bound to.

    Args:
        usual: the usual place of their account.
        address: where the server is.
        dataset: the ledger's name; by default that of the file.

    Returns:
        The ledger, and whether it is new.

    Raises:
        LedgerError: there is a ledger of this name that the rows aren't bound to, or they have
            another account; or this user may not.
    """
    made = not os.path.lexists(usual)
    if made:
        store, made = create(address, dataset or usual.with_suffix("").name)
        taken = not made
    else:
        store = find(address, ledger=_bound(usual).ledger)
        taken = bool(dataset) and dataset != store.dataset
    if taken and os.path.lexists(usual):
        raise LedgerError(
            f"{_rows(usual)} is charged for as {printable(store.dataset)} already.",
            hint="leave " + option("dataset") + " out to go on with that account.",
        )
    if taken:
        raise LedgerError(
            f"There is a ledger of {printable(store.dataset)} already in {store.place}.",
            hint="to charge these rows there as well, bind them by dpsql ledger bind; for a "
            "separate account, give it another name, " + option("dataset", "people-2026") + ".",
        )
    return _bind(usual, address, store), made


def bind_shared(usual: Path, address: str, dataset: str) -> Ledger:
    """Bind rows to a ledger that there is. To do it twice is fine.

    Raises:
        LedgerError: there is none, the rows have another account, or this user may not.
    """
    _check_free(usual)
    return _bind(usual, address, find(address, dataset=dataset))


def move_shared(usual: Path, address: str) -> Ledger:
    """Move a ledger from a file to a server, with all that it has. To do it twice is fine.

    The file is locked until the server has it all and the file is closed for good; then a pointer
    takes its place, and the rows are bound. Whoever waited for the lock finds it closed. If the
    process is killed, the ledger is in the file, or nowhere until it is moved again.

    Raises:
        LedgerError: it is of format 2, or too large; the server has another one of its name; this
            user may not; or there is none.
    """
    with ledger_errors(usual):
        found = pointer.read(usual)
        file = usual if found is None else found.target
        is_pointer = file is None or pointer.read(file) is not None
    if file is None or is_pointer:
        store = find(address, ledger=_bound(usual).ledger)
        return _bind(usual, address, store)
    with SqliteStore(file, "", moved=True).writing() as now:
        moved = take_over(address, now.history, exported(now.connection))
        close_for_good(now.connection)
    with ledger_errors(file):
        pointer.put_for_moved(file, moved.id)
    return _bind(usual, address, moved)


def check_shared(usual: Path, ledger: Ledger) -> None:
    """Check that rows are charged for in a ledger of a server.

    Raises:
        LedgerError: they aren't.
    """
    found = _bound(usual)
    _check_leads(found, usual, ledger)
    if not ledger.store.is_bound(found.uid):
        raise LedgerError(
            f"The server doesn't know that {_rows(usual)} is charged for in this ledger.",
            hint=_bind_it(usual),
        )


def lead_to_shared(usual: Path, ledger: Ledger, *, decide: bool) -> None:
    """See to it that what is beside rows, if anything, leads to a ledger of a server.

    The server knows the rows by another name. A pointer keeps a session with a ledger in a file
    from beginning a second account of them.

    Args:
        usual: the usual place of their account.
        ledger: the ledger.
        decide: whether a pointer is left, where nothing is yet and it can be written.

    Raises:
        LedgerError: it leads elsewhere.
    """
    if decide and not os.path.lexists(usual) and os.access(usual.parent, os.W_OK):
        with ledger_errors(usual):
            pointer.leave_shared(usual, ledger.id)
    if os.path.lexists(usual):
        _check_leads(_bound(usual), usual, ledger)


def _check_leads(found: pointer.Pointer, usual: Path, ledger: Ledger) -> None:
    if found.ledger != ledger.id:
        raise LedgerError(
            f"{_rows(usual)} is bound to another ledger than the one in {ledger.place} as "
            f"{printable(ledger.dataset)}.",
            hint="name the server and the database where it was bound.",
        )


def _bind(usual: Path, address: str, store: PostgresStore) -> Ledger:
    with ledger_errors(usual):
        pointer.leave_shared(usual, store.id)
    found = _bound(usual)
    if found.ledger == store.id:
        bind(address, store, found.uid)
    ledger = Ledger(store)
    check_shared(usual, ledger)
    return ledger


def _check_free(usual: Path) -> None:
    """Refuse rows whose account is in a file."""
    if os.path.lexists(usual):
        _bound(usual)


def _bound(usual: Path) -> pointer.Pointer:
    """Read the pointer to a server that is beside rows."""
    with ledger_errors(usual):
        found = pointer.read(usual)
        beyond = None if found is None or found.target is None else pointer.read(found.target)
    if found is not None and beyond is not None and beyond.ledger:
        return pointer.Pointer(None, found.data, beyond.ledger)
    if found is not None and found.ledger:
        return found
    if os.path.lexists(usual):
        raise LedgerError(
            f"{_rows(usual)} has its account in a file, {printable(str(usual))}.",
            hint="leave " + option("ledger") + " out to go on with it; or move it to the server "
            "by dpsql ledger move.",
        )
    raise LedgerError(
        f"{_rows(usual)} isn't bound to a ledger in PostgreSQL.", hint=_bind_it(usual)
    )


def _bind_it(usual: Path) -> str:
    rows = usual.with_suffix("")
    flag = "--folder" if rows.is_dir() else "--db"
    typed = f"dpsql ledger bind {flag} {printable(str(rows))} --ledger ADDRESS --dataset NAME"
    return Hint("the owner binds it once: ") + typed + "; or begins a new one by dpsql ledger init."


def _rows(usual: Path) -> str:
    return printable(usual.with_suffix("").name)
