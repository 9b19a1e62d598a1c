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
share of rows between 0 and 1, a variance between 0 and a quarter of the range's square, a
correlation between −1 and 1. That rests on each row being counted once above and below. Of rows for
each unit, or units for each row, it is only known that they are not negative: see `Tally`, which
says of what a count is a part.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

from sqlglot import exp

from dpsql.sql.binding.core import AnswerColumn, Linear, Role
from dpsql.sql.binding.expressions import BoundExpr, Expr, paren, ratio, render, times
from dpsql.sql.binding.moments import correlation, covariance, determination, related, together
from dpsql.sql.lowering.lower import LoweredCore

COLUMNS = 4
"""The columns of each fraction: top, bottom, and the least and the largest possible value."""
_ATOMS = (exp.Column, exp.Window, exp.AggFunc, exp.Filter, exp.Subquery)
MAX_COLLECTED = 1_000
"""Rows over which lists of windows and subqueries are made a second time."""
Limits = Mapping[str, tuple[Expr, Expr]]
"""For quotients, by their text: the least and the largest value that is possible."""


@dataclass(frozen=True, slots=True)
class Fraction:
    """The parts of an item: a quotient, top / bottom, and the steps after it."""

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
        plain = (exp.AggFunc, exp.Cast, exp.Try)
        return all(isinstance(f, plain) and width_of(f) is None for f in functions)

    def columns(self) -> list[Expr]:
        """Return top, bottom, and what is possible, as SQL."""
        unit, nothing = exp.Literal.number("1.0"), exp.Null()
        low, high = self.limits or (nothing, nothing)
        bottom = times(*self.bottom) if self.bottom else unit
        return [_double(part) for part in (self.top, bottom, low, high)]


@dataclass(frozen=True, slots=True)
class Placed:
    """A fraction, and the place where its columns begin."""

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
    extended, placed = query.copy(), dict[int, Placed]()
    for i, item in enumerate(items[:visible]):
        if not _separable(item, query, rows):
            continue
        fraction = fraction_of(item, limits)
        if fraction is None:
            continue
        placed[i] = Placed(len(extended.expressions), fraction)
        for part in fraction.columns():
            name = exp.to_identifier(f"__f{len(extended.expressions)}")
            extended.expressions.append(exp.Alias(this=part, alias=name))
    return extended, placed


def _separable(item: Expr, query: exp.Select, rows: int) -> bool:
    """Whether parts of an item can stand in columns of their own, at little cost."""
    if query.args.get("group") is not None:
        parts = item.find_all(exp.Column)
        if any(part.find_ancestor(exp.AggFunc) is None for part in parts):
            return False
    return rows <= MAX_COLLECTED or not item.find(exp.Window, exp.Subquery)


def _limits(query: exp.Select, lowered: Sequence[LoweredCore]) -> Limits:
    """Return what is possible, if a query is over the answers of one core, or over their sums."""
    clause = query.args.get("from_")
    if clause is None or query.args.get("joins"):
        return {}
    cores = [c for c in lowered if clause.this.alias_or_name in (c.core.table, c.core.summed)]
    return limits_of(cores) if cores else {}


def fraction_of(item: Expr, limits: Limits) -> Fraction | None:
    """Return what an item consists of; None if nothing is divided and no root is taken.

    Args:
        item: an expression over the columns of answers.
        limits: what is possible, see `limits_of`.
    """
    if _is_public(item):
        return None
    steps, inner = steps_of(item.copy().transform(_unguarded))
    fraction = _fraction(inner, limits)
    if not fraction.bottom and all(step.name in ("plus", "times") for step in steps):
        return None
    if fraction.limits is None and steps and steps[-1].name in ("sqrt", "ln"):
        fraction = replace(fraction, limits=(_number(0.0), exp.Null()))
    return replace(fraction, steps=tuple(reversed(steps)))


def _unguarded(node: Expr) -> Expr:
    """Take NULLIF(x, 0) for x, which it is but for x = 0, where there is no quotient.

    And of what has a value only where both expressions vary, that value.
    """
    inside: Expr | None = None
    if isinstance(node, exp.Nullif) and literal_of(node.expression) == 0:
        inside = node.this
    elif isinstance(node, exp.Case):
        inside = related(node)
    return node if inside is None else inside


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum over rows, or what several cores add to one: what their average can be."""

    each: tuple[Linear, ...]
    """Statistics that are added up, one of each core."""
    least: float
    largest: float

    @classmethod
    def of(cls, cores: Sequence[LoweredCore], j: int) -> _Sum | None:
        """Return the j-th statistic of all cores; None if they are no sums.

        Where cores are added up, each has put back before what it took off.
        """
        columns = [(group.columns[j], core.core) for core in cores for group in core.sets]
        # Not what was lowered, of which one may stand for several: each says of what it is.
        asked = [core.statistics[j] for _, core in columns]
        each = tuple(statistic for statistic in asked if isinstance(statistic, Linear))
        if len(each) < len(columns):
            return None
        ranges = [(c.center if core.summed else 0.0, c.scale) for c, core in columns]
        least = min(center - scale for center, scale in ranges)
        largest = max(center + scale for center, scale in ranges)
        return cls(each, 0.0 if each[0].counts else least, largest)

    @property
    def middle(self) -> float:
        """The distance, at most, of a value from the middle of the range."""
        return (self.largest - self.least) / 2

    def holds(self, part: _Sum) -> bool:
        """Whether all rows of another one are rows of this one; see `Tally`."""
        return all(s.tally.holds(o.tally) for s, o in zip(self.each, part.each, strict=True))

    def centers(self, weight: BoundExpr | None, of: Linear) -> bool:
        """Whether it is the sum of a weight around its middle over the rows of a product."""
        first = self.each[0]
        same = first.weight == weight and first.times is None and first.center
        return same and first.tally.conditions <= of.tally.conditions


def limits_of(cores: Sequence[LoweredCore]) -> dict[str, tuple[Expr, Expr]]:
    """Return what averages, shares, quotients of counts and second moments can be at all.

    Texts with products in them are those of `moments` alone, and their numbers tell what they are
    of. Where x and y are within h and k of some points, |COVAR_POP(y, x)| <= hk, because it is at
    most the root of the product of the mean squares around these; of samples, n/(n − 1) <= 2 times
    as much.

    Args:
        cores: one, or those whose answers are added up.
    """
    limits: dict[str, tuple[Expr, Expr]] = {}
    numbers = range(len(cores[0].sets[0].columns))
    sums = {j: each for j in numbers if (each := _Sum.of(cores, j)) is not None}
    apart = not all(core.whole_units for core in cores)
    counts = {k: s for k, s in sums.items() if s.each[0].counts}
    for j, k in permutations(counts, 2):
        limits[_quotient(j, k)] = _number(0.0), exp.Null()
    second: _Seconds = {}
    for j, top in sums.items():
        of = top.each[0]
        below = [k for k, s in counts.items() if not (apart and of.of_units) and s.holds(top)]
        if of.times is None:
            limits |= {_quotient(j, k): (_number(top.least), _number(top.largest)) for k in below}
            continue
        ones, others = (
            [i for i, s in sums.items() if s.centers(w, of)] for w in (of.weight, of.times)
        )
        for i, o, k in product(ones, others, below):
            both = together(i, o, k, j)
            second.setdefault((i, o, k), []).append(both)
            limits |= _limits_of_second(both, k, sums[i], sums[o])
    return limits | _limits_of_correlations(second)


_Seconds = dict[tuple[int, int, int], list[Expr]]
"""Two sums and a count → the second moments of what is added up, as texts may have them."""


def _limits_of_second(both: Expr, k: int, one: _Sum, other: _Sum) -> dict[str, tuple[Expr, Expr]]:
    """Return what a second moment can be, and the covariances that are made of it and a count."""
    limits: dict[str, tuple[Expr, Expr]] = {}
    if one is other:
        limits[render(both.unnest())] = _number(0.0), exp.Null()
    for sample, factor in ((False, 1), (True, 2)):
        largest = factor * one.middle * other.middle
        least = 0.0 if one is other else -largest
        limits[render(covariance(both, k, sample=sample))] = _number(least), _number(largest)
    return limits


def _limits_of_correlations(second: _Seconds) -> dict[str, tuple[Expr, Expr]]:
    """Return what correlations and coefficients of determination can be."""
    limits: dict[str, tuple[Expr, Expr]] = {}
    for (i, o, k), pairs in second.items():
        variances = second.get((i, i, k), []), second.get((o, o, k), [])
        for both, *spreads in product(pairs, *variances) if i != o else ():
            limits[render(correlation(both, *spreads))] = _number(-1.0), _number(1.0)
            limits[render(determination(both, *spreads))] = _number(0.0), _number(1.0)
    return limits


def _quotient(top: int, bottom: int) -> str:
    return render(ratio(Role.STATISTIC.column(top), Role.STATISTIC.column(bottom)))


# ── Expressions as one fraction ───────────────────────────────────────────────────────────────────


def _fraction(node: Expr, limits: Limits) -> Fraction:
    """Write an expression as one fraction, as far as it is made of sums, products and quotients."""
    node = node.unnest()
    fraction = _written(node, limits)
    possible = limits.get(render(node))
    return fraction if possible is None else replace(fraction, limits=possible)


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
    scaled = times(left.top, *_without(whole, left.bottom))
    other = times(right.top, *_without(whole, right.bottom))
    top = type(node)(this=scaled, expression=paren(other))
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


# ── Monotone functions that stand last in an expression: roots, logarithms, roundings ────────────
#
# Intervals go through them by their ends. What a rounding makes of a variance is in
# `dpsql.answers.noise.rounded`.


_MONOTONE: dict[type[Expr], str] = {exp.Sqrt: "sqrt", exp.Ln: "ln", exp.Exp: "exp"}
_WHOLE: dict[type[Expr], str] = {exp.Floor: "floor", exp.Ceil: "ceil"}
_CURVED = tuple(_MONOTONE.values())
_MOST_DIGITS = sys.float_info.max_10_exp
_SHIFTS = {"round": 0.0, "floor": -0.5, "ceil": 0.5}


@dataclass(frozen=True, slots=True)
class Step:
    """A monotone function that is applied to the ends of an interval."""

    name: str
    """sqrt, ln, exp, round, floor, ceil, plus, times, greatest or least."""
    number: float = 0.0
    """The digits, the summand, the factor or the bound."""


def steps_of(node: Expr) -> tuple[list[Step], Expr]:
    """Take monotone functions off an expression, the last one first; return them and the rest."""
    steps: list[Step] = []
    while True:
        found = _step(node)
        if found is None:
            return steps, node
        step, node = found
        steps += [step] if step is not None else []


def _step(node: Expr) -> tuple[Step | None, Expr] | None:
    if isinstance(node, (exp.Paren, exp.Alias, exp.Try)):
        return None, node.this
    if isinstance(node, (exp.Cast, exp.TryCast)):
        if node.to.this in exp.DataType.FLOAT_TYPES:
            return None, node.this
        rounding = _digits(node.to)
        return None if rounding is None else (rounding, node.this)
    if isinstance(node, exp.Neg):
        return Step("times", -1.0), node.this
    if type(node) in _MONOTONE:
        return Step(_MONOTONE[type(node)]), node.this
    if is_whole(node):
        return Step(_WHOLE[type(node)]), node.this
    if isinstance(node, exp.Case):
        root = _root(node)
        return (Step("sqrt"), root) if root is not None else None
    if isinstance(node, exp.Round):
        digits = literal_of(node.args.get("decimals")) if node.args.get("decimals") else 0.0
        return (Step("round", digits), node.this) if digits is not None else None
    if isinstance(node, (exp.Greatest, exp.Least)) and len(node.expressions) == 1:
        bound = literal_of(node.expressions[0])
        return (Step(node.key, bound), node.this) if bound is not None else None
    return _affine(node)


def is_whole(node: Expr) -> bool:
    """Whether a function gives the whole number before or after its argument."""
    return type(node) in _WHOLE and node.args.get("decimals") is None


def _digits(to: exp.DataType) -> Step | None:
    """Return what a cast to a number does; None if it isn't a rounding."""
    if to.this in exp.DataType.INTEGER_TYPES:
        return Step("round")
    if to.this is not exp.DataType.Type.DECIMAL:
        return None
    scale = literal_of(to.expressions[1].this) if len(to.expressions) > 1 else 0.0
    return None if scale is None else Step("round", scale)


def width_of(node: Expr) -> Expr | None:
    """Return the width of the multiples that a function rounds to; None if it rounds nothing."""
    digits: Expr | None = exp.Literal.number(0)
    if isinstance(node, (exp.Cast, exp.TryCast)):
        step = _digits(node.to)
        digits = None if step is None else exp.Literal.number(str(int(step.number)))
    elif isinstance(node, exp.Round):
        digits = node.args.get("decimals") or digits
    elif not is_whole(node):
        digits = None
    if digits is None:
        return None
    return exp.Pow(this=exp.Literal.number("10.0"), expression=exp.Neg(this=paren(digits)))


@dataclass(frozen=True, slots=True)
class LastRounding:
    """A rounding of values to multiples of a width, after which nothing is rounded to others."""

    before: tuple[Step, ...]
    shift: float
    """The number that is added, in widths, so that the nearest multiple is taken: −1/2 for
    floor."""
    width: float
    factor: float
    """The factor of the rounded values."""


def rounding_of(steps: Sequence[Step]) -> LastRounding | None:
    """Return the coarsest of the roundings that stand last among steps, if there are any.

    What is rounded again as finely, or to finer steps, stays as it is: CAST(ROUND(x) AS INTEGER) is
    one rounding, that of ROUND.

    Args:
        steps: in the order in which they are applied.

    Returns:
        None, too, where a root or a logarithm is taken of what is rounded, and where the steps of
        the rounding are no numbers of a computer.
    """
    curved = max((i for i, step in enumerate(steps) if step.name in _CURVED), default=-1)
    at = [i for i, step in enumerate(steps) if step.name in _SHIFTS]
    if not at or at[-1] < curved:
        return None
    roundings = [_rounding(steps, i) for i in at if i > curved]
    widest = max(roundings, key=lambda one: abs(one.factor) * one.width)  # the first of several
    size = widest.factor * widest.width
    return widest if sys.float_info.min <= size * size < math.inf else None


def _rounding(steps: Sequence[Step], at: int) -> LastRounding:
    """Describe one of the roundings among some steps."""
    factor = math.prod(step.number for step in steps[at:] if step.name == "times")
    digits = steps[at].number
    width = 10.0**-digits if abs(digits) < _MOST_DIGITS else 0.0 if digits > 0 else math.inf
    return LastRounding(tuple(steps[:at]), _SHIFTS[steps[at].name], width, factor)


def _affine(node: Expr) -> tuple[Step, Expr] | None:
    """Take a number off a sum, a product or a quotient."""
    if not isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return None
    left, right = literal_of(node.this), literal_of(node.expression)
    if isinstance(node, exp.Div):
        if right:
            return Step("times", 1 / right), node.this
        inner = node.this.unnest()  # 100.0 * n / m is 100.0 times n / m
        if isinstance(inner, exp.Mul):
            factor = literal_of(inner.this)
            if factor is not None:
                return Step("times", factor), ratio(inner.expression, node.expression)
        return None
    if isinstance(node, exp.Mul):
        factor, other = (left, node.expression) if left is not None else (right, node.this)
        return (Step("times", factor), other) if factor else None
    sign = -1.0 if isinstance(node, exp.Sub) else 1.0
    if right is not None:
        return Step("plus", sign * right), node.this
    return (Step("plus", left), node.expression) if left is not None and sign > 0 else None


def _root(node: exp.Case) -> Expr | None:
    """Return x of CASE WHEN x >= 0 THEN sqrt(x) END, which is how deviations are written."""
    branches = node.args["ifs"]
    if node.this is not None or node.args.get("default") is not None or len(branches) != 1:
        return None
    condition, root = branches[0].this, branches[0].args.get("true")
    if not isinstance(root, exp.Sqrt) or not isinstance(condition, exp.GTE):
        return None
    same = render(condition.this) == render(root.this) and literal_of(condition.expression) == 0
    return root.this if same else None


def literal_of(node: Expr | None) -> float | None:
    """Return the number that is written; None if it isn't one."""
    if not isinstance(node, Expr):
        return None
    inner = node.unnest()
    if isinstance(inner, exp.Neg):
        number = literal_of(inner.this)
        return None if number is None else -number
    number_written = isinstance(inner, exp.Literal) and not inner.is_string
    return float(inner.name) if number_written else None
