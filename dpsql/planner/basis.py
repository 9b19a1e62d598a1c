"""Integer bases of residual spaces and of row spaces.

A strategy is rounded in coefficients over such a basis, never in its own entries: whatever the
integers L of full rank, the rows of L·basis span exactly what the rows of the basis span, so
that reconstruction stays exactly unbiased.
"""

from __future__ import annotations

import math

import flint
import numpy as np
from numpy.typing import NDArray

_PRIME = (1 << 61) - 1
"""A Mersenne prime that fits a machine word. A rank modulo a prime never exceeds the true rank."""


def residual_basis(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the basis ⊗S_i of a residual space; S_i has the rows e_j − e_0.

    Shape: (∏(n_i − 1), ∏ n_i). Restricted to the cells whose coordinates are all nonzero it is
    the identity.
    """
    basis = np.ones((1, 1), dtype=np.int64)
    for n in shape:
        differences = np.eye(n, dtype=np.int64)[1:]
        differences[:, 0] = -1
        basis = np.kron(basis, differences)
    return basis


def inner_cells(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the flat indices of the cells whose coordinates are all nonzero."""
    cells = np.arange(math.prod(shape)).reshape(shape)
    return cells[tuple(slice(1, None) for _ in shape)].ravel()


def row_basis(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Select rows that span all rows, each divided by its greatest common divisor.

    The selected rows are independent for certain, because they are so modulo a prime. They span
    all rows unless the prime divides one of the elementary divisors, which are far smaller for
    the queries met here; the prime is fixed, so the outcome is reproducible.

    Returns:
        Shape (rank, cells).
    """
    divisors = np.gcd.reduce(rows, axis=1)
    reduced = _distinct(rows[divisors > 0] // divisors[divisors > 0, None])
    if len(reduced) < 2:
        return reduced
    # Column j of the transpose is row j: the pivots of its echelon form are the rows to keep.
    table = flint.nmod_mat(reduced.shape[1], reduced.shape[0], reduced.T.ravel().tolist(), _PRIME)
    echelon, rank = table.rref()
    pivots = [_first_nonzero(echelon, i, reduced.shape[0]) for i in range(rank)]
    return np.ascontiguousarray(reduced[pivots])


def _distinct(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Drop repeated rows, without sorting them as np.unique does: rows may be wide."""
    return np.stack(list({row.tobytes(): row for row in rows}.values()))


def _first_nonzero(table: flint.nmod_mat, row: int, columns: int) -> int:
    return next(j for j in range(columns) if int(table[row, j]))
