"""Sums that are added up row by row: in place of counts of cells, and with numbers looked up.

A sum can be answered from counts of the cells of its columns, or as a measure, see
`lowering.measures`. Let a weight w be added up for groups that other columns tell, |w| <= M. On
tables in which all rows have a w of M, it is M times the count of each group: so whatever is
measured, its variance is at least M² times that of counts, at the same cost. The measure has just
that, so cells can't be better; and for averages neither: counts and sums around the middle of w
are then, on rows with w = ±M, counts of two kinds of rows, of which each is told best by itself.
Two cases remain in which cells are better, as far as they can be planned with:

- w depends on columns that tell groups or conditions apart. |w| is smaller in some of the groups.
- Several statistics are functions of the same columns, as the moments of second order are: what
  is measured of cells serves all of them, which saves up to a half of the variance in those tried.

So cells are used as long as they are few enough for what plans take to be a second or two. That is
decided by the sizes of the domains alone. But where some sums of a SELECT are measures anyway, the
others become measures too unless they are one of the two cases: plans are simpler then.

Numbers of private rows may be multiplied with numbers that are looked up for them:

    SELECT SUM(l.price * (1 - l.discount) - s.cost * l.quantity)
    FROM lines l JOIN supplies s ON s.part = l.part AND s.seller = l.seller

What is added up row by row is computed where the private rows are, and public tables aren't there.
But Σ cost · quantity is Σ cost(part, seller) · (the sum of quantity for this part and seller): a
sum of measured sums with public factors. So the expression is divided into terms, and each of them
into a factor that is private, which is measured, and one that is public, by which the measured sums
of cells are multiplied. The sum is then that of the terms, over the rows in which all have a value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dpsql.schema import Domain, Table
from dpsql.schema.domain import Merging
from dpsql.sql.binding.core import Linear, Role, Statistic, base_of, measured_columns, present
from dpsql.sql.binding.expressions import BoundExpr, Expr, paren, render, times
from dpsql.sql.binding.instants import told_by_rows

FEW = 2**11
"""Joint cells of the columns of an expression: their values are seldom small whole numbers, and
then a strategy is factorized over all of them."""
FEW_PAIRS = 2**14
"""Joint cells of two columns, where products are factored."""
FEW_OF_ONE = 2**15
"""Cells of a column."""


def summands(
    given: Sequence[BoundExpr], table: Table, told: Collection[str]
) -> tuple[BoundExpr, ...]:
    """Return expressions so that they are added up row by row where cells are too many.

    Args:
        given: one expression, or two that are multiplied.
        table: the private table.
        told: the columns that tell groups and conditions.
    """
    names = frozenset[str]().union(*(e.attributes for e in given))
    if any(e.by_row for e in given):  # both are: what is taken off them must be the same everywhere
        return tuple(replace(e, by_row=e.by_row | e.attributes) for e in given)
    if not names or any(map(_is_joined, given)):
        return tuple(given)
    few = FEW_OF_ONE if len(names) == 1 or not names.isdisjoint(told) else FEW
    few = FEW if any(e.node.find(exp.Div) for e in given) else few  # values of many digits
    few = FEW_PAIRS if len(names) == 2 and all(len(e.attributes) == 1 for e in given) else few
    domains = [table.columns[name] for name in names]
    if not any(map(_is_of_ranges, domains)) and math.prod(d.size for d in domains) <= few:
        return tuple(given)
    return tuple(replace(e, by_row=e.attributes) if e.attributes else e for e in given)


def _is_of_ranges(domain: Domain) -> bool:
    """Whether a cell of a column stands for values that aren't listed."""
    ranges = domain.type == "DOUBLE" and domain.uppers is not None
    return ranges or Merging.NEAREST in domain.merges


def together(statistics: Sequence[Statistic], told: Collection[str]) -> tuple[Statistic, ...]:
    """Return the statistics of a SELECT so that either no sums are added up row by row, or most.

    Args:
        statistics: all of them.
        told: the columns that tell groups and conditions.
    """
    if not any(weight.by_row for s in statistics for weight in base_of(s).weights):
        return tuple(statistics)
    shared = frozenset(told).union(*map(_told_apart, statistics))
    return tuple(_by_row(s, shared) if isinstance(s, Linear) else s for s in statistics)


def _is_joined(bound: BoundExpr) -> bool:
    """Whether an expression needs public rows, which aren't where the private ones are."""
    return bool(bound.relations) or bound.node.find(exp.Query) is not None


def _told_apart(statistic: Statistic) -> frozenset[str]:
    """Return the columns of which a statistic asks more than their sum, and whether it is there."""
    base = base_of(statistic)
    parts = (*base.filters, *base.weights)
    if isinstance(base, Linear) and base.factor is not None:
        parts = (*base.filters, base.factor)
    named = frozenset[str]().union(*(part.attributes for part in parts))
    simple = isinstance(base, Linear) and base.times is None
    return named - measured_columns(base, ()) if simple else named


def _by_row(linear: Linear, shared: Collection[str]) -> Linear:
    weight = linear.weight
    if weight is None or weight.by_row or _is_joined(weight) or not weight.attributes:
        return linear
    if not weight.attributes.isdisjoint(shared):
        return linear
    return replace(linear, weight=replace(weight, by_row=weight.attributes))


# ── Sums with numbers that are looked up ──


_COLUMN = re.compile(r"__([awr])(\d+)(?:_\d+)?")
_ONE = exp.Literal.number(1)


@dataclass(frozen=True, slots=True)
class _Summand:
    """One summand: the product of a private and a public factor."""

    negative: bool
    private: BoundExpr | None
    public: BoundExpr | None


def divided(
    whole: BoundExpr, linear: Linear, table: Table, note: Callable[[Linear], int]
) -> Expr | None:
    """Return a sum as one of sums with public factors; None if it isn't needed, or can't be done.

    Args:
        whole: what is added up.
        linear: the sum of that.
        table: the private table.
        note: notes a statistic; returns its number.
    """
    if not whole.by_row or not _is_looked_up(whole.node):
        return None
    terms: list[_Summand] = []
    for negative, factors in _terms(whole.node):
        sides = [[f for f in factors if _is_looked_up(f) is public] for public in (False, True)]
        private, public = (_product(side, whole, table) for side in sides)
        if public is not None and public.by_row:
            return None
        terms.append(_Summand(negative, private, public))
    there = [part for term in terms for part in (term.private, term.public) if part is not None]
    found: Expr | None = None
    for number, term in enumerate(terms, start=1):
        name = linear.label if len(terms) == 1 else f"{linear.label}, summand {number}"
        measured = replace(_measured(term, there, whole, linear), label=name)
        statistic = Role.STATISTIC.column(note(measured))
        if found is None:
            found = exp.Neg(this=statistic) if term.negative else statistic
        else:
            kind = exp.Sub if term.negative else exp.Add
            found = kind(this=found, expression=statistic)
    return None if found is None else exp.Paren(this=found)


def _measured(
    term: _Summand, there: Sequence[BoundExpr], whole: BoundExpr, linear: Linear
) -> Linear:
    """Return what is measured of one summand, in rows in which all of them have a value."""
    rows = [part for part in there if part not in (term.private, term.public)]
    private = term.private
    if private is None:  # what is measured is 1, wherever all have a value
        measured = [part for part in there if not _is_looked_up(part.node)]
        private = _there(measured, whole)
        rows = [part for part in rows if part not in measured]
    private = replace(private, by_row=private.by_row | private.attributes)
    conditions = tuple(dict.fromkeys((*linear.filters, *map(present, rows))))
    return Linear(linear.label, private, filters=conditions, factor=term.public)


def _terms(node: Expr, negative: bool = False) -> Iterator[tuple[bool, list[Expr]]]:
    """Divide a sum into summands, and these into factors; a public sum is one factor."""
    inner = node.unnest()
    if isinstance(inner, exp.Add | exp.Sub) and _is_mixed(inner):
        yield from _terms(inner.this, negative)
        yield from _terms(inner.expression, negative is not isinstance(inner, exp.Sub))
    elif isinstance(inner, exp.Neg) and _is_mixed(inner):
        yield from _terms(inner.this, not negative)
    else:
        yield negative, list(_factors(inner))


def _factors(node: Expr) -> Iterator[Expr]:
    inner = node.unnest()
    if isinstance(inner, exp.Mul) and _is_mixed(inner):
        yield from _factors(inner.this)
        yield from _factors(inner.expression)
    elif isinstance(inner, exp.Neg) and _is_mixed(inner):
        yield exp.Neg(this=_ONE.copy())
        yield from _factors(inner.this)
    else:
        yield inner


def _is_looked_up(node: Expr) -> bool:
    """Whether an expression needs public rows."""
    return node.find(exp.Query) is not None or any(kind == "r" for kind, _ in _columns(node))


def _is_mixed(node: Expr) -> bool:
    """Whether an expression needs public rows, and columns of private ones besides."""
    return _is_looked_up(node) and any(kind != "r" for kind, _ in _columns(node))


def _columns(node: Expr) -> Iterator[tuple[str, int]]:
    """Return the columns of an expression: of which kind each is, and its number there."""
    for part in node.find_all(exp.Column):
        found = _COLUMN.fullmatch(part.name)
        if found is not None:
            yield found[1], int(found[2])


def _product(factors: Sequence[Expr], whole: BoundExpr, table: Table) -> BoundExpr | None:
    """Return the product of some parts of a bound expression; None if there are none."""
    if not factors:
        return None
    node = times(*factors) if len(factors) > 1 else factors[0].copy()
    listed = list(table.columns)
    columns = set(_columns(node))
    attributes = frozenset(listed[number] for kind, number in columns if kind == "a")
    by_row = told_by_rows(node, table)
    if any(kind == "w" for kind, _ in columns):
        by_row |= whole.by_row.difference(listed)
    return replace(
        whole,
        node=node,
        sql=render(node),
        attributes=attributes,
        relations=frozenset(number for kind, number in columns if kind == "r"),
        by_row=by_row,
    )


def _there(parts: Sequence[BoundExpr], whole: BoundExpr) -> BoundExpr:
    """Return 1 for the rows in which all of some expressions have a value."""
    condition = exp.and_(*(paren(present(part).node) for part in parts), copy=False)
    node = exp.Case(ifs=[exp.If(this=condition, true=_ONE.copy())])
    return replace(
        whole,
        node=node,
        sql=render(node),
        attributes=frozenset[str]().union(*(part.attributes for part in parts)),
        relations=frozenset(),
        by_row=frozenset[str]().union(*(part.by_row for part in parts)),
    )
