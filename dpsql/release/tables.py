"""What is kept of a release of several tables: of each table what was measured of it, by itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from dpsql.errors import ReleaseFormatError
from dpsql.planner.reconstruction import tables
from dpsql.planner.reconstruction.sources import Source, of_table
from dpsql.request import digest
from dpsql.schema import Table
from dpsql.sql.compiled import Script


def identity_of(table: Table) -> str:
    """Return the digest by which ledgers know a table."""
    stored = table.stored
    path = [part.lower() for part in (stored.path or (stored.name,))]
    # The first part is the database, which is named as its file is; that may be moved.
    return digest(path[1:] or path)


def together(script: Script, sources: Sequence[Source]) -> tuple[Source, ...]:
    """Return what was measured for a script of several tables as one source, for reading it.

    Raises:
        ReleaseFormatError: there is not one source for each of them.
    """
    if not script.apart:
        return tuple(sources)
    found = {source.table: source for source in sources}
    wanted = {identity_of(own.table): of for of, own in script.apart}
    if len(found) < len(sources) or found.keys() != wanted.keys():
        raise ReleaseFormatError(
            "The measurements are not of the tables that are asked.",
            hint="use the release as it was written.",
        )
    return (tables.together([(of, found[key]) for key, of in wanted.items()]),)


def lifted(script: Script, sources: Sequence[Source]) -> tuple[Source, ...]:
    """Return what was measured of tables before, in the names that they have among several."""
    if not script.apart:
        return tuple(sources)
    wanted = {identity_of(own.table): of for of, own in script.apart}
    alone = not any(source.combines for source in sources)
    if alone and sorted(source.table for source in sources) == sorted(wanted):
        return together(script, sources)  # as they were measured: in one plan
    return tuple(tables.together([(wanted[source.table], source)]) for source in sources)


def in_order(script: Script, sources: Sequence[Source]) -> tuple[Source, ...]:
    """Return what was measured of each of a script's tables, in their order."""
    return tuple(source for own in script.each for source in about(script, own, sources))


def about(script: Script, own: Script, sources: Sequence[Source]) -> tuple[Source, ...]:
    """Return those of some sources that are about one of a script's tables."""
    return of_table(sources, identity_of(own.table)) if script.apart else tuple(sources)


def apart(script: Script, sources: Sequence[Source]) -> tuple[Source, ...]:
    """Return what was measured for a script table by table, for keeping it."""
    if not script.apart:
        return tuple(sources)
    own = [of for of, _ in script.apart]
    return tuple(chain.from_iterable(tables.apart(source, own) for source in sources))
