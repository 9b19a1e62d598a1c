"""What is computed of rows of the same unit, as SQL for the private connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import SchemaError, SqlError
from dpsql.rows import expression as row
from dpsql.rows.within import RowsWithin, rows_within
from dpsql.schema import Table
from dpsql.schema.grain import beside, with_rows_within
from dpsql.schema.table import OUTSIDE
from dpsql.sql.binding.expressions import BoundExpr, render
from dpsql.sql.binding.tables import AROUND, NamedTables, UnitRows
from dpsql.sql.lowering.measures import RowReader
from dpsql.sql.lowering.stored_values import stored_type
from dpsql.sql.sandbox.database import Sandbox


class RowsOfUnits:
    """Writes what the statements of a script compute of rows of the same unit.

    Args:
        tables: what their names of tables mean.
        sandbox: reads SQL.
    """

    def __init__(self, tables: NamedTables, sandbox: Sandbox) -> None:
        self._tables, self._sandbox = tables, sandbox
        self._made: dict[tuple[str, ...], list[RowsWithin]] = {}

    def of(self, table: Table) -> Table:
        """Give a table the columns that are computed of other rows of the same unit.

        Raises:
            SqlError: one can't be evaluated row by row.
        """
        if not self._made:
            for rows in self._tables.rows_of_units:  # each after what it needs
                self._made.setdefault(rows.around.path, []).append(self._within(rows))
        return self._so_far(table)

    def _so_far(self, table: Table) -> Table:
        """Give a table those of its columns that are written."""
        made = self._made.get(table.path)
        return table if made is None else with_rows_within(self._tables.grain(table), made)

    def _within(self, rows: UnitRows) -> RowsWithin:
        try:
            return self._written(rows)
        except SqlError as error:
            if error.span is not None:
                raise
            raise rows.source.error(rows.span, error.message, error.hint, type(error)) from None
        except SchemaError as error:
            raise rows.source.located(error, rows.span) from None

    def _written(self, rows: UnitRows) -> RowsWithin:
        table, around = self._so_far(rows.table), self._so_far(rows.around)
        own = [replace(one, name=OUTSIDE + one.name) for one in self._made.get(around.path, ())]
        read = beside(table, around, own)
        places = {
            f"{AROUND}a{i}": f"__a{len(table.columns) + i}" for i in range(len(around.columns))
        }
        places |= {
            f"{AROUND}w{i}": f"__w{len(table.undeclared) + i}"
            for i in range(len(around.undeclared))
        }
        reader = RowReader(self._sandbox, read, rows.source)
        holds = [reader.expression(_placed(one, places)) for one in rows.conditions]
        value = None if rows.value is None else reader.expression(_placed(rows.value, places))
        types = dict(read.undeclared) | {n: stored_type(d) for n, d in read.columns.items()}
        condition = row.all_of(holds) if holds else None
        return rows_within(rows.name, table, rows.pairs, (rows.function, value), condition, types)


def _placed(bound: BoundExpr, places: Mapping[str, str]) -> BoundExpr:
    """Name columns of the row that it is for as they are called beside the others."""
    node = bound.node.copy()
    for part in [part for part in node.find_all(exp.Column) if part.name in places]:
        part.this.set("this", places[part.name])
    return replace(bound, node=node, sql=render(node))
