"""Subqueries over UNION ALL of rows of the same unit: what is said of each of several tables.

    (SELECT COUNT(*) FROM (SELECT … FROM orders UNION ALL SELECT … FROM visits) b WHERE who = c.id)

is the sum of what two subqueries count, as rows of a unit are those of one table and those of the
other. There is a row if there is one of either, sums leave out what has none, and the least is the
least of both. `unions/branches.py` has the subqueries, and `within.py` what each of them means.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from sqlglot import exp

from dpsql.sql.binding.expressions import (
    BoundExpr,
    Expr,
    is_aggregate,
    paren,
    rebuild,
)
from dpsql.sql.binding.units.group import UnitGroup, joined_bound
from dpsql.sql.text.spans import SourceText


class UnitSums:
    """The rows that several tables have of the unit of a row.

    Args:
        groups: the rows of each.
        source: the statement's text.
    """

    def __init__(self, groups: Sequence[UnitGroup], source: SourceText) -> None:
        self._groups, self._source = groups, source

    def exists(self, at: Expr) -> BoundExpr:
        """Return whether there is a row in any of them."""
        found = [group.column("exists", None, at) for group in self._groups]
        node = reduce(lambda a, b: exp.Or(this=a, expression=b), (paren(one.node) for one in found))
        return joined_bound(node, found, self._source.node(at))

    def value(self, node: Expr, at: Expr) -> BoundExpr:
        """Bind aggregates of the rows of all, and what is computed of them.

        Raises:
            UnsupportedSqlError: an aggregate isn't known from those of each.
        """
        found: list[BoundExpr] = []

        def change(part: Expr) -> Expr:
            if not is_aggregate(part):
                return rebuild(part, change)
            parts = [group.value(part, part) for group in self._groups]
            found.extend(parts)
            return exp.Paren(this=self._of_all(part, [one.node for one in parts]))

        aggregates = [part for part in node.walk() if is_aggregate(part)]
        others = (c for c in node.find_all(exp.Column) if c.find_ancestor(exp.AggFunc) is None)
        if not aggregates or next(others, None) is not None or node.find(exp.Query):
            return self._groups[0].value(node, at)  # which says what is missing
        made = change(node.unnest()).unnest()
        return joined_bound(made, found, self._source.node(at))

    def _of_all(self, node: Expr, parts: Sequence[Expr]) -> Expr:
        inner = node.this if isinstance(node, exp.Filter) else node
        first, *rest = (paren(part) for part in parts)
        if isinstance(inner, exp.Count) and not isinstance(inner.this, exp.Distinct):
            return reduce(lambda a, b: exp.Add(this=a, expression=b), [first, *rest])
        if isinstance(inner, exp.Sum):
            return reduce(_sum, [first, *rest])
        if isinstance(inner, exp.Min):
            return exp.Least(this=first, expressions=rest, ignore_nulls=True)
        if isinstance(inner, exp.Max):
            return exp.Greatest(this=first, expressions=rest, ignore_nulls=True)
        raise self._source.unsupported(
            node,
            "This can't be computed from the rows of several tables.",
            "use COUNT, SUM, MIN or MAX; an average is SUM(x) / COUNT(x).",
        )


def _sum(one: Expr, other: Expr) -> Expr:
    """Return a sum in which what is NULL is left out."""
    missing = [
        exp.If(this=exp.Is(this=paren(side), expression=exp.Null()), true=paren(rest))
        for side, rest in ((one, other), (other, one))
    ]
    both = exp.Add(this=paren(one), expression=paren(other))
    return exp.Paren(this=exp.Case(ifs=missing, default=both))
