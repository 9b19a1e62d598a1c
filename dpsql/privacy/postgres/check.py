"""The check of a ledger in PostgreSQL: of what is new before each decision, and of all. Trusted.

Guarantees:
    1. `followed` returns a history only if the lines go on from the known one without a break and
       lead to the head.
    2. `read_content` returns nothing but the bytes whose digest is in the chain.
    3. `audit` checks everything there is, and that the server's rules are those of `tables`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.privacy.amount import EVERY
from dpsql.privacy.event import FORMAT, Line, damaged
from dpsql.privacy.history import Entry, History
from dpsql.privacy.postgres.tables import LAYOUT
from dpsql.privacy.store import Audit

if TYPE_CHECKING:
    import psycopg

_ALL = "SELECT seq, event, hash FROM dpsql.chain WHERE ledger = %s ORDER BY seq"
_SUMS = """SELECT spent_over || '/' || spent_under,
    spent_delta_over || '/' || spent_delta_under, total_over || '/' || total_under,
    total_delta_over || '/' || total_delta_under
    FROM dpsql.ledger WHERE ledger = %s"""
_RULES = """SELECT
    (SELECT array_agg(tgname::text || tgenabled::text ORDER BY tgname)
        FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid
        WHERE c.relnamespace = to_regnamespace('dpsql') AND NOT tgisinternal),
    (SELECT array_agg(conname::text ORDER BY conname) FROM pg_constraint
        WHERE connamespace = to_regnamespace('dpsql') AND convalidated),
    (SELECT version FROM dpsql.layout)"""
_TRIGGERS = {
    "binding_fixedO", "chain_fixedO", "layout_fixedO", "ledger_fixedO", "ledger_updateO",
    "measurement_fixedO",
}  # fmt: skip
_CONSTRAINTS = {
    "within_total", "spent_is_exact", "total_is_exact", "bounded", "chain_pkey", "ledger_pkey",
    "ledger_dataset_key", "binding_pkey", "measurement_pkey", "delta_is_exact",
    "delta_within_total",
}  # fmt: skip


def followed(known: History, lines: Iterable[Line], seq: int, link: str) -> History:
    """Go on with a history by the lines from its last one, to the head.

    Raises:
        LedgerError: they don't follow, or don't lead there.
    """
    history, rest = known.copy(), iter(lines)
    if known.seq:
        again = next(rest, None)
        if again is None or again.seq != known.seq:
            raise damaged("entries are missing")
        if again.hash != known.hash:
            raise damaged("its history was changed")
    for line in rest:
        history.add(line)
    if (history.seq, history.hash) != (seq, link):
        raise damaged("entries are missing")
    return history


def holds(connection: psycopg.Connection[Any], ledger: str, line: Line) -> bool:
    """Tell whether a ledger has a line."""
    row = connection.execute(
        "SELECT hash FROM dpsql.chain WHERE ledger = %s AND seq = %s", (ledger, line.seq)
    ).fetchone()
    return row is not None and row[0] == line.hash


def read_content(connection: psycopg.Connection[Any], ledger: str, entry: Entry) -> bytes:
    """Read the content that is kept for an entry which has one.

    Raises:
        LedgerError: it is not there, or is not what the chain says.
    """
    row = connection.execute(
        "SELECT content FROM dpsql.measurement WHERE ledger = %s AND seq = %s",
        (ledger, entry.released),
        binary=True,
    ).fetchone()
    content = b"" if row is None else bytes(row[0])
    if row is None or hashlib.sha256(content).hexdigest() != entry.content:
        raise damaged(f"what is kept for entry {entry.seq} was changed")
    return content


def audit(connection: psycopg.Connection[Any], history: History) -> Audit:
    """Check the whole ledger, with all contents.

    Args:
        connection: in a transaction, so that all is read from one state.
        history: what the transaction began with.

    Raises:
        LedgerError: anything is amiss.
    """
    _check_rules(connection)
    ledger, start = history.ledger, History(FORMAT, history.ledger, history.dataset)
    lines = map(Line._make, connection.execute(_ALL, (ledger,)))
    whole = followed(start, lines, history.seq, history.hash)
    _check_sums(connection, whole)
    kept = [entry for entry in whole.entries.values() if entry.content]
    size = sum(len(read_content(connection, ledger, entry)) for entry in kept)
    count = connection.execute(
        "SELECT count(*) FROM dpsql.measurement WHERE ledger = %s", (ledger,)
    ).fetchone()
    if count != (len(kept),):
        raise damaged("it keeps something that no entry names")
    return Audit(len(whole.entries), whole.seq, len(kept), size)


def _check_sums(connection: psycopg.Connection[Any], history: History) -> None:
    """Check that the server's sums are those of the chain."""
    row = connection.execute(_SUMS, (history.ledger,)).fetchone() or ()
    sums = [None if text is None else Fraction(text) for text in row]
    spent, total = history.spent, history.total
    limits = (None, Fraction(0)) if total is None else (total.of(EVERY), total.delta)
    if sums != [spent.of(EVERY), spent.delta, *limits]:
        raise damaged("the server's sums are not those of its entries")


def _check_rules(connection: psycopg.Connection[Any]) -> None:
    """Check that nobody has taken away what keeps the server from forgetting."""
    triggers, constraints, version = connection.execute(_RULES).fetchone() or ((), (), 0)
    if set(triggers or ()) != _TRIGGERS or not set(constraints or ()) >= _CONSTRAINTS:
        raise damaged("its tables were changed")
    if version != LAYOUT:
        raise damaged("its tables are of another version")
