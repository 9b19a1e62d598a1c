"""Values of declarations: numbers and dates, exactly, and long lists that are never written out."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import pairwise
from typing import Generic, Literal, TypeVar, get_args, overload

from dpsql.errors import SchemaError
from dpsql.errors import shown as shown

Grain = Literal["minute", "hour", "day", "week", "month", "quarter", "year"]
GRAINS: tuple[str, ...] = get_args(Grain)
MONTHS = {"month": 1, "quarter": 3, "year": 12}
"""The grains that are whole months."""
CLOCK = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}
"""The grains that are less than a day."""
INSTANT = timedelta(microseconds=1)
"""The distance between two timestamps that follow each other."""

V = TypeVar("V")


class Computed(Sequence[V], Generic[V]):
    """A sequence of which each item is computed when it is asked for."""

    __slots__ = ()

    def at(self, index: int) -> V:
        """Compute the item at an index that is in range."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> V: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[V, ...]: ...
    def __getitem__(self, index: int | slice) -> V | tuple[V, ...]:
        if isinstance(index, slice):
            return tuple(self.at(i) for i in range(len(self))[index])
        return self.at(range(len(self))[index])

    def __iter__(self) -> Iterator[V]:
        return map(self.at, range(len(self)))


@dataclass(frozen=True, slots=True)
class DecimalRange(Computed[Decimal]):
    """The decimals (low + i·step) / 10**scale for i = 0, …, length − 1."""

    low: int
    step: int
    length: int
    scale: int

    def at(self, index: int) -> Decimal:
        """Compute the item at an index that is in range."""
        # From text, because arithmetic would round to the precision of the caller's context.
        return Decimal(f"{self.low + index * self.step}E-{self.scale}")

    def __len__(self) -> int:
        return self.length

    @property
    def high(self) -> int:
        """The last item, times 10**scale."""
        return self.low + (self.length - 1) * self.step

    @property
    def spacing(self) -> Decimal:
        """The distance of each item from the next."""
        return Decimal(f"{self.step}E-{self.scale}")

    @property
    def type(self) -> str:
        """The narrowest DECIMAL that holds all items."""
        digits = max(len(str(abs(end))) for end in (self.low, self.high))
        return f"DECIMAL({max(digits, self.scale, 1)},{self.scale})"

    def scaled(self, scale: int) -> tuple[int, int, int]:
        """Give the lowest item, the highest and the step, each times 10**scale."""
        factor = 10 ** (scale - self.scale)
        return self.low * factor, self.high * factor, self.step * factor

    def __str__(self) -> str:
        return f"{self[0]:f}..{self[-1]:f} by {self.spacing:f}"


@dataclass(frozen=True, slots=True)
class DateRange(Computed[date]):
    """The first or the last days of `length` calendar periods in a row."""

    first: date
    """The first day of the first period."""
    length: int
    grain: str = "day"
    last_days: bool = False

    def at(self, index: int) -> date:
        """Compute the item at an index that is in range."""
        return _last_of(self._start(index), self.grain) if self.last_days else self._start(index)

    def _start(self, index: int) -> date:
        if self.grain in MONTHS:
            years, months = divmod(self.first.month - 1 + index * MONTHS[self.grain], 12)
            return date(self.first.year + years, months + 1, 1)
        return self.first + timedelta(days=index * (7 if self.grain == "week" else 1))

    def __len__(self) -> int:
        return self.length

    @property
    def end(self) -> date:
        """The last day of the last period."""
        return _last_of(self._start(self.length - 1), self.grain)

    @property
    def uppers(self) -> DateRange | None:
        """The last days of the periods; None if those are days."""
        return None if self.grain == "day" else replace(self, last_days=True)

    def __str__(self) -> str:
        by = "" if self.grain == "day" else f" by {self.grain}"
        return f"{self.first}..{self.end}{by}"


@dataclass(frozen=True, slots=True)
class TimeRange(Computed[datetime]):
    """The first or the last instants of `length` hours or minutes in a row, as a clock shows them.

    The clock is never changed: each day has 24 hours.
    """

    first: datetime
    """The first instant of the first period."""
    length: int
    grain: str
    last_instants: bool = False

    def at(self, index: int) -> datetime:
        """Compute the item at an index that is in range."""
        width = CLOCK[self.grain]
        start = self.first + index * width
        return start + (width - INSTANT) if self.last_instants else start

    def __len__(self) -> int:
        return self.length

    @property
    def end(self) -> datetime:
        """The last instant of the last period."""
        return self.uppers.at(self.length - 1)

    @property
    def uppers(self) -> TimeRange:
        """The last instants of the periods."""
        return replace(self, last_instants=True)

    def __str__(self) -> str:
        ends = (replace(self, last_instants=False).at(i) for i in (0, self.length - 1))
        first, last = (end.isoformat(" ", "minutes") for end in ends)
        return f"{first}..{last} by {self.grain}"


def first_of(day: date, grain: str) -> date:
    """Return the first day of the period that holds `day`; weeks begin on Monday."""
    if grain in MONTHS:
        months = MONTHS[grain]
        return date(day.year, (day.month - 1) // months * months + 1, 1)
    return day - timedelta(days=day.weekday() if grain == "week" else 0)


def _last_of(start: date, grain: str) -> date:
    """Return the last day of the period that begins on `start`."""
    if grain in MONTHS:
        years, months = divmod(start.month - 1 + MONTHS[grain], 12)
        # The year 10000 can't be written; December ends on its 31st in any year.
        ends_year = months == 0
        return (
            date(start.year, 12, 31)
            if ends_year
            else date(start.year + years, months + 1, 1) - timedelta(days=1)
        )
    return start + timedelta(days=6 if grain == "week" else 0)


def whole_days(first: date, last: date) -> tuple[datetime, datetime]:
    """Return instants: a day without a time is meant from its first to its last."""
    begin = first if isinstance(first, datetime) else datetime.combine(first, time.min)
    end = last if isinstance(last, datetime) else datetime.combine(last, time.max)
    return begin, end


def clock_periods(first: datetime, last: datetime, grain: str) -> TimeRange:
    """Return the hours or minutes from the one that holds `first` to the one that holds `last`."""
    start = first.replace(second=0, microsecond=0)
    if grain == "hour":
        start = start.replace(minute=0)
    return TimeRange(start, (last - start) // CLOCK[grain] + 1, grain)


def periods(first: date, last: date, grain: str) -> DateRange:
    """Return the whole periods from the one that holds `first` to the one that holds `last`.

    Raises:
        SchemaError: the last week ends after the year 9999.
    """
    start, end = first_of(first, grain), first_of(last, grain)
    if grain in MONTHS:
        count = ((end.year - start.year) * 12 + end.month - start.month) // MONTHS[grain] + 1
    else:
        count = (end - start).days // (7 if grain == "week" else 1) + 1
    if grain == "week" and (date.max - end).days < 6:
        raise SchemaError(
            "The last week ends after the year 9999.", hint="end the range on 9999-12-26."
        )
    return DateRange(start, count, grain)


# ── Numbers and dates, read exactly ───────────────────────────────────────────────────────────────

MAX_DIGITS = 37
"""One less than a DECIMAL has, so that differences of values fit DuckDB's widest integer."""
MAX_GRID = 2**62
FLOATS = frozenset({"DOUBLE", "FLOAT"})
MAX_BINS = 10_000
"""A bin is found by a chain of comparisons, which takes seconds to plan beyond that."""

_ISO = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_ISO_INSTANT = re.compile(rf"{_ISO.pattern}[ T]\d\d:\d\d(:\d\d(\.\d{{1,6}})?)?", re.ASCII)


def decimal_text(value: Fraction) -> str:
    """Write a fraction that is a decimal number, in digits."""
    scale = 0
    while (value * 10**scale).denominator != 1:
        scale += 1
    return f"{Decimal(f'{(value * 10**scale).numerator}E-{scale}'):f}"


def has_digits(value: Fraction, most: int) -> bool:
    """Whether a fraction is a decimal number with so many digits behind the point at most."""
    return not 10**most % value.denominator


def exact(value: object) -> Fraction:
    """Read an int, a Decimal, or a number in a string.

    Raises:
        SchemaError: it is something else, not finite, or has too many digits.
    """
    if isinstance(value, float):
        raise SchemaError(
            f"The float {value!r} is not the decimal number that it looks like.",
            hint=f"write it as a string: {str(value)!r}."
            if math.isfinite(value)
            else 'write a finite number as a string, for example "0.05".',
        )
    whole = _read(value)
    if whole is None or not whole.is_finite():
        raise SchemaError(
            f"{shown(value)} is not a decimal number.",
            hint='write a whole number, or a string such as "0.05".',
        )
    exponent = whole.as_tuple().exponent
    if whole and (whole.adjusted() >= MAX_DIGITS or int(exponent) < -2 * MAX_DIGITS):
        raise SchemaError(
            "A number has too many digits for a DECIMAL.",
            hint=f"use numbers with at most {MAX_DIGITS} digits.",
        )
    return Fraction(whole) if whole else Fraction(0)


def _read(value: object) -> Decimal | None:
    if isinstance(value, Decimal):
        return value
    if type(value) is int and value.bit_length() < 256:
        return Decimal(value)
    if isinstance(value, str) and len(value) <= 2 * MAX_DIGITS:
        with suppress(InvalidOperation):
            return Decimal(value.strip())
    return None


def grid(low: Fraction, high: Fraction, step: Fraction) -> DecimalRange:
    """Return all of low, low + step, …, high.

    Raises:
        SchemaError: there are none or too many, they are too long, or the step misses `high`.
    """
    if step <= 0:
        raise SchemaError("The step must be above 0.", hint='for example step="0.01".')
    if low > high:
        raise SchemaError("The range is empty.", hint="give the smaller bound first.")
    count = (high - low) / step + 1
    if count.denominator != 1:
        raise SchemaError(
            "The step does not divide the range.",
            hint="end the range on low plus a whole number of steps.",
        )
    if count > MAX_GRID:
        raise SchemaError("There are too many values.", hint="use a larger step.")
    scale = next((s for s in range(MAX_DIGITS + 1) if _whole((low, step), s)), None)
    if scale is None or max(abs(low), abs(high)) * 10**scale >= 10**MAX_DIGITS:
        raise SchemaError(
            f"The values need more than {MAX_DIGITS} digits.", hint="use fewer decimal places."
        )
    unit = 10**scale
    return DecimalRange(int(low * unit), int(step * unit), int(count), scale)


def _whole(values: Iterable[Fraction], scale: int) -> bool:
    return all((value * 10**scale).denominator == 1 for value in values)


def iso_date(value: object) -> date:
    """Read a date, or an ISO date in a string.

    Raises:
        SchemaError: it is something else.
    """
    if type(value) is date:
        return value
    if isinstance(value, str) and _ISO.fullmatch(value):
        with suppress(ValueError):
            return date.fromisoformat(value)
    raise SchemaError(
        f"{shown(value)} is not a date.",
        hint='write datetime.date(2026, 1, 31), or the string "2026-01-31".',
    )


def iso_instant(value: object) -> date:
    """Read a date, or a date and time without a zone; either may be an ISO string.

    Returns:
        A `datetime` if there is a time.

    Raises:
        SchemaError: it is something else.
    """
    if type(value) is datetime and value.tzinfo is None:
        return value
    if isinstance(value, str) and _ISO_INSTANT.fullmatch(value):
        with suppress(ValueError):
            return datetime.fromisoformat(value)
    try:
        return iso_date(value)
    except SchemaError:
        raise SchemaError(
            f"{shown(value)} is not a date and time without a zone.",
            hint='write datetime.datetime(2026, 1, 31, 18), or the string "2026-01-31 18:00".',
        ) from None


def bin_edges(edges: object) -> tuple[float, ...]:
    """Read strictly increasing finite edges.

    Raises:
        SchemaError: they are something else, or fewer than two.
    """
    hint = "for example Domain.bins([0, 10, 20, 50])."
    if isinstance(edges, (str, bytes)) or not isinstance(edges, Iterable):
        raise SchemaError("Bin edges must be a list of numbers.", hint=hint)
    read = tuple(_edge(edge) for edge in edges)
    if len(read) < 2:
        raise SchemaError("Bins need at least two edges.", hint=hint)
    if len(read) > MAX_BINS + 1:
        raise SchemaError(
            f"There are more than {MAX_BINS:,} bins.",
            hint="use wider bins, or Domain.decimals for values on a regular grid.",
        )
    for one, other in pairwise(read):
        if one >= other:
            raise SchemaError(
                f"The edge {other!r} does not lie above the one before it, {one!r}.",
                hint="list the edges in ascending order, each once.",
            )
    return read


def _edge(edge: object) -> float:
    number = isinstance(edge, (int, float, Decimal)) and not isinstance(edge, bool)
    try:
        value = float(edge) if number else math.nan  # type: ignore[arg-type]  # just checked
    except OverflowError:
        value = math.nan
    if not math.isfinite(value):
        raise SchemaError(
            f"{shown(edge)} is not an edge of a bin.",
            hint="edges are finite numbers, for example [0, 0.5, 1].",
        )
    return value + 0.0  # no negative zero


def as_float32(value: float) -> float:
    """Round to the nearest single; beyond the largest one, to infinity."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0]) + 0.0
    except OverflowError:
        return math.copysign(math.inf, value)


def below_float32(value: float) -> float:
    """Return the largest single below a finite one."""
    # Singles of one sign follow each other as their bits do; bits of negative ones run backwards.
    (bits,) = struct.unpack("<i", struct.pack("<f", value))
    before = -(2**31) + 1 if value == 0 else bits + (1 if value < 0 else -1)
    return float(struct.unpack("<f", struct.pack("<i", before))[0])


def decimal_scale(type_: str) -> int:
    """Return the digits after the point of a DECIMAL(p,s) or an integer type."""
    return int(type_[:-1].split(",")[1]) if type_.startswith("DECIMAL(") else 0


def decimal_width(type_: str) -> int:
    """Return the digits of a DECIMAL(p,s)."""
    return int(type_.removeprefix("DECIMAL(").split(",")[0])


def type_range(type_: str) -> tuple[int, int]:
    """Return the least and the largest value of an integer type."""
    bits = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}[type_.removeprefix("U")]
    return (0, 2**bits - 1) if type_.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def within(low: int, high: int, values: Sequence[int]) -> Sequence[int]:
    """Return those of some integers that lie in a range."""
    if isinstance(values, range):
        return range(max(values.start, low), min(values.stop, high + 1))
    return tuple(v for v in values if low <= v <= high)
