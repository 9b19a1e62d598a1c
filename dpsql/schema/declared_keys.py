"""References that the owner declares, wherever: in a call, a schema file, a comment of a table.

    COMMENT ON TABLE orders IS 'dpsql: {"references": {"customer_id": "customers.id"}}';

They are facts about tables and not about one unit. So all that are declared anywhere hold for all
tables: a way to the unit may lead through tables with declarations of their own, and whether rows
of a table refer to each other in a circle must not depend on which of them is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from dpsql.errors import SchemaError, printable
from dpsql.schema.comments import PREFIX, references_of
from dpsql.schema.declarations import Schema
from dpsql.schema.facts import Catalog, TableComment
from dpsql.schema.keys import KeyCatalog, fault, read_keys
from dpsql.schema.lookup import is_table, storing
from dpsql.schema.names import closest
from dpsql.schema.units import EachRow, ResolvedUnit, Unit


def references_for(
    catalog: Catalog,
    path: Sequence[str],
    schema: Schema | None,
    unit: Unit | EachRow | None,
) -> dict[str, str]:
    """Return all references that are declared: for whatever tables, and in comments of a schema.

    What a comment says that isn't understood is left out: a table with such a one is refused.

    Args:
        catalog: tells of the tables.
        path: database, schema and name of a table of that schema.
        schema: what is declared in a call or a file.
        unit: what is declared beside it.

    Raises:
        SchemaError: the catalog can't be read.
    """
    return _noted(catalog, path[:2]) | _given(schema, unit)


def comments(catalog: Catalog) -> list[TableComment]:
    """Return the tables and views that say something for dpsql, with what they say.

    Raises:
        SchemaError: the catalog can't be read.
    """
    return catalog.comments(PREFIX)


def _noted(catalog: Catalog, place: Sequence[str] = ()) -> dict[str, str]:
    """Return what comments say: of one schema of one database, or everywhere."""
    found: dict[str, str] = {}
    for path, comment in comments(catalog):
        if path[: len(place)] == tuple(place):
            with suppress(SchemaError):
                found |= references_of(path[-1], comment)
    return found


def _given(schema: Schema | None, unit: Unit | EachRow | None) -> dict[str, str]:
    units = [*schema.units.values(), unit] if schema is not None else [unit]
    found = {} if schema is None else dict(schema.references)
    for one in units:
        found |= one.references if isinstance(one, Unit) else {}
    return found


def check_references(catalog: Catalog, schema: Schema | None, unit: Unit | EachRow | None) -> None:
    """Check that references name columns, of one schema, that can be compared.

    Raises:
        SchemaError: one doesn't; the catalog can't be read.
    """
    given = _noted(catalog) | _given(schema, unit)
    if not given:
        return
    places = sorted(set(catalog.schemas()))
    known = [read_keys(catalog.keys(place), (*place, "")) for place in places]
    for child, parent in given.items():
        _check(child, parent, [one for one in known if one.columns])


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
            hint="keep tables that refer to each other in one schema.",
        )
    faults = [fault(*each) for each in both]
    if None not in faults:
        raise SchemaError(
            f"{printable(child)} can't refer to {printable(parent)}: {faults[0]}.",
            hint="let both sides have the same columns, of integer, VARCHAR or UUID types; CAST "
            "them where the tables are made.",
        )


def check_way(catalog: Catalog, table: str, unit: ResolvedUnit) -> None:
    """Check that a way to a unit leads through stored tables.

    A step of a way reads rows as they stand. Those of a view may be computed of rows of several
    units: what one of them has would follow from others.

    Raises:
        SchemaError: it leads through a view; the catalog can't be read.
    """
    for join in unit.joins:
        if not join.enforced and not is_table(catalog, join.path):
            view = join.path
            raise SchemaError(
                f"The unit of {printable(table)} is in another table, {printable(view[-1])}, "
                "which is a view, so it isn't clear whose its rows are.",
                hint=f"store the id in a column of {printable(table)}; or "
                f"{storing(catalog, view[1:], view)}",
            )
