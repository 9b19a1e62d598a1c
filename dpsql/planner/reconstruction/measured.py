"""Measurements as answers see them: rows with noise, whether of one release or of several."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpsql.linalg.narrow import narrow
from dpsql.measurement.integer import (
    BlockStrategy,
    CentredFactor,
    IdentityFactor,
    IntegerFactor,
)
from dpsql.workload import Queries

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
    """Measurements of one residual space, or of all cells of a marginal; noise is independent."""

    attributes: tuple[str, ...]
    """By the axes of the factors."""
    factors: tuple[MeasuredFactor, ...]
    noise: float
    """The variance of the noise of each measurement, rounding included."""
    unit: float = 1.0
    """What the integers count that are kept of a measurement."""

    @classmethod
    def of_block(cls, attributes: tuple[str, ...], block: BlockStrategy) -> Space:
        """Return one of the spaces that a block measures."""
        return cls(attributes, block.factors, block.law.variance, float(block.law.unit))

    def read(self, kept: NDArray[np.int64]) -> Array:
        """Return noisy measurements from the integers that are kept of them."""
        return kept.astype(np.float64) * self.unit

    def of(self, factor: MeasuredFactor) -> tuple[str, ...]:
        """Return the attributes of a factor."""
        return tuple(self.attributes[axis] for axis in factor.axes)


Values = Mapping[Space, Array]
"""Noisy measurements, of shape (measurements of the first factor, …)."""


Noisy = Mapping[frozenset[str], NDArray[np.int64]]
"""Attribute set → noisy integers, of shape (measurements of the first factor, …)."""


def read(spaces: Iterable[Space], noisy: Noisy) -> Values:
    """Return the noisy integers of each space as floats."""
    return {s: s.read(noisy[frozenset(s.attributes)]) for s in spaces}


ImplicitFactor = CentredFactor | IdentityFactor
"""Factors over one axis that are never written out."""


def pseudo_inverse(factor: MeasuredFactor) -> Array:
    """Return B⁺ of shape (cells, measurements).

    The rows or the columns of B are independent. By a QR factorisation, which doesn't square the
    condition number as BBᵀ or BᵀB would.
    """
    if isinstance(factor, RealFactor):
        return factor.inverse
    if isinstance(factor, ImplicitFactor):
        return apply_inverse(factor, np.eye(factor.cells), 0)
    matrix = factor.matrix.astype(np.float64)
    if (found := narrow(matrix, factor.shape)) is not None and _is_wide(found.small):
        return np.ascontiguousarray(found.widen(independent_inverse(found.small).T).T)
    if _is_wide(matrix):
        return independent_inverse(matrix)
    return independent_inverse(matrix.T).T


def _is_wide(rows: Array) -> bool:
    return len(rows) <= len(rows.T)


def independent_inverse(rows: Array) -> Array:
    """Return the pseudo-inverse of independent rows: with Bᵀ = QR it is Q R⁻ᵀ."""
    q, r = scipy.linalg.qr(rows.T, mode="economic")
    return np.asarray(scipy.linalg.solve_triangular(r, q.T, trans="N", lower=False).T)


def apply_inverse(factor: ImplicitFactor, values: Array, axis: int) -> Array:
    """Multiply by (s(nI − J))⁺ = (I − J/n)/(sn), or by I/s, along one axis."""
    if isinstance(factor, IdentityFactor):
        return np.asarray(values / factor.scale)
    centred = values - values.mean(axis=axis, keepdims=True)
    return np.asarray(centred / (factor.scale * factor.cells))


def row_squares(queries: Queries, factor: ImplicitFactor) -> Array:
    """Return ‖q B⁺‖² of each query over one attribute."""
    if isinstance(factor, IdentityFactor):
        return np.asarray(queries.squares() / factor.scale**2)
    centred = queries.squares() - np.square(queries.sums()) / factor.cells
    return np.asarray(np.maximum(centred, 0.0) / (factor.scale * factor.cells) ** 2)


def row_products(first: Queries, second: Queries, factor: ImplicitFactor) -> Array:
    """Return ⟨q B⁺, p B⁺⟩ of the queries with the same numbers.

    As (s(nI − J))⁺² = (I − J/n)/(sn)², nothing has the size of cells × cells.
    """
    products = first.inner(second)
    if isinstance(factor, IdentityFactor):
        return np.asarray(products / factor.scale**2)
    centred = products - first.sums() * second.sums() / factor.cells
    return np.asarray(centred / (factor.scale * factor.cells) ** 2)
