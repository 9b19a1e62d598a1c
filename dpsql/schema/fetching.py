"""Run statements on the caller's connection that read DuckDB's catalog, with typed errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpsql.errors import SchemaError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Row = tuple[Any, ...]


def fetch(con: DuckDBPyConnection, sql: str, parameters: Sequence[str] = ()) -> list[Row]:
    """Run a statement that reads no rows of tables, with typed errors.

    It is run to its end, because an unread result would block the connection.

    Raises:
        SchemaError: it fails.
    """
    try:
        return con.execute(sql, list(parameters)).fetchall()
    except Exception as error:
        # DuckDB is not imported here, so that a schema can be declared without it.
        if type(error).__module__.split(".")[0] not in {"duckdb", "_duckdb"}:
            raise
        busy = type(error).__name__ == "ResourceInUseException"
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
