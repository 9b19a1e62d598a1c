"""DuckDB's SQL for the ways from rows to their units. Trusted.

Guarantees:
    `way_to_unit` has each (row, u) once: a row of a table for each unit u that its way leads to.
    To add or to remove a unit u leaves (row, v) for v ≠ u as it is.

    *Proof.* Along FOREIGN KEYs there is one unit at most, as no two referenced rows have the same
    value; a row that refers to none has no unit. Where a key is declared and more than one row has
    it there may be several: a key that isn't enforced meets the distinct (key, u) of the rows that
    have it. Both sides are compared as values of which equal ones are the same, texts as bytes.
    What comes or goes with u are the rows with its id in the table that has the ids. So u's rows
    are those (row, u). By induction over the steps, they follow from the rows with its id. ∎

    `t1`, `t2`, … are the rows along the first steps, as far as these are FOREIGN KEYs: one for each
    row, of the same unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from dpsql.engines.duckdb.columns import source_of
from dpsql.engines.duckdb.lines import identity
from dpsql.errors import InternalError
from dpsql.rows.typed import call
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
        child, own = partial(column_of, f"t{i}"), partial(column_of, f"t{i + 1}")
        if join.enforced:
            source += f" JOIN {met} AS t{i + 1} ON {_same(join, child, own)}"
            continue
        keys = [identity(own(pair.key), pair.type) for pair in join.pairs]
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
