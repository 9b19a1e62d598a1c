"""In which line the rows of a unit stand: SQL for an order of all that tells them apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from dpsql.engines.duckdb.columns import call
from dpsql.errors import UnsupportedSqlError
from dpsql.rows.types import RowType, row_type
from dpsql.schema import Table
from dpsql.schema.grain import stored_type
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
    by = f"PARTITION BY {unit}"
    if order:
        by += f" ORDER BY {', '.join(f'{key} ASC NULLS FIRST' for key in order)}"
    return f"{call('row_number')} OVER ({by})"


def line_order(table: Table, names: Iterable[str]) -> list[str]:
    """Write what a unit's rows are sorted by: two that agree in all of it are the same row.

    Args:
        table: the table, with what is stored in it alone; its rows are `t0`.
        names: the columns that are read.
    """
    found = line_columns(table, names).items()
    return [key for name, types in found for key in _told_apart(f"t0.{quoted_name(name)}", *types)]


def line_columns(table: Table, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the columns by which a unit's rows are sorted, with their types.

    Columns without a domain are among them if one of them is read. Those that refer to other rows
    come last, if expressions of rows can't read them: they tell only rows apart that are alike
    else. The ids of units are left out: all rows of a unit have the same one.
    """
    own = _own_ids(table)
    found: dict[str, tuple[str, ...]] = {
        name: (of.type, of.column_type) for name, of in table.columns.items()
    }
    further = [name for name in names if name not in table.columns]
    if further:
        found |= {name: (type_.name,) for name, type_ in readable(table)}
        found |= {name: (stored_type(table, name),) for name in further if name not in found}
    return {name: types for name, types in found.items() if name not in own}


def _own_ids(table: Table) -> frozenset[str]:
    """Name the columns of a table that are the ids of its units."""
    unit = table.unit
    if unit is None or unit.joins:
        return frozenset()
    return frozenset(name for name, _ in unit.columns)


def _told_apart(column: str, *types: str) -> Iterator[str]:
    """Write keys in which values agree only if they are the same."""
    if "VARCHAR" in types:
        yield call("encode", f"{column}::VARCHAR")
    else:
        yield column
    if not _FLOATS.isdisjoint(types):
        yield call("signbit", f"{column}::DOUBLE")


def readable(table: Table) -> Iterator[tuple[str, RowType]]:
    """Name the columns without a domain that expressions of rows can read, with their types."""
    for name, declared in table.undeclared.items():
        with suppress(UnsupportedSqlError):
            yield name, row_type(declared)
