"""What every solver takes and gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.planner.structure import Component


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A strategy for one component, with a certificate.

    The strategy is B = coefficients @ basis, where the integer `basis` spans every query of the
    component, and `coefficients` is upper triangular with a positive diagonal. B measured at
    privacy cost 1 (its columns have norm at most 1) gives a total weighted variance of `upper`
    before rounding; no strategy gives less than `lower`.
    """

    coefficients: NDArray[np.float64]
    """Shape (r, r)."""
    basis: NDArray[np.int64]
    """Shape (r, cells)."""
    upper: float
    lower: float
    solver: str


class Solver(ABC):
    """One way to find a strategy for a component."""

    name: str

    @abstractmethod
    def accepts(self, component: Component) -> bool:
        """Tell whether the component has the structure that this solver needs."""

    @abstractmethod
    def solve(self, component: Component, tolerance: float) -> Solution:
        """Find a strategy whose relative gap is at most `tolerance`, or as near as it gets."""
