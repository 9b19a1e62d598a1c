"""The forms in which frames are written: Parquet, and CSV from which each value can be read again.

CSV has no types. A value is written so that it is the same again when it is cast to the type that
the metadata name: floats with all of their digits, NaN and inf as words, dates and times by ISO
8601, intervals as hours, minutes and seconds, lists and structs as JSON. NULL is nothing at all, an
empty text is a pair of quotes.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl

from dpsql.errors import ResourceLimitError
from dpsql.release.disk import created
from dpsql.release.frames import Frames
from dpsql.schema.names import enum_type, quoted_name

BATCH = 1_000_000
"""Rows that are held at once of a frame that is too large to be held."""

_PLAIN: Mapping[type[pl.DataType], str] = {
    pl.Int8: "TINYINT",
    pl.Int16: "SMALLINT",
    pl.Int32: "INTEGER",
    pl.Int64: "BIGINT",
    pl.Int128: "HUGEINT",
    pl.UInt8: "UTINYINT",
    pl.UInt16: "USMALLINT",
    pl.UInt32: "UINTEGER",
    pl.UInt64: "UBIGINT",
    pl.Float32: "FLOAT",
    pl.Float64: "DOUBLE",
    pl.Boolean: "BOOLEAN",
    pl.Date: "DATE",
    pl.Time: "TIME",
    pl.Duration: "INTERVAL",
    pl.Binary: "BLOB",
    pl.Null: "INTEGER",  # as DuckDB does where nothing but NULL is there
}
_STAMPS = {"ms": "TIMESTAMP_MS", "us": "TIMESTAMP", "ns": "TIMESTAMP_NS"}
_CLOCK = {"ms": "%.3f", "us": "%.6f", "ns": "%.9f"}


@dataclass(frozen=True, slots=True)
class Written:
    """The number of rows of a frame that was written, and the types of its columns."""

    rows: int
    types: Mapping[str, pl.DataType]
    """Column → its type."""


def pieces(frames: Frames, statement: str) -> Iterator[pl.DataFrame]:
    """Yield a frame as a whole, or in batches if it is too large to be held; at least one."""
    try:
        frame = frames.frame(statement)
    except ResourceLimitError:
        yield from frames.batches(statement, BATCH)
    else:
        yield frame


def write_parquet(frames: Frames, statement: str, path: Path) -> Written:
    """Write the frame of a statement as Parquet."""
    try:
        frame = frames.frame(statement)
    except ResourceLimitError:
        return _write_batches(frames, statement, path)
    with created(path) as file:
        file.write(parquet_bytes(frame))
    return Written(frame.height, frame.schema)


def parquet_bytes(frame: pl.DataFrame) -> memoryview:
    """Return a frame as the content of a Parquet file."""
    content = io.BytesIO()
    frame.write_parquet(content)
    return content.getbuffer()


def _write_batches(frames: Frames, statement: str, path: Path) -> Written:
    import pyarrow.parquet as pq  # slow to import, and needed for large frames only

    rows, writer = 0, None
    types: Mapping[str, pl.DataType] = {}
    with created(path) as handle:
        for batch in frames.batches(statement, BATCH):
            table = batch.to_arrow()
            writer = writer or pq.ParquetWriter(handle, table.schema)
            writer.write_table(table)
            rows, types = rows + batch.height, batch.schema
        if writer is not None:
            writer.close()
    return Written(rows, types)


def write_csv(frames: Frames, statement: str, path: Path) -> Written:
    """Write the frame of a statement as CSV, with a header."""
    rows = 0
    types: Mapping[str, pl.DataType] = {}
    with created(path) as file:
        for piece in pieces(frames, statement):
            file.write(csv_text(piece, header=not types).encode())
            rows, types = rows + piece.height, piece.schema
    return Written(rows, types)


def csv_text(frame: pl.DataFrame, *, header: bool = True) -> str:
    """Return a frame as CSV."""
    spelled = frame.with_columns(_spelled(frame[name]) for name in frame.columns)
    return spelled.write_csv(include_header=header, time_format="%H:%M:%S%.6f")


def _spelled(column: pl.Series) -> pl.Series:
    """Return a column as CSV can have it: a type that it lacks as text."""
    dtype = column.dtype
    if dtype.is_nested():
        texts = [None if v is None else json.dumps(_json(v)) for v in column.to_list()]
        return pl.Series(column.name, texts, dtype=pl.String)
    if isinstance(dtype, pl.Duration):
        texts = [None if v is None else interval_text(v) for v in column.to_list()]
        return pl.Series(column.name, texts, dtype=pl.String)
    if isinstance(dtype, pl.Datetime):
        zone = "%:z" if dtype.time_zone else ""
        return column.dt.strftime(f"%Y-%m-%dT%H:%M:%S{_CLOCK[dtype.time_unit]}{zone}")
    return column.bin.encode("hex") if isinstance(dtype, pl.Binary) else column


def interval_text(value: timedelta) -> str:
    """Write an interval as DuckDB reads it, exactly: `-26:00:00.500000`."""
    total = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    seconds, rest = divmod(abs(total), 1_000_000)
    sign = "-" if total < 0 else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"


def _json(value: Any) -> Any:
    """Turn what is nested into what JSON has; what it lacks becomes text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    return interval_text(value) if isinstance(value, timedelta) else str(value)


def sql_type(dtype: pl.DataType) -> str:
    """Return the type of DuckDB that holds what a type of Polars does."""
    if isinstance(dtype, pl.Enum) and len(dtype.categories):
        return enum_type(dtype.categories)
    if isinstance(dtype, pl.Decimal):
        return f"DECIMAL({dtype.precision}, {dtype.scale})"
    if isinstance(dtype, pl.Datetime):
        return "TIMESTAMP WITH TIME ZONE" if dtype.time_zone else _STAMPS[dtype.time_unit]
    if isinstance(dtype, pl.Array):
        return f"{sql_type(_inner(dtype))}[{dtype.size}]"
    if isinstance(dtype, pl.List):
        return f"{sql_type(_inner(dtype))}[]"
    if isinstance(dtype, pl.Struct):
        fields = (f"{quoted_name(f.name)} {sql_type(_of(f.dtype))}" for f in dtype.fields)
        return f"STRUCT({', '.join(fields)})"
    return _PLAIN.get(type(dtype), "VARCHAR")


def _inner(dtype: pl.List | pl.Array) -> pl.DataType:
    return _of(dtype.inner)


def _of(dtype: Any) -> pl.DataType:
    """Return a type as an instance; Polars takes its class for it, too."""
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made
