"""Public relations: what a core joins, stored as tables of the sandbox."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.hints import first_that_works, never
from dpsql.schema.names import as_called, folded, quoted_name
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import Expr, render
from dpsql.sql.binding.joins import JoinedItem
from dpsql.sql.sandbox.database import Sandbox, SandboxError
from dpsql.sql.text.edits import joined_on
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
