"""Iterations in steps of few digits: descent by L-BFGS, and acceleration of fixed points."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.digits import few, few_of_weighted

# ── Descent by L-BFGS, in steps of few digits: the same on every processor ───────────────────────
#
# The method is that of Liu and Nocedal ("On the limited memory BFGS method for large scale
# optimization", Mathematical Programming 45, 1989): of the last steps s and the changes y of the
# slope along them follows a guess of the inverse Hessian, and with it the next direction. Along one
# a step is looked for that goes down enough, and far enough that the slope changes (Lewis and
# Overton, "Nonsmooth optimization via quasi-Newton methods", Mathematical Programming 141, 2013):
# then y·s > 0, and the guess stays positive definite.
#
# Each step is rounded before it is taken (see `digits`), so that y belongs to the very step s.
# SciPy's L-BFGS-B does the same in full digits, and takes half a second to import.


STEPS_KEPT = 10
"""Steps that are remembered."""
ENOUGH, FLAT = 1e-4, 0.9
"""A step gains so much of what the slope promises, and leaves at most so much of the slope."""
NEAR = 0.1
"""Share of the width between two lengths: one between them is not nearer to either."""
TRIES = 12
"""Lengths that are tried along one direction."""
LEVEL = 1e-9
"""Length of the slope, relative to the value, up to which it is noise."""
LEAST_SHARE, MOST_SHARE = 0.1, 0.5
"""A step that doesn't reach far enough is taken for such a part of what does."""

Objective = Callable[[Array], tuple[float, Array]]


class _Memory:
    """The last steps, and what they tell of the Hessian."""

    def __init__(self, kept: int) -> None:
        self._pairs: deque[tuple[Array, Array, float]] = deque(maxlen=kept)

    def learn(self, step: Array, change: Array) -> None:
        """Remember a step and the change of the slope, if there is one."""
        along = float(change @ step)
        if along > 1e-10 * math.sqrt(float(change @ change) * float(step @ step)):
            self._pairs.append((step, change, along))

    def forget(self) -> bool:
        """Forget all; tell whether there was anything."""
        known = bool(self._pairs)
        self._pairs.clear()
        return known

    def direction(self, slope: Array) -> Array:
        """Return the guess of the inverse Hessian times the slope; at first of length 1."""
        if not self._pairs:
            return -slope / math.sqrt(float(slope @ slope))
        result, shares = -slope, list[float]()
        for step, change, along in reversed(self._pairs):
            shares.append(float(step @ result) / along)
            result = result - shares[-1] * change
        _, change, along = self._pairs[-1]
        result = result * (along / float(change @ change))
        for (step, change, along), share in zip(self._pairs, reversed(shares), strict=True):
            result = result + (share - float(change @ result) / along) * step
        return result


def descend(
    objective: Objective,
    start: Array,
    *,
    evaluations: int,
    progress: float = 0.0,
    done: Callable[[], bool] = lambda: False,
    kept: int = STEPS_KEPT,
) -> Array:
    """Go down from a start; return the lowest point of the steps.

    Args:
        objective: the value and the slope at a point.
        start: where to begin.
        evaluations: how often the objective is evaluated at most.
        progress: a step that gains less, relative to the value, is the last one.
        done: tells after each step whether that is enough.
        kept: how many steps are remembered.
    """
    point, memory, left = start, _Memory(kept), evaluations - 1
    value, slope = objective(point)
    while left > 0 and not done() and float(slope @ slope) > (LEVEL * value) ** 2:
        direction = memory.direction(slope)
        moved, tried = _along(objective, point, value, slope, direction, left)
        left -= tried
        if moved is None:
            if not memory.forget():
                break
            continue
        step, after, now = moved
        memory.learn(step, now - slope)
        gained = value - after
        point, value, slope = point + step, after, now
        if gained <= progress * max(abs(value), 1.0):
            break
    return point


@dataclass(frozen=True, slots=True)
class _Tried:
    """Value and slope at some length along a direction."""

    length: float
    value: float
    slope: float

    def to_the_bottom(self, other: _Tried) -> float:
        """Return where the cubic through both has its least value, well between them."""
        width = other.length - self.length
        bent = self.slope + other.slope + 3 * (self.value - other.value) / width
        inside = bent**2 - self.slope * other.slope
        share = 0.5
        if inside > 0:
            root = math.sqrt(inside)
            below = other.slope - self.slope + 2 * root
            share = 1 - (other.slope + root - bent) / below if below > 0 else share
        return self.length + width * min(max(share, NEAR), 1 - NEAR)


def _along(
    objective: Objective, point: Array, value: float, slope: Array, direction: Array, most: int
) -> tuple[tuple[Array, float, Array] | None, int]:
    """Look for a step along a direction; return it with the value and slope, and the evaluations.

    If none gains enough there is none.
    """
    promised = float(slope @ direction)
    low, high, length = _Tried(0.0, value, promised), None, 1.0
    best: tuple[Array, float, Array] | None = None
    for tried in range(1, min(most, TRIES) + 1):
        step = few(length * direction)
        after, now = objective(point + step)
        here = _Tried(length, after, float(now @ direction))
        if not after <= value + ENOUGH * length * promised:
            high = here
        else:
            best, low = (step, after, now), here
            if here.slope >= FLAT * promised:
                return best, tried
        if high is not None:
            length = low.to_the_bottom(high)
        else:  # the slope falls evenly, as far as one can tell
            flatter = 1 - here.slope / promised
            length /= min(max(flatter, LEAST_SHARE), MOST_SHARE)
    return best, min(most, TRIES)


# ── Anderson acceleration: a fixed point is reached in a third of the steps ──────────────────────
#
# Of a map x ↦ x + r(x) the last few x_k and r_k are kept. Where r is nearly linear, the combination
# of the x_k, with weights that add up to 1, in which the r_k cancel best is a better guess than the
# last x (Walker and Ni, "Anderson acceleration for fixed-point iterations", SIAM Journal on
# Numerical Analysis 49, 2011). Here x is log δ of weights δ > 0, which stay positive so; each
# counts as much as it weighs. Steps have few digits, see `digits`.


POINTS_KEPT = 6
LONGEST = 5.0
"""No δ changes by more than e to this in one step."""
LEAST = 1e-300
DEPENDENT = 1e-6
"""Relative size below which combinations of the last steps are noise."""


class Accelerated:
    """The memory of the last steps, from which the next one is made."""

    def __init__(self) -> None:
        self._xs: deque[Array] = deque(maxlen=POINTS_KEPT)
        self._rs: deque[Array] = deque(maxlen=POINTS_KEPT)

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
            mixture, *_ = np.linalg.lstsq(rs * weights[:, None], r * weights, rcond=DEPENDENT)
            step = r - (xs + rs) @ mixture
        moved = x + few_of_weighted(np.clip(step, -LONGEST, LONGEST), weights)
        return np.asarray(np.exp(moved - moved.max()))
