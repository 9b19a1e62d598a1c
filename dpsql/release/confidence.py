"""Intervals: how far they reach for a confidence, and those of quotients.

An interval of x/y holds the values v that a test of x − v·y = 0 doesn't exclude (Fieller, "Some
problems in interval estimation", JRSS B 1954): those with

    (x − v·y)² <= r² Var(x − v·y)    that is    A v² − 2B v + C <= 0,
    A = y² − r² Var(y),  B = xy − r² Cov(x, y),  C = x² − r² Var(x).

If x and y are Gaussian the test is exact, and so is the probability that the true value is held,
however near to 0 the true y may be. For A > 0, where y is significantly different from 0, the
values lie between the roots. Otherwise they don't: either all are held, or all but those
between the roots, and it takes what is possible at all to tell on which side.

x/y itself passes its own test, so an interval holds its value, unless the value is impossible: then
it is cut off with all else that is. What rounding in floats takes off is put back (`holding`); and
what it adds, as to a variance that is 0 whatever the noise is, is allowed for (`ROUNDING`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dpsql.errors import InternalError, SqlError
from dpsql.linalg.arrays import Array
from dpsql.sql.computing.steps import Step

CONFIDENCE = 0.95
"""The probability of a quantile's interval, if no other is asked for."""
ROUNDING = 1e-13
"""Share of the largest magnitude that is possible: more than floats lose in sums and products."""

_UNEQUAL = 1e6
"""The largest ratio of steps to noise, or of noise to steps, that is told from a larger one."""


def check_confidence(confidence: float | None) -> None:
    """Refuse a confidence that is not a probability.

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


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """The ends of intervals, of shape (values,); NaN where nothing is known."""

    lower: Array
    upper: Array

    def after(self, steps: Sequence[Step]) -> Interval:
        """Return intervals of monotone functions of the values."""
        found = self
        for step in steps:
            ends = [_applied(step, end) for end in (found.lower, found.upper)]
            found = Interval(np.minimum(*ends), np.maximum(*ends))
        return found

    def holding(self, values: Array, possible: Interval) -> Interval:
        """Return intervals that reach to their values where these are possible.

        Args:
            values: NaN where there is none.
            possible: from the least to the largest value that is possible.
        """
        inside = (possible.lower <= values) & (values <= possible.upper)
        return Interval(
            np.where(inside, np.minimum(self.lower, values), self.lower),
            np.where(inside, np.maximum(self.upper, values), self.upper),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Quotient:
    """Noisy x and y with what is known of their noise; x/y lies between two limits.

    All are of shape (values,). Limits are NaN where there are none.
    """

    top: Array
    bottom: Array
    variance_top: Array
    variance_bottom: Array
    covariance: Array
    least: Array
    largest: Array
    step_top: Array | float = 0.0
    """By how much roundings within x move it at most, besides noise."""
    step_bottom: Array | float = 0.0

    def largest_error(self) -> Array:
        """Return bounds on the standard errors of x/y for this y, whatever possible value it has.

        To first order that of x/y = v is sqrt(Var(x − v·y)) / |y|. The variance is a square in v
        whose leading coefficient Var(y) is not negative, so it is convex: between two limits it
        is largest at one of them.

        Returns:
            Shape (values,); NaN where there are no limits, or nothing is known.
        """
        ends = [
            self.variance_top - 2 * v * self.covariance + v * v * self.variance_bottom
            for v in (self.least, self.largest)
        ]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.asarray(np.sqrt(np.maximum(np.maximum(*ends), 0.0)) / np.abs(self.bottom))

    @property
    def possible(self) -> Interval:
        """From the least to the largest value that is possible, whatever the noise is."""
        least = np.where(np.isnan(self.least), -np.inf, self.least)
        return Interval(least, np.where(np.isnan(self.largest), np.inf, self.largest))

    def _with_steps(self, reach: float) -> tuple[Array, Array, Array]:
        """Return variances of noise without roundings that excludes no v which both allow.

        With s² = Var(x − v·y), t = a + |v|·b for the steps a of x and b of y, and any k, w > 0

            (r·s + t)² <= (1 + k)·r²s² + (1 + 1/k)·t²,    t² <= a² + w·ab + v²·(b² + ab/w),

        which is a variance of the same form. Both are equal for w = |v| and k = t/rs: v is taken to
        be x/y, and s to be that of x/y or, if it is more, that of the ends by steps alone.
        """
        x, y, a, b = self.top, self.bottom, self.step_top, self.step_bottom
        v_x, v_y, v_xy = self.variance_top, self.variance_bottom, self.covariance
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            v = np.nan_to_num(x / y, nan=0.0, posinf=0.0, neginf=0.0)
            w = np.where(v == 0, 1.0, np.abs(v))
            t = a + np.abs(v) * b
            near = (v, v - t / np.abs(y), v + t / np.abs(y))
            squares = [v_x - 2 * u * v_xy + u * u * v_y for u in near]
            noise = reach * np.sqrt(np.maximum(reduce(np.fmax, squares), 0.0))
            k = np.nan_to_num(t / noise, nan=1.0)
            k = np.clip(k, 1 / _UNEQUAL, _UNEQUAL)
            share = (1 + 1 / k) / reach**2
            more = share * (a * a + w * a * b), share * (b * b + a * b / w)
        k = np.where(a + b == 0, 0.0, k)
        return v_x * (1 + k) + more[0], v_y * (1 + k) + more[1], v_xy * (1 + k)

    def interval(self, reach: float) -> Interval:
        """Return from the first to the last possible value that isn't excluded."""
        x, y, square = self.top, self.bottom, reach**2
        v_x, v_y, v_xy = self._with_steps(reach)
        possible = self.possible
        least, largest = possible.lower, possible.upper
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            a, b = y * y - square * v_y, x * y - square * v_xy
            # B² − AC, without the difference of two large numbers.
            inside = square * (v_x * y * y - 2 * v_xy * x * y + v_y * x * x)
            inside -= square**2 * (v_x * v_y - v_xy * v_xy)
            root = np.sqrt(np.maximum(inside, 0.0))
            ends = (b - root) / a, (b + root) / a
            size = np.maximum(np.abs(least), np.abs(largest))
            rounding = np.where(np.isfinite(size), ROUNDING * size, 0.0)
            low, high = np.minimum(*ends) - rounding, np.maximum(*ends) + rounding
        between = _within(low, high, least, largest)
        split = (a < 0) & (inside > 0)
        # Not between the roots: what is possible may lie on one side of them alone.
        above, below = split & (low < least), split & (high > largest)
        outside = Interval(
            np.where(above & ~below, np.maximum(high, least), least),
            np.where(below & ~above, np.minimum(low, largest), largest),
        )
        lower = np.where(a > 0, between.lower, outside.lower)
        upper = np.where(a > 0, between.upper, outside.upper)
        unknown = np.isnan(x + y + v_x + v_y + v_xy)
        # Noise may leave no root to divide by; what is possible is so all the same.
        rootless = np.isnan(y) & ~np.isnan(x)
        return Interval(
            np.where(unknown, np.where(rootless, self.least, np.nan), lower),
            np.where(unknown, np.where(rootless, self.largest, np.nan), upper),
        )


def _within(low: Array, high: Array, least: Array, largest: Array) -> Interval:
    """Cut intervals to what is possible.

    One of impossible values alone misses the truth. Rather than a point, which would look
    certain, it becomes as long an interval at the end of what is possible.
    """
    with np.errstate(invalid="ignore"):
        length = high - low
        low, high = (
            np.where(low > largest, largest - length, low),
            np.where(high < least, least + length, high),
        )
    return Interval(np.clip(low, least, largest), np.clip(high, least, largest))


def _applied(step: Step, end: Array) -> Array:
    """Apply a monotone function to ends of intervals."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        match step.name:
            case "plus":
                return np.asarray(end + step.number)
            case "times":
                return np.asarray(end * step.number)
            case "round":
                return np.asarray(np.round(end, int(step.number)))
            case "floor":
                return np.floor(end)
            case "ceil":
                return np.ceil(end)
            case "greatest":
                return np.maximum(end, step.number)
            case "least":
                return np.minimum(end, step.number)
            case "sqrt":
                return np.sqrt(np.maximum(end, 0.0))
            case "ln":
                return np.log(np.maximum(end, 0.0))
            case "exp":
                return np.exp(end)
    raise InternalError("an interval has no such step")
