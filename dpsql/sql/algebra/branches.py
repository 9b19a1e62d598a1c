"""UNION ALL of rows of several tables: a query over it is one over each of them.

    FROM (SELECT day, 'order' AS kind FROM orders UNION ALL SELECT day, 'visit' FROM visits) AS s
    JOIN days USING (day) WHERE weekend

has the rows of `FROM (SELECT day, 'order' …) AS s JOIN days USING (day) WHERE weekend`, and those
of the same with visits: projections, conditions, and joins that keep all rows of a side or leave
some out are the same for a union of rows as for each of its parts,

    f(A ⊎ B) = f(A) ⊎ f(B)      for σ, π, A ⋈ C, A ⟕ C, A ⋉ C and A ▷ C,

as they look at one row of A at a time. So a SELECT that counts such rows is written as several, the
*branches*, of which each has one of the queries in the place of their union, also where the union
stands further inside, in a query that projects and filters. What is counted in them is added up,
see `added_up.py`. No new rows are reached in this way: each branch is a SELECT that could have been
asked by itself. Where rows of the union meet each other, in windows and groups, it stays a `Union`.

Queries over one table that join nothing stay together: a join with their numbers is planned as
what it is, see `set_operations.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

from sqlglot import exp

from dpsql.schema import Table
from dpsql.sql.algebra.queries import Queries, check_widths
from dpsql.sql.algebra.query_rows import RowsOfQuery
from dpsql.sql.binding.canonical import id_of
from dpsql.sql.binding.expressions import Expr, in_place_of, quoted
from dpsql.sql.binding.items import PRIVATE, Name, Names, WrittenRows
from dpsql.sql.binding.joins import JoinedItem, joins_of
from dpsql.sql.binding.row_queries import (
    UNNAMED,
    TypedPart,
    UnionColumn,
    casts_of,
    is_by_row,
    is_union_all,
    parts_of,
)
from dpsql.sql.sandbox.database import Sandbox

MAX_BRANCHES = 32
"""Branches of one SELECT; two unions of four queries that are joined have 16."""


class Branches:
    """Finds the branches of the SELECTs of one statement that count.

    Args:
        queries: translates its queries.
    """

    def __init__(self, queries: Queries) -> None:
        self._queries, self._source = queries, queries.source
        self._numbers = count()

    def of(
        self, select: exp.Select, names: Names, *, alone: bool = True
    ) -> list[tuple[exp.Select, Names]]:
        """Return the branches of a SELECT, with what names mean in each; itself if there is one.

        Args:
            select: the SELECT.
            names: what names mean there.
            alone: whether its rows meet no other private ones.
        """
        joins = joins_of(select, self._source, nearest=True)
        private = [j for j in joins if self._queries.item_kind(j.item, names) == PRIVATE]
        found = [(select, names)]
        for number, join in enumerate(joins):
            if join not in private or self._is_kept_apart(joins, number):
                continue
            rows = self._queries.written(join.item, names)
            if rows is None:
                continue
            several = self._several(rows, alone=alone and len(private) == 1)
            if several[0] is rows:
                continue
            found = [
                one for before in found for one in self._replaced(*before, number, join, several)
            ]
            self._check_number(found, join.item)
        return found

    def _is_kept_apart(self, joins: Sequence[JoinedItem], number: int) -> bool:
        """Whether it is looked for what no row of a whole item meets, or for whether one does."""
        further = {join.kind for join in joins[number + 1 :]} & {"right", "full"}
        return bool(further) or joins[number].kind in {"left", "full", "semi", "anti"}

    def _replaced(
        self,
        select: exp.Select,
        names: Names,
        number: int,
        join: JoinedItem,
        several: Sequence[WrittenRows],
    ) -> Iterator[tuple[exp.Select, Names]]:
        """Yield a SELECT for each of the queries of a union after its FROM."""
        alias = exp.TableAlias(this=quoted(join.item.alias_or_name or UNNAMED))
        given = join.item.args.get("alias")
        if given is not None and given.args.get("columns"):
            alias.set("columns", [name.copy() for name in given.args["columns"]])
        base = self._queries.items.base(join.item, names)
        for rows in several:
            name = f"\n{next(self._numbers)}"  # which is nobody's else: it can't be written
            item = exp.Table(this=quoted(name), alias=alias.copy())
            item.this.meta.update(base.this.meta)
            yield _with_item(select, number, item), {**names, name: Name(PRIVATE, "", rows)}

    def _several(self, rows: WrittenRows, *, alone: bool) -> list[WrittenRows]:
        """Return the queries whose rows a query puts together; itself if it is one."""
        query = rows.query
        while isinstance(query, exp.Subquery):
            query = query.this
        names = self._queries.behind(query, rows.names)
        if isinstance(query, exp.SetOperation):
            return self._of_union(rows, query, names, alone=alone)
        if not isinstance(query, exp.Select) or not is_by_row(query):
            return [rows]
        branches = self.of(_bare(query), names, alone=alone)
        if len(branches) == 1:
            return [rows]
        return [replace(rows, query=select, names=inside) for select, inside in branches]

    def _of_union(
        self, rows: WrittenRows, union: exp.SetOperation, names: Names, *, alone: bool
    ) -> list[WrittenRows]:
        """Return the queries of UNION ALL; those of one table that join nothing are together."""
        sides = {self._queries.kind(part, names) for part in parts_of(union)}
        chosen = any(union.args.get(key) for key in ("limit", "offset"))
        if not is_union_all(union) or sides != {PRIVATE} or chosen:
            return [rows]
        parts = [replace(rows, query=part, names=names, made=()) for part in parts_of(union)]
        several = [self._several(part, alone=alone) for part in parts]
        found = [one for branches in several for one in branches]
        self._check_number(found, union)
        bound = [self._bound(one) for one in found]
        check_widths(union, [len(one.columns) for one in bound], self._source)
        whole = [
            alone and one is part for part, of in zip(parts, several, strict=True) for one in of
        ]
        tables = [_scanned_alone(of, whole=is_) for of, is_ in zip(bound, whole, strict=True)]
        if tables[0] is not None and tables.count(tables[0]) == len(tables):
            return [rows]
        made = _union_columns(bound, self._queries.sandbox)
        return [
            self._one([found[number] for number in some], made[some[0]], rows, names)
            for some in _alike(tables, made)
        ]

    def _bound(self, rows: WrittenRows) -> RowsOfQuery:
        with self._queries.own_ids():
            found = self._queries.rows(rows.query, rows.names, count())
        for made in rows.made:
            found = found.made(made)
        return found

    def _one(
        self,
        together: Sequence[WrittenRows],
        made: tuple[UnionColumn, ...],
        rows: WrittenRows,
        names: Names,
    ) -> WrittenRows:
        """Return one of the queries of a union, or several of one table."""
        first, *others = together
        if not others:
            return replace(first, columns=rows.columns, made=(*first.made, made))
        query: Expr = first.query
        for other in others:
            query = exp.Union(this=query.copy(), expression=other.query.copy(), distinct=False)
        return replace(first, query=query, names=names, columns=rows.columns, made=(made,))

    def _check_number(self, found: Sequence[object], at: Expr) -> None:
        if len(found) > MAX_BRANCHES:
            raise self._source.unsupported(
                at,
                f"UNION ALL puts rows of several tables together in more than {MAX_BRANCHES} ways.",
                "ask for some of them in another statement.",
            )


def _scanned_alone(rows: RowsOfQuery, *, whole: bool) -> Table | None:
    """Return the one table of a query that joins nothing and is no part of a union itself."""
    from dpsql.sql.algebra.set_operations import are_of_one_scan

    return rows.of.counted[0] if whole and are_of_one_scan([rows]) else None


def _alike(
    tables: Sequence[Table | None], made: Sequence[tuple[UnionColumn, ...]]
) -> list[list[int]]:
    """Put the numbers of queries together that are of one table and alike; others are alone."""
    found = list[list[int]]()
    for number, (table, own) in enumerate(zip(tables, made, strict=True)):
        for some in found:
            if table is not None and (tables[some[0]], made[some[0]]) == (table, own):
                some.append(number)
                break
        else:
            found.append([number])
    return found


def _bare(select: exp.Select) -> exp.Select:
    """Return a SELECT without its CTEs, at the same place of the statement."""
    return in_place_of(select, {k: v for k, v in select.args.items() if k != "with_"})


def _with_item(select: exp.Select, number: int, item: Expr) -> exp.Select:
    """Return a SELECT with another item after FROM, at the same place of the statement."""
    if number == 0:
        return in_place_of(select, {**select.args, "from_": exp.From(this=item)})
    joins = list(select.args["joins"])
    joins[number - 1] = exp.Join(**{**joins[number - 1].args, "this": item})
    return in_place_of(select, {**select.args, "joins": joins})


def _union_columns(bound: Sequence[RowsOfQuery], sandbox: Sandbox) -> list[tuple[UnionColumn, ...]]:
    """Return for each of the queries of UNION ALL what its columns are there."""
    found = list[list[UnionColumn]]()
    for own in zip(*(rows.columns for rows in bound), strict=True):
        typed = [
            TypedPart(column.value.node, rows.of.table, rows.relations)
            for column, rows in zip(own, bound, strict=True)
        ]
        pairs = zip(own, bound, strict=True)
        ids = [(id_of(column.value, rows.of.table), rows.of.table) for column, rows in pairs]
        domains = [None if id_ is None else table.columns.get(id_) for id_, table in ids]
        alike = all(domain == domains[0] for domain in domains)
        casts = casts_of(typed, sandbox)
        found.append([UnionColumn(own[0].name, cast, alike) for cast in casts])
    return list(zip(*found, strict=True))
