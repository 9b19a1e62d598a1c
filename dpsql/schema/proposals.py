"""Proposals for the owner's declarations: guesses at whose the rows are, and what refers to what.

They are made of FOREIGN KEYs and of names and types of columns. No row is read, so nothing about
the data can be in them. What is guessed together can be declared together: each unit is looked for
as it will be, with all references that are guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from dpsql.errors import SchemaError
from dpsql.schema.declarations import Schema
from dpsql.schema.drafts import PERSONS, singles_out
from dpsql.schema.facts import Catalog
from dpsql.schema.keys import KeyCatalog, check_way, comparable, read_keys, references_for
from dpsql.schema.names import folded
from dpsql.schema.references import ids_of, leads_to, resolve_unit
from dpsql.schema.table import Table
from dpsql.schema.units import Unit

_KEY = re.compile(r"(?P<of>.+?)_*(?P<end>id|key|nr|no|num|number|code|uuid)", re.IGNORECASE)
_OF_ANYTHING = frozenset({"id", "ids", "uuid", "guid", "name", "serial", "address"})
_SIGNS = frozenset(".,\"'")
"""Signs that mean something in a reference."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal for the declarations of one table."""

    unit: str = ""
    """The key of its unit; empty if none is likely."""
    root: str = ""
    """The table whose rows are the units, where its name or FOREIGN KEYs say so."""
    others: tuple[str, ...] = ()
    """Other keys that may be meant."""
    leading: tuple[str, ...] = ()
    """If it is the root: the tables that lead to it."""
    lacking: str = ""
    """The column of the root that its rows should have, if they lead there by other files alone."""
    references: Mapping[str, str] = field(default_factory=dict)
    """Column of it → the column of another table that it looks like."""


def proposed(
    catalog: Catalog, tables: Sequence[Table], declared: Schema | None = None
) -> dict[tuple[str, ...], Proposal]:
    """Propose units and references for tables of which nothing says them.

    Args:
        catalog: tells of the tables.
        tables: the tables, as described.
        declared: what is declared already.

    Returns:
        Path of a table → what may be declared of it, if there is something.

    Raises:
        SchemaError: the catalog can't be read.
    """
    found: dict[tuple[str, ...], Proposal] = {}
    for place in dict.fromkeys(table.path[:2] for table in tables):
        own = [table for table in tables if table.path[:2] == place]
        found |= _Proposals(catalog, own, declared).of_tables()
    return found


class _Proposals:
    """Proposes for the tables of one schema."""

    def __init__(self, catalog: Catalog, tables: Sequence[Table], declared: Schema | None) -> None:
        path = tables[0].path
        known = references_for(catalog, path, declared, None)
        self._facts, self._tables = catalog, tables
        self._stored = catalog.keys(path)
        self._guessed = dict(_guessed(read_keys(self._stored, path, known)))
        self._references = known | {
            f"{table}.{column}": key for (table, column), key in self._guessed.items()
        }
        self._catalog = read_keys(self._stored, path, self._references)

    def of_tables(self) -> Iterator[tuple[tuple[str, ...], Proposal]]:
        """Yield what may be declared, with the path of each table."""
        roots = self._roots()
        for table in self._tables:
            own = {c: key for (name, c), key in self._guessed.items() if name == table.name}
            unit = Proposal()
            if roots and table.unit is None and not table.each_row:
                unit = self._unit(table, roots)
            if own or unit.root:
                yield table.path, replace(unit, references=own)

    def _roots(self) -> list[str]:
        """Return tables whose rows may be units, the likeliest first.

        Those that look like persons by their name; else those to which the most tables lead.
        """
        lead = {name: leads_to(self._catalog, name) for name in self._catalog.columns}
        likely = [name for name in lead if lead[name] or _is_of_persons(name)]
        likely.sort(key=lambda name: (not _is_of_persons(name), -len(lead[name]), name))
        likely = likely if likely and lead[likely[0]] else []
        return [name for name in likely if lead[name]]

    def _unit(self, table: Table, roots: Sequence[str]) -> Proposal:
        """Propose a unit: the likeliest root, or a column that refers to it."""
        root = roots[0]
        if table.name == root:
            leading = leads_to(self._catalog, root)
            return Proposal(next(self._valid(table, [root]), ""), root, leading=leading)
        if table.name not in leads_to(self._catalog, root):
            return Proposal(root=root)
        key, *others = [*self._valid(table, [root, *ids_of(self._catalog, table.name, root)]), ""]
        if not key:
            id_, *_ = self._catalog.own_key(root) or ("id",)
            return Proposal(root=root, lacking=id_)
        further = [name for name in roots[1:] if table.name in leads_to(self._catalog, name)]
        others = [name for name in others if name and key != root]
        also = [name for name in self._valid(table, further) if _is_of_persons(name)]
        return Proposal(key, root, (*others, *also))

    def _valid(self, table: Table, keys: Sequence[str]) -> Iterator[str]:
        """Yield those keys that could be declared as the unit of a table."""
        for key in keys:
            with suppress(SchemaError):
                unit = resolve_unit(self._stored, table.path, Unit(key, 1, self._references))
                check_way(self._facts, table.name, unit)
                yield key


def _guessed(catalog: KeyCatalog) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield columns that look like keys of other tables, each with the column that is meant."""
    for table, columns in catalog.columns.items():
        edges = catalog.edges.get(table, ())
        referring = {column for edge in edges for column in edge.columns}
        met = {edge.parent for edge in edges}
        for column in columns:
            if column in referring or not _SIGNS.isdisjoint(table + column):
                continue
            found = [each for each in _keys(catalog, table, column) if each[0] not in met]
            if len(found) == 1:
                yield (table, column), ".".join(found[0])


def _keys(catalog: KeyCatalog, table: str, column: str) -> Iterator[tuple[str, str]]:
    """Yield the columns of other tables whose values a column may have."""
    for other, columns in catalog.columns.items():
        if other == table or not _SIGNS.isdisjoint(other):
            continue
        for key in _own_keys(catalog, other, column):
            types = catalog.type(table, column), catalog.type(other, key)
            if key in columns and _SIGNS.isdisjoint(key) and comparable(*types):
                yield other, key
                break


def _own_keys(catalog: KeyCatalog, other: str, column: str) -> Iterator[str]:
    """Yield the columns of a table that one of another table may mean, the likeliest first.

    `customer_id` is `customers.id` or `customers.customer_id`; `tailnum` that of the table of which
    it is the PRIMARY KEY.
    """
    names = {folded(name): name for name in catalog.columns[other]}
    primary = catalog.primary.get(other, ())
    same = names.get(folded(column))
    if same is not None and primary == (same,) and _says_whose(column):
        yield same
    parts = _KEY.fullmatch(column)
    if parts is not None and _singular(other) == folded(parts["of"]).rstrip("_"):
        yield from (names[n] for n in (folded(parts["end"]), folded(column)) if n in names)


def _says_whose(column: str) -> bool:
    """Whether a column of this name tells rows apart, and says of what."""
    return singles_out(column) and folded(column) not in _OF_ANYTHING


def _is_of_persons(table: str) -> bool:
    return _singular(table) in PERSONS


def _singular(name: str) -> str:
    """Return the singular of a table's name, as far as spelling tells it."""
    name = folded(name)
    if name in PERSONS:
        return name
    for ending, single in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("s", "")):
        if name.endswith(ending) and not name.endswith("ss"):
            return name.removesuffix(ending) + single
    return name
