"""Limits on the rows of a unit: of those that agree in some columns, and of rows that meet.

    orders o JOIN visits v ON o.customer_id = v.customer_id

has a row for each pair of an order and a visit of the same customer. `max_rows` says how many
count, by the names of the tables: "orders, visits". Where it doesn't, it follows from the bounds of
the tables (`most_rows` in `dpsql/rel/facts.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from dpsql.errors import SchemaError, UnboundedError, printable
from dpsql.hints import option
from dpsql.schema.declarations import Schema
from dpsql.schema.domain import Domain
from dpsql.schema.facts import Catalog
from dpsql.schema.grain import made_of
from dpsql.schema.keys import comments
from dpsql.schema.lookup import (
    CatalogNames,
    ambiguous,
    columns_meant,
    find,
    find_view,
    means,
    meant,
    spelled,
)
from dpsql.schema.names import as_text, closest, folded
from dpsql.schema.table import Table
from dpsql.schema.units import DeclaredUnit, ResolvedUnit, RowLimit, Unit, from_comment


def limited(
    catalog: Catalog,
    path: Sequence[str],
    found: ResolvedUnit,
    said: Unit,
    columns: Mapping[str, Domain],
) -> ResolvedUnit:
    """Give a table's unit the limits that are declared for rows that agree in columns of it.

    Where nothing bounds its rows, these can't be counted, and limits are for those that a statement
    chooses among them (`dpsql/rel/related.py`).

    Args:
        catalog: tells of the tables.
        path: the table's.
        found: its unit.
        said: as it was declared.
        columns: the columns with a domain.

    Raises:
        SchemaError: a limit is for what isn't such a column, or is no less than `max_rows`; or a
            table that it names doesn't exist.
    """
    limits = set[RowLimit]()
    for text, rows in said.max_rows_per.items():
        named = columns_meant(CatalogNames(catalog), text, tuple(path))
        if len(named) > 1:
            read = partial(columns_meant, CatalogNames(catalog), own=tuple(path))
            texts = [spelled(one, read, tuple(path)) for one in named]
            typed = [None if each is None else as_text(each) for each in texts]
            raise ambiguous(text, "What a limit of max_rows_per is for", named, typed)
        if not named:
            _check_known(catalog, path, text, columns)
        elif named[0].path == tuple(path):
            limits.add(_limit(path[-1], named[0].columns, rows, found, columns))
    return replace(found, limits=tuple(sorted(limits)))


def _check_known(
    catalog: Catalog, path: Sequence[str], text: str, columns: Mapping[str, Domain]
) -> None:
    """Say what is wrong with a limit that is for no columns of a table; none may be misspelled.

    Raises:
        SchemaError: it is for columns of several tables, for none of this one, or for a table that
            doesn't exist.
    """
    parts = [part.strip().rpartition(".") for part in text.split(",")]
    tables = {table for table, _, _ in parts} - {""}
    if len(tables) > 1:
        raise SchemaError(
            f"max_rows_per names columns of several tables: {printable(text)}.",
            hint="a limit is for rows of one table.",
        )
    if not all(means(catalog, table, path) for table in tables):
        for name in (meant(catalog, table) for table in tables):
            if find_view(catalog, name) is None:
                find(catalog, name)
        return
    raise _no_domain(path[-1], next(n for _, _, n in parts if n not in columns), columns)


def _limit(
    table: str, names: Sequence[str], rows: int, unit: ResolvedUnit, columns: Mapping[str, Domain]
) -> RowLimit:
    known = {folded(name): name for name in columns}
    for name in names:
        if folded(name) not in known:
            raise _no_domain(table, name, columns)
    if unit.max_rows is not None and rows >= unit.max_rows:
        raise SchemaError(
            f"max_rows_per of {printable(', '.join(names))} is {rows:,}, but no more than "
            f"{unit.max_rows:,} rows of a unit count in {printable(table)}.",
            hint="leave it out, or give a smaller number.",
        )
    return RowLimit(tuple(sorted({known[folded(name)] for name in names})), rows)


def _no_domain(table: str, name: str, columns: Mapping[str, Domain]) -> SchemaError:
    return SchemaError(
        f"max_rows_per of {printable(table)} names {printable(name)}, which is no column with a "
        "domain.",
        hint=closest(name, columns),
    )


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
