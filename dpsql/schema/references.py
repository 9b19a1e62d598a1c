"""Find a privacy unit in DuckDB's catalog, along FOREIGN KEYs where it is in another table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpsql.errors import InternalError, SchemaError, printable
from dpsql.hints import option
from dpsql.schema.domain import INTEGER_TYPES
from dpsql.schema.table import closest
from dpsql.schema.units import Join, ResolvedUnit, Unit

COLUMNS = """
    SELECT table_name, column_name, data_type, is_generated FROM system.main.duckdb_columns()
    WHERE database_name = ? AND schema_name = ? AND NOT internal ORDER BY table_name, column_index
"""
CONSTRAINTS = """
    SELECT table_name, constraint_type, constraint_column_names, referenced_table,
        referenced_column_names
    FROM system.main.duckdb_constraints()
    WHERE database_name = ? AND schema_name = ?
        AND constraint_type IN ('FOREIGN KEY', 'PRIMARY KEY', 'UNIQUE')
    ORDER BY table_name, constraint_index
"""
MAX_HOPS = 16
_IDS = INTEGER_TYPES | {"HUGEINT", "UHUGEINT", "DECIMAL", "VARCHAR", "ENUM", "BLOB", "UUID"}
_IDS |= {"DATE", "TIMESTAMP", "BOOLEAN"}
"""Types of which equal values are the same value, byte for byte."""
Fetch = Callable[[str, Sequence[str]], list[tuple[object, ...]]]


@dataclass(frozen=True, slots=True)
class _Edge:
    """A FOREIGN KEY of one column."""

    column: str
    parent: str
    key: str


@dataclass(frozen=True, slots=True)
class _Catalog:
    """What a path may lead through: tables of one schema."""

    path: tuple[str, ...]
    columns: Mapping[str, Mapping[str, str]]
    """Table → column → type. Generated columns have the type ''."""
    edges: Mapping[str, Sequence[_Edge]]
    wide: frozenset[tuple[str, str]]
    """Table and parent of each FOREIGN KEY of several columns."""
    primary: Mapping[str, str]
    """Table → its PRIMARY KEY, if that is one column."""

    def type(self, table: str, column: str) -> str:
        return self.columns.get(table, {}).get(column, "")


def resolve_unit(fetch: Fetch, path: tuple[str, ...], unit: Unit) -> ResolvedUnit:
    """Find the column that a unit's key means, and the way to it.

    Args:
        fetch: runs a catalog query with parameters.
        path: database, schema and name of the table.
        unit: the unit as declared.

    Raises:
        SchemaError: there is no such column, no FOREIGN KEYs lead to it, or several do.
    """
    catalog = _read(fetch, path)
    name = path[-1]
    own = _match(unit.key, catalog.columns.get(name, {}))
    if own is not None:
        return _resolved(catalog, unit, name, own, ())
    target, column = _target(catalog, unit.key)
    if target == name and column is None and name in catalog.primary:
        return _resolved(catalog, unit, name, catalog.primary[name], ())
    if target is None:
        raise SchemaError(
            f"The table {name} has no column {printable(unit.key)} that could be its unit.",
            hint=closest(unit.key, [*catalog.columns.get(name, {}), *_reachable(catalog, name)]),
        )
    if column is None and target == name:
        raise SchemaError(
            f"{name} is the table itself.",
            hint="name the column that tells to whom a row belongs; without a unit, each row is "
            "protected by itself.",
        )
    edges = _way(catalog, name, target, unit.key)
    if edges and column in {None, edges[-1].key}:
        # The referencing column has the same values, so the last table need not be joined.
        at, last = _before(name, edges), edges[-1]
        shown = f"{target}.{last.key}"
        return _resolved(catalog, unit, at, last.column, edges[:-1], shown)
    return _resolved(catalog, unit, target, str(column), edges)


class ForeignKeys:
    """The FOREIGN KEYs between the tables of one schema.

    Args:
        fetch: runs a catalog query with parameters.
        path: database, schema and name of a table of it.
    """

    def __init__(self, fetch: Fetch, path: tuple[str, ...]) -> None:
        self._catalog = _read(fetch, path)

    def of(self, table: str) -> tuple[Join, ...]:
        """Return those of a table by which each row refers to one row or to none."""
        catalog = self._catalog
        edges = catalog.edges.get(table, ())
        return tuple(
            _join(catalog, edge) for edge in edges if _is_id(catalog.type(edge.parent, edge.key))
        )

    def way(self, table: str, unit: ResolvedUnit) -> tuple[Join, ...]:
        """Return the steps from a table to the table that its units are rows of.

        The last one needs not be taken to find the unit.
        """
        found, holder, column = [*unit.joins], table, unit.column
        if found:
            holder = found[-1].path[-1]
        met = {table, holder}
        while len(found) <= MAX_HOPS:
            further = [join for join in self.of(holder) if join.column == column]
            if len(further) != 1 or further[0].path[-1] in met:
                break
            found += further
            holder, column = further[0].path[-1], further[0].key
            met.add(holder)
        return tuple(found)

    def root(self, table: str, unit: ResolvedUnit) -> tuple[str, str]:
        """Return table and column of the ids of a unit: the same for all tables that it has."""
        way = self.way(table, unit)
        return (way[-1].path[-1], way[-1].key) if way else (table, unit.column)

    def round(self, table: str) -> tuple[str, ...]:
        """Return tables by which rows of a table refer to rows of the same table; none if none do.

        Of FOREIGN KEYs of all kinds, whether they can be followed here or not.
        """
        catalog = self._catalog
        pending, seen = list[tuple[str, ...]]([(table,)]), set[str]()
        while pending:
            way = pending.pop(0)
            narrow = [edge.parent for edge in catalog.edges.get(way[-1], ())]
            for parent in (*narrow, *(to for at, to in sorted(catalog.wide) if at == way[-1])):
                if parent == table:
                    return (*way, table)
                if parent not in seen:
                    seen.add(parent)
                    pending.append((*way, parent))
        return ()


def _join(catalog: _Catalog, edge: _Edge) -> Join:
    path = (*catalog.path[:2], edge.parent)
    return Join(edge.column, path, edge.key, catalog.type(edge.parent, edge.key))


def _read(fetch: Fetch, path: tuple[str, ...]) -> _Catalog:
    columns: dict[str, dict[str, str]] = {}
    for table, column, type_, generated in fetch(COLUMNS, path[:2]):
        columns.setdefault(str(table), {})[str(column)] = "" if generated else str(type_)
    unique, edges = set[tuple[str, str]](), dict[str, list[_Edge]]()
    wide, primary = set[tuple[str, str]](), dict[str, str]()
    found = [_spelled(columns, each) for each in fetch(CONSTRAINTS, path[:2])]
    for table, kind, names, _, _ in found:
        if kind != "FOREIGN KEY" and len(names) == 1:
            unique.add((table, names[0]))
            primary |= {table: names[0]} if kind == "PRIMARY KEY" else {}
    for table, kind, names, parent, keys in found:
        if kind != "FOREIGN KEY":
            continue
        if len(names) == len(keys) == 1 and (parent, keys[0]) in unique:
            edges.setdefault(table, []).append(_Edge(names[0], parent, keys[0]))
        else:
            wide.add((table, parent))
    return _Catalog(path, columns, edges, frozenset(wide), primary)


_Constraint = tuple[str, str, list[str], str, list[str]]
"""Table, kind, columns, and for a FOREIGN KEY the table and the columns that it references."""


def _spelled(columns: Mapping[str, Mapping[str, str]], row: tuple[object, ...]) -> _Constraint:
    """Return a constraint with names as tables and columns have them.

    DuckDB keeps those in constraints as they were typed, where it ignores case.
    """
    table, kind, names, parent, keys = row
    own, other = _known(str(table), columns), _known(str(parent), columns)
    return (
        own,
        str(kind),
        [_known(str(name), columns.get(own, ())) for name in _listed(names)],
        other,
        [_known(str(key), columns.get(other, ())) for key in _listed(keys)],
    )


def _listed(names: object) -> list[object]:
    return names if isinstance(names, list) else []


def _known(name: str, known: Iterable[str]) -> str:
    """Return the known name that is meant, or else the name."""
    return name if name in known else _match(name, known) or name


def _match(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is meant; SQL ignores case.

    Raises:
        SchemaError: it may be several, since DuckDB keeps names like Ä and ä apart.
    """
    found = [k for k in known if k.lower() == name.lower()]
    if len(found) > 1:
        shown = " and ".join(map(printable, found[:2]))
        raise SchemaError(
            f"{printable(name)} may mean {shown}, which differ in case only.",
            hint="rename one of them.",
        )
    return found[0] if found else None


def _target(catalog: _Catalog, key: str) -> tuple[str | None, str | None]:
    """Read a key as a table, or as a table and its column."""
    table = _match(key, catalog.columns)
    if table is not None:
        return table, None
    for at in range(len(key)):
        table = _match(key[:at], catalog.columns) if key[at] == "." else None
        column = _match(key[at + 1 :], catalog.columns[table]) if table is not None else None
        if column is not None:
            return table, column
    return None, None


def _reachable(catalog: _Catalog, name: str) -> list[str]:
    found, pending = [], [name]
    while pending:
        for edge in catalog.edges.get(pending.pop(), ()):
            if edge.parent not in found and edge.parent != name:
                found.append(edge.parent)
                pending.append(edge.parent)
    return found


def _way(catalog: _Catalog, name: str, target: str, key: str) -> tuple[_Edge, ...]:
    """Return the only way along FOREIGN KEYs from one table to another."""
    if name == target:
        return ()
    ways = _ways(catalog, name, target)
    if len(ways) == 1:
        return ways[0]
    if ways:
        shown = " and ".join(_shown(name, way) for way in ways[:2])
        last = [f"{_before(name, way)}.{way[-1].column}" for way in ways[:2]]
        raise SchemaError(
            f"Several ways lead from {name} to {printable(key)}: {shown}.",
            hint="name the column that has the id, for example " + option("unit", last[0]) + "."
            if last[0] != last[1]
            else "store the id in a column of the table itself.",
        )
    if (name, target) in catalog.wide:
        raise SchemaError(
            f"The FOREIGN KEY from {name} to {target} has several columns, or references no key.",
            hint="store the id in a column of the table itself, and use that as the unit.",
        )
    raise SchemaError(
        f"No FOREIGN KEY leads from {name} to {target}.",
        hint=closest(key, [*catalog.columns.get(name, {}), *_reachable(catalog, name)]),
    )


def _ways(catalog: _Catalog, name: str, target: str) -> list[tuple[_Edge, ...]]:
    """Return the ways that visit no table twice; two of them are enough."""
    leads = {t for t in catalog.columns if target in _reachable(catalog, t)} | {target}
    found: list[tuple[_Edge, ...]] = []

    def walk(table: str, way: tuple[_Edge, ...], seen: frozenset[str]) -> None:
        for edge in catalog.edges.get(table, ()):
            if len(found) > 1 or edge.parent in seen or edge.parent not in leads:
                continue
            if edge.parent == target:
                found.append((*way, edge))
            elif len(way) < MAX_HOPS:
                walk(edge.parent, (*way, edge), seen | {edge.parent})

    walk(name, (), frozenset({name}))
    return found


def _shown(name: str, way: Sequence[_Edge]) -> str:
    tables = [name, *(edge.parent for edge in way)]
    return ", ".join(f"{t}.{e.column}" for t, e in zip(tables, way, strict=False))


def _before(name: str, way: Sequence[_Edge]) -> str:
    return way[-2].parent if len(way) > 1 else name


def _resolved(
    catalog: _Catalog,
    unit: Unit,
    table: str,
    column: str,
    edges: Sequence[_Edge],
    shown: str | None = None,
) -> ResolvedUnit:
    _check_id(catalog, table, column)
    for edge in edges:
        _check_id(catalog, edge.parent, edge.key)
    joins = tuple(_join(catalog, edge) for edge in edges)
    name = column if table == catalog.path[-1] else f"{table}.{column}"
    type_ = catalog.type(table, column)
    if isinstance(unit.max_rows, Mapping):
        raise InternalError("the bound of this table was not chosen")
    return ResolvedUnit(shown or name, column, type_, joins, unit.max_rows)


def _check_id(catalog: _Catalog, table: str, column: str) -> None:
    """Refuse types of which different values are equal, such as the zeros of a DOUBLE.

    Two units would pass for one, or a row would have two parents.
    """
    type_ = catalog.type(table, column)
    if not _is_id(type_):
        raise SchemaError(
            f"The column {column} of {table} has the type {type_ or 'GENERATED'}, so it can't tell "
            "units apart.",
            hint="use a column of an integer, VARCHAR or UUID type.",
        )


def _is_id(type_: str) -> bool:
    return type_.split("(")[0] in _IDS and not type_.endswith("]")
