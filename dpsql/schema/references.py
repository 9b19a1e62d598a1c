"""References between private tables: along which a unit is found, and which rows a row refers to.

Rows that refer to each other are of tables with the same units. *Which rows are a unit's* must be
clear before anything is joined: what comes or goes with a unit are its rows in all tables together,
and each row of each table is to be one unit's at most. So

- every table on the way to the unit says that its rows belong to the same units, by the rest of
  that way. Else an order could be one person's by what is declared for orders, and another's by
  the way of its items;
- no FOREIGN KEYs lead from a row of the units' own table to another row of it, as from an employee
  to the manager: then what leads to one of them leads to others, too, and no column says whose it
  is. Such tables can be counted each by itself, as ever, and aren't joined.

Where several ways lead from a table to the unit, one is taken (`resolve_unit`): the shortest. The
rows are those of the unit that this way leads to, and of no other one: rows that refer to one of
another unit by another way are like those that refer to none (`grain.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Protocol

from dpsql.errors import SchemaError, printable
from dpsql.hints import Hint, option
from dpsql.schema.declarations import Schema
from dpsql.schema.facts import Catalog, StoredKeys
from dpsql.schema.grain import grain, made_of
from dpsql.schema.keys import Edge, KeyCatalog, compared_as, is_id, read_keys, references_for
from dpsql.schema.lookup import MeantName, ambiguous
from dpsql.schema.names import closest, folded
from dpsql.schema.table import Parent, Table
from dpsql.schema.units import DeclaredUnit, KeyStep, ResolvedUnit, Unit

MAX_HOPS = 16
Ids = tuple[str, tuple[object, ...]]
"""The kind of ids that units have; see `ForeignKeys.ids`."""


def resolve_unit(stored: StoredKeys, path: tuple[str, ...], unit: Unit) -> ResolvedUnit:
    """Find the columns that a unit's key means, and the way to them.

    A key that may mean several things is refused, unless a column of the table is one of them, and
    by keys it has the same values as all others: `account`, where that refers to the table
    `account`. So whichever is meant, the units are those that are found.

    Args:
        stored: what the database's catalog has of the keys of its schema.
        path: database, schema and name of the table.
        unit: the unit as declared.

    Raises:
        SchemaError: there is no such column, no keys lead to it, or several ways do that are as
            short as each other; or the key may mean several things.
    """
    catalog = read_keys(stored, path, unit.references)
    name = path[-1]
    meanings = catalog.means(unit.key)
    if not meanings:
        raise SchemaError(
            f"The table {name} has no column {printable(unit.key)} that could be its unit.",
            hint=closest(unit.key, [*catalog.columns.get(name, {}), *_reachable(catalog, name)]),
        )
    here = [one for one in meanings if one.path == catalog.path and one.columns]
    if len(meanings) == 1:
        return _found(catalog, unit, meanings[0])
    if len(here) == 1 and all(_is_same(catalog, unit, here[0].columns, one) for one in meanings):
        return _found(catalog, unit, here[0])
    where = f"The unit of {printable(name)}"
    raise ambiguous(unit.key, where, meanings, [_typed(catalog, unit, one) for one in meanings])


def _found(catalog: KeyCatalog, unit: Unit, meant: MeantName) -> ResolvedUnit:
    """Find the way to what a unit's key means."""
    name, to, columns = catalog.path[-1], meant.path[-1], meant.columns or None
    if to == name:
        columns = columns or catalog.own_key(name)
        if columns is None:
            raise SchemaError(
                f"{name} is the table itself.",
                hint="name the column that tells to whom a row belongs; without a unit, each row "
                "is protected by itself.",
            )
        return _resolved(catalog, unit, name, columns, ())
    edges = _way(catalog, name, to, unit)
    if columns is None or set(columns) == set(edges[-1].keys):
        # The referencing columns have the same values, so the last table need not be joined.
        at, last = _before(name, edges), edges[-1]
        shown = ", ".join(f"{to}.{key}" for key in last.keys)
        return _resolved(catalog, unit, at, last.columns, edges[:-1], shown)
    return _resolved(catalog, unit, to, columns, edges)


def _is_same(catalog: KeyCatalog, unit: Unit, columns: tuple[str, ...], meant: MeantName) -> bool:
    """Whether columns of the table are what is meant: by their values, and by the way to them.

    Where several keys lead to a table, its way may begin with other columns: then the row belongs
    to somebody else.
    """
    if not _stands_for(catalog, columns, meant):
        return False
    if meant.path == catalog.path:
        return True
    try:
        unit_of_meaning = _found(catalog, unit, meant)
    except SchemaError:  # several ways are as short as each other
        return False
    return not unit_of_meaning.joins and {name for name, _ in unit_of_meaning.columns} == set(
        columns
    )


def _stands_for(catalog: KeyCatalog, columns: tuple[str, ...], meant: MeantName) -> bool:
    """Whether columns of the table have the values that are meant, as keys say of them alone.

    Each step of keys has equal values on both sides. A table is meant by whatever tells its rows
    apart: by what a key of these columns refers to there.
    """
    name = catalog.path[-1]
    key = meant.columns or (catalog.own_key(name) if meant.path[-1] == name else None)
    met = [(name, columns)]
    for join in _onward(catalog, name, columns, frozenset({name})):
        keys = dict(zip(join.columns, join.keys, strict=True))
        met.append((join.path[-1], tuple(keys[column] for column in met[-1][1])))
    same = [set(ids) for table, ids in met if table == meant.path[-1]]
    return any((key is None and meant.path[-1] != name) or set(key or ()) == ids for ids in same)


def _typed(catalog: KeyCatalog, unit: Unit, meant: MeantName) -> Hint | None:
    """Return how a unit is given that means one thing alone; None if it can't be.

    Of a table these are the columns that the way to it ends in.
    """
    name, table = catalog.path[-1], meant.path[-1]
    columns = meant.columns or catalog.own_key(table) or ()
    if not meant.columns and table != name:
        with suppress(SchemaError):
            columns = _way(catalog, name, table, unit)[-1].keys
    text = catalog.spelled(meant.path, columns) if columns else None
    return None if text is None else option("unit", text)


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

    def of(self, table: str) -> tuple[KeyStep, ...]:
        """Return those of a table by which each row refers to one row or to none."""
        return _steps(self._catalog, table)

    def way(self, table: str, unit: ResolvedUnit) -> tuple[KeyStep, ...]:
        """Return the steps from a table to the table that its units are rows of.

        The last one needs not be taken to find the unit.
        """
        return _whole_way(self._catalog, table, unit)

    def root(self, table: str, unit: ResolvedUnit) -> tuple[str, tuple[str, ...]]:
        """Return table and columns of the ids of a unit."""
        return _root(self._catalog, table, unit)

    def ids(self, table: str, unit: ResolvedUnit) -> Ids:
        """Return what the ids of a unit are: the same for all tables whose rows can be its own.

        They are columns of the table of units. Where there is no such table, as of a `subject_id`
        that refers to nothing, they are columns of one name, with values that can be compared, of
        whatever tables: the owner has declared them as units by that name. Two of them that are of
        different people make one unit of both, which is protected with all of its rows.
        """
        holder, columns = _root(self._catalog, table, unit)
        if self._catalog.is_of_units(holder, columns):
            return holder, columns
        types = (compared_as(self._catalog.type(holder, column)) for column in columns)
        return "", tuple(sorted(zip(map(folded, columns), types, strict=True)))

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
    own = (
        _last(name, way).replace(f"{name}.", "") if len(way) == 1 else _last(name, way)
        for way in _ways(catalog, name, root)
    )
    return list(dict.fromkeys(own))


def _steps(catalog: KeyCatalog, table: str) -> tuple[KeyStep, ...]:
    return tuple(
        catalog.join(edge)
        for edge in catalog.edges.get(table, ())
        if all(is_id(catalog.type(edge.parent, key)) for key in edge.keys)
    )


def _whole_way(catalog: KeyCatalog, table: str, unit: ResolvedUnit) -> tuple[KeyStep, ...]:
    holder = unit.joins[-1].path[-1] if unit.joins else table
    return (*unit.joins, *_onward(catalog, holder, _names(unit), frozenset({table, holder})))


def _onward(
    catalog: KeyCatalog, holder: str, columns: tuple[str, ...], met: frozenset[str]
) -> tuple[KeyStep, ...]:
    """Return the steps on from the columns of an id, as far as they are clear.

    Several keys of the same columns are, if all lead to the same ids: these are those columns, as
    each step has equal values on both sides. The shortest way is taken then.
    """
    ways = list[tuple[KeyStep, ...]]()
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
    root, keys = _root(catalog, catalog.path[-1], unit)
    (column, type_), *further = [
        columns for _, columns in sorted(zip(keys, unit.columns, strict=True))
    ]
    known = (root, tuple(sorted(keys))) if unit.root[0] else unit.root
    return replace(unit, column=column, type=type_, further=tuple(further), root=known)


def _names(unit: ResolvedUnit) -> tuple[str, ...]:
    return tuple(column for column, _ in unit.columns)


def _reachable(catalog: KeyCatalog, name: str) -> list[str]:
    reached, pending = [], [name]
    while pending:
        for edge in catalog.edges.get(pending.pop(), ()):
            if edge.parent not in reached and edge.parent != name:
                reached.append(edge.parent)
                pending.append(edge.parent)
    return reached


def _way(catalog: KeyCatalog, name: str, target: str, unit: Unit) -> tuple[Edge, ...]:
    """Return the shortest way along keys from one table to another.

    FOREIGN KEYs of several columns are taken only where there is no way without them: they often
    say again what one of their columns refers to alone. Of ways that are as short as each other
    the one is taken with the most keys that the owner declares.

    So one declaration serves all tables of a schema, and tables agree on the way: what is left of
    the way of a table behind its first step is the way of the table which that leads to. For were
    there another one to the unit from there, as short and with as many declared keys, there would
    be two from the first table as well. (Where keys of several columns make a difference, tables
    may disagree; `check_same_units` refuses to join them then.)
    """
    ways = _ways(catalog, name, target)
    if len(ways) == 1:
        return ways[0]
    if ways:
        raise _several_ways(catalog, name, ways, target, unit)
    if (name, target) in catalog.others:
        raise SchemaError(
            f"The FOREIGN KEY from {name} to {target} references no key.",
            hint="store the id in a column of the table itself, and use that as the unit.",
        )
    raise SchemaError(
        f"No FOREIGN KEY leads from {name} to {target}.", hint=_reached(catalog, name, target, unit)
    )


def _reached(catalog: KeyCatalog, name: str, target: str, unit: Unit) -> str:
    """Word which unit a table could have, to which no keys lead from it.

    What the column that was named refers to in turn, if they lead there; so both tables have it.
    """
    for meant in catalog.means(unit.key):
        way = _onward(catalog, target, meant.columns, frozenset({target}))
        for join in reversed(way if meant.path[-1] == target else ()):
            if _ways(catalog, name, join.path[-1]):
                text = catalog.spelled(join.path, join.keys)
                if text is not None:
                    return "write " + option("unit", text) + ": it is the unit of both tables."
    return closest(unit.key, [*catalog.columns.get(name, {}), *_reachable(catalog, name)])


def _several_ways(
    catalog: KeyCatalog, name: str, ways: Sequence[tuple[Edge, ...]], target: str, unit: Unit
) -> SchemaError:
    """Say that two ways are as short as each other, and which declaration takes one of them.

    To declare a key of one way that isn't one of the other makes it the way for all tables that it
    serves, and leaves what others have of ways of their own.
    """
    shown = " and ".join(_shown(name, way) for way in ways)
    tables = [name, *(edge.parent for edge in ways[0])]
    apart = [
        (table, edge)
        for table, edge in zip(tables, ways[0], strict=False)
        if not edge.declared and edge not in ways[1]
    ]
    hint = Hint("leave one of them out of the references.")
    if apart:
        table, edge = apart[0]
        sides = [(table, edge.columns), (edge.parent, edge.keys)]
        child, parent = (catalog.written(t, columns) for t, columns in sides)
        hint = (
            "say which one: "
            + option("references", {**unit.references, child: parent})
            + "; it holds for the whole session."
        )
    return SchemaError(f"Several ways lead from {name} to {printable(target)}: {shown}.", hint=hint)


def _ways(catalog: KeyCatalog, name: str, target: str) -> list[tuple[Edge, ...]]:
    """Return the best way, and another one if that is as good; none if there is no way."""
    if name == target:
        return [()]
    for narrow in (True, False):
        edges = {
            table: [edge for edge in each if not (narrow and edge.enforced and len(edge.keys) > 1)]
            for table, each in catalog.edges.items()
        }
        ways = _shortest(edges, name, target)
        if ways:
            return ways
    return []


def _shortest(
    edges: Mapping[str, Sequence[Edge]], name: str, target: str
) -> list[tuple[Edge, ...]]:
    """Return the best of the shortest ways, and another one if that is as good.

    From the target outwards: the best two ways of a table, with the most declared keys, are a step
    each and one of the best two of what that leads to. For of ways of one length over the same
    step those are the best whose rests are.
    """
    best: dict[str, list[tuple[Edge, ...]]] = {target: [()]}
    for _ in range(MAX_HOPS + 1):
        further = dict[str, list[tuple[Edge, ...]]]()
        for table in edges.keys() - best.keys():
            ways = {(e, *way): None for e in edges[table] for way in best.get(e.parent, ())}
            if ways:
                further[table] = sorted(ways, key=_declared_keys, reverse=True)[:2]
        best |= further
        if name in best or not further:
            break
    found = best.get(name, [])
    return [way for way in found if _declared_keys(way) == _declared_keys(found[0])]


def _declared_keys(way: Sequence[Edge]) -> int:
    return sum(edge.declared for edge in way)


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
    is_own_table = table == catalog.path[-1]
    name = ", ".join(column if is_own_table else f"{table}.{column}" for column in columns)
    (column, type_), *further = [(column, catalog.type(table, column)) for column in columns]
    rows = unit.max_rows if isinstance(unit.max_rows, int) else None  # of other tables
    if (
        rows is None
        and is_own_table
        and not edges
        and (table, frozenset(columns)) in catalog.unique
    ):
        rows = 1  # of which the database lets a unit have no second one
    bounds = rows, tuple(further), unit.max_groups
    resolved = ResolvedUnit(
        shown or name, column, type_, joins, *bounds, max_values=unit.max_values
    )
    holder, ids = _root(catalog, catalog.path[-1], resolved)
    is_of_units = holder != table or catalog.is_of_units(holder, ids)
    return _in_order(catalog, replace(resolved, root=(holder, ids)) if is_of_units else resolved)


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


# ── The rows of other private tables that the rows of a table refer to ──


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
    later, before = other.name, first.name
    if later == before:
        later, before = ".".join(other.path), ".".join(first.path)
    return f"This is over {printable(later)}, but what comes first is over {printable(before)}"


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
