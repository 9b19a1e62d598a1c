"""UNION ALL of queries of private rows: a join with the numbers of the queries.

With A and B conditions on rows of one table T, a row of

    SELECT e FROM T WHERE A UNION ALL SELECT f FROM T WHERE B

is a row of T × {0, 1} that meets (i = 0 AND A) OR (i = 1 AND B), of which CASE i WHEN 0 THEN e
ELSE f END is shown: each row of T meets as many numbers as there are queries that return it, and
counts once for each. So it is a join with a public table, and the sensitivity that of one: a row
that two queries return counts twice, and costs accordingly.

Where DuckDB's UNION ALL makes texts of a column, as of 1 and 'a', that is written: CASE would not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from sqlglot import exp

from dpsql.errors import Span
from dpsql.schema import Domain, Table
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import BoundExpr, Expr, column, paren, quoted_column, render
from dpsql.sql.binding.relations import materialize
from dpsql.sql.binding.row_queries import RowQuery
from dpsql.sql.binding.scope import Binder, RowQueryColumn, Scope, stored_place
from dpsql.sql.binding.unified import TEXT, TypedPart, casts_of
from dpsql.sql.sandbox.database import Sandbox
from dpsql.sql.text.spans import SourceText

_NUMBER = column("__r0_0")
"""The number of the query that a row is of: the first column of the first relation."""


def check_widths(queries: Sequence[RowQuery], union: Expr, source: SourceText) -> None:
    """Refuse UNION ALL of queries of which one has more columns than another.

    Raises:
        SqlError: that is so.
    """
    widths = {len(query.columns) for query in queries}
    if len(widths) > 1:
        message = "The queries that UNION ALL puts together have different numbers of columns."
        raise source.error(union, message, "select as many columns in each.")


def union_of(
    home: Table, queries: Sequence[RowQuery], union: Expr, sandbox: Sandbox, source: SourceText
) -> RowQuery:
    """Return the query whose rows are those of all queries.

    Args:
        home: the table whose rows they are.
        queries: these; they have the same number of columns, and join nothing.
        union: where it stands.
        sandbox: where the numbers of the queries are stored.
        source: the statement's text.
    """
    span, table = source.node(union), sandbox.new_name("relation")
    numbers = f"SELECT range FROM range({len(queries)})"
    names, rows = materialize(sandbox, source, table, numbers, [], 0, union)
    number = Relation(0, table, names, table, rows, "inner", (), span)
    columns = tuple(
        _column(own, home, sandbox)
        for own in zip(*(query.columns for query in queries), strict=True)
    )
    common = [c for c in queries[0].conjuncts if all(c in query.conjuncts for query in queries)]
    rests = [[c for c in query.conjuncts if c not in common] for query in queries]
    either = [_either(rests, span)] if any(rests) else []
    named = frozenset[str]().union(*(query.named for query in queries))
    return RowQuery(columns, (number,), (*common, *either), named, span)


def _column(own: tuple[RowQueryColumn, ...], home: Table, sandbox: Sandbox) -> RowQueryColumn:
    """Return a column of a union, which may be the same stored one in all queries."""
    places = {stored_place(column.node, column.inside.scope) for column in own}
    if len(places) == 1 and None not in places:
        return own[0]
    inside = _UnionColumn(own, home, sandbox)
    size = sum(column.size for column in own)
    return RowQueryColumn(own[0].name, quoted_column(own[0].name), inside, mixed=True, size=size)


def _either(rests: Sequence[Sequence[BoundExpr]], span: Span) -> BoundExpr:
    """Return the condition that a row meets that of its query."""
    branches = []
    for i, rest in enumerate(rests):
        own: Expr = exp.EQ(this=_NUMBER.copy(), expression=exp.Literal.number(i))
        parts = [own, *(paren(part.node) for part in rest)]
        branches.append(reduce(lambda a, b: exp.And(this=a, expression=b), parts))
    node = reduce(lambda a, b: exp.Or(this=a, expression=b), map(paren, branches))
    return _bound(node, [part for rest in rests for part in rest], span)


def _bound(node: Expr, parts: Sequence[BoundExpr], span: Span) -> BoundExpr:
    return BoundExpr(
        node,
        render(node),
        frozenset[str]().union(*(part.attributes for part in parts)),
        frozenset({0}).union(*(part.relations for part in parts)),
        span,
        frozenset[str]().union(*(part.by_row for part in parts)),
    )


@dataclass(frozen=True, slots=True)
class _UnionColumn:
    """A column of a union: for each row, the column of the query that the row is of."""

    several: tuple[RowQueryColumn, ...]
    table: Table
    sandbox: Sandbox

    @property
    def scope(self) -> Scope:
        """The scope that says what names mean in the first query."""
        return self.several[0].inside.scope

    def bind(self, node: Expr) -> BoundExpr:
        """Bind it where it stands."""
        found = [binder.bind(part) for binder, part in self._parts(node)]
        if len({one.sql for one in found}) == 1:
            return found[0]
        casts = casts_of([TypedPart(one.node, self.table) for one in found], self.sandbox)
        text = exp.DataType.build(TEXT)
        written = [
            exp.Cast(this=paren(one.node), to=text.copy()) if cast == TEXT else one.node.copy()
            for one, cast in zip(found, casts, strict=True)
        ]
        ifs = [exp.If(this=exp.Literal.number(i), true=node) for i, node in enumerate(written)]
        return _bound(exp.Case(this=_NUMBER.copy(), ifs=ifs), found, found[0].span)

    def domain_of(self, node: Expr) -> tuple[str, Domain] | None:
        """Return name and domain of a private column; None if the queries have several."""
        found = {binder.domain_of(part) for binder, part in self._parts(node)}
        return found.pop() if len(found) == 1 else None

    def _parts(self, node: Expr) -> list[tuple[Binder, Expr]]:
        """Return what the column is in each query, and what binds it there."""
        first = quoted_column(self.several[0].name)
        place = node if isinstance(node, exp.Column) else first
        return [(one.inside, one.at(place)) for one in self.several]
