"""The codes of cells: a tree for each kind of domain, which engines write as their SQL. Trusted.

The SQL of a value is put where a tree says `value`. Two trees say of it whether it has a cell
(`placed`), and bring it into the range of the domain (`bounded`); the third says of what was
brought there, `within`, which code it has. Besides what `rows/typed.py` has, operations are

- `value`, `within`: see above;
- `there`: whether a value is not NULL; `number`: nor NaN, of a double;
- `inside`: the first operand, brought between two constants. NULL comes to the lower one, and NaN,
  the largest of doubles, to the upper one;
- `shown`: what the clock of a zone shows at an instant, or the same time in microseconds; NULL of
  NULL. What is beyond the years 100,000 before and after may be any time that is as far;
- `as`: the same value of another type, which has it; of a time its day;
- `plain`: the operator or function of this name, of numbers that are neither NULL nor NaN, none of
  which is infinite. Nothing overflows, and divisors are positive constants; `//` is of whole
  numbers that aren't negative;
- `digits`: a number of an exact type, between the ends of `digits`, in last digits;
- `months`: the months from the year 0 to that of a day; `since`: the days, or the microseconds,
  from the second operand to the first;
- `cell`: a small number; `place`: the place of a value in the list of the domain, from 1, or NULL.

Guarantees:
    The code of a value is a function of it alone, and what is computed for it is total: each
    operation is on what is said here.

    *Proof.* `plain`, `digits`, `months` and `since` are in `code` alone, so they are of what
    `bounded` made: of each value, whatever it is, something between two constants. (Engines that
    group by what is `stored` write `code` of that, in a type of integers that has all that is made
    of it.) Days and months between the years 1 and 9999 are small, and so are their microseconds.
    Steps of doubles are bounded once more before they are made a BIGINT. Codes of bins are found
    by comparisons, and places in lists by looking for them. Nothing else is of a row. ∎

Texts are compared as bytes, so no collation merges two of them. -0.0 is equal to 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.rows.typed import RowValue, bytes_of, constant_of, double_of, number_of, value_of
from dpsql.rows.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    TIMESTAMP,
    VARCHAR,
    RowType,
    row_type,
)
from dpsql.schema import Domain
from dpsql.schema.domain import TIMES, ZONED
from dpsql.schema.sequences import (
    CLOCK,
    FLOATS,
    INSTANT,
    MONTHS,
    DateRange,
    DecimalRange,
    TimeRange,
)

FEW_RUNS = 32
"""Runs of one class whose ends are compared with; classes of more are looked up in a list."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Codes:
    """The trees of a domain, NULL left aside.

    Args:
        placed: whether a `value` has a cell; not true of NULL.
        bounded: it, brought into the range; never NULL where it is placed.
        code: the code of what is `bounded`, if the value is placed.
        stored: a value of which `code` is right, too, where it is placed; of a domain of which
            there are hardly more than codes. None if there may be.
    """

    placed: RowValue
    bounded: RowValue
    code: RowValue
    stored: RowValue | None = None


def codes_of(domain: Domain, room: RowType) -> Codes:
    """Return the codes of a domain.

    Args:
        domain: the cells.
        room: a type of integers that has all that `plain` makes of those of a column, and all of
            these if they are looked for in a list.

    Raises:
        InternalError: it isn't known where a clock hangs.
    """
    values = domain.values
    if isinstance(values, range):
        return _integers(domain, values, room)
    if isinstance(values, DateRange):
        return _periods(domain, values)
    if isinstance(values, TimeRange):
        return _hours(domain, values)
    if isinstance(values, DecimalRange):
        doubles = domain.column_type in FLOATS
        return _float_grid(domain, values) if doubles else _grid(domain, values, room)
    if domain.type == DOUBLE.name:
        return _bins(domain)
    if domain.type == BOOLEAN.name:
        value = value_of(BOOLEAN)
        return Codes(_there(value), value, _within(BOOLEAN), value)
    return _listed(domain, room)


def _within(type_: RowType) -> RowValue:
    return RowValue("within", (), type_)


def _there(value: RowValue) -> RowValue:
    return RowValue("there", (value,), BOOLEAN)


def _as(value: RowValue, type_: RowType) -> RowValue:
    return RowValue("as", (value,), type_)


def _plain(name: str, *parts: RowValue) -> RowValue:
    return RowValue("plain", parts, parts[0].type, name)


def _inside(value: RowValue, low: RowValue, high: RowValue) -> RowValue:
    return RowValue("inside", (value, low, high), value.type)


def _placed(domain: Domain, value: RowValue, low: RowValue, high: RowValue) -> RowValue:
    if domain.outside != "clamp":
        return RowValue("between", (value, low, high), BOOLEAN)
    return RowValue("number", (value,), BOOLEAN) if value.type == DOUBLE else _there(value)


def _integers(domain: Domain, values: range, room: RowType) -> Codes:
    type_ = RowType(domain.type)
    value, ends = value_of(type_), [number_of(v, type_) for v in (values.start, values.stop - 1)]
    code = _plain("-", _as(_within(type_), room), number_of(values.start, room))
    bounded = _inside(value, *ends)
    stored = bounded if domain.outside == "clamp" else value
    return Codes(_placed(domain, value, *ends), bounded, code, stored)


def _grid(domain: Domain, values: DecimalRange, room: RowType) -> Codes:
    """Decimals in a DECIMAL or integer column, in exact integers of the column's last digit.

    With v = value − low and the step d, ⌊v/d + 1/2⌋ = ⌊(v + ⌊d/2⌋) / d⌋: for an odd d the
    middle between two values is not an integer, so nothing lies between the two.
    """
    type_ = row_type(domain.column_type)
    low, high, step = values.scaled(type_.scale)
    value, ends = value_of(type_), [constant_of(f"{v:f}", type_) for v in (values[0], values[-1])]
    digits = RowValue("digits", (_within(type_),), room, digits=(low, high))
    above = _plain("-", digits, number_of(low, room))
    code = _plain("//", _plain("+", above, number_of(step // 2, room)), number_of(step, room))
    bounded = _inside(value, *ends)
    stored = bounded if domain.outside == "clamp" else value
    return Codes(_placed(domain, value, *ends), bounded, code, stored)


def _float_grid(domain: Domain, values: DecimalRange) -> Codes:
    """Decimals in a DOUBLE or FLOAT column, in doubles.

    The ends are rounded as the column's values are, so that 0.7 is inside 0.7..0.9.
    """
    first, last = float(values[0]), float(values[-1])
    if domain.column_type == "FLOAT":
        ends = [double_of(float(np.float32(end))) for end in (first, last)]
    else:
        ends = [double_of(end) for end in (first, last)]
    step = double_of(float(Fraction(values.step, 10**values.scale)))
    value = _as(value_of(DOUBLE), DOUBLE)
    steps = _plain("/", _plain("-", _within(DOUBLE), double_of(first)), step)
    nearest = _plain("floor", _plain("+", steps, double_of(0.5)))
    code = _as(_inside(nearest, double_of(0), double_of(len(values) - 1)), BIGINT)
    return Codes(_placed(domain, value, *ends), _inside(value, *ends), code)


def _periods(domain: Domain, values: DateRange) -> Codes:
    """Calendar periods of a DATE or TIMESTAMP column."""
    day, ends = _day(domain), [_date(end) for end in (values.first, values.end)]
    if values.grain in MONTHS:
        months = RowValue("months", (_within(DATE),), BIGINT)
        since = _plain("-", months, number_of(values.first.year * 12 + values.first.month))
        length = MONTHS[values.grain]
    else:
        since = RowValue("since", (_within(DATE), ends[0]), BIGINT)
        length = 7 if values.grain == "week" else 1
    code = _plain("//", since, number_of(length))
    return Codes(_placed(domain, day, *ends), _inside(day, *ends), code)


def _hours(domain: Domain, values: TimeRange) -> Codes:
    """Hours or minutes of a TIMESTAMP column, counted in microseconds."""
    shown = _shown(domain)
    ends = [constant_of(end.isoformat(" "), TIMESTAMP) for end in (values.first, values.end)]
    since = RowValue("since", (_within(TIMESTAMP), ends[0]), BIGINT)
    code = _plain("//", since, number_of(CLOCK[values.grain] // INSTANT))
    return Codes(_placed(domain, shown, *ends), _inside(shown, *ends), code)


def _shown(domain: Domain) -> RowValue:
    """Return what the clock shows: of an instant, that in the declared zone."""
    if domain.zone is not None:
        return RowValue("shown", (value_of(TIMESTAMP),), TIMESTAMP, domain.zone)
    if domain.column_type == ZONED:
        raise InternalError("an instant without a zone")
    type_ = RowType(domain.column_type or TIMESTAMP.name)
    return RowValue("shown", (value_of(type_),), TIMESTAMP)


def _day(domain: Domain) -> RowValue:
    return _as(_shown(domain), DATE) if domain.column_type in TIMES else value_of(DATE)


def _date(day: date) -> RowValue:
    return constant_of(day.isoformat(), DATE)


def _bins(domain: Domain) -> Codes:
    """Bins of doubles: the code is found by halving, in one expression."""
    if domain.uppers is None:
        raise InternalError("bins without upper ends")
    value, within = _as(value_of(DOUBLE), DOUBLE), _within(DOUBLE)
    edges, last = _doubles(domain.values), _doubles(domain.uppers[-1:])[0]

    def one_of(edge: RowValue, below: RowValue, above: RowValue) -> RowValue:
        under = RowValue("compare", (within, edge), BOOLEAN, "<")
        return RowValue("case", (under, below, above), BIGINT)

    code = halved(edges, [_cell(place) for place in range(len(edges))], one_of)
    return Codes(_placed(domain, value, edges[0], last), value, code)


def _doubles(values: Sequence[Any]) -> list[RowValue]:
    return [double_of(value) for value in values]


def halved(ends: Sequence[T], codes: Sequence[T], one_of: Callable[[T, T, T], T]) -> T:
    """Return a search for the last of some ends that is not above a value, or for the first.

    Args:
        ends: in order.
        codes: what is found at each of them.
        one_of: makes of an end what is found below it and what is found from there on: either.
    """
    if len(ends) == 1:
        return codes[0]
    middle = len(ends) // 2
    below = halved(ends[:middle], codes[:middle], one_of)
    return one_of(ends[middle], below, halved(ends[middle:], codes[middle:], one_of))


def _listed(domain: Domain, room: RowType) -> Codes:
    """Strings, integers or dates in a list: NULL is no place in it."""
    values = domain.values
    if domain.type == DATE.name:
        value = compared = _day(domain)
    elif domain.type in {VARCHAR.name, "ENUM"}:
        value = value_of(VARCHAR)
        compared = bytes_of(value)
    else:
        value = value_of(RowType(domain.type))
        compared = _as(value, room)
    place = RowValue("place", (compared,), BIGINT)
    code = _plain("-", _within(BIGINT), _cell(1))
    if domain.other is not None:  # every text has a cell, so the condition names no list
        rest = _cell(list(values).index(domain.other) + 1)
        place = RowValue("coalesce", (place, rest), BIGINT)
        return Codes(_there(value), place, code, place)
    if domain.outside == "clamp":
        under, over = (
            RowValue("compare", (value, constant_of(str(end), value.type)), BOOLEAN, sign)
            for end, sign in ((values[0], "<"), (values[-1], ">"))
        )
        place = RowValue("case", (under, _cell(1), over, _cell(len(values)), place), BIGINT)
    return Codes(_there(place), place, code, place)


def _cell(number: int) -> RowValue:
    return RowValue("cell", (), BIGINT, str(number))


def runs_of(classes: NDArray[np.int64]) -> list[tuple[int, int]] | None:
    """Return the runs of cells that are of one class: the last cell of each, and the class.

    Returns:
        None if there are many.
    """
    ends = np.append(np.flatnonzero(np.diff(classes)), len(classes) - 1)
    if len(ends) > FEW_RUNS:
        return None
    return list(zip(ends.tolist(), classes[ends].tolist(), strict=True))
