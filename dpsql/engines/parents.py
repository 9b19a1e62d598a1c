"""DuckDB's SQL for the columns that rows have of the rows that they refer to. Trusted.

Guarantees:
    For each row there is one row, with its unit's data alone.

    *Proof.* `Parent.join` references a column of which no two rows have the same value (PRIMARY KEY
    or UNIQUE), and both sides are compared as values of which equal ones are the same, texts as
    bytes. So at most one row of a parent's table meets a row, and a LEFT JOIN keeps the row if none
    does: the number of rows stays, and with it the bound on the rows of a unit. A parent on the way
    to the unit is a row of the same unit (`dpsql/schema/grain.py`); any other one is met only where
    its unit has the same id. By induction over the steps, all that a row has is a function of its
    unit's rows. ∎

    Rows that the order of `bounded.py` can't tell apart agree in what they refer to as well: the
    columns that refer are among those that it looks at, if any parent's column is read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dpsql.engines.columns import call, source_of
from dpsql.errors import InternalError
from dpsql.schema import Table
from dpsql.schema.names import quoted_name
from dpsql.schema.table import Parent
from dpsql.schema.units import ResolvedUnit


def parents_of(table: Table, names: Collection[str]) -> tuple[Parent, ...]:
    """Return the parents whose columns are among some, and those on the way to them."""
    found: list[Parent] = []
    for parent in reversed(table.parents):
        own = {parent.matched, *parent.names.values()}
        if not own.isdisjoint(names) or any(other.above == parent.prefix for other in found):
            found.append(parent)
    return tuple(reversed(found))


def with_parents_columns(
    rows: str, parents: Sequence[Parent], names: Sequence[str], unit: str
) -> str:
    """Return a query for some columns of rows, and of their parents.

    Args:
        rows: a query for rows, with the columns that refer to parents.
        parents: those that are needed, each after the one that refers to it.
        names: the columns, under their names in the grain.
        unit: the column of the rows with the ids of their units.
    """
    places = {"": "t", **{parent.prefix: f"p{i}" for i, parent in enumerate(parents)}}
    written: dict[str, str] = {}
    source = f"({rows}) AS t"
    for parent in parents:
        join, own = parent.join, places[parent.prefix]
        child = identity(f"{places[parent.above]}.{quoted_name(join.column)}", join.type)
        key = f"{own}.{quoted_name(join.key)}"
        met = source_of(parent.table) if parent.on_way else _with_units(parent, unit)
        source += f" LEFT JOIN {met} AS {own} ON {child} = {identity(key, join.type)}"
        if not parent.on_way:
            source += f" AND t.{quoted_name(unit)} = {own}.{quoted_name(unit)}"
        written |= {name: f"{own}.{quoted_name(of)}" for of, name in parent.names.items()}
        written[parent.matched] = f"CASE WHEN {key} IS NOT NULL THEN true END"
    shown = (f"{written.get(n, f't.{quoted_name(n)}')} AS {quoted_name(n)}" for n in names)
    return f"SELECT {', '.join(shown)} FROM {source}"


def _with_units(parent: Parent, unit: str) -> str:
    """Write the rows of a parent's table with the ids of their units."""
    table = parent.table
    if table.unit is None:
        raise InternalError("a parent that is met by its unit has none")
    names = [quoted_name(name) for name in (*table.columns, *table.undeclared)]
    shown = ", ".join(f"t0.{name}" for name in names)
    of = identity(unit_column(table.unit), table.unit.type)
    return f"(SELECT {shown}, {of} AS {quoted_name(unit)} FROM {way_to_unit(table)})"


def identity(column: str, type_: str) -> str:
    """Return what tells ids apart: the bytes of a text."""
    return call("encode", column) if type_ == "VARCHAR" else column


def way_to_unit(table: Table) -> str:
    """Join a table with those on the way to its unit: each has one row at most for a row."""
    source = f"{source_of(table)} AS t0"
    for i, join in enumerate(table.unit.joins if table.unit is not None else ()):
        parent = ".".join(quoted_name(part) for part in join.path)
        child = identity(f"t{i}.{quoted_name(join.column)}", join.type)
        key = identity(f"t{i + 1}.{quoted_name(join.key)}", join.type)
        source += f" JOIN {parent} AS t{i + 1} ON {child} = {key}"
    return source


def unit_column(unit: ResolvedUnit) -> str:
    """Return the column with the unit's id, in `way_to_unit`."""
    return f"t{len(unit.joins)}.{quoted_name(unit.column)}"


def unused(columns: Collection[str]) -> str:
    """Return a beginning that no column has."""
    prefix = "u_"
    while any(name.lower().startswith(prefix) for name in columns):
        prefix = "u" + prefix
    return prefix
