"""Plan the touched attributes as a whole, given what is known about their joint cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from dpsql.linalg.roots import root_of
from dpsql.planner.mechanisms.base import Cost
from dpsql.planner.plans.plan import PlannedBlock
from dpsql.planner.reconstruction.combine import JOINT_CELLS, Combination, precision
from dpsql.planner.reconstruction.entries import entries
from dpsql.planner.reconstruction.sources import Ground, Source
from dpsql.planner.residuals.averaging import Reference
from dpsql.planner.residuals.component import Component
from dpsql.planner.reuse.conditional import bound_near, least_error, measure_given
from dpsql.planner.strategies.base import Solution, Triangular
from dpsql.planner.strategies.express import over_basis
from dpsql.planner.strategies.rounding import Rounding
from dpsql.planner.strategies.whole import QUICK_CELLS, integer_basis
from dpsql.workload import Workload
from dpsql.workload.joint import gram, touched

Array = NDArray[np.float64]

BOUND_TOLERANCE = 1e-3
FLOOR = 1e-3
"""Norms of rows, relative to the longest: what is hardly measured is so to this extent, so that
strategies in integers have full rank."""


def plan_together(
    workload: Workload, cost: Cost, tolerance: float, sources: Sequence[Source], ground: Ground
) -> PlannedBlock | None:
    """Plan one block over all joint cells; None if they are too many."""
    names = touched(workload)
    shape = tuple(ground.sizes[name] for name in names)
    if not names or math.prod(shape) > JOINT_CELLS:
        return None
    known = known_precision(sources, ground, names)
    if known is None:
        return None
    asked = gram(workload, names)
    budget = float(cost.per_record)
    best = measure_given(root_of(asked), shape, known, budget, tolerance / 4)
    if not best.root.any():  # all is known so well that the budget would not tell
        return None
    strategy = _strategy(workload, names, best.root)
    component = Component(
        tuple(range(len(names))),
        tuple(Reference.of_cells(n) for n in shape),
        b"whole",
        root_of(asked),
    )
    kind = "closed form" if best.closed else "search"
    solver = f"dual over the whole domain, given earlier measurements ({kind})"
    solution = Solution(strategy, 0.0, best.lower, solver)
    block = Rounding().block((names,), ((component, solution),), cost.per_record)
    return PlannedBlock(block, 0.0, best.lower, solver)


def least_joint_error(
    workload: Workload, combination: Combination, new: int, cost: Fraction
) -> float:
    """Bound the error of what is asked of the joint cells of a combination; 0 if there are many.

    Args:
        workload: what is asked.
        combination: of old and new measurements.
        new: the number of the new source: whatever it measures.
        cost: what that may cost.
    """
    reconstruction = combination.reconstruction
    joint = reconstruction.joint
    if joint is None:
        return 0.0
    families = tuple(reconstruction.joint_part(family) for family in workload.families)
    (factor,) = joint.factors
    cells = math.prod(factor.shape)
    if cells > QUICK_CELLS:
        return 0.0
    (part,) = (part for part in combination.parts if part.space is joint)
    sizes = dict(zip(joint.attributes, factor.shape, strict=True))
    old = [(e, e.indices(joint.attributes, sizes)) for e in part.counted if e.source != new]
    known = precision(old, cells)
    # Some of the joint cells' attributes may be known only from the old measurements.
    asked = gram(Workload.of({**workload.domain, **sizes}, families), joint.attributes)
    if not asked.any():
        return 0.0
    rows, budget = root_of(asked), float(cost)
    fresh = [(e, e.indices(joint.attributes, sizes)) for e in part.counted if e.source == new]
    root = root_of(precision(fresh, cells))
    near = bound_near(rows, known, root, budget) if root.any() else 0.0
    return max(near, least_error(rows, factor.shape, known, budget, BOUND_TOLERANCE))


def known_precision(
    sources: Sequence[Source], ground: Ground, names: tuple[str, ...]
) -> Array | None:
    """Return the precision with which earlier measurements tell the joint cells of some attributes.

    Sources that measured joint cells of further attributes tell something about these too, as far
    as the others can be summed over. None if they have too many joint cells.
    """
    found = [entry for i, s in enumerate(sources) for entry in entries(i, s, ground)]
    others = {a for s in sources if s.whole for a in s.attributes} - set(names)
    rest = tuple(name for name in ground.sizes if name in others)
    wide = (*names, *rest)
    cells = [math.prod(ground.sizes[name] for name in group) for group in (names, rest)]
    if math.prod(cells) > JOINT_CELLS:
        return None
    placed = [(e, e.indices(wide, ground.sizes)) for e in found if e.attributes <= set(wide)]
    return _summed_over(precision(placed, math.prod(cells)), *cells)


def _summed_over(total: Array, cells: int, rest: int) -> Array:
    """Return the precision of sums over the last axis, of cells × rest joint cells.

    In orthonormal coordinates along the rest, of which the first is the sum divided by √rest, the
    precision of some coordinates is the Schur complement of that of all.
    """
    if rest == 1:
        return total
    turn = scipy.fft.dct(np.eye(rest), norm="ortho", axis=0)
    tensor = total.reshape(cells, rest, cells, rest)
    tensor = np.einsum("ra,iajb,sb->risj", turn, tensor, turn, optimize=True)
    ours, both = tensor[0, :, 0, :], tensor[0, :, 1:, :].reshape(cells, -1)
    theirs = tensor[1:, :, 1:, :].reshape((rest - 1) * cells, -1)
    left = ours - both @ np.linalg.pinv(theirs, hermitian=True, rcond=1e-11) @ both.T
    return np.asarray((left + left.T) / 2 / rest)


def _strategy(workload: Workload, names: tuple[str, ...], root: Array) -> Triangular:
    """Express rows over the queries' own, where these span them, or over all cells."""
    values, vectors = np.linalg.eigh(root.T @ root)
    rank = int((values > 1e-9 * values[-1]).sum())
    basis = integer_basis(workload, names, rank)
    if basis is not None and len(basis) == rank and _spans(basis, root):
        return over_basis(np.sqrt(np.maximum(values, 0.0))[-rank:, None] * vectors.T[-rank:], basis)
    scale = np.maximum(np.sqrt(np.maximum(values, 0.0)), FLOOR * math.sqrt(float(values[-1])))
    return over_basis(scale[:, None] * vectors.T, np.eye(root.shape[1], dtype=np.int64))


def _spans(basis: NDArray[np.int64], rows: Array) -> bool:
    rows = rows / max(float(np.abs(rows).max()), 1e-300)
    independent = basis.astype(np.float64)
    found = rows @ np.linalg.pinv(independent) @ independent
    return bool((np.abs(found - rows) < 1e-6).all())
