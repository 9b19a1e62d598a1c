"""What a row adds to a sum: an integer that is never larger than was paid for.

Guarantees:
    `measure` writes an integer v with low ≤ v ≤ high for the two integers that it names, and
    |v| <= `bound` = max(−low, high), whatever a row holds. NULL, NaN and whatever can't be
    computed give 0. It never fails.

    *Proof.* Let e be the expression as a DOUBLE, which is total (`write.py`); x = e·s − K is
    total, as sums and products of doubles are, and w = TRY_CAST(x AS …) an integer. The last CASE
    gives w only where low ≤ w ≤ high, compared as integers, and else one of the constants low,
    high and 0, all of which lie in [low, high], since low ≤ 0 ≤ high. Its conditions and results
    are total, so it is. The bound rests on nothing else: not on the rounding of doubles or casts,
    and not on the bounds of a column being true. ∎

    A sum of v over n rows is at most n·bound, so for n <= 2^31 and bound <= 2^31 at most 2^62.

What v means: with k = `step`, the value is near k·(v + `middle`), and between the bounds no further
from it than k/2, but for the rounding of doubles (a relative 2^-52 for each operation).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.expression import RowExpression, columns
from dpsql.rows.operands import call, cast, real, whole
from dpsql.rows.types import BIGINT, BOOLEAN, NULL, RowType
from dpsql.rows.write import RowWriter

MOST = 2**31
"""The largest |v|."""
_MOST_STEPS = 2**50
"""From zero to the bounds: doubles have more places than that, so that rounding is exact."""
_LEAST_STEP = Fraction(1, 10**300)
_INFINITE = real(math.inf)


@dataclass(frozen=True, slots=True)
class RowMeasure:
    """An integer of a row that is added up.

    Args:
        value: the DOUBLE x of the proof.
        step: what 1 stands for.
        middle: how many steps 0 stands for.
        low: the least integer.
        high: the largest.
        columns: what is read of a row.
    """

    value: str
    step: Fraction
    middle: int
    low: int
    high: int
    columns: frozenset[str] = frozenset()

    @property
    def sql(self) -> str:
        """What is added up: an integer that is never NULL."""
        return self.clamped(self.value)

    def clamped(self, value: str) -> str:
        """Write what is added up, given the text or the column of a subquery that has `value`.

        A scan that computes `value` in a subquery does so once, and takes a third less time.
        """
        type_ = RowType("INTEGER") if self.bound < 2**31 else BIGINT
        low, high, zero = (whole(v, type_) for v in (self.low, self.high, 0))
        rounded = f"TRY_CAST({value} AS {type_.sql})"
        return (
            f"CASE WHEN {rounded} BETWEEN {low} AND {high} THEN {rounded} "
            f"WHEN {value} BETWEEN {real(0)} AND {_INFINITE} THEN {high} "
            f"WHEN {value} < {real(0)} THEN {low} ELSE {zero} END"
        )

    @property
    def typical(self) -> float:
        """The v in the middle between the bounds."""
        return (self.low + self.high) / 2

    @property
    def bound(self) -> int:
        """The largest |v| of a row."""
        return max(-self.low, self.high)


def measure(
    expression: RowExpression,
    types: Mapping[str, str],
    bounds: tuple[Fraction, Fraction],
    step: Fraction,
    *,
    centered: bool = True,
) -> RowMeasure:
    """Write what a row adds to the sum of an expression.

    Args:
        expression: a number.
        types: the columns' types.
        bounds: the least and the largest value; others count as the nearer one.
        step: to whole multiples of which values are rounded.
        centered: whether the middle between the bounds is taken off, so that v is small.

    Raises:
        UnsupportedSqlError: bounds are reversed, or too far apart for the step, or the expression
            can't be written.
    """
    least, most = (Fraction(bound) for bound in bounds)
    sizes = _LEAST_STEP <= step <= 1 / _LEAST_STEP
    if not sizes or least > most or max(-least, most) / step > _MOST_STEPS:
        raise UnsupportedSqlError("Bounds of a sum must be in order, and its step not too small.")
    # Ends are rounded outward: a bound that is no multiple of the step must not be cut.
    first, last = math.floor(least / step), math.ceil(most / step)
    middle = middle_of((least, most), step) if centered else 0
    # Rows that add nothing add 0, which need not lie between the bounds.
    low, high = min(0, first - middle), max(0, last - middle)
    if max(-low, high) > MOST:
        raise UnsupportedSqlError(
            "The bounds of a sum are too far apart for its step.",
            hint=f"between them there may be at most {2 * MOST} steps.",
        )
    value = RowWriter(types).write_double(expression)
    if step != 1:
        value = call("*", value, real(float(1 / step)))
    if middle:
        value = call("-", value, real(middle))
    return RowMeasure(value, step, middle, low, high, columns(expression))


def middle_of(bounds: tuple[Fraction, Fraction], step: Fraction) -> int:
    """Return how many steps are taken off values around whose middle is added up."""
    return (math.floor(bounds[0] / step) + math.ceil(bounds[1] / step)) // 2


def present(expression: RowExpression, types: Mapping[str, str]) -> str:
    """Write 1 where an expression has a value that is added up, 0 where it is NULL or NaN.

    NaN is above infinity in DuckDB, and a comparison with NULL is not true.
    """
    value = RowWriter(types).write_double(expression)
    return f"CASE WHEN {value} <= {_INFINITE} THEN {whole(1)} ELSE {whole(0)} END"


def given(expression: RowExpression, types: Mapping[str, str]) -> str:
    """Write 1 where an expression of any type is not NULL, else 0: what COUNT counts."""
    written = RowWriter(types).write(expression)
    return f"CASE WHEN {written.sql} IS NULL THEN {whole(0)} ELSE {whole(1)} END"


def condition(expression: RowExpression, types: Mapping[str, str]) -> str:
    """Write TRUE where a condition is true, else FALSE.

    Raises:
        UnsupportedSqlError: it is no condition.
    """
    written = RowWriter(types).write(expression)
    if written.type not in (BOOLEAN, NULL):
        raise UnsupportedSqlError(f"A condition on rows is a BOOLEAN, not {written.type.sql}.")
    return f"COALESCE({cast(written, BOOLEAN).sql}, CAST('false' AS BOOLEAN))"
