"""The worst row: the most that one row can cost in all that is measured at once. Trusted.

What is measured of a set A of attributes costs a row in the cell d of A, which adds v there with
|v| <= M, at most n_A(d)/w: n is M² times the squared norm of the column of d and w the variance, or
M times the sum of its magnitudes and w the scale of Laplace noise. A row is in *one* cell of each
attribute, and in the same one in all sets that have it. So all sets together cost it at most

    Σ_A n_A(d_A)/w_A  <=  max over the joint cells d of all attributes of  Σ_A n_A(d_A)/w_A ,

d_A those cells of d that A has. Sums of conditions that exclude each other have columns that are 0
where the others' are not, so that each of them may cost as much as there is to spend; to add up
the largest of each set would be to pay for rows that don't exist. n_A is a product of numbers of
A's factors, as a column of a Kronecker product is one of columns.

*What a row is.* The values v may be different ones in each set, of any signs, and depend on other
rows: only their bounds are used, and their supports. Let rows add nothing to the sums of a measure
outside of some cells of an attribute (`rel.support`). Then a set of that measure costs a row in
another cell of it nothing, whether or not the set has the attribute: n_A is multiplied by the table
that is 1 in these cells, and 0 in the others. A row without a cell of an attribute adds nothing to
the sets that have it, which is less than in any cell, as no n is negative; and as one of the cells
is in the support, it costs no more than it would there. k rows, one after another, change all
answers, each divided by its noise, by vectors of norm at most √C, C the cost of the worst row: by
k√C together (triangle inequality), so that they cost k²C; with Laplace noise kC.

*Elimination.* A *table* has a number for each joint cell of some attributes. The largest sum of
tables is found by one attribute after another:

    max_d [ Σ tables without a  +  Σ tables with a ]
        = max over the other attributes of [ Σ tables without a  +  max_a Σ tables with a ] ,

where max_a Σ is one new table. Where that would have more than `MOST_CELLS`, those with a are put
into groups, and each group is maximized over a by itself. That is never less, because
max(s + t) <= max s + max t; nor is any other step: neither the order nor the groups, whoever
chooses them, can make the result too small. And it is no more than the sum of the largest of each,
as max(s + t) is no more than that for any s and t.

Guarantees:
    1. `worst_row` is never less than the cost of any row, and never more than the sum over sets of
       their largest n/w, rounded up as in 3.
    2. It is the largest of the former exactly where no table has more than `MOST_CELLS` cells, and
       there are no more of them than is said below.
    3. All is in whole numbers over one denominator: the least common one of all w. Where that has
       more than `MOST_BITS` bits, it is 2^MOST_BITS, and each number is rounded up.
    4. Cells of two sets are the same if the attribute has the same name and is of as many cells;
       else it is taken for two attributes, of which a row has cells that are independent. That
       numbers stand for the same cells in all marginals is for those to see to who count
       (`engines.base.Counted`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.measurement.distributions import Laplace
from dpsql.measurement.factors import DenseFactor
from dpsql.measurement.strategy import BlockStrategy

if TYPE_CHECKING:
    from dpsql.rel.support import Support

Axis = tuple[Hashable, int]
"""An attribute, and how many cells it has."""

MOST_CELLS = 2**16
"""Cells of a table, from which what would become one is divided."""
MOST_TABLES = 2**10
"""Tables that are added cell by cell. Of more, the largest number of each is added."""
MOST_SETS, MOST_NUMBERS = 2**13, 2**21
"""Sets, and numbers of all their tables, that are added cell by cell. Of more, the largest cost of
each set is added."""
MOST_BITS = 2**12
"""Bits of the common denominator."""


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """Whole numbers that are not negative, for each joint cell of some attributes."""

    axes: tuple[Axis, ...]
    """Each once; none, of a table of a single number."""
    cells: NDArray[Any]
    """In Python's integers, of their shape."""

    def __post_init__(self) -> None:
        if self.cells.dtype != object:  # 64 bits don't hold what is made of them
            raise InternalError("a cost is of Python's integers")

    @property
    def largest(self) -> int:
        """The largest number."""
        return int(self.cells.max(initial=0))

    def along(self, axes: Sequence[Axis]) -> NDArray[Any]:
        """Return the numbers along some axes, of length 1 where the table has none of them."""
        order = sorted(range(len(self.axes)), key=lambda i: axes.index(self.axes[i]))
        shape = [axis[1] if axis in self.axes else 1 for axis in axes]
        return np.asarray(self.cells.transpose(order).reshape(shape), dtype=object)

    def over(self, axis: Axis) -> CostTable:
        """Return the largest numbers over the cells of an attribute."""
        place = self.axes.index(axis)
        rest = self.axes[:place] + self.axes[place + 1 :]
        return CostTable(rest, np.asarray(self.cells.max(axis=place, initial=0), dtype=object))

    def narrowed(self) -> CostTable:
        """Return it without the attributes along which no number changes."""
        table = self
        for axis in self.axes:
            first = np.take(table.cells, [0], axis=table.axes.index(axis))
            if (table.cells == first).all():
                table = table.over(axis)
        return table

    def named(self, names: Mapping[Hashable, str]) -> CostTable:
        """Return it with other names of attributes."""
        return CostTable(tuple((names[axis], n) for axis, n in self.axes), self.cells)


@dataclass(frozen=True, slots=True)
class RowCost:
    """The cost of a row in what is measured of one set: the product of some tables, over w."""

    tables: tuple[CostTable, ...]
    """Tables of different attributes."""
    width: int
    """w >= 1: the variance of the noise, or its scale."""

    @property
    def largest(self) -> int:
        """The largest product, which is w times the cost of some row."""
        return math.prod(table.largest for table in self.tables)

    @property
    def cells(self) -> int:
        """The number of cells of `over`, or more."""
        return min(math.prod(table.cells.size for table in self.tables), MOST_CELLS)

    @property
    def varies(self) -> bool:
        """Whether it is not the same in all cells."""
        return any(table.axes for table in self.tables)

    def named(self, space: Sequence[str]) -> RowCost:
        """Return it for the attributes of a set, in place of their numbers."""
        names: dict[Hashable, str] = dict(enumerate(space))
        return RowCost(tuple(table.named(names) for table in self.tables), self.width)

    def supported(self, supports: Iterable[Support]) -> RowCost:
        """Return it for sums to which rows add nothing outside of some cells of attributes."""
        tables = list(self.tables)
        for support in supports:
            axis = support.attribute, len(support.cells)
            cells = np.array([int(cell) for cell in support.cells], dtype=object)
            support_costs = CostTable((axis,), cells)
            place = next((i for i, table in enumerate(tables) if axis in table.axes), None)
            if place is None:
                tables.append(support_costs)
            else:
                table = tables[place]
                tables[place] = CostTable(table.axes, table.cells * support_costs.along(table.axes))
        return RowCost(tuple(tables), self.width)

    def over(self, denominator: int) -> CostTable:
        """Return it over a common denominator, rounded up; of many cells, a larger one.

        Of those factors that would make the table too large, the largest number stands for all.
        """
        times, kept, size = 1, list[CostTable](), 1
        for table in sorted(self.tables, key=lambda table: table.cells.size):
            if size * table.cells.size > MOST_CELLS:
                times *= table.largest
            else:
                kept.append(table)
                size *= table.cells.size
        scale = np.array(times * denominator, dtype=object)
        product = reduce(_outer, (table.cells for table in kept), scale)
        axes = tuple(axis for table in kept for axis in table.axes)
        return CostTable(axes, np.asarray(-(-product // self.width), dtype=object))


def _outer(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Multiply each number by each: exactly, and of no axes an array as well.

    NumPy makes a bare number of the latter, and of that 64 bits in the next product.
    """
    return np.asarray(np.multiply.outer(first, second), dtype=object)


def row_cost(block: BlockStrategy) -> RowCost:
    """Return what one set of a block costs a row, along the numbers of its axes.

    Only what is written out has columns of different norms; where it isn't computed of a factor,
    its largest norm stands for all.
    """
    pure = isinstance(block.law, Laplace)
    times, tables = 1, list[CostTable]()
    for factor in block.factors:
        numbers = None
        if isinstance(factor, DenseFactor):
            numbers = (factor.column_sums if pure else factor.column_squares)(factor.axes)
        if numbers is None:
            times *= factor.largest_column_sum if pure else factor.largest_column_norm_squared
        else:
            tables.append(CostTable(tuple(zip(factor.axes, factor.shape, strict=True)), numbers))
    constant = CostTable((), np.array(times, dtype=object))
    return RowCost((constant, *(table.narrowed() for table in tables)), block.law.width)


def worst_row(costs: Sequence[RowCost]) -> Fraction:
    """Return the most that a row costs in some sets at once: see the module."""
    if len(costs) > MOST_SETS or sum(cost.cells for cost in costs) > MOST_NUMBERS:
        by_width: dict[int, int] = {}
        for cost in costs:
            by_width[cost.width] = by_width.get(cost.width, 0) + cost.largest
        return sum((Fraction(of, width) for width, of in by_width.items()), Fraction(0))
    denominator = math.lcm(*(cost.width for cost in costs))
    if denominator.bit_length() > MOST_BITS:
        denominator = 1 << MOST_BITS
    tables = _added(cost.over(denominator) for cost in costs)
    while len(tables) <= MOST_TABLES and (axis := _next(tables)) is not None:
        groups = _groups([table for table in tables if axis in table.axes])
        rest = (table for table in tables if axis not in table.axes)
        tables = _added([*rest, *(_sum(group).over(axis) for group in groups)])
    return Fraction(sum(table.largest for table in tables), denominator)


def _next(tables: Sequence[CostTable]) -> Axis | None:
    """Return the attribute whose tables make the smallest one; None if there is none left."""
    beside: dict[Axis, set[Axis]] = {}
    for table in tables:
        for axis in table.axes:
            beside.setdefault(axis, set()).update(table.axes)
    return min(beside, key=lambda axis: (_size(beside[axis]), repr(axis)), default=None)


def _groups(tables: Sequence[CostTable]) -> list[list[CostTable]]:
    """Divide tables so that the sum of each group has no more than `MOST_CELLS`, if one has."""
    groups: list[list[CostTable]] = []
    for table in sorted(tables, key=lambda table: -table.cells.size):
        for group in groups:
            if _size({axis for member in (*group, table) for axis in member.axes}) <= MOST_CELLS:
                group.append(table)
                break
        else:
            groups.append([table])
    return groups


def _added(tables: Iterable[CostTable]) -> list[CostTable]:
    """Add up those of the same attributes."""
    alike: dict[frozenset[Axis], list[CostTable]] = {}
    for table in tables:
        alike.setdefault(frozenset(table.axes), []).append(table)
    return [_sum(same) for same in alike.values()]


def _sum(tables: Sequence[CostTable]) -> CostTable:
    """Add up tables cell by cell."""
    axes = tuple(dict.fromkeys(axis for table in tables for axis in table.axes))
    return CostTable(axes, np.asarray(sum(table.along(axes) for table in tables), dtype=object))


def _size(axes: Iterable[Axis]) -> int:
    return math.prod(n for _, n in axes)
