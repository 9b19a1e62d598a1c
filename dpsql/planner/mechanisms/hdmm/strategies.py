"""Strategies over one attribute: rows that are measured with independent noise.

All have sensitivity 1 in the norm of the noise: with Gaussian noise the Euclidean norm of every
column is at most 1 (𝒢 in the paper), with Laplace noise the sum of its magnitudes (ℒ).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsql.planner.mechanisms.hdmm.grams import Gram
from dpsql.planner.reconstruction.measured import independent_inverse

Array = NDArray[np.float64]

Noise = Literal["gaussian", "laplace"]


class Strategy(Protocol):
    """Measurements over the cells of one attribute."""

    @property
    def cells(self) -> int:
        """How many the attribute has."""

    def error(self, gram: Gram) -> float:
        """Return tr((AᵀA)⁺G): the sum of variances at unit noise, for queries that A answers."""

    def rows(self) -> Array:
        """Write the measurements out: shape (measurements, cells)."""


@dataclass(frozen=True, slots=True)
class Even:
    """x·I on top of y·1ᵀ: each cell and the total. Nothing else helps if all cells are alike."""

    cells: int
    each: float
    """x."""
    total: float
    """y."""

    def error(self, gram: Gram) -> float:
        """AᵀA is x² + ny² along the ones and x² across them."""
        across = max(0.0, gram.trace - gram.along_ones)
        along = gram.along_ones / (self.each**2 + self.cells * self.total**2)
        if not self.each:
            return along if across <= 1e-9 * gram.trace else math.inf
        return along + across / self.each**2

    def rows(self) -> Array:
        """One row for each cell, and one for the total."""
        parts = [self.each * np.eye(self.cells)] if self.each else []
        if self.total or not self.each:
            parts.append(np.full((1, self.cells), self.total))
        return np.vstack(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """Any rows, of full column rank or independent."""

    matrix: Array
    inverse_gram: Array = field(repr=False)
    """(AᵀA)⁺."""

    @classmethod
    def of(cls, matrix: Array) -> Written:
        """Factorise the rows."""
        m, n = matrix.shape
        if m < n:
            inverse = independent_inverse(matrix)
            return cls(matrix, inverse @ inverse.T)
        triangle = np.linalg.qr(matrix, mode="r")
        inverse = np.linalg.inv(triangle)
        return cls(matrix, inverse @ inverse.T)

    @property
    def cells(self) -> int:
        """The number of columns."""
        return int(self.matrix.shape[1])

    def error(self, gram: Gram) -> float:
        """Multiply entry by entry: both matrices are symmetric."""
        inverse = self.inverse_gram
        plain = gram.identity * np.trace(inverse) + gram.total * inverse.sum()
        rest = 0.0 if gram.rest is None else np.einsum("ij,ij->", inverse, gram.rest)
        return float(plain + rest)

    def rows(self) -> Array:
        """Return the rows."""
        return self.matrix


def sensitivity(rows: Array, noise: Noise) -> float:
    """Return the norm of the largest column."""
    if noise == "laplace":
        return float(np.abs(rows).sum(axis=0).max())
    return math.sqrt(float(np.square(rows).sum(axis=0).max()))
