"""Quotients and roots as they are tested: without dividing.

Intervals by the delta method fail where noise is large against what is divided by, or against what
a root is taken of. But x/y = v says the same as x − v·y = 0, which is linear wherever x and y are
(Fieller, "Some problems in interval estimation", JRSS B 1954). So each value of the form

    h(top / bottom)      with h increasing or decreasing

gets two more columns, `top` and `bottom`, in which nothing is divided by noisy values, and
lists of noise of their own. For AVG, shares and SUM / COUNT both are linear, and the test is exact.
For VAR they are N·S2 − S1² and N²: the test is of first order, but in polynomials, which are far
nearer to their tangents than quotients are. h is made of roots, logarithms and roundings, and
intervals go through it by their ends.

What is possible narrows intervals down: an average lies within the range of what is averaged, a
share of rows between 0 and 1, a variance between 0 and a quarter of the range's square. That rests
on each row being counted once above and below. Of rows for each unit, or units for each row, it is
only known that they are not negative: see `Tally`, which says of what a count is a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from sqlglot import exp

from dpsql.sql.binding.core import AnswerColumn, Linear, Role
from dpsql.sql.binding.expressions import Expr, paren, ratio, render, times
from dpsql.sql.binding.moments import variance
from dpsql.sql.computing.steps import Step, literal_of, steps_of
from dpsql.sql.lowering.lower import LoweredCore

COLUMNS = 4
"""What is added for each fraction: top, bottom, and the least and the largest possible value."""
_ATOMS = (exp.Column, exp.Window, exp.AggFunc, exp.Filter, exp.Subquery)
MAX_COLLECTED = 1_000
"""Rows over which lists of windows and subqueries are made a second time."""
Limits = Mapping[str, tuple[Expr, Expr]]
"""For quotients, by their text: the least and the largest value that is possible."""


@dataclass(frozen=True, slots=True)
class Fraction:
    """What an item consists of: steps after top / bottom."""

    top: Expr
    bottom: tuple[Expr, ...] = ()
    """The factors of what is divided by."""
    limits: tuple[Expr, Expr] | None = None
    steps: tuple[Step, ...] = ()
    """In the order in which they are applied."""

    @property
    def rooted(self) -> bool:
        """Whether noise can leave no value, because there is no root or logarithm of it."""
        return any(step.name in ("sqrt", "ln") for step in self.steps)

    @property
    def polynomial(self) -> bool:
        """Whether top and bottom are made of sums and products alone."""
        functions = [f for part in (self.top, *self.bottom) for f in part.find_all(exp.Func)]
        return all(isinstance(f, (exp.AggFunc, exp.Cast, exp.Try)) for f in functions)

    def columns(self) -> list[Expr]:
        """Return top, bottom, and what is possible, as SQL."""
        one, nothing = exp.Literal.number("1.0"), exp.Null()
        low, high = self.limits or (nothing, nothing)
        bottom = times(*self.bottom) if self.bottom else one
        return [_double(part) for part in (self.top, bottom, low, high)]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the columns of a fraction begin."""

    at: int
    fraction: Fraction


def with_fractions(
    query: exp.Query, lowered: Sequence[LoweredCore], visible: int
) -> tuple[exp.Query, dict[int, Placed]]:
    """Add the columns of fractions to a query; return them by the output that each is of.

    Args:
        query: over the tables of answers; it may have columns behind the visible ones.
        lowered: what the answers are of.
        visible: how many outputs there are.
    """
    items = query.expressions
    star = any(item.find(exp.Star) for item in items if not item.find(exp.AggFunc))
    if not isinstance(query, exp.Select) or query.args.get("distinct") or star:
        return query, {}
    rows = sum(group.rows for core in lowered for group in core.sets)
    limits = _limits(query, lowered)
    extended, found = query.copy(), dict[int, Placed]()
    for i, item in enumerate(items[:visible]):
        if not _separable(item, query, rows):
            continue
        fraction = fraction_of(item, limits)
        if fraction is None:
            continue
        found[i] = Placed(len(extended.expressions), fraction)
        for part in fraction.columns():
            name = exp.to_identifier(f"__f{len(extended.expressions)}")
            extended.expressions.append(exp.Alias(this=part, alias=name))
    return extended, found


def _separable(item: Expr, query: exp.Select, rows: int) -> bool:
    """Whether parts of an item can stand in columns of their own, at little cost."""
    if query.args.get("group") is not None:
        parts = item.find_all(exp.Column)
        if any(part.find_ancestor(exp.AggFunc) is None for part in parts):
            return False
    return rows <= MAX_COLLECTED or not item.find(exp.Window, exp.Subquery)


def _limits(query: exp.Select, lowered: Sequence[LoweredCore]) -> Limits:
    """Return what is possible, if a query is over the answers of one core alone."""
    clause = query.args.get("from_")
    own = [c for c in lowered if clause is not None and clause.this.name == c.core.table]
    return limits_of(own[0]) if own and not query.args.get("joins") else {}


def fraction_of(item: Expr, limits: Limits) -> Fraction | None:
    """Return what an item consists of; None if nothing is divided and no root is taken.

    Args:
        item: an expression over the columns of answers.
        limits: what is possible, see `limits_of`.
    """
    if _is_public(item):
        return None
    steps, inner = steps_of(item.copy().transform(_unguarded))
    found = _fraction(inner, limits)
    if not found.bottom and all(step.name in ("plus", "times") for step in steps):
        return None
    if found.limits is None and steps and steps[-1].name in ("sqrt", "ln"):
        found = replace(found, limits=(_number(0.0), exp.Null()))
    return replace(found, steps=tuple(reversed(steps)))


def _unguarded(node: Expr) -> Expr:
    """Take NULLIF(x, 0) for x, which it is but for x = 0, where there is no quotient."""
    guard = isinstance(node, exp.Nullif) and literal_of(node.expression) == 0
    return node.this if guard else node


def limits_of(core: LoweredCore) -> dict[str, tuple[Expr, Expr]]:
    """Return what averages, shares, quotients of counts and variances of a core can be at all."""
    found: dict[str, tuple[Expr, Expr]] = {}
    statistics = [s.statistic for s in core.sets[0].columns]
    linear = {j: s for j, s in enumerate(statistics) if isinstance(s, Linear)}
    counts = {k: s for k, s in linear.items() if s.counts}
    for j, k in permutations(counts, 2):
        found[_quotient(j, k)] = _number(0.0), exp.Null()
    for j, top in linear.items():
        largest = max(group.columns[j].scale for group in core.sets)
        middle = max(group.columns[j].center for group in core.sets)
        square = top.times is not None and top.times == top.weight
        firsts = [i for i, s in linear.items() if square and s == replace(top, times=None)]
        apart = top.of_units and not core.whole_units
        for k in (k for k, s in counts.items() if not apart and s.tally.holds(top.tally)):
            least = 0.0 if top.counts else -middle if square else -largest
            found[_quotient(j, k)] = _number(least), _number(largest)
            for i in firsts:
                # At most the mean square around any point; of samples n/(n − 1) <= 2 times as much.
                for sample, factor in ((False, 1), (True, 2)):
                    spread = render(variance(i, k, j, sample=sample))
                    found[spread] = _number(0.0), _number(factor * (middle + largest))
    return found


def _quotient(top: int, bottom: int) -> str:
    return render(ratio(Role.STATISTIC.column(top), Role.STATISTIC.column(bottom)))


# ── fractions ──────────────────────────────────────────────────────────────────────────────────


def _fraction(node: Expr, limits: Limits) -> Fraction:
    """Write an expression as one fraction, as far as it is made of sums, products and quotients."""
    node = node.unnest()
    found = _written(node, limits)
    possible = limits.get(render(node))
    return found if possible is None else replace(found, limits=possible)


def _written(node: Expr, limits: Limits) -> Fraction:
    if not isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return Fraction(node)
    left, right = _fraction(node.this, limits), _fraction(node.expression, limits)
    if isinstance(node, exp.Div):
        if _is_public(node.expression):
            return Fraction(ratio(paren(left.top), paren(right.top)), left.bottom)
        top = times(left.top, *right.bottom)
        return Fraction(top, (*left.bottom, right.top))
    if not left.bottom and not right.bottom:
        return Fraction(node)
    if isinstance(node, exp.Mul):
        return Fraction(times(left.top, right.top), (*left.bottom, *right.bottom))
    whole = [*left.bottom, *_without(right.bottom, left.bottom)]
    one = times(left.top, *_without(whole, left.bottom))
    other = times(right.top, *_without(whole, right.bottom))
    top = type(node)(this=one, expression=paren(other))
    return Fraction(top, tuple(whole), _moved(node, left, right))


def _moved(node: Expr, left: Fraction, right: Fraction) -> tuple[Expr, Expr] | None:
    """Add up, or subtract, what is possible of both sides; a public side is what it is."""
    sides = [
        (side.top, side.top) if _is_public(part) else side.limits
        for part, side in ((node.this, left), (node.expression, right))
    ]
    one, other = sides
    if one is None or other is None:
        return None
    if isinstance(node, exp.Sub):
        other = other[1], other[0]
    low, high = (
        type(node)(this=paren(a), expression=paren(b)) for a, b in zip(one, other, strict=True)
    )
    return low, high


def _without(factors: Sequence[Expr], others: Sequence[Expr]) -> list[Expr]:
    """Take away each of the other factors once."""
    left = list(factors)
    for other in map(render, others):
        at = next((i for i, factor in enumerate(left) if render(factor) == other), None)
        if at is not None:
            del left[at]
    return left


def _is_public(node: Expr) -> bool:
    """Whether an expression is the same whatever the noise is; in doubt it isn't."""
    parts = map(AnswerColumn.of, node.find_all(*_ATOMS))
    return all(part is not None and part.public for part in parts)


def _number(value: float) -> Expr:
    number = exp.Literal.number(repr(abs(value)))
    return exp.Neg(this=number) if value < 0 else number


def _double(node: Expr) -> Expr:
    return exp.TryCast(this=paren(node), to=exp.DataType.build("DOUBLE"))
