"""Windows over the rows of a unit: each is a column of the rows that it is over.

    SELECT status, COUNT(*) FROM (
        SELECT *, row_number() OVER (PARTITION BY customer_id ORDER BY day) AS place FROM orders
    ) WHERE place = 1 GROUP BY status

counts orders, and which of the customer's orders one is is a column of it, as `rows/windows.py`
says. PARTITION BY must name what tells the unit of a row: its id, or what refers to a row that is
the unit's own. So only rows of one unit are looked at, of which WHERE is true; QUALIFY chooses
among them afterwards, as in SQL.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlglot import exp

from dpsql.errors import SchemaError, SqlError, printable
from dpsql.hints import ask
from dpsql.rows.windows import MOST_AWAY, WindowFrame
from dpsql.schema import Table
from dpsql.schema.grain import unit_columns
from dpsql.schema.names import as_sql, capitals
from dpsql.sql.binding.bind import RowBinder
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import (
    BoundExpr,
    Expr,
    column,
    is_star,
    render,
    with_named,
)
from dpsql.sql.binding.private.grains import own_unit, rows_told
from dpsql.sql.binding.scope import stored_place
from dpsql.sql.binding.tables import NamedTables, UnitWindow, WindowSort
from dpsql.sql.binding.units.group import (
    AGGREGATES,
    bounds_of_sum,
    canonical_names,
    described,
)
from dpsql.sql.text.spans import SourceText

_FUNCTIONS: dict[type, str] = {
    exp.RowNumber: "row_number",
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
    exp.PercentRank: "percent_rank",
    exp.CumeDist: "cume_dist",
    exp.Ntile: "ntile",
    exp.Lag: "lag",
    exp.Lead: "lead",
    exp.FirstValue: "first_value",
    exp.LastValue: "last_value",
    exp.NthValue: "nth_value",
}
_PLACES = (exp.RowNumber, exp.Rank, exp.PercentRank, exp.CumeDist, exp.Ntile)
_FRAMED = frozenset({"first_value", "last_value", "nth_value"})
_KNOWN = (
    "use row_number, rank, dense_rank, ntile, lag, lead, first_value, last_value, COUNT(*) FILTER "
    "(WHERE …), COUNT, SUM, AVG, MIN or MAX."
)
_ALL = WindowFrame(rows=True, start=None, end=None)


class WindowParts(NamedTuple):
    """The parts of a window over rows of a unit, bound."""

    table: Table
    told: tuple[str, ...]
    """Columns of PARTITION BY that tell to which rows these belong."""
    partition: tuple[BoundExpr, ...]
    order: tuple[WindowSort, ...]
    asked: tuple[str, tuple[BoundExpr, ...], tuple[int, ...]]
    """The function, what it is of, and the constants that it takes."""
    frame: WindowFrame | None


class UnitWindows:
    """Binds the windows of one SELECT over private rows.

    Args:
        source: the statement's text.
        tables: what the names of tables mean.
        select: the SELECT.
        binder: binds what is computed of its rows.
        conditions: what is true of the rows that windows look at.
        relations: the public tables that it joins.
    """

    def __init__(
        self,
        source: SourceText,
        tables: NamedTables,
        select: exp.Select,
        binder: RowBinder,
        conditions: Sequence[BoundExpr],
        relations: Sequence[Relation],
    ) -> None:
        self._source, self._tables, self._select = source, tables, select
        self._binder, self._relations = binder, relations
        self._conditions = tuple(dict.fromkeys(conditions))

    def bind(self, node: exp.Window) -> BoundExpr:
        """Return the column that a window is.

        Raises:
            SqlError: it isn't over rows of one unit, or its value would be left open.
        """
        if self._relations:
            raise self._source.unsupported(
                node,
                "A window over private rows that are joined with public ones is not supported.",
                "write it in a query of its own, and join that: FROM (SELECT *, … OVER (…) AS n "
                "FROM …) AS t JOIN ….",
            )
        span = self._source.node(node)
        table, told, partition, order, (function, arguments, numbers), frame = self.parts(node)
        made = UnitWindow(
            "",
            table,
            function,
            arguments,
            numbers,
            partition,
            told,
            order,
            frame,
            self._conditions,
            span,
            self._source,
        )
        if any(part.relations for part in made.bound):
            raise self._refused(node, "A window over public columns", "leave them out.")
        made = made.named(self._name(made))
        place = self._tables.add_rows(made)
        found = column(f"__w{place}")
        found.meta.update(start=span.start, end=span.end - 1)
        own = frozenset({made.name})
        return BoundExpr(found, render(found), frozenset(), frozenset(), span, own)

    def parts(self, node: exp.Window) -> WindowParts:
        """Return what a window asks, over columns of rows.

        Raises:
            SqlError: it isn't over rows of one unit, or its value would be left open.
        """
        window = with_named(node, self._select.args.get("windows") or [])
        if window is None:
            name = printable(node.args["alias"].name)
            raise self._source.error(
                node, f"There is no window {name}.", "name it: WINDOW w AS (…)."
            )
        table = self._table(node)
        told, partition = self._partition(window, table, node)
        order = tuple(self._sorted(window))
        function, arguments, numbers = self._function(window.this, node)
        frame = self._frame(function, window, node)
        if function == "count_distinct" and frame is not None and not frame.is_whole:
            raise self._refused(node, "COUNT(DISTINCT …) of some rows", "leave ORDER BY out.")
        if frame is None and function not in _FUNCTIONS.values():
            order = ()  # of all rows, in whatever order
        asked = function, arguments, numbers
        return WindowParts(table, told, partition, order, asked, frame)

    def _table(self, at: Expr) -> Table:
        try:
            return self._tables.grain(self._binder.table)
        except SchemaError as error:
            raise self._source.located(error, at) from None

    def _partition(
        self, window: exp.Window, table: Table, at: Expr
    ) -> tuple[tuple[str, ...], tuple[BoundExpr, ...]]:
        """Return what the rows have in common, besides their unit: columns, and what else."""
        nodes = window.args.get("partition_by") or []
        places = [stored_place(node, self._binder.scope) for node in nodes]
        named = {place for place in places if place is not None}
        if not tells_unit(table, named):
            raise self._source.unsupported(
                at,
                "A window over single rows is not supported, but for rows of one unit.",
                self._quantile(window)
                + f"partition it by the unit: OVER (PARTITION BY {_teller(table)} …). "
                "Windows over all rows can be computed on groups: SUM(COUNT(*)) OVER (…), with "
                "GROUP BY.",
            )
        units = set(unit_columns(table)) | {name for _, name in own_unit(table)}
        told, partition = dict[str, None](), list[BoundExpr]()
        for node, place in zip(nodes, places, strict=True):
            if place is not None and tells_unit(table, {place}):
                told |= {} if place in units else {place: None}
            else:
                partition.append(self._binder.bind(node))
        return tuple(told), tuple(dict.fromkeys(partition))

    def _quantile(self, window: exp.Window) -> str:
        """Name the quantile for which rows may have been numbered by what they are sorted by."""
        order = window.args.get("order")
        sorted_by = order.expressions if isinstance(order, exp.Order) else []
        if not isinstance(window.this, _PLACES) or not sorted_by:
            return ""
        value = self._source.text(self._source.node(sorted_by[0].this))
        statement = f"SELECT QUANTILE_DISC({value}, 0.25) AS quartile …"
        return "quantiles need no window: " + ask(statement) + "; or "

    def _sorted(self, window: exp.Window) -> Iterator[WindowSort]:
        order = window.args.get("order")
        for node in order.expressions if order is not None else []:
            descending, first = bool(node.args.get("desc")), bool(node.args.get("nulls_first"))
            yield WindowSort(self._binder.bind(node.this), descending, first)

    def _function(self, node: Expr, at: Expr) -> tuple[str, tuple[BoundExpr, ...], tuple[int, ...]]:
        """Return what is computed, of what, and the constants that it takes."""
        function = _FUNCTIONS.get(type(node))
        if function is None:
            return *self._aggregate(node, at), ()
        if function in {"lag", "lead"}:
            offset, default = node.args.get("offset"), node.args.get("default")
            away = 1 if offset is None else self._number(offset, 0)
            given = [node.this] if default is None else [node.this, default]
            return function, tuple(map(self._binder.bind, given)), (away,)
        if function == "nth_value":
            number = self._number(node.args.get("offset"), 1)
            return function, (self._binder.bind(node.this),), (number,)
        if function == "ntile":
            return function, (), (self._number(node.this, 1),)
        if function in _FRAMED:
            return function, (self._binder.bind(node.this),), ()
        if node.expressions or node.args.get("this"):
            raise self._refused(at, f"{function} with arguments", "leave them out.")
        return function, (), ()

    def _aggregate(self, node: Expr, at: Expr) -> tuple[str, tuple[BoundExpr, ...]]:
        condition = None
        if isinstance(node, exp.Filter):
            node, condition = node.this, node.expression.this
        function, of = AGGREGATES.get(type(node)), node.this
        if function is None or node.expressions or isinstance(of, exp.Order):
            raise self._refused(at, "This window", _KNOWN)
        if isinstance(of, exp.Distinct):
            if function != "count" or len(of.expressions) != 1:
                raise self._refused(at, "DISTINCT in this window", "leave it out.")
            function, of = "count_distinct", of.expressions[0]
        if is_star(of) and condition is None:
            return function, ()
        if condition is not None:
            counted = exp.Literal.number(1) if is_star(of) else of.copy()
            of = exp.Case(ifs=[exp.If(this=condition.copy(), true=counted)])
        return function, (self._binder.bind(of),)

    def _number(self, node: object, least: int) -> int:
        inner = node.unnest() if isinstance(node, Expr) else None
        good = isinstance(inner, exp.Literal) and not inner.is_string and inner.name.isdecimal()
        if inner is None or not good or not least <= int(inner.name) <= MOST_AWAY:
            place = node if isinstance(node, Expr) else self._select
            raise self._source.unsupported(
                place,
                "In a window over rows this must be a constant.",
                f"write a whole number from {least} to {MOST_AWAY:,}.",
            )
        return int(inner.name)

    def _frame(self, function: str, window: exp.Window, at: Expr) -> WindowFrame | None:
        """Return which rows are looked at; None if all are, by what the function is."""
        ordered, spec = window.args.get("order") is not None, window.args.get("spec")
        if function in _FUNCTIONS.values() and function not in _FRAMED:
            return None
        if spec is None:
            frame = WindowFrame(rows=False, start=None, end=0 if ordered else None)
        else:
            frame = self._written_frame(spec, at)
        if not frame.rows and not ordered:
            frame = WindowFrame(rows=False, start=None, end=None)  # as all rows are equal
        if function not in _FRAMED:
            return None if frame.is_whole else frame
        if frame.rows or frame.is_whole:
            return WindowFrame(rows=True, start=frame.start, end=frame.end)
        ends = {"first_value": frame.start, "last_value": frame.end}
        if ends.get(function, 0) is None:  # it is one of all rows, whatever the other end is
            return _ALL
        raise self._refused(
            at,
            f"{function} up to rows that are equal in ORDER BY",
            "say which rows are meant: ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING.",
        )

    def _written_frame(self, spec: Expr, at: Expr) -> WindowFrame:
        kind, rows = capitals(spec.text("kind")), capitals(spec.text("kind")) == "ROWS"
        start = self._edge(spec.args.get("start"), spec.args.get("start_side"), "PRECEDING")
        end = self._edge(spec.args.get("end"), spec.args.get("end_side"), "FOLLOWING")
        numbers = {0 if edge is None else edge for edge in (start, end)}
        backwards = start is not None and end is not None and start > end
        if kind not in {"ROWS", "RANGE"} or backwards or not (rows or numbers == {0}):
            raise self._refused(
                at,
                "This frame",
                "count rows: ROWS BETWEEN 2 PRECEDING AND CURRENT ROW; or use RANGE with "
                "UNBOUNDED and CURRENT ROW alone.",
            )
        return WindowFrame(rows=rows, start=start, end=end)

    def _edge(self, written: object, side: object, unbounded: str) -> int | None:
        """Return how many rows after the row an end of a frame is; None if it has none."""
        if written is None or written == "CURRENT ROW":
            return 0
        if written == "UNBOUNDED":
            return None if side == unbounded else MOST_AWAY + 1
        number = self._number(written, 0)
        return number if side == "FOLLOWING" else -number

    def _name(self, made: UnitWindow) -> str:
        """Name a column by what it is, in full: equal names are equal columns."""
        table = made.around
        names = canonical_names(table, self._tables.names_of_rows(table))

        def written(bound: BoundExpr) -> str:
            found = bound.node.copy()
            for part in [part for part in found.find_all(exp.Column) if part.name in names]:
                part.set("this", exp.to_identifier(names[part.name], quoted=True))
            return render(found)

        read = {part.name for one in made.bound for part in one.node.find_all(exp.Column)}
        added = {part.name for one in made.arguments for part in one.node.find_all(exp.Column)}
        parts = (
            *described(table, names, read),
            made.function,
            [written(one) for one in made.arguments],
            made.numbers,
            made.told,
            sorted(map(written, made.partition)),
            [(written(one.value), one.descending, one.nulls_first) for one in made.order],
            None if made.frame is None else made.frame.sql,
            sorted(map(written, made.conditions)),
            *bounds_of_sum(made.function, table, names, added),
        )
        digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
        return f"{made.function} over {table.name} {digest}"

    def _refused(self, at: Expr, what: str, hint: str) -> SqlError:
        return self._source.unsupported(
            at, f"{what} is not supported over the rows of a unit.", hint
        )


def tells_unit(table: Table, names: Collection[str]) -> bool:
    """Whether rows that agree in some columns are of one unit.

    Args:
        table: the rows, with the columns of those that they refer to.
        names: the columns.
    """
    unit, sides = table.unit, table.origin.sides if table.origin is not None else ()
    if unit is None:
        return False
    if not unit.joins and {name for name, _ in unit.columns} <= set(names):
        return True
    if not set(unit_columns(table)).isdisjoint(names):
        return True
    steps = [f"{', '.join(join.columns)}." for join in unit.joins]
    way = {"".join(steps[: i + 1]) for i in range(len(steps))}
    on_way = [p for p in table.parents if p.on_way or p.prefix in way]
    if any({p.above + name for name in p.join.columns} <= set(names) for p in on_way):
        return True
    own = {(p.table.path, p.join.key): p.prefix for p in on_way if not p.join.further}
    for name in names:
        if any(own.get(row) == prefix for row, prefix in rows_told(table, name).items()):
            return True
    for side in sides:  # of a combination
        inside = {of for of, joined in side.names.items() if joined in names}
        if not side.above and tells_unit(side.table, inside):
            return True
    return False


def _teller(table: Table) -> str:
    """Name a column that tells the unit, as it is written in SQL."""
    sides = table.origin.sides if table.origin is not None else ()
    unit = next((side.table for side in sides if not side.above), table).unit
    if unit is None:
        return "…"
    first = unit.joins[0].columns if unit.joins else tuple(name for name, _ in unit.columns)
    return ", ".join(map(as_sql, first))


@dataclass(frozen=True, slots=True)
class Qualified:
    """Binds the windows of queries of private rows, and the conditions on them.

    Args:
        source: the statement's text.
        tables: what the names of tables mean.
    """

    source: SourceText
    tables: NamedTables

    def conditions(
        self,
        select: exp.Select,
        binder: RowBinder,
        holds: Sequence[BoundExpr],
        relations: Sequence[Relation],
        *,
        counted: bool,
    ) -> tuple[BoundExpr, ...]:
        """Let the columns of a query be windows; return the conditions that QUALIFY has.

        Args:
            select: the query.
            binder: binds what is computed of its rows.
            holds: what is true of them.
            relations: the public tables that it joins.
            counted: whether its rows are what is counted, or looked into.
        """
        windows = UnitWindows(self.source, self.tables, select, binder, holds, relations)
        if binder.table.unit is not None:
            binder.see(windows.bind if counted else self._of_others)
        clause = select.args.get("qualify")
        return () if clause is None else binder.conditions(clause.this)

    def _of_others(self, node: exp.Window) -> BoundExpr:
        raise self.source.unsupported(
            node,
            "A window over the rows of a joined table that the counted rows refer to is not "
            "supported.",
            "look for such a row: EXISTS (SELECT 1 FROM (SELECT *, … OVER (…) AS n FROM orders) o "
            "WHERE o.id = items.order_id AND n = 1); or count the rows that the window is over.",
        )
