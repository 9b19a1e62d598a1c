"""Steps: to whole multiples of which the values of an expression are rounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from dpsql.rows.expression import (
    NOTHING,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
    columns,
)
from dpsql.rows.functions import FUNCTIONS, Digits
from dpsql.rows.known import is_whole
from dpsql.rows.measure import MOST_PARTS
from dpsql.rows.types import is_integer, row_type
from dpsql.rows.write import RowWriter

FINE = 2**28
"""Steps from the middle to the ends of what isn't known to be whole numbers or short decimals: on
tables of as many rows, rounding moves a sum by less than one row can."""


def power_of_two(value: Fraction) -> Fraction:
    """Return the largest power of two that is at most a positive value: exact in doubles."""
    exponent = math.floor(math.log2(value.numerator) - math.log2(value.denominator))
    found = Fraction(2) ** exponent
    return found / 2 if found > value else found


def chosen_step(value: RowExpression, types: Mapping[str, str], largest: Fraction) -> Fraction:
    """Choose the step of what is at most `largest`.

    It is what all values are multiples of, where that is coarse: their last digit, or the step of
    a grid. Of exact numbers with a finer one it is ten, a hundred, … last digits: so many that
    there are fewer than `FINE`, so it may be ten times as coarse as need be; but sums of a group
    are rounded to it in place of values, each but once. Of others it is a power of two, to which
    values are rounded.
    """
    digit = last_digit(value, types)
    if digit and largest / digit < FINE:
        return digit
    type_ = RowWriter(types).write(value).type
    if type_.is_exact:
        parts = 1
        while largest * 10**type_.scale / parts >= FINE:
            parts *= 10
        if parts <= MOST_PARTS:
            return Fraction(parts, 10**type_.scale)
    return power_of_two(largest / FINE)


def last_digit(node: RowExpression, types: Mapping[str, str]) -> Fraction | None:
    """Return what all values are whole multiples of; None if unknown."""
    if isinstance(node, RowColumn | RowCast):
        type_ = row_type(types[node.name]) if isinstance(node, RowColumn) else node.to
        return Fraction(1, 10**type_.scale) if type_.is_exact else None
    if isinstance(node, RowConstant):
        return abs(Fraction(node.text)) if node.kind in {"INTEGER", "DECIMAL"} else None
    if isinstance(node, RowCase):
        return _joint_digit((*(result for _, result in node.cases), node.otherwise), types, _common)
    digits = FUNCTIONS[node.function].digits
    if digits is Digits.UNKNOWN:
        whole = is_whole(node, frozenset(n for n in columns(node) if is_integer(types[n])))
        return Fraction(1) if whole else None
    return _joint_digit(node.arguments, types, math.prod if digits is Digits.PRODUCT else _common)


def _joint_digit(
    nodes: Sequence[RowExpression],
    types: Mapping[str, str],
    joined: Callable[[Sequence[Fraction]], Fraction | int],
) -> Fraction | None:
    """Return what is made of the last digits of several; None if there are none, or not of all."""
    found = [last_digit(node, types) for node in nodes if node != NOTHING]
    known = [digit for digit in found if digit is not None]
    if not known or len(known) < len(found):
        return None
    return Fraction(joined(known))


def _common(steps: Sequence[Fraction]) -> Fraction:
    """Return the largest number of which all are whole multiples; 0 of zeros."""
    denominator = math.lcm(*(step.denominator for step in steps))
    return Fraction(math.gcd(*(int(step * denominator) for step in steps)), denominator)
