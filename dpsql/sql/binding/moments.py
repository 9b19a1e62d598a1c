"""Averages, variances, covariances and regressions, as functions of sums around the middle.

For expressions x and y with c and d in the middle of their public ranges, over the N rows in which
both are present (for one expression, in which it is):

    S(x)    = Σ (x − c)
    P(x, y) = Σ ((x − c)(y − d) − m)        m is in the middle of the products, if they have none
    C(x, y) = P(x, y) + m·N − S(x)·S(y)/N   = Σ (x − x̄)(y − ȳ), wherever the middles are

    AVG(x) = c + S(x)/N         VAR_POP(x) = C(x, x)/N        VAR_SAMP(x) = C(x, x)/(N − 1)
    COVAR_POP(y, x) = C(x, y)/N                  CORR(y, x) = C(x, y)/√(C(x, x)·C(y, y))
    REGR_SLOPE(y, x) = C(x, y)/C(x, x)           REGR_INTERCEPT(y, x) = ȳ − slope·x̄

Sums around the middle have the smallest coefficients that they can have, so the least noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from dpsql.sql.binding.bind import RowBinder
from dpsql.sql.binding.core import Linear, Role, present
from dpsql.sql.binding.expressions import BoundExpr, Expr, ratio, render, times

_VARIANCES: dict[type[Expr], tuple[bool, bool]] = {
    # aggregate → (of a sample, its root)
    exp.VariancePop: (False, False),
    exp.Variance: (True, False),
    exp.StddevPop: (False, True),
    exp.Stddev: (True, True),
    exp.StddevSamp: (True, True),
}
ONE: tuple[type[Expr], ...] = (exp.Avg, *_VARIANCES)
"""Functions of the moments of one expression."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Notes the sums that functions of one or two expressions need.

    Args:
        binder: notes statistics.
        label: of the aggregate, for reports.
        given: the expressions: one, or y and x as they are written.
        filters: the conditions of the aggregate.
    """

    binder: RowBinder
    label: str
    given: tuple[BoundExpr, ...]
    filters: tuple[BoundExpr, ...]

    @property
    def count(self) -> int:
        """Note the count of the rows in which all are present; return its number."""
        filters = (*self.filters, *map(present, self.given))
        return self.binder.statistic(Linear(self.label, filters=filters))

    def sum(self, of: BoundExpr) -> int:
        """Note S of one of them, which is over rows where it is present anyway."""
        others = tuple(present(other) for other in self.given if other != of)
        label = f"{self.label} x COUNT"
        return self.binder.statistic(
            Linear(label, of, center=True, filters=(*self.filters, *others))
        )

    def product(self, first: BoundExpr, second: BoundExpr) -> int:
        """Note P of two of them, which may be the same."""
        others = tuple(present(o) for o in self.given if o not in (first, second))
        label = f"{self.label} x COUNT"
        return self.binder.statistic(Linear(label, first, True, second, (*self.filters, *others)))

    def mean(self, of: BoundExpr) -> Expr:
        """Return the average of one of them."""
        first = self.sum(of)
        quotient = ratio(_s(first), _s(self.count))
        return exp.Paren(this=exp.Add(this=Role.CENTER.column(first), expression=quotient))

    def together(self, first: BoundExpr, second: BoundExpr) -> Expr:
        """Return C of two of them, which may be the same."""
        one = self.sum(first)
        other = one if first == second else self.sum(second)
        return together(one, other, self.count, self.product(first, second))


def of_one(node: Expr, moments: Moments) -> Expr:
    """Return an aggregate of one expression."""
    (e,) = moments.given
    if isinstance(node, exp.Avg):
        return moments.mean(e)
    sample, root = _VARIANCES[type(node)]
    first, count = moments.sum(e), moments.count
    found = variance(first, count, moments.product(e, e), sample=sample)
    if not root:
        return exp.Paren(this=found)
    # Noise can make a variance negative; then there is no deviation.
    positive = exp.GTE(this=found, expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=positive, true=exp.Sqrt(this=found.copy()))])


def variance(first: int, count: int, second: int, *, sample: bool) -> Expr:
    """Return a variance, given the numbers of S, N and P."""
    return covariance(together(first, first, count, second), count, sample=sample)


def covariance(spread: Expr, count: int, *, sample: bool) -> Expr:
    """Return a covariance, given C and the number of N."""
    return ratio(spread, _divisor(count, sample=sample))


def correlation(both: Expr, first: Expr, second: Expr) -> Expr:
    """Return a correlation, given C of both expressions and of each with itself."""
    return ratio(both, exp.Sqrt(this=times(first, second)))


def determination(both: Expr, first: Expr, second: Expr) -> Expr:
    """Return the square of a correlation."""
    return ratio(times(both, both), exp.Paren(this=times(first, second)))


def where_both_vary(found: Expr, first: Expr, second: Expr) -> Expr:
    """Return NULL where there is no spread: without rows that differ, or below the noise."""
    zero = exp.Literal.number(0)
    tests = [exp.GT(this=of.copy(), expression=zero.copy()) for of in (first, second)]
    return exp.Case(ifs=[exp.If(this=exp.and_(*tests), true=found)])


def related(node: exp.Case) -> Expr | None:
    """Return what `where_both_vary` was written of; None if it is something else."""
    branches = node.args["ifs"]
    quotient = branches[0].args.get("true") if len(branches) == 1 else None
    if not isinstance(quotient, exp.Div) or node.this or node.args.get("default") is not None:
        return None
    product = quotient.expression.unnest()
    product = product.this.unnest() if isinstance(product, exp.Sqrt) else product
    spreads = (product.this, product.expression) if isinstance(product, exp.Mul) else ()
    inner = [spread.this for spread in spreads if isinstance(spread, exp.Paren)]
    if len(inner) < 2 or render(where_both_vary(quotient.copy(), *inner)) != render(node):
        return None
    return quotient


def of_two(node: Expr, moments: Moments) -> Expr:
    """Return an aggregate of two expressions."""
    return exp.Paren(this=_OF_TWO[type(node)](moments))


def together(one: int, other: int, count: int, product: int) -> Expr:
    """Return C, given the numbers of S of both, N and P."""
    middle = exp.Mul(this=Role.CENTER.column(product), expression=_s(count))
    apart = exp.Add(this=_s(product), expression=middle)
    means = ratio(exp.Mul(this=_s(one), expression=_s(other)), _s(count))
    return exp.Paren(this=exp.Sub(this=apart, expression=means))


def _divisor(count: int, *, sample: bool) -> Expr:
    if not sample:
        return _s(count)
    return exp.Paren(this=exp.Sub(this=_s(count), expression=exp.Literal.number(1)))


# ── of y and x, which stand in this order ──────────────────────────────────────────────────────


def _covariance(m: Moments, *, sample: bool) -> Expr:
    y, x = m.given
    return covariance(m.together(x, y), m.count, sample=sample)


def _slope(m: Moments) -> Expr:
    y, x = m.given
    return ratio(m.together(x, y), m.together(x, x))


def _intercept(m: Moments) -> Expr:
    y, x = m.given
    return exp.Sub(this=m.mean(y), expression=times(_slope(m), m.mean(x)))


def _related(m: Moments, made: Callable[[Expr, Expr, Expr], Expr]) -> Expr:
    y, x = m.given
    spreads = m.together(x, x), m.together(y, y)
    return where_both_vary(made(m.together(x, y), *spreads), *spreads)


_OF_TWO: dict[type[Expr], Callable[[Moments], Expr]] = {
    exp.CovarPop: lambda m: _covariance(m, sample=False),
    exp.CovarSamp: lambda m: _covariance(m, sample=True),
    exp.Corr: lambda m: _related(m, correlation),
    exp.RegrSlope: _slope,
    exp.RegrIntercept: _intercept,
    exp.RegrR2: lambda m: _related(m, determination),
    exp.RegrCount: lambda m: _s(m.count),
    exp.RegrAvgx: lambda m: m.mean(m.given[1]),
    exp.RegrAvgy: lambda m: m.mean(m.given[0]),
    exp.RegrSxx: lambda m: m.together(m.given[1], m.given[1]),
    exp.RegrSyy: lambda m: m.together(m.given[0], m.given[0]),
    exp.RegrSxy: lambda m: m.together(m.given[1], m.given[0]),
}
TWO: tuple[type[Expr], ...] = tuple(_OF_TWO)
"""Functions of the moments of two expressions."""


def _s(number: int) -> Expr:
    return Role.STATISTIC.column(number)
