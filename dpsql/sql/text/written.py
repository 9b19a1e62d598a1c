"""A tree, written as SQL and read again, is the same tree."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from dpsql.errors import SqlError, SqlParseError
from dpsql.schema.names import capitals, folded
from dpsql.sql.text.limits import tokenize
from dpsql.sql.text.parse import parse_tokens
from dpsql.sql.text.spans import SourceText


def check_written(query: exp.Query, source: SourceText) -> None:
    """Refuse a tree that reads otherwise when it is written and read again.

    Whatever is sent to DuckDB is written from parts of this tree. With names in quotes and no free
    text elsewhere, what is written has the same tree; here that is checked, and not assumed.

    Raises:
        SqlParseError: it doesn't.
    """
    text = query.sql(dialect="duckdb", comments=False, identify=True)
    try:
        same = _are_same(parse_tokens(SourceText(text, tokenize(text))), query)
    except SqlError:
        same = False
    if not same:
        raise source.error(
            source.whole(),
            "The SQL can be read in more than one way.",
            "write it more simply: names as words or in double quotes, strings in single ones.",
            SqlParseError,
        )


def _are_same(first: object, second: object) -> bool:
    """Whether two trees are equal in all but what writing changes on purpose."""
    pending = [(first, second)]
    while pending:
        one, other = pending.pop()
        if isinstance(one, exp.Expr) and isinstance(other, exp.Expr):
            one, other = _plain(one), _plain(other)
            if isinstance(other, (exp.AggFunc, exp.WithinGroup)):
                if not _is_aggregate(one, other):
                    return False
            elif type(one) is not type(other):
                return False
            else:
                pending += _parts(one, other)
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pending += zip(one, other, strict=True)
        elif (one or None) != (other or None):  # what is not given may be None, False or []
            return False
    return True


def _parts(one: exp.Expr, other: exp.Expr) -> list[tuple[object, object]]:
    # "safe" tells other dialects how NULL is joined; strings one below the other come without it.
    keys = {*one.args, *other.args} - {"quoted", "safe"}
    return [(one.args.get(key), other.args.get(key)) for key in keys]


def _is_aggregate(one: exp.Expr, other: exp.Expr) -> bool:
    """Whether an aggregate came back as itself, or in another form with the same names and values.

    WITHIN GROUP becomes an argument, BOOL_AND casts its own, STRING_AGG gets a comma.
    """
    if type(one) is type(other) and all(_are_same(*pair) for pair in _parts(one, other)):
        return True
    return _leaves(one) ^ _leaves(other) <= {(exp.Literal, ",")}


def _leaves(node: exp.Expr) -> set[tuple[type, str]]:
    return {(type(n), n.name) for n in node.find_all(exp.Identifier, exp.Literal)}


def _plain(node: exp.Expr) -> exp.Expr:
    """Write a node as it comes back: IF as CASE, units in full, functions in small letters."""
    if isinstance(node, exp.Join) and node.args.get("on") == exp.true():
        return exp.Join(**{**node.copy().args, "on": None})  # what unnest gets after a comma
    if isinstance(node, exp.If) and not _is_branch(node):
        branch = exp.If(this=node.this.copy(), true=node.args["true"].copy())
        otherwise = node.args.get("false")
        return exp.Case(ifs=[branch], default=otherwise.copy() if otherwise is not None else None)
    if isinstance(node, exp.Trim) and node.args.get("position") == "BOTH":
        return exp.Trim(**{**node.copy().args, "position": None})  # which is meant without a word
    if isinstance(node, exp.Var):
        unit = capitals(node.name)
        return exp.Var(this=DuckDB.DATE_PART_MAPPING.get(unit, unit))
    if isinstance(node, exp.Anonymous):
        return exp.Anonymous(this=folded(node.name), expressions=node.copy().expressions)
    return node


def _is_branch(node: exp.If) -> bool:
    """Whether it is WHEN … THEN of a CASE, and not a function in one: its operand or ELSE."""
    return isinstance(node.parent, exp.Case) and node.arg_key == "ifs"
