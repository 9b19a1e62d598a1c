"""DuckDB's SQL for the columns that rows have of the rows that they refer to. Trusted.

Guarantees:
    For each row there is one row, with its unit's data alone.

    *Proof.* Let a row of a table be (row, u) for each unit u that its way leads to: one at most
    along FOREIGN KEYs, of which no two referenced rows have the same value, and several where a key
    is declared and more than one row has it. `way_to_unit` gives each (row, u) once: a key that
    isn't enforced meets the distinct (key, u) of the rows that have it. What comes or goes with u
    are the rows with its id in the table that has the ids; (row, v) for v ≠ u stays as it is. So
    u's rows are those (row, u), of which at most k are kept.

    `Parent.join` of a FOREIGN KEY references columns of which no two rows have the same values, and
    both sides are compared as values of which equal ones are the same, texts as bytes. So at most
    one row of a parent's table meets a row, and a LEFT JOIN keeps the row if none does: the number
    of rows stays, and with it the bound on the rows of a unit. A parent on the way to the unit is a
    row of the same unit (`dpsql/schema/grain.py`); any other one, and each along a key that isn't
    enforced, is met only where its unit has the same id. Of those along a key that isn't enforced,
    (key, u) is met only if one row of u has the key: `_single` counts them by u and key, so other
    units' rows have no say in it. By induction over the steps, all that a row has is a function of
    its unit's rows. Parents along the first steps to the unit are those rows that `way_to_unit`
    joins by the same keys, and are read there (`others.py`). Of other rows of its unit (`Within`) a
    row meets one group at most, by the GROUP BY of ids of units and of columns that tell rows
    apart; all rows of that group are of its unit. Where they are chosen by what the row has itself,
    too, each row has a number that no other one has, and meets what is computed of rows of its unit
    for that number: which number it is says nothing of that. ∎

    Of rows that a statement chooses (`Table.chosen`), `rows_of_units` has those of all rows of the
    table, with their ids, in which a column is between two numbers and a condition is true. Both
    are columns that rows have by what is said above, and by `dpsql/rows/windows.py`: of each unit
    the rows that are left, with all that they have, are, as a multiset, a function of the unit's
    rows. So nothing changes for v ≠ u when u comes or goes.

    Rows that the order of `bounded.py` can't tell apart agree in what they refer to as well: the
    columns that refer, by which groups are met or chosen, are among those that it looks at, if any
    column of others is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from dpsql.engines.duckdb.aggregates import aggregate_sql, empty_sql
from dpsql.engines.duckdb.columns import source_of, whole
from dpsql.engines.duckdb.lines import identity, line_order, place_in_line
from dpsql.engines.duckdb.windows import line_name, with_windows
from dpsql.engines.others import Others, others_of, places_of
from dpsql.errors import InternalError
from dpsql.rows.typed import call
from dpsql.rows.within import RowsWithin
from dpsql.schema import Table
from dpsql.schema.grain import stored_type
from dpsql.schema.names import quoted_name
from dpsql.schema.table import Parent
from dpsql.schema.units import KeyStep, ResolvedUnit
from dpsql.schema.windows import OUTSIDE, Chosen

_NUMBERED = "numbered"
"""The name of rows that have a number each. A name with fewer than three parts means them before it
means a table."""


def with_others_columns(
    rows: str,
    parents: Sequence[Parent],
    within: Sequence[RowsWithin],
    names: Sequence[str],
    unit: str,
) -> str:
    """Return a query for some columns of rows, of their parents, and of other rows of their units.

    Args:
        rows: a query for rows, with the columns that refer to parents and to groups of others, and
            with what is needed of other parents, under the names in the grain.
        parents: those that are to be joined, each after the one that refers to it.
        within: what is needed of other rows, each after what it needs.
        names: the columns, under their names in the grain.
        unit: the column of the rows with the ids of their units.
    """
    needed = {name for one in within for name in one.outside}
    last = [one for one in within if one.outside and one.name not in needed]
    if last:
        before = [one for one in within if one not in last]
        shown = [name for name in names if all(name != one.name for one in last)]
        shown += [name for one in last for name in (*one.outside, *(o for o, _ in one.pairs))]
        shown = list(dict.fromkeys([*shown, unit]))
        found = with_others_columns(rows, parents, before, shown, unit)
        return _with_groups_of_their_own(found, last, names, unit)
    outer = [name for one in within for name, _ in one.pairs]
    joined, written = _joined_parents(parents, [*names, *outer], unit)
    source = f"({rows}) AS t{joined}"
    for i, one in enumerate(within):
        source += _joined_group(one, f"w{i}", written, unit)
        written[one.name] = _or_empty(one, f"w{i}", unit)
    shown = [f"{written.get(n, f't.{quoted_name(n)}')} AS {quoted_name(n)}" for n in names]
    return f"SELECT {', '.join(shown)} FROM {source}"


def _joined_parents(
    parents: Sequence[Parent], names: Sequence[str], unit: str
) -> tuple[str, dict[str, str]]:
    """Write the joins of rows `t` with their parents, and the columns of these.

    Args:
        parents: each after the one that refers to it.
        names: the columns that are needed.
        unit: the column of the rows with the ids of their units.
    """
    places = {parent.prefix: (f"p{i}",) for i, parent in enumerate(parents)}
    source, written = "", dict[str, str]()
    for parent in parents:
        join, (own,) = parent.join, places[parent.prefix]
        child = partial(column_of, *places.get(parent.above, ("t", parent.above)))
        key = f"{own}.{quoted_name(join.key)}"
        met = source_of(parent.table)
        if not parent.on_way:
            read = _read_of(parent, parents, names)
            met = f"({_with_units(parent.table, {n: column_of('t0', n) for n in read}, unit)})"
            met = met if join.enforced else f"({_single(met, read, join, unit)})"
        source += f" LEFT JOIN {met} AS {own} ON {_same(join, child, partial(column_of, own))}"
        if not parent.on_way:
            source += f" AND t.{quoted_name(unit)} = {own}.{quoted_name(unit)}"
        written |= {name: f"{own}.{quoted_name(of)}" for of, name in parent.names.items()}
        written[parent.matched] = f"CASE WHEN {key} IS NOT NULL THEN true END"
    return source, written


def _joined_group(one: RowsWithin, own: str, written: Mapping[str, str], unit: str) -> str:
    """Write the join of rows `t` with what is computed of other rows of their units."""
    source = f" LEFT JOIN ({_of_groups(one, unit)}) AS {own} ON "
    source += f"t.{quoted_name(unit)} = {own}.{quoted_name(unit)}"
    for place, (around, inner) in enumerate(one.pairs):
        column = written.get(around, f"t.{quoted_name(around)}")
        source += f" AND {identity(column, stored_type(one.table, inner))} = {own}.k{place}"
    return source


def _read_of(parent: Parent, parents: Sequence[Parent], names: Collection[str]) -> list[str]:
    """Return which stored columns of a parent are read, for some columns of the grain."""
    read = {of for of, name in parent.names.items() if name in names}
    read |= {name for p in parents if p.above == parent.prefix for name in p.join.columns}
    return sorted(read.union(parent.join.keys))


def _or_empty(one: RowsWithin, group: str, key: str) -> str:
    """Write what is computed of a group, or of no rows where there is none."""
    missing = f"{group}.{quoted_name(key)} IS NULL"
    return f"CASE WHEN {missing} THEN {empty_sql(one.value)} ELSE {group}.v END"


def _of_groups(one: RowsWithin, unit: str) -> str:
    """Write what is computed of the rows of each unit that agree in some columns."""
    table = one.table
    paired = [inner for _, inner in one.pairs]
    names = list(dict.fromkeys([*sorted(one.columns), *paired]))
    keys = [identity(quoted_name(name), stored_type(table, name)) for name in paired]
    shown = "".join(f"{key} AS k{place}, " for place, key in enumerate(keys))
    groups = ", ".join([quoted_name(unit), *keys])
    where = "" if one.condition is None else f" WHERE {one.condition.sql}"
    rows, value = rows_of_units(table, names, unit), "".join(aggregate_sql(one.value))
    return (
        f"SELECT {quoted_name(unit)}, {shown}{value} AS v FROM ({rows}) AS i{where} "
        f"GROUP BY {groups}"
    )


def _with_groups_of_their_own(
    rows: str, within: Sequence[RowsWithin], names: Sequence[str], unit: str
) -> str:
    """Add what is computed of rows of the unit for which something is true beside the row.

    Each row has a number, whatever it is, by which it meets what is computed for it.
    """
    number, written, source = f"{unit}_row", dict[str, str](), f"{_NUMBERED} AS t"
    for i, one in enumerate(within):
        source += f" LEFT JOIN ({_of_each(one, number, unit)}) AS w{i} ON "
        source += f"t.{quoted_name(number)} = w{i}.{quoted_name(number)}"
        written[one.name] = _or_empty(one, f"w{i}", number)
    shown = [f"{written.get(n, f't.{quoted_name(n)}')} AS {quoted_name(n)}" for n in names]
    numbered = f"SELECT *, {call('row_number')} OVER () AS {quoted_name(number)} FROM ({rows})"
    return f"WITH {_NUMBERED} AS MATERIALIZED ({numbered}) SELECT {', '.join(shown)} FROM {source}"


def _of_each(one: RowsWithin, number: str, unit: str) -> str:
    """Write what is computed for each row of those of its unit for which something is true."""
    paired = [inner for _, inner in one.pairs]
    names = list(dict.fromkeys([*sorted(one.columns), *paired]))
    shown = [f"t.{quoted_name(number)}", *(f"i.{quoted_name(name)}" for name in names)]
    shown += [f"t.{quoted_name(name)} AS {quoted_name(OUTSIDE + name)}" for name in one.outside]
    same = [f"t.{quoted_name(unit)} = i.{quoted_name(unit)}"]
    for outer, inner in one.pairs:
        sides = f"t.{quoted_name(outer)}", f"i.{quoted_name(inner)}"
        same.append(" = ".join(identity(side, stored_type(one.table, inner)) for side in sides))
    value = "".join(aggregate_sql(one.value))
    rows = f"{_NUMBERED} AS t JOIN ({rows_of_units(one.table, names, unit)}) AS i ON "
    where = "" if one.condition is None else f" WHERE {one.condition.sql}"
    return (
        f"SELECT {quoted_name(number)}, {value} AS v FROM (SELECT {', '.join(shown)} FROM "
        f"{rows}{' AND '.join(same)}){where} GROUP BY {quoted_name(number)}"
    )


def rows_of_units(table: Table, names: Sequence[str], unit: str, *, lined: bool = False) -> str:
    """Write all rows that belong to units, with the ids of these, and with columns of others.

    Args:
        table: the table.
        names: what is read of them: also of their parents, and of other rows of their units.
        unit: what the column with the ids is called; see `bounded.unit_name`.
        lined: whether there is a column with their places in the line of their unit as well.
    """
    if table.chosen is not None:
        return _chosen_rows(table, table.chosen, names, unit, lined=lined)
    others = others_of(table, names)
    lined = lined or any(window.lined for window in others.windows)
    further = [unit, line_name(unit)] if lined else [unit]
    order = line_order(table.alone, others.stored) if lined else None
    rows = _with_units(table.alone, read_on_way(others), unit, order)
    if others.left or others.within:
        shown = [*others.joined, *further]
        rows = with_others_columns(rows, others.left, others.within, shown, unit)
    if not others.windows:
        return rows
    return with_windows(rows, others.windows, [*names, *further], unit)


def _chosen_rows(
    table: Table, chosen: Chosen, names: Sequence[str], unit: str, *, lined: bool
) -> str:
    """Write those rows that have one of some places; see `rows_of_units`.

    Rows that the window doesn't see have no place, whatever stands in its column.
    """
    places = places_of(table)
    read = list(dict.fromkeys([*names, places.name, *sorted(places.columns)]))
    rows = rows_of_units(table.whole, read, unit, lined=lined)
    shown = map(quoted_name, [*names, unit, *([line_name(unit)] if lined else [])])
    ends = " AND ".join(whole(end, "BIGINT") for end in (chosen.first, chosen.last))
    holds = [] if places.condition is None else [f"({places.condition.sql}) IS TRUE"]
    holds.append(f"{quoted_name(places.name)} BETWEEN {ends}")
    return f"SELECT {', '.join(shown)} FROM ({rows}) AS t WHERE {' AND '.join(holds)}"


def _with_units(
    table: Table, read: Mapping[str, str], unit: str, order: Sequence[str] | None = None
) -> str:
    """Write the rows of a table that belong to units, with the ids of these.

    Args:
        table: the table.
        read: what is read of them: name → SQL in `way_to_unit`.
        unit: what the column with the ids is called.
        order: what the rows of a unit are sorted by, if their places are needed.
    """
    if table.unit is None:
        raise InternalError("rows that are met by their unit have none")
    id_ = unit_id(table.unit)
    shown = [f"{column} AS {quoted_name(name)}" for name, column in read.items()]
    shown.append(f"{id_} AS {quoted_name(unit)}")
    if order is not None:
        place = place_in_line(order, id_)
        shown.append(f"{place} AS {quoted_name(line_name(unit))}")
    return f"SELECT {', '.join(shown)} FROM {way_to_unit(table)} WHERE {has_unit(table.unit)}"


def _single(rows: str, names: Sequence[str], join: KeyStep, unit: str) -> str:
    """Write those of some rows with units that have a key alone among those of their unit."""
    keys = [identity(quoted_name(pair.key), pair.type) for pair in join.pairs]
    # The aggregate is of one row: of several it would be left open which of them it is of.
    shown = (f"{call('any_value', quoted_name(name))} AS {quoted_name(name)}" for name in names)
    return (
        f"SELECT {', '.join([*shown, quoted_name(unit)])} FROM {rows} AS s "
        f"GROUP BY {', '.join([quoted_name(unit), *keys])} HAVING {call('count', '*')} = 1"
    )


def read_on_way(others: Others) -> dict[str, str]:
    """Write what is read in `way_to_unit`: column, under its name in the grain → SQL."""
    wanted = others.wanted
    found = {name: column_of("t0", name) for name in others.stored if name in wanted}
    for i, parent in enumerate(others.on_way, start=1):
        names = parent.names.items()
        found |= {name: column_of(f"t{i}", of) for of, name in names if name in wanted}
        found |= {parent.matched: "true"} if parent.matched in wanted else {}
    return found


def column_of(place: str, *name: str) -> str:
    """Write a column of an item after FROM; of its name the parts are given."""
    return f"{place}.{quoted_name(''.join(name))}"


def way_to_unit(table: Table) -> str:
    """Join a table with those on the way to its unit: each row is there once for each unit."""
    joins = table.unit.joins if table.unit is not None else ()
    return f"{source_of(table)} AS t0{_way(table, 0)}" if joins else f"{source_of(table)} AS t0"


def way_of_all(table: Table) -> str:
    """Join a table with those on the way to its unit: each row is there once, also without one.

    Raises:
        InternalError: a step isn't a FOREIGN KEY, so that a row may have several units.
    """
    source = f"{source_of(table)} AS t0"
    for i, join in enumerate(_unit_of(table).joins):
        if not join.enforced:
            raise InternalError("a row may have several units")
        met = ".".join(quoted_name(part) for part in join.path)
        same = _same(join, partial(column_of, f"t{i}"), partial(column_of, f"t{i + 1}"))
        source += f" LEFT JOIN {met} AS t{i + 1} ON {same}"
    return source


def _way(table: Table, first: int) -> str:
    """Join `t0`, `t1`, … with what comes after it on the way; see `way_to_unit`."""
    unit = _unit_of(table)
    source = ""
    for i, join in enumerate(unit.joins[first:], start=first):
        met = ".".join(quoted_name(part) for part in join.path)
        child, own = partial(column_of, f"t{i}"), partial(column_of, f"t{i + 1}")
        if join.enforced:
            source += f" JOIN {met} AS t{i + 1} ON {_same(join, child, own)}"
            continue
        keys = [identity(own(pair.key), pair.type) for pair in join.pairs]
        ids = _ids(unit, i + 1)
        shown = [f"{column} AS k{at}" for at, column in enumerate(keys)]
        shown += [f"{column} AS u{at}" for at, column in enumerate(ids)]
        distinct = (
            f"SELECT DISTINCT {', '.join(shown)} FROM {met} AS t{i + 1}{_way(table, i + 1)} "
            f"WHERE {_all_there(ids)}"
        )
        pairs = [(identity(child(p.column), p.type), f"k{at}") for at, p in enumerate(join.pairs)]
        same = " AND ".join(f"{column} = t{i + 1}.{key}" for column, key in pairs)
        return f"{source} JOIN ({distinct}) AS t{i + 1} ON {same}"
    return source


def _unit_of(table: Table) -> ResolvedUnit:
    if table.unit is None:
        raise InternalError("the rows of a table without a unit have none")
    return table.unit


def _ids(unit: ResolvedUnit, first: int = 0) -> list[str]:
    """Return what the unit's id is made of, in what `_way` joins from some step on.

    Equal ones are the same, byte for byte: no collation merges what is told apart.
    """
    for i, join in enumerate(unit.joins[first:], start=first):
        if not join.enforced:
            return [f"t{i + 1}.u{at}" for at in range(len(unit.columns))]
    last = f"t{len(unit.joins)}"
    return [identity(f"{last}.{quoted_name(name)}", type_) for name, type_ in unit.columns]


def _all_there(ids: Sequence[str]) -> str:
    return " AND ".join(f"{column} IS NOT NULL" for column in ids)


def unit_id(unit: ResolvedUnit) -> str:
    """Return the unit's id, in `way_to_unit`."""
    ids = _ids(unit)
    return ids[0] if len(ids) == 1 else call("row", *ids)


def has_unit(unit: ResolvedUnit) -> str:
    """Write whether a row belongs to a unit, in `way_to_unit`."""
    return _all_there(_ids(unit))


def _same(join: KeyStep, child: Callable[[str], str], parent: Callable[[str], str]) -> str:
    """Write that a row refers to another one."""
    return " AND ".join(
        f"{identity(child(pair.column), pair.type)} = {identity(parent(pair.key), pair.type)}"
        for pair in join.pairs
    )
