"""Grains: tables whose rows have the columns of the rows that they refer to.

    orders JOIN customers ON orders.customer_id = customers.id

has a row for each order, with the columns of its customer. So it is counted as `orders` alone is,
with more columns: statements over `orders` and over the join share a domain and are planned
together. The columns of a customer stand in the table of orders under the name of the column that
refers to it: `customer_id.region`, and two steps away `order_id.customer_id.region`.

*Why a row stays one row of its unit.* A parent is found by a key of which no two rows have the
same value, as a PRIMARY KEY or UNIQUE says, compared byte for byte. So a row has one parent or
none, and LEFT JOIN gives one row for each row, with the same unit. A step of the way to the unit
(`references.py`) leads to a row of the same unit, and rows without one have no unit and don't
count. Any other FOREIGN KEY, as `orders.address_id`, may lead to a row of another unit. Such a
parent is met only if it is of the same unit, else the row is like one that refers to none. So what
a row has of its parents is a function of the rows of its own unit: to add or remove another unit
changes nothing of it. Which rows of a unit are kept is decided before, by the columns of the row
itself (`engines/duckdb/bounded.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from dpsql.schema.domain import COLLATED, Domain
from dpsql.schema.table import Added, Origin, Parent, Table
from dpsql.schema.units import KeyStep


def grain(table: Table, parents: Sequence[Parent]) -> Table:
    """Give a table the columns of the rows that it refers to, which they have no other way.

    Args:
        table: the table whose rows are counted.
        parents: those rows, each after the one that refers to it.
    """
    found, ways = table, {"": ""}
    for parent in parents:
        of, names = parent.table, parent.names
        domains = {names[name]: parent.domain(name) for name in of.columns}
        undeclared = {names[name]: type_ for name, type_ in of.undeclared.items()}
        filled = {names[name] for name in of.filled} if parent.on_way else set[str]()
        ways[parent.prefix] = _way(parent, ways[parent.above])
        digests = {names[name]: parent.digest(name) for name in of.columns}
        found = replace(
            found,
            columns={**found.columns, **domains},
            undeclared={**found.undeclared, **undeclared, parent.matched: "BOOLEAN"},
            enforced=found.enforced.union(names[name] for name in of.enforced),
            filled=found.filled.union(filled),
            bounds={**found.bounds, **{names[name]: b for name, b in of.bounds.items()}},
            # What was measured by another way is of other rows, whatever its columns are called.
            derived={**found.derived, **digests, parent.matched: ways[parent.prefix]},
        )
    return replace(found, parents=tuple(parents))


def unit_columns(table: Table) -> tuple[str, ...]:
    """Return the columns of a table that tell units apart, and only units.

    They are the column with the unit's id, at the end of the way to it, and the keys that it refers
    to in turn as far as they are on that way: each of their values is that of one unit, and each
    unit has one. Other columns may refer to units as well, but tell those of other rows. None do
    where ids are of several columns. Of other tables' columns none do that are found by keys which
    the database doesn't enforce: they may be missing.
    """
    unit = table.unit
    if unit is None or unit.further:
        return ()
    before = "".join(f"{join.column}." for join in unit.joins)
    way = [parent for parent in table.parents if parent.on_way and _is_sure(parent.join)]
    met = {"", *(parent.prefix for parent in way)}
    sure = before in met and all(map(_is_sure, unit.joins))
    columns = [before + unit.column] if sure else []
    for parent in way:
        if parent.above + parent.join.column in columns:
            columns.append(parent.prefix + parent.join.key)
    return tuple(columns)


def declared_type(table: Table, name: str) -> str:
    """Return the type of a column, with its collation; empty if there is no such column."""
    domain = table.columns.get(name)
    return table.undeclared.get(name, "") if domain is None else domain.column_type or domain.type


def stored_type(table: Table, name: str) -> str:
    """Return the type that tells values of a column apart; that of a text is plain."""
    return _plain(declared_type(table, name))


def type_of(domain: Domain) -> str:
    """Return the type that tells values of a column of this domain apart."""
    return _plain(domain.column_type or domain.type)


def _plain(type_: str) -> str:
    return type_.replace(COLLATED, "VARCHAR")


def _is_sure(join: KeyStep) -> bool:
    """Whether a row refers to a row by one column, and that is there."""
    return join.enforced and not join.further


def origins(table: Table) -> tuple[Origin, ...]:
    """Return where the rows come from that are read besides stored ones."""
    named = (one.origin for one in table.read if one.origin is not None)
    return tuple(origin for origin in named if not origin.tables)


def paths_read(table: Table) -> tuple[tuple[str, ...], ...]:
    """List where the rows are that are read for a table, also to find units; its own first.

    What is made of rows of others is nowhere itself.
    """
    paths = list[tuple[str, ...]]()
    for one in table.read:
        if one.made_of:
            continue
        joins = one.unit.joins if one.unit is not None else ()
        paths += [one.path, *(join.path for join in joins)]
    return tuple(dict.fromkeys(paths))


def _way(parent: Parent, above: str) -> str:
    """Return a hash of the way to a parent, given that of the way to what refers to it."""
    join = parent.join
    way = (above, join.pairs, join.path[1:], join.enforced, parent.on_way)
    return hashlib.sha256(repr(way).encode()).hexdigest()


def with_computed(table: Table, computed: Sequence[Added]) -> Table:
    """Give a table columns that are computed of a row and others of its unit, behind all others.

    Args:
        table: the table.
        computed: what is computed, each after what it needs.
    """
    extended = table
    for one in computed:
        extended = with_added(extended, one)
    return extended


def with_added(table: Table, one: Added) -> Table:
    """Give a table a column that is computed of a row and others of its unit, behind all others."""
    return replace(
        table,
        columns=table.columns if one.domain is None else {**table.columns, one.name: one.domain},
        undeclared={**table.undeclared, one.name: one.type}
        if one.domain is None
        else table.undeclared,
        enforced=table.enforced | {one.name} if one.domain and one.listed else table.enforced,
        filled=table.filled | ({one.name} if one.filled else set()),
        derived={**table.derived, one.name: one.digest} if one.domain else table.derived,
        added=(*table.added, one),
    )


def without_computed(table: Table) -> Table:
    """Return a table without columns that are computed of rows of the same unit."""
    names = set(table.computed)
    return replace(
        table,
        columns={name: domain for name, domain in table.columns.items() if name not in names},
        undeclared={name: type_ for name, type_ in table.undeclared.items() if name not in names},
        enforced=table.enforced - names,
        filled=table.filled - names,
        derived={name: of for name, of in table.derived.items() if name not in names},
        added=(),
    )


def made_of(table: Table) -> tuple[Table, ...]:
    """Return the tables of whose rows a table's are made, or the table itself."""
    return tuple(one for each in table.made_of for one in made_of(each)) or (table,)


def ids_of_units(table: Table) -> tuple[str, ...]:
    """Return the columns that tell units apart, and only units: see `unit_columns`.

    Of a relation, they are those that have the id of the unit in each of its rows.
    """
    units: object = getattr(getattr(table.origin, "related", None), "units", None)
    return units if isinstance(units, tuple) else unit_columns(table)
