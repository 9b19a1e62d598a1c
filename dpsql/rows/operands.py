"""Operands of row expressions: their types, casts, and arithmetic that can't fail."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeGuard

from dpsql.errors import SqlLimitError, UnsupportedSqlError, printable
from dpsql.rows.expression import RowColumn, RowConstant, RowExpression
from dpsql.rows.typed import (
    Limits,
    RowValue,
    called,
    constant_of,
    may_be_least_by_minus_one,
)
from dpsql.rows.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    HUGEINT,
    MOST_DIGITS,
    NULL,
    TIME,
    VARCHAR,
    RowType,
    common_type,
    decimal,
    lossless,
)
from dpsql.schema.sequences import decimal_text

LONGEST_TWICE = 20_000
"""Characters of what is written twice."""
_FORMAT = re.compile(r"(?=.{1,100}\Z)(?:[^%]|%[YymbBdjaAwuUWHIpMSf%]|%-[ymdjHIMS])+", re.DOTALL)
"""Formats that strftime may show."""


def constant(node: RowConstant) -> RowValue:
    """Write a constant."""
    if node.kind == "NULL":
        return RowValue("constant", (), NULL)
    type_, limits = RowType(node.kind) if node.kind != "DECIMAL" else _digits(node.text), None
    if node.kind == "INTEGER":
        value = int(node.text)
        type_, _ = room((value, value))
        limits = (value, value)
    return RowValue("constant", (), type_, node.text, limits)


def _digits(text: str) -> RowType:
    """Return the type of a DECIMAL as DuckDB reads it: as text, 0.05 keeps the zero before it."""
    before, _, after = text.lstrip("-").partition(".")
    width = len(before) + len(after)
    return decimal(width, len(after)) if width <= MOST_DIGITS else DOUBLE


def cast(value: RowValue, to: RowType) -> RowValue:
    """Bring a value to a type: by a plain cast where that can't fail, else by a TRY_CAST.

    Raises:
        UnsupportedSqlError: DuckDB has no such cast, or one that isn't listed.
        SqlLimitError: it is long, and has to be written twice.
    """
    if value.type == to:
        return value
    if not _may_cast(value.type, to):
        raise UnsupportedSqlError(
            f"{value.type.sql} can't be cast to {to.sql} on rows.",
            hint="use date_diff for times, and CASE for truth values.",
        )
    if (value.type == VARCHAR and to.name == "DECIMAL") or (value.type.is_float and to == HUGEINT):
        check_repeated(value, f"What is cast to {to.sql}")
    limits = to.limits
    if limits is not None and value.limits is not None:
        low, high = max(limits[0], value.limits[0]), min(limits[1], value.limits[1])
        limits = (low, high) if low <= high else limits
    if value.type == BOOLEAN and limits is not None:
        limits = (0, 1)
    operation = "cast" if lossless(value.type, to) else "try_cast"
    return RowValue(operation, (value,), to, limits=limits)


def check_repeated(value: RowValue, what: str) -> None:
    """Refuse what is long and written more than once: nested in each other, texts would double.

    Raises:
        SqlLimitError: it is long.
    """
    if len(value.sql) > LONGEST_TWICE:
        raise SqlLimitError(f"{what} is too long to run on rows.")


def _may_cast(type_: RowType, to: RowType) -> bool:
    if type_ == NULL or VARCHAR in (type_, to):
        return to != NULL
    if TIME in (type_, to):
        return type_.is_time and type_ != DATE
    if type_.is_time or to.is_time:
        return type_.is_time and to.is_time
    return to != NULL


def tried(
    function: str, *arguments: RowValue, type_: RowType, limits: Limits | None = None
) -> RowValue:
    """Make a call in a TRY of its own, and say which type it gives.

    A TRY costs next to nothing where nothing fails.
    """
    return RowValue("tried", arguments, type_, function, limits)


def hull(values: Sequence[RowValue]) -> Limits | None:
    """Return limits of one of several values. NULL has none, and adds none."""
    known = [value.limits for value in values]
    if any(limits is None for limits in known):
        return None
    return (
        min(limits[0] for limits in known if limits is not None),
        max(limits[1] for limits in known if limits is not None),
    )


def not_of(what: str, wanted: str, type_: RowType) -> UnsupportedSqlError:
    """Return the error for an operand of another type than is needed."""
    return UnsupportedSqlError(
        f"{what} needs {wanted} on rows, not {type_.sql}.",
        hint="write CAST(… AS …) where another type is meant.",
    )


def numbers(what: str, *values: RowValue) -> tuple[RowValue, ...]:
    """Return values that are numbers; NULL is one.

    Raises:
        UnsupportedSqlError: one isn't.
    """
    for value in values:
        if not value.type.is_number and value.type != NULL:
            raise not_of(what, "numbers", value.type)
    return tuple(cast(value, BIGINT) if value.type == NULL else value for value in values)


def room(limits: Limits) -> tuple[RowType, bool]:
    """Return the integer type that has all values between limits, and whether some are too many."""
    for type_ in (BIGINT, HUGEINT):
        if (
            type_.limits is not None
            and type_.limits[0] <= limits[0] <= limits[1] <= type_.limits[1]
        ):
            return type_, False
    return HUGEINT, True


def joint_room(*limits: Limits) -> tuple[RowType, bool]:
    """Return the type that has all values between several limits."""
    return room((min(low for low, _ in limits), max(high for _, high in limits)))


def integers(function: str, left: RowValue, right: RowValue, limits: Limits) -> RowValue:
    """Write integer arithmetic, given limits of the result, in a type that has it.

    Operands and result are between limits that the type has, so nothing overflows; a TRY is
    written where there is no such type, or the divisor may be zero.
    """
    ends = [value.limits or (0, 0) for value in (left, right)]
    type_, fails = joint_room(limits, *ends)
    bounds = type_.limits or limits
    inside = max(limits[0], bounds[0]), min(limits[1], bounds[1])
    if function == "%" and may_be_least_by_minus_one(type_, left, right):
        check_repeated(right, "A divisor")
    made = RowValue("call", (cast(left, type_), cast(right, type_)), type_, function, inside)
    if fails or (function in {"//", "%"} and ends[1][0] <= 0 <= ends[1][1]):
        return RowValue("try", (made,), type_, limits=inside)
    return made


def span(function: str, left: Limits, right: Limits) -> Limits:
    """Return between what a sum, a difference or a product lies."""
    if function == "-":
        return left[0] - right[1], left[1] - right[0]
    if function == "+":
        return left[0] + right[0], left[1] + right[1]
    corners = [a * b for a in left for b in right]
    return min(corners), max(corners)


def divided(function: str, left: Limits, right: Limits) -> Limits:
    """Return between what a whole quotient, or what is left of a division, lies.

    A quotient by numbers of one sign is farthest from zero by the least of them. What is left has
    the sign of what is divided, and is smaller than the divisor; but by -1 the least number of a
    type may not be divided, so there it gets as much room as a quotient.
    """
    low, high = left
    if right[0] <= -1 <= right[1]:
        most = max(abs(low), abs(high))
        return -most, most
    size = max(*(abs(end) for end in right), 1) - 1
    if function == "%":
        return max(min(low, 0), -size), min(max(high, 0), size)
    least = max(min(abs(end) for end in right), 1)
    below, above = -(max(-low, 0) // least), max(high, 0) // least
    return (below, above) if right[0] >= 0 else (-above, -below)


def inexact(function: str, left: RowValue, right: RowValue) -> RowValue:
    """Write a sum, a difference or a product of DECIMALs or doubles.

    DECIMALs are computed as DuckDB does: sums with one digit more than both have, products with 18
    digits if both have no more. Where the result has a digit for each that it can have, nothing
    overflows: |a·b| < 10^(m+n) for a and b of m and n digits, and |a ± b| < 10^(max(m, n) + 1) on
    one scale; and where both are between `ends` that have no more digits, and neither have their
    sums, differences or products. Elsewhere it is in a TRY. Where the result
    would have more than 38 digits after the point, in doubles.
    """
    if left.type.is_float or right.type.is_float:
        type_ = common_type([left.type, right.type]) or DOUBLE
        return called(function, cast(left, type_), cast(right, type_), type_=type_)
    first, second = (_as_decimal(value) for value in (left, right))
    if function == "*":
        width, scale = first.width + second.width, first.scale + second.scale
    else:
        scale = max(first.scale, second.scale)
        width = max(first.width - first.scale, second.width - second.scale) + scale + 1
    if scale > MOST_DIGITS:
        return called(function, cast(left, DOUBLE), cast(right, DOUBLE), type_=DOUBLE)
    needed = width
    if function == "*" and width > 18 and max(first.width, second.width) <= 18 and scale < 18:
        width = 18
    type_ = decimal(width, scale)
    if function != "*":
        # DuckDB casts both to the result's type, in the TRY, and then shares the two casts with
        # other expressions, outside of it. So they are brought to a type from which that can't
        # fail: one digit less, to which DuckDB adds that digit; if there is room for it.
        first = second = decimal(min(needed - 1, type_.width), scale)
    arguments = cast(left, first), cast(right, second)
    digits = _digits_of(function, left, right, type_)
    if type_.width == needed or digits is not None:
        made = called(function, *arguments, type_=type_)
        return RowValue("try_cast", (made,), type_, digits=digits)
    return tried(function, *arguments, type_=type_)


def _digits_of(function: str, left: RowValue, right: RowValue, type_: RowType) -> Limits | None:
    """Return between what a sum, a difference or a product of exact numbers is, in last digits.

    Returns:
        None if that isn't known, or the type hasn't all of it; nor all that is added up in it.
    """
    if left.ends is None or right.ends is None:
        return None
    if function == "*":
        needed = digits = span(function, left.ends, right.ends)
    else:
        one, other = (
            (ends[0] * 10 ** (type_.scale - scale), ends[1] * 10 ** (type_.scale - scale))
            for ends, scale in ((left.ends, left.type.scale), (right.ends, right.type.scale))
        )
        digits = span(function, one, other)
        needed = min(*digits, *one, *other), max(*digits, *one, *other)
    return digits if max(map(abs, needed)) < 10**type_.width else None


def _as_decimal(value: RowValue) -> RowType:
    """Return the narrowest DECIMAL that has the value: one of 18 digits is fast.

    A constant beyond 32 bits has 19 digits to DuckDB, so that a product with it has more than 18.
    """
    if value.limits is None:
        return value.type.as_decimal()
    most = max(map(abs, value.limits))
    least = 19 if value.operation == "constant" and most >= 2**31 else 1
    return decimal(max(len(str(most)), least), 0)


def absolute(value: RowValue) -> RowValue:
    """Write the absolute value of a number."""
    if value.limits is None:
        return called("abs", value, type_=value.type)
    least, most = value.limits
    limits = (0 if least <= 0 <= most else min(abs(least), abs(most)), max(-least, most))
    type_, fails = room((-limits[1], limits[1]))
    made = RowValue("call", (cast(value, type_),), type_, "abs", None if fails else limits)
    return RowValue("try", (made,), type_, limits=type_.limits) if fails else made


def bounded(
    value: RowValue, column: RowExpression, least: RowExpression, most: RowExpression
) -> RowValue:
    """Bring a column of exact numbers between two constants, or its type's values nearest to them.

    In the branch ELSE neither `x < low` nor `x > high` is true, so x is between them, or NULL. All
    else is a constant. So what is known of `ends` rests on no row.

    Raises:
        UnsupportedSqlError: it is no such column, or they are no such constants, or none of its
            type's values is between them.
    """
    ends = [Fraction(end.text) for end in (least, most)
            if isinstance(end, RowConstant) and end.kind in {"INTEGER", "DECIMAL"}]  # fmt: skip
    if not isinstance(column, RowColumn) or not value.type.is_exact or len(ends) != 2:
        raise not_of("What is limited by bounds", "an exact column", value.type)
    unit, limits = 10**value.type.scale, value.type.limits or _all_digits(value.type)
    low, high = (
        max(math.ceil(ends[0] * unit), limits[0]),
        min(math.floor(ends[1] * unit), limits[1]),
    )
    if not low <= high:
        raise not_of("What is limited by bounds", "bounds of its type", value.type)
    made = (value, *(_last_digits(end, value.type) for end in (low, high)))
    if value.type.is_integer:
        return RowValue("bounded", made, value.type, limits=(low, high))
    return RowValue("bounded", made, value.type, digits=(low, high))


def _last_digits(value: int, type_: RowType) -> RowValue:
    return constant_of(decimal_text(Fraction(value, 10**type_.scale)), type_)


def _all_digits(type_: RowType) -> Limits:
    """Return the least and the largest value of a DECIMAL, in last digits."""
    return 1 - 10**type_.width, 10**type_.width - 1


def moved(function: str, left: RowValue, right: RowValue) -> RowValue:
    """Write a day some days later or earlier, or the days between two.

    Raises:
        UnsupportedSqlError: these can't be added or subtracted.
    """
    if left.type == DATE and right.type == DATE and function == "-":
        return tried("-", left, right, type_=BIGINT, limits=BIGINT.limits)
    if right.type == DATE and left.type.is_integer and function == "+":
        left, right = right, left
    if left.type != DATE or not right.type.is_integer or function == "*":
        raise UnsupportedSqlError(
            f"{left.type.sql} {function} {right.type.sql} can't be computed on rows.",
            hint="date_diff('minute', earlier, later) gives a number.",
        )
    days = cast(right, RowType("INTEGER"))
    return tried(function, left, days, type_=DATE)


def shown(value: RowValue, text: str) -> RowValue:
    """Write a time as text; NULL if it is infinite.

    Raises:
        UnsupportedSqlError: the format has something in it that isn't listed, or is too long.
    """
    if _FORMAT.fullmatch(text) is None or len(value.sql) > LONGEST_TWICE:
        raise UnsupportedSqlError(
            f"The format {printable(text)[:60]!r} can't be shown on rows.",
            hint="formats have from 1 to 100 characters, with % before one of Y, y, m, b, B, d, j, "
            "a, A, w, u, U, W, H, I, p, M, S, f and %.",
        )
    finite = tried("isfinite", value, type_=BOOLEAN)
    written = tried("strftime", value, constant_of(text), type_=VARCHAR)
    return RowValue("case", (finite, written), VARCHAR)


def literal(node: RowExpression, what: str) -> str:
    """Return a string that must be a constant.

    Raises:
        UnsupportedSqlError: it isn't.
    """
    if not (isinstance(node, RowConstant) and node.kind == "VARCHAR"):
        raise UnsupportedSqlError(
            f"{what} needs a constant string here to run on rows.",
            hint="write the text itself, in single quotes.",
        )
    return node.text


def is_text(node: RowExpression) -> TypeGuard[RowConstant]:
    """Whether it is a string constant, which stands for a number beside one."""
    return isinstance(node, RowConstant) and node.kind == "VARCHAR"


def small(node: RowExpression, most: int, what: str) -> int:
    """Return an integer that must be a constant, and not large.

    Raises:
        UnsupportedSqlError: it isn't.
    """
    if isinstance(node, RowConstant) and node.kind == "INTEGER" and abs(int(node.text)) <= most:
        return int(node.text)
    raise UnsupportedSqlError(
        f"{what} needs a constant integer of at most {most} on rows.",
        hint="write the number itself.",
    )
