"""Measurements as answers see them: rows with noise, whether of one release or of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.matrices import StructuredMatrix
from dpsql.measurement.narrow import Kept
from dpsql.measurement.strategy import BlockStrategy


class MeasuredFactor(Protocol):
    """Rows over the joint cells of some axes, cells in C order, as `IntegerFactor` has them."""

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of the block's marginals, in the order of the cells."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells along each axis."""
        ...

    @property
    def real(self) -> StructuredMatrix:
        """The rows, which are independent, or else their columns: shape (measurements, cells)."""
        ...

    @property
    def measurements(self) -> int:
        """The number of rows."""
        ...

    @property
    def content(self) -> bytes:
        """Everything that tells the rows from others."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RealFactor:
    """Rows that are not integers.

    Nothing is measured so. It is what integer measurements become when several are put together,
    or when they are looked at over finer cells.
    """

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    real: StructuredMatrix

    @property
    def measurements(self) -> int:
        """The number of rows."""
        return self.real.rows

    @property
    def content(self) -> bytes:
        """A digest of the shape and the entries."""
        return b"real" + self.real.key


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """Measurements of one residual space, or of all cells of a marginal; noise is independent."""

    attributes: tuple[str, ...]
    """By the axes of the factors."""
    factors: tuple[MeasuredFactor, ...]
    noise: float
    """The variance of the noise of each measurement, rounding included."""
    unit: float = 1.0
    """The size of 1 in the integers that are kept of a measurement."""

    @classmethod
    def of_block(cls, attributes: tuple[str, ...], block: BlockStrategy) -> Space:
        """Return one of the spaces that a block measures."""
        return cls(attributes, block.factors, block.law.variance, float(block.law.unit))

    def read(self, kept: Kept) -> Array:
        """Return noisy measurements from the integers that are kept of them."""
        return kept.astype(np.float64) * self.unit

    def of(self, factor: MeasuredFactor) -> tuple[str, ...]:
        """Return the attributes of a factor."""
        return tuple(self.attributes[axis] for axis in factor.axes)


Values = Mapping[Space, Array]
"""Noisy measurements, of shape (measurements of the first factor, …)."""


class OnlyIn(dict[Space, Array]):
    """Numbers in place of the measurements of a few spaces, and zeros in place of all others."""

    def __missing__(self, space: Space) -> Array:
        return np.zeros([factor.measurements for factor in space.factors])


Noisy = Mapping[frozenset[str], Kept]
"""Attribute set → noisy integers, of shape (measurements of the first factor, …)."""


def read(spaces: Iterable[Space], noisy: Noisy) -> Values:
    """Return the noisy integers of each space as floats."""
    return {s: s.read(noisy[frozenset(s.attributes)]) for s in spaces}
