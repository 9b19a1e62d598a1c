"""Relations in words, one line for each node: what is shown of two that pass for the same."""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.rel.nodes import (
    Agg,
    Bound,
    CellLimit,
    Filter,
    Group,
    GroupJoin,
    Join,
    Project,
    Public,
    Relation,
    Scan,
    Union,
    Window,
    inputs,
)
from dpsql.rows.expression import RowColumn, RowExpression, spelled
from dpsql.rows.windows import WindowCall
from dpsql.schema.names import as_sql


def shown(relation: Relation) -> str:
    """Write a relation, with what it is made of below it and indented."""
    lines, pending = list[str](), [(relation, 0)]
    while pending:
        node, depth = pending.pop()
        lines.append("  " * depth + _line(node))
        pending.extend((side, depth + 1) for side in reversed(inputs(node)))
    return "\n".join(lines)


def _line(node: Relation) -> str:
    match node:
        case Scan():
            return f"Scan {_stored(node)}"
        case Public():
            return f"Public ({_listed(as_sql(name) for name, _ in node.columns)})"
        case Filter():
            return f"Filter {spelled(node.where)}"
        case Project():
            return f"Project {_listed(_named(*each) for each in node.columns)}"
        case Join():
            return f"{'Left join' if node.kind == 'left' else 'Join'}{_on(node.on)}"
        case GroupJoin():
            return f"Group join {_listed(_added(*each) for each in node.adds)}{_on(node.on)}"
        case Window():
            return f"Window {_listed(f'{as_sql(n)} = {_call(c)}' for n, c in node.adds)}"
        case Group():
            adds = (_added(*each) for each in node.adds)
            return f"Group {_listed((*(_named(*each) for each in node.keys), *adds)) or 'all'}"
        case Union():
            return f"Union all ({_listed(map(as_sql, node.columns))})"
        case Bound():
            limits = (f"{one.rows:,} in each {_cells(one)}" for one in node.limits)
            return f"Bound {_listed([f'{node.rows:,}', *limits])}"


def _stored(scan: Scan) -> str:
    named = f" as {as_sql(scan.prefix.rstrip('.'))}" if scan.prefix else ""
    along = "".join(f" → {as_sql(source.table.name)}" for source, _ in scan.along)
    return f"{as_sql(scan.source.table.name)}{along}{named}"


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)


def _named(name: str, value: RowExpression) -> str:
    same = isinstance(value, RowColumn) and value.name == name
    return as_sql(name) if same else f"{as_sql(name)} = {spelled(value)}"


def _on(on: RowExpression | None) -> str:
    return "" if on is None else f" on {spelled(on)}"


def _added(name: str, agg: Agg) -> str:
    value = "*" if agg.value is None else spelled(agg.value)
    where = "" if agg.where is None else f" where {spelled(agg.where)}"
    return f"{as_sql(name)} = {agg.function}({value}){where}"


def _cells(limit: CellLimit) -> str:
    return " × ".join(as_sql(cells.column) for cells in limit.cells)


def _call(call: WindowCall) -> str:
    given = _listed((*map(spelled, call.arguments), *map(str, call.numbers)))
    parts = [*(as_sql(name) for name, _ in call.told), *map(spelled, call.partition)]
    order = (
        f"{spelled(one.value)}{' desc' * one.descending}{' nulls first' * one.nulls_first}"
        for one in call.order
    )
    over = [f"by {_listed(parts)}"] if parts else []
    over += [f"order {sort}"] if (sort := _listed(order)) else []
    over += [call.frame.sql] if call.frame is not None else []
    over += [f"where {spelled(call.holds)}"] if call.holds is not None else []
    return f"{call.function}({given}) over ({' '.join(over)})"
