"""Measurements as answers see them: rows with noise, whether of one release or of several."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpsql.planner.integer import (
    BlockStrategy,
    CentredFactor,
    IntegerFactor,
)

Array = NDArray[np.float64]


class RealFactor:
    """Rows over the joint cells of some axes that are no integers.

    Nothing is measured so. It is what integer measurements become when several are put together,
    or when they are looked at over finer cells.
    """

    def __init__(
        self, axes: tuple[int, ...], shape: tuple[int, ...], matrix: Array, inverse: Array
    ) -> None:
        self.axes, self.shape, self.matrix, self.inverse = axes, shape, matrix, inverse
        """Where the cells are; rows of shape (measurements, cells), and their pseudo-inverse."""

    @property
    def measurements(self) -> int:
        """The number of rows."""
        return int(self.matrix.shape[0])

    @cached_property
    def content(self) -> bytes:
        """A digest of the shape and the entries."""
        shape = repr(self.matrix.shape).encode()
        return hashlib.sha256(b"real" + shape + self.matrix.tobytes()).digest()


MeasuredFactor = IntegerFactor | RealFactor


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """Measurements of one residual space, or of the whole domain; noise is independent."""

    attributes: tuple[str, ...]
    """By the axes of the factors."""
    factors: tuple[MeasuredFactor, ...]
    noise: float
    """The variance of the noise of each measurement, rounding included."""

    @classmethod
    def of_block(cls, attributes: tuple[str, ...], block: BlockStrategy) -> Space:
        """Return one of the spaces that a block measures."""
        return cls(attributes, block.factors, block.law.variance)

    def of(self, factor: MeasuredFactor) -> tuple[str, ...]:
        """Return the attributes of a factor."""
        return tuple(self.attributes[axis] for axis in factor.axes)


Values = Mapping[Space, Array]
"""Noisy measurements, of shape (measurements of the first factor, …)."""


def pseudo_inverse(factor: MeasuredFactor) -> Array:
    """Return B⁺ of shape (cells, measurements).

    For rows that are independent, Bᵀ = QR gives B⁺ = Q R⁻ᵀ, which doesn't square the condition
    number as BBᵀ would.
    """
    if isinstance(factor, RealFactor):
        return factor.inverse
    if isinstance(factor, CentredFactor):
        centred = np.eye(factor.cells) - 1 / factor.cells
        return np.asarray(centred / (factor.scale * factor.cells))
    return independent_inverse(factor.matrix.astype(np.float64))


def independent_inverse(rows: Array) -> Array:
    """Return the pseudo-inverse of independent rows."""
    q, r = scipy.linalg.qr(rows.T, mode="economic")
    return np.asarray(scipy.linalg.solve_triangular(r, q.T, trans="N", lower=False).T)
