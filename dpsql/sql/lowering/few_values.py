"""Few values of an expression, which are then its groups: by WHERE, or as a number is rounded.

Of a column without a domain nobody knows which groups there are. But `WHERE s IN ('a', 'b') GROUP
BY s` says it: only rows with one of these values count. In place of `s` the statement can have

    CASE WHEN s = 'a' THEN 'a' WHEN s = 'b' THEN 'b' END

which is the same for all rows that count, NULL for the others, and has known values.

And of numbers and times WHERE may say between which places they lie: `WHERE t >= '2024-01-01' AND
t < '2025-01-01' GROUP BY date_trunc('month', t)` has twelve groups.

Numbers that are rounded have few values, too, between public bounds.
`floor(price / 100)` has eleven values where the price is declared to lie between 0 and 1,000. That
may be untrue of a row: then it lies in the first or the last bucket, as a sum takes its nearer
bound. NULL and NaN have the cell of NULL.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.cuts import Cutter, Range, ends, has_places, number_at
from dpsql.rows.expression import (
    RowCall,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
    columns,
    nodes,
    ordered,
    spelled,
)
from dpsql.rows.key import RowKey, key_with
from dpsql.rows.known import KnownValues, RowBounds
from dpsql.rows.types import DOUBLE, VARCHAR, RowType, row_type
from dpsql.rows.write import RowWriter
from dpsql.schema import Table
from dpsql.sql.binding.core import Core, Within, expressions
from dpsql.sql.binding.expressions import BoundExpr, Expr, render
from dpsql.sql.lowering.stored_values import clamped

MOST_LISTED = 500
"""Values in a list. A range may have as many as a key can have."""
_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")


@dataclass(frozen=True, slots=True)
class Restricted:
    """An expression that a condition restricts to a list of values, or to a range."""

    condition: BoundExpr
    of: Expr
    values: tuple[Expr, ...]
    """Constants; of a range its two ends."""
    is_range: bool

    def replacement(self, type_: RowType) -> Expr | None:
        """Return what may stand for the expression; None if the constants are of another type.

        Args:
            type_: that of the expression.
        """
        texts = [value.is_string for value in self.values]
        good = all(texts) if type_ == VARCHAR else type_.is_number and not any(texts)
        if not good or (self.is_range and not type_.is_integer):
            return None
        to = exp.DataType.build(type_.sql, dialect="duckdb")
        if self.is_range:
            low, high = (value.copy() for value in self.values)
            inside = exp.Between(this=self.of.copy(), low=low, high=high)
            value = exp.Least(
                this=exp.Greatest(this=self.of.copy(), expressions=[low.copy()]),
                expressions=[high.copy()],
            )
            return exp.Case(ifs=[exp.If(this=inside, true=exp.Cast(this=value, to=to))])
        branches = [
            exp.If(
                this=exp.EQ(this=self.of.copy(), expression=value.copy()),
                true=exp.Cast(this=value.copy(), to=to.copy()),
            )
            for value in self.values
        ]
        return exp.Case(ifs=branches)


def restrictions(conditions: Iterable[BoundExpr]) -> dict[str, Restricted]:
    """Return for the SQL of each expression that is restricted the first condition that does so."""
    found: dict[str, Restricted] = {}
    for condition in conditions:
        restricted = _of(condition) if not condition.relations else None
        if restricted is not None:
            found.setdefault(render(restricted.of), restricted)
    return found


def ranges(conditions: Iterable[RowExpression], types: Mapping[str, str]) -> dict[str, Range]:
    """Return between which places columns lie where all of some conditions are true.

    Args:
        conditions: these conditions.
        types: the columns that are looked at, and their types.
    """
    limits: dict[str, Range] = {}
    for condition in conditions:
        for name in columns(condition) & types.keys():
            try:
                type_ = row_type(types[name])
            except UnsupportedSqlError:
                continue
            if has_places(type_):
                cutter = Cutter(RowColumn(name), type_)
                (low, high), (least, most) = (
                    cutter.extent(condition),
                    limits.get(name, cutter.everything),
                )
                limits[name] = max(low, least), min(high, most)
    return limits


def numbers(conditions: Iterable[RowExpression], types: Mapping[str, str]) -> Within:
    """Return between which numbers columns lie where all of some conditions are true.

    Args:
        conditions: these conditions.
        types: the columns that are looked at, and their types.
    """
    found = []
    for name, (first, after) in sorted(ranges(conditions, types).items()):
        type_ = row_type(types[name])
        least, most = ends(type_)
        low = _nearly(first, first - 1, type_) if least < first <= most else None
        high = _nearly(after - 1, after, type_) if least < after <= most else None
        if (low, high) != (None, None):
            found.append((name, (low, high)))
    return tuple(found)


def _nearly(end: int, beyond: int, type_: RowType) -> Fraction | None:
    """Return the number at the end of a range; of doubles the next one beyond, if that is short."""
    near = [number_at(where, type_) for where in (end, beyond)]
    if type_ != DOUBLE or None in near:
        return near[0]
    return min((number for number in near if number is not None), key=lambda n: n.denominator)


def with_row_conditions(core: Core, table: Table) -> Core:
    """Return a core whose conditions on cells are evaluated row by row, where that is the same.

    A column that is compared with constants, and nothing else, needs no cells of its own where rows
    are added up under a condition on columns without a domain: by many groups, cells that meet it
    and cells that don't would be twice as many. Nor need rows be left out that have no value of
    its domain: SQL sees NULL of these, of which such a condition isn't true.
    """
    rows = frozenset[str]().union(*(condition.by_row for condition in core.by_row))
    if rows <= table.columns.keys():
        return core
    others = [*core.keys, *core.by_row, *(c for r in core.relations for c in r.on)]
    others += [part for one in core.statistics for part in expressions(one)]
    others += [c for c in core.conjuncts if not _is_of_values(c, table)]
    used = frozenset[str]().union(*(part.attributes | part.by_row for part in others))
    moved = {
        c: replace(c, attributes=frozenset(), by_row=c.attributes)
        for c in core.conjuncts
        if _is_of_values(c, table) and c.attributes.isdisjoint(used)
    }
    return replace(
        core,
        conjuncts=tuple(c for c in core.conjuncts if c not in moved),
        by_row=(*core.by_row, *moved.values()),
        named=core.named.difference(*(c.by_row for c in moved.values())),
    )


def _is_of_values(condition: BoundExpr, table: Table) -> bool:
    """Whether a condition compares a column, each of whose cells is a value, with constants."""
    restricted = None if condition.relations or condition.by_row else _of(condition)
    if restricted is None or not isinstance(restricted.of, exp.Column):
        return False
    domains = [table.columns[name] for name in condition.attributes]
    return not any(d.coarse or d.instant or d.other is not None for d in domains)


def _of(condition: BoundExpr) -> Restricted | None:
    node = condition.node.unnest()
    if isinstance(node, exp.In) and node.expressions and node.args.get("query") is None:
        of, values, is_range = node.this, tuple(node.expressions), False
    elif isinstance(node, exp.EQ):
        sides = [node.this.unnest(), node.expression.unnest()]
        constants = [side for side in sides if _is_constant(side)]
        if len(constants) != 1:
            return None
        (of,) = (side for side in sides if side is not constants[0])
        values, is_range = (constants[0],), False
    elif isinstance(node, exp.Between):
        of, values, is_range = node.this, (node.args["low"], node.args["high"]), True
    else:
        return None
    if not is_range:  # NULL is equal to nothing
        listed = {render(value): value for value in values if not isinstance(value, exp.Null)}
        values = tuple(listed.values())
    if not values or not all(map(_is_constant, values)) or len(values) > MOST_LISTED:
        return None
    return Restricted(condition, of.unnest(), values, is_range)


def _is_constant(node: Expr) -> bool:
    """Whether a node is a string or a number without an exponent."""
    if isinstance(node, exp.Neg):
        return isinstance(node.this, exp.Literal) and bool(_NUMBER.fullmatch(node.this.name))
    return isinstance(node, exp.Literal) and (node.is_string or bool(_NUMBER.fullmatch(node.name)))


# ── Numbers that are rounded, between public bounds ──


MOST_BUCKETS = 10_000
_EXACT = 2**53
"""Whole numbers up to which doubles have all."""
_MOST_DIGITS = 15
_TO_WHOLE = frozenset({"floor", "ceil", "trunc", "round"})


def bucket_key(
    expression: RowExpression, types: Mapping[str, str], bounds: RowBounds
) -> RowKey | None:
    """Make a key of a number that is rounded.

    Its values are whole multiples of what it is rounded to, between its bounds, because it is
    brought between these. So the proof of `rows.key` holds, be the bounds true or not.

    Args:
        expression: what is computed of a row.
        types: the columns' types.
        bounds: what is known of the columns.

    Returns:
        None if it isn't rounded, has no bounds or too many values; or if something in it is
        rounded to fewer, of which the rest can be computed.

    Raises:
        UnsupportedSqlError: the expression can't be written.
    """
    writer = RowWriter(types)
    values = _values(expression, writer, bounds)
    if values is None:
        return None
    read = columns(expression)  # a part that reads fewer doesn't tell the rest
    parts = (part for part in nodes(expression) if part != expression and columns(part) == read)
    inner = (_values(part, writer, bounds) for part in parts)
    if any(found is not None and len(found) < len(values) for found in inner):
        return None
    type_ = writer.write(expression).type
    least, most = (RowConstant("INTEGER", str(end)) for end in (values[0], values[-1]))
    inside = clamped(expression, least, most, floats=type_.is_float)
    known = KnownValues(tuple(values), type_, nullable=True)
    return key_with(inside, known, types, spelled(expression))


def _values(node: RowExpression, writer: RowWriter, bounds: RowBounds) -> range | None:
    unit = _unit(node, writer)
    if unit is None:
        return None
    quotient = None
    if isinstance(node, RowCall) and node.function == "//":
        quotient = RowCall("/", node.arguments)
    low, high = bounds.of(ordered(quotient or node))
    if low is None or high is None or low > high or max(-low, high) >= _EXACT:
        return None
    if quotient is not None:  # it loses its fraction, so it comes nearer to zero
        low, high = Fraction(math.trunc(low)), Fraction(math.trunc(high))
    values = range(math.floor(low / unit) * unit, math.ceil(high / unit) * unit + 1, unit)
    return values if len(values) <= MOST_BUCKETS else None


def _unit(node: RowExpression, writer: RowWriter) -> int | None:
    """Return of what an expression is a whole multiple, because it is rounded to one."""
    if isinstance(node, RowCast):
        return 1 if node.to.is_integer else None
    if not isinstance(node, RowCall):
        return None
    if node.function in {"//", "-", "date_diff", "date_part", "least", "greatest"}:
        # Which may leave no fraction; `greatest` is what SQL sees of a number of rows.
        return 1 if writer.write(node).type.is_integer else None
    if node.function not in _TO_WHOLE:
        return None
    digits = node.arguments[1] if len(node.arguments) == 2 else RowConstant("INTEGER", "0")
    if not isinstance(digits, RowConstant) or digits.kind != "INTEGER" or int(digits.text) > 0:
        return None
    return int(10 ** min(-int(digits.text), _MOST_DIGITS))
