"""Whether an expression can be NULL or NaN, and whether it is a whole number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from dpsql.rows.expression import (
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
    columns,
    nodes,
)
from dpsql.rows.functions import PARTS
from dpsql.rows.types import DOUBLE, VARCHAR, row_type
from dpsql.rows.write import RowWriter
from dpsql.schema.names import folded

_STRICT_NAMES = """
    and or not = <> < <= > >= between in sign lower upper trim ltrim rtrim length strlen substring
    left right contains starts_with ends_with strpos like ilike regexp_matches regexp_full_match
    isnan isfinite isinf ||
"""
_STRICT = frozenset(_STRICT_NAMES.split())
"""Functions that never fail, and are not NULL if no argument is."""
_FILLED = frozenset({"is_null", "is_distinct", "is_not_distinct"})
_FIRST = frozenset({"coalesce", "least", "greatest"})
"""NULL only where all arguments are."""
_ARITHMETIC = frozenset({"+", "-", "*"})
_STAYS = frozenset({"+", "-", "*", "negative", "abs", "least", "greatest"})
_FEW = 8
_WHOLE = frozenset({"floor", "ceil", "sign", "length", "strlen", "strpos"})
_KEEPS_WHOLE = frozenset(
    {"+", "-", "*", "negative", "abs", "least", "greatest", "coalesce", "nullif", "%", "round"}
)


def is_nullable(expression: RowExpression, filled: frozenset[str]) -> bool:
    """Whether an expression can be NULL, also because it fails for a row.

    Args:
        expression: what may be NULL.
        filled: columns that are never NULL.

    Returns:
        False only if it never is. Nothing is taken from types, so arithmetic counts as nullable.
    """
    if isinstance(expression, RowColumn):
        return expression.name not in filled
    if isinstance(expression, RowConstant):
        return expression.kind == "NULL"
    if isinstance(expression, RowCast):
        return expression.to != VARCHAR or is_nullable(expression.value, filled)
    if isinstance(expression, RowCase):
        results = [result for _, result in expression.cases]
        return any(is_nullable(result, filled) for result in (*results, expression.otherwise))
    if expression.function in _FILLED:
        return False
    inner = [is_nullable(part, filled) for part in expression.arguments]
    if expression.function in _FIRST:
        return all(inner)
    return expression.function not in _STRICT or any(inner)


def may_be_nan(expression: RowExpression, numbers: Collection[str] = ()) -> bool:
    """Whether an expression can be NaN. False only if it never is.

    Args:
        expression: a number.
        numbers: the columns that are no NaN.
    """
    if isinstance(expression, RowConstant):
        return expression.kind == "DOUBLE" and "n" in expression.text
    if isinstance(expression, RowCast):
        return expression.to.is_float
    if isinstance(expression, RowCase):
        results = [result for _, result in expression.cases]
        results.append(expression.otherwise)
        return any(may_be_nan(result, numbers) for result in results)
    if isinstance(expression, RowColumn):
        return expression.name not in numbers
    if expression.function == "least":
        return all(may_be_nan(part, numbers) for part in expression.arguments)
    if expression.function in {"greatest", "coalesce", "floor", "ceil", "round", "trunc", "abs",
                               "negative", "nullif"}:  # fmt: skip
        return any(may_be_nan(part, numbers) for part in expression.arguments)
    if expression.function in {"+", "-", "*"}:
        # Finite constants and whole parts of times or texts: inf − inf and 0·inf need more.
        return not all(_is_finite(part) for part in expression.arguments)
    return not _is_finite(expression)


def _is_finite(expression: RowExpression) -> bool:
    """Whether it is a finite number of moderate size, by its form."""
    if isinstance(expression, RowConstant):
        return expression.kind in {"INTEGER", "DECIMAL", "NULL"}
    if isinstance(expression, RowCall):
        if expression.function in {"+", "-", "*", "negative", "abs"}:
            return all(_is_finite(part) for part in expression.arguments)
        if expression.function in {"least", "greatest"}:
            return not may_be_nan(expression) and all(map(_is_finite, expression.arguments))
        return expression.function in {"sign", "length", "strlen", "strpos"} or _is_part(expression)
    return isinstance(expression, RowCast) and expression.to.is_exact


def _is_part(expression: RowCall) -> bool:
    part = expression.arguments[0]
    if expression.function != "date_part" or not isinstance(part, RowConstant):
        return False
    return folded(part.text) in PARTS and folded(part.text) not in {"epoch", "julian"}


def adds_always(
    expression: RowExpression, types: Mapping[str, str], filled: frozenset[str]
) -> bool:
    """Whether what `RowWriter.write_double` writes is a finite number in every row.

    Only of what is made of a few exact numbers that are never NULL, where nothing that is written
    can fail.

    Args:
        expression: what is added up.
        types: the columns' types.
        filled: columns that are never NULL.
    """
    always = columns(expression) <= filled and is_finite_sum(expression, types, _STAYS)
    return always and not RowWriter(types).write_double(expression).may_fail


def is_finite_sum(
    expression: RowExpression, types: Mapping[str, str], functions: frozenset[str] = _ARITHMETIC
) -> bool:
    """Whether its double is a finite number, or NULL, as it is made of a few exact numbers.

    Functions of values that are there are there, if nothing fails. Where nothing does, sums,
    differences and products are NULL exactly if one of their columns is. And a product of eight
    numbers of 38 digits is far from infinity.

    Args:
        expression: what is added up.
        types: the columns' types.
        functions: which it may be made by.
    """
    parts = list(nodes(expression))
    leaves = [part for part in parts if not isinstance(part, RowCall)]
    calls = [part for part in parts if isinstance(part, RowCall)]
    if len(leaves) > _FEW or any(call.function not in functions for call in calls):
        return False
    return all(
        row_type(types[leaf.name]).is_exact
        if isinstance(leaf, RowColumn)
        else isinstance(leaf, RowConstant) and leaf.kind in {"INTEGER", "DECIMAL"}
        for leaf in leaves
    )


def is_whole(expression: RowExpression, integers: frozenset[str]) -> bool:
    """Whether an expression is a whole number wherever it is a finite one.

    Args:
        expression: a number.
        integers: columns of integer types.
    """
    if isinstance(expression, RowColumn):
        return expression.name in integers
    if isinstance(expression, RowConstant):
        return expression.kind in {"INTEGER", "NULL"}
    if isinstance(expression, RowCast):
        return expression.to.is_integer
    if isinstance(expression, RowCase):
        results = [result for _, result in expression.cases]
        return all(is_whole(result, integers) for result in (*results, expression.otherwise))
    if expression.function in {"round", "trunc"} and len(expression.arguments) == 1:
        return True
    if expression.function in _WHOLE or _is_part(expression):
        return True
    inner = all(is_whole(part, integers) for part in expression.arguments)
    # Of integers, // is the quotient without its fraction; of other numbers it has one.
    return inner and expression.function in _KEEPS_WHOLE


def says_there(node: RowExpression, is_there: Callable[[RowExpression], bool]) -> bool:
    """Whether a condition says that a value is not NULL, or not NaN, which it never is."""
    if not isinstance(node, RowCall) or node.function not in {"not", "and"}:
        return False
    if node.function == "and":
        return all(says_there(part, is_there) for part in node.arguments)
    (inner,) = node.arguments
    if not isinstance(inner, RowCall):
        return False
    if inner.function == "or":
        return all(says_there(RowCall("not", (part,)), is_there) for part in inner.arguments)
    (value, *_) = inner.arguments
    if isinstance(value, RowCast) and value.to == DOUBLE:
        value = value.value
    return inner.function in {"is_null", "isnan"} and is_there(value)
