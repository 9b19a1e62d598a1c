"""What a row adds to a sum: an integer that is never larger than was paid for.

Guarantees:
    A row adds an integer v with low·d ≤ v ≤ high·d to the sum S of its cell, for the two integers
    that a `RowMeasure` names and d = `parts`, whatever it holds. NULL, NaN and whatever can't be
    computed add nothing. It never fails. The cell's sum in steps is V = ⌊S/d + 1/2⌋. So k rows more
    or fewer, all in this cell, move V by an integer of at most k·`bound`, with `bound` =
    max(−low, high): as if each had added an integer of magnitude `bound` at most.

    *Proof.* `added` writes w, a number of an exact type, in last digits, or NULL; and `present`
    writes what isn't NULL in those c rows that add something. These add v = w − `offset`, or just
    −`offset` where there is no w; in others there is none.

    - *Where values are of a type T:* w is what is present, and of T. It is a CASE. Each of its
      results is NULL; or a constant that stands for low or high; or a value of T, in a branch that
      is taken only where it is compared with both in T, and lies between them; or x itself in the
      branch ELSE, where neither `x < lo` nor `x > hi` is true: T is in a total order, so x lies
      between them or is NULL.
    - *Where the expression itself lies between both* whatever a row holds, as its `ends` say
      (`operands.py`), w is the expression.
    - *Where values are doubles:* what is present is a CASE, whose results are NULL; a double h;
      or y in the branch ELSE, where `y > h` isn't true. NaN is above all doubles, and so isn't
      there. Then w = TRY_CAST(y·f − g AS UINTEGER), and `offset` is −low. So w is not negative.
      And it is at most what it is for h, as f > 0, and rounding to the nearest double never changes
      an order. That is high − low, with nothing rounded on the way: f is a power of two or 1, and
      h·f and g are whole numbers below 2^52, so it is the same in one operation and in two. What is
      too small has no w, and so adds low.

    `total` takes c·offset off sums, where a sum of no w is 0: Σ w − c·offset = Σ v = S, in
    HUGEINTs. These hold all that is computed of n < 2^50 rows: |w| < 2^76, so |Σ w| and |c·offset|
    are below 2^126, which 38 digits hold too, and |S| < 2^106, as |v| ≤ d·2^31 < 2^56. What is
    compared and cast is total (`write.py`), so nothing fails. The function ⌊S/d + 1/2⌋ never falls,
    and grows by exactly j from S to S + j·d, for whole j. (It is written as ⌊(S + ⌊d/2⌋)/d⌋, the
    same for whole S. `//` cuts a quotient off, so d·2^96 is put to what is divided first, which
    makes it positive.) |ΔS| ≤ k·d·`bound`, so |ΔV| ≤ k·`bound`. The bound rests on nothing else:
    not on how near to its value a double is, and not on the bounds of a column being true. ∎

    So it is enough for the sum of each cell that a scan groups by, on its own: a cell of a marginal
    is a sum of such V, of which k rows with k₁, k₂, … in each move it by Σ kᵢ·`bound` at most.
    Scans that group in different ways may round the same rows in different ways. That costs no
    privacy either, as each marginal is paid for by what rows can change in it, whatever they
    change in others; and half a step for each group is far less than the noise.

    A sum of v over n rows is at most n·d·bound, so for n <= 2^31 and bound < 2^31 V is below 2^62.

What v means: with k = `step`, the value is near k·(v/d + `middle`), and between the bounds no
further from it than k/2, but for the rounding of doubles (a relative 2^-52 for each operation). A
value whose last digit divides the step is added up as it is, in its own type, which takes a third
of the time; then d is how many last digits a step has, and sums are rounded in place of values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.expression import (
    RowExpression,
    canonical,
    columns,
)
from dpsql.rows.inside import known_ends, unbounded
from dpsql.rows.known import is_finite_sum
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
from dpsql.schema.numbers import decimal_text

MOST = 2**31 - 1
"""The largest |v|."""
_MOST_STEPS = 2**50
"""From zero to the bounds: doubles have more places than that, so that rounding is exact."""
_LEAST_STEP = Fraction(1, 10**290)
"""As many steps as may be, of one over it, are a finite double."""
MOST_PARTS = 10**7
"""Sums are divided by at most this, so that all that is computed of them fits a HUGEINT."""
_INFINITE = real(math.inf)
_INTEGER, _STEPS = RowType("INTEGER"), RowType("UINTEGER")
_ABOVE = 2**96
"""Steps that are put to a sum so that its quotient is rounded down, and taken off again."""


@dataclass(frozen=True, slots=True)
class RowMeasure:
    """An integer of a row that is added up.

    Args:
        value: what is computed of a row: of `type`, or the double that is rounded to it.
        step: what 1 stands for in sums.
        middle: how many steps 0 stands for.
        low: the least integer, in steps.
        high: the largest.
        columns: what is read of a row.
        type: T of the proof; of doubles, the one to which they are cast.
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
    """Whether `value` is of T; otherwise it is a double."""
    factor: float = 1.0
    """f of the proof: how many steps 1 is of a double that is no larger than h."""
    shift: int = 0
    """g of the proof: how many steps are taken off it."""
    offset: int = 0
    """How much larger than v what is added up is, in last digits."""
    parts: int = 1
    """How many of the integers that rows add make a step: d of the proof."""
    inside: bool = False
    """Whether `value` is between the bounds whatever a row holds."""
    there: str = ""
    """The expression that is there in just the rows that add something, see `key.Presence`."""
    counted: str = ""
    """The expression that is there in just the rows that add 1 to a count."""

    def computed(self, name: str) -> str:
        """Write what a subquery computes of each row, in a column of this name."""
        return f"{self.value} AS {name}"

    def added(self, name: str) -> str:
        """Write what is added up, given what is `computed`; NULL if that is nothing.

        The columns of the row stand beside it, if there is something to compute `again`. What is
        asked first outside isn't asked first inside: DuckDB would take it out, and compute it
        apart, which takes longer.
        """
        if self.inside:
            return name
        if not self.exact:
            steps = _in_steps(self.present(name), self.factor, self.shift)
            return f"CAST(TRY_CAST({steps} AS {self.type.sql}) AS {BIGINT.sql})"
        low, high = self._written(self.low), self._written(self.high)
        outside, above = f"{name} < {low} OR {name} > {high}", f"WHEN {name} > {high} THEN {high}"
        if not self.again:
            return f"CASE WHEN {outside} THEN CASE {above} ELSE {low} END ELSE {name} END"
        rounded = f"TRY_CAST({self.again} AS {self.type.sql})"
        least, most = self._real(self.low), self._real(self.high)
        return (
            f"CASE WHEN {outside} OR {name} IS NULL THEN CASE {above} "
            f"WHEN {name} < {low} THEN {low} WHEN {rounded} BETWEEN {low} AND {high} "
            f"THEN {rounded} WHEN {self.again} BETWEEN {most} AND {_INFINITE} THEN {high} "
            f"WHEN {self.again} < {least} THEN {low} END ELSE {name} END"
        )

    def present(self, name: str) -> str:
        """Write what is not NULL in rows that add something, given what is `computed`."""
        if self.exact:
            return self.added(name)
        most = real((self.high + self.offset + self.shift) / self.factor)
        return (
            f"CASE WHEN {name} > {most} THEN CASE WHEN {name} <= {_INFINITE} THEN {most} END "
            f"ELSE {name} END"
        )

    def total(self, summed: str, count: str) -> str:
        """Write V of some rows, as a HUGEINT.

        Args:
            summed: the sum of what is `added`; NULL of no row.
            count: in how many rows something is `present`; named only if there is an `offset`.
        """
        if self.type.name == "DECIMAL":
            # A DECIMAL's text has all its digits, so without the point it is the integer meant.
            summed = call("replace", f"CAST({summed} AS VARCHAR)", text_of("."), text_of(""))
        # Rows may be present of which none has a w: their sum is NULL, and stands for 0.
        total = f"COALESCE(CAST({summed} AS HUGEINT), {whole(0, HUGEINT)})"
        if self.offset:
            more = call("*", f"CAST({count} AS HUGEINT)", whole(self.offset, HUGEINT))
            total = call("-", total, more)
        if self.parts > 1:
            above = whole(self.parts * _ABOVE + self.parts // 2, HUGEINT)
            steps = call("//", call("+", total, above), whole(self.parts, HUGEINT))
            total = call("-", steps, whole(_ABOVE, HUGEINT))
        return total

    def _written(self, v: int) -> str:
        """Write v steps as what is added up."""
        digits = decimal_text(Fraction(v * self.parts + self.offset, 10**self.type.scale))
        return f"CAST('{digits}' AS {self.type.sql})"

    def _real(self, v: int) -> str:
        """Write the double that is rounded to what stands for v steps."""
        return real(float(Fraction(v * self.parts + self.offset, 10**self.type.scale)))

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
    made = RowMeasure("", step, middle, low, high, columns(expression), _STEPS)
    writer, plain = RowWriter(types), unbounded(expression)
    written, double = writer.write(expression), writer.write_double(expression)
    parts = step * 10**written.type.scale
    exact = written.type.is_exact and parts.denominator == 1 and parts <= MOST_PARTS
    ends = (int((low + middle) * parts), int((high + middle) * parts))
    type_ = _room(written, ends) if exact else None
    if type_ is not None:
        known = known_ends(writer, expression)
        inside = known is not None and ends[0] <= known[0] <= known[1] <= ends[1]
        again = "" if inside or double == cast(written, DOUBLE).sql else double
        value = cast(written, type_).sql
        never_fails = not again and "TRY(" not in value and is_finite_sum(plain, types)
        return replace(
            made, value=value, type=type_, again=again, exact=True, parts=int(parts), inside=inside,
            offset=middle * int(parts), there=canonical(plain) if never_fails else "",
        )  # fmt: skip
    there, factor, shift = canonical(plain) if plain == expression else "", 1 / step, low + middle
    made = replace(made, offset=-low, there=there)
    if _is_power_of_two(step):
        return replace(made, value=double, factor=float(factor), shift=shift)
    return replace(made, value=_in_steps(double, float(factor), shift))


def _in_steps(double: str, factor: float, shift: int) -> str:
    if factor != 1:
        double = call("*", double, real(factor))
    return call("-", double, real(shift)) if shift else double


def _is_power_of_two(step: Fraction) -> bool:
    return step.numerator & (step.numerator - 1) == 0 == step.denominator & (step.denominator - 1)


def _room(written: RowSql, ends: tuple[int, int]) -> RowType | None:
    """Return the type in which an exact number is added up, ends and all.

    Args:
        written: the number.
        ends: between what it is brought, in its last digits.

    Returns:
        None if no type has room.
    """
    type_ = written.type
    if type_.name == "DECIMAL":
        digits = max(type_.width, *(len(str(abs(end))) for end in ends))
        return decimal(digits, type_.scale) if digits <= MOST_DIGITS else None
    room, fails = joint_room(type_.limits or ends, ends)
    small = room == BIGINT and lossless(type_, _INTEGER) and max(map(abs, ends)) < 2**31
    return None if fails else _INTEGER if small else room


def zero_or_one(condition: str, columns: frozenset[str], counted: str = "") -> RowMeasure:
    """Return 1 of the rows in which a condition is true, and nothing of the others.

    What it gives is a constant or NULL, so it is between its bounds by its form.

    Args:
        condition: its SQL, a BOOLEAN that `write.py` made.
        columns: what it reads of a row.
        counted: the expression that is there in just these rows, if there is one.
    """
    value = f"CASE WHEN {condition} THEN {whole(1, _INTEGER)} END"
    return RowMeasure(
        value, Fraction(1), 0, 0, 1, columns, exact=True, inside=True, counted=counted
    )


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
