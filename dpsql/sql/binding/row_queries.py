"""Queries of rows after FROM: SELECTs that return a row for each, and UNION ALL of several.

Columns of a UNION ALL have one type, to which what each query has in them is cast. DuckDB makes
texts of 1 and 'a', and timestamps of dates and timestamps. Numbers stay what they are: as a whole
number, a decimal or a DOUBLE, a value means the same.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import TypeGuard

from sqlglot import exp

from dpsql.hints import never
from dpsql.schema import Table
from dpsql.schema.names import capitals, folded
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import Expr, has_aggregate, joined_bound, paren, render
from dpsql.sql.binding.scope import NamedColumn
from dpsql.sql.sandbox.database import Sandbox, SandboxError, column_type
from dpsql.sql.text.spans import SourceText

UNNAMED = "unnamed_subquery"
"""DuckDB's name of a query after FROM that has none."""
_OF_OTHERS = ("group", "having", "distinct", "qualify", "limit", "offset")
"""Clauses with which a row of a SELECT is of several others, or depends on them."""
_CHOOSING = {
    "limit": never("rows have no order. Choose them by a condition after WHERE."),
    "offset": never("rows have no order. Choose them by a condition after WHERE."),
    "qualify": "leave it out, or compute on groups, with GROUP BY.",
}
"""Clauses that choose rows by other rows → what to do instead."""


def is_by_row(select: exp.Select) -> bool:
    """Whether a SELECT over rows computes on each by itself: it projects and filters them.

    So a SELECT over it is one over the rows themselves: its conditions are conditions on them, and
    its columns stand for expressions over theirs. That is right where what joins it keeps all of
    its rows in their place, or leaves some out: σ(A) ⋈ B = σ(A ⋈ B) for INNER, LEFT, SEMI and ANTI
    joins to the right of A.
    """
    if any(select.args.get(key) for key in _OF_OTHERS):
        return False
    where = select.args.get("where")
    parts = [*select.expressions, *([] if where is None else [where.this])]
    return not any(has_aggregate(part) or _has_window(part) for part in parts)


def _has_window(node: Expr) -> bool:
    """Whether a window stands in an expression, outside of subqueries."""
    if isinstance(node, exp.Window):
        return True
    inside = () if isinstance(node, exp.Query) else node.iter_expressions()
    return any(map(_has_window, inside))


def check_not_chosen(query: exp.Query, source: SourceText, *, of_units: bool) -> None:
    """Refuse clauses that choose rows by others, unless it can be by those of the same unit.

    Raises:
        UnsupportedSqlError: there is one.
    """
    for key, hint in _CHOOSING.items():
        clause = query.args.get(key)
        if clause is None or (key == "qualify" and of_units):
            continue
        if of_units:
            hint = "choose rows of each unit: QUALIFY row_number() OVER (PARTITION BY …) = 1."
        place = clause.this if key == "qualify" else clause.expression
        written = clause.meta.get("written", capitals(key))
        raise source.unsupported(place, f"{written} of single rows is not supported.", hint)


def check_grouped(select: exp.Select, source: SourceText) -> None:
    """Refuse clauses that make other rows of groups, or of all rows.

    Raises:
        UnsupportedSqlError: there is one.
    """
    group = select.args.get("group")
    having, distinct = select.args.get("having"), select.args.get("distinct")
    if distinct is not None and group is not None:
        raise source.unsupported(
            distinct,
            "DISTINCT of groups is not supported in the same query.",
            "write it around: SELECT DISTINCT … FROM (SELECT … GROUP BY …).",
        )
    if having is not None and group is None:
        raise source.unsupported(
            having,
            "HAVING without GROUP BY makes one group of the rows of all units.",
            "use WHERE, or GROUP BY what tells the unit.",
        )


def inner_query(item: Expr) -> Expr | None:
    """Return the query in an item after FROM, without its parentheses; None if it is a name."""
    inner: Expr = item
    while isinstance(inner, exp.Subquery):
        inner = inner.this
    return None if inner is item or isinstance(inner, exp.Table) else inner


def unused(name: str, taken: Set[str]) -> str:
    """Return a name, with a number behind it if others have it, in small letters."""
    numbered = (f"{name}_{number}" for number in count(1))
    return next(new for new in chain([name], numbered) if folded(new) not in taken)


def column_name(node: Expr, source: SourceText) -> str:
    """Return what DuckDB calls an item of a SELECT list."""
    if isinstance(node, exp.Alias):
        return node.alias
    if isinstance(node.unnest(), exp.Column):
        return node.unnest().name
    return " ".join(source.text(source.node(node)).split())


# ── UNION ALL ──


TEXT = "VARCHAR"
_NUMBERS = ("DECIMAL", "DOUBLE", "FLOAT", "BIGINT", "HUGEINT", "INTEGER", "SMALLINT", "TINYINT")
_NUMERIC = (*_NUMBERS, "UBIGINT", "UHUGEINT", "UINTEGER", "USMALLINT", "UTINYINT")


@dataclass(frozen=True, slots=True)
class TypedPart:
    """An expression over the rows of a table, with public ones that are joined."""

    node: Expr
    table: Table
    relations: Sequence[Relation] = ()


@dataclass(frozen=True, slots=True)
class UnionColumn:
    """A column of UNION ALL, as one of its queries has it."""

    name: str
    type: str
    """The type that it is cast to; empty if it stays what it is."""
    alike: bool
    """Whether all queries have the same values in it, as far as they are known."""

    def of(self, column: NamedColumn) -> NamedColumn:
        """Return the query's column as that of the union."""
        if not self.type or column.error is not None:
            return replace(column, name=self.name, listed=column.listed and self.alike)
        bound = column.value
        cast = exp.Cast(this=paren(bound.node), to=exp.DataType.build(self.type, dialect="duckdb"))
        return NamedColumn(self.name, joined_bound(cast, [bound], bound.span), listed=False)


def casts_of(several: Sequence[TypedPart], sandbox: Sandbox) -> list[str]:
    """Return to what types expressions are cast where they are put together; empty for none."""
    queries = [_query(typed, sandbox) for typed in several]
    try:
        types = [_type_of(query, sandbox) for query in (*queries, " UNION ALL ".join(queries))]
    except SandboxError:  # which will be told where it is evaluated
        return [""] * len(several)
    *own, whole = types
    return ["" if type_ == whole or _same(type_, whole) else whole for type_ in own]


def _same(one: str, other: str) -> bool:
    """Whether values mean the same in two types."""
    return one.startswith(_NUMERIC) and other.startswith(_NUMERIC)


def _type_of(query: str, sandbox: Sandbox) -> str:
    ((_, type_),) = sandbox.types(query)
    return type_


def _query(typed: TypedPart, sandbox: Sandbox) -> str:
    """Select an expression over columns of their own types, of no row."""
    table = typed.table
    types = {f"__w{i}": type_ for i, type_ in enumerate(table.undeclared.values())}
    for i, domain in enumerate(table.columns.values()):
        types[f"__a{i}"] = "TIMESTAMP" if domain.timed else column_type(domain)
    for relation in typed.relations:
        types |= dict(sandbox.types(f"SELECT * FROM {relation.table}"))
    names = dict.fromkeys(part.name for part in typed.node.find_all(exp.Column))
    listed = [f"CAST(NULL AS {types[name]}) AS {name}" for name in names if name in types]
    return f"SELECT {render(typed.node)} FROM (SELECT {', '.join([*listed, '0'])} WHERE false)"


def parts_of(query: exp.SetOperation) -> list[Expr]:
    """Return the queries that are put one below the other, without parentheses."""
    return [part for side in (query.this, query.expression) for part in _flattened(side)]


def _flattened(side: Expr) -> list[Expr]:
    while isinstance(side, exp.Subquery):
        side = side.this
    while (inside := _all_of(side)) is not None:
        side = inside
    plain = not any(side.args.get(key) for key in ("with_", "limit", "offset"))
    return parts_of(side) if plain and is_union_all(side) else [side]


def _all_of(query: Expr) -> Expr | None:
    """Return the UNION ALL of which a query is SELECT * and nothing more; None if it isn't."""
    stars = [isinstance(node, exp.Star) and not _said(node) for node in query.expressions]
    if not isinstance(query, exp.Select) or stars != [True]:
        return None
    item = query.args["from_"].this if _said(query) == {"expressions", "from_"} else None
    if not isinstance(item, exp.Subquery):
        return None
    inside, alias = item.this, item.args.get("alias")
    if _said(item) - {"this", "alias"} or (alias is not None and alias.args.get("columns")):
        return None
    while isinstance(inside, exp.Subquery) and _said(inside) == {"this"}:
        inside = inside.this
    return inside if is_union_all(inside) or _all_of(inside) is not None else None


def _said(node: Expr) -> set[str]:
    """Name the parts that a node has."""
    return {key for key, value in node.args.items() if value}


def is_union_all(query: Expr) -> TypeGuard[exp.Union]:
    """Whether a query has all rows of both of its sides."""
    return isinstance(query, exp.Union) and query.args.get("distinct") is False
