"""Where counts come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import SchemaError

if TYPE_CHECKING:
    from dpsql.engines.source import DataSource


def data_source(given: object) -> DataSource:
    """Return the private data that a caller passes: of the engine that knows it.

    What is not a connection is refused, such as the path of a database, or another system's. What
    passes statements on to one will do.

    Raises:
        SchemaError: it isn't one, or can't be asked now.
    """
    from dpsql.engines.duckdb.source import DuckDBSource, is_connection

    if is_connection(given):
        return DuckDBSource(given)
    kind = type(given)
    name = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    raise SchemaError(
        f"{name + kind.__qualname__!r} is not a DuckDB connection.",
        hint='pass duckdb.connect("data.duckdb").',
    )
