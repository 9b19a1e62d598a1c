"""Statements over relations of rows: what each SELECT counts, and what is left around it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from sqlglot import exp

from dpsql.errors import SchemaError, Span, SqlError
from dpsql.rel.check import check
from dpsql.schema import Table
from dpsql.schema.names import capitals
from dpsql.sql.algebra.described import units_of
from dpsql.sql.algebra.meeting import met_rows
from dpsql.sql.algebra.normal import NormalRows, normal_rows
from dpsql.sql.algebra.queries import Queries
from dpsql.sql.algebra.selects import RowsOfSelect
from dpsql.sql.algebra.visible import RelationHome, Visible
from dpsql.sql.binding.bind import Visits
from dpsql.sql.binding.conditions import check_using, conditions_of
from dpsql.sql.binding.core import Core, Relation
from dpsql.sql.binding.existing import Existing
from dpsql.sql.binding.expressions import BoundExpr, Expr, conjuncts, rebuild
from dpsql.sql.binding.joins import JoinedItem, check_sides, joins_of
from dpsql.sql.binding.named import NOISY, PRIVATE, Kinds, Name, Names
from dpsql.sql.binding.rewrite import CoreBinder
from dpsql.sql.outline import Visitor
from dpsql.sql.text.spans import JOINS


@dataclass(frozen=True, slots=True)
class _Counted:
    """The rows that a SELECT counts: what it sees of them, and what is true of them."""

    visible: Visible
    where: tuple[BoundExpr, ...]
    exist: Sequence[Existing] = ()
    normal: NormalRows | None = None


class RelationVisitor(Visitor):
    """Walks through one statement, in which queries of rows become relations."""

    _queries: Queries

    def root(self, query: exp.Query) -> exp.Query:
        """Rewrite a statement."""
        self._queries = Queries(
            self._source, self._items, self._subqueries, query, self._relation, self._named_in
        )
        self._meant: dict[tuple[int, tuple[int, ...]], tuple[Expr, Names]] = {}
        try:
            return super().root(query)
        except SqlError as error:
            error.of_units = self._queries.has_groups
            raise
        finally:
            self.of_units = self._queries.has_groups

    def _named_in(self, node: Expr, names: Names) -> Names:
        key = id(node), tuple(sorted(map(id, names.values())))
        if key not in self._meant:
            self._meant[key] = node, self._with(node, names)[0]
        return self._meant[key][1]

    def _inlined(self, cte: exp.CTE, names: Names) -> Name | None:
        private = self._queries.kind(cte.this, names) == PRIVATE
        return self._queries.named(cte, names) if private else None

    def _select(self, node: exp.Select, bare: Expr, names: Names, kinds: Kinds) -> Expr:
        joins = joins_of(node, self._source)
        if not any(self._queries.item_kind(join.item, names) == PRIVATE for join in joins):
            check_sides(joins, None, self._source, plain=False)
            return rebuild(bare, lambda part: self._within(part, names, kinds))
        kinds.found.add(NOISY)
        with self._queries.own_ids():
            return self._core(node, names)

    def _core(self, node: exp.Select, names: Names) -> exp.Select:
        source, queries = self._source, self._queries
        rows = RowsOfSelect(queries, node, names, core=True)
        joins = joins_of(node, source)
        self._check_kept(joins, names)
        left = met_rows(rows, joins, cells=True)
        select = self._prepared(rows, node, left)
        self._choose(rows, select)
        others = [j for j in joins if queries.item_kind(j.item, names) != PRIVATE]
        private = next(j for j in joins if j not in others)
        span = source.node(private.item)
        check(rows.of.relation)
        try:
            counted = self._counted(rows, span)
        except SqlError:
            raise
        except SchemaError as error:
            raise source.located(error, span) from None
        table = counted.visible.table
        home = RelationHome(table, span, None, visible=counted.visible)
        visits = Visits(
            partial(self._subqueries.public, names=names),
            self._no_rows,
            partial(self._subqueries.noisy, names=names),
        )
        binder = CoreBinder(source, select, home, visits)
        relations, joined = list[Relation](), list(counted.where)
        for number, join in enumerate(others):
            relations.append(self._relation(number, join, names))
            binder.scope.add(relations[-1])
            binder.scope.merge(join.using)
        for i, join in enumerate(others):
            on = conditions_of(join, relations[:i], relations[i], binder)
            joined += on if join.kind == "inner" else ()
            relations[i] = replace(
                relations[i], kind=join.kind, on=() if join.kind == "inner" else on
            )
            if join.kind in {"semi", "anti"}:
                binder.scope.hide(relations[i])
            check_using(join.kind, join.using, join, source)
        name = self._sandbox.new_name("answer")
        core, rest = binder.core(name, relations, joined, counted.exist, self._above)
        core = core if counted.normal is None else counted.normal.tightened(core)
        self._check_bounded(core, counted.visible)
        self.cores.append(core)
        self.tables.append((table, span))
        return rest

    def _choose(self, rows: RowsOfSelect, select: exp.Select) -> None:
        """Let conditions hold first by which a unit has fewer rows: those on places of rows."""
        where = select.args.get("where")
        said = [] if where is None else conjuncts(where.this)
        bound = {i: one for i, part in enumerate(said) if (one := self._of_rows(rows, part))}
        taken = rows.choose([*rows.where, *bound.values()])
        own = len(rows.where)
        rows.where = tuple(
            one for one, is_taken in zip(rows.where, taken, strict=False) if not is_taken
        )
        done = {i for i, is_taken in zip(bound, taken[own:], strict=True) if is_taken}
        if done:
            left = [part for i, part in enumerate(said) if i not in done]
            select.set("where", exp.Where(this=exp.and_(*left)) if left else None)

    def _of_rows(self, rows: RowsOfSelect, part: Expr) -> BoundExpr | None:
        """Bind a condition, if it is about rows alone."""
        with suppress(SqlError):
            return rows.bound(part)
        return None

    def _counted(self, rows: RowsOfSelect, span: Span) -> _Counted:
        """Return the rows that are counted as those of a table, with conditions on them."""
        of, notes = rows.of, tuple(self._queries.notes)
        normal, visible = normal_rows(of, self.relations), rows.visible()
        loose = normal is not None and normal.adds and notes
        if normal is None or loose or not self.relations.count(normal.table):
            if normal is not None and loose:
                known = [n for n in (of.most, normal.table.unit_rows) if n is not None]
                of = replace(of, most=min(known, default=None))
            table = self.relations.related(of.related(units_of(of), notes))
            return _Counted(replace(visible, table=table), rows.where)
        where = [normal.moved(one, visible.table) for one in rows.where]
        exist = self._existing.of(normal.table)
        where += normal.conditions(span)
        return _Counted(normal.visible(visible), tuple(where), exist, normal)

    def _check_bounded(self, core: Core, visible: Visible) -> None:
        """Refuse groups by a number of rows, of which nothing says how many there can be."""
        ids = {name: id_ for id_, name in visible.ids.items()}
        for key in core.keys:
            for name in key.by_row if isinstance(key.node, exp.Column) else ():
                error = self._queries.unbounded_here(ids.get(name, name))
                if error is not None:
                    raise self._source.located(error, key.span) from error

    def _check_kept(self, joins: Sequence[JoinedItem], names: Names) -> None:
        """Refuse joins that keep public rows which no private row meets."""
        public = [self._queries.item_kind(join.item, names) != PRIVATE for join in joins]
        for number, join in enumerate(joins):
            kept = join.kind in {"right", "full"} if public[number] else all(public[:number])
            if kept and number and join.kind != "inner":
                raise self._source.unsupported(
                    self._source.clause(*JOINS) or self._source.node(join.item),
                    f"A {capitals(join.kind)} join is not supported here: public rows are kept.",
                    "write the private table first: FROM orders LEFT JOIN regions ON …",
                )

    def _meet(self, table: Table, at: Expr) -> None:
        """Say why a subquery is no column of rows."""
        refused = self._queries.refused.get(self._source.node(at))
        if refused is not None:
            raise refused

    def _prepared(self, rows: RowsOfSelect, node: exp.Select, left: list[Expr]) -> exp.Select:
        """Return a SELECT with columns in place of subqueries over rows of the same unit."""
        found = node.copy()
        found.meta.update(node.meta)
        where = [rows.prepared(part) for part in left]
        found.set("where", exp.Where(this=exp.and_(*where)) if where else None)
        for key in ("expressions", "group", "having", "qualify", "order"):
            value = node.args.get(key)
            if isinstance(value, list):
                found.set(key, [rows.prepared(part) for part in value])
            elif value is not None:
                found.set(key, rows.prepared(value))
        found.parent = node.parent
        return found
