"""A column's public domain: the values that it may take, known without looking at any row."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Literal, Protocol, get_args, overload

from dpsql.calls import checked
from dpsql.errors import SchemaError, printable
from dpsql.schema.names import as_sql
from dpsql.schema.sequences import (
    CLOCK,
    FLOATS,
    GRAINS,
    DateRange,
    DecimalRange,
    Grain,
    TimeRange,
    bin_edges,
    clock_periods,
    decimal_scale,
    decimal_text,
    exact,
    grid,
    iso_date,
    iso_instant,
    periods,
    shown,
    whole_days,
)

# ── The values of a domain: that they are of its type, that its cells follow each other ──────────


INTEGER_TYPES = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
)
"""The DuckDB types that an integer domain may have."""


def is_exact(type_: str) -> bool:
    """Whether a column of a DuckDB type has numbers with as many digits as their domains' may."""
    return type_ in INTEGER_TYPES or type_.startswith("DECIMAL(")


def is_number(type_: str) -> bool:
    """Whether a column of a DuckDB type has numbers that can be added up."""
    return is_exact(type_) or type_ in FLOATS or type_.startswith("HUGEINT")


COLLATED = "VARCHAR with a collation"
"""The type, in messages, of texts that CHECKs compare by another rule than byte by byte."""
ZONED = "TIMESTAMP WITH TIME ZONE"
OTHER_TIMES = frozenset({"TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"})
"""The DuckDB types of times in other units than microseconds."""
TIMES = frozenset({"TIMESTAMP", ZONED, *OTHER_TIMES})
"""The DuckDB types of columns that have days and times of day."""
UNREAD = " of a Parquet file"
"""The mark behind the type of a column that is never read: DuckDB could fail for one row."""
_STORED_AS = {
    "HUGEINT": "BIGINT", "UHUGEINT": "UBIGINT", "TIME_NS": "TIME", "TIME WITH TIME ZONE": "TIME",
} | dict.fromkeys(("BIGNUM", "BIT", "BLOB", "INTERVAL", "UUID"), "VARCHAR")  # fmt: skip
"""Type whose values can't be told apart, or not even compared → a type whose values can."""
ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,63}")
"""The names that time zones have; which there are, DuckDB knows."""

Value = int | str | bool | date | Decimal | float


def other_type(table: str, column: str, type_: str, *, altered: bool = False) -> str:
    """Write the statement that stores a column in a type of which more can be asked.

    Args:
        table: a table or a view, as it is typed.
        column: its column.
        type_: the type of that.
        altered: whether it is a table that may be altered; else its rows are stored in another.

    Returns:
        "" if no such type is known.
    """
    name, to = as_sql(column), _STORED_AS.get(type_)
    last = re.findall(r'"(?:[^"]|"")*"|[^.]+', table)[-1]
    stored = last.removeprefix('"').removesuffix('"').replace('""', '"') + "_stored"
    rows = f"CREATE TABLE {as_sql(stored)} AS"
    if type_.endswith(UNREAD):
        if not type_.startswith("TIME WITH"):
            return f"{rows} FROM {table};"
        to, altered = "TIME", False
    if to is None:
        return ""
    if altered:
        return f"ALTER TABLE {table} ALTER {name} TYPE {to};"
    return f"{rows} SELECT * REPLACE (CAST({name} AS {to}) AS {name}) FROM {table};"


def check_values(type_: str, values: Sequence[Value]) -> None:
    """Refuse an empty list, a value that stands twice, and values of another type."""
    if not _are_of(type_, values):
        raise SchemaError(
            f"A domain of type {type_} has values of another type.",
            hint="integers for integer types, strings for VARCHAR and ENUM.",
        )
    if isinstance(values, tuple) and len(set(values)) != len(values):
        counts = Counter(values)
        twice = printable(repr(next(v for v in values if counts[v] > 1))[:60])
        raise SchemaError(f"A domain lists {twice} twice.", hint="list every value exactly once.")
    if not values:
        raise SchemaError("A domain has no values.", hint="list at least one value.")


def _are_of(type_: str, values: Sequence[Value]) -> bool:
    """Whether values are of a type of domains."""
    if isinstance(values, DecimalRange):
        return type_ == values.type
    if type_ in INTEGER_TYPES:
        return isinstance(values, range) or all(type(v) is int for v in values)
    if type_ in {"VARCHAR", "ENUM"}:
        return all(type(v) is str for v in values)
    if type_ == "BOOLEAN":
        return tuple(values) == (False, True)
    if type_ == "DATE":
        return isinstance(values, DateRange) or all(type(v) is date for v in values)
    if type_ == "TIMESTAMP":
        return isinstance(values, TimeRange)
    if type_ == "DOUBLE":
        return all(type(v) is float and math.isfinite(v) for v in values)
    raise SchemaError(
        f"A domain can't have the type {printable(str(type_)[:60])}.",
        hint="use Domain.integers, .decimals, .dates, .bins, .labels or .boolean.",
    )


def check_uppers(type_: str, values: Sequence[Value], uppers: Sequence[Value] | None) -> None:
    """Refuse cells that overlap, or that are not as wide as their kind is."""
    if isinstance(values, DateRange | TimeRange):
        ok = uppers == values.uppers != values
    elif type_ == "DOUBLE":
        ok = uppers is not None and len(uppers) == len(values)
        ends = [(*values[1:], math.nextafter(math.inf, 0)), uppers or (), values]
        ok = ok and all(
            isinstance(upper, float) and value <= upper <= after
            for after, upper, value in zip(*ends, strict=True)
        )
    else:
        ok = uppers is None
    if not ok:
        raise SchemaError(
            f"The cells of a domain of type {type_} don't follow one another without gaps.",
            hint="use the constructors Domain.bins and Domain.dates.",
        )


def check_order(first: date, last: date) -> None:
    """Refuse a range that ends before it begins."""
    if first > last:
        raise SchemaError(
            f"The range {first}..{last} is empty.", hint=f"did you mean {last}..{first}?"
        )


def check_zone(type_: str, zone: str | None) -> None:
    """Refuse what is no name of a time zone, and zones of other types than times."""
    if zone is None:
        return
    if type_ not in {"DATE", "TIMESTAMP"} or not isinstance(zone, str) or not ZONE.fullmatch(zone):
        raise SchemaError(
            f"There is no time zone {shown(zone)}.",
            hint='write the name of one, zone="Europe/Berlin" or zone="UTC".',
        )


Outside = Literal["null", "drop", "clamp", "other"]
"""The place of a row whose value is outside the domain."""


class Merging(Enum):
    """Why a cell of a domain stands for several stored values."""

    RANGE = "range"
    """A bin, or a period of several days: from the cell's value up to its upper one."""
    TIME = "time"
    """The times of a day, an hour or a minute."""
    ROUNDED = "rounded"
    """The nanoseconds around a time in microseconds, to which they are rounded."""
    NEAREST = "nearest"
    """A grid coarser than the column: what is nearer to this multiple than to another one."""
    ENDS = "ends"
    """The first and the last cell: what lies beyond the ends of the domain, which is clamped."""
    OTHER = "other"
    """One label: every text that isn't listed."""


@dataclass(frozen=True, slots=True)
class StoredRange:
    """The stored values for which a cell stands: from `least` to `most`, NULL left aside."""

    least: Value | None
    """None if there is no end below."""
    most: Value | None
    """None if there is no end above."""


class Listed(Protocol):
    """A series, of whichever library."""

    def to_list(self) -> list[Any]:
        """Return the values as a list, in their order."""


@dataclass(frozen=True, slots=True)
class NumberBounds:
    """The public bounds of a column of numbers that is only added up: no value counts beyond these.

    A value below `low` counts as `low`, and one above `high` as `high`; NULL and NaN add nothing.
    Bounds of a column whose values are whole multiples of something are such multiples themselves.
    """

    low: Fraction
    high: Fraction
    found: bool = field(default=False, repr=False)  # digests are made of the rest
    """Whether they were found in the rows: so they say nothing of how a table is described."""

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise SchemaError(
                f"The bounds {decimal_text(self.low)} and {decimal_text(self.high)} are not in "
                "order.",
                hint="give the least value first, for example Domain.number(0, 1000).",
            )

    def __str__(self) -> str:
        return f"number {decimal_text(self.low)}..{decimal_text(self.high)}"

    def among(self, digit: Fraction) -> tuple[Fraction, Fraction]:
        """Return the least and the largest multiple of `digit` between them, in order if any is."""
        return math.ceil(self.low / digit) * digit, math.floor(self.high / digit) * digit


OTHER = "(other)"
"""The label that all texts go to which aren't found, if no other one is asked for."""


def refused_label(other: object) -> str | None:
    """Say why something can't be the label for other texts; None if it can."""
    if isinstance(other, str) and other:
        return None
    return f"The label for other texts is a text, not {shown(other)}."


@dataclass(frozen=True, slots=True)
class UnknownKeys:
    """A column whose values nobody knows beforehand: a release finds those that many units have.

    Args:
        other: the label for all texts that aren't found.
    """

    other: str = OTHER

    def __post_init__(self) -> None:
        refused = refused_label(self.other)
        if refused is not None:
            raise SchemaError(refused, hint='for example Domain.keys(other="(other)").')

    def __str__(self) -> str:
        return f"keys, others as {printable(self.other)}"


@dataclass(frozen=True, slots=True)
class UnknownBounds:
    """A column of numbers whose bounds nobody knows: a release that adds it up finds some."""

    def __str__(self) -> str:
        return "number, of bounds to be found"


@dataclass(frozen=True, slots=True)
class Domain:
    """The values of one column, in order; the i-th value has code i.

    A nullable domain has one more cell, the last, for NULL; without it a row with NULL in the
    column is left out of the release. `outside` says where a row goes whose value is not NULL
    and not in the domain:

    - `null`: to the NULL cell. The default of a nullable domain, which it needs;
    - `drop`: nowhere, the row is left out. The default of any other domain;
    - `clamp`: to the nearer end of an ordered domain (integers, decimals, dates, bins);
    - `other`: to the label `other`, see `labels`.

    So it counts in groups and sums; a condition is on what is stored, see `merges`.

    NaN has no nearer end: under `clamp` it is treated as NULL. So is, in a list of integers or
    dates with gaps, a value in a gap. The rules are the same for all data and silent, because a
    warning would tell something about the rows.

    Use the constructors `integers`, `decimals`, `dates`, `bins`, `labels` and `boolean`.
    """

    type: str
    """The DuckDB type in which SQL sees the values: an integer type, `DECIMAL(p,s)`, `DATE`,
    `TIMESTAMP`, `DOUBLE`, `BOOLEAN`, `VARCHAR` or `ENUM`."""
    values: Sequence[Value]
    """All values but NULL, in order. Where a cell stands for several stored values, the least."""
    nullable: bool = False
    outside: Outside | None = None
    """Never None once the domain is made."""
    uppers: Sequence[Value] | None = None
    """The largest stored value of each cell, where cells stand for several; None if each cell is
    one value. By dates, a TIMESTAMP is known by its day."""
    other: str | None = None
    """The label that strings outside the list go to."""
    column_type: str = ""
    """The DuckDB type of the column, for decimals, dates and bins of a table."""
    zone: str | None = field(default=None, repr=False)
    """The place of the clock whose times SQL sees of a TIMESTAMP WITH TIME ZONE."""

    def __post_init__(self) -> None:
        if not isinstance(self.values, (range, DecimalRange, DateRange, TimeRange)):
            object.__setattr__(self, "values", tuple(self.values))
        check_values(self.type, self.values)
        check_uppers(self.type, self.values, self.uppers)
        check_zone(self.type, self.zone)
        object.__setattr__(self, "nullable", bool(self.nullable))
        object.__setattr__(self, "outside", _policy(self))

    @staticmethod
    @overload
    def number() -> UnknownBounds: ...
    @staticmethod
    @overload
    def number(
        low: int | float | str | Decimal, high: int | float | str | Decimal
    ) -> NumberBounds: ...
    @staticmethod
    @checked
    def number(
        low: int | float | str | Decimal | None = None,
        high: int | float | str | Decimal | None = None,
    ) -> NumberBounds | UnknownBounds:
        """Numbers from `low` to `high` that are added up, for numeric columns of any type.

        Values beyond the bounds count as the nearer one. Sums, averages and variances of the
        column, and of expressions over it, can be asked for, but it can't be grouped by.

        Without bounds they are numbers of which nobody knows any: a release that adds the column up
        finds some, for a part of its budget; see `dpsql.Bounds`.
        """
        if low is None and high is None:
            return UnknownBounds()
        if low is None or high is None:
            raise SchemaError(
                "Numbers have two bounds, or none.",
                hint="for example Domain.number(0, 1000); without both they are found.",
            )
        for bound in (low, high):
            if isinstance(bound, float) and not math.isfinite(bound):
                raise SchemaError(
                    f"The bound {bound!r} is not a finite number.",
                    hint="sums need two finite bounds, for example Domain.number(0, 1000).",
                )
        least, most = (exact(str(b) if isinstance(b, float) else b) for b in (low, high))
        return NumberBounds(least, most)

    @staticmethod
    @checked
    def keys(*, other: str = OTHER) -> UnknownKeys:
        """Values that nobody knows beforehand, of texts, whole numbers, dates and times.

        A release that groups by the column finds those that many units have, for a part of its
        budget, and answers with what is left; see `dpsql.Keys`. All other texts are one label,
        `other`; other numbers and days count as NULL.
        """
        return UnknownKeys(other)

    @classmethod
    @checked
    def integers(
        cls, low: int, high: int, *, nullable: bool = False, outside: Outside | None = None
    ) -> Domain:
        """All integers from `low` to `high`, both included."""
        for bound in (low, high):
            if type(bound) is not int:
                raise SchemaError(
                    f"Integer bounds must be whole numbers, not {bound!r}.",
                    hint="for example Domain.integers(0, 120).",
                )
            if not -(2**63) <= bound < 2**63:
                raise SchemaError(
                    f"The bound {bound} does not fit a 64-bit integer.",
                    hint="declare a smaller range.",
                )
        if low > high:
            raise SchemaError(
                f"The range {low}..{high} is empty.", hint=f"did you mean {high}..{low}?"
            )
        return cls("BIGINT", range(low, high + 1), nullable, outside)

    @classmethod
    @checked
    def decimals(
        cls,
        low: int | str | Decimal,
        high: int | str | Decimal,
        step: int | str | Decimal,
        *,
        nullable: bool = False,
        outside: Outside | None = None,
    ) -> Domain:
        """All of low, low + step, …, high, for DECIMAL, integer, DOUBLE and FLOAT columns.

        In groups and quantiles, a stored value from `low` to `high` counts as the nearest of these;
        halfway between two, as the larger one. Conditions are on what is stored, and sums and
        averages are of that. Values below `low` or above `high` are outside. In DECIMAL and integer
        columns that is exact; in DOUBLE and FLOAT columns it is up to rounding in doubles.
        """
        values = grid(exact(low), exact(high), exact(step))
        return cls(values.type, values, nullable, outside)

    @classmethod
    @checked
    def dates(
        cls,
        first: date | str,
        last: date | str,
        grain: Grain = "day",
        *,
        zone: str | None = None,
        nullable: bool = False,
        outside: Outside | None = None,
    ) -> Domain:
        """One cell for each whole period from the one of `first` to the one of `last`.

        For DATE and TIMESTAMP columns; hours and minutes are for timestamps, which are known by
        their day otherwise. Weeks begin on Monday. A TIMESTAMP WITH TIME ZONE needs a `zone`, for
        example "Europe/Berlin": SQL sees what the clock shows there, whatever zone the session is
        set to; where the clock is put back, an hour of it is two.
        """
        if grain not in GRAINS:
            raise SchemaError(
                f"There is no grain {shown(grain)}.",
                hint=f"use one of {', '.join(GRAINS)}.",
            )
        if grain in CLOCK:
            instants = whole_days(iso_instant(first), iso_instant(last))
            check_order(*instants)
            times = clock_periods(*instants, grain)
            return cls("TIMESTAMP", times, nullable, outside, times.uppers, zone=zone)
        days = iso_date(first), iso_date(last)
        check_order(*days)
        values = periods(*days, grain)
        return cls("DATE", values, nullable, outside, values.uppers, zone=zone)

    @classmethod
    @checked
    def bins(
        cls,
        edges: Iterable[float | Decimal],
        *,
        nullable: bool = False,
        outside: Outside | None = None,
    ) -> Domain:
        """Cells from each edge up to, without, the next; the last one includes its upper edge.

        For DOUBLE, FLOAT, DECIMAL and integer columns. Values and edges are compared as doubles.
        """
        read = bin_edges(edges)
        uppers = (*(math.nextafter(edge, -math.inf) for edge in read[1:-1]), read[-1])
        return cls("DOUBLE", read[:-1], nullable, outside, uppers)

    @classmethod
    @checked
    def labels(
        cls,
        labels: Sequence[str] | Listed,
        *,
        nullable: bool = False,
        outside: Outside | None = None,
        other: str | None = None,
    ) -> Domain:
        """List the strings that may occur, in order: a list, or a series of Polars or pandas.

        Strings outside the list go to the label `other`, if that is given; NULL does not.
        """
        if isinstance(labels, str):
            raise SchemaError(
                "Labels must be a list of strings, not one string.",
                hint=f"write Domain.labels([{labels!r}]).",
            )
        if not isinstance(labels, Sequence) and callable(getattr(labels, "to_list", None)):
            labels = labels.to_list()  # a series, which is in order too
        if not isinstance(labels, Sequence):
            raise SchemaError(
                f"Labels must be a list of strings, not a {type(labels).__name__}: their order "
                "is the order of the answers.",
                hint="write Domain.labels(sorted(labels)).",
            )
        if other is not None and outside is None:
            outside = "other"
        return cls("VARCHAR", tuple(labels), nullable, outside, other=other)

    @classmethod
    @checked
    def boolean(cls, *, nullable: bool = False) -> Domain:
        """Declare false and true; there is nothing outside."""
        return cls("BOOLEAN", (False, True), nullable)

    @property
    def size(self) -> int:
        """The number of cells, the NULL cell included."""
        values = self.values
        count = values.stop - values.start if isinstance(values, range) else len(values)
        return count + self.nullable

    @property
    def covers_all(self) -> bool:
        """Whether every row has a cell, whatever it holds."""
        return self.nullable and self.outside != "drop"

    @property
    def instant(self) -> bool:
        """Whether SQL sees a TIMESTAMP, of which not all is known."""
        return self.timed or self.type == "TIMESTAMP"

    @property
    def timed(self) -> bool:
        """Whether the column has times of day, of which nothing is known."""
        return self.type == "DATE" and self.column_type in TIMES

    @property
    def merges(self) -> frozenset[Merging]:
        """Why cells stand for several stored values; empty if each stands for one.

        Whatever tells stored values of one cell apart can't be computed of cells, but of rows.
        Where the database sees to it that no value is outside, `ENDS` and `OTHER` say nothing; see
        `Table.merges`.
        """
        reasons = set[Merging]()
        if self.uppers is not None and self.type != "TIMESTAMP":
            reasons.add(Merging.RANGE)
        if self.instant:
            reasons.add(Merging.TIME)
        if self.column_type == "TIMESTAMP_NS":
            reasons.add(Merging.ROUNDED)
        if isinstance(self.values, DecimalRange) and self._step != 1:
            reasons.add(Merging.NEAREST)
        if self.outside == "clamp":
            reasons.add(Merging.ENDS)
        if self.other is not None:
            reasons.add(Merging.OTHER)
        return frozenset(reasons)

    @property
    def _step(self) -> int | None:
        """The step of a grid, in units of an exact column's last digit; None for doubles."""
        type_ = self.column_type or self.type
        if not isinstance(self.values, DecimalRange) or type_ in FLOATS:
            return None
        return self.values.scaled(max(decimal_scale(type_), self.values.scale))[2]

    def stands_for(self, code: int) -> StoredRange:
        """Return the stored values for which the cell of an ordered domain stands, but for NULL."""
        value = self.values[code]
        least, most = value, value if self.uppers is None else self.uppers[code]
        if self.timed and isinstance(value, date) and isinstance(most, date):
            least = datetime.combine(value, time.min)
            most = datetime.combine(most, time.max)
        if Merging.NEAREST in self.merges and isinstance(self.values, DecimalRange):
            half = Fraction(self.values.step, 2 * 10**self.values.scale)
            ends = Fraction(str(self.values[0])), Fraction(str(self.values[-1]))
            at = Fraction(str(value))
            low, high = max(at - half, ends[0]), min(at + half, ends[1])
            least, most = Decimal(decimal_text(low)), Decimal(decimal_text(high))
        clamped = self.outside == "clamp"
        last = code == len(self.values) - 1
        return StoredRange(
            None if clamped and code == 0 else least, None if clamped and last else most
        )

    @property
    def coarse(self) -> bool:
        """Whether a cell stands for several stored values, of the domain or outside of it."""
        return bool(self.merges)

    def as_type(self, type_: str) -> Domain:
        """Give the same values for a column of another DuckDB type."""
        return replace(self, type=type_)

    def of_column(self, type_: str) -> Domain:
        """Give the same values, known to be stored in a column of this type."""
        return replace(self, column_type=type_)

    def __str__(self) -> str:
        first = [str(v) for v in self.values[:3]]
        if isinstance(self.values, range):
            text = f"{self.values.start}..{self.values.stop - 1}"
        elif isinstance(self.values, (DecimalRange, DateRange, TimeRange)):
            text = str(self.values)
        elif self.type == "DOUBLE" and self.uppers is not None:
            text = f"{', '.join(first)}, …, up to {self.uppers[-1]}"
        else:
            text = ", ".join(first) + (", …" if len(self.values) > 3 else "")
        rule = {"clamp": ", others clamped", "other": f", others as {self.other}"}
        if self.nullable:
            rule["drop"] = ", others dropped"
        zone = f" in {self.zone}" if self.zone else ""
        null = " or NULL" if self.nullable else ""
        return f"{self.type} {{{text}}}{zone}{null}{rule.get(self.outside or '', '')}"


def first_and_last(domain: Domain) -> tuple[Value, Value]:
    """Return the first value, and the last one, up to which the last cell reaches."""
    return domain.values[0], (domain.values if domain.uppers is None else domain.uppers)[-1]


def _policy(domain: Domain) -> Outside:
    """Check the rule for values outside, or choose the default one."""
    outside = domain.outside or ("null" if domain.nullable else "drop")
    if outside not in get_args(Outside):
        raise SchemaError(
            f"There is no rule {shown(outside)} for values outside the domain.",
            hint='use outside="null", "drop" or "clamp".',
        )
    if outside == "null" and not domain.nullable:
        raise SchemaError(
            "A domain without NULL can't turn values outside it into NULL.",
            hint='add nullable=True, or use outside="drop".',
        )
    if outside == "clamp" and not _ordered(domain):
        raise SchemaError(
            f"A domain of type {domain.type} has no ends to clamp values to.",
            hint='use outside="drop", or nullable=True and outside="null".',
        )
    named = domain.other is not None
    if (outside == "other") != named or (named and domain.type != "VARCHAR"):
        raise SchemaError(
            "Other strings need a label to count as, and no second rule.",
            hint='write Domain.labels(["a", "b", "rest"], other="rest").',
        )
    if named and domain.other not in domain.values:
        raise SchemaError(
            f"The label {shown(domain.other)} for other strings is not listed.",
            hint="add it to the labels.",
        )
    return outside


def _ordered(domain: Domain) -> bool:
    """Whether the first value is the least and the last the largest."""
    if domain.type in {"VARCHAR", "ENUM", "BOOLEAN"}:
        return False
    listed = isinstance(domain.values, tuple)
    return not listed or list(domain.values) == sorted(domain.values)


# ── The cuts of a column into intervals, as they stand in descriptions of what was measured ──────
#
# Measuring along more cuts tells all that measuring along some of them does: each interval lies
# within one of the coarser ones. So measurements along different cuts of one column go together,
# over all of the cuts.


DERIVED = "row:"
"""The beginning of the hash of a derived key where columns are described."""
MOST_CUTS = 1_000
"""The most cuts of one column, by several releases."""
_CUT = "cut at"
"""The beginning of the description of a line, in place of a hash."""
CUT_AT = rf"{_CUT}(?: -?[0-9]{{1,20}}){{0,{MOST_CUTS}}}"
"""The form of that description."""
_WRITTEN = re.compile(CUT_AT)

Cuts = tuple[int, ...]
"""The first place of each interval but the first, in ascending order."""


def cut_at(cuts: Sequence[int]) -> str:
    """Describe a line by where it is cut."""
    return " ".join([_CUT, *map(str, cuts)])


def cuts_of(description: str) -> Cuts | None:
    """Return where a column is cut; None of another description.

    Raises:
        ValueError: the cuts don't ascend.
    """
    if _WRITTEN.fullmatch(description) is None:
        return None
    cuts = tuple(map(int, description.removeprefix(_CUT).split()))
    if list(cuts) != sorted(set(cuts)):
        raise ValueError
    return cuts


def lines_of(descriptions: Mapping[str, str]) -> dict[str, Cuts]:
    """Return the cuts of those derived keys that are lines, given what each is.

    Raises:
        ValueError: the cuts don't ascend.
    """
    found = {name: cuts_of(text.removeprefix(DERIVED)) for name, text in descriptions.items()}
    return {name: cuts for name, cuts in found.items() if cuts is not None}


def together(lines: Iterable[Mapping[str, Cuts]]) -> dict[str, Cuts]:
    """Return all cuts of each column."""
    places: dict[str, set[int]] = {}
    for each in lines:
        for name, cuts in each.items():
            places.setdefault(name, set()).update(cuts)
    return {name: tuple(sorted(cuts)) for name, cuts in places.items()}


def coarser(fine: Cuts, coarse: Cuts, *, nullable: bool) -> list[int]:
    """Return in which interval of fewer cuts each one of more cuts lies.

    Args:
        fine: all cuts.
        coarse: some of them.
        nullable: whether there is a last cell, of NULL.
    """
    places = [0, *(bisect_right(coarse, cut) for cut in fine)]
    return [*places, len(coarse) + 1] if nullable else places


Unknown = UnknownKeys | UnknownBounds
"""A declaration that the values of a column, or its bounds, are to be found."""
Declaration = Domain | NumberBounds | Unknown
"""A declaration of a column: its values, its bounds, or that these are to be found."""
