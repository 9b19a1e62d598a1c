"""Balance: round so that no column of a product of matrices gets longer than it was.

What measurements cost is their longest column. Rounding coefficients to the nearest integers makes
some columns longer and others shorter, by chance, and the longest one of a hundred by a few
standard deviations: that is a loss of first order in the rounding errors, while that of accuracy
is of second order. So some coefficients are rounded to their other neighbour.
"""

from __future__ import annotations

import numpy as np

from dpsql.linalg.arrays import Array, Ints

ENOUGH = 1e-5
"""Excess, relative to the squared length, at which a column counts as balanced."""
STEPS_PER_COLUMN = 4
STEPS_PER_COEFFICIENT = 2
COLUMNS = 64
"""For each coefficient, up to which it is tried."""
CHOICES = 6
"""Coefficients that are tried for a column at once."""
DEAR = 2**27
"""Numbers that are computed to try each column once, from which that takes seconds."""


def balance(coefficients: Array, rounded: Ints, basis: Ints) -> Ints:
    """Move some rounded coefficients by one, so that the columns of rounded·basis get shorter.

    No coefficient ends more than 1 from its exact value, and exact zeros stay zero.

    Args:
        coefficients: the exact ones, of shape (r, r).
        rounded: the nearest integers.
        basis: of shape (r, cells).

    Returns:
        The integers to take.
    """
    if basis.shape[1] > COLUMNS * rounded.size:  # few coefficients can't mend so many columns
        return rounded
    work = _ColumnLengths(coefficients, rounded.astype(np.float64), basis.astype(np.float64))
    for _ in range(min(STEPS_PER_COLUMN * basis.shape[1], STEPS_PER_COEFFICIENT * rounded.size)):
        if not work.improve():
            break
    return work.rounded.astype(np.int64)


def is_dear(basis: Ints) -> bool:
    """Whether balancing takes seconds, as it does where vectors touch thousands of cells each.

    To try a coefficient is to compute how each row would grow along its vector's support.
    """
    numbers: int = 2 * CHOICES * basis.shape[1] * int(np.count_nonzero(basis))
    return numbers > DEAR


class _ColumnLengths:
    """The squared lengths of the columns, kept up to date."""

    def __init__(self, exact: Array, rounded: Array, basis: Array) -> None:
        self._exact, self.rounded, self._basis = exact, rounded, basis
        self._matrix = rounded @ basis
        target = np.square(exact @ basis).sum(axis=0)
        self._enough = ENOUGH * float(target.max())
        self._excess = np.square(self._matrix).sum(axis=0) - target
        self._supports = [np.flatnonzero(row) for row in basis]
        self._touching: dict[int, list[int]] = {}

    def improve(self) -> bool:
        """Mend one column, the most wrong that can be mended, by the best single move."""
        for column in np.argsort(-np.abs(self._excess)).tolist():
            if abs(self._excess[column]) <= self._enough:
                break
            change, k, row, sign = min(
                (*self._best_row(k, sign), sign)
                for k in self._choices(column)
                for sign in (-1.0, 1.0)
            )
            if change < 0:
                self._move(k, row, sign)
                return True
        return False

    def _choices(self, column: int) -> list[int]:
        """Return some coefficients that touch a column: others each time, if there are many."""
        touching = self._touching.get(column)
        if touching is None:
            touching = np.flatnonzero(self._basis[:, column]).tolist()
        self._touching[column] = touching[CHOICES:] + touching[:CHOICES]
        return touching[:CHOICES]

    def _move(self, k: int, row: int, sign: float) -> None:
        at = self._supports[k]
        self._excess[at] += self._growth(k, sign)[row]
        self._matrix[row, at] += sign * self._basis[k, at]
        self.rounded[row, k] += sign

    def _best_row(self, k: int, sign: float) -> tuple[float, int, int]:
        """Return how much the squared excesses change at best if coefficient k moves; and where."""
        excess = self._excess[self._supports[k]]
        after = np.square(excess + self._growth(k, sign)).sum(axis=1)
        exact = self._exact[:, k]
        allowed = (np.abs(self.rounded[:, k] + sign - exact) <= 1) & (exact != 0)
        after[~allowed] = np.inf
        row = int(after.argmin())
        return float(after[row] - np.square(excess).sum()), k, row

    def _growth(self, k: int, sign: float) -> Array:
        """Return by how much the columns grow, of shape (rows, support of basis row k)."""
        at = self._supports[k]
        step = sign * self._basis[k, at]
        return np.asarray(2 * self._matrix[:, at] * step + step * step)
