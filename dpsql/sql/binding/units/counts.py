"""Counts of a table's units by what all of the rows of each say.

    SELECT LEAST(n, 5) AS n, COUNT(*) FROM (
        SELECT person, COUNT(*) AS n FROM visits GROUP BY person
    ) GROUP BY 1

has one row for each person after FROM. There is no table of persons; but each visit has the group
of its person, `grouped.py`, so that it is

    SELECT LEAST(n, 5) AS n, COUNT(DISTINCT unit) FROM (
        SELECT v.person AS unit, g.n FROM visits v JOIN (SELECT … GROUP BY person) g USING (person)
    ) GROUP BY 1

in which persons are counted, and not their visits. Between the groups and what counts them there
may be queries that project and filter the groups, or group them by the unit again; public tables,
of which each row makes all rows once more; and LIMIT, if all that is left are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dpsql.schema import Table
from dpsql.schema.names import folded
from dpsql.sql.binding.expressions import (
    Expr,
    has_aggregate,
    is_aggregate,
    is_star,
    quoted,
    quoted_column,
    rebuild,
)
from dpsql.sql.binding.items import PrivateItems
from dpsql.sql.binding.joins import JoinedItem, joins_of
from dpsql.sql.binding.named import Grouped, Names
from dpsql.sql.binding.row_queries import column_name, inner_query
from dpsql.sql.binding.subqueries import Subqueries
from dpsql.sql.binding.units.group_rows import joined_rows, of_one_row
from dpsql.sql.text.spans import SourceText

UNIT = "__unit"
"""The column of the unit's id; no name of the analyst's begins so."""
_MORE = ("distinct", "offset", "qualify", "laterals", "windows")


@dataclass(frozen=True, slots=True)
class _OfUnits:
    """The content of FROM with one row for each unit, written as rows of the units."""

    item: Expr
    """With the column `UNIT`, in which rows of one unit are equal, as in all others."""
    columns: tuple[str, ...]
    of_unit: frozenset[str]
    """Those of its columns that are the unit's id, in small letters."""
    names: Names
    """What names mean in it."""
    beside: tuple[Expr, ...] = ()
    """Public items, of which each row makes all rows once more."""
    most: Expr | None = None
    """How many rows are taken at most."""


class UnitCounts:
    """Writes queries over one group for each unit as counts of units.

    Args:
        source: the statement's text.
        items: tells items after FROM apart.
        subqueries: tells what is over public tables alone.
    """

    def __init__(self, source: SourceText, items: PrivateItems, subqueries: Subqueries) -> None:
        self._source, self._items, self._subqueries = source, items, subqueries

    def counted(
        self, select: exp.Select, joins: Sequence[JoinedItem], names: Names
    ) -> tuple[exp.Select, Names] | None:
        """Return a query that counts groups of units as one that counts units, if it does."""
        found = self._only(select, joins, names)
        plain = not any(select.args.get(key) for key in ("where", "group", "having"))
        if found is None or (found.most is not None and not plain):
            return None
        good = True

        def change(node: Expr) -> Expr:
            nonlocal good
            if isinstance(node, exp.Filter) and _is_count(node.this):
                return _count(found, node.this, [node.expression.this])
            if _is_count(node):
                return _count(found, node, [])
            good = good and not is_aggregate(node) and not isinstance(node, exp.Query | exp.Window)
            return rebuild(node, change)

        made = exp.Select(expressions=[self._shown(node, change) for node in select.expressions])
        made.set("from_", exp.From(this=found.item))
        for key in ("where", "group", "having", "order", "limit"):
            if select.args.get(key) is not None:
                made.set(key, rebuild(select.args[key], change))
        made.parent = select.parent
        return (made, found.names) if good else None

    def _shown(self, node: Expr, change: Callable[[Expr], Expr]) -> Expr:
        return exp.Alias(this=change(node.unalias()), alias=quoted(column_name(node, self._source)))

    def _only(
        self, select: exp.Select, joins: Sequence[JoinedItem], names: Names
    ) -> _OfUnits | None:
        """Return what a query is over, if that has a row for each unit."""
        of_units = [(join, self._units(join.item, names)) for join in joins]
        found = [(join, units) for join, units in of_units if units is not None]
        if len(found) != 1 or any(select.args.get(key) for key in _MORE):
            return None
        ((join, units),) = found
        if any(one.kind != "inner" or one.using or one.on is not None for one in joins):
            return None
        beside = tuple(other.item for other in joins if other is not join)
        if any(self._subqueries.names_private(item, names) for item in beside):
            return None
        shown, alias = {folded(name) for name in units.columns}, folded(join.item.alias_or_name)
        if beside and not all(_is_of(node, alias, shown) for node in _columns(select)):
            return None
        return replace(units, beside=(*units.beside, *beside))

    def _units(self, item: Expr, names: Names) -> _OfUnits | None:
        """Return an item after FROM as rows of units, if it has one row for each of these."""
        grouped = self._items.grouped(item, names)
        if grouped is not None:
            table = self._items.of_unit(grouped)
            return None if table is None else _of_groups(grouped, table, item, names)
        query, alias = inner_query(item), item.args.get("alias")
        if not isinstance(query, exp.Select) or (alias is not None and alias.args.get("columns")):
            return None
        found = self._only(query, joins_of(query, self._source), names)
        if found is None or found.most is not None or query.args.get("with_") is not None:
            return None
        columns = {column_name(node, self._source): node.unalias() for node in query.expressions}
        starred = any(map(is_star, query.expressions))
        made = None if starred else _by_row(query, columns, found, names)
        if made is None or len(columns) < len(query.expressions):
            return None
        limit = query.args.get("limit")
        return replace(
            found,
            item=exp.Subquery(this=made, alias=alias.copy() if alias is not None else None),
            columns=tuple(columns),
            of_unit=frozenset(folded(n) for n, node in columns.items() if _is_unit(node, found)),
            most=None if limit is None else limit.expression,
        )


def _by_row(
    query: exp.Select, columns: Mapping[str, Expr], found: _OfUnits, names: Names
) -> exp.Select | None:
    """Write a query over units as one that returns a row for each of theirs; None if it doesn't."""
    group, made = query.args.get("group"), query.copy()
    if group is not None:
        keys = tuple(group.expressions)
        written = of_one_row(Grouped(query, names, tuple(columns.items()), keys))
        if written is None or not keys or not all(_is_unit(key, found) for key in keys):
            return None
        made = written
    if any(map(has_aggregate, made.expressions)) or made.args.get("having") is not None:
        return None
    made.set("from_", exp.From(this=found.item))
    for key in ("joins", "order", "limit"):
        made.set(key, None)
    shown = [
        exp.Alias(this=node.unalias(), alias=quoted(name))
        for name, node in zip(columns, made.expressions, strict=False)
    ]
    made.set("expressions", [*shown, exp.Alias(this=quoted_column(UNIT), alias=quoted(UNIT))])
    return made


def _is_unit(node: Expr, found: _OfUnits) -> bool:
    """Whether an expression is a column with the unit's id."""
    inner = node.unnest()
    return isinstance(inner, exp.Column) and folded(inner.name) in found.of_unit


def _of_groups(grouped: Grouped, table: Table, item: Expr, names: Names) -> _OfUnits:
    """Return groups of units as rows of these."""
    unit = table.unit
    column = "" if unit is None else unit.column
    rows = joined_rows(grouped, grouped.keys[0], table.path, column, UNIT)
    alias = exp.TableAlias(this=quoted(item.alias_or_name)) if item.alias_or_name else None
    keys = [key.unnest() for key in grouped.keys]
    own = frozenset(folded(name) for name, node in grouped.columns if node.unnest() in keys)
    shown = tuple(name for name, _ in grouped.columns)
    known = {**names, **grouped.names}
    return _OfUnits(exp.Subquery(this=rows, alias=alias), shown, own, known)


def _is_count(node: Expr) -> bool:
    return (
        isinstance(node, exp.Count)
        and not node.expressions
        and not isinstance(node.this, exp.Distinct)
    )


def _count(found: _OfUnits, node: Expr, conditions: Sequence[Expr]) -> Expr:
    """Count units in place of the rows that there are one of for each."""
    parts = [exp.Paren(this=part.copy()) for part in conditions]
    if not isinstance(node.this, exp.Star):
        there = exp.Is(this=exp.Paren(this=node.this.copy()), expression=exp.Null())
        parts.append(exp.Paren(this=exp.Not(this=there)))
    made: Expr = exp.Count(this=exp.Distinct(expressions=[quoted_column(UNIT)]))
    if parts:
        made = exp.Filter(this=made, expression=exp.Where(this=exp.and_(*parts, copy=False)))
    for item in found.beside:
        rows = exp.Select(expressions=[exp.Count(this=exp.Star())])
        rows.set("from_", exp.From(this=item.copy()))
        made = exp.Mul(this=made, expression=exp.Subquery(this=rows))
    if found.most is not None:
        made = exp.Least(this=exp.Paren(this=made), expressions=[found.most.copy()])
    return made


def _columns(node: Expr) -> list[exp.Column]:
    """Return the columns of a query that stand in none inside it."""
    found: list[exp.Column] = []
    pending = [
        part
        for key, value in node.args.items()
        if key not in {"from_", "joins", "with_"}
        for part in (value if isinstance(value, list) else [value])
        if isinstance(part, exp.Expr)
    ]
    while pending:
        part = pending.pop()
        if isinstance(part, exp.Column):
            found.append(part)
        elif not isinstance(part, exp.Query):
            pending += part.iter_expressions()
    return found


def _is_of(node: exp.Column, alias: str, shown: set[str]) -> bool:
    """Whether a column is one of the item of this name."""
    return folded(node.table) in {"", alias} and folded(node.name) in shown
