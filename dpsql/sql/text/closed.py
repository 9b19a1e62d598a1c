"""The words that may stand in a syntax tree as they are, without quotes.

Only names and strings are of the analyst's choosing, and both are written in quotes when a tree
becomes text again. All else that is text in a tree comes from the lists here.
"""

from __future__ import annotations

import re

from sqlglot import exp

from dpsql.schema.names import capitals

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
