"""The allow-list: which syntax nodes a statement may have, and which of their arguments.

Everything that is not listed is refused, also arguments, because the parser hangs clauses like
FOR UPDATE or INTO on nodes that look harmless. The tables of refusals below only choose the words.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from dpsql.errors import Span, SqlParseError, UnsupportedSqlError
from dpsql.sql.parse import Parsed
from dpsql.sql.spans import JOINS, Source

_PAIR = frozenset({"this", "expression"})
_ONE = frozenset({"this"})

ALLOWED: dict[type[exp.Expr], frozenset[str]] = {
    exp.Select: frozenset({"expressions", "from_", "where", "group"}),
    exp.From: _ONE,
    exp.Table: frozenset({"this", "db", "catalog", "alias"}),
    exp.TableAlias: _ONE,
    exp.Where: _ONE,
    exp.Group: frozenset({"expressions"}),
    exp.Alias: frozenset({"this", "alias"}),
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Identifier: frozenset({"this", "quoted"}),
    exp.Count: frozenset({"this", "big_int"}),
    exp.Star: frozenset(),
    exp.Sum: _ONE,
    exp.Window: frozenset({"this", "partition_by", "order", "over"}),
    exp.Order: frozenset({"expressions"}),
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Boolean: _ONE,
    exp.Null: frozenset(),
    exp.Paren: _ONE,
    exp.Not: _ONE,
    exp.And: _PAIR,
    exp.Or: _PAIR,
    exp.EQ: _PAIR,
    exp.NEQ: _PAIR,
    exp.LT: _PAIR,
    exp.LTE: _PAIR,
    exp.GT: _PAIR,
    exp.GTE: _PAIR,
    exp.NullSafeEQ: _PAIR,
    exp.NullSafeNEQ: _PAIR,
    exp.Is: _PAIR,
    exp.Between: frozenset({"this", "low", "high"}),
    exp.In: frozenset({"this", "expressions"}),
    exp.Add: _PAIR,
    exp.Sub: _PAIR,
    exp.Mul: _PAIR,
    exp.Neg: _ONE,
    exp.Abs: _ONE,
}

_SORT = "sort the returned frame, it is free: frame.sort(...)"
_FREE = "filter the returned frame, it is free: frame.filter(...)"
_ONE_TABLE = "count the rows of one table; put what you need into columns of that table."
_PLAIN = (
    "group by and filter on plain columns; prepare a derived column, with a public domain, "
    "in the table."
)
_BANDS = (
    "store the groups as a column of the table, with an ENUM type or CHECK; or write one "
    "statement for each of them: WHERE age BETWEEN 20 AND 29."
)
_NAMED_TABLE = "name a table of the database: FROM people."
_LITERAL = "write the value itself into the SQL."

_CLAUSES: dict[str, tuple[tuple[str, ...], str, str]] = {
    # argument of Select → first words, name, what to write instead
    "distinct": (("DISTINCT",), "DISTINCT", "use GROUP BY: each group is returned once anyway."),
    "into": (("INTO",), "INTO", "the answer is returned as a frame; store that."),
    "joins": (tuple(JOINS), "A join", _ONE_TABLE),
    "laterals": (("LATERAL",), "LATERAL", _ONE_TABLE),
    "having": (("HAVING",), "HAVING", _FREE),
    "qualify": (("QUALIFY",), "QUALIFY", _FREE),
    "windows": (("WINDOW",), "WINDOW", "write the window out: OVER (ORDER BY age)."),
    "order": (("ORDER",), "ORDER BY", _SORT),
    "limit": (("LIMIT", "FETCH"), "LIMIT", "cut the returned frame, it is free: frame.head(10)"),
    "offset": (("OFFSET",), "OFFSET", "cut the returned frame, it is free: frame.slice(10)"),
    "sample": (
        ("USING", "TABLESAMPLE"),
        "Sampling",
        "leave it out: the noise already protects each row.",
    ),
    "locks": (("FOR",), "FOR UPDATE", "leave it out: nothing is ever written."),
    "pivots": (("PIVOT", "UNPIVOT"), "PIVOT", "pivot the returned frame: frame.pivot(...)"),
}

_ARGUMENTS: dict[tuple[type[exp.Expr], str], tuple[str, str]] = {
    (exp.Group, "all"): ("GROUP BY ALL", "name the columns: GROUP BY sex, age."),
    (exp.Group, "totals"): ("GROUP BY ... WITH TOTALS", "write the total as its own statement."),
    (exp.Table, "sample"): ("Sampling", "leave it out: the noise already protects each row."),
    (exp.Table, "when"): ("Time travel", "release from the table as it is now."),
    (exp.Table, "joins"): ("A join", _ONE_TABLE),
    (exp.Table, "pivots"): ("PIVOT", "pivot the returned frame: frame.pivot(...)"),
    (exp.TableAlias, "columns"): ("Renaming columns in FROM", "rename them in the SELECT list."),
    (exp.Between, "symmetric"): ("BETWEEN SYMMETRIC", "write the smaller bound first."),
    (exp.In, "query"): ("A subquery", "list the values: IN ('a', 'b')."),
    (exp.In, "unnest"): ("IN UNNEST", "list the values: IN ('a', 'b')."),
    (exp.In, "field"): ("IN without parentheses", "list the values: IN ('a', 'b')."),
    (exp.Window, "spec"): (
        "An explicit window frame",
        "leave it out: ORDER BY alone already sums from the first row to the current one.",
    ),
    (exp.Window, "alias"): ("A named window", "write the window out: OVER (ORDER BY age)."),
    (exp.Star, "except_"): ("SELECT * EXCLUDE", "name the columns to group by, and COUNT(*)."),
    (exp.Star, "replace"): ("SELECT * REPLACE", "name the columns to group by, and COUNT(*)."),
    (exp.Star, "rename"): ("SELECT * RENAME", "name the columns to group by, and COUNT(*)."),
    (exp.Ordered, "with_fill"): ("WITH FILL", "leave it out: all groups are returned anyway."),
}

_NODES: tuple[tuple[tuple[type[exp.Expr], ...], str, str], ...] = (
    # The first row that fits gives the words.
    ((exp.DML, exp.DDL), "A statement that writes", "only SELECT is supported."),
    (
        (exp.Subquery, exp.Exists, exp.Select, exp.SetOperation, exp.Any, exp.All),
        "A subquery",
        "filter by WHERE on the columns of the table itself.",
    ),
    (
        (exp.Filter,),
        "FILTER",
        "put the condition into WHERE, in a statement of its own.",
    ),
    ((exp.Distinct,), "DISTINCT", "COUNT(*) counts rows; distinct values can't be counted."),
    (
        (exp.Rollup, exp.Cube, exp.GroupingSets),
        "A grouping set",
        "write one statement for each grouping; they are planned together.",
    ),
    (
        (exp.Placeholder, exp.Parameter, exp.SessionParameter),
        "A parameter",
        _LITERAL,
    ),
    (
        (exp.Like, exp.ILike, exp.SimilarTo, exp.RegexpLike, exp.Glob, exp.RegexpILike),
        "Pattern matching",
        "list the values: IN ('a', 'b').",
    ),
    ((exp.Collate,), "COLLATE", "compare with the exact values: IN ('a', 'A')."),
    ((exp.Case, exp.If), "CASE", "write the condition with AND, OR and NOT."),
    (
        (exp.Cast, exp.TryCast),
        "A cast",
        "compare with a literal of the column's own type: age = 30, sex = 'Female'.",
    ),
    ((exp.Mod,), "The remainder %", "list the values: IN (0, 2, 4)."),
    (
        (exp.Div, exp.IntDiv),
        "Division",
        "multiply the other side of a comparison: a <= 2*b in place of a/2 <= b; "
        "divide counts in the returned frame.",
    ),
    ((exp.Interval, exp.Columns), "This expression", _PLAIN),
    ((exp.IgnoreNulls, exp.RespectNulls), "IGNORE NULLS", "leave it out."),
    ((exp.WithinGroup,), "WITHIN GROUP", "COUNT(*) is the supported aggregate."),
    (
        (exp.HexString, exp.BitString, exp.ByteString, exp.National, exp.RawString),
        "A literal of this form",
        "write a whole or decimal number, or a string in single quotes.",
    ),
)


def check_allowed(parsed: Parsed) -> None:
    """Refuse every node and argument that is not on the list.

    Raises:
        UnsupportedSqlError: names the first such construct, where it is, and what to write.
        SqlParseError: an operator lacks an operand.
    """
    pending: list[exp.Expr] = [parsed.select]
    while pending:
        node = pending.pop()
        if type(node) not in ALLOWED or (isinstance(node, exp.Select) and node.parent):
            raise _refused_node(node, parsed.source)
        if any(need and node.args.get(key) is None for key, need in node.arg_types.items()):
            raise SqlParseError(
                "Something is missing here.",
                sql=parsed.source.sql,
                span=parsed.source.node(node),
                hint="check the operators: each needs its operands.",
            )
        refused = [
            _refused_argument(node, key, value, parsed.source)
            for key, value in node.args.items()
            if _given(value) and key not in ALLOWED[type(node)]
        ]
        if refused:
            raise min(refused, key=lambda error: error.span or Span(0, 0))
        if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
            span = parsed.source.node(node.this)
            raise _error("A table function", parsed.source, span, _NAMED_TABLE)
        pending += reversed(list(node.iter_expressions()))


def _given(value: object) -> bool:
    return value is not None and value is not False and value != []


def _refused_argument(
    node: exp.Expr, key: str, value: object, source: Source
) -> UnsupportedSqlError:
    if isinstance(node, exp.Select) and key in _CLAUSES:
        words, name, hint = _CLAUSES[key]
        span = source.clause(*words) or source.whole()
        if key == "distinct":
            span = source.first(TokenType.DISTINCT) or span
        return _error(name, source, span, hint)
    inner = value[0] if isinstance(value, list) else value
    span = source.node(inner) if isinstance(inner, exp.Expr) else source.node(node)
    if (type(node), key) in _ARGUMENTS:
        name, hint = _ARGUMENTS[type(node), key]
        if isinstance(node, exp.Group):
            span = source.clause("GROUP") or span
        elif isinstance(node, (exp.Table, exp.TableAlias)):
            span = source.clause("TABLESAMPLE" if key == "sample" else "FROM") or span
        elif isinstance(node, (exp.Between, exp.Window, exp.Star)):
            span = source.node(node)
        return _error(name, source, span, hint)
    words_of_key = key.strip("_").replace("_", " ").upper()
    return _error(words_of_key, source, span, "leave it out.")


def _refused_node(node: exp.Expr, source: Source) -> UnsupportedSqlError:
    span = source.node(node)
    if isinstance(node, exp.IgnoreNulls) and "IGNORE" not in source.text(span).upper():
        node = node.this  # the parser adds it to ANY_VALUE
    if isinstance(node, (exp.Placeholder, exp.Parameter)):
        span = source.first(TokenType.PLACEHOLDER, TokenType.PARAMETER) or span
    if isinstance(node.parent, exp.Table):
        return _error("A table function", source, span, _NAMED_TABLE)
    if isinstance(node.parent, exp.From) and not isinstance(node, exp.Subquery):
        span = source.clause("FROM") or span
        return _error("Anything but a table after FROM", source, span, _NAMED_TABLE)
    if isinstance(node.parent, exp.Window) and isinstance(node, exp.Func):
        hint = "the form is SUM(COUNT(*)) OVER (ORDER BY key) with GROUP BY key."
        return _error("This window function", source, source.node(node.parent), hint)
    if isinstance(node, (exp.Rollup, exp.Cube, exp.GroupingSets)):
        span = source.clause("GROUP") or span
    for types, name, hint in _NODES:
        if isinstance(node, types):
            return _error(name, source, span, _in_context(node, hint))
    word = source.text(span).split("(")[0].strip().upper()
    if isinstance(node, exp.AggFunc):
        hint = "COUNT(*) is the supported aggregate; averages and ranks can be had from counts."
        return _error(f"The aggregate {word}", source, span, hint)
    if isinstance(node, exp.Func) and "(" in source.text(span):
        return _error(f"The function {word}", source, span, _PLAIN)
    if isinstance(node, exp.Binary):
        hint = "supported are = <> < <= > >= + - * AND OR NOT BETWEEN IN and IS NULL."
        return _error("This operator", source, span, hint)
    return _error("This expression", source, span, _PLAIN)


def _in_context(node: exp.Expr, hint: str) -> str:
    """Word the hint for what a construct is mostly tried for at its place."""
    if isinstance(node, exp.Cast) and node.to.this in exp.DataType.TEMPORAL_TYPES:
        return (
            "dates and times can't have a domain yet; store a whole number derived from them, "
            "such as the year, in a column with a CHECK."
        )
    makes_groups = isinstance(node, (exp.Case, exp.If, exp.Div, exp.IntDiv, exp.Mod))
    return _BANDS if makes_groups and node.find_ancestor(exp.Where) is None else hint


def _error(name: str, source: Source, span: Span, hint: str) -> UnsupportedSqlError:
    return UnsupportedSqlError(f"{name} is not supported.", sql=source.sql, span=span, hint=hint)
