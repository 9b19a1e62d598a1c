"""Read the numbers and dates of a declaration, exactly."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import pairwise

from dpsql.errors import SchemaError
from dpsql.errors import shown as shown
from dpsql.schema.sequences import DecimalRange

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
