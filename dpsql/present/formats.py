"""Formats of answers: Parquet, CSV from which each value can be read again, metadata beside them.

CSV has no types. A value is written so that it is the same again when it is cast to the type that
the metadata name: floats with all of their digits, NaN and inf as words, dates and times by ISO
8601, intervals as hours, minutes and seconds, lists and structs as JSON. NULL is nothing at all, an
empty text is a pair of quotes.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from dpsql.answers.facts import Facts
from dpsql.answers.frames import Frames
from dpsql.answers.noise import CONFIDENCE
from dpsql.errors import ResourceLimitError, printable
from dpsql.present.disk import created
from dpsql.present.records import In, document_of
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


# ── Metadata for answers that are taken elsewhere: what was asked, and what it means ─────────────


WHAT = "answers of a dpsql release"
"""The words that a document of metadata begins with."""
MADE_UP = "rows made up of a dpsql release: nobody is in them"
"""The words that one of synthetic rows begins with."""
FORMAT = 1


class Described(Protocol):
    """Says what columns are."""

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of a statement's frame; see `Release.columns`."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a column of a frame."""

    column: str
    type: str
    """In DuckDB."""
    role: str
    """`key`, `value` or `adjusted`, as `Release.columns` has it, or `variance`, `standard_error`,
    `lower`, `upper` of a value."""
    of: str | None
    """The value that it belongs to; None for keys and values."""
    meaning: str
    """In words."""


def meanings(
    types: Mapping[str, pl.DataType], described: pl.DataFrame, confidence: float | None
) -> list[Meaning]:
    """Say of each column of a frame what it means.

    Args:
        types: column → its type, in order.
        described: what is said of keys and values, see `Release.columns`.
        confidence: that of intervals, if there are any.
    """
    said = {row["column"]: row for row in described.iter_rows(named=True)}
    beside = {
        f"{name}_{role}": (role, name)
        for name, row in said.items()
        if row["role"] == "value"
        for role in ("variance", "standard_error", "lower", "upper")
    }
    meanings_of_rows = []
    for column, dtype in types.items():
        if column in said:  # an analyst may call a column so, too
            row = said[column]
            of = column.removesuffix("_adjusted") if row["role"] == "adjusted" else None
            own = row["role"], of, _of_value(row, _beside(column, types))
        else:
            role, name = beside.get(column, ("value", column))
            own = role, name, _of_noise(role, name, confidence or CONFIDENCE)
        meanings_of_rows.append(Meaning(column, sql_type(dtype), *own))
    return meanings_of_rows


def _beside(value: str, types: Mapping[str, pl.DataType]) -> str:
    """Say which column tells the noise in a value."""
    return "standard error" if f"{value}_standard_error" in types else "variance"


def _of_value(row: Mapping[str, str | None], beside: str) -> str:
    kinds = {
        "exact": f"computed from noisy counts; the {beside} beside it is exact",
        "approximate": f"computed from noisy counts; the {beside} beside it is approximate",
        "interval": "read from noisy counts; the bounds beside it are those of its interval",
        "none": "computed from noisy counts; no variance is known",
    }
    if row["role"] == "key":
        text = "public: the group that the row is about, not an answer"
    else:
        text = kinds.get(row["variance"] or "", kinds["none"])
    return f"{text}; {row['reason']}" if row["reason"] else text


def _of_noise(role: str, name: str, confidence: float) -> str:
    if role == "standard_error":
        return f"the standard error of the noise in {printable(name)}, in its unit"
    if role == "variance":
        return f"the variance of the noise in {printable(name)}, in squares of its unit"
    return (
        f"the {role} bound of {printable(name)}: it lies between both with a probability of "
        f"{confidence:g}"
    )


def common(facts: Facts) -> dict[str, Any]:
    """Return what is so of all statements, as JSON has it."""
    first = dict.fromkeys(("what", "format", "created", "tables", "vintage"))  # in this order
    return {**first, "what": WHAT, "format": FORMAT, **document_of(facts, In.METADATA)}


def of_statement(
    facts: Facts, frames: Described, name: str, types: Mapping[str, pl.DataType]
) -> dict[str, Any]:
    """Return the facts of one statement, for JSON."""
    described = frames.columns(name)
    reasons = {row["column"]: row["variance"] for row in described.iter_rows(named=True)}
    columns: Sequence[Meaning] = meanings(types, described, facts.confidence)
    return {
        "sql": facts.statements[name],
        "notes": list(facts.notes.get(name, ())),
        "rows_need_a_value_in": list(facts.guards.get(name, ())),
        "columns": [{**asdict(c), "variance": reasons.get(c.column)} for c in columns],
    }


def of_file(name: str, rows: int, digest: str) -> dict[str, Any]:
    """Return what is so of a file of rows, as JSON has it."""
    return {"file": name, "rows": rows, "sha256": digest}


def of_answer(
    facts: Facts, frames: Described, name: str, frame: pl.DataFrame, file: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the document beside one answer in a file of its own.

    Args:
        facts: of the release.
        frames: describes its columns.
        name: the statement.
        frame: its answer.
        file: what is so of the file.
    """
    statement = {**file, **of_statement(facts, frames, name, frame.schema)}
    return {**common(facts), "statements": {name: statement}}


def of_made_up(
    facts: Facts, frame: pl.DataFrame, options: Mapping[str, Any], file: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the document beside synthetic rows.

    Args:
        facts: of the release.
        frame: the rows.
        options: how they were made.
        file: what is so of the file.
    """
    columns = [{"column": n, "type": sql_type(dtype)} for n, dtype in frame.schema.items()]
    return {**common(facts), "what": MADE_UP, **file, "made": dict(options), "columns": columns}
