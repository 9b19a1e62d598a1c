"""Long lists of values that are never written out: decimals with a step, and periods of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Generic, Literal, TypeVar, get_args, overload

from dpsql.errors import SchemaError

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
    def type(self) -> str:
        """The narrowest DECIMAL that holds all items."""
        digits = max(len(str(abs(end))) for end in (self.low, self.high))
        return f"DECIMAL({max(digits, self.scale, 1)},{self.scale})"

    def scaled(self, scale: int) -> tuple[int, int, int]:
        """Give the lowest item, the highest and the step, each times 10**scale."""
        factor = 10 ** (scale - self.scale)
        return self.low * factor, self.high * factor, self.step * factor

    def __str__(self) -> str:
        step = Decimal(f"{self.step}E-{self.scale}")
        return f"{self[0]:f}..{self[-1]:f} by {step:f}"


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
