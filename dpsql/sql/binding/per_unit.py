"""Queries of several private tables that say of one table's rows what there is in the others.

    SELECT c.id, LEAST(COUNT(o.id), 5) AS n FROM customers c LEFT JOIN orders o
    ON o.customer_id = c.id GROUP BY c.id

has a row for each customer, as the key of customers tells groups. So it is a query of customers,

    SELECT c.id, LEAST((SELECT COUNT(o.id) FROM orders o WHERE o.customer_id = c.id), 5) AS n
    FROM customers c

and is written so: `within.py` says which rows are meant, and refuses what is not of one unit. In
the same way SEMI and ANTI joins are EXISTS and NOT EXISTS. An inner JOIN leaves customers out that
have no order; of a LEFT JOIN, COUNT(*) counts a row for them. Other aggregates must be of what is
NULL in that row, so that they pass over it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from sqlglot import exp

from dpsql.schema.names import capitals, folded
from dpsql.sql.binding.expressions import (
    Expr,
    conjuncts,
    has_aggregate,
    is_aggregate,
    rebuild,
)
from dpsql.sql.binding.joins import JoinedItem
from dpsql.sql.text.spans import SourceText

_MORE = ("with_", "having", "distinct", "limit", "offset", "qualify", "order", "laterals")
_STRICT = (exp.Paren, exp.Neg, exp.Cast, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
"""What is NULL if one of its operands is."""
Owns = Callable[[exp.Column], bool]
"""Whether a column is one of a table after FROM."""


def with_exists(select: exp.Select, chosen: Collection[int]) -> exp.Select:
    """Write SEMI and ANTI joins as conditions.

    Args:
        select: the SELECT.
        chosen: the numbers of the items after FROM that are joined so, each with ON.
    """
    left: list[Expr] = []
    conditions: list[Expr] = []
    for number, join in enumerate(select.args.get("joins") or [], start=1):
        if number not in chosen:
            left.append(join)
            continue
        found = _exists(join.this, conjuncts(join.args["on"]))
        conditions.append(exp.Not(this=found) if capitals(join.kind) == "ANTI" else found)
    return _rewritten(select, joins=left, where=[*_where(select), *conditions])


def by_row(
    select: exp.Select, second: JoinedItem, owns: Owns, key: Collection[str], source: SourceText
) -> exp.Select | None:
    """Write a query with a group for each row of a table as a query of its rows.

    Args:
        select: the query: of that table, joined with another private one.
        second: the other.
        owns: whether a column is one of the first.
        key: the columns of the first of which no two rows have the same value, in small letters.
        source: the statement's text.

    Returns:
        None if it is another query.
    """
    group = select.args.get("group")
    if group is None or any(v for k, v in group.args.items() if k != "expressions"):
        return None
    if any(select.args.get(name) for name in _MORE) or second.on is None:
        return None
    if second.kind not in {"inner", "left"}:
        return None
    named = [_meant(node, select.expressions) for node in group.expressions]
    good = all(isinstance(node, exp.Column) and owns(node) for node in named)
    if not good or not any(folded(node.name) in key for node in named):
        return None
    parts = list(conjuncts(second.on))
    outer: list[Expr] = []
    for part in _where(select):
        about = list(part.find_all(exp.Column))
        (outer if all(map(owns, about)) else parts).append(part)
    aggregates = [part for node in select.expressions for part in _aggregates(node)]
    if second.kind == "left" and (
        len(outer) < len(_where(select)) or not all(_passes_over(a, owns) for a in aggregates)
    ):
        return None

    def change(node: Expr) -> Expr:
        if not is_aggregate(node):
            return rebuild(node, change)
        found = exp.Subquery(this=_of_rows(node, second.item, parts))
        inner = node.this if isinstance(node, exp.Filter) else node
        if second.kind == "left" and inner is node and isinstance(inner.this, exp.Star):
            return exp.Greatest(this=found, expressions=[exp.Literal.number(1)])
        return found

    items = [_named(node, change, source) for node in select.expressions]
    if second.kind == "inner":
        outer.append(_exists(second.item, parts))
    left = _rewritten(select, joins=[], where=outer)
    left.set("group", None)
    left.set("expressions", items)
    return left


def _aggregates(node: Expr) -> Iterator[Expr]:
    if is_aggregate(node):
        yield node
        return
    for part in node.iter_expressions():
        yield from _aggregates(part)


def _passes_over(aggregate: Expr, owns: Owns) -> bool:
    """Whether a LEFT JOIN's row of NULLs is none to an aggregate; or is COUNT(*), which counts it.

    What is computed of a column that is NULL must be NULL, too, and then FILTER has no say.
    """
    inner = aggregate.this if isinstance(aggregate, exp.Filter) else aggregate
    if isinstance(inner.this, exp.Star):
        return inner is aggregate
    return _is_null_of_nulls(inner.this, owns)


def _is_null_of_nulls(node: Expr | None, owns: Owns) -> bool:
    if isinstance(node, exp.Column):
        return not owns(node)
    if isinstance(node, _STRICT):
        sides = node.this, node.args.get("expression")
        return any(_is_null_of_nulls(side, owns) for side in sides)
    return False


def _meant(node: Expr, items: Sequence[Expr]) -> Expr:
    """Return what an item of GROUP BY stands for: a number is one of the SELECT list."""
    inner = node.unnest()
    if isinstance(inner, exp.Literal) and not inner.is_string and inner.name.isdecimal():
        at = int(inner.name) - 1
        return items[at].unalias().unnest() if at in range(len(items)) else inner
    return inner


def _named(node: Expr, change: Callable[[Expr], Expr], source: SourceText) -> Expr:
    """Rewrite an item of the SELECT list under the name that it has."""
    if not has_aggregate(node):
        return node.copy()
    if isinstance(node, exp.Alias):
        return exp.Alias(this=change(node.this), alias=node.args["alias"].copy())
    name = " ".join(source.text(source.node(node)).split())
    return exp.Alias(this=change(node), alias=exp.to_identifier(name, quoted=True))


def _of_rows(value: Expr, item: Expr, conditions: Sequence[Expr]) -> exp.Select:
    where = exp.Where(this=exp.and_(*(part.copy() for part in conditions), copy=False))
    return exp.Select(expressions=[value.copy()], from_=exp.From(this=item.copy()), where=where)


def _exists(item: Expr, conditions: Sequence[Expr]) -> Expr:
    return exp.Exists(this=_of_rows(exp.Literal.number(1), item, conditions))


def _where(select: exp.Select) -> list[Expr]:
    where = select.args.get("where")
    return [] if where is None else list(conjuncts(where.this))


def _rewritten(select: exp.Select, joins: Sequence[Expr], where: Sequence[Expr]) -> exp.Select:
    """Return a copy with other joins and conditions, at the same place of the statement."""
    found = exp.Select(
        **{key: value for key, value in select.copy().args.items() if key not in {"joins", "where"}}
    )
    found.set("joins", [join.copy() for join in joins] or None)
    if where:
        found.set("where", exp.Where(this=exp.and_(*(part.copy() for part in where), copy=False)))
    found.parent = select.parent
    return found
