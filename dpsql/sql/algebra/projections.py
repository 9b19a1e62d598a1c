"""Projections: a query of rows as a relation with its columns alone, all of them stored there."""

from __future__ import annotations

import math
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import Span
from dpsql.rel.nodes import Filter, Id, Project, Relation
from dpsql.rows.expression import RowExpression
from dpsql.rows.types import BIGINT
from dpsql.sql.algebra.described import DescribedRelation, NewColumn, column_of, only
from dpsql.sql.algebra.selects import RowsOfQuery, RowsOfSelect
from dpsql.sql.algebra.visible import NamedColumn
from dpsql.sql.binding.expressions import BoundExpr, joined_bound


def projected(
    rows: RowsOfQuery, select: RowsOfSelect
) -> tuple[DescribedRelation, tuple[NamedColumn, ...]]:
    """Return a query of rows as a relation with its columns alone, all of them stored there."""
    ids, columns, trees = list[Id](), list[NewColumn](), list[tuple[Id, RowExpression]]()
    relation: Relation = rows.of.relation
    where = select.holds(rows.where)
    if where is not None:
        relation = Filter(relation, where)
    for one in rows.columns:
        id_ = select.queries.fresh(one.name)
        ids.append(id_)
        tree, new = select.named(id_, one.value)
        trees.append((id_, tree))
        columns.append(new)
    made = only(rows.of, Project(relation, tuple(trees)), columns)
    facts = select.queries.known.of(made.relation)
    most = facts.most if facts.most is not None else rows.of.most
    made = replace(made, most=most)
    span = select.source.node(select.select)
    named = tuple(
        NamedColumn(c.name, _no_less(column_of(new.id, made.table, span), new, span))
        for c, new in zip(rows.columns, columns, strict=True)
    )
    return made, named


def _no_less(bound: BoundExpr, new: NewColumn, span: Span) -> BoundExpr:
    """Say of a number of which only the least value is known that it is no less, unless NULL."""
    low, high = new.between
    if low is None or high is not None or new.type != BIGINT.name:
        return bound
    column, least = bound.node, exp.Literal.number(math.ceil(low))
    missing = exp.Is(this=column.copy(), expression=exp.null())
    inside = exp.Greatest(this=column.copy(), expressions=[least])
    whole = exp.Cast(this=inside, to=exp.DataType.build("BIGINT"))
    node = exp.Case(ifs=[exp.If(this=missing, true=exp.null())], default=whole)
    return joined_bound(node, [bound], span)
