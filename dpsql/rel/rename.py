"""Other names for the columns that expressions, aggregates, windows and whole relations have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dpsql.rel.nodes import (
    Agg,
    Bound,
    Filter,
    Group,
    GroupJoin,
    Id,
    Join,
    NodeVisitor,
    Project,
    Public,
    Relation,
    Scan,
    Union,
    Window,
)
from dpsql.rows.expression import RowColumn, RowExpression, replaced
from dpsql.rows.windows import WindowCall


def renamed(value: RowExpression, to: Mapping[Id, str]) -> RowExpression:
    """Return an expression of the same columns under other names."""
    if isinstance(value, RowColumn):
        return RowColumn(to[value.name])
    return replaced(value, lambda part: renamed(part, to))


def renamed_aggregate(agg: Agg, to: Mapping[Id, str]) -> Agg:
    """Return an aggregate of the same columns under other names."""
    return Agg(agg.function, _or_none(agg.value, to), _or_none(agg.where, to))


def renamed_call(call: WindowCall, to: Mapping[Id, str]) -> WindowCall:
    """Return a window of the same columns under other names."""
    return replace(
        call,
        arguments=tuple(renamed(value, to) for value in call.arguments),
        partition=tuple(renamed(value, to) for value in call.partition),
        told=tuple((to[name], type_) for name, type_ in call.told),
        order=tuple(replace(key, value=renamed(key.value, to)) for key in call.order),
        holds=_or_none(call.holds, to),
    )


class Prefixed(Mapping[Id, str]):
    """Other names for any columns, each with the same prefix.

    Args:
        prefix: what stands before them.
        others: columns that have other names yet.
    """

    def __init__(self, prefix: str, others: Mapping[Id, str] | None = None) -> None:
        self._prefix, self._others = prefix, dict(others or {})

    def __getitem__(self, name: Id) -> str:
        return self._others.get(name, self._prefix + name)

    def __iter__(self) -> Iterator[Id]:
        return iter(self._others)

    def __len__(self) -> int:
        return len(self._others)


def with_prefix(relation: Relation, prefix: str) -> Relation:
    """Return a relation whose columns all have other ids, with the same before each of them."""
    return _Renaming(prefix).visit(relation)


class _Renaming(NodeVisitor[Relation]):
    """Renames all columns of a tree."""

    def __init__(self, prefix: str) -> None:
        self._prefix, self._to = prefix, Prefixed(prefix)

    def _scan(self, node: Scan) -> Relation:
        along = tuple((source, self._prefix + name) for source, name in node.along)
        return Scan(node.source, self._prefix + node.prefix, along)

    def _public(self, node: Public) -> Relation:
        columns = tuple((self._to[name], type_) for name, type_ in node.columns)
        unique = frozenset(frozenset(self._to[name] for name in key) for key in node.unique)
        return Public(columns, node.rows, unique)

    def _filter(self, node: Filter) -> Relation:
        return Filter(self.visit(node.of), renamed(node.where, self._to))

    def _project(self, node: Project) -> Relation:
        return replace(node, of=self.visit(node.of), columns=self._values(node.columns))

    def _join(self, node: Join) -> Relation:
        left, right = self.visit(node.left), self.visit(node.right)
        return Join(left, right, _or_none(node.on, self._to), node.kind)

    def _group_join(self, node: GroupJoin) -> Relation:
        left, right = self.visit(node.left), self.visit(node.right)
        return GroupJoin(left, right, _or_none(node.on, self._to), self._aggs(node.adds))

    def _window(self, node: Window) -> Relation:
        adds = ((self._to[name], renamed_call(call, self._to)) for name, call in node.adds)
        return Window(self.visit(node.of), tuple(adds))

    def _group(self, node: Group) -> Relation:
        return Group(self.visit(node.of), self._values(node.keys), self._aggs(node.adds))

    def _union(self, node: Union) -> Relation:
        parts = tuple(map(self.visit, node.parts))
        return Union(parts, tuple(self._to[name] for name in node.columns))

    def _bound(self, node: Bound) -> Relation:
        limits = (
            replace(limit, cells=tuple(c._replace(column=self._to[c.column]) for c in limit.cells))
            for limit in node.limits
        )
        return Bound(self.visit(node.of), node.rows, tuple(limits))

    def _values(
        self, columns: Iterable[tuple[Id, RowExpression]]
    ) -> tuple[tuple[Id, RowExpression], ...]:
        return tuple((self._to[name], renamed(value, self._to)) for name, value in columns)

    def _aggs(self, adds: Iterable[tuple[Id, Agg]]) -> tuple[tuple[Id, Agg], ...]:
        return tuple((self._to[name], renamed_aggregate(agg, self._to)) for name, agg in adds)


def _or_none(value: RowExpression | None, to: Mapping[Id, str]) -> RowExpression | None:
    return None if value is None else renamed(value, to)
