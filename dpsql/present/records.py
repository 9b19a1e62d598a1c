"""Records of the facts of a release: where each is kept, whether metadata have it, and its lines.

A fact that is public about a release is a field of `Facts` and a record here, by which it is in
`release.json`, in the metadata beside exported files, in summaries and on pages. A field without a
record fails at import. What is written for people only, such as the noise in words, is an attribute
of `Facts` that isn't a field, and not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Flag, auto
from fractions import Fraction
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_type_hints

import msgspec
import polars as pl

from dpsql.answers.facts import (
    BoundedColumn,
    DrawnQuantiles,
    Earlier,
    Facts,
    FoundColumn,
    ReleasedValue,
    words_of_miss,
)
from dpsql.errors import printable
from dpsql.planner.reconstruction.base import EXPECTED
from dpsql.privacy import Budget, Purpose, Receipt
from dpsql.privacy.budget import shown_delta
from dpsql.rel.related import ReadTable
from dpsql.schema import Table
from dpsql.schema.stored import table_from_json, table_to_json

DELTAS = (Fraction(1, 10**6), Fraction(1, 10**9), Fraction(1, 10**12))

_FRACTION = re.compile(r"(0|[1-9][0-9]{0,1999})(/[1-9][0-9]{0,1999})?")


class DocumentPart(msgspec.Struct, frozen=True):
    """A part of a document; each has at least these names."""


class _Asked(DocumentPart, frozen=True, omit_defaults=True):
    form: Literal["rho", "mu", "epsilon"]
    amount: Fraction
    delta: Fraction | None
    key_delta: Fraction | None = None

    def budget(self) -> Budget:
        made = self._plain()
        return made if self.key_delta is None else made.setting_aside(self.key_delta)

    def _plain(self) -> Budget:
        if self.form == "epsilon" and self.delta is not None:
            return Budget(epsilon=self.amount, delta=self.delta)
        if self.form == "epsilon":
            raise ValueError
        return Budget(mu=self.amount) if self.form == "mu" else Budget(rho=self.amount)


class _Budget(DocumentPart, frozen=True):
    """The amount that was charged, in all forms."""

    asked: _Asked
    rho: float
    rho_exact: Fraction
    mu: float
    epsilon_at_delta: dict[str, float]

    @classmethod
    def of(cls, budget: Budget) -> _Budget:
        deltas = dict.fromkeys((*DELTAS, *([] if budget.delta is None else [budget.delta])))
        asked = _Asked(budget.form, budget.amount, budget.delta, budget.key_delta or None)
        return cls(
            asked,
            rho=float(budget.rho),
            rho_exact=budget.rho,
            mu=budget.mu,
            epsilon_at_delta={
                f"{float(d):g}": budget.epsilon_at(d) for d in deltas if d > budget.key_delta
            },
        )


class _ReadTable(DocumentPart, frozen=True):
    table: dict[str, Any]
    unique: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, one: ReadTable) -> _ReadTable:
        unique = sorted(tuple(sorted(columns)) for columns in one.unique)
        return cls(table_to_json(one.table), tuple(unique))

    def read(self) -> ReadTable:
        return ReadTable(table_from_json(self.table), frozenset(map(frozenset, self.unique)))


class _Expected(DocumentPart, frozen=True):
    statement: str
    rows: int
    rmse: float | None
    worst_standard_error: float | None


class _Receipt(DocumentPart, frozen=True, omit_defaults=True):
    id: str
    entry: int
    request: str
    mu_squared: Fraction
    purpose: Purpose
    delta: Fraction | None = None

    @classmethod
    def of(cls, r: Receipt) -> _Receipt:
        return cls(r.ledger, r.seq, r.request, r.mu_squared, r.purpose, r.delta or None)

    def receipt(self) -> Receipt:
        delta = self.delta or Fraction(0)
        return Receipt(self.id, self.entry, self.request, self.mu_squared, self.purpose, delta)


# ── Records ──────────────────────────────────────────────────────────────────────────────────────


class In(Flag):
    """A document that has facts."""

    RELEASE = auto()
    """`release.json`."""
    METADATA = auto()
    """The metadata beside exported files and in pages."""
    BOTH = RELEASE | METADATA


class FactLine(NamedTuple):
    """A line of summaries and pages."""

    section: Literal["Privacy", "Limits", "page"]
    """The section of summaries that it ends, which pages have as well; or pages alone."""
    label: str
    words: Callable[[Any], Iterable[str]]
    """The words that it has for a value; none if there is no such line."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact: an attribute of `Facts`, and where it shows."""

    at: str
    """Its name in documents; after a dot, within the part that is named before."""
    attribute: str
    shows: In = In.BOTH
    kind: Any = None
    """The type that it is read as; by default that of the field."""
    write: Callable[[Any], Any] = lambda value: value
    """Makes of a value that isn't None what a document has."""
    read: Callable[[Any], Any] = lambda value: value
    absent: Any = msgspec.UNSET
    """The value that is read where a version didn't write it; by default all have."""
    lines: tuple[FactLine, ...] = ()

    def written(self, facts: Facts) -> Any:
        """Return it as a document has it."""
        value = attrgetter(self.attribute)(facts)
        return None if value is None else self.write(value)

    def found(self, document: Mapping[str, Any]) -> Any:
        """Read it from a document.

        Raises:
            KeyError, TypeError, msgspec.ValidationError: it isn't there as it should be.
        """
        *parts, name = self.at.split(".")
        place: Any = document
        for part in parts:
            place = place[part]
        said = dict.get(place, name, self.absent)  # a TypeError for what is no object of JSON
        kind = _KINDS[self.attribute] if self.kind is None else self.kind
        value = msgspec.convert(said, kind, dec_hook=_fraction)
        return None if value is None else self.read(value)


def _rested_on(entries: Iterable[Earlier]) -> Iterator[str]:
    for entry in dict.fromkeys(entries):  # of several tables it is named once for each
        rho = Budget(rho=1).describe(entry.mu_squared, up=True).split(" (")[0]
        aside = f" and {shown_delta(entry.delta)}" if entry.delta else ""
        yield f"entry {entry.seq} of {entry.time}, charged {rho}{aside}"


def _found_columns(columns: Iterable[FoundColumn]) -> Iterator[str]:
    for one in columns:
        (charge,) = _rested_on([one.charge])
        name, more = f"{printable(one.path[-1])}.{printable(one.label)}", ""
        if one.scores:
            more = "; counts follow from the noisy numbers by which they were found, too"
        yield f"{name}: {one.rule} ({charge}){more}"


def _bounded_columns(columns: Iterable[BoundedColumn]) -> Iterator[str]:
    for one in columns:
        charges = "; ".join(_rested_on(one.charges))
        ends = f"from {printable(one.low)} to {printable(one.high)}"
        yield f"{printable(one.path[-1])}.{printable(one.column)}: {ends} ({charges})"


def _drawn_quantiles(drawn: Iterable[DrawnQuantiles]) -> Iterator[str]:
    for one in drawn:
        (charge,) = _rested_on([one.charge])
        yield f"{printable(one.label)}: {words_of_miss(one)} ({charge})"


def _released_values(valued: Iterable[ReleasedValue]) -> Iterator[str]:
    for one in valued:
        charges = "; ".join(_rested_on(one.charges))
        yield f"{printable(one.statement)}: {printable(one.value)} ({charges})"


def _of_versions(versions: Mapping[str, str]) -> list[str]:
    return [", ".join(map(" ".join, versions.items()))]


def _about(tables: Iterable[Table]) -> list[dict[str, Any]]:
    return [
        {
            "name": table.name,
            "unit": None if table.unit is None else table.unit.name,
            "rows_that_count_of_a_unit": None if table.unit is None else table.unit.max_rows,
        }
        for table in tables
    ]


FACTS = (
    Fact("created", "created"),
    Fact("table", "table", In.RELEASE, dict[str, Any], table_to_json, table_from_json),
    Fact(
        "other_tables",
        "others",
        In.RELEASE,
        tuple[dict[str, Any], ...],
        write=lambda tables: [table_to_json(table) for table in tables],
        read=lambda tables: tuple(map(table_from_json, tables)),
        absent=(),
    ),
    Fact(
        "read_tables",
        "read",
        In.RELEASE,
        tuple[_ReadTable, ...],
        write=lambda tables: [_ReadTable.of(one) for one in tables],
        read=lambda tables: tuple(one.read() for one in tables),
        absent=(),
    ),
    Fact("tables", "tables", In.METADATA, write=_about),
    Fact("neighbours", "neighbours", read=printable),
    Fact("contributions", "table.contributions", In.RELEASE, int),
    Fact("vintage", "vintage"),
    Fact("statements", "statements", In.RELEASE),
    Fact(
        "expected_error",
        "expected",
        In.RELEASE,
        tuple[_Expected, ...],
        write=pl.DataFrame.to_dicts,
        read=lambda rows: pl.DataFrame(list(msgspec.to_builtins(rows)), schema=EXPECTED),
    ),
    Fact("budget", "budget", In.BOTH, _Budget | None, _Budget.of, lambda said: said.asked.budget()),
    Fact("rows_need_a_value_in", "guards", In.RELEASE),
    Fact("notes", "notes", In.RELEASE, absent={}),
    Fact("privacy_cost_mu_squared", "privacy_cost", In.RELEASE),
    Fact("mechanism.name", "mechanism"),
    Fact("mechanism.title", "title", kind=str | None),
    Fact(
        "mechanism.noise",
        "laplace",
        kind=Literal["gaussian", "laplace"],
        write=lambda laplace: "laplace" if laplace else "gaussian",
        read=lambda noise: noise == "laplace",
    ),
    Fact("mechanism.noise_in_words", "noise", kind=str, absent=""),
    Fact("mechanism.objective", "objective"),
    Fact("mechanism.rmse", "rmse"),
    Fact("mechanism.certified_gap", "gap"),
    Fact("mechanism.warning", "warning", absent=None),
    Fact("mechanism.residual_spaces", "spaces"),
    Fact("mechanism.whole_domain", "whole"),
    Fact("mechanism.invariants", "invariants", kind=tuple[()], absent=()),
    Fact("post_processing.confidence", "confidence"),
    Fact("post_processing.nonnegative", "nonnegative"),
    Fact("post_processing.integers", "integers"),
    Fact("post_processing.groups_above", "groups_above", absent=None),
    Fact("post_processing.suppress_below", "suppress_below", In.METADATA),
    Fact(
        "ledger",
        "receipt",
        In.RELEASE,
        _Receipt | None,
        write=_Receipt.of,
        read=_Receipt.receipt,
        lines=(
            FactLine("Privacy", "ledger", lambda r: [f"entry {r.seq} of ledger {r.ledger}"]),
            FactLine("page", "request", lambda receipt: [receipt.request]),
        ),
    ),
    Fact("ledger", "receipt", In.METADATA, write=lambda r: {"id": r.ledger, "entry": r.seq}),
    Fact(
        "rests_also_on",
        "earlier",
        In.RELEASE,
        lines=(FactLine("Privacy", "rests also on", _rested_on),),
    ),
    Fact(
        "rests_also_on",
        "earlier",
        In.METADATA,
        write=lambda earlier: [{"entry": e.seq, "time": e.time} for e in earlier],
    ),
    Fact(
        "found_keys",
        "found",
        In.RELEASE,
        absent=(),
        lines=(FactLine("Privacy", "keys found", _found_columns),),
    ),
    Fact(
        "found_keys",
        "found",
        In.METADATA,
        write=lambda found: [
            {"table": one.path[-1], "column": one.label, "entry": one.charge.seq} for one in found
        ],
    ),
    Fact(
        "found_bounds",
        "bounded",
        In.RELEASE,
        absent=(),
        lines=(FactLine("Privacy", "bounds found", _bounded_columns),),
    ),
    Fact(
        "found_bounds",
        "bounded",
        In.METADATA,
        write=lambda bounded: [
            {"table": one.path[-1], "column": one.column, "entries": [c.seq for c in one.charges]}
            for one in bounded
        ],
    ),
    Fact(
        "drawn_quantiles",
        "drawn",
        In.RELEASE,
        absent=(),
        lines=(FactLine("Privacy", "quantiles drawn", _drawn_quantiles),),
    ),
    Fact(
        "drawn_quantiles",
        "drawn",
        In.METADATA,
        write=lambda drawn: [
            {"table": one.path[-1], "quantile": one.label, "entry": one.charge.seq} for one in drawn
        ],
    ),
    Fact(
        "released_values",
        "valued",
        In.RELEASE,
        absent=(),
        lines=(FactLine("Privacy", "released first", _released_values),),
    ),
    Fact(
        "released_values",
        "valued",
        In.METADATA,
        write=lambda valued: [
            {
                "statement": one.statement,
                "value": one.value,
                "entries": [c.seq for c in one.charges],
            }
            for one in valued
        ],
    ),
    Fact("versions", "versions", lines=(FactLine("Limits", "versions", _of_versions),)),
)
"""All of them, in the order of documents."""

_KINDS = get_type_hints(Facts)
_FIELDS = frozenset(field.name for field in fields(Facts))
if lacking := _FIELDS - {fact.attribute for fact in FACTS}:
    raise TypeError(f"There is no record of {', '.join(sorted(lacking))}, of a release's facts.")


def document_of(facts: Facts, which: In) -> dict[str, Any]:
    """Return the facts that a document has, as JSON has them."""
    document: dict[str, Any] = {}
    for fact in FACTS:
        if which in fact.shows:
            *parts, name = fact.at.split(".")
            place = document
            for part in parts:
                place = place.setdefault(part, {})
            place[name] = fact.written(facts)
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document, enc_hook=_plain))
    return plain


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def facts_in(document: Mapping[str, Any]) -> Facts:
    """Read facts from `release.json`.

    Raises:
        KeyError, TypeError, ValueError, SchemaError, BudgetError, msgspec.ValidationError: they
            aren't there as they should be.
    """
    found = {f.attribute: f.found(document) for f in FACTS if In.RELEASE in f.shows}
    return Facts(**{name: found[name] for name in found.keys() & _FIELDS})


def lines_of(facts: Facts, *sections: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of some sections that facts have by themselves."""
    for fact in FACTS:
        value = attrgetter(fact.attribute)(facts)
        for line in fact.lines:
            if line.section in sections and value is not None:
                yield from ((line.label, words) for words in line.words(value))


def _fraction(kind: type, value: Any) -> Fraction:
    """Read a fraction, the one type that msgspec leaves to us."""
    if kind is not Fraction or type(value) is not str or not _FRACTION.fullmatch(value):
        raise ValueError
    return Fraction(value)
