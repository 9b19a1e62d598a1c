"""Queries of rows after FROM: which SELECTs return a row for each, and what columns are called."""

from __future__ import annotations

from collections.abc import Set
from itertools import chain, count

from sqlglot import exp

from dpsql.hints import never
from dpsql.schema.names import capitals, folded
from dpsql.sql.binding.expressions import Expr, has_aggregate
from dpsql.sql.text.spans import SourceText

UNNAMED = "unnamed_subquery"
"""DuckDB's name of a query after FROM that has none."""
_OF_OTHERS = ("group", "having", "distinct", "qualify", "limit", "offset")
"""Clauses with which a row of a SELECT is of several others, or depends on them."""
_CHOOSING = {
    "limit": never("rows have no order. Choose them by a condition after WHERE."),
    "offset": never("rows have no order. Choose them by a condition after WHERE."),
    "qualify": "leave it out, or compute on groups, with GROUP BY.",
}
"""Clauses that choose rows by other rows → what to do instead."""


def is_by_row(select: exp.Select) -> bool:
    """Whether a SELECT over rows computes on each by itself: it projects and filters them.

    So a SELECT over it is one over the rows themselves: its conditions are conditions on them, and
    its columns stand for expressions over theirs. That is right where what joins it keeps all of
    its rows in their place, or leaves some out: σ(A) ⋈ B = σ(A ⋈ B) for INNER, LEFT, SEMI and ANTI
    joins to the right of A.
    """
    if any(select.args.get(key) for key in _OF_OTHERS):
        return False
    where = select.args.get("where")
    parts = [*select.expressions, *([] if where is None else [where.this])]
    return not any(has_aggregate(part) or _has_window(part) for part in parts)


def _has_window(node: Expr) -> bool:
    """Whether a window stands in an expression, outside of subqueries."""
    if isinstance(node, exp.Window):
        return True
    inside = () if isinstance(node, exp.Query) else node.iter_expressions()
    return any(map(_has_window, inside))


def check_not_chosen(query: exp.Query, source: SourceText, *, of_units: bool) -> None:
    """Refuse clauses that choose rows by others, unless it can be by those of the same unit.

    Raises:
        UnsupportedSqlError: there is one.
    """
    for key, hint in _CHOOSING.items():
        clause = query.args.get(key)
        if clause is None or (key == "qualify" and of_units):
            continue
        if of_units:
            hint = "choose rows of each unit: QUALIFY row_number() OVER (PARTITION BY …) = 1."
        place = clause.this if key == "qualify" else clause.expression
        written = clause.meta.get("written", capitals(key))
        raise source.unsupported(place, f"{written} of single rows is not supported.", hint)


def check_grouped(select: exp.Select, source: SourceText) -> None:
    """Refuse clauses that make other rows of groups, or of all rows.

    Raises:
        UnsupportedSqlError: there is one.
    """
    group = select.args.get("group")
    having, distinct = select.args.get("having"), select.args.get("distinct")
    if distinct is not None and group is not None:
        raise source.unsupported(
            distinct,
            "DISTINCT of groups is not supported in the same query.",
            "write it around: SELECT DISTINCT … FROM (SELECT … GROUP BY …).",
        )
    if having is not None and group is None:
        raise source.unsupported(
            having,
            "HAVING without GROUP BY makes one group of the rows of all units.",
            "use WHERE, or GROUP BY what tells the unit.",
        )


def inner_query(item: Expr) -> Expr | None:
    """Return the query in an item after FROM, without its parentheses; None if it is a name."""
    inner: Expr = item
    while isinstance(inner, exp.Subquery):
        inner = inner.this
    return None if inner is item or isinstance(inner, exp.Table) else inner


def unused(name: str, taken: Set[str]) -> str:
    """Return a name, with a number behind it if others have it, in small letters."""
    numbered = (f"{name}_{number}" for number in count(1))
    return next(new for new in chain([name], numbered) if folded(new) not in taken)


def column_name(node: Expr, source: SourceText) -> str:
    """Return what DuckDB calls an item of a SELECT list."""
    if isinstance(node, exp.Alias):
        return node.alias
    if isinstance(node.unnest(), exp.Column):
        return node.unnest().name
    return " ".join(source.text(source.node(node)).split())
