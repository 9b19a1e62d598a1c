"""DuckDB's SQL for units with the number of rows that each has, and for rows without any. Trusted.

Guarantees:
    `RowsOfEachUnit` has one row for each unit with rows in a table: its id, and how many they are,
    or the nearest number that is told apart. To add or to remove a unit with all of its rows adds
    or removes its row, and changes no other one.

    *Proof.* `rows_of_units` has (row, u) once for each row and each unit u that its way leads to,
    and adding or removing u leaves (row, v) for v ≠ u as it is (`parents.py`). So each group by the
    id is made of what one unit has alone, and there is one group for each. ∎

    `RowsWithoutUnit` has the rows of a table that belong to nobody. To add or to remove a unit with
    all of its rows changes none of them, and to add or to remove one of them changes no other one.

    *Proof.* Each step of the way is a FOREIGN KEY (`rows_without_unit` refuses others), so a row
    refers to one row or, where a column of the key is NULL, to none: it leads to one unit, or the
    way ends at a NULL, in itself or in one of the rows that it leads to. Such rows stay as they
    are when a unit comes or goes, as only rows come and go whose way leads to it, and these aren't
    among them. A LEFT JOIN with rows of which no two have the key keeps each row once. ∎ Where a
    key isn't enforced, rows of a unit may stay behind when that is gone, and belong to nobody from
    then on: one unit could change their number by any amount.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

from dpsql.engines.bounded import unit_name
from dpsql.engines.columns import call, whole
from dpsql.engines.combined import MadeOfTables, carried
from dpsql.engines.parents import has_unit, rows_of_units, way_of_all
from dpsql.errors import InternalError, SchemaError, printable
from dpsql.hints import option
from dpsql.schema import Domain, Table
from dpsql.schema.combined import UNIT
from dpsql.schema.names import quoted_name
from dpsql.schema.table import Parent

ROWS = "rows"
"""The column with the number of rows of a unit."""
_COUNT = "system.main.count(*)"


@dataclass(frozen=True)
class _MadeOfRows(MadeOfTables):
    """What is made of the rows of one table.

    Args:
        table: the table, with the columns alone that are stored in it.
        base: what is charged for.
    """

    table: Table
    base: Table

    @property
    def digest(self) -> str:
        """A hash of what is scanned: it is the same whatever number of rows counts of a unit."""
        unit = self.table.unit
        plain = unit and replace(unit, max_rows=None, max_groups=None, limits=())
        below = [origin.digest for origin in self._origins]
        made = type(self).__name__, self.table.path[1:], plain, below
        return hashlib.sha256(repr(made).encode()).hexdigest()

    @property
    def tables(self) -> tuple[Table, ...]:
        """The private table that it is made of."""
        return (self.table,)

    @property
    def sides(self) -> tuple[Parent, ...]:
        """None of its columns is one of the table."""
        return ()


@dataclass(frozen=True)
class RowsOfEachUnit(_MadeOfRows):
    """Where the rows come from of a table that has one for each unit; see above.

    Args:
        least: the least number of rows that is told apart.
        most: the largest one.
    """

    least: int
    most: int

    @cached_property
    def sql(self) -> str:
        """What stands after FROM."""
        own = unit_name(self.table)
        unit = quoted_name(own)
        rows = call("least", _COUNT, whole(self.most, "BIGINT"))
        rows = call("greatest", rows, whole(self.least, "BIGINT"))
        return (
            f"(SELECT {unit} AS {UNIT}, {rows} AS {ROWS} "
            f"FROM ({rows_of_units(self.table, [], own)}) GROUP BY {unit})"
        )


@dataclass(frozen=True)
class RowsWithoutUnit(_MadeOfRows):
    """Where the rows come from that belong to nobody; see above."""

    @cached_property
    def sql(self) -> str:
        """What stands after FROM."""
        if self.table.unit is None:
            raise InternalError("each row of a table without units is protected by itself")
        known = has_unit(self.table.unit)
        return f"(SELECT {whole(0)} AS n FROM {way_of_all(self.table)} WHERE NOT ({known}))"


def unit_counts(table: Table, root: str, least: int, most: int) -> Table:
    """Describe the units of a table, each with the number of its rows, as a table.

    Args:
        table: the table.
        root: the table and the columns of the ids of its units.
        least: the least number of rows that is told apart.
        most: the largest one.
    """
    name = f"units of {table.name}"
    (database, schema, *_) = table.path
    unit = carried(table, root, 1)
    base = Table(name, {}, path=(database, schema, name), unit=replace(unit, column=root))
    origin = RowsOfEachUnit(table.alone, base, least, most)
    path = (database, schema, f"{name} {origin.digest[:16]}")
    return Table(
        name,
        {ROWS: Domain.integers(least, most)},
        path=path,
        unit=unit,
        enforced=frozenset({ROWS}),
        filled=frozenset({ROWS}),
        origin=origin,
        file=table.file,
    )


def no_units(table: Table) -> SchemaError:
    """Say that the rows of a table have no units."""
    return SchemaError(
        f"Each row of {printable(table.name)} is protected by itself, as no unit is declared.",
        hint="declare whose rows they are, for example " + option("unit", "person_id") + ".",
    )


def rows_without_unit(table: Table) -> Table:
    """Describe the rows of a table that belong to nobody as a table, each protected by itself.

    Raises:
        SchemaError: rows of the table have no units; or, when one is gone, some may stay behind.
    """
    if table.unit is None:
        raise no_units(table)
    shown = printable(table.name)
    loose = next((join for join in table.unit.joins if not join.enforced), None)
    if loose is not None:
        raise SchemaError(
            f"The way from {shown} to its unit has a step that the database doesn't enforce, by "
            f"{printable(', '.join(loose.columns))}. Rows of a unit could stay behind when that is "
            "gone, so that one unit could change by any number how many have none.",
            hint=f"store the id of the unit in a column of {shown}; or declare a FOREIGN KEY.",
        )
    name = f"{table.name} without a unit"
    (database, schema, *_) = table.path
    base = Table(name, {}, path=(database, schema, name), each_row=True)
    origin = RowsWithoutUnit(table.alone, base)
    path = (database, schema, f"{name} {origin.digest[:16]}")
    return replace(base, path=path, origin=origin, file=table.file)
