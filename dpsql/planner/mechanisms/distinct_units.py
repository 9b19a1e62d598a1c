"""Units by groups: all groups less some of their total, which costs less than the groups alone.

A unit that is in s <= m of n groups adds h in {0, 1}^n to the counts of units. With X = BᵀB, what
that costs with noise of variance 1 is hᵀXh, and least squares answers the groups with the total
variance tr X⁻¹. So the best that can be measured of all groups alike is

    minimize tr X⁻¹  subject to  hᵀXh <= 1 for all h in {0, 1}^n with at most m ones.

*All groups are alike in it.* If X is allowed, so is each PXPᵀ with a permutation P of the groups,
and so is the mean of all of these, as the conditions are linear in X; and tr X⁻¹ is convex, so that
of the mean it is no larger. The mean commutes with all permutations: X = x·I + y·J. So with the
eigenvalues 1 across the ones and t² along them, up to a factor,

    X = I − cJ,  c = (1 − t²)/n,   hᵀXh = s − cs²,   tr X⁻¹ = n − 1 + 1/t² ,

one number is left, and the least of  (max_{s<=m} s − cs²)·(n − 1 + 1/t²)  over t in (0, 1] is the
least error of all matrix mechanisms. (For u = t² − 1 >= 0 the cost is m(1 + mu/n), that of s = m.
The logarithm of the error rises by m/(n + mu) − 1/((1 + u)(n + (n − 1)u)) >= 0 with u, as the first
is at least 1/(n + u). So t > 1 is no better than t = 1.) With t = 1 that is
independent noise, whose error is m·n. For m = n the least is 2.4 times less for n = 12 and 3.3
times for n = 100, and tends to 4 times; for m = 1, where the groups of a unit are as its cells are,
independent noise is best.

B = a·I − b·J in integers has t = 1 − nb/a; what it costs, `UnitFactor` computes exactly. With
Laplace noise b = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dpsql.errors import ResourceLimitError
from dpsql.linalg.digits import significant
from dpsql.measurement.distributions import SCALE_BITS, VARIANCE_BITS, Gaussian, Laplace, Law
from dpsql.measurement.factors import UnitFactor
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.mechanisms.base import Cost
from dpsql.planner.plans.plan import TOTAL, Objective, Plan, PlannedBlock
from dpsql.planner.reconstruction.marginals import Place, of_marginals
from dpsql.planner.reconstruction.measured import Space
from dpsql.workload import Workload

LEAST_SCALE, MOST_SCALE = 1 << 20, 1 << 29
"""Factors of a group's own count, at least and at most: the part taken off is to be whole, too."""
FINENESS = 1 << 10
"""The scale is so many times the number of groups, if it may be."""
STEPS = 60
_GOLDEN = (math.sqrt(5) - 1) / 2


class Most(NamedTuple):
    """The most that a unit changes: so many groups, and each of them by so much."""

    groups: int
    each: int = 1


@dataclass(frozen=True, slots=True)
class UnitNoise:
    """The measurement of units by groups.

    Args:
        groups: n, the number of groups.
        most: m, the largest number of them that a unit is in.
        each: l, by how much a unit changes a group at most. Noise is for that, and all else here
            for changes by 1.
    """

    groups: int
    most: int
    each: int = 1

    def cost(self, along: float) -> float:
        """Return max s − cs² over the whole numbers s <= m, for the eigenvalue t along the ones."""
        bent = (1 - along**2) / self.groups
        peak = 1 / (2 * bent) if bent * 2 * self.most > 1 else float(self.most)
        near = {self.most, min(self.most, math.floor(peak)), min(self.most, math.ceil(peak))}
        return max(s - bent * s**2 for s in near)

    def error(self, along: float) -> float:
        """Return the sum of the variances of all groups, at privacy cost 1."""
        return self.cost(along) * (self.groups - 1 + 1 / along**2)

    def best(self) -> float:
        """Return the eigenvalue along the ones with the least error.

        The error has few local minima, where the worst s changes. So places are tried all over,
        and the best of them is refined between its neighbors (golden section).
        """
        if self.groups == 1 or self.most == 1:
            return 1.0
        tried = significant(np.geomspace(1e-3, 1.0, 400))
        at = int(np.argmin([self.error(float(t)) for t in tried]))
        low, high = float(tried[max(0, at - 1)]), float(tried[min(len(tried) - 1, at + 1)])
        for _ in range(STEPS):
            left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
            if self.error(left) <= self.error(right):
                high = right
            else:
                low = left
        return min((float(tried[at]), (low + high) / 2), key=self.error)

    def factor(self, along: float, own: int) -> UnitFactor:
        """Return the strategy in whole numbers, for a scale."""
        all_ = round(own * (1 - along) / self.groups)
        return UnitFactor((0,), (self.groups,), own, all_, self.most)

    def block(self, name: str, along: float, cost: Fraction, *, pure: bool) -> BlockStrategy:
        """Return the strategy with the least noise that a cost allows: of μ², or of ε.

        Raises:
            ResourceLimitError: it does not fit 64-bit integers.
        """
        wanted = 1 << (FINENESS * self.groups - 1).bit_length()
        scale = max(1, min(max(LEAST_SCALE, wanted), MOST_SCALE // self.each))
        while scale:
            factor = self.factor(along, scale)
            change = factor.largest_column_sum if pure else factor.largest_column_norm_squared
            change *= self.each if pure else self.each**2
            width = max(1, math.ceil(change / cost))
            if width < 1 << (SCALE_BITS if pure else VARIANCE_BITS):
                law: Law = Laplace(width) if pure else Gaussian(width)
                return BlockStrategy(((name,),), (factor,), law)
            scale >>= 1
        raise ResourceLimitError(
            "Units can't be counted in 64-bit integers at this budget.",
            hint="use fewer groups, or a larger budget.",
        )


def least_error(workload: Workload, most: int) -> float:
    """Return the least weighted error of units by groups, at a privacy cost of μ² = 1.

    It is that of all matrix mechanisms; 0 if no such bound is known, as where groups have different
    weights.
    """
    _, noise = _noise(workload, Most(most))
    families = workload.families
    if not all(block.queries.is_identity for family in families for block in family.blocks):
        return 0.0
    return math.fsum(family.weight for family in families) * noise.error(noise.best())


def _noise(workload: Workload, most: Most) -> tuple[str, UnitNoise]:
    """Return the attribute of the groups, and how they are measured."""
    (name,) = workload.families[0].names
    return name, UnitNoise(
        workload.domain[name], min(most.groups, workload.domain[name]), most.each
    )


def plan_units(workload: Workload, cost: Cost, most: Most, *, best: bool, marginals: bool) -> Plan:
    """Plan the counts of units by groups.

    Args:
        workload: what is asked of one attribute, whose cells are the groups.
        cost: what may be spent.
        most: in how many groups a unit is at most, and how much it changes each.
        best: whether to take the best strategy, and not independent noise.
        marginals: whether answers are to follow as those of marginals do.

    Raises:
        ResourceLimitError: the budget is too small for noise that fits 64-bit integers.
    """
    name, noise = _noise(workload, most)
    pure = cost.budget.pure
    amount = cost.budget.amount if pure else cost.budget.mu_squared
    least = noise.best()
    block = noise.block(name, least if best and not pure else 1.0, amount, pure=pure)
    space = Space.of_block((name,), block)
    marginal = of_marginals([space], workload.families, "marginals")
    reconstruction = marginal if marginals else Place(space).reconstruction
    total = reconstruction.total(workload)
    lower = 0.0 if pure else least_error(workload, most.groups)
    reached = total * float(amount) / most.each**2
    gap = max(0.0, reached / lower - 1) if lower else math.inf
    return Plan(
        workload.copy(),
        cost.budget,
        (PlannedBlock(block, total, lower / cost.contributions**2, "units"),),
        cost.certified((block,)),
        reconstruction,
        {},
        Objective(TOTAL, (), gap, total),
    )
