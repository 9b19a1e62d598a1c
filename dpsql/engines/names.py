"""Names of columns: those that the library adds to rows; how Spark tells them apart."""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.schema.names import folded


def unused(columns: Iterable[str]) -> str:
    """Return a beginning that no column has."""
    prefix, taken = "u_", [folded(name) for name in columns]
    while any(name.startswith(prefix) for name in taken):
        prefix = "u" + prefix
    return prefix


def folded_by_spark(name: str) -> str:
    """Return the form by which Spark compares names, `toLowerCase(Locale.ROOT)` of Java.

    Unlike DuckDB, it ignores the case of all letters (`spark.sql.caseSensitive` is false in the
    sessions that count, see `spark/sessions.py`).
    """
    return name.lower()
