"""Items after FROM: which has private rows, be it a table or a query that filters them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.errors import SchemaError, Span, SqlError, SqlSchemaError
from dpsql.schema import Table
from dpsql.schema.names import as_sql
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.binding.joins import JoinedItem, joins_of, name_parts, public_hint
from dpsql.sql.binding.per_unit import by_row
from dpsql.sql.binding.row_queries import check_filters, inner_query, is_by_row
from dpsql.sql.binding.tables import NamedTables
from dpsql.sql.binding.unions import is_union_all, parts_of
from dpsql.sql.text.spans import SourceText

PRIVATE, PUBLIC, NOISY = "private", "public", "noisy"


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """A query of private rows, as it is written."""

    query: exp.Select | exp.SetOperation
    """A SELECT, or UNION ALL of such queries."""
    names: Names
    """What names mean around it."""
    columns: tuple[str, ...]
    """What a CTE calls its columns."""
    item: Expr
    """The item after its FROM whose rows are private."""
    inside: Names
    """What names mean there, as far as they are of private rows."""


@dataclass(frozen=True, slots=True)
class Name:
    """What a name after FROM means: a public table of the sandbox, or a CTE."""

    kind: str
    table: str
    rows: WrittenRows | None = None
    """The CTE, if it is of private rows."""


Names = Mapping[str, Name]


@dataclass(slots=True)
class Kinds:
    """The kinds of everything that was found in a query."""

    found: set[str] = field(default_factory=set)

    @property
    def all(self) -> str:
        """Noisy, if anything in it is."""
        return NOISY if NOISY in self.found else PUBLIC


def given_names(alias: Expr | None) -> tuple[str, ...]:
    """Return the names that an alias gives to columns: `AS s (a, b)`."""
    columns: Sequence[Expr] = (alias.args.get("columns") or []) if alias is not None else []
    return tuple(column.name for column in columns)


class PrivateItems:
    """Finds private rows after FROM in one statement.

    Args:
        source: its text.
        tables: what the names of tables mean.
    """

    def __init__(self, source: SourceText, tables: NamedTables) -> None:
        self._source = source
        self._tables = tables
        self._rewritten: dict[int, tuple[exp.Select, exp.Select | None]] = {}

    def kind(self, node: exp.Table, names: Names) -> tuple[str, str]:
        """Return what a name means, and the table of the sandbox or the CTE."""
        parts = name_parts(node)
        if len(parts) == 1 and parts[0].lower() in names:
            found = names[parts[0].lower()]
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
                "load it into a table, with an ENUM type or CHECK for each column; or make a view "
                "of it: CREATE VIEW rows AS FROM 'rows.parquet';",
            )

    def among(self, joins: Sequence[JoinedItem], names: Names) -> list[JoinedItem]:
        """Return the items after FROM whose rows are private."""
        return [join for join in joins if self.is_private(join.item, names)]

    def add_hint(self, error: SqlSchemaError, private: Sequence[JoinedItem], names: Names) -> None:
        """Say that a table may be public, where a private one can't be described."""
        if not error.unknown:
            hint = public_hint([self.base(join.item, names) for join in private])
            error.hint = f"{error.hint or ''} Or, " + hint

    def no_grain(
        self, private: Sequence[JoinedItem], names: Names, grains: Sequence[Table]
    ) -> SqlError:
        """Refuse a join of private tables in which no row refers to one row of each other table.

        Args:
            private: the items.
            names: what names mean there.
            grains: their tables, with the columns of the rows that they refer to.
        """
        items = [self.base(join.item, names) for join in private]
        steps = next(filter(None, (_steps(table, grains) for table in grains)), [])
        if not steps:
            message = (
                "A join of private tables is not supported: a row could be counted many times."
            )
            return self._source.unsupported(private[1].item, message, public_hint(items))
        return self._source.unsupported(
            private[1].item,
            "A join of private tables must say to which row each row refers: else rows of "
            "different units could meet.",
            f"join them ON {' AND '.join(steps)}, each table once.",
        )

    def is_private(self, item: Expr, names: Names) -> bool:
        """Whether the rows of an item after FROM are private."""
        if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
            return self.kind(item, names)[0] == PRIVATE
        return self.rows(item, names) is not None

    def rows(self, item: Expr, names: Names) -> WrittenRows | None:
        """Return the query of private rows that stands after FROM; None if it is another item."""
        if isinstance(item, exp.Table):
            parts = name_parts(item)
            known = names.get(parts[0].lower()) if len(parts) == 1 else None
            return None if known is None else known.rows
        query = inner_query(item)
        return None if query is None else self.rows_of(query, names, None)

    def rows_of(self, query: Expr, names: Names, alias: Expr | None) -> WrittenRows | None:
        """Return a query that only projects and filters private rows; None if it is another."""
        if not isinstance(query, exp.Select | exp.SetOperation):
            return None
        if isinstance(query, exp.Select) and not is_by_row(query):
            written = self._per_unit(query, names)
            if written is None:
                return None
            query = written
        inside, clause = dict(names), query.args.get("with_")
        for cte in clause.expressions if clause is not None else []:
            rows = self.rows_of(cte.this, inside, cte.args["alias"])
            inside[cte.alias.lower()] = Name(NOISY if rows is None else PRIVATE, "", rows)
        if isinstance(query, exp.SetOperation):
            return self._put_together(query, names, inside, alias)
        items = [join.item for join in joins_of(query, self._source)]
        place = next((item for item in items if self.is_private(item, inside)), None)
        if place is None:
            return None
        check_filters(query, self._source)
        return WrittenRows(query, dict(names), given_names(alias), place, inside)

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
            keys = {join.key.lower() for join in of if not join.further}
            if keys:
                shown = joins[0].item.alias_or_name.lower()

                def owns(column: exp.Column) -> bool:
                    if column.table:
                        return column.table.lower() == shown
                    return table.has(column.name) and not other.has(column.name)

                return by_row(query, joins[1], owns, keys, self._source)
        return None

    def _put_together(
        self, query: exp.SetOperation, names: Names, inside: Names, alias: Expr | None
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
            message = f"{query.key.upper()} of single rows is not supported: it compares them."
            raise self._source.unsupported(query, message, "use conditions, or UNION ALL.")
        if None in found:
            message = "UNION ALL of single rows and of other rows is not supported."
            hint = "count in each part, and add the counts up in a query around them."
            raise self._source.unsupported(query, message, hint)
        check_filters(query, self._source)
        return WrittenRows(query, dict(names), given_names(alias), first.item, first.inside)

    def base(self, item: Expr, names: Names) -> Expr:
        """Return where the private table is named whose rows an item after FROM has."""
        rows = self.rows(item, names)
        return item if rows is None else self.base(rows.item, rows.inside)

    def table(self, item: Expr) -> tuple[Table, Span]:
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
