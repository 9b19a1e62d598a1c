"""Names: what a column means inside a core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from dpsql.errors import SchemaError, Span, SqlError, SqlSchemaError, printable
from dpsql.hints import instead, never
from dpsql.schema import Domain, Table
from dpsql.schema.names import as_sql, closest, folded, nearest, quoted_text, unknown
from dpsql.schema.table import Parent
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import BoundExpr, Expr
from dpsql.sql.text.spans import SourceText

_ROW_IDS = {"rowid", "row_id"}


@dataclass(frozen=True, slots=True)
class PrivateColumn:
    """A column of a private table."""

    shown: str
    """What it is called there."""
    name: str
    """What it is called in the table whose rows are counted."""
    canonical: str
    by_row: bool = False
    """Whether it has no domain: only what is evaluated row by row may depend on it."""


@dataclass(frozen=True, slots=True)
class PublicColumn:
    """A column of a public relation."""

    relation: int
    canonical: str


@dataclass(frozen=True, slots=True)
class RowQueryColumn:
    """A column of a query of private rows: an expression over what stands after its FROM."""

    name: str
    node: exp.Expr
    inside: Binder
    mixed: bool = False
    """Whether it is different expressions in different rows: `inside` knows which."""
    size: int = 1
    """The number of its parts, with the columns in it replaced by what they stand for."""

    def at(self, place: exp.Column) -> exp.Expr:
        """Return the expression; a mere column stands, for messages, where it is used."""
        inner = self.node.unnest()
        if not isinstance(inner, exp.Column):
            return self.node
        found = inner.copy()
        for part in found.parts:
            part.meta.clear()
        found.this.meta.update(place.this.meta)
        return found


class Binder(Protocol):
    """Binds what is computed for each row of one SELECT."""

    @property
    def scope(self) -> Scope:
        """The scope that says what names mean there."""

    def bind(self, node: exp.Expr) -> BoundExpr:
        """Bind an expression."""

    def domain_of(self, node: exp.Expr) -> tuple[str, Domain] | None:
        """Return name and domain of a private column; None if it is none, or has none."""


Found = PrivateColumn | PublicColumn | RowQueryColumn


class Scope:
    """The private table and the public relations after FROM, and the aliases of SELECT.

    Args:
        source: the statement's text.
        table: the table whose rows are counted.
        alias: what the private table is called.
        aliases: those of SELECT.
        parent: if it is not that table: which of the rows that its rows refer to.
    """

    def __init__(
        self,
        source: SourceText,
        table: Table,
        alias: str | None,
        aliases: Mapping[str, exp.Expr],
        parent: Parent | None = None,
    ) -> None:
        self._source = source
        self._table = table.alone if parent is None else parent.table
        self._alias = alias
        self._aliases = aliases
        self._relations: list[Relation] = []
        self._parents: list[Scope] = []
        self._merged: set[str] = set()
        self._kept: set[str] = set()
        places = {name: f"__a{i}" for i, name in enumerate(table.columns)}
        places |= {name: f"__w{i}" for i, name in enumerate(table.undeclared)}
        own = (*self._table.columns, *self._table.undeclared)
        names = {name: name for name in own} if parent is None else parent.names
        self._places = {name: (names[name], places[names[name]]) for name in own}
        """Column → what it is called in the table whose rows are counted, and in expressions."""

    def join(self, parent: Scope) -> None:
        """Make the columns of rows visible that the private ones refer to."""
        self._parents.append(parent)

    def owns(self, node: exp.Column) -> bool:
        """Whether a column may be one of the private table."""
        return self._is_private(node.name) and self._is_table(qualifier_of(node))

    def add(self, relation: Relation) -> None:
        """Make the columns of a relation visible."""
        self._relations.append(relation)

    def hide(self, relation: Relation) -> None:
        """Make the columns of a relation invisible, which only chose rows."""
        self._relations = [one for one in self._relations if one.number != relation.number]

    def keep(self, names: Sequence[str]) -> None:
        """Let a name after USING mean the column of a relation of which all rows are kept."""
        self._kept |= {folded(name) for name in names}

    def merge(self, names: Sequence[str]) -> None:
        """Let a name after USING mean the private table's column, if it has one."""
        for name in names:
            if self._is_private(name):
                self._merged.add(folded(name))

    def has(self, name: str) -> bool:
        """Whether the private table has a column of this name."""
        return self._is_private(name)

    def whole(self, name: str) -> str:
        """Write a column of the private table, with the table if others are joined."""
        joined = self._parents or self._relations
        return f"{as_sql(self._name)}.{as_sql(name)}" if joined else as_sql(name)

    def resolve(self, node: exp.Column, *, by_row: bool = False) -> Found | exp.Expr:
        """Return what a column means; an expression if it is an alias of the SELECT list.

        Args:
            node: the column.
            by_row: whether it stands in something that may be evaluated row by row, so that it
                needs no public domain.

        Raises:
            SqlSchemaError: there is no such column, or it has no public domain, or several
                relations have it.
            UnsupportedSqlError: it singles out rows.
        """
        if isinstance(node.this, exp.Star):
            raise self._source.unsupported(node, "* can't stand here.", "name the columns.")
        name, qualifier = node.name, qualifier_of(node)
        public = self._public(name, qualifier)
        private = [scope for scope in (self, *self._parents) if scope.owns(node)]
        if folded(name) in self._kept and not qualifier:
            private = []
        elif folded(name) in self._merged and not qualifier:
            public, private = [], private[:1]
        if len(public) + len(private) > 1:
            numbers = {relation.number: relation.alias for relation in self._relations}
            owner = private[0]._name if private else numbers[public[0].relation]
            raise self._source.error(
                node,
                f"The column {printable(name)} is ambiguous.",
                "write whose it is: " + instead(f"{as_sql(owner)}.{as_sql(name)}") + ".",
                SqlSchemaError,
            )
        if public:
            return public[0]
        if not private and not qualifier and folded(name) in self._aliases:
            return self._aliases[folded(name)]
        named = [scope for scope in (self, *self._parents) if scope._is_table(qualifier)]
        scope = next(iter(private or (named if qualifier else [])), self)
        return scope._private(node, name, qualifier, by_row=by_row)

    def _public(self, name: str, qualifier: tuple[str, ...]) -> list[PublicColumn]:
        found = []
        for relation in self._relations:
            if qualifier and qualifier != (folded(relation.alias),):
                continue
            places = [i for i, c in enumerate(relation.columns) if folded(c) == folded(name)]
            if not places and not qualifier and folded(name) == folded(relation.alias):
                places = [0] if len(relation.columns) == 1 else []
            found += [
                PublicColumn(relation.number, f"__r{relation.number}_{i}") for i in places[:1]
            ]
        return found

    @property
    def _name(self) -> str:
        return self._alias or self._table.name

    def _is_private(self, name: str) -> bool:
        known = (*self._table.columns, *self._table.undeclared)
        return any(folded(name) == folded(column) for column in known)

    def _is_table(self, qualifier: tuple[str, ...]) -> bool:
        if self._alias and qualifier:  # it hides the table's own name, as everywhere in SQL
            return qualifier == (folded(self._alias),)
        return not qualifier or self._table.is_called(qualifier)

    def _private(
        self, node: exp.Column, name: str, qualifier: tuple[str, ...], *, by_row: bool
    ) -> PrivateColumn | RowQueryColumn:
        if not self._is_table(qualifier):
            raise self._unknown_qualifier(node, qualifier)
        if self._is_row_id(name):
            raise self._row_id(node)
        plain = next((n for n in self._table.undeclared if folded(n) == folded(name)), None)
        if by_row and plain is not None:
            return PrivateColumn(plain, *self._places[plain], by_row=True)
        try:
            found = self._table.column(name)
        except SchemaError as error:
            hint = self._hint_for_label(name) or self._hint_for_public(name)
            hint = hint or self._hint_for_quotes(node, name)
            raise self._source.located(error, node, hint) from None
        return PrivateColumn(found, *self._places[found])

    def _unknown_qualifier(self, node: exp.Column, qualifier: tuple[str, ...]) -> SqlError:
        shown = printable(".".join(qualifier))
        known = [*self._called(), *(relation.alias for relation in self._relations)]
        relation = next((r for r in self._relations if (folded(r.alias),) == qualifier), None)
        if relation is not None:
            message = f"There is no column {printable(node.name)} in {printable(relation.alias)}."
            hint = closest(node.name, relation.columns, as_sql, of=self._source.node(node.this))
        else:
            message = f"{shown} is not a table after FROM."
            first, last = (self._source.node(node.parts[i]) for i in (0, -2))
            hint = closest(shown, known, as_sql, of=Span(first.start, last.end))
        return self._source.located(unknown(message, hint), node)

    def _called(self) -> list[str]:
        """Return the names of its private tables."""
        return [scope._name for scope in (self, *self._parents)]

    def _is_row_id(self, name: str) -> bool:
        return folded(name) in _ROW_IDS and not self._is_private(name)

    def _row_id(self, node: exp.Column) -> SqlError:
        return self._source.unsupported(
            node,
            f"{printable(node.name)} singles out rows.",
            never("an answer is about many rows, and this is the number of a single one."),
        )

    def _hint_for_label(self, name: str) -> str | None:
        """Tell a string in the wrong quotes, or in none, from a misspelled column."""
        labels = (d.values for d in self._table.columns.values() if isinstance(d.values[0], str))
        if any(name in values for values in labels):
            return "strings take single quotes: " + instead(printable(quoted_text(name))) + "."
        return None

    def _hint_for_quotes(self, node: exp.Column, name: str) -> str | None:
        """Tell a string in double quotes that is like no column's name."""
        known = (*self._table.columns, *self._table.undeclared, *self._aliases)
        if not node.this.args.get("quoted") or self._is_private(name) or nearest(name, known):
            return None
        return "strings take single quotes: " + instead(printable(quoted_text(name))) + "."

    def _hint_for_public(self, name: str) -> str | None:
        names = [c for relation in self._relations for c in relation.columns]
        meant = None if self._is_private(name) else nearest(name, names)
        return "did you mean " + instead(as_sql(meant)) + "?" if meant is not None else None


def qualifier_of(node: exp.Column) -> tuple[str, ...]:
    """Return what stands before the name of a column, in small letters."""
    parts = (node.args.get(key) for key in ("catalog", "db", "table"))
    return tuple(folded(str(part.name)) for part in parts if part is not None)


def stored_place(node: Expr, scope: Scope) -> str | None:
    """Return the name, in the table that is counted, of the stored column that a column is.

    None if it is no such column.

    Raises:
        SqlError: there is no column of this name.
    """
    column = node.unnest()
    if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
        return None
    found = scope.resolve(column, by_row=True)
    while isinstance(found, RowQueryColumn):
        inner = found.node.unnest()
        if found.mixed or not isinstance(inner, exp.Column):
            return None
        found = found.inside.scope.resolve(inner, by_row=True)
    return found.name if isinstance(found, PrivateColumn) else None
