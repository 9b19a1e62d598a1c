"""Find a privacy unit among the keys of a schema, along them where it is in another table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from dpsql.errors import SchemaError, printable
from dpsql.hints import option
from dpsql.schema.facts import StoredKeys
from dpsql.schema.keys import Edge, KeyCatalog, is_id, match, read_keys, target
from dpsql.schema.table import closest
from dpsql.schema.units import Join, ResolvedUnit, Unit

MAX_HOPS = 16
T = TypeVar("T")


def resolve_unit(stored: StoredKeys, path: tuple[str, ...], unit: Unit) -> ResolvedUnit:
    """Find the columns that a unit's key means, and the way to them.

    Args:
        stored: what the database's catalog has of the keys of its schema.
        path: database, schema and name of the table.
        unit: the unit as declared.

    Raises:
        SchemaError: there is no such column, no keys lead to it, or several ways do.
    """
    catalog = read_keys(stored, path, unit.references)
    name = path[-1]
    own = _listed(unit.key, partial(match, known=catalog.columns.get(name, {})))
    if own is not None:
        return _resolved(catalog, unit, name, own, ())
    to, columns = _target(catalog, unit.key)
    if to == name and columns is None:
        columns = catalog.own_key(name)
        if columns is not None:
            return _resolved(catalog, unit, name, columns, ())
    if to is None:
        raise SchemaError(
            f"The table {name} has no column {printable(unit.key)} that could be its unit.",
            hint=closest(unit.key, [*catalog.columns.get(name, {}), *_reachable(catalog, name)]),
        )
    if columns is None and to == name:
        raise SchemaError(
            f"{name} is the table itself.",
            hint="name the column that tells to whom a row belongs; without a unit, each row is "
            "protected by itself.",
        )
    edges = _way(catalog, name, to, unit.key)
    if edges and (columns is None or set(columns) == set(edges[-1].keys)):
        # The referencing columns have the same values, so the last table need not be joined.
        at, last = _before(name, edges), edges[-1]
        shown = ", ".join(f"{to}.{key}" for key in last.keys)
        return _resolved(catalog, unit, at, last.columns, edges[:-1], shown)
    return _resolved(catalog, unit, to, columns or (), edges)


class ForeignKeys:
    """The keys by which rows of the tables of one schema refer to each other.

    Args:
        stored: what the database's catalog has of them.
        path: database, schema and name of a table of it.
        references: those that are declared, besides FOREIGN KEYs.
    """

    def __init__(
        self, stored: StoredKeys, path: tuple[str, ...], references: Mapping[str, str] | None = None
    ) -> None:
        self._catalog = read_keys(stored, path, references)

    def of(self, table: str) -> tuple[Join, ...]:
        """Return those of a table by which each row refers to one row or to none."""
        return _steps(self._catalog, table)

    def way(self, table: str, unit: ResolvedUnit) -> tuple[Join, ...]:
        """Return the steps from a table to the table that its units are rows of.

        The last one needs not be taken to find the unit.
        """
        return _whole_way(self._catalog, table, unit)

    def root(self, table: str, unit: ResolvedUnit) -> tuple[str, tuple[str, ...]]:
        """Return table and columns of the ids of a unit: the same for all tables that it has."""
        return _root(self._catalog, table, unit)

    def round(self, table: str) -> tuple[str, ...]:
        """Return tables by which rows of a table refer to rows of the same table; none if none do.

        Of keys of all kinds, whether they can be followed here or not.
        """
        catalog = self._catalog
        pending, seen = list[tuple[str, ...]]([(table,)]), set[str]()
        while pending:
            way = pending.pop(0)
            known = [edge.parent for edge in catalog.edges.get(way[-1], ())]
            for parent in (*known, *(to for at, to in sorted(catalog.others) if at == way[-1])):
                if parent == table:
                    return (*way, table)
                if parent not in seen:
                    seen.add(parent)
                    pending.append((*way, parent))
        return ()


def leads_to(catalog: KeyCatalog, root: str) -> tuple[str, ...]:
    """Return the tables from which keys lead to a table."""
    return tuple(name for name in catalog.columns if root in _reachable(catalog, name))


def ids_of(catalog: KeyCatalog, name: str, root: str) -> list[str]:
    """Return columns with the ids of another table's rows, one for each way there, of two."""
    ways = _ways(catalog, name, root, narrow=True) or _ways(catalog, name, root, narrow=False)
    own = (
        _last(name, way).replace(f"{name}.", "") if len(way) == 1 else _last(name, way)
        for way in ways
    )
    return list(dict.fromkeys(own))


def _steps(catalog: KeyCatalog, table: str) -> tuple[Join, ...]:
    return tuple(
        catalog.join(edge)
        for edge in catalog.edges.get(table, ())
        if all(is_id(catalog.type(edge.parent, key)) for key in edge.keys)
    )


def _whole_way(catalog: KeyCatalog, table: str, unit: ResolvedUnit) -> tuple[Join, ...]:
    holder = unit.joins[-1].path[-1] if unit.joins else table
    return (*unit.joins, *_onward(catalog, holder, _names(unit), frozenset({table, holder})))


def _onward(
    catalog: KeyCatalog, holder: str, columns: tuple[str, ...], met: frozenset[str]
) -> tuple[Join, ...]:
    """Return the steps on from the columns of an id, as far as they are clear.

    Several keys of the same columns are, if all lead to the same ids: these are those columns, as
    each step has equal values on both sides. The shortest way is taken then.
    """
    ways = list[tuple[Join, ...]]()
    if len(met) > MAX_HOPS:
        return ()
    for join in _steps(catalog, holder):
        if set(join.columns) == set(columns):
            parent = join.path[-1]
            if parent in met:
                return ()
            keys = dict(zip(join.columns, join.keys, strict=True))
            ids = tuple(keys[column] for column in columns)
            ways.append((join, *_onward(catalog, parent, ids, met | {parent})))
    ends = {(way[-1].path, frozenset(way[-1].keys)) for way in ways}
    return min(ways, key=len) if len(ends) == 1 else ()


def _root(catalog: KeyCatalog, table: str, unit: ResolvedUnit) -> tuple[str, tuple[str, ...]]:
    """Return table and columns of the ids of a unit, in the order in which they stand in an id."""
    holder, columns = (unit.joins[-1].path[-1] if unit.joins else table), _names(unit)
    for join in _whole_way(catalog, table, unit)[len(unit.joins) :]:
        keys = dict(zip(join.columns, join.keys, strict=True))
        holder, columns = join.path[-1], tuple(keys[column] for column in columns)
    return holder, columns


def _in_order(catalog: KeyCatalog, unit: ResolvedUnit) -> ResolvedUnit:
    """Put the columns of an id in the order of what they refer to: the same in all tables."""
    if not unit.further:
        return unit
    _, keys = _root(catalog, catalog.path[-1], unit)
    (column, type_), *further = [own for _, own in sorted(zip(keys, unit.columns, strict=True))]
    return replace(unit, column=column, type=type_, further=tuple(further))


def _names(unit: ResolvedUnit) -> tuple[str, ...]:
    return tuple(column for column, _ in unit.columns)


def _listed(key: str, meant: Callable[[str], T | None]) -> tuple[T, ...] | None:
    """Read a key as one name, or as several; None if one isn't known."""
    for parts in ([key], key.split(",")):
        found = [one for part in parts if (one := meant(part.strip())) is not None]
        if len(found) == len(parts):
            return tuple(found)
    return None


def _target(catalog: KeyCatalog, key: str) -> tuple[str | None, tuple[str, ...] | None]:
    """Read a key as a table, or as columns of one."""
    to, column = target(catalog.columns, key)
    if to is not None:
        return to, None if column is None else (column,)
    found = catalog.side(key)
    return found or (None, None)


def _reachable(
    catalog: KeyCatalog, name: str, edges: Mapping[str, Sequence[Edge]] | None = None
) -> list[str]:
    found, pending = [], [name]
    while pending:
        for edge in (edges or catalog.edges).get(pending.pop(), ()):
            if edge.parent not in found and edge.parent != name:
                found.append(edge.parent)
                pending.append(edge.parent)
    return found


def _way(catalog: KeyCatalog, name: str, target: str, key: str) -> tuple[Edge, ...]:
    """Return the only way along keys from one table to another.

    FOREIGN KEYs of several columns are taken only where there is no way without them: they often
    say again what one of their columns refers to alone.
    """
    if name == target:
        return ()
    ways = _ways(catalog, name, target, narrow=True) or _ways(catalog, name, target, narrow=False)
    if len(ways) == 1:
        return ways[0]
    if ways:
        shown = " and ".join(_shown(name, way) for way in ways[:2])
        last = [_last(name, way) for way in ways[:2]]
        raise SchemaError(
            f"Several ways lead from {name} to {printable(key)}: {shown}.",
            hint="name the column that has the id, for example " + option("unit", last[0]) + "."
            if last[0] != last[1]
            else "store the id in a column of the table itself.",
        )
    if (name, target) in catalog.others:
        raise SchemaError(
            f"The FOREIGN KEY from {name} to {target} references no key.",
            hint="store the id in a column of the table itself, and use that as the unit.",
        )
    raise SchemaError(
        f"No FOREIGN KEY leads from {name} to {target}.",
        hint=closest(key, [*catalog.columns.get(name, {}), *_reachable(catalog, name)]),
    )


def _ways(catalog: KeyCatalog, name: str, target: str, *, narrow: bool) -> list[tuple[Edge, ...]]:
    """Return the ways that visit no table twice; two of them are enough."""
    edges = {
        table: [edge for edge in each if not (narrow and edge.enforced and len(edge.keys) > 1)]
        for table, each in catalog.edges.items()
    }
    leads = {t for t in catalog.columns if target in _reachable(catalog, t, edges)} | {target}
    found: list[tuple[Edge, ...]] = []

    def walk(table: str, way: tuple[Edge, ...], seen: frozenset[str]) -> None:
        for edge in edges.get(table, ()):
            if len(found) > 1 or edge.parent in seen or edge.parent not in leads:
                continue
            if edge.parent == target:
                found.append((*way, edge))
            elif len(way) < MAX_HOPS:
                walk(edge.parent, (*way, edge), seen | {edge.parent})

    walk(name, (), frozenset({name}))
    return found


def _shown(name: str, way: Sequence[Edge]) -> str:
    tables = [name, *(edge.parent for edge in way)]
    steps = zip(tables, way, strict=False)
    return ", ".join(f"{table}.{column}" for table, edge in steps for column in edge.columns)


def _last(name: str, way: Sequence[Edge]) -> str:
    at = _before(name, way)
    return ", ".join(f"{at}.{column}" for column in way[-1].columns)


def _before(name: str, way: Sequence[Edge]) -> str:
    return way[-2].parent if len(way) > 1 else name


def _resolved(
    catalog: KeyCatalog,
    unit: Unit,
    table: str,
    columns: Sequence[str],
    edges: Sequence[Edge],
    shown: str | None = None,
) -> ResolvedUnit:
    _check_ids(catalog, table, columns)
    for edge in edges:
        _check_ids(catalog, edge.parent, edge.keys)
    joins = tuple(catalog.join(edge) for edge in edges)
    own = table == catalog.path[-1]
    name = ", ".join(column if own else f"{table}.{column}" for column in columns)
    (column, type_), *further = [(column, catalog.type(table, column)) for column in columns]
    rows = unit.max_rows if isinstance(unit.max_rows, int) else None  # of other tables
    bounds = rows, tuple(further), unit.max_groups
    found = ResolvedUnit(shown or name, column, type_, joins, *bounds)
    return _in_order(catalog, found)


def _check_ids(catalog: KeyCatalog, table: str, columns: Collection[str]) -> None:
    """Refuse types of which different values are equal, such as the zeros of a DOUBLE.

    Two units would pass for one, or a row would have two parents.
    """
    for column in columns:
        type_ = catalog.type(table, column)
        if not is_id(type_):
            raise SchemaError(
                f"The column {column} of {table} has the type {type_ or 'GENERATED'}, so it can't "
                "tell units apart.",
                hint="use a column of an integer, VARCHAR or UUID type.",
            )
