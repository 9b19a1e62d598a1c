"""Stitch: share the privacy cost among the residual spaces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

_GRAIN = 1 << 60


def allocate(
    errors: Sequence[float], counts: Sequence[int], total: Fraction
) -> tuple[Fraction, ...]:
    """Return the shares c_A = C·√E_A / Σ√E, which minimise Σ E_A / c_A (math: Cauchy-Schwarz).

    Args:
        errors: E_A, one for all residual spaces that are alike.
        counts: how many they are.
        total: C.

    Returns:
        The share of each single space. The shares of all are exact and sum to at most `total`.
    """
    roots = [math.sqrt(e) for e in errors]
    largest = max(roots, default=1.0)
    weights = [max(1, int(r / largest * _GRAIN)) for r in roots]
    unit = total / max(1, sum(w * n for w, n in zip(weights, counts, strict=True)))
    return tuple(unit * w for w in weights)


def total_error(errors: Sequence[float], counts: Sequence[int], cost: float) -> float:
    """Return the total weighted variance (Σ √E_A)² / C of the optimal shares."""
    roots = [n * math.sqrt(e) for e, n in zip(errors, counts, strict=True)]
    return math.fsum(roots) ** 2 / cost
