"""References between tables of a schema: FOREIGN KEYs, and references that are declared.

References that are declared are not enforced: the database lets several rows have the same key, and
rows refer to none. So they are told apart from FOREIGN KEYs wherever it matters (`Edge.enforced`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from dpsql.errors import SchemaError, printable
from dpsql.schema.declarations import Schema
from dpsql.schema.domain import INTEGER_TYPES
from dpsql.schema.entries import PREFIX, references_of
from dpsql.schema.facts import Catalog, StoredKey, StoredKeys, TableComment
from dpsql.schema.lookup import (
    MeantName,
    ambiguous,
    columns_meant,
    is_table,
    match,
    meanings,
    spelled,
    storing,
)
from dpsql.schema.names import as_text, closest, folded
from dpsql.schema.units import DeclaredUnit, KeyPair, KeyStep, ResolvedUnit, Unit

_IDS = INTEGER_TYPES | {"HUGEINT", "UHUGEINT", "DECIMAL", "VARCHAR", "ENUM", "BLOB", "UUID"}
_IDS |= {"DATE", "TIMESTAMP", "BOOLEAN"}
"""Types of which equal values are the same value, byte for byte."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A key by which rows of one table refer to rows of another one."""

    columns: tuple[str, ...]
    parent: str
    keys: tuple[str, ...]
    enforced: bool = True
    """Whether it is a FOREIGN KEY."""
    declared: bool = False
    """Whether the owner declares it: of ways that are as short as each other it tells which one is
    meant, also where it is a FOREIGN KEY besides."""

    def same(self, other: Edge) -> bool:
        """Whether both say the same, in whatever order they list their columns."""
        pairs = [set(zip(edge.columns, edge.keys, strict=True)) for edge in (self, other)]
        return self.parent == other.parent and pairs[0] == pairs[1]


@dataclass(frozen=True, slots=True)
class KeyCatalog:
    """The tables and views of one schema that a way may lead through, and their keys."""

    path: tuple[str, ...]
    columns: Mapping[str, Mapping[str, str]]
    """Table → column → type. Generated columns have the type ''."""
    edges: Mapping[str, Sequence[Edge]]
    """Table → what its rows refer to; references that are declared come last."""
    others: frozenset[tuple[str, str]]
    """Table and parent of each FOREIGN KEY that can't be followed."""
    primary: Mapping[str, tuple[str, ...]]
    """Table → its PRIMARY KEY."""
    unique: frozenset[tuple[str, frozenset[str]]] = frozenset()
    """Table and columns that tell its rows apart, as the database sees to it."""

    def type(self, table: str, column: str) -> str:
        """Return the type of a column; empty if it is generated, or there is none."""
        return self.columns.get(table, {}).get(column, "")

    def join(self, edge: Edge) -> KeyStep:
        """Return a key as a step of a way."""
        types = [self.type(edge.parent, key) for key in edge.keys]
        first, *further = map(KeyPair, edge.columns, edge.keys, types)
        path = (*self.path[:2], edge.parent)
        return KeyStep(first.column, path, first.key, first.type, tuple(further), edge.enforced)

    def own_key(self, table: str) -> tuple[str, ...] | None:
        """Return the columns by which rows of a table are told apart.

        They are its PRIMARY KEY, or what all declared references to it name; None if neither says.
        """
        if table in self.primary:
            return self.primary[table]
        edges = (edge for each in self.edges.values() for edge in each)
        named = {edge.keys for edge in edges if edge.parent == table and not edge.enforced}
        return named.pop() if len(named) == 1 else None

    def tables(self, text: str) -> list[tuple[str, ...]]:
        """Return all tables that a text means, with what stands before its name or without."""
        database, schema = self.path[:2]
        named = list[tuple[str, ...]]()
        for before in ("", f"{schema}.", f"{database}.{schema}."):
            if folded(text).startswith(folded(before)):
                table = match(text[len(before) :], self.columns)
                named += [] if table is None else [(database, schema, table)]
        return list(dict.fromkeys(named))

    def columns_in(self, path: tuple[str, ...]) -> Collection[str]:
        """Return the columns of a table."""
        return self.columns.get(path[-1], {})

    def is_of_units(self, table: str, columns: Collection[str]) -> bool:
        """Whether some columns tell rows of a table apart, or rows of others refer to them.

        Then its rows are units, or may be, and columns of another one are called so by chance.
        """
        ids = frozenset(columns)
        edges = (edge for each in self.edges.values() for edge in each)
        referred = any(edge.parent == table and ids == frozenset(edge.keys) for edge in edges)
        return referred or (table, ids) in self.unique

    def side(self, text: str) -> tuple[str, tuple[str, ...]] | None:
        """Read one side of a reference: `orders.customer_id`, or `orders.shop, orders.nr`.

        Names may have the database and the schema before them.

        Raises:
            SchemaError: it may mean columns of several tables, or several of one.
        """
        meant = columns_meant(self, text)
        if len(meant) > 1:
            shown = [as_text(self.written(one.path[-1], one.columns)) for one in meant]
            raise ambiguous(text, "A side of a reference", meant, shown)
        return (meant[0].path[-1], meant[0].columns) if meant else None

    def means(self, text: str) -> list[MeantName]:
        """Return all that a text may mean which names the unit of the table."""
        return meanings(self, text, self.path)

    def spelled(self, path: tuple[str, ...], columns: tuple[str, ...]) -> str | None:
        """Return how columns are named as the unit of the table; None if no name means them."""
        return spelled(MeantName(path, columns), self.means, self.path)

    def written(self, table: str, columns: tuple[str, ...]) -> str:
        """Write columns as one side of a reference."""
        meaning = MeantName((*self.path[:2], table), columns)
        text = spelled(meaning, partial(columns_meant, self))
        return text or ", ".join(f"{'.'.join(meaning.path)}.{column}" for column in columns)


def read_keys(
    stored: StoredKeys, path: tuple[str, ...], references: Mapping[str, str] | None = None
) -> KeyCatalog:
    """Read the keys of a schema.

    Args:
        stored: what the database's catalog has of them.
        path: database, schema and name of a table of it.
        references: what is declared; of that what is about other schemas is left out, and what
            can't be followed, which `check_references` refuses.
    """
    columns = stored.columns
    unique, edges = set[tuple[str, frozenset[str]]](), dict[str, list[Edge]]()
    others, primary = set[tuple[str, str]](), dict[str, tuple[str, ...]]()
    spelled = [_spelled(columns, each) for each in stored.keys]
    for table, kind, names, _, _ in spelled:
        if kind != "FOREIGN KEY":
            unique.add((table, frozenset(names)))
            primary |= {table: names} if kind == "PRIMARY KEY" else {}
    for table, kind, names, parent, keys in spelled:
        if kind != "FOREIGN KEY":
            continue
        if len(names) == len(keys) and (parent, frozenset(keys)) in unique:
            edges.setdefault(table, []).append(Edge(names, parent, keys))
        else:
            others.add((table, parent))
    known = frozenset(others), primary, frozenset(unique)
    catalog = KeyCatalog(path, columns, edges, *known)
    for table, edge in _declared(catalog, references or {}):
        edges_of_table = edges.setdefault(table, [])
        if any(edge.same(one) for one in edges_of_table):
            edges[table] = [
                replace(one, declared=True) if edge.same(one) else one for one in edges_of_table
            ]
        else:
            edges_of_table.append(edge)
    return catalog


def _declared(catalog: KeyCatalog, references: Mapping[str, str]) -> Iterator[tuple[str, Edge]]:
    """Return the declared references that can be followed, each with the table that refers."""
    for texts in references.items():
        child, parent = map(catalog.side, texts)
        if child is not None and parent is not None and fault(catalog, child, parent) is None:
            pairs = sorted(zip(child[1], parent[1], strict=True))
            columns, keys = zip(*pairs, strict=True)
            yield child[0], Edge(columns, parent[0], keys, enforced=False, declared=True)


def fault(
    catalog: KeyCatalog, child: tuple[str, tuple[str, ...]], parent: tuple[str, tuple[str, ...]]
) -> str | None:
    """Say why columns can't refer to others; None if they can.

    Types must be such that comparing never fails and that equal values are the same: a text that
    were read as a number would fail or not by what the rows hold.
    """
    if len(child[1]) != len(parent[1]):
        return "it has not as many columns on both sides"
    if len(set(child[1])) < len(child[1]) or len(set(parent[1])) < len(parent[1]):
        return "it names a column twice"
    for column, key in zip(child[1], parent[1], strict=True):
        types = catalog.type(child[0], column), catalog.type(parent[0], key)
        if not comparable(*types):
            shown = " and ".join(type_ or "GENERATED" for type_ in types)
            return f"{printable(column)} and {printable(key)} have the types {shown}"
    return None


def comparable(one: str, other: str) -> bool:
    """Whether comparing columns of two types never fails, and equal values are the same."""
    return compared_as(one) == compared_as(other) and is_id(one) and is_id(other)


def compared_as(type_: str) -> str:
    """Return what all types have in common that can be compared: whole numbers are of one kind."""
    return "INTEGER" if type_ in INTEGER_TYPES else type_


def is_id(type_: str) -> bool:
    """Whether values of a type tell units apart."""
    return type_.split("(")[0] in _IDS and not type_.endswith("]")


def _spelled(columns: Mapping[str, Mapping[str, str]], key: StoredKey) -> StoredKey:
    """Return a constraint with names as tables and columns have them.

    DuckDB keeps those in constraints as they were typed, where it ignores case.
    """
    child, other = _known(key.table, columns), _known(key.parent, columns)
    return StoredKey(
        child,
        key.kind,
        tuple(_known(name, columns.get(child, ())) for name in key.columns),
        other,
        tuple(_known(name, columns.get(other, ())) for name in key.keys),
    )


def _known(name: str, known: Collection[str]) -> str:
    """Return the known name that is meant, or else the name."""
    return name if name in known else match(name, known) or name


# ── References that the owner declares, wherever: in a call, a schema file, a comment of a table ─
#
#     COMMENT ON TABLE orders IS 'dpsql: {"references": {"customer_id": "customers.id"}}';
#
# They are facts about tables and not about one unit. So all that are declared anywhere hold for all
# tables: a way to the unit may lead through tables with declarations of their own, and whether rows
# of a table refer to each other in a circle must not depend on which of them is asked.


def references_for(
    catalog: Catalog,
    path: Sequence[str],
    schema: Schema | None,
    unit: DeclaredUnit,
) -> dict[str, str]:
    """Return all references that are declared: for whatever tables, and in comments of a schema.

    What a comment says that isn't understood is left out: a table with such a one is refused.

    Args:
        catalog: tells of the tables.
        path: database, schema and name of a table of that schema.
        schema: what is declared in a call or a file.
        unit: what is declared beside it.

    Raises:
        SchemaError: the catalog can't be read.
    """
    return _noted(catalog, path[:2]) | _given(schema, unit)


def comments(catalog: Catalog) -> list[TableComment]:
    """Return the tables and views that say something for dpsql, with what they say.

    Raises:
        SchemaError: the catalog can't be read.
    """
    return catalog.comments(PREFIX)


def _noted(catalog: Catalog, place: Sequence[str] = ()) -> dict[str, str]:
    """Return what comments say: of one schema of one database, or everywhere."""
    found: dict[str, str] = {}
    for path, comment in comments(catalog):
        if path[: len(place)] == tuple(place):
            with suppress(SchemaError):
                found |= references_of(path[-1], comment)
    return found


def _given(schema: Schema | None, unit: DeclaredUnit) -> dict[str, str]:
    units = [*schema.units.values(), unit] if schema is not None else [unit]
    references = {} if schema is None else dict(schema.references)
    for one in units:
        references |= one.references if isinstance(one, Unit) else {}
    return references


def check_references(catalog: Catalog, schema: Schema | None, unit: DeclaredUnit) -> None:
    """Check that references name columns, of one schema, that can be compared.

    Raises:
        SchemaError: one doesn't; the catalog can't be read.
    """
    given = _noted(catalog) | _given(schema, unit)
    if not given:
        return
    places = sorted(set(catalog.schemas()))
    known = [read_keys(catalog.keys(place), (*place, "")) for place in places]
    for child, parent in given.items():
        _check(child, parent, [one for one in known if one.columns])


def _check(child: str, parent: str, catalogs: Sequence[KeyCatalog]) -> None:
    found = [(one, one.side(child), one.side(parent)) for one in catalogs]
    for text, sides in ((child, [one[1] for one in found]), (parent, [one[2] for one in found])):
        if not any(sides):
            known = [
                f"{t}.{c}"
                for one in catalogs
                for t, columns in one.columns.items()
                for c in columns
            ]
            raise SchemaError(
                f"A reference names {printable(text)}, which is no column of a table.",
                hint=closest(text, known),
            )
    both = [(one, a, b) for one, a, b in found if a is not None and b is not None]
    if not both:
        raise SchemaError(
            f"{printable(child)} and {printable(parent)} are not columns of one schema of one "
            "database.",
            hint="keep tables that refer to each other in one schema.",
        )
    faults = [fault(*each) for each in both]
    if None not in faults:
        raise SchemaError(
            f"{printable(child)} can't refer to {printable(parent)}: {faults[0]}.",
            hint="let both sides have the same columns, of integer, VARCHAR or UUID types; CAST "
            "them where the tables are made.",
        )


def check_way(catalog: Catalog, table: str, unit: ResolvedUnit) -> None:
    """Check that a way to a unit leads through stored tables.

    A step of a way reads rows as they stand. Those of a view may be computed of rows of several
    units: what one of them has would follow from others.

    Raises:
        SchemaError: it leads through a view; the catalog can't be read.
    """
    for join in unit.joins:
        if not join.enforced and not is_table(catalog, join.path):
            view = join.path
            raise SchemaError(
                f"The unit of {printable(table)} is in another table, {printable(view[-1])}, "
                "which is a view, so it isn't clear whose its rows are.",
                hint=f"store the id in a column of {printable(table)}; or "
                f"{storing(catalog, view[1:], view)}",
            )
