"""The parts of a release of several tables that are kept: what was measured of each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dpsql.errors import ReleaseFormatError
from dpsql.linalg.arrays import Ints
from dpsql.measurement.differences import Difference
from dpsql.measurement.narrow import Kept, kept_integers
from dpsql.planner.reconstruction import tables
from dpsql.planner.reconstruction.sources import Source, of_table
from dpsql.request import digest
from dpsql.schema import Table
from dpsql.schema.names import folded
from dpsql.sql.compiled import Script
from dpsql.workload import Workload
from dpsql.workload.workload import UnitTable, over_all


def identity_of(table: Table) -> str:
    """Return the digest by which ledgers know a table."""
    stored = table.stored
    path = [folded(part) for part in (stored.path or (stored.name,))]
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
    (one,) = _compared(
        [tables.together([(of, by_itself(found[key])) for key, of in wanted.items()])],
        [sources],
        wanted,
    )
    return (one,)


def lifted(script: Script, sources: Sequence[Source]) -> tuple[Source, ...]:
    """Return what was measured of tables before, in the names that they have among several."""
    if not script.apart:
        return tuple(sources)
    wanted = {identity_of(own.table): of for of, own in script.apart}
    alone = not any(source.combines for source in sources)
    if alone and sorted(source.table for source in sources) == sorted(wanted):
        return together(script, sources)  # as they were measured: in one plan
    named = [tables.together([(wanted[source.table], by_itself(source))]) for source in sources]
    return _compared(named, [[source] for source in sources], wanted)


def by_itself(source: Source) -> Source:
    """Return what was measured of one table by itself."""
    compared = {difference.space for difference in source.differences}
    values = {names: y for names, y in (source.values or {}).items() if names not in compared}
    return replace(source, differences=(), values=values)


def _compared(
    named: Sequence[Source], kept: Sequence[Sequence[Source]], wanted: Mapping[str, UnitTable]
) -> tuple[Source, ...]:
    """Give sources what was measured of the totals of two tables, in the names these have.

    Each of both keeps it. It is used if both are there: if one is not, as it was measured when the
    table held other rows, or is not asked, nothing is known of its total then.

    Args:
        named: sources among several tables.
        kept: what each of them was made of, by the digests of tables.
        wanted: digest → the table.
    """
    found = list(named)
    halves: dict[tuple[Difference, int], dict[str, int]] = {}
    for number, own in enumerate(kept):
        for source in own:
            for difference in source.differences:
                noisy = (source.values or {})[difference.space]
                same = halves.setdefault((difference, int(noisy[0])), {})
                same.setdefault(source.table, number)
    for (difference, value), places in halves.items():
        if places.keys() == difference.space and places.keys() <= wanted.keys():
            at = places[difference.tables[0]]
            names = {digest: of.name for digest, of in wanted.items()}
            found[at] = _with(found[at], difference, names, kept_integers([value], (1,)))
    return tuple(found)


def _with(source: Source, difference: Difference, names: Mapping[str, str], noisy: Kept) -> Source:
    """Add a difference to what a source has, in other names."""
    first, second = difference.tables
    own = replace(difference, tables=(names[first], names[second]))
    return replace(
        source,
        differences=(*source.differences, own),
        values={**(source.values or {}), own.space: noisy},
    )


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """A request, beside tables that aren't asked but whose totals were compared with its own."""

    workload: Workload
    merged: Mapping[str, Ints]
    sources: tuple[Source, ...]
    others: tuple[str, ...]
    """The axes of their counts."""
    one: UnitTable | None
    """The table that is asked, as it is named among several; None if several are."""


def beside(script: Script, sources: Sequence[Source], others: Sequence[Source]) -> Beside | None:
    """Put what was measured of tables that aren't asked beside a script; None if it says nothing.

    Args:
        script: what is asked.
        sources: what was measured of its tables.
        others: what was measured of other tables. Of these, totals alone count.
    """
    own = [identity_of(each.table) for each in script.each]
    one = None if script.apart else UnitTable(own[0], script.table.contributions)
    asked = [of for of, _ in script.apart] if one is None else [one]
    wanted = dict(zip(own, asked, strict=True))
    # A space and no number behind it: no table that is asked is named so.
    more = {
        digest: UnitTable(f"{digest} beside", rows)
        for source in others
        for difference in source.differences
        for digest, rows in zip(difference.tables, difference.rows, strict=True)
        if digest == source.table and digest not in wanted
    }
    kept = [*(s if s.table in wanted else replace(s, table=own[0]) for s in sources)]
    kept += [source for source in others if source.combines and source.table in more]
    if len(kept) == len(sources) or not all(source.combines for source in sources):
        return None
    wanted |= more
    named = [tables.together([(wanted[s.table], by_itself(s))]) for s in kept]
    found = _compared(named, [[source] for source in kept], wanted)
    if not any(source.differences for source in found):
        return None
    workload, merged = script.workload, script.merged
    if one is not None:
        workload = over_all([(one, workload)], [[f.weight for f in workload.families]])
        merged = {one.attribute(name): of for name, of in merged.items()}
    return Beside(workload, merged, found, tuple(of.name for of in more.values()), one)


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
    digests = {of.name: identity_of(each.table) for of, each in script.apart}
    return tuple(chain.from_iterable(_apart(source, own, digests) for source in sources))


def _apart(source: Source, own: Sequence[UnitTable], digests: Mapping[str, str]) -> list[Source]:
    """Return what a source says of each table, and what it says of the totals of two, with both."""
    found = list(tables.apart(source, own))
    for difference in source.differences:
        noisy = (source.values or {})[difference.space]
        for number, table in enumerate(own):
            if table.name in difference.tables:
                found[number] = _with(found[number], difference, digests, noisy)
    return found
