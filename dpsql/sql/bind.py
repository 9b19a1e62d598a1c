"""Syntax tree → bound statement: names looked up in the schema, the form of the SELECT checked."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from dpsql.errors import SchemaError, Span, SqlError, SqlSchemaError, UnsupportedSqlError, printable
from dpsql.schema import Table
from dpsql.schema.table import as_sql, closest
from dpsql.sql.parse import Parsed
from dpsql.sql.predicates import PredicateBinder
from dpsql.sql.terms import Condition

MAX_NAME_CHARACTERS = 128
SUFFIXES = ("_variance", "_lower", "_upper")
"""What the columns beside a value column are called, after its name."""

_ROW_IDS = {"rowid", "row_id"}


@dataclass(frozen=True, slots=True)
class Running:
    """`SUM(COUNT(*)) OVER (... ORDER BY key)`: running totals along one key."""

    key: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class BoundKey:
    """An output column that tells the group."""

    name: str
    column: str


@dataclass(frozen=True, slots=True)
class BoundValue:
    """An output column with counts, or with running totals of counts."""

    alias: str
    running: Running | None


@dataclass(frozen=True, slots=True)
class BoundStatement:
    """A statement in terms of the schema."""

    name: str
    sql: str
    outputs: tuple[BoundKey | BoundValue, ...]
    keys: tuple[str, ...]
    """The columns of GROUP BY, in order."""
    conditions: tuple[Condition, ...]
    where: Span | None

    @property
    def columns(self) -> frozenset[str]:
        """Every column that the statement names."""
        return frozenset(self.keys).union(*(c.columns for c in self.conditions))


@dataclass(frozen=True, slots=True)
class TableName:
    """A table as the analyst wrote it."""

    parts: tuple[str, ...]
    alias: str | None
    span: Span


def table_name(parsed: Parsed) -> TableName:
    """Return the name after FROM.

    Raises:
        UnsupportedSqlError: there is no FROM, or a file name stands there.
    """
    source, clause = parsed.source, parsed.select.args.get("from_")
    if clause is None or not isinstance(clause.this, exp.Table):
        raise UnsupportedSqlError(
            "A SELECT without FROM counts nothing.",
            sql=source.sql,
            span=source.whole(),
            hint="name the table: SELECT COUNT(*) FROM people.",
        )
    node = clause.this
    identifiers = [node.args[key] for key in ("catalog", "db", "this") if node.args.get(key)]
    start = min(source.node(part).start for part in identifiers)
    span = Span(start, max(source.node(part).end for part in identifiers))
    if "'" in (source.sql[source.node(part).start] for part in identifiers):
        raise UnsupportedSqlError(
            "Reading a file is not supported.",
            sql=source.sql,
            span=span,
            hint="load it into a table first, with an ENUM type or CHECK for each column.",
        )
    return TableName(tuple(part.name for part in identifiers), node.alias or None, span)


def bind(name: str, parsed: Parsed, table: Table) -> BoundStatement:
    """Look up the names of a statement whose syntax is allowed, and check its form.

    Raises:
        SqlSchemaError: an unknown column, or one without a public domain.
        SqlError: repeated output names, or a condition that can't be evaluated.
        UnsupportedSqlError: a selected expression or group that is neither key nor count.
    """
    return _Binder(name, parsed, table).statement()


class _Binder:
    def __init__(self, name: str, parsed: Parsed, table: Table) -> None:
        self._name = name
        self._source = parsed.source
        self._select = parsed.select
        self._table = table
        self._alias = table_name(parsed).alias
        self._renamed = {
            node.alias.lower(): node.this
            for node in parsed.select.expressions
            if isinstance(node, exp.Alias)
        }

    def statement(self) -> BoundStatement:
        keys = self._keys()
        outputs = tuple(self._output(node, keys) for node in self._select.expressions)
        self._check_outputs(outputs, keys)
        where = self._select.args.get("where")
        binder = PredicateBinder(self._source, self._table, self._column)
        return BoundStatement(
            self._name,
            self._source.sql,
            outputs,
            keys,
            binder.conditions(where),
            self._source.clause("WHERE") if where is not None else None,
        )

    def _selected(self, keys: tuple[str, ...]) -> list[str]:
        """Name the keys, and every plain column that is selected besides."""
        columns = [node.unalias().unnest() for node in self._select.expressions]
        plain = [c for c in columns if isinstance(c, exp.Column) and not c.is_star]
        return list(dict.fromkeys([*keys, *(self._column(c) for c in plain)]))

    def _keys(self) -> tuple[str, ...]:
        group = self._select.args.get("group")
        nodes = group.expressions if group is not None else []
        for node in nodes:
            if isinstance(node.unnest(), exp.Literal):
                raise self._unsupported(
                    "GROUP BY a number is not supported.", node, "name the column to group by."
                )
            if not isinstance(node.unnest(), exp.Column):
                raise self._unsupported(
                    "GROUP BY an expression is not supported.",
                    node,
                    "group by plain columns; prepare a derived column, with a public domain, "
                    "in the table.",
                )
        return tuple(dict.fromkeys(self._column(node.unnest()) for node in nodes))

    def _output(self, node: exp.Expr, keys: tuple[str, ...]) -> BoundKey | BoundValue:
        alias = self._output_name(node) if isinstance(node, exp.Alias) else None
        inner = (node.this if isinstance(node, exp.Alias) else node).unnest()
        if isinstance(inner, exp.Star) or (
            isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)
        ):
            raise self._unsupported(
                "SELECT * is not supported: single rows are never returned.",
                inner,
                "name the columns to group by, and COUNT(*).",
            )
        if isinstance(inner, exp.Column):
            column = self._column(inner)
            if column not in keys:
                raise self._unsupported(
                    f"The column {printable(column)} is selected but not grouped by.",
                    inner,
                    f"write GROUP BY {', '.join(map(as_sql, self._selected(keys)))}",
                )
            return BoundKey(alias or column, column)
        if isinstance(inner, exp.Count):
            self._check_count(inner)
            return BoundValue(alias or "count", None)
        if isinstance(inner, exp.Window):
            return BoundValue(alias or "cumulative_count", self._running(inner, keys))
        if isinstance(inner, exp.Sum):
            raise self._unsupported(
                "SUM is not supported, except for running totals of counts.",
                inner,
                "use COUNT(*), or SUM(COUNT(*)) OVER (ORDER BY key) with GROUP BY key.",
            )
        raise self._unsupported(
            "Only columns of GROUP BY and COUNT(*) can be selected, not expressions.",
            inner,
            "select the column itself, and compute on the returned frame, which is free.",
        )

    def _check_count(self, node: exp.Expr) -> None:
        if isinstance(node.this, exp.Star):
            return
        hint = "write COUNT(*)."
        if isinstance(node.this, exp.Column):
            name = as_sql(node.this.name)
            hint = f"write COUNT(*), and WHERE {name} IS NOT NULL to leave out NULL."
        raise self._unsupported("The only supported form of COUNT is COUNT(*).", node, hint)

    def _running(self, node: exp.Window, keys: tuple[str, ...]) -> Running:
        example = "the form is SUM(COUNT(*)) OVER (ORDER BY key) with GROUP BY key."
        if not isinstance(node.this, exp.Sum) or not isinstance(node.this.this, exp.Count):
            raise self._unsupported("This window function is not supported.", node, example)
        self._check_count(node.this.this)
        order = node.args.get("order")
        if order is None or len(order.expressions) != 1:
            raise self._unsupported(
                "Running totals need exactly one key in ORDER BY.", node, example
            )
        ordered = order.expressions[0]
        named = [part.unnest() for part in [*(node.args.get("partition_by") or []), ordered.this]]
        for part in named:
            if not isinstance(part, exp.Column):
                raise self._unsupported("A window takes plain columns only.", part, example)
        *parts, key = (self._column(part) for part in named)
        if key not in keys:
            raise self._unsupported(
                f"The totals run along {printable(key)}, which is not grouped by.",
                ordered,
                f"add it to the end: GROUP BY {', '.join(map(as_sql, [*keys, key]))}",
            )
        others = [k for k in keys if k != key]
        if set(parts) != set(others):
            clause = f"PARTITION BY {', '.join(map(as_sql, others))} " if others else ""
            raise self._unsupported(
                "The window must be partitioned by all other columns of GROUP BY, and no more.",
                node,
                f"write OVER ({clause}ORDER BY {as_sql(key)})",
            )
        descending, nulls_first = ordered.args.get("desc"), ordered.args.get("nulls_first")
        return Running(key, bool(descending), bool(nulls_first))

    def _output_name(self, node: exp.Alias) -> str:
        name = node.alias
        if not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable() or not name.strip():
            raise self._error(
                "This is no good name for a column.",
                node.args["alias"],
                f"use up to {MAX_NAME_CHARACTERS} visible characters.",
            )
        return name

    def _check_outputs(
        self, outputs: tuple[BoundKey | BoundValue, ...], keys: tuple[str, ...]
    ) -> None:
        if not any(isinstance(output, BoundValue) for output in outputs):
            raise UnsupportedSqlError(
                "The statement counts nothing: single rows are never returned.",
                sql=self._source.sql,
                span=self._source.whole(),
                hint="select COUNT(*) too.",
            )
        selected = {output.column for output in outputs if isinstance(output, BoundKey)}
        for key in keys:
            if key not in selected:
                raise UnsupportedSqlError(
                    f"The column {printable(key)} is grouped by but not selected.",
                    sql=self._source.sql,
                    span=self._source.clause("GROUP"),
                    hint=f"select it: SELECT {as_sql(key)}, COUNT(*) ...",
                )
        taken: set[str] = set()
        for output, node in zip(outputs, self._select.expressions, strict=True):
            names = [output.name] if isinstance(output, BoundKey) else [output.alias]
            if isinstance(output, BoundValue):
                names += [output.alias + suffix for suffix in SUFFIXES]
            for name in names:
                if name.lower() in taken:
                    raise self._error(
                        f"Two columns of the answer would be called {printable(name)}.",
                        node,
                        "give each its own name: COUNT(*) AS n. Beside n, the answer has "
                        + ", ".join("n" + suffix for suffix in SUFFIXES)
                        + ".",
                    )
                taken.add(name.lower())

    def _column(self, node: exp.Column) -> str:
        """Look up a column, or the selected column that has this alias.

        Raises:
            SqlSchemaError: there is no such column, or it has no public domain.
        """
        if isinstance(node.this, exp.Star):
            raise self._unsupported("* can't stand here.", node, "name the columns.")
        self._check_qualifier(node)
        name = node.name
        known = {c.lower() for c in (*self._table.columns, *self._table.undeclared)}
        original = self._renamed.get(name.lower())
        if name.lower() not in known and not node.table:
            if isinstance(original, exp.Column) and original is not node:
                if original.name.lower() in known:
                    return self._column(original)
            elif original is not None and original.find_ancestor(exp.Select):
                raise self._unsupported(
                    f"{printable(name)} is computed, and only columns of the table can be used.",
                    node,
                    "store it as a column of the table, with an ENUM type or CHECK; or write one "
                    "statement for each group, with a condition in WHERE.",
                )
            if name.lower() in _ROW_IDS:
                raise self._unsupported(
                    f"{printable(name)} singles out rows.", node, "use columns of the table."
                )
        try:
            return self._table.column(name)
        except SchemaError as error:
            raise SqlSchemaError(
                error.message,
                sql=self._source.sql,
                span=self._source.node(node),
                hint=self._hint_for_label(name) or error.hint,
            ) from None

    def _hint_for_label(self, name: str) -> str | None:
        """Tell a string in the wrong quotes, or in none, from a misspelt column."""
        labels = (d.values for d in self._table.columns.values() if isinstance(d.values[0], str))
        if any(name in values for values in labels):
            text = name.replace("'", "''")
            return f"strings take single quotes: '{printable(text)}'."
        return None

    def _check_qualifier(self, node: exp.Column) -> None:
        written = tuple(
            str(node.args[key].name).lower()
            for key in ("catalog", "db", "table")
            if node.args.get(key)
        )
        path = tuple(part.lower() for part in self._table.path or (self._table.name,))
        # An alias hides the table's own name, as everywhere in SQL.
        good = (self._alias.lower(),) if self._alias else path[-len(written) :] if written else ()
        if written and written != good:
            shown = printable(".".join(written))
            known = self._alias or self._table.name
            raise SqlSchemaError(
                f"{shown} is not the table after FROM.",
                sql=self._source.sql,
                span=self._source.node(node),
                hint=closest(shown, [known]),
            )

    def _error(self, message: str, node: exp.Expr, hint: str) -> SqlError:
        return SqlError(message, sql=self._source.sql, span=self._source.node(node), hint=hint)

    def _unsupported(self, message: str, node: exp.Expr, hint: str) -> UnsupportedSqlError:
        span = self._source.node(node)
        return UnsupportedSqlError(message, sql=self._source.sql, span=span, hint=hint)
