"""Divisors that aren't zero where they are divided by, and how near to it they come.

    revenue / NULLIF(visits, 0)          CASE WHEN visits > 0 THEN revenue / visits END

have bounds although visits may be 0: where a quotient is a number they are no less than their last
digit. NULL as a divisor has no quotient, so it may be taken for not zero.
"""

from __future__ import annotations

from fractions import Fraction

from dpsql.rows.expression import RowCall, RowCast, RowConstant, RowExpression

Interval = tuple[Fraction | None, Fraction | None]
_NEVER = {"=": False, "<>": True, "<": True, ">": True}
"""Comparisons with zero → whether what is compared isn't zero where they are true, or are not."""


def not_zero(condition: RowExpression, *, holds: bool) -> frozenset[RowExpression]:
    """Return expressions that are not zero, or NULL, where a condition is true, or where it isn't.

    Args:
        condition: the condition.
        holds: whether it is true, or NULL; otherwise false, or NULL.
    """
    if not isinstance(condition, RowCall):
        return frozenset()
    if condition.function == "not":
        return not_zero(condition.arguments[0], holds=not holds)
    if condition.function == ("and" if holds else "or"):
        parts = (not_zero(part, holds=holds) for part in condition.arguments)
        return frozenset().union(*parts)
    if _NEVER.get(condition.function) is holds:
        first, second = map(uncast, condition.arguments)
        return frozenset(a for a, b in ((first, second), (second, first)) if is_zero(b))
    return frozenset()


def uncast(value: RowExpression) -> RowExpression:
    """Return what is cast to a float, which makes zero of nothing else."""
    while isinstance(value, RowCast) and value.to.is_float:
        value = value.value
    return value


def is_zero(value: RowExpression) -> bool:
    """Whether an expression is the number zero."""
    if not isinstance(value, RowConstant) or value.kind not in {"INTEGER", "DECIMAL", "DOUBLE"}:
        return False
    return float(value.text) == 0


def around_zero(of: Interval, unit: Fraction) -> list[Interval]:
    """Return between what numbers lie that are whole multiples of a unit other than zero."""
    low, high = of
    above = max(low, unit) if low is not None else unit, high
    below = low, min(high, -unit) if high is not None else -unit
    return [
        (least, most)
        for least, most in (below, above)
        if least is None or most is None or least <= most
    ]
