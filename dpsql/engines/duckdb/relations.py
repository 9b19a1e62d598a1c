"""DuckDB's queries for relations: what it says otherwise than the base writer. Trusted.

Guarantees:
    Those of `dpsql/engines/relations.py`. The way to the unit is that of `ways.py`, values are
    written by `rows/typed.py`, and the rows that are kept are chosen by the rule of `bounded.py`,
    with its proof: ids, k and places in the line are what it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpsql.engines.duckdb.aggregates import aggregate_sql
from dpsql.engines.duckdb.bounded import RowsWithIds, kept_of
from dpsql.engines.duckdb.coding import Coding, with_cells
from dpsql.engines.duckdb.columns import Parameters
from dpsql.engines.duckdb.lines import identity, place_in_line, told_apart
from dpsql.engines.duckdb.ways import has_unit, unit_id, way_to_unit
from dpsql.engines.relations import TO_KEEP, UNIT, PlacedColumn, RelationWriter, WrittenNode
from dpsql.errors import InternalError
from dpsql.rows.typed import RowAggregate, RowValue, call
from dpsql.schema import Table
from dpsql.schema.names import quoted_name


def kept_rows(table: Table, columns: Iterable[str], parameters: Parameters | None = None) -> str:
    """Return a query for `columns` of the rows that count, and of other rows of their units.

    Args:
        table: whose rows they are.
        columns: what is read of them.
        parameters: what the query's parameters are among; it has some only where limits are for
            cells of columns.

    Raises:
        InternalError: the table has no privacy unit, or more rows of one would count.
    """
    return DuckDBRelations(parameters).kept_rows(table, list(columns))


def rows_of_units(table: Table, columns: Iterable[str], unit: str) -> str:
    """Return a query for `columns` of all rows that belong to units, with the column `unit`."""
    return DuckDBRelations().rows_of_units(table, list(columns), unit)


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

    def quoted(self, name: str) -> str:
        """Write the name of a column."""
        return quoted_name(name)

    def stored(self, row: str, column: str, type_: str) -> str:
        """Write a column of a stored row as it is."""
        return f"{row}.{quoted_name(column)}"

    def part(self, name: str, sql: str, *, once: bool) -> str:
        """Write a query of WITH; others are computed where they are read, whatever is guessed."""
        return f"{name} AS {'NOT ' * (not once)}MATERIALIZED ({sql})"

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

    def place(self, line: Sequence[str]) -> str:
        """Write the place of a row among those of its unit."""
        return place_in_line(line, UNIT)

    def with_cells(self, of: WrittenNode, placed: Sequence[PlacedColumn]) -> str:
        """Code the columns by their domains; no cells are merged here."""
        enforced = frozenset(one.column for one in placed if not one.leaves_out)
        domains = {one.column: one.domain for one in placed}
        coding, shown = Coding(Table("", domains, enforced=enforced)), [UNIT, *of.shown]
        found = with_cells(of.name, coding, [*domains], shown, TO_KEEP, self._parameters)
        cells = (f"{TO_KEEP}c{i} AS {one.cell}" for i, one in enumerate(placed))
        return f"SELECT {', '.join([*shown, *cells])} FROM ({found})"

    def kept(
        self, of: WrittenNode, rows: int, line: Sequence[str], agree: Sequence[str] = ()
    ) -> str:
        """Write the rows that are kept: those of crowded units stand in line, and all others."""
        id_ = f"t0.{UNIT}"
        if agree:
            id_ = call("row", id_, *(f"t0.{column}" for column in agree))
        given = RowsWithIds(TO_KEEP, f"{of.name} AS t0", id_, "true")
        shown = {column: f"t0.{column}" for column in (UNIT, *of.shown)}
        return f"WITH {kept_of(given, rows, shown, line)}"
