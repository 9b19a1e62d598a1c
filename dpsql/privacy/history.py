"""The history that a ledger holds: a chain of events, checked as it is read. Trusted.

Guarantees:
    `History.add` accepts an event only if it is well formed, follows the one before in number
    and hash, and is possible: one total; each table bound to one unit for good, and to one
    schema until another is accepted; charges above 0, within the total, for a table as it is
    bound; each released at most once, and delivered at most once after that. Sums are exact.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, NamedTuple

from dpsql.errors import LedgerError, StaleSchemaError
from dpsql.hints import Hint, option
from dpsql.privacy.purpose import EACH_ROW, Purpose

_AMOUNT = re.compile(r"(0|[1-9][0-9]{0,3999})/([1-9][0-9]{0,3999})")


class Event(NamedTuple):
    """A row of the ledger. Texts that an event does not need are empty."""

    seq: int
    kind: str
    request: str
    mu_squared: str
    """An exact fraction in lowest terms, "p/q"."""
    plan: str = ""
    script: str = ""
    table: str = ""
    schema: str = ""
    unit: str = ""
    vintage: str = ""
    content: str = ""
    """SHA-256 of the content that is kept for a release."""
    owner: str = ""
    """The process that charged."""
    time: str = ""
    hash: str = ""


_ALWAYS = frozenset({"seq", "kind", "mu_squared", "time", "hash"})
_BOUND = frozenset({"request", "table", "schema", "unit"})
_FIELDS: dict[str, list[frozenset[str]]] = {
    "total": [frozenset()],
    "bound": [_BOUND],
    "charged": [_BOUND | {"plan", "script", "vintage", "owner"}],
    "released": [frozenset({"request"}), frozenset({"request", "content"})],
    "delivered": [frozenset({"request"})],
}
"""Kind of event → the fields that it may have besides those that all have."""
_FORMS = {
    kind: {tuple(name in _ALWAYS | fields for name in Event._fields) for fields in choices}
    for kind, choices in _FIELDS.items()
}
_WITH_AMOUNT = ("total", "charged")


@dataclass(frozen=True, slots=True)
class Entry:
    """A charge and what became of it. For the digests see `Purpose`."""

    seq: int
    request: str
    mu_squared: Fraction
    state: Literal["charged", "released", "delivered"]
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
    """The process that charged: a digest of its host's name, its number, its start."""
    time: str
    """When it was charged: UTC, ISO 8601."""

    @property
    def purpose(self) -> Purpose:
        """What it was charged for."""
        return Purpose(self.plan, self.script, self.table, self.schema, self.unit, self.vintage)


@dataclass(frozen=True, slots=True)
class _Binding:
    """What charges for a table must agree with, and the last event that did."""

    schema: str
    unit: str
    seq: int
    time: str
    beside_units: bool
    """Whether other tables had units then. Of a table without one, the owner has said so since."""

    @classmethod
    def of(cls, event: Event, *, beside_units: bool) -> _Binding:
        return cls(event.schema, event.unit, event.seq, event.time, beside_units)

    def agrees(self, event: Event) -> bool:
        return (self.schema, self.unit) == (event.schema, event.unit)


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

    def __init__(self, identity: str) -> None:
        """Start before the first event of the ledger with this identity."""
        self.seq = 0
        self.hash = hashlib.sha256(identity.encode()).hexdigest()
        self.total: Fraction | None = None
        self.spent = Fraction(0)
        self.entries: dict[str, Entry] = {}
        self._bound: dict[str, _Binding] = {}
        self._has_units = False

    @property
    def remaining(self) -> Fraction | None:
        """What is left of the total, if that was fixed."""
        return None if self.total is None else self.total - self.spent

    def link(self, *fields: int | str) -> str:
        """Hash the fields of the next event (all but its hash) together with the last hash."""
        return hashlib.sha256(json.dumps([self.hash, *fields]).encode()).hexdigest()

    @property
    def protected(self) -> Protected:
        """For whom what was spent is a promise."""
        rows = sum(bound.unit == EACH_ROW for bound in self._bound.values())
        return Protected(len(self._bound) - rows, rows)

    def must_bind(self, purpose: Purpose, *, accept_schema: bool, each_row: bool) -> bool:
        """Tell whether the table must be bound, for the first time or anew, to charge for this.

        Raises:
            StaleSchemaError: the table is bound to another schema, and none is accepted.
            LedgerError: the table is bound to another unit; or it has none, others have, and the
                owner neither says nor has said since they have that `each_row` is to be protected
                by itself.
        """
        bound = self._bound.get(purpose.table)
        if bound is not None and bound.unit != purpose.unit:
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
        if purpose.unit == EACH_ROW and self._has_units and not said:
            raise _without_unit(begun=bound is not None)
        if bound is None:
            return True
        if bound.schema != purpose.schema and not accept_schema:
            raise StaleSchemaError(
                "The schema of this table changed since the release of "
                f"{bound.time}, entry {bound.seq}.",
                hint="restore the schema, or pass "
                + option("accept_schema", True)
                + " if the change is meant.",
            )
        return bound.schema != purpose.schema

    def add(self, event: Event) -> None:
        """Take the next event.

        Raises:
            LedgerError: it does not follow.
        """
        if event.seq != self.seq + 1:
            raise damaged("entries are missing")
        if event.hash != self.link(*event[:-1]):
            raise damaged(f"entry {event.seq} was changed")
        amount = _amount(event)
        if not (_is_well_formed(event, amount) and self._take(event, amount)):
            raise damaged(f"entry {event.seq} is impossible")
        if self.total is not None and self.spent > self.total:
            raise damaged("more was spent than its total")
        self.seq, self.hash = event.seq, event.hash

    def _take(self, event: Event, amount: Fraction) -> bool:
        """Count an event in, if it is possible now."""
        entry, bound = self.entries.get(event.request), self._bound.get(event.table)
        binding = _Binding.of(event, beside_units=self._has_units)
        if event.kind == "total" and self.total is None:
            self.total = amount
        elif event.kind == "bound" and (bound is None or _is_rebinding(event, bound)):
            self._bound[event.table] = binding
            self._has_units |= event.unit != EACH_ROW
        elif event.kind == "charged" and entry is None and bound and bound.agrees(event):
            self.spent += amount
            self.entries[event.request] = _charged(event, amount)
            self._bound[event.table] = binding
        elif event.kind == "released" and entry and entry.state == "charged":
            self.entries[event.request] = replace(
                entry, state="released", content=event.content, released=event.seq
            )
        elif event.kind == "delivered" and entry and entry.state == "released":
            self.entries[event.request] = replace(entry, state="delivered")
        else:
            return False
        return True


def _without_unit(*, begun: bool) -> LedgerError:
    """Refuse a table without a unit beside others with one; `begun`: it was charged for before."""
    way_out = "keep to the tables with units; or, if it" if begun else "declare its unit; or, if it"
    return LedgerError(
        "Other tables of this account protect privacy units, and this one has none. "
        "If it has rows of the same persons, what is spent on it is missing in the sum "
        "for them.",
        hint=f"{way_out} has no such rows, pass " + Hint("unit=dpsql.EACH_ROW", "--each-row") + ".",
    )


def damaged(why: str) -> LedgerError:
    """Word that a ledger can't be trusted."""
    return LedgerError(
        f"The ledger is damaged: {why}.",
        hint="restore the newest copy of the ledger; nothing can be answered without it.",
    )


def _amount(event: Event) -> Fraction:
    match = _AMOUNT.fullmatch(event.mu_squared)
    if match is None:
        raise damaged(f"entry {event.seq} has no amount")
    return Fraction(int(match[1]), int(match[2]))


def _is_well_formed(event: Event, amount: Fraction) -> bool:
    """Tell whether an event has the fields that its kind needs and no others, and an amount."""
    if event.kind not in _FORMS or (amount > 0) != (event.kind in _WITH_AMOUNT):
        return False
    return tuple(map(bool, event)) in _FORMS[event.kind]


def _is_rebinding(event: Event, bound: _Binding) -> bool:
    return event.unit == bound.unit and event.schema != bound.schema


def _charged(event: Event, amount: Fraction) -> Entry:
    return Entry(
        event.seq, event.request, amount, "charged",
        event.plan, event.script, event.table, event.schema, event.unit, event.vintage,
        content="", released=0, owner=event.owner, time=event.time,
    )  # fmt: skip
