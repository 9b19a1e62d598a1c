"""The ledger: what was spent on a data set, durable before anything is answered. Trusted.

A ledger holds amounts, digests and times, and the noisy integers of releases; never data or SQL. It
is kept in a `Store`, usually an SQLite file beside the database.

Guarantees:
    1. When `charge` returns, the charge is durable. A crash before loses at most the answer; a
       crash after keeps the charge.
    2. Reading what was spent, deciding and writing are one transaction of the store, so that any
       number of threads and processes together never pass the total: neither that of μ² nor that
       of δ. Amounts are exact (`amount`); all that is charged today counts for the units of every
       table. A charge is one event, which has both of its sums: there is no state with one of
       them. Both totals are fixed at once, and δ is set aside only before anything was spent, so
       that they don't depend on what came out; and they keep what the budget states
       (`Budget.setting_aside`, and docs/explanation/accounting.md for the proof).
    3. Each decision rests on a history that the store has checked (`store`). If anything is amiss,
       or the ledger can't be written, `LedgerError` is raised and nothing is released. (What fails
       may keep a charge that was reported as failed, never lose one that was reported as made.)
    4. A charge is released at most once, with at most one content. What is kept of a release
       and its note are one commit, so that the content is there if the release counts as made.
       *Proof.* `release` writes only for an entry that is open, in the transaction that has read
       it, and no other event opens an entry again but `retried`, which `History` takes only for one
       that failed and was never released. The note has the digest of the content, whether that is
       kept or too long to be: so whoever has measured for the same charge, in a process that was
       forked while it counted, is refused, and finds by the digest that its content is another one
       (`Entry.digest`), of whatever length. ∎
       A charge whose counting failed, before any noise was drawn, pays for one equal request more:
       that takes it over in the transaction in which it would have charged, so no two do.
    5. `undelivered`, `measurements` and `content` return only bytes that were stored with a
       charge of this ledger and have the digest that its chain holds.
    6. All charges for a table protect the same unit, and describe it by the same schema unless
       another one was accepted; also those for rows of other tables that refer to its
       rows. Once the rows of a unit are protected together in one table, no other table is
       charged for row by row, unless the owner says that it has no rows of units.

Not defended: whoever may write where the ledger is kept can put back an older copy, or write a new
history with a new chain. Receipts, which go into releases, bring that to light (`verify`).
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.privacy import owner, pointer, refusals
from dpsql.privacy.amount import EVERY, Amount, on_fine_grid, on_grid
from dpsql.privacy.budget import KEY_SHARE, Budget, Number, beside
from dpsql.privacy.event import Event
from dpsql.privacy.files import ledger_errors
from dpsql.privacy.history import Entry, History, Protected, rows_of
from dpsql.privacy.postgres import find, is_address
from dpsql.privacy.purpose import Accepted, ChargedTable, Purpose, Receipt
from dpsql.privacy.sqlite import SqliteStore, create_file
from dpsql.privacy.store import Audit, Store, check_dataset


class Ledger:
    """The account of what was spent on one data set. Open one with `Ledger.open`.

    May be used from any thread, and on disk also after a fork and from any number of processes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @classmethod
    def open(cls, path: Path | str | None, *, dataset: str) -> Ledger:
        """Open the ledger of a data set, or create it.

        Args:
            path: where the ledger is kept, or a pointer to it; None keeps it in memory, as long
                as this object lives.
            dataset: the data set's name. A ledger belongs to the one it was created for.

        Raises:
            LedgerError: the ledger is damaged, of another version or another data set, or it
                can't be written.
        """
        check_dataset(dataset)
        with ledger_errors(path):
            file = None if path is None else Path(path).absolute()
            if file is not None:
                if not os.path.lexists(file):
                    create_file(file, dataset)
                file = pointer.followed(file)
            store = SqliteStore(file, dataset)
            store.probe()
        return cls(store)

    @classmethod
    def existing(cls, path: Path | str, *, dataset: str = "", identity: str = "") -> Ledger:
        """Open a ledger for whatever data set, or the one that a pointer names, to read it.

        Args:
            path: its file, or the address of a server.
            dataset: whose it is, where a server has several.
            identity: or which it is, by its random identity.

        Raises:
            LedgerError: there is none, or it is damaged or of another version.
        """
        if is_address(path):
            return cls(find(path, dataset=dataset, ledger=identity))
        with ledger_errors(path):
            ledger = cls(SqliteStore(pointer.followed(Path(path).absolute()), dataset=""))
            ledger._read()
        return ledger

    @property
    def path(self) -> Path | None:
        """The path where it is kept; None in memory."""
        return self._store.path

    @property
    def place(self) -> str:
        """The place where it is kept, in words."""
        return self._store.place

    @property
    def store(self) -> Store:
        """The store that keeps it."""
        return self._store

    @property
    def dataset(self) -> str:
        """The name of the data set."""
        return self._store.dataset

    @property
    def id(self) -> str:
        """Its random identity, which receipts carry."""
        return self._store.id

    @property
    def total(self) -> Fraction | None:
        """The most μ² that may be spent, if that was fixed."""
        total = self._read().total
        return None if total is None else total.of(EVERY)

    @property
    def spent(self) -> Fraction:
        """The μ² spent so far."""
        return self._read().spent.of(EVERY)

    @property
    def remaining(self) -> Fraction | None:
        """The μ² that is left, if the total was fixed."""
        return self._read().remaining

    @property
    def total_delta(self) -> Fraction | None:
        """The most δ that may be spent besides μ², if the total was fixed; 0 if none was set aside.

        It pays for finding out which keys exist; what is left of it can't become μ².
        """
        total = self._read().total
        return None if total is None else total.delta

    @property
    def spent_delta(self) -> Fraction:
        """The δ spent so far."""
        return self._read().spent.delta

    @property
    def remaining_delta(self) -> Fraction | None:
        """The δ that is left of what was set aside, if the total was fixed."""
        return self._read().remaining_delta

    def entries(self) -> tuple[Entry, ...]:
        """All charges, oldest first."""
        return tuple(self._read().entries.values())

    def set_total(self, budget: Budget, *, key_delta: Number | None = None) -> None:
        """Fix the total. The same one again is fine.

        Args:
            budget: the total.
            key_delta: the δ that is set aside of it, or in addition to it, to pay for finding out
                which keys exist; see `Budget.setting_aside`. By default what was set aside before;
                of a new total in (ε, δ) a tenth of its δ, if nothing was spent; and else nothing.

        Raises:
            LedgerError: another total was fixed before, more was spent already, or anything was
                and δ is to be set aside.
            BudgetError: the total is a pure ε, which amounts of μ² would not keep; or no such δ can
                be set aside.
        """
        if budget.pure:
            raise refusals.pure_total(budget)
        if key_delta is None and budget.key_delta:
            key_delta = budget.key_delta
        stated = None if key_delta is None else budget.setting_aside(key_delta)
        with self._store.writing() as now:
            total, spent = now.history.total, now.history.spent
            if total is not None:
                wanted = stated or beside(budget, total.delta)
                if _amount(wanted) != total:
                    raise refusals.other_total(self.dataset, self.place, wanted, total)
                return
            wanted = stated or (budget if spent or budget.delta is None else _with_keys(budget))
            if wanted.key_delta and spent:
                raise refusals.set_aside_late(self.dataset, wanted)
            if not spent <= _amount(wanted):
                raise refusals.total_too_small(self.dataset, wanted, spent)
            now.append(Event("total", amounts=_amount(wanted)))

    def understood(self, budget: Budget) -> Budget:
        """Return what a budget for a release is in this account.

        (ε, δ) stands for a release with all keys that are ever found, as it does in the total: so
        it is converted as the total was, beside the δ that is set aside, and what the total states
        always fits into it. If it has no more δ than that, it stands for the release alone, as
        other budgets do, which are what they are.
        """
        aside = self.total_delta
        if not aside or not budget.delta or budget.delta <= aside:
            return budget
        return budget.setting_aside(aside)

    @property
    def protected(self) -> Protected:
        """For whom the sum of all charges is a promise."""
        return self._read().protected

    def check(
        self, purpose: Purpose, *, accept_schema: Accepted = False, each_row: bool = False
    ) -> None:
        """Check that `charge` would take this purpose, without charging.

        Raises:
            StaleSchemaError, LedgerError: see `charge`.
        """
        history = self._read()
        for table in purpose.tables:
            accepted = table.is_accepted(accept_schema)
            history.must_bind(table, accept_schema=accepted, each_row=each_row)

    def check_left(self, asked: Budget, mu_squared: Fraction, delta: Fraction) -> None:
        """Check that so much is left, without charging.

        Raises:
            BudgetError: it isn't.
        """
        _refuse_uncovered(self._read(), asked, Amount({EVERY: mu_squared}, delta))

    def charge(
        self,
        mu_squared: Fraction,
        *,
        asked: Budget,
        purpose: Purpose,
        delta: Fraction = Fraction(0),
        accept_schema: Accepted = False,
        each_row: bool = False,
        referred: Sequence[ChargedTable] = (),
    ) -> Receipt:
        """Charge for one release; on disk when this returns.

        Where the rows of several tables are charged for, each of them is as if it were the only
        one: it is bound, its schema must be accepted, and the whole amount counts for its units.
        An equal charge that has `failed` is taken over in its place, and adds nothing.

        Args:
            mu_squared: what the release costs, at most `asked`.
            asked: the budget given for it; words the messages.
            purpose: what is charged for. The first charge for a table binds it to its schema and
                its unit.
            delta: what it costs besides: it is μ-GDP but for a probability of that, in which it may
                tell that a unit is there.
            accept_schema: bind the table to another schema than before; of several, these.
            each_row: the owner says that a table without a unit has no rows of those who are
                units of others.
            referred: tables that rows which count refer to. What is released follows from their
                rows as well, so they are bound as if it were charged for them.

        Raises:
            StaleSchemaError: a table is bound to another schema.
            BudgetError: more than is left, of μ² or of δ; nothing is charged.
            LedgerError: a table is bound to another unit, or has none where others have; or the
                charge can't be recorded.
        """
        refusals.check_cost(mu_squared, asked)
        refusals.check_delta(delta)
        # No more than what was asked of μ², and of δ no more than fits if `delta` does.
        cost = min(on_grid(mu_squared), asked.mu_squared)
        cost_delta = on_fine_grid(delta, up=True)
        amounts = Amount({EVERY: cost}, cost_delta)
        charge = Event(
            "charged", uuid.uuid4().hex, amounts, tuple(map(rows_of, purpose.tables)),
            plan=purpose.plan, script=purpose.script, owner=owner.this_process(),
        )  # fmt: skip
        what = self.id, purpose, cost, cost_delta
        unsure = owner.settle(what)
        with owner.doubting(what, charge.request), self._store.writing() as now:
            before = now.history.entries.get(unsure)
            if before is not None and before.state == "charged":
                owner.begin(before.request)
                return self._receipt(before)
            for table in (*referred, *purpose.tables):
                accepted = table.is_accepted(accept_schema)
                if now.history.must_bind(table, accept_schema=accepted, each_row=each_row):
                    rows = replace(rows_of(table), version="")
                    now.append(Event("bound", uuid.uuid4().hex, rows=(rows,)))
            failed = now.history.failed(purpose, amounts)
            if failed is not None:
                now.append(Event("retried", failed.request, owner=charge.owner))
                owner.begin(failed.request)
                return self._receipt(failed)
            _refuse_uncovered(now.history, asked, amounts)
            seq = now.append(charge)
        owner.begin(charge.request)
        return Receipt(self.id, seq, charge.request, cost, purpose, cost_delta)

    def fail(self, receipt: Receipt) -> None:
        """Note that counting failed before any noise was drawn for a receipt. Only once.

        Raises:
            LedgerError: the receipt is not of this ledger, or that can't be noted.
        """
        with self._store.writing() as now:
            if self._entry(now.history, receipt).state == "charged":
                now.append(Event("failed", receipt.request))

    def release(self, receipt: Receipt, content: bytes | None) -> None:
        """Keep what was measured for a receipt, and note that it is released, in one commit.

        Args:
            receipt: what it was paid with.
            content: the noisy integers, in whatever form. Of those longer than `store.most` only
                the digest is kept: a crash before they are handed out loses them. None keeps
                nothing, and nothing tells then what was handed out.

        Raises:
            LedgerError: the receipt is not of this ledger or was used before, or the content
                can't be stored; the charge stands.
        """
        digest = "" if content is None else hashlib.sha256(content).hexdigest()
        kept = content if content is not None and len(content) <= self._store.most else None
        told = ("", digest) if kept is None else (digest, "")
        with self._store.writing() as now:
            _refuse_used(self._entry(now.history, receipt))
            now.append(Event("released", receipt.request, content=told[0], unkept=told[1]), kept)

    def deliver(self, receipt: Receipt) -> None:
        """Note that a release was handed out. To note it twice is fine.

        Raises:
            LedgerError: the receipt is not of this ledger, or nothing was released for it.
        """
        with self._store.writing() as now:
            entry = self._entry(now.history, receipt)
            if entry.state not in ("released", "delivered"):
                raise LedgerError(
                    "Nothing was released for this receipt.", hint="call release first."
                )
            if entry.state == "released":
                now.append(Event("delivered", receipt.request))
        owner.end(receipt.request)

    def abandon(self, receipt: Receipt) -> None:
        """Say that this process will not hand the release out: a later request may have it."""
        owner.end(receipt.request)

    def undelivered(
        self, purpose: Purpose, mu_squared: Fraction | None, delta: Fraction = Fraction(0)
    ) -> tuple[Receipt, bytes] | None:
        """Find a release that was paid for and never handed out, for the same question and cost.

        Whatever it cost, if `mu_squared` is None: where the amount was found and not asked for.

        Whoever charged for it must be gone. It is the newest, by whatever plan; handing it out
        costs nothing.

        Raises:
            LedgerError: the ledger is damaged, or what it keeps of that release is.
        """
        amounts = None
        if mu_squared is not None:
            aside = on_fine_grid(delta, up=True)
            amounts = (mu_squared, aside), (on_grid(mu_squared), aside)
        with self._store.reading() as now:
            for entry in reversed(now.history.entries.values()):
                if (
                    entry.state == "released"
                    and entry.content
                    and (amounts is None or (entry.mu_squared, entry.delta) in amounts)
                    and entry.purpose.same_question(purpose)
                    and now.is_orphaned(entry)
                ):
                    return self._receipt(entry), now.content(entry)
        return None

    def measurements(
        self, *, table: str, unit: str, vintage: str
    ) -> tuple[tuple[Entry, bytes], ...]:
        """Read what is kept of all releases of one table, unit and vintage, oldest first.

        Of releases of several tables it is all that is kept.

        Raises:
            LedgerError: the ledger is damaged, or anything of what it keeps of them is.
        """
        wanted = (table, unit, vintage)
        with self._store.reading() as now:
            return tuple(
                (entry, now.content(entry))
                for entry in now.history.entries.values()
                if entry.content and wanted in {t.rows for t in entry.purpose.tables}
            )

    def content(self, entry: Entry) -> bytes | None:
        """Read what is kept of one release; None if nothing is.

        Raises:
            LedgerError: the entry is not of this ledger, or what is kept of it is damaged.
        """
        with self._store.reading() as now:
            held = self._entry(now.history, self._receipt(entry))
            return now.content(held) if held.content else None

    def verify(self, receipt: Receipt, *, unused: bool = False) -> None:
        """Check that the ledger still holds the charge of a receipt, and, if asked, unused.

        Raises:
            LedgerError: it does not: an older copy was put back, or it is another ledger.
        """
        entry = self._entry(self._read(), receipt)
        if unused:
            _refuse_used(entry)

    def audit(self) -> Audit:
        """Check everything: the whole file, and the digests of all contents.

        Raises:
            LedgerError: anything is amiss.
        """
        with self._store.reading() as now:
            return now.audit()

    def __repr__(self) -> str:
        return f"<Ledger of {self.dataset!r} in {self.place}>"

    def _receipt(self, entry: Entry) -> Receipt:
        return Receipt(
            self.id, entry.seq, entry.request, entry.mu_squared, entry.purpose, entry.delta
        )

    def _entry(self, history: History, receipt: Receipt) -> Entry:
        entry = history.entries.get(receipt.request)
        if entry is None or receipt != self._receipt(entry):
            raise LedgerError(
                "The ledger does not hold this receipt.",
                hint="restore the newest copy of the ledger that the receipt is from.",
            )
        return entry

    def _read(self) -> History:
        with self._store.reading() as now:
            return now.history


def _amount(budget: Budget) -> Amount:
    """Return what may be spent within a budget."""
    return Amount({EVERY: budget.mu_squared}, budget.key_delta)


def _with_keys(budget: Budget) -> Budget:
    """Set that part of δ aside by which keys can be found in any account, whoever asks later."""
    return budget.setting_aside(KEY_SHARE * (budget.delta or 0))


def _refuse_uncovered(history: History, asked: Budget, cost: Amount) -> None:
    """Refuse a charge that is above what is left of one of the totals.

    Raises:
        BudgetError: it is.
    """
    left, left_delta = history.remaining, history.remaining_delta
    if left is None or left_delta is None or history.covers(cost):
        return
    if cost.of(EVERY) > left:
        raise refusals.too_much(asked, cost.of(EVERY), left)
    any_aside = history.total is not None and bool(history.total.delta)
    raise refusals.too_much_delta(cost.delta, left_delta, any_aside=any_aside)


def _refuse_used(entry: Entry) -> None:
    if not entry.is_open:
        raise LedgerError("This receipt was used before.", hint="charge anew for another release.")
