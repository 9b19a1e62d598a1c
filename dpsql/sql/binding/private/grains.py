"""Joins of private tables: which of them is counted, and which rows the others are seen from it.

    FROM orders o JOIN customers c ON o.customer_id = c.id

counts orders, each with the columns of the customer that it refers to: `schema/grain.py` says why
that is one row for each order, of the same unit. Here it is found out that a join is of this kind.
One of its tables must be such that all others follow from it, step by step: by an equality of a
column that refers to a row, and of the key that it refers to. Other conditions are conditions on
the rows that are counted. An equality that is such a step need not be looked at any more: it says
that there is such a row.

Equalities go on: `ps.supplier = l.supplier AND s.id = l.supplier` says `ps.supplier = s.id`, too.
In rows that WHERE and inner joins leave, both columns of an equality have a value; and equality is
transitive where equal values are the same, which they are not for all types and collations. So an
equality that follows from those of the steps need not be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from sqlglot import exp

from dpsql.schema import Table
from dpsql.schema.grain import declared_type
from dpsql.schema.keys import comparable
from dpsql.schema.table import Parent
from dpsql.sql.binding.expressions import Expr, conjuncts
from dpsql.sql.binding.joins import JoinedItem
from dpsql.sql.binding.row_queries import Home
from dpsql.sql.binding.scope import Scope, stored_place
from dpsql.sql.text.spans import SourceText

Place = tuple[int, str]
"""A column: the number of the private item whose it is, and its name there."""


@dataclass(frozen=True, slots=True)
class EqualColumns:
    """Two columns that are equal."""

    node: Expr | None
    """Where it is written, unless USING says so."""
    sides: frozenset[Place]
    of: int | None
    """The number of the item whose join it is a condition of; None if rows are left out by it."""


@dataclass(frozen=True, slots=True)
class Grain:
    """A join of private tables: what is counted, and what each row of it refers to."""

    child: int
    """The number of the item whose rows are counted."""
    table: Table
    """These, with the columns of all that they refer to."""
    parents: Mapping[int, Parent]
    """Of the other items, by their numbers."""
    used: frozenset[int]
    """The equalities that say so, as identities of nodes."""


def grain_of(
    joins: Sequence[JoinedItem],
    homes: Sequence[Home],
    where: Expr | None,
    widen: Callable[[Table], Table],
    source: SourceText,
) -> Grain | None:
    """Find out what a join of private tables counts; None if it isn't told by what they refer to.

    Args:
        joins: the items after FROM whose rows are private.
        homes: what they are.
        where: the condition after WHERE.
        widen: gives a table the columns of the rows that it refers to.
        source: the statement's text.
    """
    scopes = [home.scope(source, {}) for home in homes]
    equalities = [*equalities_of(joins, scopes, where)]
    equalities += _implied(equalities, homes)
    for child, home in enumerate(homes):
        table = home.table if home.table.parents else widen(home.table)
        parents, used = reached(child, table, (joins, homes), equalities)
        if len(parents) + 1 == len(homes):
            return Grain(child, table, parents, used)
    return None


def reached(
    child: int,
    table: Table,
    items: tuple[Sequence[JoinedItem], Sequence[Home]],
    equalities: Sequence[EqualColumns],
) -> tuple[dict[int, Parent], frozenset[int]]:
    """Place items along what the rows of one refer to; return them, and what says so."""
    joins, homes = items
    prefixes, parents, used = {child: ""}, dict[int, Parent](), set[int]()
    steps: list[EqualColumns] = []
    for parent in table.parents:  # each comes after the one that refers to it
        for number in set(range(len(homes))) - set(prefixes):
            if homes[number].table.path != parent.table.path:
                continue
            apart = joins[number].kind in {"left", "anti"}
            own = {number, child} if apart else {None, number, child}
            for above in [i for i, prefix in prefixes.items() if prefix == parent.above]:
                pairs = parent.join.pairs
                wanted = [{(above, pair.column), (number, pair.key)} for pair in pairs]
                said = [e for e in equalities if e.sides in wanted and e.of in own]
                if all(any(e.sides == sides for e in said) for sides in wanted):
                    prefixes[number], parents[number] = parent.prefix, parent
                    used |= {id(one.node) for one in said if one.node is not None}
                    steps += [] if apart else said
                    break
            if number in prefixes:
                break
    follow = _classes(_transitive(steps, homes))
    for one in _transitive(equalities, homes):
        if one.node is not None and any(one.sides <= places for places in follow):
            used.add(id(one.node))
    return parents, frozenset(used)


def _implied(equalities: Sequence[EqualColumns], homes: Sequence[Home]) -> Iterator[EqualColumns]:
    """Return what is equal because both are equal to others, in the rows that all of it leaves."""
    plain = _transitive(equalities, homes)
    written = {one.sides for one in plain}
    for places in _classes(plain):
        for pair in combinations(sorted(places), 2):
            if frozenset(pair) not in written:
                yield EqualColumns(None, frozenset(pair), None)


def _transitive(equalities: Sequence[EqualColumns], homes: Sequence[Home]) -> list[EqualColumns]:
    """Return those that leave rows out, of columns in which equal values are the same."""

    def alike(sides: frozenset[Place]) -> bool:
        types = [own_type(homes[number].table, name) for number, name in sorted(sides)]
        return None not in types and comparable(str(types[0]), str(types[-1]))

    return [one for one in equalities if one.of is None and alike(one.sides)]


def _classes(equalities: Sequence[EqualColumns]) -> list[frozenset[Place]]:
    """Put columns together that are equal."""
    found: list[frozenset[Place]] = []
    for one in equalities:
        apart = [places for places in found if places.isdisjoint(one.sides)]
        met = [places for places in found if not places.isdisjoint(one.sides)]
        found = [*apart, one.sides.union(*met)]
    return found


def equalities_of(
    joins: Sequence[JoinedItem], scopes: Sequence[Scope], where: Expr | None
) -> Iterator[EqualColumns]:
    """Return what is equal by the conditions of a join: of ON, of USING and of WHERE."""
    conditions = [(number, join.on) for number, join in enumerate(joins)]
    for number, condition in [*conditions, (None, where)]:
        plain = number is None or joins[number].kind in {"inner", "semi"}
        for part in [] if condition is None else conjuncts(condition):
            node = part.unnest()
            if isinstance(node, exp.EQ):
                places = [_place(side, scopes) for side in (node.this, node.expression)]
                if None not in places:
                    sides = frozenset(place for place in places if place)
                    yield EqualColumns(part, sides, None if plain else number)
    for number, join in enumerate(joins):
        for name in join.using:
            before = scopes[: number + 1]  # what is joined later is not meant
            named = [_place(exp.column(name, quoted=True), [scope]) for scope in before]
            found = [(i, place[1]) for i, place in enumerate(named) if place is not None]
            plain = join.kind in {"inner", "semi"}
            for pair in combinations(found, 2):
                yield EqualColumns(None, frozenset(pair), None if plain else number)


def _place(node: Expr, scopes: Sequence[Scope]) -> Place | None:
    """Return which stored column an expression is; None if it is another."""
    column = node.unnest()
    if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
        return None
    owners = [number for number, scope in enumerate(scopes) if scope.owns(column)]
    if len(owners) != 1:
        return None
    name = stored_place(column, scopes[owners[0]])
    return None if name is None else (owners[0], name)


def own_type(table: Table, name: str) -> str | None:
    """Return the type of a stored column; None if it is of another row."""
    return None if name in table.joined else declared_type(table, name) or None


def keys_referred(table: Table) -> set[tuple[tuple[str, ...], str]]:
    """Return the keys of one column that rows of a table refer to."""
    return {(p.table.path, p.join.key) for p in table.parents if not p.join.further}


def own_unit(table: Table) -> set[tuple[tuple[str, ...], str]]:
    """Return the column of a table that has the ids of its units, if it is its own."""
    unit = table.unit
    own = unit is not None and not unit.joins and len(unit.columns) == 1
    return {(table.path, unit.column)} if unit is not None and own else set()
