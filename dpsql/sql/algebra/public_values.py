"""Public tables in what is said of rows of the same unit: they become constants of conditions.

    EXISTS (SELECT 1 FROM orders o JOIN days d ON o.day_id = d.id
            WHERE o.customer_id = c.id AND d.holiday)

looks for an order on a holiday, and says nothing else of days. So it is

    EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id
            AND o.day_id IN (SELECT d.id FROM days d WHERE d.holiday))

and what a query over public tables alone returns are constants: `o.day_id IN (6, 13, 20)`. Where
rows are counted or added up, a row must meet one public row at most, or it would count repeatedly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpsql.errors import UnsupportedSqlError
from dpsql.schema.names import folded
from dpsql.sql.binding.bind import RowBinder
from dpsql.sql.binding.expressions import (
    BoundExpr,
    Expr,
    conjuncts,
    joined_bound,
    render,
)
from dpsql.sql.binding.items import Names, PrivateItems
from dpsql.sql.binding.joins import JoinedItem, joins_of
from dpsql.sql.binding.subqueries import Subqueries
from dpsql.sql.sandbox.database import SandboxError
from dpsql.sql.text.spans import SourceText

MOST_VALUES = 2_000
"""Constants of one condition on rows."""
_LISTED = 900
"""The most values that one IN takes."""
_MORE = ("with_", "group", "having", "distinct", "limit", "offset", "qualify", "laterals")
"""Clauses with which EXISTS may ask for more than whether there are rows."""


class PublicValues:
    """Writes what queries of private rows say of public tables as conditions with constants.

    Args:
        source: the statement's text.
        items: tells items after FROM apart.
        subqueries: rewrites queries over public tables.
    """

    def __init__(self, source: SourceText, items: PrivateItems, subqueries: Subqueries) -> None:
        self._source = source
        self._items = items
        self._subqueries = subqueries
        self._sandbox = items.tables.sandbox

    def bind(self, node: Expr, binder: RowBinder, names: Names) -> BoundExpr | None:
        """Bind EXISTS, IN or a subquery with one value over public tables; None if it is another.

        Args:
            node: it.
            binder: binds what is around it.
            names: what names mean there.

        Raises:
            SqlError: it is over private rows, uses columns of them, or has too many values.
        """
        span = self._source.node(node)
        if isinstance(node, exp.In):
            query = node.args.get("query")
            if query is None:
                return None
            value = binder.bind(node.this)
            made = _among(value.node, self._listed(query, names))
            return joined_bound(made, [value], span)
        if not isinstance(node, exp.Exists):
            query = render(self._rewritten(node.unnest(), names))
            ((constant,),) = self._constants(f"SELECT ({query}) AS x", node)
            return joined_bound(constant, [], span)
        looked_up = self._looked_up(node.this.unnest(), names)
        if looked_up is not None:
            return binder.bind(looked_up)
        sql = f"EXISTS ({render(self._rewritten(node.this, names))})"
        ((constant,),) = self._constants(f"SELECT {sql} AS x", node)
        return joined_bound(constant, [], span)

    def _looked_up(self, query: Expr, names: Names) -> Expr | None:
        """Write EXISTS of rows of a public table that are equal in a column of the row outside.

        Where that is NULL there are none, which IN wouldn't say.
        """
        if not isinstance(query, exp.Select) or any(query.args.get(key) for key in _MORE):
            return None
        joins = joins_of(query, self._source)
        if any(join.kind != "inner" or join.using for join in joins):
            return None
        parts = _Parts.of(self._subqueries, joins, names)
        said = _said(query, joins)
        if not parts.are_connected(said) or any(part.find(exp.Query) for part in said):
            return None
        found = self._lookup(joins, said, parts)
        if found is None or not all(map(parts.of_public, said)):
            return None
        branch = exp.If(this=found, true=exp.true())
        return exp.Case(ifs=[branch], default=exp.false())

    def _lookup(
        self, joins: Sequence[JoinedItem], said: Sequence[Expr], parts: _Parts
    ) -> exp.In | None:
        """Return what joined public tables say of the row outside, if it is by one equality."""
        links = [part for part in said if not parts.only_public(part)]
        sides = links[0].unnest() if len(links) == 1 else None
        if not isinstance(sides, exp.EQ):
            return None
        inner, outer = sides.this, sides.expression
        if not parts.only_public(inner):
            inner, outer = outer, inner
        if not parts.only_public(inner) or parts.of_public(outer):
            return None
        query = _query(inner, joins, [part for part in said if parts.only_public(part)])
        return exp.In(this=outer.copy(), query=exp.Subquery(this=query))

    def released(self, error: UnsupportedSqlError, node: Expr, names: Names) -> UnsupportedSqlError:
        """Say in an error which statement makes values of all rows public; see `Subqueries`."""
        return self._subqueries.released(error, node, names)

    def _rewritten(self, query: Expr, names: Names) -> Expr:
        return self._subqueries.public(query, self._outside, names)

    def _outside(self, node: exp.Column) -> None:
        """Take no column from outside: a name that isn't the query's own is unknown in it."""

    def _listed(self, query: Expr, names: Names) -> list[Expr]:
        """Return the values of a public query with one column, each once."""
        written = render(self._rewritten(query.unnest(), names))
        limit = MOST_VALUES + 1
        sql = f"SELECT DISTINCT x FROM ({written}) AS t(x) ORDER BY x NULLS LAST LIMIT {limit}"
        found = [constant for (constant,) in self._constants(sql, query)]
        if len(found) > MOST_VALUES:
            raise self._source.unsupported(
                query,
                f"This compares rows with more than {MOST_VALUES:,} public values.",
                "ask for fewer, or for a range: BETWEEN … AND ….",
            )
        return found

    def _constants(self, sql: str, at: Expr) -> list[tuple[Expr, ...]]:
        """Run a public query with one column `x`; return its values as constants."""
        try:
            ((_, type_),) = self._sandbox.types(sql)
            rows = self._sandbox.rows(f"SELECT x::VARCHAR FROM ({sql}) AS t(x)")
        except SandboxError as error:
            raise self._source.error(
                at,
                f"This can't be asked of public tables: {error}",
                "in a subquery over private rows, a subquery over public tables can use columns "
                "of its own tables only.",
            ) from None
        return [(_constant(text, type_),) for (text,) in rows]


@dataclass(frozen=True, slots=True)
class _Parts:
    """The public items of a query, and the columns of each."""

    items: Sequence[JoinedItem]
    columns: Sequence[frozenset[str]]
    """The columns of each item, in small letters."""

    @classmethod
    def of(cls, subqueries: Subqueries, items: Sequence[JoinedItem], names: Names) -> _Parts:
        shown = [subqueries.columns(join.item, names, frozenset()) or () for join in items]
        return cls(items, [frozenset(map(folded, some)) for some in shown])

    def of_public(self, node: Expr) -> set[int]:
        """Return the numbers of the public items of which columns stand in an expression."""
        return {i for part in node.find_all(exp.Column) if (i := self._owner(part)) is not None}

    def only_public(self, node: Expr) -> bool:
        """Whether all columns of an expression are public."""
        return all(self._owner(part) is not None for part in node.find_all(exp.Column))

    def _owner(self, node: exp.Column) -> int | None:
        name, table = folded(node.name), folded(node.table)
        for i, (join, columns) in enumerate(zip(self.items, self.columns, strict=True)):
            if table == folded(join.item.alias_or_name):
                return i
            if not table and name in columns:
                return i
        return None

    def are_connected(self, said: Sequence[Expr]) -> bool:
        """Whether conditions connect all items with each other."""
        groups = [{i} for i in range(len(self.items))]
        for part in said:
            met = self.of_public(part)
            touched = [group for group in groups if group & met]
            groups = [group for group in groups if not group & met]
            groups += [set[int]().union(*touched)] if touched else []
        return len(groups) == 1


def _among(node: Expr, values: Sequence[Expr]) -> Expr:
    """Say that an expression has one of some values."""
    lists = [values[i : i + _LISTED] for i in range(0, len(values), _LISTED)]
    found = (exp.In(this=exp.Paren(this=node.copy()), expressions=some) for some in lists)
    return exp.or_(*found, copy=False) if lists else exp.false()


def _said(select: exp.Select, joins: Sequence[JoinedItem]) -> list[Expr]:
    """Return the conditions of WHERE and of some inner joins."""
    where = select.args.get("where")
    found = list(conjuncts(where.this)) if where is not None else []
    for join in joins:
        found += [] if join.on is None else conjuncts(join.on)
    return found


def _query(value: Expr, items: Sequence[JoinedItem], conditions: Sequence[Expr]) -> exp.Select:
    first, *others = (join.item.copy() for join in items)
    found = exp.Select(expressions=[value.copy()], from_=exp.From(this=first))
    found.set("joins", [exp.Join(this=other) for other in others] or None)
    return _with_where(found, conditions)


def _with_where(select: exp.Select, conditions: Sequence[Expr]) -> exp.Select:
    if not conditions:
        select.set("where", None)
        return select
    made = exp.and_(*(part.copy() for part in conditions), copy=False)
    select.set("where", exp.Where(this=made))
    return select


def _constant(text: str | None, type_: str) -> Expr:
    """Write a value of a type of DuckDB."""
    if text is None:
        return exp.null()
    if type_ == "BOOLEAN":
        return exp.true() if text == "true" else exp.false()
    if type_ == "VARCHAR" or type_.startswith("ENUM"):
        return exp.Literal.string(text)
    if type_.endswith("INT") or type_ == "INTEGER":
        return exp.Paren(this=exp.Literal.number(text))
    return exp.cast(exp.Literal.string(text), type_, dialect="duckdb")
