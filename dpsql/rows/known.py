"""Whether an expression can be NULL or NaN, and whether it is a whole number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from dpsql.rows.expression import (
    NOTHING,
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
    columns,
    nodes,
)
from dpsql.rows.functions import FUNCTIONS, PARTS, Finite, Null, Whole
from dpsql.rows.types import DOUBLE, VARCHAR, row_type
from dpsql.rows.write import RowWriter
from dpsql.schema.names import folded

_SUMS = frozenset({Finite.SUM})
_OF_FINITE = frozenset({Finite.SUM, Finite.KEPT, Finite.LEAST})
"""Of which functions a value is finite where all arguments are."""
_FEW = 8


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
    null = FUNCTIONS[expression.function].null
    if null in (Null.NEVER, Null.MAY):
        return null is Null.MAY
    inner = (is_nullable(part, filled) for part in expression.arguments)
    return all(inner) if null is Null.ALL else any(inner)


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
    finite = FUNCTIONS[expression.function].finite
    if finite in (Finite.LEAST, Finite.KEPT, Finite.CHOSEN):
        known = (part for part in expression.arguments if part != NOTHING)  # which is passed over
        inner = (may_be_nan(part, numbers) for part in known)
        return all(inner) if finite is Finite.LEAST else any(inner)
    # Of a sum, finite constants and whole parts of times or texts: inf − inf and 0·inf need more.
    return not _is_finite(expression)


def _is_finite(expression: RowExpression) -> bool:
    """Whether it is a finite number of moderate size, by its form."""
    if isinstance(expression, RowConstant):
        return expression.kind in {"INTEGER", "DECIMAL", "NULL"}
    if not isinstance(expression, RowCall):
        return isinstance(expression, RowCast) and expression.to.is_exact
    finite = FUNCTIONS[expression.function].finite
    if finite in _OF_FINITE:
        return all(map(_is_finite, expression.arguments))
    return finite is Finite.ALWAYS or (finite is Finite.BY_PART and _is_part(expression))


def _is_part(expression: RowCall) -> bool:
    """Whether a part of a time is a whole number."""
    part = expression.arguments[0]
    return (
        isinstance(part, RowConstant)
        and folded(part.text) in PARTS
        and folded(part.text) not in {"epoch", "julian"}
    )


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
    always = columns(expression) <= filled and is_finite_sum(expression, types, _OF_FINITE)
    return always and not RowWriter(types).write_double(expression).may_fail


def is_finite_sum(
    expression: RowExpression, types: Mapping[str, str], made_by: frozenset[Finite] = _SUMS
) -> bool:
    """Whether its double is a finite number, or NULL, as it is made of a few exact numbers.

    Functions of values that are there are there, if nothing fails. Where nothing does, sums,
    differences and products are NULL exactly if one of their columns is. And a product of eight
    numbers of 38 digits is far from infinity.

    Args:
        expression: what is added up.
        types: the columns' types.
        made_by: functions by which it may be made.
    """
    parts = list(nodes(expression))
    leaves = [part for part in parts if not isinstance(part, RowCall)]
    calls = [part for part in parts if isinstance(part, RowCall)]
    if len(leaves) > _FEW or any(FUNCTIONS[call.function].finite not in made_by for call in calls):
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
    whole = FUNCTIONS[expression.function].whole
    if whole is Whole.KEPT or (whole is Whole.ROUNDED and len(expression.arguments) > 1):
        return all(is_whole(part, integers) for part in expression.arguments)
    if whole is Whole.BY_PART:
        return _is_part(expression)
    return whole in (Whole.ALWAYS, Whole.ROUNDED)


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
