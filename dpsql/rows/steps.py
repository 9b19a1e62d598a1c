"""Sums of doubles among rows of a unit: as whole numbers of steps, which are added up in any order.

    (SELECT SUM(price) FROM orders o WHERE o.customer_id = c.id)

where `price` is a DOUBLE between 0 and 1,000. A sum of doubles is rounded at each addition, so it
depends on the order in which rows are read, and that on rows of other units. A sum of integers
doesn't. So what a row adds is x·10^s, rounded to the nearest integer, and SQL sees the sum over
10^s, as a DOUBLE.

Guarantees:
    What SQL sees is a function of the multiset of the rows that are added up.

    *Proof.* x is a total function of one row, a DOUBLE that is brought between two constants, or
    NULL where it is NaN or NULL (`write.py`). So is x·10^s: 10^|s| is a double, as |s| ≤ 22, and a
    product or a quotient of two doubles is the double that IEEE 754 says. It is at most 10^13 in
    magnitude, so the BIGINT nearest to it is there, of two the even one. The sum of such is exact
    in HUGEINT, by the proof of `windows.py`; a mean is that over how many there are. What is made
    of either is one double of one exact number. ∎

    Nobody's privacy rests on how near that is to what was stored. It is near: as 2^-52·10^13 is
    less than 1/2, a number with at most s digits after its point adds all of its digits, and a sum
    of such is the double nearest to it, up to 2^53 steps. Any other is rounded by at most 5·10^-13
    of the largest.
"""

from __future__ import annotations

from fractions import Fraction

from dpsql.rows.expression import RowCall, RowCast, RowConstant, RowExpression
from dpsql.rows.known import Interval
from dpsql.rows.types import BIGINT

DIGITS = 13
"""Digits of the number of steps that a row adds: doubles have more, so rounding finds all."""
_MOST_TENS = 22
"""10^22 is the largest power of ten that is a double."""


def scale_of(between: Interval) -> int | None:
    """Return s, so that a number between two others is no more than 10^13 steps; None if unknown.

    Args:
        between: the least and the largest value.
    """
    low, high = between
    if low is None or high is None:
        return None
    scale, largest = DIGITS, max(-low, high, Fraction(1, 10**_MOST_TENS))
    while largest * Fraction(10) ** scale > 10**DIGITS:
        scale -= 1
    while largest * Fraction(10) ** (scale + 1) <= 10**DIGITS and scale < _MOST_TENS:
        scale += 1
    return scale if scale >= -_MOST_TENS else None


def in_steps(value: RowExpression, scale: int) -> RowExpression:
    """Return how many steps a number is, as a BIGINT."""
    power = RowConstant("DOUBLE", repr(float(10 ** abs(scale))))
    return RowCast(RowCall("*" if scale > 0 else "/", (value, power)) if scale else value, BIGINT)
