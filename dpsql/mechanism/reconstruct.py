"""Reconstruct: answers from noisy measurements. Post-processing, so it costs nothing."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanism.measure import NoisyMeasurements
from dpsql.planner.plan import Plan
from dpsql.workload import Family


class Reconstruction:
    """The answers of one release.

    The answers of all families are unbiased and consistent: they are linear functions of the
    same measurements, so that groups add up to totals within and across statements.
    """

    def __init__(self, plan: Plan, measured: NoisyMeasurements) -> None:
        self._plan = plan
        self._values = {space: y.astype(np.float64) for space, y in measured.values.items()}
        self._last: tuple[tuple[str, ...], NDArray[np.float64]] | None = None

    def answers(self, family: Family) -> NDArray[np.float64]:
        """Return the answers of a family, in its shape.

        Raises:
            ResourceLimitError: they are too many to be held at once.
        """
        family.check_held()
        if not family.count:
            return np.zeros(family.shape)
        attributes = tuple(a for block in family.blocks for a in block.attributes)
        result = self._marginal(attributes)
        result = result.reshape([math.prod(block.shape) for block in family.blocks])
        for axis, block in enumerate(family.blocks):
            result = block.queries.apply(result, axis)
        return result

    def _marginal(self, attributes: tuple[str, ...]) -> NDArray[np.float64]:
        """Make the noisy marginal, or take the last one again: several families may use it."""
        if self._last is None or self._last[0] != attributes:
            made = self._plan.recovery.marginal(attributes, self._values)
            made.setflags(write=False)
            self._last = attributes, made
        return self._last[1]


def reconstruct(plan: Plan, measured: NoisyMeasurements, family: Family) -> NDArray[np.float64]:
    """Return the unbiased answers of one family, in its shape."""
    return Reconstruction(plan, measured).answers(family)
