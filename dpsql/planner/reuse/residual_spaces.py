"""Plan residual spaces, given what is known about each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.planner.mechanisms.base import Cost
from dpsql.planner.mechanisms.querysmasher import Conquered, divide_by
from dpsql.planner.plans.contents import PlannedBlock
from dpsql.planner.reconstruction.base import CombinedReconstruction
from dpsql.planner.reconstruction.combine import Gathered, combine
from dpsql.planner.reconstruction.sources import Source
from dpsql.planner.residuals.contexts import References
from dpsql.planner.shares.allocation import exact_shares, least_total, water_level
from dpsql.planner.strategies.rounding import Rounding
from dpsql.workload import Workload

NEGLIGIBLE = 1e-4
"""Spaces that would get less than this share of the budget, and are known, are not measured."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownSpaces:
    """Residual spaces of which the same is asked and equally much is known."""

    conquered: Conquered
    spaces: tuple[tuple[str, ...], ...]
    known: float
    """The privacy cost that the earlier measurements are worth."""


@dataclass(frozen=True, slots=True, eq=False)
class Drafted:
    """Blocks to be measured, and the least error of what is asked of each space, at cost 1."""

    blocks: tuple[PlannedBlock, ...]
    asked: tuple[tuple[float, tuple[str, ...]], ...]


def plan_residual_spaces(
    workload: Workload,
    cost: Cost,
    tolerance: float,
    references: References,
    past: Gathered,
) -> Drafted:
    """Plan every residual space that helps, for references over all attributes of the ground.

    Raises:
        ResourceLimitError: no solver can take a subworkload.
    """
    divided = divide_by(workload, references.only(workload.domain), tolerance)
    known = combine(past, references, asked=workload).reconstruction
    conquered = (part for c in divided.conquered for part in c.by_limits(cost.spreads))
    asked = tuple(a for c in conquered for a in _by_knowledge(c, known))
    shares = _shares(asked, float(cost.per_record))
    measured = [i for i in range(len(asked)) if shares[i] > 0]
    counts = [len(asked[i].spaces) for i in measured]
    rounding = Rounding(cost.bound, cost.spreads)
    blocks = []
    for i, share in zip(
        measured, exact_shares(shares[measured].tolist(), counts, cost.per_record), strict=True
    ):
        own = asked[i].conquered
        block = rounding.block(asked[i].spaces, own.solved, share)
        error = len(asked[i].spaces) * own.upper / float(share)
        blocks.append(PlannedBlock(block, error, own.lower, own.solver))
    least = tuple((a.conquered.lower, space) for a in asked for space in a.spaces)
    return Drafted(tuple(blocks), least)


def _shares(asked: Sequence[KnownSpaces], total: float) -> Array:
    """Return the privacy cost of each single space; none where it is known and hardly helped."""
    errors, known, counts = (
        np.array([value(a) for a in asked], dtype=np.float64)
        for value in (lambda a: a.conquered.upper, lambda a: a.known, lambda a: len(a.spaces))
    )
    shares = water_level(errors, known, counts, total)
    shares = np.where((shares < NEGLIGIBLE * total) & (known > 0), 0.0, shares)
    # All is known so well that in floats the budget makes no difference anywhere.
    return shares if shares.any() else water_level(errors, 0.0 * known, counts, total)


def _by_knowledge(conquered: Conquered, known: CombinedReconstruction) -> list[KnownSpaces]:
    """Group spaces of which the same is asked by what is known about them."""
    groups: dict[float, list[tuple[str, ...]]] = defaultdict(list)
    for space in conquered.spaces:
        error = known.residual_error(conquered.terms, space)
        worth = conquered.upper / error if error else 0.0
        groups[float(f"{worth:.6g}")].append(space)
    return [KnownSpaces(conquered, tuple(spaces), worth) for worth, spaces in groups.items()]


def least_residual_error(
    asked: Sequence[tuple[float, tuple[str, ...]]],
    reconstruction: CombinedReconstruction,
    sources: Sequence[Source],
    cost: Fraction,
) -> float:
    """Bound the total error from below, whatever is measured besides the sources.

    Args:
        asked: the least error of what is asked of a residual space, at cost 1, for each.
        reconstruction: that of all measurements, old and new.
        sources: the old ones.
        cost: what the new ones may cost.

    The measurements of a space that cost c and π, by a record, together cost c + π at most, so
    that its error is at least lower/(c + π). Spaces inside joint cells, whose estimates are
    correlated, are not counted: see `joint_cells.least_joint_error`.
    """
    joint = set() if reconstruction.joint is None else set(reconstruction.joint.attributes)
    costs: dict[frozenset[str], float] = defaultdict(float)
    for block in (b for source in sources for b in source.blocks):
        for names in block.spaces:
            costs[frozenset(names)] += float(block.privacy_cost / len(block.spaces))
    bounds = [
        (lower, costs.get(frozenset(space), 0.0))
        for lower, space in asked
        if reconstruction.joint is None or not set(space) <= joint
    ]
    if not bounds:
        return 0.0
    lowers, spent = np.array(bounds).T
    return least_total(lowers, spent, np.ones(len(bounds)), float(cost))
