"""QuerySmasher (arXiv 2604.00868, Algorithm 1): divide, conquer, stitch.

Where this differs from the paper: products of queries stay products, every subworkload is
solved to a certified gap by its dual, and what comes out is a strategy in integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsql.errors import WorkloadError
from dpsql.planner.allocate import allocate
from dpsql.planner.certify import CertifiedPlan
from dpsql.planner.decompose import Subworkload, decompose
from dpsql.planner.plan import Plan, PlannedBlock
from dpsql.planner.rounding import round_block
from dpsql.planner.solvers.base import Solution
from dpsql.planner.solvers.choose import choose, solve_component
from dpsql.planner.solvers.product import describe, solve_product
from dpsql.planner.structure import Component, analyse
from dpsql.privacy import Budget
from dpsql.workload import Workload

DEFAULT_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Conquered:
    """A subworkload with a strategy and bounds on its error at privacy cost 1."""

    subworkload: Subworkload
    solved: tuple[tuple[Component, Solution], ...]
    upper: float
    lower: float
    solver: str


def plan(workload: Workload, budget: Budget, *, tolerance: float = DEFAULT_TOLERANCE) -> Plan:
    """Plan the measurements that answer a workload with the least total weighted variance.

    Args:
        workload: what to answer.
        budget: what may be spent.
        tolerance: the relative gap to aim for, between 1e-8 and 1.

    Raises:
        WorkloadError: the workload is empty, or the tolerance is out of range.
        ResourceLimitError: no solver can take a subworkload of this size.
    """
    _check(workload, tolerance)
    conquered = [conquer(s, tolerance / 4) for s in decompose(workload)]
    if not conquered:
        return Plan(workload, budget, (), CertifiedPlan((), budget))
    shares = allocate([c.upper for c in conquered], budget.mu_squared)
    planned = tuple(
        PlannedBlock(round_block(c.subworkload.attributes, c.solved, share), c.lower, c.solver)
        for c, share in zip(conquered, shares, strict=True)
    )
    certified = CertifiedPlan(tuple(block.strategy for block in planned), budget)
    return Plan(workload, budget, planned, certified)


def conquer(subworkload: Subworkload, tolerance: float) -> Conquered:
    """Find a strategy for one subworkload."""
    structure = analyse(subworkload)
    if structure.rest or any(choose(c) is None for c in structure.components):
        solved, upper, lower = solve_product(subworkload, tolerance)
        return Conquered(subworkload, solved, upper, lower, describe([c for c, _ in solved]))
    each = tolerance / max(1, len(structure.components))
    solved = tuple((c, solve_component(c, each)) for c in structure.components)
    upper = structure.weight * math.prod(s.upper for _, s in solved)
    lower = structure.weight * math.prod(s.lower for _, s in solved)
    names = [f"{s.solver} on {' x '.join(c.attributes)}" for c, s in solved]
    return Conquered(subworkload, solved, upper, lower, " (x) ".join(names) or "closed form")


def _check(workload: Workload, tolerance: float) -> None:
    if not workload.families:
        raise WorkloadError("The workload is empty.", hint="add at least one family of queries.")
    if not 1e-8 <= tolerance <= 1:
        raise WorkloadError(
            f"The tolerance {tolerance!r} is out of range.", hint="use 1e-8 to 1, e.g. 1e-3."
        )
