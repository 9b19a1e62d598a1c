"""Places of rows among those of their unit: by conditions on them a unit has fewer rows.

    SELECT … FROM (SELECT *, row_number() OVER (PARTITION BY cid ORDER BY id) AS r FROM o)
    WHERE r <= 2

counts two rows of each unit at most, whatever is declared of orders. If a row meets several others
they all have its place, so that it says nothing of their number.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.rel.facts import UNIT, Known, known_places, said_of_place
from dpsql.rel.keys import same_rows
from dpsql.rel.nodes import Filter, Id, Join, Scan, Window, walk
from dpsql.rows.expression import RowCall, RowColumn, RowConstant, RowExpression, all_of
from dpsql.schema import Table
from dpsql.schema.grain import declared_type
from dpsql.schema.units import RowLimit
from dpsql.sql.algebra.described import DescribedRelation, integers_between
from dpsql.sql.algebra.window_parts import WindowParts
from dpsql.sql.binding.canonical import id_of


@dataclass(frozen=True, slots=True)
class RowPlace:
    """A column with the place of each row among those of its unit that agree in some columns.

    Args:
        holds: what is true of the rows that have one; None if all have.
        times: how many rows of a unit have the same place at most; None if that isn't known.
        apart: the columns in which these differ, where each value that is stored is of a domain.
    """

    holds: RowExpression | None
    times: int | None = 1
    apart: tuple[Id, ...] = ()


def chosen_by_places(
    of: DescribedRelation,
    said: Sequence[RowExpression],
    places: Mapping[Id, RowPlace],
    known: Known,
) -> DescribedRelation | None:
    """Return those rows of which conditions are true; None if none of them is about places.

    However it is written between which places they are, they are the same rows.

    Args:
        of: the rows.
        said: the conditions.
        places: columns with the place of each row.
        known: the facts about relations.
    """
    below = [node for node in same_rows(of.relation, known) if isinstance(node, Window)]
    own = places.keys() & {name for node in below for name, _ in node.adds}
    left = {name: ends for name, ends in known_places(said).items() if name in own}
    many = [_many(places[name], ends) for name, ends in left.items()]
    sure = [rows for rows in (*many, of.most) if rows is not None]
    if not left or not sure or any(first > last for first, last in left.values()):
        return None
    found = of.over(Filter(of.relation, _between(said, left, places)), most=min(sure))
    limits = (
        RowLimit(places[name].apart, last - first + 1)
        for name, (first, last) in left.items()
        if places[name].apart
    )
    table = _with_places(of.table, left)
    said_so = [rows for rows in (*many, of.sure) if rows is not None]
    return replace(
        found,
        table=table,
        limits=least_limits([*of.limits, *limits]),
        sure=min(said_so, default=None),
    )


def _between(
    said: Sequence[RowExpression],
    left: Mapping[Id, tuple[int, int]],
    places: Mapping[Id, RowPlace],
) -> RowExpression:
    """Return the condition that rows are between some places, and what else is said of them."""
    rest = (part for part in said if not _is_exact(part, left))
    among = (places[name].holds for name in left)  # other rows have places of their own
    between = (
        RowCall("between", (RowColumn(name), *(RowConstant("INTEGER", str(end)) for end in ends)))
        for name, ends in sorted(left.items())
    )
    return all_of([*between, *rest, *(one for one in among if one is not None)])


def least_limits(limits: Iterable[RowLimit]) -> tuple[RowLimit, ...]:
    """Return the least limit for each set of columns."""
    found = dict[tuple[str, ...], int]()
    for columns, rows in limits:
        found[columns] = min(rows, found.get(columns, rows))
    return tuple(RowLimit(*limit) for limit in sorted(found.items()))


def _many(place: RowPlace, ends: tuple[int, int]) -> int | None:
    return None if place.times is None else (ends[1] - ends[0] + 1) * place.times


def _is_exact(part: RowExpression, places: Container[Id]) -> bool:
    """Whether a condition says no more than between which places a row is."""
    said = said_of_place(part)
    return (
        said is not None
        and said[0] in places
        and not (isinstance(part, RowCall) and part.function == "in")
    )


def _with_places(table: Table, left: Mapping[Id, tuple[int, int]]) -> Table:
    """Return columns of which some have no other places than are left."""
    columns, undeclared = dict(table.columns), dict(table.undeclared)
    for name, (first, last) in left.items():
        domain = integers_between((Fraction(first), Fraction(last)), declared_type(table, name))
        if domain is not None:
            columns[name] = replace(domain, nullable=False)
            undeclared.pop(name, None)
    places = left.keys() & columns.keys()
    bounds = {name: ends for name, ends in table.bounds.items() if name not in places}
    return replace(
        table,
        columns=columns,
        undeclared=undeclared,
        bounds=bounds,
        enforced=table.enforced | places,
        filled=table.filled | places,
    )


def same_in_unit(of: DescribedRelation, known: Known) -> frozenset[Id]:
    """Return the columns that have one value in all rows of a unit.

    They tell the unit, or are those of a row of which it has one alone.
    """
    lost, found = set[Id](), {id_ for id_, keys in of.tells.items() if UNIT in keys}
    found |= {*of.ids}
    for node in walk(of.relation):
        if isinstance(node, Join) and node.kind == "left":
            lost |= known.of(node.right).columns.keys()
        if isinstance(node, Scan) and known.of(node).most == 1:
            found |= known.of(node).columns.keys()
    return frozenset(found & {*of.columns} - lost)


def place_of(
    made: WindowParts,
    holds: RowExpression | None,
    of: DescribedRelation,
    table: Table,
    known: Known,
) -> RowPlace:
    """Say how many rows of a unit have the same place: one for each value of a finer part.

    Args:
        made: the window.
        holds: what is true of the rows that it looks at.
        of: these rows.
        table: the columns that expressions may read.
        known: the facts about relations.
    """
    same = same_in_unit(of, known)
    finer = [one for one in made.partition if not (one.attributes | one.by_row) <= same]
    read = frozenset[Id]().union(*(one.attributes | one.by_row for one in finer)) - same
    if not same.issuperset(made.told) or not read <= listed(table):
        return RowPlace(holds, None)
    ids = [id_of(one, table) for one in finer]
    apart = tuple(sorted(id_ for id_ in ids if id_ is not None))
    times = math.prod(table.columns[name].size for name in read)
    return RowPlace(holds, times, apart if len(apart) == len(finer) else ())


def listed(table: Table) -> set[Id]:
    """Return the columns of which each stored value is one of a list."""
    return {n for n, d in table.columns.items() if n in table.enforced and not d.coarse}
