"""DuckDB's SQL for the rows that count where each privacy unit may contribute at most k of them.

Trusted: adding or removing a unit with all of its rows must change what is kept by at most k
rows, all of them its own.

**The rule.** A unit with at most k rows keeps them all. Of n > k rows, lined up by what they say,
one row is kept of each of k stretches that are as long as each other, or as nearly as whole numbers
can be:

- r = 0, …, n − 1 is a row's place when the unit's rows are sorted by all columns that have a
  domain, as stored values, and then by all other columns that expressions of rows can read;
- q = (r + s) mod n: the line is closed to a ring and turned by s;
- j = ⌊qk/n⌋ is its stretch, that of the places from f(j) = ⌈jn/k⌉ to before f(j + 1);
- it is kept if q = f(j) + ((aj + b) mod (2^31 − 1)) mod (f(j + 1) − f(j)).

s, a and b are the remainder by n of 62 bits of the MD5 of the unit's id, and 31 bits each of
others. As n > k, each stretch has a row, so just k are kept.

**Unit-local.** *Proof.* All of the rule is made of k and of the rows of one unit: n counts them,
s, a and b follow from its id, and r from how they compare among each other. Rows that tie agree in
every column that has a domain and, if others are read, in all of these that can be; so no answer
tells which of them was kept. Nothing depends on the order in which rows are stored or found, on
statistics, threads or settings: ids and texts are compared as bytes, since a collation, also one
that is set for the connection, would take two units for one, or two rows; the zeros of a float, the
only other values that are equal and not the same, are told apart by their sign; and what stands
after ORDER BY says how NULLs and values are ordered. ∎ Collisions of MD5 do no harm: no two
rows are told apart by it, and two units that had the same s, a and b would have nothing else in
common.

**Content-stable.** The same rows are kept whatever a statement reads, and in every release: places
are those among columns that have a domain, used or not, and of rows that agree in these it is the
others that decide who comes first. Where nothing of them is read they are left out of the order,
which changes what is kept only among rows that give the same answers.

**Without regard to what rows say.** Each row of a unit is kept with the same chance k/n, bits of an
MD5 being taken for random ones: s turns it to any of the n places of the ring with the same chance,
and k of these are chosen, whatever a and b are. Rows that say the like lie together, so the rows
kept resemble all of the unit's more than a plain sample would. What is chosen of two stretches is
independent (aj + b modulo a prime, Carter and Wegman 1979), so that no pattern along the line falls
in step with them. None of this is needed for privacy.

**Cost.** Only the rows of crowded units, those with more than k, are sorted. Which these are is a
GROUP BY of the ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from dpsql.engines.columns import call, whole
from dpsql.engines.parents import (
    has_unit,
    others_of,
    stored_columns,
    stored_type,
    unit_id,
    unused,
    way_to_unit,
    with_others_columns,
)
from dpsql.errors import InternalError, UnsupportedSqlError
from dpsql.rows.types import RowType, row_type
from dpsql.schema import Table
from dpsql.schema.names import quoted_name
from dpsql.schema.units import ResolvedUnit

KEPT = "kept"
"""The name under which the rows are made available. A name with fewer than three parts means it
before it means a table."""
CROWDED = "crowded"
"""The name of the units that have more rows than are kept."""
RULE = "stretches"
"""What the rule is called in measurements. Those of before it have no name for theirs, by which
the first k rows were kept in the order of an MD5 of their texts."""

_PRIME = 2**31 - 1
_FLOATS = frozenset({"FLOAT", "DOUBLE"})


def rule_of(table: Table) -> str:
    """Name the rule by which rows of a table are kept; empty if all of them are."""
    return "" if table.unit is None else RULE


def kept_rows(table: Table, columns: Iterable[str]) -> str:
    """Return a query for `columns` of the rows that count, and of other rows of their units.

    Raises:
        InternalError: the table has no privacy unit.
    """
    names = list(columns)
    parents, within, stored = others_of(table, names)
    if not parents and not within:
        return _kept_rows(table.alone, names)
    unit = unit_name(table)
    kept = _kept_rows(table.alone, stored, unit)
    return with_others_columns(kept, parents, within, names or stored, unit)


def unit_name(*tables: Table) -> str:
    """Return a name for ids of units that no column has which is read beside it."""
    return f"{unused(name for table in tables for name in _names_met(table))}unit"


def _names_met(table: Table) -> Iterator[str]:
    """Name the columns of a table, and of all whose rows its rows meet."""
    yield from (*table.columns, *table.undeclared)
    for parent in table.parents:
        yield from stored_columns(parent.table)
    for one in table.within:
        yield from _names_met(one.table)


def _kept_rows(table: Table, columns: Iterable[str], unit_as: str | None = None) -> str:
    """Return a query for stored columns of the rows that count, and for their units."""
    unit = table.unit
    if unit is None:
        raise InternalError("a table without a unit has no bound on its rows")
    names = list(columns)
    own = unused([*table.columns, *table.undeclared])
    id_, source, known = unit_id(unit), way_to_unit(table), has_unit(unit)
    rows = f"{source} WHERE {known}"
    read = [(f"t0.{quoted_name(name)}", quoted_name(name)) for name in names]
    read += [] if unit_as is None else [(id_, quoted_name(unit_as))]
    chosen = ", ".join(f"{column} AS {name}" for column, name in read) or "0"
    shown = ", ".join(name for _, name in read) or "0"
    same = f"ON {id_} = {CROWDED}.{own}id"
    order = ", ".join(f"{key} ASC NULLS FIRST" for key in _order(table, names))
    by = f"PARTITION BY {id_}" + f" ORDER BY {order}" * bool(order)
    place = call("-", f"{call('row_number')} OVER ({by})", whole(1, "BIGINT"))
    found = [f"{CROWDED}.{own}{name}" for name in "nsab"]
    turned = call("%", call("+", place, found[1]), found[0])
    k = whole(unit.max_rows, "BIGINT")
    # Of the others all are kept. Rows of crowded units are lined up, then their stretches are told.
    others = f"SELECT {chosen} FROM {source} ANTI JOIN {CROWDED} {same} WHERE {known}"
    placed = (
        f"SELECT {f'{chosen}, ' * bool(read)}{found[0]}, {found[2]}, {found[3]}, "
        f"{turned} AS {own}q FROM {source} JOIN {CROWDED} {same}"
    )
    stretch = call("//", call("*", f"{own}q", k), f"{own}n")
    return (
        f"WITH {CROWDED} AS MATERIALIZED ({_crowded(unit, own, id_, rows)}) "
        f"{others} UNION ALL "
        f"SELECT {shown} FROM (SELECT *, {stretch} AS {own}j FROM ({placed})) "
        f"WHERE {_is_chosen(own, k)}"
    )


def _crowded(unit: ResolvedUnit, own: str, id_: str, rows: str) -> str:
    """Write the query for units with more rows than are kept: n, s, a and b of each."""
    count = "system.main.count(*)"
    counted = (
        f"SELECT {id_} AS {own}id, {count} AS {own}n FROM {rows} "
        f"GROUP BY {id_} HAVING {count} > {unit.max_rows}"
    )
    number = call("md5_number", call("encode", f"{own}id::VARCHAR"))
    hashed = f"SELECT {own}id, {own}n, {number} AS {own}m FROM ({counted})"
    return (
        f"SELECT {own}id, {own}n, {call('%', _bits(own, 0, 62), f'{own}n')} AS {own}s, "
        f"{_bits(own, 64, 31)}::INTEGER AS {own}a, {_bits(own, 96, 31)}::INTEGER AS {own}b "
        f"FROM ({hashed})"
    )


def _bits(own: str, first: int, count: int) -> str:
    """Write the number that some bits of a hash make; dividing it would take far longer."""
    shifted = call(">>", f"{own}m", whole(first, "UHUGEINT"))
    return f"{call('&', shifted, whole(2**count - 1, 'UHUGEINT'))}::BIGINT"


def _is_chosen(own: str, k: str) -> str:
    """Write whether a row is the one that is kept of its stretch.

    Nothing here overflows: j is less than k, which is at most 10^6, n is a number of rows, and a
    and b are less than 2^31.
    """
    n, j, one = f"{own}n", f"{own}j", whole(1, "BIGINT")

    def first(stretch: str) -> str:
        """Write ⌈jn/k⌉."""
        return call("//", call("+", call("*", stretch, n), call("-", k, one)), k)

    length = call("-", first(call("+", j, one)), first(j))
    line = call("+", call("*", f"{own}a::BIGINT", j), f"{own}b::BIGINT")
    drawn = call("%", line, whole(_PRIME, "BIGINT"))
    return f"{own}q = {call('+', first(j), call('%', drawn, length))}"


def _order(table: Table, names: Iterable[str]) -> Iterator[str]:
    """Write what a unit's rows are sorted by: two that agree in all of it are the same row.

    Columns without a domain are in it if one of them is read. Those that refer to other rows come
    last, if expressions of rows can't read them: they tell only rows apart that are alike else.
    The ids of units are left out: all rows of a unit have the same one.
    """
    own = _own_ids(table)
    for name, domain in table.columns.items():
        if name in own:
            continue
        yield from _told_apart(f"t0.{quoted_name(name)}", domain.type, domain.column_type)
    further = [name for name in names if name not in table.columns]
    if not further:
        return
    readable = {name: type_ for name, type_ in _readable(table) if name not in own}
    for name, type_ in readable.items():
        yield from _told_apart(f"t0.{quoted_name(name)}", type_.name)
    for name in further:
        if name not in readable and name not in own:
            yield from _told_apart(f"t0.{quoted_name(name)}", stored_type(table, name))


def _own_ids(table: Table) -> frozenset[str]:
    """Name the columns of a table that are the ids of its units."""
    unit = table.unit
    if unit is None or unit.joins:
        return frozenset()
    return frozenset(name for name, _ in unit.columns)


def _told_apart(column: str, *types: str) -> Iterator[str]:
    """Write keys in which values agree only if they are the same."""
    if "VARCHAR" in types:
        yield call("encode", f"{column}::VARCHAR")
    else:
        yield column
    if not _FLOATS.isdisjoint(types):
        yield call("signbit", f"{column}::DOUBLE")


def _readable(table: Table) -> Iterator[tuple[str, RowType]]:
    """Name the columns without a domain that expressions of rows can read, with their types."""
    for name, declared in table.undeclared.items():
        with suppress(UnsupportedSqlError):
            yield name, row_type(declared)
