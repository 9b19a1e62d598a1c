"""Conditions of joins with public tables: what stands after ON, and what USING means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import SqlSchemaError, printable
from dpsql.hints import Hint, first_that_works
from dpsql.schema.names import as_sql, folded
from dpsql.sql.binding.bind import RowBinder
from dpsql.sql.binding.core import JoinKind, Relation
from dpsql.sql.binding.expressions import BoundExpr, Expr, quoted_column
from dpsql.sql.binding.joins import JoinedItem, has_column
from dpsql.sql.text.edits import swapped, written
from dpsql.sql.text.spans import SourceText


def check_using(kind: JoinKind, using: Sequence[str], join: JoinedItem, source: SourceText) -> None:
    """Refuse a column that would be of one side in some rows, and of the other in others.

    Raises:
        UnsupportedSqlError: it is one of a FULL join.
    """
    if using and kind == "full":
        called = printable(join.item.alias_or_name)
        raise source.unsupported(
            join.item,
            "USING is not supported in a FULL join.",
            first_that_works(
                _spelled_out(using, join, source),
                f"write ON and the condition, and name columns of {called}.",
            ),
        )


def _spelled_out(using: Sequence[str], join: JoinedItem, source: SourceText) -> list[Hint]:
    """Write USING as the condition that it means, where one table stands before the join."""
    first = re.search(
        r"\bFROM\s+(\w+)(?:\s+AS)?(?:\s+(?!FULL|JOIN|ON)(\w+))?", source.sql, re.IGNORECASE
    )
    if first is None:
        return []
    sides = (first[2] or first[1], join.item.alias_or_name)
    equal = " AND ".join(" = ".join(f"{s}.{as_sql(name)}" for s in sides) for name in using)
    return swapped(source, source.whole(), r"USING\s*\([^()]*\)", f"ON {equal}")


def _compared(
    name: str, relation: Relation | None, join: JoinedItem, binder: RowBinder
) -> list[Hint]:
    """Write ON and a condition for USING: with a column of the other side."""
    alias = join.item.alias_or_name
    others = [] if relation is None else relation.columns
    own = binder.scope.names
    if binder.scope.has(name):
        pairs = [(name, other) for other in others]
    elif any(folded(name) == folded(other) for other in others):
        pairs = [(column, name) for column in own]
    else:
        pairs = [
            (column, other) for other in others for column in own if folded(column) == folded(other)
        ]
    source = binder.source
    return [
        Hint(f"{hint.removesuffix('.')}, or what is equal in both.", remedies=hint.remedies)
        for column, other in pairs
        for hint in _on(source, f"{binder.scope.whole(column)} = {as_sql(alias)}.{as_sql(other)}")
    ]


def _on(source: SourceText, condition: str) -> list[Hint]:
    found = re.search(r"USING\s*\([^()]*\)", source.sql, re.IGNORECASE)
    return [] if found is None else [written(source, f"ON {condition}", found.span())]


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
            first_that_works(
                _compared(name, relation, join, binder), "write ON and the condition."
            ),
            SqlSchemaError,
        )
    span = binder.source.node(join.item)
    return replace(binder.bind(exp.EQ(this=sides[0], expression=sides[1])), span=span)
