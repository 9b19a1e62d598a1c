"""Statements over relations of rows: what each SELECT counts, and what is left around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sqlglot import exp

from dpsql.errors import (
    SchemaError,
    SqlError,
)
from dpsql.rel.check import check
from dpsql.rel.facts import UNIT
from dpsql.schema.names import capitals
from dpsql.sql.algebra.meeting import met_rows
from dpsql.sql.algebra.queries import Queries
from dpsql.sql.algebra.selects import RowsOfSelect
from dpsql.sql.algebra.visible import RelationHome
from dpsql.sql.binding.bind import RowBinder, Visits
from dpsql.sql.binding.conditions import check_using, conditions_of
from dpsql.sql.binding.core import Core, Relation
from dpsql.sql.binding.expressions import BoundExpr, Expr, rebuild
from dpsql.sql.binding.joins import JoinedItem, check_sides, joins_of
from dpsql.sql.binding.named import NOISY, PRIVATE, Kinds, Name, Names
from dpsql.sql.binding.rewrite import CoreBinder
from dpsql.sql.outline import Visitor
from dpsql.sql.text.spans import JOINS


class RelationVisitor(Visitor):
    """Walks through one statement, in which queries of rows become relations."""

    _queries: Queries

    def root(self, query: exp.Query) -> exp.Query:
        """Rewrite a statement."""
        self._queries = Queries(
            self._source, self._items, self._subqueries, query, self._relation, self._named_in
        )
        self._meant: dict[tuple[int, tuple[int, ...]], tuple[Expr, Names]] = {}
        return super().root(query)

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
        of = rows.of
        units = [
            id_ for id_ in of.columns if UNIT in of.tells.get(id_, ()) and id_ in of.table.filled
        ]
        others = [j for j in joins if queries.item_kind(j.item, names) != PRIVATE]
        private = next(j for j in joins if j not in others)
        span = source.node(private.item)
        check(of.relation)
        try:
            table = self.relations.related(of.related(units, tuple(queries.notes)))
        except SqlError:
            raise
        except SchemaError as error:
            raise source.located(error, span) from None
        visible = replace(rows.visible(), table=table)
        home = RelationHome(table, span, None, visible=visible)
        visits = Visits(
            partial(self._subqueries.public, names=names),
            self._no_rows,
            partial(self._subqueries.noisy, names=names),
        )
        binder = CoreBinder(source, select, home, visits)
        relations, joined = list[Relation](), list(rows.where)
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
        core, rest = binder.core(name, relations, joined, (), self._above)
        self._check_bounded(core)
        self.cores.append(core)
        self.tables.append((table, span))
        return rest

    def _check_bounded(self, core: Core) -> None:
        """Refuse groups by a number of rows, of which nothing says how many there can be."""
        for key in core.keys:
            for id_ in key.by_row if isinstance(key.node, exp.Column) else ():
                error = self._queries.unbounded_here(id_)
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

    def _no_rows(self, node: Expr, binder: RowBinder) -> BoundExpr | None:
        """Know of no subquery over private rows: these are columns already."""

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
