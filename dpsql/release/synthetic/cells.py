"""Values within the cells of a column, and the cells of values.

A cell that stands for several values has them evenly, as nothing tells them apart: of cells that
measurements don't tell apart each value of the domain; of bins all numbers between the edges that
the column's type has; of weeks, months and so on each day, and of days and hours each microsecond.
Rows that have no value of the domain have NULL. Types are those of the columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.errors import SchemaError, printable
from dpsql.linalg.arrays import Array, Ints
from dpsql.release.synthetic.draws import Draws
from dpsql.schema import Domain
from dpsql.schema.numbers import type_range
from dpsql.schema.sequences import DecimalRange
from dpsql.schema.values import INTEGER_TYPES, TIMES, ZONED

_INTEGERS = {
    "TINYINT": pl.Int8, "SMALLINT": pl.Int16, "INTEGER": pl.Int32, "BIGINT": pl.Int64,
    "UTINYINT": pl.UInt8, "USMALLINT": pl.UInt16, "UINTEGER": pl.UInt32, "UBIGINT": pl.UInt64,
}  # fmt: skip
_FLOATS = {"DOUBLE": pl.Float64, "FLOAT": pl.Float32}
_DAY = 86_400_000_000
"""Microseconds."""
_EPOCH = datetime(1970, 1, 1)
_OUTSIDE, _NULL = -1, -2


def dtype_of(domain: Domain) -> pl.DataType:
    """Return the type of a column."""
    type_ = domain.column_type or domain.type
    if type_ in _INTEGERS:
        return _INTEGERS[type_]()
    if type_ in _FLOATS:
        return _FLOATS[type_]()
    if type_.startswith("DECIMAL"):
        width, scale = type_.removeprefix("DECIMAL(").removesuffix(")").split(",")
        return pl.Decimal(int(width), int(scale))
    if type_ == "ENUM":
        return pl.Enum([str(value) for value in domain.values])
    if type_ in TIMES:
        return pl.Datetime("us", domain.zone if type_ == ZONED else None)
    return {"BOOLEAN": pl.Boolean(), "DATE": pl.Date()}.get(type_, pl.String())


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a column: those of its values, of NULL, and of what has neither."""

    name: str
    domain: Domain

    @cached_property
    def count(self) -> int:
        """How many cells hold values; further ones are NULL."""
        return self.domain.size - self.domain.nullable

    def values(self, codes: Ints, draws: Draws) -> pl.Series:
        """Return a value for the cell of each row."""
        dtype, filled = dtype_of(self.domain), codes < self.count
        at = np.minimum(codes, self.count - 1)
        if self._ends is not None:
            least, largest = (ends[at] for ends in self._ends)
            found = self._within(least, largest, draws.uniform(len(codes)), dtype)
        else:
            found = self._listed.gather(at).cast(dtype)
        both = pl.DataFrame({"value": found, "filled": filled})
        return both.select(pl.when("filled").then("value").alias(self.name)).to_series()

    def codes(self, column: pl.Series, *, leaves_out: bool) -> Ints:
        """Return the cell of each value.

        Args:
            column: values in the type of the column, or one that can be cast to it.
            leaves_out: whether there is a last cell for rows without a value of the domain.

        Raises:
            SchemaError: one has no cell.
        """
        try:
            given = column.cast(dtype_of(self.domain))
        except pl.exceptions.PolarsError:
            raise self._no_cells(f"is of the type {column.dtype}") from None
        found = np.where(given.is_null().to_numpy(), _NULL, self._found(given))
        rule = self.domain.outside
        if self.domain.other is not None:
            other = list(self.domain.values).index(self.domain.other)
            found = np.where(found == _OUTSIDE, other, found)
        elif rule == "null":
            found = np.where(found == _OUTSIDE, _NULL, found)
        last = self.domain.size if leaves_out else _OUTSIDE
        found = np.where(found == _NULL, self.count if self.domain.nullable else last, found)
        found = np.where(found == _OUTSIDE, last, found)
        if (found < 0).any():
            raise self._no_cells("has values that are not of its domain")
        return found.astype(np.int64)

    def _no_cells(self, why: str) -> SchemaError:
        return SchemaError(
            f"The column {printable(self.name)} {why}.",
            hint="pass rows as synthetic() returns them.",
        )

    @cached_property
    def _listed(self) -> pl.Series:
        """The value of each cell, where it has one."""
        values = self.domain.values
        if isinstance(values, range):
            return pl.Series(np.arange(values.start, values.stop))
        if isinstance(values, DecimalRange):
            type_ = pl.Decimal(38, values.scale)
            return pl.Series(list(values), dtype=type_)
        return pl.Series(list(values))

    @cached_property
    def _ends(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """The least and the largest value of each cell, where it stands for several.

        Of days, in days; of times, in microseconds.
        """
        domain = self.domain
        values, uppers = domain.values, domain.values if domain.uppers is None else domain.uppers
        if domain.type == "DOUBLE":
            return np.array(values, dtype=np.float64), np.array(uppers, dtype=np.float64)
        if domain.type == "TIMESTAMP":
            return _instants(values), _instants(uppers)
        if domain.type != "DATE":
            return None
        least, largest = _days(values), _days(uppers)
        if domain.column_type in TIMES:
            return least * _DAY, largest * _DAY + (_DAY - 1)
        return least, largest

    def _within(
        self, least: NDArray[Any], largest: NDArray[Any], at: Array, dtype: pl.DataType
    ) -> pl.Series:
        """Return values between the ends of cells, by where they are between them."""
        if self.domain.type != "DOUBLE":
            found = pl.Series(least + (at * (largest - least + 1)).astype(np.int64))
            return found.cast(pl.Date) if dtype == pl.Date else self._times(found, dtype)
        scale = self._scale
        if scale is None:
            inside = np.clip(least * (1 - at) + largest * at, least, largest)
            return pl.Series(inside if dtype == pl.Float64 else _single(inside, largest))
        first, last = np.ceil(least * scale), np.floor(largest * scale)
        steps = np.clip(first + np.floor(at * (last - first + 1)), first, np.maximum(first, last))
        return pl.Series(self._possible(steps) / scale).cast(dtype)

    @cached_property
    def _scale(self) -> float | None:
        """By what numbers of the column are multiplied to be whole; None if they needn't be."""
        type_ = self.domain.column_type or self.domain.type
        if type_ in _FLOATS:
            return None
        dtype = dtype_of(self.domain)
        return 10.0**dtype.scale if isinstance(dtype, pl.Decimal) else 1.0

    def _possible(self, steps: Array) -> Array:
        """Keep whole numbers between those that a type has: edges may be beyond."""
        type_ = self.domain.column_type
        if type_ in INTEGER_TYPES:
            low, high = type_range(type_)
        else:
            dtype = dtype_of(self.domain)
            high = 10 ** (dtype.precision or 38) - 1 if isinstance(dtype, pl.Decimal) else 0
            low = -high
        least, most = float(low), float(high)
        most = most if int(most) <= high else math.nextafter(most, 0.0)
        return np.clip(steps, least, most)

    def _times(self, found: pl.Series, dtype: pl.DataType) -> pl.Series:
        """Return times that a clock showed, in the zone where it hangs."""
        shown = found.cast(pl.Datetime("us"))
        zone = dtype.time_zone if isinstance(dtype, pl.Datetime) else None
        if zone is None:
            return shown
        kept = shown.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        later = shown.dt.offset_by("1h")  # where clocks are put forward, that hour is none
        moved = later.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        return kept.fill_null(moved)

    def _found(self, given: pl.Series) -> Ints:
        """Return the cell of each value, or that it is outside; of NULL, any."""
        values = self.domain.values
        if self._ends is not None:
            return self._between(self._numbers(given))
        if isinstance(values, range):
            numbers = given.fill_null(values.start).cast(pl.Int64).to_numpy()
            return self._clamped(numbers - values.start)
        if isinstance(values, DecimalRange):
            scaled = (
                given.cast(pl.Float64).fill_null(0).fill_nan(None).to_numpy() * 10.0**values.scale
            )
            steps = np.floor((scaled - values.low) / values.step + 0.5)
            inside = (scaled >= values.low) & (scaled <= values.high)
            low = np.where(scaled < values.low, -1, len(values))
            return self._clamped(np.where(inside, steps, low).astype(np.int64))
        listed = self._listed.cast(given.dtype)
        found = given.replace_strict(
            listed, pl.Series(np.arange(len(listed))), default=_OUTSIDE, return_dtype=pl.Int64
        )
        return found.fill_null(_OUTSIDE).to_numpy()

    def _numbers(self, given: pl.Series) -> NDArray[Any]:
        """Return values in the units of the ends; of NULL and NaN, the least."""
        if self.domain.type == "DOUBLE":
            return given.cast(pl.Float64).fill_nan(None).fill_null(-math.inf).to_numpy()
        if given.dtype == pl.Date:
            return given.cast(pl.Int64).fill_null(np.iinfo(np.int64).min).to_numpy()
        shown = given
        if isinstance(given.dtype, pl.Datetime) and given.dtype.time_zone is not None:
            shown = given.dt.replace_time_zone(None)
        return shown.cast(pl.Int64).fill_null(np.iinfo(np.int64).min).to_numpy()

    def _between(self, numbers: NDArray[Any]) -> Ints:
        ends = self._ends
        if ends is None:
            return np.full(len(numbers), _OUTSIDE)
        least, largest = ends
        order = np.argsort(least, kind="stable")
        place = np.searchsorted(least[order], numbers, side="right") - 1
        if self.domain.outside == "clamp":
            return order[np.clip(place, 0, len(order) - 1)]
        found = order[np.maximum(place, 0)]
        inside = (place >= 0) & (numbers <= largest[found])
        return np.where(inside, found, _OUTSIDE)

    def _clamped(self, codes: Ints) -> Ints:
        if self.domain.outside == "clamp":
            return np.clip(codes, 0, self.count - 1)
        return np.where((codes >= 0) & (codes < self.count), codes, _OUTSIDE)


def _days(values: Sequence[Any]) -> Ints:
    return np.array([(value - _EPOCH.date()).days for value in values], dtype=np.int64)


def _instants(values: Sequence[Any]) -> Ints:
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    first = values[0] if isinstance(values[0], datetime) else _midnight(values[0])
    step = (values[1] - values[0]) if len(values) > 1 else (first - first)
    begin = first - _EPOCH
    micro = (begin.days * 86_400 + begin.seconds) * 1_000_000 + begin.microseconds
    width = (step.days * 86_400 + step.seconds) * 1_000_000 + step.microseconds
    return micro + np.arange(len(values), dtype=np.int64) * width


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day)


def _single(found: Array, largest: Array) -> NDArray[np.float32]:
    """Round to single precision, without leaving a cell upwards."""
    rounded = found.astype(np.float32)
    return np.where(rounded > largest, np.nextafter(rounded, np.float32(-np.inf)), rounded)
