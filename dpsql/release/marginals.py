"""Reconstruct: answers from noisy marginals, and their order. Post-processing, so it is free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array
from dpsql.measurement.measure import NoisyMeasurements
from dpsql.planner.plans.plan import Plan
from dpsql.workload import Family

Marginal = Callable[[tuple[str, ...]], Array]
"""Makes the noisy marginal over some attributes, of shape (cells of the first one, …)."""


class NoisyMarginals:
    """Answers from marginals that are linear functions of the same measurements.

    So the answers of all families are consistent: groups add up to totals within and across
    statements. They are unbiased if the marginals are.
    """

    def __init__(self, marginal: Marginal) -> None:
        self._make = marginal
        self._last: tuple[tuple[str, ...], Array] | None = None

    def answers(self, family: Family) -> Array:
        """Return the answers of a family, in its shape.

        Raises:
            ResourceLimitError: they are too many to be held at once.
        """
        family.check_held()
        if not family.count:
            return np.zeros(family.shape)
        found = self._answers(family)
        if not family.center:
            return found
        return found + family.center * self._answers(family.restored).reshape(family.shape)

    def _answers(self, family: Family) -> Array:
        cells = self._marginal(family.names).ravel()
        return (family.queries @ cells).reshape(family.shape)

    def _marginal(self, attributes: tuple[str, ...]) -> Array:
        """Make the noisy marginal, or take the last one again: several families may use it."""
        if self._last is None or self._last[0] != attributes:
            made = self._make(attributes)
            made.setflags(write=False)
            self._last = attributes, made
        return self._last[1]


def reconstruct(plan: Plan, measured: NoisyMeasurements, family: Family) -> Array:
    """Return the unbiased answers of one family, in its shape."""
    values = plan.values(measured.values)
    return NoisyMarginals(lambda names: plan.reconstruction.marginal(names, values)).answers(family)


def in_group_order(
    array: NDArray[Any], axes: Sequence[Sequence[int]], shape: Sequence[int]
) -> NDArray[Any]:
    """Bring an array from the order of a family's blocks to that of the groups, and flatten it.

    Args:
        array: one value per answer, in the family's own order.
        axes: the axes of each block.
        shape: the number of groups along each axis.
    """
    placed = [axis for block in axes for axis in block]
    tensor = array.reshape([shape[axis] for axis in placed])
    return np.ascontiguousarray(tensor.transpose(np.argsort(placed))).ravel()
