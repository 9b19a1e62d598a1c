"""DuckDB's queries for relations: what it says otherwise than the base writer. Trusted.

Guarantees:
    Those of `dpsql/engines/relations.py`. The way to the unit is that of `parents.py`, values are
    written by `rows/typed.py`, and the rows that are kept are chosen by the rule of `bounded.py`,
    with its proof: ids, k and places in the line are what it is given.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.engines.duckdb.aggregates import aggregate_sql
from dpsql.engines.duckdb.bounded import LineOrder, RowsWithIds, kept_of
from dpsql.engines.duckdb.coding import Coding, with_cells
from dpsql.engines.duckdb.columns import Parameters
from dpsql.engines.duckdb.lines import identity, told_apart
from dpsql.engines.duckdb.parents import has_unit, unit_id, way_to_unit
from dpsql.engines.relations import UNIT, PlacedColumn, RelationWriter, WrittenNode
from dpsql.errors import InternalError
from dpsql.rows.typed import RowAggregate, RowValue, call
from dpsql.schema.table import Table

_OWN = "b_"
"""What the names of columns begin with that are computed to keep rows: the writer has no others."""


class DuckDBRelations(RelationWriter):
    """Writes the query for one relation as DuckDB reads it.

    Args:
        parameters: what the query's parameters are among; without limits for cells there are none.
    """

    def __init__(self, parameters: Parameters | None = None) -> None:
        super().__init__()
        self._parameters = Parameters() if parameters is None else parameters

    def rows_with_units(self, table: Table) -> tuple[str, str, str]:
        """Join the rows of a table with those on the way to their units."""
        if table.unit is None:
            raise InternalError("rows of nobody are read")
        return way_to_unit(table), unit_id(table.unit), has_unit(table.unit)

    def part(self, name: str, sql: str, *, once: bool) -> str:
        """Write a query of WITH."""
        return f"{name} AS {'MATERIALIZED ' * once}({sql})"

    def spelled(self, value: RowValue) -> str:
        """Write a value of a row."""
        return value.sql

    def aggregate_parts(self, made: RowAggregate) -> tuple[str, ...]:
        """Write an aggregate in pieces."""
        return aggregate_sql(made)

    def call(self, function: str, *arguments: str) -> str:
        """Write a call of a built-in function."""
        return call(function, *arguments)

    def identity(self, column: str, type_: str) -> str:
        """Write the bytes of a text, and all else as it is."""
        return identity(column, type_)

    def told_apart(self, column: str, type_: str) -> Sequence[str]:
        """Write the bytes of a text, and of a zero its sign as well."""
        return tuple(told_apart(column, type_))

    def with_cells(self, of: WrittenNode, placed: Sequence[PlacedColumn]) -> str:
        """Code the columns by their domains; no cells are merged here."""
        enforced = frozenset(one.column for one in placed if not one.leaves_out)
        domains = {one.column: one.domain for one in placed}
        coding, shown = Coding(Table("", domains, enforced=enforced)), [UNIT, *of.shown]
        found = with_cells(of.name, coding, [*domains], shown, _OWN, self._parameters)
        cells = (f"{_OWN}c{i} AS {one.cell}" for i, one in enumerate(placed))
        return f"SELECT {', '.join([*shown, *cells])} FROM ({found})"

    def kept(
        self, of: WrittenNode, rows: int, line: Sequence[str], agree: Sequence[str] = ()
    ) -> str:
        """Write the rows that are kept: those of crowded units stand in line, and all others."""
        id_ = f"t0.{UNIT}"
        if agree:
            id_ = call("row", id_, *(f"t0.{column}" for column in agree))
        given = RowsWithIds(_OWN, f"{of.name} AS t0", id_, "true")
        shown = {column: f"t0.{column}" for column in (UNIT, *of.shown)}
        return f"WITH {kept_of(given, rows, shown, LineOrder(of.line, tuple(line)))}"
