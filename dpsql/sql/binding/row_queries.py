"""Queries that project and filter private rows: a SELECT over one is a SELECT over the table.

    SELECT b, COUNT(*) FROM (SELECT age // 10 AS b FROM people WHERE age >= 18) s GROUP BY b

is `SELECT age // 10, COUNT(*) FROM people WHERE age >= 18 GROUP BY age // 10`. Nothing is written
anew for that: a column of the query is its expression, bound where it was written, so that names
mean what they mean there. Conditions of the query are conjuncts of the core, which is right where
what joins it keeps all of its rows in their place, or leaves some out: σ(A) ⋈ B = σ(A ⋈ B) for
INNER, LEFT, SEMI and ANTI joins to the right of A.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, count

from sqlglot import exp

from dpsql.errors import Span, SqlSchemaError, printable
from dpsql.hints import never
from dpsql.schema import Table
from dpsql.schema.names import capitals, closest, folded, unknown
from dpsql.schema.table import Parent
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import BoundExpr, Expr, has_aggregate, quoted_column
from dpsql.sql.binding.joins import JoinedItem
from dpsql.sql.binding.scope import Binder, RowQueryColumn, Scope
from dpsql.sql.binding.unified import UnionColumn
from dpsql.sql.text.limits import MAX_TOKENS, too_long
from dpsql.sql.text.spans import SourceText

UNNAMED = "unnamed_subquery"
"""What DuckDB calls a query after FROM that has no name."""
_OF_GROUPS = ("group", "having", "distinct")
_CHOOSING = {
    "limit": never("rows have no order. Choose them by a condition after WHERE."),
    "offset": never("rows have no order. Choose them by a condition after WHERE."),
    "qualify": "leave it out, or compute on groups, with GROUP BY.",
}
"""Clauses that choose rows by other rows → what to do instead."""


@dataclass(frozen=True, slots=True)
class RowQuery:
    """The contribution of a query of private rows to the core that it is inlined into."""

    columns: tuple[RowQueryColumn, ...]
    relations: tuple[Relation, ...]
    """The public relations that it joins, with the first numbers."""
    conjuncts: tuple[BoundExpr, ...]
    named: frozenset[str]
    """The private columns that its conditions name."""
    where: Span | None

    def renamed(self, names: Sequence[str]) -> RowQuery:
        """Return it with other names of the first columns, as in `FROM (…) AS s (a, b)`."""
        given = [replace(c, name=name) for c, name in zip(self.columns, names, strict=False)]
        return replace(self, columns=(*given, *self.columns[len(given) :]))

    def made(self, columns: Sequence[UnionColumn]) -> RowQuery:
        """Return it with its columns as those of a UNION ALL of which it is one of the queries."""
        found = (made.of(own) for made, own in zip(columns, self.columns, strict=True))
        return replace(self, columns=tuple(found))


@dataclass(frozen=True, slots=True)
class Home:
    """An item after FROM whose rows are private: the table, or a query of its rows."""

    table: Table
    """The table whose rows are counted."""
    span: Span
    """Where the table is named."""
    given: str | None
    """What it is called there, if it is given a name."""
    query: RowQuery | None = None
    parent: Parent | None = None
    """If they aren't the rows that are counted: which of the rows that these refer to."""

    def scope(self, source: SourceText, aliases: Mapping[str, Expr]) -> Scope:
        """Return the scope of a SELECT over it, without what it is joined with."""
        if self.query is None:
            return Scope(source, self.table, self.given, aliases, self.parent)
        return _RowQueryScope(source, self.table, self.alias, aliases, self.query)

    @property
    def alias(self) -> str:
        """The name that its columns may be qualified with."""
        own = (self._own.path or (self._own.name,))[-1] if self.query is None else UNNAMED
        return self.given or own

    @property
    def _own(self) -> Table:
        return self.table.alone if self.parent is None else self.parent.table

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        if self.query is not None:
            return tuple(column.name for column in self.query.columns)
        return self._own.listed

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The public relations that are joined in it."""
        return () if self.query is None else self.query.relations

    @property
    def conjuncts(self) -> tuple[BoundExpr, ...]:
        """Its conditions on rows."""
        return () if self.query is None else self.query.conjuncts

    @property
    def where(self) -> Span | None:
        """The place of its conditions in the statement's text."""
        return None if self.query is None else self.query.where


class _RowQueryScope(Scope):
    """A query of private rows in place of the private table."""

    def __init__(
        self,
        source: SourceText,
        table: Table,
        alias: str,
        aliases: Mapping[str, Expr],
        query: RowQuery,
    ) -> None:
        super().__init__(source, table, alias, aliases)
        self._columns: dict[str, RowQueryColumn] = {}
        for column in query.columns:
            self._columns.setdefault(folded(column.name), column)

    def merge(self, names: Sequence[str]) -> None:
        self._merged |= {folded(name) for name in names if folded(name) in self._columns}

    def _is_private(self, name: str) -> bool:
        return folded(name) in self._columns

    def _private(
        self, node: exp.Column, name: str, qualifier: tuple[str, ...], *, by_row: bool
    ) -> RowQueryColumn:
        if not self._is_table(qualifier):
            raise self._unknown_qualifier(node, qualifier)
        found = self._columns.get(folded(name))
        if found is None:
            known = [column.name for column in self._columns.values()]
            message = f"There is no column {printable(name)} in {printable(self._alias or '')}."
            hint = self._hint_for_label(name) or self._hint_for_public(name)
            raise self._source.located(unknown(message, closest(name, known)), node, hint)
        return found


def is_by_row(query: exp.Select | exp.SetOperation) -> bool:
    """Whether a query, if it is over rows, returns a row for each of them."""
    if isinstance(query, exp.SetOperation):  # of which the parts tell
        return True
    if any(query.args.get(key) for key in _OF_GROUPS):
        return False
    return not any(has_aggregate(item, windows=False) for item in query.expressions)


def check_filters(select: exp.Query, source: SourceText, *, of_units: bool = False) -> None:
    """Refuse a query of private rows that does more than to project and filter them.

    Its order is of no account.

    Args:
        select: the query.
        source: the statement's text.
        of_units: whether rows are of units, so that QUALIFY may be about those of one.

    Raises:
        UnsupportedSqlError: it chooses rows by other rows.
    """
    for key, hint in _CHOOSING.items():
        clause = select.args.get(key)
        if clause is not None and not (key == "qualify" and of_units):
            place = clause.this if key == "qualify" else clause.expression
            written = clause.meta.get("written", capitals(key))
            message = f"{written} of single rows is not supported."
            raise source.unsupported(place, message, hint)


def inner_query(item: Expr) -> Expr | None:
    """Return the query in an item after FROM, without its parentheses; None if it is a name."""
    inner: Expr = item
    while isinstance(inner, exp.Subquery):
        inner = inner.this
    return None if inner is item or isinstance(inner, exp.Table) else inner


def columns_of(
    select: exp.Select,
    binder: Binder,
    items: Sequence[tuple[JoinedItem, Home | Relation]],
    source: SourceText,
) -> tuple[RowQueryColumn, ...]:
    """Return the columns of a query of private rows, named as DuckDB names them.

    Args:
        select: the query.
        binder: binds what its columns are.
        items: what stands after FROM, and what each of it is.
        source: the statement's text.

    Raises:
        SqlError: an item names something unknown, or is named badly.
        SqlLimitError: it is too long, with columns replaced by what they stand for.
    """
    found: list[RowQueryColumn] = []
    taken: set[str] = set()
    sizes: dict[int, int] = {}
    for node in select.expressions:
        for name, meant in _named(node, items, source):
            size = _size(meant, binder, sizes)
            if size > MAX_TOKENS:
                raise too_long(node, source)
            unique = unused(name, taken)
            taken.add(folded(unique))
            found.append(RowQueryColumn(unique, meant, binder, size=size))
    return tuple(found)


def unused(name: str, taken: Set[str]) -> str:
    """Return a name, with a number behind it if others have it, in small letters."""
    numbered = (f"{name}_{number}" for number in count(1))
    return next(new for new in chain([name], numbered) if folded(new) not in taken)


def _named(
    node: Expr, items: Sequence[tuple[JoinedItem, Home | Relation]], source: SourceText
) -> list[tuple[str, Expr]]:
    """Return the columns that an item of a SELECT list stands for, with their names."""
    inner = node.unalias()
    star = isinstance(inner, exp.Star)
    if star or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
        owner = "" if star else folded(inner.text("table"))
        shown = [(join, of) for join, of in items if join.kind not in {"semi", "anti"}]
        chosen = [(join, of) for join, of in shown if star or folded(of.alias) == owner]
        if not chosen:
            message = f"{printable(source.text(source.node(inner)))} stands for no table's columns."
            hint = closest(owner, [printable(of.alias) for _, of in shown])
            raise source.error(inner, message, hint, SqlSchemaError)
        return [
            (name, quoted_column(name, of.alias))
            for join, of in chosen
            for name in of.columns
            if not (star and folded(name) in {folded(used) for used in join.using})
        ]
    return [(column_name(node, source), inner)]


def column_name(node: Expr, source: SourceText) -> str:
    """Return what DuckDB calls an item of a SELECT list."""
    if isinstance(node, exp.Alias):
        return node.alias
    if isinstance(node.unnest(), exp.Column):
        return node.unnest().name
    return " ".join(source.text(source.node(node)).split())


def _size(node: Expr, binder: Binder, sizes: dict[int, int]) -> int:
    """Return of how many parts an expression is, with columns replaced by what they stand for.

    Names that mean nothing are refused, also in columns that nobody uses.

    Args:
        node: the expression.
        binder: knows its columns.
        sizes: of aliases of the SELECT list, by their identities, as far as they were met.
    """
    size, pending = 0, [node]
    while pending:
        part = pending.pop()
        size += not isinstance(part, exp.Identifier)
        if isinstance(part, exp.Column):
            meant = binder.scope.resolve(part, by_row=True)
            if isinstance(meant, RowQueryColumn):
                size += meant.size
            elif isinstance(meant, Expr):
                if id(meant) not in sizes:
                    sizes[id(meant)] = 1  # so long as it is looked at
                    sizes[id(meant)] = _size(meant, binder, sizes)
                size += sizes[id(meant)]
        elif not isinstance(part, exp.Query):
            pending += part.iter_expressions()
    return size
