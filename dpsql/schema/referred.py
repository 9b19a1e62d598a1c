"""The rows of other private tables that the rows of a table refer to, as the catalog says.

They are rows of tables with the same units. *Which rows are a unit's* must be clear before anything
is joined: what comes or goes with a unit are its rows in all tables together, and each row of each
table is to be one unit's at most. So

- every table on the way to the unit says that its rows belong to the same units, by the rest of
  that way. Else an order could be one person's by what is declared for orders, and another's by
  the way of its items;
- no FOREIGN KEYs lead from a row of the units' own table to another row of it, as from an employee
  to the manager: then what leads to one of them leads to others, too, and no column says whose it
  is. Such tables can be counted each by itself, as ever, and aren't joined.

Where several ways lead from a table to the unit, one is taken (`references.py`): the shortest. The
rows are those of the unit that this way leads to, and of no other one: rows that refer to one of
another unit by another way are like those that refer to none (`grain.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from dpsql.errors import SchemaError, printable
from dpsql.schema.declarations import Schema
from dpsql.schema.facts import Catalog
from dpsql.schema.grain import grain, made_of
from dpsql.schema.keys import references_for
from dpsql.schema.names import folded
from dpsql.schema.references import ForeignKeys, Ids
from dpsql.schema.table import Parent, Table
from dpsql.schema.units import DeclaredUnit, KeyStep

_MOST_PARENTS = 64
"""Rows that a row refers to, by whatever way."""


class DescribedTables(Protocol):
    """Tables and views of a database, which are described by their names."""

    @property
    def catalog(self) -> Catalog:
        """The catalog of the database, which tells of them."""

    def describe(
        self, name_parts: tuple[str, ...], declared: Schema | None = None, unit: DeclaredUnit = None
    ) -> Table:
        """Describe a table, or a view or files that can be released from; reads no row.

        A stored table is described by `schema.catalog.read_table`. Whatever has another `origin`
        has one row for each row below it at most, as a function of that row: see `Origin`.

        Args:
            name_parts: its name, optionally after its schema, or its database and schema.
            declared: domains and units that go before what is known otherwise.
            unit: the privacy unit.

        Raises:
            SchemaError: there is none, it can't be released from, or what is declared of it
                doesn't fit.
        """


def with_parents(
    tables: DescribedTables,
    table: Table,
    declared: Schema | None,
    unit: DeclaredUnit,
) -> Table:
    """Give a table the columns of the private rows that it refers to.

    A table that can't be described with the same unit is left out.

    Raises:
        SchemaError: rows of the units' own table refer to each other; the catalog can't be read.
    """
    if table.unit is None or made_of(table)[0] is not table:
        return table
    return _Referred(tables, table, declared, unit).grain()


def over_both(first: Table, other: Table) -> str:
    """Say of which table a statement is, and of which the first one."""
    own, before = other.name, first.name
    if own == before:
        own, before = ".".join(other.path), ".".join(first.path)
    return f"This is over {printable(own)}, but what comes first is over {printable(before)}"


def root_of(
    tables: DescribedTables,
    table: Table,
    declared: Schema | None,
    unit: DeclaredUnit,
) -> str:
    """Return the table and the columns of the ids of a table's units."""
    name, columns = _Referred(tables, made_of(table)[0], declared, unit).root
    return ", ".join(f"{name}.{column}" for column in columns)


def check_stored_apart(first: Table, other: Table) -> None:
    """Check that no row counts in both of two tables.

    Raises:
        SchemaError: both are of the rows of one stored table.
    """
    if first.stored.path == other.stored.path:
        raise SchemaError(
            f"{over_both(first, other)}, and both have rows of the same table.",
            hint="release from each of them in its own call.",
        )


def check_same_units(
    tables: DescribedTables,
    first: Table,
    other: Table,
    declared: Schema | None,
    unit: DeclaredUnit,
) -> None:
    """Check that a unit's rows in two tables can be protected together.

    Both are tables of one schema, and their FOREIGN KEYs lead to one column of ids, by ways on
    which every table has the same units; or there is no table of units, and their columns of ids
    have one name (`ForeignKeys.ids`). So the rows of a unit are clear in both: those whose way
    leads to its id.

    Raises:
        SchemaError: they can't; or rows of the units' own table refer to each other.
    """
    both = over_both(first, other)
    if first.unit is None or other.unit is None or first.path[:2] != other.path[:2]:
        raise SchemaError(
            f"{both}: one script releases from one table, or from several with the rows of the "
            "same units.",
            hint="release from each table in its own call; or declare their unit, for example "
            'dpsql.Unit("customers", max_rows={"orders": 10}).',
        )
    made = [made_of(table)[0] for table in (first, other)]
    if made[0].path == made[1].path and made[0].unit == made[1].unit:
        return  # one is made of the rows of the other
    ways = [_Referred(tables, table, declared, unit) for table in made]
    roots = [way.root for way in ways]
    shown = [", ".join(printable(f"{name}.{column}") for column in ids) for name, ids in roots]
    if ways[0].ids != ways[1].ids:
        raise SchemaError(
            f"{both}: their units are {shown[1]} and {shown[0]}, and no FOREIGN KEYs say that "
            "these are the same.",
            hint="declare the keys that lead to one table of units, for example "
            'references={"orders.customer_id": "customers.id"}; or release from each table in its '
            "own call.",
        )
    if not all(way.is_clear() for way in ways):
        rows = {table.name: table.contributions for table in (first, other)}
        raise SchemaError(
            f"{both}: a table on the way to {shown[0]} has other units, or none, so it isn't "
            "clear to which unit its rows belong.",
            hint=f"declare the unit by that table: dpsql.Unit({roots[0][0]!r}, max_rows={rows}).",
        )


class _Referred:
    """Walks along FOREIGN KEYs from one table."""

    def __init__(
        self,
        tables: DescribedTables,
        table: Table,
        declared: Schema | None,
        unit: DeclaredUnit,
    ) -> None:
        self._table = table
        known = references_for(tables.catalog, table.path, declared, unit)
        self._keys = ForeignKeys(tables.catalog.keys(table.path), table.path, known)
        self._ids = self._ids_of(table)
        self._describe = partial(tables.describe, declared=declared, unit=unit)
        self._found: dict[tuple[str, ...], Table | None] = {table.path: table}

    @property
    def root(self) -> tuple[str, tuple[str, ...]]:
        """Table and columns of the ids of its units."""
        unit = self._table.unit
        return ("", ()) if unit is None else self._keys.root(self._table.name, unit)

    @property
    def ids(self) -> Ids | None:
        """The kind of these ids, whatever tables they stand in."""
        return self._ids

    def is_clear(self) -> bool:
        """Whether all tables on the way to its unit have the same units.

        Raises:
            SchemaError: rows of the units' own table refer to each other.
        """
        self._check_root()
        return self._is_one_units(self._table)

    def grain(self) -> Table:
        """Return the table with the columns of all rows that it refers to, by whatever way.

        Raises:
            SchemaError: rows of the units' own table refer to each other.
        """
        table = self._table
        self._check_root()
        if not self._is_one_units(table):
            return table
        found, taken = list[Parent](), {folded(n) for n in (*table.columns, *table.undeclared)}
        pending = [("", table, self._way(table), frozenset({table.name}))]
        while pending and len(found) < _MOST_PARENTS:
            above, child, way, seen = pending.pop(0)
            for join in self._keys.of(child.name):
                of = None if join.path[-1] in seen else self._of_unit(join.path)
                if of is None:
                    continue
                on_way = way[:1] == (join,) and join.enforced
                parent = Parent(above, join, of, on_way)
                names = {folded(name) for name in (parent.matched, *parent.names.values())}
                if not names.isdisjoint(taken):  # columns may have a point in their names
                    continue
                found.append(parent)
                taken |= names
                further = way[1:] if on_way else ()
                pending.append((parent.prefix, of, further, seen | {of.name}))
        return grain(table, found)

    def _check_root(self) -> None:
        name, _ = self.root
        tables = self._keys.round(name)
        if tables:
            shown = ", ".join(map(printable, tables[1:]))
            raise SchemaError(
                f"FOREIGN KEYs lead from rows of {printable(name)} to other rows of it: from "
                f"{printable(name)} to {shown}. So it isn't clear to which unit a row belongs "
                "that leads to several of them.",
                hint="private tables of these units can't be joined; ask each of them by itself.",
            )

    def _way(self, table: Table) -> tuple[KeyStep, ...]:
        return () if table.unit is None else self._keys.way(table.name, table.unit)

    def _ids_of(self, table: Table) -> Ids | None:
        return None if table.unit is None else self._keys.ids(table.name, table.unit)

    def _of_unit(self, path: tuple[str, ...]) -> Table | None:
        """Describe a table, if its rows belong to the same units."""
        if path not in self._found:
            self._found[path] = None
            try:
                of = self._describe(path)
            except SchemaError:
                return None
            if self._ids_of(of) == self._ids and self._is_one_units(of):
                self._found[path] = of
        return self._found[path]

    def _is_one_units(self, table: Table) -> bool:
        """Whether all tables on the way to the unit are of the same one, by the same way."""
        way = self._way(table)
        return all(self._follows(join, way[i:]) for i, join in enumerate(way, start=1))

    def _follows(self, join: KeyStep, rest: Sequence[KeyStep]) -> bool:
        of = self._of_unit(join.path)
        return of is not None and self._way(of) == tuple(rest)
