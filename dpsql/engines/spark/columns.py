"""Spark's SQL that turns a stored value into the code of its cell. Trusted.

Guarantees:
    The code of a value is a BIGINT that is never NULL: that of its cell, as `Counting.run` says,
    or -1 where it has none. It is a function of this value alone, in a session with the settings
    of `settings.py`, and it never fails. (ANSI mode would change nothing of this.)

    *Proof.* By kind of domain; each operation below is total on what it is given. A code is
    CASE WHEN placed THEN c ELSE rest END, where `rest` is a constant, or one of two by IS NULL, and
    -1 should c be NULL.
    Neither `placed` nor c rests on the other being asked first: Spark may compute them in any
    order. (i) Casts are from a type to one that has all its values: integers to BIGINT, numbers to
    DOUBLE, STRING to BINARY, which is a look at its bytes, valid UTF-8 or not; TIMESTAMP_NTZ to
    DATE, as 2^63 microseconds are fewer than 2^31 days. Any other cast is of a value that `least`
    and `greatest` brought between constants before, which the type has. Both pass over NULL, so
    what they give is between the constants whatever a row holds; NaN is the largest double, and
    gives the upper one. (ii) Integers: hi - lo < 2^62 is checked here, so x - lo is a BIGINT, and
    so are sums and quotients by positive constants, after which nothing is larger. (iii) Decimals
    between ends of w digits with s after the point are multiplied by 10^s in a type of w + s + 2
    digits, of which there are 38: exact. (iv) Doubles: floor of what is between -1 and the number
    of cells, as (x - lo) / step was computed of a bounded x with a positive step; so no infinity
    and no NaN comes to `floor`, which fails for them in ANSI mode. (v) Days and months of a date
    between two of the years 1 to 9999 are small. Clocks of a zone are computed of instants between
    the years -100000 and 100000, where a zone's shift of hours can't overflow. `CAST(… AS DATE)`
    of what has no zone asks for none; of what has one, it is the session's, which is UTC and is
    pinned (`settings.py`). (vi) Lists: `array_position` gives 0 for what isn't in it and NULL for
    NULL, and `get`, unlike `element_at`, NULL for a place that isn't there.

    Texts are compared as bytes, so no collation merges two of them, nor CHAR's blanks, nor what
    replaces what isn't UTF-8. -0.0 is equal to 0.0 in all comparisons. ∎

No function of a sequence of rows, no random number and no clock is among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any

import numpy as np

from dpsql.engines.spark.sql.text import array, between, blob, call, constant, real, whole
from dpsql.errors import InternalError, SchemaError
from dpsql.schema import Domain
from dpsql.schema.numbers import decimal_scale
from dpsql.schema.sequences import CLOCK, INSTANT, MONTHS, DateRange, DecimalRange, TimeRange
from dpsql.schema.values import TIMES, ZONED

MOST_CELLS = 2**62
"""Codes, and all that is computed of them, are BIGINT."""
_MOST_LISTED = 100_000
"""Values of a list. All of them are in the text of a statement."""
_SEARCHED = 64
"""Values of a list that is searched through; longer ones are halved until they have no more."""
_MOST_DIGITS = 38
_SAFE_DIGITS = 18
"""Digits that a BIGINT has for sure."""
_FAR = 3_093_527_980_800
"""Seconds in 98,000 years and more."""
NOWHERE = -1
"""The code of what has no cell."""


@dataclass(frozen=True, slots=True)
class SparkCell:
    """The SQL that places values in cells, NULL left aside: whether they have one, and its code.

    Both are total; `code` is right where `placed` is true.
    """

    placed: str
    code: str


def code_of(column: str, domain: Domain, *, leaves_out: bool) -> str:
    """Write the code of a value.

    Args:
        column: SQL of the value, which never fails.
        domain: the cells.
        leaves_out: whether rows that have no value of the domain are in a cell after its cells.

    Raises:
        SchemaError: Spark can't tell the cells of such a domain.
    """
    cell, last = _cell(column, domain), domain.size - domain.nullable
    if domain.nullable and leaves_out:
        rest = f"CASE WHEN {column} IS NULL THEN {whole(last)} ELSE {whole(last + 1)} END"
    else:
        rest = whole(last if domain.nullable or leaves_out else NOWHERE)
    code = f"CASE WHEN {cell.placed} THEN CAST({cell.code} AS BIGINT) ELSE {rest} END"
    return call("coalesce", code, whole(NOWHERE))


def _cell(column: str, domain: Domain) -> SparkCell:
    values = domain.values
    if domain.size >= MOST_CELLS:
        raise SchemaError(
            "A domain has too many values to be counted.", hint="declare a smaller range."
        )
    if isinstance(values, range):
        return _range(column, domain, values)
    if isinstance(values, DateRange):
        return _periods(column, domain, values)
    if isinstance(values, TimeRange):
        return _hours(column, domain, values)
    if isinstance(values, DecimalRange):
        if domain.column_type in {"DOUBLE", "FLOAT"}:
            return _float_grid(column, domain, values)
        return _grid(column, domain, values)
    if domain.type == "DOUBLE":
        return _bins(column, domain)
    if domain.type == "BOOLEAN":
        return SparkCell(f"{column} IS NOT NULL", f"CAST({column} AS INT)")
    return _listed(column, domain)


def _placed(value: str, low: str, high: str, *, clamps: bool) -> str:
    """Write whether a value has a cell; NULL has none under either rule."""
    return f"{value} IS NOT NULL" if clamps else f"({value} >= {low} AND {value} <= {high})"


def _range(column: str, domain: Domain, values: range) -> SparkCell:
    low, high = whole(values.start), whole(values.stop - 1)
    x = f"CAST({column} AS BIGINT)"
    placed = _placed(x, low, high, clamps=domain.outside == "clamp")
    return SparkCell(placed, f"({between(x, low, high)} - {low})")


def _grid(column: str, domain: Domain, values: DecimalRange) -> SparkCell:
    """Decimals in a DECIMAL or integer column, in exact integers of the column's last digit."""
    type_, scale = domain.column_type, decimal_scale(domain.column_type)
    low, high, step = values.scaled(scale)
    if not type_.startswith("DECIMAL"):
        type_ = "BIGINT"
    least, most = (constant(f"{end:f}", type_) for end in (values[0], values[-1]))
    x = f"CAST({column} AS {type_})"
    placed = _placed(x, least, most, clamps=domain.outside == "clamp")
    bounded = between(x, least, most)
    digits = max(len(str(abs(low))), len(str(abs(high))), scale, 1)
    if scale:
        if digits + scale + 2 > _MOST_DIGITS:
            raise SchemaError(
                f"Decimals of {digits} digits, {scale} of them after the point, can't be counted "
                "in Spark.",
                hint="use Domain.bins, or store the column with fewer digits.",
            )
        tens = constant(str(10**scale), f"DECIMAL({scale + 1},0)")
        bounded = f"(CAST({bounded} AS DECIMAL({digits},{scale})) * {tens})"
    room = "BIGINT" if digits <= _SAFE_DIGITS else f"DECIMAL({_MOST_DIGITS},0)"
    if digits >= _MOST_DIGITS or (room == "BIGINT" and step >= MOST_CELLS):
        raise SchemaError(
            "Decimals so far apart can't be counted in Spark.", hint="use Domain.bins."
        )
    above = f"(CAST({bounded} AS {room}) - {whole(low, room)})"
    nearest = f"(CAST({above} + {whole(step // 2, room)} AS {room}) div {whole(step, room)})"
    return SparkCell(placed, nearest)


def _float_grid(column: str, domain: Domain, values: DecimalRange) -> SparkCell:
    """Decimals in a DOUBLE or FLOAT column, by the same operations on doubles as in DuckDB."""
    low, high = float(values[0]), float(values[-1])
    ends = (low, high)
    if domain.column_type == "FLOAT":
        ends = (float(np.float32(low)), float(np.float32(high)))
    step = float(Fraction(values.step, 10**values.scale))
    x = f"CAST({column} AS DOUBLE)"
    bounded = between(x, real(ends[0]), real(ends[1]))
    nearest = call("floor", f"(({bounded} - {real(low)}) / {real(step)}) + {real(0.5)}")
    code = between(nearest, whole(0), whole(len(values) - 1))
    if domain.outside == "clamp":
        return SparkCell(_is_number(x), code)
    return SparkCell(_placed(x, real(ends[0]), real(ends[1]), clamps=False), code)


def _is_number(x: str) -> str:
    """Write that a double is there, and not NaN."""
    return f"({x} IS NOT NULL AND NOT {call('isnan', x)})"


def _periods(column: str, domain: Domain, values: DateRange) -> SparkCell:
    """Calendar periods of a DATE or TIMESTAMP column."""
    day, first, last = _as_date(column, domain), _date(values.first), _date(values.end)
    bounded = between(day, first, last)
    if values.grain in MONTHS:
        start, length = values.first.year * 12 + values.first.month, MONTHS[values.grain]
        year, month = call("year", bounded), call("month", bounded)
        since = f"(CAST({year} AS BIGINT) * {whole(12)} + {month} - {whole(start)})"
    else:
        length = 7 if values.grain == "week" else 1
        since = f"CAST({call('datediff', bounded, first)} AS BIGINT)"
    placed = _placed(day, first, last, clamps=domain.outside == "clamp")
    return SparkCell(placed, f"({since} div {whole(length)})")


def _hours(column: str, domain: Domain, values: TimeRange) -> SparkCell:
    """Hours or minutes of a TIMESTAMP column, counted in microseconds."""
    shown = _clock(column, domain)
    first, last = (
        constant(end.isoformat(" "), "TIMESTAMP_NTZ") for end in (values.first, values.end)
    )
    since = f"({_micros(between(shown, first, last))} - {_micros(first)})"
    placed = _placed(shown, first, last, clamps=domain.outside == "clamp")
    return SparkCell(placed, f"({since} div {whole(CLOCK[values.grain] // INSTANT)})")


def _micros(clock: str) -> str:
    """Write the microseconds of a time that a clock shows, as if it hung in UTC."""
    return call("unix_micros", f"CAST({clock} AS TIMESTAMP)")


def _clock(column: str, domain: Domain) -> str:
    """Write what the clock shows: of an instant, that in the declared zone."""
    if domain.zone is None:
        if domain.column_type == ZONED:
            raise InternalError("an instant without a zone")
        return column
    ends = (call("timestamp_seconds", whole(end)) for end in (-_FAR, _FAR))
    shown = call("from_utc_timestamp", between(column, *ends), constant(domain.zone, "STRING"))
    return f"(CASE WHEN {column} IS NOT NULL THEN CAST({shown} AS TIMESTAMP_NTZ) END)"


def _as_date(column: str, domain: Domain) -> str:
    if domain.type == "DATE" and domain.column_type in TIMES:
        return f"CAST({_clock(column, domain)} AS DATE)"
    return column


def _date(day: date) -> str:
    return constant(day.isoformat(), "DATE")


def _bins(column: str, domain: Domain) -> SparkCell:
    """Bins of doubles: the code is found by halving, in one expression."""
    if domain.uppers is None:
        raise InternalError("bins without upper ends")
    x, edges = f"CAST({column} AS DOUBLE)", _reals(domain.values)
    last = _reals(domain.uppers)[-1]

    def leaf(place: int) -> str:
        return whole(place)

    code = _halved(x, edges, 0, len(edges) - 1, leaf)
    if domain.outside == "clamp":
        return SparkCell(_is_number(x), code)
    return SparkCell(_placed(x, edges[0], last, clamps=False), code)


def _reals(values: Sequence[Any]) -> list[str]:
    return [real(float(value)) for value in values]


def _halved(x: str, ends: Sequence[str], first: int, last: int, leaf: Any) -> str:
    """Write a search for the last of some ends that is not above x, or the first of all."""
    if first == last:
        return str(leaf(first))
    middle = (first + last + 1) // 2
    below, above = (
        _halved(x, ends, first, middle - 1, leaf),
        _halved(x, ends, middle, last, leaf),
    )
    return f"CASE WHEN {x} < {ends[middle]} THEN {below} ELSE {above} END"


def _listed(column: str, domain: Domain) -> SparkCell:
    """Strings, integers or dates in a list: NULL is no place in it."""
    values = domain.values
    if len(values) > _MOST_LISTED:
        raise SchemaError(
            f"A list of more than {_MOST_LISTED:,} values can't be counted in Spark yet.",
            hint="declare a range, or fewer values with one for all others.",
        )
    stored, written = _comparable(column, domain)
    place = _place(stored, written, sorted(range(len(values)), key=lambda i: _key(values[i])))
    if domain.other is not None:
        rest = list(values).index(domain.other)
        return SparkCell(f"{column} IS NOT NULL", call("coalesce", place, whole(rest)))
    if domain.outside == "clamp":
        least, most = written[0], written[-1]
        place = (
            f"CASE WHEN {stored} < {least} THEN {whole(0)} WHEN {stored} > {most} "
            f"THEN {whole(len(values) - 1)} ELSE {place} END"
        )
    return SparkCell(f"({place}) IS NOT NULL", place)


def _key(value: Any) -> Any:
    """Return what values are sorted by: Spark compares bytes as Python does."""
    return value.encode() if isinstance(value, str) else value


def _comparable(column: str, domain: Domain) -> tuple[str, list[str]]:
    """Write what is compared, and all that it is compared with."""
    values = domain.values
    if domain.type == "DATE":
        days = [v for v in values if isinstance(v, date)]
        return _as_date(column, domain), [_date(day) for day in days]
    if domain.type in {"VARCHAR", "ENUM"}:
        return f"CAST({column} AS BINARY)", [blob(str(v).encode()) for v in values]
    wholes = [v for v in values if isinstance(v, int)]
    return f"CAST({column} AS BIGINT)", [whole(v) for v in wholes]


def _place(stored: str, written: Sequence[str], order: Sequence[int]) -> str:
    """Write the place of a value in a list, from 0; NULL if it isn't there.

    Args:
        stored: the value.
        written: the values of the list.
        order: their places, by what they are.
    """
    parts = [order[i : i + _SEARCHED] for i in range(0, len(order), _SEARCHED)]
    firsts = [written[part[0]] for part in parts]

    def leaf(number: int) -> str:
        part = parts[number]
        found = call("array_position", array([written[i] for i in part]), stored)
        places = array([whole(i) for i in part])
        return call("get", places, f"CAST({found} - {whole(1)} AS INT)")

    return _halved(stored, firsts, 0, len(parts) - 1, leaf)
