"""Changes of a table's description since something was measured, and what they concern.

A count in a cell of some columns depends on the rows of the table and, of its description, on

- the domains of these columns: their values, what becomes of NULL and of other values, and the
  column's type. `Table.described` has a hash of all of that;
- whether rows may be without a value there, which decides whether there is a cell for them. Then
  the number of cells is another one.

It depends on no other column: no row is left out for what it has in a column that isn't counted by,
since rows outside a domain have a cell of their own (see `dpsql/engines/codes.py`). So
what was measured goes together with what is measured under another description, if the two agree in
the columns that were measured.

With a privacy unit, that isn't so: which rows of a unit are kept is decided by all columns that
have a domain, by `max_rows`, and by the rule (see `dpsql/engines/duckdb/bounded.py`), which is
noted with what was measured. Nor is it in releases that left rows out, which name these columns as
`guards`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpsql.engines.base import rule_of
from dpsql.errors import StaleSchemaError, printable
from dpsql.linalg.arrays import Ints
from dpsql.planner.reconstruction.sources import Source, lines
from dpsql.schema import Table
from dpsql.schema.cuts import DERIVED, lines_of

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
    found = {n: of for n, of in described.items() if of.startswith(DERIVED)}
    return {name: of.removeprefix(DERIVED) for name, of in found.items()}


def _sentence(said: str) -> str:
    return f"{said[0].upper()}{said[1:]}." if said else ""


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return ", ".join(printable(name) for name in names[:LISTED]) + more
