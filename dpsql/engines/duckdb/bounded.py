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

Where limits are declared for rows that agree in some columns, these are kept to before, one after
another: the rows of a unit in the same cells of the columns are treated as if they were those of a
unit of their own, with the limit for k. What is left then has no more of them, and as a step leaves
rows out and adds none, that stays so.

**Unit-local.** *Proof.* All of a step is made of k and of the rows of one unit: n counts them,
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

**Of any rows.** The rows are those of a relation (`engines/relations.py`), of which some may be
left out before, as where a statement chooses a few of each unit. What is left of a unit is a
function of its rows alone, so all that is said above holds of it: n counts what is left, and at
most k of these are kept. Where rows have places in the line already, because windows look at them
one by one, r is that place, and `rows/windows.py` shows that which of two rows that tie has it
makes no difference to the rows that are kept, with all their columns.

**Cost.** Only the rows of crowded units, those with more than k, are sorted, but for windows. Which
these are is a GROUP BY of the ids. Limits keep all rows with units in memory, and once more for
each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpsql.engines.duckdb.columns import whole
from dpsql.rows.typed import call

_FLOATS = frozenset({"FLOAT", "DOUBLE"})


def identity(column: str, type_: str) -> str:
    """Return what tells ids apart: the bytes of a text."""
    return call("encode", column) if type_ == "VARCHAR" else column


def place_in_line(order: Sequence[str], unit: str) -> str:
    """Write the place of a row among those of its unit, from 1.

    Args:
        order: what they are sorted by.
        unit: the unit's id.
    """
    by = f" ORDER BY {in_order(order)}" if order else ""
    return f"{call('row_number')} OVER (PARTITION BY {unit}{by})"


def in_order(keys: Sequence[str]) -> str:
    """Write what follows ORDER BY: from the least to the largest, whatever the connection's way."""
    return ", ".join(f"{key} ASC NULLS FIRST" for key in keys)


def told_apart(column: str, *types: str) -> Iterator[str]:
    """Write keys in which values agree only if they are the same."""
    if "VARCHAR" in types:
        yield call("encode", f"{column}::VARCHAR")
    else:
        yield column
    if not _FLOATS.isdisjoint(types):
        yield call("signbit", f"{column}::DOUBLE")


CROWDED = "crowded"
"""The name of the units that have more rows than are kept. A name with fewer than three parts means
them before it means a table."""
_PRIME = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RowsWithIds:
    """Rows with the ids of their units, before some of them are left out."""

    own: str
    """A beginning that no column's name has."""
    source: str
    id: str
    known: str
    """Whether a row belongs to anyone."""


def kept_of(rows: RowsWithIds, most: int, read: Mapping[str, str], line: Sequence[str]) -> str:
    """Write the rows that are kept: all of those who have few, and some of the crowded.

    Args:
        rows: all of them.
        most: k.
        read: the columns that are read of them: name → SQL.
        line: the keys of the order in which the rows of a unit stand in line.

    Returns:
        A query, of which WITH stands before it.
    """
    prefix, id_ = rows.own, rows.id
    chosen = ", ".join(f"{column} AS {name}" for name, column in read.items()) or "0"
    shown = ", ".join(read) or "0"
    same = f"ON {id_} = {CROWDED}.{prefix}id"
    crowd = f"{CROWDED}.{prefix}i"
    place = call("-", place_in_line(line, crowd), whole(1, "BIGINT"))
    k = whole(most, "BIGINT")
    # Of the others all are kept. Rows of crowded units are lined up, with nothing of these but a
    # number; then their stretches are told.
    others = f"SELECT {chosen} FROM {rows.source} ANTI JOIN {CROWDED} {same} WHERE {rows.known}"
    placed = (
        f"SELECT {f'{chosen}, ' * bool(read)}{crowd} AS {prefix}p, {place} AS {prefix}r "
        f"FROM {rows.source} JOIN {CROWDED} {same}"
    )
    turned = call("%", call("+", f"{prefix}r", f"{prefix}s"), f"{prefix}n")
    kept_names = [*read, *(f"{prefix}{name}" for name in "nab"), f"{turned} AS {prefix}q"]
    placed = f"SELECT {', '.join(kept_names)} FROM ({placed}) JOIN {CROWDED} ON {prefix}p = {crowd}"
    stretch = call("//", call("*", f"{prefix}q", k), f"{prefix}n")
    return (
        f"{CROWDED} AS MATERIALIZED ({_crowded(rows, most)}) "
        f"{others} UNION ALL "
        f"SELECT {shown} FROM (SELECT *, {stretch} AS {prefix}j FROM ({placed})) "
        f"WHERE {_is_chosen(prefix, k)}"
    )


def _crowded(rows: RowsWithIds, most: int) -> str:
    """Write the query for units with more rows than are kept: n, s, a and b of each.

    Each has a number besides, which no other one has. What the number is, nothing depends on.
    """
    count, prefix, id_ = "system.main.count(*)", rows.own, rows.id
    counted = (
        f"SELECT {id_} AS {prefix}id, {count} AS {prefix}n FROM {rows.source} WHERE {rows.known} "
        f"GROUP BY {id_} HAVING {count} > {most}"
    )
    number = call("md5_number", call("encode", f"{prefix}id::VARCHAR"))
    hashed = f"SELECT {prefix}id, {prefix}n, {number} AS {prefix}m FROM ({counted})"
    return (
        f"SELECT {prefix}id, {call('row_number')} OVER () AS {prefix}i, "
        f"{prefix}n, {call('%', _bits(prefix, 0, 62), f'{prefix}n')} AS {prefix}s, "
        f"{_bits(prefix, 64, 31)}::INTEGER AS {prefix}a, "
        f"{_bits(prefix, 96, 31)}::INTEGER AS {prefix}b "
        f"FROM ({hashed})"
    )


def _bits(prefix: str, first: int, count: int) -> str:
    """Write the number that some bits of a hash make; dividing it would take far longer."""
    shifted = call(">>", f"{prefix}m", whole(first, "UHUGEINT"))
    return f"{call('&', shifted, whole(2**count - 1, 'UHUGEINT'))}::BIGINT"


def _is_chosen(prefix: str, k: str) -> str:
    """Write whether a row is the one that is kept of its stretch.

    Nothing here overflows: j is less than k, which is at most 10^6, n is a number of rows, and a
    and b are less than 2^31.
    """
    n, j, unit = f"{prefix}n", f"{prefix}j", whole(1, "BIGINT")

    def first(stretch: str) -> str:
        """Write ⌈jn/k⌉."""
        return call("//", call("+", call("*", stretch, n), call("-", k, unit)), k)

    length = call("-", first(call("+", j, unit)), first(j))
    line = call("+", call("*", f"{prefix}a::BIGINT", j), f"{prefix}b::BIGINT")
    drawn = call("%", line, whole(_PRIME, "BIGINT"))
    return f"{prefix}q = {call('+', first(j), call('%', drawn, length))}"
