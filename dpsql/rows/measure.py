"""The contribution of a row to a sum: an integer that is never larger than was paid for.

Guarantees:
    A row adds an integer v with low·d ≤ v ≤ high·d to the sum S of its cell, for the two integers
    that a `RowMeasure` names and d = `parts`, whatever it holds. NULL, NaN and whatever can't be
    computed add nothing. It never fails. The cell's sum in steps is V = ⌊S/d + 1/2⌋. So k rows more
    or fewer, all in this cell, move V by an integer of at most k·`bound`, with `bound` =
    max(−low, high): as if each had added an integer of magnitude `bound` at most.

    *Proof.* An engine adds up w, a number of an exact type, in last digits, or NULL; and it counts
    the c rows that add something. These add v = w − `offset`, or just −`offset` where there is no
    w; in others there is none. That w is between low·d + `offset` and high·d + `offset` each engine
    proves of the SQL that it writes (`engines/duckdb/sums.py`, `engines/spark/coding.py`), and that
    its sums hold all of it. So Σ w − c·`offset` = Σ v = S. The function ⌊S/d + 1/2⌋ never falls,
    and grows by exactly j from S to S + j·d, for whole j. |ΔS| ≤ k·d·`bound`, so
    |ΔV| ≤ k·`bound`. The bound rests on nothing else: not on how near to its value a double is, and
    not on the bounds of a column being true. ∎

    So it is enough for the sum of each cell that a scan groups by, on its own: a cell of a marginal
    is a sum of such V, of which k rows with k₁, k₂, … in each move it by Σ kᵢ·`bound` at most.
    Scans that group in different ways may round the same rows in different ways. That costs no
    privacy either, as each marginal is paid for by what rows can change in it, whatever they
    change in others; and half a step for each group is far less than the noise.

    A sum of v over n rows is at most n·d·bound, so for bound < 2^31 V is below n·2^31, and two
    words (`engines/cover.py`) hold it for n < 2^59. Of how many rows it is exact, an engine says.

What w is, so that all engines add up the same numbers:

- *Where values are exact,* of a type T: the value, brought between what stands for low and for
  high. Where T can't compute it, and there is a double to try it `again` by: that, rounded to T, if
  it is between both, and else the nearer one. NaN and NULL are no value.
- *Where the expression itself lies between both* whatever a row holds, as its `ends` say
  (`operands.py`): the expression.
- *Where values are doubles:* y·f − g, rounded to the nearest integer, of two the even one, where h
  takes the place of a y that is larger. h is the double that stands for high; f is a power of two
  or 1, and `offset` is −low, so no w is below 0. What is too small has no w, and so adds low.

What v means: with k = `step`, the value is near k·(v/d + `middle`), and between the bounds no
further from it than k/2, but for the rounding of doubles (a relative 2^-52 for each operation). A
value whose last digit divides the step is added up as it is, in its own type, which takes a third
of the time; then d is how many last digits a step has, and sums are rounded in place of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.expression import (
    NOTHING,
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
    canonical,
    columns,
    exact_number,
    nodes,
    replaced,
)
from dpsql.rows.functions import FUNCTIONS, OF_FINITE, Digits, Finite, of_shapes
from dpsql.rows.known import is_whole
from dpsql.rows.operands import cast, joint_room
from dpsql.rows.typed import Limits, RowValue, called, constant_of, double_of
from dpsql.rows.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    MOST_DIGITS,
    NULL,
    RowType,
    decimal,
    is_integer,
    lossless,
    row_type,
)
from dpsql.rows.write import RowWriter
from dpsql.schema.sequences import decimal_text

MOST = 2**31 - 1
"""The largest |v|."""
_MOST_STEPS = 2**50
"""From zero to the bounds: doubles have more places than that, so that rounding is exact."""
_LEAST_STEP = Fraction(1, 10**290)
"""As many steps as may be, of one over it, are a finite double."""
MOST_PARTS = 10**7
"""Sums are divided by at most this, so that all that is computed of them fits a HUGEINT."""
_INTEGER, _STEPS = RowType("INTEGER"), RowType("UINTEGER")


@dataclass(frozen=True, slots=True)
class RowMeasure:
    """An integer of a row that is added up.

    Args:
        value: how it is computed of a row: of `type`, or the double that is rounded to it.
        step: what 1 stands for in sums.
        middle: how many steps 0 stands for.
        low: the least integer, in steps.
        high: the largest.
        columns: what is read of a row.
        type: T; of doubles, the one to which they are cast.
        again: the expression as a double, if `value` may be NULL for what T can't compute.
    """

    value: RowValue
    step: Fraction
    middle: int
    low: int
    high: int
    columns: frozenset[str] = frozenset()
    type: RowType = _INTEGER
    again: RowValue | None = None
    exact: bool = False
    """Whether `value` is of T; otherwise it is a double."""
    factor: float = 1.0
    """f: how many steps 1 is of a double that is no larger than h."""
    shift: int = 0
    """g: how many steps are taken off it."""
    offset: int = 0
    """The difference between what is added up and v, in last digits."""
    parts: int = 1
    """d: how many of the integers that rows add make a step."""
    inside: bool = False
    """Whether `value` is between the bounds whatever a row holds."""
    there: str = ""
    """The expression that is there in just the rows that add something, see `key.Presence`."""

    @property
    def largest(self) -> float:
        """The double h that stands for high."""
        return (self.high + self.offset + self.shift) / self.factor

    @property
    def digits(self) -> tuple[int, int]:
        """The last digits of what stands for low and for high, where values are exact."""
        low, high = (v * self.parts + self.offset for v in (self.low, self.high))
        return low, high

    @property
    def ends(self) -> tuple[RowValue, RowValue]:
        """Values that stand for low and for high, where values are exact."""
        scale = 10**self.type.scale
        low, high = (decimal_text(Fraction(end, scale)) for end in self.digits)
        return constant_of(low, self.type), constant_of(high, self.type)

    def present(self, y: RowValue) -> RowValue:
        """Return the double that is added up in place of one: NULL for NaN, h for larger ones."""
        most, infinite = double_of(self.largest), double_of(math.inf)
        above, known = (
            RowValue("compare", (y, end), BOOLEAN, sign)
            for end, sign in ((most, ">"), (infinite, "<="))
        )
        return RowValue("case", (above, RowValue("case", (known, most), DOUBLE), y), DOUBLE)

    def in_steps(self, y: RowValue) -> RowValue:
        """Return y·f − g of a double."""
        return _in_steps(y, self.factor, self.shift)

    @property
    def described(self) -> str:
        """The values that it can have, and how they are rounded, in words."""
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
    """Say what a row adds to the sum of an expression.

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
        raise UnsupportedSqlError(
            "The values of a sum lie too near to each other, and too far from 0.",
            hint="take a number near them off, and add it again: 1000000 + AVG(x - 1000000).",
        )
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
    read = columns(expression)
    writer, plain = RowWriter(types), unbounded(expression)
    written, double = writer.write(expression), writer.write_double(expression)
    parts = step * 10**written.type.scale
    exact = written.type.is_exact and parts.denominator == 1 and parts <= MOST_PARTS
    ends = (int((low + middle) * parts), int((high + middle) * parts))
    type_ = _room(written, ends) if exact else None
    if type_ is not None:
        known = known_ends(writer, expression)
        inside = known is not None and ends[0] <= known[0] <= known[1] <= ends[1]
        again = None if inside or double == cast(written, DOUBLE) else double
        value = cast(written, type_)
        never_fails = again is None and not value.is_tried and is_finite_sum(plain, types)
        return RowMeasure(
            value, step, middle, low, high, read, type_, again, exact=True, parts=int(parts),
            inside=inside, offset=middle * int(parts),
            there=canonical(plain) if never_fails else "",
        )  # fmt: skip
    there, factor, shift = canonical(plain) if plain == expression else "", 1 / step, low + middle
    made = RowMeasure(double, step, middle, low, high, read, _STEPS, offset=-low, there=there)
    if _is_power_of_two(step):
        return replace(made, factor=float(factor), shift=shift)
    return replace(made, value=_in_steps(double, float(factor), shift))


def _in_steps(double: RowValue, factor: float, shift: int) -> RowValue:
    if factor != 1:
        double = called("*", double, double_of(factor), type_=DOUBLE)
    return called("-", double, double_of(shift), type_=DOUBLE) if shift else double


def _is_power_of_two(step: Fraction) -> bool:
    return step.numerator & (step.numerator - 1) == 0 == step.denominator & (step.denominator - 1)


def _room(written: RowValue, ends: tuple[int, int]) -> RowType | None:
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


def middle_of(bounds: tuple[Fraction, Fraction], step: Fraction) -> int:
    """Return how many steps are taken off values around whose middle is added up."""
    return (math.floor(bounds[0] / step) + math.ceil(bounds[1] / step)) // 2


def condition(expression: RowExpression, types: Mapping[str, str]) -> RowValue:
    """Return TRUE where a condition is true, else FALSE.

    Raises:
        UnsupportedSqlError: it is no condition.
    """
    written = RowWriter(types).write(expression)
    if written.type not in (BOOLEAN, NULL):
        raise UnsupportedSqlError(f"A condition on rows is a BOOLEAN, not {written.type.sql}.")
    false = constant_of("false", BOOLEAN)
    return RowValue("coalesce", (cast(written, BOOLEAN), false), BOOLEAN)


# ── Columns that are brought between their bounds before anything is made of them ────────────────
#
# What is made of these by + − * lies between ends that follow from its form, whatever a row holds
# (`operands.bounded`). So it can't overflow where these ends have a digit each, and needs no TRY,
# nor to be brought between bounds itself.


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
        return RowCall("bounded", (node, *map(exact_number, bounds[node.name])))

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


# ── Sums: of what a row always adds something, and what says that it does ────────────────────────


_SUMS = frozenset({Finite.SUM})
_FEW = 8


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
    always = columns(expression) <= filled and is_finite_sum(expression, types, OF_FINITE)
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


# ── Steps: to whole multiples of which the values of an expression are rounded ───────────────────


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
        return _joint_digit(
            (*(result for _, result in node.cases), node.otherwise), types, in_common
        )
    digits = FUNCTIONS[node.function].digits
    if digits is Digits.UNKNOWN:
        whole = is_whole(node, frozenset(n for n in columns(node) if is_integer(types[n])))
        return Fraction(1) if whole else None
    return _joint_digit(node.arguments, types, math.prod if digits is Digits.PRODUCT else in_common)


def _joint_digit(
    nodes: Sequence[RowExpression],
    types: Mapping[str, str],
    joined: Callable[[Sequence[Fraction]], Fraction | int],
) -> Fraction | None:
    """Return what is made of the last digits of several; None if there are none, or not of all."""
    digits = [last_digit(node, types) for node in nodes if node != NOTHING]
    known = [digit for digit in digits if digit is not None]
    if not known or len(known) < len(digits):
        return None
    return Fraction(joined(known))


def in_common(steps: Sequence[Fraction]) -> Fraction:
    """Return the largest number of which all of some are whole multiples; 0 of zeros."""
    denominator = math.lcm(*(step.denominator for step in steps))
    return Fraction(math.gcd(*(int(step * denominator) for step in steps)), denominator)
