"""Numbers that are rounded, between public bounds: few values, so that they can be grouped by.

`floor(price / 100)` has eleven values where the price is declared to lie between 0 and 1,000. That
may be untrue of a row: then it lies in the first or the last bucket, as a sum takes its nearer
bound. NULL and NaN have the cell of NULL.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from dpsql.rows.expression import (
    RowCall,
    RowCast,
    RowConstant,
    RowExpression,
    columns,
    nodes,
    ordered,
    spelled,
)
from dpsql.rows.key import RowKey, key_with
from dpsql.rows.known import KnownValues, RowBounds
from dpsql.rows.write import RowWriter
from dpsql.sql.lowering.stored_values import clamped

MOST_BUCKETS = 10_000
_EXACT = 2**53
"""Whole numbers up to which doubles have all."""
_MOST_DIGITS = 15
_TO_WHOLE = frozenset({"floor", "ceil", "trunc", "round"})


def bucket_key(
    expression: RowExpression, types: Mapping[str, str], bounds: RowBounds
) -> RowKey | None:
    """Make a key of a number that is rounded.

    Its values are whole multiples of what it is rounded to, between its bounds, because it is
    brought between these. So the proof of `rows.key` holds, be the bounds true or not.

    Args:
        expression: what is computed of a row.
        types: the columns' types.
        bounds: what is known of the columns.

    Returns:
        None if it isn't rounded, has no bounds or too many values; or if something in it is
        rounded to fewer, of which the rest can be computed.

    Raises:
        UnsupportedSqlError: the expression can't be written.
    """
    writer = RowWriter(types)
    values = _values(expression, writer, bounds)
    if values is None:
        return None
    read = columns(expression)  # a part that reads fewer doesn't tell the rest
    parts = (part for part in nodes(expression) if part != expression and columns(part) == read)
    inner = (_values(part, writer, bounds) for part in parts)
    if any(found is not None and len(found) < len(values) for found in inner):
        return None
    type_ = writer.write(expression).type
    least, most = (RowConstant("INTEGER", str(end)) for end in (values[0], values[-1]))
    inside = clamped(expression, least, most, floats=type_.is_float)
    known = KnownValues(tuple(values), type_, nullable=True)
    return key_with(inside, known, types, spelled(expression))


def _values(node: RowExpression, writer: RowWriter, bounds: RowBounds) -> range | None:
    unit = _unit(node, writer)
    if unit is None:
        return None
    quotient = None
    if isinstance(node, RowCall) and node.function == "//":
        quotient = RowCall("/", node.arguments)
    low, high = bounds.of(ordered(quotient or node))
    if low is None or high is None or low > high or max(-low, high) >= _EXACT:
        return None
    if quotient is not None:  # it loses its fraction, so it comes nearer to zero
        low, high = Fraction(math.trunc(low)), Fraction(math.trunc(high))
    values = range(math.floor(low / unit) * unit, math.ceil(high / unit) * unit + 1, unit)
    return values if len(values) <= MOST_BUCKETS else None


def _unit(node: RowExpression, writer: RowWriter) -> int | None:
    """Return of what an expression is a whole multiple, because it is rounded to one."""
    if isinstance(node, RowCast):
        return 1 if node.to.is_integer else None
    if not isinstance(node, RowCall):
        return None
    if node.function in {"//", "-", "date_diff", "date_part", "least", "greatest"}:
        # Which may leave no fraction; `greatest` is what SQL sees of a number of rows.
        return 1 if writer.write(node).type.is_integer else None
    if node.function not in _TO_WHOLE:
        return None
    digits = node.arguments[1] if len(node.arguments) == 2 else RowConstant("INTEGER", "0")
    if not isinstance(digits, RowConstant) or digits.kind != "INTEGER" or int(digits.text) > 0:
        return None
    return int(10 ** min(-int(digits.text), _MOST_DIGITS))
