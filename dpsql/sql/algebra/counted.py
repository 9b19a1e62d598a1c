"""SELECTs that count: the core that each is over a relation of rows, and what is left around it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from sqlglot import exp

from dpsql.errors import Span, SqlError
from dpsql.rel.check import check
from dpsql.rel.nodes import Join, walk
from dpsql.schema import Table
from dpsql.sql.algebra.branches import Branches
from dpsql.sql.algebra.described import check_read, units_of
from dpsql.sql.algebra.normal import NormalRows, normal_rows
from dpsql.sql.algebra.over_cells import from_rows
from dpsql.sql.algebra.projections import choose
from dpsql.sql.algebra.queries import Queries
from dpsql.sql.algebra.selects import RowsOfSelect
from dpsql.sql.algebra.visible import telling_column
from dpsql.sql.binding.added_up import AddedUpBinder, B, Branch
from dpsql.sql.binding.aggregates import adds_up
from dpsql.sql.binding.bind import RowBinder, Visits, no_rows
from dpsql.sql.binding.canonical import Moving, moved_relations
from dpsql.sql.binding.core import Core
from dpsql.sql.binding.existing import Existing
from dpsql.sql.binding.expressions import BoundExpr, Expr, conjuncts, in_place_of
from dpsql.sql.binding.items import PRIVATE, Names
from dpsql.sql.binding.joins import joins_of
from dpsql.sql.binding.rewrite import CoreBinder
from dpsql.sql.binding.scope import Home, Visible
from dpsql.sql.binding.subqueries import Subqueries


@dataclass(frozen=True, slots=True)
class _Counted:
    """The rows that a SELECT counts: what it sees of them, and what is true of them."""

    visible: Visible
    where: tuple[BoundExpr, ...]
    exist: Sequence[Existing] = ()
    normal: NormalRows | None = None


class CountingSelects:
    """Makes cores of the SELECTs of one statement that count private rows.

    Args:
        queries: translates its queries of rows.
        subqueries: rewrites those over public tables, and over noisy answers.
        above: see `compile_script`.
    """

    def __init__(self, queries: Queries, subqueries: Subqueries, above: float | None) -> None:
        self._queries, self._subqueries, self._above = queries, subqueries, above
        self._source, self._sandbox, self._tables = queries.source, queries.sandbox, queries.tables
        self._branches = Branches(queries)

    def cores(
        self, node: exp.Select, names: Names
    ) -> tuple[list[tuple[Core, Table, Span]], exp.Select]:
        """Return the cores of a SELECT, each with its table and where that is named.

        Returns:
            These, and what is left to compute on their answers.
        """
        name = self._sandbox.new_name("answer")
        spread = self._branches.of(node, names)
        if len(spread) > 1 and (adds_up(node) or self._queries.are_apart(node, names)):
            each = [self._branch(*one, RowBinder) for one in spread]
            binder = AddedUpBinder(self._source, node, self._visits(names), each, self._sandbox)
            cores, left = binder.cores(name, self._above)
            return [self._found(core, of) for core, of in cores], left
        one = self._branch(node, names, CoreBinder)
        core, left = one.binder.core(name, one.relations, one.joined, one.exist, self._above)
        return [self._found(core, one)], left

    def _found(self, core: Core, of: Branch[B]) -> tuple[Core, Table, Span]:
        """Return a core with its table, and where that is named."""
        self._check_bounded(core, of.home.visible)
        return of.tightened(core), of.home.table, of.span

    def _visits(self, names: Names) -> Visits:
        """Return what becomes of subqueries where names mean that."""
        return Visits(
            partial(self._subqueries.public, names=names),
            no_rows,
            partial(self._subqueries.noisy, names=names),
        )

    def _branch(self, node: exp.Select, names: Names, bound_by: type[B]) -> Branch[B]:
        source, queries = self._source, self._queries
        rows = RowsOfSelect(queries, node, names, core=True, cells=count())
        joins = joins_of(node, source, nearest=True)
        left = from_rows(rows, joins)
        self._check_told(rows)
        select = self._prepared(rows, node, left)
        self._choose(rows, select)
        private = next(j for j in joins if queries.item_kind(j.item, names) == PRIVATE)
        span = source.node(queries.items.base(private.item, names))
        if rows.of.table.unit is not None:
            check(rows.of.relation)
        with source.locating(span):
            counted = self._counted(rows, span)
        table, before, normal = counted.visible.table, rows.table(), counted.normal
        home = Home(table, counted.visible, self._inner_where(node, names))
        binder = bound_by(source, select, home, self._visits(names))
        to = Moving(before, table, None if normal is None else normal.names)
        relations = moved_relations(rows.relations, to)
        said = [*counted.where, *(one for relation in relations for one in relation.on)]
        binder.name(frozenset[str]().union(*(one.attributes for one in said)))
        return Branch(
            binder,
            home,
            relations,
            counted.where,
            counted.exist,
            span,
            () if normal is None else normal.met,
        )

    def _choose(self, rows: RowsOfSelect, select: exp.Select) -> None:
        """Let conditions hold first by which a unit has fewer rows: those on places of rows."""
        where = select.args.get("where")
        said = [] if where is None else conjuncts(where.this)
        bound = {i: one for i, part in enumerate(said) if (one := self._of_rows(rows, part))}
        taken = choose(rows, [*rows.where, *bound.values()])
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
        if not self._queries.places:
            return None
        with suppress(SqlError):
            return rows.bound(part)
        return None

    def _counted(self, rows: RowsOfSelect, span: Span) -> _Counted:
        """Return the rows that are counted as those of a table, with conditions on them."""
        of, notes = rows.of, tuple(self._queries.notes)
        normal, visible = normal_rows(of, self._tables), rows.visible()
        if normal is not None and self._counts_units_apart(rows, normal):
            normal = None
        if normal is None or normal.adds or len(of.read) > 1:
            self._tables.check_met(of.read)
        if of.table.unit is None and (normal is None or normal.adds):
            raise self._without_units(rows, span)
        loose = normal is not None and normal.adds and notes
        if normal is None or loose or not self._tables.count(normal.table):
            if normal is not None and loose:
                known = [n for n in (of.most, normal.table.unit_rows) if n is not None]
                of = replace(of, most=min(known, default=None))
            table = self._tables.related(of.related(units_of(of), notes))
            return self._as_relation(rows, visible, table)
        where = list(map(Moving(visible.table, normal.table, normal.names), rows.where))
        exist = self._tables.existing.of(normal.table)
        where += normal.conditions(span)
        return _Counted(normal.visible(visible), tuple(where), exist, normal)

    def _as_relation(self, rows: RowsOfSelect, visible: Visible, table: Table) -> _Counted:
        """Return the rows that are counted as those of a relation, with the columns that it has."""
        for one in (*rows.where, *(on for each in rows.relations for on in each.on)):
            check_read(one, rows.table(), self._source)
        to = Moving(visible.table, table)
        items = tuple(item.of_columns(table).moved(to) for item in visible.items)
        here = replace(visible, table=table, items=items)
        return _Counted(here, tuple(map(to, rows.where)))

    def _check_bounded(self, core: Core, visible: Visible) -> None:
        """Refuse groups by a number of rows, of which nothing says how many there can be."""
        ids = {name: id_ for id_, name in visible.ids.items()}
        for key in core.keys:
            for name in key.by_row if isinstance(key.node, exp.Column) else ():
                error = self._queries.unbounded_here(ids.get(name, name))
                if error is not None:
                    raise self._source.located(error, key.span) from error

    def _check_told(self, rows: RowsOfSelect) -> None:
        """Refuse groups by what tells the unit only where a row meets one by a LEFT join."""
        of = rows.of
        lost = of.equal and any(isinstance(n, Join) and n.kind == "left" for n in walk(of.relation))
        for node in rows.key_nodes() if lost else ():
            id_ = rows.stored_id(node)
            if id_ in of.equal and id_ in of.table.undeclared:
                told = telling_column(rows.items, of).strip()
                raise self._source.unsupported(
                    node,
                    "This is NULL in rows that meet none by a LEFT join, so it tells no unit.",
                    f"group by {told}, which each row has." if told else "use JOIN.",
                )

    def _inner_where(self, node: exp.Select, names: Names) -> Span | None:
        """Return where the condition of a query after FROM stands, if there is one."""
        written = (
            self._queries.written(j.item, names) for j in joins_of(node, self._source, nearest=True)
        )
        clauses = (rows.query.args.get("where") for rows in written if rows is not None)
        return next((self._source.node(one) for one in clauses if one is not None), None)

    def _counts_units_apart(self, rows: RowsOfSelect, normal: NormalRows) -> bool:
        """Whether units are counted by a column that tells them in the relation alone."""
        counts = rows.select.find_all(exp.Count) if normal.apart else ()
        told = (one.this.expressions for one in counts if isinstance(one.this, exp.Distinct))
        return any(rows.stored_id(node) in normal.apart for nodes in told for node in nodes)

    def _without_units(self, rows: RowsOfSelect, span: Span) -> SqlError:
        """Refuse rows without units that meet others: each is protected by itself."""
        return self._source.unsupported(
            span,
            "Rows of tables without units can't be put together: each row is protected by itself.",
            "name the unit whose rows they are, unit=…; or ask each table by itself.",
        )

    def _prepared(self, rows: RowsOfSelect, node: exp.Select, left: list[Expr]) -> exp.Select:
        """Return a SELECT with columns in place of subqueries over rows of the same unit."""
        args = dict(node.args)
        where = [rows.prepared(part) for part in left]
        args["where"] = exp.Where(this=exp.and_(*where, copy=False)) if where else None
        for key in ("expressions", "group", "having", "qualify", "order"):
            value = node.args.get(key)
            if isinstance(value, list):
                args[key] = [rows.prepared(part) for part in value]
            elif value is not None:
                args[key] = rows.prepared(value)
        return in_place_of(node, args)
