"""Public relations: what a core joins, stored as tables of the sandbox, and conditions of joins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import SqlSchemaError, printable
from dpsql.hints import Hint, first_that_works, never
from dpsql.schema.names import as_called, as_sql, folded, quoted_name
from dpsql.sql.binding.bind import RowBinder
from dpsql.sql.binding.core import JoinKind, Relation
from dpsql.sql.binding.expressions import BoundExpr, Expr, quoted_column, render
from dpsql.sql.binding.joins import JoinedItem, has_column
from dpsql.sql.sandbox.database import Sandbox, SandboxError
from dpsql.sql.text.edits import joined_on, swapped, written
from dpsql.sql.text.spans import SourceText

MAX_RELATION_ROWS = 1_000_000


def without_unused(query: exp.Query) -> exp.Query:
    """Return a copy of a query without those CTEs in front of it that nothing names."""
    found = query.copy()
    clause = found.args.get("with_")
    for cte in reversed(clause.expressions if clause is not None else []):
        tables = (t for t in found.find_all(exp.Table) if folded(t.name) == folded(cte.alias))
        if all(table.find_ancestor(exp.CTE) is cte for table in tables):
            cte.pop()
    if clause is not None and not clause.expressions:
        found.set("with_", None)
    return found


def stored_relation(
    number: int,
    join: JoinedItem,
    item: Expr,
    given: Sequence[str],
    sandbox: Sandbox,
    source: SourceText,
) -> Relation:
    """Store what is joined as a table of the sandbox.

    Args:
        number: its number among what is joined.
        join: how it is joined.
        item: what it is there.
        given: the names that its alias gives to columns.
        sandbox: where it is stored.
        source: the statement's text.
    """
    table, sql = sandbox.new_name("relation"), f"SELECT * FROM {render(item)}"
    columns, rows = materialize(sandbox, source, table, sql, list(given), number, join.item)
    name, span = join.item.alias or join.item.name, source.node(join.item)
    return Relation(number, name, columns, table, rows, join.kind, (), span)


def materialize(
    sandbox: Sandbox,
    source: SourceText,
    table: str,
    sql: str,
    given: list[str],
    number: int | None,
    node: Expr,
) -> tuple[tuple[str, ...], int]:
    """Run a public query once; return its columns' names and the number of rows.

    Args:
        sandbox: where to store the result.
        source: the statement, for error messages.
        table: what to call it.
        sql: the query.
        given: names that the analyst gives to the first columns.
        number: of the relation, which gives columns their canonical names, and rows a number.
            None for a CTE, which keeps its own names.
        node: where it stands.

    Raises:
        SqlError: DuckDB refuses the query, or the result is too large.
    """
    try:
        shown = [name for name, _ in sandbox.types(sql)]
        names = [*given, *shown[len(given) :]]
        inner = names if number is None else [f"__r{number}_{j}" for j in range(len(names))]
        listed = ", ".join(map(quoted_name, inner))
        row = "" if number is None else f", row_number() OVER () - 1 AS __r{number}_row"
        limit = MAX_RELATION_ROWS + 1
        sandbox.create(table, f"SELECT *{row} FROM ({sql}) AS x({listed}) LIMIT {limit}")
        ((rows,),) = sandbox.rows(f"SELECT count(*) FROM {table}")
    except SandboxError as error:
        raise source.error(
            node,
            f"This public table can't be made: {error}",
            first_that_works(
                joined_on(source, source.node(node)),
                never(
                    "what is joined with private rows is the same for each of them: of public "
                    "tables and values only. What differs from row to row goes into ON."
                ),
            ),
        ) from None
    if rows > MAX_RELATION_ROWS:
        raise source.error(
            node,
            f"This public table has more than {MAX_RELATION_ROWS:,} rows.",
            "join a smaller one.",
        )
    return tuple(map(as_called, names)), rows


def check_using(kind: JoinKind, using: Sequence[str], join: JoinedItem, source: SourceText) -> None:
    """Refuse a column that would be of one side in some rows, and of the other in others.

    Raises:
        UnsupportedSqlError: it is one of a FULL join.
    """
    if using and kind == "full":
        called = printable(join.item.alias_or_name)
        raise source.unsupported(
            join.item,
            "USING is not supported in a FULL join.",
            first_that_works(
                _spelled_out(using, join, source),
                f"write ON and the condition, and name columns of {called}.",
            ),
        )


def _spelled_out(using: Sequence[str], join: JoinedItem, source: SourceText) -> list[Hint]:
    """Write USING as the condition that it means, where one table stands before the join."""
    first = re.search(
        r"\bFROM\s+(\w+)(?:\s+AS)?(?:\s+(?!FULL|JOIN|ON)(\w+))?", source.sql, re.IGNORECASE
    )
    if first is None:
        return []
    sides = (first[2] or first[1], join.item.alias_or_name)
    equal = " AND ".join(" = ".join(f"{s}.{as_sql(name)}" for s in sides) for name in using)
    return swapped(source, source.whole(), r"USING\s*\([^()]*\)", f"ON {equal}")


def _compared(
    name: str, relation: Relation | None, join: JoinedItem, binder: RowBinder
) -> list[Hint]:
    """Write ON and a condition for USING: with a column of the other side."""
    alias = join.item.alias_or_name
    others = [] if relation is None else relation.columns
    own = binder.scope.names
    if binder.scope.has(name):
        pairs = [(name, other) for other in others]
    elif any(folded(name) == folded(other) for other in others):
        pairs = [(column, name) for column in own]
    else:
        pairs = [
            (column, other) for other in others for column in own if folded(column) == folded(other)
        ]
    source = binder.source
    return [
        Hint(f"{hint.removesuffix('.')}, or what is equal in both.", remedies=hint.remedies)
        for column, other in pairs
        for hint in _on(source, f"{binder.scope.whole(column)} = {as_sql(alias)}.{as_sql(other)}")
    ]


def _on(source: SourceText, condition: str) -> list[Hint]:
    found = re.search(r"USING\s*\([^()]*\)", source.sql, re.IGNORECASE)
    return [] if found is None else [written(source, f"ON {condition}", found.span())]


def conditions_of(
    join: JoinedItem,
    before: Sequence[Relation],
    relation: Relation | None,
    binder: RowBinder,
) -> tuple[BoundExpr, ...]:
    """Bind what stands after ON or USING.

    Args:
        join: the item that is joined.
        before: the public relations that are joined before.
        relation: the item, if it is public.
        binder: binds conditions on rows.

    Raises:
        SqlError: something in it can't be bound, or USING names no column of both sides.
    """
    found = list(binder.conditions(join.on)) if join.on is not None else []
    found += [_equal(name, before, relation, join, binder) for name in join.using]
    return tuple(found)


def _equal(
    name: str,
    before: Sequence[Relation],
    relation: Relation | None,
    join: JoinedItem,
    binder: RowBinder,
) -> BoundExpr:
    """Bind `left.name = right.name`, which is what USING means."""
    sides: list[Expr] = [] if relation is None else [quoted_column(name, relation.alias)]
    others = [quoted_column(name, other.alias) for other in before if has_column(name, other)]
    if relation is None or binder.scope.has(name):
        sides.append(quoted_column(name))
    if len(sides) < 2 and others:
        sides.append(others[0])
    known = relation is None or has_column(name, relation)
    if len(sides) < 2 or not known:
        raise binder.source.error(
            join.item,
            f"USING names {printable(name)}, which is not a column on both sides of the join.",
            first_that_works(
                _compared(name, relation, join, binder), "write ON and the condition."
            ),
            SqlSchemaError,
        )
    span = binder.source.node(join.item)
    return replace(binder.bind(exp.EQ(this=sides[0], expression=sides[1])), span=span)
