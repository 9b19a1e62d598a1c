"""Names: what a column means inside a core."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from sqlglot import exp

from dpsql.errors import SchemaError, Span, SqlError, SqlSchemaError, printable
from dpsql.hints import instead, never
from dpsql.schema import Table
from dpsql.schema.names import as_sql, closest, folded, nearest, quoted_text, unknown
from dpsql.sql.binding.canonical import Moving, places
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import BoundExpr, column, render
from dpsql.sql.text.spans import SourceText

MADE = "\x00"
"""The name of a column that a clause has added begins with it: none of an analyst does."""
EITHER = MADE + "either"
"""The alias of an item with the columns that USING of a FULL JOIN makes, of whichever side is
there."""
_ROW_IDS = {"rowid", "row_id"}


@dataclass(frozen=True, slots=True)
class PrivateColumn:
    """A column of the rows that are counted."""

    shown: str
    """The column's name there."""
    name: str
    """The column's name in the table whose rows are counted."""
    canonical: str
    by_row: bool = False
    """Whether it has no domain: only what is evaluated row by row may depend on it."""


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column of an item after FROM: an expression over the rows that are counted, or public."""

    name: str
    value: BoundExpr
    listed: bool = True
    """Whether it has no other values than the rows' own: others may be put together with them."""
    error: SqlError | None = None
    """The reason why it can't be computed: it is told where the column is used."""


Found: TypeAlias = PrivateColumn | NamedColumn


@dataclass(frozen=True, slots=True)
class VisibleItem:
    """An item after FROM, with its columns in order."""

    alias: str
    path: tuple[str, ...]
    """The parts of its table's name, by which it may be called without another one."""
    columns: tuple[NamedColumn, ...]
    public: bool = False
    """Whether its rows are public, and joined over cells."""

    @classmethod
    def of(cls, relation: Relation) -> VisibleItem:
        """Return a public relation as an item."""

        def value(number: int) -> BoundExpr:
            node, none = column(f"__r{relation.number}_{number}"), frozenset[str]()
            there = frozenset({relation.number})
            return BoundExpr(node, render(node), none, there, relation.span, none)

        columns = (NamedColumn(name, value(i)) for i, name in enumerate(relation.columns))
        return cls(relation.alias, (), tuple(columns), public=True)

    def is_called(self, qualifier: tuple[str, ...]) -> bool:
        """Whether a name before a point means it."""
        if not qualifier or qualifier == (folded(self.alias),):
            return True
        path = tuple(map(folded, self.path))
        if path[-1:] != (folded(self.alias),):  # another name hides the table's own
            return False
        catalog = len(path) > 1 and qualifier == (path[0], path[-1])
        return bool(path) and (qualifier == path[-len(qualifier) :] or catalog)

    def moved(self, to: Moving) -> VisibleItem:
        """Return it over the columns of another table."""
        if to.is_none or self.public:
            return self
        columns = (replace(one, value=to(one.value)) for one in self.columns)
        return replace(self, columns=tuple(columns))

    def of_columns(self, table: Table) -> VisibleItem:
        """Return it with those columns alone that are of a table."""
        known = {*table.columns, *table.undeclared}
        kept = (one for one in self.columns if one.value.attributes | one.value.by_row <= known)
        return replace(self, columns=tuple(kept))

    def only(self, name: str) -> NamedColumn | None:
        """Return the only column of a public item that has this name."""
        own = self.public and len(self.columns) == 1 and folded(name) == folded(self.alias)
        return self.columns[0] if own else None

    def column(self, name: str) -> NamedColumn | None:
        """Return the column of a name."""
        wanted = folded(name)
        for one in self.columns:
            if folded(one.name) == wanted:
                return one
        return None


@dataclass(frozen=True, slots=True)
class Visible:
    """All that is visible in one SELECT.

    Args:
        table: the columns of the rows that are counted.
        items: what stands after FROM.
        merged: names after USING, in small letters, that mean the first item that has them.
        outer: what is visible around it.
        owners: columns → the stored table and column that they are, for messages.
        ids: columns that clauses have made → what the table calls them, if that is something else.
        kept: names after USING, in small letters, that mean a public item's column.
        either: pairs of columns, of either side of a FULL JOIN → the column with what
            COALESCE of the two is.
    """

    table: Table
    items: tuple[VisibleItem, ...]
    merged: frozenset[str] = frozenset()
    outer: Visible | None = None
    owners: Mapping[str, tuple[Table, str]] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    either: Mapping[frozenset[str], str] = field(default_factory=dict)

    @property
    def all_items(self) -> tuple[VisibleItem, ...]:
        """The items after FROM, and those around it."""
        return (*self.items, *(() if self.outer is None else self.outer.all_items))

    @property
    def all_either(self) -> Mapping[frozenset[str], str]:
        """The columns that COALESCE of two is, also where these are of items around it."""
        return {**({} if self.outer is None else self.outer.all_either), **self.either}

    @property
    def private(self) -> tuple[VisibleItem, ...]:
        """The items whose rows are private."""
        return tuple(item for item in self.items if not item.public)


@dataclass(frozen=True, slots=True)
class Home:
    """The rows that a SELECT counts: those of a table, and what is visible of them."""

    table: Table
    """The table whose rows are counted."""
    visible: Visible
    where: Span | None = None
    """The place in the statement's text of conditions that stand in queries after FROM."""


class Scope:
    """The columns of what stands after FROM, and the aliases of SELECT.

    Args:
        source: the statement's text.
        visible: the columns.
        aliases: those of SELECT.
    """

    def __init__(
        self, source: SourceText, visible: Visible, aliases: Mapping[str, exp.Expr]
    ) -> None:
        self._source, self._visible, self._aliases = source, visible, aliases
        self._at = places(visible.table)
        self._ids = {place: id_ for id_, place in self._at.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of private items."""
        return tuple(one.name for item in self._visible.private for one in item.columns)

    def has(self, name: str) -> bool:
        """Whether a private item has a column of this name."""
        return any(item.column(name) is not None for item in self._visible.private)

    def names_of(self, stored: Collection[str]) -> list[str]:
        """Return what columns of the table that is counted are called, as far as they are visible.

        Args:
            stored: the columns, by their names in that table.
        """
        columns = (one for item in self._visible.private for one in item.columns)
        return [one.name for one in columns if self._id(one) in stored]

    def whole(self, name: str) -> str:
        """Write a column, with the item whose it is if there are several."""
        items = self._visible.items
        owners = [item for item in items if item.column(name) is not None]
        alone = not owners or len(items) == 1
        return as_sql(name) if alone else f"{as_sql(owners[0].alias)}.{as_sql(name)}"

    def resolve(self, node: exp.Column, *, by_row: bool = False) -> Found | exp.Expr:
        """Return what a column means; an expression if it is an alias of the SELECT list.

        Args:
            node: the column.
            by_row: whether it stands in something that may be evaluated row by row, so that it
                needs no public domain.

        Raises:
            SqlSchemaError: there is no such column, or it has no public domain, or several
                items have it.
            UnsupportedSqlError: it singles out rows.
        """
        if isinstance(node.this, exp.Star):
            raise self._source.unsupported(node, "* can't stand here.", "name the columns.")
        if node.name.startswith(MADE):
            made = node.name.removeprefix(MADE)
            id_ = self._visible.ids.get(made, made)
            return PrivateColumn(id_, id_, self._at[id_], id_ in self._visible.table.undeclared)
        found = self._found_in(node, self._visible)
        if found is None and not node.table and folded(node.name) in self._aliases:
            return self._aliases[folded(node.name)]
        if found is None and self._visible.outer is not None:
            found = self._found_in(node, self._visible.outer)
        if found is None:
            raise self._unknown(node)
        return self._meant(node, found, by_row=by_row)

    def _found_in(self, node: exp.Column, visible: Visible) -> NamedColumn | None:
        """Return the one column of what is visible in a SELECT that a name means.

        Raises:
            SqlSchemaError: several items have it.
        """
        name = node.name
        found = self._named(node, visible.items)
        if not node.table:
            found = self._after_using(name, found, visible)
        if len(found) > 1:
            owner = next((item for item, _ in found if not item.public), found[0][0])
            raise self._source.error(
                node,
                f"The column {printable(name)} is ambiguous.",
                "write whose it is: " + instead(f"{as_sql(owner.alias)}.{as_sql(name)}") + ".",
                SqlSchemaError,
            )
        return found[0][1] if found else None

    def _after_using(
        self, name: str, found: list[tuple[VisibleItem, NamedColumn]], visible: Visible
    ) -> list[tuple[VisibleItem, NamedColumn]]:
        """Return the one column that a name after USING means; all that there are of another."""
        if folded(name) in visible.kept:
            return [(item, one) for item, one in found if item.public]
        if folded(name) not in visible.merged:
            return found
        owner = owner_of(name, [item for item, _ in found if not item.public])
        return [(item, one) for item, one in found if item is owner] or found

    def either(self, node: exp.Coalesce) -> PrivateColumn | None:
        """Return the column that COALESCE of two is; None if it has to be computed."""
        sides = [side.unnest() for side in (node.this, *node.expressions)]
        either = self._visible.all_either
        if len(sides) != 2 or not either:
            return None
        columns = [side for side in sides if isinstance(side, exp.Column)]
        found = [self.resolve(side, by_row=True) for side in columns]
        names = frozenset(one.name for one in found if isinstance(one, PrivateColumn))
        id_ = either.get(names)
        if id_ is None:
            return None
        return PrivateColumn(node.name, id_, self._at[id_], id_ in self._visible.table.undeclared)

    def _named(
        self, node: exp.Column, items: Sequence[VisibleItem]
    ) -> list[tuple[VisibleItem, NamedColumn]]:
        qualifier = qualifier_of(node)
        owners = [item for item in items if item.is_called(qualifier)]
        found = [(item, item.column(node.name)) for item in owners]
        if not qualifier:  # the name of a public table with one column means that, too
            found = [(item, one or item.only(node.name)) for item, one in found]
        return [(item, one) for item, one in found if one is not None]

    def _meant(self, node: exp.Column, one: NamedColumn, *, by_row: bool) -> Found:
        if one.error is not None:
            raise one.error
        id_ = self._id(one)
        if id_ is None or not one.listed:
            return one
        undeclared = id_ in self._visible.table.undeclared
        if undeclared and not by_row:
            raise self._undeclared(node, id_)
        return PrivateColumn(one.name, id_, self._at[id_], undeclared)

    def _id(self, one: NamedColumn) -> str | None:
        """Return the stored column that a column is; None if it is computed."""
        value = one.value.node.unnest()
        return self._ids.get(value.name) if isinstance(value, exp.Column) else None

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

    # ── Unknown names ───────────────────────────────────────────────────────────────────────────

    def _unknown(self, node: exp.Column) -> SqlError:
        name, qualifier = node.name, qualifier_of(node)
        items = self._visible.all_items
        meant = [item for item in items if item.is_called(qualifier)]
        if not meant:
            return self._unknown_qualifier(node, qualifier)
        if folded(name) in _ROW_IDS:
            return self._source.unsupported(
                node,
                f"{printable(name)} singles out rows.",
                never("an answer is about many rows, and this is the number of a single one."),
            )
        known = [one.name for item in meant for one in item.columns]
        table = meant[0].path[-1] if meant[0].path else meant[0].alias
        message = f"There is no column {printable(name)} in {printable(table)}."
        if qualifier and meant[0].public:
            hint = closest(name, known, as_sql, of=self._source.node(node.this))
            return self._source.located(unknown(message, hint), node)
        special = self._hint_for_label(name) or self._hint_for_public(name)
        special = special or self._hint_for_quotes(node, name)
        own = [one.name for item in meant if not item.public for one in item.columns]
        return self._source.located(unknown(message, closest(name, own, as_sql)), node, special)

    def _unknown_qualifier(self, node: exp.Column, qualifier: tuple[str, ...]) -> SqlError:
        shown = printable(".".join(qualifier))
        message = f"{shown} is not a table after FROM."
        first, last = (self._source.node(node.parts[i]) for i in (0, -2))
        known = [item.alias for item in self._visible.all_items]
        hint = closest(shown, known, as_sql, of=Span(first.start, last.end))
        return self._source.located(unknown(message, hint), node)

    def _hint_for_label(self, name: str) -> str | None:
        """Tell a string in the wrong quotes, or in none, from a misspelled column."""
        domains = self._visible.table.columns.values()
        labels = (domain.values for domain in domains if isinstance(domain.values[0], str))
        if any(name in values for values in labels):
            return "strings take single quotes: " + instead(printable(quoted_text(name))) + "."
        return None

    def _hint_for_quotes(self, node: exp.Column, name: str) -> str | None:
        """Tell a string in double quotes that is like no column's name."""
        own = (one.name for item in self._visible.items for one in item.columns)
        known = (*own, *self._aliases)
        if not node.this.args.get("quoted") or self.has(name) or nearest(name, known):
            return None
        return "strings take single quotes: " + instead(printable(quoted_text(name))) + "."

    def _hint_for_public(self, name: str) -> str | None:
        names = [one.name for item in self._visible.items if item.public for one in item.columns]
        meant = None if self.has(name) else nearest(name, names)
        return "did you mean " + instead(as_sql(meant)) + "?" if meant is not None else None


def qualifier_of(node: exp.Column) -> tuple[str, ...]:
    """Return what stands before the name of a column, in small letters."""
    parts = (node.args.get(key) for key in ("catalog", "db", "table"))
    return tuple(folded(str(part.name)) for part in parts if part is not None)


def stored_place(node: exp.Expr, scope: Scope) -> str | None:
    """Return the name, in the table that is counted, of the stored column that a column is.

    None if it is no such column.

    Raises:
        SqlError: there is no column of this name.
    """
    inner = node.unnest()
    if not isinstance(inner, exp.Column) or isinstance(inner.this, exp.Star):
        return None
    found = scope.resolve(inner, by_row=True)
    return found.name if isinstance(found, PrivateColumn) else None


def owner_of(name: str, items: Sequence[VisibleItem]) -> VisibleItem | None:
    """Return the item whose column a name after USING means: one that such names made, if any."""
    owners = [item for item in items if item.column(name) is not None]
    return next((item for item in reversed(owners) if item.alias == EITHER), (*owners, None)[0])
