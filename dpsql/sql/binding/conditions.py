"""Conditions of joins with public tables: what stands after ON, and what USING means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import SqlSchemaError, printable
from dpsql.sql.binding.bind import RowBinder
from dpsql.sql.binding.core import JoinKind, Relation
from dpsql.sql.binding.expressions import BoundExpr, Expr, quoted_column
from dpsql.sql.binding.joins import JoinedItem, has_column
from dpsql.sql.text.spans import SourceText


def check_using(kind: JoinKind, using: Sequence[str], join: JoinedItem, source: SourceText) -> None:
    """Refuse a column that would be of one side in some rows, and of the other in others.

    Raises:
        UnsupportedSqlError: it is one of a FULL join.
    """
    if using and kind == "full":
        raise source.unsupported(
            join.item,
            "USING is not supported in a FULL join.",
            f"write ON and the condition, and name columns of {printable(join.item.name)}.",
        )


def conditions_of(
    join: JoinedItem,
    before: Sequence[Relation],
    relation: Relation | None,
    binder: RowBinder,
) -> tuple[BoundExpr, ...]:
    """Bind what stands after ON or USING.

    Args:
        join: the item that is joined.
        before: the public relations that are joined before.
        relation: the item, if it is public.
        binder: binds conditions on rows.

    Raises:
        SqlError: something in it can't be bound, or USING names no column of both sides.
    """
    found = list(binder.conditions(join.on)) if join.on is not None else []
    found += [_equal(name, before, relation, join, binder) for name in join.using]
    return tuple(found)


def _equal(
    name: str,
    before: Sequence[Relation],
    relation: Relation | None,
    join: JoinedItem,
    binder: RowBinder,
) -> BoundExpr:
    """Bind `left.name = right.name`, which is what USING means."""
    sides: list[Expr] = [] if relation is None else [quoted_column(name, relation.alias)]
    others = [quoted_column(name, other.alias) for other in before if has_column(name, other)]
    if relation is None or binder.scope.has(name):
        sides.append(quoted_column(name))
    if len(sides) < 2 and others:
        sides.append(others[0])
    known = relation is None or has_column(name, relation)
    if len(sides) < 2 or not known:
        raise binder.source.error(
            join.item,
            f"USING names {printable(name)}, which is not a column on both sides of the join.",
            "write ON and the condition.",
            SqlSchemaError,
        )
    span = binder.source.node(join.item)
    return replace(binder.bind(exp.EQ(this=sides[0], expression=sides[1])), span=span)
