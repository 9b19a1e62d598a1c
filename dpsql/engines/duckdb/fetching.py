"""Run statements on the caller's connection that read DuckDB's catalog, with typed errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from dpsql.errors import InternalError, SchemaError

Row = tuple[Any, ...]


def fetch(con: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[str] = ()) -> list[Row]:
    """Run a statement that reads no rows of tables, with typed errors.

    It is run to its end, because an unread result would block the connection.

    Raises:
        SchemaError: it fails.
    """
    try:
        return con.execute(sql, list(parameters)).fetchall()
    except duckdb.Error as error:
        busy = isinstance(error, duckdb.ResourceInUseException)
    if busy:
        raise SchemaError(
            "The connection is busy with a result that was not read to its end.",
            hint="call fetchall() on it, or pass con.cursor().",
        )
    raise SchemaError(
        "DuckDB's catalog can't be read on this connection.",
        hint="is the connection closed, or in a failed transaction? "
        'Try con.sql("SELECT current_database()").',
    )


def check_bound(con: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any]) -> None:
    """Have DuckDB bind a statement that counts, and its parameters.

    DESCRIBE ends there: the statement is neither optimized nor run, so that no row and no
    statistic of the table is looked at, and all that it returns are names and types.

    Raises:
        InternalError: it can't be bound.
    """
    try:
        con.execute(f"DESCRIBE {sql}", list(parameters)).fetchall()
    except duckdb.Error:
        bound = False
    else:
        bound = True
    if not bound:  # outside the handler: a parameter may be a label that was only declared
        raise InternalError("DuckDB refuses a counting statement; nothing was charged")
