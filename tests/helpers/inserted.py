"""Fill a table with rows in one statement, which a parameter for each column makes a short one.

DuckDB's `executemany` takes a millisecond a row, and a parameter for each value a twentieth of one.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb


def insert(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Sequence[object]]) -> None:
    if rows:
        columns = [[*column] for column in zip(*rows, strict=True)]
        con.execute(
            f"INSERT INTO {table} SELECT {', '.join(['unnest(?)'] * len(columns))}", columns
        )
