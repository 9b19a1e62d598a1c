"""From an expression of a row to typed operations, whose SQL is for the private connection.

Guarantees:
    The SQL is a total function of its own row's columns. It never raises, whatever a row holds, and
    what other rows hold decides nothing.

    *Proof.* By induction over the tree. (i) Each column is of a type of `types.py`, and has a
    value of it: a DECIMAL that is stored beyond its type is NULL, or only compared (`typed.py`).
    Each operand is brought to the operator's type by a cast that is written, so DuckDB adds none
    that can fail. (ii) A call that can fail on operands of its types is the only such scalar in a
    TRY of its own, whose arguments are total by induction; a cast that can fail is a TRY_CAST,
    which is the same in one. So each fails for a row by that row's arguments alone, and gives NULL
    for it alone. Exact arithmetic has no TRY where its type has all of its results
    (`operands.py`).
    (iii) Comparisons, AND, OR, NOT, CASE, COALESCE, IN, BETWEEN and IS NULL have total operands.
    Then whatever the optimizer folds, reorders, shares or drops by its statistics (ends, NULLs) is
    an identity of three-valued logic. A TRY around a whole condition wouldn't do: statistics decide
    whether a failing operand is evaluated, so one row could change the results of all others. ∎

    No name of the database can take the place of another, and no constant leaves its quotes: see
    `typed.py`, where the SQL is written. Other engines write their own of the same operations, with
    a proof of their own; nothing here rests on that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import ClassVar

from dpsql.errors import SchemaError, UnsupportedSqlError, printable
from dpsql.rows.expression import (
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
    canonical,
    check_columns,
    check_size,
    nodes,
    parts,
)
from dpsql.rows.functions import COMPARISONS, FUNCTIONS, check_column, of_shapes
from dpsql.rows.operands import (
    absolute,
    bounded,
    cast,
    check_repeated,
    constant,
    divided,
    hull,
    inexact,
    integers,
    is_text,
    literal,
    moved,
    not_of,
    numbers,
    room,
    shown,
    small,
    span,
    tried,
)
from dpsql.rows.times import OF_CLOCKS, as_interval, meant, part_type, word
from dpsql.rows.typed import RowValue, bytes_of, called, constant_of, known_since, number_of
from dpsql.rows.types import (
    BIGINT,
    BOOLEAN,
    COARSE,
    DATE,
    DOUBLE,
    FLOAT,
    HUGEINT,
    MOST_DIGITS,
    NANOSECONDS,
    NANOSECONDS_ENDS,
    NULL,
    TIME,
    TIMESTAMP,
    VARCHAR,
    RowType,
    common_type,
    decimal,
    is_enum,
    lossless,
    quotient_type,
    remainder_type,
    row_type,
)
from dpsql.schema.domain import ZONE, ZONED
from dpsql.schema.names import folded

_IN_DOUBLES = of_shapes("addition", "negative")
"""Aggregates that are computed in doubles where DECIMALs are added up."""
_LONGEST_STRING = 2**32
_COMPARISONS = {sign: sign for sign in COMPARISONS} | {
    "is_distinct": "IS DISTINCT FROM",
    "is_not_distinct": "IS NOT DISTINCT FROM",
}


def _in_microseconds(name: str, type_: RowType) -> RowValue:
    """Read a column of times in other units; those that no TIMESTAMP is are infinite."""
    stored = RowValue("column", (), type_, name)
    after = RowValue("compare", (stored, constant_of("1970-01-01 00:00:00", type_)), BOOLEAN, ">")
    far = (constant_of(text, TIMESTAMP) for text in ("infinity", "-infinity"))
    there = RowValue("not", (RowValue("is_null", (stored,), BOOLEAN),), BOOLEAN)
    (late, early), known = far, RowValue("try_cast", (stored,), TIMESTAMP)
    rest = RowValue("case", (after, late, there, early), TIMESTAMP)
    return RowValue("coalesce", (known, rest), TIMESTAMP)


def _is_beyond(value: RowValue) -> bool:
    """Whether a constant moment is none that nanoseconds of 64 bits reach; DuckDB fails there."""
    if value.type not in (DATE, TIMESTAMP, NANOSECONDS):
        return False
    while value.operation in {"cast", "try_cast"}:
        (value,) = value.parts
    if value.operation != "constant" or value.type == NULL:
        return False
    try:
        moment = datetime.fromisoformat(value.text)
    except ValueError:  # an infinite one, or of a year that Python hasn't
        return "inf" not in folded(value.text)
    return not NANOSECONDS_ENDS[0] <= moment <= NANOSECONDS_ENDS[1]


def _is_coarse(value: RowValue) -> bool:
    return any(node.type.name in COARSE for node in value.nodes)


def _rounded_time(value: RowValue) -> RowValue:
    """Bring nanoseconds to microseconds, as DuckDB does for functions that have no other."""
    return cast(value, TIMESTAMP) if value.type == NANOSECONDS else value


def _recorded(node: RowCall, *arguments: RowValue) -> RowValue:
    """Make a call in a TRY, of the name and the type that the function's record says."""
    listed = FUNCTIONS[node.function]
    type_, limits = row_type(listed.result), None
    if type_.is_integer:
        low, high = listed.bounds if isinstance(listed.bounds, tuple) else (0, None)
        limits = (low or 0, _LONGEST_STRING if high is None else high)
    return tried(listed.duckdb, *arguments, type_=type_, limits=limits)


class RowWriter:
    """Writes expressions over the columns of one table.

    Args:
        types: the columns' types, as DuckDB's catalog has them.
    """

    def __init__(self, types: Mapping[str, str]) -> None:
        self.types = types
        self._written: dict[RowExpression, RowValue] = {}

    def write(self, expression: RowExpression) -> RowValue:
        """Write an expression.

        Raises:
            UnsupportedSqlError: an operand is of a type that doesn't fit.
            SchemaError: there is no such column.
            SqlLimitError: the expression is too long.
        """
        check_size(expression)
        return self._write(expression)

    def write_double(self, expression: RowExpression) -> RowValue:
        """Write a number as a DOUBLE.

        Sums, differences and products of DECIMALs are computed in doubles: these can't overflow,
        and a measure is rounded far above their last digit. All else is exact up to the last cast.
        So is what `write` asks of a number besides: whether it is there, and whether it is NaN.
        Where DuckDB would stop at an overflow, what is added up is also what is counted.
        """
        check_size(expression)
        return self._double(expression)

    def _write(self, expression: RowExpression) -> RowValue:
        if expression not in self._written:  # each once: some are asked for twice at each level
            self._written[expression] = self._made(expression)
        return self._written[expression]

    def _made(self, expression: RowExpression) -> RowValue:
        if isinstance(expression, RowColumn):
            return self._column(expression.name)
        if isinstance(expression, RowConstant):
            return constant(expression)
        if isinstance(expression, RowCast):
            return cast(self._write(expression.value), expression.to)
        if isinstance(expression, RowCase):
            return self._case(expression)
        shape = FUNCTIONS[expression.function].shape
        return self._SHAPES[shape](self, expression)

    def _column(self, name: str) -> RowValue:
        if name not in self.types:
            raise SchemaError(f"There is no column {printable(name)[:100]}.")
        if self.types[name] in COARSE:
            return _in_microseconds(name, RowType(self.types[name]))
        type_, of_labels = row_type(self.types[name], name), is_enum(self.types[name])
        return RowValue("labels" if of_labels else "column", (), type_, name, type_.limits)

    def _all(self, expressions: Sequence[RowExpression]) -> list[RowValue]:
        return [self._write(expression) for expression in expressions]

    def _alike(
        self, expressions: Sequence[RowExpression], what: str, *, compared: bool = False
    ) -> list[RowValue]:
        """Write expressions that may stand for each other, all brought to one type.

        A string constant becomes a date, number or boolean beside one, as in DuckDB.
        """
        texts = {place: node.text for place, node in enumerate(expressions) if is_text(node)}
        written = self._all(expressions)
        known = [w.type for place, w in enumerate(written) if place not in texts]
        type_ = common_type(known, compared=compared)
        if type_ == NULL and texts:
            type_ = VARCHAR
        if type_ is None:
            names = ", ".join(dict.fromkeys(w.type.sql for w in written))
            raise UnsupportedSqlError(
                f"{what} needs values of one type on rows, not {names}.",
                hint="write CAST(… AS …) where another type is meant.",
            )
        if any("." in text for text in texts.values()) and any(map(_is_coarse, written)):
            raise UnsupportedSqlError(
                f"{what} would round a text on rows, to seconds or milliseconds.",
                hint="write TIMESTAMP '…', or leave the digits after the point out.",
            )
        if texts and type_ != VARCHAR:
            for place, text in texts.items():
                written[place] = constant(meant(text, type_))
            type_ = common_type([w.type for w in written], compared=compared) or type_
        if type_ == NANOSECONDS and any(map(_is_beyond, written)):
            raise UnsupportedSqlError(
                f"{what} uses a moment that a TIMESTAMP_NS can't hold.",
                hint="compare with moments from 1678 to 2261.",
            )
        return [cast(w, type_) for w in written]

    def _case(self, expression: RowCase) -> RowValue:
        conditions = [self._condition(condition) for condition, _ in expression.cases]
        results = [result for _, result in expression.cases]
        *written, otherwise = self._alike([*results, expression.otherwise], "CASE")
        cases = (part for case in zip(conditions, written, strict=True) for part in case)
        limits = hull([*written, otherwise])
        return RowValue("case", (*cases, otherwise), otherwise.type, limits=limits)

    def _condition(self, expression: RowExpression) -> RowValue:
        written = self._write(expression)
        if written.type not in (BOOLEAN, NULL):
            raise not_of("A condition", "a BOOLEAN", written.type)
        return cast(written, BOOLEAN)

    def _double(self, expression: RowExpression) -> RowValue:
        written = self._write(expression)
        if isinstance(expression, RowCast) and expression.to == DOUBLE:
            inner = self._write(expression.value)
            return self._double(expression.value) if inner.type.is_number else written
        if not written.type.is_number and written.type not in (BOOLEAN, NULL):
            raise not_of("What is added up", "a number", written.type)
        if written.type.name != "DECIMAL" and written.type != HUGEINT:
            return cast(written, DOUBLE)
        if isinstance(expression, RowCase) and not any(map(is_text, parts(expression))):
            cases = (
                part
                for condition, result in expression.cases
                for part in (self._condition(condition), self._double(result))
            )
            return RowValue("case", (*cases, self._double(expression.otherwise)), DOUBLE)
        if isinstance(expression, RowCall) and expression.function in _IN_DOUBLES:
            arguments = [self._double(part) for part in expression.arguments]
            return called(FUNCTIONS[expression.function].duckdb, *arguments, type_=DOUBLE)
        return cast(written, DOUBLE)

    # One method for each shape in `functions.py`.

    def _logic(self, node: RowCall) -> RowValue:
        conditions = [self._condition(part) for part in node.arguments]
        return RowValue(node.function, tuple(conditions), BOOLEAN)

    def _comparison(self, node: RowCall) -> RowValue:
        sides = map(bytes_of, self._alike(node.arguments, node.function, compared=True))
        return RowValue("compare", tuple(sides), BOOLEAN, _COMPARISONS[node.function])

    def _between(self, node: RowCall) -> RowValue:
        compared = map(bytes_of, self._alike(node.arguments, "BETWEEN", compared=True))
        return RowValue("between", tuple(compared), BOOLEAN)

    def _membership(self, node: RowCall) -> RowValue:
        compared = map(bytes_of, self._alike(node.arguments, "IN", compared=True))
        return RowValue("in", tuple(compared), BOOLEAN)

    def _is_null(self, node: RowCall) -> RowValue:
        value, written = node.arguments[0], self._write(node.arguments[0])
        computed = written.type.is_number and not isinstance(value, RowColumn)
        return RowValue("is_null", (self._double(value) if computed else written,), BOOLEAN)

    def _choice(self, node: RowCall) -> RowValue:
        written = self._alike(node.arguments, node.function)
        return RowValue("coalesce", tuple(written), written[0].type, limits=hull(written))

    def _nullif(self, node: RowCall) -> RowValue:
        first = self._write(node.arguments[0])
        check_repeated(first, "The first argument of nullif")
        left, right = map(bytes_of, self._alike(node.arguments, "nullif", compared=True))
        return RowValue("nullif", (left, right, first), first.type, limits=first.limits)

    def _extreme(self, node: RowCall) -> RowValue:
        written = self._alike(node.arguments, node.function)
        if not (written[0].type.is_number or written[0].type.is_time or written[0].type == NULL):
            raise not_of(node.function, "numbers or dates", written[0].type)
        type_, limits = written[0].type, hull(written)
        return RowValue("call", tuple(written), type_, node.function, limits)

    def _bounded(self, node: RowCall) -> RowValue:
        return bounded(self._write(node.arguments[0]), *node.arguments)

    def _addition(self, node: RowCall) -> RowValue:
        left, right = self._all(node.arguments)
        if left.type.is_time or right.type.is_time:
            return moved(node.function, left, right)
        left, right = numbers(node.function, left, right)
        if left.limits is None or right.limits is None:
            return inexact(node.function, left, right)
        return integers(node.function, left, right, span(node.function, left.limits, right.limits))

    def _negative(self, node: RowCall) -> RowValue:
        (value,) = numbers("-", self._write(node.arguments[0]))
        if value.limits is None:
            return called("-", value, type_=value.type)
        zero = RowValue("constant", (), BIGINT, "0", (0, 0))
        return integers("-", zero, value, span("-", (0, 0), value.limits))

    def _remainder(self, node: RowCall) -> RowValue:
        left, right = numbers(node.function, *self._all(node.arguments))
        if left.limits is not None and right.limits is not None:
            between = divided(node.function, left.limits, right.limits)
            return integers(node.function, left, right, between)
        made = remainder_type if node.function == "%" else quotient_type
        type_ = made(left.type, right.type)
        return tried(node.function, cast(left, type_), cast(right, type_), type_=type_)

    def _quotient(self, node: RowCall) -> RowValue:
        left, right = numbers("/", *self._all(node.arguments))
        type_ = quotient_type(left.type, right.type)
        return tried("/", cast(left, type_), cast(right, type_), type_=type_)

    def _absolute(self, node: RowCall) -> RowValue:
        return absolute(*numbers("abs", self._write(node.arguments[0])))

    def _sign(self, node: RowCall) -> RowValue:
        return _recorded(node, *numbers("sign", self._write(node.arguments[0])))

    def _bits(self, node: RowCall) -> RowValue:
        """Write the bits of an integer whose type is told: one that is computed is wider here."""
        (operand,) = node.arguments
        value = self._write(operand)
        told = isinstance(operand, RowColumn | RowCast) and value.type.is_integer
        if not (told and lossless(value.type, BIGINT)):
            raise not_of("bit_count", "a column or a CAST of at most 64 bits", value.type)
        signed = value.type.limits is not None and value.type.limits[0] < 0
        return _recorded(node, value if signed else cast(value, BIGINT))

    def _rounded(self, node: RowCall) -> RowValue:
        (value,) = numbers(node.function, self._write(node.arguments[0]))
        digits = [small(part, 15, node.function) for part in node.arguments[1:]]
        keeps = node.function in {"round", "trunc"} and min(digits, default=0) >= 0
        if value.type.is_integer and keeps:
            return value
        places = [number_of(d, RowType("INTEGER")) for d in digits]
        if value.limits is not None and node.function == "round":
            (far,), (low, high) = digits, value.limits
            type_, _ = room((low - 10**-far, high + 10**-far))
            return tried("round", cast(value, type_), *places, type_=type_, limits=type_.limits)
        if value.type.name != "DECIMAL":
            if digits and value.type != FLOAT:
                check_repeated(value, f"The first argument of {node.function}")
            type_ = value.type if value.type.is_float else DOUBLE
            return called(node.function, cast(value, type_), *places, type_=type_)
        # One digit more: DuckDB rounds 9.9 up to a 10 that its own type can't hold.
        wide = cast(value, decimal(value.type.width + 1, value.type.scale))
        scale = min(max(min(digits, default=0), 0), value.type.scale)
        width = min(value.type.width - value.type.scale + 1 + scale, MOST_DIGITS)
        return tried(node.function, wide, *places, type_=decimal(width, scale))

    def _real(self, node: RowCall) -> RowValue:
        values = numbers(node.function, *self._all(node.arguments))
        return _recorded(node, *(cast(value, DOUBLE) for value in values))

    def _asked(self, node: RowCall) -> RowValue:
        """Write what is asked of a number as it is added up, by `write_double`."""
        numbers(node.function, *self._all(node.arguments))
        return _recorded(node, *map(self._double, node.arguments))

    def _text(self, node: RowCall) -> RowValue:
        return _recorded(node, self._string(node))

    def _join(self, node: RowCall) -> RowValue:
        check_columns(node)
        return _recorded(node, *(cast(written, VARCHAR) for written in self._all(node.arguments)))

    def _subtext(self, node: RowCall) -> RowValue:
        places = [small(part, 10**9 - 1, node.function) for part in node.arguments[1:]]
        return _recorded(node, self._string(node), *map(number_of, places))

    def _searched(self, node: RowCall) -> RowValue:
        needle = constant_of(literal(node.arguments[1], node.function))
        return _recorded(node, self._string(node), needle)

    def _like(self, node: RowCall) -> RowValue:
        value = self._string(node)
        pattern = constant_of(literal(node.arguments[1], node.function))
        if node.function == "ilike":
            value = tried("lower", value, type_=VARCHAR)
            pattern = called("lower", pattern, type_=VARCHAR)
        return _recorded(node, value, pattern)

    def _regex(self, node: RowCall) -> RowValue:
        pattern = literal(node.arguments[1], node.function)
        options = literal(node.arguments[2], node.function) if len(node.arguments) == 3 else ""
        check_pattern(pattern, options)
        extra = [constant_of(options)] if options else []
        return _recorded(node, self._string(node), constant_of(pattern), *extra)

    def _part(self, node: RowCall) -> RowValue:
        part = word(literal(node.arguments[0], node.function), parts=True)
        apart = self._seconds_apart(node.arguments[1]) if part == "epoch" else None
        if apart is not None:
            return apart
        type_, limits = part_type(part)
        value = self._time(node, 1, clock=part in OF_CLOCKS)
        made = tried("date_part", constant_of(part), value, type_=type_, limits=limits)
        if known_since(made):
            check_repeated(value, f"The {part} of a day")
        return made

    def _seconds_apart(self, node: RowExpression) -> RowValue | None:
        """Write the seconds of what one time is after another; None if it is something else."""
        if not isinstance(node, RowCall) or node.function != "-":
            return None
        if {part.type for part in self._all(node.arguments)} != {TIMESTAMP}:
            return None
        unit = RowConstant("VARCHAR", "microsecond")
        apart = self._write(RowCall("date_diff", (unit, *node.arguments[::-1])))
        second = constant_of("1000000", DOUBLE)
        return called("/", cast(apart, DOUBLE), second, type_=DOUBLE)

    def _named_part(self, node: RowCall) -> RowValue:
        return _recorded(node, _rounded_time(self._time(node, 0)))

    def _shown(self, node: RowCall) -> RowValue:
        return shown(self._time(node, 0), literal(node.arguments[1], node.function))

    def _truncated(self, node: RowCall) -> RowValue:
        unit = word(literal(node.arguments[0], node.function), parts=False)
        value = cast(self._time(node, 1), TIMESTAMP)
        return _recorded(node, constant_of(unit), value)

    def _span(self, node: RowCall) -> RowValue:
        unit = word(literal(node.arguments[0], node.function), parts=False)
        ends = [self._time(node, place) for place in (1, 2)]
        if any(end.type != DATE for end in ends):  # days reach farther than times do
            ends = [cast(end, TIMESTAMP) for end in ends]
        return tried("date_diff", constant_of(unit), *ends, type_=BIGINT, limits=BIGINT.limits)

    def _shift(self, node: RowCall) -> RowValue:
        text = literal(node.arguments[1], "An interval")
        if as_interval(text) is None:
            raise UnsupportedSqlError(
                "A time can't be moved that far on rows.",
                hint="move it by at most ten thousand years.",
            )
        value = self._time(node, 0)
        if value.type == NANOSECONDS:
            raise not_of("An interval", "a DATE or TIMESTAMP", value.type)
        value = cast(value, TIMESTAMP)
        return RowValue("shift", (value,), TIMESTAMP, text)

    def _clock(self, node: RowCall) -> RowValue:
        column, zone = node.arguments[0], literal(node.arguments[1], "A clock")
        good = ZONE.fullmatch(zone) is not None
        if not isinstance(column, RowColumn) or self.types.get(column.name) != ZONED or not good:
            raise not_of("A clock", "a column of instants and a zone", NULL)
        return RowValue("clock", (constant_of(zone),), TIMESTAMP, column.name)

    def _string(self, node: RowCall) -> RowValue:
        written = self._write(node.arguments[0])
        if written.type not in (VARCHAR, NULL):
            raise not_of(node.function, "a string", written.type)
        return cast(written, VARCHAR)

    def _time(self, node: RowCall, place: int, *, clock: bool = False) -> RowValue:
        """Write a time. Of 24:00:00, which is a TIME too, no clock shows anything."""
        written = self._write(node.arguments[place])
        if written.type == NULL:
            return cast(written, TIMESTAMP)
        if written.type == TIME and clock:
            check_repeated(written, f"The argument of {node.function}")
            shown = RowValue("compare", (written, constant_of("24:00:00", TIME)), BOOLEAN, "<")
            return RowValue("case", (shown, written), TIME)
        if not written.type.is_time:
            raise not_of(node.function, "a DATE or TIMESTAMP", written.type)
        return written

    _SHAPES: ClassVar[dict[str, Callable[[RowWriter, RowCall], RowValue]]] = {
        "logic": _logic, "comparison": _comparison, "between": _between, "bits": _bits,
        "extreme": _extreme, "membership": _membership, "is_null": _is_null, "choice": _choice,
        "nullif": _nullif, "bounded": _bounded, "addition": _addition, "negative": _negative,
        "remainder": _remainder, "quotient": _quotient, "absolute": _absolute, "sign": _sign,
        "rounded": _rounded, "real": _real, "asked": _asked, "text": _text, "join": _join,
        "subtext": _subtext, "searched": _searched, "like": _like, "regex": _regex, "part": _part,
        "named_part": _named_part, "shown": _shown, "truncated": _truncated, "span": _span,
        "clock": _clock, "shift": _shift,
    }  # fmt: skip


check_column("shape", set(RowWriter._SHAPES))


def known_as(expression: RowExpression, types: Mapping[str, str], *, added_up: bool = False) -> str:
    """Write an expression as releases, plans and ledgers know it: what it is, and what it means.

    Where this version computes another value than earlier ones did, it is known otherwise, so that
    what they measured isn't put together with what is measured now. All else is known as ever.

    Args:
        expression: what is computed of a row.
        types: the columns' types.
        added_up: whether it is written by `write_double`.
    """
    version = _Meaning(RowWriter(types)).version(expression, added_up=added_up)
    return canonical(expression) + (f" as of {version}" if version > 1 else "")


_OF_ADDED_UP = of_shapes("asked")


class _Meaning:
    """Expressions that have another value than they had in version 1 of what expressions mean.

    Since version 2, FLOAT is divided and rounded in FLOAT, and no longer in DOUBLE. What is
    divided, or given to functions of DOUBLE, is computed in its own type before; it was added up
    and multiplied in DOUBLE. DECIMALs have the digits that DuckDB gives them. A day is compared
    with that of a text. Since version 3, days that no TIMESTAMP reaches are some days apart.
    """

    def __init__(self, writer: RowWriter) -> None:
        self._writer = writer

    def version(self, expression: RowExpression, *, added_up: bool = False) -> int:
        """Return the version since which an expression has its value."""
        if any(map(self._spans_days, nodes(expression))):
            return 3
        is_new = self.is_new_added_up if added_up else self.is_new
        return 2 if is_new(expression) else 1

    def _spans_days(self, node: RowExpression) -> bool:
        if not isinstance(node, RowCall) or node.function != "date_diff":
            return False
        return all(self._type(end) == DATE for end in node.arguments[1:])

    def is_new(self, expression: RowExpression) -> bool:
        """Whether an expression has another value; or may have, on rows with extreme ones."""
        if self._is_new(expression):
            return True
        # Whether what is added up is NaN is asked of it as it is added up.
        asks = isinstance(expression, RowCall) and expression.function in _OF_ADDED_UP
        return any(map(self.is_new_added_up if asks else self.is_new, parts(expression)))

    def is_new_added_up(self, expression: RowExpression) -> bool:
        """Whether a summand has another meaning now: its sums and products are in DOUBLE."""
        while isinstance(expression, RowCast) and expression.to == DOUBLE:
            if not self._type(expression.value).is_number:
                break
            expression = expression.value
        if not self._has_doubles(expression):
            return self.is_new(expression)
        if isinstance(expression, RowCase):
            conditions = any(self.is_new(holds) for holds, _ in expression.cases)
            return conditions or any(map(self.is_new_added_up, _results(expression)))
        within = parts(expression)
        if self._is_wide(expression) and any(map(self._has_doubles, within)):
            return True
        return any(map(self.is_new_added_up, within))

    def _is_new(self, node: RowExpression) -> bool:
        if isinstance(node, RowCast):
            return node.to == DOUBLE and self._was_in_doubles(node.value)
        if isinstance(node, RowCase):
            return self._is_shown_otherwise(_results(node))
        if not isinstance(node, RowCall):
            return False
        shape, operands = FUNCTIONS[node.function].shape, node.arguments
        if shape in {"comparison", "between", "membership", "nullif"}:
            return self._is_beside_day(operands)
        if shape in {"choice", "extreme"}:
            return self._is_shown_otherwise(operands)
        if shape == "addition":
            return self._has_other_digits(node)
        if shape in {"quotient", "remainder", "rounded"} and self._type(node) == FLOAT:
            return True
        if node.function == "%":
            return self._type(node) == DOUBLE and all(self._type(o).is_exact for o in operands)
        if shape == "rounded":
            return self._type(node).is_integer and self._writer.write(node).operation == "tried"
        return shape in {"quotient", "real"} and any(map(self._was_in_doubles, operands))

    def _type(self, node: RowExpression) -> RowType:
        return self._writer.write(node).type

    def _has_doubles(self, node: RowExpression) -> bool:
        """Whether `write_double` computes something in it in DOUBLE that it has in another type."""
        if self._type(node).name != "DECIMAL" and self._type(node) != HUGEINT:
            return False
        if isinstance(node, RowCase):
            return not any(map(is_text, parts(node)))
        return isinstance(node, RowCall) and node.function in _IN_DOUBLES

    def _was_in_doubles(self, node: RowExpression) -> bool:
        if isinstance(node, RowCase) and self._has_doubles(node):
            return any(map(self._was_in_doubles, _results(node)))
        return self._has_doubles(node)

    def _is_beside_day(self, alike: Sequence[RowExpression]) -> bool:
        """Whether a text with a time stands beside days."""
        texts = [node for node in alike if is_text(node)]
        others = [self._type(node) for node in alike if not is_text(node)]
        return common_type(others) == DATE and any(len(t.text.strip()) > 10 for t in texts)

    def _is_shown_otherwise(self, alike: Sequence[RowExpression]) -> bool:
        """Whether values are brought to one type that has lost digits, or a time."""
        types = [type_ for node in alike if (type_ := self._type(node)).is_exact]
        decimals = sum(type_.name == "DECIMAL" for type_ in types)
        if len(types) == len(alike) and decimals > 1:
            whole, scale = max(t.whole_digits for t in types), max(t.scale for t in types)
            return whole + scale > MOST_DIGITS
        return self._is_beside_day(alike)

    def _is_wide(self, node: RowExpression) -> bool:
        """Whether it is computed of a HUGEINT and a DECIMAL, which were brought to DOUBLE."""
        types = {self._type(part).name for part in parts(node)}
        return "HUGEINT" in types and "DECIMAL" in types

    def _has_other_digits(self, node: RowCall) -> bool:
        """Whether a sum, a difference or a product of DECIMALs has more digits now."""
        sides = [self._writer.write(part) for part in node.arguments]
        if any(side.type.is_time for side in sides):  # a difference of times is no value by itself
            return False
        if self._type(node).name != "DECIMAL" or len(node.arguments) != 2:
            return False
        if self._is_wide(node):
            return True
        # A constant beyond 32 bits has 19 digits to DuckDB.
        large = [side.limits for side in sides if side.operation == "constant" and side.limits]
        room = node.function == "*" or self._type(node).width < MOST_DIGITS
        if room and any(max(map(abs, limits)) >= 2**31 for limits in large):
            return True
        known, most = self._writer.write(node).digits, 10**18
        fits = known is not None and max(map(abs, known)) < most
        wide = self._type(node).width == 19 and self._type(node).scale < 18
        return node.function != "*" and wide and not fits


def _results(node: RowCase) -> list[RowExpression]:
    return [*(result for _, result in node.cases), node.otherwise]


# ── Regular expressions that may run on rows: those that are not too large for RE2 ───────────────
#
# RE2 matches in linear time, but each character may take as many steps as the pattern has parts
# when counted repetitions are written out, `a{3}` as `aaa`: 30 microseconds for one character with
# `(.{0,400}a){2}.{400}z`. Repetitions within repetitions multiply, so few characters are enough.


_COUNTED = re.compile(r"\{([0-9]*)(,?)([0-9]*)\}")
_ESCAPED = re.compile(r"\\(?:Q.*?(?:\\E|\Z)|[xpP]\{[^}]*\}|.|\Z)", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*(?:\]|\Z)", re.DOTALL)
_REPEATS = "*+?"
_MOST_COPIES = 100
_LONGEST_PATTERN = 1_000


def check_pattern(pattern: str, options: str) -> None:
    """Check that a regular expression may run on rows.

    Raises:
        UnsupportedSqlError: it is too large, or has options that aren't listed.
    """
    if len(pattern) > _LONGEST_PATTERN or set(options) - set("ceilmnps"):
        raise UnsupportedSqlError(
            f"A regular expression on rows has at most {_LONGEST_PATTERN} characters, and options "
            "of c, e, i, l, m, n, p and s.",
            hint="write several conditions, joined by OR.",
        )
    added = copies(pattern)
    if added > _MOST_COPIES:
        raise UnsupportedSqlError(
            f"The counted repetitions in this regular expression add {added} parts, and on rows "
            f"they may add at most {_MOST_COPIES}.",
            hint="write * or + for them, and compare length(…) where the number matters.",
        )


def copies(pattern: str) -> int:
    """Return how many parts the counted repetitions of a pattern add to it; never too few."""
    groups, last, added, place = [0], 0, 0, 0  # parts of each open group, and of what came last
    while place < len(pattern):
        counted = _COUNTED.match(pattern, place)
        part = counted or _ESCAPED.match(pattern, place) or _CLASS.match(pattern, place)
        sign = "" if part is not None else pattern[place]
        if counted is not None:
            low, more, high = counted.groups()
            times = max(int(low or 0) + bool(more and not high), int(high or 0), 1)
            groups[-1] += last * (times - 1)
            added += last * (times - 1)
            last *= times
        elif sign == "(":
            groups.append(0)
        elif sign == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif not sign or sign not in _REPEATS:
            last = 1
            groups[-1] += 1
        place = place + 1 if part is None else part.end()
    return added
