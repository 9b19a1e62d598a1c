"""Rows over joint cells in fewer coordinates, where little is asked along an axis.

A sum over one column by groups of another asks for one row of values along the first, whatever the
group. If rows over joint cells are linear combinations of r_i rows along axis i, B = S·(⊗V_i)ᵀ for
V_i with r_i orthonormal columns. Gram matrices, factorizations and inverses of B are those of S:
B Bᵀ = S Sᵀ, and B⁺ = (⊗V_i) S⁺.

So it is where columns are equal, B = S·Vᵀ with a column of V for each class of cells, of the entry
1/√w at its w cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.linalg.arrays import Array, Ints

FEW = 4
"""Rows along an axis up to which it is narrowed; one less is found to be all there are."""
WORTHWHILE = 4000
"""The number of cells from which an axis is narrowed."""
FACTOR = 0x1E3779B97F4A7C15
EXACT = 1e-12
"""The largest rest, relative to the largest entry."""
DEPENDENT = 1e-11
"""Directions that are shorter than this, relatively, are rounding errors."""


@dataclass(frozen=True, slots=True, eq=False)
class Narrow:
    """Rows B = S·(⊗V_i)ᵀ."""

    small: Array
    """S, of shape (rows, ∏ r_i)."""
    along: tuple[Array, ...]
    """V_i, of shape (cells, r_i); the unit matrix of an axis that is not narrowed."""

    def project(self, rows: Array) -> Array:
        """Return R·(⊗V_i): the coordinates of further rows in the same space."""
        return _times(rows, [v.T for v in self.along])

    def widen(self, small: Array) -> Array:
        """Return S·(⊗V_i)ᵀ: what has these coordinates, over all cells."""
        return _times(small, self.along)


def narrow(rows: Array, shape: Sequence[int]) -> Narrow | None:
    """Find few rows along some axes that say it all; None if there are none, or few cells."""
    if len(shape) < 2 or rows.shape[1] < WORTHWHILE:
        return None
    along = tuple(_directions(rows, shape, axis) for axis in range(len(shape)))
    if all(len(v) == v.shape[1] for v in along):
        return None
    small = _times(rows, [v.T for v in along])
    left = _times(small, along)
    left -= rows  # in place, as there may be millions of entries
    return Narrow(small, along) if _largest(left) <= EXACT * _largest(rows) else None


def alike(columns: Array) -> Ints:
    """Return a number for each column: the same for those that are equal, and 0 for zeros.

    They are told apart by a sum of their digits with odd factors, modulo 2^64, which is the same on
    every processor; and looked at, should two of different columns be equal.
    """
    digits = np.ascontiguousarray(columns + 0.0).view(np.int64)  # −0.0 becomes 0.0
    factors = np.arange(1, len(digits) + 1, dtype=np.int64) * FACTOR | 1
    sums = factors @ (digits ^ digits >> 31)
    _, first, numbers = np.unique(sums, return_index=True, return_inverse=True)
    if (digits != digits[:, first[numbers]]).any():
        numbers = np.unique(digits, axis=1, return_inverse=True)[1].ravel()
    return np.asarray(np.where(digits.any(axis=0), numbers + 1, 0), dtype=np.int64)


def merged(rows: Array) -> tuple[Array, Ints, Array] | None:
    """Return rows over a cell of each class of equal columns, where these are at most half as many.

    Returns:
        S; the class of each cell, −1 where the column is zero; and 1/√w of each class.
    """
    if rows.shape[1] < WORTHWHILE:
        return None
    codes, first, classes, counts = np.unique(
        alike(rows), return_index=True, return_inverse=True, return_counts=True
    )
    zeros = int((codes[:1] == 0).sum())
    if 2 * len(codes) > rows.shape[1] or len(codes) == zeros:
        return None
    entries = 1 / np.sqrt(counts[zeros:])
    return rows[:, first[zeros:]] / entries, classes - zeros, entries


def _largest(values: Array) -> float:
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def _directions(rows: Array, shape: Sequence[int], axis: int) -> Array:
    """Return orthonormal columns that span what is asked along one axis, if it is little.

    Irregular combinations of all rows along the axis span the same; `narrow` looks whether they do.
    Each row counts by its direction, not by its size.
    """
    n = shape[axis]
    if n <= 2 * FEW:
        return np.eye(n)
    tensor = np.moveaxis(rows.reshape(-1, *shape), axis + 1, -1).reshape(-1, n)
    lengths = np.sqrt(np.einsum("ij,ij->i", tensor, tensor))
    shares = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    angles = np.outer(np.arange(1, FEW + 1), 1 + 0.37 * np.arange(len(tensor)) ** 2)
    combined = (np.cos(angles) * shares) @ tensor
    _, sizes, directions = np.linalg.svd(combined, full_matrices=False)
    rank = int((sizes > DEPENDENT * sizes[0]).sum())
    return np.ascontiguousarray(directions[:rank].T) if 0 < rank < FEW else np.eye(n)


def _times(rows: Array, tables: Sequence[Array]) -> Array:
    """Multiply by the transpose of a table along each axis."""
    tensor = rows.reshape(-1, *(t.shape[1] for t in tables))
    for axis, table in enumerate(tables):
        if table.shape[0] != table.shape[1]:
            tensor = np.moveaxis(np.tensordot(tensor, table, (axis + 1, 1)), -1, axis + 1)
    return np.ascontiguousarray(tensor.reshape(len(rows), math.prod(len(t) for t in tables)))
