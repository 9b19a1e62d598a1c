"""Differences between the totals of two tables, which mostly cost nothing more. Trusted.

Let a unit have n_r <= k_r rows among those that count of table r, and z_r = n_r/k_r, which is
between 0 and 1, since contributions are never negative. A difference of the tables i and j is

    a_i·(rows of i) − a_j·(rows of j),   a_i·k_i = a_j·k_j = q ,

of which a unit changes the exact value by q(z_i − z_j). With noise of variance σ² that costs
w_ij(z_i − z_j)², w_ij = q²/σ² (`weight`). A unit that has all rows it may have of both changes
nothing; and one that has none of table i spends nothing of what the other measurements of i cost.

*What it costs beside these* (`beyond`). Let C_r be what the measurements of the rows of r cost: for
a unit that has all k_r of them, wherever they lie, by those bounds of `workload.spread` of which
n_r of k_r rows reach n_r/k_r at most (its guarantee 4). Then for n_r of them they cost C_r·z_r at
most, if none of these measurements counts more of its rows than the total does. So a unit costs at
most

    f(z) = Σ_r C_r z_r + Σ_ij w_ij (z_i − z_j)² .

f is convex, so over the box of all z with 0 <= z_r <= 1 it is largest at a corner: at a set S of
tables of which the unit has all rows, and of the others none. With W_r = Σ_j w_rj, the differences
of table r with all others,

    f(S) = Σ_{r∈S} C_r + Σ_{i∈S, j∉S} w_ij <= Σ_{r∈S} C_r + Σ_{r∉S} W_r <= Σ_r max(C_r, W_r) .

So all differences cost Σ_r max(0, W_r − C_r) besides: nothing at all if W_r <= C_r for each table.

Where a sharper bound c_r < C_r is charged for the measurements of r, by pairs of classes, they
cost no more than min(c_r, C_r z_r). As (z_i − z_j)² <= |z_i − z_j| <= (1 − z_i) + (1 − z_j), a unit
costs at most

    Σ_r min(c_r, C_r z_r) + (1 − z_r) W_r .

Each summand is linear in z_r between 0, c_r/C_r and 1, so it is largest at one of them:
W_r, c_r + (1 − c_r/C_r) W_r or c_r. So all differences cost

    Σ_r max(0, W_r − c_r, (1 − c_r/C_r) W_r)

besides, which is what was said if c_r = C_r.

As a process of noise it is Gaussian: all measurements are one Gaussian mechanism, and its μ² is the
largest squared change over variance, which f bounds.

Guarantees:
    1. `beyond` is never less than what the differences add to the largest cost of a unit; it is
       exact arithmetic on integers and fractions.
    2. Measurements are taken for those of a table's rows, whose C_r may be counted, only if they
       have a `MeasureFactor` of the same number of rows and of values 1 on the table's axis, and
       no other: of what else is measured nothing is taken for granted, so that its cost is added as
       if there were no differences.
    3. `check_totals` refuses tables of which who counts doesn't say that they are such: that a
       unit has at most k_r rows in the total, and no more in any other marginal of the same axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import InternalError
from dpsql.measurement.distributions import Gaussian
from dpsql.measurement.factors import ENTRY_BITS, MeasureFactor
from dpsql.measurement.strategy import BlockStrategy
from dpsql.workload.spread import SpreadRows


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of two tables' totals, which a unit with all rows it may have doesn't change."""

    tables: tuple[str, str]
    """The axes of their counts: i and j."""
    times: tuple[int, int]
    """How often the rows of each are taken: a_i and a_j."""
    rows: tuple[int, int]
    """How many of one unit count at most: k_i and k_j."""
    law: Gaussian

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
    def content(self) -> bytes:
        """Everything that tells it from others."""
        return repr((self.tables, self.times, self.rows, self.law)).encode()


def beyond(
    blocks: Sequence[BlockStrategy],
    differences: Sequence[Difference],
    spreads: Sequence[SpreadRows] = (),
) -> Fraction:
    """Return what differences cost beside what blocks cost, exact: see the module.

    Raises:
        InternalError: two differences are of the same tables, or of other numbers of rows.
    """
    if len({difference.space for difference in differences}) < len(differences):
        raise InternalError("the totals of two tables are compared twice")
    rows: dict[str, int] = {}
    weights: dict[str, Fraction] = {}
    for difference in differences:
        for table, most in zip(difference.tables, difference.rows, strict=True):
            if rows.setdefault(table, most) != most:
                raise InternalError("differences are for several numbers of rows of a unit")
            weights[table] = weights.get(table, Fraction(0)) + difference.weight
    found = Fraction(0)
    for table, weight in weights.items():
        charged, evenly = (
            cost_of(blocks, table, rows[table], spreads, evenly=each) for each in (False, True)
        )
        left = (1 - charged / evenly) * weight if evenly else weight
        found += max(Fraction(0), weight - charged, left)
    return found


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
    own = (block for block in blocks if _is_of(block, table, rows))
    return sum((block.cost(spreads, evenly=evenly) for block in own), Fraction(0))


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
