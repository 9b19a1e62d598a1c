"""Stand-ins for private tables: queries without rows, of the same columns and types.

With them DuckDB tells in the sandbox of which type an expression over private rows is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpsql.schema import Table
from dpsql.schema.names import folded, quoted_name
from dpsql.sql.binding.expressions import Expr, quoted, render
from dpsql.sql.binding.items import NOISY, PRIVATE, Names, PrivateItems, WrittenRows
from dpsql.sql.binding.joins import name_parts
from dpsql.sql.sandbox.database import Sandbox, SandboxError, column_type

_INTEGER = "INTEGER"
_INTEGERS = (
    "TINYINT", "SMALLINT", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
    "UHUGEINT",
)  # fmt: skip
KEYS = frozenset({_INTEGER, "VARCHAR", "DATE", "BOOLEAN"})
"""Types of which no two values are equal to a third one of the same type."""

_PLAIN = re.compile(r"[A-Z0-9_]+(\([0-9]+, ?[0-9]+\))?|ENUM\(.*\)", re.DOTALL)
_OTHER = "INTERVAL"


class _UnknownTypeError(Exception):
    """The rows of an item are answers, or it has queries of its own."""


@dataclass(frozen=True, slots=True)
class StandIns:
    """Types of expressions over the rows of queries.

    Args:
        sandbox: where public tables are.
        items: tells items after FROM apart.
    """

    sandbox: Sandbox
    items: PrivateItems

    def types(
        self, expressions: Sequence[Expr], select: exp.Select, names: Names
    ) -> list[str] | None:
        """Return the types of expressions over what stands after FROM; None if they aren't known.

        Those of whole numbers are one, and so are those of texts.
        """
        if select.args.get("from_") is None:
            return None
        listed = [
            exp.Alias(this=one.copy(), alias=quoted(f"c{i}")) for i, one in enumerate(expressions)
        ]
        probe = exp.Select(
            expressions=listed,
            from_=select.args["from_"].copy(),
            joins=[join.copy() for join in select.args.get("joins") or ()],
        )
        try:
            found = self.sandbox.types(render(self._standing_in(probe, names)))
        except (SandboxError, _UnknownTypeError):
            return None
        return [_same(type_) for _, type_ in found]

    def _standing_in(self, query: Expr, names: Names) -> Expr:
        """Return a query over other tables of the same columns; it is changed."""
        if query.find(exp.CTE) is not None:
            raise _UnknownTypeError
        for table in list(query.find_all(exp.Table)):
            table.replace(self._table(table, names))
        return query

    def _table(self, table: exp.Table, names: Names) -> Expr:
        if not isinstance(table.this, exp.Identifier):
            raise _UnknownTypeError
        kind, stored = self.items.kind(table, names)
        alias = table.args.get("alias") or exp.TableAlias(this=quoted(table.name))
        if kind == NOISY:
            raise _UnknownTypeError
        if kind != PRIVATE:
            return exp.Table(this=quoted(stored), alias=alias.copy())
        known = names.get(folded(table.name)) if len(name_parts(table)) == 1 else None
        query = _no_rows(self.items.table(table)[0].alone) if known is None else None
        if query is None:
            query = self._named(known.rows if known is not None else None)
        return exp.Subquery(this=query, alias=alias.copy())

    def _named(self, rows: WrittenRows | None) -> Expr:
        """Return the query of a CTE of private rows, over stand-ins."""
        if rows is None or rows.columns:
            raise _UnknownTypeError
        return self._standing_in(rows.query.copy(), rows.names)


def _no_rows(table: Table) -> Expr:
    """Return a query without rows that has a table's columns.

    Of those that nothing is compared with here the type is none of any key. A cell that stands for
    several stored values is no key: a row has what is stored, and the value is of all of them.
    """
    types = {
        n: type_ if _PLAIN.fullmatch(type_) else _OTHER for n, type_ in table.undeclared.items()
    }
    for name, domain in table.columns.items():
        plain = "TIMESTAMP" if domain.timed else column_type(domain)
        types[name] = plain if domain.timed or not table.merges(name) else _OTHER
    listed = (f"CAST(NULL AS {types[name]}) AS {quoted_name(name)}" for name in table.listed)
    made: Expr = exp.maybe_parse(f"SELECT {', '.join(listed)} WHERE FALSE", dialect="duckdb")
    return made


def _same(type_: str) -> str:
    """Return one name of types whose values are compared as what they are."""
    if type_ in _INTEGERS:
        return _INTEGER
    return "VARCHAR" if type_.startswith("ENUM") else type_
