"""Rows that are in no file, whose account is in PostgreSQL by a name that the owner gave. Trusted.

Rows in memory, frames, and tables of other systems have no place beside which something could say
where their account is. So the owner binds a name to a ledger, once, and each session says which
name its rows have. The server knows it by a digest, as it knows rows in files by the random text of
their pointer, and both are values of the same key.

Guarantees:
    1. Rows are charged for in a ledger by their name only if the server says so. What isn't bound
       is refused, and sessions begin and bind nothing: only the owner can (`postgres.tables`).
    2. A name is bound to one ledger, for good. So whatever rows have it, at once or one after the
       other, what is spent on all of them is added up in that ledger: two data sets of one name
       have one budget between them.
    3. Digests of names are longer than the random texts of pointers, so no name stands for rows in
       a file. These have their account by their file alone, and a name for them is refused.
    4. A table of a lake that has a name for itself, as Delta's have, is charged for in a session of
       a name only if it is bound to the same ledger, once, for good. One that is made anew in its
       place has another, and is refused until it is bound, too.

Not defended: whoever asks says which rows have a name. Rows that are asked under two names have two
budgets, and a unit loses the sum of both: the owner binds one name for them, and one only.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from dpsql.errors import LedgerError, printable
from dpsql.hints import Hint, option, word
from dpsql.privacy.ledger import Ledger
from dpsql.privacy.postgres import bind, create, find, find_bound, is_address
from dpsql.privacy.refusals import EXAMPLE
from dpsql.privacy.store import check_dataset


def uid_of(dataset: str) -> str:
    """Return the identity that rows of a name have: what the server knows them by.

    Raises:
        LedgerError: it is no name.
    """
    check_dataset(dataset)
    return hashlib.sha256(b"dpsql dataset\n" + dataset.encode()).hexdigest()


def open_named(dataset: str, database: Path | str | None, given: Path | str | None) -> Ledger:
    """Open the ledger to which a name is bound.

    Args:
        dataset: the name.
        database: the file that the rows are in; there must be none.
        given: where the ledger is said to be; it must be a server.

    Raises:
        LedgerError: that isn't so, the name isn't bound, or the server can't be asked.
    """
    uid, shown = uid_of(dataset), printable(dataset)
    if database is not None:
        raise LedgerError(
            f"These rows are in a file, {printable(Path(database).name)}: their account goes by "
            "the file, not by a name.",
            hint="leave " + option("dataset") + " out.",
        )
    if not is_address(given):
        raise LedgerError(
            f"Rows are known by a name, {shown}, only on a server: with a file, each machine "
            "would have a separate account.",
            hint="name the server, "
            + option("ledger", EXAMPLE)
            + "; or leave "
            + option("dataset")
            + " out.",
        )
    store = find_bound(given, uid)
    if store is None:
        raise LedgerError(f"No ledger of that server is for {shown}.", hint=_bind_it(dataset))
    return Ledger(store)


def begin_named(dataset: str, address: str) -> tuple[Ledger, bool]:
    """Begin a ledger for rows of a name, and with it; or go on with the one that there is.

    Returns:
        The ledger, and whether it is new.

    Raises:
        LedgerError: there is a ledger of this name, and it is not for these rows; they have another
            account; or this user may not.
    """
    uid = uid_of(dataset)
    store, made = create(address, dataset, uid)
    if not store.is_bound(uid):
        raise LedgerError(
            f"There is a ledger of {printable(dataset)} already in {store.place}, for other rows.",
            hint="to charge these rows there as well, bind them: " + _typed(dataset, dataset),
        )
    return Ledger(store), made


def bind_named(name: str, address: str, dataset: str) -> Ledger:
    """Charge rows of a name in a ledger that there is, from now on. To do it twice is fine.

    Args:
        name: that of the rows.
        address: where the server is.
        dataset: the ledger's name.

    Raises:
        LedgerError: there is none, the rows have another account, or this user may not.
    """
    uid = uid_of(name)
    store = find(address, dataset=dataset)
    bind(address, store, uid)
    return Ledger(store)


def table_uid(uid: str) -> str:
    """Return the identity that a server knows a table of a lake by.

    It is longer than the random texts of pointers, and made otherwise than those of names: so no
    table stands for other rows.
    """
    return hashlib.sha256(b"dpsql table\n" + uid.encode()).hexdigest()


def bind_table(uid: str, address: str, dataset: str) -> Ledger:
    """Bind a table of a lake to a ledger that there is, by its own name for itself.

    To do it twice is fine.

    Raises:
        LedgerError: there is none, the table has another account, or this user may not.
    """
    store = find(address, dataset=dataset)
    bind(address, store, table_uid(uid))
    return Ledger(store)


def check_table(uid: str, ledger: Ledger) -> None:
    """Check that a table of a lake is charged for in a ledger of a server.

    Raises:
        LedgerError: it isn't: it was never bound, or another one was made in its place.
    """
    if not ledger.store.is_bound(table_uid(uid)):
        raise LedgerError(
            f"The table {printable(uid)} isn't bound to the ledger {printable(ledger.dataset)}: "
            "it is new, or charged for elsewhere.",
            hint=Hint("the owner binds it once: ")
            + f"dpsql ledger bind --table {printable(uid)} --ledger ADDRESS --dataset NAME",
        )


def _bind_it(dataset: str) -> str:
    init = f"dpsql ledger init --ledger ADDRESS --dataset {word(printable(dataset))} --rho 0.5"
    return (
        Hint("the owner begins one: ")
        + init
        + "; or binds the name to one that there is: "
        + _typed(dataset, "NAME")
    )


def _typed(name: str, dataset: str) -> str:
    ledger = f"--ledger ADDRESS --dataset {word(dataset)}"
    return f"dpsql ledger bind --rows {word(printable(name))} {ledger}"
