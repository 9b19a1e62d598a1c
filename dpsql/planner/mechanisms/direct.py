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
from typing import Literal

import numpy as np

from dpsql.linalg.arrays import Ints
from dpsql.linalg.digits import least
from dpsql.measurement.factors import ENTRY_BITS, DenseFactor, IntegerFactor
from dpsql.planner.mechanisms.base import Cost, Mechanism, Options, budget_of, reason_of_kind
from dpsql.planner.mechanisms.marginals import (
    MarginalStrategy,
    assemble,
    cells_of,
    error_of,
    shares,
)
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.privacy import Budget
from dpsql.workload import Family, Queries, Workload
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
        found = [_least(group, workload, cost) for group in groups.values()]
        strategies = [
            MarginalStrategy(names, factors, share, solver)
            for (names, factors, solver, _), share in zip(
                found, shares([error for *_, error in found], pure=pure), strict=True
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
    found = (
        (names, factors, solver, error_of(names, factors, families, cost))
        for solver, factors in choices.items()
    )
    return least(found, lambda choice: choice[3])


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
    if math.prod(int(np.abs(m).max()) for m in found) > 1 << (ENTRY_BITS - 1):
        return None
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
