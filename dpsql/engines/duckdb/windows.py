"""DuckDB's SQL for what rows are among the rows of their unit. Trusted.

Guarantees:
    Rows get further columns, no row comes or goes, and what a row gets follows from the rows with
    the same id of a unit. `rows/windows.py` has the proof that it is a function of these. Here
    PARTITION BY begins with the column of the ids, always; windows whose rows must be told one by
    one have the places in the unit's line at the end of ORDER BY; what a window needs of others is
    there before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.engines.duckdb.aggregates import aggregate_sql, empty_sql
from dpsql.engines.duckdb.lines import identity
from dpsql.errors import InternalError
from dpsql.rows.windows import RowsWindow, SortedBy
from dpsql.schema.names import quoted_name


def line_name(unit: str) -> str:
    """Name the column with the places of rows in the line of their unit."""
    return f"{unit}_line"


def with_windows(rows: str, windows: Sequence[RowsWindow], names: Sequence[str], unit: str) -> str:
    """Return a query for some columns of rows, and of what these are among the rows of their units.

    Args:
        rows: a query for all rows that windows look at, with what these read, their units' ids and
            their places in line.
        windows: what is computed, each after what it needs.
        names: the columns.
        unit: the column of the rows with the ids of their units.
    """
    left = list(windows)
    while left:
        waiting = {one.name for one in left}
        ready = [one for one in left if waiting.isdisjoint(one.columns)]
        if not ready:
            raise InternalError("a window needs what comes after it")
        shown = ", ".join(f"{_written(one, unit)} AS {quoted_name(one.name)}" for one in ready)
        rows = f"SELECT *, {shown} FROM ({rows}) AS t"
        left = [one for one in left if one not in ready]
    return f"SELECT {', '.join(map(quoted_name, names))} FROM ({rows}) AS t"


def _written(one: RowsWindow, unit: str) -> str:
    """Write one: of rows that it doesn't see it is constant."""
    seen = [] if one.condition is None else [one.condition.sql]
    told = [identity(quoted_name(name), type_) for name, type_ in one.told]
    agree = [quoted_name(unit), *seen, *told, *(part.sql for part in one.partition)]
    order = [*map(_key, one.order), *([quoted_name(line_name(unit))] if one.lined else [])]
    by = f" ORDER BY {', '.join(order)}" if order else ""
    frame = "" if one.frame is None else f" {one.frame.sql}"
    value = f" OVER (PARTITION BY {', '.join(agree)}{by}{frame})".join(aggregate_sql(one.value))
    if one.condition is None:
        return value
    return f"CASE WHEN {one.condition.sql} THEN {value} ELSE {empty_sql(one.value)} END"


def _key(one: SortedBy) -> str:
    """Write what rows are sorted by."""
    side = "DESC" if one.descending else "ASC"
    return f"{one.value.sql} {side} NULLS {'FIRST' if one.nulls_first else 'LAST'}"
