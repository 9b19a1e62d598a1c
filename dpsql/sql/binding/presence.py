"""The presence of rows that a row meets: one that it refers to, or a group that it has.

A row is joined with at most one, so it is there or not, which a column of the row says: of a row
that is referred to `Parent.matched`, true or NULL; of any other one that is true or false.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from sqlglot import exp

from dpsql.errors import Span
from dpsql.schema import Table
from dpsql.schema.table import Parent
from dpsql.sql.binding.core import Core
from dpsql.sql.binding.expressions import BoundExpr, Expr, column, render

Met: TypeAlias = tuple[str, tuple[str, ...]]
"""The column that says whether a row is met, and those that have a value only, and always, then."""


def met_by(parent: Parent) -> Met:
    """Return by which column a row is told to have a parent, and what it has of it always."""
    filled = (name for name, domain in parent.table.columns.items() if not domain.nullable)
    return parent.matched, tuple(parent.names[name] for name in filled)


def is_met(name: str, table: Table, span: Span, *, there: bool = True) -> BoundExpr:
    """Say that a row is met, or that none is, by the column that says so."""
    place = _place(name, table)
    if there and name in table.filled:
        return _bound(place, name, table, span)
    return _bound(_not_null(place) if there else _null(place), name, table, span)


def tightened(core: Core, table: Table, met: Iterable[Met]) -> Core:
    """Say that rows are met by that columns of them have values, where a core names such.

    A column that is never NULL in the row that is met is NULL where there is none, and only there.
    So groups of NULL are ruled out, and nothing else has to be looked at in rows.

    Args:
        core: what is asked.
        table: the table whose rows are counted.
        met: the rows that may be met.
    """
    by_row, conjuncts, known = list(core.by_row), list(core.conjuncts), list(met)
    for condition in (*core.by_row, *core.conjuncts):
        for name, filled in known:
            columns = [one for one in filled if one in core.named]
            if not columns or condition.sql != is_met(name, table, condition.span).sql:
                continue
            conjuncts += [_has_value(one, table, condition.span) for one in columns]
            by_row = [one for one in by_row if one is not condition]
            conjuncts = [one for one in conjuncts if one is not condition]
    return replace(core, conjuncts=tuple(dict.fromkeys(conjuncts)), by_row=tuple(by_row))


def _has_value(name: str, table: Table, span: Span) -> BoundExpr:
    return _bound(_not_null(_place(name, table)), name, table, span)


def _place(name: str, table: Table) -> Expr:
    if name in table.columns:
        return column(f"__a{list(table.columns).index(name)}")
    return column(f"__w{list(table.undeclared).index(name)}")


def _null(place: Expr) -> Expr:
    return exp.Is(this=place, expression=exp.Null())


def _not_null(place: Expr) -> Expr:
    return exp.Not(this=exp.Paren(this=_null(place)))


def _bound(node: Expr, name: str, table: Table, span: Span) -> BoundExpr:
    own, none = frozenset({name}), frozenset[str]()
    declared = name in table.columns
    attributes, by_row = (own, none) if declared else (none, own)
    return BoundExpr(node, render(node), attributes, frozenset(), span, by_row)
