"""Derivatives of SQL expressions with respect to noisy values, for the delta method.

For a function f of noisy values x with covariance Σ, var f(x) ≈ ∇f(x)ᵀ Σ ∇f(x), and exactly so if
f is linear. The derivatives are SQL themselves, and evaluated beside the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from dpsql.schema.names import capitals
from dpsql.sql.binding.expressions import NESTED, Expr, paren, ratio, render, times
from dpsql.sql.computing.fractions import width_of

IsLeaf = Callable[[Expr], str | None]
"""Returns the name of a noisy value, None for anything else."""


_STEP = "step of "
"""The name of a rounding's own step, before the rounding's text."""
_UNBOUNDED: Expr = exp.Cast(this=exp.Literal.string("nan"), to=exp.DataType.build("DOUBLE"))


def is_step(name: str) -> bool:
    """Whether what an expression depends on is the step of a rounding, and no noisy value."""
    return name.startswith(_STEP)


_NO_STEEPER = (exp.Abs, exp.Greatest, exp.Least)
"""Functions that move no farther than what they are of, on either side of their corner."""


class NotSmoothError(Exception):
    """An expression has no derivative; the text says why."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """An expression's derivative with respect to each noisy value that it depends on."""

    partial: Mapping[str, Expr]
    """For the step of a rounding, times its width."""
    exact: bool
    """Whether the expression is linear in all of them."""

    @property
    def stepped(self) -> bool:
        """Whether it depends on what is rounded."""
        return any(map(is_step, self.partial))

    def bent(self) -> Gradient:
        """Return the derivative of what isn't linear in roundings, whose steps have no bound."""
        steps = {name: _UNBOUNDED.copy() for name in self.partial if is_step(name)}
        return Gradient({**self.partial, **steps}, exact=False)


CONSTANT = Gradient({}, exact=True)


def gradient(node: Expr, leaf: IsLeaf) -> Gradient:
    """Differentiate an expression.

    Raises:
        NotSmoothError: it isn't differentiable, or not known to be.
    """
    name = leaf(node)
    if name is not None:
        return Gradient({name: exp.Literal.number(1)}, exact=True)
    if not _depends(node, leaf):
        return CONSTANT
    if isinstance(node, (exp.Paren, exp.Alias, exp.Try)):
        return gradient(node.this, leaf)
    if isinstance(node, (exp.Add, exp.Sub, exp.Neg)):
        return _sum(node, leaf)
    if isinstance(node, exp.Mul):
        return _product(node, leaf)
    if isinstance(node, exp.Div):
        return _quotient(node, leaf)
    if isinstance(node, (exp.Case, exp.If)):
        return _choice(node, leaf)
    if isinstance(node, (exp.Cast, exp.TryCast)):
        return _cast(node, leaf)
    return _function(node, leaf)


def _depends(node: Expr, leaf: IsLeaf) -> bool:
    pending = [node]
    while pending:
        current = pending.pop()
        if leaf(current) is not None:
            return True
        pending += list(current.iter_expressions())
    return False


def _sum(node: Expr, leaf: IsLeaf) -> Gradient:
    if isinstance(node, exp.Neg):
        return _scaled(gradient(node.this, leaf), exp.Literal.number(-1))
    left, right = gradient(node.this, leaf), gradient(node.expression, leaf)
    if isinstance(node, exp.Sub):
        right = _scaled(right, exp.Literal.number(-1))
    return _added(left, right)


def _product(node: Expr, leaf: IsLeaf) -> Gradient:
    left, right = gradient(node.this, leaf), gradient(node.expression, leaf)
    both = _added(_scaled(left, node.expression), _scaled(right, node.this))
    if left.stepped and right.stepped:
        return both.bent()
    linear = left.exact and right.exact and not (left.partial and right.partial)
    return Gradient(both.partial, linear)


def _quotient(node: Expr, leaf: IsLeaf) -> Gradient:
    top, bottom = gradient(node.this, leaf), gradient(node.expression, leaf)
    over = _scaled(top, _divided(exp.Literal.number(1), node.expression))
    factor = exp.Neg(this=_divided(node.this, times(node.expression, node.expression)))
    both = _added(over, _scaled(bottom, factor))
    if bottom.stepped:
        return both.bent()
    return Gradient(both.partial, top.exact and not bottom.partial)


def _choice(node: Expr, leaf: IsLeaf) -> Gradient:
    """Differentiate the branches; that noise may also change the branch is left out of account."""
    branches = [node] if isinstance(node, exp.If) else node.args["ifs"]
    key = "false" if isinstance(node, exp.If) else "default"
    otherwise = node.args.get(key) or exp.Null()
    values = [gradient(branch.args["true"], leaf) for branch in branches]
    last = gradient(otherwise, leaf)
    tests = [branch.this for branch in branches] + [node.this] * isinstance(node, exp.Case)
    steady = not any(test is not None and _depends(test, leaf) for test in tests)
    names = dict.fromkeys(n for g in [*values, last] for n in g.partial)
    if not names:
        raise NotSmoothError("which of several constants it is depends on noisy values")
    partial: dict[str, Expr] = {}
    for name in names:
        ifs = [
            exp.If(this=branch.this.copy(), true=_of(value, name))
            for branch, value in zip(branches, values, strict=True)
        ]
        operand = node.this.copy() if isinstance(node, exp.Case) and node.this else None
        partial[name] = exp.Case(this=operand, ifs=ifs, default=_of(last, name))
    return Gradient(partial, steady and all(g.exact for g in [*values, last]))


def _cast(node: exp.Cast, leaf: IsLeaf) -> Gradient:
    """Differentiate through a cast to a number; casts to others have no derivative."""
    if node.to.this not in exp.DataType.NUMERIC_TYPES:
        raise NotSmoothError(f"a cast to {node.to.sql('duckdb')} has no variance")
    return _rounded(node, gradient(node.this, leaf))


def _rounded(node: Expr, inner: Gradient) -> Gradient:
    """Add the step of a rounding, if a function rounds."""
    width = width_of(node)
    if width is None:
        return inner
    return Gradient({**inner.partial, _STEP + render(node): width}, exact=False)


def _function(node: Expr, leaf: IsLeaf) -> Gradient:
    if isinstance(node, (exp.Predicate, exp.Connector, exp.Not)):
        raise NotSmoothError("a truth value has no variance")
    if isinstance(node, (*NESTED, exp.Tuple)):
        raise NotSmoothError("a struct or list has no variance")
    x = node.this if isinstance(node.this, exp.Expr) else None
    if x is None:
        raise NotSmoothError(f"{named(node)} has no derivative")
    others = [n for n in node.iter_expressions() if n is not x]
    if any(_depends(other, leaf) for other in others):
        raise NotSmoothError(f"{named(node)} of several noisy values has no derivative here")
    inner = gradient(x, leaf)
    if width_of(node) is not None:
        return _rounded(node, inner)
    if isinstance(node, exp.Nullif):
        return Gradient(inner.partial, exact=False)
    if isinstance(node, exp.Coalesce):
        filled = {n: _call("coalesce", d, exp.Literal.number(0)) for n, d in inner.partial.items()}
        return Gradient(filled, exact=False)
    slope = _scaled(inner, _outer_derivative(node, x))
    if not isinstance(node, _NO_STEEPER):
        return slope.bent()
    steps = {name: d for name, d in inner.partial.items() if is_step(name)}
    return Gradient({**slope.partial, **steps}, exact=False)


def _outer_derivative(node: Expr, x: Expr) -> Expr:
    one = exp.Literal.number(1)
    if isinstance(node, exp.Abs):
        return _call("sign", x)
    if isinstance(node, exp.Sqrt):
        return _divided(exp.Literal.number("0.5"), node)
    if isinstance(node, exp.Exp):
        return node
    if isinstance(node, exp.Ln):
        return _divided(one, x)
    if isinstance(node, exp.Log) and node.args.get("expression") is None:
        return _divided(one, times(x, _call("ln", exp.Literal.number(10))))
    if isinstance(node, exp.Pow):
        power = node.expression
        return times(power, _call("pow", x, exp.Sub(this=paren(power), expression=one)))
    if isinstance(node, (exp.Greatest, exp.Least)) and len(node.expressions) == 1:
        test = exp.GT if isinstance(node, exp.Greatest) else exp.LT
        wins = test(this=paren(x), expression=paren(node.expressions[0]))
        return exp.Case(ifs=[exp.If(this=wins, true=one)], default=exp.Literal.number(0))
    raise NotSmoothError(f"{named(node)} has no derivative")


def named(node: Expr) -> str:
    """Return what an analyst calls a function or operator."""
    if isinstance(node, exp.Func) and not isinstance(node, exp.Anonymous):
        return node.sql_name()
    return capitals(node.name) if isinstance(node, exp.Anonymous) else "this expression"


def _scaled(g: Gradient, factor: Expr) -> Gradient:
    return Gradient({name: times(d, factor) for name, d in g.partial.items()}, g.exact)


def _added(left: Gradient, right: Gradient) -> Gradient:
    partial = dict(left.partial)
    for name, d in right.partial.items():
        old = partial.get(name)
        partial[name] = d if old is None else exp.Add(this=paren(old), expression=paren(d))
    return Gradient(partial, left.exact and right.exact)


def _of(g: Gradient, name: str) -> Expr:
    partial = g.partial.get(name)
    return exp.Literal.number(0) if partial is None else partial.copy()


def _divided(top: Expr, bottom: Expr) -> Expr:
    return ratio(paren(top), paren(bottom))


def _call(name: str, *arguments: Expr) -> Expr:
    return exp.Anonymous(this=name, expressions=[a.copy() for a in arguments])
