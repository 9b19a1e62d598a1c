"""Items after FROM: the meanings of their names, and which have private rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.errors import Span, SqlError, SqlSchemaError, printable
from dpsql.hints import Hint, never
from dpsql.schema import Table
from dpsql.schema.names import as_sql, folded, quoted_text
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.binding.joins import JoinedItem, name_parts, public_hint
from dpsql.sql.binding.row_queries import UnionColumn, inner_query
from dpsql.sql.binding.tables import NamedTables
from dpsql.sql.text.spans import SourceText

PRIVATE, PUBLIC, NOISY = "private", "public", "noisy"


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """A query of private rows, as it is written."""

    query: Expr
    """A SELECT, or UNION ALL of such queries."""
    names: Names
    """Meanings of names around it."""
    columns: tuple[str, ...]
    """Names that a CTE gives its columns."""
    item: Expr
    """A private table that is named in it."""
    inside: Names
    """Meanings of names inside, as far as they are of private rows."""
    made: tuple[tuple[UnionColumn, ...], ...] = ()
    """Its columns in each UNION ALL of which it is a query, inner ones first."""


@dataclass(frozen=True, slots=True)
class Name:
    """The meaning of a name after FROM: a public table of the sandbox, or a CTE."""

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


# ── Items after FROM ──


class PrivateItems:
    """Finds private rows after FROM in one statement.

    Args:
        source: its text.
        tables: what the names of tables mean.
    """

    def __init__(self, source: SourceText, tables: NamedTables) -> None:
        self._source = self.source = source
        self._tables = self.tables = tables

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

    def add_hint(self, error: SqlSchemaError, private: Sequence[JoinedItem], names: Names) -> None:
        """Say that a table may be public, where a private one can't be described."""
        if not error.unknown:
            items = [self.base(join.item, names) for join in private]
            hint = public_hint(items, self._open(items))
            error.hint = (error.hint or "") + Hint(" Or, ") + hint

    def no_grain(self, private: Sequence[JoinedItem], names: Names, at: Expr) -> SqlError:
        """Refuse a join of private tables without units, of which no row refers to the others.

        Args:
            private: the items.
            names: what names mean there.
            at: the one that can't be joined.
        """
        items = [self.base(join.item, names) for join in private]
        grains = [self._tables.grain(self.table(item)[0]) for item in items]
        steps = next(filter(None, (_steps(table, grains) for table in grains)), [])
        if not steps:
            return self._source.unsupported(
                at,
                "A join of private tables is not supported: a row could be counted many times.",
                public_hint(items, self._open(items)),
            )
        return self._source.unsupported(
            at,
            "A join of private tables must match each row with the row that it refers to; "
            "otherwise rows of different units could be joined.",
            f"join them ON {' AND '.join(steps)}, each table once.",
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

    def is_private(self, item: exp.Table, names: Names) -> bool:
        """Whether an item after FROM is the name of private rows."""
        return isinstance(item.this, exp.Identifier) and self.kind(item, names)[0] == PRIVATE

    def base(self, item: Expr, names: Names) -> Expr:
        """Return where the private table is named whose rows an item after FROM has."""
        known = names.get(folded(item.name)) if isinstance(item, exp.Table) else None
        rows = None if known is None else known.rows
        if rows is not None:
            return self.base(rows.item, rows.inside)
        query = inner_query(item)
        table = None if query is None else query.find(exp.Table)
        return item if table is None else self.base(table, names)

    def table(self, item: Expr) -> tuple[Table, Span]:
        """Return the private table of an item after FROM, and where its name stands."""
        parts = name_parts(item)
        nodes = [item.args[key] for key in ("catalog", "db", "this") if item.args.get(key)]
        spans = [self._source.node(part) for part in nodes]
        span = Span(min(s.start for s in spans), max(s.end for s in spans))
        with self._source.locating(span):
            return self._tables.private(parts), span


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
