"""Values of a row from other rows of its unit: aggregates of these, its place, running totals.

    (SELECT COUNT(*) FROM orders o WHERE o.customer_id = c.id AND o.price > 7)

is a column of a customer, an aggregate. It is computed of the rows of one unit: of those orders
that refer to the customer and are the customer's own.

    row_number() OVER (PARTITION BY customer_id ORDER BY day)

is a column of an order, by a window: which of the customer's orders it is. It is computed of all
rows of the unit that a statement looks at, whether or not they are among those that count.

Guarantees:
    An aggregate of a row is a function of the rows of its unit, whatever order they are read in, in
    how many pieces, and whatever rows there are of other units. It never fails.

    *Proof.* `engines/relations.py` puts rows of one unit into a group, and no others; a row
    meets the group of its own unit. Where a condition is on the row as well, each row has a group
    of its own: of the rows of its unit for which it is true. What is computed of a group is one of
    the functions below, each of which is a function of the multiset of what it is given: how many
    there are, or how many that differ; their sum, as exact integers or decimals, and what that is
    divided by how many; whether all are true, or one; the least or the largest of values of which
    equal ones are the same, texts by their bytes, labels as their ENUM has them, and of doubles one
    zero for two, and one NaN. Not among them are
    those that look at an order which SQL leaves open (FIRST, ANY_VALUE, MODE, ARG_MIN, STRING_AGG),
    or that round as they go (SUM and AVG of DOUBLE): of these, rows of other units decide, by how a
    scan is cut into pieces. In their place, whole numbers of steps are added up, see below.

    What they are given, and the condition on rows, are total functions of one row, or of that and
    the one that it is for (`write.py`). A sum can't overflow: of integers of at most 64 bits and of
    decimals of at most 18 digits, fewer than 2^63 rows add up to less than 2^127, and to less than
    10^38. ∎

    So adding or removing a unit changes no other unit's rows, and what it adds to a marginal is as
    many rows as without the column: their number is bounded before (`engines/duckdb/bounded.py`).

Guarantees of windows:
    Of each unit, the rows with such columns are, as a multiset, a function of the unit's rows,
    whatever order they are read in, in how many pieces, and whatever rows there are of other units.
    Computing them never fails.

    *Proof.* (`engines/relations.py` writes what is said here of the engine.) PARTITION BY
    always begins with the unit's id, whatever the statement says: a row is looked at beside rows of
    its own unit alone. What is ordered by, what the rows are parted by, the condition and the
    arguments are total functions of one row (`write.py`). There are two kinds of windows.

    (i) Those that are not `lined`: rank, dense_rank, percent_rank, cume_dist; and the aggregates of
    above over a frame whose ends are those of the partition, or all rows that are equal to
    the row in what is ordered by. Such a frame is a set of rows that is told by values alone, and
    the function is one of the multiset of these; ranks are numbers of rows that are less, or of
    values that are. So two rows that agree in their values have the same one.

    (ii) Those that are `lined`: row_number, ntile, lag, lead, first_value, last_value, nth_value,
    and aggregates over a number of rows before and after. Their ORDER BY ends in the places of the
    rows in the unit's line, a numbering 1, …, n by all that tells rows apart. So the order is
    strict, and each is a function of the rows with their places. The line itself is not: of rows
    that are alike in all that is read it is left open which comes first. But let p and p' be two
    such numberings. The permutation that takes p to p' moves rows only among such as are alike. So
    it takes the rows with places p to the rows with places p', and all that is computed of one,
    windows that are computed of windows included, to the same computed of the other: the multiset
    of the rows with all their columns is the same.

    Numbers of rows before and after are constants, so no end of a frame is computed that could
    overflow; frames by values (RANGE with a distance) are not written. Sums can't overflow, as
    above. ∎

    Which rows are kept where at most k of a unit count follows from their places in the same line
    (`engines/duckdb/bounded.py`), so it is the same k rows, whatever is computed of them, and what
    is kept is a function of the unit's rows, too.

Guarantees of sums of doubles:
    What SQL sees of `(SELECT SUM(price) FROM orders o WHERE o.customer_id = c.id)`, where `price`
    is a DOUBLE between 0 and 1,000, is a function of the multiset of the rows that are added up.

    *Proof.* A sum of doubles is rounded at each addition, so it depends on the order in which rows
    are read, and that on rows of other units. A sum of integers doesn't. So what a row adds is
    x·10^s, rounded to the nearest integer, and SQL sees the sum over 10^s, as a DOUBLE. x is a
    total function of one row, a DOUBLE that is brought between two constants, or NULL where it is
    NaN or NULL (`write.py`). So is x·10^s: 10^|s| is a double, as |s| ≤ 22, and a product or a
    quotient of two doubles is the double that IEEE 754 says. It is at most 10^13 in magnitude, so
    the BIGINT nearest to it is there, of two the even one. The sum of such is exact in HUGEINT, by
    the first proof above; a mean is that over how many there are. What is made of either is one
    double of one exact number. ∎

    Nobody's privacy rests on how near that is to what was stored. It is near: as 2^-52·10^13 is
    less than 1/2, a number with at most s digits after its point adds all of its digits, and a sum
    of such is the double nearest to it, up to 2^53 steps. Any other is rounded by at most 5·10^-13
    of the largest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import InternalError, UnsupportedSqlError
from dpsql.rows.expression import (
    NOTHING,
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
)
from dpsql.rows.expression import columns as columns_of
from dpsql.rows.known import Interval
from dpsql.rows.operands import cast
from dpsql.rows.typed import RowAggregate, RowValue, as_stored, bytes_of
from dpsql.rows.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    HUGEINT,
    MOST_DIGITS,
    VARCHAR,
    RowType,
    decimal,
    is_enum,
)
from dpsql.rows.write import RowWriter
from dpsql.schema.names import capitals

AGGREGATES = (
    "exists", "count", "count_distinct", "sum", "avg", "min", "max", "bool_and", "bool_or",
)  # fmt: skip
"""Aggregates of rows of a unit."""
MOST_ADDED = 18
"""Digits of the decimals that are added up."""
_TRUE, _FALSE = RowConstant("BOOLEAN", "true"), RowConstant("BOOLEAN", "false")


def aggregated(function: str, argument: RowExpression | None, writer: RowWriter) -> RowAggregate:
    """Type an aggregate of rows.

    Args:
        function: one of `AGGREGATES`.
        argument: what of each row; without that, the rows are counted.
        writer: types that.

    Raises:
        UnsupportedSqlError: it can't be written, or would not be exact.
    """
    if function not in AGGREGATES:
        raise InternalError("this is no function of rows in whatever order")
    if function == "exists":
        return RowAggregate(function, BOOLEAN)
    if argument is None:
        return RowAggregate("count", BIGINT)
    written = writer.write(argument)
    if function in {"count", "count_distinct"}:
        told = _in_order(argument, written, writer) if function == "count_distinct" else None
        return RowAggregate(function, BIGINT, (written,), told)
    if function in {"sum", "avg"}:
        added = _added(function, written.type)
        return RowAggregate(
            function, added if function == "sum" else DOUBLE, (written,), added=added
        )
    type_, told = written.type, None
    if function in {"bool_and", "bool_or"}:
        if type_ != BOOLEAN:
            raise _unsupported(capitals(function), type_)
    elif type_ == VARCHAR:  # the text itself, of that which comes first or last
        told = _in_order(argument, written, writer)
    elif type_.is_float:
        written = writer.write(_canonical(argument, type_))
    elif not type_.is_exact and not type_.is_time:
        raise _unsupported(capitals(function), type_)
    return RowAggregate(function, type_, (written,), told)


def _canonical(value: RowExpression, type_: RowType) -> RowExpression:
    """Return a number of which equal ones are the same: one zero, and one NaN, the largest."""
    nan, zero = (RowCast(RowConstant("DOUBLE", text), type_) for text in ("nan", "0.0"))
    cases = ((RowCall("isnan", (value,)), nan), (RowCall("=", (value, zero)), zero))
    return RowCase(cases, value)


def _added(function: str, type_: RowType) -> RowType:
    """Return the type of a sum that can't overflow."""
    small = type_.is_integer and type_ != HUGEINT and type_.name != "UHUGEINT"
    if not small and not (type_.name == "DECIMAL" and type_.width <= MOST_ADDED):
        raise _unsupported(capitals(function), type_)
    return HUGEINT if small else decimal(MOST_DIGITS, type_.scale)


def _in_order(value: RowExpression, written: RowValue, writer: RowWriter) -> RowValue:
    """Return what values are told apart and sorted by: bytes, or an ENUM as it is stored."""
    if isinstance(value, RowColumn) and is_enum(writer.types[value.name]):
        return as_stored(value.name)
    return bytes_of(written)


def _unsupported(function: str, type_: RowType) -> UnsupportedSqlError:
    why, hint = "it takes numbers, dates and times", "ask for a value with EXISTS (… AND x = 'a')."
    if function.startswith("BOOL"):
        why, hint = "it takes a condition", "write one, for example BOOL_OR(x > 3)."
    elif type_.is_number:
        hint = "use whole numbers or decimals, for example CAST(x AS DECIMAL(18, 2))."
        why = "it could be too large"
        if not type_.is_exact:
            why = "it would depend on the order in which rows are read"
    return UnsupportedSqlError(
        f"{function} of {type_.sql} within a unit is not supported: {why}.", hint=hint
    )


RANKS = ("row_number", "rank", "dense_rank", "ntile")
"""Numbers from 1."""
SHARES = ("percent_rank", "cume_dist")
SHIFTED = ("lag", "lead")
CHOSEN = ("first_value", "last_value", "nth_value")
WINDOWED = (*RANKS, *SHARES, *SHIFTED, *CHOSEN, *(name for name in AGGREGATES if name != "exists"))
"""Functions of a row among others."""
MOST_AWAY = 1_000_000
"""The largest distance of a row that is looked at."""
_BY_VALUES = ("rank", "dense_rank", *SHARES)
_TRUE = RowConstant("BOOLEAN", "true")


@dataclass(frozen=True, slots=True)
class WindowOrder:
    """An expression that rows are sorted by."""

    value: RowExpression
    descending: bool
    nulls_first: bool
    stored: bool = False
    """Whether it is a column as it is stored: values of an ENUM have an order of their own."""


@dataclass(frozen=True, slots=True)
class WindowFrame:
    """The rows that are looked at, from the first to the last: places relative to the row itself.

    Args:
        rows: whether single rows are meant; else 0 stands for all that are equal to it in what is
            ordered by, and there is no other number.
        start: the first: so many rows after the row, or before it if negative; None for no limit.
        end: the last, likewise.
    """

    rows: bool
    start: int | None
    end: int | None

    def __post_init__(self) -> None:
        ends = [end for end in (self.start, self.end) if end is not None]
        if any(abs(end) > (MOST_AWAY if self.rows else 0) for end in ends):
            raise InternalError("a frame ends where none may")

    @property
    def is_whole(self) -> bool:
        """Whether all rows are in it."""
        return self.start is None and self.end is None

    @property
    def sql(self) -> str:
        """Write it."""
        kind = "ROWS" if self.rows else "RANGE"
        return f"{kind} BETWEEN {_edge(self.start, 'PRECEDING')} AND {_edge(self.end, 'FOLLOWING')}"


def _edge(rows: int | None, side: str) -> str:
    if rows is None:
        return f"UNBOUNDED {side}"
    if rows == 0:
        return "CURRENT ROW"
    return f"{abs(rows)} {'FOLLOWING' if rows > 0 else 'PRECEDING'}"


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A call of a window function for a row among others, over expressions of a row.

    Args:
        function: one of `WINDOWED`.
        arguments: what it is computed of.
        numbers: constants that it takes: how far away, how many parts, or which row.
        partition: what is the same in rows that are looked at together.
        told: columns that are the same, too, as they are stored, with their types.
        order: what these are sorted by.
        frame: which of them are looked at; None if the function looks at all of them.
        holds: what is true of rows that are looked at; None if all are.
    """

    function: str
    arguments: tuple[RowExpression, ...] = ()
    numbers: tuple[int, ...] = ()
    partition: tuple[RowExpression, ...] = ()
    told: tuple[tuple[str, str], ...] = ()
    order: tuple[WindowOrder, ...] = ()
    frame: WindowFrame | None = None
    holds: RowExpression | None = None

    def __post_init__(self) -> None:
        """Leave no frame to what SQL takes for one: up to the rows that are equal in order."""
        unframed = self.frame is None and bool(self.order) and self.function in AGGREGATES
        if unframed or (self.function in CHOSEN and (self.frame is None or not self.frame.rows)):
            raise InternalError("nothing says which rows a window looks at")

    @property
    def lined(self) -> bool:
        """Whether rows that are alike in what is ordered by are looked at one by one."""
        if self.function in AGGREGATES:
            return self.frame is not None and self.frame.rows and not self.frame.is_whole
        return self.function not in _BY_VALUES

    @property
    def read(self) -> frozenset[str]:
        """The columns that are read."""
        parts = [*self.arguments, *self.partition, *(one.value for one in self.order)]
        parts += [] if self.holds is None else [self.holds]
        return frozenset(name for name, _ in self.told).union(*map(columns_of, parts))


@dataclass(frozen=True, slots=True)
class SortedBy:
    """A value that rows are sorted by, once types are known: texts by their bytes."""

    value: RowValue
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class RowsWindow:
    """A column that is computed of a row among others of its unit; see `schema/windows.py`."""

    name: str
    asked: WindowCall
    type: str
    filled: bool
    value: RowAggregate
    condition: RowValue | None
    told: tuple[tuple[str, str], ...]
    partition: tuple[RowValue, ...]
    order: tuple[SortedBy, ...]
    lined: bool
    frame: WindowFrame | None
    columns: frozenset[str]


def rows_window(name: str, asked: WindowCall, types: Mapping[str, str]) -> RowsWindow:
    """Make a column that is computed of a row among others of its unit.

    Args:
        name: what it is, in full.
        asked: what is computed.
        types: the types of the columns.

    Raises:
        UnsupportedSqlError: it can't be written, or would not be exact.
    """
    writer = RowWriter(types)
    value, least = _value(asked, writer)
    condition = None
    if asked.holds is not None:
        condition = writer.write(RowCase(((asked.holds, _TRUE),), NOTHING))
    return RowsWindow(
        name,
        asked,
        value.type.sql,
        least is not None or (asked.function in SHARES and condition is None),
        value,
        condition,
        asked.told,
        tuple(_parted(asked.partition, writer)),
        tuple(_sorted(one, writer) for one in asked.order),
        asked.lined,
        asked.frame,
        asked.read,
    )


def of_rows(function: str, value: Interval, most: int | None) -> Interval:
    """Say between which numbers something lies that is computed of rows of a unit.

    A unit may have more rows than count, and values beyond their bounds: so nobody's privacy rests
    on it, and a measure is brought between its own bounds in any case.

    Args:
        function: one of `WINDOWED`, or "exists".
        value: between what it is for each row.
        most: how many rows of a unit count; None if nobody says so.
    """
    if function in {"count", "count_distinct", *RANKS}:
        return Fraction(0), None if most is None else Fraction(most)
    if function == "sum":
        low, high = value
        low = low if low is None or low >= 0 else None if most is None else low * most
        high = high if high is None or high <= 0 else None if most is None else high * most
        return low, high
    return (Fraction(0), Fraction(1)) if function in SHARES else value


def _value(asked: WindowCall, writer: RowWriter) -> tuple[RowAggregate, int | None]:
    """Return what is computed of the rows of a window, and its least number."""
    function, numbers = asked.function, asked.numbers
    if function in AGGREGATES and function != "exists":
        made = aggregated(function, next(iter(asked.arguments), None), writer)
        return made, 0 if made.filled else None
    if function in RANKS:
        return RowAggregate(function, BIGINT, numbers=numbers, of_none=1), 1
    if function in SHARES:
        return RowAggregate(function, DOUBLE), None
    if function not in WINDOWED:
        raise InternalError("this is no function of a row among others")
    first, *others = (writer.write(argument) for argument in asked.arguments)
    given = (first, *(cast(other, first.type) for other in others))
    return RowAggregate(function, first.type, given, numbers=numbers), None


def _parted(partition: Sequence[RowExpression], writer: RowWriter) -> list[RowValue]:
    """Return what rows that are looked at together have in common."""
    written = [writer.write(one) for one in partition]
    for one in written:
        if one.type.is_float:
            raise UnsupportedSqlError(
                f"PARTITION BY {one.type.sql} is not supported for rows of a unit.",
                hint="use a whole number or a decimal, for example CAST(x AS DECIMAL(18, 2)).",
            )
    return [bytes_of(one) for one in written]


def _sorted(one: WindowOrder, writer: RowWriter) -> SortedBy:
    """Return what rows are sorted by; texts by their bytes."""
    if one.stored and isinstance(one.value, RowColumn):
        value = as_stored(one.value.name)
    else:
        value = bytes_of(writer.write(one.value))
    return SortedBy(value, one.descending, one.nulls_first)


DIGITS = 13
"""Digits of the number of steps that a row adds: doubles have more, so rounding finds all."""
_MOST_TENS = 22
"""10^22 is the largest power of ten that is a double."""


def scale_of(between: Interval) -> int | None:
    """Return s, so that a number between two others is no more than 10^13 steps; None if unknown.

    Args:
        between: the least and the largest value.
    """
    low, high = between
    if low is None or high is None:
        return None
    scale, largest = DIGITS, max(-low, high, Fraction(1, 10**_MOST_TENS))
    while largest * Fraction(10) ** scale > 10**DIGITS:
        scale -= 1
    while largest * Fraction(10) ** (scale + 1) <= 10**DIGITS and scale < _MOST_TENS:
        scale += 1
    return scale if scale >= -_MOST_TENS else None


def in_steps(value: RowExpression, scale: int) -> RowExpression:
    """Return how many steps a number is, as a BIGINT."""
    power = RowConstant("DOUBLE", repr(float(10 ** abs(scale))))
    return RowCast(RowCall("*" if scale > 0 else "/", (value, power)) if scale else value, BIGINT)
