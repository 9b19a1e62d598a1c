"""Conditions on the place of a row among n sorted ones, and the share of the rows that they tell.

`place < 0.25 * n` tells a quarter of the rows from the others, and `place IN (FLOOR((n + 1) / 2),
CEIL((n + 1) / 2))` the middle ones. The sides of such a comparison are linear in the place and in
n, up to rounding, and so meet where the place is a fixed share of n: that is read off one very
large n. Which rows the whole condition selects is tried out for all small n, with numbers as DuckDB
computes them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from itertools import chain

from sqlglot import exp

Expr = exp.Expr
Number = Callable[[int, int], Fraction]
"""The value of an expression for a row at a place, from 1, among n."""
Condition = Callable[[int, int], bool]
"""Whether a condition is true for it."""

_MOST = 1000
"""Parts of a condition that are worth trying out."""
_FAR = 10**12
_TRIED = (*range(1, 25), 60, 97, 100)
_BEYOND = 25
"""Rows beyond a share of them at which a condition may change, for that to be seen."""
_COMPARISONS: dict[type[Expr], Callable[[Fraction, Fraction], bool]] = {
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
}


class PlaceKind(Enum):
    """Windows over sorted rows that tell where a row stands."""

    NUMBER = "how many rows there are"
    PLACE = "row_number"
    RANK = "rank"
    PERCENT_RANK = "percent_rank"
    CUME_DIST = "cume_dist"
    UP_TO = "how many rows are before it or equal"
    NTILE = "ntile"


class Pick(Enum):
    """Whose value is taken of the rows that are selected."""

    FIRST = "first"
    LAST = "last"
    EACH = "each"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A window that counts places, as an operand of a condition."""

    counted: PlaceKind
    parts: int = 1
    """Into so many parts NTILE divides the rows."""

    def at(self, place: int, number: int) -> Fraction:
        """Return its value for a row, if no two rows are equal."""
        if self.counted is PlaceKind.NUMBER:
            return Fraction(number)
        if self.counted is PlaceKind.PERCENT_RANK:
            return Fraction(place - 1, max(number - 1, 1))
        if self.counted is PlaceKind.CUME_DIST:
            return Fraction(place, number)
        if self.counted is PlaceKind.NTILE:
            size, longer = divmod(number, self.parts)
            if place <= longer * (size + 1):
                return Fraction((place - 1) // (size + 1) + 1)
            return Fraction((place - 1 - longer) // size + 1)
        return Fraction(place)


class UnreadableError(Exception):
    """A condition is about something else than places."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows that a condition selects by their places.

    Args:
        places: those of the rows that are selected, for each number of rows that is tried.
        shares: of the rows, where comparisons meet.
        leaves: the windows that it looks at.
    """

    places: dict[int, list[int]]
    shares: tuple[Fraction, ...]
    leaves: frozenset[Leaf]

    @property
    def slack(self) -> Fraction:
        """The rows by which the written place may be away from the quantile's.

        The first parts of NTILE are longer by one row, so the k-th of m begins up to m/4 rows
        later than at (k - 1)/m of n.
        """
        divided = [leaf.parts for leaf in self.leaves if leaf.counted is PlaceKind.NTILE]
        return 1 + Fraction(max(divided, default=0), 4)

    def share(self, pick: Pick) -> Fraction | None:
        """Return p for which the value that is picked is the quantile for p; None if there is none.

        Of n rows the quantile is the ⌈p n⌉-th. Where nothing is selected it's because that lies
        before the first row, or after the last one.

        Equal rows have equal RANK and CUME_DIST: so the last row that isn't after a place has the
        value of that place by RANK, and the first row that isn't before it by CUME_DIST.
        """
        tied = {PlaceKind.RANK, PlaceKind.PERCENT_RANK}, {PlaceKind.CUME_DIST, PlaceKind.UP_TO}
        for refused, wrong in zip(tied, (Pick.FIRST, Pick.LAST), strict=True):
            if any(leaf.counted in refused for leaf in self.leaves) and pick in {wrong, Pick.EACH}:
                return None
        return next((p for p in self.shares if self._picks(p, pick)), None)

    def _picks(self, share: Fraction, pick: Pick) -> bool:
        return all(self._near(share, pick, number) for number in self.places)

    def _near(self, share: Fraction, pick: Pick, number: int) -> bool:
        due = max(1, math.ceil(share * number))
        places = self.places[number]
        if not places:
            return due - self.slack < 1 or due + self.slack > number
        if pick is Pick.EACH and len(places) > 2:
            return False
        picked = {Pick.FIRST: places[:1], Pick.LAST: places[-1:]}.get(pick, places)
        return all(abs(place - due) <= self.slack for place in picked)

    @property
    def always_one(self) -> bool:
        """Whether one row is selected, however many there are."""
        return all(len(places) == 1 for places in self.places.values())

    @property
    def in_the_middle(self) -> bool:
        """Whether the row in the middle is selected, or the two rows there."""
        both = {n: sorted({(n + 1) // 2, n // 2 + 1}) for n in self.places}
        return self.places == both


def selection(condition: Expr, leaf: Callable[[Expr], Leaf | None]) -> Selection:
    """Read a condition on places.

    Args:
        condition: the condition.
        leaf: says which window a part of it is.

    Raises:
        UnreadableError: it's about something else.
    """
    reader = _PlacesReader(leaf)
    function = reader.condition(condition)
    reader.check_tried()
    shares = dict.fromkeys(p for p in reader.shares() if 0 <= p <= 1)
    places = {n: [i for i in range(1, n + 1) if function(i, n)] for n in _TRIED}
    return Selection(places, tuple(shares), frozenset(reader.leaves))


class _PlacesReader:
    """Turns a condition into a function of a place and the number of rows."""

    def __init__(self, leaf: Callable[[Expr], Leaf | None]) -> None:
        self._leaf, self._left = leaf, _MOST
        self.leaves: set[Leaf] = set()
        self._sides: list[tuple[Number, Number]] = []

    def shares(self) -> Iterator[Fraction]:
        """Yield where the sides of each comparison are equal, as a share of n."""
        for one, other in self._sides:
            yield from _meeting(one, other)
        for leaf in self.leaves:
            yield from (Fraction(k, leaf.parts) for k in range(leaf.parts + 1) if leaf.parts > 1)

    def check_tried(self) -> None:
        """Make sure that what is tried for small numbers of rows holds for all of them.

        Sides meet at a share of the rows and so many rows beyond it; if these are no more than are
        tried, as of `place < 5000` they aren't, both are seen to. Nor may what doesn't depend on
        the place at all, such as `n > 5000`, change beyond.

        Raises:
            UnreadableError: it may not hold.
        """
        for one, other in self._sides:
            with suppress(ZeroDivisionError):
                near, far = (_crossing(one, other, n) for n in (_FAR, 2 * _FAR))
                if near is not None and far is not None and abs(2 * near - far) > _BEYOND:
                    raise UnreadableError
                signs = {(one(1, n) > other(1, n)) for n in (max(_TRIED), _FAR)}
                if near is None and len(signs) > 1:
                    raise UnreadableError

    def condition(self, node: Expr) -> Condition:
        node = self._counted(node)
        if isinstance(node, exp.And | exp.Or):
            parts = [self.condition(part) for part in node.flatten()]
            every = all if isinstance(node, exp.And) else any
            return lambda i, n: every(part(i, n) for part in parts)
        if isinstance(node, exp.Not):
            inner = self.condition(node.this)
            return lambda i, n: not inner(i, n)
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low = self._compared(exp.GTE, node.this, node.args["low"])
            high = self._compared(exp.LTE, node.this, node.args["high"])
            return lambda i, n: low(i, n) and high(i, n)
        if isinstance(node, exp.In) and node.expressions:
            one_of = [self._compared(exp.EQ, node.this, value) for value in node.expressions]
            return lambda i, n: any(equal(i, n) for equal in one_of)
        if type(node) in _COMPARISONS:
            return self._compared(type(node), node.this, node.expression)
        raise UnreadableError

    def _compared(self, kind: type[Expr], one: Expr, other: Expr) -> Condition:
        left, right, holds = self._number(one), self._number(other), _COMPARISONS[kind]
        self._sides.append((left, right))
        return lambda i, n: holds(left(i, n), right(i, n))

    def _counted(self, node: Expr) -> Expr:
        self._left -= 1
        if self._left < 0:
            raise UnreadableError
        unnested: Expr = node.unnest()
        return unnested

    def _number(self, node: Expr) -> Number:
        node = self._counted(node)
        leaf = self._leaf(node)
        if leaf is not None:
            self.leaves.add(leaf)
            return leaf.at
        if isinstance(node, exp.Literal) and not node.is_string:
            value = Fraction(node.name)
            return lambda i, n: value
        if isinstance(node, exp.Neg):
            inner = self._number(node.this)
            return lambda i, n: -inner(i, n)
        if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.IntDiv | exp.Mod):
            return self._computed(node)
        return self._rounded(node)

    def _computed(self, node: exp.Binary) -> Number:
        left, right = self._number(node.this), self._number(node.expression)
        if isinstance(node, exp.Add):
            return lambda i, n: left(i, n) + right(i, n)
        if isinstance(node, exp.Sub):
            return lambda i, n: left(i, n) - right(i, n)
        if isinstance(node, exp.Mul):
            return lambda i, n: left(i, n) * right(i, n)
        if not isinstance(node.expression.unnest(), exp.Literal) and not self._is_number(
            node.expression
        ):
            raise UnreadableError  # it may be 0
        if isinstance(node, exp.Div):
            return lambda i, n: left(i, n) / right(i, n)
        if isinstance(node, exp.IntDiv):
            return lambda i, n: Fraction(math.trunc(left(i, n) / right(i, n)))
        return lambda i, n: left(i, n) % right(i, n)

    def _is_number(self, node: Expr) -> bool:
        inner = node.unnest()
        while isinstance(inner, exp.Cast | exp.Mul) or _adds_literal(inner):  # n::DOUBLE, n + 1
            inner = inner.this.unnest()
        leaf = self._leaf(inner)
        return leaf is not None and leaf.counted is PlaceKind.NUMBER

    def _rounded(self, node: Expr) -> Number:
        if isinstance(node, exp.TryCast):
            raise UnreadableError
        inner = self._number(node.this) if isinstance(node.this, Expr) else None
        if inner is None or node.args.get("decimals") not in {None, exp.Literal.number(0)}:
            raise UnreadableError
        if isinstance(node, exp.Cast):
            return self._cast(node, inner)
        if isinstance(node, exp.Floor | exp.Trunc):
            return lambda i, n: Fraction(math.floor(inner(i, n)))
        if isinstance(node, exp.Ceil):
            return lambda i, n: Fraction(math.ceil(inner(i, n)))
        if isinstance(node, exp.Round):
            return lambda i, n: Fraction(_away(inner(i, n)))
        raise UnreadableError

    def _cast(self, node: exp.Cast, inner: Number) -> Number:
        kind = node.to.this
        if kind in exp.DataType.INTEGER_TYPES:
            halves = round if _is_double(node.this) else _away
            return lambda i, n: Fraction(halves(inner(i, n)))
        if kind in exp.DataType.FLOAT_TYPES:
            return inner
        if kind == exp.DType.DECIMAL and not node.to.expressions:
            return inner
        raise UnreadableError


def _meeting(one: Number, other: Number) -> Iterator[Fraction]:
    """Yield the place, as a share of n, at which two sides are equal; none if they are parallel."""
    with suppress(ZeroDivisionError):
        at = _crossing(one, other, _FAR)
        if at is not None:
            yield (at / _FAR).limit_denominator(10_000)


def _crossing(one: Number, other: Number, n: int) -> Fraction | None:
    """Return the place among n rows at which two sides are equal; None if they are parallel."""
    first, last = (one(i, n) - other(i, n) for i in (1, n))
    return None if first == last else 1 + (n - 1) * first / (first - last)


def _is_double(node: Expr) -> bool:
    """Whether DuckDB computes something with floats, of which halves are rounded to even."""
    floats = (n for n in node.find_all(exp.Cast) if n.to.this in exp.DataType.FLOAT_TYPES)
    return any(True for _ in chain(node.find_all(exp.Div), floats))


def _adds_literal(node: Expr) -> bool:
    other = node.expression.unnest() if isinstance(node, exp.Add) else None
    return isinstance(other, exp.Literal) and not other.is_string


def _away(value: Fraction) -> int:
    """Round halves away from zero."""
    rounded = math.floor(abs(value) + Fraction(1, 2))
    return rounded if value >= 0 else -rounded
