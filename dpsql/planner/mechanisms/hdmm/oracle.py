"""OPT_0: the best strategy found over the cells of one attribute (HDMM, 4).

Gaussian noise: the convex program of Definition 12, solved by its dual, to the optimum over all
strategies. Laplace noise: p-Identity. Where all cells are alike, the best p-Identity strategy
and the best Gaussian one are of one parameter, which is found directly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpsql.linalg.roots import root_of
from dpsql.planner.mechanisms.hdmm.grams import Gram
from dpsql.planner.mechanisms.hdmm.p_identity import matrix_of, optimise, queries_beside
from dpsql.planner.mechanisms.hdmm.strategies import Even, Noise, Strategy, Written, sensitivity
from dpsql.planner.strategies.dual import Dual, maximise

TOLERANCE = 1e-4
"""The gap to which the dual is solved."""


class Oracle:
    """Solves Gram matrices for one kind of noise; equal ones once."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise
        self._known: dict[bytes, Strategy] = {}

    def solve(self, gram: Gram, start: Strategy | None = None) -> Strategy:
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

    def _solve(self, gram: Gram, start: Strategy | None) -> Strategy:
        if not gram.trace:
            return Even(gram.cells, 1.0, 0.0)
        if gram.plain:
            return even(gram, self.noise)
        if self.noise == "gaussian":
            return full(gram)
        return p_identity(gram, start)


def even(gram: Gram, noise: Noise) -> Even:
    """Return the best Even strategy: one number t, x = 1 − t and y = t, or their roots.

    The error is (n − 1)a/x² + (a + nb)/(x² + ny²). Gaussian noise has x² + y² = 1, and it is
    convex in y²; for Laplace noise x + y = 1, and the best of a grid is refined.
    """
    n = gram.cells
    if gram.trace - gram.along_ones <= 1e-9 * gram.trace:
        return Even(n, 0.0, 1.0)

    def at(t: float) -> Even:
        return Even(n, 1 - t, t) if noise == "laplace" else Even(n, (1 - t) ** 0.5, t**0.5)

    return at(_least(lambda t: at(t).error(gram)))


def _least(function: Callable[[float], float]) -> float:
    """Minimise over 0 <= t < 1: a grid that is fine near both ends, then golden sections."""
    fine = np.geomspace(1e-9, 0.5, 120)
    grid = np.unique(np.concatenate([[0.0], fine, 1 - fine]))
    at = int(np.argmin([function(t) for t in grid]))
    low, high = float(grid[max(0, at - 1)]), float(grid[min(len(grid) - 1, at + 1)])
    ratio = (5**0.5 - 1) / 2
    for _ in range(60):
        first, second = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, second) if function(first) <= function(second) else (first, high)
    middle = (low + high) / 2
    return min((float(grid[at]), middle), key=function)


def full(gram: Gram, tolerance: float = TOLERANCE) -> Written:
    """Return the best strategy of all for Gaussian noise."""
    dual = Dual.of(root_of(gram.matrix), (gram.cells,))
    rows = maximise(dual, tolerance).root
    return Written.of(rows / sensitivity(rows, "gaussian"))


def p_identity(gram: Gram, start: Strategy | None = None) -> Written:
    """Return a p-Identity strategy with p = n/16, found from another one if that is given."""
    n, p = gram.cells, queries_beside(gram.cells)
    theta = None
    if isinstance(start, Written) and start.matrix.shape == (n + p, n):
        theta = start.matrix[n:] / np.diag(start.matrix[:n])
    return Written.of(matrix_of(optimise(gram.matrix, p, theta)))
