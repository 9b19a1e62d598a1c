"""The allow-list: which syntax nodes a statement may have, and which of their arguments.

Everything that is not listed is refused. So are arguments, because the parser attaches clauses like
FOR UPDATE or INTO to nodes that look harmless. The tables of refusals below only choose the words.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from datetime import datetime
from itertools import chain

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokenizer_core import TokenType

from dpsql.errors import Span, SqlError, SqlParseError
from dpsql.hints import COUNTED, Hint, ask, first_that_works, instead, leave_out, never, write
from dpsql.schema.names import RESERVED, as_sql, capitals, folded, one_of
from dpsql.sql.binding.aggregates import argument_of, refused
from dpsql.sql.binding.expressions import AGGREGATES, FUNCTIONS, NAMED, TYPES, VOLATILE, WINDOWS
from dpsql.sql.shorthands import orders_by_all
from dpsql.sql.text.edits import joined_on, listed, plain_names, swapped, written
from dpsql.sql.text.parse import ONLY_SELECT, Parsed
from dpsql.sql.text.spans import SourceText

_PAIR = frozenset({"this", "expression"})
_ONE = frozenset({"this"})
_LIST = frozenset({"expressions"})
_QUERY = frozenset({"with_", "order", "limit", "offset"})

STRUCTURE: dict[type[exp.Expr], frozenset[str]] = {
    exp.Select: _QUERY
    | {"expressions", "from_", "joins", "where", "group", "having", "qualify", "windows"}
    | {"distinct"},
    exp.Union: _QUERY | _PAIR | {"distinct"},
    exp.Except: _QUERY | _PAIR | {"distinct"},
    exp.Intersect: _QUERY | _PAIR | {"distinct"},
    exp.Subquery: frozenset({"this", "alias"}),
    exp.With: _LIST,
    exp.CTE: frozenset({"this", "alias", "materialized"}),
    exp.From: _ONE,
    exp.Join: frozenset({"this", "on", "using", "kind", "side", "method"}),
    exp.Table: frozenset({"this", "db", "catalog", "alias"}),
    exp.TableAlias: frozenset({"this", "columns"}),
    exp.Values: frozenset({"expressions", "alias"}),
    exp.Unnest: frozenset({"expressions", "alias", "offset"}),
    exp.Where: _ONE,
    exp.Having: _ONE,
    exp.Qualify: _ONE,
    exp.Group: frozenset({"expressions", "all"}),
    exp.Rollup: _LIST,
    exp.Cube: _LIST,
    exp.GroupingSets: _LIST,
    exp.Grouping: _LIST,
    exp.Distinct: _LIST,
    exp.Order: _LIST | _ONE,  # of an aggregate it has what is aggregated
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.Limit: frozenset({"expression"}),
    exp.Offset: frozenset({"expression"}),
    exp.Alias: frozenset({"this", "alias"}),
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Identifier: frozenset({"this", "quoted"}),
    exp.Star: frozenset(),
    exp.Window: frozenset({"this", "partition_by", "order", "over", "spec", "alias"}),
    exp.WindowSpec: frozenset({"kind", "start", "start_side", "end", "end_side"}),
    exp.Filter: _PAIR,
    exp.WithinGroup: _PAIR,
}
"""Nodes that shape a statement → their arguments. An argument that is not listed is refused."""

EXPRESSIONS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Boolean: _ONE,
    exp.Null: frozenset(),
    exp.Paren: _ONE,
    exp.Tuple: _LIST,
    exp.Array: frozenset({"expressions", "value_constructor"}),
    exp.Bracket: frozenset({"this", "expressions", "_type"}),
    exp.Dot: _PAIR,
    exp.Struct: _LIST,
    exp.PropertyEQ: _PAIR,
    exp.Not: _ONE,
    exp.Is: _PAIR,
    exp.Between: frozenset({"this", "low", "high"}),
    exp.In: frozenset({"this", "expressions", "query"}),
    exp.Exists: _ONE,
    exp.Escape: _PAIR,
    exp.Neg: _ONE,
    exp.Div: _PAIR | {"typed", "safe"},
    exp.DPipe: _PAIR | {"safe"},
    exp.Like: _PAIR | {"negate"},
    exp.ILike: _PAIR | {"negate"},
    exp.Cast: frozenset({"this", "to", "_type"}),
    exp.Try: _ONE,
    exp.TryCast: frozenset({"this", "to", "_type", "safe", "requires_string"}),
    exp.DataType: frozenset({"this", "nested", "expressions"}),
    exp.DataTypeParam: _ONE,
    exp.Interval: frozenset({"this", "unit"}),
    exp.Var: _ONE,
    exp.GenerateSeries: frozenset({"start", "end", "step", "is_end_exclusive"}),
    **dict.fromkeys(
    (
        exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ,
        exp.NullSafeNEQ, exp.Add, exp.Sub, exp.Mul, exp.IntDiv, exp.Mod, exp.Glob,
        exp.SimilarTo, exp.Pow,
    ),
    _PAIR,
    ),
}  # fmt: skip
"""Nodes of expressions that are not functions, and their arguments."""

_OWN = never(
    "names that begin with __ are the library's own. A view gives a table's column another name: "
    "CREATE VIEW … AS SELECT … FROM …;"
)
_SAMPLE = leave_out() + ": the noise already protects each row."
_BRACKETS = "leave the parentheses out, or write a query with a name: (SELECT … FROM …) AS t."
_PLAIN = never("what is computed is listed in docs/reference/sql/functions.md.")
_NOW = frozenset({"now", "get_current_time", "get_current_timestamp", "transaction_timestamp"})
"""Functions that tell the time, which the parser doesn't know."""
_HINTS: dict[str, Callable[[str], str]] = {
    "histogram": lambda of: (
        "count the rows of each value: " + ask(f"SELECT {of}, COUNT(*) … GROUP BY {of}") + "."
    ),
    "mad": lambda of: (
        "take the distance of two quantiles: "
        + instead(f"QUANTILE_CONT({of}, 0.75) - QUANTILE_CONT({of}, 0.25)")
        + "."
    ),
    "count_star": lambda _: "write " + instead("COUNT(*)") + ".",
}
"""Hints to write something else in place of a function, made of its arguments."""
_TODAY = {
    "DATE": ("current_date", "today"),
    "TIME": ("current_time", "localtime", "get_current_time"),
    "TIMESTAMP": ("current_timestamp", "localtimestamp", *(_NOW - {"get_current_time"})),
}
"""Types → functions that tell the time in one of it."""
_RANDOM = never(
    "an answer is the same whenever it is computed. Add random numbers to the returned frame."
)
_NAMED_TABLE = never(
    "a statement reads tables of the database, and VALUES (…), generate_series(…) and unnest([…]), "
    "which are public. Store what is meant in a table, and name it: CREATE TABLE … AS FROM …;"
)

_TYPES = "cast to a number, VARCHAR, BOOLEAN, DATE, TIME or TIMESTAMP."
_WINDOW = ", row_number, rank, dense_rank, ntile, lag, lead, first_value, last_value."
_LITERAL = "write the value itself into the SQL, for example " + instead("42") + "."

_CLAUSES: dict[str, tuple[tuple[str, ...], str, str]] = {
    # argument of Select → first words, name, what to write instead
    "into": (("INTO",), "INTO", leave_out() + ": the answer is returned as a frame; store that."),
    "laterals": (
        ("LATERAL",),
        "LATERAL",
        "join the table itself; or write each of its columns as a subquery: (SELECT COUNT(*) FROM "
        "orders o WHERE o.customer_id = c.id).",
    ),
    "sample": (("USING", "TABLESAMPLE"), "Sampling", _SAMPLE),
    "locks": (("FOR",), "FOR UPDATE", leave_out() + ": nothing is ever written."),
}

_ARGUMENTS: dict[tuple[type[exp.Expr], str], tuple[str, str]] = {
    (exp.Group, "totals"): ("GROUP BY ... WITH TOTALS", "write GROUP BY ROLLUP (sex, age)."),
    (exp.Table, "sample"): ("Sampling", _SAMPLE),
    (exp.Subquery, "sample"): ("Sampling", _SAMPLE),
    (exp.Table, "when"): ("Time travel", "release from the table as it is now."),
    (exp.Table, "joins"): ("This join in parentheses", _BRACKETS),
    (exp.Subquery, "joins"): ("This join in parentheses", _BRACKETS),
    (exp.Subquery, "order"): ("ORDER BY behind parentheses", "leave the parentheses out."),
    (exp.Subquery, "limit"): ("LIMIT behind parentheses", "leave the parentheses out."),
    (exp.Subquery, "offset"): ("OFFSET behind parentheses", "leave the parentheses out."),
    (exp.With, "recursive"): (
        "WITH RECURSIVE",
        never("a query can't use itself here. For counting, use generate_series(1, 10)."),
    ),
    (exp.Distinct, "on"): (
        "This DISTINCT ON",
        "write QUALIFY row_number() OVER (PARTITION BY … ORDER BY …) = 1.",
    ),
    (exp.Limit, "expressions"): ("LIMIT BY", "use QUALIFY row_number() OVER (…) <= 10."),
    (exp.In, "unnest"): ("IN UNNEST", "list the values: IN ('a', 'b')."),
    (exp.In, "field"): ("IN without parentheses", "list the values: IN ('a', 'b')."),
    (exp.WindowSpec, "exclude"): ("EXCLUDE", "leave it out, or count what it excludes by itself."),
    (exp.Star, "except_"): ("SELECT * EXCLUDE", COUNTED),
    (exp.Star, "replace"): ("SELECT * REPLACE", COUNTED),
    (exp.Star, "rename"): ("SELECT * RENAME", COUNTED),
    (exp.Ordered, "with_fill"): ("WITH FILL", "leave it out: all groups are returned anyway."),
    (exp.DataType, "kind"): ("A user-defined type", _TYPES),
    (exp.Table, "ordinality"): ("WITH ORDINALITY", "number the rows in the public table."),
}

_WITHOUT = {
    "ordinality": (r"\s+WITH ORDINALITY\b", ""),
    "when": (r"\s+AT\s*\(.*?\)", ""),
    "exclude": (r"\s+EXCLUDE (?:CURRENT ROW|GROUP|TIES|NO OTHERS)\b", ""),
}
"""Arguments of nodes → how the words for them are left out."""
_NILADIC = (
    TokenType.CURRENT_DATE,
    TokenType.CURRENT_TIME,
    TokenType.CURRENT_TIMESTAMP,
    TokenType.CURRENT_USER,
    TokenType.CURRENT_ROLE,
    TokenType.CURRENT_CATALOG,
    TokenType.SESSION_USER,
    TokenType.LOCALTIME,
    TokenType.LOCALTIMESTAMP,
)
"""Words that are functions without parentheses, of which the parser keeps no position."""

_NODES: tuple[tuple[tuple[type[exp.Expr], ...], str, str], ...] = (
    # The first row that fits gives the words.
    ((exp.DML, exp.DDL), "A statement that writes", ONLY_SELECT),
    (
        (exp.Any, exp.All),
        "A comparison with all values of a list",
        "use IN (…), or compare with a single value.",
    ),
    ((exp.Placeholder, exp.Parameter, exp.SessionParameter), "A parameter", _LITERAL),
    (
        (exp.Fetch,),
        "This FETCH",
        "write " + instead("FETCH FIRST 10 ROWS ONLY") + ", or " + instead("LIMIT 10") + ".",
    ),
    (
        (exp.Lateral,),
        "LATERAL",
        "join the public table itself; or write each of its columns as a subquery: (SELECT "
        "COUNT(*) FROM orders o WHERE o.customer_id = c.id).",
    ),
    (
        (exp.Collate,),
        "COLLATE",
        "compare with the exact values, or make letters small by lower(…).",
    ),
    ((exp.Columns,), "COLUMNS(…)", "name the columns."),
    ((exp.ToMap,), "MAP", "write a struct, without the word MAP."),
    ((exp.IgnoreNulls, exp.RespectNulls), "IGNORE NULLS", "leave it out."),
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
    pending: list[exp.Expr] = [parsed.query]
    while pending:
        node = pending.pop()
        if not _listed(node):
            raise _refused_node(node, parsed.source)
        if any(need and node.args.get(key) is None for key, need in node.arg_types.items()):
            raise parsed.source.error(
                node,
                "Something is missing here.",
                "give each operator a value on both sides.",
                SqlParseError,
            )
        arguments = STRUCTURE.get(type(node), EXPRESSIONS.get(type(node)))
        wrong = [
            _refused_argument(node, key, value, parsed.source)
            for key, value in node.args.items()
            if _given(value) and arguments is not None and key not in arguments
        ]
        if wrong:
            raise min(wrong, key=lambda error: error.span or Span(0, 0))
        _check_place(node, parsed.source)
        if not is_closed(node):
            raise _refused_word(node, parsed.source)
        pending += reversed(list(node.iter_expressions()))


def _listed(node: exp.Expr) -> bool:
    """Whether a node is on one of the lists; aggregates are told apart where they are bound."""
    if type(node) in STRUCTURE or type(node) in EXPRESSIONS or type(node) in FUNCTIONS:
        return True
    if isinstance(node, exp.Anonymous):
        of_now = folded(node.name) == "age" and len(node.expressions) != 2
        return folded(node.name) in NAMED and not of_now
    if isinstance(node, exp.IgnoreNulls):  # the parser adds it to ANY_VALUE
        return isinstance(node.this, exp.AnyValue)
    if type(node) in WINDOWS:
        return isinstance(node.parent, exp.Window)
    return type(node) in AGGREGATES


def _check_place(node: exp.Expr, source: SourceText) -> None:
    """Refuse table functions, types, names and numbers that are not on the list."""
    if isinstance(node, exp.Identifier):
        _check_name(node, source)
    elif isinstance(node, exp.Table):
        _check_table(node, source)
    elif isinstance(node, exp.DataType):
        _check_type(node, source)
    elif isinstance(node, exp.Literal) and not node.is_string and is_too_long(node.name):
        shown = instead(f"{int(node.name.replace('_', '')):.6e}")
        hint = "write it with an exponent, " + shown + ", which is a DOUBLE."
        raise _error("An integer of so many digits", source, node, hint)
    elif isinstance(node, exp.GenerateSeries) and not isinstance(node.parent, exp.Table):
        raise _error("A list", source, node, _behind_from(node, source))
    elif isinstance(node, exp.Repeat | exp.Pad):
        _check_length(node, source)
    elif isinstance(node, (exp.PropertyEQ, exp.Dot)) and not _names_field(node):
        raise _error("This name", source, node, _field_hint(node, source))


def _check_length(node: exp.Repeat | exp.Pad, source: SourceText) -> None:
    """Refuse a text that may be made very long: by a number that isn't small, or once more."""
    key = "times" if isinstance(node, exp.Repeat) else "expression"
    given = node.args[key]
    parts = given.iter_expressions() if isinstance(given, exp.Least) else [given]
    numbers = [part.name for part in parts if isinstance(part, exp.Literal) and not part.is_string]
    small = any(name.isdecimal() and int(name[:9]) <= _LONGEST_MADE for name in numbers)
    if not small:
        span = source.node(given)
        bounded = instead(f"least({source.text(span)}, 100)", of=span)
        hint = "bound its length, " + bounded + f"; {_LONGEST_MADE:,} is the largest bound."
        raise _error("A text of any length", source, node, hint)
    if node.find_ancestor(exp.Repeat, exp.Pad) is not None:
        raise _error("A text that is made longer twice", source, node, "make it longer once.")


def _check_name(node: exp.Identifier, source: SourceText) -> None:
    """Refuse a name that is written as dpsql's own are."""
    if not node.name.startswith(RESERVED):
        return
    called = isinstance(node.parent, (exp.Alias, exp.TableAlias))
    other = ", as " + instead(as_sql(node.name.strip("_") or "n")) if called else ""
    otherwise = "use another name" + other + "." if called else _OWN
    hint: str = first_that_works(plain_names(source), otherwise)
    raise _error("A name that begins with __", source, node, hint)


def _check_table(node: exp.Table, source: SourceText) -> None:
    """Refuse a table function, and a name of which a part is missing."""
    if not isinstance(node.this, (exp.Identifier, exp.GenerateSeries)):
        raise _error("This table function", source, node.this, _NAMED_TABLE)
    if "" in (node.args.get("db"), node.args.get("catalog")):
        clause = source.clause("FROM") or source.node(node)
        raise source.error(
            node,
            "A part of this name is missing.",
            first_that_works(
                chain(
                    swapped(source, clause, r"(\w)\.\.(?=\w)", r"\1.main."),
                    swapped(source, clause, r"(?<!\w)\.\.(?=\w)", ""),
                ),
                "write database.schema.table.",
            ),
            SqlParseError,
        )


def _check_type(node: exp.DataType, source: SourceText) -> None:
    """Refuse a type that is not on the list."""
    if node.this.name in TYPES:
        return
    place = node.parent if node.parent is not None else node
    hint = _TYPES
    if isinstance(place, exp.Cast):
        as_text = instead(f"CAST({source.text(source.node(place.this))} AS VARCHAR)")
        hint = "write " + as_text + f", or {_TYPES}"
    raise _error(f"The type {_type_written(node, source)}", source, place, hint)


def _type_written(node: exp.DataType, source: SourceText) -> str:
    """Return a type by the name that was written; the parser may know it by another one."""
    known = node.this.name
    words = capitals(source.sql)
    aliases = (name for name, one in DuckDB.Tokenizer.KEYWORDS.items() if one.name == known)
    return known if known in words else next((name for name in aliases if name in words), known)


def _names_field(node: exp.Expr) -> bool:
    """Whether a name and what it is beside are a field of a struct."""
    if isinstance(node, exp.Dot):
        return isinstance(node.expression, exp.Identifier) and not isinstance(
            node.this, exp.Identifier
        )
    return isinstance(node.this, exp.Identifier) and isinstance(node.parent, exp.Struct)


def _field_hint(node: exp.Expr, source: SourceText) -> str:
    """Say what to write for a call with a schema before it, or with its argument."""
    called = node.expression if isinstance(node, exp.Dot) else None
    if not isinstance(called, exp.Func):
        form = re.compile(r"row\s*\(\s*(\w+)\s*:=\s*(.+?)\s*\)(?=\s+(?:AS|FROM)\b)", re.IGNORECASE)
        matches = form.finditer(source.sql)
        fields = [written(source, m.expand(r"{'\1': \2}"), m.span()) for m in matches]
        return first_that_works(fields, "a struct is written {'n': COUNT(*)}.")
    before, _, name = source.text(source.node(node)).partition(".")
    field = name if not name.endswith("()") else f"{name.removesuffix('()')}({before})"
    return write(field)


def _refused_word(node: exp.Expr, source: SourceText) -> SqlError:
    """Say what is wrong with a text that is neither a name nor a string; see `closed`."""
    if orders_by_all(node):
        hint = "name the columns, or give their numbers: ORDER BY 1, 2."
        return _error("ORDER BY ALL in this place", source, source.whole(), hint)
    if isinstance(node, exp.Var):
        hint = "use one like year, quarter, month, week, day or hour, without quotes."
        words = (Span(t.start, t.end + 1) for t in source.tokens if capitals(t.text) == node.name)
        span = next(words, source.node(node.parent or node))  # the parser makes capitals of it
        return _error("This part of a date", source, span, hint)
    if isinstance(node, (exp.DataType, exp.DataTypeParam)):
        place = node.find_ancestor(exp.Cast) or node
        return _error("This type", source, place, "write DECIMAL(9, 2) or VARCHAR.")
    return _error("This expression", source, node, _PLAIN)


def _given(value: object) -> bool:
    return value is not None and value is not False and value != []


def _refused_argument(node: exp.Expr, key: str, value: object, source: SourceText) -> SqlError:
    if isinstance(node, exp.Select) and key in _CLAUSES:
        words, name, hint = _CLAUSES[key]
        span = source.clause(*words) or source.whole()
        return _error(name, source, span, hint)
    inner = value[0] if isinstance(value, list) else value
    span = source.node(inner) if isinstance(inner, exp.Expr) else source.node(node)
    if (type(node), key) in _ARGUMENTS:
        name, hint = _ARGUMENTS[type(node), key]
        if isinstance(node, exp.Group):
            span = source.clause("GROUP") or span
        elif key == "joins":
            span = source.node(node)
        elif isinstance(node, (exp.Table, exp.TableAlias)):
            span = source.clause("TABLESAMPLE" if key == "sample" else "FROM") or span
        elif isinstance(node, (exp.Window, exp.Star)):
            span = source.node(node)
        return _error(name, source, span, _with_edit(node, key, span, source, hint))
    if isinstance(node, exp.Between):
        return _error("BETWEEN SYMMETRIC", source, source.node(node), _either_way(node, source))
    words_of_key = capitals(key.strip("_").replace("_", " "))
    if key == "columns":
        words_of_key = "Renaming columns"
    edited = swapped(source, span, rf"\b{re.escape(words_of_key)}\b", "")
    return _error(words_of_key, source, span, first_that_works(edited, "leave it out."))


def _with_edit(node: exp.Expr, key: str, span: Span, source: SourceText, otherwise: str) -> str:
    """Write what is marked without the words that are refused, or in another way."""
    edits: list[Hint] = []
    if isinstance(otherwise, Hint) and otherwise.remedies:
        return otherwise
    if key in _WITHOUT:
        place = source.node(node.parent) if key == "exclude" and node.parent is not None else span
        edits = swapped(source, place, *_WITHOUT[key])
    elif key == "kind" and isinstance(node.parent, exp.Cast):
        tokens = (t for t in source.tokens if folded(t.text) == folded(str(node.args["kind"])))
        edits = [written(source, "VARCHAR", (t.start, t.end + 1)) for t in tokens]
    elif key == "joins":
        edits = _unbracketed(source, span)
    elif key == "field":
        values = listed(source.text(span))
        edits = [] if values is None else [written(source, values, span)]
    return first_that_works(edits, otherwise)


def _unbracketed(source: SourceText, span: Span) -> list[Hint]:
    """Leave the parentheses around a join out, and the name behind them."""
    inner = source.text(span).strip().removeprefix("(").removesuffix(")")
    around = re.compile(r"\(\s*" + re.escape(inner) + r"\s*\)(?:\s+AS\s+\w+)?", re.IGNORECASE)
    match = around.search(source.sql)
    return [] if match is None else [written(source, inner, match.span())]


def _either_way(node: exp.Between, source: SourceText) -> Hint:
    """Write BETWEEN SYMMETRIC with its bounds in order."""
    this, low, high = (source.text(source.node(node.args[key])) for key in ("this", "low", "high"))
    ordered = f"{this} BETWEEN least({low}, {high}) AND greatest({low}, {high})"
    return "write the smaller bound first: " + instead(ordered) + "."


def _refused_node(node: exp.Expr, source: SourceText) -> SqlError:
    """Say what is wrong with a node that is not listed: by what it is of, then by what it is."""
    if isinstance(node, exp.IgnoreNulls) and "IGNORE" not in capitals(
        source.text(source.node(node))
    ):
        return refused(node.this, source)  # the parser adds it to ANY_VALUE
    if isinstance(node, exp.AggFunc) and not isinstance(node.parent, (exp.Table, exp.From)):
        return refused(node, source)
    span = _place_of_refused(node, source)
    if isinstance(node.parent, exp.Table):
        return _error("This table function", source, span, _NAMED_TABLE)
    if isinstance(node.parent, exp.From):
        span = source.clause("FROM") or span
        return _error("Anything but a table after FROM", source, span, _NAMED_TABLE)
    for types, name, hint in _NODES:
        if isinstance(node, types):
            if hint is _LITERAL and source.text(span)[:1] not in {"?", "$"}:
                hint = str(hint)  # only a part of the parameter is marked: it can't be replaced
            return _error(name, source, span, _replaced(node, span, source, hint))
    return _refused_function(node, span, source)


def _replaced(node: exp.Expr, span: Span, source: SourceText, otherwise: str) -> str:
    """Write what stands for a node that is refused, if that is known."""
    if isinstance(otherwise, Hint) and otherwise.remedies:
        return otherwise
    edits: list[Hint] = []
    if isinstance(node, (exp.IgnoreNulls, exp.RespectNulls)):
        edits = swapped(source, span, r"\s+(IGNORE|RESPECT) NULLS", "")
    elif isinstance(node, exp.Columns) and isinstance(node.parent, exp.Select):
        return COUNTED
    elif isinstance(node, exp.Collate):
        edits = swapped(source, span, r"(.*?)\s+COLLATE\s+\w+", r"lower(\1)")
    elif isinstance(node, exp.ToMap):
        word = source.sql[: span.start].rstrip()
        edits = [written(source, source.text(span), (len(word) - len("MAP"), span.end))]
    elif isinstance(node, (exp.Placeholder, exp.Parameter)):
        return (
            "write its value into the SQL, for example "
            + instead("42", of=(span.start - 1, span.end))
            + "."
        )
    elif isinstance(node, exp.Lateral):
        edits = [*joined_on(source, span), *swapped(source, span, r"\bLATERAL\s+", "")]
    return first_that_works(edits, otherwise)


def _place_of_refused(node: exp.Expr, source: SourceText) -> Span:
    """Return where a node stands, also if it is of a kind of which the parser keeps no position."""
    place: Span | None = None
    if isinstance(node, (exp.Lateral, exp.Fetch)):
        place = source.clause(capitals(node.key))
    elif isinstance(node, VOLATILE) and node.meta.get("start") is None:
        place = source.first(*_NILADIC)
    elif isinstance(node, (exp.Placeholder, exp.Parameter)):
        place = source.first(TokenType.PLACEHOLDER, TokenType.PARAMETER)
    return place or source.node(node)


def _refused_function(node: exp.Expr, span: Span, source: SourceText) -> SqlError:
    """Say what is wrong with a function or an operator that is not listed."""
    word = capitals(source.text(span).split("(")[0].strip())
    if isinstance(node, (exp.Rand, exp.Uuid)):
        return _error(f"The function {word}", source, span, _RANDOM)
    if isinstance(node, VOLATILE) or folded(word) in _NOW:
        return _error(f"The function {word}", source, span, _on_clock(word))
    if isinstance(node, exp.Anonymous) and isinstance(node.parent, exp.Window):
        start = source.node(node).start
        name = Span(start, start + len(word))
        hint: str = "use " + one_of([instead(one, of=name) for one in ("SUM", "AVG")]) + _WINDOW
        return _error(f"The window function {word}", source, node.parent, hint)
    if isinstance(node, exp.Explode) and isinstance(node.parent, (exp.Alias, exp.Select)):
        return _error(f"{word} in a SELECT list", source, span, _unnested(node, source))
    if isinstance(node, exp.Func) and "(" in source.text(span):
        known = _HINTS.get(folded(word))
        special = _spelled_out(node, folded(word), source)
        if special is not None:
            return _error(f"The function {word}", source, span, special)
        hint = known(argument_of(node, source) or "x") if known else _function_hint(word, span)
        return _error(f"The function {word}", source, span, hint)
    if isinstance(node, exp.Binary):
        hint = never(
            "operators are = <> < <= > >= + - * / // % || LIKE AND OR NOT BETWEEN IN IS alone."
        )
        return _error("This operator", source, span, hint)
    return _error("This expression", source, span, _PLAIN)


def _spelled_out(node: exp.Func, word: str, source: SourceText) -> Hint | None:
    """Write what a function of its arguments shows, or looks for, without it."""
    arguments = [source.text(source.node(part)) for part in node.iter_expressions()]
    if word == "age" and len(arguments) == 1:
        today = f"age(DATE '{datetime.now().astimezone().date()}', {arguments[0]})"
        return "write the day until which it is counted, " + instead(today) + "."
    if word in {"printf", "format"} and len(arguments) > 1:
        shown = " || ".join(f"CAST({value} AS VARCHAR)" for value in arguments[1:])
        return "put texts together by ||: " + instead(shown) + "."
    if word in {"list_contains", "array_contains", "list_has", "array_has"} and len(arguments) > 1:
        values = listed(arguments[0]) or re.sub(r"^\[(.*)\]$", r"(\1)", arguments[0])
        works = [write(f"{arguments[1]} IN {values}")]
        return first_that_works(works, "list the values: IN (1, 2).")
    return None


def _on_clock(word: str) -> str:
    """Write what a function that tells the time says now, if it does."""
    kind = next((type_ for type_, names in _TODAY.items() if folded(word) in names), None)
    if kind is None:
        return never("it says something of the connection, and nothing of rows.")
    now = datetime.now().astimezone().replace(tzinfo=None).isoformat(" ", "seconds")
    shown = {"DATE": now[:10], "TIME": now[11:]}.get(kind, now)
    value = instead(f"{kind} '{shown}'")
    return "write its value into the SQL, now " + value + ": answers must not depend on the clock."


def _unnested(node: exp.Expr, source: SourceText) -> str:
    """Write UNNEST behind FROM, where the SELECT has nothing else."""
    item = node.parent if isinstance(node.parent, exp.Alias) else node
    select = item.parent
    inner = node.this if isinstance(node.this, exp.GenerateSeries) else node  # which is a table
    call = " ".join(source.text(source.node(inner)).split())
    name = as_sql(item.alias) if isinstance(item, exp.Alias) else "value"
    written = f"SELECT {name} FROM {call} AS t({name})"
    plain = isinstance(select, exp.Select) and len(select.expressions) == 1
    if not plain or select is None or select.args.get("from_") is not None:
        return f"write it behind FROM: {written}."
    return "write it behind FROM: " + instead(written, of=source.node(select)) + "."


def _behind_from(node: exp.Expr, source: SourceText) -> str:
    """Say how numbers become rows: behind FROM they are, without UNNEST."""
    if not isinstance(node.parent, exp.Unnest):
        return "join it: JOIN generate_series(1, 9) g(i)."
    span = source.node(node)
    start, end = source.node(node.parent).start, source.sql.find(")", span.end) + 1
    call = " ".join(source.text(span).split())
    return "leave UNNEST out: " + instead(call, of=(start, end)) + "."


def _function_hint(word: str, span: Span) -> str:
    """Name the function that was probably meant."""
    classes = [f for f in (*AGGREGATES, *FUNCTIONS) if issubclass(f, exp.Func)]
    known = [*NAMED, *(folded(name) for f in classes for name in f.sql_names())]
    close = difflib.get_close_matches(folded(word), known, n=1, cutoff=0.75)
    if not close:
        return _PLAIN
    name = instead(capitals(close[0]), of=Span(span.start, span.start + len(word)))
    return "did you mean " + name + f"? Otherwise {_PLAIN}"


def _error(name: str, source: SourceText, place: exp.Expr | Span, hint: str) -> SqlError:
    return source.unsupported(place, f"{name} is not supported.", hint)


# ── The words that may stand in a syntax tree as they are, without quotes ────────────────────────
#
# Only names and strings are of the analyst's choosing, and both are written in quotes when a tree
# becomes text again. All else that is text in a tree comes from the lists here.


_UNITS = """
    century centuries c cent cents day days d dayofmonth dayofweek dayofyear decade decades dec decs
    dow doy epoch era hour hours h hr hrs isodow isoyear julian microsecond microseconds us usec
    usecs millennium millennia millenium mil mils millisecond milliseconds ms msec msecs minute
    minutes m min mins month months mon mons nanosecond nanoseconds ns quarter quarters second
    seconds s sec secs week weeks w weekday weekofyear year years y yr yrs yearweek
"""
UNITS = frozenset(capitals(_UNITS).split())
"""Parts of dates and times, as in EXTRACT(year FROM day) and INTERVAL 1 DAY."""
_SHAPES = """
    ANTI ASOF BOTH CROSS FOLLOWING FULL GROUPS INNER LEADING LEFT NATURAL OUTER OVER POSITIONAL
    PRECEDING RANGE RIGHT ROWS SEMI TRAILING UNBOUNDED
"""
_WORDS = frozenset(_SHAPES.split()) | {"CURRENT ROW"}
_NUMBER = re.compile(r"(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][+-]?\d[\d_]*)?", re.ASCII)
_INTEGER = re.compile(r"[\d_]+", re.ASCII)
_LONGEST_INTEGER = 2**128
_LONGEST_MADE = 1_000
"""Characters that `lpad` and `rpad` make, and how often `repeat` repeats."""
_SIZE = re.compile(r"\d{1,5}", re.ASCII)


def is_closed(node: exp.Expr) -> bool:
    """Whether no text of a node but names, strings and functions is of the analyst's choosing.

    The names of functions are checked by those who list functions.
    """
    if isinstance(node, (exp.Identifier, exp.Anonymous)):
        return isinstance(node.this, str)
    if isinstance(node, exp.Literal):
        return bool(node.is_string or _NUMBER.fullmatch(node.name))
    if isinstance(node, exp.Var):
        return capitals(node.name) in UNITS
    if isinstance(node, exp.DataTypeParam):
        size = node.this
        return isinstance(size, exp.Literal) and bool(_SIZE.fullmatch(size.name))
    if isinstance(node, exp.DataType):
        sizes = all(isinstance(part, exp.DataTypeParam) for part in node.expressions)
        return isinstance(node.this, exp.DataType.Type) and sizes
    return all(
        capitals(part) in _WORDS
        for value in node.args.values()
        for part in (value if isinstance(value, list) else [value])
        if isinstance(part, str)
    )


def is_too_long(number: str) -> bool:
    """Whether a number is an integer that is in no type but BIGNUM.

    DuckDB 2.0.1 computes with these, and 2.0.0 does not.
    """
    digits = number.replace("_", "")
    return bool(_INTEGER.fullmatch(number)) and (
        len(digits.lstrip("0")) > 39 or int(digits) >= _LONGEST_INTEGER
    )
