"""Events: what a ledger says, line by line, and the one text that each has. Trusted.

The text of an event is JSON with sorted keys and without spaces or empty fields:

    {"amounts":{"mu_squared":{"*":"1/5"}},"format":3,"kind":"charged","owner":"5f…:812:9a…",
     "plan":"0c…","request":"77…","rows":[{"roots":["e1…"],"schema":"4d…","table":"b0…",
     "version":"2a…"}],"script":"91…","time":"2026-11-22T17:00:00+00:00"}

| Kind | Says | Fields besides `format`, `kind` and `time` |
|---|---|---|
| `total` | the most that may be spent | `amounts` |
| `bound` | whose units the rows of a table are of, and how it is described | `request`, `rows` |
| `charged` | what was charged, for what | `request`, `amounts`, `rows`, `plan`, `script`, `owner` |
| `failed` | that counting for it failed, so that no noise was drawn | `request` |
| `retried` | that an equal request has taken it over, as its only other try | `request`, `owner` |
| `released` | that it was measured; the digest, if kept or not | `request`, `content` or `unkept` |
| `delivered` | that it was handed out | `request` |
| `upgraded` | that the events before are of an earlier format | |

A charge may be for the rows of several tables: the amount is for a unit with rows in all of them.
Versions of dpsql that don't know such charges refuse to read a ledger with one.

Amounts of totals and charges have a μ²; and `delta` besides, as "1/10000000000", where δ is set
aside or spent. Versions of dpsql that don't know such amounts refuse to read a ledger with one.

Some of the text is room that dpsql does not use yet: amounts for single roots; rows that are of
units of several roots; and `data`, the identity that a catalog gives a table, for those that
their path alone doesn't identify. The text doesn't depend on where a ledger is kept.

Guarantees:
    1. `Line.event` gives an event only if the line has exactly the text of this event.
    2. What this version can't add up or tell apart is refused, as are later formats, each by name:
       nothing that is written in the room above is taken for something else.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from dpsql.errors import LedgerError
from dpsql.privacy.amount import EVERY, Amount

FORMAT = 3

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of one table, as a ledger tells them from others. All fields are digests."""

    table: str
    """The table's identity within the data set of the ledger."""
    schema: str
    """Its public declarations."""
    roots: tuple[str, ...]
    """The kinds of units that its rows are of."""
    version: str = ""
    """The state of the data: which rows the table had. Empty in a binding, which holds for all."""
    data: str = ""
    """The identity of the table, if a catalog tells it."""


@dataclass(frozen=True, slots=True)
class Event:
    """The content of a line. Fields that an event does not need are empty."""

    kind: str
    request: str = ""
    amounts: Amount = field(default_factory=Amount)
    rows: tuple[TableRows, ...] = ()
    plan: str = ""
    script: str = ""
    content: str = ""
    """SHA-256 of the content that is kept for a release."""
    owner: str = ""
    """The process that charged."""
    time: str = ""
    """When it was written: UTC, ISO 8601."""
    unkept: str = ""
    """SHA-256 of a content that is too long to be kept."""

    @property
    def text(self) -> str:
        """The text of the line."""
        document: dict[str, Any] = {name: getattr(self, name) for name in _TEXTS}
        document["format"] = FORMAT
        document["amounts"] = self.amounts.document
        document["rows"] = [
            _filled({name: getattr(rows, name) for name in TableRows.__slots__})
            for rows in self.rows
        ]
        return _CANONICAL.encode(_filled(document))


_TEXTS = ("kind", "request", "plan", "script", "content", "owner", "time", "unkept")


class Row(Protocol):
    """A row of a ledger's file, of whatever format."""

    @property
    def format(self) -> int:
        """The version of its format."""

    @property
    def seq(self) -> int:
        """The number of the line in the ledger."""

    @property
    def hash(self) -> str:
        """The hash of the line, which the next line holds."""

    def linked(self, last: str) -> str:
        """Compute the hash that it must have after a row with the hash `last`."""

    @property
    def event(self) -> Event:
        """The event that it stands for.

        Raises:
            LedgerError: nothing that is an event.
        """


class Line(NamedTuple):
    """A row of format 3."""

    seq: int
    text: str
    hash: str

    @property
    def format(self) -> int:
        """The version of its format."""
        return FORMAT

    def linked(self, last: str) -> str:
        """Compute the hash that it must have after a row with the hash `last`."""
        return hashlib.sha256(_CANONICAL.encode([last, self.seq, self.text]).encode()).hexdigest()

    @property
    def event(self) -> Event:
        """The event that it stands for; see `Row`."""
        try:
            return _read(self.text)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise damaged(f"entry {self.seq} can't be read") from None


def damaged(why: str) -> LedgerError:
    """Word that a ledger can't be trusted."""
    return LedgerError(
        f"The ledger is damaged: {why}.",
        hint="restore the newest copy of the ledger; nothing can be answered without it.",
    )


def _filled(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


@lru_cache(maxsize=4096)  # the whole history is read before each decision
def _read(text: str) -> Event:
    """Read an event of a kind that this version understands.

    Raises:
        ValueError, TypeError, KeyError, AttributeError, RecursionError: it is something else.
        LedgerError: a later version has written it.
    """
    document = json.loads(text)
    version = document.pop("format")
    if type(version) is int and version > FORMAT:
        raise _later(f"of format version {version}")
    amounts = Amount.read(document.pop("amounts", {}))
    rows = tuple(map(_read_rows, document.pop("rows", [])))
    event = Event(amounts=amounts, rows=rows, **_texts(document))
    if event.text != text:
        raise ValueError("the same in other words")
    _refuse_later(event)
    return event


def _read_rows(fields: dict[str, Any]) -> TableRows:
    roots = tuple(fields.pop("roots", ()))
    if not all(isinstance(root, str) for root in roots):
        raise TypeError("not a text")
    return TableRows(roots=roots, **_texts(fields))


def _texts(fields: dict[str, Any]) -> dict[str, str]:
    if not all(isinstance(value, str) for value in fields.values()):
        raise TypeError("not a text")
    return fields


def _refuse_later(event: Event) -> None:
    """Refuse what only a later dpsql can have written, and can tell whose loss it is."""
    amounts, rows = event.amounts, event.rows
    uses = {
        "several tables": len(rows) > 1 and event.kind != "charged",
        "several kinds of units": any(len(r.roots) > 1 for r in rows)
        or not {EVERY}.issuperset(amounts.mu_squared),
        "a table that a catalog identifies": any(r.data for r in rows),
    }
    for what, used in uses.items():
        if used:
            raise _later(f"about {what}")


def _later(what: str) -> LedgerError:
    return LedgerError(
        f"The ledger has an entry {what}, which this dpsql doesn't know.", hint="update dpsql."
    )
