"""Tables that are made of rows of several private tables: what is public of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpsql.errors import InternalError
from dpsql.rel.related import OfRelation, RelatedRows
from dpsql.schema import Table
from dpsql.schema.grain import origins
from dpsql.schema.table import Origin
from dpsql.schema.units import UNIT, ResolvedUnit


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
