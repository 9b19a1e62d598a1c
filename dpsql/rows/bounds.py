"""Between what a number lies, by interval arithmetic in exact fractions.

What is found holds for each row whose columns keep to their own bounds, and for each value that is
neither NULL nor NaN; in exact numbers. Dates and timestamps are numbers of days since 1970 here.
DuckDB's doubles may be off by their rounding, a relative 2^-52 for each operation. Nobody's privacy
rests on it: a measure is brought between its bounds again, whatever a row holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from typing import ClassVar

from dpsql.rows.expression import (
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
)
from dpsql.rows.functions import FUNCTIONS, PARTS, Grows, check_column
from dpsql.rows.intervals import UNITS, as_interval
from dpsql.rows.known import is_nullable, may_be_nan
from dpsql.rows.times import word
from dpsql.rows.types import BOOLEAN, DATE

Interval = tuple[Fraction | None, Fraction | None]
"""The least and the largest value; None where there is none."""
_ALL: Interval = (None, None)
_ZERO: Interval = (Fraction(0), Fraction(0))
_NARROW = 2000
"""Binary digits of a bound at most; others are taken for unknown."""


@dataclass(frozen=True, slots=True)
class RowBounds:
    """The bounds of the columns, from which those of expressions follow.

    Args:
        columns: bounds of each column that has some.
        filled: columns that are never NULL.
        expressions: bounds of expressions besides what follows from their columns, see `ordered`.
        typed: whether a cast has the bounds of its type where its value has none.
    """

    columns: Mapping[str, Interval]
    filled: frozenset[str] = frozenset()
    expressions: Mapping[RowExpression, Interval] = field(default_factory=dict)
    typed: bool = True
    _lacking: list[str] = field(default_factory=list)

    def of(self, expression: RowExpression) -> Interval:
        """Return the bounds of an expression."""
        before = len(self._lacking)
        low, high = self._of(expression)
        low, high = _narrowed(low), _narrowed(high)
        if self.expressions:
            low, high = common((low, high), self.expressions.get(expression, _ALL))
        if low is not None and high is not None:
            del self._lacking[before:]
        return low, high

    def lacking(self, expression: RowExpression) -> tuple[str, ...]:
        """Name the columns without which an expression has no bounds, in order of their names.

        A column counts if the expression has bounds as soon as all that count have some.
        """
        if None not in self.of(expression):
            return ()
        self._lacking.clear()
        self.of(expression)
        return tuple(sorted(set(self._lacking)))

    def _of(self, expression: RowExpression) -> Interval:
        if isinstance(expression, RowColumn):
            found = self.columns.get(expression.name, _ALL)
            if None in found:
                self._lacking.append(expression.name)
            return found
        if isinstance(expression, RowConstant):
            return _of_constant(expression)
        if isinstance(expression, RowCast):
            return self._of_cast(expression)
        if isinstance(expression, RowCase):
            results = [result for _, result in expression.cases]
            return union([self.of(result) for result in (*results, expression.otherwise)
                          if not _is_null_constant(result)])  # fmt: skip
        return self._of_call(expression)

    def _of_cast(self, expression: RowCast) -> Interval:
        low, high = self.of(expression.value)
        if expression.to == BOOLEAN:
            return Fraction(0), Fraction(1)
        if expression.to.is_time:
            whole = expression.to == DATE and low is not None and high is not None
            return (Fraction(math.floor(low)), Fraction(math.floor(high))) if whole else (low, high)  # type: ignore[arg-type]
        if not expression.to.is_number:
            return _ALL
        if expression.to.is_exact:
            # Rounded to the nearest value of the type, which moves none past a whole last digit.
            unit = Fraction(1, 10**expression.to.scale)
            low = None if low is None else math.floor(low / unit) * unit
            high = None if high is None else math.ceil(high / unit) * unit
            limits = expression.to.limits
            if limits is not None and (self.typed or low is not None):
                low = max(low, Fraction(limits[0])) if low is not None else Fraction(limits[0])
            if limits is not None and (self.typed or high is not None):
                high = min(high, Fraction(limits[1])) if high is not None else Fraction(limits[1])
        return low, high

    def _of_call(self, node: RowCall) -> Interval:
        known = FUNCTIONS[node.function].bounds
        if isinstance(known, tuple):
            low, high = known
            return None if low is None else Fraction(low), None if high is None else Fraction(high)
        if isinstance(known, Grows):
            start = None if known.start is None else Fraction(known.start)
            return _grown(known.function, start, self.of(node.arguments[0]))
        if known in self._OWN:
            return self._OWN[known](self, node)
        return _RULES[known](node, [self.of(part) for part in node.arguments]) if known else _ALL

    def _any(self, node: RowCall) -> Interval:
        return union([self.of(part) for part in node.arguments if not _is_null_constant(part)])

    def _first(self, node: RowCall) -> Interval:
        return self.of(node.arguments[0])

    def _part(self, node: RowCall) -> Interval:
        return _of_part(node, lambda: self.of(node.arguments[1]))

    def _length(self, node: RowCall) -> Interval:
        return Fraction(0), _longest(node.arguments[0])

    def _extreme(self, node: RowCall) -> Interval:
        """Bounds of LEAST and GREATEST, which leave NULL out.

        An argument that is never NULL always takes part, so LEAST is not above it; of the others
        each may be the only one. NaN is the largest: LEAST then has another argument, and
        GREATEST is NaN itself.
        """
        # NULL is passed over, and so is NaN by LEAST, in which it is the largest of all numbers.
        known = [
            (
                self.of(part),
                is_nullable(part, self.filled)
                or (node.function == "least" and may_be_nan(part, self.columns)),
            )
            for part in node.arguments
        ]
        if node.function == "greatest":
            known = [((_minus(high), _minus(low)), absent) for (low, high), absent in known]
        low, high = union([bounds for bounds, _ in known])
        always = [bounds[1] for bounds, absent in known if not absent and bounds[1] is not None]
        high = min(always) if always else high
        return (low, high) if node.function == "least" else (_minus(high), _minus(low))

    _OWN: ClassVar[dict[str, Callable[[RowBounds, RowCall], Interval]]] = {
        "any": _any, "first": _first, "extreme": _extreme, "part": _part, "length": _length,
    }  # fmt: skip
    """Rules that don't ask for the bounds of all arguments."""


def common(one: Interval, other: Interval) -> Interval:
    """Return where both hold; of intervals apart the low end is above the high one."""
    lows = [low for low, _ in (one, other) if low is not None]
    highs = [high for _, high in (one, other) if high is not None]
    return max(lows, default=None), min(highs, default=None)


def _is_null_constant(node: RowExpression) -> bool:
    return isinstance(node, RowConstant) and node.kind == "NULL"


def _narrowed(value: Fraction | None) -> Fraction | None:
    if value is None or max(abs(value.numerator), value.denominator).bit_length() > _NARROW:
        return None
    return value


def _minus(value: Fraction | None) -> Fraction | None:
    return None if value is None else -value


def _of_constant(node: RowConstant) -> Interval:
    if node.kind in {"INTEGER", "DECIMAL", "DOUBLE"}:
        try:
            # A double is read as the nearest one there is.
            value = Fraction(float(node.text)) if node.kind == "DOUBLE" else Fraction(node.text)
        except (ValueError, OverflowError):
            return _ALL
        return value, value
    if node.kind == "BOOLEAN":
        value = Fraction(node.text == "true")
        return value, value
    if node.kind in {"DATE", "TIMESTAMP"}:
        return days_of(node.text), days_of(node.text)
    return _ALL


def days_of(text: str) -> Fraction | None:
    """Return how many days after the first of 1970 an ISO date or timestamp is, if it is finite."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    since = moment - _EPOCH
    return since.days + Fraction(since // _MICROSECOND - since.days * _DAY, _DAY)


def union(parts: Sequence[Interval]) -> Interval:
    """Return what holds of each of some; of none, as of what is always NULL, zero."""
    if not parts:
        return _ZERO
    lows, highs = [low for low, _ in parts], [high for _, high in parts]
    low = None if None in lows else min(v for v in lows if v is not None)
    high = None if None in highs else max(v for v in highs if v is not None)
    return low, high


def _of_part(node: RowCall, of: Callable[[], Interval]) -> Interval:
    part = node.arguments[0]
    if not isinstance(part, RowConstant):
        return _ALL
    name = word(part.text, parts=True)
    limits = PARTS[name]
    if limits is not None:
        return Fraction(limits[0]), Fraction(limits[1])
    if name not in _YEARS and name != "epoch":
        return _ALL
    low, high = of()
    if low is None or high is None:
        return _ALL
    if name == "epoch":
        return low * 86_400, high * 86_400
    first, last = _moment(low), _moment(high)
    if first is None or last is None:
        return _ALL
    each = _YEARS[name]
    if name in {"year", "decade"}:
        return Fraction(first.year // each), Fraction(last.year // each)
    return Fraction((first.year - 1) // each), Fraction(-(-(last.year + 1) // each))


def _moment(days: Fraction) -> datetime | None:
    try:
        return _EPOCH + timedelta(microseconds=math.floor(days * _DAY))
    except OverflowError:
        return None


def _units_between(node: RowCall, given: list[Interval]) -> Interval:
    """Bound how many borders of a unit lie between two times: the more, the later the second is."""
    unit = node.arguments[0]
    (first, last), (least, most) = given[1], given[2]
    if not isinstance(unit, RowConstant) or None in (first, last, least, most):
        return _ALL
    name = word(unit.text, parts=False)
    return _borders(name, last, least, up=False), _borders(name, first, most, up=True)  # type: ignore[arg-type]


def _borders(unit: str, first: Fraction, last: Fraction, *, up: bool) -> Fraction | None:
    if unit in _MICROSECONDS:
        each = Fraction(_MICROSECONDS[unit], _DAY)
        # Whichever way a quotient is rounded below zero, that makes a difference of one.
        inexact = 0 if unit in {"microsecond", "day"} else 1
        found = math.floor(last / each) - math.floor(first / each)
        return Fraction(found + inexact if up else found - inexact)
    one, other = _moment(first), _moment(last)
    if one is None or other is None:
        return None
    apart = 12 * (other.year - one.year) + other.month - one.month
    if unit == "month":
        return Fraction(apart)
    months = _MONTHS[unit]
    return Fraction(apart // months + 1 if up else -(-apart // months) - 1)


def _moved(node: RowCall, given: list[Interval]) -> Interval:
    span = node.arguments[1]
    (low, high), moved = given[0], as_interval(span.text) if isinstance(span, RowConstant) else None
    if moved is None:
        return _ALL
    months, days = moved[0], moved[1] + Fraction(moved[2], _DAY)
    least, most = sorted([months * 28, months * 31])
    return None if low is None else low + least + days, None if high is None else high + most + days


def _shifted(_: RowCall, given: list[Interval]) -> Interval:
    """Bound what another clock shows: no two are a day from each other, or more."""
    low, high = given[0]
    return None if low is None else low - 1, None if high is None else high + 1


def _cut(node: RowCall, given: list[Interval]) -> Interval:
    """Bound what is cut to a whole unit: it is earlier by less than one, or as it was."""
    unit, (low, high) = node.arguments[0], given[1]
    if not isinstance(unit, RowConstant):
        return _ALL
    name = word(unit.text, parts=False)
    days = Fraction(_MICROSECONDS[name], _DAY) if name in _MICROSECONDS else 31 * _MONTHS[name]
    return None if low is None else low - days, high


def _longest(node: RowExpression) -> Fraction | None:
    """Return how long a string can be."""
    if isinstance(node, RowConstant):
        return Fraction(len(node.text))
    if isinstance(node, RowCall) and node.function in {"left", "right", "substring"}:
        count = node.arguments[-1]
        if len(node.arguments) == (3 if node.function == "substring" else 2) and (
            isinstance(count, RowConstant) and count.kind == "INTEGER" and int(count.text) >= 0
        ):
            return Fraction(int(count.text))
    return None


def _added(_: RowCall, given: list[Interval]) -> Interval:
    return tuple(  # type: ignore[return-value]
        None if a is None or b is None else a + b for a, b in zip(*given, strict=True)
    )


def _subtracted(node: RowCall, given: list[Interval]) -> Interval:
    low, high = given[1]
    return _added(node, [given[0], (_minus(high), _minus(low))])


def _multiplied(node: RowCall, given: list[Interval]) -> Interval:
    if node.arguments[0] == node.arguments[1]:
        low, high = _absolute(node, given[:1])
        return _squared(low), _squared(high)
    return _corners(given[0], given[1])


def _squared(value: Fraction | None) -> Fraction | None:
    return None if value is None else value * value


def _corners(first: Interval, second: Interval) -> Interval:
    if _ZERO in (first, second):
        return _ZERO
    if None in first or None in second:
        if all(low is not None and low >= 0 for low, _ in (first, second)):
            return (first[0] or Fraction(0)) * (second[0] or Fraction(0)), None
        return _ALL
    products = [a * b for a in first for b in second if a is not None and b is not None]
    return min(products), max(products)


def _divided(_: RowCall, given: list[Interval]) -> Interval:
    low, high = given[1]
    if (low is not None and low > 0) or (high is not None and high < 0):
        inverse = (
            Fraction(0) if high is None and low is not None else high and 1 / high,
            Fraction(0) if low is None and high is not None else low and 1 / low,
        )
        return _corners(given[0], inverse)
    return _ALL


def _remainder(_: RowCall, given: list[Interval]) -> Interval:
    """Bound a remainder: it has the sign of what is divided, and is smaller than the divisor."""
    (low, high), divisor = given
    size = None if None in divisor else max(abs(end) for end in divisor if end is not None)
    ends = [value for value in (size, high) if value is not None]
    above = Fraction(0) if high is not None and high <= 0 else min(ends, default=None)
    starts = [-size] if size is not None else []
    starts += [low] if low is not None else []
    below = Fraction(0) if low is not None and low >= 0 else max(starts, default=None)
    return below, above


def _whole_quotient(node: RowCall, given: list[Interval]) -> Interval:
    low, high = _divided(node, given)
    return (
        None if low is None else Fraction(math.floor(low)),
        None if high is None else Fraction(math.ceil(high)),
    )


def _absolute(_: RowCall, given: list[Interval]) -> Interval:
    low, high = given[0]
    if low is not None and low >= 0:
        return low, high
    if high is not None and high <= 0:
        return -high, _minus(low)
    most = None if low is None or high is None else max(-low, high)
    return Fraction(0), most


def _rounded(node: RowCall, given: list[Interval]) -> Interval:
    """To a whole multiple of a unit: no value passes the multiple below or above it."""
    digits = 0
    if len(node.arguments) == 2:
        given_digits = node.arguments[1]
        if not isinstance(given_digits, RowConstant) or given_digits.kind != "INTEGER":
            return _ALL
        digits = max(min(int(given_digits.text), 30), -30)
    unit = Fraction(10) ** -digits
    low, high = given[0]
    kind = node.function
    low_up = kind == "ceil" or (kind == "trunc" and low is not None and low < 0)
    high_down = kind == "floor" or (kind == "trunc" and high is not None and high > 0)
    return _multiple(low, unit, up=low_up), _multiple(high, unit, up=not high_down)


def _multiple(value: Fraction | None, unit: Fraction, *, up: bool) -> Fraction | None:
    if value is None:
        return None
    return (math.ceil(value / unit) if up else math.floor(value / unit)) * unit


def _outward(value: Fraction, function: Callable[[float], float], *, up: bool) -> Fraction | None:
    """Evaluate a monotone function of the C library, off by less than 8 units of the last place.

    glibc, Apple's and Microsoft's libraries state errors of at most 2 units for these.
    """
    try:
        point = float(value)
        if Fraction(point) != value:
            point = math.nextafter(point, math.inf if up else -math.inf)
        found = function(point)
    except (ValueError, OverflowError):
        return None
    for _ in range(16):
        found = math.nextafter(found, math.inf if up else -math.inf)
    return Fraction(found) if math.isfinite(found) else None


def _grown(function: Callable[[float], float], start: Fraction | None, given: Interval) -> Interval:
    """Bound a function that grows, and is nothing below `start`."""
    low, high = given
    if start is not None and (low is None or low < start):
        low = start
    if high is not None and low is not None and high < low:
        return _ZERO  # it has no value at all
    return (
        None if low is None else _outward(low, function, up=False),
        None if high is None else _outward(high, function, up=True),
    )


def _power(_: RowCall, given: list[Interval]) -> Interval:
    """Whole powers of anything, and other powers of what isn't negative."""
    (low, high), exponent = given
    if exponent[0] is None or exponent[0] != exponent[1] or low is None or high is None:
        return _ALL
    power = exponent[0]
    if power.denominator == 1 and 0 <= power <= 16:
        ends = [low**power.numerator, high**power.numerator]
        if low <= 0 <= high and power > 0:
            ends.append(Fraction(0))
        return min(ends), max(ends)
    if low < 0 or power < 0:
        return _ALL
    return _grown(lambda x: math.pow(x, float(power)), None, (low, high))


_EPOCH, _MICROSECOND = datetime(1970, 1, 1), timedelta(microseconds=1)
_DAY = 86_400_000_000
_MICROSECONDS = {
    unit: days * _DAY + rest for unit, (months, days, rest) in UNITS.items() if not months
}
_MONTHS = {unit: months for unit, (months, _, _) in UNITS.items() if months}
_MONTHS |= {"century": 1_200, "millennium": 12_000}
_YEARS = {"year": 1, "isoyear": 1, "decade": 10, "century": 100, "millennium": 1_000}
_Rule = Callable[[RowCall, list[Interval]], Interval]
_RULES: dict[str, _Rule] = {
    "sum": _added, "difference": _subtracted, "product": _multiplied, "quotient": _divided,
    "whole quotient": _whole_quotient, "remainder": _remainder,
    "negative": lambda n, g: _subtracted(n, [_ZERO, g[0]]), "absolute": _absolute,
    "rounded": _rounded, "power": _power, "span": _units_between, "truncated": _cut,
    "clock": _shifted, "shift": _moved,
}  # fmt: skip
check_column("bounds", {"", *_RULES, *RowBounds._OWN})
