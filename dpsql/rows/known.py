"""Facts of an expression without any row: whether it is NULL, NaN or whole, bounds, and values.

They follow from what records say of functions (`functions.py`), and types and bounds of columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import ClassVar

from dpsql.errors import DpsqlError
from dpsql.rows.divisors import around_zero, is_zero, not_zero, uncast
from dpsql.rows.expression import (
    NOTHING,
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
)
from dpsql.rows.functions import (
    FUNCTIONS,
    OF_FINITE,
    Finite,
    Grows,
    Null,
    Whole,
    check_column,
    of_shapes,
)
from dpsql.rows.times import DAYS, LENGTHS, MONTHS, PARTS, as_interval, word
from dpsql.rows.types import BOOLEAN, DATE, VARCHAR, RowType, is_integer, row_type
from dpsql.rows.write import RowWriter
from dpsql.schema.names import folded


def is_nullable(expression: RowExpression, filled: frozenset[str]) -> bool:
    """Whether an expression can be NULL, also because it fails for a row.

    Args:
        expression: what may be NULL.
        filled: columns that are never NULL.

    Returns:
        False only if it never is. Nothing is taken from types, so arithmetic counts as nullable.
    """
    if isinstance(expression, RowColumn):
        return expression.name not in filled
    if isinstance(expression, RowConstant):
        return expression.kind == "NULL"
    if isinstance(expression, RowCast):
        return expression.to != VARCHAR or is_nullable(expression.value, filled)
    if isinstance(expression, RowCase):
        results = [result for _, result in expression.cases]
        return any(is_nullable(result, filled) for result in (*results, expression.otherwise))
    null = FUNCTIONS[expression.function].null
    if null in (Null.NEVER, Null.MAY):
        return null is Null.MAY
    inner = (is_nullable(part, filled) for part in expression.arguments)
    return all(inner) if null is Null.ALL else any(inner)


def may_be_nan(expression: RowExpression, numbers: Collection[str] = ()) -> bool:
    """Whether an expression can be NaN. False only if it never is.

    Args:
        expression: a number.
        numbers: the columns that are no NaN.
    """
    if isinstance(expression, RowConstant):
        return expression.kind == "DOUBLE" and "n" in expression.text
    if isinstance(expression, RowCast):
        return expression.to.is_float
    if isinstance(expression, RowCase):
        results = [result for _, result in expression.cases]
        results.append(expression.otherwise)
        return any(may_be_nan(result, numbers) for result in results)
    if isinstance(expression, RowColumn):
        return expression.name not in numbers
    finite = FUNCTIONS[expression.function].finite
    if finite in (Finite.LEAST, Finite.KEPT, Finite.CHOSEN):
        known = (part for part in expression.arguments if part != NOTHING)  # which is passed over
        inner = (may_be_nan(part, numbers) for part in known)
        return all(inner) if finite is Finite.LEAST else any(inner)
    # Of a sum, finite constants and whole parts of times or texts: inf − inf and 0·inf need more.
    return not _is_finite(expression)


def _is_finite(expression: RowExpression) -> bool:
    """Whether it is a finite number of moderate size, by its form."""
    if isinstance(expression, RowConstant):
        return expression.kind in {"INTEGER", "DECIMAL", "NULL"}
    if not isinstance(expression, RowCall):
        return isinstance(expression, RowCast) and expression.to.is_exact
    finite = FUNCTIONS[expression.function].finite
    if finite in OF_FINITE:
        return all(map(_is_finite, expression.arguments))
    return finite is Finite.ALWAYS or (finite is Finite.BY_PART and _is_part(expression))


def _is_part(expression: RowCall) -> bool:
    """Whether a part of a time is a whole number."""
    part = expression.arguments[0]
    return (
        isinstance(part, RowConstant)
        and folded(part.text) in PARTS
        and folded(part.text) not in {"epoch", "julian"}
    )


def is_whole(expression: RowExpression, integers: frozenset[str]) -> bool:
    """Whether an expression is a whole number wherever it is a finite one.

    Args:
        expression: a number.
        integers: columns of integer types.
    """
    if isinstance(expression, RowColumn):
        return expression.name in integers
    if isinstance(expression, RowConstant):
        return expression.kind in {"INTEGER", "NULL"}
    if isinstance(expression, RowCast):
        return expression.to.is_integer
    if isinstance(expression, RowCase):
        results = [result for _, result in expression.cases]
        return all(is_whole(result, integers) for result in (*results, expression.otherwise))
    whole = FUNCTIONS[expression.function].whole
    if whole is Whole.KEPT or (whole is Whole.ROUNDED and len(expression.arguments) > 1):
        return all(is_whole(part, integers) for part in expression.arguments)
    if whole is Whole.BY_PART:
        return _is_part(expression)
    return whole in (Whole.ALWAYS, Whole.ROUNDED)


# ── Between what a number lies, by interval arithmetic in exact fractions ────────────────────────
#
# What is found holds for each row whose columns keep to their own bounds, and for each value that
# is neither NULL nor NaN; in exact numbers. Dates and timestamps are numbers of days since 1970
# here. DuckDB's doubles may be off by their rounding, a relative 2^-52 for each operation. Nobody's
# privacy rests on it: a measure is brought between its bounds again, whatever a row holds.


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
        unit: tells of what all values of an expression are whole multiples; None if unknown.
        where: tells between what columns lie where a condition is true.
        divisors: expressions that aren't zero.
    """

    columns: Mapping[str, Interval]
    filled: frozenset[str] = frozenset()
    expressions: Mapping[RowExpression, Interval] = field(default_factory=dict)
    typed: bool = True
    unit: Callable[[RowExpression], Fraction | None] = lambda _: None
    where: Callable[[RowExpression], Iterable[tuple[str, Interval]]] = lambda _: ()
    divisors: frozenset[RowExpression] = frozenset()
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
            interval = self.columns.get(expression.name, _ALL)
            if None in interval:
                self._lacking.append(expression.name)
            return interval
        if isinstance(expression, RowConstant):
            return _bounds_of_constant(expression)
        if isinstance(expression, RowCast):
            return self._of_cast(expression)
        if isinstance(expression, RowCase):
            return union(list(self._of_results(expression)))
        return self._of_call(expression)

    def _of_results(self, expression: RowCase) -> Iterator[Interval]:
        """Yield the bounds of results, each where none of the conditions before is true."""
        rest = self
        for condition, result in expression.cases:
            if not _is_null_constant(result):
                yield rest.meeting(condition).of(result)
            others = not_zero(condition, holds=False)
            rest = replace(rest, divisors=rest.divisors | others) if others else rest
        if not _is_null_constant(expression.otherwise):
            yield rest.of(expression.otherwise)

    def meeting(self, condition: RowExpression) -> RowBounds:
        """Return the bounds of rows that meet a condition."""
        columns = dict(self.columns)
        for name, ends in self.where(condition):
            low, high = common(columns.get(name, _ALL), ends)
            if low is None or high is None or low <= high:
                columns[name] = low, high
        divisors = self.divisors | not_zero(condition, holds=True)
        return replace(self, columns=columns, divisors=divisors)

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

    def _quotient(self, node: RowCall) -> Interval:
        """Bounds of a quotient, which is NULL or infinite where the divisor is zero."""
        first, second = map(self.of, node.arguments)
        unit = self._least_divisor(node.arguments[1], whole=node.function == "//")
        divisors = [second] if unit is None else around_zero(second, unit)
        rule = _whole_quotient if node.function == "//" else _divided
        return union([rule(node, [first, each]) for each in divisors])

    def _least_divisor(self, divisor: RowExpression, *, whole: bool) -> Fraction | None:
        """Return how near to zero a divisor comes; None if it may be zero, or come ever nearer."""
        value = uncast(divisor)
        apart = whole or value in self.divisors
        if isinstance(value, RowCall) and value.function == "nullif":
            first, other = value.arguments
            value, apart = uncast(first), apart or is_zero(other)
        return self.unit(value) if apart or value in self.divisors else None

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
        "quotient": _quotient, "whole quotient": _quotient,
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


def _bounds_of_constant(node: RowConstant) -> Interval:
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
        borders = math.floor(last / each) - math.floor(first / each)
        return Fraction(borders + inexact if up else borders - inexact)
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
    unit: days * _DAY + rest for unit, (months, days, rest) in LENGTHS.items() if not months
}
_MONTHS = {unit: months for unit, (months, _, _) in LENGTHS.items() if months}
_MONTHS |= {"century": 1_200, "millennium": 12_000}
_YEARS = {"year": 1, "isoyear": 1, "decade": 10, "century": 100, "millennium": 1_000}
_Rule = Callable[[RowCall, list[Interval]], Interval]
_RULES: dict[str, _Rule] = {
    "sum": _added, "difference": _subtracted, "product": _multiplied, "remainder": _remainder,
    "negative": lambda n, g: _subtracted(n, [_ZERO, g[0]]), "absolute": _absolute,
    "rounded": _rounded, "power": _power, "span": _units_between, "truncated": _cut,
    "clock": _shifted, "shift": _moved,
}  # fmt: skip
check_column("bounds", {"", *_RULES, *RowBounds._OWN})


# ── The values that an expression can have at all, where it says so itself ───────────────────────
#
# Comparisons are true or false, an hour is one of 24 numbers, CASE has the results that are written
# in it. Such an expression is a key with a known domain, though its columns have none.


MOST_VALUES = 10_000
_LISTED = {"dayname": DAYS, "monthname": MONTHS}
_CHOICES = of_shapes("choice", "extreme")

Value = bool | int | Fraction | str


@dataclass(frozen=True, slots=True)
class KnownValues:
    """All values that an expression can have.

    Args:
        values: booleans, integers, fractions or strings, in order, each once.
        type: their type in DuckDB.
        nullable: whether NULL may be among them. NaN never is.
    """

    values: tuple[Value, ...]
    type: RowType
    nullable: bool


def type_bounds(types: Mapping[str, str]) -> dict[str, Interval]:
    """Return the bounds that columns have by their types alone: no row can be outside of them."""
    bounds: dict[str, Interval] = {}
    for name, declared in types.items():
        try:
            type_ = row_type(declared)
        except DpsqlError:
            continue
        if type_.limits is not None:
            bounds[name] = (Fraction(type_.limits[0]), Fraction(type_.limits[1]))
        elif type_ == BOOLEAN:
            bounds[name] = (Fraction(0), Fraction(1))
        elif type_.name == "DECIMAL":
            end = Fraction(10**type_.width - 1, 10**type_.scale)
            bounds[name] = (-end, end)
    return bounds


def known_values(
    expression: RowExpression, types: Mapping[str, str], filled: frozenset[str] = frozenset()
) -> KnownValues | None:
    """Return the values that an expression can have, whatever a row holds.

    Args:
        expression: a key.
        types: the columns' types. Only these bound a column: what is declared of its values may
            be untrue.
        filled: columns that are never NULL.

    Returns:
        None if they aren't known, or are more than 10,000.

    Raises:
        UnsupportedSqlError: the expression can't be written.
    """
    type_ = RowWriter(types).write(expression).type
    integers = frozenset(name for name in types if is_integer(types[name]))
    values = _Finder(RowBounds(type_bounds(types), filled), integers, types).of(expression)
    if values is None or len(values) > MOST_VALUES:
        return None
    ordered = tuple(sorted(values, key=lambda value: (str(type(value)), value)))
    if len({isinstance(value, str) for value in ordered}) > 1:
        return None
    return KnownValues(ordered, type_, is_nullable(expression, filled))


@dataclass(frozen=True, slots=True)
class _Finder:
    bounds: RowBounds
    integers: frozenset[str]
    types: Mapping[str, str]

    def of(self, node: RowExpression) -> frozenset[Value] | None:
        """Return all values but NULL."""
        if isinstance(node, RowConstant):
            return _value_of_constant(node)
        if isinstance(node, RowColumn):
            if row_type(self.types[node.name]) == BOOLEAN:
                return frozenset({False, True})
            return self._range(node)
        if isinstance(node, RowCase):
            results = [result for _, result in node.cases]
            return self._any_of((*results, node.otherwise))
        if isinstance(node, RowCast):
            if node.to == BOOLEAN:
                return frozenset({False, True})
            return self._range(node)
        if RowWriter(self.types).write(node).type == BOOLEAN:
            return frozenset({False, True})
        if node.function in _LISTED:
            return frozenset(_LISTED[node.function])
        if node.function == "nullif":
            return self.of(node.arguments[0])
        if node.function in _CHOICES:
            return self._any_of(node.arguments) or self._range(node)
        return self._range(node)

    def _any_of(self, nodes: tuple[RowExpression, ...]) -> frozenset[Value] | None:
        any_of: set[Value] = set()
        for node in nodes:
            values = self.of(node)
            if values is None or len(any_of) > MOST_VALUES:
                return None
            any_of |= values
        return frozenset(any_of)

    def _range(self, node: RowExpression) -> frozenset[Value] | None:
        """All whole numbers between bounds."""
        written = RowWriter(self.types).write(node)
        type_ = written.type
        if not type_.is_integer and not is_whole(node, self.integers):
            return None
        if not type_.is_exact and may_be_nan(node):
            return None
        limits = written.limits
        known = (None, None) if limits is None else (Fraction(limits[0]), Fraction(limits[1]))
        low, high = common(self.bounds.of(node), known)
        if low is None or high is None or high - low > MOST_VALUES:
            return None
        return frozenset(range(math.ceil(low), math.floor(high) + 1))


def _value_of_constant(node: RowConstant) -> frozenset[Value] | None:
    if node.kind == "NULL":
        return frozenset()
    if node.kind == "BOOLEAN":
        return frozenset({node.text == "true"})
    if node.kind == "INTEGER":
        return frozenset({int(node.text)})
    if node.kind == "DECIMAL":
        return frozenset({Fraction(node.text)})
    return frozenset({node.text}) if node.kind == "VARCHAR" else None
