"""Items after FROM: which has private rows, be it a table or a query that filters them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from sqlglot import exp

from dpsql.errors import SchemaError, Span, SqlError, SqlSchemaError, printable
from dpsql.hints import Hint, never
from dpsql.schema import Table
from dpsql.schema.names import as_sql, capitals, folded, quoted_text
from dpsql.sql.binding.expressions import Expr, conjuncts, is_star
from dpsql.sql.binding.grouping import key_nodes
from dpsql.sql.binding.joins import JoinedItem, joins_of, name_parts, public_hint
from dpsql.sql.binding.named import (
    NOISY,
    PRIVATE,
    PUBLIC,
    Grouped,
    Name,
    Names,
    Told,
    WrittenRows,
    given_names,
    renamed,
)
from dpsql.sql.binding.per_unit import by_row
from dpsql.sql.binding.row_queries import (
    check_filters,
    column_name,
    inner_query,
    is_by_row,
    unused,
)
from dpsql.sql.binding.tables import NamedTables
from dpsql.sql.binding.unified import is_union_all, parts_of
from dpsql.sql.text.spans import SourceText

_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
T = TypeVar("T")
Asked = tuple[int, frozenset[tuple[str, int]]]
Memory = dict[Asked, tuple[Expr, Names, T]]
"""Findings by the identities of a query and of what names mean there, which are kept with them.

What is above a query asks of it several times, and it asks the query in it: without a memory, each
level of nesting would multiply the work.
"""


def _asked(query: Expr, names: Names) -> Asked:
    return id(query), frozenset((name, id(meant)) for name, meant in names.items())


class PrivateItems:
    """Finds private rows after FROM in one statement.

    Args:
        source: its text.
        tables: what the names of tables mean.
        told: says what groups are of; None if not of rows that their rows refer to.
    """

    def __init__(
        self, source: SourceText, tables: NamedTables, told: Callable[[Grouped], Told | None]
    ) -> None:
        self._source = self.source = source
        self._tables = self.tables = tables
        self._told = told
        self._rewritten: dict[int, tuple[exp.Select, exp.Select | None]] = {}
        self._grouped: dict[int, tuple[exp.Select, tuple[Grouped, Told] | None]] = {}
        self._rows: Memory[WrittenRows | None] = {}
        self._inside: Memory[dict[str, Name]] = {}

    def kind(self, node: exp.Table, names: Names) -> tuple[str, str]:
        """Return what a name means, and the table of the sandbox or the CTE."""
        parts = name_parts(node)
        if len(parts) == 1 and folded(parts[0]) in names:
            found = names[folded(parts[0])]
            return found.kind, found.table
        self._check_no_file(node)
        stored = self._tables.stored(parts)
        return (PRIVATE, "") if stored is None else (PUBLIC, stored)

    def _check_no_file(self, node: exp.Table) -> None:
        span = self._source.node(node.this)
        if self._source.sql[span.start] == "'":
            raise self._source.unsupported(
                span,
                "Reading a file is not supported.",
                never(
                    "a statement reads tables of the database. Load the file into one, with an "
                    "ENUM type or CHECK for each column; or make a view of it: CREATE VIEW rows AS "
                    f"FROM {quoted_text(printable(node.name))};"
                ),
            )

    def among(self, joins: Sequence[JoinedItem], names: Names) -> list[JoinedItem]:
        """Return the items after FROM whose rows are private, of a row of which others have one.

        Queries with groups are among them only where there is nothing else: elsewhere they add
        columns to rows, see `groups`.
        """
        found = [join for join in joins if self.is_private(join.item, names)]
        plain = [join for join in found if self.grouped(join.item, names) is None]
        return plain or found[:1]

    def groups(
        self, joins: Sequence[JoinedItem], private: Sequence[JoinedItem], names: Names
    ) -> list[tuple[JoinedItem, Grouped]]:
        """Return the items after FROM that add columns to private rows."""
        others = ((join, self.grouped(join.item, names)) for join in joins if join not in private)
        return [(join, grouped) for join, grouped in others if grouped is not None]

    def add_hint(self, error: SqlSchemaError, private: Sequence[JoinedItem], names: Names) -> None:
        """Say that a table may be public, where a private one can't be described."""
        if not error.unknown:
            items = [self.base(join.item, names) for join in private]
            hint = public_hint(items, self._open(items))
            error.hint = (error.hint or "") + Hint(" Or, ") + hint

    def no_grain(
        self,
        private: Sequence[JoinedItem],
        names: Names,
        grains: Sequence[Table],
        further: str = "",
    ) -> SqlError:
        """Refuse a join of private tables in which no row refers to one row of each other table.

        Args:
            private: the items.
            names: what names mean there.
            grains: their tables, with the columns of the rows that they refer to.
            further: what else may be done.
        """
        items = [self.base(join.item, names) for join in private]
        steps = next(filter(None, (_steps(table, grains) for table in grains)), [])
        if not steps:
            message = (
                "A join of private tables is not supported: a row could be counted many times."
            )
            hint = public_hint(items, self._open(items)) + further
            if any(join.kind != "inner" for join in private) and all(one.unit for one in grains):
                hint = Hint(
                    "ask whether there is such a row of the same unit: WHERE EXISTS (SELECT 1 FROM "
                    "… WHERE …), or NOT EXISTS."
                )
            return self._source.unsupported(private[1].item, message, hint)
        return self._source.unsupported(
            private[1].item,
            "A join of private tables must match each row with the row that it refers to; "
            "otherwise rows of different units could be joined.",
            f"join them ON {' AND '.join(steps)}, each table once." + further,
        )

    def _open(self, items: Sequence[Expr]) -> list[bool]:
        """Return for each table whether nothing says that it has private rows.

        A table has them that has units, or columns with a domain that the owner declares. Of those
        of which nothing is said, the one with the most columns that have one is counted.
        """
        found = list[Table | None]()
        for item in items:
            try:
                found.append(self.table(item)[0])
            except SqlError:  # it has no way to the unit
                found.append(None)
        said = [
            table is not None and (table.unit is not None or not table.enforced >= {*table.columns})
            for table in found
        ]
        if not any(said):
            sizes = [-1 if table is None else len(table.columns) for table in found]
            said[sizes.index(max(sizes))] = True
        return [not private for private in said]

    def is_private(self, item: Expr, names: Names) -> bool:
        """Whether the rows of an item after FROM are private."""
        if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
            return self.kind(item, names)[0] == PRIVATE
        return self.rows(item, names) is not None

    def rows(self, item: Expr, names: Names) -> WrittenRows | None:
        """Return the query of private rows that stands after FROM; None if it is another item."""
        if isinstance(item, exp.Table):
            parts = name_parts(item)
            known = names.get(folded(parts[0])) if len(parts) == 1 else None
            return None if known is None else known.rows
        query = inner_query(item)
        return None if query is None else self.rows_of(query, names, None)

    def adds_one(self, join: JoinedItem, select: exp.Select, names: Names) -> bool:
        """Whether a row meets at most one row of a public table, by a column without equals."""
        item, where = join.item, select.args.get("where")
        kind, table = self.kind(item, names) if isinstance(item, exp.Table) else (NOISY, "")
        if kind != PUBLIC:
            return False
        said = [condition for condition in (join.on, where and where.this) if condition is not None]
        sides = [
            side.unnest()
            for condition in said
            for part in conjuncts(condition)
            if isinstance(part.unnest(), exp.EQ)
            for side in (part.unnest().this, part.unnest().expression)
        ]
        alias = folded(item.alias_or_name)
        columns = [side for side in sides if isinstance(side, exp.Column)]
        named = [column.name for column in columns if folded(column.table) == alias]
        return any(self._tables.is_unique(table, name) for name in (*named, *join.using))

    def grouped(self, item: Expr, names: Names) -> Grouped | None:
        """Return the query with groups of rows that refer to the same one; None if it is none."""
        if isinstance(item, exp.Table):
            parts = name_parts(item)
            known = names.get(folded(parts[0])) if len(parts) == 1 else None
            found = None if known is None else known.grouped
        else:
            query = inner_query(item)
            found = None if query is None else self.grouped_of(query, names, None)
        given = given_names(item.args.get("alias"))
        return found if found is None or not given else renamed(found, given)

    def grouped_of(self, query: Expr, names: Names, alias: Expr | None) -> Grouped | None:
        """Return a query as one with groups of rows that refer to the same one, if it is."""
        found = self._groups_of(query, names)
        return None if found is None else renamed(found[0], given_names(alias))

    def is_answer(self, query: Expr, names: Names) -> bool:
        """Whether a query with groups may be one of answers, too: there is a list of its groups."""
        found = self._groups_of(query, names)
        return found is None or found[1].known

    def of_unit(self, grouped: Grouped) -> Table | None:
        """Return the table whose rows a query groups by unit; None if it groups them otherwise."""
        told = self._told(grouped)
        return None if told is None or told.known else told.of_units

    def _groups_of(self, query: Expr, names: Names) -> tuple[Grouped, Told] | None:
        if not isinstance(query, exp.Select) or is_by_row(query):
            return None
        if id(query) not in self._grouped:
            self._grouped[id(query)] = query, None  # so long as it is looked at
            with suppress(SqlError, SchemaError):  # which are found again where it is bound
                grouped = self._written_groups(query, names)
                told = None if grouped is None else self._told(grouped)
                if grouped is not None and told is not None:
                    self._grouped[id(query)] = query, (grouped, told)
        return self._grouped[id(query)][1]

    def _written_groups(self, query: exp.Select, names: Names) -> Grouped | None:
        inside = self.names_in(query, names)
        private = self.among(joins_of(query, self._source), inside)
        more = any(query.args.get(key) for key in ("limit", "offset", "qualify"))
        group = query.args.get("group")
        more |= group is not None and bool(list(group.find_all(*_SETS)))
        if not private or more or self._per_unit(query, names) is not None:
            return None
        keys = tuple(key_nodes(query, self._source).values())
        shown = [node.unalias() for node in query.expressions]
        if group is not None and query.args.get("distinct") and not all(k in shown for k in keys):
            return None  # several groups may be one row
        plain = all(isinstance(key, exp.Column) for key in keys)
        starred = any(is_star(node.unalias()) for node in query.expressions)
        owned = self.table(self.base(private[0].item, inside))[0].unit is not None
        if not keys or not plain or starred or not owned:
            return None
        columns: dict[str, Expr] = {}
        for node in query.expressions:
            taken = {folded(name) for name in columns}
            columns[unused(column_name(node, self._source), taken)] = node.unalias()
        return Grouped(query, inside, tuple(columns.items()), keys)

    def names_in(self, query: exp.Select | exp.SetOperation, names: Names) -> dict[str, Name]:
        """Return what names mean in a query, as far as they are of private rows."""
        asked = _asked(query, names)
        if asked not in self._inside:
            self._inside[asked] = query, dict(names), self._names_in(query, names)
        return dict(self._inside[asked][2])

    def _names_in(self, query: exp.Select | exp.SetOperation, names: Names) -> dict[str, Name]:
        inside, clause = dict(names), query.args.get("with_")
        for cte in clause.expressions if clause is not None else []:
            rows = self.rows_of(cte.this, inside, cte.args["alias"])
            grouped = self.grouped_of(cte.this, inside, cte.args["alias"])
            kind = NOISY if rows is None else PRIVATE
            inside[folded(cte.alias)] = Name(kind, "", rows, grouped)
        return inside

    def rows_of(self, query: Expr, names: Names, alias: Expr | None) -> WrittenRows | None:
        """Return a query that only projects and filters private rows; None if it is another."""
        if not isinstance(query, exp.Select | exp.SetOperation):
            return None
        asked = _asked(query, names)
        if asked not in self._rows:
            self._rows[asked] = query, dict(names), self._written_rows(query, names)
        found = self._rows[asked][2]
        return None if found is None else replace(found, columns=given_names(alias))

    def _written_rows(
        self, query: exp.Select | exp.SetOperation, names: Names
    ) -> WrittenRows | None:
        if isinstance(query, exp.Select) and not is_by_row(query):
            groups = self._groups_of(query, names)
            written = self._per_unit(query, names) if groups is None else groups[1].rows
            if written is None:
                return None
            query = written
        inside = self.names_in(query, names)
        if isinstance(query, exp.SetOperation):
            return self._put_together(query, names, inside)
        items = [join.item for join in joins_of(query, self._source)]
        place = next((item for item in items if self.is_private(item, inside)), None)
        if place is None:
            return None
        of_units = self.table(self.base(place, inside))[0].unit is not None
        check_filters(query, self._source, of_units=of_units)
        return WrittenRows(query, dict(names), (), place, inside)

    def _per_unit(self, query: exp.Select, names: Names) -> exp.Select | None:
        """Return a query with a group for each private row as one of these rows; see `per_unit`."""
        if id(query) not in self._rewritten:
            self._rewritten[id(query)] = query, self._by_row(query, names)
        return self._rewritten[id(query)][1]

    def _by_row(self, query: exp.Select, names: Names) -> exp.Select | None:
        joins = joins_of(query, self._source)
        plain = (join.item for join in joins if self.rows(join.item, names) is None)
        if len(self.among(joins, names)) != 2 or len(list(plain)) != 2 or len(joins) != 2:
            return None
        (table, _), (other, _) = (self.table(join.item) for join in joins)
        with suppress(SchemaError):
            parents = self._tables.grain(other).parents
            of = [p.join for p in parents if p.table.path == table.path]
            keys = {folded(join.key) for join in of if not join.further}
            if keys:
                shown = folded(joins[0].item.alias_or_name)

                def owns(column: exp.Column) -> bool:
                    if column.table:
                        return folded(column.table) == shown
                    return table.has(column.name) and not other.has(column.name)

                return by_row(query, joins[1], owns, keys, self._source)
        return None

    def _put_together(
        self, query: exp.SetOperation, names: Names, inside: Names
    ) -> WrittenRows | None:
        """Return a UNION ALL of queries of private rows; None if there are no private rows in it.

        Raises:
            UnsupportedSqlError: private rows are compared, or put together with others.
        """
        found = [self.rows_of(part, inside, None) for part in parts_of(query)]
        first = next((rows for rows in found if rows is not None), None)
        if first is None:
            return None
        if not is_union_all(query):
            message = f"{capitals(query.key)} of single rows is not supported: it compares them."
            hint = never("equal rows can't be matched. Use conditions after WHERE, or UNION ALL.")
            raise self._source.unsupported(query, message, hint)
        if None in found:
            raise self._source.unsupported(
                query,
                "UNION ALL of single private rows with anything else is not supported.",
                "count in each query of the UNION ALL, and add the counts up in an outer query.",
            )
        check_filters(query, self._source)
        return WrittenRows(query, dict(names), (), first.item, first.inside)

    def base(self, item: Expr, names: Names) -> Expr:
        """Return where the private table is named whose rows an item after FROM has."""
        rows = self.rows(item, names)
        return item if rows is None else self.base(rows.item, rows.inside)

    def table(self, item: Expr) -> tuple[Table, Span]:
        """Return the private table of an item after FROM, and where its name stands."""
        parts = name_parts(item)
        nodes = [item.args[key] for key in ("catalog", "db", "this") if item.args.get(key)]
        spans = [self._source.node(part) for part in nodes]
        span = Span(min(s.start for s in spans), max(s.end for s in spans))
        try:
            return self._tables.private(parts), span
        except SqlError:
            raise
        except SchemaError as error:
            raise self._source.located(error, span) from None


def _steps(table: Table, others: Sequence[Table]) -> list[str]:
    """Return the equalities by which the rows of a table refer to others; none if they don't."""
    referring = {"": table.name, **{p.prefix: p.table.name for p in table.parents}}
    wanted = {other.path for other in others} - {table.path}
    met = {p.table.path: p.prefix for p in reversed(table.parents) if p.table.path in wanted}
    if not wanted or met.keys() != wanted:
        return []
    way = [p for p in table.parents if any(one.startswith(p.prefix) for one in met.values())]
    sides = (
        ((referring[p.above], pair.column), (p.table.name, pair.key))
        for p in way
        for pair in p.join.pairs
    )
    return [" = ".join(".".join(map(as_sql, side)) for side in pair) for pair in sides]
