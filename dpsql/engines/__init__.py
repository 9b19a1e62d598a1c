"""Engines: the sources of counts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.errors import ReleaseFormatError, SchemaError, shown
from dpsql.hints import option

if TYPE_CHECKING:
    from dpsql.engines.answers import WrittenTables
    from dpsql.engines.source import DataSource, DraftedSource


def data_source(given: object, version: int | str | None = None) -> DataSource:
    """Return the private data that a caller passes: of the engine that knows it.

    Another system's connection is refused. What passes statements on to DuckDB's will do.

    Args:
        given: a connection, a session of Spark, or what `opened.opened` opens: a path or a pattern
            of files, a frame, or several by their names; or a source that is open already.
        version: of tables with versions, which one is asked; the last one if none is named.

    Raises:
        SchemaError: it isn't one, can't be asked now, or has no versions.
    """
    if isinstance(version, bool) or not isinstance(version, int | str | None):
        raise SchemaError("A version is a number or a text.", hint="for example version=7.")
    from dpsql.engines.duckdb.source import DuckDBSource, is_connection

    if isinstance(given, DuckDBSource):
        return given
    if _is_spark(given):
        from dpsql.engines.spark.source import SparkSource

        return SparkSource(given, None if version is None else str(version))
    source = DuckDBSource(given) if is_connection(given) else None
    if source is None:
        from dpsql.engines.duckdb.opened import opened

        source = opened(given)
    if source is not None:
        if version is None:
            return source
        raise SchemaError(
            "Rows that DuckDB reads have no versions.",
            hint="leave version out; name the state of the rows by "
            + option("vintage", "2026-Q4")
            + ".",
        )
    kind = type(given)
    name = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    raise SchemaError(
        f"{name + kind.__qualname__!r} is neither a path, a frame, a connection of DuckDB nor a "
        "session of Spark.",
        hint='pass "people.csv", "people.parquet" or "people.duckdb"; or several, '
        '{"people": "people.csv", "trips": frame}.',
    )


def opened_files(given: str | Mapping[str, str]) -> DraftedSource:
    """Open a file, a folder, or several by the names of tables; see `opened.opened_files`.

    Raises:
        SchemaError: it can't be, and why.
    """
    from dpsql.engines.duckdb.opened import opened_files

    return opened_files(given)


def is_database(path: str) -> bool:
    """Whether a path is of a database, and not of rows by themselves."""
    from dpsql.engines.duckdb.opened import is_database

    return is_database(path)


def write_answers(
    given: object, tables: WrittenTables, schema: str | None, *, overwrite: bool
) -> dict[str, str]:
    """Write answers to a database that a caller passes; see `duckdb.answers.write_answers`.

    Raises:
        ReleaseFormatError: it isn't one, a name is taken, or it can't be written.
    """
    from dpsql.engines.duckdb.answers import write_answers
    from dpsql.engines.duckdb.source import is_connection

    if is_connection(given):
        return write_answers(given, tables, schema, overwrite=overwrite)
    raise ReleaseFormatError(
        f"This is no DuckDB connection, and no path of a database: {shown(given)}.",
        hint='pass a connection, or the path of a new database: "answers.duckdb".',
    )


def write_database(path: Path, tables: WrittenTables) -> dict[str, str]:
    """Write answers to a DuckDB database, be it new or one that has such answers.

    Raises:
        ReleaseFormatError: it can't be written.
    """
    from dpsql.engines.duckdb.answers import write_database

    return write_database(path, tables)


def _is_spark(given: object) -> bool:
    """Whether something is a Spark session, classic or Spark Connect's; imports nothing of it."""
    return any(
        kind.__name__ == "SparkSession" and kind.__module__.startswith("pyspark.sql.")
        for kind in type(given).__mro__
    )
