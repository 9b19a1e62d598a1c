"""Coarse columns: expressions that the cells of a column don't determine are refused.

A cell of bins, or of dates with a coarse grain, stands for many stored values, and expressions are
evaluated at its first one. So what is asked must be the same for all of them. The days of a cell
are few: all of them are tried. The numbers of a bin are not: such a column may be compared with
other values only, directly, and the comparisons can change there and nowhere else. They are tried
at the first and last number of each bin, and at, just below and just above each compared value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.errors import ResourceLimitError, SqlError
from dpsql.schema import Table
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import Bound, Expr, column, rebuild, render
from dpsql.sql.sandbox import Sandbox, SandboxError

MAX_TRIED = 2**26
"""Combinations of cells, public rows and days that are tried."""
MAX_COMPARED = 200
"""Values with which a column of bins is compared in one expression."""
_COMPARISONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.Between, exp.In, exp.Is,
)  # fmt: skip

Cells = Callable[[Sequence[str]], str]
"""Returns SQL for the joint cells of columns."""


class CoarseColumns:
    """Checks the expressions of one statement."""

    def __init__(self, sandbox: Sandbox, table: Table, sql: str, cells: Cells) -> None:
        self._sandbox = sandbox
        self._table = table
        self._sql = sql
        self._cells = cells
        self._index = {name: i for i, name in enumerate(table.columns)}
        self._checked: set[tuple[str, bool]] = set()

    def check(
        self, bound: Bound, relations: Sequence[Relation], *, truth: bool, plain: bool
    ) -> None:
        """Refuse an expression that a column's cells don't determine.

        Args:
            bound: the expression.
            relations: the public relations that it may depend on.
            truth: whether only its being true matters.
            plain: whether the column itself may be asked for: its values are then those with
                which the ranges begin.

        Raises:
            SqlError: it cuts through a cell.
        """
        coarse = [a for a in sorted(bound.attributes) if self._table.columns[a].uppers is not None]
        if not coarse or (plain and bound.sql == render(column(f"__a{self._index[coarse[0]]}"))):
            return
        if (bound.sql, truth) in self._checked:
            return
        self._checked.add((bound.sql, truth))
        if len(coarse) > 1:
            raise self._error(bound, f"{coarse[0]} and {coarse[1]} are known by ranges only.", None)
        used = [r for r in relations if r.number in bound.relations]
        name = coarse[0]
        if self._table.columns[name].type == "DATE":
            cut = self._cuts_days(bound, name, used, truth)
        else:
            cut = self._cuts_bins(bound, name, used, truth)
        if cut:
            message = f"The column {name} is known by ranges only, and this cuts through one."
            raise self._error(bound, message, name)

    def _cuts_days(self, bound: Bound, name: str, used: Sequence[Relation], truth: bool) -> bool:
        i, domain = self._index[name], self._table.columns[name]
        days = self._sandbox.new_name("days")
        self._sandbox.create(
            days,
            f"SELECT value AS first, unnest(range(value::TIMESTAMP, "
            f"upper::TIMESTAMP + INTERVAL 1 DAY, INTERVAL 1 DAY))::DATE AS __day "
            f"FROM {self._sandbox.domain(i, domain)} WHERE value IS NOT NULL",
        )
        ((count,),) = self._sandbox.rows(f"SELECT count(*) FROM {days}")
        others = [a for a in bound.attributes if a != name]
        size = math.prod(self._table.columns[a].size for a in others) * count
        source = self._source(bound, used, size)
        tried = _replaced(bound.node, f"__a{i}", column("__day"))
        return self._differs(bound.sql, [tried], f"{source} JOIN {days} ON first = __a{i}", truth)

    def _cuts_bins(self, bound: Bound, name: str, used: Sequence[Relation], truth: bool) -> bool:
        i = self._index[name]
        compared = self._compared(bound, name)
        tried = [_replaced(bound.node, f"__a{i}", column(f"__u{i}"))]
        for value in dict.fromkeys(map(render, compared)):
            number = f"({value})::DOUBLE"
            up, down = (f"nextafter({number}, '{s}infinity'::DOUBLE)" for s in ("", "-"))
            for point in (number, up, down):
                inside = f"{point} BETWEEN __a{i} AND __u{i}"
                moved = exp.Var(this=f"(CASE WHEN {inside} THEN {point} ELSE __a{i} END)")
                tried.append(_replaced(bound.node, f"__a{i}", moved))
        size = math.prod(self._table.columns[a].size for a in bound.attributes)
        return self._differs(bound.sql, tried, self._source(bound, used, size), truth)

    def _compared(self, bound: Bound, name: str) -> list[Expr]:
        """Return everything with which a column of bins is compared.

        Raises:
            SqlError: something else is done with it.
        """
        place = f"__a{self._index[name]}"
        found: list[Expr] = []
        for part in bound.node.find_all(exp.Column):
            if part.name != place:
                continue
            inner: Expr = part
            while isinstance(inner.parent, exp.Paren):
                inner = inner.parent
            parent = inner.parent
            others = [p for p in parent.iter_expressions() if p is not inner] if parent else []
            private = any(c.name.startswith("__a") for o in others for c in o.find_all(exp.Column))
            queried = any(o.find(exp.Query) for o in others)
            if not isinstance(parent, _COMPARISONS) or private or queried:
                message = f"The column {name} is known by ranges only: it can just be compared."
                raise self._error(bound, message, name)
            found += [o for o in others if not isinstance(o, exp.Null)]
        if len(found) > MAX_COMPARED:
            raise self._error(bound, f"{name} is compared with too many values.", name)
        return found

    def _source(self, bound: Bound, used: Sequence[Relation], size: int) -> str:
        if size * math.prod(max(1, r.rows) for r in used) > MAX_TRIED:
            raise ResourceLimitError(
                "There are too many values to try whether this cuts through a range.",
                hint="compare with fewer values, or coarser columns.",
            )
        tables = "".join(f" CROSS JOIN {r.table}" for r in used)
        return f"{self._cells(tuple(sorted(bound.attributes)))}{tables}"

    def _differs(self, sql: str, tried: Sequence[str], source: str, truth: bool) -> bool:
        def value(text: str) -> str:
            return f"(({text}) IS TRUE)" if truth else f"({text})"

        tests = " OR ".join(f"{value(sql)} IS DISTINCT FROM {value(other)}" for other in tried)
        try:
            ((count,),) = self._sandbox.rows(f"SELECT count(*) FROM {source} WHERE {tests}")
        except SandboxError:
            return False  # the evaluation itself will fail, and say where
        return bool(count)

    def _error(self, bound: Bound, message: str, name: str | None) -> SqlError:
        hint = "compare each of them with values."
        if name is not None:
            values = self._table.columns[name].values
            more = ", …" if len(values) > 6 else ""
            shown = ", ".join(str(v) for v in values[:6])
            hint = f"its ranges begin at {shown}{more}: compare with these by >= and <."
        return SqlError(message, sql=self._sql, span=bound.span, hint=hint)


def _replaced(node: Expr, name: str, other: Expr) -> str:
    """Write an expression with something else in place of a column."""

    def change(part: Expr) -> Expr:
        if isinstance(part, exp.Column) and part.name == name:
            return other.copy()
        return rebuild(part, change)

    return render(change(node))
