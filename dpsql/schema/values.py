"""The values of a domain: that they are of its type, that its cells follow each other."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from datetime import date
from decimal import Decimal

from dpsql.errors import SchemaError, printable
from dpsql.schema.numbers import shown
from dpsql.schema.sequences import DateRange, DecimalRange, TimeRange

INTEGER_TYPES = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
)
"""The DuckDB types that an integer domain may have."""

COLLATED = "VARCHAR with a collation"
"""The type, in messages, of texts that CHECKs compare by another rule than byte by byte."""
ZONED = "TIMESTAMP WITH TIME ZONE"
TIMES = frozenset({"TIMESTAMP", ZONED})
"""The DuckDB types of columns that have days and times of day."""
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,63}")
"""The names that time zones have; which there are, DuckDB knows."""

Value = int | str | bool | date | Decimal | float


def check_values(type_: str, values: Sequence[Value]) -> None:
    """Refuse an empty list, a value that stands twice, and values of another type."""
    if type_ in INTEGER_TYPES:
        ok = isinstance(values, range) or all(type(v) is int for v in values)
    elif type_ == "BOOLEAN":
        ok = tuple(values) == (False, True)
    elif type_ in {"VARCHAR", "ENUM"}:
        ok = all(type(v) is str for v in values)
    elif type_ == "DATE":
        ok = isinstance(values, DateRange) or all(type(v) is date for v in values)
    elif type_ == "TIMESTAMP":
        ok = isinstance(values, TimeRange)
    elif type_ == "DOUBLE":
        ok = all(type(v) is float and math.isfinite(v) for v in values)
    elif isinstance(values, DecimalRange):
        ok = type_ == values.type
    else:
        raise SchemaError(
            f"A domain can't have the type {printable(str(type_)[:60])}.",
            hint="use Domain.integers, .decimals, .dates, .bins, .labels or .boolean.",
        )
    if not ok:
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
            f"The cells of a domain of type {type_} do not follow each other.",
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
    if type_ not in {"DATE", "TIMESTAMP"} or not isinstance(zone, str) or not _ZONE.fullmatch(zone):
        raise SchemaError(
            f"There is no time zone {shown(zone)}.",
            hint='write the name of one, zone="Europe/Berlin" or zone="UTC".',
        )
