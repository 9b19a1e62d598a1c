"""In which line the rows of a unit stand: SQL for an order of all that tells them apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dpsql.engines.lines import line_columns
from dpsql.rows.typed import call
from dpsql.schema import Table
from dpsql.schema.names import quoted_name

_FLOATS = frozenset({"FLOAT", "DOUBLE"})


def identity(column: str, type_: str) -> str:
    """Return what tells ids apart: the bytes of a text."""
    return call("encode", column) if type_ == "VARCHAR" else column


def place_in_line(order: Sequence[str], unit: str) -> str:
    """Write the place of a row among those of its unit, from 1.

    Args:
        order: what they are sorted by.
        unit: the unit's id.
    """
    by = f" ORDER BY {in_order(order)}" if order else ""
    return f"{call('row_number')} OVER (PARTITION BY {unit}{by})"


def in_order(keys: Sequence[str]) -> str:
    """Write what follows ORDER BY: from the least to the largest, whatever the connection's way."""
    return ", ".join(f"{key} ASC NULLS FIRST" for key in keys)


def line_order(table: Table, names: Iterable[str]) -> list[str]:
    """Write what a unit's rows are sorted by: two that agree in all of it are the same row.

    Args:
        table: the table, with what is stored in it alone; its rows are `t0`.
        names: the columns that are read.
    """
    found = line_columns(table, names).items()
    return [key for name, types in found for key in told_apart(f"t0.{quoted_name(name)}", *types)]


def told_apart(column: str, *types: str) -> Iterator[str]:
    """Write keys in which values agree only if they are the same."""
    if "VARCHAR" in types:
        yield call("encode", f"{column}::VARCHAR")
    else:
        yield column
    if not _FLOATS.isdisjoint(types):
        yield call("signbit", f"{column}::DOUBLE")
