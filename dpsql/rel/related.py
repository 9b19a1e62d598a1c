"""Relations as tables: the rows of a relation, with what is public of each of their columns."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from dpsql.errors import InternalError
from dpsql.rel.nodes import SAME_IDS, Id, Join, Relation, Scan, StoredRows, has_windows
from dpsql.schema.domain import Domain, NumberBounds
from dpsql.schema.table import Origin, Table
from dpsql.schema.units import ResolvedUnit, RowLimit


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A stored private table that relations read.

    Args:
        table: the table, with the columns of the rows that its rows refer to.
        unique: sets of columns in which no two rows agree, as the database sees to it.
    """

    table: Table
    unique: frozenset[frozenset[str]]


@dataclass(frozen=True, eq=False)
class RelatedRows:
    """The rows of a relation, to be counted as those of a table.

    Args:
        relation: the relation.
        columns: its columns with a domain.
        undeclared: its other columns, with their types.
        most: how many rows of a unit count at most; None if nothing says so.
        counted: the stored tables whose rows are put together in each of them.
        read: all stored tables that are read.
        units: the columns that have the id of the unit in each row.
        bounds: columns without a domain → their bounds.
        enforced: columns of which each row has a value of the domain, or between the bounds.
        filled: columns that are never NULL.
        notes: where they may not be the rows that a statement asks for.
        stored_in: columns of stored tables → these, and their names there.
        limits: how many rows of a unit that agree in some columns count at most.
        sure: how many rows of a unit there are at most, by what a statement says alone.
    """

    relation: Relation
    columns: Mapping[Id, Domain]
    undeclared: Mapping[Id, str]
    most: int | None
    counted: tuple[Table, ...]
    read: tuple[Table, ...]
    units: tuple[Id, ...] = ()
    bounds: Mapping[Id, NumberBounds] = field(default_factory=dict)
    enforced: frozenset[Id] = frozenset()
    filled: frozenset[Id] = frozenset()
    notes: tuple[str, ...] = ()
    stored_in: Mapping[Id, tuple[Table, str]] = field(default_factory=dict)
    limits: tuple[RowLimit, ...] = ()
    sure: int | None = None

    @property
    def name(self) -> str:
        """The name of the rows: of the tables that they are made of."""
        names = ", ".join(sorted(table.name for table in self.counted))
        if self.is_chosen:
            return f"chosen {names}"
        return names if len(self.counted) > 1 else f"rows made of {names}"

    @property
    def is_chosen(self) -> bool:
        """Whether a statement chooses so many rows of a unit, by their places."""
        return self.sure is not None and has_windows(self.relation)

    @cached_property
    def digest(self) -> str:
        """A hash of which rows they are, and of what is said of them.

        Relations are told apart whatever their columns are called, and tables aren't: of two with
        one digest a column has the same name in both, and the same values.
        """
        from dpsql.rel.identity import digest  # which most statements don't need

        said = [
            digest(self.relation),
            [(name, repr(domain), domain.zone) for name, domain in self.columns.items()],
            list(self.undeclared.items()),
            sorted((name, repr(bounds)) for name, bounds in self.bounds.items()),
            sorted(self.enforced),
            sorted(self.filled),
            self.units,
            self.most,
            [table.path[1:] for table in self.counted],
        ]
        limits = f" {[tuple(limit) for limit in self.limits]}" if self.limits else ""
        return hashlib.sha256(f"{said!r}{limits}".encode()).hexdigest()

    def table(self, unit: ResolvedUnit, origin: Origin) -> Table:
        """Return them as a table, whose rows come from there."""
        return Table(
            self.name,
            self.columns,
            self.undeclared,
            self._path,
            unit,
            self.enforced,
            bounds=self.bounds,
            filled=self.filled,
            origin=origin,
            file=self.read[0].file,
        )

    def base(self, unit: ResolvedUnit) -> Table:
        """Return the table that is charged for."""
        return Table(
            self.name, {}, path=self._path, unit=replace(unit, column=unit.name, limits=())
        )

    @property
    def _path(self) -> tuple[str, ...]:
        (database, schema, *_) = self.read[0].path
        return database, schema, f"{self.name} {self.digest[:16]}"


def all_that_meet(tables: Sequence[Table]) -> RelatedRows:
    """Return all rows that are made of one row of each of some tables, of the same unit."""
    relation: Relation | None = None
    for number, table in enumerate(tables):
        scan = Scan(StoredRows(table.alone, SAME_IDS), f"{number}.")
        relation = scan if relation is None else Join(relation, scan, None)
    if relation is None:
        raise InternalError("no tables meet")
    read = {table.path: table for table in tables}
    return RelatedRows(relation, {}, {}, None, tuple(tables), tuple(read.values()))


def related_rows(table: Table) -> RelatedRows | None:
    """Return the relation whose rows a table has; None if it has those of no relation."""
    related = getattr(table.origin, "related", None)
    return related if isinstance(related, RelatedRows) else None


@dataclass(frozen=True)
class OfRelation:
    """The facts about the origin of a relation's rows, wherever they come from."""

    related: RelatedRows
    base: Table

    @property
    def digest(self) -> str:
        """A hash of what is scanned."""
        return self.related.digest

    @property
    def tables(self) -> tuple[Table, ...]:
        """The private tables that are read."""
        return self.related.read
