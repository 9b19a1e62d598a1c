"""Stitch: share the privacy cost among the residual spaces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

_GRAIN = 1 << 60


def allocate(errors: Sequence[float], total: Fraction) -> tuple[Fraction, ...]:
    """Return the shares c_A = C·√E_A / Σ√E, which minimise Σ E_A / c_A (math: Cauchy-Schwarz).

    The shares are exact rationals that sum to at most `total`.
    """
    roots = [math.sqrt(e) for e in errors]
    largest = max(roots, default=1.0)
    weights = [max(1, int(r / largest * _GRAIN)) for r in roots]
    unit = total / max(1, sum(weights))
    return tuple(unit * w for w in weights)


def total_error(errors: Sequence[float], cost: float) -> float:
    """Return the total weighted variance (Σ √E_A)² / C of the optimal shares."""
    return math.fsum(math.sqrt(e) for e in errors) ** 2 / cost
