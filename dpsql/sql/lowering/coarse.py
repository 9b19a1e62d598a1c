"""Coarse columns: which expressions the cells of a column determine.

Where a cell stands for several stored values (`Domain.merges`), expressions are evaluated at one of
them. So what is asked must be the same for all. What isn't is computed of rows if it can be (see
`derive`), and refused otherwise; never of cells. The days of a period are few: all of them are
tried. The numbers of a bin and the times of a day are not:

- a column of bins may be compared with other values only, directly, and the comparisons can change
  there and nowhere else. They are tried at the first and last number of each bin, and at, just
  below and just above each compared value;
- of a timestamp, it is proved that an expression depends on its day (its hour, its minute), but for
  comparisons of the column itself (see `instants`). These are tried in the same way, within each.

In groups and sums a value counts as what the owner declares: the nearer end of a domain
that is clamped, one label for all texts that aren't listed. A condition is on what is stored. So
wherever one stands, it may only compare such a column with values, and what it compares with must
not tell apart what lies beyond an end, or isn't listed: that is tried at and beside each of these.
Of a grid that is coarser than its column only the values themselves can be asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence

from sqlglot import exp

from dpsql.errors import InternalError, ResourceLimitError, SqlError
from dpsql.schema import Domain, Table
from dpsql.schema.domain import INTEGER_TYPES, Merging
from dpsql.schema.names import as_sql, quoted_text
from dpsql.schema.sequences import TimeRange, decimal_scale, decimal_width, type_range
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import BoundExpr, Expr, column, rebuild, render
from dpsql.sql.binding.instants import (
    COMPARISONS,
    DependsOnTimeError,
    compared_with,
    known_by,
)
from dpsql.sql.lowering.stored_values import is_rounded
from dpsql.sql.sandbox.database import Sandbox, SandboxError, column_type
from dpsql.sql.text.spans import SourceText

TRIED = frozenset({"DOUBLE", "DATE", "TIMESTAMP"})
"""Types of which `_spread` has the ends of cells, and `_points` all at which expressions change."""
MAX_TRIED = 2**26
"""Combinations of cells, public rows and days that are tried."""
MAX_COMPARED = 200
"""Values with which a coarse column is compared in one expression."""

_CLOCK_TIME = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")

EQUALITIES = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Is)
"""Operators that compare values for being equal alone."""

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
        self._checked: set[tuple[str, bool, bool]] = set()

    def check(
        self,
        bound: BoundExpr,
        relations: Sequence[Relation],
        *,
        truth: bool,
        plain: bool,
        of_keys: bool = False,
    ) -> None:
        """Refuse an expression that a column's cells don't determine.

        Args:
            bound: the expression.
            relations: the public relations that it may depend on.
            truth: whether only its being true matters.
            plain: whether the column itself may be asked for: its values are then those with
                which the ranges begin.
            of_keys: whether it is computed of values that are shown, and of no others.

        Raises:
            SqlError: it cuts through a cell.
        """
        merged = {name: self._table.merges(name) for name in sorted(bound.attributes)}
        coarse = [name for name in merged if merged[name]]
        if not coarse or (plain and bound.sql == render(column(f"__a{self._index[coarse[0]]}"))):
            return
        if (bound.sql, truth, of_keys) in self._checked:
            return
        used = [r for r in relations if r.number in bound.relations]
        if not of_keys:
            for name in coarse:
                self._check_grid(bound, name, truth)
                self._check_rounded(bound, name)
                self._check_residue(bound, name, used, truth)
        within = [name for name in coarse if merged[name] & {Merging.RANGE, Merging.TIME}]
        tried = {name: points for name in within if (points := self._points(bound, name))}
        if len(tried) > 1:
            one, other, *_ = tried
            raise self._error(bound, f"{one} and {other} are known by ranges only.", None)
        for name, points in tried.items():
            source, size = self._spread(bound, name)
            if self._cuts(bound, name, points, (source, size), used, truth):
                message = f"The column {name} is known by {self._ranges(name)} only, and this cuts "
                raise self._error(bound, f"{message}through one.", name)
        self._checked.add((bound.sql, truth, of_keys))

    def _check_grid(self, bound: BoundExpr, name: str, truth: bool) -> None:
        """Refuse what is computed of a column that is known to the nearest value of a grid only.

        Raises:
            SqlError: something is, besides that it is NULL.
        """
        if Merging.NEAREST not in self._table.merges(name):
            return
        if not truth and bound.sql == render(column(f"__a{self._index[name]}")):
            return  # what is read off its values reaches as far as the stored ones
        if not all(map(_asks_whether_there, self._places(bound, name))):
            message = f"The column {name} is known to the nearest of its values only, and this "
            raise self._error(bound, f"{message}separates values that count as the same.", name)

    def _check_rounded(self, bound: BoundExpr, name: str) -> None:
        """Refuse what is computed of nanoseconds, unless SQL rounds them first, as cells do.

        Raises:
            SqlError: something is, besides that it is NULL.
        """
        if Merging.ROUNDED not in self._table.merges(name):
            return
        for place in self._places(bound, name):
            if not (_asks_whether_there(place) or is_rounded(place)):
                message = f"The column {name} is known in microseconds only, and this depends on "
                raise self._error(bound, f"{message}its nanoseconds.", name)

    def _check_residue(
        self, bound: BoundExpr, name: str, used: Sequence[Relation], truth: bool
    ) -> None:
        """Refuse conditions that tell apart what counts as an end of a domain, or as one label.

        Raises:
            SqlError: there is one.
        """
        merged = self._table.merges(name) & {Merging.ENDS, Merging.OTHER}
        if not merged or Merging.NEAREST in self._table.merges(name):
            return
        asked = [place for place in self._places(bound, name) if _in_condition(place, bound.node)]
        compared = []
        for place in asked if not truth else self._places(bound, name):
            if not _asks_whether_there(place):
                compared += self._compared_with(place, bound, name)
        values = self._few(compared, bound, name)
        if not values:
            return
        source, size = self._residue(bound, name)
        points = self._beside(name, values)
        if self._cuts(bound, name, points, (source, size), used, truth):
            raise self._merged(bound, name)

    def _merged(self, bound: BoundExpr, name: str) -> SqlError:
        domain = self._table.columns[name]
        said = f"Values beyond the ends of the domain of {name} count as these"
        if domain.other is not None:
            said = f"Texts of {name} that aren't listed count as {domain.other!r}"
        return self._error(bound, f"{said}, and this tells them apart.", name)

    def _places(self, bound: BoundExpr, name: str) -> list[Expr]:
        """Return where a column stands in an expression, with the parentheses around it."""
        place, places = f"__a{self._index[name]}", list[Expr]()
        for part in bound.node.find_all(exp.Column):
            if part.name == place:
                inner: Expr = part
                while isinstance(inner.parent, exp.Paren):
                    inner = inner.parent
                places.append(inner)
        return places

    def _compared_with(self, place: Expr, bound: BoundExpr, name: str) -> list[Expr]:
        """Return with what a column is compared where it stands.

        Raises:
            SqlError: something else is done with it there.
        """
        parent = place.parent
        others = [p for p in parent.iter_expressions() if p is not place] if parent else []
        private = any(c.name.startswith("__a") for o in others for c in o.find_all(exp.Column))
        listed = self._table.columns[name].other is None or isinstance(parent, EQUALITIES)
        queried = any(o.find(exp.Query) for o in others)
        if not isinstance(parent, COMPARISONS) or private or queried or not listed:
            if Merging.RANGE in self._table.merges(name):
                message = f"The column {name} is known by ranges only: it can just be compared."
                raise self._error(bound, message, name)
            raise self._merged(bound, name)
        return [o for o in others if not isinstance(o, exp.Null)]

    def _residue(self, bound: BoundExpr, name: str) -> tuple[str, int]:
        """Return the cells of values that aren't in a domain, with the least and the largest."""
        i, domain = self._index[name], self._table.columns[name]
        cells = self._cells(tuple(sorted(bound.attributes)))
        size = math.prod(self._table.columns[a].size for a in bound.attributes - {name})
        if domain.other is not None:
            other = quoted_text(domain.other)
            return f"(SELECT * FROM {cells} WHERE __a{i} = {other})", size
        of = "TIMESTAMP" if domain.instant else column_type(domain)
        least, most = _extent(domain)
        first, last = (f"'{domain.values[at]}'::{of}" for at in (0, -1))
        ends = (
            f"SELECT *, {least}::{of} AS __first, __a{i}::{of} AS __last FROM {cells} "
            f"WHERE __a{i} = {first} UNION ALL SELECT *, __u{i}::{of} AS __first, "
            f"{most}::{of} AS __last FROM {cells} WHERE __a{i} = {last}"
        )
        return f"({ends})", 2 * size

    def _beside(self, name: str, values: Sequence[str]) -> list[str]:
        """Return the values outside of a domain at which comparisons with some can change."""
        domain = self._table.columns[name]
        if domain.other is not None:
            listed = ", ".join(quoted_text(str(v)) for v in domain.values if v != domain.other)
            listed = f"({listed or 'NULL'})"
            longest = "||".join(f"coalesce(({value})::VARCHAR, '')" for value in values)
            points = [f"(CASE WHEN ({v}) NOT IN {listed} THEN ({v})::VARCHAR END)" for v in values]
            return [*points, f"('\x7f' || {longest})"]
        of = "TIMESTAMP" if domain.instant else column_type(domain)
        points = ["__first", "__last"]
        for value in values:
            points += [f"TRY_CAST(({value}) AS {of})", *_next_to(value, of)]
        return points

    def _points(self, bound: BoundExpr, name: str) -> list[str]:
        """Return the values of a column at which an expression has to be tried, as SQL.

        They are over `__first` and `__last`, the least and the largest value of a cell, or of a
        day in it, and over the cells of the other columns.
        """
        domain = self._table.columns[name]
        if domain.type not in TRIED:
            raise InternalError("ranges of a type of which it isn't known what to try in them")
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
        where: tuple[str, int],
        used: Sequence[Relation],
        truth: bool,
    ) -> bool:
        """Whether an expression differs within a cell of a column."""
        place, (source, size) = f"__a{self._index[name]}", where
        other = self._table.columns[name].other is not None
        tried = []
        for point in points:
            inside, else_ = f"{point} BETWEEN __first AND __last", "__first"
            if other:
                inside, else_ = f"{point} IS NOT NULL", place
            moved = exp.Var(this=f"(CASE WHEN {inside} THEN {point} ELSE {else_} END)")
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
        constants = list[Expr]()
        for place in self._places(bound, name):
            constants += self._compared_with(place, bound, name)
        return self._few(constants, bound, name)

    def _compared_instants(self, bound: BoundExpr, name: str) -> list[str]:
        """Return everything with which a timestamp is compared, as SQL.

        Raises:
            SqlError: something else depends on its time of day, or on the time of another clock.
        """
        domain, period = self._table.columns[name], self._period(name)
        try:
            instants = compared_with(bound.node, f"__a{self._index[name]}", period)
        except DependsOnTimeError:
            message = f"The column {name} is known by its {period} only, and this depends on "
            message += "the time." if period == "day" else "more of it."
            raise self._error(bound, message, name) from None
        texts = (t.name for value in instants for t in value.find_all(exp.Literal) if t.is_string)
        if domain.zone is not None and not all(map(_CLOCK_TIME.fullmatch, texts)):
            raise self._source.error(
                bound.span,
                f"The column {name} is what the clock shows in {domain.zone}, and this is no time "
                "of a clock without a zone.",
                f"write TIMESTAMP '{domain.values[0]:%Y-%m-%d} 18:00:00', of the clock there.",
            )
        return self._few(instants, bound, name)

    def _few(self, compared: Iterable[Expr], bound: BoundExpr, name: str) -> list[str]:
        """Return the SQL of what is compared: few values, the same for all rows of a subquery."""
        few = list(compared)
        columns = (part.name for value in few for part in value.find_all(exp.Column))
        if not all(column.startswith("__") for column in columns):
            message = f"The column {name} is known by {self._ranges(name)} only: a subquery can't "
            raise self._error(bound, f"{message}compare it with its own columns.", name)
        values = list(dict.fromkeys(map(render, few)))
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
            hint = self._hint(name)
        return self._source.error(bound.span, message, hint)

    def _hint(self, name: str) -> str:
        values, called = self._table.columns[name].values, as_sql(name)
        if not self._table.merges(name) & {Merging.RANGE, Merging.TIME}:
            return (
                f"a condition on {called} and values is evaluated row by row; or compute on "
                f"groups, where anything goes: GROUP BY {called}."
            )
        if isinstance(values, TimeRange):
            return (
                f"compare with whole {values.grain}s by >= and <, for example {called} >= "
                f"TIMESTAMP '{values[0]}'."
            )
        if self._ranges(name) == "days":
            return (
                f"write {called}::DATE, of which all is known, or compare with midnights by >= and "
                f"<, for example {called} >= DATE '{values[0]}'; or declare the column by \"hour\" "
                'or "minute".'
            )
        more = ", …" if len(values) > 6 else ""
        shown = ", ".join(str(v) for v in values[:6])
        return f"its ranges begin at {shown}{more}: compare with these by >= and <."


def _asks_whether_there(place: Expr) -> bool:
    """Whether all that is asked of a column where it stands is whether it is NULL, or NaN."""
    parent = place.parent
    if isinstance(parent, exp.Cast) and isinstance(parent.parent, exp.IsNan):
        return True
    is_null = isinstance(parent, exp.Is) and isinstance(parent.expression.unnest(), exp.Null)
    return is_null or isinstance(parent, exp.IsNan)


def _in_condition(place: Expr, whole: Expr) -> bool:
    """Whether a column stands in a comparison, or in the condition of a CASE."""
    part = place
    while part is not whole and part.parent is not None:
        if isinstance(part.parent, exp.If) and part.arg_key == "this":
            return True
        part = part.parent
        if isinstance(part, exp.Predicate):
            return True
    return False


def _extent(domain: Domain) -> tuple[str, str]:
    """Return the least and the largest value that a column of a clamped domain can store."""
    of = domain.column_type or domain.type
    if of in INTEGER_TYPES:
        least, most = type_range(of)
        return f"({least})", f"({most})"
    if of.startswith("DECIMAL("):
        digits = "9" * decimal_width(of)
        return f"('-{digits}E-{decimal_scale(of)}')", f"('{digits}E-{decimal_scale(of)}')"
    return "'-infinity'", "'infinity'"


def _next_to(value: str, of: str) -> list[str]:
    """Return the values of a type next to another one."""
    if of in {"DOUBLE", "FLOAT"}:
        return [f"nextafter(TRY_CAST(({value}) AS {of}), '{s}infinity'::{of})" for s in ("", "-")]
    if of == "TIMESTAMP":
        moment = f"TRY_CAST(({value}) AS TIMESTAMP)"
        return [f"TRY({moment} {sign} INTERVAL 1 MICROSECOND)" for sign in "+-"]
    if of == "DATE":
        return [f"TRY(TRY_CAST(({value}) AS DATE) {sign} 1)" for sign in "+-"]
    step = f"('1E-{decimal_scale(of)}'::DECIMAL(38,{decimal_scale(of)}))"
    near = f"TRY_CAST(({value}) AS DECIMAL(38,{decimal_scale(of)}))"
    return [f"TRY_CAST(TRY({near} {sign} {step}) AS {of})" for sign in "+-"]


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
