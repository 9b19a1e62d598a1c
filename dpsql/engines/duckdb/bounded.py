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

**With windows.** What a row is among all rows of its unit is computed before it is decided which
are kept. So all rows are lined up, whether or not their unit is crowded: r is the same place in the
same line, and `rows/windows.py` shows that which of two rows that tie has it makes no difference to
the rows that are kept, with all their columns.

**Of chosen rows.** Where a statement chooses rows by their places among those of their unit, what
is not chosen is left out before (`parents.rows_of_units`), and k is less. What is left of a unit is
a function of its rows alone, so all that is said above holds of it as of any rows: n counts what is
left, and at most k of these are kept, whether or not the choice leaves more. As a rule it doesn't,
and all are kept.

**Cost.** Only the rows of crowded units, those with more than k, are sorted, but for windows. Which
these are is a GROUP BY of the ids. Limits keep all rows with units in memory, and once more for
each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpsql.engines.duckdb.coding import Coding, with_cells
from dpsql.engines.duckdb.columns import Parameters, whole
from dpsql.engines.duckdb.lines import line_order, place_in_line
from dpsql.engines.duckdb.parents import (
    has_unit,
    read_on_way,
    rows_of_units,
    unit_id,
    way_to_unit,
    with_others_columns,
)
from dpsql.engines.duckdb.windows import line_name
from dpsql.engines.lines import line_columns
from dpsql.engines.others import Others, names_met, others_of
from dpsql.errors import InternalError
from dpsql.rows.typed import call
from dpsql.schema import Table
from dpsql.schema.names import quoted_name, unused
from dpsql.schema.units import ResolvedUnit

KEPT = "kept"
"""The name under which the rows are made available. A name with fewer than three parts means it
before it means a table."""
CROWDED = "crowded"
"""The name of the units that have more rows than are kept."""
_SEEN = "seen"
"""The name of all rows with units, where some columns are of all of a unit's rows."""
_SPREAD = "spread"
"""The name of the rows that limits leave, with the number of the step."""
_PRIME = 2**31 - 1


def kept_rows(table: Table, columns: Iterable[str], parameters: Parameters | None = None) -> str:
    """Return a query for `columns` of the rows that count, and of other rows of their units.

    Args:
        table: whose rows they are.
        columns: what is read of them.
        parameters: what the query's parameters are among; it has some only where limits are for
            cells of columns.

    Raises:
        InternalError: the table has no privacy unit.
    """
    names = list(columns)
    bound = Parameters() if parameters is None else parameters
    others, unit = others_of(table, names), unit_name(table)
    if others.windows or table.chosen is not None:
        return _kept_of_all(table, names, bound, unit)
    kept = _kept_rows(others, bound, unit if others.by_unit else None)
    if not others.left and not others.within:
        return kept
    return with_others_columns(kept, others.left, others.within, names, unit)


def unit_name(*tables: Table) -> str:
    """Return a name for ids of units that no column has which is read beside it."""
    return f"{unused(name for table in tables for name in names_met(table))}unit"


def _kept_rows(others: Others, parameters: Parameters, unit_as: str | None) -> str:
    """Return a query for columns of the rows that count, and for their units if they are named.

    Which rows these are depends on the columns that are stored in the table, with those that refer
    to other rows, wherever what these have is read.
    """
    table, names = others.table.alone, others.stored
    unit, own = _unit_of(table), unused(names_met(others.table))
    rows = RowsWithIds(own, way_to_unit(table), unit_id(unit), has_unit(unit))
    line = LineOrder(tuple(line_columns(table, names)), tuple(line_order(table, names)))
    return _bounded(table, rows, read_on_way(others), line, parameters, unit_as=unit_as)


def _kept_of_all(table: Table, names: list[str], parameters: Parameters, unit_as: str) -> str:
    """Return a query for columns of the rows that count, some of which are of all rows of a unit.

    So all rows have them, and their places in line, before it is decided which are kept.
    """
    limits, own = _unit_of(table).limits, unit_as.removesuffix("unit")
    read = list(dict.fromkeys([*names, *(name for limit in limits for name in limit.columns)]))
    seen = rows_of_units(table, read, unit_as, lined=True)
    rows = RowsWithIds(own, f"{_SEEN} AS t0", f"t0.{quoted_name(unit_as)}", "true")
    line = line_name(unit_as)
    stands = LineOrder((line,), (f"t0.{quoted_name(line)}",))
    before = [f"{_SEEN} AS MATERIALIZED ({seen})"]
    shown = {name: f"t0.{quoted_name(name)}" for name in names}
    return _bounded(table.alone, rows, shown, stands, parameters, before=before)


def _bounded(
    table: Table,
    rows: RowsWithIds,
    read: Mapping[str, str],
    line: LineOrder,
    parameters: Parameters,
    *,
    unit_as: str | None = None,
    before: Sequence[str] = (),
) -> str:
    """Return a query for the rows that are kept of some.

    Args:
        table: whose rows they are.
        rows: these.
        read: the columns that are read of them: name → SQL.
        line: in which line they stand.
        parameters: what the query's parameters are among.
        unit_as: what the ids of units are called, if they are shown.
        before: queries that are needed.
    """
    unit, queries = _unit_of(table), list(before)
    shown = {quoted_name(name): column for name, column in read.items()}
    if unit.limits:
        further, rows = _within_limits(table, rows, shown, line, parameters)
        queries += further
        shown = {name: f"t0.{name}" for name in shown}
    if unit_as is not None:
        shown[quoted_name(unit_as)] = rows.id
    if unit.max_rows is None:
        raise InternalError("nothing bounds the rows of units in this table")
    return f"WITH {', '.join([*queries, kept_of(rows, unit.max_rows, shown, line)])}"


def _unit_of(table: Table) -> ResolvedUnit:
    if table.unit is None:
        raise InternalError("a table without a unit has no bound on its rows")
    return table.unit


@dataclass(frozen=True, slots=True)
class LineOrder:
    """In which line the rows of a unit stand: by which columns, and the SQL of what they say."""

    columns: tuple[str, ...]
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowsWithIds:
    """Rows with what tells whose they are, before it is decided which of them are kept."""

    own: str
    """What no column's name begins with."""
    source: str
    id: str
    known: str
    """Whether a row belongs to anyone."""


def _within_limits(
    table: Table,
    rows: RowsWithIds,
    shown: Mapping[str, str],
    line: LineOrder,
    parameters: Parameters,
) -> tuple[list[str], RowsWithIds]:
    """Keep no more rows of a unit than its limits allow of those that agree in some columns.

    Each limit is a step: at most so many rows are kept, by the same rule, of those of a unit that
    are in the same cells of the columns, or in none. What later steps leave out of these leaves no
    more of them. The cells are those that are counted, so that it is of these that `SpreadRows`
    says how far the rows are apart.

    Returns:
        The queries before, and what they leave.
    """
    own, unit = rows.own, table.unit
    limits = () if unit is None else unit.limits
    named = list(dict.fromkeys(name for limit in limits for name in limit.columns))
    stand = {name: f"t0.{name}" for name in map(quoted_name, [*line.columns, *named])}
    read = {**shown, **stand}
    chosen = (f"{column} AS {name}" for name, column in read.items())
    of_units = ", ".join([*chosen, f"{rows.id} AS {own}unit"])
    found = f"SELECT {of_units} FROM {rows.source} WHERE {rows.known}"
    found = with_cells(f"({found})", Coding(table), named, [*read, f"{own}unit"], own, parameters)
    queries = [f"{_SPREAD}0 AS MATERIALIZED ({found})"]
    kept = [*read, f"{own}unit", *(f"{own}c{i}" for i in range(len(named)))]
    for step, limit in enumerate(limits):
        agree = [f"t0.{own}c{named.index(name)}" for name in limit.columns]
        id_ = call("row", f"t0.{own}unit", *agree)
        one = RowsWithIds(own, f"{_SPREAD}{step} AS t0", id_, "true")
        query = kept_of(one, limit.rows, {name: f"t0.{name}" for name in kept}, line)
        queries.append(f"{_SPREAD}{step + 1} AS MATERIALIZED (WITH {query})")
    left = RowsWithIds(own, f"{_SPREAD}{len(limits)} AS t0", f"t0.{own}unit", "true")
    return queries, left


def kept_of(rows: RowsWithIds, most: int, read: Mapping[str, str], line: LineOrder) -> str:
    """Write the rows that are kept: all of those who have few, and some of the crowded.

    Args:
        rows: all of them.
        most: k.
        read: the columns that are read of them: name → SQL.
        line: in which line they stand.

    Returns:
        A query, of which WITH stands before it.
    """
    own, id_ = rows.own, rows.id
    chosen = ", ".join(f"{column} AS {name}" for name, column in read.items()) or "0"
    shown = ", ".join(read) or "0"
    same = f"ON {id_} = {CROWDED}.{own}id"
    crowd = f"{CROWDED}.{own}i"
    place = call("-", place_in_line(line.order, crowd), whole(1, "BIGINT"))
    k = whole(most, "BIGINT")
    # Of the others all are kept. Rows of crowded units are lined up, with nothing of these but a
    # number; then their stretches are told.
    others = f"SELECT {chosen} FROM {rows.source} ANTI JOIN {CROWDED} {same} WHERE {rows.known}"
    placed = (
        f"SELECT {f'{chosen}, ' * bool(read)}{crowd} AS {own}p, {place} AS {own}r "
        f"FROM {rows.source} JOIN {CROWDED} {same}"
    )
    turned = call("%", call("+", f"{own}r", f"{own}s"), f"{own}n")
    found = [*read, *(f"{own}{name}" for name in "nab"), f"{turned} AS {own}q"]
    placed = f"SELECT {', '.join(found)} FROM ({placed}) JOIN {CROWDED} ON {own}p = {crowd}"
    stretch = call("//", call("*", f"{own}q", k), f"{own}n")
    return (
        f"{CROWDED} AS MATERIALIZED ({_crowded(rows, most)}) "
        f"{others} UNION ALL "
        f"SELECT {shown} FROM (SELECT *, {stretch} AS {own}j FROM ({placed})) "
        f"WHERE {_is_chosen(own, k)}"
    )


def _crowded(rows: RowsWithIds, most: int) -> str:
    """Write the query for units with more rows than are kept: n, s, a and b of each.

    Each has a number besides, which no other one has. What the number is, nothing depends on.
    """
    count, own, id_ = "system.main.count(*)", rows.own, rows.id
    counted = (
        f"SELECT {id_} AS {own}id, {count} AS {own}n FROM {rows.source} WHERE {rows.known} "
        f"GROUP BY {id_} HAVING {count} > {most}"
    )
    number = call("md5_number", call("encode", f"{own}id::VARCHAR"))
    hashed = f"SELECT {own}id, {own}n, {number} AS {own}m FROM ({counted})"
    return (
        f"SELECT {own}id, {call('row_number')} OVER () AS {own}i, "
        f"{own}n, {call('%', _bits(own, 0, 62), f'{own}n')} AS {own}s, "
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
