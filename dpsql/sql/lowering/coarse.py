"""Coarse columns: expressions that the cells of a column don't determine are refused.

A cell of bins, of dates with a coarse grain, or of the days or hours of a TIMESTAMP stands for
many stored values, and expressions are evaluated at its first one. So what is asked must be the
same for all of them. The days of a cell are few: all of them are tried. The numbers of a bin and
the times of a day are not:

- a column of bins may be compared with other values only, directly, and the comparisons can change
  there and nowhere else. They are tried at the first and last number of each bin, and at, just
  below and just above each compared value;
- of a timestamp, it is proved that an expression depends on its day (its hour, its minute), but for
  comparisons of the column itself (see `instants`). These are tried in the same way, within each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence

from sqlglot import exp

from dpsql.errors import ResourceLimitError, SqlError
from dpsql.schema import Table
from dpsql.schema.sequences import TimeRange
from dpsql.schema.table import as_sql
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import BoundExpr, Expr, column, rebuild, render
from dpsql.sql.binding.instants import (
    COMPARISONS,
    DependsOnTimeError,
    compared_with,
    known_by,
)
from dpsql.sql.sandbox.database import Sandbox, SandboxError, column_type
from dpsql.sql.text.spans import SourceText

MAX_TRIED = 2**26
"""Combinations of cells, public rows and days that are tried."""
MAX_COMPARED = 200
"""Values with which a coarse column is compared in one expression."""

_CLOCK_TIME = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")

Cells = Callable[[Sequence[str]], str]
"""Returns SQL for the joint cells of columns."""


class CoarseColumns:
    """Checks the expressions of one statement."""

    def __init__(self, sandbox: Sandbox, table: Table, source: SourceText, cells: Cells) -> None:
        self._sandbox = sandbox
        self._table = table
        self._source = source
        self._cells = cells
        self._index = {name: i for i, name in enumerate(table.columns)}
        self._checked: set[tuple[str, bool]] = set()

    def check(
        self, bound: BoundExpr, relations: Sequence[Relation], *, truth: bool, plain: bool
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
        coarse = [a for a in sorted(bound.attributes) if self._table.columns[a].coarse]
        if not coarse or (plain and bound.sql == render(column(f"__a{self._index[coarse[0]]}"))):
            return
        if (bound.sql, truth) in self._checked:
            return
        self._checked.add((bound.sql, truth))
        tried = {name: points for name in coarse if (points := self._points(bound, name))}
        if len(tried) > 1:
            one, other, *_ = tried
            raise self._error(bound, f"{one} and {other} are known by ranges only.", None)
        used = [r for r in relations if r.number in bound.relations]
        for name, points in tried.items():
            if self._cuts(bound, name, points, used, truth):
                message = f"The column {name} is known by {self._ranges(name)} only, and this cuts "
                raise self._error(bound, f"{message}through one.", name)

    def _points(self, bound: BoundExpr, name: str) -> list[str]:
        """Return the values of a column at which an expression has to be tried, as SQL.

        They are over `__first` and `__last`, the least and the largest value of a cell, or of a
        day in it, and over the cells of the other columns.
        """
        domain = self._table.columns[name]
        if domain.type == "DOUBLE":
            points, of = ["__last"], column_type(domain)
            for value in self._compared(bound, name):
                number = f"({value})::{of}"
                nearby = (f"nextafter({number}, '{s}infinity'::{of})" for s in ("", "-"))
                points += [number, *nearby]
        elif domain.instant:
            points = ["__first"] if domain.timed and domain.uppers is not None else []
            for value in self._compared_instants(bound, name):
                moment = f"TRY_CAST(({value}) AS TIMESTAMP)"
                points += ["__last", moment]
                points += [f"({moment} {sign} INTERVAL 1 MICROSECOND)" for sign in "+-"]
        else:
            points = ["__first"]
        return list(dict.fromkeys(points))

    def _cuts(
        self,
        bound: BoundExpr,
        name: str,
        points: list[str],
        used: Sequence[Relation],
        truth: bool,
    ) -> bool:
        """Whether an expression differs within a cell of a column."""
        place = f"__a{self._index[name]}"
        source, size = self._spread(bound, name)
        tried = []
        for point in points:
            inside = f"{point} BETWEEN __first AND __last"
            moved = exp.Var(this=f"(CASE WHEN {inside} THEN {point} ELSE __first END)")
            tried.append(_replaced(bound.node, place, moved))
        if size * math.prod(max(1, r.rows) for r in used) > MAX_TRIED:
            raise _too_many()
        tables = "".join(f" CROSS JOIN {_rows(r)}" for r in used)
        return self._differs(bound.sql, tried, f"{source}{tables}", truth)

    def _spread(self, bound: BoundExpr, name: str) -> tuple[str, int]:
        """Return the cells of an expression's columns, with `__first` and `__last`; and how many.

        Where a cell is several days there is a row for each of these.
        """
        i, domain = self._index[name], self._table.columns[name]
        cells = self._cells(tuple(sorted(bound.attributes)))
        size = math.prod(self._table.columns[a].size for a in bound.attributes)
        if domain.type in {"DOUBLE", "TIMESTAMP"}:
            return f"(SELECT *, __a{i} AS __first, __u{i} AS __last FROM {cells})", size
        days = self._sandbox.new_name("days")
        of, last = ("TIMESTAMP", "+ INTERVAL 1 DAY - INTERVAL 1 MICROSECOND")
        if not domain.timed:
            of, last = "DATE", ""
        self._sandbox.create(
            days,
            f"SELECT __cell, __day::{of} AS __first, "
            f"(__day {last})::{of} AS __last FROM (SELECT value::{of} AS __cell, "
            f"unnest(range(value::TIMESTAMP, upper::TIMESTAMP + INTERVAL 1 DAY, INTERVAL 1 DAY)) "
            f"AS __day FROM {self._sandbox.domain(i, domain)} WHERE value IS NOT NULL)",
        )
        ((count,),) = self._sandbox.rows(f"SELECT count(*) FROM {days}")
        spread = f"(SELECT p.*, d.* EXCLUDE (__cell) FROM {cells} "
        return f"{spread}JOIN {days} d ON d.__cell = p.__a{i})", size // domain.size * count

    def _compared(self, bound: BoundExpr, name: str) -> list[str]:
        """Return everything with which a column of bins is compared, as SQL.

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
            if not isinstance(parent, COMPARISONS) or private or queried:
                message = f"The column {name} is known by ranges only: it can just be compared."
                raise self._error(bound, message, name)
            found += [o for o in others if not isinstance(o, exp.Null)]
        return self._few(found, bound, name)

    def _compared_instants(self, bound: BoundExpr, name: str) -> list[str]:
        """Return everything with which a timestamp is compared, as SQL.

        Raises:
            SqlError: something else depends on its time of day, or on the time of another clock.
        """
        domain, period = self._table.columns[name], self._period(name)
        try:
            found = compared_with(bound.node, f"__a{self._index[name]}", period)
        except DependsOnTimeError:
            message = f"The column {name} is known by its {period} only, and this depends on "
            message += "the time." if period == "day" else "more of it."
            raise self._error(bound, message, name) from None
        texts = (t.name for value in found for t in value.find_all(exp.Literal) if t.is_string)
        if domain.zone is not None and not all(map(_CLOCK_TIME.fullmatch, texts)):
            raise self._source.error(
                bound.span,
                f"The column {name} is what the clock shows in {domain.zone}, and this is no time "
                "of a clock without a zone.",
                f"write TIMESTAMP '{domain.values[0]:%Y-%m-%d} 18:00:00', of the clock there.",
            )
        return self._few(found, bound, name)

    def _few(self, compared: Iterable[Expr], bound: BoundExpr, name: str) -> list[str]:
        """Return the SQL of what is compared: few values, the same for all rows of a subquery."""
        found = list(compared)
        columns = (part.name for value in found for part in value.find_all(exp.Column))
        if not all(column.startswith("__") for column in columns):
            message = f"The column {name} is known by {self._ranges(name)} only: a subquery can't "
            raise self._error(bound, f"{message}compare it with its own columns.", name)
        values = list(dict.fromkeys(map(render, found)))
        if len(values) > MAX_COMPARED:
            raise self._error(bound, f"{name} is compared with too many values.", name)
        return values

    def _differs(self, sql: str, tried: Sequence[str], source: str, truth: bool) -> bool:
        def value(text: str) -> str:
            return f"(({text}) IS TRUE)" if truth else f"({text})"

        def caught(text: str) -> str:
            return f"TRY(list_value({value(text)}))"  # NULL if it fails, as no value is

        def differing(of: Callable[[str], str]) -> int | None:
            tests = " OR ".join(f"{of(sql)} IS DISTINCT FROM {of(other)}" for other in tried)
            return self._count(f"SELECT count(*) FROM {source} WHERE {tests}")

        count = differing(value)
        if count is None:
            # Where it fails at the first value of a cell already, the evaluation itself will fail,
            # and say where; unless other conditions rule that out, so the rest counts, too.
            count = differing(caught)
        if count is None:  # there is a query in it, which can't be tried: it isn't known
            return self._is_bound(f"SELECT ({sql}) FROM {source}")
        return count > 0

    def _is_bound(self, query: str) -> bool:
        """Whether DuckDB can bind a query; else the evaluation will say why not."""
        try:
            self._sandbox.types(query)
        except SandboxError:
            return False
        return True

    def _count(self, query: str) -> int | None:
        """Return a count; None if an expression fails for some value.

        Raises:
            SandboxLimitError: it takes too much, which says nothing about the values.
        """
        try:
            ((count,),) = self._sandbox.rows(query)
        except SandboxError:
            return None
        return int(count)

    def _ranges(self, name: str) -> str:
        domain = self._table.columns[name]
        if domain.type == "TIMESTAMP":
            return f"{self._period(name)}s"
        return "ranges" if domain.uppers is not None else "days"

    def _period(self, name: str) -> str:
        """Return by what a timestamp is known."""
        return known_by(self._table.columns[name])

    def _error(self, bound: BoundExpr, message: str, name: str | None) -> SqlError:
        hint = "compare each of them with values."
        if name is not None:
            values = self._table.columns[name].values
            more = ", …" if len(values) > 6 else ""
            shown = ", ".join(str(v) for v in values[:6])
            hint = f"its ranges begin at {shown}{more}: compare with these by >= and <."
            if isinstance(values, TimeRange):
                hint = (
                    f"compare with whole {values.grain}s by >= and <, for example {as_sql(name)} "
                    f">= TIMESTAMP '{values[0]}'."
                )
            if self._ranges(name) == "days":
                hint = (
                    f"write {as_sql(name)}::DATE, of which all is known, or compare with midnights "
                    f"by >= and <, for example {as_sql(name)} >= DATE '{values[0]}'; or declare "
                    'the column by "hour" or "minute".'
                )
        return self._source.error(bound.span, message, hint)


def _too_many() -> ResourceLimitError:
    return ResourceLimitError(
        "There are too many values to try whether this cuts through a range.",
        hint="compare with fewer values, or coarser columns.",
    )


def _rows(relation: Relation) -> str:
    """Return the rows that a row may meet; NULL, where it may meet none."""
    if relation.kind not in {"left", "full"}:
        return relation.table
    none = f"SELECT NULL AS __r{relation.number}_row"
    return f"(SELECT * FROM {relation.table} UNION ALL BY NAME {none})"


def _replaced(node: Expr, name: str, other: Expr) -> str:
    """Write an expression with something else in place of a column."""

    def change(part: Expr) -> Expr:
        if isinstance(part, exp.Column) and part.name == name:
            return other.copy()
        return rebuild(part, change)

    return render(change(node))
