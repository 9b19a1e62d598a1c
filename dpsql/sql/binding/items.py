"""Items after FROM: which has private rows, be it a table or a query that filters them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from sqlglot import exp

from dpsql.errors import SchemaError, Span, SqlError, SqlSchemaError, printable
from dpsql.hints import Hint, never
from dpsql.schema import Table
from dpsql.schema.names import as_sql, capitals, folded, quoted_text
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.binding.joins import JoinedItem, joins_of, name_parts, public_hint
from dpsql.sql.binding.named import (
    NOISY,
    PRIVATE,
    PUBLIC,
    Name,
    Names,
    WrittenRows,
    given_names,
)
from dpsql.sql.binding.row_queries import (
    check_filters,
    inner_query,
    is_by_row,
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
    """

    def __init__(self, source: SourceText, tables: NamedTables) -> None:
        self._source = self.source = source
        self._tables = self.tables = tables
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
        """Return the items after FROM whose rows are private."""
        return [join for join in joins if self.is_private(join.item, names)]

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
            kind = NOISY if rows is None else PRIVATE
            inside[folded(cte.alias)] = Name(kind, "", rows)
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
            return None
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
