"""The places where expressions of one ordered column change: a few values, none in between.

Guarantees:
    If `cuts_of` returns a set of places, the expression has one value for all values of the
    column between two of them that follow each other, and one for NULL. If it is asked within
    some range, it says so of the values in that range only, whose ends are among the places.

    *Proof.* By induction over the tree. A comparison of the column with a constant is true below
    a place and false from there on, or the other way around (`place`); IN and BETWEEN are made
    of such. A function of the calendar has one value in a period, and all periods that begin in
    the range are cut; the column itself has one at each place. Anything else is a function of its
    operands, as all functions of the list are deterministic: where these have one value each, it
    has one. Of CASE a result is taken only where its condition is true, so it is looked at in that
    range only; and what a function gives of a CASE is what it gives of the result that is taken. ∎
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import islice
from typing import ClassVar

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.expression import (
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
    columns,
    parts,
)
from dpsql.rows.functions import FUNCTIONS, Cuts
from dpsql.rows.times import meant, word
from dpsql.rows.types import DATE, DOUBLE, TIMESTAMP, RowType

MOST_PLACES = 400
"""The most places at which one expression changes."""
Range = tuple[int, int]
"""The first place, and the one after the last."""
Places = frozenset[int]

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>",
            "is_distinct": "is_distinct", "is_not_distinct": "is_not_distinct"}  # fmt: skip
_ASKED_WITHIN = frozenset({Cuts.PLACE, Cuts.PLACES, Cuts.NOWHERE})


class Cutter:
    """Looks at expressions of one column.

    Args:
        column: the column.
        type_: its type, which has places.
    """

    def __init__(self, column: RowColumn, type_: RowType) -> None:
        self._column, self._type = column, type_
        least, most = ends(type_)
        self.everything: Range = (least, most + 1)

    def cuts_of(self, node: RowExpression, within: Range) -> Places | None:
        """Return where an expression changes, for values in a range; None if that isn't known.

        It is None too if a cut is at an end of the calendar, as the values on both sides of it
        have to be written as constants.
        """
        places = self._of(node, within)
        if places is None or len(places) > MOST_PLACES:
            return None
        least, most = ends(self._type)
        cuts = frozenset(cut for cut in places.union(within) if least < cut <= most)
        sides = {side for cut in cuts for side in (cut - 1, cut)} if self._type.is_time else ()
        return None if any(moment_at(side, self._type) is None for side in sides) else cuts

    def extent(self, condition: RowExpression) -> Range:
        """Return a range in which all values lie for which a condition is true."""
        low, high = self.everything
        if not isinstance(condition, RowCall):
            return low, high
        if condition.function == "in":
            value, *listed = condition.arguments
            each = tuple(RowCall("=", (value, one)) for one in listed)
            return self.extent(RowCall("or", each)) if each else (low, high)
        if condition.function in {"and", "or"}:
            extents = [self.extent(part) for part in condition.arguments]
            lows, highs = zip(*extents, strict=True)
            if condition.function == "and":
                return max(lows), min(highs)
            return min(lows), max(highs)
        compared = self._compared(condition)
        if compared is None:
            return low, high
        function, below, after = compared
        if function in {"=", "is_not_distinct", "between"}:
            return below, after
        if function in {">", ">="}:
            return (after if function == ">" else below), high
        if function in {"<", "<="}:
            return low, (below if function == "<" else after)
        return low, high

    def _of(self, node: RowExpression, within: Range) -> Places | None:
        if within[0] >= within[1] or isinstance(node, RowConstant):
            return frozenset()
        if node == self._column:
            return self._each(within)
        if isinstance(node, RowCase):
            return self._of_case(node, within)
        if isinstance(node, RowCall):
            inner = _inside_case(node)
            if inner is not None:
                return self._of_case(inner, within)
            return self._RULES[FUNCTIONS[node.function].cuts](self, node, within)
        return self._of_period(node, within)

    def _of_parts(self, node: RowExpression, within: Range) -> Places | None:
        if self._column.name not in columns(node):
            return frozenset()
        return _union(self._of(part, within) for part in parts(node))

    def _of_period(self, node: RowExpression, within: Range) -> Places | None:
        period = period_of(node, self._column) if self._type.is_time else ""
        return self._starts(period, within) if period else self._of_parts(node, within)

    def _of_null(self, node: RowCall, within: Range) -> Places | None:
        is_of_column = node.arguments == (self._column,)
        return frozenset() if is_of_column else self._of_parts(node, within)

    def _of_infinity(self, node: RowCall, within: Range) -> Places | None:
        if not self._is_own(node.arguments[0]):
            return self._of_parts(node, within)
        return self._infinite() if self._type == DOUBLE else None

    def _of_list(self, node: RowCall, within: Range) -> Places | None:
        value, *listed = node.arguments
        return _union(self._of(RowCall("=", (value, one)), within) for one in listed)

    def _of_comparison(self, node: RowCall, within: Range) -> Places | None:
        compared = self._compared(node)
        if compared is None:
            return self._of_parts(node, within)
        function, below, after = compared
        if function in {"<", ">="}:
            return frozenset({below})
        return frozenset({after} if function in {"<=", ">"} else {below, after})

    def _of_case(self, node: RowCase, within: Range) -> Places | None:
        places_of_all = [self._of(node.otherwise, within)]
        for condition, result in node.cases:
            low, high = self.extent(condition)
            places_of_all.append(self._of(condition, within))
            places_of_all.append(self._of(result, (max(low, within[0]), min(high, within[1]))))
        return _union(places_of_all)

    def _is_own(self, node: RowExpression) -> bool:
        return node == self._column or (
            self._type == DOUBLE and node == RowCast(self._column, DOUBLE)
        )

    def _compared(self, node: RowCall) -> tuple[str, int, int] | None:
        """Return how the column is compared, and the places at which that changes.

        For a constant: of the least value not below it, and of the least above it.
        """
        if node.function == "between":
            value, *both = node.arguments
            marks = [self._marks(value, end) for end in both]
            if marks[0] is None or marks[1] is None:
                return None
            return "between", marks[0][0], marks[1][1]
        if node.function not in _FLIPPED or len(node.arguments) != 2:
            return None
        one, other = node.arguments
        for function, value, constant in (
            (node.function, one, other),
            (_FLIPPED[node.function], other, one),
        ):
            marks_ = self._marks(value, constant)
            if marks_ is not None:
                return function, *marks_
        return None

    def _marks(self, value: RowExpression, constant: RowExpression) -> Range | None:
        day = self._type == TIMESTAMP and value == RowCast(self._column, DATE)
        constant = _folded(constant)
        if not (day or self._is_own(value)) or not isinstance(constant, RowConstant):
            return None
        if constant.kind == "VARCHAR":
            try:
                constant = meant(constant.text, DATE if day else self._type)
            except UnsupportedSqlError:
                return None
        if day and constant.kind != "DATE":
            return None
        low, high = place(constant, self._type), above(constant, self._type)
        if low is None or high is None:
            return None
        if day:
            high = low + timedelta(days=1) // timedelta(microseconds=1)
        return low, high

    def _each(self, within: Range) -> Places | None:
        low, high = within
        too_many = within == self.everything or high - low > MOST_PLACES
        if too_many or self._type in (DOUBLE, TIMESTAMP):
            return None
        return frozenset(range(low, high + 1))

    _RULES: ClassVar[dict[Cuts, Callable[[Cutter, RowCall, Range], Places | None]]] = {
        Cuts.PLACE: _of_comparison, Cuts.PLACES: _of_list, Cuts.NOWHERE: _of_null,
        Cuts.INFINITY: _of_infinity, Cuts.PERIODS: _of_period, Cuts.ARGUMENTS: _of_parts,
    }  # fmt: skip

    def _infinite(self) -> Places:
        least, most = ends(DOUBLE)
        return frozenset({least + 1, most - 1, most})

    def _starts(self, period: str, within: Range) -> Places | None:
        low, high = (moment_at(end, self._type) for end in within)
        if low is None or high is None:
            return None
        if self._type == DATE and period in {"hour", "minute"}:
            period = "day"
        first = list(islice(starts(period, low, high), MOST_PLACES + 1))
        if len(first) > MOST_PLACES:
            return None
        return frozenset(place_of_moment(moment, self._type) for moment in first)


def _folded(node: RowExpression) -> RowExpression:
    """Return a constant in place of a number with a minus sign, and of a day as a moment."""
    if isinstance(node, RowCast) and node.to == TIMESTAMP:
        day = node.value
        if isinstance(day, RowConstant) and day.kind == "DATE":
            return RowConstant("TIMESTAMP", day.text)
    if isinstance(node, RowCall) and node.function == "negative":
        (inner,) = node.arguments
        if isinstance(inner, RowConstant) and inner.kind in {"INTEGER", "DECIMAL", "DOUBLE"}:
            minus = inner.text.startswith("-")
            return RowConstant(inner.kind, inner.text[1:] if minus else f"-{inner.text}")
    return node


def _union(parts: Iterable[Places | None]) -> Places | None:
    all_: set[int] = set()
    for cuts in parts:
        if cuts is None or len(all_) > MOST_PLACES:
            return None
        all_ |= cuts
    return frozenset(all_)


def _inside_case(node: RowCall) -> RowCase | None:
    """Ask of each result of a CASE what is asked of the whole; None if that isn't done."""
    if FUNCTIONS[node.function].cuts not in _ASKED_WITHIN:
        return None
    found = ((i, part) for i, part in enumerate(node.arguments) if isinstance(part, RowCase))
    at, case = next(found, (0, None))
    if case is None:
        return None

    def of(result: RowExpression) -> RowCall:
        return RowCall(node.function, (*node.arguments[:at], result, *node.arguments[at + 1 :]))

    cases = tuple((condition, of(result)) for condition, result in case.cases)
    return RowCase(cases, of(case.otherwise))


# ── Values of an ordered type as whole numbers, their places, so that x < y says p(x) < p(y) ─────
#
# There is no value between two places that follow each other. So each condition `x < y`, `x <= y`,
# and so on, is that the place of x is below some place, or not. NULL has none.


_INT64 = 2**63
_DIGITS = 18
"""Digits of a DECIMAL whose places fit 64 bits."""
_EPOCH = datetime(1970, 1, 1)
_EXACT = 2**53
"""Whole numbers up to which doubles have all."""
_SHORT = 15
"""Decimal digits of which a double is the nearest one, however it was read."""
_INFINITE = 0x7FF << 52
"""The bits of infinity: those of all that is finite are smaller, and grow with it."""
_SECOND = timedelta(microseconds=1)


def has_places(type_: RowType) -> bool:
    """Whether the values of a type have places of 64 bits."""
    if type_.limits is not None:
        return type_.limits[0] >= -_INT64 and type_.limits[1] < _INT64
    if type_.name == "DECIMAL":
        return type_.width <= _DIGITS
    return type_ in (DOUBLE, DATE, TIMESTAMP)


def ends(type_: RowType) -> tuple[int, int]:
    """Return the least and the largest place. Those of times stand for infinite ones.

    NaN comes after infinity, as DuckDB compares it.
    """
    if type_.limits is not None:
        return type_.limits
    if type_.name == "DECIMAL":
        return 1 - 10**type_.width, 10**type_.width - 1
    return (-_INFINITE, _INFINITE + 1) if type_ == DOUBLE else (-_INT64, _INT64 - 1)


def place(constant: RowConstant, type_: RowType) -> int | None:
    """Return the place of a constant that is compared with values of a type: see `above` too.

    Returns:
        That of the least value that isn't below it; None if that can't be told for sure, as
        comparing rounds one of the two.
    """
    if type_.is_time:
        return _place_of_time(constant, type_)
    if constant.kind not in {"INTEGER", "DECIMAL", "DOUBLE"}:
        return None
    if type_ == DOUBLE:
        return _place_of_double(constant)
    value = _exact(constant, type_)
    return None if value is None else math.ceil(value * 10**type_.scale)


def above(constant: RowConstant, type_: RowType) -> int | None:
    """Return the place of the least value that is above a constant; None if it isn't known."""
    at = place(constant, type_)
    if at is None or type_ == DOUBLE or type_.is_time:
        return None if at is None else at + 1
    value = _exact(constant, type_)
    return None if value is None else math.floor(value * 10**type_.scale) + 1


def constant_at(where: int, type_: RowType) -> RowConstant:
    """Return the value at a place, as a constant."""
    if type_.limits is not None:
        return RowConstant("INTEGER", str(where))
    if type_.name == "DECIMAL":
        digits, sign = f"{abs(where):0{type_.scale + 1}}", "-" if where < 0 else ""
        before, after = digits[: len(digits) - type_.scale], digits[len(digits) - type_.scale :]
        return RowConstant("DECIMAL", f"{sign}{before}.{after}")
    if type_ == DOUBLE:
        return RowConstant("DOUBLE", repr(_double_at(where)))
    if type_ == DATE:
        return RowConstant("DATE", (_EPOCH + timedelta(days=where)).date().isoformat())
    moment = _EPOCH + where * _SECOND
    return RowConstant("TIMESTAMP", moment.isoformat(" "))


def number_at(where: int, type_: RowType) -> Fraction | None:
    """Return the number at a place; None for times, infinity and what isn't a number."""
    if type_.is_time or (type_ == DOUBLE and abs(where) >= _INFINITE):
        return None
    return Fraction(constant_at(where, type_).text)


def text_at(where: int, type_: RowType) -> str:
    """Return the value at a place, as a text that DuckDB casts to the type."""
    if type_.is_time and where in ends(type_):
        return "infinity" if where > 0 else "-infinity"
    return constant_at(where, type_).text


def place_of_moment(moment: datetime, type_: RowType) -> int:
    """Return the place of a moment; of a DATE, of its day."""
    since = moment - _EPOCH
    return since.days if type_ == DATE else since // _SECOND


def moment_at(where: int, type_: RowType) -> datetime | None:
    """Return the moment of a place; None if it is far from the present."""
    try:
        return _EPOCH + (timedelta(days=where) if type_ == DATE else where * _SECOND)
    except OverflowError:
        return None


def _exact(constant: RowConstant, type_: RowType) -> Fraction | None:
    """Return what an exact number is compared with, if no digit of either is lost for it."""
    if constant.kind == "DOUBLE":  # both are compared as doubles
        value = Fraction(float(constant.text)) if constant.text[-1] not in "fn" else None
        known = value is not None and type_.is_integer and abs(value) < _EXACT
        return value if known else None
    _, _, after = constant.text.partition(".")
    value = Fraction(constant.text)
    return value if len(after) <= _DIGITS // 2 and abs(value) < 10**_DIGITS else None


def _place_of_double(constant: RowConstant) -> int | None:
    digits = constant.text.lstrip("-").replace(".", "").lstrip("0")
    if constant.kind != "DOUBLE" and len(digits) > _SHORT:
        return None  # DuckDB casts it to a DECIMAL first, and that to a double
    value = float(constant.text)
    if math.isnan(value):
        return _INFINITE + 1
    bits = _bits(abs(value))
    return -bits if value < 0 else bits


def _double_at(where: int) -> float:
    if where > _INFINITE:
        return math.nan
    size = float(struct.unpack(">d", struct.pack(">q", abs(where)))[0])
    return -size if where < 0 else size


def _bits(value: float) -> int:
    return int(struct.unpack(">q", struct.pack(">d", value))[0])


def _place_of_time(constant: RowConstant, type_: RowType) -> int | None:
    # A DATE that is compared with a TIMESTAMP is cast, and far ones have none.
    if constant.kind not in {"DATE", "TIMESTAMP"} or (constant.kind, type_) == ("TIMESTAMP", DATE):
        return None
    if constant.kind == "DATE":
        day = date.fromisoformat(constant.text)
        return place_of_moment(datetime(day.year, day.month, day.day), type_)
    return place_of_moment(datetime.fromisoformat(constant.text), type_)


# ── Calendar periods: in which of them an expression of a time can have one value only ───────────


_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_SPANS = {
    "minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}  # fmt: skip
_OF_PARTS = {
    **dict.fromkeys(("year", "decade", "century", "millennium", "era"), "year"),
    **dict.fromkeys(("isoyear", "yearweek", "week"), "week"),
    **dict.fromkeys(("day", "dayofyear", "dayofweek", "isodow"), "day"),
    "quarter": "quarter", "month": "month", "hour": "hour", "minute": "minute",
}  # fmt: skip
_CYCLES = {
    "month": ("month", "quarter", "monthname"),
    "dayofweek": ("dayofweek", "isodow", "dayname"),
    "hour": ("hour",), "minute": ("minute",), "second": ("second",), "day": ("day",),
}  # fmt: skip
"""A part that comes again and again, and what follows from it."""
_SHOWN = {
    **dict.fromkeys("Yy", "year"), **dict.fromkeys("mbB", "month"),
    **dict.fromkeys("djaAwuUWVG", "day"), **dict.fromkeys("HIp", "hour"), "M": "minute",
}  # fmt: skip
_CYCLES_SHOWN = {
    **dict.fromkeys("mbB", "month"), **dict.fromkeys("aAwu", "dayofweek"),
    **dict.fromkeys("HIp", "hour"), "d": "day", "M": "minute", "S": "second",
}  # fmt: skip
_FORMAT = re.compile(r"%-?(.)|[^%]", re.DOTALL)
_ORDER = ("year", "quarter", "month", "day", "hour", "minute")
"""Periods, of which each begins where the one before does, or within."""


def period_of(node: RowExpression, column: RowColumn) -> str:
    """Return the period within which a function of a time has one value.

    Returns:
        Its name; empty if the node is no such function of the column itself.
    """
    if isinstance(node, RowCast):
        return "day" if node.value == column and node.to == DATE else ""
    if not isinstance(node, RowCall) or node.arguments[-1:] != (column,):
        return _of_shown(node, column)
    if node.function == "dayname":
        return "day"
    if node.function == "monthname":
        return "month"
    if node.function in {"date_part", "date_trunc"}:
        return _OF_PARTS.get(_part(node), "")
    return ""


def cycle_of(node: RowExpression, column: RowColumn) -> str:
    """Return the part of a time that determines a function of it, and comes again and again.

    Returns:
        Its name; empty if there is none.
    """
    cycles = {_CYCLES_SHOWN.get(letter, "") for letter in _letters(node, column)}
    if cycles:
        return cycles.pop() if len(cycles) == 1 else ""
    if not isinstance(node, RowCall) or node.arguments[-1:] != (column,):
        return ""
    named = _part(node) if node.function == "date_part" else node.function
    return next((cycle for cycle, parts in _CYCLES.items() if named in parts), "")


def starts(period: str, low: datetime, high: datetime) -> Iterator[datetime]:
    """Yield the first moments of periods after a moment, and before another one."""
    midnight = low.replace(hour=0, minute=0, second=0, microsecond=0)
    if period in _MONTHS:
        month = midnight.year * 12 + (midnight.month - 1) // _MONTHS[period] * _MONTHS[period]
        while month // 12 < 10_000:
            found = datetime(month // 12, month % 12 + 1, 1)
            if found >= high:
                return
            if found > low:
                yield found
            month += _MONTHS[period]
        return
    if period == "week":
        midnight -= timedelta(days=midnight.weekday())
    while midnight < high:
        if midnight > low:
            yield midnight
        if midnight > datetime.max - _SPANS[period]:  # the calendar ends in this one
            return
        midnight += _SPANS[period]


def _part(node: RowCall) -> str:
    part = node.arguments[0]
    if not isinstance(part, RowConstant):
        return ""
    try:
        return word(part.text, parts=node.function == "date_part")
    except UnsupportedSqlError:
        return ""


def _of_shown(node: RowExpression, column: RowColumn) -> str:
    periods = {_SHOWN.get(letter, "") for letter in _letters(node, column)}
    return "" if "" in periods else max(periods, key=_ORDER.index, default="")


def _letters(node: RowExpression, column: RowColumn) -> set[str]:
    """Return what strftime shows of a column, by the letters of its format."""
    if not isinstance(node, RowCall) or node.function != "strftime" or node.arguments[0] != column:
        return set()
    shown = node.arguments[1]
    text = shown.text if isinstance(shown, RowConstant) else "%f"
    return {each[1] for each in _FORMAT.finditer(text) if each[1] and each[1] != "%"}


def only_cycle(node: RowExpression, column: RowColumn) -> str:
    """Return the part of a time through which alone an expression looks at it; empty if none."""
    cycles, pending = set[str](), [node]
    while pending:
        part = pending.pop()
        cycle = cycle_of(part, column)
        if cycle or part == column:
            cycles.add(cycle)
        else:
            pending += parts(part)
    return cycles.pop() if len(cycles) == 1 else ""
