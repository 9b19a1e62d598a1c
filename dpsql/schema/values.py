"""The values of a domain: that they are of its type, that its cells follow each other."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from datetime import date
from decimal import Decimal

from dpsql.errors import SchemaError, printable
from dpsql.schema.names import as_sql
from dpsql.schema.numbers import shown
from dpsql.schema.sequences import DateRange, DecimalRange, TimeRange

INTEGER_TYPES = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
)
"""The DuckDB types that an integer domain may have."""

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
        return f"{rows} FROM {table};"
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
