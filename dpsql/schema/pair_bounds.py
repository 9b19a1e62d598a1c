"""Bounds on the rows of a unit where rows of several tables meet.

    orders o JOIN visits v ON o.customer_id = v.customer_id

has a row for each pair of an order and a visit of the same customer. `max_rows` says how many
count, by the names of the tables: "orders, visits". Where it doesn't, it follows from the bounds of
the tables (`dpsql/rel/most.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from dpsql.errors import SchemaError, UnboundedError, printable
from dpsql.hints import option
from dpsql.schema.declarations import Schema
from dpsql.schema.facts import Catalog
from dpsql.schema.grain import made_of
from dpsql.schema.keys import comments
from dpsql.schema.lookup import means
from dpsql.schema.table import Table
from dpsql.schema.units import DeclaredUnit, Unit, from_comment

_EXAMPLE = 20
"""A bound that is proposed where those of the tables aren't known, or are too large together."""


def names_of(tables: Sequence[Table]) -> str:
    """Return the name of what is made of rows of some tables, as `max_rows` has it."""
    return ", ".join(sorted(one.name for table in tables for one in made_of(table)))


def bound_of(
    catalog: Catalog,
    tables: Sequence[Table],
    schema: Schema | None,
    unit: DeclaredUnit,
) -> int | None:
    """Return how many rows of a unit count where rows of tables meet; None if nothing says so.

    Raises:
        SchemaError: several bounds are declared.
    """
    made = [one for each in tables for one in made_of(each)]
    wanted = Counter(table.path for table in made)
    noted = (from_comment(*each) for each in _comments(catalog, made))
    declared = schema.units.values() if schema is not None else ()
    for units in ([unit], declared, noted):  # each goes before the next
        given = [(n, rows) for one in units for n, rows in _bounds(one).items()]
        own = [
            each for each in given if Counter(_of_tables(catalog, each[0], list(wanted))) == wanted
        ]
        if len({rows for _, rows in own}) > 1:
            raise SchemaError(
                f"Several bounds are declared where rows of {printable(names_of(tables))} meet.",
                hint="declare one of them, or the same for all tables.",
            )
        if own:
            return own[0][1]
    return None


def note_of(tables: Sequence[Table], most: int) -> str:
    """Say that a bound follows from those of tables, and what to declare for less noise."""
    name = printable(names_of(tables))
    made = (one for each in tables for one in made_of(each))
    each = " and ".join(f"{one.contributions:,}" for one in sorted(made, key=lambda one: one.name))
    return (
        f"at most {most:,} rows of a unit count where rows of {name} meet, which follows from the "
        f'bounds of these tables, {each}: declare fewer for less noise, as "{name}" in max_rows'
    )


def unbounded_where_met(
    catalog: Catalog,
    tables: Sequence[Table],
    schema: Schema | None,
    unit: DeclaredUnit,
) -> UnboundedError:
    """Say that nothing bounds the rows of a unit where rows meet, and how a bound is given."""
    made = [one for each in tables for one in made_of(each)]
    noted = (from_comment(*each) for each in _comments(catalog, made))
    declared = schema.units.values() if schema is not None else ()
    known: dict[str, int] = {}
    for one in (*noted, *declared, unit):
        known |= _bounds(one)
    return UnboundedError(
        f"Nothing says how many rows of a unit count where rows of {printable(names_of(tables))} "
        "meet.",
        hint="say how many of these count, as many as you expect: fewer add less noise, and more "
        f"are left out: {option('max_rows', {names_of(tables): _EXAMPLE, **known})}.",
    )


def _bounds(unit: DeclaredUnit) -> Mapping[str, int]:
    """Return what a unit says of several tables."""
    rows = unit.max_rows if isinstance(unit, Unit) else None
    return rows if isinstance(rows, Mapping) else {}


def _comments(catalog: Catalog, tables: Sequence[Table]) -> Iterator[tuple[str, str]]:
    """Yield the tables of some that have a comment for dpsql, each with it."""
    paths = {table.path for table in tables}
    for path, comment in comments(catalog):
        if path in paths:
            yield path[-1], comment


def _of_tables(
    catalog: Catalog, declared: str, paths: Sequence[tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Return which of some tables a name means that lists several: "orders, visits".

    A folder is also known without its kind, as it is called where it is shown. What means none of
    them is returned as it is written.
    """
    found = list[tuple[str, ...]]()
    for part in map(str.strip, declared.split(",")):
        found.append(next((path for path in paths if _is(catalog, part, path)), (part,)))
    return found


def _is(catalog: Catalog, part: str, path: tuple[str, ...]) -> bool:
    return means(catalog, part, path) or ("/" in part and part == path[-1])
