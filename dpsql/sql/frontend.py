"""The front end: SQL statements → one workload and the shape of its answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import (
    ResourceLimitError,
    SchemaError,
    SqlError,
    SqlLimitError,
    SqlSchemaError,
    printable,
)
from dpsql.schema import Domain, Table
from dpsql.sql.allow import check_allowed
from dpsql.sql.bind import BoundKey, BoundStatement, TableName, bind, table_name
from dpsql.sql.evaluate import Evaluator
from dpsql.sql.limits import MAX_STATEMENTS
from dpsql.sql.lower import LoweredStatement, block_of_key, block_shape, lower
from dpsql.sql.parse import Parsed, parse_statement
from dpsql.workload import Workload

MAX_SCRIPT_ENTRIES = 2**24
"""Coefficients of all statements together that are written out: they take memory and time."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class KeyColumn:
    """An output column that tells the group of each row."""

    name: str
    domain: Domain
    block: int
    """The axis of the answers along which the key varies."""
    codes: NDArray[np.int64]
    """For every row along that axis, the code of the key's value."""


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """An output column of noisy counts."""

    alias: str
    family: int
    """Its queries: the index of a family of the workload."""


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A statement, and how its answer is read off the workload's answers."""

    name: str
    sql: str
    columns: tuple[KeyColumn | ValueColumn, ...]
    """The output columns in SELECT order."""
    shape: tuple[int, ...]
    """The number of rows along each block; the answer's rows are in C order."""


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """Statements over one table, and the workload that answers them together."""

    table: Table
    statements: tuple[Statement, ...]
    workload: Workload
    columns: tuple[str, ...]
    """Every column that a statement names, also where the answer doesn't depend on it: only rows
    whose value is in the domain of each are counted."""


def compile_script(
    statements: Sequence[tuple[str, str]], resolve: Callable[[tuple[str, ...]], Table]
) -> Script:
    """Compile named SELECT statements over one table to a workload; no data is touched.

    Args:
        statements: name and SQL text of each.
        resolve: finds the table that a name (as its parts) means, or raises a SchemaError.

    Raises:
        SqlError: a statement is malformed, too large, refused, or over another table.
        SchemaError: a table or column is unknown or has no public domain.
        ResourceLimitError: a joint domain or a matrix is too large.
    """
    _check_names(statements)
    several = len(statements) > 1
    parsed = [_naming(name, several, _read, sql) for name, sql in statements]
    table = _one_table(parsed, resolve)
    names = [name for name, _ in statements]
    try:
        bound = [
            _naming(name, several, bind, name, tree, table)
            for name, tree in zip(names, parsed, strict=True)
        ]
        with Evaluator() as evaluator:
            lowered: list[LoweredStatement] = []
            for name, statement in zip(names, bound, strict=True):
                lowered.append(_naming(name, several, lower, statement, table, evaluator))
                _check_entries(sum(item.entries for item in lowered))
    except RecursionError:  # the limits leave ample room, unless the caller has used it up
        raise SqlLimitError(
            "A statement is too deeply nested for the stack that is left.",
            hint="call dpsql from less deeply nested code, or write the statement more simply.",
        ) from None
    return _assemble(table, bound, lowered)


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


def _one_table(parsed: Sequence[Parsed], resolve: Callable[[tuple[str, ...]], Table]) -> Table:
    """Resolve the tables after FROM, which must all be the same.

    Raises:
        SqlSchemaError: `resolve` knows no such table.
        SqlError: two different tables are named.
    """
    found: dict[tuple[str, ...], Table] = {}
    first: Table | None = None
    for tree in parsed:
        name = table_name(tree)
        if name.parts not in found:
            found[name.parts] = _resolve(name, tree, resolve)
        table = found[name.parts]
        first = first or table
        if (table.path or table.name) != (first.path or first.name):
            raise SqlError(
                f"This statement is over {table.name}, but the first one is over {first.name}: "
                "one script releases from one table.",
                sql=tree.source.sql,
                span=name.span,
                hint="release from each table in its own call.",
            )
    if first is None:
        raise SqlError("There is no statement.", hint="pass at least one.")
    return first


def _resolve(name: TableName, tree: Parsed, resolve: Callable[[tuple[str, ...]], Table]) -> Table:
    try:
        return resolve(name.parts)
    except SqlError:
        raise
    except SchemaError as error:
        raise SqlSchemaError(
            error.message, sql=tree.source.sql, span=name.span, hint=error.hint
        ) from None


def _assemble(
    table: Table, bound: Sequence[BoundStatement], lowered: Sequence[LoweredStatement]
) -> Script:
    used = {column for item in lowered for block in item.blocks for column in block.columns}
    workload = Workload({c: d.size for c, d in table.columns.items() if c in used})
    statements = []
    for statement, item in zip(bound, lowered, strict=True):
        columns: list[KeyColumn | ValueColumn] = []
        factors = iter(item.factors)
        for output in statement.outputs:
            if isinstance(output, BoundKey):
                block, codes = block_of_key(item, output)
                domain = table.columns[output.column]
                columns.append(KeyColumn(output.name, domain, block, codes))
                continue
            columns.append(ValueColumn(output.alias, len(workload.families)))
            groups = [block.columns for block in item.blocks]
            workload.add(groups, next(factors), name=statement.name)
        shape = block_shape(item)
        statements.append(Statement(statement.name, statement.sql, tuple(columns), shape))
    named = {c for statement in bound for c in statement.columns}
    return Script(table, tuple(statements), workload, tuple(c for c in table.columns if c in named))
