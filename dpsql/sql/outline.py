"""The outline of a statement: which SELECTs count private rows, and what is around them.

A SELECT that counts private rows is a core (`algebra/counted.py`). What is above it (outer queries,
CTEs, UNION) computes on noisy answers. A query over public tables alone is public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp
from sqlglot.helper import ensure_list

from dpsql.errors import Span
from dpsql.schema import Table
from dpsql.schema.names import folded
from dpsql.sql.algebra.counted import CountingSelects
from dpsql.sql.algebra.queries import Queries
from dpsql.sql.binding.bind import check_name
from dpsql.sql.binding.core import Core, Relation
from dpsql.sql.binding.expressions import Expr, quoted, rebuild, render
from dpsql.sql.binding.items import (
    NOISY,
    PRIVATE,
    PUBLIC,
    Kinds,
    Name,
    Names,
    PrivateItems,
    given_names,
)
from dpsql.sql.binding.joins import JoinedItem, joins_of
from dpsql.sql.binding.relations import materialize, stored_relation, without_unused
from dpsql.sql.binding.released import noisy_item
from dpsql.sql.binding.rewrite import told_apart
from dpsql.sql.binding.subqueries import Subqueries
from dpsql.sql.binding.tables import NamedTables
from dpsql.sql.text.parse import Parsed

Ctes: TypeAlias = tuple[Names, list[Expr]]
"""The meanings of names behind CTEs, and those CTEs that are kept, as they are of answers."""


@dataclass(frozen=True, slots=True)
class Outlined:
    """A statement: its cores, and the query that computes on their answers."""

    cores: tuple[Core, ...]
    """None if nothing is returned that follows from private rows."""
    tables: tuple[tuple[Table, Span], ...]
    """The private table of each core, and where it is named."""
    query: exp.Query


class Outliner:
    """Outlines the statements of one script; public tables are stored once.

    Args:
        tables: what the names of tables mean.
        above: see `compile_script`.
    """

    def __init__(self, tables: NamedTables, above: float | None = None) -> None:
        self.tables, self._above = tables, above

    def outline(self, parsed: Parsed) -> Outlined:
        """Outline one statement whose syntax is allowed.

        Raises:
            SqlError: rows of several units meet in it, or it names something unknown.
        """
        with self.tables.noting():
            visitor = Visitor(self.tables, self._above, parsed)
            query = visitor.root(parsed.query)
        public = without_unused(query)
        used = {table.name for table in public.find_all(exp.Table)}
        if any(core.table in used for core in visitor.cores):
            return Outlined(tuple(visitor.cores), tuple(visitor.tables), query)
        return Outlined((), tuple(visitor.tables), public)


class Visitor:
    """Walks through one statement from the outside in, and rewrites it."""

    def __init__(self, tables: NamedTables, above: float | None, parsed: Parsed) -> None:
        self._source, self._sandbox, self._root = parsed.source, tables.sandbox, parsed.query
        self._items = PrivateItems(parsed.source, tables)
        self._subqueries = Subqueries(
            parsed.source,
            self._sandbox,
            self._items,
            self._within,
            self._refused,
            parsed.query,
        )
        self._queries = Queries(
            parsed.source,
            self._items,
            self._subqueries,
            parsed.query,
            self._relation,
            self._named_in,
        )
        self._counting = CountingSelects(self._queries, self._subqueries, above)
        self._ctes: dict[tuple[int, tuple[int, ...]], tuple[Expr, Names, Ctes]] = {}
        self.cores: list[Core] = []
        self.tables: list[tuple[Table, Span]] = []

    def root(self, query: exp.Query) -> exp.Query:
        """Rewrite a statement."""
        for node in query.find_all(exp.Alias, exp.TableAlias):
            keys = ("alias",) if isinstance(node, exp.Alias) else ("this", "columns")
            for key in keys:
                for name in ensure_list(node.args.get(key)):
                    check_name(name.name, name, self._source)
        outlined = self._query(query, {}, Kinds())
        if isinstance(outlined, exp.Select):
            items = told_apart(query.expressions, outlined.expressions, self._source)
            outlined.set("expressions", items)
        return outlined

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

    def _with(self, node: Expr, names: Names) -> Ctes:
        """Rewrite the CTEs in front of a query, once."""
        clause = node.args.get("with_")
        if clause is None:
            return names, []
        key = id(node), tuple(sorted(map(id, names.values())))
        if key not in self._ctes:  # with what has these identities
            self._ctes[key] = node, dict(names), self._rewritten(clause, names)
        return self._ctes[key][2]

    def _rewritten(self, clause: Expr, names: Names) -> Ctes:
        """Rewrite CTEs: public ones are stored, noisy ones are kept.

        Those of private rows are relations where they are named.
        """
        known = dict(names)
        kept: list[Expr] = []
        for cte in clause.expressions:
            alias = cte.args["alias"]
            name = check_name(cte.alias, alias, self._source)
            if self._queries.kind(cte.this, known) == PRIVATE:
                known[folded(name)] = self._queries.named(cte, known)
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

    def _named_in(self, node: Expr, names: Names) -> Names:
        """Return what names mean in a query, with its CTEs."""
        return self._with(node, names)[0]

    def _within(self, node: Expr, names: Names, kinds: Kinds) -> Expr:
        """Rewrite anything inside a query that isn't a core."""
        outside = self._subqueries.outside(node)
        if outside is not None:
            return outside
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            return self._query(node, names, kinds)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return self._named(node, names, kinds)
        if isinstance(node, exp.Subquery):
            node = self._subqueries.of_answers(node, names)
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
        joins = joins_of(node, self._source, nearest=True)
        if not any(self._queries.item_kind(join.item, names) == PRIVATE for join in joins):
            joins_of(node, self._source)
            return rebuild(bare, lambda part: self._within(part, names, kinds))
        kinds.found.add(NOISY)
        with self._queries.own_ids():
            cores, left = self._counting.cores(node, names)
        for core, table, span in cores:
            self.cores.append(core)
            self.tables.append((table, span))
        return left

    def _refused(self, table: Table, at: Expr) -> None:
        """Say why a subquery over rows of units is no column of other rows."""
        error = self._queries.refused.get(self._source.node(at))
        if error is not None:
            raise error

    def _relation(self, number: int, join: JoinedItem, names: Names) -> Relation:
        """Store what is joined as a table of the sandbox."""
        kinds = Kinds()
        item = self._within(join.item, names, kinds)
        if kinds.all == NOISY:
            raise noisy_item(join.item, self._root, self._source)
        given = given_names(join.item.args.get("alias"))
        return stored_relation(number, join, item, given, self._sandbox, self._source)
