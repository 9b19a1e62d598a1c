"""Set operations of rows of units: UNION, INTERSECT, EXCEPT and UNION ALL.

The first three compare rows, and are written as the SELECTs that they stand for. Where columns of
both sides tell the unit, rows of different units differ in them, so that each is compared with rows
of its own unit alone, and what comes out are rows of units.

UNION ALL of relations of the same units has columns of one type. Of queries of rows of one table it
is a join with the numbers of the queries. With A and B conditions on rows of one table T, a row of

    SELECT e FROM T WHERE A UNION ALL SELECT f FROM T WHERE B

is a row of T × {0, 1} that meets (i = 0 AND A) OR (i = 1 AND B), of which CASE i WHEN 0 THEN e
ELSE f END is shown: each row of T meets as many numbers as there are queries that return it, and
counts once for each. So it is a join with a public table, and the sensitivity that of one: a row
that two queries return counts twice, and costs accordingly.

Where DuckDB's UNION ALL makes texts of a column, as of 1 and 'a', that is written: CASE would not.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from sqlglot import exp

from dpsql.errors import Span, UnsupportedSqlError
from dpsql.rel.facts import UNIT
from dpsql.rel.nodes import Id, Project, Scan, Union
from dpsql.schema import Domain, Table
from dpsql.schema.domain import INTEGER_TYPES
from dpsql.sql.algebra.declared import domain_in, is_listed, value_in
from dpsql.sql.algebra.described import (
    NO_TYPE,
    DescribedRelation,
    NewColumn,
    covering,
    only,
    united,
)
from dpsql.sql.algebra.query_rows import RowsOfQuery
from dpsql.sql.algebra.selects import Translator
from dpsql.sql.binding.canonical import id_of
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import (
    BoundExpr,
    Expr,
    column,
    joined_bound,
    paren,
    quoted,
    quoted_column,
)
from dpsql.sql.binding.relations import materialize
from dpsql.sql.binding.row_queries import TEXT, TypedPart, casts_of
from dpsql.sql.binding.scope import NamedColumn
from dpsql.sql.sandbox.database import Sandbox
from dpsql.sql.text.spans import SourceText

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


# ── UNION ALL of relations of the same units ──


@dataclass(frozen=True, slots=True)
class UnitedPart:
    """One of the relations that are put together, and its columns that go together by places."""

    of: DescribedRelation
    columns: tuple[NewColumn, ...]


def places_with_values(parts: Sequence[UnitedPart]) -> list[int]:
    """Return the places of columns that aren't NULL in all parts."""
    each = enumerate(zip(*(part.columns for part in parts), strict=True))
    return [place for place, columns in each if _with_values(columns)]


def type_in_common(types: Iterable[str]) -> str:
    """Return the type that all values of some columns have.

    Raises:
        UnsupportedSqlError: they have none, unless the database makes one of them.
    """
    given = {*types}
    given -= {NO_TYPE} if len(given) > 1 else set()
    if len(given) == 1:
        return given.pop()
    if given <= INTEGER_TYPES - {"UBIGINT"}:
        return "BIGINT"
    if given <= {*INTEGER_TYPES, "HUGEINT"}:
        return "HUGEINT"
    if all(t == "VARCHAR" or t.startswith("ENUM") for t in given):
        return "VARCHAR"
    raise UnsupportedSqlError(
        f"UNION ALL puts together columns of the types {' and '.join(sorted(given))}.",
        hint="cast both to one type, for example CAST(x AS BIGINT).",
    )


def put_together(
    queries: Translator, parts: Sequence[UnitedPart], names: Sequence[str]
) -> tuple[DescribedRelation, list[Id]]:
    """Put the rows of several relations together.

    Args:
        queries: gives ids.
        parts: the relations, each with as many columns.
        names: what the columns are called.

    Returns:
        The relation, and the ids of its columns in order.

    Raises:
        UnsupportedSqlError: columns have no type in common.
    """
    each = list(zip(*(part.columns for part in parts), strict=True))
    types = [type_in_common(one.type for one in columns) for columns in each]
    domains = [
        domain_in(columns, _united(columns), type_)
        for columns, type_ in zip(each, types, strict=True)
    ]
    ids = [queries.fresh(name) for name in names]
    relations = []
    for part in parts:
        trees = map(value_in, part.columns, domains, types)
        listed = ((queries.fresh(name), tree) for name, tree in zip(names, trees, strict=True))
        relations.append(Project(part.of.relation, tuple(listed)))
    added = list(map(_facts_of_all, ids, types, each, domains))
    made = only(parts[0].of, Union(tuple(relations), tuple(ids)), added)
    counted = {table.path: table for part in parts for table in part.of.counted}
    read = tuple(table for part in parts for table in part.of.read)
    told = set()
    for part in parts:
        passed = zip((column.id for column in part.columns), ids, strict=True)
        told.add(part.of.ids_at(dict(passed)))
    return replace(
        made,
        most=_most_of([part.of.most for part in parts]),
        counted=tuple(counted.values()),
        read=read,
        sure=None,
        ids=told.pop() if len(told) == 1 else (),
    ), ids


def _most_of(parts: Sequence[int | None]) -> int | None:
    """Return how many rows of a unit parts have together at most, if that is known of each."""
    known = [most for most in parts if most is not None]
    return sum(known) if len(known) == len(parts) else None


def _facts_of_all(
    id_: Id, type_: str, news: Sequence[NewColumn], domain: Domain | None
) -> NewColumn:
    """Describe a column by what it is in each part."""
    tells = frozenset.intersection(*(new.tells for new in news))
    there = _with_values(news)
    listed = is_listed(news, domain)
    nullable = any(new.nullable or not new.listed for new in news)
    between = covering([new.between for new in there])
    expected = covering([new.expected or (None, None) for new in there])
    return NewColumn(id_, type_, nullable, domain, between, expected, tells, listed)


def _with_values(columns: Iterable[NewColumn]) -> list[NewColumn]:
    """Return those of some columns that have other values than NULL."""
    return [one for one in columns if one.type != NO_TYPE]


def _united(columns: Sequence[NewColumn]) -> Domain | None:
    """Return the values of a column that several become, as far as they are known."""
    there = _with_values(columns)
    domain = united([one.domain for one in there])
    return domain if domain is None or there == [*columns] else replace(domain, nullable=True)


# ── UNION ALL of queries of rows of one table ──


def are_of_one_scan(parts: Sequence[RowsOfQuery]) -> bool:
    """Whether rows are those of one table as they are stored, and joined with nothing."""
    tables = {
        part.of.relation.source.table.path for part in parts if isinstance(part.of.relation, Scan)
    }
    plain = all(isinstance(part.of.relation, Scan) and not part.relations for part in parts)
    return plain and len(tables) == 1


def numbered_rows(
    parts: Sequence[RowsOfQuery], number: int, union: Expr, sandbox: Sandbox, source: SourceText
) -> RowsOfQuery:
    """Return the query whose rows are those of several.

    Args:
        parts: these, over the columns of one scan; they have as many columns as each other.
        number: that of the relation which has the numbers of the queries.
        union: where it stands.
        sandbox: where these are stored.
        source: the statement's text.
    """
    span, name = source.node(union), sandbox.new_name("relation")
    numbers = f"SELECT range FROM range({len(parts)})"
    names, rows = materialize(sandbox, source, name, numbers, [], number, union)
    relation = Relation(number, name, names, name, rows, "inner", (), span)
    place = _QueryNumber(column(f"__r{number}_0"), frozenset({number}), parts[0].of.table, span)
    columns = tuple(
        place.column(own, sandbox) for own in zip(*(part.columns for part in parts), strict=True)
    )
    common = [c for c in parts[0].where if all(c in part.where for part in parts)]
    rests = [[c for c in part.where if c not in common] for part in parts]
    either = [place.either(rests)] if any(rests) else []
    return RowsOfQuery(parts[0].of, columns, (*common, *either), (relation,))


class _QueryNumber:
    """The number of the query that a row is of, and what depends on it."""

    def __init__(self, number: Expr, relations: frozenset[int], table: Table, span: Span) -> None:
        self._number, self._table = number, table
        none = frozenset[str]()
        self._bound = BoundExpr(number, "", none, relations, span, none)

    def either(self, rests: Sequence[Sequence[BoundExpr]]) -> BoundExpr:
        """Return the condition that a row meets that of its query."""
        branches = []
        for i, rest in enumerate(rests):
            own: Expr = exp.EQ(this=self._number.copy(), expression=exp.Literal.number(i))
            parts = [own, *(paren(part.node) for part in rest)]
            branches.append(reduce(lambda a, b: exp.And(this=a, expression=b), parts))
        node = reduce(lambda a, b: exp.Or(this=a, expression=b), map(paren, branches))
        named = [part for rest in rests for part in rest]
        return joined_bound(node, [self._bound, *named], self._bound.span)

    def column(self, own: Sequence[NamedColumn], sandbox: Sandbox) -> NamedColumn:
        """Return a column, which may be the same in all queries."""
        first, found = own[0], [one.value for one in own]
        if len({one.sql for one in found}) == 1:
            return first
        casts = casts_of([TypedPart(one.node, self._table) for one in found], sandbox)
        text = exp.DataType.build(TEXT)
        written = [
            exp.Cast(this=paren(one.node), to=text.copy()) if cast == TEXT else one.node.copy()
            for one, cast in zip(found, casts, strict=True)
        ]
        ifs = [exp.If(this=exp.Literal.number(i), true=node) for i, node in enumerate(written)]
        case = exp.Case(this=self._number.copy(), ifs=ifs)
        bound = joined_bound(case, [self._bound, *found], found[0].span)
        return NamedColumn(first.name, bound, listed=id_of(bound, self._table) is not None)
