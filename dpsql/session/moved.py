"""The question how many values count as others, because domains and bounds are declared so.

It is one more statement for each table, of conditions that are evaluated row by row.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from dpsql.errors import SchemaError
from dpsql.hints import option
from dpsql.request import Request
from dpsql.schema import Table
from dpsql.schema.moved import MovedValues, moved_values
from dpsql.schema.names import as_sql, quoted_text
from dpsql.session.unit_rows import BESIDE, named_besides
from dpsql.sql.compiled import Script

MOVED = "values_moved"


def with_values_moved(request: Request, script: Script) -> Request:
    """Ask besides how many values are moved of the columns that statements show or add up.

    Args:
        request: what is asked.
        script: what it was compiled to.

    Raises:
        SchemaError: none are.
    """
    asked = [(own.table, found) for own in script.each if (found := _moved(own))]
    if not asked:
        raise SchemaError(
            "No values are moved into a domain here: no column that is shown or added up is "
            "declared that way.",
            hint="leave " + option("report_moved") + " out.",
        )
    statements = dict(request.statements)
    names = named_besides(MOVED, [table for table, _ in asked], statements)
    statements |= {name: _count(*each) for name, each in zip(names, asked, strict=True)}
    return replace(request, statements=tuple(statements.items()), report_moved=False)


def _moved(script: Script) -> list[MovedValues]:
    """Return what is moved of a table's own columns, of those that its statements use."""
    table = script.table
    if table.made_of or table.chosen is not None:
        return []
    added = (measure.columns for measure in script.measures.values())
    used = {*script.workload.domain, *chain.from_iterable(added)}
    names = [name for name in (*table.alone.columns, *table.alone.bounds) if name in used]
    return [found for name in names for found in moved_values(table, name)]


def _count(table: Table, moved: list[MovedValues]) -> str:
    """Write the statement that counts values that are moved, with a row for each way."""
    named = ".".join(map(as_sql, table.path)) or as_sql(table.name)
    each = (
        f"{quoted_text(one.column)} AS column_name, {quoted_text(one.kind)} AS how, "
        f"COUNT(*) FILTER (WHERE {one.condition}) AS moved, COUNT(*) AS all_values "
        f"FROM {named} WHERE {as_sql(one.column)} IS NOT NULL"
        for one in moved
    )
    return f"SELECT /*+ weight({BESIDE}) */ " + " UNION ALL SELECT ".join(each)
