"""Aggregates of the row of a group that comes first: arg_min, and FIRST with ORDER BY.

    SELECT person_id, arg_min(code, day) AS first_code FROM visits GROUP BY person_id

has of each person the code of the first visit. It is `first_value` among the rows of the group,
which all of them have in common, and so the least of these. Of rows that are equal in what they are
ordered by SQL takes any; here it is the one with the least value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from dpsql.rel.nodes import Agg, Id, Relation, Window
from dpsql.rows.expression import RowCall, RowColumn, RowExpression, all_if_any
from dpsql.rows.known import Interval
from dpsql.rows.windows import WindowCall, WindowFrame, WindowOrder
from dpsql.schema import Domain
from dpsql.sql.algebra.described import NewColumn
from dpsql.sql.algebra.unit_sums import of_truths
from dpsql.sql.binding.expressions import BoundExpr, Expr
from dpsql.sql.text.spans import SourceText

_ALL = WindowFrame(rows=True, start=None, end=None)


class _Facts(Protocol):
    def fresh(self, name: str) -> Id: ...
    def fact(self, relation: Relation, id_: Id) -> tuple[str, bool]: ...


class _GroupedRows(Protocol):
    """The rows of a SELECT that groups: see `RowsOfSelect`."""

    source: SourceText

    @property
    def queries(self) -> _Facts: ...
    def bind(self, node: Expr) -> BoundExpr: ...
    def conditions(self, node: Expr) -> tuple[BoundExpr, ...]: ...
    def holds(self, bounds: Sequence[BoundExpr]) -> RowExpression | None: ...
    def expression(self, bound: BoundExpr) -> RowExpression: ...
    def is_enum(self, bound: BoundExpr) -> bool: ...
    def taken(self, values: Sequence[BoundExpr], type_: str) -> Domain | None: ...
    def ends(
        self, function: str, values: Sequence[RowExpression], most: int | None
    ) -> tuple[Interval, Interval]: ...


@dataclass(frozen=True, slots=True)
class _FirstRow:
    """A row of a group that comes first.

    Args:
        value: what is asked of it.
        order: by what it comes first.
        there: what has a value in it.
        last: whether it comes last.
    """

    value: Expr
    order: Sequence[exp.Ordered]
    there: Sequence[Expr]
    last: bool = False


def _first_row(node: Expr) -> _FirstRow | None:
    """Return the row that an aggregate is of, if it is of one; see `first_rows.py`."""
    if isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.AnyValue):
        node = node.this  # the parser adds it
    if isinstance(node, (exp.ArgMin, exp.ArgMax)) and node.args.get("count") is None:
        by = exp.Ordered(this=node.expression, desc=isinstance(node, exp.ArgMax), nulls_first=False)
        return _FirstRow(node.this, [by], [node.this, node.expression])
    if isinstance(node, (exp.First, exp.Last, exp.AnyValue)) and isinstance(node.this, exp.Order):
        value = node.this.this
        there = [value] if isinstance(node, exp.AnyValue) else []
        return _FirstRow(value, node.this.expressions, there, isinstance(node, exp.Last))
    return None


def first_of_group(
    rows: _GroupedRows, node: Expr, of: Relation, keys: Sequence[tuple[Id, RowExpression]]
) -> tuple[Relation, Agg, NewColumn] | None:
    """Translate an aggregate of the row that comes first; None if it is none.

    Args:
        rows: the SELECT that groups.
        node: the aggregate.
        of: the rows that are grouped.
        keys: the columns of the groups, and what they are.

    Returns:
        The rows with what the first one of their group has, the aggregate, and what is public of
        its values.
    """
    asked = _first_row(node.this if isinstance(node, exp.Filter) else node)
    if asked is None:
        return None
    where = rows.conditions(node.expression.this) if isinstance(node, exp.Filter) else ()
    bound = rows.bind(asked.value)
    value, holds = rows.expression(bound), [rows.holds(where)]
    holds += [_is_there(rows.expression(rows.bind(one))) for one in asked.there]
    order = [_sorted(rows, one, turned=asked.last) for one in asked.order]
    order.append(WindowOrder(value, False, False, rows.is_enum(bound)))
    call = WindowCall(
        "first_value",
        (value,),
        partition=tuple(tree for _, tree in keys),
        order=tuple(order),
        frame=_ALL,
        holds=all_if_any([one for one in holds if one is not None]),
    )
    id_ = rows.queries.fresh("first")
    relation = Window(of, ((id_, call),))
    type_, _ = rows.queries.fact(relation, id_)
    domain = rows.taken([bound], type_)
    ends = rows.ends("max", [value], None)
    agg = Agg(of_truths("min", type_), RowColumn(id_))
    return relation, agg, NewColumn("", "", True, domain, *ends)


def place_in(select: exp.Select, nodes: Sequence[Expr]) -> exp.Window:
    """Write the place of each row among those that agree in some expressions, by ORDER BY."""
    order = select.args.get("order")
    window = exp.Window(
        this=exp.RowNumber(),
        partition_by=[node.copy() for node in nodes],
        order=None if order is None else order.copy(),
        over="OVER",
    )
    window.meta.update(select.meta)
    return window


def _is_there(value: RowExpression) -> RowExpression:
    return RowCall("not", (RowCall("is_null", (value,)),))


def _sorted(rows: _GroupedRows, node: exp.Ordered, *, turned: bool) -> WindowOrder:
    """Read what rows are ordered by; from the last to the first, if `turned`."""
    bound = rows.bind(node.this)
    descending, first = bool(node.args.get("desc")), bool(node.args.get("nulls_first"))
    return WindowOrder(
        rows.expression(bound), descending is not turned, first is not turned, rows.is_enum(bound)
    )
