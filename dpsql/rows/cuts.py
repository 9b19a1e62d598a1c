"""The places where expressions of one ordered column change: a few values, none in between.

Guarantees:
    If `cuts_of` returns a set of places, the expression has one value for all values of the
    column between two of them that follow each other, and one for NULL. If it is asked within
    some range, it says so of the values in that range only, whose ends are among the places.

    *Proof.* By induction over the tree. A comparison of the column with a constant is true below
    a place and false from there on, or the other way around (`places.py`); IN and BETWEEN are made
    of such. A function of the calendar has one value in a period, and all periods that begin in
    the range are cut; the column itself has one at each place. Anything else is a function of its
    operands, as all functions of the list are deterministic: where these have one value each, it
    has one. Of CASE a result is taken only where its condition is true, so it is looked at in that
    range only; and what a function gives of a CASE is what it gives of the result that is taken. ∎
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
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
from dpsql.rows.periods import period_of, starts
from dpsql.rows.places import above, ends, moment_at, place, place_of_moment
from dpsql.rows.times import meant
from dpsql.rows.types import DATE, DOUBLE, TIMESTAMP, RowType

MOST_PLACES = 400
"""At which one expression changes."""
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
        found = self._of(node, within)
        if found is None or len(found) > MOST_PLACES:
            return None
        least, most = ends(self._type)
        cuts = frozenset(cut for cut in found.union(within) if least < cut <= most)
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
            found = [self.extent(part) for part in condition.arguments]
            lows, highs = zip(*found, strict=True)
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
        own = node.arguments == (self._column,)
        return frozenset() if own else self._of_parts(node, within)

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
        found = [self._of(node.otherwise, within)]
        for condition, result in node.cases:
            low, high = self.extent(condition)
            found.append(self._of(condition, within))
            found.append(self._of(result, (max(low, within[0]), min(high, within[1]))))
        return _union(found)

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
        found = list(islice(starts(period, low, high), MOST_PLACES + 1))
        if len(found) > MOST_PLACES:
            return None
        return frozenset(place_of_moment(moment, self._type) for moment in found)


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


def _union(found: Iterable[Places | None]) -> Places | None:
    all_: set[int] = set()
    for cuts in found:
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
