"""Queries with groups of private rows, as queries of the rows that the groups are of.

    SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id

has a row for each customer that has orders. So where it is what is counted, it is written as

    SELECT g.customer_id, g.n FROM customers c JOIN (SELECT …) AS g ON g.customer_id = c.id

and `grouped.py` says what that means. Where at most one row of a unit counts, each group has that
one row: its values are those of the row. Where rows of a unit are grouped by what they have, and it
is asked which groups there are, each has one row that is chosen for it (`chosen.py`). And sums over
groups of the sums of each are sums of rows, whatever the groups are.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.schema import Table
from dpsql.schema.names import folded
from dpsql.sql.binding.expressions import (
    Expr,
    has_aggregate,
    is_aggregate,
    quoted,
    quoted_column,
    rebuild,
)
from dpsql.sql.binding.named import Grouped
from dpsql.sql.binding.private.grains import owners, rows_told
from dpsql.sql.binding.row_queries import column_name
from dpsql.sql.text.spans import SourceText

_OF, _GROUPS, _KEY = "__of", "__groups", "__key"
_ONE_ROW = (exp.Min, exp.Max, exp.Sum, exp.Avg, exp.AnyValue)
"""Aggregates that are, of one row, what they are of."""
_ROLLED_UP: dict[type, tuple[type, ...]] = {
    exp.Sum: (exp.Sum, exp.Count),
    exp.Min: (exp.Min,),
    exp.Max: (exp.Max,),
}
"""Aggregates → those of which they are, over groups, what these are over all rows."""


def rows_of_groups(
    grouped: Grouped, keys: Sequence[str], table: Table, *, single: bool
) -> exp.Select | None:
    """Write a query with groups as one of the rows that these are of; None if it is another.

    Args:
        grouped: the query.
        keys: the columns that it is grouped by, as they are called in the table.
        table: whose rows are grouped, with the columns of the rows that they refer to.
        single: whether nothing makes several rows of one that counts.
    """
    for parent in [parent for parent in table.parents if not parent.join.further]:
        row = parent.table.path, parent.join.key
        telling = [i for i, k in enumerate(keys) if rows_told(table, k).get(row) == parent.prefix]
        its = [(parent.prefix, parent.table.path) for _ in keys]
        of = [{(prefix, path) for prefix, path, _ in owners(table, key)} for key in keys]
        if telling and all(i in telling or its[i] in of[i] for i in range(len(keys))):
            path, key = parent.table.path, parent.join.key
            return joined_rows(grouped, grouped.keys[telling[0]], path, key)
    one = single and table.unit is not None and table.unit.max_rows == 1
    return of_one_row(grouped) if one else None


def one_of_each(grouped: Grouped) -> exp.Select | None:
    """Write a query with groups of a unit's rows as one of rows, of which one is of each group.

    What is said of a group must be the same in all of its rows: what they are grouped by.
    """
    found, shown = grouped.select.copy(), [item for _, item in grouped.columns]
    if found.args.get("having") is not None or any(map(has_aggregate, shown)):
        return None
    place = exp.Window(
        this=exp.RowNumber(), partition_by=[key.copy() for key in grouped.keys], over="OVER"
    )
    found.set(
        "expressions", [exp.Alias(this=i.copy(), alias=quoted(n)) for n, i in grouped.columns]
    )
    found.set("qualify", exp.Qualify(this=exp.EQ(this=place, expression=exp.Literal.number(1))))
    found.set("group", None)
    found.set("distinct", None)
    return found


def over_rows(
    select: exp.Select, grouped: Grouped, alias: str, source: SourceText
) -> exp.Select | None:
    """Write sums over groups, and the least and the largest, as those of rows; None if it is more.

    Args:
        select: the query around the groups.
        grouped: what is after its FROM.
        alias: what that is called there.
        source: the statement's text.
    """
    inner, columns = grouped.select, {folded(name): item for name, item in grouped.columns}
    if inner.args.get("having") is not None or inner.args.get("with_") is not None:
        return None
    aliases = {folded(n.alias) for n in select.expressions if isinstance(n, exp.Alias)}
    good = True

    def change(node: Expr) -> Expr:
        nonlocal good
        rolled_up = _ROLLED_UP.get(type(node), ())
        of = columns.get(_named_in(node.this, alias)) if rolled_up else None
        if isinstance(of, exp.AggFunc) and isinstance(of, rolled_up):
            good = good and not isinstance(of.this, exp.Distinct)
            return of.copy()
        if isinstance(node, exp.Column):
            item = columns.get(_named_in(node, alias))
            if folded(node.name) in aliases and (item is None or has_aggregate(item)):
                return node.copy()
            good = good and item is not None and isinstance(item.unnest(), exp.Column)
            return node.copy() if item is None else item.copy()
        good = good and not isinstance(node, exp.Query | exp.Window) and not is_aggregate(node)
        return rebuild(node, change)

    found = exp.Select(
        **{
            key: value
            for key, value in inner.copy().args.items()
            if key in {"from_", "joins", "where"}
        }
    )
    items = [
        exp.Alias(this=change(node.unalias()), alias=quoted(column_name(node, source)))
        for node in select.expressions
    ]
    found.set("expressions", items)
    for key in ("group", "having", "qualify", "order", "limit", "offset", "distinct"):
        if select.args.get(key) is not None:
            found.set(key, rebuild(select.args[key], change))
    where = select.args.get("where")
    if where is not None:
        found.where(change(where.this), copy=False)
    found.parent = select.parent
    return found if good else None


def _named_in(node: object, alias: str) -> str:
    """Return the name of a column of an item after FROM, in small letters; empty if it is none."""
    inner = node.unnest() if isinstance(node, exp.Expr) else None
    if not isinstance(inner, exp.Column) or folded(inner.table) not in {"", folded(alias)}:
        return ""
    return folded(inner.name)


def joined_rows(
    grouped: Grouped, key: Expr, path: Sequence[str], column: str, shown_as: str | None = None
) -> exp.Select:
    """Join groups with the rows that they are of.

    Args:
        grouped: the query with the groups.
        key: the column of it by which they are told.
        path: the table of the rows.
        column: the column that is equal there.
        shown_as: what that is called in the answer; None if it isn't returned.
    """
    names = [quoted(part) for part in path]
    rows = exp.Select(
        expressions=[exp.Alias(this=quoted_column(column), alias=quoted(_KEY))],
        from_=exp.From(this=exp.Table(catalog=names[0], db=names[1], this=names[2])),
    )
    groups = grouped.select.copy()
    groups.append("expressions", exp.Alias(this=key.copy(), alias=quoted(_KEY)))
    same = exp.EQ(this=quoted_column(_KEY, _GROUPS), expression=quoted_column(_KEY, _OF))
    shown = [
        exp.Alias(this=quoted_column(name, _GROUPS), alias=quoted(name))
        for name, _ in grouped.columns
    ]
    if shown_as is not None:
        shown.append(exp.Alias(this=quoted_column(_KEY, _OF), alias=quoted(shown_as)))
    return exp.Select(
        expressions=shown,
        from_=exp.From(this=_named(rows, _OF)),
        joins=[exp.Join(this=_named(groups, _GROUPS), on=same)],
    )


def _named(query: Expr, name: str) -> exp.Subquery:
    return exp.Subquery(this=query, alias=exp.TableAlias(this=quoted(name)))


def of_one_row(grouped: Grouped) -> exp.Select | None:
    """Write it as a query of rows, of which each is a group."""
    found = grouped.select.copy()
    items = [exp.Alias(this=_value(item), alias=quoted(name)) for name, item in grouped.columns]
    having = found.args.get("having")
    chosen = None if having is None else _value(having.this)
    if any(map(has_aggregate, [*items, *([] if chosen is None else [chosen])])):
        return None
    found.set("expressions", items)
    found.set("group", None)
    found.set("distinct", None)
    found.set("having", None)
    if chosen is not None:
        found.where(chosen, copy=False)
    return found


def _value(node: Expr) -> Expr:
    """Return what an expression over a group is of the one row that the group has."""
    if isinstance(node, exp.IgnoreNulls):  # the parser adds it to ANY_VALUE
        return _value(node.this)
    of = node.this if isinstance(node, (*_ONE_ROW, exp.Count)) and not node.expressions else None
    if isinstance(of, exp.Expr) and not isinstance(of, exp.Distinct | exp.Order):
        if not isinstance(node, exp.Count):
            return exp.Paren(this=of.copy())
        if isinstance(of, exp.Star):
            return exp.Literal.number(1)
        missing = exp.Is(this=exp.Paren(this=of.copy()), expression=exp.Null())
        zero, one = exp.Literal.number(0), exp.Literal.number(1)
        return exp.Paren(this=exp.Case(ifs=[exp.If(this=missing, true=zero)], default=one))
    return rebuild(node, _value)
