"""In which line the rows of a unit stand: Spark's SQL for an order of all that tells them apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dpsql.engines.lines import line_columns
from dpsql.engines.spark.text import call, constant, identity, quoted, whole
from dpsql.schema import Table

FLOATS = frozenset({"FLOAT", "DOUBLE"})


def line_order(table: Table, names: Iterable[str]) -> list[str]:
    """Write what a unit's rows are sorted by: two that agree in all of it are the same row.

    Args:
        table: the table, with what is stored in it alone.
        names: the columns that are read.
    """
    found = line_columns(table, names).items()
    return [key for name, types in found for key in _told_apart(quoted(name), *types)]


def place_in_line(order: Sequence[str], by: Sequence[str]) -> str:
    """Write the place of a row among those that agree in some columns, from 1."""
    line = ", ".join(f"{key} ASC NULLS FIRST" for key in order) or f"{whole(0)} ASC"
    place = f"{call('row_number')} OVER (PARTITION BY {', '.join(by)} ORDER BY {line})"
    return f"CAST({place} AS BIGINT)"


def _told_apart(column: str, *types: str) -> Iterator[str]:
    """Write keys in which values agree only if they are the same."""
    yield identity(column, "VARCHAR" if "VARCHAR" in types else "")
    if not FLOATS.isdisjoint(types):
        text = f"CAST(CAST({column} AS DOUBLE) AS STRING)"
        yield call("startswith", text, constant("-", "STRING"))
