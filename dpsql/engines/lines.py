"""In which line the rows of a unit stand: by which columns, whatever the database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.types import RowType, row_type
from dpsql.schema import Table
from dpsql.schema.grain import stored_type


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


def readable(table: Table) -> Iterator[tuple[str, RowType]]:
    """Name the columns without a domain that expressions of rows can read, with their types."""
    for name, declared in table.undeclared.items():
        with suppress(UnsupportedSqlError):
            yield name, row_type(declared)
