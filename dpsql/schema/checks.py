"""Domains from CHECK constraints, as DuckDB's catalog spells them.

Only constraints of one column against literals are understood; anything else says nothing, which
is safe: a column without a domain can't be used. So a field of a STRUCT is not taken for a column
of the same name, and texts under a collation are not taken for those that a list names.

All but strings are handled as integers: the decimals of a DECIMAL(p,s) times 10^s, and dates by
their number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpsql.errors import SchemaError
from dpsql.schema.domain import INTEGER_TYPES, NumberBounds, Value
from dpsql.schema.names import capitals, folded
from dpsql.schema.sequences import (
    FLOATS,
    MAX_DIGITS,
    DateRange,
    DecimalRange,
    decimal_scale,
    grid,
    has_digits,
    iso_date,
    type_range,
    within,
)

MAX_CHECK_CHARACTERS = 100_000
"""Longer constraints would take seconds to parse."""
MAX_CELLS = 1_000_000
"""A CHECK on numbers or dates may be a mere sanity check; this wide, it is not a domain. Numbers
have bounds by it, and statements cut their line where they ask."""

_EXACT_CASTS = (exp.DataType.INTEGER_TYPES | {exp.DType.DECIMAL}) - {exp.DType.BIT}
_FLOAT_CASTS = frozenset({exp.DType.DOUBLE, exp.DType.FLOAT})
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits that one constraint sets for a column: an interval, a finite list, or both."""

    low: int | Fraction | None = None
    """In the last digit of an exact type, a whole number."""
    high: int | Fraction | None = None
    values: tuple[int | str, ...] | None = None

    def __and__(self, other: _Limits) -> _Limits:
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        values = self.values if other.values is None else other.values
        if self.values is not None and other.values is not None:
            values = tuple(v for v in self.values if v in set(other.values))
        return _Limits(max(lows, default=None), min(highs, default=None), values)


_UNKNOWN = _Limits()


def values_from_checks(column: str, type_: str, checks: Sequence[str]) -> Sequence[Value] | None:
    """Return the values that CHECK constraints leave to a column.

    Args:
        column: the column's name.
        type_: its DuckDB type.
        checks: the text of the table's CHECK expressions.

    Returns:
        A sequence, labels in written and all else in ascending order; None if the constraints
        don't say, contradict each other, or leave more than `MAX_CELLS` numbers or dates.
    """
    if type_ == "VARCHAR":
        return _limits(column, type_, tuple(checks)).values or None
    if type_ in INTEGER_TYPES:
        low, high = type_range(type_)
        unsigned = _Limits(low=0) if low == 0 else _UNKNOWN
        integers = _integers(_limits(column, type_, tuple(checks)) & unsigned)
        fitting = None if integers is None else within(low, high, integers) or None
        return None if isinstance(fitting, range) and _is_wide(fitting) else fitting
    decimal = type_.startswith("DECIMAL(")
    if not decimal and type_ != "DATE":
        return None
    limits = _limits(column, type_, tuple(checks))
    numbers = _integers(limits)
    if numbers is None or _is_wide(numbers):
        return None
    return _decimals(numbers, type_) if decimal else _dates(numbers)


def _is_wide(numbers: Sequence[int]) -> bool:
    return numbers[-1] - numbers[0] >= MAX_CELLS


def bounds_from_checks(column: str, type_: str, checks: Sequence[str]) -> NumberBounds | None:
    """Return between what CHECK constraints keep numbers of any type; None if they don't say so.

    Bounds of a DOUBLE are the decimals that are written. DuckDB compares with the nearest doubles,
    which may lie just beyond: sums bring each value between the bounds anyway.
    """
    if not (type_ in INTEGER_TYPES | FLOATS | {"HUGEINT"} or type_.startswith("DECIMAL(")):
        return None
    limits, unit = _limits(column, type_, tuple(checks)), 10 ** decimal_scale(type_)
    if limits.low is None or limits.high is None:
        return None
    low, high = Fraction(limits.low) / unit, Fraction(limits.high) / unit
    short = max(abs(low), abs(high)) < 10**MAX_DIGITS and all(
        has_digits(end, MAX_DIGITS) for end in (low, high)
    )
    return NumberBounds(low, high) if low < high and short else None


def collated(definition: str, names: Iterable[str]) -> frozenset[str]:
    """Return which columns compare texts by another rule than byte by byte.

    Their CHECKs also let texts pass that they don't name.

    Args:
        definition: the CREATE TABLE statement, as the catalog spells it.
        names: the columns; all of them are returned if the statement isn't understood.
    """
    if "COLLATE" not in capitals(definition):
        return frozenset()
    columns: dict[str, exp.ColumnDef] = {}
    if len(definition) <= MAX_CHECK_CHARACTERS:
        with suppress(SqlglotError, RecursionError):
            table = sqlglot.parse_one(definition, read="duckdb").this
            parts = table.expressions if isinstance(table, exp.Schema) else ()
            columns = {part.name: part for part in parts if isinstance(part, exp.ColumnDef)}
    if columns.keys() != set(names):
        return frozenset(names)
    rule = exp.CollateColumnConstraint
    return frozenset(
        name
        for name, column in columns.items()
        if any(isinstance(constraint.kind, rule) for constraint in column.constraints)
    )


@lru_cache(maxsize=1024)
def _limits(column: str, type_: str, checks: tuple[str, ...]) -> _Limits:
    """Read constraints once, and not each time that a table is described or verified."""
    limits = _UNKNOWN
    for text in checks:
        limits = limits & _read(text, column, type_)
    return limits


def _integers(limits: _Limits) -> Sequence[int] | None:
    low, high = limits.low, limits.high
    if limits.values is None:
        if low is None or high is None or low > high:
            return None
        return range(int(low), int(high) + 1)
    kept = sorted(
        v
        for v in limits.values
        if isinstance(v, int) and (low is None or v >= low) and (high is None or v <= high)
    )
    if not kept:
        return None
    # Not len(range): a list may span more than the length that Python can hold.
    whole = kept[-1] - kept[0] + 1 == len(kept)
    return range(kept[0], kept[-1] + 1) if whole else tuple(kept)


def _decimals(numbers: Sequence[int], type_: str) -> DecimalRange | None:
    """Return evenly spaced decimals; others have no domain."""
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    if any(other - one != step for one, other in pairwise(numbers)):
        return None
    low, high, unit = numbers[0], numbers[-1], 10 ** decimal_scale(type_)
    if max(abs(low), abs(high)) >= 10**MAX_DIGITS:
        return None
    return grid(Fraction(low, unit), Fraction(high, unit), Fraction(step, unit))


def _dates(numbers: Sequence[int]) -> Sequence[date]:
    if isinstance(numbers, range):
        return DateRange(date.fromordinal(numbers[0]), len(numbers))
    return tuple(date.fromordinal(number) for number in numbers)


def _read(text: str, column: str, type_: str) -> _Limits:
    if len(text) > MAX_CHECK_CHARACTERS:
        return _UNKNOWN
    try:
        return _conjunction(_parsed(text), column, type_)
    except (SqlglotError, RecursionError):
        return _UNKNOWN  # a constraint that isn't understood gives no domain


@lru_cache(maxsize=256)
def _parsed(text: str) -> exp.Expr:
    """Parse a constraint once for all columns, and for the next time. The tree is only read."""
    return sqlglot.parse_one(text, read="duckdb")


def operands(node: exp.Expr, connector: type[exp.Expr]) -> list[exp.Expr]:
    """Flatten a chain of ANDs or ORs, without recursion because chains may be long."""
    parts, pending = [], [node]
    while pending:
        current = pending.pop()
        inner = current.unnest()
        if type(inner) is connector:
            pending += [inner.expression, inner.this]
        else:
            parts.append(current)
    return parts


def _constraint(node: exp.Expr, column: str, type_: str) -> _Limits:
    """Read one conjunct. A row may also pass by NULL, which is the domain's own NULL cell."""
    if isinstance(node, exp.Or):
        # x IS NULL OR …: a row passes by NULL anyway.
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            if _is_null_test(one.unnest(), column, type_):
                return _conjunction(other, column, type_)
        left = _constraint(node.this.unnest(), column, type_)
        right = _constraint(node.expression.unnest(), column, type_)
        if left.values is None or right.values is None:
            return _UNKNOWN
        return _Limits(values=tuple(dict.fromkeys(left.values + right.values)))
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        return _compare(exp.GTE, node.this, node.args["low"], column, type_) & _compare(
            exp.LTE, node.this, node.args["high"], column, type_
        )
    if isinstance(node, exp.In) and node.expressions:
        return _listed(node, column, type_)
    if type(node) in _FLIPPED:
        if _is_column(node.this, column, type_):
            return _compare(type(node), node.this, node.expression, column, type_)
        return _compare(_FLIPPED[type(node)], node.expression, node.this, column, type_)
    return _UNKNOWN


def _conjunction(node: exp.Expr, column: str, type_: str) -> _Limits:
    limits = _UNKNOWN
    for conjunct in (part.unnest() for part in operands(node, exp.And)):
        limits = limits & _constraint(conjunct, column, type_)
    return limits


def _is_null_test(node: exp.Expr, column: str, type_: str) -> bool:
    null = isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)
    return null and _is_column(node.this, column, type_)


def _listed(node: exp.In, column: str, type_: str) -> _Limits:
    if not _is_column(node.this, column, type_):
        return _UNKNOWN
    values = [_literal(item, type_) for item in node.expressions]
    if any(v is None for v in values):
        return _UNKNOWN
    if type_ in FLOATS:
        known = [v for v in values if isinstance(v, Fraction)]
        return _Limits(low=min(known), high=max(known))
    exact = [int(v) if isinstance(v, Fraction) else v for v in values if _storable(v)]
    return _Limits(values=tuple(dict.fromkeys(v for v in exact if v is not None)))


def _compare(
    operator: type[exp.Expr], left: exp.Expr, right: exp.Expr, column: str, type_: str
) -> _Limits:
    value = _literal(right, type_) if _is_column(left, column, type_) else None
    if value is None:
        return _UNKNOWN
    if type_ in FLOATS and isinstance(value, Fraction):
        # Of numbers that aren't whole, > and >= differ by nothing that matters to a sum.
        low = value if operator in {exp.GT, exp.GTE, exp.EQ} else None
        return _Limits(low, value if operator in {exp.LT, exp.LTE, exp.EQ} else None)
    if operator is exp.EQ and _storable(value):
        return _Limits(values=(int(value) if isinstance(value, Fraction) else value,))
    if not isinstance(value, Fraction):
        return _UNKNOWN
    if operator is exp.GTE:
        return _Limits(low=math.ceil(value))
    if operator is exp.GT:
        return _Limits(low=math.floor(value) + 1)
    if operator is exp.LTE:
        return _Limits(high=math.floor(value))
    return _Limits(high=math.ceil(value) - 1) if operator is exp.LT else _UNKNOWN


def _storable(value: Fraction | str | None) -> bool:
    """Tell whether a column can hold the value at all: no integer equals 4.5."""
    return not isinstance(value, Fraction) or value.denominator == 1


def _is_column(node: exp.Expr, column: str, type_: str) -> bool:
    """Recognize the column itself, also under casts that keep every value as it is."""
    node = node.unnest()
    while type(node) is exp.Cast:
        text = type_ == "VARCHAR" and node.to.this in exp.DataType.TEXT_TYPES
        number = type_ in INTEGER_TYPES and node.to.this in _EXACT_CASTS
        day = type_ == "DATE" and node.to.this == exp.DType.DATE
        double = type_ in FLOATS and node.to.this == exp.DType.DOUBLE
        if not (text or number or day or double):
            return False
        node = node.this.unnest()
    # A qualifier may be a STRUCT, of which this is a field.
    plain = isinstance(node, exp.Column) and not node.table
    return plain and folded(node.name) == folded(column)


def _literal(node: exp.Expr, type_: str) -> Fraction | str | None:
    """Read a literal, in the integers that stand for the column's values where it has such."""
    if type_ == "DATE":
        return _date_literal(node)
    value = _plain_literal(node, type_)
    return value * 10 ** decimal_scale(type_) if isinstance(value, Fraction) else value


def _plain_literal(node: exp.Expr, type_: str) -> Fraction | str | None:
    node = node.unnest()
    if isinstance(node, exp.Neg):
        value = _plain_literal(node.this, type_)
        return -value if isinstance(value, Fraction) else None
    if type(node) is exp.Cast:
        value = _plain_literal(node.this, type_)
        whole = isinstance(value, Fraction) and value.denominator == 1
        same = isinstance(value, str) and node.to.this in exp.DataType.TEXT_TYPES
        same = same or (type_ in FLOATS and node.to.this in _FLOAT_CASTS)
        return value if same or (whole and node.to.this in _EXACT_CASTS) else None
    if not isinstance(node, exp.Literal) or node.is_string != (type_ == "VARCHAR"):
        return None
    if node.is_string:
        return node.name
    digits = node.name.replace(".", "", 1)
    return Fraction(node.name) if digits.isascii() and digits.isdigit() else None


def _date_literal(node: exp.Expr) -> Fraction | None:
    """Read DATE '2026-01-31'. DuckDB takes a plain string for a date where it meets one."""
    node = node.unnest()
    while type(node) is exp.Cast and node.to.this == exp.DType.DATE:
        node = node.this.unnest()
    if not isinstance(node, exp.Literal) or not node.is_string:
        return None
    try:
        return Fraction(iso_date(node.name).toordinal())
    except SchemaError:
        return None
