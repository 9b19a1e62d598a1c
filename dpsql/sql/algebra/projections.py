"""Projections and selections: a query of rows with its columns alone, and rows by their places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import Span, SqlError
from dpsql.rel.facts import conjuncts as conjuncts_of
from dpsql.rel.facts import is_scanned, said_of_place
from dpsql.rel.nodes import Filter, Id, Project, Relation
from dpsql.rows.expression import RowColumn, RowExpression
from dpsql.rows.types import BIGINT
from dpsql.schema import Table
from dpsql.schema.units import RowLimit
from dpsql.sql.algebra.described import NO_TYPE, DescribedRelation, NewColumn, only
from dpsql.sql.algebra.places import chosen_by_places
from dpsql.sql.algebra.query_rows import RowsOfQuery
from dpsql.sql.algebra.selects import RowsOfSelect
from dpsql.sql.binding.canonical import column_of, id_of, moved, no_value
from dpsql.sql.binding.expressions import BoundExpr, joined_bound
from dpsql.sql.binding.scope import NamedColumn


def choose(rows: RowsOfSelect, bounds: Sequence[BoundExpr]) -> list[bool]:
    """Leave the rows out of which conditions on places aren't true: a unit has fewer by that.

    Returns:
        For each condition, whether it was about places, and is true of the rows that are left.
    """
    places, taken = rows.queries.places, [False] * len(bounds)
    about = [not places.keys().isdisjoint(one.attributes | one.by_row) for one in bounds]
    said = dict[int, tuple[RowExpression, ...]]()
    for number in (i for i, is_about in enumerate(about) if is_about):
        with suppress(SqlError):  # it can't run on rows
            parts = conjuncts_of(rows.expression(bounds[number]))
            said |= {number: parts} if any(map(said_of_place, parts)) else {}
    found = chosen_by_places(
        rows.of, [part for parts in said.values() for part in parts], places, rows.queries.known
    )
    if found is None:
        return taken
    rows.become(found)
    return [i in said for i in range(len(bounds))]


# ── Projections ──


def projected(
    rows: RowsOfQuery, select: RowsOfSelect
) -> tuple[DescribedRelation, tuple[NamedColumn, ...]]:
    """Return a query of rows as a relation with its columns alone, all of them stored there.

    A column that is NULL in each row is no column of the relation: it stays NULL.
    """
    columns, trees = list[NewColumn](), list[tuple[Id, RowExpression]]()
    before, taken = rows.of.table, choose(select, rows.where)
    of = select.of
    left = [one for one, is_taken in zip(rows.where, taken, strict=True) if not is_taken]
    where = select.holds([moved(one, before, of.table) for one in left])
    relation: Relation = of.relation if where is None else Filter(of.relation, where)
    shown = [one for one in rows.columns if one.error is None and _is_read(one.value, before)]
    for one in shown:
        id_ = select.queries.fresh(one.name)
        tree, new = select.named(id_, moved(one.value, before, of.table))
        columns.append(new)
        if new.type != NO_TYPE:
            trees.append((id_, tree))
    stored = [new for new in columns if new.type != NO_TYPE]
    made = only(of, Project(relation, tuple(trees)), stored)
    facts = select.queries.known.of(made.relation)
    most = facts.most if facts.most is not None else of.most
    passed = {tree.name: id_ for id_, tree in trees if isinstance(tree, RowColumn)}
    limits = (
        RowLimit(tuple(passed[name] for name in limit.columns), limit.rows)
        for limit in of.limits
        if passed.keys() >= {*limit.columns}
    )
    made = replace(made, most=most, limits=tuple(limits), ids=of.ids_at(passed))
    span = select.source.node(select.select)
    named = tuple(
        NamedColumn(
            c.name,
            no_value(span)
            if new.type == NO_TYPE
            else _no_less(column_of(new.id, made.table, span), new, span),
        )
        for c, new in zip(shown, columns, strict=True)
    )
    return made, named


def _is_read(bound: BoundExpr, table: Table) -> bool:
    """Whether something can be read of a column, if it is one as it is stored."""
    id_ = id_of(bound, table)
    return id_ is None or id_ in table.columns or is_scanned(table.undeclared[id_])


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
