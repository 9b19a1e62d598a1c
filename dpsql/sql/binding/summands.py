"""Sums that are added up row by row, although cells of columns with domains tell them.

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
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.schema import Domain, Table
from dpsql.schema.domain import Merging
from dpsql.sql.binding.core import Linear, Statistic, base_of, measured_columns
from dpsql.sql.binding.expressions import BoundExpr

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
