"""OPT_0 for Laplace noise: p-Identity strategies (HDMM, 4.3, Definitions 13 and 14).

    A(Θ) = [I; Θ]·D,   D = diag(1 + 1ᵀΘ)⁻¹,   Θ >= 0 of shape (p, n),

weighs the cells and p further queries so that every column sums to 1. With S = D⁻¹ = diag(s) and
G the queries' Gram matrix, the error tr((AᵀA)⁻¹G) is

    E(Θ) = tr(M·SGS),   M = (I + ΘᵀΘ)⁻¹ = I − ΘᵀKΘ,   K = (I_p + ΘΘᵀ)⁻¹

by Woodbury's identity, and since ΘM = KΘ, its gradient in the row Θ_q is

    ∂E/∂Θ_q = −2 (KΘ·SGS·M)_q + 2·diag(GSM) ,

both in O(pn²). The search ends in local minima, and where it starts decides in which: it starts
from several places, always the same ones, and goes on from the best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from dpsql.planner.mechanisms.hdmm.irregular import irregular

Array = NDArray[np.float64]

RACE = 100
"""Steps after which the starts are compared."""
STEPS = 1500
"""Steps that the best of them may go on."""
PRECISION = 1e-9
"""Relative progress at which the search ends."""
LARGEST = 1e4
"""Of Θ: cells that nobody asks for alone keep a little weight, and A stays well-conditioned."""


def queries_beside(cells: int) -> int:
    """Return the paper's p: one query for every 16 cells, rounded up."""
    return -(-cells // 16)


def matrix_of(theta: Array) -> Array:
    """Return A(Θ), of shape (n + p, n)."""
    return np.asarray(np.vstack([np.eye(theta.shape[1]), theta]) / (1.0 + theta.sum(axis=0)))


def objective(gram: Array) -> Callable[[Array], tuple[float, Array]]:
    """Return the function of Θ that gives the error and its gradient."""
    diagonal = np.diag(gram)

    def evaluate(theta: Array) -> tuple[float, Array]:
        scale = 1.0 + theta.sum(axis=0)
        kept = np.linalg.solve(np.eye(len(theta)) + theta @ theta.T, theta)  # KΘ
        seen = (theta * scale) @ gram  # ΘSG
        along = diagonal * scale - np.einsum("qj,qj->j", seen, kept)  # diag(GSM)
        turned = (kept * scale) @ gram * scale  # KΘ·SGS
        gradient = 2 * along - 2 * (turned - (turned @ theta.T) @ kept)
        return float(along @ scale), gradient

    return evaluate


def optimise(gram: Array, p: int, start: Array | None = None) -> Array:
    """Search the Θ with the least error.

    Args:
        gram: the queries' Gram matrix, of shape (n, n).
        p: the number of queries beside the cells.
        start: where to start from; by default from several places.

    Returns:
        Θ, of shape (p, n).
    """
    mean = float(np.trace(gram)) / len(gram)
    evaluate = objective(gram / mean if mean > 0 else gram)
    starts = [start] if start is not None else list(_starts(gram, p))
    raced = [_descend(evaluate, theta, RACE) for theta in starts]
    _, best = min(raced, key=lambda found: found[0])
    return _descend(evaluate, best, STEPS)[1]


def _descend(
    evaluate: Callable[[Array], tuple[float, Array]], start: Array, steps: int
) -> tuple[float, Array]:
    from scipy.optimize import minimize  # half a second to import, and not every plan needs it

    def flat(theta: Array) -> tuple[float, Array]:
        value, gradient = evaluate(theta.reshape(start.shape))
        return value, gradient.ravel()

    found = minimize(
        flat,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, LARGEST)] * start.size,
        options={"maxiter": steps, "maxfun": 2 * steps, "ftol": PRECISION, "gtol": 0.0},
    )
    return float(found.fun), np.clip(found.x, 0.0, LARGEST).reshape(start.shape)


def _starts(gram: Array, p: int) -> Iterator[Array]:
    """Yield irregular tables, and one that follows what is asked of cells together."""
    shape = (p, len(gram))
    tables = [irregular(math.prod(shape), number).reshape(shape) for number in (1, 2, 3)]
    yield tables[0]
    yield tables[1]
    yield np.square(np.cos(np.pi * tables[2]))
    yield _clusters(gram, p) + 0.1 * tables[0]


def _clusters(gram: Array, p: int) -> Array:
    """Divide the cells among p of them that have little to do with each other."""
    size = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    alike = gram / np.outer(size, size)
    chosen = [int(np.argmax(size))]
    nearest = alike[chosen[0]].copy()
    while len(chosen) < p:
        chosen.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, alike[chosen[-1]])
    mine = np.argmax(alike[chosen], axis=0)
    return np.asarray((np.arange(p)[:, None] == mine).astype(np.float64))
