"""Kinds of domains: the few numbers and texts that tell all values of one.

Each is declared here, and nowhere else: as JSON keeps it (its fields, by msgspec), how a domain is
made of it (`read`) and what people write of it (`declared`). Forms that hold domains only spell
that: `stored.py` for releases, `entries.py` for schema files, comments and Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec

from dpsql.schema.domain import (
    INTEGER_TYPES,
    OTHER,
    Declaration,
    Domain,
    NumberBounds,
    UnknownBounds,
    UnknownKeys,
    Value,
)
from dpsql.schema.sequences import (
    MAX_DIGITS,
    MAX_GRID,
    DateRange,
    DecimalRange,
    Grain,
    TimeRange,
    clock_periods,
    first_of,
    iso_date,
    type_range,
)

Read = tuple[Sequence[Value], Sequence[Value] | None]
"""The values of a domain, and the largest value of each cell."""
Part = Value | Fraction
"""A part of a declaration as it is written: in any form, by its type."""


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The shape of an object in a document: the names of its fields, and no others."""

    @classmethod
    def of(cls, made: object) -> Self:
        """Take the fields, and theirs, from an object that has attributes of the same names."""
        return msgspec.convert(made, cls, from_attributes=True)


def require(holds: bool) -> None:
    """Refuse what is never written.

    Raises:
        ValueError: something doesn't hold.
    """
    if not holds:
        raise ValueError


class DomainCall(NamedTuple):
    """A declaration of a domain: `Domain.kind(*parts, **beside)`, or a list of all parts."""

    kind: str
    parts: tuple[Part, ...] | list[Part]
    beside: Mapping[str, Part] = {}


class _Kind(Shape, frozen=True, tag_field="kind"):
    def read(self, type_: str) -> Read:
        """Make the values of a domain of a type.

        Raises:
            ValueError: it has none such.
        """
        raise NotImplementedError

    def declared(self, type_: str) -> DomainCall:
        """Return the call by which people write the domain."""
        raise NotImplementedError


class _Integers(_Kind, frozen=True, tag="integers"):
    """All integers of a range."""

    low: int
    high: int

    def read(self, type_: str) -> Read:
        require(type_ in INTEGER_TYPES)
        least, most = type_range(type_)
        require(least <= self.low and self.high <= most)
        return range(self.low, self.high + 1), None

    def declared(self, type_: str) -> DomainCall:
        return DomainCall("integers", (self.low, self.high))


class _Decimals(_Kind, frozen=True, tag="decimals"):
    """Decimals at the same distance from each other."""

    low: str
    high: str
    step: str
    scale: Annotated[int, msgspec.Meta(ge=0, le=MAX_DIGITS)]

    def read(self, type_: str) -> Read:
        """Read numbers with their point left out: written again, it is where it was or not."""
        require(type_.startswith("DECIMAL"))
        low, high, step = (int(n.replace(".", "")) for n in (self.low, self.high, self.step))
        require(step >= 1 and high >= low and max(abs(low), abs(high)) < 10**MAX_DIGITS)
        length = (high - low) // step + 1
        require(length <= MAX_GRID)
        return DecimalRange(low, step, length, self.scale), None

    def declared(self, type_: str) -> DomainCall:
        ends = Decimal(self.low), Decimal(self.high)
        return DomainCall("decimals", ends, {"step": Decimal(self.step)})


class _Dates(_Kind, frozen=True, tag="dates"):
    """Whole days, weeks, months, quarters or years in a row."""

    first: date
    length: Annotated[int, msgspec.Meta(ge=1, le=date.max.toordinal())]
    grain: Grain

    def read(self, type_: str) -> Read:
        days = DateRange(self.first, self.length, self.grain)
        require(first_of(self.first, self.grain) == self.first <= days.end)  # or beyond 9999
        return days, days.uppers

    def declared(self, type_: str) -> DomainCall:
        last = DateRange(self.first, self.length, self.grain).end
        beside = {} if self.grain == "day" else {"grain": self.grain}
        return DomainCall("dates", (self.first, last), beside)


class _Times(_Kind, frozen=True, tag="times"):
    """Hours or minutes in a row, each by its first instant."""

    first: datetime
    last: datetime
    grain: Literal["hour", "minute"]

    def read(self, type_: str) -> Read:
        require(self.first.tzinfo is self.last.tzinfo is None and self.first <= self.last)
        times = clock_periods(self.first, self.last, self.grain)
        return times, times.uppers

    def declared(self, type_: str) -> DomainCall:
        return DomainCall("dates", (self.first, self.last), {"grain": self.grain})


class _Bins(_Kind, frozen=True, tag="bins"):
    """Intervals between edges, by their least and their largest double."""

    lowers: tuple[float, ...]
    uppers: tuple[float, ...]

    def read(self, type_: str) -> Read:
        return self.lowers, self.uppers

    def declared(self, type_: str) -> DomainCall:
        return DomainCall("bins", [*self.lowers, *self.uppers[-1:]])


class _Booleans(_Kind, frozen=True, tag="boolean"):
    """False and true."""

    def read(self, type_: str) -> Read:
        return (False, True), None

    def declared(self, type_: str) -> DomainCall:
        return DomainCall("boolean", ())


class _Listed(_Kind, frozen=True, tag="listed"):
    """Labels, or listed integers or days."""

    items: tuple[int | str, ...]

    def read(self, type_: str) -> Read:
        if type_ in INTEGER_TYPES:
            least, most = type_range(type_)
            require(all(isinstance(v, int) and least <= v <= most for v in self.items))
        return self._values(type_), None

    def declared(self, type_: str) -> DomainCall:
        kind = "labels" if type_ in {"VARCHAR", "ENUM"} else "values"
        return DomainCall(kind, list(self._values(type_)))

    def _values(self, type_: str) -> Sequence[Value]:
        return tuple(map(iso_date, self.items)) if type_ == "DATE" else self.items


Kind = _Integers | _Decimals | _Dates | _Times | _Bins | _Booleans | _Listed


def kind_of(domain: Domain) -> Kind:
    """Take the kind of a domain, and what makes its values, from it."""
    values: Any = domain.values
    if isinstance(values, range):
        return _Integers(values.start, values.stop - 1)
    if isinstance(values, DecimalRange):
        low, high, step = (f"{n:f}" for n in (values[0], values[-1], values.spacing))
        return _Decimals(low, high, step, values.scale)
    if isinstance(values, DateRange):
        return _Dates(values.first, values.length, values.grain)  # type: ignore[arg-type]
    if isinstance(values, TimeRange):
        return _Times(values[0], values[-1], values.grain)  # type: ignore[arg-type]
    if domain.type == "BOOLEAN":
        return _Booleans()
    if domain.type == "DOUBLE":
        uppers: Any = domain.uppers
        return _Bins(values, uppers)
    return _Listed(tuple(str(v) if isinstance(v, date) else v for v in values))


def declared(domain: Declaration) -> DomainCall:
    """Return what people write of a domain, but for its rules, or of bounds."""
    if isinstance(domain, UnknownKeys):
        return DomainCall("keys", ())
    if isinstance(domain, UnknownBounds):
        return DomainCall("number", ())
    if isinstance(domain, NumberBounds):
        return DomainCall("number", (domain.low, domain.high))
    parts = kind_of(domain).declared(domain.type)
    zone = {} if domain.zone is None else {"zone": domain.zone}
    return parts._replace(beside={**parts.beside, **zone})


def rules(domain: Declaration) -> dict[str, Part]:
    """Return by name what differs from the defaults of a domain: NULL, and what is outside."""
    if isinstance(domain, UnknownKeys):
        return {} if domain.other == OTHER else {"other": domain.other}
    if isinstance(domain, NumberBounds | UnknownBounds):
        return {}
    parts: dict[str, Part] = {"nullable": True} if domain.nullable else {}
    if domain.other is not None:
        parts["other"] = domain.other
    elif domain.outside is not None and domain.outside != ("null" if domain.nullable else "drop"):
        parts["outside"] = domain.outside
    return parts
