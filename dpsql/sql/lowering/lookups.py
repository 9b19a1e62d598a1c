"""Lookups: equalities of private columns and columns of a public table, which DuckDB hashes."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import Bound, Expr, render


def lookups(relation: Relation, conditions: Sequence[Bound]) -> list[tuple[str, str]]:
    """Return the conditions `private = public`: each as SQL, and its public side.

    The public side names columns of this relation only, the other one private columns only.
    """
    found = []
    for condition in conditions:
        node = condition.node.unnest()
        if not isinstance(node, exp.EQ) or condition.relations != {relation.number}:
            continue
        for side, other in ((node.this, node.expression), (node.expression, node.this)):
            if _only(side, f"__r{relation.number}_") and _only(other, "__a"):
                found.append((condition.sql, render(side)))
    return found


def _only(node: Expr, prefix: str) -> bool:
    names = [column.name for column in node.find_all(exp.Column)]
    return bool(names) and all(name.startswith(prefix) for name in names)
