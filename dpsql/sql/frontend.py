"""The front end: SQL statements → one workload and the shape of its answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import polars as pl
from sqlglot import exp

from dpsql.errors import (
    ResourceLimitError,
    Span,
    SqlError,
    SqlLimitError,
    UnsupportedSqlError,
    printable,
)
from dpsql.schema import Table
from dpsql.sql.allow import check_allowed
from dpsql.sql.core import Linear, Quantile, Windowed
from dpsql.sql.evaluate import Evaluator
from dpsql.sql.limits import MAX_STATEMENTS
from dpsql.sql.lower import GroupAxis, LoweredCore, LoweredSet, LoweredStatistic, lower
from dpsql.sql.matrices import Entries
from dpsql.sql.outline import Outlined, Outliner, Public, Resolve
from dpsql.sql.parse import Parsed, parse_statement
from dpsql.sql.postprocess import (
    DirectOutput,
    Postprocessing,
    check_names,
    direct_outputs,
    prepare,
)
from dpsql.sql.sandbox import Sandbox
from dpsql.workload import Workload

MAX_SCRIPT_ENTRIES = 2**24
"""Coefficients of all statements together that are written out: they take memory and time."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class StatisticColumn:
    """A statistic of every group: which family of the workload answers it, and how."""

    family: int
    axes: tuple[tuple[int, ...], ...]
    """For each block of the family, the axes of the groups along which its rows run."""
    centre: float
    """What was taken off the weight of each row."""
    quantile: Quantile | None
    """If it is a quantile: its values run along one more axis, the last."""
    values: pl.Series | None
    """The values of a quantile's expression, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupingSet:
    """The groups of one grouping set: the product of its axes, in C order."""

    keys: tuple[int, ...]
    axes: tuple[GroupAxis, ...]
    columns: tuple[StatisticColumn, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of groups along each axis."""
        return tuple(axis.rows for axis in self.axes)


@dataclass(frozen=True, slots=True, eq=False)
class AnswerTable:
    """The answers of one core: its grouping sets, one below the other."""

    keys: int
    """How many keys it has."""
    sets: tuple[GroupingSet, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A statement, and how its answer follows from the workload's answers."""

    name: str
    sql: str
    tables: tuple[AnswerTable, ...]
    direct: tuple[DirectOutput, ...] | None
    """Its columns, if they are keys and statistics as they are."""
    post: Postprocessing | None
    """What is computed on the answers, otherwise."""


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """Statements over one table, and the workload that answers them together."""

    table: Table
    statements: tuple[Statement, ...]
    workload: Workload
    columns: tuple[str, ...]
    """Every column that a statement names, also where the answer doesn't depend on it: only rows
    whose value is in the domain of each are counted."""


@dataclass(frozen=True, slots=True, eq=False)
class _Compiled:
    """A statement on its way."""

    name: str
    parsed: Parsed
    outlined: Outlined
    cores: tuple[LoweredCore, ...]


def no_public_tables(_: tuple[str, ...]) -> None:
    """Know of no public table."""
    return


def compile_script(
    statements: Sequence[tuple[str, str]],
    resolve: Resolve,
    public: Public = no_public_tables,
    weights: Mapping[str, float] | None = None,
) -> Script:
    """Compile named statements over one private table to a workload; no row is touched.

    Args:
        statements: name and SQL text of each.
        resolve: finds the private table that a name (as its parts) means, or raises a
            SchemaError.
        public: returns the public table of a name, or None.
        weights: statement → importance, which goes before `/*+ weight(5) */` in its text.

    Raises:
        SqlError: a statement is malformed, too large, refused, or over another table.
        SchemaError: a table or column is unknown or has no public domain.
        ResourceLimitError: a joint domain or a matrix is too large.
    """
    _check_names(statements)
    several = len(statements) > 1
    sandbox = Sandbox()
    try:
        parsed = [(name, _naming(name, several, _read, sql)) for name, sql in statements]
        outliner = Outliner(sandbox, resolve, public)
        outlined = [(n, p, _naming(n, several, outliner.outline, p)) for n, p in parsed]
        table = _one_table(outlined, several)
        compiled, entries = [], 0
        for name, tree, outline in outlined:
            evaluator = Evaluator(sandbox, table, tree.source.sql)
            cores = _naming(name, several, _lowered, outline, table, evaluator)
            entries += sum(map(_entries, cores))
            _check_entries(entries)
            compiled.append(_Compiled(name, tree, outline, cores))
        return _assemble(table, compiled, sandbox, several, _weights(compiled, weights))
    except RecursionError:  # the limits leave ample room, unless the caller has used it up
        raise SqlLimitError(
            "A statement is too deeply nested for the stack that is left.",
            hint="call dpsql from less deeply nested code, or write the statement more simply.",
        ) from None


def _lowered(outline: Outlined, table: Table, evaluator: Evaluator) -> tuple[LoweredCore, ...]:
    return tuple(lower(core, table, evaluator) for core in outline.cores)


def _entries(core: LoweredCore) -> int:
    """Count the coefficients that are written out."""
    blocks = [b.rows for s in core.sets for t in s.statistics for b in t.blocks]
    return sum(rows.rows * rows.cells for rows in blocks if isinstance(rows, Entries))


def _check_entries(entries: int) -> None:
    if entries > MAX_SCRIPT_ENTRIES:
        raise ResourceLimitError(
            f"The conditions that join columns have more than {MAX_SCRIPT_ENTRIES:,} coefficients "
            "together.",
            hint="release the statements in several parts, or compare coarser columns.",
        )


def _check_names(statements: Sequence[tuple[str, str]]) -> None:
    if not statements:
        raise SqlError("There is no statement.", hint="for example SELECT COUNT(*) FROM people.")
    if len(statements) > MAX_STATEMENTS:
        raise SqlLimitError(
            f"There are more than {MAX_STATEMENTS:,} statements.", hint="release several parts."
        )
    seen: set[str] = set()
    for name, _ in statements:
        if name.lower() in seen:
            raise SqlError(
                f"Two statements are named {printable(name)!r}; case makes no difference.",
                hint="give each statement its own name.",
            )
        seen.add(name.lower())


def _naming(name: str, several: bool, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Take one step with one of several statements; an error says with which."""
    try:
        return step(*args, **kwargs)
    except SqlError as error:
        error.statement = printable(name) if several else None
        raise


def _read(sql: str) -> Parsed:
    parsed = parse_statement(sql)
    check_allowed(parsed)
    return parsed


def _one_table(outlined: Sequence[tuple[str, Parsed, Outlined]], several: bool) -> Table:
    """Return the private table, which must be the same everywhere.

    Raises:
        SqlError: two different tables are named.
    """
    first = outlined[0][2].tables[0][0]
    for name, parsed, outline in outlined:
        for table, span in outline.tables:
            if (table.path or table.name) != (first.path or first.name):
                error = SqlError(
                    f"This is over {table.name}, but the first statement is over {first.name}: "
                    "one script releases from one table.",
                    sql=parsed.source.sql,
                    span=span,
                    hint="release from each table in its own call.",
                )
                error.statement = printable(name) if several else None
                raise error
    return first


def _weights(compiled: Sequence[_Compiled], given: Mapping[str, float] | None) -> dict[str, float]:
    """Return the importance of every statement.

    Raises:
        SqlError: a weight is given for an unknown statement, or is no positive number.
    """
    names = {item.name.lower(): item.name for item in compiled}
    found = {item.name: item.parsed.weight for item in compiled}
    for name, weight in (given or {}).items():
        good = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not isinstance(name, str) or name.lower() not in names:
            raise SqlError(
                f"There is no statement {printable(str(name))!r} to give a weight to.",
                hint=f"the statements are {', '.join(list(names.values())[:10])}.",
            )
        if not good or not 1e-6 <= weight <= 1e6:
            raise SqlError(
                f"The weight {weight!r} of {printable(name)} is no positive number.",
                hint="use numbers from 1e-6 to 1e6; 1 is usual.",
            )
        found[names[name.lower()]] = float(weight)
    return found


def _assemble(
    table: Table,
    compiled: Sequence[_Compiled],
    sandbox: Sandbox,
    several: bool,
    weights: Mapping[str, float],
) -> Script:
    used = {
        name
        for item in compiled
        for core in item.cores
        for group in core.sets
        for statistic in group.statistics
        for block in statistic.blocks
        for name in block.attributes
    }
    workload = Workload({c: d.size for c, d in table.columns.items() if c in used})
    statements = tuple(
        _naming(item.name, several, _statement, item, workload, sandbox, weights[item.name])
        for item in compiled
    )
    named = frozenset().union(*(c.core.named for item in compiled for c in item.cores))
    columns = tuple(c for c in table.columns if c in named)
    return Script(table, statements, _normalised(workload), columns)


def _normalised(workload: Workload) -> Workload:
    """Scale all weights alike, so that they add up to the number of queries.

    The plan is the same for it, and its RMSE is then a weighted mean whatever the weights are.
    """
    total = math.fsum(family.weight * family.count for family in workload.families)
    if not total:
        return workload
    factor = workload.count / total
    weights = [min(max(family.weight * factor, 1e-9), 1e9) for family in workload.families]
    return workload if math.isclose(factor, 1.0) else workload.weighted(weights)


def _statement(item: _Compiled, workload: Workload, sandbox: Sandbox, weight: float) -> Statement:
    tables = tuple(
        AnswerTable(
            len(core.core.keys),
            tuple(_grouping_set(group, workload, item.name, weight) for group in core.sets),
        )
        for core in item.cores
    )
    sql, whole = item.parsed.source.sql, item.parsed.source.whole()
    query = item.outlined.query
    direct = direct_outputs(query, item.cores)
    if direct is not None:
        spans = _spans(item.parsed, len(direct))
        check_names([o.name for o in direct], [o.key is None for o in direct], sql, spans)
        return Statement(item.name, sql, tables, tuple(direct), None)
    post = prepare(query, item.cores, sandbox, sql, whole)
    spans = _spans(item.parsed, len(post.outputs))
    check_names([o.name for o in post.outputs], [o.noisy for o in post.outputs], sql, spans)
    if not any(output.noisy for output in post.outputs):
        raise UnsupportedSqlError(
            "The statement returns no count.",
            sql=sql,
            span=whole,
            hint="select COUNT(*) too.",
        )
    return Statement(item.name, sql, tables, None, post)


def _spans(parsed: Parsed, width: int) -> list[Span]:
    """Return where the columns of a statement's answer stand in its text."""
    items = parsed.query.expressions if isinstance(parsed.query, exp.Select) else []
    if len(items) != width:
        return [parsed.source.whole()] * width
    return [parsed.source.node(item) for item in items]


def _grouping_set(group: LoweredSet, workload: Workload, name: str, weight: float) -> GroupingSet:
    columns = tuple(_column(group, s, workload, name, weight) for s in group.statistics)
    return GroupingSet(group.keys, group.axes, columns)


def _column(
    group: LoweredSet,
    lowered: LoweredStatistic,
    workload: Workload,
    name: str,
    weight: float,
) -> StatisticColumn:
    """Add the family of one statistic to the workload.

    Weights are such that statistics count alike, whatever their units: the variance of a sum is
    divided by the square of what one row can add, and the points of a distribution count as one.
    """
    blocks = sorted(lowered.blocks, key=lambda b: min(b.axes, default=len(group.axes) + 1))
    share = weight / lowered.scale**2
    quantile = lowered.statistic if isinstance(lowered.statistic, Quantile) else None
    if quantile is not None and lowered.values is not None:
        share /= lowered.values.len()
    workload.add(
        [block.attributes for block in blocks],
        [block.factor for block in blocks],
        min(max(share, 1e-9), 1e9),
        name=_family_name(name, lowered),
    )
    return StatisticColumn(
        len(workload.families) - 1,
        tuple(block.axes for block in blocks),
        lowered.centre,
        quantile,
        lowered.values,
    )


def _family_name(name: str, lowered: LoweredStatistic) -> str:
    """Name counts by their statement; what is measured in other units has a name of its own."""
    statistic = lowered.statistic
    base = statistic.of if isinstance(statistic, Windowed) else statistic
    counts = isinstance(base, Linear) and base.weight is None
    return name if counts else f"{name}: {statistic.label}"
