"""Columns that are brought between their bounds before anything is made of them.

What is made of these by + − * lies between ends that follow from its form, whatever a row holds
(`operands.bounded`). So it can't overflow where these ends have a digit each, and needs no TRY, nor
to be brought between bounds itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.expression import (
    NOTHING,
    RowCall,
    RowCase,
    RowColumn,
    RowConstant,
    RowExpression,
    columns,
    nodes,
    replaced,
)
from dpsql.rows.functions import of_shapes
from dpsql.rows.typed import Limits
from dpsql.rows.write import RowWriter
from dpsql.schema.numbers import decimal_text

_ARITHMETIC = of_shapes("addition")


def bounded_columns(
    expression: RowExpression,
    types: Mapping[str, str],
    bounds: Mapping[str, tuple[Fraction, Fraction]],
) -> RowExpression:
    """Bring columns between their bounds before what is made of them, if it then can't overflow.

    Of sums, differences and products of exact numbers: then these need no TRY, nor doubles where
    it fails, nor to be brought between bounds themselves; and a column is so only once, in however
    many measures it is. A column itself is the same either way.

    Args:
        expression: what is added up.
        types: the columns' types.
        bounds: of columns.

    Returns:
        The expression as it is, where it gains nothing by that.
    """
    calls = {node.function for node in nodes(expression) if isinstance(node, RowCall)}
    needs = isinstance(expression, RowColumn) or RowWriter(types).write(expression).is_tried
    if not needs or not calls <= _ARITHMETIC or not columns(expression) <= bounds.keys():
        return expression

    def change(node: RowExpression) -> RowExpression:
        if not isinstance(node, RowColumn):
            return replaced(node, change)
        ends = tuple(
            RowConstant("INTEGER" if end.denominator == 1 else "DECIMAL", decimal_text(end))
            for end in bounds[node.name]
        )
        return RowCall("bounded", (node, *ends))

    try:
        made = change(expression)
        known = RowWriter(types).write(made).ends
    except UnsupportedSqlError:  # a type that isn't exact, or has no such values
        return expression
    return made if known is not None and _is_bounded(made) else expression


def unbounded(expression: RowExpression) -> RowExpression:
    """Return what `bounded_columns` was given."""
    if isinstance(expression, RowCall) and expression.function == "bounded":
        return expression.arguments[0]
    return replaced(expression, unbounded)


def known_ends(writer: RowWriter, expression: RowExpression) -> Limits | None:
    """Return between what its last digits are, or it is NULL, if that follows from its form."""
    if isinstance(expression, RowCase) and expression.otherwise == NOTHING:
        ((_, expression), *others) = expression.cases
        if others:
            return None
    return writer.write(expression).ends if _is_bounded(expression) else None


def _is_bounded(expression: RowExpression) -> bool:
    """Whether it is made of nothing but constants and `bounded` numbers, by + - and *."""
    if isinstance(expression, RowCall) and expression.function in _ARITHMETIC:
        return all(map(_is_bounded, expression.arguments))
    bounded = isinstance(expression, RowCall) and expression.function == "bounded"
    return bounded or isinstance(expression, RowConstant)
