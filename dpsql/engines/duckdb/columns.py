"""DuckDB's SQL that turns a stored value into the code of its cell, built from the schema alone.

The statement must not fail whatever a row holds (NaN, infinite dates, the ends of a type), since
an error after the charge would lose the budget. So each code is made of a value that was
brought into the domain's range first, even where a condition has taken other rows away already:
the order in which DuckDB evaluates conditions is its own.

Functions are called by their full names. So are + - * and //, because a macro of the database may
take the place of an operator; there are none for comparisons, casts and CASE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.rows.types import RowType
from dpsql.schema import Domain, Table
from dpsql.schema.names import quoted_name, quoted_text
from dpsql.schema.numbers import decimal_scale, decimal_text
from dpsql.schema.sequences import CLOCK, INSTANT, MONTHS, DateRange, DecimalRange, TimeRange
from dpsql.schema.values import OTHER_TIMES, TIMES

MAX_SEARCHED = 64
"""Values of a list that is searched through for each row; longer ones are looked up."""

FEW_RUNS = 32
"""Runs of one class whose ends are compared with; more are looked up in a list."""
_IN_TURN = 8
"""Runs that are tried one after the other."""

Code = Callable[[str], str]


@dataclass(slots=True)
class Parameters:
    """The parameters of one statement: those that its text names, and no others.

    DuckDB refuses values that a text doesn't use. So a value is bound where the text that names it
    is written, and may be named again.
    """

    values: list[Any] = field(default_factory=list)
    _places: dict[tuple[str, str], list[tuple[object, str]]] = field(default_factory=dict)

    def bind(self, key: tuple[str, str], value: object) -> str:
        """Return the name of a value, for example `$3`.

        Args:
            key: what it is for: equal values of one key are bound once.
            value: what is bound.
        """
        known = self._places.setdefault(key, [])
        for other, place in known:
            if other == value:
                return place
        self.values.append(value)
        known.append((value, f"${len(self.values)}"))
        return known[-1][1]


Text = Callable[[Parameters], str]
"""Writes a piece of SQL, and binds what it names."""


@dataclass(frozen=True, slots=True)
class CellSql:
    """The SQL that places values of one column in the cells of its domain, NULL left aside.

    `placed` says whether a value has a cell, `stored` is what to group by, and `code` makes the
    code of that. `stored` and `code` are right where `placed` is true, and never fail.
    """

    placed: Text
    stored: Text
    code: Code
    after: str = ""
    """What could be stored in place of a value without a cell: its code is that after the last."""
    last: Callable[[int], str] | None = None
    """Writes the largest that is `stored` of a cell, where those of each are above those before."""
    values: int = 0
    """Number of what is `stored`, if that is more than there are cells."""

    @classmethod
    def plain(
        cls, placed: str, stored: str, code: Code, last: Callable[[int], str] | None = None
    ) -> CellSql:
        """Make them of texts that name no parameter."""
        return cls(lambda _: placed, lambda _: stored, code, last=last)

    @classmethod
    def coded(cls, placed: str, code: str) -> CellSql:
        """Make them of a code that is grouped by."""
        return cls.plain(placed, code, lambda x: x, lambda cell: whole(cell, "BIGINT"))


class CodedColumn:
    """SQL for one column.

    `inside` says whether a row has a cell, `stored` is what to group by under the name `alias`,
    and `code` makes the code of that. Codes are BIGINT: the key can't overflow a narrow type.

    Every row has one cell, and one only: that of its value where `placed` is true; else the NULL
    cell of a nullable domain, or, if it `leaves_out` rows, the cell after those of the domain.
    Only a domain that keeps NULL and leaves other values out has both of these. What the
    database itself rules out is nowhere.

    Args:
        value: SQL that never fails: the quoted name of a column, or what is computed of a row.
        alias: see above.
        domain: the cells.
        leaves_out: whether rows may have no value of the domain.
    """

    def __init__(self, value: str, alias: str, domain: Domain, *, leaves_out: bool) -> None:
        self._column, self._domain, self.alias = value, domain, alias
        self._cells = _cells(self._column, domain)
        self._every = domain.nullable or leaves_out
        self._both = domain.nullable and leaves_out
        self._last = domain.size - domain.nullable
        """The cell of NULL or, without one, of what is outside."""
        code = f"({self._cells.code(alias)})::BIGINT"
        self.code = f"coalesce({code}, {self._last})" if self._every else code
        if self._both:
            self.code = f"{alias}::BIGINT"

    def inside(self, parameters: Parameters) -> str:
        """Write whether a row has a cell."""
        return "true" if self._every else self._cells.placed(parameters)

    def stored(self, parameters: Parameters) -> str:
        """Write what to group by."""
        stored = self._cells.stored(parameters)
        if not self._every:
            return stored
        stored = f"CASE WHEN {self._cells.placed(parameters)} THEN {stored}"
        if not self._both:
            # DuckDB groups by a plain array only where no constant NULL hides the least and the
            # largest value: twice as fast.
            return f"{stored} ELSE {self._cells.after or 'NULL'} END"
        stored += " END"
        # No stored value could tell NULL from what is outside.
        rest = f"CASE WHEN {self._column} IS NULL THEN {self._last} ELSE {self._last + 1} END"
        return f"coalesce(({self._cells.code(f'({stored})')})::BIGINT, {rest})"

    @property
    def values(self) -> int:
        """Number of what is grouped by, at most; what has no cell is only if it is counted."""
        if self._both:
            return self._last + 2
        return (self._cells.values or self._last) + self._every

    def class_of(self, classes: NDArray[np.int64], parameters: Parameters) -> str:
        """Write the class of a row's cell, given what is `stored`: by the ends of runs, or a list.

        What is stored of a value without a cell is above all ends, or NULL, of which no comparison
        is true: so it comes to the last run, which is that of the last cell.
        """
        last = (lambda cell: whole(cell, "BIGINT")) if self._both else self._cells.last
        ends = [*np.flatnonzero(np.diff(classes)).tolist(), len(classes) - 1]
        type_ = class_type(classes)
        if last is None or len(ends) > FEW_RUNS:
            if len(ends) == len(classes) == classes[-1] + 1:  # each cell is its own class
                return self.code
            return class_listed(self.code, classes, self._column, parameters)
        runs = [("" if i == ends[-1] else last(i), whole(int(classes[i]), type_)) for i in ends]
        return _led(self.alias, runs)


def class_type(classes: NDArray[np.int64]) -> str:
    """Return the least type that has all classes."""
    most = int(classes.max(initial=0))
    return "UTINYINT" if most < 2**8 else "USMALLINT" if most < 2**16 else "BIGINT"


def class_listed(code: str, classes: NDArray[np.int64], name: str, parameters: Parameters) -> str:
    """Write the class of a cell by a list; what isn't a cell has none, and no error."""
    listed = parameters.bind(("classes", name), classes.tolist())
    place = call("+", code, whole(1, "BIGINT"))
    return call("list_extract", f"{listed}::{class_type(classes)}[]", place)


def _led(value: str, runs: Sequence[tuple[str, str]]) -> str:
    """Write the second of that pair of which the first is the least that isn't below a value.

    Few are tried in turn, which takes DuckDB less time than to halve them.
    """
    if len(runs) == 1:
        return runs[0][1]
    if len(runs) <= _IN_TURN:
        tried = " ".join(f"WHEN {value} <= {end} THEN {class_}" for end, class_ in runs[:-1])
        return f"CASE {tried} ELSE {runs[-1][1]} END"
    middle = (len(runs) - 1) // 2
    below, above = _led(value, runs[: middle + 1]), _led(value, runs[middle + 1 :])
    return f"CASE WHEN {value} <= {runs[middle][0]} THEN {below} ELSE {above} END"


def call(function: str, *arguments: str) -> str:
    """Write a call of a built-in function or operator, whatever macros there are."""
    return f'system.main."{function}"({", ".join(arguments)})'


def source_of(table: Table) -> str:
    """Write what stands after FROM for the rows of a table."""
    if table.origin is not None:
        return table.origin.sql
    return ".".join(quoted_name(part) for part in table.path)


def whole(value: int, type_: str = "HUGEINT") -> str:
    """Write an integer. It is cast from text, because a minus sign is an operator."""
    return f"'{value}'::{type_}"


def _cells(column: str, domain: Domain) -> CellSql:
    values, clamps = domain.values, domain.outside == "clamp"
    if isinstance(values, range):
        low, high = (whole(v, domain.type) for v in (values.start, values.stop - 1))
        limits = RowType(domain.type).limits
        narrow = limits is not None and limits[0] >= -(2**32) and limits[1] <= 2**32
        wide = "BIGINT" if narrow and abs(values.start) < 2**32 else "HUGEINT"
        start = whole(values.start, wide)
        after = whole(values.stop, domain.type) if limits and values.stop <= limits[1] else ""
        cells = _span(column, low, high, clamps, lambda x: call("-", f"{x}::{wide}", start))
        return replace(cells, after=after, last=lambda cell: whole(values[cell], domain.type))
    if isinstance(values, DateRange):
        return _periods(column, domain, values)
    if isinstance(values, TimeRange):
        return _hours(column, domain, values)
    if isinstance(values, DecimalRange):
        if domain.column_type in {"DOUBLE", "FLOAT"}:
            return _float_grid(column, domain, values)
        return _grid(column, domain, values)
    if domain.type == "DOUBLE":
        return _bins(column, domain)
    if domain.type == "BOOLEAN":
        placed = f"{column} IS NOT NULL"
        return CellSql.plain(placed, column, lambda x: x, lambda cell: f"'{cell}'::BOOLEAN")
    if domain.type == "ENUM":
        return CellSql.plain(f"{column} IS NOT NULL", column, lambda x: call("enum_code", x))
    return _listed(column, domain)


def _span(column: str, low: str, high: str, clamps: bool, code: Code) -> CellSql:
    """Values from `low` to `high`, which are of the column's own type."""
    if clamps:
        return CellSql.plain(f"{column} IS NOT NULL", _between(column, low, high), code)
    return CellSql.plain(f"{column} BETWEEN {low} AND {high}", column, code)


def _between(value: str, low: str, high: str) -> str:
    """Bring a value into a range. NaN, which DuckDB takes for the largest, comes to its end."""
    return call("least", call("greatest", value, low), high)


def _grid(column: str, domain: Domain, values: DecimalRange) -> CellSql:
    """Decimals in a DECIMAL or integer column, in exact integers of the column's last digit.

    With v = value − low and the step d, ⌊v/d + 1/2⌋ = ⌊(v + ⌊d/2⌋) / d⌋: for an odd d the
    middle between two values is not an integer, so nothing lies between the two.
    """
    type_, scale = domain.column_type, decimal_scale(domain.column_type)
    low, _, step = values.scaled(scale)
    least, most = (f"'{end:f}'::{type_}" for end in (values[0], values[-1]))

    def code(x: str) -> str:
        # A DECIMAL's text has all its digits, so without the point it is the integer meant.
        digits = call("replace", f"{x}::VARCHAR", "'.'", "''") if scale else x
        above = call("-", f"{digits}::HUGEINT", whole(low))
        return call("//", call("+", above, whole(step // 2)), whole(step))

    def last(cell: int) -> str:
        digits = low + (cell + 1) * step - step // 2 - 1
        return f"'{decimal_text(Fraction(digits, 10**scale))}'::{type_}"

    cells = _span(column, least, most, domain.outside == "clamp", code)
    return replace(cells, last=last, values=(len(values) - 1) * step + 1)


def _float_grid(column: str, domain: Domain, values: DecimalRange) -> CellSql:
    """Decimals in a DOUBLE or FLOAT column, in doubles.

    The ends are rounded as the column's values are, so that 0.7 is inside 0.7..0.9.
    """
    low, high = float(values[0]), float(values[-1])
    ends = (low, high)
    if domain.column_type == "FLOAT":
        ends = (float(np.float32(low)), float(np.float32(high)))
    step = float(Fraction(values.step, 10**values.scale))
    value = f"{column}::DOUBLE"
    bounded = _between(value, _double(ends[0]), _double(ends[1]))
    steps = call("/", call("-", bounded, _double(low)), _double(step))
    nearest = call("floor", call("+", steps, _double(0.5)))
    code = f"{_between(nearest, _double(0), _double(len(values) - 1))}::BIGINT"
    placed = f"{value} BETWEEN {_double(ends[0])} AND {_double(ends[1])}"
    if domain.outside == "clamp":
        placed = f"NOT {call('isnan', value)}"
    return CellSql.coded(placed, code)


def _double(value: float) -> str:
    """Write a double so that DuckDB reads the same one."""
    return f"'{float(value)!r}'::DOUBLE"


def _periods(column: str, domain: Domain, values: DateRange) -> CellSql:
    """Calendar periods of a DATE or TIMESTAMP column."""
    day = _as_date(column, domain)
    first, last = _date(values.first), _date(values.end)
    bounded = _between(day, first, last)
    if values.grain in MONTHS:
        year, month = call("year", bounded), call("month", bounded)
        months = call("+", call("*", year, whole(12, "BIGINT")), month)
        start, length = values.first.year * 12 + values.first.month, MONTHS[values.grain]
        since = call("-", months, whole(start, "BIGINT"))
    else:
        since, length = call("-", bounded, first), 7 if values.grain == "week" else 1
    code = call("//", since, whole(length, "BIGINT"))
    placed = f"{day} BETWEEN {first} AND {last}"
    if domain.outside == "clamp":
        placed = f"{day} IS NOT NULL"
    return CellSql.coded(placed, code)


def _hours(column: str, domain: Domain, values: TimeRange) -> CellSql:
    """Hours or minutes of a TIMESTAMP column, counted in microseconds."""
    shown = clock(column, domain)
    first, last = (f"'{end.isoformat(' ')}'::TIMESTAMP" for end in (values.first, values.end))
    bounded = _between(shown, first, last)
    since = call("-", call("epoch_us", bounded), call("epoch_us", first))
    code = call("//", since, whole(CLOCK[values.grain] // INSTANT, "BIGINT"))
    placed = f"{shown} BETWEEN {first} AND {last}"
    if domain.outside == "clamp":
        placed = f"{shown} IS NOT NULL"
    return CellSql.coded(placed, code)


_ERAS = (" (BC)", "")


def clock(column: str, domain: Domain) -> str:
    """Write what the clock shows in the declared zone, whatever zone the session is set to.

    At the ends of the type there is no such time: instants are first brought to a span that has
    all domains in it, with room for the difference to any zone. So are times in seconds and
    milliseconds, of which not all are times in microseconds; all in nanoseconds are, rounded.
    """
    if domain.column_type == "TIMESTAMP_NS":
        return f"{column}::TIMESTAMP"
    if domain.column_type in OTHER_TIMES:
        ends = (f"'100000-01-01{era} 00:00:00'::{domain.column_type}" for era in _ERAS)
        bounded = f"TRY_CAST({_between(column, *ends)} AS TIMESTAMP)"
        return f"(CASE WHEN {column} IS NOT NULL THEN {bounded} END)"
    if domain.zone is None:
        return column
    bounded = _between(column, *(f"'100000-01-01{era} 00:00:00+00'::TIMESTAMPTZ" for era in _ERAS))
    shown = f"TRY({call('timezone', quoted_text(domain.zone), bounded)})"
    return f"(CASE WHEN {column} IS NOT NULL THEN {shown} END)"


def _date(day: date) -> str:
    return f"'{day.isoformat()}'::DATE"


def _bins(column: str, domain: Domain) -> CellSql:
    """Bins of doubles: the code is found by halving, in one expression."""
    if domain.uppers is None:
        raise InternalError("bins without upper ends")
    value, edges = f"{column}::DOUBLE", [_double(float(v)) for v in _floats(domain.values)]

    def search(first: int, last: int) -> str:
        if first == last:
            return str(first)
        middle = (first + last + 1) // 2
        below, above = search(first, middle - 1), search(middle, last)
        return f"CASE WHEN {value} < {edges[middle]} THEN {below} ELSE {above} END"

    last = _double(_floats(domain.uppers)[-1])
    placed = f"{value} BETWEEN {edges[0]} AND {last}"
    if domain.outside == "clamp":
        placed = f"NOT {call('isnan', value)}"
    return CellSql.coded(placed, search(0, len(edges) - 1))


def _floats(values: Sequence[Any]) -> list[float]:
    return [float(v) for v in values]


def _listed(column: str, domain: Domain) -> CellSql:
    """Strings, integers or dates in a list: the code is the place in it, from 1, less 1."""
    values = domain.values
    other = domain.other
    if other is not None:
        rest = list(values).index(other) + 1

        def listed_or_rest(parameters: Parameters) -> str:
            return f"coalesce({_position(column, domain, parameters)}, {rest})"

        # Every text has a cell, so the condition names no list.
        return CellSql(lambda _: f"{column} IS NOT NULL", listed_or_rest, _from_1, last=_place)

    def place(parameters: Parameters) -> str:
        listed = _position(column, domain, parameters)
        if domain.outside != "clamp":
            return listed
        least, most = (_literal(value, domain) for value in (values[0], values[-1]))
        stored = _as_date(column, domain)
        return (
            f"CASE WHEN {stored} < {least} THEN 1 WHEN {stored} > {most} THEN {len(values)} "
            f"ELSE {listed} END"
        )

    def placed(parameters: Parameters) -> str:
        return f"({place(parameters)}) IS NOT NULL"

    return CellSql(placed, place, _from_1, last=_place)


def _from_1(place: str) -> str:
    return call("-", place, "1")


def _place(cell: int) -> str:
    return whole(cell + 1, "BIGINT")


def _literal(value: Any, domain: Domain) -> str:
    return _date(value) if domain.type == "DATE" else whole(value, domain.type)


def _as_date(column: str, domain: Domain) -> str:
    timestamp = domain.type == "DATE" and domain.column_type in TIMES
    return f"{clock(column, domain)}::DATE" if timestamp else column


def _position(column: str, domain: Domain, parameters: Parameters) -> str:
    """Return SQL for the place of a value in a list, from 1; NULL if it isn't there.

    Strings are compared as bytes. Under a collation such as NOCASE a GROUP BY would merge
    strings and show one of them, so that one row could move the count of a whole group.
    """
    texts = domain.type == "VARCHAR"
    values = [str(v).encode() if texts else v for v in domain.values]
    listed = parameters.bind(("values", column), values)
    if texts:
        type_, value = "BLOB", call("encode", column)
    elif domain.type == "DATE":
        type_, value = "DATE", _as_date(column, domain)
    else:
        type_, value = "HUGEINT", f"{column}::HUGEINT"
    if len(values) <= MAX_SEARCHED:
        return call("list_position", f"{listed}::{type_}[]", value)
    return _looked_up(value, f"{listed}::{type_}[]", len(values))


def _looked_up(value: str, listed: str, count: int) -> str:
    """Return SQL for the place of a value in a long list, which DuckDB makes a hash table of.

    Each value has one place, the first, whatever the list holds: so there is one for each row.
    The names inside hide no column of the value, because they are longer than its text.
    """
    own, place = (f'"{name}{"_" * len(value)}"' for name in ("listed", "place"))
    places = (
        f"SELECT {call('list_extract', listed, place)} AS {own}, {call('min', place)} AS {place} "
        f"FROM system.main.range(1, {count + 1}) AS places({place}) GROUP BY 1"
    )
    return f"(SELECT {place} FROM ({places}) WHERE {own} = {value})"
