"""Reconstruction from measurements of all joint cells of some attributes.

With y = Bx + z and independent rows of B, every query q in their span has q(x̂) = qB⁺y.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import Dense
from dpsql.linalg.roots import root_of
from dpsql.planner.reconstruction.base import (
    Aligned,
    CombinedReconstruction,
    Missing,
    contract,
    touched_by,
)
from dpsql.planner.reconstruction.inverses import CLOSE, WRITTEN
from dpsql.planner.reconstruction.measured import Space, Values
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.residuals.structure import Product
from dpsql.workload import Block, Family, Workload
from dpsql.workload.joint import gram, spread_out


class WholeReconstruction(CombinedReconstruction):
    """How answers and variances follow from measurements of all joint cells of some attributes."""

    whole = True

    def __init__(self, space: Space) -> None:
        self.space = space
        """Its one factor is over all axes."""
        (factor,) = space.factors
        self.names, self._shape = space.attributes, factor.shape
        self.noise = space.noise
        """The variance of the noise of each measurement, rounding included."""
        self._inverse = factor.real.pinv(factor.shape).matrix

    @property
    def spaces(self) -> tuple[Space, ...]:
        """What is measured: one space over all joint cells."""
        return (self.space,)

    def marginal(self, attributes: Sequence[str], values: Values) -> Array:
        """Return the noisy marginal over some attributes."""
        return self._summed(self._inverse @ values[self.space], attributes)

    def with_total(self) -> Values | None:
        """Return σ²B⁺ᵀ1, if the total follows from what is measured."""
        if not self._spans(Family("total", (), 1.0)):
            return None
        return {self.space: self.noise * self._inverse.sum(axis=0)}

    def variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family.

        Raises:
            ResourceLimitError: there are too many to be held at once.
        """
        family.check_held()
        total = np.zeros(family.shape)
        if not family.count:  # it may be over attributes that nothing else touches
            return total
        for columns in self._columns(family.count):
            total += np.square(self._applied(columns, family)).sum(axis=-1)
        return self.noise * total

    def error(self, rows: Array) -> float:
        """Return the sum of the variances of some queries over all cells."""
        return self.noise * float(np.square(rows @ self._inverse).sum())

    def _large_extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        """Take the sum from the Gram matrix, and bound the largest by norms of rows and of B⁺."""
        alone = Workload.of(domain, [family])
        total = self.error(root_of(gram(alone, self.names))) / family.weight
        columns = self._summed(self._inverse, family.names).reshape(-1, self._inverse.shape[1])
        norms = [float(block.queries.squares().max(initial=0.0)) for block in family.blocks]
        return total, self.noise * float(np.linalg.norm(columns, 2)) ** 2 * math.prod(norms)

    def _covariances(self, first: Aligned, second: Aligned, sizes: tuple[int, ...]) -> Array:
        """Multiply the answers that both give to each column of B⁺."""
        total = np.zeros(sizes)
        for columns in self._columns(total.size):
            q, p = (self._applied(columns, side.family) for side in (first, second))
            ours, theirs = ([a for axes in side.axes for a in axes] for side in (first, second))
            total += contract(q, ours, p, theirs, sizes)
        return self.noise * total

    @property
    def joint(self) -> Space:
        """The one space that is measured: all attributes are known jointly."""
        return self.space

    def missing(self, family: Family, domain: Mapping[str, int]) -> Missing:
        """Return the family's attributes, if any query is outside of the span."""
        return () if self._spans(family) else (touched_by(family, domain),)

    def residual_error(self, terms: Sequence[Product], space: tuple[str, ...]) -> float:
        """Return the weighted sum of variances of what is asked of a space; 0 if unknown."""
        total = 0.0
        for term in terms:
            family = Family("", tuple(_block(piece, space) for piece in term.pieces), 1.0)
            if not self._spans(family):
                return 0.0
            total += term.weight * float(self.variances(family).sum())
        return total

    def _spans(self, family: Family) -> bool:
        """Whether the queries lie in the span of the measurements."""
        if not family.count:
            return True
        if not family.attributes <= set(self.names):
            return False
        (factor,) = self.space.factors
        cells = math.prod(factor.shape)
        if factor.measurements >= cells:
            return True
        for part in family.parts(max(1, WRITTEN // cells)):
            rows = spread_out(part, self.names, dict(zip(self.names, self._shape, strict=True)))
            left = rows - (rows @ self._inverse) @ factor.real
            if (np.abs(left) > CLOSE * max(1.0, float(np.abs(rows).max(initial=0.0)))).any():
                return False
        return True

    def _columns(self, count: int) -> Iterator[Array]:
        """Yield some columns of B⁺ at a time: `count` answers to each are held at once."""
        step = max(1, 2**24 // max(1, count))
        for start in range(0, self._inverse.shape[1], step):
            yield self._inverse[:, start : start + step]

    def _applied(self, columns: Array, family: Family) -> Array:
        """Return the answers that columns of cells give: shape (*family.shape, columns)."""
        cells = self._summed(columns, family.names).reshape(-1, columns.shape[1])
        return (family.queries @ cells).reshape(*family.shape, -1)

    def _summed(self, values: Array, attributes: Sequence[str]) -> Array:
        """Add up over the other attributes; what comes after the cells stays as it is."""
        rest = [("after", i) for i in range(1, values.ndim)]
        table = LabeledArray(
            (*self.names, *rest), values.reshape([*self._shape, *values.shape[1:]])
        )
        return table.project((*attributes, *rest))


def _block(piece: Component, space: tuple[str, ...]) -> Block:
    names = tuple(space[axis] for axis in piece.axes)
    return Block(names, piece.shape, Dense(piece.rows))
