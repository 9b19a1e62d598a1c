"""The Gaussian and the Laplace mechanism, which are used most today.

Noise on the queries or on the marginals, without a strategy. Families over the same attributes
share a marginal. Its cells are measured, or, where that gives less error, the queries themselves:
where they are few. Marginals share the budget so that the total error is least. There is no other
planning: what one marginal says of another is not used, but for queries over some of its
attributes only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Ints
from dpsql.linalg.digits import least
from dpsql.measurement.distributions import SCALE_BITS, VARIANCE_BITS, Gaussian, Laplace, Law
from dpsql.measurement.factors import (
    ENTRY_BITS,
    DenseFactor,
    EvenFactor,
    IdentityFactor,
    IntegerFactor,
)
from dpsql.measurement.strategy import BlockStrategy, change_1, change_squared
from dpsql.planner.mechanisms.base import Cost, Mechanism, Options, budget_of, reason_of_kind
from dpsql.planner.plans.plan import TOTAL, Objective, Plan, PlannedBlock
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.reconstruction.marginals import MarginalReconstruction, of_marginals
from dpsql.planner.reconstruction.measured import Space
from dpsql.planner.shares import exact_shares
from dpsql.privacy import Budget
from dpsql.workload import Family, Queries, Workload
from dpsql.workload.spread import Apart
from dpsql.workload.workload import by_attributes

WRITTEN = 2**20
"""Entries of one attribute's queries that are written out to be measured themselves."""


class DirectNoise(Mechanism):
    """Laplace noise for a pure budget, or Gaussian noise for another one.

    Args:
        name: of the one or of the other.
    """

    def __init__(self, name: Literal["gaussian", "laplace"]) -> None:
        self.traits = MECHANISMS[name]
        self._laplace = name == "laplace"

    def reason_unsupported(self, workload: Workload, budget: Budget) -> str | None:
        """Say for which budgets the noise is."""
        if self._laplace and not budget.pure and workload.families:
            return "its Laplace noise is for pure ε: a budget with delta = 0"
        return reason_of_kind(workload, budget, pure=self._laplace)

    def plan(self, workload: Workload, budget: Budget | None, options: Options) -> Plan:
        """Measure each marginal by its cells or by its queries, at its share of the budget."""
        spreads = options.spreads if self._laplace else ()
        cost = Cost(budget_of(budget), options.contributions, options.bound, spreads)
        pure, groups = self._laplace, by_attributes(workload.families)
        # Families without queries have no error, and there is a plan for them all the same.
        groups = groups or {family.attributes: [family] for family in workload.families}
        choices = [_least(group, workload, cost) for group in groups.values()]
        strategies = [
            MarginalStrategy(names, factors, share, solver)
            for (names, factors, solver, _), share in zip(
                choices, shares([error for *_, error in choices], pure=pure), strict=True
            )
        ]
        return assemble(workload, cost, strategies, "marginals")


Found = tuple[tuple[str, ...], tuple[IntegerFactor, ...], str, float]


def _least(families: Sequence[Family], workload: Workload, cost: Cost) -> Found:
    """Measure the cells of a marginal, or the queries of the families over it."""
    names = tuple(a for a in workload.domain if a in families[0].attributes)
    choices = {"cells": cells_of([workload.domain[a] for a in names])}
    queries = _queries(families, names)
    if queries is not None:
        choices["queries"] = queries
    ways = (
        (names, factors, solver, error_of(names, factors, families, cost))
        for solver, factors in choices.items()
    )
    return least(ways, lambda choice: choice[3])


def _queries(families: Sequence[Family], names: Sequence[str]) -> tuple[IntegerFactor, ...] | None:
    """Take the queries of the families as measurements, if they are few and whole numbers.

    Else their cells cost no more: of n cells with m ≥ n queries Q of full rank, least squares from
    the queries have the error Δ²‖QQ⁺‖² = nΔ², and from the cells ‖Q‖² ≤ nΔ².
    """
    blocks = families[0].blocks
    keys = {(b.attributes, b.queries.key) for b in blocks}
    if not names or any(
        {(b.attributes, b.queries.key) for b in f.blocks} != keys for f in families
    ):
        return None
    matrices = [_integers(block.queries) for block in blocks]
    known = [m for m in matrices if m is not None]
    if len(known) < len(matrices):
        return None
    if math.prod(int(np.abs(m).max()) for m in known) > 1 << (ENTRY_BITS - 1):
        return None
    return tuple(
        DenseFactor(tuple(names.index(a) for a in block.attributes), block.shape, m)
        for block, m in zip(blocks, known, strict=True)
    )


def _integers(queries: Queries) -> Ints | None:
    """Write queries out, if they are independent and whole numbers; the latter up to 2^20."""
    if queries.rows > queries.cells or queries.rows * queries.cells > WRITTEN:
        return None
    matrix = queries.matrix
    rounded = np.rint(matrix)
    if (matrix != rounded).any() or not 0 < np.abs(matrix).max(initial=0) < 1 << 20:
        return None
    values = np.linalg.eigvalsh(matrix @ matrix.T)
    if values[0] <= 1e-9 * values[-1]:
        return None
    return rounded.astype(np.int64)


# ── Marginals measured as they are: from real shares to integers and noise ───────────────────────
#
# A mechanism says in which integers it measures each marginal, and which share of the budget that
# gets. From there on all is the same: how many times the integers are measured, the noise, the
# certificate, and what the answers' variances are.


LEAST_SHARE = 1e-4
"""The least share of the budget, relative to the largest one."""
TIMES = 1 << 20
"""The factor by which integers grow, so that a whole parameter of the noise loses nothing."""
NARROW, WIDE = 1 << 14, 1 << 40
"""Noise is made wider than the one where the budget is large, and no wider than the other where it
is small: from there on nothing is lost by whole numbers, and not much is left of 64 bits."""

Reading = Literal["marginals", "pooled"]
"""The way to answers: each from one marginal, or from all of them by least squares."""


@dataclass(frozen=True, slots=True, eq=False)
class MarginalStrategy:
    """Integer measurements of one marginal: a Kronecker product of factors."""

    attributes: tuple[str, ...]
    """One for each axis of the factors."""
    factors: tuple[IntegerFactor, ...]
    """Factors of full column rank, which give every cell; or of full row rank, for their span.

    Products of entries over all factors are below 2^31. They need no common scale: `assemble`
    chooses one. The total has no axes, and one factor of one entry; `cells_of` has that, too.
    """
    share: float
    """The share of the budget, in proportion: of μ², or of ε. See `shares`."""
    solver: str
    """The name of the measurements, for `Plan.explain()`."""


def assemble(
    workload: Workload,
    cost: Cost,
    strategies: Sequence[MarginalStrategy],
    reading: Reading,
) -> Plan:
    """Give each strategy its scale and its noise, certify what it costs, and find the variances.

    The noise is Laplace noise if the budget is pure, else Gaussian.

    Args:
        workload: what to answer.
        cost: what may be spent.
        strategies: what is measured; each family follows from one of them, or from all if pooled.
        reading: how answers follow; if they are pooled, all factors must be identities.

    Raises:
        ResourceLimitError: a budget is too small for noise that fits 64-bit integers.
    """
    blocks = _blocks(strategies, cost)
    spaces = [Space.of_block(s.attributes, b) for s, b in zip(strategies, blocks, strict=True)]
    certified = cost.certified(blocks)
    reconstruction = of_marginals(spaces, workload.families, reading)
    by_marginal = reconstruction.errors_by_marginal(workload)
    planned = tuple(
        PlannedBlock(block, by_marginal[frozenset(s.attributes)], 0.0, s.solver)
        for s, block in zip(strategies, blocks, strict=True)
    )
    total = math.fsum(by_marginal.values())
    return Plan(
        workload.copy(),
        cost.budget,
        planned,
        certified,
        reconstruction,
        reconstruction.references,
        Objective(TOTAL, (), math.inf, total),
    )


def cells_of(sizes: Sequence[int]) -> tuple[IntegerFactor, ...]:
    """Return factors that count every cell of a marginal, or the rows if it has no axes."""
    return tuple(IdentityFactor((axis,), (n,), 1) for axis, n in enumerate(sizes)) or (
        DenseFactor((), (), np.array([[1]], dtype=np.int64)),
    )


def error_of(
    attributes: tuple[str, ...],
    factors: tuple[IntegerFactor, ...],
    families: Sequence[Family],
    cost: Cost,
) -> float:
    """Return the weighted sum of variances if a marginal's cost is 1, but for a constant factor.

    It doesn't depend on the scale of the factors. `shares` makes shares of the errors of all.

    Args:
        attributes: one for each axis of the factors.
        factors: what is measured of the marginal.
        families: what is answered from it; the factors span their queries.
        cost: whether the noise is Laplace noise, and how far apart the rows of a unit are.
    """
    change = float(_change(factors, cost, limits_of(attributes, cost)))
    change **= 2 if cost.budget.pure else 1
    reconstruction = MarginalReconstruction([Space(attributes, factors, 1.0)])
    (place,) = reconstruction.places
    return change * reconstruction.total(Workload.of(place.sizes, families))


def shares(errors: Sequence[float], *, pure: bool) -> list[float]:
    """Return the shares that make Σ E/share (Gaussian) or Σ E/share² (pure) least.

    They are in proportion to √E, or to the cube root of E (HDMM, JPC 2023, Definition 19).
    """
    return [math.cbrt(e) if pure else math.sqrt(e) for e in errors]


def _blocks(strategies: Sequence[MarginalStrategy], cost: Cost) -> tuple[BlockStrategy, ...]:
    # Queries that are always 0 have no error, and are measured all the same: with next to nothing.
    largest = max(s.share for s in strategies) or 1.0
    parts = [max(s.share / largest, LEAST_SHARE) for s in strategies]
    exact = exact_shares(parts, [1] * len(parts), cost.per_record)
    return tuple(_block(s, share, cost) for s, share in zip(strategies, exact, strict=True))


def _block(strategy: MarginalStrategy, share: Fraction, cost: Cost) -> BlockStrategy:
    """Give a strategy the least noise that its share of the cost allows."""
    pure, limits = cost.budget.pure, limits_of(strategy.attributes, cost)
    most = (1 << (ENTRY_BITS - 1)) // cost.bound
    noise = float(_change(strategy.factors, cost, limits) / share)
    factors = _scaled(strategy.factors, noise, most, pure=pure)
    width = max(1, math.ceil(_change(factors, cost, limits) / share))
    if width >= 1 << (SCALE_BITS if pure else VARIANCE_BITS):
        raise ResourceLimitError(
            f"The queries over {' x '.join(strategy.attributes)} can't be measured in 64-bit "
            "integers at this budget.",
            hint="use fewer attributes, or a larger budget.",
        )
    law: Law = Laplace(width) if pure else Gaussian(width)
    return BlockStrategy((strategy.attributes,), factors, law)


def limits_of(attributes: tuple[str, ...], cost: Cost) -> list[Apart]:
    """Say how far apart rows are along the axes of a marginal."""
    said = (spread.within(attributes) for spread in cost.spreads)
    return [limit for limit in said if limit is not None]


def _change(factors: Sequence[IntegerFactor], cost: Cost, limits: Sequence[Apart]) -> Fraction:
    """Return the most that k records change, over k or k²: magnitudes, or their squares."""
    return (change_1 if cost.budget.pure else change_squared)(factors, limits)


def _scaled(
    factors: tuple[IntegerFactor, ...], width: float, most: int, *, pure: bool
) -> tuple[IntegerFactor, ...]:
    """Measure integers several times, so that the noise is wide beside what it is rounded by.

    Products of their entries may be up to `most`.

    Its parameter, the variance or the scale, is a whole number, and rounded up: beside noise of a
    standard deviation near 1 that would waste part of the budget, and no plan would say so.
    """
    largest = math.prod(f.largest_entry for f in factors)
    if not largest:
        return factors
    noise = width if pure else math.sqrt(width)
    wanted = int(min(max(TIMES, NARROW / noise), WIDE / noise))
    times = min(wanted, most // largest)
    if times <= 1:
        return factors
    first, *others = factors
    if isinstance(first, EvenFactor):
        return type(first)(first.axes, first.shape, first.scale * times), *others
    return DenseFactor(first.axes, first.shape, first.matrix * times), *others
