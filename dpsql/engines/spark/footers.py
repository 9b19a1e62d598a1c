"""Columns of Parquet files that Spark reads whatever a row holds, told from how they are stored.

Guarantees:
    Reading a column that `hazards` doesn't name fails for no value of a row.

    *Proof.* Spark's vectorized reader, which `settings.py` pins, copies integers, floats, booleans,
    texts and days as they are, or to a wider type, and makes microseconds of the two numbers of an
    INT96 by arithmetic that wraps. Days and times that old versions wrote by another calendar are
    moved by fewer days than they lie before 1582. It fails for times in milliseconds and for days
    that are too many microseconds, for a DECIMAL of more than 18 digits that holds more than its
    type has, and for any value that is stored as what it can't make the column's type of, as a file
    may have it that a catalog says another type of: all but NULL, so that rows would decide. Such
    columns are named here: what isn't known to be read is. Of up to 18 digits it takes the number
    as it is, and that with more digits after the point in arithmetic that wraps;
    `PinnedFiles.rows` makes NULL of what is beyond the type. ∎

    Of files that aren't on this machine nothing tells how times are stored, so all are named. That
    their other columns are stored as their types are must be so, then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dpsql.engines.names import folded_by_spark
from dpsql.engines.spark.sql.types import type_of
from dpsql.schema.names import capitals

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnSchema
    from pyspark.sql.types import StructField, StructType

MOST_DIGITS = 18
"""Of a DECIMAL that Spark has in one long number."""
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_TIMES = "TIMESTAMP"
_MICROS, _MILLIS = "microseconds", "milliseconds"
_NUMBERS = frozenset({"INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"})
"""What DECIMALs are read from. From BYTE_ARRAY Spark reads none of up to 18 digits."""
_COPIED = {
    "BOOLEAN": {"BOOLEAN"}, "TINYINT": {"INT32"}, "SMALLINT": {"INT32"}, "INTEGER": {"INT32"},
    "BIGINT": {"INT32", "INT64"}, "FLOAT": {"FLOAT"}, "DOUBLE": {"INT32", "FLOAT", "DOUBLE"},
    "VARCHAR": {"BYTE_ARRAY"}, "BLOB": {"BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"}, "DATE": {"INT32"},
}  # fmt: skip
"""Type → what its values are read from, whatever that stands for, but for `_UNSIGNED`."""
_INT_DIGITS = 10
_UNSIGNED, _LONG = "UNSIGNED", 32
"""Integers that have no room in their own type, with so many bits or more."""


class Stored(NamedTuple):
    """The stored type of a column of a file."""

    physical: str
    """In which type of Parquet's; empty of one that has columns in it, or several values."""
    kind: str = ""
    """What that stands for."""
    unit: str = ""
    """Of times, what they are counted in."""
    digits: tuple[int, int] | None = None
    """Of a DECIMAL, how many it has, and how many after the point."""

    @property
    def shown(self) -> str:
        """Name it for people."""
        if not self.physical:
            return "several values"
        return " ".join(filter(None, (self.physical, self.kind)))


def digits_of(type_: str) -> tuple[int, int] | None:
    """Return the digits of a DECIMAL, and how many are after the point."""
    found = _DECIMAL.fullmatch(type_)
    return None if found is None else (int(found[1]), int(found[2]))


def hazards(schema: StructType, files: Sequence[str] | None) -> dict[str, str]:
    """Name the columns that must not be read, each with what its type is called for that.

    Args:
        schema: the columns.
        files: the paths on this machine; None if they are elsewhere.

    Raises:
        OSError, ValueError: a file can't be read as Parquet.
    """
    names = {folded_by_spark(field.name) for field in schema.fields}
    stored = None if files is None else _stored(files, names)
    found = {field.name: _hazard(field, stored) for field in schema.fields}
    return {name: kind for name, kind in found.items() if kind}


def _hazard(field: StructField, stored: dict[str, set[Stored]] | None) -> str:
    type_ = type_of(field)
    digits = digits_of(type_)
    if digits is not None and digits[0] > MOST_DIGITS:
        return f"DECIMAL of {digits[0]} digits"
    if stored is None:
        return f"{type_} of a file elsewhere" if type_.startswith(_TIMES) else ""
    other = [
        one for one in sorted(stored[folded_by_spark(field.name)]) if not _is_copied(type_, one)
    ]
    if type_.startswith(_TIMES) and any(one.unit == _MILLIS for one in other):
        return f"{type_} in milliseconds"
    # Without its digits: a DECIMAL could be read.
    return f"{type_.partition('(')[0]} stored as {other[0].shown}" if other else ""


def _is_copied(type_: str, stored: Stored) -> bool:
    """Whether each value of a column is read, of what a file has it as."""
    if type_.startswith(_TIMES):
        return stored.physical == "INT96" or stored[:3] == ("INT64", _TIMES, _MICROS)
    digits = digits_of(type_)
    if digits is not None:
        return stored.physical in _NUMBERS and _has_room(digits, stored)
    if type_ not in _COPIED:  # of which none are read
        return True
    if stored.kind == _UNSIGNED:
        return (type_, stored.physical) == ("BIGINT", "INT32")
    return stored.physical in _COPIED[type_]


def _has_room(digits: tuple[int, int], stored: Stored) -> bool:
    """Whether a DECIMAL has all digits of what is read as one."""
    (width, scale), kind = digits, stored.kind
    if stored.digits is not None:
        further = scale - stored.digits[1]
        return 0 <= further <= width - stored.digits[0]
    whole = stored.physical == "INT32" and kind in {"", "INT"}
    return whole and width - scale >= _INT_DIGITS


def _stored(files: Sequence[str], names: set[str]) -> dict[str, set[Stored]]:
    """Tell of columns, named in small letters, how files have them."""
    from pyarrow import parquet

    found: dict[str, set[Stored]] = {name: set() for name in names}
    for path in files:
        with parquet.ParquetFile(path) as file:
            schema = file.schema
            columns = [schema.column(i) for i in range(len(schema))]
        for column in columns:
            within = folded_by_spark(column.path)
            if column.path == column.name:
                found.get(within, set()).add(_how(column))
            else:  # of a column within another one the path is longer
                for name in [name for name in names if within.startswith(f"{name}.")]:
                    found[name].add(Stored(""))
    return found


def _how(column: ColumnSchema) -> Stored:
    if column.max_repetition_level:
        return Stored("")
    told = json.loads(column.logical_type.to_json())
    kind = capitals(str(told["Type"]))
    if kind == "INT" and not told["isSigned"]:
        kind = _UNSIGNED if told["bitWidth"] >= _LONG else "UINT"
    digits = (int(told["precision"]), int(told["scale"])) if kind == "DECIMAL" else None
    kind = "" if kind == "NONE" else kind
    return Stored(column.physical_type, kind, str(told.get("timeUnit", "")), digits)
