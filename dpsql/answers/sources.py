"""Sources of a release: what was measured of each of its tables, and what a change leaves of it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dpsql.engines.base import rule_of
from dpsql.errors import ReleaseFormatError, StaleSchemaError, printable
from dpsql.linalg.arrays import Ints
from dpsql.measurement.differences import Difference
from dpsql.measurement.narrow import Kept, kept_integers
from dpsql.planner.reconstruction.sources import (
    Source,
    lines,
    of_table,
    tables_apart,
    tables_together,
)
from dpsql.request import digest
from dpsql.schema import Table
from dpsql.schema.domain import DERIVED, lines_of
from dpsql.schema.names import folded
from dpsql.sql.compiled import Script
from dpsql.workload import Workload
from dpsql.workload.workload import UnitTable, over_all

# ── The parts of a release of several tables that are kept: those of each by itself ──────────────


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
        [tables_together([(of, by_itself(found[key])) for key, of in wanted.items()])],
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
    named = [tables_together([(wanted[source.table], by_itself(source))]) for source in sources]
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
            one = _with(found[at], difference, names, kept_integers([value], (1,)))
            sides = {names[of]: named[n].measures[names[of]] for of, n in places.items()}
            found[at] = replace(one, compared={**one.compared, frozenset(sides): sides})
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
    ids = [identity_of(each.table) for each in script.each]
    one = None if script.apart else UnitTable(ids[0], script.table.contributions)
    asked = [of for of, _ in script.apart] if one is None else [one]
    wanted = dict(zip(ids, asked, strict=True))
    more = _unasked(others, wanted)
    if not all(source.combines for source in sources):
        return None
    kept = [
        source if source.table in wanted else replace(source, table=ids[0]) for source in sources
    ]
    kept += [source for source in others if source.combines and source.table in more]
    if len(kept) == len(sources):
        return None
    wanted |= more
    named = [tables_together([(wanted[s.table], by_itself(s))]) for s in kept]
    compared = _compared(named, [[source] for source in kept], wanted)
    if not any(source.differences for source in compared):
        return None
    workload, merged = (script.workload, script.merged) if one is None else _among(script, one)
    return Beside(workload, merged, compared, tuple(of.name for of in more.values()), one)


def _among(script: Script, one: UnitTable) -> tuple[Workload, dict[str, Ints]]:
    """Return what a script asks of its only table, and its merged cells, as of one of several."""
    weights = [family.weight for family in script.workload.families]
    merged = {one.attribute(name): of for name, of in script.merged.items()}
    return over_all([(one, script.workload)], [weights]), merged


def _unasked(sources: Sequence[Source], asked: Container[str]) -> dict[str, UnitTable]:
    """Return the tables of sources whose totals were compared, but for those that are asked.

    A space and no number is behind the name of each: no table that is asked is named so.
    """
    return {
        digest: UnitTable(f"{digest} beside", rows)
        for source in sources
        for difference in source.differences
        for digest, rows in zip(difference.tables, difference.rows, strict=True)
        if digest == source.table and digest not in asked
    }


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
    of_units = [of for of, _ in script.apart]
    digests = {of.name: identity_of(each.table) for of, each in script.apart}
    return tuple(chain.from_iterable(_apart(source, of_units, digests) for source in sources))


def _apart(source: Source, own: Sequence[UnitTable], digests: Mapping[str, str]) -> list[Source]:
    """Return what a source says of each table, and what it says of the totals of two, with both."""
    found = list(tables_apart(source, own))
    for difference in source.differences:
        noisy = (source.values or {})[difference.space]
        for number, table in enumerate(own):
            if table.name in difference.tables:
                found[number] = _with(found[number], difference, digests, noisy)
    return found


# ── Changes of a table's description since something was measured, and what they concern ─────────
#
# A count in a cell of some columns depends on the rows of the table and, of its description, on
#
# - the domains of these columns: their values, what becomes of NULL and of other values, and the
#   column's type. `Table.described` has a hash of all of that;
# - whether rows may be without a value there, which decides whether there is a cell for them. Then
#   the number of cells is another one.
#
# It depends on no other column: no row is left out for what it has in a column that isn't counted
# by, since rows outside a domain have a cell of their own (see `dpsql/engines/codes.py`).
# So what was measured goes together with what is measured under another description, if the two
# agree in the columns that were measured.
#
# With a privacy unit, that isn't so: which rows of a unit are kept is decided by all columns that
# have a domain, by `max_rows`, and by the rule (see `dpsql/engines/duckdb/bounded.py`), which is
# noted with what was measured. Nor is it in releases that left rows out, which name these columns
# as `guards`.


LISTED = 5
"""Columns of one kind that a message names."""


def goes_with(source: Source, table: Table, *, same_schema: bool) -> bool:
    """Whether what was measured is about the rows of a table, over cells that it has.

    Args:
        source: of the same table, privacy unit and vintage.
        table: as it is described now.
        same_schema: whether it was described by the same schema then.
    """
    if source.guards or source.kept_by != rule_of(table):
        return False
    if not (same_schema or unchanged(source, table)):
        return False
    then, cut = _derived(source.described), lines(source)
    if not all(_alike(table.derived.get(n, of), of) for n, of in then.items()):
        return False
    now = {name: cuts for name, cuts in table.lines.items() if name in cut}
    if not all(
        table.cells(name) - len(cuts) == len(_cells(source, name)) - len(cut[name])
        for name, cuts in now.items()
    ):
        return False
    return all(
        len(source.merged.get(name, ())) in {0, table.cells(name)}
        and (name in source.merged or n == table.cells(name))
        for name, n in source.sizes.items()
        if name in table.columns and name not in now
    )


def unchanged(source: Source, table: Table) -> bool:
    """Whether the columns that were measured, and what else decides on counts, are the same."""
    return table.unit is None and same_columns(source, table) and not source.measures


def same_columns(source: Source, table: Table) -> bool:
    """Whether the columns that were measured are described as they were then."""
    then, now = source.described, dict(table.described)
    # A derived key of which nobody asks now is what it was: its name says all that it is.
    now = {n: of for n, of in then.items() if of.startswith(DERIVED)} | now
    return all(now.get(name) and _alike(then.get(name, ""), now[name]) for name in source.sizes)


def _alike(one: str, other: str) -> bool:
    """Whether two descriptions are of the same cells, but for where a line is cut."""
    return one == other or len(lines_of({"one": one, "other": other})) == 2


def _cells(source: Source, name: str) -> Sequence[int] | Ints:
    """Return the measured cell of each cell of an attribute."""
    return source.merged.get(name, range(source.sizes[name]))


def only_adds(before: Mapping[str, str], table: Table) -> bool:
    """Whether a table differs from an earlier description only in columns that got a domain.

    Nothing that was measured, or could be, is about other rows or other cells then; with a
    privacy unit it would be.
    """
    before, now = _columns(before), _columns(table.described)
    same = all(of in {"", now.get(name)} for name, of in before.items())
    return table.unit is None and bool(before) and before.keys() == now.keys() and same


def explained(error: StaleSchemaError, before: Mapping[str, str], table: Table) -> StaleSchemaError:
    """Say what changed since a table was described so, as far as that is known."""
    before, now = _columns(before), _columns(table.described)
    if not before or not now:  # as of a table that was only referred to; or of chosen rows
        return error
    kinds = {
        "other domains": [n for n, of in before.items() if of and now.get(n) not in {None, "", of}],
        "no domain any more": [n for n, of in before.items() if of and now.get(n) == ""],
        "a domain now and none then": [n for n in before if not before[n] and now.get(n)],
        "in the table now and not then": [n for n in now if n not in before],
        "in the table then and not now": [n for n in before if n not in now],
    }
    said = "; ".join(f"{kind}: {_listed(names)}" for kind, names in kinds.items() if names)
    if not said:
        said = "the columns and their domains are the same; the type of another column, or whose "
        said += "rows count, is not"
    return StaleSchemaError(f"{error.message} {_sentence(said)}".rstrip(), hint=error.hint)


def _columns(described: Mapping[str, str]) -> dict[str, str]:
    """Leave derived keys out."""
    return {name: of for name, of in described.items() if not of.startswith(DERIVED)}


def _derived(described: Mapping[str, str]) -> dict[str, str]:
    """Return the hash of each derived key."""
    derived = {n: of for n, of in described.items() if of.startswith(DERIVED)}
    return {name: of.removeprefix(DERIVED) for name, of in derived.items()}


def _sentence(said: str) -> str:
    return f"{said[0].upper()}{said[1:]}." if said else ""


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return ", ".join(printable(name) for name in names[:LISTED]) + more
