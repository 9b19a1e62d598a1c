"""Anderson acceleration: a fixed point is reached in a third of the steps.

Of a map x ↦ x + r(x) the last few x_k and r_k are kept. Where r is nearly linear, the combination
of the x_k, with weights that add up to 1, in which the r_k cancel best is a better guess than the
last x (Walker and Ni, "Anderson acceleration for fixed-point iterations", SIAM Journal on Numerical
Analysis 49, 2011).
Here x is log δ of weights δ > 0, which stay positive so; each counts as much as it weighs. Steps
have few digits, see `digits`.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.digits import few_of_weighted

KEPT = 6
LONGEST = 5.0
"""No δ changes by more than e to this in one step."""
LEAST = 1e-300
DEPENDENT = 1e-6
"""Relative size below which combinations of the last steps are noise."""


class Accelerated:
    """What is kept of the last steps."""

    def __init__(self) -> None:
        self._xs: deque[Array] = deque(maxlen=KEPT)
        self._rs: deque[Array] = deque(maxlen=KEPT)

    def forget(self) -> None:
        """Begin anew: the next step is a plain one."""
        self._xs.clear()
        self._rs.clear()

    def next(self, delta: Array, r: Array) -> Array:
        """Return the next δ, up to a factor, after the plain step would be δ·e^r."""
        x = np.log(np.maximum(delta, LEAST))
        self._xs.append(x)
        self._rs.append(r)
        step, weights = r, np.sqrt(delta)
        if len(self._xs) > 1:
            xs, rs = (np.diff(np.array(kept), axis=0).T for kept in (self._xs, self._rs))
            found, *_ = np.linalg.lstsq(rs * weights[:, None], r * weights, rcond=DEPENDENT)
            step = r - (xs + rs) @ found
        moved = x + few_of_weighted(np.clip(step, -LONGEST, LONGEST), weights)
        return np.asarray(np.exp(moved - moved.max()))
