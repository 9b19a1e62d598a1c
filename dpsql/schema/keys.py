"""Which tables of a schema refer to each other: FOREIGN KEYs, and references that are declared.

References that are declared are not enforced: the database lets several rows have the same key, and
rows refer to none. So they are told apart from FOREIGN KEYs wherever it matters (`Edge.enforced`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpsql.errors import SchemaError, printable
from dpsql.schema.domain import INTEGER_TYPES
from dpsql.schema.facts import StoredKey, StoredKeys
from dpsql.schema.names import folded
from dpsql.schema.units import Join, KeyPair

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

    def same(self, other: Edge) -> bool:
        """Whether both say the same, in whatever order they list their columns."""
        pairs = [set(zip(edge.columns, edge.keys, strict=True)) for edge in (self, other)]
        return self.parent == other.parent and pairs[0] == pairs[1]


@dataclass(frozen=True, slots=True)
class KeyCatalog:
    """What a way may lead through: tables and views of one schema."""

    path: tuple[str, ...]
    columns: Mapping[str, Mapping[str, str]]
    """Table → column → type. Generated columns have the type ''."""
    edges: Mapping[str, Sequence[Edge]]
    """Table → what its rows refer to; references that are declared come last."""
    others: frozenset[tuple[str, str]]
    """Table and parent of each FOREIGN KEY that can't be followed."""
    primary: Mapping[str, tuple[str, ...]]
    """Table → its PRIMARY KEY."""

    def type(self, table: str, column: str) -> str:
        """Return the type of a column; empty if it is generated, or there is none."""
        return self.columns.get(table, {}).get(column, "")

    def join(self, edge: Edge) -> Join:
        """Return a key as a step of a way."""
        types = [self.type(edge.parent, key) for key in edge.keys]
        first, *further = map(KeyPair, edge.columns, edge.keys, types)
        path = (*self.path[:2], edge.parent)
        return Join(first.column, path, first.key, first.type, tuple(further), edge.enforced)

    def own_key(self, table: str) -> tuple[str, ...] | None:
        """Return the columns by which rows of a table are told apart.

        They are its PRIMARY KEY, or what all declared references to it name; None if neither says.
        """
        if table in self.primary:
            return self.primary[table]
        edges = (edge for each in self.edges.values() for edge in each)
        named = {edge.keys for edge in edges if edge.parent == table and not edge.enforced}
        return named.pop() if len(named) == 1 else None

    def side(self, text: str) -> tuple[str, tuple[str, ...]] | None:
        """Read one side of a reference: `orders.customer_id`, or `orders.shop, orders.nr`.

        Names may have the database and the schema before them.
        """
        database, schema = self.path[:2]
        for parts in ([text], text.split(",")):
            found = [self._column(part.strip(), (database, schema)) for part in parts]
            tables = {each[0] for each in found if each is not None}
            if None not in found and len(tables) == 1:
                return tables.pop(), tuple(each[1] for each in found if each is not None)
        return None

    def _column(self, text: str, place: tuple[str, str]) -> tuple[str, str] | None:
        for before in ("", f"{place[1]}.", f"{'.'.join(place)}."):
            if folded(text).startswith(folded(before)):
                table, column = target(self.columns, text[len(before) :])
                if table is not None and column is not None:
                    return table, column
        return None


def read_keys(
    stored: StoredKeys, path: tuple[str, ...], references: Mapping[str, str] | None = None
) -> KeyCatalog:
    """Read the keys of a schema.

    Args:
        stored: what the database's catalog has of them.
        path: database, schema and name of a table of it.
        references: what is declared; of that what is about other schemas is left out, and what
            can't be followed, which `declared_keys.py` refuses.
    """
    columns = stored.columns
    unique, edges = set[tuple[str, frozenset[str]]](), dict[str, list[Edge]]()
    others, primary = set[tuple[str, str]](), dict[str, tuple[str, ...]]()
    found = [_spelled(columns, each) for each in stored.keys]
    for table, kind, names, _, _ in found:
        if kind != "FOREIGN KEY":
            unique.add((table, frozenset(names)))
            primary |= {table: names} if kind == "PRIMARY KEY" else {}
    for table, kind, names, parent, keys in found:
        if kind != "FOREIGN KEY":
            continue
        if len(names) == len(keys) and (parent, frozenset(keys)) in unique:
            edges.setdefault(table, []).append(Edge(names, parent, keys))
        else:
            others.add((table, parent))
    catalog = KeyCatalog(path, columns, edges, frozenset(others), primary)
    for table, edge in _declared(catalog, references or {}):
        if not any(edge.same(known) for known in edges.get(table, ())):
            edges.setdefault(table, []).append(edge)
    return catalog


def _declared(catalog: KeyCatalog, references: Mapping[str, str]) -> Iterator[tuple[str, Edge]]:
    """Return the declared references that can be followed, each with the table that refers."""
    for texts in references.items():
        child, parent = map(catalog.side, texts)
        if child is not None and parent is not None and fault(catalog, child, parent) is None:
            pairs = sorted(zip(child[1], parent[1], strict=True))
            columns, keys = zip(*pairs, strict=True)
            yield child[0], Edge(columns, parent[0], keys, enforced=False)


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
    same = one == other or INTEGER_TYPES.issuperset((one, other))
    return same and is_id(one) and is_id(other)


def is_id(type_: str) -> bool:
    """Whether values of a type tell units apart."""
    return type_.split("(")[0] in _IDS and not type_.endswith("]")


def _spelled(columns: Mapping[str, Mapping[str, str]], key: StoredKey) -> StoredKey:
    """Return a constraint with names as tables and columns have them.

    DuckDB keeps those in constraints as they were typed, where it ignores case.
    """
    own, other = _known(key.table, columns), _known(key.parent, columns)
    return StoredKey(
        own,
        key.kind,
        tuple(_known(name, columns.get(own, ())) for name in key.columns),
        other,
        tuple(_known(name, columns.get(other, ())) for name in key.keys),
    )


def _known(name: str, known: Collection[str]) -> str:
    """Return the known name that is meant, or else the name."""
    return name if name in known else match(name, known) or name


def match(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is meant; SQL ignores case.

    Raises:
        SchemaError: it may be several, since DuckDB keeps names like Ä and ä apart.
    """
    found = [k for k in known if folded(k) == folded(name)]
    if len(found) > 1:
        shown = " and ".join(map(printable, found[:2]))
        raise SchemaError(
            f"{printable(name)} may mean {shown}, which differ in case only.",
            hint="rename one of them.",
        )
    return found[0] if found else None


def target(columns: Mapping[str, Mapping[str, str]], key: str) -> tuple[str | None, str | None]:
    """Read a key as a table, or as a table and its column."""
    table = match(key, columns)
    if table is not None:
        return table, None
    for at in range(len(key)):
        table = match(key[:at], columns) if key[at] == "." else None
        column = match(key[at + 1 :], columns[table]) if table is not None else None
        if column is not None:
            return table, column
    return None, None
