"""The place of a data set's ledger: one place, on which all processes agree. Trusted.

The usual place is beside the database, `<database>.ledger`. If the ledger is elsewhere, a
pointer stands there.

Guarantees:
    1. What stands at the usual place decides, ledger or pointer. It gets there in one atomic
       step, and the first one stays. `open_ledger` returns a ledger only after that step, and
       only the ledger that it decided for. So nothing is spent from a second one, whatever
       was asked for at once and wherever a process was killed: a ledger that was created and
       not decided for is left behind empty.
    2. Symbolic links to the database, to its folder or to the ledger lead to the same ledger.
    3. Databases that are attached, and files that views read, are charged for in one ledger, too:
       that of the database's usual place, or of the folder's, `<folder>.ledger`, by the same rule.
       So it makes no difference whether a database is attached or the connection's own.
    4. A file of rows that is asked by its own path (`rows_alone`) has its account beside itself,
       `<file>.ledger`, unless its folder has one already: then it is that one's. A row is charged
       for in one of them only. *Proof.* Whoever charges first leaves something at the place that
       decides for it, and looks at the other kind of place afterwards, before each charge: at the
       folder's for a file, at those of all files in it for a folder (`_others`). Of two that begin
       at once, one looks when both places are taken, sees two ledgers, and is refused. ∎
    5. If the account is said to be in PostgreSQL, `open_shared` decides, and `open_named` for rows
       that are in no file.
    6. Databases that share a ledger have an account in common, and `data_id` tells their rows
       apart, so that nobody is answered from what was measured of another one.

Not defended: a database in a folder that can't be written to, with the ledger elsewhere, has no
pointer, and who may write there can begin a second ledger. Copies and hard links of a database
or a file are data sets of their own.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import overload

from dpsql.errors import LedgerError, printable
from dpsql.hints import Hint, option, word
from dpsql.privacy import pointer
from dpsql.privacy.files import ledger_errors
from dpsql.privacy.ledger import Ledger
from dpsql.privacy.postgres import (
    PostgresStore,
    bring_up,
    create,
    find,
    find_bound,
    is_address,
    take_over,
)
from dpsql.privacy.postgres import bind as bind_on_server
from dpsql.privacy.refusals import EXAMPLE
from dpsql.privacy.sqlite import SqliteStore, close_for_good, exported
from dpsql.privacy.store import check_dataset

IN_MEMORY = ":memory:"
"""The name of a data set that has no file."""
CSV, PARQUET = "csv|tsv", "parquet|parq|pq"
"""Endings of names of files of rows, which `engines/duckdb/opened.py` opens by their paths."""
OF_ROWS = re.compile(rf"(?<=.)\.({CSV}|{PARQUET})(\.gz)?\Z", re.IGNORECASE | re.DOTALL)
"""Endings of names of files that are rows by themselves, and no database."""


def open_ledger(
    database: Path | str | None, given: Path | str | None = None, dataset: str | None = None
) -> Ledger:
    """Open the ledger of a database, or create it in a file.

    Args:
        database: the database's file; None if it is in memory. The file's name is the name of
            the data set.
        given: where the ledger shall be, if not at the usual place; with a database in memory,
            None keeps it in memory too. Or the address of the server where it is.
        dataset: the name of rows that are in no file; see `named`.

    Raises:
        LedgerError: the data set has its ledger elsewhere, or see `Ledger.open`.
    """
    if dataset is not None:
        return open_named(dataset, database, given)
    if is_address(given):
        return open_shared(None if database is None else usual_place(database), given)
    if database is None:
        return Ledger.open(given, dataset=IN_MEMORY if given is None else _begun_for(given))
    usual, path = usual_place(database), _place(database, given)
    for place in _others([_real(database)]):  # before there is a ledger that would be in the way
        _check_joined(place, path)
    with ledger_errors(usual):
        pointer.text_for(path)  # refused before there is a ledger that it can't point to
        decided = pointer.read(usual) is not None
        decided = decided or os.path.isdir(database)  # whose account views of files may have begun
        ledger = Ledger.open(path, dataset=_begun_for(path) if decided else _real(database).name)
        if path != usual:
            pointer.leave(usual, path)
    # Another process may have been first; then its ledger is the one, or this is an error.
    agreed = _place(database, given)
    return ledger if ledger.path == agreed else Ledger.open(agreed, dataset=ledger.dataset)


def _begun_for(given: Path | str) -> str:
    """Say for which data set a ledger was begun, or is to be begun.

    The name keeps an owner from giving a ledger to another database by mistake. It is not asked
    where there is no such choice: a pointer at the usual place of a database has decided already,
    maybe when it was charged for as an attached one (`join_database`), and rows in memory have no
    name. If there is no ledger yet, it may be the usual place of a database, which must be able to
    go on with it.
    """
    path = _real(given)
    with ledger_errors(path):
        path = pointer.followed(path)
    if os.path.lexists(path):
        return Ledger.existing(path).dataset
    database = path.with_suffix("")
    beside = path.suffix == ".ledger" and os.path.isfile(database)
    return database.name if beside else IN_MEMORY


def join_database(database: Path, ledger: Ledger, *, decide: bool = True) -> str:
    """See to it that an attached database is charged for in a ledger that is open, and in no other.

    Args:
        database: its file.
        ledger: where it shall be charged for.
        decide: see `join`.

    Returns:
        What tells its rows from those of other data sets of the ledger; see `data_id`.

    Raises:
        LedgerError: it is charged for elsewhere; the ledger is in memory only; or nothing could be
            left beside the file that says where its account is, so that the next session would
            begin another one.
    """
    (joined,) = join([database], ledger, decide=decide)
    usual = usual_place(database)
    if not os.path.exists(usual) and not os.access(usual.parent, os.W_OK):
        raise LedgerError(
            f"Nothing can be written beside {printable(str(database))}, so other sessions "
            "couldn't find its account.",
            hint="make that database the current one by USE, and name its ledger by "
            + option("ledger")
            + " each time.",
        )
    return joined


def join(folders: Sequence[Path], ledger: Ledger, *, decide: bool = True) -> tuple[str, ...]:
    """See to it that folders of files are charged for in a ledger that is open, and in no other.

    As for a database, the first ledger that is at a folder's usual place, or that a pointer there
    leads to, is the only one: it is asked again after the pointer was left, so two processes can't
    both have their way. No pointer is left if one of the folders has another ledger already.

    Args:
        folders: the folders; or files that are asked by their own paths, see `rows_alone`.
        ledger: where they shall be charged for.
        decide: whether that is decided now, for good, since a charge follows. Else it is only
            checked that it can be, and nothing is left anywhere.

    Returns:
        What tells each of them from other data sets of the ledger; see `data_id`.

    Raises:
        LedgerError: one is charged for elsewhere, or the ledger is in memory only.
    """
    places = [usual_place(folder) for folder in folders]
    if ledger.store.is_shared:
        for usual in (*places, *_others(folders)):
            check_shared(usual, ledger)
        return tuple(map(data_id, folders))
    if ledger.path is None:
        raise _forgotten(places)
    for usual in (*places, *_others(folders)):
        _check_joined(usual, ledger.path)
    for usual in places if decide else ():
        with ledger_errors(usual):
            if ledger.path != usual:
                pointer.leave(usual, ledger.path)
        _check_joined(usual, ledger.path)
    for usual in _others(folders):  # only now: another process may have begun there just before
        _check_joined(usual, ledger.path)
    return tuple(map(data_id, folders))


def rows_alone(file: Path) -> bool:
    """Whether a file of rows that is asked by its own path has its account beside itself.

    It hasn't if the account of its folder was begun: that is its own, too.

    Args:
        file: its real path.
    """
    if not OF_ROWS.search(file.name):
        return False
    return not file.parent.name or not os.path.lexists(usual_place(file.parent))


def _others(folders: Sequence[Path]) -> list[Path]:
    """Return the other places at which something says where the account of some rows is.

    Of a folder they are those of files in it that were asked by their own paths; of such a file
    that of its folder.
    """
    places = list[Path]()
    for folder in folders:
        if not os.path.isdir(folder):
            beside_rows = OF_ROWS.search(folder.name) and folder.parent.name
            beside = [folder.parent] if beside_rows else []
        else:
            with ledger_errors(folder):
                names = {*os.listdir(folder)}
            own_ledger = (n for n in names if f"{n}.ledger" in names and OF_ROWS.search(n))
            beside = [folder / name for name in own_ledger]
        places += [place for other in beside if os.path.lexists(place := usual_place(other))]
    return places


def join_stored(
    folders: Sequence[Path], uid: str, ledger: Ledger, *, decide: bool = True
) -> tuple[str, ...]:
    """See to it that a table of a lake is charged for in a ledger that is open, and in no other.

    In a file, its folders on this machine say where the account is, as those of any files do. On a
    server its own name for itself does, which the owner has bound; what has none is known by the
    name of the data set that the ledger was opened for. Then a pointer is left beside its folders,
    too, and one that is there must lead to this ledger: so none begins another account in a file.

    Args:
        folders: its folders on this machine.
        uid: its name for itself.
        ledger: where it shall be charged for.
        decide: see `join`.

    Returns:
        What tells it from other data sets of the ledger.

    Raises:
        LedgerError: it is charged for elsewhere, or isn't bound; or the ledger is in a file, and
            nothing on this machine can tell where it is.
    """
    if not ledger.store.is_shared and not folders:
        raise LedgerError(
            "The rows aren't on this machine, and this ledger is in a file on it: other sessions "
            "wouldn't find it.",
            hint="keep the account on a server, "
            + option("ledger", "postgresql://db.example/accounts")
            + " with "
            + option("dataset", "hr.people")
            + ".",
        )
    if not ledger.store.is_shared:
        return join(folders, ledger, decide=decide)
    if uid:
        check_table(uid, ledger)
    for usual in map(usual_place, folders):
        lead_to_shared(usual, ledger, decide=decide)
    for usual in _others(folders):
        lead_to_shared(usual, ledger, decide=False)
    return (uid,) if uid else ()


def _forgotten(places: Sequence[Path]) -> LedgerError:
    """Refuse an account in memory, and name the one that there is, or would be."""
    usual = next((place for place in places if os.path.exists(place)), places[0])
    with ledger_errors(usual):
        target = pointer.followed(usual)
    return LedgerError(
        "The rows are in files, and the account of this session is in memory only: what is spent "
        "on them would be forgotten.",
        hint="pass " + option("ledger", str(target)) + ".",
    )


def _check_joined(usual: Path, path: Path) -> None:
    """Refuse another ledger than the one that is at a place, if there is one."""
    with ledger_errors(usual):
        pointer.text_for(path)
        target = pointer.followed(usual) if os.path.exists(usual) else path
        same = _are_same(target, path)
    if not same:
        raise LedgerError(
            f"These files have their account in {printable(str(target))}, and this session has "
            f"another one, {printable(str(path))}.",
            hint="ask for them in a session of that account: on the database that it is beside, "
            "or with " + option("ledger", str(target)) + ". If nothing was charged in one of them, "
            "remove that one.",
        )


def data_id(database: Path | str | None) -> str:
    """Tell a database from others that have the same ledger.

    It is empty for the one beside which the ledger stands, wherever both are moved or copied to.
    Others have the random text of their pointer (nothing, if that is of version 2), or, where no
    pointer could be left, a digest of the path. Of databases in memory nothing is known, so each
    call gives another one.

    Args:
        database: the database's file, of which the ledger was opened; None if it is in memory.

    Raises:
        LedgerError: what is at the usual place is damaged.
    """
    if database is None:
        return uuid.uuid4().hex
    usual = usual_place(database)
    with ledger_errors(usual):
        known = pointer.read(usual)
        if known is not None:
            return known.data
        if os.path.exists(usual):
            return ""
    return hashlib.sha256(os.fsencode(_real(database))).hexdigest()


@overload
def ledger_path(database: Path | str, given: Path | str | None = None) -> Path: ...
@overload
def ledger_path(database: None, given: Path | str) -> Path: ...
@overload
def ledger_path(database: Path | str | None, given: Path | str | None = None) -> Path | None: ...
def ledger_path(database: Path | str | None, given: Path | str | None = None) -> Path | None:
    """Say where the ledger of a database is, or would be created; None is in memory.

    Reads the usual place and changes nothing. For the arguments see `open_ledger`.

    Raises:
        LedgerError: the data set has its ledger elsewhere than where it is said to be, or what
            is at its usual place is damaged or points to nothing.
    """
    if database is not None:
        return _place(database, given)
    return None if given is None else _real(given)


def begin(database: Path, address: str, dataset: str = "") -> tuple[Ledger, bool]:
    """Begin the account of a database on a server; see `shared.begin_shared`.

    Args:
        database: the database's file, or a folder of files.
        address: where the server is.
        dataset: the account's name; by default that of the file.
    """
    return begin_shared(usual_place(database), address, dataset)


def bind(database: Path, address: str, dataset: str) -> Ledger:
    """Charge a database, or a folder of files, in an account on a server from now on.

    See `shared.bind_shared`.
    """
    return bind_shared(usual_place(database), address, dataset)


def move(database: Path, address: str) -> Ledger:
    """Move the account of a database, or a folder, from its file to a server.

    See `shared.move_shared`.
    """
    usual = usual_place(database)
    if not os.path.exists(usual):
        raise LedgerError(
            f"{printable(database.name)} has no account yet.",
            hint="begin one by dpsql ledger init.",
        )
    return move_shared(usual, address)


def is_begun(database: Path, given: Path | str | None = None) -> bool:
    """Tell whether a database has an account, or is said to have one on a server.

    Raises:
        LedgerError: see `ledger_path`.
    """
    return is_address(given) or ledger_path(database, given).exists()


def usual_place(database: Path | str) -> Path:
    """Say where the ledger of a database is unless a pointer stands there.

    Raises:
        LedgerError: that is a link to nothing.
    """
    file = _real(database)
    return _real(file.with_name(f"{file.name}.ledger"))


def _place(database: Path | str, given: Path | str | None) -> Path:
    usual = usual_place(database)
    with ledger_errors(usual):
        wanted = usual if given is None else pointer.followed(_real(given))
        if not os.path.exists(usual):
            return wanted
        decided = pointer.followed(usual)
        if given is None or _are_same(wanted, decided):
            return decided
    raise LedgerError(
        f"This data set has its ledger in {printable(str(decided))}, "
        f"not in {printable(str(wanted))}.",
        hint="leave "
        + option("ledger")
        + " out to go on with it. To keep it elsewhere, move that file there"
        + (" first." if decided == usual else f", then remove {printable(str(usual))}."),
    )


def _real(path: Path | str) -> Path:
    """Resolve symbolic links, but refuse one that leads to nothing."""
    with ledger_errors(path):
        if os.path.islink(path) and not os.path.exists(path):
            raise LedgerError(
                f"{printable(str(path))} is a link to a file that is not there.",
                hint="restore the file. A new ledger would forget what was spent.",
            )
        return Path(os.path.realpath(path))


def _are_same(first: Path, other: Path) -> bool:
    """Compare by file, as a file system may not tell capital letters from small ones."""
    both = os.path.exists(first) and os.path.exists(other)
    return first == other or (both and os.path.samefile(first, other))


# ── Rows whose account is in PostgreSQL, where several machines share it. Trusted ────────────────
#
# The owner binds a database or a folder to a ledger, once. At its usual place a pointer says so
# then, by the random identity of the ledger and one of its own for the rows, and the server has the
# same pair. A pointer has no address: who asks names it.
#
# Guarantees:
#     1. Rows are charged for in a ledger of a server only if the pointer beside them and the server
#        both say so. What isn't bound is refused, and nothing is begun or left anywhere by
#        sessions.
#     2. The pointer is left before the server is told, and the first stays: there and on the
#        server, where the identity of the rows is a key. If a process is killed in between, the
#        rows can be charged for nowhere, and binding them again goes on.
#     3. Copies of a database with its pointer share the account, and are taken for the same rows.
#
# Not defended: who may remove the pointer, or copies the rows without it, can begin another
# account.


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
    bound = _bound(usual)
    ledger = Ledger(find(address, ledger=bound.ledger))
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
    bring_up(address)
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
        known = pointer.read(usual)
        file = usual if known is None else known.target
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
    bound = _bound(usual)
    _check_leads(bound, usual, ledger)
    if not ledger.store.is_bound(bound.uid):
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


def _check_leads(bound: pointer.Pointer, usual: Path, ledger: Ledger) -> None:
    if bound.ledger != ledger.id:
        raise LedgerError(
            f"{_rows(usual)} is bound to another ledger than the one in {ledger.place} as "
            f"{printable(ledger.dataset)}.",
            hint="name the server and the database where it was bound.",
        )


def _bind(usual: Path, address: str, store: PostgresStore) -> Ledger:
    with ledger_errors(usual):
        pointer.leave_shared(usual, store.id)
    bound = _bound(usual)
    if bound.ledger == store.id:
        bind_on_server(address, store, bound.uid)
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
        known = pointer.read(usual)
        beyond = None if known is None or known.target is None else pointer.read(known.target)
    if known is not None and beyond is not None and beyond.ledger:
        return pointer.Pointer(None, known.data, beyond.ledger)
    if known is not None and known.ledger:
        return known
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


# ── Rows in no file, whose account is in PostgreSQL by a name that the owner gave. Trusted ───────
#
# Rows in memory, frames, and tables of other systems have no place beside which something could say
# where their account is. So the owner binds a name to a ledger, once, and each session says which
# name its rows have. The server knows it by a digest, as it knows rows in files by the random text
# of their pointer, and both are values of the same key.
#
# Guarantees:
#     1. Rows are charged for in a ledger by their name only if the server says so. What isn't bound
#        is refused, and sessions begin and bind nothing: only the owner can (`postgres.tables`).
#     2. A name is bound to one ledger, for good. So whatever rows have it, at once or one after the
#        other, what is spent on all of them is added up in that ledger: two data sets of one name
#        have one budget between them.
#     3. Digests of names are longer than the random texts of pointers, so no name stands for rows
#        in a file. These have their account by their file alone, and a name for them is refused.
#     4. A table of a lake that has a name for itself, as Delta's have, is charged for in a session
#        of a name only if it is bound to the same ledger, once, for good. One that is made anew in
#        its place has another, and is refused until it is bound, too.
#
# Not defended: whoever asks says which rows have a name. Rows that are asked under two names have
# two budgets, and a unit loses the sum of both: the owner binds one name for them, and one only.


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
        raise LedgerError(f"No ledger of that server is for {shown}.", hint=_bind_name(dataset))
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
    bind_on_server(address, store, uid)
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
    bind_on_server(address, store, table_uid(uid))
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


def _bind_name(dataset: str) -> str:
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
