"""Marginals measured as they are, and not residual spaces: from real shares to integers and noise.

The Gaussian and the Laplace mechanism are here, which are used most today: noise on the queries or
on the marginals, without a strategy. Families over the same attributes share a marginal. Its cells
are measured, or, where that gives less error, the queries themselves: where they are few. Marginals
share the budget so that the total error is least. There is no other planning: what one marginal
says of another is not used, but for queries over some of its attributes only.
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
from dpsql.measurement.distributions import SCALE_BITS, VARIANCE_BITS, Gaussian, Laplace, Law
from dpsql.measurement.integer import (
    ENTRY_BITS,
    BlockStrategy,
    DenseFactor,
    IdentityFactor,
    IntegerFactor,
)
from dpsql.planner.mechanisms.base import Cost, Mechanism, Options, budget_of, reason_of_kind
from dpsql.planner.plans.plan import Objective, Plan, PlannedBlock
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.reconstruction.marginals import MarginalReconstruction
from dpsql.planner.reconstruction.measured import Space
from dpsql.planner.reconstruction.pooled_marginals import of_marginals
from dpsql.planner.shares.allocation import exact_shares
from dpsql.privacy import Budget
from dpsql.workload import Family, Queries, Workload
from dpsql.workload.joint import by_attributes

LEAST_SHARE = 1e-4
"""Of the budget, relative to the largest share."""

Reading = Literal["marginals", "pooled"]
"""How answers follow: each from one marginal, or from all of them by least squares."""


@dataclass(frozen=True, slots=True, eq=False)
class MarginalStrategy:
    """Integer measurements of one marginal: a Kronecker product of factors."""

    attributes: tuple[str, ...]
    """One for each axis of the factors."""
    factors: tuple[IntegerFactor, ...]
    """Of full column rank, so that every cell follows; or of full row rank, for what they span.

    The parameter of the noise is a whole number, rounded up. So one factor carries a `SCALE`: with
    entries of 0 and 1 the noise could be far too wide, and no plan would say so. Products of
    entries over all factors stay below 2^31. The total has no axes, and one factor of one entry.
    """
    share: float
    """Of the budget, in proportion: of μ², or of ε. See `shares`."""
    solver: str
    """What is measured, for `Plan.explain()`."""


def assemble(
    workload: Workload,
    cost: Cost,
    strategies: Sequence[MarginalStrategy],
    reading: Reading,
) -> Plan:
    """Give each strategy its noise, certify what it costs, and find the variances.

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
        Objective("total weighted variance", (), math.inf, total),
    )


def shares(errors_: Sequence[float], *, pure: bool) -> list[float]:
    """Return the shares that make Σ E/share (Gaussian) or Σ E/share² (pure) least.

    They are in proportion to √E, or to the cube root of E (HDMM, JPC 2023, Definition 19).
    """
    return [math.cbrt(e) if pure else math.sqrt(e) for e in errors_]


def _blocks(strategies: Sequence[MarginalStrategy], cost: Cost) -> tuple[BlockStrategy, ...]:
    # Queries that are always 0 have no error, and are measured all the same: with next to nothing.
    largest = max(s.share for s in strategies) or 1.0
    parts = [max(s.share / largest, LEAST_SHARE) for s in strategies]
    exact = exact_shares(parts, [1] * len(parts), cost.per_record)
    pairs = zip(strategies, exact, strict=True)
    return tuple(_block(strategy, share, pure=cost.budget.pure) for strategy, share in pairs)


def _block(strategy: MarginalStrategy, cost: Fraction, *, pure: bool) -> BlockStrategy:
    """Give a strategy the least noise that its share of the cost allows."""
    change = math.prod(
        f.largest_column_sum if pure else f.largest_column_norm_squared for f in strategy.factors
    )
    width = max(1, math.ceil(change / cost))
    if width >= 1 << (SCALE_BITS if pure else VARIANCE_BITS):
        raise ResourceLimitError(
            f"The queries over {' x '.join(strategy.attributes)} can't be measured in 64-bit "
            "integers at this budget.",
            hint="use fewer attributes, or a larger budget.",
        )
    law: Law = Laplace(width) if pure else Gaussian(width)
    return BlockStrategy((strategy.attributes,), strategy.factors, law)


SCALE = 1 << 20
"""How many times cells are counted, so that noise of any variance fits integers closely."""
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
        cost = Cost(budget_of(budget), options.contributions)
        pure, groups = self._laplace, by_attributes(workload.families)
        found = [_least(group, workload, pure=pure) for group in groups.values()]
        strategies = [
            MarginalStrategy(names, factors, share, solver)
            for (names, factors, solver, _), share in zip(
                found, shares([error for *_, error in found], pure=pure), strict=True
            )
        ]
        return assemble(workload, cost, strategies, "marginals")


Found = tuple[tuple[str, ...], tuple[IntegerFactor, ...], str, float]


def _least(families: Sequence[Family], workload: Workload, *, pure: bool) -> Found:
    """Measure the cells of a marginal, or the queries of the families over it."""
    names = tuple(a for a in workload.domain if a in families[0].attributes)
    cells = _cells([workload.domain[a] for a in names])
    choices = [(names, cells, "cells", _error(names, cells, families, pure=pure))]
    queries = _queries(families, names)
    if queries is not None:
        choices.append((names, queries, "queries", _error(names, queries, families, pure=pure)))
    return min(choices, key=lambda choice: choice[3])


def _cells(sizes: Sequence[int]) -> tuple[IntegerFactor, ...]:
    """Count every cell; one axis carries the scale."""
    if not sizes:
        return (DenseFactor((), (), np.array([[SCALE]], dtype=np.int64)),)
    return tuple(
        IdentityFactor((axis,), (n,), 1 if axis else SCALE) for axis, n in enumerate(sizes)
    )


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
    found = [m for m in matrices if m is not None]
    if len(found) < len(matrices):
        return None
    largest = math.prod(int(np.abs(m).max()) for m in found)
    room = (1 << (ENTRY_BITS - 1)) // largest
    if not room:
        return None
    found[0] = found[0] * min(SCALE, room)
    return tuple(
        DenseFactor(tuple(names.index(a) for a in block.attributes), block.shape, m)
        for block, m in zip(blocks, found, strict=True)
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


def _error(
    names: tuple[str, ...],
    factors: tuple[IntegerFactor, ...],
    families: Sequence[Family],
    *,
    pure: bool,
) -> float:
    """Return the weighted sum of variances if a marginal's cost is 1, but for a constant factor."""
    change = 1.0
    for factor in factors:
        change *= factor.largest_column_sum**2 if pure else factor.largest_column_norm_squared
    reconstruction = MarginalReconstruction([Space(names, factors, 1.0)])
    (place,) = reconstruction.places
    return change * reconstruction.total(Workload.of(place.sizes, families))
