"""UNION ALL of queries of rows of one table: a join with the numbers of the queries.

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
from functools import reduce

from sqlglot import exp

from dpsql.errors import Span
from dpsql.rel.nodes import Scan
from dpsql.schema import Table
from dpsql.sql.algebra.query_rows import RowsOfQuery
from dpsql.sql.binding.canonical import id_of
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import BoundExpr, Expr, column, joined_bound, paren
from dpsql.sql.binding.relations import materialize
from dpsql.sql.binding.scope import NamedColumn
from dpsql.sql.binding.unified import TEXT, TypedPart, casts_of
from dpsql.sql.sandbox.database import Sandbox
from dpsql.sql.text.spans import SourceText


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
