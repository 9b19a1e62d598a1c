"""Limits on the rows of a unit that agree in some columns of a table: how many count at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from dpsql.errors import SchemaError, printable
from dpsql.schema.domain import Domain
from dpsql.schema.facts import Catalog
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
from dpsql.schema.units import ResolvedUnit, RowLimit, Unit


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
