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
from dpsql.planner.component import Component
from dpsql.planner.decompose import Pieces, Subworkload, decompose
from dpsql.planner.plan import Plan, PlannedBlock
from dpsql.planner.recovery import Recovery
from dpsql.planner.rounding import Rounding
from dpsql.planner.solvers.base import Solution
from dpsql.planner.solvers.choose import Solutions, choose
from dpsql.planner.solvers.product import describe, solve_product
from dpsql.planner.structure import analyse
from dpsql.privacy import Budget
from dpsql.workload import Workload

DEFAULT_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Conquered:
    """A subworkload with a strategy and bounds on its error at privacy cost 1."""

    attributes: tuple[str, ...]
    terms: tuple[tuple[float, tuple[Component, ...]], ...]
    """What is asked: weights and Kronecker products, to be added up."""
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
    solutions, rounding = Solutions(tolerance), Rounding()
    conquered = [conquer(s, solutions) for s in decompose(workload, Pieces())]
    shares = allocate([c.upper for c in conquered], budget.mu_squared)
    blocks = tuple(
        rounding.block(c.attributes, c.solved, share)
        for c, share in zip(conquered, shares, strict=True)
    )
    recovery = Recovery(blocks)
    planned = tuple(
        PlannedBlock(block, recovery.error(c.terms, block), c.lower, c.solver)
        for c, block in zip(conquered, blocks, strict=True)
    )
    return Plan(workload.copy(), budget, planned, CertifiedPlan(blocks, budget), recovery)


def conquer(subworkload: Subworkload, solutions: Solutions) -> Conquered:
    """Find a strategy for one subworkload."""
    structure = analyse(subworkload)
    hard = structure.rest or any(choose(c) is None for c in structure.components)
    if hard and len(subworkload.attributes) > 1:
        solved, upper, lower = solve_product(subworkload, solutions)
        terms = tuple((t.weight, t.pieces) for t in subworkload.terms)
        solver = describe([c for c, _ in solved])
        return Conquered(subworkload.attributes, terms, solved, upper, lower, solver)
    solved = tuple((c, solutions.of(c)) for c in structure.components)
    upper = structure.weight * math.prod(s.upper for _, s in solved)
    lower = structure.weight * math.prod(s.lower for _, s in solved)
    names = [f"{s.solver} on {' x '.join(c.attributes)}" for c, s in solved]
    terms = ((structure.weight, structure.components),)
    solver = " (x) ".join(names) or "closed form"
    return Conquered(subworkload.attributes, terms, solved, upper, lower, solver)


def _check(workload: Workload, tolerance: float) -> None:
    if not workload.families:
        raise WorkloadError("The workload is empty.", hint="add at least one family of queries.")
    if not 1e-8 <= tolerance <= 1:
        raise WorkloadError(
            f"The tolerance {tolerance!r} is out of range.", hint="use 1e-8 to 1, e.g. 1e-3."
        )
