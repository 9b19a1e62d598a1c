"""What a row adds to a sum: an integer that is never larger than was paid for.

Guarantees:
    A row adds an integer v with low ≤ v ≤ high for the two integers that a `RowMeasure` names, and
    |v| <= `bound` = max(−low, high), whatever it holds. NULL, NaN and whatever can't be computed
    give 0. It never fails.

    *Proof.* What a scan adds up is w = v + `offset`, of an exact type T. `added` writes it as a
    CASE: each result is one of the constants lo, hi and zero, which are low, high and 0 plus
    `offset`, so from [lo, hi] since low ≤ 0 ≤ high; or it is a value of T, in a branch that is
    taken only where that value is compared with lo and hi in T, and lies between them. (Where T
    is INTEGER and lo is its least value, only with hi: no INTEGER is below.) Of n rows `total`
    takes n·offset off: Σ w − n·offset = Σ v, in HUGEINTs, which hold far more than n·(2^51 + 2^31)
    for all n < 2^63. The expressions that are compared are total (`write.py`), so nothing fails.
    The bound rests on nothing else: not on the rounding of doubles or casts, and not on the bounds
    of a column being true. ∎

    A sum of v over n rows is at most n·bound, so for n <= 2^31 and bound < 2^31 below 2^62.

What v means: with k = `step`, the value is near k·(v + `middle`), and between the bounds no further
from it than k/2, but for the rounding of doubles (a relative 2^-52 for each operation). A value
whose last digit is the step is added up as it is, in its own type, which takes a third of the time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.expression import RowExpression, columns
from dpsql.rows.operands import RowSql, call, cast, joint_room, real, text_of, whole
from dpsql.rows.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    HUGEINT,
    MOST_DIGITS,
    NULL,
    RowType,
    decimal,
    lossless,
)
from dpsql.rows.write import RowWriter

MOST = 2**31 - 1
"""The largest |v|."""
_MOST_STEPS = 2**50
"""From zero to the bounds: doubles have more places than that, so that rounding is exact."""
_LEAST_STEP = Fraction(1, 10**300)
_INFINITE = real(math.inf)
_INTEGER = RowType("INTEGER")
_LEAST = -(2**31)


@dataclass(frozen=True, slots=True)
class RowMeasure:
    """An integer of a row that is added up.

    Args:
        value: what is computed of a row: of `type`, or the double that is rounded to it.
        step: what 1 stands for.
        middle: how many steps 0 stands for.
        low: the least integer.
        high: the largest.
        columns: what is read of a row.
        type: T of the proof.
        again: the expression as a double, where `value` is NULL for what T can't compute.
    """

    value: str
    step: Fraction
    middle: int
    low: int
    high: int
    columns: frozenset[str] = frozenset()
    type: RowType = _INTEGER
    again: str = ""
    exact: bool = False
    """Whether `value` is of T; otherwise it is a double, in steps from the end that fits T."""

    @property
    def offset(self) -> int:
        """How much larger than v what is added up is, in steps."""
        return self.middle if self.exact else _LEAST - self.low

    def computed(self, name: str) -> str:
        """Write what a subquery computes of each row, in columns that begin with a name.

        In the same SELECT, so that DuckDB computes once what they share.
        """
        if self.exact:
            return f"{self.value} AS {name}"
        return f"{self.value} AS {name}, TRY_CAST({self.value} AS {self.type.sql}) AS {name}r"

    def added(self, name: str) -> str:
        """Write what is added up, given what is `computed`.

        The columns of the row stand beside it, if there is something to compute `again`.
        """
        low, high, zero = (self._written(v) for v in (self.low, self.high, 0))
        if not self.exact:
            most = self._real(self.high)
            return (
                f"CASE WHEN {name}r <= {high} THEN {name}r "
                f"WHEN {name} BETWEEN {most} AND {_INFINITE} THEN {high} "
                f"WHEN {name} < {most} THEN {low} ELSE {zero} END"
            )
        first = f"CASE WHEN {name} BETWEEN {low} AND {high} THEN {name}"
        if not self.again:
            above, below = f"{name} > {high}", f"{name} < {low}"
            return f"{first} WHEN {above} THEN {high} WHEN {below} THEN {low} ELSE {zero} END"
        rounded = f"TRY_CAST({self.again} AS {self.type.sql})"
        least, most = self._real(self.low), self._real(self.high)
        return (
            f"{first} WHEN {rounded} BETWEEN {low} AND {high} THEN {rounded} "
            f"WHEN {self.again} BETWEEN {most} AND {_INFINITE} THEN {high} "
            f"WHEN {self.again} < {least} THEN {low} ELSE {zero} END"
        )

    def total(self, summed: str, rows: str) -> str:
        """Write the sum of v over some rows, as a HUGEINT.

        Args:
            summed: the sum of what is `added`; NULL of no row.
            rows: how many rows.
        """
        if self.type.name == "DECIMAL":
            # A DECIMAL's text has all its digits, so without the point it is the integer meant.
            summed = call("replace", f"CAST({summed} AS VARCHAR)", text_of("."), text_of(""))
        more = call("*", f"CAST({rows} AS HUGEINT)", whole(self.offset, HUGEINT))
        sum_of_v = call("-", f"CAST({summed} AS HUGEINT)", more)
        return f"COALESCE({sum_of_v}, {whole(0, HUGEINT)})"

    def _written(self, v: int) -> str:
        """Write v as what is added up."""
        digits = Decimal(v + self.offset).scaleb(-self.type.scale)
        return f"CAST('{digits:f}' AS {self.type.sql})"

    def _real(self, v: int) -> str:
        """Write the double that is rounded to what stands for v."""
        return real(float(Fraction(v + self.offset, 10**self.type.scale)))

    @property
    def described(self) -> str:
        """Which values it can have, and how they are rounded, in words."""
        ends = (f"{float((end + self.middle) * self.step):.6g}" for end in (self.low, self.high))
        step = f"{float(self.step):.3g}"
        return f"values from {' to '.join(ends)}, each rounded to a multiple of {step}"

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
    made = RowMeasure("", step, middle, low, high, columns(expression))
    writer = RowWriter(types)
    written, double = writer.write(expression), writer.write_double(expression)
    type_ = _room(written, step, (low + middle, high + middle))
    if type_ is not None:
        again = "" if double == cast(written, DOUBLE).sql else double
        value = cast(written, type_).sql
        return replace(made, value=value, type=type_, again=again, exact=True)
    if step != 1:
        double = call("*", double, real(float(1 / step)))
    if middle - made.offset:
        double = call("-", double, real(middle - made.offset))
    return replace(made, value=double)


def _room(written: RowSql, step: Fraction, ends: tuple[int, int]) -> RowType | None:
    """Return the type in which a value whose last digit is the step is added up, ends and all.

    None if it has another last digit, or no type has room.
    """
    type_ = written.type
    if not type_.is_exact or step != Fraction(1, 10**type_.scale):
        return None
    if type_.name == "DECIMAL":
        digits = max(type_.width, *(len(str(abs(end))) for end in ends))
        return decimal(digits, type_.scale) if digits <= MOST_DIGITS else None
    room, fails = joint_room(type_.limits or ends, ends)
    small = room == BIGINT and lossless(type_, _INTEGER) and max(map(abs, ends)) < 2**31
    return None if fails else _INTEGER if small else room


def zero_or_one(condition: str, columns: frozenset[str]) -> RowMeasure:
    """Return 1 of the rows in which a condition is true, 0 of the others.

    Args:
        condition: its SQL, a BOOLEAN that `write.py` made.
        columns: what it reads of a row.
    """
    value = f"CASE WHEN {condition} THEN {whole(1)} ELSE {whole(0)} END"
    return RowMeasure(value, Fraction(1), 0, 0, 1, columns, exact=True)


def middle_of(bounds: tuple[Fraction, Fraction], step: Fraction) -> int:
    """Return how many steps are taken off values around whose middle is added up."""
    return (math.floor(bounds[0] / step) + math.ceil(bounds[1] / step)) // 2


def condition(expression: RowExpression, types: Mapping[str, str]) -> str:
    """Write TRUE where a condition is true, else FALSE.

    Raises:
        UnsupportedSqlError: it is no condition.
    """
    written = RowWriter(types).write(expression)
    if written.type not in (BOOLEAN, NULL):
        raise UnsupportedSqlError(f"A condition on rows is a BOOLEAN, not {written.type.sql}.")
    return f"COALESCE({cast(written, BOOLEAN).sql}, CAST('false' AS BOOLEAN))"
