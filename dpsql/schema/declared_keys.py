"""References that the owner declares, wherever: in a call, a schema file, a comment of a table.

    COMMENT ON TABLE orders IS 'dpsql: {"references": {"customer_id": "customers.id"}}';

They are facts about tables and not about one unit. So all that are declared anywhere hold for all
tables: a way to the unit may lead through tables with declarations of their own, and whether rows
of a table refer to each other in a circle must not depend on which of them is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from dpsql.errors import SchemaError, printable
from dpsql.schema.comments import PREFIX, references_of
from dpsql.schema.declarations import Schema
from dpsql.schema.fetching import fetch
from dpsql.schema.keys import KeyCatalog, fault, read_keys
from dpsql.schema.lookup import is_table, storing
from dpsql.schema.names import closest
from dpsql.schema.units import EachRow, ResolvedUnit, Unit

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_COMMENTS = """
    SELECT database_name, schema_name, table_name, comment FROM system.main.duckdb_tables()
    WHERE system.main.contains(comment, $1)
    UNION ALL
    SELECT database_name, schema_name, view_name, comment FROM system.main.duckdb_views()
    WHERE system.main.contains(comment, $1)
"""
_SCHEMAS = """
    SELECT DISTINCT database_name, schema_name FROM system.main.duckdb_columns() WHERE NOT internal
"""


def references_for(
    con: DuckDBPyConnection,
    path: Sequence[str],
    schema: Schema | None,
    unit: Unit | EachRow | None,
) -> dict[str, str]:
    """Return all references that are declared: for whatever tables, and in comments of a schema.

    What a comment says that isn't understood is left out: a table with such a one is refused.

    Args:
        con: an open DuckDB connection; only its catalog is read.
        path: database, schema and name of a table of that schema.
        schema: what is declared in a call or a file.
        unit: what is declared beside it.

    Raises:
        SchemaError: the catalog can't be read.
    """
    return _noted(con, path[:2]) | _given(schema, unit)


def comments(con: DuckDBPyConnection) -> list[tuple[str, str, str, str]]:
    """Return database, schema and name of tables and views, with what they say for dpsql.

    Raises:
        SchemaError: the catalog can't be read.
    """
    return fetch(con, _COMMENTS, [PREFIX])


def _noted(con: DuckDBPyConnection, place: Sequence[str] = ()) -> dict[str, str]:
    """Return what comments say: of one schema of one database, or everywhere."""
    found: dict[str, str] = {}
    for *where, table, comment in comments(con):
        if where[: len(place)] == list(place):
            with suppress(SchemaError):
                found |= references_of(table, comment)
    return found


def _given(schema: Schema | None, unit: Unit | EachRow | None) -> dict[str, str]:
    units = [*schema.units.values(), unit] if schema is not None else [unit]
    found = {} if schema is None else dict(schema.references)
    for one in units:
        found |= one.references if isinstance(one, Unit) else {}
    return found


def check_references(
    con: DuckDBPyConnection, schema: Schema | None, unit: Unit | EachRow | None
) -> None:
    """Check that references name columns, of one schema, that can be compared.

    Raises:
        SchemaError: one doesn't; the catalog can't be read.
    """
    given = _noted(con) | _given(schema, unit)
    if not given:
        return
    places = {(str(d), str(s)) for d, s in fetch(con, _SCHEMAS)}
    catalogs = [read_keys(partial(fetch, con), (*place, "")) for place in sorted(places)]
    for child, parent in given.items():
        _check(child, parent, [one for one in catalogs if one.columns])


def _check(child: str, parent: str, catalogs: Sequence[KeyCatalog]) -> None:
    found = [(one, one.side(child), one.side(parent)) for one in catalogs]
    for text, sides in ((child, [one[1] for one in found]), (parent, [one[2] for one in found])):
        if not any(sides):
            known = [f"{t}.{c}" for one in catalogs for t, own in one.columns.items() for c in own]
            raise SchemaError(
                f"A reference names {printable(text)}, which is no column of a table.",
                hint=closest(text, known),
            )
    both = [(one, a, b) for one, a, b in found if a is not None and b is not None]
    if not both:
        raise SchemaError(
            f"{printable(child)} and {printable(parent)} are not columns of one schema of one "
            "database.",
            hint="rows of one schema refer to each other: keep the tables together.",
        )
    faults = [fault(*each) for each in both]
    if None not in faults:
        raise SchemaError(
            f"{printable(child)} can't refer to {printable(parent)}: {faults[0]}.",
            hint="let both sides have the same columns, of integer, VARCHAR or UUID types; CAST "
            "them where the tables are made.",
        )


def check_way(con: DuckDBPyConnection, table: str, unit: ResolvedUnit) -> None:
    """Check that a way to a unit leads through stored tables.

    A step of a way reads rows as they stand. Those of a view may be computed of rows of several
    units: what one of them has would follow from others.

    Raises:
        SchemaError: it leads through a view; the catalog can't be read.
    """
    for join in unit.joins:
        if not join.enforced and not is_table(con, join.path):
            view: tuple[str, str, str] = join.path  # type: ignore[assignment]
            raise SchemaError(
                f"The unit of {printable(table)} is in another table, {printable(view[-1])}, "
                "which is a view, so it isn't clear whose its rows are.",
                hint=f"store the id in a column of {printable(table)}; or "
                f"{storing(con, view[1:], view)}",
            )
