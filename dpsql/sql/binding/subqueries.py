"""Subqueries in conditions on rows: they are public, and use the columns of their own tables."""

from __future__ import annotations

from sqlglot import exp

from dpsql.errors import printable
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.text.spans import SourceText


def check_own_columns(node: Expr, source: SourceText) -> None:
    """Refuse a subquery with a column of a table outside of it, as far as its name tells.

    Raises:
        UnsupportedSqlError: there is one; the hint says what means the same, if that is plain.
    """
    own = {_named(item) for item in node.find_all(exp.Table, exp.Subquery, exp.CTE)}
    for part in node.find_all(exp.Column):
        if part.table and part.table.lower() not in own:
            raise source.unsupported(
                part,
                f"A subquery can't use {printable(source.text(source.node(part)))}, a column from "
                "outside.",
                _hint(node, part, source),
            )


def _named(item: Expr) -> str:
    return item.alias_or_name.lower()


def _hint(node: Expr, outer: exp.Column, source: SourceText) -> str:
    """Word EXISTS (… WHERE inner = outer) as outer IN (SELECT inner …)."""
    inside = node.this if isinstance(node, exp.Exists) else node
    where = inside.args.get("where") if isinstance(inside, exp.Select) else None
    equal = where.this.unnest() if where is not None else None
    if isinstance(node.parent if inside is node else node, exp.Exists) and isinstance(
        equal, exp.EQ
    ):
        inner = equal.this if equal.expression.unnest() == outer else equal.expression
        clause = inside.args.get("from_")
        if clause is not None:
            text = [source.text(source.node(part)) for part in (outer, inner, clause.this)]
            return printable(f"write {text[0]} IN (SELECT {text[1]} FROM {text[2]}).")
    return "join its table instead, ON the same condition."
