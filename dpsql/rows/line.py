"""Axes of a column: cells on which all of several expressions of that column have one value each.

Two conditions on one column, `x < 10` and `x >= 50`, aren't independent: as attributes of their own
they would have joint cells that no row can be in. Instead the column is cut where one of them
changes, and which interval a row's value lies in is the key; each of them is a function of it. So
what was measured along fewer cuts is a sum of what is measured along more, see
`schema/cuts.py`. In the same way the quarter follows from the month.

The cuts are found from expressions and types alone (`cuts.py`), and never from rows. A row is in
one interval, by its own value: the key is an expression like any other, see `key.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpsql.rows.expression import (
    NOTHING,
    RowCall,
    RowCase,
    RowColumn,
    RowConstant,
    RowExpression,
    canonical,
    columns,
)
from dpsql.rows.key import Presence, RowKey, described, listed, row_key
from dpsql.rows.operands import cast
from dpsql.rows.places import constant_at, ends, text_at
from dpsql.rows.spelled import spelled
from dpsql.rows.typed import RowValue
from dpsql.rows.types import BIGINT, DATE, DOUBLE, RowType, row_type
from dpsql.rows.write import RowWriter
from dpsql.schema.cuts import cut_at
from dpsql.schema.domain import Domain
from dpsql.schema.names import quoted_name

MOST_INTERVALS = 500
_SHOWN = 4
"""Cuts that a label lists."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A key, and what a column holds in each of its cells.

    Args:
        key: the key.
        cells: for each cell, in their order, some of the values, as texts; None is NULL.
    """

    key: RowKey
    cells: tuple[tuple[str | None, ...], ...]


def line_name(column: str, declared: str) -> str:
    """Return the name of a column's line, wherever it is cut."""
    return f"line of {quoted_name(column)} {declared}"


def line(column: str, declared: str, cuts: Sequence[int], *, nullable: bool) -> Axis:
    """Cut a column into intervals, each from one cut on and up to the next.

    Args:
        column: its name.
        declared: its type, which has places.
        cuts: places, in ascending order.
        nullable: whether it can be NULL, which has a cell of its own.
    """
    type_, own = row_type(declared), RowColumn(column)
    domain, value = _numbered(own, {column: declared}, type_, cuts, nullable=nullable)
    shown = [_spelled(cut, type_) for cut in cuts[:_SHOWN]]
    more = f", … {len(cuts) - _SHOWN} more" if len(cuts) > _SHOWN else ""
    label = f"{spelled(own)} cut at {', '.join(shown)}{more}" if cuts else f"{spelled(own)} IS NULL"
    name = line_name(column, declared)
    _, most = ends(type_)
    # The last place of doubles is NaN's. Where it isn't cut off, there are numbers in its cell.
    numbers = len(cuts) + 1 if type_ != DOUBLE else len(cuts) if most in cuts else 0
    told = Presence(canonical(own), frozenset(range(numbers))) if numbers else None
    key = RowKey(
        name, domain, value, BIGINT, frozenset({column}), label, cut_at(cuts), presence=told
    )
    return Axis(key, _ends_of_cells(type_, cuts, nullable=nullable))


def steps(
    expression: RowExpression, types: Mapping[str, str], type_: RowType, cuts: Sequence[int]
) -> Axis:
    """Cut the values of any expression of a row into intervals; NULL has a cell of its own.

    Which interval its value lies in is an expression again, so the proof of `rows.key` holds.

    Args:
        expression: the expression.
        types: the columns' types.
        type_: its own type, which has places.
        cuts: places, in ascending order.

    Raises:
        UnsupportedSqlError: the expression can't be written.
    """
    domain, value = _numbered(expression, types, type_, cuts, nullable=True)
    places = [constant_at(cut, type_).text for cut in cuts]
    name = f"{described(expression, types)} cut at {listed(places)}"
    key = RowKey(name, domain, value, BIGINT, columns(expression), spelled(expression))
    return Axis(key, _ends_of_cells(type_, cuts, nullable=True))


def _numbered(
    of: RowExpression,
    types: Mapping[str, str],
    type_: RowType,
    cuts: Sequence[int],
    *,
    nullable: bool,
) -> tuple[Domain, RowValue]:
    """Give intervals their numbers, and write in which of them a value lies."""
    numbered = _halved(of, [constant_at(cut, type_) for cut in cuts], 0)
    if nullable:
        numbered = RowCase(((RowCall("is_null", (of,)), NOTHING),), numbered)
    domain = Domain.integers(0, len(cuts), nullable=nullable)
    return domain, cast(RowWriter(types).write(numbered), row_type(domain.type))


def _ends_of_cells(
    type_: RowType, cuts: Sequence[int], *, nullable: bool
) -> tuple[tuple[str | None, ...], ...]:
    """Return the least and the largest value of each interval, as texts."""
    least, most = ends(type_)
    firsts, lasts = [least, *cuts], [*(cut - 1 for cut in cuts), most]
    cells: list[tuple[str | None, ...]] = [
        tuple(dict.fromkeys((text_at(low, type_), text_at(high, type_))))
        for low, high in zip(firsts, lasts, strict=True)
    ]
    return (*cells, (None,)) if nullable else tuple(cells)


def cycle(column: str, types: Mapping[str, str], part: str, filled: frozenset[str]) -> Axis | None:
    """Return the axis of a part of a time that comes again and again; None if it can't be one."""
    shown = RowCall("date_part", (RowConstant("VARCHAR", part), RowColumn(column)))
    type_ = row_type(types[column])
    key = row_key(shown, types, filled)
    if key is None or not key.domain.nullable or (type_ == DATE and part not in _OF_DATES):
        return None
    values = key.domain.values
    if not isinstance(values, range):
        return None
    length = len("2000-01-01") if type_ == DATE else None
    cells = [
        tuple(text.format(value + more)[:length] for text, more in _MOMENTS[part])
        for value in values
    ]
    return Axis(key, (*cells, (None, "infinity", "-infinity")))


_OF_DATES = frozenset({"month", "day", "dayofweek"})
_MOMENTS = {
    "month": (("2000-{:02}-01 00:00:00", 0), ("2001-{:02}-28 23:59:59", 0)),
    "day": (("2000-01-{:02} 00:00:00", 0), ("2001-12-{:02} 23:59:59", 0)),
    # 2 January 2000 was a Sunday, and so was 1 April 2001.
    "dayofweek": (("2000-01-{:02} 00:00:00", 2), ("2001-04-{:02} 23:59:59", 1)),
    "hour": (("2000-01-01 {:02}:00:00", 0), ("2001-12-31 {:02}:59:59.999999", 0)),
    "minute": (("2000-01-01 00:{:02}:00", 0), ("2001-12-31 23:{:02}:59.999999", 0)),
    "second": (("2000-01-01 00:00:{:02}", 0), ("2001-12-31 23:59:{:02}.999999", 0)),
}  # fmt: skip
"""Moments of which a part has a value, and what is added to the value first."""


def _halved(own: RowExpression, cuts: Sequence[RowConstant], first: int) -> RowExpression:
    """Write the number of the interval, found by halving, of which the first is `first`."""
    if not cuts:
        return RowConstant("INTEGER", str(first))
    middle = len(cuts) // 2
    below = _halved(own, cuts[:middle], first)
    rest = _halved(own, cuts[middle + 1 :], first + middle + 1)
    return RowCase(((RowCall("<", (own, cuts[middle])), below),), rest)


def _spelled(cut: int, type_: RowType) -> str:
    """Say where a cut is: before a value, or after the one before, if that is shorter."""
    here, before = (spelled(constant_at(place, type_)) for place in (cut, cut - 1))
    return f"after {before}" if len(before) < len(here) else here
