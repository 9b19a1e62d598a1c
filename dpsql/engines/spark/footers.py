"""Which columns of Parquet files Spark reads whatever a row holds, told from how they are stored.

Guarantees:
    Reading a column that `hazards` doesn't name fails for no value of a row.

    *Proof.* Spark's vectorized reader, which `settings.py` pins, copies integers, floats, booleans,
    texts and days as they are, and makes microseconds of the two numbers of an INT96 by arithmetic
    that wraps. Days and times that old versions wrote by another calendar are moved by fewer days
    than they lie before 1582. It fails for times in milliseconds that are too many microseconds,
    and for a DECIMAL of more than 18 digits that holds more than its type has: such columns are
    named here. Of up to 18 digits it takes the number as it is; `PinnedFiles.rows` makes NULL of
    what is beyond the type. ∎

    Of files that aren't on this machine nothing tells how times are stored, so all are named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.engines.spark.types import type_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

MOST_DIGITS = 18
"""Of a DECIMAL that Spark has in one long number."""
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_TIMES = "TIMESTAMP"


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
    coarse = None if files is None else _in_milliseconds(files)
    found = {field.name: _hazard(field, coarse) for field in schema.fields}
    return {name: kind for name, kind in found.items() if kind}


def _hazard(field: StructField, coarse: frozenset[str] | None) -> str:
    type_ = type_of(field)
    digits = digits_of(type_)
    if digits is not None and digits[0] > MOST_DIGITS:
        return f"DECIMAL of {digits[0]} digits"
    if type_.startswith(_TIMES) and (coarse is None or field.name.lower() in coarse):
        return f"{type_} in milliseconds" if coarse else f"{type_} of a file elsewhere"
    return ""


def _in_milliseconds(files: Sequence[str]) -> frozenset[str]:
    """Name the columns that are times in milliseconds in any of the files, in small letters."""
    from pyarrow import parquet

    found = set()
    for path in files:
        with parquet.ParquetFile(path) as file:
            schema = file.schema
            columns = [schema.column(i) for i in range(len(schema))]
        stored = [(c, f"{c.converted_type} {c.logical_type}".upper()) for c in columns]
        # Of a column within another one the path is longer.
        found |= {c.name.lower() for c, how in stored if c.path == c.name and "MILLI" in how}
    return frozenset(found)
