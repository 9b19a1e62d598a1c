"""Share the privacy cost among residual spaces of which something is known already.

A space whose queries have the least error E at privacy cost 1, and of which earlier measurements
say as much as a cost p would, has the error E/(p + c) after c more. To minimise the sum,

    minimise Σ n_i E_i/(p_i + c_i)  subject to  Σ n_i c_i = C,  c_i >= 0 ,

is convex, with the solution c_i = max(0, μ√E_i − p_i): each space is raised to the same level μ of
(p + c)/√E, and those above it get nothing. (Conditional ResidualPlanner: "AIM+GReM", Appendix D.2,
where a solver takes over once a c_i of the closed form would be negative. The level is found
exactly here, because the cost it takes is piecewise linear in μ.)
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_GRAIN = 1 << 60


def water_level(errors: Array, known: Array, counts: Array, cost: float) -> Array:
    """Return the costs c_i, of each single space.

    Args:
        errors: E_i > 0.
        known: p_i >= 0, the cost that earlier measurements are worth.
        counts: n_i, how many spaces are alike.
        cost: C > 0.
    """
    roots = np.sqrt(errors)
    order = np.argsort(known / roots)
    width = np.cumsum((counts * roots)[order])
    depth = np.cumsum((counts * known)[order])
    levels = (cost + depth) / width  # if only the spaces up to this one get something
    begins = (known / roots)[order]
    last = int(np.flatnonzero(levels >= begins)[-1])
    return np.asarray(np.maximum(0.0, levels[last] * roots - known))


def exact_shares(costs: Array, counts: Sequence[int], total: Fraction) -> tuple[Fraction, ...]:
    """Return shares in proportion to some costs, exact, that sum to at most `total`."""
    largest = float(costs.max())
    weights = [int(c / largest * _GRAIN) for c in costs.tolist()]
    unit = total / sum(w * n for w, n in zip(weights, counts, strict=True))
    return tuple(unit * w for w in weights)


def least_total(errors: Array, known: Array, counts: Array, cost: float) -> float:
    """Return the least Σ n_i E_i/(p_i + c_i)."""
    costs = water_level(errors, known, counts, cost)
    return float((counts * errors / (known + costs)).sum())
