"""Evaluate a core over the public domain: which groups there are, and which cells each counts.

One statement is run for each component. It joins the cells of the component's columns with its
public relations, and tells for every group and cell how much a row in that cell adds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date

import numpy as np
import polars as pl
from sqlglot import exp

from dpsql.errors import ResourceLimitError, Span, SqlError, printable
from dpsql.hints import Hint, first_that_works, instead, write
from dpsql.linalg.matrices import StructuredMatrix, of_entries
from dpsql.schema import Table
from dpsql.schema.domain import Domain, first_and_last
from dpsql.schema.names import as_sql, quoted_name
from dpsql.sql.binding.core import Core, Linear, Relation
from dpsql.sql.binding.expressions import BoundExpr, Expr, column, conjunction, render
from dpsql.sql.lowering.coarse import CoarseColumns
from dpsql.sql.lowering.lookups import (
    MAX_JOINED,
    JoinedRows,
    UnmatchedRows,
    multiplied,
    unmatched_rows,
)
from dpsql.sql.lowering.matrices import AddedTerm, CoupledColumns
from dpsql.sql.sandbox.database import Refusal, Sandbox, SandboxError, column_type
from dpsql.sql.text.edits import casts, chained, renamed, swapped, written
from dpsql.sql.text.spans import SourceText

MAX_JOINT_CELLS = 4_000_000
"""The largest joint domain over which expressions are evaluated."""
FEW_CELLS = 4096
"""Cells of which expressions are computed again for each question, which then has one answer."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True, eq=False)
class StoredAxis:
    """Groups that differ in some keys only; `rows` of them."""

    keys: tuple[int, ...]
    rows: int
    table: str
    """The columns k{i} for every key, and `row`, as FROM takes them."""
    attribute: str | None = None
    """The column whose cells are the groups, where that is all."""


@dataclass(frozen=True, slots=True, eq=False)
class WeighedEntries:
    """Entries of a weighted statistic."""

    entries: StructuredMatrix
    scale: float
    """The largest absolute value of an entry's weight for one row."""
    center: float
    """The number that was taken off the weight."""


class Evaluator:
    """Evaluates the cores of one script."""

    def __init__(self, sandbox: Sandbox, table: Table, source: SourceText) -> None:
        self._sandbox = sandbox
        self._table = table
        self.source = source
        self._index = {name: i for i, name in enumerate(table.columns)}
        self._coarse = CoarseColumns(sandbox, table, source, self._cells_of)

    def cells(self, attributes: Sequence[str]) -> int:
        """Return the number of joint cells.

        Raises:
            ResourceLimitError: there are too many.
        """
        sizes = {name: self._table.columns[name].size for name in attributes}
        cells = math.prod(sizes.values())
        if cells > MAX_JOINT_CELLS:
            self._check_one(attributes)
            shown = " x ".join(f"{name} ({size:,})" for name, size in sizes.items())
            raise ResourceLimitError(
                f"Conditions over {shown} together have {cells:,} cells, "
                f"more than {MAX_JOINT_CELLS:,}.",
                hint="compare fewer columns in one condition, or columns with fewer values; or "
                "round what is computed from numbers with bounds but no step, "
                "dpsql.Domain.number(0, "
                "1000): round(x * y, -2).",
            )
        return cells

    def _check_one(self, attributes: Sequence[str]) -> None:
        """Say what to ask of a column that has too many cells by itself.

        Raises:
            ResourceLimitError: there is one column, and it can be asked in steps.
        """
        if len(attributes) != 1 or attributes[0] in self._table.derived:
            return
        (name,) = attributes
        steps = _in_steps(name, self._table.columns[name])
        if steps is not None:
            raise ResourceLimitError(
                f"The {self._table.columns[name].size:,} values of {printable(name)} would be told "
                f"apart one by one, which no more than {MAX_JOINT_CELLS:,} can be.",
                hint=f"round them: write {steps} in place of {as_sql(name)}.",
            )

    def check_determined(self, bound: BoundExpr, relations: Sequence[Relation]) -> None:
        """Refuse what the keys of groups are computed to, if their cells don't determine it.

        Raises:
            SqlError: that is so.
        """
        self._coarse.check(bound, relations, truth=False, plain=True, of_keys=True)

    def tells(
        self,
        bound: BoundExpr,
        relations: Sequence[Relation] = (),
        *,
        truth: bool,
        plain: bool,
    ) -> bool:
        """Whether an expression can be computed of the joint cells of its columns.

        Args:
            bound: the expression.
            relations: the public relations that it may depend on.
            truth: whether only its being true matters.
            plain: whether a column itself may be asked for.
        """
        try:
            self.cells(tuple(bound.attributes))
            self._coarse.check(bound, relations, truth=truth, plain=plain)
        except (SqlError, ResourceLimitError):
            return False
        return True

    def check_unmatched(self, core: Core) -> None:
        """Refuse what depends on which public rows no row meets.

        Raises:
            SqlError: that is so.
        """
        UnmatchedRows(self._sandbox, self._table, self.source, self._cells_of).check(core)

    def plain(self, key: int, attribute: str) -> StoredAxis:
        """Return the axis whose groups are the cells of a column."""
        self.cells((attribute,))
        table = f"(SELECT value AS k{key}, code AS row FROM {self._domain(attribute)})"
        return StoredAxis((key,), self._table.columns[attribute].size, table, attribute)

    def groups(self, core: Core, component: CoupledColumns) -> tuple[StoredAxis, StructuredMatrix]:
        """Return the groups of a component with keys, and the cells that each counts."""
        part, axis = self._sandbox.new_name("part"), self._sandbox.new_name("axis")
        keys = [core.keys[k] for k in component.keys]
        for key in keys:
            self._check_coarse(key, component, plain=True)
        selected = ", ".join(f"{self._key(core.keys[k])} AS k{k}" for k in component.keys)
        names = ", ".join(f"k{k}" for k in component.keys)
        first = self._first(component, keys)
        places = f"{selected}, __cell AS cell, {first} AS ord"
        with self._locating(component, keys):
            query = f"{self._joined(component)} SELECT {places} FROM j WHERE __kept"
            cells = self._cells_of(component.attributes)
            unmatched = unmatched_rows(self._sandbox, component, cells)
            if unmatched is not None:  # these have groups, and no cell
                rest = f"{self._joined(component, unmatched)} SELECT {places} FROM j WHERE __kept"
                query = f"SELECT * FROM ({query}) UNION ALL SELECT * FROM ({rest})"
            self._sandbox.create(part, query)
        self._sandbox.create(
            axis,
            f"SELECT {names}, row_number() OVER (ORDER BY first) - 1 AS row"
            f" FROM (SELECT {names}, min(ord) AS first FROM {part} GROUP BY ALL)",
        )
        same = " AND ".join(f"p.k{k} IS NOT DISTINCT FROM x.k{k}" for k in component.keys)
        found = self._sandbox.arrays(
            f"SELECT x.row AS row, p.cell AS cell, count(*)::DOUBLE AS weight "
            f"FROM {part} p JOIN {axis} x ON {same} WHERE p.cell IS NOT NULL GROUP BY ALL"
        )
        ((rows,),) = self._sandbox.rows(f"SELECT count(*) FROM {axis}")
        self._sandbox.drop(part)
        return StoredAxis(component.keys, rows, axis), self._matrix(rows, component, found)

    def total(self, component: CoupledColumns) -> StructuredMatrix:
        """Return the cells that a component without keys counts, as one row."""
        with self._locating(component):
            query = (
                f"{self._joined(component)} SELECT 0::BIGINT AS row, __cell AS cell, "
                "count(*)::DOUBLE AS weight FROM j WHERE __kept GROUP BY __cell"
            )
            return self._matrix(1, component, self._sandbox.arrays(query))

    def may_be_null(self, component: CoupledColumns, value: BoundExpr) -> bool:
        """Whether an expression has no value for some cells that are counted."""
        with self._locating(component, [value]):
            query = f"{self._joined(component)} SELECT count(*) FROM j WHERE __kept AND "
            ((rows,),) = self._sandbox.rows(f"{query}({self._key(value)}) IS NULL")
        return bool(rows)

    def values(
        self, component: CoupledColumns, value: BoundExpr, key: int, *, discrete: bool
    ) -> StoredAxis:
        """Return the values of an expression in their order, as an axis with one key.

        With `discrete` they may be those with which ranges of values begin.
        """
        self._check_coarse(value, component, plain=discrete)
        axis = self._sandbox.new_name("axis")
        with self._locating(component, [value]):
            query = (
                f"{self._joined(component)} SELECT v AS k{key}, "
                f"row_number() OVER (ORDER BY v) - 1 AS row FROM "
                f"(SELECT DISTINCT {self._key(value)} AS v FROM j WHERE __kept) WHERE v IS NOT NULL"
            )
            self._sandbox.create(axis, query)
        ((rows,),) = self._sandbox.rows(f"SELECT count(*) FROM {axis}")
        return StoredAxis((key,), rows, axis)

    def weighed(
        self,
        component: CoupledColumns,
        axes: Sequence[tuple[StoredAxis, dict[int, BoundExpr]]],
        of: Linear,
        centers: Sequence[float] = (),
    ) -> WeighedEntries:
        """Return the entries of a statistic on one component, over given groups.

        Args:
            component: the component.
            axes: the groups along each axis, with the expressions of their keys; rows are in
                C order.
            of: the statistic; its weights are looked at only if they depend on the component.
            centers: what is taken off each of two weights that are multiplied.
        """
        weights = of.weights if component.weighted else ()
        for weight in weights:
            self._check_summable(weight, component)
        selected = [f"{self._key(b)} AS k{k}" for _, keys in axes for k, b in keys.items()]
        values = [f"({weight.sql})::DOUBLE AS w{i}" for i, weight in enumerate(weights)]
        inner = ", ".join([*selected, "__cell AS cell", *values])
        row, joins = "0", []
        for i, (axis, keys) in enumerate(axes):
            same = " AND ".join(f"p.k{k} IS NOT DISTINCT FROM x{i}.k{k}" for k in keys)
            joins.append(f"JOIN {axis.table} x{i} ON {same}")
            row = f"({row}) * {axis.rows} + x{i}.row"
        with self._locating(component, weights):
            query = f"{self._joined(component)} SELECT {inner} FROM j WHERE __kept"
            few = not component.relations and self.cells(component.attributes) <= FEW_CELLS
            with self._part(query, stored=bool(weights) and not few) as part:
                added = AddedTerm.of(self._sandbox, self.source, part, of, weights, centers)
                found = self._sandbox.arrays(
                    f"SELECT ({row})::BIGINT AS row, cell, sum({added.term})::DOUBLE AS weight "
                    f"FROM {part} p {' '.join(joins)} WHERE ({added.term}) IS NOT NULL GROUP BY ALL"
                )
        rows = math.prod(axis.rows for axis, _ in axes)
        entries = self._matrix(rows, component, found)
        return WeighedEntries(entries, added.scale, added.center)

    @contextmanager
    def _part(self, query: str, *, stored: bool) -> Iterator[str]:
        """Give the rows of a query, as FROM takes it: stored, or computed wherever it stands.

        Raises:
            SandboxError: it fails.
        """
        if not stored:
            yield f"({query})"
            return
        part = self._sandbox.new_name("part")
        self._sandbox.create(part, query)
        yield part
        self._sandbox.drop(part)

    def frame(self, axis: StoredAxis) -> pl.DataFrame:
        """Return the keys of an axis, row by row."""
        if axis.attribute is not None:
            cells = self._sandbox.cells(
                self._index[axis.attribute], self._table.columns[axis.attribute]
            )
            return cells.rename({"value": f"k{axis.keys[0]}"})
        names = ", ".join(f"k{k}" for k in axis.keys)
        return self._sandbox.frame(f"SELECT {names} FROM {axis.table} ORDER BY row")

    def types(self, axis: StoredAxis) -> dict[int, str]:
        """Return the DuckDB type of every key of an axis."""
        if axis.attribute is not None:
            return {axis.keys[0]: column_type(self._table.columns[axis.attribute])}
        types_of_columns = dict(self._sandbox.types(f"SELECT * FROM {axis.table}"))
        return {k: types_of_columns[f"k{k}"] for k in axis.keys}

    def _matrix(self, rows: int, component: CoupledColumns, found: Arrays) -> StructuredMatrix:
        cells = self.cells(component.attributes)
        return of_entries(rows, cells, found["row"], found["cell"], found["weight"])

    # ── the SQL ────────────────────────────────────────────────────────────────────────────

    def _key(self, bound: BoundExpr) -> str:
        """Return SQL for what is grouped by; a timestamp that is known by its day is that day."""
        timed = [self._index[a] for a in bound.attributes if self._table.columns[a].timed]
        plain = bound.sql in [render(column(f"__a{i}")) for i in timed]
        return f"({bound.sql})::DATE" if plain else f"({bound.sql})"

    def _joined(self, component: CoupledColumns, source: str | None = None) -> str:
        """Return `WITH j AS …`: cells joined with public rows, and whether they are kept."""
        on = [condition for r in component.relations for condition in r.on]
        for condition in (*component.conjuncts, *on):
            self._check_coarse(condition, component, truth=True)
        # Conditions are selected, not filtered by: DuckDB plans a thousand filters for seconds.
        holds = conjunction([c.sql for c in component.conjuncts])
        kept = f"({holds}) IS TRUE" if component.conjuncts else "true"
        source = source or self._source(component)
        return f"WITH j AS MATERIALIZED (SELECT *, {kept} AS __kept FROM {source})"

    def _source(self, component: CoupledColumns) -> str:
        """Join the cells with public rows, if these are not too many."""
        joined = self._joined_rows(component)
        joined.check_size()
        return joined.sql

    def _joined_rows(self, component: CoupledColumns) -> JoinedRows:
        attributes = component.attributes
        count, cells = self.cells(attributes), self._cells_of(attributes)
        return JoinedRows(self._sandbox, component, cells, count)

    def _cells_of(self, attributes: Sequence[str]) -> str:
        """Return a subquery with the joint cells of columns, their first and last values."""
        if not attributes:
            return "(SELECT 0 AS __cell) AS p"
        cell, selected, tables = "0", [], []
        for name in attributes:
            i, domain = self._index[name], self._table.columns[name]
            cell = f"({cell}) * {domain.size} + d{i}.code"
            as_stored = "::TIMESTAMP" if domain.timed else ""  # a DATE has other operators
            selected += [f"d{i}.value{as_stored} AS __a{i}", f"d{i}.upper AS __u{i}"]
            tables.append(f"{self._domain(name)} AS d{i}")
        return f"(SELECT {cell} AS __cell, {', '.join(selected)} FROM {', '.join(tables)}) AS p"

    def _domain(self, name: str) -> str:
        self.cells((name,))  # what is too large is not tried
        try:
            return self._sandbox.domain(self._index[name], self._table.columns[name])
        except SandboxError:
            raise ResourceLimitError(
                f"The domain of {name} can't be stored for evaluation.",
                hint="its labels must be plain text.",
            ) from None

    def _first(self, component: CoupledColumns, keys: Sequence[BoundExpr]) -> str:
        """Return what groups are ordered by: cells, unless the keys are public rows' alone."""
        rows = [f"__r{r.number}_row" for r in component.relations if r.kind not in {"semi", "anti"}]
        parts = ["__cell", *rows] if any(k.attributes for k in keys) else [*rows, "__cell"]
        return f"({', '.join(parts)})" if len(parts) > 1 else parts[0]

    def arrays(self, sql: str, span: Span) -> Arrays:
        """Return the columns of a query over axes, written at `span`."""
        try:
            return self._sandbox.arrays(sql)
        except SandboxError as error:
            raise self._refused(error, span) from None

    @contextmanager
    def _locating(
        self, component: CoupledColumns, computed: Sequence[BoundExpr] = ()
    ) -> Iterator[None]:
        """Mark the condition that DuckDB refuses; it is what is computed, if none is."""
        try:
            yield
        except SandboxError as error:
            raise self._located(error, component, computed) from None

    def _located(
        self, error: SandboxError, component: CoupledColumns, computed: Sequence[BoundExpr]
    ) -> SqlError:
        joined = self._joined_rows(component)
        kept = [
            (c, f"SELECT count(({c.sql}) IS TRUE) FROM {joined.sql}") for c in component.conjuncts
        ]
        for condition, query in (*joined.tests(), *kept):
            try:
                self._sandbox.rows(query)
            except SandboxError as found:
                return self._refused(found, condition.span, condition.node)
        if not computed:
            return self._refused(error, None)
        return self._refused(error, computed[0].span, computed[0].node)

    def _refused(
        self, error: SandboxError, span: Span | None, node: Expr | None = None
    ) -> SqlError:
        message = f"DuckDB can't compute this for the values of the columns: {error}"
        hint = hint_for(error, node, self.source, span, self._table.columns)
        return self.source.error(span, message, hint)

    def _check_coarse(
        self,
        bound: BoundExpr,
        component: CoupledColumns,
        *,
        truth: bool = False,
        plain: bool = False,
    ) -> None:
        """Refuse expressions that a column's cells don't determine; see `coarse`."""
        self._check_subqueries(bound, component.relations)
        self._coarse.check(bound, component.relations, truth=truth, plain=plain)

    def _check_subqueries(self, bound: BoundExpr, relations: Sequence[Relation]) -> None:
        """Refuse to run a subquery over too many rows for too many values."""
        for outer, tables in multiplied(bound.node):
            size = self.cells([name for name, i in self._index.items() if f"__a{i}" in outer])
            rows = [
                r.rows for r in relations if any(n.startswith(f"__r{r.number}_") for n in outer)
            ]
            for table in tables:
                ((count,),) = self._sandbox.rows(f"SELECT count(*) FROM {quoted_name(table)}")
                rows.append(count)
            size *= math.prod(max(1, count) for count in rows)
            if size > MAX_JOINED:
                raise ResourceLimitError(
                    f"{printable(self.source.text(bound.span))} looks at {size:,} rows of public "
                    f"tables, more than {MAX_JOINED:,}.",
                    hint="make a column of the subquery equal to one outside it; or use smaller "
                    "tables, or columns with fewer values.",
                )

    def _check_summable(self, weight: BoundExpr, component: CoupledColumns) -> None:
        try:
            self._check_coarse(weight, component)
        except SqlError as error:
            if any(self._table.columns[name].instant for name in weight.attributes):
                raise
            raise self.source.error(
                error.span,
                "This can't be added up: a column in it is known by ranges only.",
                "count the rows of each range, or declare the column with a step: "
                "dpsql.Domain.decimals(0, 1000, 10).",
            ) from None


def _in_steps(name: str, domain: Domain) -> str | None:
    """Write a column rounded to some thousands of values; None if it has no numbers or times."""
    first, last = first_and_last(domain)
    if isinstance(first, date):
        return f"date_trunc('{'day' if domain.timed else 'month'}', {as_sql(name)})"
    if isinstance(first, str) or isinstance(last, str | date):
        return None
    digits = math.ceil(math.log10(float(last) - float(first))) - 3
    return f"round({as_sql(name)}, {-digits})"


# ── Hints for what DuckDB can't compute: by the class of its error, and by what stands there ─────


def hint_for(
    error: SandboxError,
    node: Expr | None,
    source: SourceText,
    span: Span | None,
    columns: Iterable[str] = (),
) -> str:
    """Say what to do about an error.

    Args:
        error: what DuckDB says.
        node: the expression, if it is known.
        source: the statement's text.
        span: where that was written, if it is known.
        columns: the columns of the table.
    """
    parts = [] if node is None else list(node.walk())
    if error.kind is Refusal.UNBOUND and any(isinstance(part, exp.Query) for part in parts):
        return first_that_works(
            renamed(source, str(error), map(as_sql, columns)),
            "a subquery can use the columns of its own tables only; join them instead.",
        )
    if span is None:
        return "check the types, and rule out values for which it isn't defined."
    if error.kind is Refusal.OVERFLOW:
        return first_that_works(
            casts(source, span),
            "cast to a larger type first, as in age::BIGINT, or write a smaller number.",
        )
    if error.kind is Refusal.CONVERSION and any(map(_converts, parts)):
        shown = printable(" ".join(source.text(span).split()))
        tried = instead(f"TRY({shown})", of=span)
        return tried + " is NULL for such values; leave them out by WHERE if none can occur."
    return first_that_works(
        _otherwise(error, source, span),
        "check the types, and rule out values for which it isn't defined.",
    )


def _otherwise(error: SandboxError, source: SourceText, span: Span) -> Iterator[Hint]:
    """Write what DuckDB refuses for its types otherwise."""
    said, text = str(error), source.text(span)
    if "INTERVAL" in said:
        return  # as what an interval is meant there, isn't known
    if said.endswith("to BOOL"):
        given = written(source, f"{text} IS NOT NULL", span)
        yield given + " A condition is true or false: or compare it with a value."
    yield from chained(source, span)
    yield from swapped(source, span, r"\bRANGE\b", "ROWS")
    if "(DATE -> DOUBLE)" in said:
        yield write(f"date_diff('day', DATE '2000-01-01', {text})", of=span)
    yield from casts(source, span, "DATE" if "date field format" in said else "INTEGER")


def _converts(node: Expr) -> bool:
    """Whether a node makes another value of a column: a cast, or a function such as make_date."""
    function = isinstance(node, exp.Func) and not isinstance(node, exp.Connector)
    return function and node.find(exp.Column) is not None
