"""Windows over the rows of a SELECT: what each is computed of, and of which rows of the unit.

    SELECT status, COUNT(*) FROM (
        SELECT *, row_number() OVER (PARTITION BY customer_id ORDER BY day) AS place FROM orders
    ) WHERE place = 1 GROUP BY status

PARTITION BY must name what tells the unit of a row: its id, or what refers to a row that is the
unit's own. So only rows of one unit are looked at, of which WHERE is true; QUALIFY chooses among
them afterwards, as in SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from sqlglot import exp

from dpsql.errors import SqlError, printable
from dpsql.hints import ask
from dpsql.rel.nodes import Id
from dpsql.rows.windows import MOST_AWAY, WindowFrame
from dpsql.schema import Table
from dpsql.schema.names import capitals
from dpsql.sql.algebra.described import DescribedRelation
from dpsql.sql.algebra.unit_sums import AGGREGATES
from dpsql.sql.algebra.visible import telling_column
from dpsql.sql.binding.bind import RowBinder, Visits
from dpsql.sql.binding.canonical import id_of
from dpsql.sql.binding.expressions import BoundExpr, Expr, is_star, with_named
from dpsql.sql.binding.scope import Home, VisibleItem
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


class WindowSort(NamedTuple):
    """An expression that the rows of a window are sorted by, as it is bound."""

    value: BoundExpr
    descending: bool
    nulls_first: bool


class WindowParts(NamedTuple):
    """The parts of a window over rows of a unit, bound."""

    table: Table
    told: tuple[str, ...]
    """Columns of PARTITION BY that tell to which rows these belong."""
    partition: tuple[BoundExpr, ...]
    order: tuple[WindowSort, ...]
    asked: tuple[str, tuple[BoundExpr, ...], tuple[int, ...]]
    """The function, its arguments, and its constants."""
    frame: WindowFrame | None


class _Translator(Protocol):
    @property
    def loose(self) -> Mapping[Id, str]: ...
    def rely_on(self, ids: Iterable[Id]) -> None: ...


class _Rows(Protocol):
    """The rows of a SELECT under translation: see `RowsOfSelect`."""

    source: SourceText
    select: exp.Select

    @property
    def queries(self) -> _Translator: ...
    @property
    def of(self) -> DescribedRelation: ...
    @property
    def items(self) -> Sequence[VisibleItem]: ...
    def table(self) -> Table: ...
    def home(self) -> Home: ...
    def bind(self, node: Expr) -> BoundExpr: ...
    def refuse(self, node: Expr, outer: object) -> Expr: ...


class PartsOfWindows:
    """Reads one window over the rows of a SELECT."""

    def __init__(self, rows: _Rows) -> None:
        self._source, self._select, self._rows = rows.source, rows.select, rows
        self._binder = _Preparing(rows, exp.Select(expressions=[]))

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
        table = self._rows.table()
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

    def _partition(
        self, window: exp.Window, table: Table, at: Expr
    ) -> tuple[tuple[str, ...], tuple[BoundExpr, ...]]:
        nodes = window.args.get("partition_by") or []
        bounds = [self._binder.bind(node) for node in nodes]
        of = self._rows.of
        ids = [id_of(bound, self._rows.table()) for bound in bounds]
        told = [id_ for id_ in ids if id_ is not None and of.tells.get(id_)]
        if not told and of.are_told(ids):
            told = list(of.ids)
        if not told:
            raise self._source.unsupported(
                at,
                "A window over single rows is not supported, but for rows of one unit.",
                self._quantile(window) + self._by_unit(),
            )
        if all(id_ in self._rows.queries.loose for id_ in told):
            self._rows.queries.rely_on(told[:1])
        rest = [b for b, id_ in zip(bounds, ids, strict=True) if id_ not in told]
        return tuple(dict.fromkeys(told)), tuple(dict.fromkeys(rest))

    def _by_unit(self) -> str:
        """Name what tells the unit, for PARTITION BY."""
        column = telling_column(self._rows.items, self._rows.of)
        return (
            f"partition it by the unit: OVER (PARTITION BY {column}…). Windows over all rows can "
            "be computed on groups: SUM(COUNT(*)) OVER (…), with GROUP BY."
        )

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
        """Return the function, its arguments, and its constants."""
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

    def _refused(self, at: Expr, what: str, hint: str) -> SqlError:
        return self._source.unsupported(
            at, f"{what} is not supported over the rows of a unit.", hint
        )


class _Preparing(RowBinder):
    """Binds expressions after what they need was added to the relation."""

    def __init__(self, rows: _Rows, select: exp.Select) -> None:
        visits = Visits(rows.refuse, lambda node, binder: None, rows.refuse)
        super().__init__(rows.source, select, rows.home(), visits)
        self._rows = rows

    def bind(self, node: Expr) -> BoundExpr:
        return self._rows.bind(node)
