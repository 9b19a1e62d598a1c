"""What plans are made of: their blocks, their objective, and what was measured before."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.reconstruction.combine import Combination
from dpsql.planner.reconstruction.measured import Noisy
from dpsql.planner.reconstruction.parts import PartedCombination


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """Residual spaces that are measured alike, with the certificate of their strategy."""

    strategy: BlockStrategy
    error: float
    """The weighted sum of variances that their noise gives to all queries, rounding included."""
    lower: float
    """No strategy for one of them has a smaller weighted variance at privacy cost 1; 0 if no
    bound is known."""
    solver: str


@dataclass(frozen=True, slots=True)
class Objective:
    """What a plan is best at, where that is not the total weighted variance."""

    name: str
    binding: tuple[str, ...]
    """The statements without which less error, or a smaller budget, would be possible."""
    gap: float
    """How far the plan is from the best for this objective at most."""
    total: float
    """The sum of weight·variance."""


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """Earlier measurements that answers rest on as well."""

    combination: Combination | PartedCombination
    measured: tuple[Noisy, ...]
    """The noisy integers of each source but the last, which is the plan itself; none of those
    that were only planned."""
    total: float
    """The sum of weight·variance."""
    lower: float
    """No further measurements of this form, at this budget, make it less."""

    @property
    def gap(self) -> float:
        """How far the total is from the bound, at most; infinite if there is no bound."""
        return max(0.0, self.total / self.lower - 1.0) if self.lower else math.inf
