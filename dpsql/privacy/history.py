"""The history that a ledger holds: a chain of events, checked as it is read. Trusted.

Guarantees:
    `History.add` accepts an event only if it is well formed, follows the one before in number
    and hash, and is possible: one total; each table bound to one unit for good, and to one
    schema until another is accepted; charges above 0, the sums of μ² and of δ each within its
    total, for a table as it is bound; each failed and retried at most once, released at most once
    and never between the two, and delivered at most once after that. Sums are exact.
"""

from __future__ import annotations

import hashlib
import json
from copy import copy
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Literal, NamedTuple

from dpsql.errors import LedgerError, StaleSchemaError
from dpsql.hints import Hint, option
from dpsql.privacy.amount import EVERY, Amount
from dpsql.privacy.event import Event, Line, Row, TableRows, damaged
from dpsql.privacy.purpose import EACH_ROW, ChargedTable, Purpose

_FIELDS = {
    "upgraded": [frozenset[str]()],
    "total": [frozenset({"amounts"})],
    "bound": [frozenset({"request", "rows"})],
    "charged": [frozenset({"request", "amounts", "rows", "plan", "script", "owner"})],
    "failed": [frozenset({"request"})],
    "retried": [frozenset({"request", "owner"})],
    "released": [frozenset({"request", *more}) for more in ((), ("content",), ("unkept",))],
    "delivered": [frozenset({"request"})],
}
"""Kind of event → the fields that it may have besides those that all have."""
_OPTIONAL = tuple(f.name for f in fields(Event) if f.name not in ("kind", "time"))


@dataclass(frozen=True, slots=True)
class Entry:
    """A charge and what became of it. For the digests see `Purpose`."""

    seq: int
    request: str
    mu_squared: Fraction
    state: Literal["charged", "failed", "retried", "released", "delivered"]
    plan: str
    script: str
    table: str
    schema: str
    unit: str
    vintage: str
    content: str
    """SHA-256 of the noisy integers that are kept; empty if none are."""
    released: int
    """The number of the event that released it; 0 if none did."""
    owner: str
    """The process that charged, or tries again: a digest of its host's name, its number, its
    start."""
    time: str
    """When it was charged: UTC, ISO 8601."""
    others: tuple[ChargedTable, ...] = ()
    """The other tables, if it was charged for several."""
    unkept: str = ""
    """SHA-256 of the noisy integers, if they were too long to be kept; else empty."""
    delta: Fraction = Fraction(0)
    """The δ that was charged besides μ²."""

    @property
    def digest(self) -> str:
        """SHA-256 of what it has paid for, kept or not; empty if nothing says so."""
        return self.content or self.unkept

    @property
    def cost(self) -> Amount:
        """All that was charged."""
        return Amount({EVERY: self.mu_squared}, self.delta)

    @property
    def is_open(self) -> bool:
        """Whether it may still be measured, by whoever charged or tries again."""
        return self.state in ("charged", "retried")

    @property
    def purpose(self) -> Purpose:
        """The purpose that it was charged for."""
        about_rows = (self.table, self.schema, self.unit, self.vintage)
        return Purpose(self.plan, self.script, *about_rows, self.others)


@dataclass(frozen=True, slots=True)
class _Binding:
    """The terms that charges for a table must agree with, and the last event that agreed."""

    schema: str
    unit: str
    seq: int
    time: str
    beside_units: bool
    """Whether other tables had units then. Of a table without one, the owner has said so since."""

    def agrees(self, rows: TableRows) -> bool:
        return (self.schema, (self.unit,)) == (rows.schema, rows.roots)


class Protected(NamedTuple):
    """For whom the sum of an account is a promise."""

    units: int
    """In how many tables it is privacy units."""
    rows: int
    """In how many others it is single rows."""

    def __str__(self) -> str:
        if not self.units:
            return "each row by itself" if self.rows else "nothing was charged yet"
        if not self.rows:
            return "privacy units with all their rows"
        return (
            f"privacy units with all their rows in {_tables(self.units)}, "
            f"each row by itself in {_tables(self.rows)}"
        )


def _tables(count: int) -> str:
    return "one table" if count == 1 else f"{count:,} tables"


class History:
    """Events read so far: `seq` and `hash` of the last, and what they add up to."""

    def __init__(self, format_: int, ledger: str, dataset: str) -> None:
        """Start before the first event of a ledger that was begun in a format."""
        self.ledger, self.dataset = ledger, dataset
        self.format = format_
        self.seq = 0
        self.hash = hashlib.sha256(json.dumps([format_, ledger, dataset]).encode()).hexdigest()
        self.total: Amount | None = None
        self.spent = Amount()
        self.entries: dict[str, Entry] = {}
        self._bound: dict[str, _Binding] = {}
        self._has_units = False

    def copy(self) -> History:
        """Return a copy, which goes on from here by itself."""
        other = copy(self)
        other.entries, other._bound = dict(self.entries), dict(self._bound)
        return other

    @property
    def remaining(self) -> Fraction | None:
        """The μ² that is left of the total, if that was fixed."""
        return None if self.total is None else self.total.of(EVERY) - self.spent.of(EVERY)

    @property
    def remaining_delta(self) -> Fraction | None:
        """The δ that is left of what the total sets aside, if that was fixed."""
        return None if self.total is None else self.total.delta - self.spent.delta

    def covers(self, cost: Amount) -> bool:
        """Tell whether that much more can be spent within the total."""
        return self.total is None or self.spent + cost <= self.total

    def failed(self, purpose: Purpose, cost: Amount) -> Entry | None:
        """Return a charge of this amount for just this purpose whose counting failed."""
        for entry in self.entries.values():
            if entry.state == "failed" and (entry.purpose, entry.cost) == (purpose, cost):
                return entry
        return None

    @property
    def protected(self) -> Protected:
        """For whom what was spent is a promise."""
        rows = sum(bound.unit == EACH_ROW for bound in self._bound.values())
        return Protected(len(self._bound) - rows, rows)

    def must_bind(self, table: ChargedTable, *, accept_schema: bool, each_row: bool) -> bool:
        """Tell whether a table must be bound, for the first time or anew, to charge for it.

        Raises:
            StaleSchemaError: the table is bound to another schema, and none is accepted.
            LedgerError: the table is bound to another unit; or it has none, others have, and the
                owner neither says nor has said since they have that `each_row` is to be protected
                by itself.
        """
        bound = self._bound.get(table.table)
        if bound is not None and bound.unit != table.unit:
            raise LedgerError(
                "Another unit was protected when this table was charged for at "
                f"{bound.time}, entry {bound.seq}; amounts for different units don't add up.",
                hint="give "
                + option("unit")
                + " and "
                + option("max_rows")
                + " as they were given then.",
            )
        said = each_row or (bound is not None and bound.beside_units)
        if table.unit == EACH_ROW and self._has_units and not said:
            raise _without_unit(begun=bound is not None)
        if bound is None:
            return True
        if bound.schema != table.schema and not accept_schema:
            raise StaleSchemaError(
                "The schema of this table changed since the release of "
                f"{bound.time}, entry {bound.seq}.",
                hint="restore the schema, or pass "
                + option("accept_schema", True)
                + " if the change is meant.",
            )
        return bound.schema != table.schema

    def follow(self, event: Event) -> Line:
        """Take a new event, and return the line to be written for it.

        Raises:
            LedgerError: it is impossible.
        """
        line = Line(self.seq + 1, event.text, "")
        line = line._replace(hash=line.linked(self.hash))
        self.add(line)
        return line

    def add(self, row: Row) -> None:
        """Take the next event.

        Raises:
            LedgerError: it does not follow.
        """
        if row.seq != self.seq + 1:
            raise damaged("entries are missing")
        if row.hash != row.linked(self.hash):
            raise damaged(f"entry {row.seq} was changed")
        event = row.event
        step = row.format > self.format
        if row.format < self.format or step != (event.kind == "upgraded"):
            raise damaged(f"entry {row.seq} has another format than those before")
        if not (_is_well_formed(event) and self._take(row.seq, event)):
            raise damaged(f"entry {row.seq} is impossible")
        if self.total is not None and not self.spent <= self.total:
            raise damaged("more was spent than its total")
        self.seq, self.hash, self.format = row.seq, row.hash, row.format

    def _take(self, seq: int, event: Event) -> bool:
        """Count an event in, if it is possible now."""
        entry = self.entries.get(event.request)
        if event.kind == "total" and self.total is None:
            self.total = event.amounts
        elif event.kind == "bound":
            return self._bind(seq, event)
        elif event.kind == "charged" and entry is None:
            return self._charge(seq, event)
        elif event.kind == "failed" and entry and entry.state == "charged":
            self.entries[event.request] = replace(entry, state="failed")
        elif event.kind == "retried" and entry and entry.state == "failed":
            self.entries[event.request] = replace(entry, state="retried", owner=event.owner)
        elif event.kind == "released" and entry and entry.is_open:
            self.entries[event.request] = replace(
                entry, state="released", content=event.content, released=seq, unkept=event.unkept
            )
        elif event.kind == "delivered" and entry and entry.state == "released":
            self.entries[event.request] = replace(entry, state="delivered")
        else:
            return event.kind == "upgraded"
        return True

    def _bind(self, seq: int, event: Event) -> bool:
        (rows,) = event.rows
        bound, (unit,) = self._bound.get(rows.table), rows.roots
        if bound is not None and (bound.unit != unit or bound.schema == rows.schema):
            return False
        self._bound[rows.table] = _Binding(rows.schema, unit, seq, event.time, self._has_units)
        self._has_units |= unit != EACH_ROW
        return True

    def _charge(self, seq: int, event: Event) -> bool:
        bounds = [(rows, self._bound.get(rows.table)) for rows in event.rows]
        if not all(bound is not None and bound.agrees(rows) for rows, bound in bounds):
            return False
        self.spent += event.amounts
        self.entries[event.request] = _charged(seq, event)
        for rows, bound in bounds:
            if bound is not None:
                self._bound[rows.table] = replace(
                    bound, seq=seq, time=event.time, beside_units=self._has_units
                )
        return True


def rows_of(table: ChargedTable) -> TableRows:
    """Word which rows are charged for."""
    return TableRows(table.table, table.schema, (table.unit,), table.vintage)


def _without_unit(*, begun: bool) -> LedgerError:
    """Refuse a table without a unit beside others with one; `begun`: it was charged for before."""
    way_out = "keep to the tables with units; or, if it" if begun else "declare its unit; or, if it"
    return LedgerError(
        "Other tables of this account protect privacy units, and this one has none. "
        "If it has rows of the same persons, their total would miss what is spent on it.",
        hint=f"{way_out} has no such rows, pass " + Hint("unit=dpsql.EACH_ROW", "--each-row") + ".",
    )


def _is_well_formed(event: Event) -> bool:
    """Tell whether an event has the fields that its kind needs and no others."""
    given = {name for name in _OPTIONAL if getattr(event, name)}
    return (
        given in _FIELDS.get(event.kind, [])
        and bool(event.time)
        and bool(event.amounts) == bool(event.amounts.of(EVERY))
        and _is_of_tables(event)
        and all(
            rows.table and rows.schema and all(rows.roots) and rows.roots
            and bool(rows.version) == (event.kind == "charged")
            for rows in event.rows
        )
    )  # fmt: skip


def _is_of_tables(event: Event) -> bool:
    """Tell whether it is of one table; or a charge for several, once for each, with their units.

    A unit has rows in all of them. So the rows of none are protected one by one.
    """
    if len(event.rows) <= 1:
        return True
    units = {root for rows in event.rows for root in rows.roots}
    different = len({rows.table for rows in event.rows}) == len(event.rows)
    return event.kind == "charged" and different and EACH_ROW not in units


def _charged(seq: int, event: Event) -> Entry:
    tables = (
        ChargedTable(rows.table, rows.schema, unit, rows.version)
        for rows in event.rows
        for unit in rows.roots
    )
    first, *others = tables
    return Entry(
        seq, event.request, event.amounts.of(EVERY), "charged", event.plan, event.script, *first,
        content="", released=0, owner=event.owner, time=event.time, others=tuple(others),
        delta=event.amounts.delta,
    )  # fmt: skip
