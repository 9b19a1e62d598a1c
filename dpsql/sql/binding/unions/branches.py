"""UNION ALL of rows of several tables: a query over it is one over each of them.

    FROM (SELECT day, 'order' AS kind FROM orders UNION ALL SELECT day, 'visit' FROM visits) AS s
    JOIN days USING (day) WHERE weekend

has the rows of `FROM (SELECT day, 'order' …) AS s JOIN days USING (day) WHERE weekend`, and those
of the same with visits: projections, conditions, and joins that keep all rows of a side or leave
some out are the same for a union of rows as for each of its parts,

    f(A ⊎ B) = f(A) ⊎ f(B)      for σ, π, A ⋈ C, A ⟕ C, A ⋉ C and A ▷ C,

as they look at one row of A at a time. So a SELECT over such rows is written as several, the
*branches*, of which each has one of the queries in the place of their union, also where the union
stands further inside, in a query of rows. What is counted in them is added up, see `added_up.py`.
No new rows are reached in this way: each branch is a SELECT that could have been asked by itself.

Queries over one table that join nothing stay together: a join with their numbers is planned as
what it is, see `numbered.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from sqlglot import exp

from dpsql.errors import SqlError
from dpsql.schema.names import capitals
from dpsql.sql.binding.expressions import Expr, quoted, quoted_column
from dpsql.sql.binding.items import PrivateItems
from dpsql.sql.binding.joins import JoinedItem, joins_of
from dpsql.sql.binding.named import PRIVATE, Name, Names, WrittenRows
from dpsql.sql.binding.row_queries import UNNAMED, Home, RowQuery
from dpsql.sql.binding.unified import TypedPart, UnionColumn, casts_of, parts_of
from dpsql.sql.binding.unions.numbered import check_widths, union_of
from dpsql.sql.sandbox.database import Sandbox
from dpsql.sql.text.spans import JOINS, SourceText

MAX_BRANCHES = 32
"""Branches of one SELECT; two unions of four queries that are joined have 16."""
Bound = tuple[Home, RowQuery]
"""Whose rows a query has, and what it consists of."""


class Branches:
    """Finds the branches of the SELECTs of one statement.

    Args:
        source: its text.
        items: tells items after FROM apart.
        sandbox: where public tables are stored.
        bind: binds a query of private rows.
        inside: says what names mean in a query, given what they mean around it.
    """

    def __init__(
        self,
        source: SourceText,
        items: PrivateItems,
        sandbox: Sandbox,
        bind: Callable[[WrittenRows], Bound],
        inside: Callable[[Expr, Names], tuple[Names, list[Expr]]],
    ) -> None:
        self._source, self._items, self._sandbox = source, items, sandbox
        self._bind, self._inside = bind, inside
        self._numbers = count()

    def of(
        self, select: exp.Select, names: Names, *, alone: bool = True
    ) -> list[tuple[exp.Select, Names]]:
        """Return the branches of a SELECT, with what names mean in each; itself if there is one.

        Args:
            select: the SELECT.
            names: what names mean there.
            alone: whether its rows meet no other private ones.

        Raises:
            SqlError: rows of the union are kept by a join that would have to look at all of it.
        """
        joins = joins_of(select, self._source)
        private = self._items.among(joins, names)
        found = [(select, names)]
        for number, join in enumerate(joins):
            rows = self._items.rows(join.item, names) if join in private else None
            if rows is None or join.kind in {"semi", "anti"}:  # these are EXISTS, or refused
                continue
            several = self._queries(rows, alone=alone and len(private) == 1)
            if several[0] is rows:
                continue
            self._check_kept(joins, number)
            found = [
                one for before in found for one in self._replaced(*before, number, join, several)
            ]
            self._check_number(found, join.item)
        return found

    def together(self, union: exp.SetOperation, rows: WrittenRows) -> Bound:
        """Bind UNION ALL of queries of rows of one table that join nothing; see `unions`."""
        inside, _ = self._inside(union, rows.names)
        parts = [self._items.rows_of(part, inside, None) for part in parts_of(union)]
        bound = [self._bind(part) for part in parts if part is not None]
        (home, *others), queries = zip(*bound, strict=True)
        check_widths(queries, union, self._source)
        same = all(other.table == home.table for other in others)
        if not same or any(query.relations for query in queries):
            raise self._source.unsupported(
                union,
                "UNION ALL of rows of several tables, or of joins, is not supported here.",
                "ask each table by itself: EXISTS (…) OR EXISTS (…), or the sum of "
                "what two subqueries count.",
            )
        return home, union_of(home.table, queries, union, self._sandbox, self._source)

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
        for rows in several:
            name = f"\n{next(self._numbers)}"  # which is nobody's else: it can't be written
            item = exp.Table(this=quoted(name), alias=alias.copy())
            item.this.meta.update(self._items.base(join.item, names).this.meta)
            yield _with_item(select, number, item), {**names, name: Name(PRIVATE, "", rows)}

    def _queries(self, rows: WrittenRows, *, alone: bool) -> list[WrittenRows]:
        """Return the queries whose rows a query puts together; itself if it is one."""
        query, names = rows.query, rows.names
        if isinstance(query, exp.SetOperation):
            return self._of_union(rows, query, self._inside(query, names)[0], alone=alone)
        branches = self.of(query, self._items.names_in(query, names), alone=alone)
        if len(branches) == 1:
            return [rows]
        self._check_windows(query)
        return [replace(one, columns=rows.columns) for one in self._written(branches)]

    def _written(self, branches: Sequence[tuple[exp.Select, Names]]) -> Iterator[WrittenRows]:
        for select, names in branches:
            rows = self._items.rows_of(select, names, None)
            if rows is not None:
                yield rows

    def _of_union(
        self, rows: WrittenRows, union: exp.SetOperation, inside: Names, *, alone: bool
    ) -> list[WrittenRows]:
        """Return the queries of UNION ALL; those of one table that join nothing are together."""
        parts = [self._items.rows_of(part, inside, None) for part in parts_of(union)]
        found = [
            one for part in parts if part is not None for one in self._queries(part, alone=alone)
        ]
        self._check_number(found, union)
        bound = [self._bind(one) for one in found]
        check_widths([query for _, query in bound], union, self._source)
        plain = [
            alone and any(one is part for part in parts) and not query.relations
            for one, (_, query) in zip(found, bound, strict=True)
        ]
        tables = [home.table for home, _ in bound]
        if all(plain) and all(table == tables[0] for table in tables):
            return [rows]
        made = _union_columns(bound, self._sandbox)
        together = list[list[int]]()
        for number, table in enumerate(tables):
            same = (
                some for some in together if plain[number] and _alike(some, plain, tables, table)
            )
            own = [some for some in same if all(made[i] == made[number] for i in some)]
            if own:
                own[0].append(number)
            else:
                together.append([number])
        return [
            self._one([found[number] for number in some], made[some[0]], rows, inside)
            for some in together
        ]

    def _one(
        self,
        together: Sequence[WrittenRows],
        made: tuple[UnionColumn, ...],
        rows: WrittenRows,
        inside: Names,
    ) -> WrittenRows:
        """Return one of the queries of a union, or several of one table."""
        first, *others = together
        if not others:
            return replace(first, columns=rows.columns, made=(*first.made, made))
        query: Expr = first.query
        for other in others:
            query = exp.Union(this=query.copy(), expression=other.query.copy(), distinct=False)
        found = self._items.rows_of(query, inside, None)
        return replace(found or first, columns=rows.columns, made=(made,))

    def _check_kept(self, joins: Sequence[JoinedItem], number: int) -> None:
        """Refuse joins that look for what no row of the whole union meets."""
        kinds = {join.kind for join in joins[number + 1 :]} & {"right", "full"}
        own = {joins[number].kind} & {"left", "full"}
        if kinds or own:
            kind = capitals((kinds | own).pop())
            raise self._source.unsupported(
                self._source.clause(*JOINS) or joins[number].item,
                f"A {kind} join of UNION ALL of rows of several tables is not supported here: it "
                "keeps rows of the other side without a match.",
                "use JOIN: groups without rows are in the answer anyway.",
            )

    def _check_windows(self, select: exp.Select) -> None:
        """Refuse windows over rows of all branches: of each by itself they would be others."""
        parts = [*select.expressions, select.args.get("where"), select.args.get("qualify")]
        window = next((w for part in parts if part is not None for w in _windows(part)), None)
        if window is not None:
            raise self._source.unsupported(
                window,
                "A window over UNION ALL of rows of several tables is not supported.",
                "put it into each of the queries of UNION ALL, over the rows of one table.",
            )

    def _check_number(self, found: Sequence[object], at: Expr) -> None:
        if len(found) > MAX_BRANCHES:
            raise self._source.unsupported(
                at,
                f"UNION ALL puts rows of several tables together in more than {MAX_BRANCHES} ways.",
                "ask for some of them in another statement.",
            )


def _windows(node: Expr) -> Iterator[exp.Window]:
    """Yield the windows in an expression that aren't those of subqueries."""
    if isinstance(node, exp.Window):
        yield node
    elif not isinstance(node, exp.Query):
        for part in node.iter_expressions():
            yield from _windows(part)


def _alike(
    some: Sequence[int], plain: Sequence[bool], tables: Sequence[object], table: object
) -> bool:
    """Whether queries may stay together with one of a table that joins nothing."""
    return all(plain[number] and tables[number] == table for number in some)


def _with_item(select: exp.Select, number: int, item: Expr) -> exp.Select:
    """Return a SELECT with another item after FROM, at the same place of the statement."""
    found = exp.Select(**select.args)
    if number == 0:
        found.set("from_", exp.From(this=item))
    else:
        joins = list(select.args["joins"])
        joins[number - 1] = exp.Join(**{**joins[number - 1].args, "this": item})
        found.set("joins", joins)
    found.parent = select.parent
    return found


def _union_columns(bound: Sequence[Bound], sandbox: Sandbox) -> list[tuple[UnionColumn, ...]]:
    """Return for each of the queries of UNION ALL what its columns are there."""
    found = list[list[UnionColumn]]()
    for own in zip(*(query.columns for _, query in bound), strict=True):
        places = [(column, column.at(quoted_column(column.name))) for column in own]
        try:
            nodes = [column.inside.bind(place).node for column, place in places]
        except SqlError:  # which will be told where the column is used
            nodes = []
        typed = [
            TypedPart(node, home.table, query.relations)
            for node, (home, query) in zip(nodes, bound, strict=False)
        ]
        domains = [column.inside.domain_of(place) for column, place in places]
        alike = len({None if known is None else known[1] for known in domains}) == 1
        casts = casts_of(typed, sandbox) if typed else [""] * len(own)
        found.append([UnionColumn(own[0].name, cast, alike) for cast in casts])
    return list(zip(*found, strict=True))
