"""Other names for the columns that expressions, aggregates and windows read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dpsql.rel.nodes import Agg, Id
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
        order=tuple(replace(one, value=renamed(one.value, to)) for one in call.order),
        holds=_or_none(call.holds, to),
    )


def _or_none(value: RowExpression | None, to: Mapping[Id, str]) -> RowExpression | None:
    return None if value is None else renamed(value, to)
