"""Reconstruct: answers from noisy measurements. Post-processing, so it costs nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanism.measure import NoisyMeasurements
from dpsql.planner.plan import Plan
from dpsql.workload import Family


def reconstruct(plan: Plan, measured: NoisyMeasurements, family: Family) -> NDArray[np.float64]:
    """Return the unbiased answers of a family, in its shape.

    The answers of all families are consistent: they are linear functions of the same
    measurements, so that groups add up to totals within and across statements.
    """
    values = {space: y.astype(np.float64) for space, y in measured.values.items()}
    return plan.recovery.answers(family, values)
