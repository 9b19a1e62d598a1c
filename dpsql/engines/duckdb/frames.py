"""Store a Polars frame as a private table: a base table in a database of its own, in memory.

What is public about the table is what the frame's own types say: the categories of an Enum, and
Boolean. A Categorical has the categories that happened to be in the data, so it is stored as
text. Whether a column has NULLs is a fact about the rows, so every column may.
"""

from __future__ import annotations

import duckdb
import polars as pl

from dpsql.errors import SchemaError, printable
from dpsql.schema.names import enum_type, quoted_name, twins

TABLE = "self"
"""The name of the table."""
_GIVEN = "frame that is copied"
"""The name under which DuckDB reads one meanwhile."""
_STORED = {pl.Int128: "HUGEINT", pl.UInt128: "UHUGEINT", pl.Null: "INTEGER"}
"""Types that DuckDB stores, but doesn't read from a frame: they come to it as text."""


def store_frame(frame: pl.DataFrame) -> duckdb.DuckDBPyConnection:
    """Copy a frame into the table `self` of a new database in memory.

    Datetimes with a time zone are stored as the clock showed there. Columns of objects, and of
    whatever else DuckDB has no type for, are left out.

    Raises:
        SchemaError: SQL can't tell the columns apart, or none can be stored.
    """
    con = duckdb.connect(":memory:")
    try:
        copy_frame(con, frame)
    except SchemaError:
        con.close()
        raise
    return con


def copy_frame(con: duckdb.DuckDBPyConnection, frame: pl.DataFrame, table: str = TABLE) -> None:
    """Copy a frame into a new table; see `store_frame`.

    Args:
        con: where.
        frame: the frame.
        table: its name.

    Raises:
        SchemaError: see `store_frame`.
    """
    _check_names(frame.columns)
    try:
        _fill(con, frame, quoted_name(table))
        return
    except (duckdb.Error, pl.exceptions.PolarsError):
        pass
    raise SchemaError(  # outside the handler, whose error could quote a value
        "The frame can't be stored in DuckDB.",
        hint="cast its columns to plain types, or create the table yourself.",
    )


def _fill(con: duckdb.DuckDBPyConnection, frame: pl.DataFrame, table: str) -> None:
    types = {s.name: type_ for s in frame if (type_ := _type(con, s)) is not None}
    if not types:
        raise SchemaError(
            "The frame has no column that can be stored.",
            hint="use columns of numbers, text, dates, Boolean or Enum.",
        )
    columns = ", ".join(f"{quoted_name(name)} {type_}" for name, type_ in types.items())
    con.execute(f"CREATE TABLE {table} ({columns})").fetchall()
    con.register(_GIVEN, pl.DataFrame([_plain(frame[name]) for name in types]))
    names = ", ".join(map(quoted_name, types))
    con.execute(f"INSERT INTO {table} SELECT {names} FROM {quoted_name(_GIVEN)}").fetchall()
    con.unregister(_GIVEN)


def _type(con: duckdb.DuckDBPyConnection, column: pl.Series) -> str | None:
    """Return the DuckDB type that stores a column; None if there is none."""
    if isinstance(column.dtype, pl.Enum) and len(column.dtype.categories):
        return enum_type(column.dtype.categories)
    if isinstance(column.dtype, pl.Object):
        return None
    if isinstance(column.dtype, tuple(_STORED)):
        return _STORED[type(column.dtype)]
    try:
        con.register(_GIVEN, pl.DataFrame([_plain(column.clear())]))
        empty = con.sql(f"SELECT * FROM {quoted_name(_GIVEN)}")
        empty.fetchall()  # some types are refused only when they are read
        return str(empty.types[0])
    except duckdb.Error:
        return None
    finally:
        con.unregister(_GIVEN)


def _plain(column: pl.Series) -> pl.Series:
    """Give a column the form in which DuckDB reads it."""
    if isinstance(column.dtype, pl.Datetime):
        # The clock's time of each row, in microseconds, is all that a domain of dates looks at.
        return column.dt.replace_time_zone(None).cast(pl.Datetime("us"), strict=False)
    if isinstance(column.dtype, tuple(_STORED)):
        return column.cast(pl.String)
    return column.cast(pl.Float32) if isinstance(column.dtype, pl.Float16) else column


def _check_names(names: list[str]) -> None:
    """Refuse names that SQL, which ignores case, can't tell apart."""
    if "" in names:
        raise SchemaError("A column of the frame has no name.", hint="rename it.")
    same = twins(names)
    if same is not None:
        first, second = map(printable, same)
        raise SchemaError(
            f"SQL can't tell the columns {first} and {second} apart.",
            hint="it ignores case: rename one of them.",
        )
