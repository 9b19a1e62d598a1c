"""Certify: recompute what a plan costs from its integer matrices alone.

Trusted core. The planner, its solvers and its floating point are not trusted: whatever they
hand over, the privacy cost is recomputed here in exact integers and rationals.

Guarantees:
    1. `privacy_cost` of a `CertifiedPlan` is k² · Σ_A Δ_A² / σ_A² over the residual spaces A of
       its blocks, exactly, where Δ_A is the largest change of the exact answers in A when one
       record is added or removed, and k is `contributions`.
    2. It is at most the budget's μ², compared as rationals.
    3. Measuring every space once with independent noise round(N(0, σ_A²)) is μ-GDP with
       μ² = privacy_cost, for neighbours of which the counted records differ by at most k that
       were added, or by at most k that were removed. Proof: the exact answers in A are a linear
       map of the histogram, so that they change by a sum of at most k of its columns, each of
       norm at most Δ_A; by the triangle inequality the change has norm at most kΔ_A, and all k
       records in the same cell reach that. The exact answers are integers, so answer +
       round(noise) = round(answer + noise) is post-processing of the Gaussian mechanism, which
       is kΔ_A/σ_A-GDP (Dong, Roth and Su, "Gaussian differential privacy", arXiv 1905.02383,
       Theorem 2.7); the squares add up under composition (Corollary 3.3).
       Where each record is a unit of its own, k is 1. Where a unit has several, the engine counts
       at most k of them, chosen by looking at that unit's records only: adding or removing a
       unit with all of its records adds or removes those and changes nothing else.
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


def privacy_cost(blocks: tuple[BlockStrategy, ...], contributions: int = 1) -> Fraction:
    """Return μ² = k² · Σ_A Δ_A² / σ_A² over all residual spaces, exactly."""
    return contributions**2 * sum((block.privacy_cost for block in blocks), Fraction(0))


@dataclass(frozen=True, slots=True, eq=False)
class CertifiedPlan:
    """Blocks of integer measurements that provably fit a budget. Only this can be charged."""

    blocks: tuple[BlockStrategy, ...]
    budget: Budget
    contributions: int = 1
    """The most records of one privacy unit that are counted."""
    privacy_cost: Fraction = field(init=False)

    def __post_init__(self) -> None:
        if type(self.contributions) is not int or self.contributions < 1:
            raise InternalError("a unit contributes a whole number of records, at least one")
        spaces = [frozenset(space) for block in self.blocks for space in block.spaces]
        if len(set(spaces)) != len(spaces):
            raise InternalError("a residual space is measured twice in one plan")
        cost = privacy_cost(self.blocks, self.contributions)
        if cost > self.budget.mu_squared:
            raise InternalError("a plan costs more than its budget")
        object.__setattr__(self, "privacy_cost", cost)

    @property
    def digest(self) -> str:
        """A hash of everything that will be measured, and for whom, for the ledger."""
        digest = hashlib.sha256(repr(self.contributions).encode())
        for block in self.blocks:
            digest.update(repr((block.spaces, block.noise_variance)).encode())
            for factor in block.factors:
                digest.update(repr((factor.axes, factor.shape, factor.content)).encode())
        return digest.hexdigest()
