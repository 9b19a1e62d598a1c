"""Visible columns: the names that the clauses of one SELECT over a relation may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.errors import SchemaError, Span, SqlError, SqlSchemaError, printable
from dpsql.rel.facts import UNIT
from dpsql.rows.windows import RANKS
from dpsql.schema import Domain, Table
from dpsql.schema.names import as_sql, closest, folded, unknown
from dpsql.sql.algebra.described import DescribedRelation, id_of, moved, places
from dpsql.sql.binding.expressions import BoundExpr, Expr
from dpsql.sql.binding.row_queries import Home
from dpsql.sql.binding.scope import (
    Found,
    PrivateColumn,
    PublicColumn,
    RowQueryColumn,
    Scope,
    qualifier_of,
)
from dpsql.sql.text.spans import SourceText

_NUMBERS = {"count": 0, "count_distinct": 0, **dict.fromkeys(RANKS, 1)}
"""Functions that are numbers of rows, or of places → the least that they can be."""
MADE = "\x00"
"""The name of a column that a clause has added begins with it: none of an analyst does."""


def made_column(id_: str, span: Span) -> exp.Column:
    """Refer to a column of the relation by its id, in place of what it is computed from."""
    found = exp.Column(this=exp.Identifier(this=MADE + id_, quoted=True))
    found.this.meta.update(start=span[0], end=span[1] - 1)
    found.meta.update(start=span[0], end=span[1] - 1)
    return found


def made_value(function: str, id_: str, span: Span) -> Expr:
    """Refer to a column by its id, in words that say what is the least that it can be.

    So expressions of it have known values where they have a largest one: `LEAST(n, 5)`. And it is
    said to be whole, so that groups by it are of numbers between its bounds.
    """
    made = made_column(id_, span)
    if function not in _NUMBERS:
        return made
    least = exp.Literal.number(_NUMBERS[function])
    found = exp.Greatest(this=made, expressions=[least])
    whole = exp.Cast(this=found, to=exp.DataType.build("BIGINT"))
    for node in (whole, found, least):
        node.meta.update(made.meta)
    return whole


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column of an item after FROM: an expression over the relation."""

    name: str
    value: BoundExpr


@dataclass(frozen=True, slots=True)
class VisibleItem:
    """An item after FROM, with its columns in order."""

    alias: str
    path: tuple[str, ...]
    """The parts of its table's name, by which it may be called without an alias."""
    columns: tuple[NamedColumn, ...]

    def is_called(self, qualifier: tuple[str, ...]) -> bool:
        """Whether a name before a point means it."""
        if not qualifier or qualifier == (folded(self.alias),):
            return True
        path = tuple(map(folded, self.path))
        return len(qualifier) > 1 and path[-len(qualifier) :] == qualifier

    def moved(self, before: Table, after: Table) -> VisibleItem:
        """Return it over the columns of another table."""
        columns = tuple(NamedColumn(c.name, moved(c.value, before, after)) for c in self.columns)
        return VisibleItem(self.alias, self.path, columns)


def telling_equality(
    items: Sequence[VisibleItem], of: DescribedRelation, item: VisibleItem, other: DescribedRelation
) -> str | None:
    """Write an equality by which rows of two relations are of one unit; None if there is none.

    One of what tells the unit itself goes before one of rows that are the unit's.
    """
    theirs = [(c.name, id_of(c.value, other.table)) for c in item.columns]
    found: dict[bool, str] = {}
    for one in items if item.alias else ():
        for column in one.columns if one.alias != item.alias else ():
            own = id_of(column.value, of.table)
            for name, id_ in theirs if own is not None else ():
                if own is not None and id_ is not None and of.telling(own, id_, other):
                    sides = (item.alias, name), (one.alias, column.name)
                    written = " = ".join(".".join(map(as_sql, filter(None, s))) for s in sides)
                    found.setdefault(UNIT in of.keys_of(own) & other.keys_of(id_), written)
    return found.get(True, found.get(False))


def telling_column(items: Sequence[VisibleItem], of: DescribedRelation) -> str:
    """Write a column that tells the unit of each row, with a space; nothing if none is visible."""
    found: dict[bool, str] = {}
    for item in items:
        for column in item.columns:
            tells = of.tells.get(id_of(column.value, of.table) or "")
            if tells:
                parts = (item.alias, column.name) if len(items) > 1 else (column.name,)
                written = ".".join(map(as_sql, filter(None, parts)))
                found.setdefault(UNIT in tells, f"{written} ")
    return found.get(True, found.get(False, ""))


@dataclass(frozen=True, slots=True)
class Visible:
    """All that is visible in one SELECT.

    Args:
        table: the columns of its relation.
        items: what stands after FROM.
        merged: names after USING, in small letters, that mean the first item that has them.
        outer: what is visible around it.
        owners: columns → the stored table and column that they are, for messages.
        ids: columns of the relation → what the table calls them, where that is something else.
    """

    table: Table
    items: tuple[VisibleItem, ...]
    merged: frozenset[str] = frozenset()
    outer: tuple[VisibleItem, ...] = ()
    owners: Mapping[str, tuple[Table, str]] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)


class RelationScope(Scope):
    """The columns of a relation under the names that a SELECT knows them by."""

    def __init__(self, source: SourceText, visible: Visible, aliases: Mapping[str, Expr]) -> None:
        super().__init__(source, visible.table, None, aliases)
        self._visible, self._at = visible, places(visible.table)

    def owns(self, node: exp.Column) -> bool:
        """Whether a column is one of the relation."""
        return bool(self._named(node, self._visible.items))

    def _is_private(self, name: str) -> bool:
        return any(folded(c.name) == folded(name) for i in self._visible.items for c in i.columns)

    def whole(self, name: str) -> str:
        """Write a column, with the item whose it is if there are several."""
        owners = [
            item
            for item in self._visible.items
            if any(folded(c.name) == folded(name) for c in item.columns)
        ]
        alone = not owners or len(self._visible.items) == 1
        return as_sql(name) if alone else f"{as_sql(owners[0].alias)}.{as_sql(name)}"

    def resolve(self, node: exp.Column, *, by_row: bool = False) -> Found | exp.Expr:
        """Return what a column means; see `Scope.resolve`."""
        if isinstance(node.this, exp.Star):
            raise self._source.unsupported(node, "* can't stand here.", "name the columns.")
        if node.name.startswith(MADE):
            made = node.name.removeprefix(MADE)
            id_ = self._visible.ids.get(made, made)
            return PrivateColumn(id_, id_, self._at[id_], id_ in self._visible.table.undeclared)
        name, qualifier = node.name, qualifier_of(node)
        public: list[PublicColumn] = self._public(name, qualifier)
        found = self._named(node, self._visible.items)
        if not qualifier and folded(name) in {*self._visible.merged, *self._merged}:
            public, found = [], found[:1]
        if len(found) + len(public) > 1:
            owner = found[0][0].alias
            raise self._source.error(
                node,
                f"The column {printable(name)} is ambiguous.",
                f"write whose it is: {as_sql(owner)}.{as_sql(name)}.",
                SqlSchemaError,
            )
        if public:
            return public[0]
        if not found and not qualifier and folded(name) in self._aliases:
            return self._aliases[folded(name)]
        found = found or self._named(node, self._visible.outer)
        if not found:
            raise self._unknown(node)
        return self._meant(node, found[0][1], by_row=by_row)

    def _named(
        self, node: exp.Column, items: Sequence[VisibleItem]
    ) -> list[tuple[VisibleItem, NamedColumn]]:
        name, qualifier = folded(node.name), qualifier_of(node)
        return [
            (item, one)
            for item in items
            if item.is_called(qualifier)
            for one in [next((c for c in item.columns if folded(c.name) == name), None)]
            if one is not None
        ]

    def _meant(self, node: exp.Column, one: NamedColumn, *, by_row: bool) -> Found:
        id_ = id_of(one.value, self._visible.table)
        if id_ is None:
            return RowQueryColumn(one.name, exp.Literal.number(0), _Computed(self, one.value))
        undeclared = id_ in self._visible.table.undeclared
        if undeclared and not by_row:
            raise self._undeclared(node, id_)
        return PrivateColumn(one.name, id_, self._at[id_], undeclared)

    def _undeclared(self, node: exp.Column, id_: str) -> SqlError:
        table, name = self._visible.owners.get(id_, (None, ""))
        try:
            if table is not None:
                table.column(name)
        except SchemaError as error:
            return self._source.located(error, node)
        return self._source.error(
            node,
            f"The values of {printable(node.name)} have no public list.",
            "limit it to few values, LEAST(…, 20), or compare it with a constant.",
            SqlSchemaError,
        )

    def _called(self) -> list[str]:
        return [item.alias for item in (*self._visible.items, *self._visible.outer)]

    def _unknown(self, node: exp.Column) -> SqlError:
        qualifier = qualifier_of(node)
        if self._is_row_id(node.name):
            return self._row_id(node)
        items = (*self._visible.items, *self._visible.outer)
        if qualifier and not any(item.is_called(qualifier) for item in items):
            return self._unknown_qualifier(node, qualifier)
        known = [c.name for item in self._visible.items for c in item.columns]
        message = f"There is no column {printable(node.name)} here."
        return self._source.located(unknown(message, closest(node.name, known, as_sql)), node)


class _Computed:
    """Stands for an expression that is bound already."""

    def __init__(self, scope: Scope, value: BoundExpr) -> None:
        self.scope, self._value = scope, value

    def bind(self, node: Expr) -> BoundExpr:
        """Return it."""
        return self._value

    def domain_of(self, node: Expr) -> tuple[str, Domain] | None:
        """Know of no column."""


@dataclass(frozen=True, slots=True)
class RelationHome(Home):
    """The rows that a SELECT over a relation counts."""

    visible: Visible | None = None

    def scope(self, source: SourceText, aliases: Mapping[str, Expr]) -> Scope:
        """Return what is visible in it."""
        if self.visible is None:
            return Home.scope(self, source, aliases)
        return RelationScope(source, self.visible, aliases)
