"""What a row adds to a sum: an integer that is never larger than was paid for.

Guarantees:
    A row adds an integer v with low·d ≤ v ≤ high·d to the sum S of its cell, for the two integers
    that a `RowMeasure` names and d = `parts`, whatever it holds. NULL, NaN and whatever can't be
    computed add nothing. It never fails. The cell's sum in steps is V = ⌊S/d + 1/2⌋. So k rows more
    or fewer, all in this cell, move V by an integer of at most k·`bound`, with `bound` =
    max(−low, high): as if each had added an integer of magnitude `bound` at most.

    *Proof.* `added` writes w, of an exact type T: v + `offset`, or NULL. It is a CASE.

    - *Where values are of T:* each of its results is NULL; or a constant that stands for low or
      high; or a value of T, in a branch that is taken only where it is compared with both in T,
      and lies between them; or x itself in the branch ELSE, where neither `x < lo` nor `x > hi` is
      true: T is in a total order, so x lies between them or is NULL.
    - *Where the expression itself lies between both* whatever a row holds, as its `ends` say
      (`operands.py`), w is the expression.
    - *Where values are doubles:* T is INTEGER, `offset` is 0, and w = TRY_CAST(z AS INTEGER) for
      the double z that the CASE gives: NULL, low, high, or y in the branch ELSE, where neither
      `y < low` nor `y > high` is true; NaN is above all doubles, and so isn't there. Both ends are
      integers below 2^31, which doubles have exactly. DuckDB's cast gives NULL or one of the
      two integers beside z, and so one from low to high.

    Of c rows with w, `total` takes c·offset off: Σ w − c·offset = Σ v = S, in HUGEINTs. These hold
    all that is computed of n < 2^50 rows: |w| < 2^76, so |Σ w| and |c·offset| are below 2^126,
    which 38 digits hold too, and |S| < 2^106, as |v| ≤ d·2^31 < 2^56. What is compared and cast
    is total (`write.py`), so nothing fails. The function ⌊S/d + 1/2⌋ never falls, and grows by
    exactly j from S to S + j·d, for whole j. (It is written as ⌊(S + ⌊d/2⌋)/d⌋, the same for whole
    S. `//` cuts a quotient off, so d·2^96 is put to what is divided first, which makes it
    positive.) |ΔS| ≤ k·d·`bound`, so |ΔV| ≤ k·`bound`. The bound rests on nothing else: not on the
    rounding of doubles, and not on the bounds of a column being true. ∎

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
from dpsql.rows.operands import Limits, RowSql, call, cast, joint_room, real, text_of, whole
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
_LEAST_STEP = Fraction(1, 10**300)
MOST_PARTS = 10**7
"""Sums are divided by at most this, so that all that is computed of them fits a HUGEINT."""
_INFINITE = real(math.inf)
_ARITHMETIC = frozenset({"+", "-", "*"})
_INTEGER = RowType("INTEGER")
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
    """Whether `value` is of T; otherwise it is a double, in steps from the middle."""
    parts: int = 1
    """How many of the integers that rows add make a step: d of the proof."""
    inside: bool = False
    """Whether `value` is between the bounds whatever a row holds."""

    @property
    def offset(self) -> int:
        """How much larger than v what is added up is."""
        return self.middle * self.parts if self.exact else 0

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
            least, most = real(self.low), real(self.high)
            return (
                f"TRY_CAST(CASE WHEN {name} < {least} OR {name} > {most} "
                f"THEN CASE WHEN {name} > {most} THEN CASE WHEN {name} <= {_INFINITE} "
                f"THEN {most} END ELSE {least} END ELSE {name} END AS {self.type.sql})"
            )
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

    def total(self, summed: str, count: str) -> str:
        """Write V of some rows, as a HUGEINT.

        Args:
            summed: the sum of what is `added`; NULL of no row.
            count: of how many rows that isn't NULL; it is named only if there is an `offset`.
        """
        if self.type.name == "DECIMAL":
            # A DECIMAL's text has all its digits, so without the point it is the integer meant.
            summed = call("replace", f"CAST({summed} AS VARCHAR)", text_of("."), text_of(""))
        total = f"CAST({summed} AS HUGEINT)"
        if self.offset:
            more = call("*", f"CAST({count} AS HUGEINT)", whole(self.offset, HUGEINT))
            total = call("-", total, more)
        if self.parts > 1:
            above = whole(self.parts * _ABOVE + self.parts // 2, HUGEINT)
            steps = call("//", call("+", total, above), whole(self.parts, HUGEINT))
            total = call("-", steps, whole(_ABOVE, HUGEINT))
        return f"COALESCE({total}, {whole(0, HUGEINT)})"

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
    made = RowMeasure("", step, middle, low, high, columns(expression))
    writer = RowWriter(types)
    written, double = writer.write(expression), writer.write_double(expression)
    parts = step * 10**written.type.scale
    exact = written.type.is_exact and parts.denominator == 1 and parts <= MOST_PARTS
    ends = (int((low + middle) * parts), int((high + middle) * parts))
    type_ = _room(written, ends) if exact else None
    if type_ is not None:
        known = _known_ends(writer, expression)
        inside = known is not None and ends[0] <= known[0] <= known[1] <= ends[1]
        again = "" if inside or double == cast(written, DOUBLE).sql else double
        value = cast(written, type_).sql
        return replace(
            made, value=value, type=type_, again=again, exact=True, parts=int(parts), inside=inside
        )
    if step != 1:
        double = call("*", double, real(float(1 / step)))
    if middle:
        double = call("-", double, real(middle))
    return replace(made, value=double)


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


def zero_or_one(condition: str, columns: frozenset[str]) -> RowMeasure:
    """Return 1 of the rows in which a condition is true, and nothing of the others.

    What it gives is a constant or NULL, so it is between its bounds by its form.

    Args:
        condition: its SQL, a BOOLEAN that `write.py` made.
        columns: what it reads of a row.
    """
    value = f"CASE WHEN {condition} THEN {whole(1, _INTEGER)} END"
    return RowMeasure(value, Fraction(1), 0, 0, 1, columns, exact=True, inside=True)


def _known_ends(writer: RowWriter, expression: RowExpression) -> Limits | None:
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
    needs = isinstance(expression, RowColumn) or "TRY(" in RowWriter(types).write(expression).sql
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
