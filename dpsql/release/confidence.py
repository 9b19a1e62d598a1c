"""Intervals: how far they reach for a confidence."""

from __future__ import annotations

import math
import statistics

from dpsql.errors import SqlError

CONFIDENCE = 0.95
"""The probability of a quantile's interval, if no other is asked for."""


def check_confidence(confidence: float | None) -> None:
    """Refuse a confidence that is no probability.

    Raises:
        SqlError: it isn't a number between 0 and 1.
    """
    if confidence is None:
        return
    number = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
    if not number or not 0 < confidence < 1:
        raise SqlError(
            f"A confidence of {confidence!r} is not a probability.", hint="for example 0.95."
        )


def reach(confidence: float, *, laplace: bool = False) -> float:
    """Return how many standard deviations an interval reaches to each side.

    Noise is Gaussian, or the sum of Laplace noises with any weights. One of these alone has the
    heaviest tails, P(|z| > tσ) = e^(−√2·t); of many the sum is nearly Gaussian. The wider interval
    of the two is taken.
    """
    # The lower tail, because 1/2 + c/2 would round to 1 for a c just below 1.
    gaussian = -statistics.NormalDist().inv_cdf((1 - confidence) / 2)
    return max(gaussian, -math.log1p(-confidence) / math.sqrt(2)) if laplace else gaussian
