"""Weighted least squares over many cells: min ½‖A x − y‖², for x >= 0 or for any x.

For x >= 0, most cells of a minimum are zero. So the sum of squares is minimized over some cells
at a time: those that are not zero, and about as many as there are measurements of those that
would lower it most. L-BFGS-B finds out which of them stay zero, conjugate gradients go straight
to the minimum over the others. That is repeated until it makes no difference. A x is the same at
every minimum, and so are all answers that were measured; which minimum is found matters for no
answer that was.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array, Ints
from dpsql.release.cells import MeasuredTable, Tables

MAX_ROUNDS = 200
"""How often cells are chosen; 5 to 40 times are usual."""
INNER = 50
"""Steps of L-BFGS-B for each choice: more would be wasted on cells that are not the last ones."""
MEMORY = 20
"""Steps that L-BFGS-B learns the curvature from."""
LEAST_CELLS = 4096
"""So many cells are taken at a time even if there are fewer measurements."""
ENOUGH = 1e-6
"""Ends when a round lowers ½‖A x − y‖² by less than so much of it, or of 1: y has variance 1."""
MAX_GRADIENTS = 200
"""Conjugate gradients at a time; without bounds, as many as there are kinds of measurements do."""
MAX_RESTARTS = 20
"""Conjugate gradients begin anew, where rounding in floats has led them astray."""
MAX_HALVINGS = 20
_ACCURACY = 1e-10
_FLAT = 1e-13
_MISSED = 1e-5
"""An estimate of a sum may count each cell by so much more or less than once."""


def least_squares(tables: Tables, y: Array, start: Array, *, nonnegative: bool) -> Array:
    """Return x near a minimum of ½‖A x − y‖²: all cells, shape (cells,).

    Args:
        tables: A.
        y: what was measured, and 0 or more for the ties.
        start: all cells; not below zero if `nonnegative`.
        nonnegative: whether cells are held at or above zero.
    """
    if nonnegative:
        return _bounded(tables, y, start)
    return _unbounded(tables, y, start)


def known_sum(component: MeasuredTable, y: Array) -> tuple[float, float]:
    """Return the best unbiased estimate of the sum of all cells, and its variance.

    It is 1ᵀx for every x of least squares: uᵀAᵀy for a u with AᵀA u = 1, and has the variance
    uᵀAᵀA u = 1ᵀu. Without such a u the measurements don't determine the sum: the variance is
    infinite.

    Args:
        component: A.
        y: what was measured, with variance 1.
    """
    tables = Tables.of([component], ())
    everything, goal = np.ones(tables.cells, dtype=np.bool_), _ACCURACY * math.sqrt(tables.cells)
    u, missing = np.zeros(tables.cells), np.ones(tables.cells)
    for _ in range(MAX_RESTARTS):
        u = u + _conjugate(tables, missing, everything, goal)
        missing = 1 - tables.adjoint(tables.apply(u))
        if np.linalg.norm(missing) <= goal:
            break
    if np.abs(missing).max() > _MISSED:
        return 0.0, math.inf
    return float(tables.apply(u) @ np.append(y, 0.0)), float(u.sum())


def _unbounded(tables: Tables, y: Array, start: Array) -> Array:
    x, everything = start, np.ones(tables.cells, dtype=np.bool_)
    goal = _ACCURACY * float(np.linalg.norm(tables.adjoint(y)))
    for _ in range(MAX_RESTARTS):
        missing = y - tables.apply(x)
        if np.linalg.norm(tables.adjoint(missing)) <= goal:
            break
        x = x + _conjugate(tables, tables.adjoint(missing), everything, goal)
    return x


def _bounded(tables: Tables, y: Array, start: Array) -> Array:
    x = start
    support = np.flatnonzero(x)
    value = np.inf
    size = max(LEAST_CELLS, 3 * len(y) // 2)
    for _ in range(MAX_ROUNDS):
        gradient = tables.adjoint(tables.at(support).apply(x[support]) - y)
        support = np.union1d(np.flatnonzero(x), _lowest(gradient, size))
        if not len(support):
            break
        inner, before = tables.at(support), value
        found = _straight(inner, y, _descend(inner, y, x[support]))
        value = 0.5 * float(np.square(inner.apply(found) - y).sum())
        x = np.zeros(tables.cells)
        x[support] = found
        if before - value <= ENOUGH * (1 + value):
            break
    return x


def _lowest(gradient: Array, count: int) -> Ints:
    """Return the cells of the most negative gradient: at most so many."""
    below = np.flatnonzero(gradient < 0)
    if len(below) > count:
        below = below[np.argpartition(gradient[below], count)[:count]]
    return below


def _descend(inner: Tables, y: Array, x: Array) -> Array:
    from scipy.optimize import Bounds, minimize  # half a second to import, and few releases need it

    def evaluate(cells: Array) -> tuple[float, Array]:
        residual = inner.apply(cells) - y
        return 0.5 * float(residual @ residual), inner.adjoint(residual)

    found = minimize(
        evaluate,
        x,
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(0.0, np.inf),
        options={"maxiter": INNER, "maxcor": MEMORY, "ftol": 0.0, "gtol": 0.0},
    )
    return np.maximum(found.x, 0.0)


def _straight(inner: Tables, y: Array, x: Array) -> Array:
    """Go as far as possible towards the minimum over the cells that are not zero now.

    Where L-BFGS-B has found out which cells are zero, that is the minimum: it needs very many
    steps to get there if some measurements are much more precise than others.
    """
    residual = inner.apply(x) - y
    goal = _ACCURACY * float(np.linalg.norm(inner.adjoint(y)))
    step = _conjugate(inner, -inner.adjoint(residual), x > 0, goal)
    value, length = float(residual @ residual), 1.0
    for _ in range(MAX_HALVINGS):
        moved = np.maximum(x + length * step, 0.0)
        residual = inner.apply(moved) - y
        if float(residual @ residual) < value:
            return moved
        length /= 2
    return x


def _conjugate(operator: Tables, wanted: Array, free: NDArray[np.bool_], goal: float) -> Array:
    """Return the shortest x with AᵀA x near what is wanted, zero but for the free cells.

    For Aᵀy that is near a minimum of ½‖A x − y‖². Ends when no more than `goal` is missing.
    """
    residual = np.where(free, wanted, 0.0)
    direction = residual.copy()
    x = np.zeros_like(residual)
    square, steepest = float(residual @ residual), 0.0
    for _ in range(MAX_GRADIENTS):
        image = operator.apply(direction)
        curvature, length = float(image @ image), float(direction @ direction)
        steepest = max(steepest, curvature / (length or 1.0))
        # A direction that is not measured comes from rounding in floats alone.
        if square <= goal**2 or curvature <= _FLAT * steepest * length:
            break
        x += square / curvature * direction
        residual -= square / curvature * np.where(free, operator.adjoint(image), 0.0)
        before, square = square, float(residual @ residual)
        direction *= square / before
        direction += residual
    return x
