"""DuckDB's SQL for the columns that rows have of the rows that they refer to. Trusted.

Guarantees:
    For each row there is one row, with its unit's data alone.

    *Proof.* `Parent.join` references a column of which no two rows have the same value (PRIMARY KEY
    or UNIQUE), and both sides are compared as values of which equal ones are the same, texts as
    bytes. So at most one row of a parent's table meets a row, and a LEFT JOIN keeps the row if none
    does: the number of rows stays, and with it the bound on the rows of a unit. A parent on the way
    to the unit is a row of the same unit (`dpsql/schema/grain.py`); any other one is met only where
    its unit has the same id. By induction over the steps, all that a row has is a function of its
    unit's rows. Of other rows of its unit (`Within`) a row meets one group at most, by the GROUP BY
    of ids of units and of columns that tell rows apart; all rows of that group are of its unit. ∎

    Rows that the order of `bounded.py` can't tell apart agree in what they refer to as well: the
    columns that refer, or by which groups are met, are among those that it looks at, if any
    column of others is read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dpsql.engines.columns import call, source_of
from dpsql.errors import InternalError
from dpsql.schema import Table
from dpsql.schema.names import quoted_name
from dpsql.schema.table import COLLATED, Parent, Within
from dpsql.schema.units import ResolvedUnit


def parents_of(table: Table, names: Collection[str]) -> tuple[Parent, ...]:
    """Return the parents whose columns are among some, and those on the way to them."""
    found: list[Parent] = []
    for parent in reversed(table.parents):
        own = {parent.matched, *parent.names.values()}
        if not own.isdisjoint(names) or any(other.above == parent.prefix for other in found):
            found.append(parent)
    return tuple(reversed(found))


def with_others_columns(
    rows: str,
    parents: Sequence[Parent],
    within: Sequence[Within],
    names: Sequence[str],
    unit: str,
) -> str:
    """Return a query for some columns of rows, of their parents, and of other rows of their units.

    Args:
        rows: a query for rows, with the columns that refer to parents and to groups of others.
        parents: those that are needed, each after the one that refers to it.
        within: what is needed of other rows.
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
        met = source_of(parent.table)
        if not parent.on_way:
            met = f"({_with_units(parent.table, stored_columns(parent.table), unit)})"
        source += f" LEFT JOIN {met} AS {own} ON {child} = {identity(key, join.type)}"
        if not parent.on_way:
            source += f" AND t.{quoted_name(unit)} = {own}.{quoted_name(unit)}"
        written |= {name: f"{own}.{quoted_name(of)}" for of, name in parent.names.items()}
        written[parent.matched] = f"CASE WHEN {key} IS NOT NULL THEN true END"
    for i, one in enumerate(within):
        source += f" LEFT JOIN ({_of_groups(one, unit)}) AS w{i} ON "
        source += f"t.{quoted_name(unit)} = w{i}.{quoted_name(unit)}"
        for place, (outer, inner) in enumerate(one.pairs):
            column = written.get(outer, f"t.{quoted_name(outer)}")
            source += f" AND {identity(column, stored_type(one.table, inner))} = w{i}.k{place}"
        none = f"w{i}.{quoted_name(unit)} IS NULL"
        written[one.name] = f"CASE WHEN {none} THEN {one.empty} ELSE w{i}.v END"
    shown = (f"{written.get(n, f't.{quoted_name(n)}')} AS {quoted_name(n)}" for n in names)
    return f"SELECT {', '.join(shown)} FROM {source}"


def _of_groups(one: Within, unit: str) -> str:
    """Write what is computed of the rows of each unit that agree in some columns."""
    table = one.table
    paired = [inner for _, inner in one.pairs]
    names = list(dict.fromkeys([*sorted(one.columns), *paired]))
    keys = [identity(quoted_name(name), stored_type(table, name)) for name in paired]
    shown = "".join(f"{key} AS k{place}, " for place, key in enumerate(keys))
    groups = ", ".join([quoted_name(unit), *keys])
    where = f" WHERE {one.condition}" if one.condition else ""
    rows = _of_units(table, names, unit)
    return (
        f"SELECT {quoted_name(unit)}, {shown}{one.value} AS v FROM ({rows}) AS i{where} "
        f"GROUP BY {groups}"
    )


def _of_units(table: Table, names: Sequence[str], unit: str) -> str:
    """Write rows with the ids of their units, and with columns of their parents."""
    parents = parents_of(table, names)
    refer = [parent.join.column for parent in parents if not parent.above]
    stored = [name for name in names if name not in table.joined]
    rows = _with_units(table.alone, list(dict.fromkeys([*stored, *refer])), unit)
    return with_others_columns(rows, parents, (), [*names, unit], unit) if parents else rows


def _with_units(table: Table, names: Sequence[str], unit: str) -> str:
    """Write the rows of a table that belong to units, with the ids of these."""
    if table.unit is None:
        raise InternalError("rows that are met by their unit have none")
    stored = unit_column(table.unit)
    shown = "".join(f"t0.{quoted_name(name)}, " for name in names)
    of = identity(stored, table.unit.type)
    source = f"{way_to_unit(table)} WHERE {stored} IS NOT NULL"
    return f"SELECT {shown}{of} AS {quoted_name(unit)} FROM {source}"


def stored_columns(table: Table) -> list[str]:
    """Return the names of all columns that are stored in a table."""
    own = table.alone
    return [*own.columns, *own.undeclared]


def stored_type(table: Table, name: str) -> str:
    """Return the type that tells values of a column apart; that of a text is plain."""
    domain = table.columns.get(name)
    declared = table.undeclared.get(name, "") if domain is None else domain.column_type
    return (declared or ("" if domain is None else domain.type)).replace(COLLATED, "VARCHAR")


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
