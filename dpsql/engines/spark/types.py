"""Spark's types under DuckDB's names, which domains and columns have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    declared: str = str(metadata.get(_DECLARED, "")).lower()
    if declared.startswith("char("):
        return declared.upper()
    name = str(field.dataType.simpleString()).lower()
    if name.startswith("decimal("):
        return name.upper()
    if name.startswith("string collate "):
        return "VARCHAR"
    return _NAMES.get(name, name.upper())
