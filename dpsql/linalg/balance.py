"""Balance: round so that no column of a product of matrices gets longer than it was.

What measurements cost is their longest column. Rounding coefficients to the nearest integers makes
some columns longer and others shorter, by chance, and the longest one of a hundred by a few
standard deviations: that is a loss of first order in the rounding errors, while that of accuracy
is of second order. So some coefficients are rounded to their other neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.digits import AS_GOOD

ENOUGH = 1e-5
"""Excess over the longest column, relative to its square, at which none is too long."""
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


@dataclass(frozen=True, slots=True)
class _Move:
    """One coefficient that is moved by one."""

    change: float
    """The growth of the sum of all squared excesses."""
    row: int
    vector: int
    """The row of the basis."""
    sign: int


class _ColumnLengths:
    """The squared lengths of the columns, kept up to date.

    Their excess is what they are longer than the exact ones. A move is chosen by the squared
    excesses of all columns, so that none of the others pays for it.
    """

    def __init__(self, exact: Array, rounded: Array, basis: Array) -> None:
        self._exact, self.rounded, self._basis = exact, rounded, basis
        self._columns = np.ascontiguousarray((rounded @ basis).T)
        self._squares = np.square(self._columns)
        self._exact_lengths = np.square(exact @ basis).sum(axis=0)
        self._enough = (1 + ENOUGH) * float(self._exact_lengths.max())
        self._excess = self._squares.sum(axis=1) - self._exact_lengths
        self._supports = [np.flatnonzero(vector) for vector in basis]
        self._touching: dict[int, list[int]] = {}

    def improve(self) -> bool:
        """Make a column shorter, the longest that can be, by the best single move."""
        for column in self._too_long():
            move = min(map(self._best_move, self._choices(column)), key=lambda move: move.change)
            if move.change < 0:
                self._take(move)
                return True
        return False

    def _too_long(self) -> Iterator[int]:
        """List the columns that are longer than the longest exact one, the longest first."""
        lengths = self._exact_lengths + self._excess
        longest = int(lengths.argmax())
        if lengths[longest] > self._enough:
            yield longest  # mostly it can be mended
            order = np.argsort(-lengths, kind="stable")[1:]
            yield from order[lengths[order] > self._enough].tolist()

    def _choices(self, column: int) -> list[int]:
        """Return some coefficients that touch a column: others each time, if there are many."""
        touching = self._touching.get(column)
        if touching is None:
            touching = np.flatnonzero(self._basis[:, column]).tolist()
        self._touching[column] = touching[CHOICES:] + touching[:CHOICES]
        return touching[:CHOICES]

    def _take(self, move: _Move) -> None:
        at = self._supports[move.vector]
        step = move.sign * self._basis[move.vector, at]
        self._excess[at] += 2 * self._columns[at, move.row] * step + step * step
        self._columns[at, move.row] += step
        self._squares[at, move.row] = np.square(self._columns[at, move.row])
        self.rounded[move.row, move.vector] += move.sign

    def _best_move(self, vector: int) -> _Move:
        """Return the best move of a coefficient of some vector of the basis, in any row.

        If entries x of a row move by ±v, the squared lengths of the columns grow by ±2xv + v². So
        their excesses e add up to Σ (a ± 2xv)² = Σa² ± 4Σavx + 4Σv²x² in squares, for a = e + v².
        The sums follow the processor, so that of moves that are equally good the first is taken.
        """
        at = self._supports[vector]
        step, excess = self._basis[vector, at], self._excess[at]
        square = step * step
        above = excess + square
        before, fixed = float(excess @ excess), float(above @ above)
        odd = 4 * ((above * step) @ self._columns[at])
        even = fixed - before + 4 * (square @ self._squares[at])
        changes = np.where(self._allowed(vector), np.stack([even - odd, even + odd]), np.inf)
        least = float(changes.min())
        move = int((changes.ravel() <= least + AS_GOOD * (before + fixed)).argmax())
        sign, row = divmod(move, len(odd))
        return _Move(float(changes[sign, row]), row, vector, 2 * sign - 1)

    def _allowed(self, vector: int) -> NDArray[np.bool_]:
        """Tell which coefficients may move down, and which up: shape (2, rows)."""
        exact = self._exact[:, vector]
        off = self.rounded[:, vector] - exact
        return np.asarray((exact != 0) & (np.abs(np.stack([off - 1, off + 1])) <= 1))
