"""Shares of the privacy cost: what each measurement gets, exactly, for the least total error.

*Nothing is known yet.* Spaces whose queries have the least errors E_A at privacy cost 1 have the
errors E_A/c_A at the costs c_A, and Σ E_A/c_A is least for c_A = C·√E_A / Σ√E (Cauchy-Schwarz).

*Something is known already.* A space whose queries have the least error E at privacy cost 1, and
of which earlier measurements say as much as a cost p would, has the error E/(p + c) after c more.
To minimize the sum,

    minimize Σ n_i E_i/(p_i + c_i)  subject to  Σ n_i c_i = C,  c_i >= 0 ,

is convex, with the solution c_i = max(0, μ√E_i − p_i): each space is raised to the same level μ of
(p + c)/√E, and those above it get nothing. (Conditional ResidualPlanner: "AIM+GReM", Appendix D.2,
where a solver takes over once a c_i of the closed form would be negative. The level is found
exactly here, because the cost it takes is piecewise linear in μ.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.digits import significant

_GRAIN = 1 << 60
"""Shares are whole numbers up to this one, of a unit that makes them sum to the total."""


def exact_shares(
    parts: Sequence[float], counts: Sequence[int], total: Fraction
) -> tuple[Fraction, ...]:
    """Return shares in proportion to some parts, exact, that sum to at most `total`.

    Args:
        parts: one for all that are alike. What gets next to nothing gets a little all the same.
        counts: how many they are.
        total: what is shared.

    Returns:
        The share of each single one.
    """
    largest = max(parts, default=0.0) or 1.0  # where nothing is asked, all are alike
    # Errors are floats, of which few digits count: a share that is off by 1e-6 costs 1e-12.
    weights = [max(1, int(float(significant(part / largest)) * _GRAIN)) for part in parts]
    unit = total / max(1, sum(w * n for w, n in zip(weights, counts, strict=True)))
    return tuple(unit * w for w in weights)


def allocate(
    errors: Sequence[float], counts: Sequence[int], total: Fraction
) -> tuple[Fraction, ...]:
    """Return the shares c_A of single spaces, of which `counts` have each error E_A."""
    return exact_shares([math.sqrt(e) for e in errors], counts, total)


def total_error(errors: Sequence[float], counts: Sequence[int], cost: float) -> float:
    """Return the total weighted variance (Σ √E_A)² / C of the optimal shares."""
    roots = [n * math.sqrt(e) for e, n in zip(errors, counts, strict=True)]
    return math.fsum(roots) ** 2 / cost


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


def least_total(errors: Array, known: Array, counts: Array, cost: float) -> float:
    """Return the least Σ n_i E_i/(p_i + c_i)."""
    costs = water_level(errors, known, counts, cost)
    return float((counts * errors / (known + costs)).sum())
