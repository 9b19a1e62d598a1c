"""Certify: recompute what a plan costs from its integer matrices alone.

Trusted core. The planner, its solvers and its floating point are not trusted: whatever they
hand over, the privacy cost is recomputed here in exact integers and rationals.

Guarantees:
    1. `privacy_cost` of a `CertifiedPlan` is Σ_A Δ_A² / σ_A² over the residual spaces A of its
       blocks, exactly, where Δ_A is the largest change of the exact answers in A when one record
       is added or removed.
    2. It is at most the budget's μ², compared as rationals.
    3. Measuring every space once with independent noise round(N(0, σ_A²)) is μ-GDP with
       μ² = privacy_cost. Proof: the exact answers are integers, so answer + round(noise) =
       round(answer + noise) is post-processing of the Gaussian mechanism, which is Δ_A/σ_A-GDP
       (Dong, Roth and Su, "Gaussian differential privacy", arXiv 1905.02383, Theorem 2.7); the
       squares add up under composition (Corollary 3.3).
    4. No `CertifiedPlan` exists for which 1 and 2 don't hold: both are checked at birth, by
       raising, never by `assert`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from fractions import Fraction

from dpsql.errors import InternalError
from dpsql.planner.integer import BlockStrategy
from dpsql.privacy import Budget


def privacy_cost(blocks: tuple[BlockStrategy, ...]) -> Fraction:
    """Return μ² = Σ_A Δ_A² / σ_A² over all residual spaces, exactly."""
    return sum((block.privacy_cost for block in blocks), Fraction(0))


@dataclass(frozen=True, slots=True, eq=False)
class CertifiedPlan:
    """Blocks of integer measurements that provably fit a budget. Only this can be charged."""

    blocks: tuple[BlockStrategy, ...]
    budget: Budget
    privacy_cost: Fraction = field(init=False)

    def __post_init__(self) -> None:
        spaces = [frozenset(space) for block in self.blocks for space in block.spaces]
        if len(set(spaces)) != len(spaces):
            raise InternalError("a residual space is measured twice in one plan")
        cost = privacy_cost(self.blocks)
        if cost > self.budget.mu_squared:
            raise InternalError("a plan costs more than its budget")
        object.__setattr__(self, "privacy_cost", cost)

    @property
    def digest(self) -> str:
        """A hash of everything that will be measured, for the ledger."""
        digest = hashlib.sha256()
        for block in self.blocks:
            digest.update(repr((block.spaces, block.noise_variance)).encode())
            for factor in block.factors:
                digest.update(repr((factor.axes, factor.shape, factor.content)).encode())
        return digest.hexdigest()
