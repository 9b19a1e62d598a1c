"""The values that an expression can have at all, where it says so itself.

Comparisons are true or false, an hour is one of 24 numbers, CASE has the results that are written
in it. Such an expression is a key with a known domain, though its columns have none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import DpsqlError
from dpsql.rows.bounds import Interval, RowBounds, common
from dpsql.rows.expression import (
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
)
from dpsql.rows.functions import DAYS, MONTHS, of_shapes
from dpsql.rows.known import is_nullable, is_whole, may_be_nan
from dpsql.rows.types import BOOLEAN, RowType, is_integer, row_type
from dpsql.rows.write import RowWriter

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
    found: dict[str, Interval] = {}
    for name, declared in types.items():
        try:
            type_ = row_type(declared)
        except DpsqlError:
            continue
        if type_.limits is not None:
            found[name] = (Fraction(type_.limits[0]), Fraction(type_.limits[1]))
        elif type_ == BOOLEAN:
            found[name] = (Fraction(0), Fraction(1))
        elif type_.name == "DECIMAL":
            end = Fraction(10**type_.width - 1, 10**type_.scale)
            found[name] = (-end, end)
    return found


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
    found = _Finder(RowBounds(type_bounds(types), filled), integers, types).of(expression)
    if found is None or len(found) > MOST_VALUES:
        return None
    ordered = tuple(sorted(found, key=lambda value: (str(type(value)), value)))
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
            return _of_constant(node)
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
        found: set[Value] = set()
        for node in nodes:
            values = self.of(node)
            if values is None or len(found) > MOST_VALUES:
                return None
            found |= values
        return frozenset(found)

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


def _of_constant(node: RowConstant) -> frozenset[Value] | None:
    if node.kind == "NULL":
        return frozenset()
    if node.kind == "BOOLEAN":
        return frozenset({node.text == "true"})
    if node.kind == "INTEGER":
        return frozenset({int(node.text)})
    if node.kind == "DECIMAL":
        return frozenset({Fraction(node.text)})
    return frozenset({node.text}) if node.kind == "VARCHAR" else None
