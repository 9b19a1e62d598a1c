"""The meaning of relations, in Python: [R](u) from the stored rows of one unit, and no SQL.

It follows the definitions of `dpsql/rel/nodes.py` node by node, and knows neither the writer nor a
database. Ties that the line of a relation leaves are broken at random: whatever is returned must
not depend on that.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cmp_to_key
from typing import Any

from dpsql.rel.facts import Known, columns_of_rows, kinds_of_columns
from dpsql.rel.keys import meets_one
from dpsql.rel.nodes import (
    ONLY,
    Agg,
    Bound,
    CellsOf,
    Filter,
    Group,
    GroupJoin,
    Join,
    NodeVisitor,
    Project,
    Public,
    Relation,
    Scan,
    Union,
    Window,
)
from dpsql.rows.expression import (
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
)
from dpsql.rows.windows import SHARES, WindowCall

Value = Any
Values = Mapping[str, Value]
_PRIME = 2**31 - 1


@dataclass(frozen=True)
class Row:
    """A row: its columns, where it stands in line, and its places there, if it has some.

    It is placed if no other row of the unit stands where it does.
    """

    values: Values
    line: tuple[Value, ...]
    places: tuple[Value, ...] = ()
    is_placed: bool = False


class Meaning(NodeVisitor[list[Row]]):
    """[R](u) for one unit.

    Args:
        stored: the rows of the unit in each table, by its name.
        unit: the unit's id, as text.
        rng: breaks ties.
    """

    def __init__(
        self, stored: Mapping[str, Sequence[Values]], unit: str, rng: random.Random
    ) -> None:
        self._stored, self._unit, self._rng = stored, unit, rng
        self._known = Known()

    def rows(self, relation: Relation) -> list[Values]:
        return [row.values for row in self.visit(relation)]

    def _scan(self, node: Scan) -> list[Row]:
        found = []
        own = columns_of_rows(node.source, node.prefix)
        for row in self._stored[node.source.table.name]:
            values, at = {id_: row[name] for id_, name in own.items()}, row
            line = _told(values.values())
            unit = node.source.table.unit
            assert unit is not None
            for (source, prefix), step in zip(node.along, unit.joins, strict=False):
                below = self._stored[source.table.name]
                (at,) = (other for other in below if other[step.key] == at[step.column])
                values |= {id_: at[name] for id_, name in columns_of_rows(source, prefix).items()}
            found.append(Row(values, line))
        return found

    def _public(self, node: Public) -> list[Row]:
        names = [name for name, _ in node.columns]
        rows = [dict(zip(names, map(_constant, row), strict=True)) for row in node.rows]
        return [Row(row, _told(row.values())) for row in rows]

    def _filter(self, node: Filter) -> list[Row]:
        return [row for row in self.visit(node.of) if value(node.where, row.values) is True]

    def _project(self, node: Project) -> list[Row]:
        found = []
        for row in self.visit(node.of):
            made = {name: value(of, row.values) for name, of in node.columns}
            line = row.line if row.is_placed else (*row.places, *_told(made.values()))
            found.append(Row(made, line, row.places, row.is_placed))
        return found

    def _join(self, node: Join) -> list[Row]:
        found, right = list[Row](), self.visit(node.right)
        empty = dict.fromkeys(self._known.of(node.right).columns)
        for row in self.visit(node.left):
            met = [other for other in right if _holds(node.on, row, other)]
            if not met and node.kind == "left":
                kinds, count, _ = self._shape(node.right)
                line, places = (((0,),) * n for n in (len(kinds), count))
                met = [Row(empty, line, places)]
            for other in met:
                both = {**row.values, **other.values}
                if meets_one(node, self._known):
                    found.append(Row(both, row.line, row.places, row.is_placed))
                    continue
                places = (*row.places, *other.places)
                placed = row.is_placed and self._shape(node.right)[2]
                found.append(Row(both, self._paired(node, row, other), places, placed))
        return found

    def _paired(self, node: Join, row: Row, other: Row) -> tuple[Value, ...]:
        """Return the line of a pair: first all that has a domain, then what expressions read."""
        kinds = (*self._shape(node.left)[0], *self._shape(node.right)[0])
        pairs = zip(kinds, (*row.line, *other.line), strict=True)
        return tuple(key for _, key in sorted(pairs, key=lambda pair: pair[0]))

    def _group_join(self, node: GroupJoin) -> list[Row]:
        found, right = list[Row](), self.visit(node.right)
        for row in self.visit(node.left):
            met = [{**row.values, **other.values} for other in right if _holds(node.on, row, other)]
            adds = {name: aggregate(agg, met) for name, agg in node.adds}
            found.append(Row({**row.values, **adds}, row.line, row.places, row.is_placed))
        return found

    def _window(self, node: Window) -> list[Row]:
        rows = self.visit(node.of)
        if any(call.lined for _, call in node.adds):
            rows = [
                row
                if row.is_placed
                else Row(row.values, ((1, place),), ((1, place),), is_placed=True)
                for place, row in enumerate(self._in_line(rows))
            ]
        made = [dict(row.values) for row in rows]
        for name, call in node.adds:
            for adds, each in zip(made, self._windowed(call, rows), strict=True):
                adds[name] = each
        pairs = zip(made, rows, strict=True)
        return [Row(adds, row.line, row.places, row.is_placed) for adds, row in pairs]

    def _group(self, node: Group) -> list[Row]:
        groups = dict[tuple[Value, ...], list[Values]]()
        for row in self.visit(node.of):
            key = tuple(value(of, row.values) for _, of in node.keys)
            groups.setdefault(key, []).append(row.values)
        found = []
        for key, rows in groups.items():
            shown = dict(zip((name for name, _ in node.keys), key, strict=True))
            shown |= {name: aggregate(agg, rows) for name, agg in node.adds}
            found.append(Row(shown, _told(key)))
        return found

    def _union(self, node: Union) -> list[Row]:
        rows = (row.values for part in node.parts for row in self.visit(part))
        named = [dict(zip(node.columns, row.values(), strict=True)) for row in rows]
        return [Row(row, _told(row.values())) for row in named]

    def _bound(self, node: Bound) -> list[Row]:
        """Keep so many of those in the same cells, by one limit after the other, and of all."""
        rows = self.visit(node.of)
        for limit in node.limits:
            alike = dict[tuple[int, ...], list[Row]]()
            for row in rows:
                cells = tuple(_cell(one, row.values[one.column]) for one in limit.cells)
                alike.setdefault(cells, []).append(row)
            rows = [
                row
                for cells, those in alike.items()
                for row in self._kept(those, limit.rows, self._within(cells))
            ]
        return self._kept(rows, node.rows, self._unit)

    def _within(self, cells: tuple[int, ...]) -> str:
        """Return the text of what the rows of the unit in some cells have in common."""
        strange = "\\" in self._unit
        id_ = f"'{self._unit}'".replace("\\", "\\\\") if strange else self._unit
        return f"({', '.join(map(str, (id_, *cells)))})"

    def _kept(self, rows: list[Row], k: int, text: str) -> list[Row]:
        """Keep one row of each of k stretches of the ring that the line is closed to."""
        rows, n = self._in_line(rows), len(rows)
        if n <= k:
            return rows
        number = int.from_bytes(hashlib.md5(text.encode()).digest(), "little")  # noqa: S324
        s, a, b = (number & (2**62 - 1)) % n, number >> 64 & _PRIME, number >> 96 & _PRIME
        kept = []
        for place, row in enumerate(rows):
            turned = (place + s) % n
            stretch = turned * k // n
            first, after = (-(-j * n // k) for j in (stretch, stretch + 1))
            if turned == first + (a * stretch + b) % _PRIME % (after - first):
                kept.append(row)
        return kept

    def _shape(self, node: Relation) -> tuple[tuple[int, ...], int, bool]:
        """Return the kinds of a line's keys, how many are places; whether it is placed."""
        match node:
            case Scan():
                return (*kinds_of_columns(node.source, node.prefix).values(),), 0, False
            case Public() | Union():
                return (0,) * len(self._known.of(node).columns), 0, False
            case Group():
                return (0,) * len(node.keys), 0, False
            case Join() if meets_one(node, self._known):
                return self._shape(node.left)
            case Join():
                (a, p, x), (b, q, y) = self._shape(node.left), self._shape(node.right)
                return tuple(sorted(a + b)), p + q, x and y
            case GroupJoin():
                return self._shape(node.left)
            case Project():
                line, places, placed = self._shape(node.of)
                return (line if placed else (0,) * (places + len(node.columns))), places, placed
            case Window() if any(call.lined for _, call in node.adds):
                line, places, placed = self._shape(node.of)
                return (line, places, True) if placed else ((0,), 1, True)
            case _:
                return self._shape(node.of)

    def _in_line(self, rows: Iterable[Row]) -> list[Row]:
        shuffled = self._rng.sample([*rows], len([*rows]))
        return sorted(shuffled, key=lambda row: row.line)

    def _windowed(self, call: WindowCall, rows: Sequence[Row]) -> list[Value]:
        """Compute a window for each row."""
        seen = [call.holds is None or value(call.holds, row.values) is True for row in rows]
        parts = dict[tuple[Value, ...], list[int]]()
        for i, row in enumerate(rows):
            if seen[i]:
                told = tuple(row.values[name] for name, _ in call.told)
                part = (*told, *(value(of, row.values) for of in call.partition))
                parts.setdefault(part, []).append(i)
        found = [_of_none(call)] * len(rows)
        for members in parts.values():
            ordered = self._ordered(call, [rows[i] for i in members])
            at = {id(row): i for i, row in zip(members, (rows[i] for i in members), strict=True)}
            for place, row in enumerate(ordered):
                found[at[id(row)]] = _window_value(call, ordered, place)
        return found

    def _ordered(self, call: WindowCall, rows: list[Row]) -> list[Row]:
        if not call.lined:
            rows = self._rng.sample(rows, len(rows))
        else:
            rows = sorted(rows, key=lambda row: row.line)
        return sorted(rows, key=cmp_to_key(lambda a, b: _compared(call, a, b)))


def _told(values: Iterable[Value]) -> tuple[Value, ...]:
    """Return keys that agree only if values are the same; NULL is first."""
    return tuple(_key(each) for each in values)


def _key(each: Value) -> tuple[Value, ...]:
    if each is None:
        return (0,)
    if isinstance(each, float):
        return 1, each, math.copysign(1, each) < 0
    return 1, each.encode() if isinstance(each, str) else each


def _holds(on: RowExpression | None, row: Row, other: Row) -> bool:
    return on is None or value(on, {**row.values, **other.values}) is True


def _compared(call: WindowCall, a: Row, b: Row) -> int:
    """Compare two rows by what is ordered by."""
    for one in call.order:
        x, y = value(one.value, a.values), value(one.value, b.values)
        if x is None or y is None:
            if (x is None) != (y is None):
                return -1 if (x is None) == one.nulls_first else 1
            continue
        x, y = (each.encode() if isinstance(each, str) else each for each in (x, y))
        if x != y:
            return -1 if (x < y) != one.descending else 1
    return 0


def _of_none(call: WindowCall) -> Value:
    """Return what a window is of a row that it doesn't see."""
    if call.function in {"count", "count_distinct"}:
        return 0
    return 1 if call.function in {"row_number", "rank", "dense_rank", "ntile"} else None


def _window_value(call: WindowCall, rows: Sequence[Row], place: int) -> Value:
    """Return what a window is for the row at a place among the rows of its part, in order."""
    peers = [i for i, row in enumerate(rows) if not _compared(call, row, rows[place])]
    first, last = peers[0], peers[-1]
    function, n = call.function, len(rows)
    if function == "row_number":
        return place + 1
    if function == "rank":
        return first + 1
    if function == "dense_rank":
        return 1 + sum(_compared(call, rows[i], rows[i + 1]) != 0 for i in range(first))
    if function in SHARES:
        return (last + 1) / n if function == "cume_dist" else first / (n - 1) if n > 1 else 0.0
    if function in {"lag", "lead"}:
        (away,) = call.numbers or (1,)
        at = place - away if function == "lag" else place + away
        default = value(call.arguments[1], rows[place].values) if call.arguments[1:] else None
        return value(call.arguments[0], rows[at].values) if 0 <= at < n else default
    start, end = _frame(call, place, first, last, n)
    framed = [row.values for row in rows[max(start, 0) : max(end + 1, 0)]]
    if function == "first_value":
        return value(call.arguments[0], framed[0]) if framed else None
    if function == "last_value":
        return value(call.arguments[0], framed[-1]) if framed else None
    return aggregate(Agg(function, next(iter(call.arguments), None)), framed)


def _frame(call: WindowCall, place: int, first: int, last: int, n: int) -> tuple[int, int]:
    if call.frame is None:
        return 0, n - 1
    start, end = call.frame.start, call.frame.end
    at = (place, place) if call.frame.rows else (first, last)
    return 0 if start is None else at[0] + start, n - 1 if end is None else at[1] + end


def aggregate(agg: Agg, rows: Sequence[Values]) -> Value:
    """Compute an aggregate of rows."""
    met = [row for row in rows if agg.where is None or value(agg.where, row) is True]
    if agg.function == ONLY and agg.value is not None:
        return value(agg.value, met[0]) if len(met) == 1 else None
    if agg.function == "exists":
        return bool(met)
    if agg.value is None:
        return len(met)
    there = [each for row in met if (each := value(agg.value, row)) is not None]
    if agg.function in {"count", "count_distinct"}:
        return len({*there} if agg.function == "count_distinct" else there)
    if not there:
        return None
    by_bytes = [each.encode() if isinstance(each, str) else each for each in there]
    match agg.function:
        case "sum":
            return sum(there)
        case "avg":
            return float(Fraction(sum(there)) / len(there))
        case "min":
            return there[by_bytes.index(min(by_bytes))]
        case "max":
            return there[by_bytes.index(max(by_bytes))]
        case "bool_and":
            return all(there)
        case "bool_or":
            return any(there)
    raise AssertionError(agg.function)


def value(expression: RowExpression, row: Values) -> Value:
    """Compute an expression of a row."""
    match expression:
        case RowColumn():
            return row[expression.name]
        case RowConstant():
            return _constant(expression)
        case RowCase():
            for holds, result in expression.cases:
                if value(holds, row) is True:
                    return value(result, row)
            return value(expression.otherwise, row)
        case RowCast():
            return value(expression.value, row)
        case RowCall():
            return _called(expression.function, [value(a, row) for a in expression.arguments])


def _called(function: str, given: list[Value]) -> Value:
    match function:
        case "and":
            return False if False in given else None if None in given else True
        case "or":
            return True if True in given else None if None in given else False
        case "is_null":
            return given[0] is None
    if None in given:
        return None
    first, *others = given
    return {
        "not": lambda: not first,
        "=": lambda: first == others[0],
        "<>": lambda: first != others[0],
        "<": lambda: first < others[0],
        ">=": lambda: first >= others[0],
        "<=": lambda: first <= others[0],
        "+": lambda: first + others[0],
        "//": lambda: None if others[0] == 0 else math.trunc(Fraction(first, others[0])),
    }[function]()


def _constant(constant: RowConstant) -> Value:
    match constant.kind:
        case "NULL":
            return None
        case "BOOLEAN":
            return constant.text == "true"
        case "INTEGER":
            return int(constant.text)
        case _:
            return constant.text


def _cell(cells: CellsOf, value: Value) -> int:
    """Return the number of a value's cell; the last is of all others."""
    values = [*cells.domain.values]
    return values.index(value) if value in values else len(values)
