"""The history that a ledger holds: a chain of events, checked as it is read. Trusted.

Guarantees:
    `History.add` accepts an event only if it is well formed, follows the one before in number
    and hash, and is possible: one total, charges above 0 and within it, each released at most
    once. The sums are exact.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, NamedTuple

from dpsql.errors import LedgerError

_AMOUNT = re.compile(r"(0|[1-9][0-9]{0,3999})/([1-9][0-9]{0,3999})")


class Event(NamedTuple):
    """A row of the ledger. Texts that an event does not need are empty."""

    seq: int
    kind: str
    request: str
    mu_squared: str
    """An exact fraction in lowest terms, "p/q"."""
    plan: str
    schema: str
    time: str
    hash: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A charge and what became of it."""

    seq: int
    request: str
    mu_squared: Fraction
    state: Literal["charged", "released"]
    plan: str
    schema: str
    time: str
    """When it was charged: UTC, ISO 8601."""


class History:
    """Events read so far: `seq` and `hash` of the last, and what they add up to."""

    def __init__(self, identity: str) -> None:
        """Start before the first event of the ledger with this identity."""
        self.seq = 0
        self.hash = hashlib.sha256(identity.encode()).hexdigest()
        self.total: Fraction | None = None
        self.spent = Fraction(0)
        self.entries: dict[str, Entry] = {}

    @property
    def remaining(self) -> Fraction | None:
        """What is left of the total, if that was fixed."""
        return None if self.total is None else self.total - self.spent

    def link(self, *fields: int | str) -> str:
        """Hash the fields of the next event (all but its hash) together with the last hash."""
        return hashlib.sha256(json.dumps([self.hash, *fields]).encode()).hexdigest()

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
        entry = self.entries.get(event.request)
        if event.kind == "total" and self.total is None and amount > 0:
            self.total = amount
        elif event.kind == "charged" and entry is None and amount > 0:
            self.spent += amount
            self.entries[event.request] = Entry(
                event.seq, event.request, amount, "charged", event.plan, event.schema, event.time
            )
        elif event.kind == "released" and entry is not None and entry.state == "charged":
            self.entries[event.request] = replace(entry, state="released")
        else:
            raise damaged(f"entry {event.seq} is impossible")
        if self.total is not None and self.spent > self.total:
            raise damaged("more was spent than its total")
        self.seq, self.hash = event.seq, event.hash


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
