"""DuckDB's SQL that turns a stored value into the code of its cell, built from the schema alone.

It is that of the trees of `engines/codes.py`. The statement must not fail whatever a row holds
(NaN, infinite dates, the ends of a type), since an error after the charge would lose the budget. So
each code is made of a value that was brought into the domain's range first, even where a condition
has taken other rows away already, since the order in which DuckDB evaluates conditions is its own;
or of a number as it is stored, in a type of integers that has all that is made of any.

Functions are called by their full names. So are + - * and //, because a macro of the database may
take the place of an operator; there are none for comparisons, casts and CASE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.engines.codes import Codes, codes_of, runs_of
from dpsql.rows.typed import RowValue, Writer, call, duckdb_sql, text_of, value_of
from dpsql.rows.types import BIGINT, BOOLEAN, COARSE, DATE, HUGEINT, NANOSECONDS, VARCHAR, RowType
from dpsql.schema import Domain, Table
from dpsql.schema.names import quoted_name
from dpsql.schema.sequences import (
    FLOATS,
    DecimalRange,
    decimal_scale,
    decimal_text,
)

MAX_SEARCHED = 64
"""Values of a list that is searched through for each row; longer ones are looked up."""

_IN_TURN = 8
"""The most runs of values that are tried one after the other."""

_SMALL = {"UTINYINT": 2**8 - 1, "USMALLINT": 2**16 - 1}
"""Types of small numbers, and the largest of them."""


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
        self._every = domain.nullable or leaves_out
        self._both = domain.nullable and leaves_out
        self._last = domain.size - domain.nullable
        """The cell of NULL or, without one, of what is outside."""

    @cached_property
    def _codes(self) -> Codes:
        if self._domain.type != "ENUM":
            return codes_of(self._domain, _room(self._domain))
        value, within = value_of(VARCHAR), RowValue("within", (), VARCHAR)
        code = RowValue("label", (within,), BIGINT)  # which is numbered by the catalog
        return Codes(RowValue("there", (value,), BOOLEAN), value, code, value)

    @property
    def code(self) -> str:
        """Write the code of a cell, given what is `stored`."""
        if self._both:
            return f"{self.alias}::BIGINT"
        code = f"({self._code_of(self.alias)})::BIGINT"
        return f"coalesce({code}, {self._last})" if self._every else code

    def inside(self, parameters: Parameters) -> str:
        """Write whether a row has a cell."""
        return "true" if self._every else self._written(self._codes.placed, parameters)

    def stored(self, parameters: Parameters) -> str:
        """Write what to group by."""
        stored = self._stored(parameters)
        if not self._every:
            return stored
        stored = f"CASE WHEN {self._written(self._codes.placed, parameters)} THEN {stored}"
        if not self._both:
            # DuckDB groups by a plain array only where no constant NULL hides the least and the
            # largest value: twice as fast.
            return f"{stored} ELSE {_after(self._domain) or 'NULL'} END"
        stored += " END"
        # No stored value could tell NULL from what is outside.
        rest = f"CASE WHEN {self._column} IS NULL THEN {self._last} ELSE {self._last + 1} END"
        return f"coalesce(({self._code_of(f'({stored})')})::BIGINT, {rest})"

    def _stored(self, parameters: Parameters) -> str:
        """Write what is stored of a value with a cell, or its code."""
        if self._codes.stored is not None:
            return self._written(self._codes.stored, parameters)
        bounded = self._written(self._codes.bounded, parameters)
        return duckdb_sql(self._codes.code, {**_CELLS, "within": lambda *_: bounded})

    def _code_of(self, stored: str) -> str:
        if self._codes.stored is None:
            return stored
        return duckdb_sql(self._codes.code, {**_CELLS, "within": lambda *_: stored})

    def _written(self, tree: RowValue, parameters: Parameters) -> str:
        def place(node: RowValue, parts: list[str]) -> str:
            (compared,) = node.parts
            key = "values", self._column
            return _position(parts[0], compared.type, self._domain.values, key, parameters)

        return duckdb_sql(tree, {**_CELLS, "value": lambda *_: self._column, "place": place})

    @property
    def values(self) -> int:
        """Number of what is grouped by, at most; what has no cell is only if it is counted."""
        if self._both:
            return self._last + 2
        return (_stored_values(self._domain) or self._last) + self._every

    def class_of(self, classes: NDArray[np.int64], parameters: Parameters) -> str:
        """Write the class of a row's cell, given what is `stored`: by the ends of runs, or a list.

        What is stored of a value without a cell is above all ends, or NULL, of which no comparison
        is true: so it comes to the last run, which is that of the last cell.
        """
        runs, type_ = self._runs(classes), class_type(classes)
        if self.class_is_code(classes):
            return self.code
        if runs is None:
            return class_listed(self.code, classes, self._column, parameters)
        by_code = self._both or self._codes.stored is None
        ends = [
            whole(cell, "BIGINT") if by_code else _last(self._domain, cell) for cell, _ in runs[:-1]
        ]
        return _led(self.alias, [*ends, ""], [whole(class_, type_) for _, class_ in runs])

    def class_is_code(self, classes: NDArray[np.int64]) -> bool:
        """Whether `class_of` is the code of a cell; else it is one of constants, or NULL."""
        return self._runs(classes) is None and np.array_equal(classes, np.arange(len(classes)))

    def _runs(self, classes: NDArray[np.int64]) -> Sequence[tuple[int, int]] | None:
        """Return the runs of one class, if their ends can be compared with what is stored."""
        return None if self._domain.type == "ENUM" and not self._both else runs_of(classes)

    @property
    def numbers(self) -> tuple[int, int]:
        """Say of what is stored whether it is small numbers, without NULL: see `grouped.Packed`."""
        values, most = self._domain.values, _SMALL.get(self._domain.type)
        after = self._every and bool(_after(self._domain))
        if most is None or not isinstance(values, range) or self._both or after != self._every:
            return 0, 0
        return max(values[-1], values.stop if after else 0) + 1, most


def class_type(classes: NDArray[np.int64]) -> str:
    """Return the least type that has all classes."""
    most = int(classes.max(initial=0))
    return "UTINYINT" if most < 2**8 else "USMALLINT" if most < 2**16 else "BIGINT"


def class_listed(code: str, classes: NDArray[np.int64], name: str, parameters: Parameters) -> str:
    """Write the class of a cell by a list; what isn't a cell has none, and no error."""
    listed = parameters.bind(("classes", name), classes.tolist())
    place = call("+", code, whole(1, "BIGINT"))
    return call("list_extract", f"{listed}::{class_type(classes)}[]", place)


def _led(value: str, ends: Sequence[str], classes: Sequence[str]) -> str:
    """Write the class of the first end that isn't below a value; the last one has no end.

    Few are tried in turn, which takes DuckDB less time than to halve them.
    """
    if len(classes) == 1:
        return classes[0]
    if len(classes) <= _IN_TURN:
        runs = zip(ends[:-1], classes[:-1], strict=True)
        tried = " ".join(f"WHEN {value} <= {end} THEN {class_}" for end, class_ in runs)
        return f"CASE {tried} ELSE {classes[-1]} END"
    middle = (len(classes) - 1) // 2 + 1
    below = _led(value, ends[:middle], classes[:middle])
    above = _led(value, ends[middle:], classes[middle:])
    return f"CASE WHEN {value} <= {ends[middle - 1]} THEN {below} ELSE {above} END"


def source_of(table: Table) -> str:
    """Write what stands after FROM for the rows of a table."""
    if table.origin is not None:
        return table.origin.sql
    return ".".join(quoted_name(part) for part in table.path)


def whole(value: int, type_: str = "HUGEINT") -> str:
    """Write an integer. It is cast from text, because a minus sign is an operator."""
    return f"'{value}'::{type_}"


# ── trees of cells ─────────────────────────────────────────────────────────────────────────


def _room(domain: Domain) -> RowType:
    """Return a type that has all differences of values of a column and those of its domain."""
    if isinstance(domain.values, range):
        ends = (*(RowType(domain.type).limits or (-(2**64), 2**64)), domain.values.start)
        if max(map(abs, ends)) < 2**32:
            return BIGINT
    return HUGEINT


def _after(domain: Domain) -> str:
    """Write what may be stored in place of a value without a cell: its code is after the last."""
    limits = RowType(domain.type).limits if isinstance(domain.values, range) else None
    if limits is None or not isinstance(domain.values, range) or domain.values.stop > limits[1]:
        return ""
    return whole(domain.values.stop, domain.type)


def _stored_values(domain: Domain) -> int:
    """Return of how many values a cell is, all together, if they are more than cells; else 0."""
    if isinstance(domain.values, DecimalRange) and domain.column_type not in FLOATS:
        _, _, step = domain.values.scaled(decimal_scale(domain.column_type))
        return (len(domain.values) - 1) * step + 1
    return 0


def _last(domain: Domain, cell: int) -> str:
    """Write the largest that is stored of a cell; those of each are above those before."""
    values = domain.values
    if isinstance(values, range):
        return whole(values[cell], domain.type)
    if isinstance(values, DecimalRange):
        scale = decimal_scale(domain.column_type)
        low, _, step = values.scaled(scale)
        digits = low + (cell + 1) * step - step // 2 - 1
        return f"'{decimal_text(Fraction(digits, 10**scale))}'::{domain.column_type}"
    if domain.type == "BOOLEAN":
        return f"'{cell}'::BOOLEAN"
    return whole(cell + 1, "BIGINT")  # the place in a list


def _inside(value: str, low: str, high: str) -> str:
    """Bring a value into a range. NaN, which DuckDB takes for the largest, comes to its end."""
    return call("least", call("greatest", value, low), high)


_ERAS = (" (BC)", "")


def _shown(node: RowValue, parts: list[str]) -> str:
    """Write what the clock shows in the declared zone, whatever zone the session is set to.

    At the ends of the type there is no such time: instants are first brought to a span that has
    all domains in it, with room for the difference to any zone. So are times in seconds and
    milliseconds, of which not all are times in microseconds; all in nanoseconds are, rounded.
    """
    (x,), type_ = parts, node.parts[0].type
    if type_ == NANOSECONDS:
        return f"{x}::TIMESTAMP"
    if type_.name in COARSE:
        ends = (f"'100000-01-01{era} 00:00:00'::{type_.sql}" for era in _ERAS)
        shown = f"TRY_CAST({_inside(x, *ends)} AS TIMESTAMP)"
    elif node.text:
        ends = (f"'100000-01-01{era} 00:00:00+00'::TIMESTAMPTZ" for era in _ERAS)
        shown = f"TRY({call('timezone', text_of(node.text), _inside(x, *ends))})"
    else:
        return x
    return f"(CASE WHEN {x} IS NOT NULL THEN {shown} END)"


def _digits(node: RowValue, parts: list[str]) -> str:
    """Write last digits: a DECIMAL's text has all of them, so without the point it is these."""
    (x,) = parts
    if node.parts[0].type.scale:
        x = call("replace", f"{x}::VARCHAR", "'.'", "''")
    return f"{x}::{node.type.sql}"


def _months(_: RowValue, parts: list[str]) -> str:
    (day,) = parts
    return call("+", call("*", call("year", day), whole(12, "BIGINT")), call("month", day))


def _since(node: RowValue, parts: list[str]) -> str:
    if node.parts[0].type == DATE:
        return call("-", *parts)
    return call("-", *(call("epoch_us", part) for part in parts))


_CELLS: Mapping[str, Writer] = {
    "there": lambda _, p: f"{p[0]} IS NOT NULL",
    "number": lambda _, p: f"NOT {call('isnan', p[0])}",
    "between": lambda _, p: f"{p[0]} BETWEEN {p[1]} AND {p[2]}",
    "inside": lambda _, p: _inside(*p),
    "shown": _shown,
    "as": lambda node, p: f"{p[0]}::{node.type.sql}",
    "constant": lambda node, _: f"{text_of(node.text)}::{node.type.sql}",
    "plain": lambda node, p: call(node.text, *p),
    "digits": _digits,
    "months": _months,
    "since": _since,
    "cell": lambda node, _: node.text,
    "label": lambda _, p: call("enum_code", p[0]),
}
"""The operations of `engines/codes.py`, and the number of a label.

Nothing of this needs brackets: operators are called, and conditions are what is `placed`.
"""


def _position(
    value: str,
    type_: RowType,
    listed: Sequence[Any],
    key: tuple[str, str],
    parameters: Parameters,
) -> str:
    """Return SQL for the place of a value in a list, from 1; NULL if it isn't there.

    Strings are compared as bytes. Under a collation such as NOCASE a GROUP BY would merge
    strings and show one of them, so that one row could move the count of a whole group.
    """
    values = [v.encode() if isinstance(v, str) else v for v in listed]
    array = f"{parameters.bind(key, values)}::{'BLOB' if type_ == VARCHAR else type_.sql}[]"
    if len(values) <= MAX_SEARCHED:
        return call("list_position", array, value)
    return _looked_up(value, array, len(values))


def _looked_up(value: str, listed: str, count: int) -> str:
    """Return SQL for the place of a value in a long list, which DuckDB makes a hash table of.

    Each value has one place, the first, whatever the list holds: so there is one for each row.
    The names inside hide no column of the value, because they are longer than its text.
    """
    listing, place = (f'"{name}{"_" * len(value)}"' for name in ("listed", "place"))
    places = (
        f"SELECT {call('list_extract', listed, place)} AS {listing}, "
        f"{call('min', place)} AS {place} "
        f"FROM system.main.range(1, {count + 1}) AS places({place}) GROUP BY 1"
    )
    return f"(SELECT {place} FROM ({places}) WHERE {listing} = {value})"
