"""Monotone functions that stand last in an expression: roots, logarithms, roundings.

Intervals go through them by their ends. What a rounding makes of a variance is in
`dpsql.answers.noise.rounded`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpsql.sql.binding.expressions import Expr, paren, ratio, render

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
    """What is added, in widths, so that the nearest multiple is taken: −1/2 for floor."""
    width: float
    factor: float
    """What the rounded values are multiplied with."""


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
    found = [_rounding(steps, i) for i in at if i > curved]
    widest = max(found, key=lambda one: abs(one.factor) * one.width)  # the first of several
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
