"""Joins with queries that have one group for each row: they add columns to it.

    SELECT region, COUNT(*) FROM customers c LEFT JOIN (
        SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id
    ) p ON p.customer_id = c.id WHERE p.n > 3 GROUP BY region

counts customers, of whom each has one group or none. So the join adds no rows, and `p.n` is a
column of a customer, as `(SELECT COUNT(*) FROM orders WHERE customer_id = c.id)` is, but NULL
without orders. Which rows are meant is said in `group.py`, which refuses what is not of one
unit. Each column of the GROUP BY must be given by the row: by being equal to one of it, or by being
of a row that such a column tells by its key. A group is there if there are rows, and if HAVING and
the conditions of the join are true of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from sqlglot import exp

from dpsql.errors import SqlSchemaError, printable
from dpsql.schema import Domain
from dpsql.schema.names import capitals, folded
from dpsql.sql.binding.bind import RowBinder
from dpsql.sql.binding.expressions import (
    BoundExpr,
    Expr,
    conjuncts,
    has_aggregate,
    is_aggregate,
    paren,
    quoted_column,
)
from dpsql.sql.binding.grouping import in_having
from dpsql.sql.binding.joins import JoinedItem
from dpsql.sql.binding.named import Grouped
from dpsql.sql.binding.row_queries import Home, RowQuery
from dpsql.sql.binding.scope import RowQueryColumn, Scope
from dpsql.sql.binding.units.group import UnitGroup, joined_bound
from dpsql.sql.text.spans import JOINS

GroupOf = Callable[[Grouped, RowBinder], UnitGroup]
"""Finds out of which rows the groups of a query are."""


def with_groups(
    joins: Sequence[JoinedItem],
    sides: Sequence[tuple[JoinedItem, Grouped]],
    binder: RowBinder,
    group_of: GroupOf,
) -> tuple[dict[JoinedItem, Home], list[BoundExpr]]:
    """Make the columns of grouped queries visible.

    Args:
        joins: all items after FROM.
        sides: those that are such queries, and what they are.
        binder: binds conditions on rows.
        group_of: finds out of which rows the groups are.

    Returns:
        What each of them is, and what must be true of rows that count.

    Raises:
        SqlError: a query has several groups for a row, or they are not of its unit.
    """
    homes: dict[JoinedItem, Home] = {}
    found: list[BoundExpr] = []
    inner = [join.on for join in joins if join.kind == "inner"]
    of_rows = [part for on in (*inner, binder.where) if on is not None for part in conjuncts(on)]
    for join, grouped in sides:
        _check_kind(join, joins, binder)
        side = _GroupedSide(join, grouped, group_of(grouped, binder), binder)
        found += side.joined(of_rows)
        homes[join] = side.home
    return homes, found


def meets_group(node: exp.In, grouped: Grouped, group: UnitGroup, binder: RowBinder) -> BoundExpr:
    """Bind `x IN (SELECT … GROUP BY …)`: a row is equal to the first column of a group.

    Raises:
        SqlError: there are several groups for a row, or it isn't of its unit.
    """
    item = exp.Subquery(this=grouped.select)
    side = _GroupedSide(JoinedItem(item, "semi", None, ()), grouped, group, binder)
    return side.met(node)


def _check_kind(join: JoinedItem, joins: Sequence[JoinedItem], binder: RowBinder) -> None:
    """Refuse joins that keep groups of which there is no row, or rows without what is counted."""
    before = joins[: joins.index(join) + 2] if join is joins[0] else []
    turned = next((one for one in before[1:] if one.kind != "inner"), None)
    if turned is not None or join.kind in {"right", "full"}:
        raise binder.source.unsupported(
            binder.source.clause(*JOINS) or binder.source.node(join.item),
            f"A {capitals((turned or join).kind)} JOIN with groups of rows is not supported here.",
            "put the table whose rows are counted first, and use JOIN or LEFT JOIN.",
        )


class _GroupedSide:
    """One such query; it binds what its columns are, which stand there by their numbers."""

    def __init__(
        self, join: JoinedItem, grouped: Grouped, group: UnitGroup, outer: RowBinder
    ) -> None:
        self._join, self._grouped, self._group, self._outer = join, grouped, group, outer
        self._source = outer.source
        self._there: list[BoundExpr] = []
        self._plain = True
        """Whether a group is there as soon as there is a row."""
        self._equal: dict[int, Expr] = {}
        """Column → the one outside that it is equal to."""

    @property
    def scope(self) -> Scope:
        """The scope that says what names mean around it."""
        return self._outer.scope

    def domain_of(self, node: Expr) -> tuple[str, Domain] | None:
        """Know of no column that is stored."""

    def bind(self, node: Expr) -> BoundExpr:
        """Bind a column by its number."""
        _, item = self._grouped.columns[int(node.name)]
        constant = item.find(exp.Column, exp.Query) is None and not has_aggregate(item)
        value = self._outer.bind(item) if constant else self._group.value(item, item)
        if self._join.kind != "left":
            return value
        inner = item.unnest()
        if self._plain and is_aggregate(inner) and not isinstance(inner, exp.Filter):
            if not isinstance(inner, exp.Count):
                return value  # which is NULL without rows
            if isinstance(inner.this, exp.Star):
                none = exp.Nullif(this=paren(value.node), expression=exp.Literal.number(0))
                return joined_bound(none, [value], value.span)
        there = exp.If(this=self._is_there(), true=paren(value.node))
        return joined_bound(exp.Case(ifs=[there]), [value, *self._there], value.span)

    def met(self, node: exp.In) -> BoundExpr:
        """Return whether a row is equal to the first column of a group, which is never NULL."""
        key = self._grouped.columns[0][1].unnest()
        self._group.pair(node.this, key, node)
        self._check_keys()
        self._add_conditions(node)
        there = exp.If(this=self._is_there(), true=exp.true())
        made = exp.Case(ifs=[there], default=exp.false())
        return joined_bound(made, self._there, self._source.node(node))

    def _add_conditions(self, at: Expr) -> None:
        having = self._grouped.select.args.get("having")
        self._there.append(self._group.column("exists", None, at))
        self._there += [] if having is None else [self._having(having.this)]
        self._plain = having is None

    def joined(self, of_rows: Sequence[Expr]) -> list[BoundExpr]:
        """Join it; return the conditions on rows.

        Args:
            of_rows: what is true of all rows that count, in which an inner join may be told.
        """
        join = self._join
        for name in join.using:
            self._use(name)
        own = conjuncts(join.on) if join.on is not None else []
        told = {id(part) for part in own if self._tie(part)}
        if join.kind == "inner":
            told |= {id(part) for part in of_rows if id(part) not in told and self._tie(part)}
            self._outer.leave_out(frozenset(told))
        self._check_keys()
        rest = [part for part in own if id(part) not in told]
        self._add_conditions(join.item)
        self._plain = self._plain and not rest
        shown = self.home.scope(self._source, {})
        self.scope.join(shown)
        self._there += [part for each in rest for part in self._outer.conditions(each)]
        if join.kind in {"semi", "anti"}:
            self.scope.leave(shown)
        else:
            self.scope.merge(join.using)
        return self._conditions()

    def _conditions(self) -> list[BoundExpr]:
        if self._join.kind == "left":
            return []
        if self._join.kind != "anti":
            return self._there
        ifs = [exp.If(this=self._is_there(), true=exp.false())]
        none = exp.Case(ifs=ifs, default=exp.true())
        return [joined_bound(none, self._there, self._source.node(self._join.item))]

    def _is_there(self) -> Expr:
        parts = [paren(part.node) for part in self._there]
        return reduce(lambda a, b: exp.And(this=a, expression=b), parts)

    def _having(self, node: Expr) -> BoundExpr:
        select = self._grouped.select
        items = {folded(n.alias): n.this for n in select.expressions if isinstance(n, exp.Alias)}
        condition = in_having(node, items, self._key)
        return self._group.value(condition, condition)

    def _key(self, node: Expr) -> int | None:
        """Return the number of the column of GROUP BY that an expression is."""
        if not isinstance(node, exp.Column):
            return None
        names = [folded(key.name) for key in self._grouped.keys]
        return names.index(folded(node.name)) if folded(node.name) in names else None

    @property
    def home(self) -> Home:
        """Its columns; of inner joins, some are those outside that they are equal to."""
        equal = [(self._grouped.columns[n][1].unnest(), of) for n, of in self._equal.items()]
        columns = list[RowQueryColumn]()
        for number, (name, item) in enumerate(self._grouped.columns):
            same = next((of for key, of in equal if key == item.unnest()), None)
            if same is not None and self._join.kind == "inner":
                columns.append(RowQueryColumn(name, same, self._outer))
            else:
                columns.append(RowQueryColumn(name, exp.Literal.number(number), self))
        query = RowQuery(tuple(columns), (), (), frozenset(), None)
        span = self._source.node(self._join.item)
        alias = self._join.item.alias_or_name or None
        return Home(self._outer.table, span, alias, query)

    def _use(self, name: str) -> None:
        """Take a name after USING."""
        place = self._place(quoted_column(name))
        outside = quoted_column(name)
        if place is None or not self._pair(outside, place, self._join.item):
            raise self._source.unsupported(
                self._join.item,
                f"USING names {printable(name)}, which doesn't tell to which unit each group "
                "belongs.",
                "write ON and the conditions.",
            )

    def _tie(self, part: Expr) -> bool:
        """Take a condition that says whose rows the groups are of, if it does."""
        node = part.unnest()
        if isinstance(node, exp.EQ):
            for own, other in ((node.this, node.expression), (node.expression, node.this)):
                inner, outside = own.unnest(), other.unnest()
                if isinstance(inner, exp.Column) and isinstance(outside, exp.Column):
                    place = self._place(inner)
                    if place is not None and self._place(outside) is None:
                        return self._pair(outside, place, part)
        return False

    def _pair(self, outside: exp.Column, number: int, at: Expr) -> bool:
        key = self._grouped.columns[number][1].unnest()
        try:
            good = isinstance(key, exp.Column) and self._group.tells(outside, key)
        except SqlSchemaError as error:
            if not error.unknown:
                raise
            good = False  # it is joined later
        if not good:
            return False
        self._group.pair(outside, key, at)
        self._equal[number] = outside
        return True

    def _place(self, node: exp.Column) -> int | None:
        """Return the number of the column of the query that is meant."""
        alias = folded(self._join.item.alias_or_name)
        if node.table and folded(node.table) != alias:
            return None
        names = [folded(name) for name, _ in self._grouped.columns]
        return names.index(folded(node.name)) if folded(node.name) in names else None

    def _check_keys(self) -> None:
        """Refuse a query that has several groups for a row."""
        for key in self._grouped.keys:
            if not self._group.determines(key):
                shown = printable(self._source.text(self._source.node(key)))
                raise self._source.unsupported(
                    self._join.item,
                    f"This has a group for each {shown}, so a row could match several groups, or "
                    "groups of other units.",
                    "join on all columns of its GROUP BY, each equal to a column that identifies "
                    "the row's unit: ON p.customer_id = c.id.",
                )
