"""The outline of a statement: which SELECTs count private rows, and what is around them.

A SELECT over the private table is a core. What joins it must be public, and what is above it
(outer queries, CTEs, UNION) computes on noisy answers. A query over public tables alone is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from sqlglot import exp
from sqlglot.helper import ensure_list

from dpsql.errors import Span, SqlSchemaError, printable
from dpsql.schema import Table
from dpsql.sql.binding.bind import RowBinder, check_name
from dpsql.sql.binding.core import Core, JoinKind, Relation
from dpsql.sql.binding.expressions import BoundExpr, Expr, quoted, quoted_column, rebuild, render
from dpsql.sql.binding.items import (
    NOISY,
    PRIVATE,
    PUBLIC,
    Kinds,
    Name,
    Names,
    PrivateItems,
    WrittenRows,
    given_names,
)
from dpsql.sql.binding.joins import JoinedItem, check_sides, has_column, joins_of
from dpsql.sql.binding.output_names import told_apart
from dpsql.sql.binding.relations import materialize, without_unused
from dpsql.sql.binding.rewrite import CoreBinder
from dpsql.sql.binding.row_queries import Home, RowQuery, columns_of
from dpsql.sql.binding.subqueries import Subqueries
from dpsql.sql.binding.tables import NamedTables, Public, Resolve
from dpsql.sql.binding.unions import check_alike, parts_of, union_of
from dpsql.sql.sandbox.database import Sandbox
from dpsql.sql.text.parse import Parsed


@dataclass(frozen=True, slots=True)
class Outlined:
    """A statement: its cores, and the query that computes on their answers."""

    cores: tuple[Core, ...]
    """None if nothing is returned that follows from private rows."""
    tables: tuple[tuple[Table, Span], ...]
    """The private table of each core, and where it is named."""
    query: exp.Query


class Outliner:
    """Outlines the statements of one script; public tables are stored once."""

    def __init__(
        self, sandbox: Sandbox, resolve: Resolve, public: Public, above: float | None = None
    ) -> None:
        self._above = above
        self.tables = NamedTables(sandbox, resolve, public)
        """What the names of tables mean."""

    def outline(self, parsed: Parsed) -> Outlined:
        """Outline one statement whose syntax is allowed.

        Raises:
            SqlError: it joins private tables, or names something unknown.
        """
        visitor = _Visitor(self.tables, self._above, parsed)
        query = visitor.root(parsed.query)
        public = without_unused(query)
        used = {table.name for table in public.find_all(exp.Table)}
        if any(core.table in used for core in visitor.cores):
            return Outlined(tuple(visitor.cores), tuple(visitor.tables), query)
        return Outlined((), tuple(visitor.tables), public)


class _Visitor:
    """Walks through one statement from the outside in, and rewrites it."""

    def __init__(self, tables: NamedTables, above: float | None, parsed: Parsed) -> None:
        self._existing = tables.existing
        self._items = PrivateItems(parsed.source, tables)
        self._above = above  # see `compile_script`
        self._sandbox = tables.sandbox
        self._source = parsed.source
        self._subqueries = Subqueries(parsed.source, self._sandbox, self._items, self._within)
        self.cores: list[Core] = []
        self.tables: list[tuple[Table, Span]] = []

    def root(self, query: exp.Query) -> exp.Query:
        for node in query.find_all(exp.Alias, exp.TableAlias):
            keys = ("alias",) if isinstance(node, exp.Alias) else ("this", "columns")
            for key in keys:
                for name in ensure_list(node.args.get(key)):
                    check_name(name.name, name, self._source)
        found = self._query(query, {}, Kinds())
        if isinstance(found, exp.Select):
            items = told_apart(query.expressions, found.expressions, self._source)
            found.set("expressions", items)
        return found

    def _query(self, node: Expr, names: Names, kinds: Kinds) -> exp.Query:
        """Rewrite a query; `kinds` takes note of what it is over."""
        names, kept = self._with(node, names)
        bare = type(node)(**{k: v for k, v in node.args.items() if k != "with_"})
        if isinstance(node, exp.Select):
            rewritten = self._select(node, bare, names, kinds)
        else:
            rewritten = rebuild(bare, lambda part: self._within(part, names, kinds))
        if kept:
            rewritten.set("with_", exp.With(expressions=kept))
        return rewritten  # type: ignore[return-value]

    def _with(self, node: Expr, names: Names) -> tuple[Names, list[Expr]]:
        """Rewrite the CTEs in front of a query: public ones are stored, noisy ones are kept.

        Those of private rows are inlined where they are named.
        """
        clause = node.args.get("with_")
        if clause is None:
            return names, []
        known = dict(names)
        kept: list[Expr] = []
        for cte in clause.expressions:
            alias = cte.args["alias"]
            name = check_name(cte.alias, alias, self._source)
            rows = self._items.rows_of(cte.this, known, alias)
            if rows is not None:
                known[name.lower()] = Name(PRIVATE, "", rows)
                continue
            inside = Kinds()
            query = self._query(cte.this, known, inside)
            if inside.all == PUBLIC:
                shown = [c.name for c in alias.args.get("columns") or []]
                table, sql = self._sandbox.new_name("public"), render(query)
                materialize(self._sandbox, self._source, table, sql, shown, None, alias)
                known[name.lower()] = Name(PUBLIC, table)
            else:
                known[name.lower()] = Name(NOISY, name)
                kept.append(exp.CTE(this=query, alias=alias.copy()))
        return known, kept

    def _within(self, node: Expr, names: Names, kinds: Kinds) -> Expr:
        """Rewrite anything inside a query that isn't a core."""
        if id(node) in self._subqueries.outside:
            return self._subqueries.outside[id(node)].copy()
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            return self._query(node, names, kinds)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return self._named(node, names, kinds)
        return rebuild(node, lambda part: self._within(part, names, kinds))

    def _named(self, node: exp.Table, names: Names, kinds: Kinds) -> Expr:
        """Rewrite a table's name to the sandbox's name for it."""
        kind, table = self._items.kind(node, names)
        kinds.found.add(kind)
        alias = node.args.get("alias")
        if alias is None:
            alias = exp.TableAlias(this=quoted(node.name))
        return exp.Table(this=quoted(table), alias=alias.copy())

    def _select(self, node: exp.Select, bare: Expr, names: Names, kinds: Kinds) -> Expr:
        joins = joins_of(node, self._source)
        place = self._items.among(joins, names)
        if place is None:
            check_sides(joins, None, self._source, plain=False)
            return rebuild(bare, lambda part: self._within(part, names, kinds))
        kinds.found.add(NOISY)
        return self._core(node, joins, place, names)

    def _core(
        self, node: exp.Select, joins: list[JoinedItem], place: JoinedItem, names: Names
    ) -> exp.Select:
        home = self._home(place.item, names)
        binder = CoreBinder(
            self._source,
            node,
            home,
            public=partial(self._subqueries.public, names=names),
            noisy=partial(self._subqueries.noisy, names=names),
        )
        check_sides(joins, place, self._source, plain=home.query is None)
        own, joined = self._joined(joins, place, home, binder, names)
        relations = (*home.relations, *own)
        exist = self._existing.of(home.table)
        name = self._sandbox.new_name("answer")
        core, left = binder.core(name, relations, joined, exist, self._above)
        self.cores.append(core)
        self.tables.append((home.table, home.span))
        return left

    def _home(self, item: Expr, names: Names) -> Home:
        """Return the private table after FROM, or the query of its rows."""
        rows = self._items.rows(item, names)
        if rows is None:
            return Home(*self._items.table(item), item.alias or None)
        home, query = self._row_query(rows)
        query = query.renamed(rows.columns).renamed(given_names(item.args.get("alias")))
        return Home(home.table, home.span, item.alias_or_name or None, query)

    def _row_query(self, rows: WrittenRows) -> tuple[Home, RowQuery]:
        """Bind a query of private rows; return what it is over, and what it consists of."""
        select = rows.query
        if isinstance(select, exp.SetOperation):
            return self._union(select, rows)
        names, _ = self._with(select, rows.names)
        joins = joins_of(select, self._source)
        place = self._items.among(joins, names) or joins[0]
        home = self._home(place.item, names)
        public = partial(self._subqueries.public, names=names)
        binder = RowBinder(self._source, select, home, public)
        check_sides(joins, place, self._source, plain=False)
        own, joined = self._joined(joins, place, home, binder, names)
        where = select.args.get("where")
        if where is not None:
            joined += binder.conditions(where.this)
        span = self._source.node(where) if where is not None else home.where
        sides: list[Home | Relation] = [*own]
        sides.insert(joins.index(place), home)
        columns = columns_of(select, binder, list(zip(joins, sides, strict=True)), self._source)
        relations = (*home.relations, *own)
        return home, RowQuery(columns, relations, tuple(joined), binder.named, span)

    def _union(self, query: exp.SetOperation, rows: WrittenRows) -> tuple[Home, RowQuery]:
        """Bind UNION ALL of queries of private rows; see `unions`."""
        names, _ = self._with(query, rows.names)
        written = (self._items.rows_of(part, names, None) for part in parts_of(query))
        homes, queries = zip(*map(self._row_query, filter(None, written)), strict=True)
        check_alike(homes, queries, query, self._source)
        return homes[0], union_of(queries, query, self._sandbox, self._source)

    def _joined(
        self,
        joins: list[JoinedItem],
        place: JoinedItem,
        home: Home,
        binder: RowBinder,
        names: Names,
    ) -> tuple[list[Relation], list[BoundExpr]]:
        """Bind what a SELECT joins with private rows; return it, and the conditions on all rows."""
        others = [join for join in joins if join is not place]
        first = len(home.relations)
        relations = [self._relation(i, join, names) for i, join in enumerate(others, first)]
        for relation, join in zip(relations, others, strict=True):
            binder.scope.add(relation)
            binder.scope.merge((*join.using, *place.using))
        turned = self._conditions(place, relations, None, binder)
        joined = [*home.conjuncts, *(turned if place.turned is None else ())]
        for i, join in enumerate(others):
            kind, on = join.kind, self._conditions(join, relations[:i], relations[i], binder)
            if place.turned is not None:  # it is the second item, and what is before it the first
                kind, on = (place.turned, turned) if i == 0 else (kind, on)
            joined += on if kind == "inner" else ()
            relations[i] = replace(relations[i], kind=kind, on=() if kind == "inner" else on)
            using = join.using if place.turned is None else place.using
            self._check_using(kind, using, join)
            binder.scope.keep(using if kind == "right" else ())
        return relations, joined

    def _check_using(self, kind: JoinKind, using: Sequence[str], join: JoinedItem) -> None:
        """Refuse a column that would be of one side in some rows, and of the other in others."""
        if using and kind == "full":
            raise self._source.unsupported(
                join.item,
                "USING is not supported in a FULL join.",
                f"write ON and the condition, and name columns of {printable(join.item.name)}.",
            )

    def _conditions(
        self,
        join: JoinedItem,
        before: list[Relation],
        relation: Relation | None,
        binder: RowBinder,
    ) -> tuple[BoundExpr, ...]:
        """Bind what stands after ON or USING; `relation` is None for the private table."""
        found = list(binder.conditions(join.on)) if join.on is not None else []
        for name in join.using:
            found.append(self._equal(name, before, relation, join, binder))
        return tuple(found)

    def _equal(
        self,
        name: str,
        before: list[Relation],
        relation: Relation | None,
        join: JoinedItem,
        binder: RowBinder,
    ) -> BoundExpr:
        """Bind `left.name = right.name`, which is what USING means."""
        sides: list[Expr] = [] if relation is None else [quoted_column(name, relation.alias)]
        others = [quoted_column(name, other.alias) for other in before if has_column(name, other)]
        if relation is None or binder.scope.has(name):
            sides.append(quoted_column(name))
        if len(sides) < 2 and others:
            sides.append(others[0])
        known = relation is None or has_column(name, relation)
        if len(sides) < 2 or not known:
            raise self._source.error(
                join.item,
                f"USING names {printable(name)}, which is not a column of both sides.",
                "write ON and the condition.",
                SqlSchemaError,
            )
        span = self._source.node(join.item)
        return replace(binder.bind(exp.EQ(this=sides[0], expression=sides[1])), span=span)

    def _relation(self, number: int, join: JoinedItem, names: Names) -> Relation:
        """Store what is joined as a table of the sandbox."""
        kinds = Kinds()
        item = self._within(join.item, names, kinds)
        span = self._source.node(join.item)
        if kinds.all == NOISY:
            raise self._source.unsupported(
                join.item,
                "Noisy answers can't be joined with private rows.",
                "join two noisy answers: WITH a AS (SELECT …), b AS (SELECT …) SELECT … FROM a "
                "JOIN b USING (sex).",
            )
        table = self._sandbox.new_name("relation")
        given = list(given_names(join.item.args.get("alias")))
        sql = f"SELECT * FROM {render(item)}"
        columns, rows = materialize(
            self._sandbox, self._source, table, sql, given, number, join.item
        )
        name = join.item.alias or join.item.name
        return Relation(number, name, columns, table, rows, join.kind, (), span)
