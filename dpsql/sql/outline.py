"""The outline of a statement: which SELECTs count private rows, and what is around them.

A SELECT over the private table is a core. What joins it must be public, and what is above it
(outer queries, CTEs, UNION) computes on noisy answers. A query over public tables alone is public.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from sqlglot import exp
from sqlglot.helper import ensure_list

from dpsql.errors import SchemaError, Span, SqlError, SqlSchemaError
from dpsql.hints import Hint, never
from dpsql.schema import Table
from dpsql.schema.names import folded
from dpsql.sql.binding.bind import RowBinder, Visits, check_name
from dpsql.sql.binding.conditions import check_using, conditions_of
from dpsql.sql.binding.core import Core, Relation
from dpsql.sql.binding.expressions import BoundExpr, Expr, quoted, rebuild, render
from dpsql.sql.binding.items import PrivateItems
from dpsql.sql.binding.joins import JoinedItem, check_sides, joins_of
from dpsql.sql.binding.named import (
    NOISY,
    PRIVATE,
    PUBLIC,
    Kinds,
    Name,
    Names,
    WrittenRows,
    given_names,
)
from dpsql.sql.binding.output_names import told_apart
from dpsql.sql.binding.over_units import NeedsRelationsError
from dpsql.sql.binding.presence import met_by, tightened
from dpsql.sql.binding.private.grains import grain_of
from dpsql.sql.binding.private.sides import Grained, PrivateSides, Referred
from dpsql.sql.binding.relations import materialize, stored_relation, without_unused
from dpsql.sql.binding.rewrite import CoreBinder
from dpsql.sql.binding.row_queries import Home, RowQuery, columns_of
from dpsql.sql.binding.subqueries import Subqueries
from dpsql.sql.binding.tables import NamedTables
from dpsql.sql.binding.unions.added_up import AddedUpBinder, B, Branch
from dpsql.sql.binding.unions.branches import Branches
from dpsql.sql.text.parse import Parsed


@dataclass(frozen=True, slots=True)
class Outlined:
    """A statement: its cores, and the query that computes on their answers."""

    cores: tuple[Core, ...]
    """None if nothing is returned that follows from private rows."""
    tables: tuple[tuple[Table, Span], ...]
    """The private table of each core, and where it is named."""
    query: exp.Query
    related: bool = False
    """Whether it is over relations."""
    of_units: bool = False
    """Whether rows are put together by unit in it."""
    refused: SqlError | None = None
    """The reason why it isn't answered otherwise."""


class Outliner:
    """Outlines the statements of one script; public tables are stored once.

    Args:
        tables: what the names of tables mean.
        above: see `compile_script`.
    """

    def __init__(self, tables: NamedTables, above: float | None = None) -> None:
        self.tables, self._above = tables, above

    def outline(self, parsed: Parsed, visitor_of: type[Visitor] | None = None) -> Outlined:
        """Outline one statement whose syntax is allowed.

        Args:
            parsed: the statement.
            visitor_of: walks through it.

        Raises:
            SqlError: it joins private tables, or names something unknown.
        """
        visitor_of = visitor_of or Visitor
        visitor = visitor_of(self.tables, self._above, parsed)
        query = visitor.root(parsed.query)
        public = without_unused(query)
        used = {table.name for table in public.find_all(exp.Table)}
        if any(core.table in used for core in visitor.cores):
            return Outlined(
                tuple(visitor.cores), tuple(visitor.tables), query, of_units=visitor.of_units
            )
        return Outlined((), tuple(visitor.tables), public)


class Visitor:
    """Walks through one statement from the outside in, and rewrites it."""

    of_units = False
    """Whether rows are put together by unit in it."""

    def __init__(self, tables: NamedTables, above: float | None, parsed: Parsed) -> None:
        self._existing, self._grain = tables.existing, tables.grain
        self._items = PrivateItems(parsed.source, tables)
        self.relations = tables
        self._above, self._sandbox = above, tables.sandbox  # see `compile_script`
        self._source = source = parsed.source
        self._subqueries = Subqueries(
            parsed.source, self._sandbox, self._items, self._within, self._meet
        )
        self._branches = Branches(source, self._items, self._sandbox, self._made, self._with)
        self.cores: list[Core] = []
        self.tables: list[tuple[Table, Span]] = []

    def root(self, query: exp.Query) -> exp.Query:
        """Rewrite a statement."""
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
            inlined = self._inlined(cte, known)
            if inlined is not None:
                known[folded(name)] = inlined
                continue
            inside = Kinds()
            query = self._query(cte.this, known, inside)
            if inside.all == PUBLIC:
                shown = [c.name for c in alias.args.get("columns") or []]
                table, sql = self._sandbox.new_name("public"), render(query)
                materialize(self._sandbox, self._source, table, sql, shown, None, alias)
                known[folded(name)] = Name(PUBLIC, table)
            else:
                known[folded(name)] = Name(NOISY, name)
                kept.append(exp.CTE(this=query, alias=alias.copy()))
        return known, kept

    def _inlined(self, cte: exp.CTE, names: Names) -> Name | None:
        """Return the meaning of a CTE that is inlined where it is named; None if it isn't."""
        alias = cte.args["alias"]
        rows = self._items.rows_of(cte.this, names, alias)
        return None if rows is None else Name(PRIVATE, "", rows)

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
        private = self._items.among(joins, names)
        if not private:
            check_sides(joins, None, self._source, plain=False)
            return rebuild(bare, lambda part: self._within(part, names, kinds))
        kinds.found.add(NOISY)
        self._check_semi(joins, names)
        return self._core(node, names)

    def _check_semi(self, joins: list[JoinedItem], names: Names) -> None:
        """Leave SEMI and ANTI joins with rows of the same unit to relations."""
        private = self._items.among(joins, names)
        chosen = [join for join in private if join.kind in {"semi", "anti"} and join.on is not None]
        if chosen and len(chosen) < len(private) and self._have_units(private, names):
            raise NeedsRelationsError

    def _have_units(self, private: list[JoinedItem], names: Names) -> bool:
        """Whether rows of some private items are of units."""
        items = [self._items.base(join.item, names) for join in private]
        return any(self._items.table(item)[0].unit is not None for item in items)

    def _core(self, node: exp.Select, names: Names) -> exp.Select:
        name = self._sandbox.new_name("answer")
        spread = self._branches.of(node, names)
        if len(spread) > 1:
            all_ = [self._branch(*one, RowBinder) for one in spread]
            union = AddedUpBinder(self._source, node, self._visits(names), all_, self._sandbox)
            cores, left = union.cores(name, self._above)
        else:
            one = self._branch(node, names, CoreBinder)
            core, left = one.binder.core(name, one.relations, one.joined, one.exist, self._above)
            cores = [(core, one.home)]
        for core, home in cores:
            core = tightened(core, home.table, map(met_by, home.table.parents))
            self.cores.append(core)
            self.tables.append((home.table, home.span))
            self.relations.count(home.table)
        return left

    def _branch(self, node: exp.Select, names: Names, bound_by: type[B]) -> Branch[B]:
        joins = joins_of(node, self._source)
        sides = self._sides(node, self._items.among(joins, names), names)
        binder = bound_by(self._source, node, sides.home, self._visits(names))
        check_sides(joins, sides.place, self._source, plain=sides.home.query is None)
        own, joined = self._joined(joins, sides, binder, names)
        exist = self._existing.of(sides.home.table)
        return Branch(binder, sides.home, (*sides.relations, *own), tuple(joined), exist)

    def _visits(self, names: Names) -> Visits:
        """Return what becomes of subqueries where names mean that."""
        return Visits(
            partial(self._subqueries.public, names=names),
            self._no_rows,
            partial(self._subqueries.noisy, names=names),
        )

    def _meet(self, table: Table, at: Expr) -> None:
        """Leave rows of a private table that others meet to relations, if they are of units."""
        if table.unit is not None:
            raise NeedsRelationsError

    def _no_rows(self, node: Expr, binder: RowBinder) -> BoundExpr | None:
        """Know of no subquery over rows of the same unit: these are columns of relations."""

    def _sides(
        self,
        select: exp.Select,
        private: list[JoinedItem],
        names: Names,
        at: Grained | None = None,
        first: int = 0,
    ) -> PrivateSides:
        """Return what a SELECT counts, and the rows of other private tables that it refers to.

        Args:
            select: the SELECT.
            private: the items after FROM whose rows are private.
            names: what names mean there.
            at: of which table's rows it is asked, if another is counted, and what it is of them.
            first: the number of its first public relation.

        Raises:
            UnsupportedSqlError: the join isn't told by what rows refer to.
        """
        if len(private) == 1:
            return PrivateSides(private[0], self._home(private[0].item, names, at, first))
        try:
            homes = [self._home(join.item, names) for join in private]
        except SqlSchemaError as error:
            self._items.add_hint(error, private, names)
            raise
        where = select.args.get("where")
        condition = where.this if where is not None else None
        try:
            found = grain_of(private, homes, condition, self._grain, self._source)
        except SqlError:
            raise
        except SchemaError as error:
            raise self._source.located(error, private[1].item) from None
        if found is None:
            if all(home.table.unit is not None for home in homes):
                self._meet(homes[0].table, private[1].item)
            grains = [self._grain(home.table) for home in homes]
            raise self._items.no_grain(private, names, grains)
        child, referred = private[found.child], list[Referred]()
        within = at or Grained(found.table)
        home = self._home(child.item, names, within, first)
        first += len(home.relations)
        for number, step in found.parents.items():
            join = private[number]
            below = self._home(join.item, names, within.at(step), first)
            first += len(below.relations)
            referred.append(Referred(join, step, below))
        return PrivateSides(child, home, tuple(referred), found.used)

    def _home(self, item: Expr, names: Names, at: Grained | None = None, first: int = 0) -> Home:
        """Return the private table after FROM, or the query of its rows; see `_sides`."""
        rows = self._items.rows(item, names)
        if rows is None:
            table, span = self._items.table(item)
            of, parent = (table, None) if at is None else (at.table, at.parent)
            return Home(of, span, item.alias or None, parent=parent)
        home, query = self._made(rows, at, first)
        query = query.renamed(rows.columns).renamed(given_names(item.args.get("alias")))
        return Home(home.table, home.span, item.alias_or_name or None, query, home.parent)

    def _made(
        self, rows: WrittenRows, at: Grained | None = None, first: int = 0
    ) -> tuple[Home, RowQuery]:
        """Bind a query of private rows, with its columns as those of UNION ALL if it is in one."""
        home, query = self._row_query(rows, at, first)
        for columns in rows.made:
            query = query.made(columns)
        return home, query

    def _row_query(
        self, rows: WrittenRows, at: Grained | None, first: int
    ) -> tuple[Home, RowQuery]:
        """Bind a query of private rows; return what it is over, and what it consists of."""
        select = rows.query
        if isinstance(select, exp.SetOperation):
            return self._branches.together(select, rows)
        names, _ = self._with(select, rows.names)
        joins = joins_of(select, self._source)
        self._check_semi(joins, names)
        sides = self._sides(select, self._items.among(joins, names), names, at, first)
        home = sides.home
        binder = _QueryBinder(self._source, select, home, self._visits(names))
        check_sides(joins, sides.place, self._source, plain=False)
        own, joined = self._joined(joins, sides, binder, names, first)
        where = select.args.get("where")
        if where is not None:
            joined += binder.conditions(where.this)
        if home.table.unit is not None and select.args.get("qualify") is not None:
            raise NeedsRelationsError
        relations = (*sides.relations, *own)
        span = self._source.node(where) if where is not None else home.where
        found = iter(own)
        items = [(j, sides.of(j) or next(found)) for j in joins]
        columns = columns_of(select, binder, items, self._source)
        return home, RowQuery(columns, relations, tuple(joined), binder.named, span)

    def _joined(
        self,
        joins: list[JoinedItem],
        sides: PrivateSides,
        binder: RowBinder,
        names: Names,
        first: int = 0,
    ) -> tuple[list[Relation], list[BoundExpr]]:
        """Bind what a SELECT joins with private rows.

        Returns:
            The public relations, and the conditions on all rows.
        """
        place = sides.place
        others = [join for join in joins if sides.of(join) is None]
        first += len(sides.relations)
        relations = [self._relation(i, join, names) for i, join in enumerate(others, first)]
        for relation, join in zip(relations, others, strict=True):
            binder.scope.add(relation)
            binder.scope.merge((*join.using, *place.using))
        referred = sides.conditions(binder, self._source)
        using = tuple(name for name in place.using if not sides.is_step(name))
        turned = conditions_of(replace(place, using=using), relations, None, binder)
        joined = [*sides.home.conjuncts, *(turned if place.turned is None else ()), *referred]
        for i, join in enumerate(others):
            kind, on = join.kind, conditions_of(join, relations[:i], relations[i], binder)
            if place.turned is not None:  # it is the second item, and what is before it the first
                kind, on = (place.turned, turned) if i == 0 else (kind, on)
            joined += on if kind == "inner" else ()
            relations[i] = replace(relations[i], kind=kind, on=() if kind == "inner" else on)
            if kind in {"semi", "anti"}:
                binder.scope.hide(relations[i])
            using = join.using if place.turned is None else place.using
            check_using(kind, using, join, self._source)
            binder.scope.keep(using if kind == "right" else ())
        return relations, joined

    def _relation(self, number: int, join: JoinedItem, names: Names) -> Relation:
        """Store what is joined as a table of the sandbox."""
        kinds = Kinds()
        item = self._within(join.item, names, kinds)
        if kinds.all == NOISY:
            raise self._source.unsupported(
                join.item,
                "Noisy answers can't be joined with private rows.",
                never(
                    "a statement has either private rows or noisy answers in one FROM. Join two "
                    "noisy answers: WITH a AS (SELECT …), b AS (SELECT …) SELECT … FROM a JOIN b "
                    "USING (sex); or release what is to be joined by itself, and make it a public "
                    "table, "
                )
                + Hint('public={"chosen": frame}.', "--public chosen."),
            )
        given = given_names(join.item.args.get("alias"))
        return stored_relation(number, join, item, given, self._sandbox, self._source)


class _QueryBinder(RowBinder):
    """Binds what a query of private rows is of, in which windows are of the rows of a unit."""

    def _over_rows(self, node: exp.Window) -> Exception:
        return super()._over_rows(node) if self.table.unit is None else NeedsRelationsError()
