"""Set operations of rows of units, UNION, INTERSECT and EXCEPT, as the SELECTs that they stand for.

They compare rows. Where columns of both sides tell the unit, rows of different units differ in
them, so that each is compared with rows of its own unit alone, and what comes out are rows of
units.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from sqlglot import exp

from dpsql.rel.facts import UNIT
from dpsql.rel.nodes import Id
from dpsql.sql.algebra.described import NewColumn
from dpsql.sql.binding.expressions import Expr, quoted, quoted_column

_LEFT, _RIGHT, _ROWS = "__left", "__right", "__rows"

Listed = Sequence[tuple[str, NewColumn]]
"""The columns of a query of rows, with their names."""


def is_comparable(query: exp.SetOperation) -> bool:
    """Whether rows are neither matched one by one (ALL), nor by names of columns, nor chosen."""
    by_place = query.args.get("distinct") is not False and not query.args.get("by_name")
    return by_place and not any(query.args.get(key) for key in ("limit", "offset"))


def sides_of(query: exp.SetOperation) -> list[Expr]:
    """Return the queries of a set operation: of UNIONs in a UNION, those of all of them."""
    return [part for side in (query.this, query.expression) for part in _flattened(side, query)]


def told_by(sides: Sequence[Listed], ids: Sequence[Sequence[Id]]) -> frozenset[int]:
    """Return the numbers of columns that tell the unit of a row on each side; none if none do.

    One that has the unit's own id comes first, then one that is never NULL: a row without a unit
    doesn't count, but NULL in another column is a value as any other.

    Args:
        sides: the columns of each side.
        ids: those of each side with the ids of the unit, where these are several.
    """
    found = []
    for number, columns in enumerate(zip(*(map(_new, side) for side in sides), strict=True)):
        common = frozenset.intersection(*(new.tells for new in columns))
        rank = UNIT not in common, any(new.nullable for new in columns), number
        found += [rank] if common else []
    if found:
        return frozenset({min(found)[-1]})
    places = [
        tuple(number for id_ in own for number, (_, new) in enumerate(side) if new.id == id_)
        for own, side in zip(ids, sides, strict=True)
    ]
    whole = len(places[0]) == len(ids[0]) and all(one == places[0] for one in places)
    return frozenset(places[0]) if whole else frozenset()


def as_select(query: exp.SetOperation, tells: Container[int], listed: Listed) -> exp.Select:
    """Write a set operation by UNION ALL, EXISTS and DISTINCT.

    A row is in `a UNION b` if it is in the UNION ALL of both. Else let x be what tells the unit,
    one column or several. A row of `a` is in `a INTERSECT b` if `b` has an equal one, and in
    `a EXCEPT b` if it has none. That is one of the same unit, as x is equal: a subquery for rows of
    the same unit tells. NULLs are equal to each other, but for those of x.

    Args:
        query: the set operation, of which `is_comparable` holds.
        tells: the numbers of the columns that x is.
        listed: the columns of its first side.
    """
    found = _of_all(query) if isinstance(query, exp.Union) else _of_left(query, tells, listed)
    for node in found.walk():
        if not node.meta:
            node.meta.update(query.meta)
    return found


def _new(column: tuple[str, NewColumn]) -> NewColumn:
    return column[1]


def _flattened(side: Expr, whole: exp.SetOperation) -> list[Expr]:
    inner = side
    while isinstance(inner, exp.Subquery) and not inner.args.get("with_"):
        inner = inner.this
    plain = not any(inner.args.get(key) for key in ("with_", "limit", "offset", "by_name"))
    if isinstance(whole, exp.Union) and isinstance(inner, exp.Union) and plain:
        return sides_of(inner)
    return [side]


def _of_all(query: exp.Union) -> exp.Select:
    """Write UNION: DISTINCT of all rows says what DISTINCT says inside of it."""
    all_rows, *others = (side.copy() for side in sides_of(query))
    for side in others:
        all_rows = exp.Union(this=all_rows, expression=side, distinct=False)
    rows = exp.From(this=_item(all_rows, _ROWS, []))
    return exp.Select(expressions=[exp.Star()], from_=rows, distinct=exp.Distinct())


def _of_left(query: exp.SetOperation, tells: Container[int], listed: Listed) -> exp.Select:
    names = [f"__id{i}" for i in range(len(listed))]
    conditions: list[Expr] = []
    for i, name in enumerate(names):
        sides = {"this": quoted_column(name, _RIGHT), "expression": quoted_column(name, _LEFT)}
        conditions.append(exp.EQ(**sides) if i in tells else exp.NullSafeEQ(**sides))
    inner = exp.Select(
        expressions=[exp.Literal.number(1)],
        from_=exp.From(this=_item(query.expression, _RIGHT, names)),
        where=exp.Where(this=exp.and_(*conditions, copy=False)),
    )
    there: Expr = exp.Exists(this=inner)
    return exp.Select(
        expressions=[
            exp.Alias(this=quoted_column(name, _LEFT), alias=quoted(called))
            for name, (called, _) in zip(names, listed, strict=True)
        ],
        from_=exp.From(this=_item(query.this, _LEFT, names)),
        where=exp.Where(this=exp.Not(this=there) if isinstance(query, exp.Except) else there),
        distinct=exp.Distinct(),
    )


def _item(query: Expr, alias: str, names: Sequence[str]) -> exp.Subquery:
    """Put a query after FROM, with names for its columns."""
    whole = exp.TableAlias(this=quoted(alias), columns=list(map(quoted, names)))
    return exp.Subquery(this=query.copy(), alias=whole)
