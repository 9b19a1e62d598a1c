"""What is computed of rows of the same unit, as SQL for the private connection."""

from __future__ import annotations

from dpsql.errors import SchemaError, SqlError
from dpsql.rows import expression as row
from dpsql.rows.within import RowsWithin, rows_within
from dpsql.schema import Table
from dpsql.schema.grain import with_rows_within
from dpsql.sql.binding.tables import NamedTables, UnitRows
from dpsql.sql.lowering.measures import RowReader
from dpsql.sql.lowering.stored_values import stored_type
from dpsql.sql.sandbox.database import Sandbox


def with_rows_of_units(table: Table, tables: NamedTables, sandbox: Sandbox) -> Table:
    """Give a table the columns that statements compute of other rows of the same unit.

    Raises:
        SqlError: one can't be evaluated row by row.
    """
    found = tables.rows_of(table)
    if not found:
        return table
    return with_rows_within(tables.grain(table), [_made(one, sandbox) for one in found])


def _made(rows: UnitRows, sandbox: Sandbox) -> RowsWithin:
    table, reader = rows.table, RowReader(sandbox, rows.table, rows.source)
    holds: list[row.RowExpression] = [reader.expression(one) for one in rows.conditions]
    value = None if rows.value is None else reader.expression(rows.value)
    types = dict(table.undeclared) | {n: stored_type(d) for n, d in table.columns.items()}
    condition = row.all_of(holds) if holds else None
    try:
        return rows_within(rows.name, table, rows.pairs, (rows.function, value), condition, types)
    except SqlError as error:
        if error.span is not None:
            raise
        raise rows.source.error(rows.span, error.message, error.hint, type(error)) from None
    except SchemaError as error:
        raise rows.source.located(error, rows.span) from None
