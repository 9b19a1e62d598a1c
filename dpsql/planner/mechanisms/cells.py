"""Plans that measure marginals as they are, not residual spaces: from real shares to integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from dpsql.errors import ResourceLimitError
from dpsql.measurement.distributions import SCALE_BITS, VARIANCE_BITS, Gaussian, Laplace, Law
from dpsql.measurement.integer import BlockStrategy, IntegerFactor
from dpsql.planner.mechanisms.base import Cost
from dpsql.planner.plans.plan import Objective, Plan, PlannedBlock
from dpsql.planner.reconstruction.measured import Space
from dpsql.planner.reconstruction.pooled import of_marginals
from dpsql.planner.shares.allocation import exact_shares
from dpsql.workload import Workload

LEAST_SHARE = 1e-4
"""Of the budget, relative to the largest share."""

Reading = Literal["marginals", "pooled"]
"""How answers follow: each from one marginal, or from all of them by least squares."""


@dataclass(frozen=True, slots=True, eq=False)
class MarginalStrategy:
    """Integer measurements of all cells of one marginal."""

    attributes: tuple[str, ...]
    """One for each axis of the factors."""
    factors: tuple[IntegerFactor, ...]
    """Of full column rank."""
    share: float
    """Of the budget, in proportion: of μ², or of ε."""
    solver: str


def assemble(
    workload: Workload,
    cost: Cost,
    strategies: Sequence[MarginalStrategy],
    reading: Reading,
) -> Plan:
    """Give each strategy its noise, certify what it costs, and find the variances.

    The noise is Laplace noise if the budget is pure, else Gaussian. If answers are pooled, all
    factors must be identities.

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
