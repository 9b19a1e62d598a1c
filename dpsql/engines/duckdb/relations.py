"""DuckDB's queries for relations: what it says otherwise than the base writer. Trusted.

Guarantees:
    1. Those of `dpsql/engines/relations.py`. Values are written by `rows/typed.py`, and the rows
       that are kept are chosen by the rule of `bounded.py`, with its proof: ids, k and places in
       the line are what it is given.
    2. `way_to_unit` has each (row, u) once: a row of a table for each unit u that its way leads
       to. To add or to remove a unit u leaves (row, v) for v ≠ u as it is.

    *Proof of 2.* Along FOREIGN KEYs there is one unit at most, as no two referenced rows have the
    same value; a row that refers to none has no unit. Where a key is declared and more than one row
    has it there may be several: a key that isn't enforced meets the distinct (key, u) of the rows
    that have it. Both sides are compared as values of which equal ones are the same, texts as
    bytes. What comes or goes with u are the rows with its id in the table that has the ids. So u's
    rows are those (row, u). By induction over the steps, they follow from the rows with its id. ∎

`t1`, `t2`, … are the rows along the first steps of a way, as far as these are FOREIGN KEYs: one for
each row, of the same unit. Functions of several rows are called by their full names, as everywhere;
each is one of those of `rows/windows.py`, whose proofs say why it can be asked of rows of a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from dpsql.engines.duckdb.bounded import RowsWithIds, identity, kept_of, place_in_line, told_apart
from dpsql.engines.duckdb.coding import Coding, with_cells
from dpsql.engines.duckdb.columns import Parameters, source_of
from dpsql.engines.relations import TO_KEEP, UNIT, PlacedColumn, RelationWriter, WrittenNode
from dpsql.errors import InternalError
from dpsql.rows.typed import RowAggregate, RowValue, call, whole
from dpsql.rows.types import HUGEINT
from dpsql.schema import Table
from dpsql.schema.names import quoted_name
from dpsql.schema.units import KeyStep, ResolvedUnit


def column_of(place: str, name: str) -> str:
    """Write a column of an item after FROM."""
    return f"{place}.{quoted_name(name)}"


def way_to_unit(table: Table) -> str:
    """Join a table with those on the way to its unit: each row is there once for each unit."""
    joins = table.unit.joins if table.unit is not None else ()
    return f"{source_of(table)} AS t0{_way(table, 0)}" if joins else f"{source_of(table)} AS t0"


def way_of_all(table: Table) -> str:
    """Join a table with those on the way to its unit: each row is there once, also without one.

    Raises:
        InternalError: a step isn't a FOREIGN KEY, so that a row may have several units.
    """
    source = f"{source_of(table)} AS t0"
    for i, join in enumerate(table.own_unit.joins):
        if not join.enforced:
            raise InternalError("a row may have several units")
        met = ".".join(quoted_name(part) for part in join.path)
        same = _same(join, partial(column_of, f"t{i}"), partial(column_of, f"t{i + 1}"))
        source += f" LEFT JOIN {met} AS t{i + 1} ON {same}"
    return source


def _way(table: Table, first: int) -> str:
    """Join `t0`, `t1`, … with what comes after it on the way; see `way_to_unit`."""
    unit = table.own_unit
    source = ""
    for i, join in enumerate(unit.joins[first:], start=first):
        met = ".".join(quoted_name(part) for part in join.path)
        child, parent = partial(column_of, f"t{i}"), partial(column_of, f"t{i + 1}")
        if join.enforced:
            source += f" JOIN {met} AS t{i + 1} ON {_same(join, child, parent)}"
            continue
        keys = [identity(parent(pair.key), pair.type) for pair in join.pairs]
        ids = _ids(unit, i + 1)
        shown = [f"{column} AS k{at}" for at, column in enumerate(keys)]
        shown += [f"{column} AS u{at}" for at, column in enumerate(ids)]
        distinct = (
            f"SELECT DISTINCT {', '.join(shown)} FROM {met} AS t{i + 1}{_way(table, i + 1)} "
            f"WHERE {_all_there(ids)}"
        )
        pairs = [(identity(child(p.column), p.type), f"k{at}") for at, p in enumerate(join.pairs)]
        same = " AND ".join(f"{column} = t{i + 1}.{key}" for column, key in pairs)
        return f"{source} JOIN ({distinct}) AS t{i + 1} ON {same}"
    return source


def _ids(unit: ResolvedUnit, first: int = 0) -> list[str]:
    """Return what the unit's id is made of, in what `_way` joins from some step on.

    Equal ones are the same, byte for byte: no collation merges what is told apart.
    """
    for i, join in enumerate(unit.joins[first:], start=first):
        if not join.enforced:
            return [f"t{i + 1}.u{at}" for at in range(len(unit.columns))]
    last = f"t{len(unit.joins)}"
    return [identity(f"{last}.{quoted_name(name)}", type_) for name, type_ in unit.columns]


def _all_there(ids: Sequence[str]) -> str:
    return " AND ".join(f"{column} IS NOT NULL" for column in ids)


def unit_id(unit: ResolvedUnit) -> str:
    """Return the unit's id, in `way_to_unit`."""
    ids = _ids(unit)
    return ids[0] if len(ids) == 1 else call("row", *ids)


def has_unit(unit: ResolvedUnit) -> str:
    """Write whether a row belongs to a unit, in `way_to_unit`."""
    return _all_there(_ids(unit))


def _same(join: KeyStep, child: Callable[[str], str], parent: Callable[[str], str]) -> str:
    """Write that a row refers to another one."""
    return " AND ".join(
        f"{identity(child(pair.column), pair.type)} = {identity(parent(pair.key), pair.type)}"
        for pair in join.pairs
    )


def aggregate_sql(aggregate: RowAggregate) -> tuple[str, ...]:
    """Write an aggregate, in pieces: `OVER (…)` belongs between them, if it is a window's."""
    function, given = aggregate.function, [argument.sql for argument in aggregate.arguments]
    if function == "exists":
        return ("true",)
    if function == "count" and not given:
        return "system.main.count(*)", ""
    if function == "count_distinct":
        told = given[0] if aggregate.told is None else aggregate.told.sql
        return f"system.main.count(DISTINCT {told})", ""
    if function in {"sum", "avg"}:
        return _added(aggregate, given[0])
    if aggregate.told is not None:
        return call(f"arg_{function}", given[0], aggregate.told.sql), ""
    numbers = map(whole, aggregate.numbers)
    return call(function, *given[:1], *numbers, *given[1:]), ""


def _added(aggregate: RowAggregate, value: str) -> tuple[str, ...]:
    """Write a sum, or what it is divided by how many there are."""
    before, after = f"CAST({call('sum', value)}", f" AS {aggregate.added.sql})"
    if aggregate.function == "sum":
        return before, after
    if aggregate.added == HUGEINT:  # see `huge_as_float`
        before, after = f"CAST({before}", f"{after} AS VARCHAR)"
    # The quotient of two doubles: a call that begins in one piece, and ends in another.
    divided = f'system.main."/"(CAST({before}'
    between = f"{after} AS DOUBLE), CAST({call('count', value)}"
    return divided, between, " AS DOUBLE))"


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
        enforced = frozenset(column.column for column in placed if not column.leaves_out)
        domains = {column.column: column.domain for column in placed}
        coding, shown = Coding(Table("", domains, enforced=enforced)), [UNIT, *of.shown]
        rows = with_cells(of.name, coding, [*domains], shown, TO_KEEP, self._parameters)
        cells = (f"{TO_KEEP}c{i} AS {column.cell}" for i, column in enumerate(placed))
        return f"SELECT {', '.join([*shown, *cells])} FROM ({rows})"

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
