"""Tables that are made of rows of private tables: units, rows without any, and numbers of rows.

What is public of them is said here; the rows are made by SQL of the engine.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from dpsql.errors import InternalError, SchemaError, printable
from dpsql.hints import option
from dpsql.rel.related import OfRelation, RelatedRows
from dpsql.schema import Domain, Table
from dpsql.schema.grain import origins
from dpsql.schema.table import Origin
from dpsql.schema.units import UNIT, ResolvedUnit, RowLimit


class MadeOfTables(ABC):
    """A source of rows that are made of the rows of private tables, and read from their files."""

    @property
    @abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """The private tables that it is made of."""

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders of the files that are read."""
        return tuple(sorted({root for origin in self._origins for root in origin.roots}))

    @property
    def state(self) -> str:
        """The state of the files: which there are, and when they were written."""
        return "".join(origin.state for origin in self._origins)

    def check_unchanged(self) -> None:
        """Check that the files are as they were."""
        for origin in self._origins:
            origin.check_unchanged()

    @property
    def _origins(self) -> Sequence[Origin]:
        return [origin for table in self.tables for origin in origins(table)]


@dataclass(frozen=True)
class RowsOfRelation(OfRelation, MadeOfTables):
    """The source of the rows of a relation."""

    @property
    def sql(self) -> str:
        """Nothing that could stand after FROM: a relation is written as a whole.

        Raises:
            InternalError: always.
        """
        raise InternalError("rows of a relation are scanned as if they were stored")


def rows_of_relation(related: RelatedRows, root: str, rows: int | None) -> Table:
    """Describe the rows of a relation as a table.

    Args:
        related: the relation, and what is public of its columns.
        root: the table and the columns of the ids of their units.
        rows: how many rows of a unit count; None if nothing says so.
    """
    unit = carried(related.read[0], root, rows)
    fewer = (limit for limit in related.limits if rows is not None and limit.rows < rows)
    unit = replace(unit, limits=tuple(fewer))
    return related.table(unit, RowsOfRelation(related, related.base(unit)))


def carried(table: Table, root: str, rows: int | None) -> ResolvedUnit:
    """Return the unit of what is made of a table's rows: its id is in the column `unit`."""
    unit = table.unit
    if unit is None:
        raise InternalError("rows of nobody are put together")
    type_ = "BLOB" if unit.type == "VARCHAR" else unit.type  # texts are compared as bytes
    type_ = "STRUCT" if unit.further else type_
    return ResolvedUnit(root, UNIT, type_, (), rows, max_values=unit.max_values)


ROWS = "rows"
"""The column with the number of rows of a unit."""


@dataclass(frozen=True)
class _MadeOfRows(MadeOfTables):
    """A source of rows that are made of the rows of one table.

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
        plain = unit and replace(unit, max_rows=None, max_groups=None, max_values=None, limits=())
        below = [origin.digest for origin in self._origins]
        made = type(self).__name__, self.table.path[1:], plain, below
        return hashlib.sha256(repr(made).encode()).hexdigest()

    @property
    def tables(self) -> tuple[Table, ...]:
        """The private table that it is made of."""
        return (self.table,)


@dataclass(frozen=True)
class RowsOfEachUnit(_MadeOfRows):
    """The source of rows of a table with one row for each unit.

    Each has the unit's id, in the column `unit`, and how many rows the unit has, in `rows`.

    Args:
        least: the least number of rows that is told apart.
        most: the largest one.
        limits: a unit has the largest number, too, if one of these leaves rows of it out.
        write: writes the engine's SQL for them.
    """

    least: int
    most: int
    limits: tuple[RowLimit, ...]
    write: Callable[[RowsOfEachUnit], str] = field(repr=False, compare=False)

    @property
    def digest(self) -> str:
        """A hash of what is scanned: with limits it is not how many rows there are."""
        if not self.limits:
            return super().digest
        made = super().digest, self.limits, self.least, self.most
        return hashlib.sha256(repr(made).encode()).hexdigest()

    @cached_property
    def sql(self) -> str:
        """The SQL that stands after FROM."""
        return self.write(self)


@dataclass(frozen=True)
class RowsWithoutUnit(_MadeOfRows):
    """The source of the rows that belong to nobody.

    Args:
        write: writes the engine's SQL for them.
    """

    write: Callable[[RowsWithoutUnit], str] = field(repr=False, compare=False)

    @cached_property
    def sql(self) -> str:
        """The SQL that stands after FROM."""
        return self.write(self)


def unit_counts(
    table: Table,
    root: str,
    least: int,
    most: int,
    limits: tuple[RowLimit, ...],
    write: Callable[[RowsOfEachUnit], str],
) -> Table:
    """Describe the units of a table, each with the number of its rows, as a table.

    Args:
        table: the table.
        root: the table and the columns of the ids of its units.
        least: the least number of rows that is told apart.
        most: the largest one.
        limits: see `RowsOfEachUnit`.
        write: see there, too.
    """
    name = f"units of {table.name}"
    (database, schema, *_) = table.path
    unit = carried(table, root, 1)
    stored = f"units of {table.path[-1]}"  # of a relation this says which
    base = Table(name, {}, path=(database, schema, stored), unit=replace(unit, column=root))
    origin = RowsOfEachUnit(table.alone, base, least, most, limits, write)
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


def rows_without_unit(table: Table, write: Callable[[RowsWithoutUnit], str]) -> Table:
    """Describe the rows of a table that belong to nobody as a table, each protected by itself.

    Where a key isn't enforced, rows of a unit may stay behind when that is gone, and belong to
    nobody from then on: one unit could change their number by any amount.

    Args:
        table: the table.
        write: see `RowsWithoutUnit`.

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
            f"{printable(', '.join(loose.columns))}. When a unit is removed its rows could stay, "
            "so one unit could change the number of rows without a unit by any amount.",
            hint=f"store the id of the unit in a column of {shown}; or declare a FOREIGN KEY.",
        )
    name = f"{table.name} without a unit"
    (database, schema, *_) = table.path
    base = Table(name, {}, path=(database, schema, name), each_row=True)
    origin = RowsWithoutUnit(table.alone, base, write)
    path = (database, schema, f"{name} {origin.digest[:16]}")
    return replace(base, path=path, origin=origin, file=table.file)
