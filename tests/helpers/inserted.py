"""Fill a table with rows, in one statement: DuckDB's `executemany` takes a millisecond a row."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb


def insert(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Sequence[object]]) -> None:
    if rows:
        marks = f"({', '.join('?' for _ in rows[0])})"
        values = [value for row in rows for value in row]
        con.execute(f"INSERT INTO {table} VALUES {', '.join([marks] * len(rows))}", values)
