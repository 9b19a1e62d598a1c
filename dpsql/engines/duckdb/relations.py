"""DuckDB's queries for relations: what it says otherwise than the base writer. Trusted.

Guarantees:
    Those of `dpsql/engines/relations.py`. The way to the unit is that of `ways.py`, values are
    written by `rows/typed.py`, and the rows that are kept are chosen by the rule of `bounded.py`,
    with its proof: ids, k and places in the line are what it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpsql.engines import table_relations
from dpsql.engines.duckdb.aggregates import aggregate_sql
from dpsql.engines.duckdb.bounded import RowsWithIds, kept_of
from dpsql.engines.duckdb.coding import Coding, with_cells
from dpsql.engines.duckdb.columns import Parameters
from dpsql.engines.duckdb.lines import identity, place_in_line, told_apart
from dpsql.engines.duckdb.ways import has_unit, unit_id, way_to_unit
from dpsql.engines.others import names_met
from dpsql.engines.relations import TO_KEEP, UNIT, PlacedColumn, RelationWriter, WrittenNode
from dpsql.engines.table_relations import TableRelation
from dpsql.errors import InternalError
from dpsql.rel.check import check_kept
from dpsql.rows.typed import RowAggregate, RowValue, call
from dpsql.schema import Table
from dpsql.schema.names import quoted_name, unused


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
    names, unit = list(columns), table.unit
    if unit is None or unit.max_rows is None:
        raise InternalError("nothing bounds the rows of units in this table")
    rows = table_relations.kept_rows(table, names)
    limits = [(one.rows, [table.columns[name] for name in one.columns]) for one in unit.limits]
    check_kept(rows.relation, unit.max_rows, limits)
    return _query(rows, names, parameters)


def rows_of_units(table: Table, columns: Iterable[str], unit: str) -> str:
    """Return a query for `columns` of all rows that belong to units.

    Args:
        table: whose rows they are.
        columns: what is read of them.
        unit: what the column with the ids is called; see `unit_name`.
    """
    names = list(columns)
    return _query(table_relations.rows_of_units(table, names), names, unit=unit)


def unit_name(*tables: Table) -> str:
    """Return a name for ids of units that no column has which is read beside it."""
    return f"{unused(name for table in tables for name in names_met(table))}unit"


def _query(
    rows: TableRelation,
    names: Sequence[str],
    parameters: Parameters | None = None,
    unit: str | None = None,
) -> str:
    ids = {name: rows.id_of(name) for name in names}
    query = DuckDBRelations(parameters).query(rows.relation, ids.values())
    shown = [f"{query.columns[id_]} AS {quoted_name(name)}" for name, id_ in ids.items()]
    shown += [] if unit is None else [f"{UNIT} AS {quoted_name(unit)}"]
    return f"SELECT {', '.join(shown) or '0'} FROM ({query.sql})"


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
