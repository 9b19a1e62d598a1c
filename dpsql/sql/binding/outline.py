"""The outline of a statement: which SELECTs count private rows, and what is around them.

A SELECT over the private table is a core. What joins it must be public, and what is above it
(outer queries, CTEs, UNION) computes on noisy answers. A query over public tables alone is public.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import polars as pl
from sqlglot import exp
from sqlglot.helper import ensure_list

from dpsql.errors import SchemaError, Span, SqlError, SqlSchemaError, printable
from dpsql.schema import Table
from dpsql.sql.binding.bind import check_name
from dpsql.sql.binding.core import Core, Relation
from dpsql.sql.binding.existing import ExistingGroups
from dpsql.sql.binding.expressions import BoundExpr, Expr, quoted, quoted_column, rebuild, render
from dpsql.sql.binding.joins import JoinedItem, has_column, joins_of, name_parts, public_hint
from dpsql.sql.binding.relations import materialize
from dpsql.sql.binding.rewrite import CoreBinder
from dpsql.sql.binding.subqueries import check_own_columns
from dpsql.sql.sandbox.database import Sandbox
from dpsql.sql.text.parse import Parsed

PRIVATE, PUBLIC, NOISY = "private", "public", "noisy"

Resolve = Callable[[tuple[str, ...]], Table]
Public = Callable[[tuple[str, ...]], pl.DataFrame | None]


@dataclass(frozen=True, slots=True)
class _Name:
    """What a name after FROM means: a public table of the sandbox, or a noisy CTE."""

    kind: str
    table: str


Names = Mapping[str, _Name]


@dataclass(frozen=True, slots=True)
class Outlined:
    """A statement: its cores, and the query that computes on their answers."""

    cores: tuple[Core, ...]
    tables: tuple[tuple[Table, Span], ...]
    """The private table of each core, and where it is named."""
    query: exp.Query


@dataclass(slots=True)
class _Kinds:
    """The kinds of everything that was found in a query."""

    found: set[str] = field(default_factory=set)

    @property
    def all(self) -> str:
        return NOISY if NOISY in self.found else PUBLIC


class Outliner:
    """Outlines the statements of one script; public tables are stored once."""

    def __init__(
        self, sandbox: Sandbox, resolve: Resolve, public: Public, above: float | None = None
    ) -> None:
        self.above = above
        """See `compile_script`."""
        self._sandbox = sandbox
        self._resolve = resolve
        self._public = public
        self._stored: dict[tuple[str, ...], str | None] = {}
        self._tables: dict[tuple[str, ...], Table] = {}
        self.existing = ExistingGroups(sandbox, self.stored)

    def outline(self, parsed: Parsed) -> Outlined:
        """Outline one statement whose syntax is allowed.

        Raises:
            SqlError: it counts nothing, joins private tables, or names something unknown.
        """
        visitor = _Visitor(self, parsed)
        query = visitor.root(parsed.query)
        if not visitor.cores:
            raise parsed.source.unsupported(
                parsed.source.whole(),
                "The statement counts nothing: no private table is named after FROM.",
                "name one: SELECT COUNT(*) FROM people.",
            )
        return Outlined(tuple(visitor.cores), tuple(visitor.tables), query)

    @property
    def sandbox(self) -> Sandbox:
        """Where public relations are stored."""
        return self._sandbox

    def private(self, parts: tuple[str, ...]) -> Table:
        """Return the private table of a name."""
        key = tuple(part.lower() for part in parts)
        if key not in self._tables:
            self._tables[key] = self._resolve(parts)
        return self._tables[key]

    def stored(self, parts: tuple[str, ...]) -> str | None:
        """Return the sandbox table of a public table; None if the name isn't one."""
        key = tuple(part.lower() for part in parts)
        if key not in self._stored:
            frame = self._public(parts)
            name = None
            if frame is not None:
                name = self._sandbox.new_name("public")
                self._sandbox.store(name, frame)
            self._stored[key] = name
        return self._stored[key]


class _Visitor:
    """Walks through one statement from the outside in, and rewrites it."""

    def __init__(self, outliner: Outliner, parsed: Parsed) -> None:
        self._outliner = outliner
        self._sandbox = outliner.sandbox
        self._source = parsed.source
        self.cores: list[Core] = []
        self.tables: list[tuple[Table, Span]] = []

    def root(self, query: exp.Query) -> exp.Query:
        for node in query.find_all(exp.Alias, exp.TableAlias):
            keys = ("alias",) if isinstance(node, exp.Alias) else ("this", "columns")
            for key in keys:
                for name in ensure_list(node.args.get(key)):
                    check_name(name.name, name, self._source)
        return self._query(query, {}, _Kinds())

    def _query(self, node: Expr, names: Names, kinds: _Kinds) -> exp.Query:
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
        """Rewrite the CTEs in front of a query: public ones are stored, noisy ones are kept."""
        clause = node.args.get("with_")
        if clause is None:
            return names, []
        known = dict(names)
        kept: list[Expr] = []
        for cte in clause.expressions:
            alias = cte.args["alias"]
            name = check_name(cte.alias, alias, self._source)
            inside = _Kinds()
            query = self._query(cte.this, known, inside)
            if inside.all == PUBLIC:
                shown = [c.name for c in alias.args.get("columns") or []]
                table, sql = self._sandbox.new_name("public"), render(query)
                materialize(self._sandbox, self._source, table, sql, shown, None, alias)
                known[name.lower()] = _Name(PUBLIC, table)
            else:
                known[name.lower()] = _Name(NOISY, name)
                kept.append(exp.CTE(this=query, alias=alias.copy()))
        return known, kept

    def _within(self, node: Expr, names: Names, kinds: _Kinds) -> Expr:
        """Rewrite anything inside a query that isn't a core."""
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            return self._query(node, names, kinds)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return self._named(node, names, kinds)
        return rebuild(node, lambda part: self._within(part, names, kinds))

    def _named(self, node: exp.Table, names: Names, kinds: _Kinds) -> Expr:
        """Rewrite a table's name to the sandbox's name for it."""
        kind, table = self._kind(node, names)
        kinds.found.add(kind)
        alias = node.args.get("alias")
        if alias is None:
            alias = exp.TableAlias(this=quoted(node.name))
        return exp.Table(this=quoted(table), alias=alias.copy())

    def _kind(self, node: exp.Table, names: Names) -> tuple[str, str]:
        parts = name_parts(node)
        if len(parts) == 1 and parts[0].lower() in names:
            found = names[parts[0].lower()]
            return found.kind, found.table
        self._check_no_file(node)
        stored = self._outliner.stored(parts)
        return (PRIVATE, "") if stored is None else (PUBLIC, stored)

    def _check_no_file(self, node: exp.Table) -> None:
        span = self._source.node(node.this)
        if self._source.sql[span.start] == "'":
            raise self._source.unsupported(
                span,
                "Reading a file is not supported.",
                "load it into a table first, with an ENUM type or CHECK for each column.",
            )

    def _select(self, node: exp.Select, bare: Expr, names: Names, kinds: _Kinds) -> Expr:
        joins = joins_of(node, self._source)
        private = [join for join in joins if self._is_private(join.item, names)]
        if not private:
            return rebuild(bare, lambda part: self._within(part, names, kinds))
        if len(private) > 1:
            for join in private:
                self._check_exists(join.item)
            raise self._source.unsupported(
                private[1].item,
                "A join of private tables is not supported: a row could be counted many times.",
                public_hint([join.item for join in private]),
            )
        kinds.found.add(NOISY)
        return self._core(node, joins, private[0], names)

    def _check_exists(self, item: Expr) -> None:
        """Refuse a name that no table has; it may be that of one that can't be released from."""
        try:
            self._table(item)
        except SqlSchemaError as error:
            if error.unknown:
                raise

    def _is_private(self, item: Expr, names: Names) -> bool:
        if not isinstance(item, exp.Table) or not isinstance(item.this, exp.Identifier):
            return False
        return self._kind(item, names)[0] == PRIVATE

    def _core(
        self, node: exp.Select, joins: list[JoinedItem], home: JoinedItem, names: Names
    ) -> exp.Select:
        table, span = self._table(home.item)
        binder = CoreBinder(
            self._source,
            node,
            table,
            home.item.alias or None,
            public=lambda part: self._subquery(part, names, PUBLIC),
            noisy=lambda part: self._subquery(part, names, NOISY),
        )
        others = [join for join in joins if join is not home]
        self._check_sides(joins, home)
        relations = [self._relation(i, join, names) for i, join in enumerate(others)]
        for relation, join in zip(relations, others, strict=True):
            binder.scope.add(relation)
            binder.scope.merge((*join.using, *home.using))
        joined = list(self._conditions(home, relations, None, binder))
        for i, join in enumerate(others):
            on = self._conditions(join, relations[:i], relations[i], binder)
            if join.kind == "inner":
                joined += on
            relations[i] = replace(relations[i], on=() if join.kind == "inner" else on)
        exist = self._outliner.existing.of(table)
        name, above = self._sandbox.new_name("answer"), self._outliner.above
        core, left = binder.core(name, relations, joined, exist, above)
        self.cores.append(core)
        self.tables.append((table, span))
        return left

    def _table(self, item: Expr) -> tuple[Table, Span]:
        """Return the private table of an item after FROM, and where its name stands."""
        alias = item.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            raise self._source.unsupported(
                alias,
                "Renaming the columns of a private table is not supported.",
                "rename them in the SELECT list.",
            )
        parts = name_parts(item)
        nodes = [item.args[key] for key in ("catalog", "db", "this") if item.args.get(key)]
        spans = [self._source.node(part) for part in nodes]
        span = Span(min(s.start for s in spans), max(s.end for s in spans))
        try:
            return self._outliner.private(parts), span
        except SqlError:
            raise
        except SchemaError as error:
            raise self._source.located(error, span) from None

    def _check_sides(self, joins: list[JoinedItem], home: JoinedItem) -> None:
        """Refuse to keep public rows that no private row meets: that depends on the rows."""
        before = joins[: joins.index(home) + 1]
        outer = next((join for join in before if join.kind != "inner"), None)
        if outer is not None:
            raise self._source.unsupported(
                outer.item,
                "The private table must come first in this kind of join.",
                "use JOIN: groups without rows are in the answer anyway.",
            )

    def _conditions(
        self,
        join: JoinedItem,
        before: list[Relation],
        relation: Relation | None,
        binder: CoreBinder,
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
        binder: CoreBinder,
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
        kinds = _Kinds()
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
        alias = join.item.args.get("alias")
        given = [c.name for c in (alias.args.get("columns") or [])] if alias is not None else []
        sql = f"SELECT * FROM {render(item)}"
        columns, rows = materialize(
            self._sandbox, self._source, table, sql, given, number, join.item
        )
        name = join.item.alias or join.item.name
        return Relation(number, name, columns, table, rows, join.kind, (), span)

    def _subquery(self, node: Expr, names: Names, allowed: str) -> Expr:
        """Rewrite a subquery in an expression."""
        kinds = _Kinds()
        private = allowed == PUBLIC and self._names_private(node, names)
        if allowed == PUBLIC and not private:
            check_own_columns(node, self._source)
        rewritten = node if private else self._within(node, names, kinds)
        if private or (allowed == PUBLIC and kinds.all == NOISY):
            raise self._source.unsupported(
                node,
                "A subquery over private rows is not supported here.",
                "use public tables in it; noisy answers can be used in HAVING and around the "
                "statement.",
            )
        return rewritten

    def _names_private(self, node: Expr, names: Names) -> bool:
        """Whether a private table is named anywhere in a query; it must exist."""
        own = {cte.alias.lower() for cte in node.find_all(exp.CTE)}
        for table in node.find_all(exp.Table):
            known = table.name.lower() in own and len(name_parts(table)) == 1
            if not known and self._is_private(table, names):
                self._table(table)
                return True
        return False
