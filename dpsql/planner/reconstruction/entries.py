"""Entries: the measurements of one space by one source, over the cells of the ground."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Ints
from dpsql.linalg.labelled import LabelledArray
from dpsql.linalg.matrices import Dense, independent_inverse
from dpsql.linalg.products import Kronecker
from dpsql.measurement.integer import IntegerFactor
from dpsql.planner.reconstruction.measured import (
    MeasuredFactor,
    RealFactor,
    Space,
)
from dpsql.planner.reconstruction.sources import Ground, Source, agrees
from dpsql.planner.residuals.averaging import Reference

Array = NDArray[np.float64]

MOST_ENTRIES = 2**24
"""Of a factor that is written out over finer cells."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One space of a source."""

    source: int
    """Which one."""
    space: Space

    @property
    def attributes(self) -> frozenset[str]:
        """Its attributes."""
        return frozenset(self.space.attributes)

    @property
    def cells(self) -> int:
        """The number of joint cells."""
        return math.prod(n for f in self.space.factors for n in f.shape)

    @property
    def rows(self) -> int:
        """The number of measurements."""
        return math.prod(f.measurements for f in self.space.factors)

    @property
    def full(self) -> bool:
        """Whether every query of the residual space can be answered."""
        return all(f.measurements >= math.prod(n - 1 for n in f.shape) for f in self.space.factors)

    @property
    def content(self) -> tuple[object, ...]:
        """What the rows of two entries that are alike have in common."""
        return tuple((f.axes, f.content) for f in self.space.factors)

    @property
    def _rows(self) -> Kronecker:
        """B, with the cells in the order of the factors."""
        return Kronecker(f.real for f in self.space.factors)

    def gram(self) -> Array:
        """Return BᵀB/σ² over the cells, in the order of the attributes."""
        return self._ordered(self._rows.gram() / self.space.noise, both=True)

    def whitened(self) -> Array:
        """Return B/σ, written out: shape (measurements, cells in the order of the attributes)."""
        return self._ordered(self._rows.matrix / math.sqrt(self.space.noise), both=False)

    def projected(self, values: Array) -> Array:
        """Return Bᵀy/σ² over the cells, in the order of the attributes."""
        flat = (self._rows.T @ values.ravel()) / self.space.noise
        return np.asarray(self._ordered(flat[None], both=False)[0])

    def _ordered(self, table: Array, *, both: bool) -> Array:
        """Bring the cells, the last axis or both, from the factors' order to that of the axes."""
        factors = self.space.factors
        axes = [axis for f in factors for axis in f.axes]
        if axes == sorted(axes):
            return table
        numbers = np.arange(self.cells).reshape([n for f in factors for n in f.shape])
        numbers = LabelledArray(axes, numbers).transpose(sorted(axes)).ravel()
        return np.asarray(table[np.ix_(numbers, numbers)] if both else table[:, numbers])

    def indices(self, names: Sequence[str], sizes: Mapping[str, int]) -> Ints:
        """Return the cell of this space for each joint cell of more attributes."""
        numbers = np.arange(self.cells).reshape([sizes[name] for name in self.space.attributes])
        place = LabelledArray(self.space.attributes, numbers).expand(names)
        return np.broadcast_to(place, [sizes[name] for name in names]).ravel()


def entries(number: int, source: Source, ground: Ground) -> Iterator[Entry]:
    """Yield what a source measured, over the ground's cells, as far as it can be seen there."""
    coarse = {name: ground.coarse(source, name) for name in sorted(source.attributes)}
    lifted: dict[tuple[object, ...], MeasuredFactor | None] = {}
    for block in source.blocks:
        for names in block.spaces:
            factors = []
            for factor in block.factors:
                its = tuple(names[axis] for axis in factor.axes)
                key = id(factor), its
                if key not in lifted:
                    lifted[key] = _lift(factor, [coarse[a] for a in its])
                factors.append(lifted[key])
            if all(f is not None for f in factors):
                space = Space.of_block(names, block)
                known = tuple(f for f in factors if f is not None)
                yield Entry(number, Space(names, known, space.noise, space.unit))


def agreed(source: Source, ground: Ground, references: Mapping[str, Reference]) -> frozenset[str]:
    """Return the attributes that the source and the references weigh alike.

    A space of such attributes is the same residual space for both.
    """
    found = []
    for name, reference in source.references.items():
        coarse = ground.coarse(source, name)
        here = references.get(name)
        if coarse is not None and here is not None and agrees(here, coarse, reference):
            found.append(name)
    return frozenset(found)


def _lift(factor: IntegerFactor, coarse: Sequence[Ints | None]) -> MeasuredFactor | None:
    """Look at a factor over finer cells; None if that can't be, or is too large."""
    found = [of for of in coarse if of is not None]
    if len(found) < len(coarse):
        return None
    shape = tuple(len(of) for of in found)
    if shape == factor.shape and all((of == np.arange(len(of))).all() for of in found):
        return factor
    if factor.measurements * math.prod(shape) > MOST_ENTRIES:
        return None
    numbers = np.arange(math.prod(factor.shape)).reshape(factor.shape)
    matrix = np.ascontiguousarray(factor.real.matrix[:, numbers[np.ix_(*found)].ravel()])
    # Not all rows of a factor that is not written out are independent, and then it takes longer.
    inverse = independent_inverse if factor.real.is_written else np.linalg.pinv
    return RealFactor(factor.axes, shape, Dense(matrix, np.asarray(inverse(matrix))))
