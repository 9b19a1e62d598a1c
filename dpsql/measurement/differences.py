"""Differences between the counts of two tables, which mostly cost nothing more. Trusted.

Let a unit have at most k_r rows among those that count of table r, and z_r·k_r among those of them
that satisfy a condition f_r on their cells (`Condition`), or among all if there is none. So
0 <= z_r <= 1, since contributions are never negative. A difference of the tables i and j is

    a_i·(such rows of i) − a_j·(such rows of j),   a_i·k_i = a_j·k_j = q ,

of which a unit changes the exact value by q(z_i − z_j). With noise of variance σ² that costs
w_ij(z_i − z_j)², w_ij = q²/σ² (`weight`). A unit that has all rows it may have of both, and all of
them so, changes nothing; and one that has none of table i spends nothing of what the other
measurements of i cost.

*What it costs beside these* (`beyond`). Let C¹_r be what the measurements of r cost for a unit
that has all k_r rows in one cell with f_r = 1, and C⁰_r in one with f_r = 0, at most: the largest
k_r²·(squared norm of the column)/variance over all cells of the kind, added up over the blocks;
C⁰_r = 0 if there is no condition. For any rows they cost C¹_r z_r + C⁰_r (1 − z_r) at most.
*Proof.* Of n <= k rows in the cells d_1, …, d_n, ‖B Σ e_d‖² <= n Σ ‖B e_d‖² <= Σ (1/k)·k²‖B e_d‖²,
of which those with f = 1 add C¹/k each at most, and the others C⁰/k, as would rows that the unit
hasn't. ∎ So a unit costs at most

    F(z) = Σ_r C¹_r z_r + C⁰_r (1 − z_r) + Σ_ij w_ij (z_i − z_j)² ,

which is convex, and so largest at a corner of the box of all z: with s_r = 1 or 0 for each table,

    max over s of Σ_r C_r^{s_r} + Σ_{s_i ≠ s_j} w_ij .

(1) Of few tables (`MOST_TABLES`) that is computed. Where each C_r is of one cell it is exact: a
unit with all of its rows there reaches it, and with no rows where C⁰ = 0. (2) It is at most
Σ_r max(C¹_r, C⁰_r + W_r), with W_r = Σ_j w_rj: give each w_ij with s_i ≠ s_j to that of the two
with s = 0. So all differences cost nothing at all if W_r <= C¹_r − C⁰_r for each table; that is
W_r <= C¹_r, where all that is measured of r counts rows with f_r = 1 alone.

Where rows of a unit are `spreads` apart, less may be charged for the measurements of r, c_r, than
max(C¹_r, C⁰_r). Without a condition C¹_r may be any of those bounds of `workload.spread` of
which n of k rows reach n/k at most (its guarantee 4). Then the measurements cost no more than
min(c_r, C¹_r z_r + C⁰_r (1 − z_r)). As (z_i − z_j)² <= |z_i − z_j| <= (1 − z_i) + (1 − z_j), a unit
costs at most

    Σ_r min(c_r, C¹_r z_r + C⁰_r (1 − z_r)) + (1 − z_r) W_r .

Each summand is concave in z_r, with at most one bend, at z* = (c_r − C⁰_r)/(C¹_r − C⁰_r) if
C⁰_r < c_r < C¹_r. So it is largest at 0, where it is min(c_r, C⁰_r) + W_r, at 1, where it is c_r at
most, or at z*, where it is c_r + (1 − z*) W_r. So all differences cost

    Σ_r max(0, min(c_r, C⁰_r) + W_r − c_r, (1 − z*) W_r)

besides, which is what (2) says if c_r = max(C¹_r, C⁰_r). Of few tables the lesser of that is
charged, and of what (1) is above Σ_r c_r.

As a process of noise it is Gaussian: all measurements are one Gaussian mechanism, and its μ² is the
largest squared change over variance, which F bounds.

Guarantees:
    1. `beyond` is never less than what the differences add to the largest cost of a unit; it is
       exact arithmetic on integers and fractions.
    2. Measurements are taken for those of a table's rows, whose C_r may be counted, only if they
       have a `MeasureFactor` of the same number of rows and of values 1 on the table's axis, and
       no other: of what else is measured nothing is taken for granted, so that its cost is added as
       if there were no differences. Where one isn't over all attributes of a condition, or has too
       many entries, its largest cost is in both C¹_r and C⁰_r.
    3. `check_totals` refuses tables of which who counts doesn't say that they are such: that a
       unit has at most k_r rows in the total, and no more in any other marginal of the same axis.
       Rows that satisfy a condition are some of those of the marginal over its attributes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.measurement.distributions import Gaussian
from dpsql.measurement.factors import ENTRY_BITS, MeasureFactor
from dpsql.measurement.strategy import BlockStrategy
from dpsql.workload.spread import SpreadRows

MOST_TABLES = 16
"""Tables that are compared with each other for which all states of a unit are looked at."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The rows of a table that are counted in a difference: those in some of its joint cells."""

    attributes: tuple[str, ...]
    """As they are called in the table alone."""
    shape: tuple[int, ...]
    """The number of cells along each."""
    cells: bytes
    """For each joint cell, in C order: 1 where rows are counted, else 0."""

    def __post_init__(self) -> None:
        if not self.attributes or len(set(self.attributes)) != len(self.attributes):
            raise InternalError("a condition is on one attribute or more, on each once")
        if any(type(n) is not int or n < 1 for n in self.shape):
            raise InternalError("an attribute of a condition has a whole number of cells")
        if len(self.shape) != len(self.attributes) or len(self.cells) != math.prod(self.shape):
            raise InternalError("a condition does not fit its attributes")
        if not set(self.cells) <= {0, 1} or 1 not in self.cells:
            raise InternalError("a condition says of each cell whether rows there are counted")

    def named(self, table: str) -> tuple[str, ...]:
        """Return the attributes as they are called among several tables: see `UnitTable`."""
        return tuple(f"{table}.{name}" for name in self.attributes)

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Whether rows of each joint cell are counted, in the shape of the cells."""
        return np.frombuffer(self.cells, dtype=np.bool_).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of two tables' counts, which a unit with all rows it may have doesn't change."""

    tables: tuple[str, str]
    """The axes of their counts: i and j."""
    times: tuple[int, int]
    """The numbers of times that the rows of each are taken: a_i and a_j."""
    rows: tuple[int, int]
    """The most rows of one unit that count: k_i and k_j."""
    law: Gaussian
    conditions: tuple[Condition | None, Condition | None] = (None, None)
    """The rows of each that are counted; None for all of them."""

    def __post_init__(self) -> None:
        numbers = (*self.times, *self.rows)
        if len(self.tables) != 2 or len(self.times) != 2 or len(self.rows) != 2:
            raise InternalError("a difference is of two tables")
        if len(set(self.tables)) != 2:
            raise InternalError("a difference is of two tables, not of one")
        if any(type(number) is not int or number < 1 for number in numbers):
            raise InternalError("a difference is of whole numbers, from one")
        if max(self.times) >= 1 << ENTRY_BITS:
            raise InternalError("an entry of a difference has 31 bits or more")
        if self.times[0] * self.rows[0] != self.times[1] * self.rows[1]:
            raise InternalError("all rows of a unit in two tables don't cancel")
        if not isinstance(self.law, Gaussian):
            raise InternalError("differences are measured with Gaussian noise")
        if len(self.conditions) != 2:
            raise InternalError("a difference has a condition, or none, for each table")

    @property
    def change(self) -> int:
        """The most by which a unit changes it: q, with all rows in one table and none in the other.

        Rows are never taken away from one table for those that another has, so it is no more.
        """
        return self.times[0] * self.rows[0]

    @property
    def weight(self) -> Fraction:
        """The cost of measuring it alone: w = q²/σ², exact."""
        return Fraction(self.change**2, self.law.squared)

    @property
    def space(self) -> frozenset[str]:
        """The name by which it is known among the noisy numbers of a release: the two tables."""
        return frozenset(self.tables)

    @property
    def sides(self) -> Iterator[tuple[str, Condition | None]]:
        """Both tables, each with the condition for its rows."""
        return zip(self.tables, self.conditions, strict=True)

    @property
    def marginals(self) -> tuple[tuple[str, ...], ...]:
        """The marginals of what is compared: attributes of a condition, and axes of counts."""
        return tuple((*(of.named(table) if of else ()), table) for table, of in self.sides)

    @property
    def content(self) -> bytes:
        """The words that tell two differences apart."""
        said = self.tables, self.times, self.rows, self.law
        return repr((*said, self.conditions) if any(self.conditions) else said).encode()


class _Own(NamedTuple):
    """The costs of what is measured of a table that is compared."""

    charged: Fraction
    """c."""
    counted: Fraction
    """C¹: of rows that are counted in differences."""
    others: Fraction
    """C⁰: of those that aren't."""
    weight: Fraction
    """W: of all differences with others."""

    @property
    def beyond(self) -> Fraction:
        """The most that its differences cost besides."""
        charged, counted, others, weight = self
        bounds = [Fraction(0), min(charged, others) + weight - charged]
        if others < charged < counted:
            bounds.append((counted - charged) / (counted - others) * weight)
        return max(bounds)


def beyond(
    blocks: Sequence[BlockStrategy],
    differences: Sequence[Difference],
    spreads: Sequence[SpreadRows] = (),
) -> Fraction:
    """Return what differences cost beside what blocks cost: see the module.

    Raises:
        InternalError: two differences are of the same tables; or some of a table are of other
            numbers of rows, or of other conditions.
    """
    if len({difference.space for difference in differences}) < len(differences):
        raise InternalError("the totals of two tables are compared twice")
    rows: dict[str, tuple[int, Condition | None]] = {}
    weights: dict[str, Fraction] = {}
    for difference in differences:
        for (table, condition), most in zip(difference.sides, difference.rows, strict=True):
            if rows.setdefault(table, (most, condition)) != (most, condition):
                raise InternalError("differences are for several numbers of rows of a unit")
            weights[table] = weights.get(table, Fraction(0)) + difference.weight
    costs: dict[str, _Own] = {}
    for table, weight in weights.items():
        most, condition = rows[table]
        charged = cost_of(blocks, table, most, spreads, evenly=False)
        costs[table] = _Own(charged, *costs_by(blocks, table, most, spreads, condition), weight)
    surplus = sum((table_costs.beyond for table_costs in costs.values()), Fraction(0))
    if surplus and len(costs) <= MOST_TABLES:
        charged = sum((table_costs.charged for table_costs in costs.values()), Fraction(0))
        return min(surplus, max(Fraction(0), _largest(costs, differences) - charged))
    return surplus


def _largest(costs: Mapping[str, _Own], differences: Sequence[Difference]) -> Fraction:
    """Return the largest cost of all states of a unit, of tables and differences together.

    From each state to the next one table changes, in the order of Gray, so that sums are kept.
    """
    numbers = {table: i for i, table in enumerate(costs)}
    parts = [n for table_costs in costs.values() for n in (table_costs.counted, table_costs.others)]
    common = math.lcm(*(n.denominator for n in (*parts, *(d.weight for d in differences))))
    counted, others = ([int(n * common) for n in parts[i::2]] for i in (0, 1))
    whole: list[list[tuple[int, int]]] = [[] for _ in costs]
    for difference in differences:
        i, j = (numbers[table] for table in difference.tables)
        whole[i].append((j, int(difference.weight * common)))
        whole[j].append((i, int(difference.weight * common)))
    state, now = [False] * len(costs), sum(others)
    largest = now
    for step in range(1, 1 << len(costs)):
        at = (step & -step).bit_length() - 1
        now += (others[at] - counted[at]) if state[at] else (counted[at] - others[at])
        now += sum(w if state[j] == state[at] else -w for j, w in whole[at])
        state[at] = not state[at]
        largest = max(largest, now)
    return Fraction(largest, common)


def costs_by(
    blocks: Sequence[BlockStrategy],
    table: str,
    rows: int,
    spreads: Sequence[SpreadRows] = (),
    condition: Condition | None = None,
) -> tuple[Fraction, Fraction]:
    """Return what all measurements of a table cost evenly: C¹ and C⁰ of the module.

    Args:
        blocks: what is measured.
        table: the axis of its counts.
        rows: how many rows of one unit count at most.
        spreads: how far these are apart.
        condition: which of them are counted in differences.
    """
    if condition is None:
        return cost_of(blocks, table, rows, spreads, evenly=True), Fraction(0)
    counted = others = Fraction(0)
    for block in blocks:
        if not _is_of(block, table, rows):
            continue
        for space in block.spaces:
            norms = _norms_by(block, space, condition, table)
            counted += Fraction(norms[0]) / block.law.width
            others += Fraction(norms[1]) / block.law.width
    return counted, others


def _norms_by(
    block: BlockStrategy, space: tuple[str, ...], condition: Condition, table: str
) -> tuple[int, int]:
    """Return the largest squared norms of columns whose rows are counted, and of all others."""
    names, largest = condition.named(table), block.sensitivity_squared
    if not set(names) <= set(space):
        return largest, largest
    places = [space.index(name) for name in names]
    if tuple(block.shape[axis] for axis in places) != condition.shape:
        raise InternalError("a condition is on other cells than are measured")
    times, parts, axes = 1, list[NDArray[Any]](), list[int]()
    for factor in block.factors:
        axes_here = [axis for axis in factor.axes if axis in places]
        part = factor.column_squares(axes_here) if axes_here else None
        if axes_here and part is None:
            return largest, largest
        if part is None:
            times *= factor.largest_column_norm_squared
            continue
        parts.append(part)
        axes += axes_here
    norms = np.asarray(reduce(np.multiply.outer, parts, np.array(times, dtype=object)))
    norms = norms.transpose([axes.index(axis) for axis in places])
    counted = condition.counted
    return int(norms[counted].max(initial=0)), int(norms[~counted].max(initial=0))


def cost_of(
    blocks: Sequence[BlockStrategy],
    table: str,
    rows: int,
    spreads: Sequence[SpreadRows] = (),
    *,
    evenly: bool,
) -> Fraction:
    """Return what all measurements cost that are of the rows of a table, and of nothing else.

    Args:
        blocks: what is measured.
        table: the axis of its counts.
        rows: how many rows of one unit count at most.
        spreads: how far these are apart.
        evenly: whether n of these rows must cost n/rows of it at most: C_r, else c_r.
    """
    counted_blocks = (block for block in blocks if _is_of(block, table, rows))
    return sum((block.cost(spreads, evenly=evenly) for block in counted_blocks), Fraction(0))


def _is_of(block: BlockStrategy, table: str, rows: int) -> bool:
    """Whether a block is of counts of a table, in which a unit has so many rows."""
    sums = [factor for factor in block.factors if isinstance(factor, MeasureFactor)]
    if len(sums) != 1 or block.of_units:
        return False
    (factor,) = sums
    axes = {space[factor.axes[0]] for space in block.spaces}
    return axes == {table} and factor.bound == 1 and factor.change == rows


def check_totals(differences: Sequence[Difference], totals: Mapping[str, int]) -> None:
    """Refuse to compare what are not totals of tables, or in which a unit may have more rows.

    `totals` is of those who count: which axes are of counts of tables, how many rows of a unit each
    table's total holds at most, and that no marginal with the same axis holds more of them.

    Raises:
        InternalError: a plan would give away more than was paid for.
    """
    if any(type(most) is not int or most < 0 for most in totals.values()):
        raise InternalError("a unit has a whole number of rows")
    for difference in differences:
        for table, most in zip(difference.tables, difference.rows, strict=True):
            if table not in totals:
                raise InternalError("what is compared is not the total of a table")
            if totals[table] > most:
                raise InternalError("a unit may have more rows in a table than is paid for")


def times_of(rows: tuple[int, int], largest: int) -> tuple[int, int] | None:
    """Return the a_i and a_j of a difference, the larger of them at most `largest`.

    None if there are none that small.
    """
    common = math.lcm(*rows)
    least = common // rows[0], common // rows[1]
    scale = largest // max(least)
    return (least[0] * scale, least[1] * scale) if scale else None
