"""Found keys: values of a column that many units have, which nobody knew beforehand."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import polars as pl

from dpsql.answers.facts import FoundColumn
from dpsql.answers.found_values import Parts, domain_of, text_of, values_of
from dpsql.errors import InternalError, ReleaseFormatError, SchemaError, printable
from dpsql.measurement.keys import ToldKey
from dpsql.privacy.amount import fraction, fraction_text
from dpsql.privacy.keys import SCALE, KeyRound, KeyRule
from dpsql.schema import Table
from dpsql.schema.domain import INTEGER_TYPES, OTHER, Domain
from dpsql.schema.names import folded, unused

_MARK = b"dpsql keys 1\n"
_SHOWN = 5
_FIELDS = {"table", "column", "type", "filled", "rounds", "told", "described"}
_LATER: dict[str, Any] = {"complete": False, "parts": ()}
"""Fields that earlier versions didn't write, and what they stand for then."""


@dataclass(frozen=True, slots=True)
class KeptKeys:
    """The found keys of a column, as a ledger keeps them.

    Args:
        table: the table, as it is shown.
        column: the column.
        type: its type.
        filled: whether it is never NULL.
        rule: by which rule they were found.
        told: the keys, each with the number of its round and its noisy score; texts of all types.
        described: how the table was described, see `Table.described`.
        complete: whether all were told that reached the threshold, as far as that can be known:
            fewer than may be told at most.
        parts: if each key is the joined text of several values, what these are.
    """

    table: str
    column: str
    type: str
    filled: bool
    rule: KeyRule
    told: tuple[tuple[str, int, int], ...]
    described: Mapping[str, str]
    complete: bool
    parts: Parts = ()

    def encode(self) -> bytes:
        """Write them."""
        rounds = [
            [fraction_text(r.mu_squared), fraction_text(r.delta), r.most, r.least,
             *([fraction_text(r.epsilon)] if r.is_pure else [])]
            for r in self.rule.rounds
        ]  # fmt: skip
        document = {
            "table": self.table,
            "column": self.column,
            "type": self.type,
            "filled": self.filled,
            "rounds": rounds,
            "told": self.told,
            "described": dict(self.described),
            "complete": self.complete,
        } | ({"parts": self.parts} if self.parts else {})
        return _MARK + zlib.compress(json.dumps(document, ensure_ascii=False).encode())


def texts_of(told: Iterable[ToldKey]) -> tuple[tuple[str, int, int], ...]:
    """Return keys as texts, with their rounds and noisy scores; without what is no text."""
    texts = list[tuple[str, int, int]]()
    for one in told:
        try:
            texts.append((one.key.decode(), one.round, -one.below))
        except UnicodeDecodeError:
            continue
    return tuple(texts)


def holds_keys(content: bytes) -> bool:
    """Whether what a ledger keeps are found keys."""
    return content.startswith(_MARK)


def decode_keys(content: bytes) -> KeptKeys:
    """Read what was written.

    Raises:
        ReleaseFormatError: it is something else.
    """
    try:
        document = json.loads(zlib.decompress(content.removeprefix(_MARK)))
        if not holds_keys(content) or document.keys() - _LATER != _FIELDS:
            raise ValueError
        return _read(document)
    except (InternalError, ValueError, TypeError, KeyError, zlib.error, RecursionError):
        raise ReleaseFormatError(
            "The keys can't be read: they are damaged, or of another version.",
            hint="update dpsql, or pay for new ones with refresh=True.",
        ) from None


def _read(document: dict[str, Any]) -> KeptKeys:
    rounds = (
        KeyRound(fraction(mu), fraction(delta), most, least, *map(fraction, pure))
        for mu, delta, most, least, *pure in document.pop("rounds")
    )
    told = tuple((str(text), int(n), int(score)) for text, n, score in document.pop("told"))
    parts = tuple((str(label), str(type_)) for label, type_ in document.pop("parts", ()))
    rule = KeyRule(tuple(rounds))
    return KeptKeys(rule=rule, told=told, **{**_LATER, **document, "parts": parts})


@dataclass(frozen=True, repr=False)
class FoundKeys:
    """Values of a column that many units have, found with noise; see `Session.find_keys`.

    Args:
        table: the table.
        column: the column.
        keys: the values, texts in the order of their bytes; of a column of times they are days;
            of several columns they are tuples.
        rule: by which rule they were found.
        request: the charge that has paid for them, as `Session.history` has it.
        other: the label that stands for all other texts.
        scores: the noisy numbers of units of the keys, times 2^20; none where a key was told for
            another reason as well than that its own reached the threshold, or where units with
            several keys add less to each.
    """

    table: str
    column: str
    keys: tuple[Any, ...]
    rule: KeyRule = field(repr=False)
    request: str
    other: str
    _type: str
    _filled: bool
    scores: tuple[int, ...] = field(default=(), repr=False)
    _parts: Parts = ()

    @classmethod
    def of(cls, kept: KeptKeys, request: str, other: str) -> FoundKeys:
        """Return what is kept of them; one text that is the other label says nothing by itself."""
        texts = {text: score for text, _, score in kept.told}
        told: dict[Any, int]
        if kept.parts:
            told = _joined(texts, kept.parts, other)
        elif kept.type == "VARCHAR":
            told = {text: texts[text] for text in _by_bytes(texts.keys() - {other})}
        elif kept.type in INTEGER_TYPES:
            told = dict(sorted((int(text), score) for text, score in texts.items()))
        else:
            days = ((_day(text), score) for text, score in texts.items())
            told = dict(sorted((day, score) for day, score in days if day is not None))
        scores = tuple(told.values()) if kept.complete and kept.rule.tells_units else ()
        return cls(
            kept.table,
            kept.column,
            tuple(told),
            kept.rule,
            request,
            other,
            kept.type,
            kept.filled,
            scores,
            kept.parts,
        )

    @classmethod
    def released(cls, found: FoundColumn, table: Table, domain: Domain) -> FoundKeys:
        """Return those that a release rests on, of a table that has them as a domain."""
        other = domain.other or OTHER
        keys: list[Any] = [key for key in domain.values if key != domain.other]
        parts = found.parts
        return cls(
            table.typed,
            found.label,
            tuple(_joined(dict.fromkeys(keys, 0), parts, other) if parts else keys),
            found.rule,
            found.charge.request,
            other,
            domain.type,
            not domain.nullable if found.computed else found.column in table.filled,
            _parts=parts,
        )

    @property
    def is_text(self) -> bool:
        """Whether they are texts."""
        return self._type == "VARCHAR"

    @property
    def counts(self) -> pl.DataFrame:
        """The noisy numbers of units that have each value: a histogram for no further charge.

        Those that were told are those whose numbers, with their noise, were large enough. So of
        values near the `threshold` they are too large on average; `error` says how exact they are
        of others.

        Returns:
            A frame of the values, by the name of the column, or of each column, and `units`.

        Raises:
            SchemaError: a value was told for another reason as well than its own number.
        """
        if len(self.scores) != len(self.keys):
            raise SchemaError(
                f"The numbers by which values of {printable(self.column)} were found don't say how "
                "many units have them: one may have several of them, or there were too many.",
                hint="count them by a statement.",
            )
        names = [label for label, _ in self._parts] or [self.column]
        number = f"{unused(names)}units" if "units" in map(folded, names) else "units"
        values = self.keys if self._parts else [(key,) for key in self.keys]
        units = [score / SCALE for score in self.scores]
        columns = zip(*values, strict=True) if values else ((),) * len(names)
        return pl.DataFrame({**dict(zip(names, columns, strict=True)), number: units})

    @property
    def error(self) -> float:
        """The standard error of `counts`."""
        return math.sqrt(self.rule.rounds[-1].variance) / SCALE

    @property
    def domain(self) -> Domain:
        """The domain of the column: the keys, and a place for all rows with another value.

        Other texts are one label, `other`; other numbers and days count as NULL. Texts have a place
        for NULL if the column may be NULL now: for a later table in which it may, declare
        `Domain.labels(…, nullable=True)`.

        Raises:
            SchemaError: no number, or no day, was found.
        """
        self.check_any()
        keys = [text_of(key) for key in self.keys] if self._parts else self.keys
        return domain_of(keys, self._type, self.other, filled=self._filled)

    def check_any(self) -> None:
        """Refuse to go on where no number, or no day, was found; texts have the label for others.

        Raises:
            SchemaError: that is so.
        """
        if not self.is_text and not self.keys:
            raise SchemaError(
                f"No value of {printable(self.column)} was found, so it has no domain: those of "
                f"{self.least(0.95):,} units would have been in 95 % of cases.",
                hint="declare a domain; or find keys anew by a larger budget, with refresh=True.",
            )

    @property
    def threshold(self) -> float:
        """The number of units at which a key is found with probability 1/2; see `KeyRule`."""
        return self.rule.threshold

    def probability(self, units: int, each: int = 1) -> float:
        """Give the probability that a key of so many units is found; see `KeyRule`."""
        return self.rule.probability(units, each)

    def least(self, probability: float = 0.95, each: int = 1) -> int:
        """Give the least number of units with which a key is found with some probability."""
        return self.rule.least(probability, each)

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        shown = ", ".join(printable(_shown(key))[:60] for key in self.keys[:_SHOWN])
        more = ", …" if len(self.keys) > _SHOWN else ""
        name = f"{printable(self.table)}.{printable(self.column)}"
        return f"<FoundKeys: {len(self.keys):,} of {name} ({shown}{more}); {self.rule}>"


def _shown(key: Any) -> str:
    if isinstance(key, tuple):
        return f"({', '.join(map(_shown, key))})"
    return repr(key) if isinstance(key, str) else "NULL" if key is None else str(key)


def _joined(texts: Mapping[str, int], parts: Parts, other: str) -> dict[Any, int]:
    """Return the values that joined texts have, with their scores, in the order of the texts."""
    each = ((values_of(text, parts), texts[text]) for text in _by_bytes(texts.keys() - {other}))
    return {values: score for values, score in each if values is not None}


def _by_bytes(texts: Iterable[str]) -> list[str]:
    return sorted(texts, key=lambda text: text.encode())


def _day(text: str) -> date | None:
    """Read a day; there are others than Python knows, and infinite ones."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
