"""Spark's types under DuckDB's names, which domains and columns have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    NULL,
    TIMESTAMP,
    VARCHAR,
    RowType,
)
from dpsql.schema.names import capitals, folded

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

_NAMES = {
    "boolean": "BOOLEAN", "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER",
    "bigint": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR", "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE", "timestamp_ntz": "TIMESTAMP", "binary": "BLOB",
}  # fmt: skip
_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
"""Under what Spark keeps that a column is CHAR(n) or VARCHAR(n), which it reads as STRING."""


def type_of(field: StructField) -> str:
    """Return a column's type.

    That of CHAR(n) is no text here: its values are padded with blanks, which Spark's own
    comparisons pass over, and bytes have.
    """
    metadata: dict[str, Any] = field.metadata or {}
    declared: str = folded(str(metadata.get(_DECLARED, "")))
    if declared.startswith("char("):
        return capitals(declared)
    name = folded(str(field.dataType.simpleString()))
    if name.startswith("decimal("):
        return capitals(name)
    if name.startswith("string collate "):
        return "VARCHAR"
    return _NAMES.get(name, capitals(name))


WIDE = "DECIMAL(38,0)"
"""What Spark has integers of more than 64 bits in."""
_WRITTEN = {BOOLEAN: "BOOLEAN", FLOAT: "FLOAT", DOUBLE: "DOUBLE", VARCHAR: "STRING", DATE: "DATE",
          TIMESTAMP: "TIMESTAMP_NTZ", NULL: "VOID"}  # fmt: skip


def type_name(type_: RowType) -> str:
    """Name the type in which Spark has values of a type."""
    if type_.is_integer:
        return "BIGINT" if is_small(type_) else WIDE
    return type_.sql if type_.name == "DECIMAL" else _WRITTEN[type_]


def is_small(type_: RowType) -> bool:
    """Whether it is a type of integers of 64 bits at most."""
    limits, room = type_.limits, BIGINT.limits
    return limits is not None and room is not None and limits[0] >= room[0] and limits[1] <= room[1]


def refused(what: str, hint: str) -> UnsupportedSqlError:
    """Return the error for what Spark doesn't compute with DuckDB's values."""
    return UnsupportedSqlError(f"Spark doesn't compute {what} as DuckDB does.", hint=hint)


def digits_of(ends: tuple[int, int], scale: int) -> int:
    """Return of how many digits a DECIMAL has all that is between two ends, in last digits."""
    return max(*(len(str(abs(end))) for end in ends), scale, 1)
