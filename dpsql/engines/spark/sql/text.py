"""Names, types, constants and calls, as Spark's SQL writes them.

Functions are called by their full names, `system.builtin`, so that nothing of a session or a
catalog takes their place. Constants are casts from texts without signs that a setting could change
the meaning of: no string literal has a backslash or a quote in it, and bytes are written in hex.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dpsql.errors import InternalError, UnsupportedSqlError
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


def quoted(name: str) -> str:
    """Write a name in quotes, as Spark's SQL takes any name."""
    return "`" + name.replace("`", "``") + "`"


def call(function: str, *arguments: str) -> str:
    """Write a call of a built-in function."""
    return f"system.builtin.{function}({', '.join(arguments)})"


def constant(text: str, type_: str) -> str:
    """Write a constant of a type, given what Spark reads as one.

    Raises:
        InternalError: it isn't plain.
    """
    if not text.isascii() or not text.isprintable() or "'" in text or "\\" in text:
        raise InternalError("a constant of Spark's SQL that isn't plain")
    return f"CAST('{text}' AS {type_})"


def whole(value: int, type_: str = "BIGINT") -> str:
    """Write an integer.

    Raises:
        InternalError: it is none of its type.
    """
    bits = {"INT": 31, "BIGINT": 63}.get(type_)
    if bits is not None and not -(2**bits) <= value < 2**bits:
        raise InternalError("a constant beyond its type")
    return constant(str(value), type_)


def real(value: float) -> str:
    """Write a double so that Spark reads the same one: Java rounds correctly.

    Raises:
        InternalError: it isn't finite.
    """
    if not math.isfinite(value):
        raise InternalError("a constant that isn't finite")
    return constant(repr(float(value)), "DOUBLE")


def blob(value: bytes) -> str:
    """Write bytes."""
    return f"X'{value.hex().upper()}'"


def between(value: str, low: str, high: str) -> str:
    """Bring a value into a range. NaN, which Spark takes for the largest, comes to its end."""
    return call("least", call("greatest", value, low), high)


def last_digits(value: str, digits: int, scale: int) -> str:
    """Write a number of so many digits, some of them after the point, without the point."""
    if not scale:
        return value
    tens = constant(str(10**scale), f"DECIMAL({scale + 1},0)")
    return f"(CAST({value} AS DECIMAL({digits},{scale})) * {tens})"


def array(values: list[str]) -> str:
    """Write an array of constants."""
    return call("array", *values)


def identity(column: str, type_: str) -> str:
    """Write what tells values of a type of DuckDB's apart: the bytes of a text."""
    return f"CAST({column} AS BINARY)" if type_ == "VARCHAR" else column


def let(name: str, value: str, body: str) -> str:
    """Write something in which a value has a name.

    The body names nothing else of a row: a column of that name would be hidden there.
    """
    values = call("transform", array([value]), f"{name} -> ({body})")
    return call("get", values, whole(0, "INT"))


def text(value: str) -> str:
    """Write a string."""
    return f"CAST({blob(value.encode())} AS STRING)"


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
"""Spark's type for integers of more than 64 bits."""
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
