"""Strategies over one attribute, and the best of them that are found: OPT_0 (HDMM, 4).

All have sensitivity 1 in the norm of the noise: with Gaussian noise the Euclidean norm of every
column is at most 1 (𝒢 in the paper), with Laplace noise the sum of its magnitudes (ℒ).

Gaussian noise: the convex program of Definition 12, solved by its dual, to the optimum over all
strategies. Laplace noise: p-Identity. Where all cells are alike, the best p-Identity strategy
and the best Gaussian one are of one parameter, which is found directly.

*p-Identity strategies* (4.3, Definitions 13 and 14), of sensitivity 1 for Laplace noise:

    A(Θ) = [I; Θ]·D,   D = diag(1 + 1ᵀΘ)⁻¹,   Θ >= 0 of shape (p, n),

weighs the cells and p further queries so that every column sums to 1. With S = D⁻¹ = diag(s) and
G the queries' Gram matrix, the error tr((AᵀA)⁻¹G) is

    E(Θ) = tr(M·SGS),   M = (I + ΘᵀΘ)⁻¹ = I − ΘᵀKΘ,   K = (I_p + ΘΘᵀ)⁻¹

by Woodbury's identity, and since ΘM = KΘ, its gradient in the row Θ_q is

    ∂E/∂Θ_q = −2 (KΘ·SGS·M)_q + 2·diag(GSM) ,

both in O(pn²). The search ends in local minima, and where it starts decides in which: it starts
from several places, always the same ones, and goes on from the best.

Searches with many local minima need starts without structure. Plans must not depend on chance, so
the fractional parts of α·i² for irrational α take the place of random numbers: a deterministic
sequence that is spread evenly over 0 to 1 (Weyl), of which adjacent numbers look unrelated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.matrices import StructuredMatrix, across_and_along, independent_inverse
from dpsql.linalg.roots import root_of
from dpsql.planner.strategies.dual import Dual, maximize

Noise = Literal["gaussian", "laplace"]

NOTHING = 1e-9
"""What is asked of differences between cells, relative to all, up to which nothing is."""


@dataclass(frozen=True, slots=True)
class EvenStrategy:
    """x·I on top of y·1ᵀ: each cell and the total. Nothing else helps if all cells are alike."""

    cells: int
    each: float
    """x, what each cell is counted with."""
    total: float
    """y, what the total is counted with."""

    def error(self, gram: StructuredMatrix) -> float:
        """Return tr((AᵀA)⁺G): the sum of variances at unit noise, for queries that A answers.

        AᵀA is x² + ny² along the ones and x² across them.
        """
        across, along = across_and_along(gram)
        of_ones = along / (self.each**2 + self.cells * self.total**2)
        if not self.each:
            return of_ones if across <= NOTHING * (across + along) else math.inf
        return of_ones + max(0.0, across) / self.each**2


@dataclass(frozen=True, slots=True, eq=False)
class DenseStrategy:
    """Any measurements, of full column rank or independent."""

    rows: Array
    """A: shape (measurements, cells)."""
    inverse_gram: Array = field(repr=False)
    """(AᵀA)⁺, of shape (cells, cells): what errors follow from."""

    @classmethod
    def of(cls, rows: Array) -> DenseStrategy:
        """Factorize the measurements: with A = QR is (AᵀA)⁺ = R⁻¹R⁻ᵀ, or A⁺A⁺ᵀ."""
        wide = len(rows) < len(rows.T)
        triangle = rows if wide else np.linalg.qr(rows, mode="r")
        inverse = independent_inverse(rows) if wide else np.linalg.inv(triangle)
        return cls(rows, inverse @ inverse.T)

    @property
    def cells(self) -> int:
        """The number of columns."""
        return int(self.rows.shape[1])

    def error(self, gram: StructuredMatrix) -> float:
        """Return tr((AᵀA)⁺G), as above; multiplied entry by entry, as both are symmetric."""
        if gram.even is not None:
            return float(np.trace(gram @ self.inverse_gram))
        return float(np.einsum("ij,ij->", self.inverse_gram, gram.matrix))


Strategy = EvenStrategy | DenseStrategy
"""Measurements over the cells of one attribute."""


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


def error_of_theta(gram: Array) -> Callable[[Array], tuple[float, Array]]:
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


def best_theta(gram: Array, p: int, start: Array | None = None) -> Array:
    """Search the Θ with the least error.

    Args:
        gram: the queries' Gram matrix, of shape (n, n).
        p: the number of queries beside the cells.
        start: where to start from; by default from several places.

    Returns:
        Θ, of shape (p, n).
    """
    mean = float(np.trace(gram)) / len(gram)
    evaluate = error_of_theta(gram / mean if mean > 0 else gram)
    starts = [start] if start is not None else list(_starts(gram, p))
    raced = [_descend_theta(evaluate, theta, RACE) for theta in starts]
    _, best = min(raced, key=lambda found: found[0])
    return _descend_theta(evaluate, best, STEPS)[1]


def _descend_theta(
    evaluate: Callable[[Array], tuple[float, Array]], start: Array, steps: int
) -> tuple[float, Array]:
    def flat(theta: Array) -> tuple[float, Array]:
        value, gradient = evaluate(theta.reshape(start.shape))
        return value, gradient.ravel()

    value, found = descend(flat, start.ravel(), steps, PRECISION, [(0.0, LARGEST)] * start.size)
    return value, np.clip(found, 0.0, LARGEST).reshape(start.shape)


def descend(
    evaluate: Callable[[Array], tuple[float, Array]],
    start: Array,
    steps: int,
    precision: float,
    bounds: list[tuple[float, float]] | None = None,
) -> tuple[float, Array]:
    """Search a local minimum by L-BFGS.

    Args:
        evaluate: the function, with its gradient.
        start: where the search begins.
        steps: how many it may take.
        precision: the relative progress at which it ends.
        bounds: of each argument.
    """
    from scipy.optimize import minimize  # half a second to import, and not every plan needs it

    found = minimize(
        evaluate,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": steps, "maxfun": 2 * steps, "ftol": precision, "gtol": 0.0},
    )
    return float(found.fun), np.asarray(found.x)


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


TOLERANCE = 1e-4
"""The gap to which the dual is solved."""


class Oracle:
    """Solves Gram matrices for one kind of noise; equal ones once."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise
        self._known: dict[bytes, Strategy] = {}

    def solve(self, gram: StructuredMatrix, start: Strategy | None = None) -> Strategy:
        """Return a strategy of sensitivity 1.

        Args:
            gram: what is asked.
            start: a strategy that was good for something similar; the one that is returned is
                not worse.
        """
        if start is None:
            if gram.key not in self._known:
                self._known[gram.key] = self._solve(gram, None)
            return self._known[gram.key]
        found = self._solve(gram, start)
        return min((start, found), key=lambda strategy: strategy.error(gram))

    def _solve(self, gram: StructuredMatrix, start: Strategy | None) -> Strategy:
        if not sum(across_and_along(gram)):
            return EvenStrategy(gram.cells, 1.0, 0.0)
        if gram.even is not None:
            return even(gram, self.noise)
        if self.noise == "gaussian":
            return full(gram)
        return p_identity(gram, start)


def even(gram: StructuredMatrix, noise: Noise) -> EvenStrategy:
    """Return the best even strategy: one number t, x = 1 − t and y = t, or their roots.

    The error is (n − 1)a/x² + (a + nb)/(x² + ny²). Gaussian noise has x² + y² = 1, and it is
    convex in y²; for Laplace noise x + y = 1, and the best of a grid is refined.
    """
    n = gram.cells
    across, along = across_and_along(gram)
    if across <= NOTHING * (across + along):
        return EvenStrategy(n, 0.0, 1.0)
    power = 1.0 if noise == "laplace" else 0.5

    def at(t: float) -> EvenStrategy:
        return EvenStrategy(n, (1 - t) ** power, t**power)

    return at(_least(lambda t: at(t).error(gram)))


def _least(function: Callable[[float], float]) -> float:
    """Minimize over 0 <= t < 1: a grid that is fine near both ends, then Brent's method."""
    from scipy.optimize import minimize_scalar  # half a second to import, as `minimize` above

    fine = np.geomspace(1e-9, 0.5, 120)
    grid = np.unique(np.concatenate([[0.0], fine, 1 - fine]))
    at = int(np.argmin([function(t) for t in grid]))
    bounds = grid[max(0, at - 1)], grid[min(len(grid) - 1, at + 1)]
    found = minimize_scalar(function, bounds=bounds, method="bounded", options={"xatol": 1e-13})
    return min((float(grid[at]), float(found.x)), key=function)


def full(gram: StructuredMatrix) -> DenseStrategy:
    """Return the best strategy of all for Gaussian noise."""
    dual = Dual.of(root_of(gram.matrix), (gram.cells,))
    rows = maximize(dual, TOLERANCE).root
    return DenseStrategy.of(rows / math.sqrt(float(np.square(rows).sum(axis=0).max())))


def p_identity(gram: StructuredMatrix, start: Strategy | None = None) -> DenseStrategy:
    """Return a p-Identity strategy with p = n/16, found from another one if that is given."""
    n, p = gram.cells, queries_beside(gram.cells)
    theta = None
    if isinstance(start, DenseStrategy) and start.rows.shape == (n + p, n):
        theta = start.rows[n:] / np.diag(start.rows[:n])
    return DenseStrategy.of(matrix_of(best_theta(gram.matrix, p, theta)))


def irregular(count: int, number: int) -> Array:
    """Return numbers from 0 to 1; other ones for each `number` from 1."""
    alpha = math.sqrt(number * number + 1)  # no square for number > 0
    return np.asarray(np.square(np.arange(1, count + 1, dtype=np.float64)) * alpha % 1.0)
