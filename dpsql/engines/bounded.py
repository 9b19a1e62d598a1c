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

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from dpsql.engines.columns import call, source_of, whole
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
    """Return a query for `columns` of the rows that count.

    Raises:
        InternalError: the table has no privacy unit.
    """
    unit = table.unit
    if unit is None:
        raise InternalError("a table without a unit has no bound on its rows")
    names = list(columns)
    own = unused([*table.columns, *table.undeclared])
    stored = f"t{len(unit.joins)}.{quoted_name(unit.column)}"
    id_, source = _id(stored, unit.type), _source(table)
    rows = f"{source} WHERE {stored} IS NOT NULL"
    chosen = ", ".join(f"t0.{quoted_name(name)}" for name in names) or "0"
    shown = ", ".join(map(quoted_name, names)) or "0"
    same = f"ON {id_} = {CROWDED}.{own}id"
    order = ", ".join(f"{key} ASC NULLS FIRST" for key in _order(table, names))
    by = f"PARTITION BY {id_}" + f" ORDER BY {order}" * bool(order)
    place = call("-", f"{call('row_number')} OVER ({by})", whole(1, "BIGINT"))
    found = [f"{CROWDED}.{own}{name}" for name in "nsab"]
    turned = call("%", call("+", place, found[1]), found[0])
    k = whole(unit.max_rows, "BIGINT")
    # Of the others all are kept. Rows of crowded units are lined up, then their stretches are told.
    others = f"SELECT {chosen} FROM {source} ANTI JOIN {CROWDED} {same} WHERE {stored} IS NOT NULL"
    placed = (
        f"SELECT {f'{chosen}, ' * bool(names)}{found[0]}, {found[2]}, {found[3]}, "
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

    Columns without a domain are in it if one of them is read.
    """
    for name, domain in table.columns.items():
        yield from _told_apart(f"t0.{quoted_name(name)}", domain.type, domain.column_type)
    if any(name not in table.columns for name in names):
        for name, type_ in _readable(table):
            yield from _told_apart(f"t0.{quoted_name(name)}", type_.name)


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


def _source(table: Table) -> str:
    """Join the tables on the way to the unit, each of which has one row at most for a row."""
    source = f"{source_of(table)} AS t0"
    for i, join in enumerate(table.unit.joins if table.unit is not None else ()):
        parent = ".".join(quoted_name(part) for part in join.path)
        child = _id(f"t{i}.{quoted_name(join.column)}", join.type)
        key = _id(f"t{i + 1}.{quoted_name(join.key)}", join.type)
        source += f" JOIN {parent} AS t{i + 1} ON {child} = {key}"
    return source


def _id(column: str, type_: str) -> str:
    """Return what tells ids apart: the bytes of a text."""
    return call("encode", column) if type_ == "VARCHAR" else column


def unused(columns: Collection[str]) -> str:
    """Return a beginning that no column has."""
    prefix = "u_"
    while any(name.lower().startswith(prefix) for name in columns):
        prefix = "u" + prefix
    return prefix
