"""The best measurements of a whole small domain of which something is known already.

With the precision P of what is known and that of new measurements, X, the total error is

    tr G (P + X)⁻¹ ,   to be minimised over X ⪰ 0 with diag(X) <= c.

Let Y = P + X. Without the condition Y ⪰ P, what is left is the problem of `strategies.dual`, with
the bound c + P_ii for each cell in place of 1:  minimise tr G Y⁻¹ subject to Y_ii <= d_i. With G
and Y scaled by D^{1/2} on both sides it is the same problem. So

- its lower bound holds for every X;
- if Y ⪰ P then X = Y − P is optimal: the closed form of the conditional ResidualPlanner
  ("AIM+GReM", Theorem D.1), for strategies of any kind;
- otherwise some directions are known better than they need be. X = VᵀV is then searched for with
  columns of norm √c, by L-BFGS from the positive part of Y − P.

With a multiplier for Y ⪰ P besides the δ for diag(X) <= c, the dual has for any M and any diagonal
Δ ⪰ M ⪰ 0 the bound A²/B, A = tr (QMQᵀ)^{1/2}, B = tr MP + c·tr Δ. At the optimum M = Y⁻¹GY⁻¹ and
(Δ − M)X = 0, so that near it M and Δ_ii = (MX)_ii/X_ii, scaled until Δ ⪰ M, give a close one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpsql.planner.strategies.dual import Dual, maximise

Array = NDArray[np.float64]

SEARCHED_CELLS = 128
"""Cells up to which there is a search; beyond, the positive part has to do."""
STEPS = 80
FEASIBLE = 1e-7
"""Negative eigenvalues of Y − P, relative to the largest, that are rounding errors."""
ROUNDING = 1e-6
"""What a bound is lowered by: it is computed in floats, where a direction may be nearly unknown."""
LEAST = 1e-12
"""Precision, relative to the best known cell, below which directions are numerically unknown."""
RIDGE = 1e-9
"""Precision, relative to c, in directions of which nothing is known and nothing is asked."""


@dataclass(frozen=True, slots=True, eq=False)
class Conditional:
    """New measurements, and bounds on the total error with them and what was known."""

    root: Array
    """R with RᵀR = X, so that no column is longer than √c."""
    lower: float
    closed: bool
    """Whether the closed form is feasible."""


def measure_given(
    rows: Array, shape: tuple[int, ...], known: Array, cost: float, tolerance: float
) -> Conditional:
    """Find new measurements.

    Args:
        rows: Q with QᵀQ = G.
        shape: the number of cells along each axis.
        known: P, of shape (cells, cells).
        cost: c.
        tolerance: the relative gap to aim for.
    """
    bound = cost + np.maximum(np.diag(known), 0.0)
    best = maximise(Dual.of(rows / np.sqrt(bound), shape), tolerance)
    scaled = best.root / math.sqrt(float(np.square(best.root).sum(axis=0).max()))
    together = scaled * np.sqrt(bound)
    values, vectors = np.linalg.eigh(together.T @ together - known)
    closed = bool(values[0] >= -FEASIBLE * values[-1])
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    root = _to_the_bound(root, cost)
    lower = best.lower * (1 - ROUNDING)
    if not closed and len(known) <= SEARCHED_CELLS:
        root = _search(rows, known, root, cost)
        lower = max(lower, bound_near(rows, known, root, cost))
    return Conditional(root, lower, closed)


def least_error(
    rows: Array, shape: tuple[int, ...], known: Array, cost: float, tolerance: float
) -> float:
    """Bound the total error from below, whatever is measured at this cost."""
    bound = cost + np.maximum(np.diag(known), 0.0)
    return maximise(Dual.of(rows / np.sqrt(bound), shape), tolerance).lower * (1 - ROUNDING)


def bound_near(rows: Array, known: Array, root: Array, cost: float) -> float:
    """Bound the total error from below, closely if the measurements R are nearly the best."""
    new = root.T @ root
    factor = scipy.linalg.cho_factor(known + new + _ridge(known, cost))
    solved = scipy.linalg.cho_solve(factor, rows.T)
    m = solved @ solved.T
    both, alone = (m * new).sum(axis=0), np.maximum(np.diag(new), 1e-12 * cost)
    delta = np.maximum(both / alone, np.maximum(np.diag(m), 1e-300))
    scale = 1 / np.sqrt(delta)
    t = max(1.0, float(np.linalg.eigvalsh(m * scale * scale[:, None])[-1]) * (1 + 1e-12))
    a = float(np.linalg.svd(rows @ solved, compute_uv=False).sum()) / math.sqrt(t)
    b = float((m * known).sum()) / t + cost * float(delta.sum())
    return a * a / b * (1 - ROUNDING)


def error(rows: Array, known: Array, root: Array, cost: float) -> float:
    """Return tr G (P + RᵀR)⁻¹."""
    factor = scipy.linalg.cho_factor(known + root.T @ root + _ridge(known, cost))
    return float((rows * scipy.linalg.cho_solve(factor, rows.T).T).sum())


def _ridge(known: Array, cost: float) -> Array:
    """Return a little precision in all directions, so that what is added up can be inverted."""
    largest = float(np.diag(known).max(initial=0.0))
    return np.asarray((RIDGE * cost + LEAST * largest) * np.eye(len(known)))


def _to_the_bound(root: Array, cost: float) -> Array:
    """Scale so that the longest column has the norm √c."""
    largest = float(np.square(root).sum(axis=0).max())
    return np.asarray(root * math.sqrt(cost / largest)) if largest > 0 else root


def _search(rows: Array, known: Array, start: Array, cost: float) -> Array:
    """Improve V by L-BFGS; all of its columns have the norm √c."""
    from scipy.optimize import minimize  # slow to import, and seldom needed

    n = len(known)
    ridge = _ridge(known, cost)

    def normalised(flat: Array) -> tuple[Array, Array]:
        free = flat.reshape(n, n)
        lengths = np.linalg.norm(free, axis=0)
        return free / lengths, lengths

    def value(flat: Array) -> tuple[float, Array]:
        unit, lengths = normalised(flat)
        v = math.sqrt(cost) * unit
        factor = scipy.linalg.cho_factor(known + v.T @ v + ridge)
        solved = scipy.linalg.cho_solve(factor, rows.T)  # Y⁻¹Qᵀ
        slope = -2 * math.sqrt(cost) * (v @ solved) @ solved.T
        slope = (slope - unit * (unit * slope).sum(axis=0)) / lengths
        return float((rows.T * solved).sum()), slope.ravel()

    # No column may be zero at the start: its direction would be undefined.
    begin = _to_the_bound(start, cost) + 0.05 * math.sqrt(cost) * np.eye(n)
    found = minimize(value, begin.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    best = math.sqrt(cost) * normalised(found.x)[0]
    better = error(rows, known, best, cost) < error(rows, known, start, cost)
    return best if better else start
