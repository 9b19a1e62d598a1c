"""Noise on the queries or on the marginals, with nothing to it: what is used most today.

Families over the same attributes share a marginal. Its cells are measured, or, where that gives
less error, the queries themselves: where they are few. Marginals share
the budget so that the total error is least. There is no other planning: what one marginal says of
another is not used, but for queries over some of its attributes only.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpsql.measurement.integer import ENTRY_BITS, DenseFactor, IdentityFactor, IntegerFactor
from dpsql.planner.mechanisms.base import Cost, Mechanism, Options, budget_of, reason_of_kind
from dpsql.planner.mechanisms.cells import MarginalStrategy, assemble, shares
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.reconstruction.marginals import MarginalReconstruction
from dpsql.planner.reconstruction.measured import Space
from dpsql.privacy import Budget
from dpsql.workload import Family, Queries, Workload

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
        groups: dict[frozenset[str], list[Family]] = defaultdict(list)
        for family in workload.families:
            if family.count:
                groups[family.attributes].append(family)
        pure = self._laplace
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


def _integers(queries: Queries) -> NDArray[np.int64] | None:
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
