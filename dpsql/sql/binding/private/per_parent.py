"""Rows beside those that they refer to, written as subqueries of each of the latter.

`a LEFT JOIN d` keeps the rows of `a` that no row of `d` refers to, so what is counted are the rows
of neither. The same is said of the rows of `a` alone, each with what its own rows of `d` come to:

    COUNT(d.id)                                SUM((SELECT COUNT(d.id) FROM d WHERE …))
    COUNT(DISTINCT CASE WHEN d.x THEN a.u END) COUNT(DISTINCT a.u) FILTER (WHERE EXISTS (…))
    COUNT(DISTINCT a.id), by which they meet   COUNT(*)
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.errors import Span
from dpsql.hints import Hint
from dpsql.schema.names import folded
from dpsql.sql.binding.expressions import Expr, is_aggregate
from dpsql.sql.binding.joins import JoinedItem
from dpsql.sql.text.edits import written
from dpsql.sql.text.spans import SourceText


def of_each_parent(joined: JoinedItem, key: str, source: SourceText) -> list[Hint]:
    """Write a SELECT with a LEFT JOIN over the rows that are kept; nothing if it can't be seen how.

    Args:
        joined: the item that refers to them.
        key: the column by which it does, of which each of them has another value.
        source: the statement's text.
    """
    select = joined.item.find_ancestor(exp.Select)
    if joined.kind != "left" or joined.on is None or select is None:
        return []
    item, on = (source.text(source.node(node)) for node in (joined.item, joined.on))
    edits: list[tuple[Span, str]] = []
    for part in select.expressions:
        for node in part.find_all(exp.AggFunc):
            text = _of_parent(node, joined, key, (item, on), source)
            if text is None:
                return []
            edits.append((source.node(node), text))
    edits.append((Span(source.joining(joined.item).start, source.node(joined.on).end), ""))
    sql = source.sql
    for span, text in sorted(edits, reverse=True):
        sql = sql[: span.start] + text + sql[span.end :]
    return [written(source, " ".join(sql.split()), (0, len(source.sql)))]


def _of_parent(
    node: Expr, joined: JoinedItem, key: str, beside: tuple[str, str], source: SourceText
) -> str | None:
    """Write an aggregate over the rows that are kept; None if it isn't known as which."""
    inner = node.this
    sides = [_is_of(column, joined) for column in node.find_all(exp.Column)]
    if isinstance(inner, exp.Distinct) and len(inner.expressions) == 1:
        return _distinct(node, inner.expressions[0], joined, key, beside, source)
    if isinstance(node, (exp.Count, exp.Sum)) and sides and all(sides) and is_aggregate(node):
        item, on = beside
        return f"SUM((SELECT {source.text(source.node(node))} FROM {item} WHERE {on}))"
    return None


def _distinct(
    node: Expr, of: Expr, joined: JoinedItem, key: str, beside: tuple[str, str], source: SourceText
) -> str | None:
    if isinstance(of, exp.Case) and len(of.args["ifs"]) == 1 and of.args.get("default") is None:
        condition, value = (of.args["ifs"][0].args[key] for key in ("this", "true"))
        if of.this is not None or not all(
            _is_of(c, joined) for c in condition.find_all(exp.Column)
        ):
            return None
        counted, asked = (source.text(source.node(part)) for part in (value, condition))
        item, on = beside
        exists = f"EXISTS (SELECT 1 FROM {item} WHERE {on} AND {asked})"
        return f"COUNT(DISTINCT {counted}) FILTER (WHERE {exists})"
    if not isinstance(of, exp.Column) or _is_of(of, joined):
        return None
    return "COUNT(*)" if folded(of.name) == folded(key) else source.text(source.node(node))


def _is_of(column: exp.Column, joined: JoinedItem) -> bool:
    """Whether a column says that it is of the joined item."""
    return folded(column.table) == folded(joined.item.alias_or_name)
