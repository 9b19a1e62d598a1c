"""Canonical names: what the columns of a table are called in bound expressions.

A column with a domain is `__a` and its number, one without is `__w` and its number: so expressions
are free of what statements call things, and can be said of another table that has the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import Span
from dpsql.schema import Table
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import BoundExpr, as_stored, column, render


def places(table: Table) -> dict[str, str]:
    """Return the canonical names by which bound expressions know columns."""
    found = {name: f"__a{i}" for i, name in enumerate(table.columns)}
    return found | {name: f"__w{i}" for i, name in enumerate(table.undeclared)}


def column_of(id_: str, table: Table, span: Span) -> BoundExpr:
    """Bind a column."""
    return bound_column(places(table)[id_], id_, table, span)


def no_value(span: Span) -> BoundExpr:
    """Bind NULL, in place of what has no value."""
    none = frozenset[str]()
    return BoundExpr(exp.Null(), "NULL", none, frozenset(), span, none)


def bound_column(place: str, id_: str, table: Table, span: Span) -> BoundExpr:
    """Bind a column whose canonical name is known."""
    own, none = frozenset({id_}), frozenset[str]()
    attributes, by_row = (own, none) if id_ in table.columns else (none, own)
    return BoundExpr(column(place), f'"{place}"', attributes, frozenset(), span, by_row)


def id_of(bound: BoundExpr, table: Table) -> str | None:
    """Return the column that an expression is; None if it is computed."""
    node = bound.node.unnest()
    if not isinstance(node, exp.Column) or node.name[:3] not in {"__a", "__w"}:
        return None
    of = {place: name for name, place in places(table).items()}
    return of.get(node.name)


class Moving:
    """The way of expressions from the columns of one table to those of another one.

    Args:
        before: the table that they are over.
        after: the other one.
        called: what columns are called there; none if as here.
    """

    def __init__(
        self, before: Table, after: Table, called: Mapping[str, str] | None = None
    ) -> None:
        self._after, self._called = after, called
        self.is_none = before is after and called is None
        self._names = {} if self.is_none else _renamed(before, after, called)

    def __call__(self, bound: BoundExpr) -> BoundExpr:
        """Return an expression over the other table."""
        if self.is_none or not (bound.attributes or bound.by_row):
            return bound
        if not self._names:
            return self._named(bound)
        node = bound.node.copy()
        for part in [part for part in node.find_all(exp.Column) if part.name in self._names]:
            part.this.set("this", self._names[part.name])
        return self._named(replace(bound, node=node, sql=render(node)))

    def _named(self, bound: BoundExpr) -> BoundExpr:
        """Name the columns of an expression as the other table calls them."""
        called = self._called or {}
        declared = frozenset(called.get(name, name) for name in bound.attributes)
        by_row = frozenset(called.get(name, name) for name in bound.by_row)
        lost = declared - self._after.columns.keys()
        return replace(bound, attributes=declared - lost, by_row=by_row | lost)


def moved(bound: BoundExpr, before: Table, after: Table) -> BoundExpr:
    """Return an expression over the columns of one table as one over those of another one."""
    return Moving(before, after)(bound)


def _renamed(before: Table, after: Table, called: Mapping[str, str] | None) -> dict[str, str]:
    """Return what becomes of canonical names; nothing if all are the same in both tables."""
    old, new = places(before), places(after)
    called = called or {name: name for name in old}
    if all(new.get(called.get(name, "")) == place for name, place in old.items()):
        return {}
    names = {place: new[called[n]] for n, place in old.items() if called.get(n) in new}
    stored = {as_stored(i): called.get(name) for i, name in enumerate(before.columns)}
    at = {name: i for i, name in enumerate(after.columns)}
    return names | {own: as_stored(at[name]) for own, name in stored.items() if name in at}


def moved_relations(relations: Sequence[Relation], to: Moving) -> tuple[Relation, ...]:
    """Return public relations whose conditions are over the columns of another table."""
    return tuple(replace(one, on=tuple(map(to, one.on))) if one.on else one for one in relations)
