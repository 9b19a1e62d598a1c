"""Names of columns as Spark tells them apart."""

from __future__ import annotations


def folded_by_spark(name: str) -> str:
    """Return the form by which Spark compares names, `toLowerCase(Locale.ROOT)` of Java.

    Unlike DuckDB, it ignores the case of all letters (`spark.sql.caseSensitive` is false in the
    sessions that count, see `spark/sessions.py`).
    """
    return name.lower()
