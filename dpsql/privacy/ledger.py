"""The ledger: what was spent on a data set, on disk before anything is answered. Trusted.

A ledger is an SQLite file beside the database. It holds amounts, digests and times, never data
or SQL.

Guarantees:
    1. When `charge` returns, the charge is on disk (rollback journal, synchronous=EXTRA). A
       crash before loses at most the answer; a crash after keeps the charge.
    2. Reading what was spent, deciding and writing are one IMMEDIATE transaction, so that any
       number of threads and processes together never pass the total. Amounts are exact
       fractions.
    3. Before each decision the whole history is read and checked: file, format, tables and
       triggers, hash chain, sums, and that what this object saw before is still there. If
       anything is amiss, or the file can't be written, `LedgerError` is raised and nothing is
       released. (A failing disk may keep a charge that was reported as failed, never lose one
       that was reported as made.)
    4. Rows are only ever appended; triggers forbid the rest.

Not defended: whoever may write the file can put back an older copy, or write a new history with
a new chain. Receipts, which go into releases, bring that to light (`verify`).
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
import uuid
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from dpsql.errors import BudgetError, LedgerError
from dpsql.privacy.budget import Budget
from dpsql.privacy.history import Entry, Event, History, damaged
from dpsql.privacy.store import DDL, FORMAT, connect, create, create_file, ledger_errors

_GRID = 10**30
"""Amounts are rounded up to a multiple of 10^−30, so that sums of many stay short."""
_DIGEST = re.compile(r"[0-9a-f]{1,128}")


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof of a charge: which ledger recorded it, where, and for which plan."""

    ledger: str
    seq: int
    request: str
    mu_squared: Fraction
    """What was charged: at least what was asked for, by less than 10^−30."""
    plan: str
    schema: str


class Ledger:
    """What was spent on one data set. Open one with `Ledger.open`.

    May be used from any thread, and on disk also after a fork and from any number of processes.
    """

    def __init__(self, path: Path | None, dataset: str) -> None:
        self.path = path
        self.dataset = dataset
        self.id = ""
        self._seen: tuple[int, str] = (0, "")
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._memory = None if path is not None else sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False
        )  # fmt: skip
        if self._memory is not None:
            weakref.finalize(self, self._memory.close)

    @classmethod
    def open(cls, path: Path | str | None, *, dataset: str) -> Ledger:
        """Open the ledger of a data set, or create it.

        Args:
            path: where the ledger is kept; None keeps it in memory, as long as this object lives.
            dataset: the data set's name. A ledger belongs to the one it was created for.

        Raises:
            LedgerError: the ledger is damaged, of a newer version or another data set, or it
                can't be written.
        """
        _check_dataset(dataset)
        with ledger_errors(path):
            ledger = cls(None if path is None else Path(path).absolute(), dataset)
            if ledger._memory is not None:
                create(ledger._memory, dataset)
            elif ledger.path is not None and not os.path.lexists(ledger.path):
                create_file(ledger.path, dataset)
            with ledger._connection() as connection:
                ledger._probe(connection)
        return ledger

    @property
    def total(self) -> Fraction | None:
        """The most μ² that may be spent, if that was fixed."""
        return self._read().total

    @property
    def spent(self) -> Fraction:
        """The μ² spent so far."""
        return self._read().spent

    @property
    def remaining(self) -> Fraction | None:
        """The μ² that is left, if the total was fixed."""
        return self._read().remaining

    def entries(self) -> tuple[Entry, ...]:
        """All charges, oldest first."""
        return tuple(self._read().entries.values())

    def set_total(self, budget: Budget) -> None:
        """Fix the total. The same one again is fine.

        Raises:
            LedgerError: another total was fixed before, or more was spent already.
        """
        with self._writing() as (connection, history):
            if history.total == budget.mu_squared:
                return
            if history.total is not None:
                raise LedgerError(
                    f"The total of {self.dataset} was fixed before, at "
                    f"{budget.describe(history.total)}, and can't become "
                    f"{budget.describe(budget.mu_squared)}.",
                    hint="leave the total out to go on with what is left of the first one. The "
                    f"account is kept in {self.path or 'memory'}.",
                )
            if history.spent > budget.mu_squared:
                raise LedgerError(
                    f"{budget.describe(history.spent)} was spent on {self.dataset} already, "
                    f"more than {budget.describe(budget.mu_squared)}.",
                    hint="choose a total that covers what was spent.",
                )
            self._append(connection, history, "total", "", budget.mu_squared)

    def charge(self, mu_squared: Fraction, *, asked: Budget, plan: str, schema: str) -> Receipt:
        """Charge for one release; on disk when this returns.

        Args:
            mu_squared: what the release costs, at most `asked`.
            asked: the budget given for it; words the messages.
            plan: hexadecimal digest of the plan.
            schema: hexadecimal digest of the schema.

        Raises:
            BudgetError: more than is left; nothing is charged.
            LedgerError: the charge can't be recorded.
        """
        cost = _recorded(mu_squared, asked)
        for digest in (plan, schema):
            if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
                raise LedgerError(
                    "A ledger keeps digests of plans and schemas, nothing else.",
                    hint="pass lower-case hexadecimal digits.",
                )
        with self._writing() as (connection, history):
            left = history.remaining
            if left is not None and cost > left:
                raise _too_much(asked, cost, left)
            request = uuid.uuid4().hex
            event = self._append(connection, history, "charged", request, cost, plan, schema)
        return Receipt(self.id, event.seq, request, cost, plan, schema)

    def mark_released(self, receipt: Receipt) -> None:
        """Note that the release which the receipt paid for was handed out.

        Raises:
            LedgerError: the receipt is not of this ledger, or was marked before.
        """
        with self._writing() as (connection, history):
            entry = self._entry(history, receipt)
            _refuse_used(entry)
            self._append(
                connection, history, "released", receipt.request, Fraction(0),
                receipt.plan, receipt.schema,
            )  # fmt: skip

    def verify(self, receipt: Receipt, *, unused: bool = False) -> None:
        """Check that the ledger still holds the charge of a receipt, and, if asked, unused.

        Raises:
            LedgerError: it does not: an older copy was put back, or it is another ledger.
        """
        entry = self._entry(self._read(), receipt)
        if unused:
            _refuse_used(entry)

    def __repr__(self) -> str:
        return f"<Ledger of {self.dataset!r} {'in memory' if self.path is None else self.path}>"

    def _entry(self, history: History, receipt: Receipt) -> Entry:
        entry = history.entries.get(receipt.request)
        if receipt.ledger != self.id or entry is None or receipt != Receipt(
            self.id, entry.seq, entry.request, entry.mu_squared, entry.plan, entry.schema
        ):  # fmt: skip
            raise LedgerError(
                "The ledger does not hold this receipt.",
                hint="restore the newest copy of the ledger that the receipt is from.",
            )
        return entry

    def _append(
        self, connection: sqlite3.Connection, history: History, kind: str, request: str,
        mu_squared: Fraction, plan: str = "", schema: str = "",
    ) -> Event:  # fmt: skip
        amount = f"{mu_squared.numerator}/{mu_squared.denominator}"
        time = datetime.now(UTC).isoformat(timespec="seconds")
        fields = (history.seq + 1, kind, request, amount, plan, schema, time)
        event = Event(*fields, hash=history.link(*fields))
        history.add(event)
        connection.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)", event)
        return event

    def _read(self) -> History:
        with (
            ledger_errors(self.path),
            self._connection() as connection,
            self._transaction(connection, "BEGIN") as history,
        ):
            return history

    @contextmanager
    def _writing(self) -> Iterator[tuple[sqlite3.Connection, History]]:
        """Open a transaction for writing; it is on disk when the block has ended."""
        with (
            ledger_errors(self.path),
            self._connection() as connection,
            self._transaction(connection, "BEGIN IMMEDIATE") as history,
        ):
            yield connection, history

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection, begin: str) -> Iterator[History]:
        # Taken before the snapshot: another thread may see more while this one waits.
        seen = self._seen
        connection.execute(begin)
        try:
            history = self._checked(connection, seen)
            yield history
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                with suppress(sqlite3.Error):  # the first error is the one to report
                    connection.execute("ROLLBACK")
            raise
        self._seen = (history.seq, history.hash)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if self.path is not None:
            with closing(connect(self.path)) as connection:
                yield connection
            return
        if self._memory is None or os.getpid() != self._process:
            # A copy of the memory would allow the budget to be spent twice.
            raise LedgerError(
                "A ledger in memory can't be used by a forked process.",
                hint="keep the database, and with it the ledger, in a file.",
            )
        with self._lock:
            yield self._memory

    def _probe(self, connection: sqlite3.Connection) -> None:
        """Check everything, and really write: a read-only file passes BEGIN IMMEDIATE."""
        with self._transaction(connection, "BEGIN IMMEDIATE"):
            connection.execute("UPDATE probe SET opened = opened + 1")

    def _checked(self, connection: sqlite3.Connection, seen: tuple[int, str]) -> History:
        """Read the whole history and check it."""
        if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            raise damaged("the file is not intact")
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
        if "meta" not in names:
            raise damaged("the file is not a ledger")
        versions = connection.execute("SELECT format FROM meta").fetchall()
        if versions != [(FORMAT,)]:
            raise _wrong_format(versions)
        found = connection.execute("SELECT sql FROM sqlite_master WHERE name NOT GLOB 'sqlite_*'")
        if sorted(str(row[0]) for row in found) != sorted(DDL):
            raise damaged("its tables were changed")
        identity, dataset = connection.execute("SELECT ledger, dataset FROM meta").fetchone()
        if dataset != self.dataset:
            raise LedgerError(
                f"This ledger belongs to another data set ({dataset!r}, not {self.dataset!r}).",
                hint="the database file must keep the name under which its ledger began; it may be "
                "in another folder. A new ledger would forget what was spent.",
            )
        self.id = self.id or identity
        history = History(json.dumps([FORMAT, identity, dataset]))
        for row in connection.execute("SELECT * FROM event ORDER BY seq"):
            history.add(Event(*row))
            if history.seq == seen[0] and history.hash != seen[1]:
                raise damaged("its history was changed")
        (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
        if identity != self.id:
            raise damaged("it was replaced by another ledger")
        if history.seq < seen[0] or history.seq != last:
            raise damaged("entries are missing")
        return history


def _refuse_used(entry: Entry) -> None:
    if entry.state == "released":
        raise LedgerError("This receipt was used before.", hint="charge anew for another release.")


def _recorded(mu_squared: Fraction, asked: Budget) -> Fraction:
    """Round a cost up to the grid of the ledger, but never above what was asked."""
    if not isinstance(mu_squared, Fraction) or mu_squared <= 0:
        raise BudgetError("A charge must be a positive fraction.", hint="pass a Fraction above 0.")
    if mu_squared > asked.mu_squared:
        raise BudgetError(
            f"The release costs {asked.describe(mu_squared)}, more than was asked: "
            f"{asked.describe(asked.mu_squared)}.",
            hint="plan it again for this budget.",
        )
    return min(Fraction(-(-mu_squared * _GRID // 1), _GRID), asked.mu_squared)


def _too_much(asked: Budget, cost: Fraction, left: Fraction) -> BudgetError:
    affordable = asked.at_most(left) if left * 1000 > cost else None
    return BudgetError(
        f"Not enough budget: asked {asked.describe(cost)}, "
        f"left {asked.describe(left, up=False)}, short by {_difference(asked, cost - left)}.",
        hint="nothing useful is left; only the data owner can decide on more."
        if affordable is None
        else f"ask for at most dpsql.{affordable!r}.",
    )


def _difference(asked: Budget, amount: Fraction) -> str:
    """Word a difference in ρ if the budget is in ε, which can't be subtracted."""
    described = asked.describe(amount)
    return described if asked.form == "rho" else described[described.index("ρ") :].rstrip(")")


def _wrong_format(versions: list[tuple[object]]) -> LedgerError:
    found = versions[0][0] if versions else None
    if isinstance(found, int) and found > FORMAT:
        return LedgerError(
            f"The ledger has format version {found}; this dpsql knows versions up to {FORMAT}.",
            hint="update dpsql.",
        )
    return damaged("its format version is wrong")


def _check_dataset(dataset: str) -> None:
    plain = isinstance(dataset, str) and 0 < len(dataset) <= 1000
    if not plain or not dataset.isprintable():
        raise LedgerError(
            "A data set's name must be a short text without control characters.",
            hint='for example dataset="adult".',
        )
