"""References between rows that meet: equalities by which one row refers to another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from dpsql.rel.facts import Known
from dpsql.rel.keys import same_rows
from dpsql.rel.nodes import Id, Scan
from dpsql.schema import Table
from dpsql.schema.table import Parent
from dpsql.sql.algebra.described import DescribedRelation
from dpsql.sql.binding.tables import NamedTables

_Stored: TypeAlias = tuple[Table, str]
"""A column of a stored table."""


class References:
    """The references that equalities of columns follow.

    Args:
        tables: what names of tables mean, and what their rows refer to.
        known: the facts about relations.
    """

    def __init__(self, tables: NamedTables, known: Known) -> None:
        self._tables, self._known = tables, known

    def step(
        self, of: DescribedRelation, other: DescribedRelation, pairs: Iterable[tuple[Id, Id]]
    ) -> Parent | None:
        """Return by which columns one row refers to another, if these are several and all equal."""
        found: dict[tuple[str, str], list[tuple[_Stored, _Stored]]] = {}
        for a, b in pairs:
            if a in of.ids_of and b in other.ids_of:
                one, to = of.ids_of[a], other.ids_of[b]
                scans = a.removesuffix(one[1]), b.removesuffix(to[1])  # rows may be there twice
                found.setdefault(scans, []).append((one, to))
        ways = (way for said in found.values() for way in (said, [(to, one) for one, to in said]))
        return next((step for way in ways for step in self._steps(way)), None)

    def equalities(
        self, of: DescribedRelation, other: DescribedRelation, pairs: Sequence[tuple[Id, Id]]
    ) -> list[tuple[Id, Id]]:
        """Return the equalities by which rows refer to those of a table, if there are such."""
        for table in {
            of.ids_of[a][0].path: of.ids_of[a][0] for a, _ in pairs if a in of.ids_of
        }.values():
            for parent in self._tables.grain(table).parents:
                keys = {(pair.column, pair.key) for pair in parent.join.pairs}
                found = [
                    (a, b)
                    for a, b in pairs
                    if a in of.ids_of
                    and b in other.ids_of
                    and of.ids_of[a][0].path == table.path
                    and other.ids_of[b][0].path == parent.table.path
                    and (of.ids_of[a][1], other.ids_of[b][1]) in keys
                ]
                if not parent.above and len(found) == len(keys):
                    return found
        return []

    def is_one(
        self, of: DescribedRelation, other: DescribedRelation, pairs: Iterable[tuple[Id, Id]]
    ) -> bool:
        """Whether rows refer to those of a table by equal columns, as somebody declares.

        It is one row if each of the table is on the right once at most.
        """
        stored = [
            (of.ids_of[a], other.ids_of[b])
            for a, b in pairs
            if a in of.ids_of and b in other.ids_of
        ]
        below = same_rows(other.relation, self._known)
        once = {node.source.table.path for node in below if isinstance(node, Scan)}
        equal = {(child.path, column, key) for (child, column), (_, key) in stored}
        children = {child.path: child for (child, _), _ in stored}
        return any(
            {(child.path, pair.column, pair.key) for pair in parent.join.pairs} <= equal
            for child in children.values()
            for parent in self._tables.grain(child).parents
            if not parent.above and parent.table.path in once
        )

    def _steps(self, said: Sequence[tuple[_Stored, _Stored]]) -> Iterator[Parent]:
        """Yield the references of several columns that equal columns of two rows are."""
        (child, _), (to, _) = said[0]
        equal = {(column, key) for (_, column), (_, key) in said}
        for parent in self._tables.grain(child).parents if len(equal) > 1 else ():
            own = {(pair.column, pair.key) for pair in parent.join.pairs}
            if not parent.above and parent.table.path == to.path and own <= equal:
                yield parent
