"""Reconstruction from measurements of all joint cells of some attributes.

With y = Bx + z and independent rows of B, every query q in their span has q(x̂) = qB⁺y. A query
over a few attributes sees no more of B⁺ than its sums over the others, which are kept.

A query has the part qB⁺B in the span, with the squared norm qB⁺(qBᵀ)ᵀ, as B⁺B is a projection. What
is missing of the query's own norm is that of the part outside; so a query that is far outside is
found to be so without a look at each joint cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import Generic, TypeVar

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import Dense
from dpsql.linalg.roots import root_of
from dpsql.measurement.differences import Condition
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
from dpsql.workload.workload import gram, spread_out

T = TypeVar("T")
_COLUMNS = ("columns",)
"""The name of an axis, which is no attribute."""
HELD = 2**23
"""Entries that are kept of sums of one matrix over attributes, and of answers to its columns."""


class _SmallArrays(Generic[T]):
    """Arrays that are computed once, as long as those that are kept are small together."""

    def __init__(self) -> None:
        self._known: dict[T, Array] = {}
        self._held = 0

    def get(self, key: T, compute: Callable[[], Array]) -> Array:
        array = self._known.get(key)
        if array is None:
            array = compute()
            if self._held + array.size <= HELD:
                self._known[key] = array
                self._held += array.size
        return array


class _CellSums:
    """A matrix over joint cells, added up over attributes: each sum is computed once, if small."""

    def __init__(self, matrix: Array, names: tuple[str, ...], shape: tuple[int, ...]) -> None:
        self._matrix, self._names, self._shape = matrix, names, shape
        self._sums = _SmallArrays[tuple[str, ...]]()

    def over(self, attributes: Sequence[str]) -> Array:
        """Return the sums over all other attributes: shape (cells of the first, …, columns)."""
        key = tuple(attributes)
        return self._sums.get(key, lambda: self._over(key))

    def _over(self, attributes: tuple[str, ...]) -> Array:
        columns = (*self._shape, self._matrix.shape[1])
        table = LabeledArray((*self._names, _COLUMNS), self._matrix.reshape(columns))
        return table.project((*attributes, _COLUMNS))


class WholeReconstruction(CombinedReconstruction):
    """The reconstruction of answers from measurements of all joint cells of some attributes."""

    whole = True

    def __init__(self, space: Space) -> None:
        self.space = space
        """Its one factor is over all axes."""
        (factor,) = space.factors
        self.names, self._shape = space.attributes, factor.shape
        self.noise = space.noise
        """The variance of the noise of each measurement, rounding included."""
        self._inverse = factor.real.pinv(factor.shape).matrix
        self._sums = _CellSums(self._inverse, self.names, self._shape)
        self._spanned: dict[object, bool] = {}
        self._answered = _SmallArrays[object]()

    @cached_property
    def _row_sums(self) -> _CellSums:
        """Those of Bᵀ."""
        (factor,) = self.space.factors
        return _CellSums(factor.real.matrix.T, self.names, self._shape)

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The measured spaces: one space over all joint cells."""
        return (self.space,)

    def marginal(self, attributes: Sequence[str], values: Values) -> Array:
        """Return the noisy marginal over some attributes."""
        return np.asarray(self._sums.over(attributes) @ values[self.space])

    def with_total(self) -> Values | None:
        """Return σ²B⁺ᵀ1, if the total follows from what is measured."""
        return self._with(Family("total", (), 1.0))

    def with_count(self, table: str, condition: Condition | None) -> Values | None:
        """Return σ²B⁺ᵀf for the cells f of a condition, if the count of their rows follows."""
        if condition is None:
            return self.with_total()
        names, cells = condition.named(table), condition.counted.reshape(1, -1)
        shape = dict(zip(self.names, self._shape, strict=True))
        if tuple(map(shape.get, names)) != condition.shape:
            return None
        row = Block(names, condition.shape, Dense(cells.astype(np.float64)))
        return self._with(Family("count", (row,), 1.0))

    def _with(self, count: Family) -> Values | None:
        """Return σ²(qB⁺)ᵀ for a query q, if it follows from what is measured."""
        if not self._spans(count):
            return None
        sums = self._sums.over(count.names).reshape(-1, self._inverse.shape[1])
        return {self.space: self.noise * (count.queries @ sums)[0]}

    def _variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family.

        Raises:
            ResourceLimitError: there are too many to be held at once.
        """
        family.check_held()
        total = np.zeros(family.shape)
        if not family.count:  # it may be over attributes that nothing else touches
            return total
        for answers in self._answers(family, family.count):
            total += np.square(answers).sum(axis=-1)
        return self.noise * total

    def error(self, rows: Array) -> float:
        """Return the sum of the variances of some queries over all cells."""
        return self.noise * float(np.square(rows @ self._inverse).sum())

    def _large_extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        """Take the sum from the Gram matrix, and bound the largest by norms of rows and of B⁺."""
        alone = Workload.of(domain, [family])
        total = self.error(root_of(gram(alone, self.names))) / family.weight
        columns = self._sums.over(family.names).reshape(-1, self._inverse.shape[1])
        norms = [float(block.queries.squares().max(initial=0.0)) for block in family.blocks]
        return total, self.noise * float(np.linalg.norm(columns, 2)) ** 2 * math.prod(norms)

    def _covariances(self, first: Aligned, second: Aligned, sizes: tuple[int, ...]) -> Array:
        """Multiply the answers that both give to each column of B⁺.

        Of k statistics there are k² pairs, so small answers are kept.
        """
        total = np.zeros(sizes)
        answers = (self._kept_answers(side.family, total.size) for side in (first, second))
        for q, p in zip(*answers, strict=True):
            ours, theirs = ([a for axes in side.axes for a in axes] for side in (first, second))
            total += contract(q, ours, p, theirs, sizes)
        return self.noise * total

    def _kept_answers(self, family: Family, count: int) -> Iterator[Array]:
        """Yield what `_answers` does; answers to all columns at once are kept."""
        if _at_once(count) < self._inverse.shape[1]:
            return self._answers(family, count)
        key = tuple((block.attributes, block.queries.key) for block in family.blocks)
        return iter((self._answered.get(key, lambda: next(self._answers(family, count))),))

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
        if factor.measurements >= math.prod(factor.shape):
            return True
        # A block of numbers makes multiples of the same queries, or nothing of them.
        numbers = [block.queries.squares() for block in family.blocks if not block.attributes]
        if any(of.max(initial=0.0) <= CLOSE**2 for of in numbers):
            return True
        blocks = tuple(block for block in family.blocks if block.attributes)
        key = tuple((block.attributes, block.queries.key) for block in blocks)
        if key not in self._spanned:
            alone = Family("", blocks, 1.0)
            self._spanned[key] = not self._is_far_outside(alone) and self._is_inside(alone)
        return self._spanned[key]

    def _is_inside(self, family: Family) -> bool:
        """Whether nothing is left of any query without its part in the span, cell by cell."""
        (factor,) = self.space.factors
        cells = math.prod(factor.shape)
        for part in family.parts(max(1, WRITTEN // cells)):
            rows = spread_out(part, self.names, dict(zip(self.names, self._shape, strict=True)))
            left = rows - (rows @ self._inverse) @ factor.real
            if (np.abs(left) > CLOSE * max(1.0, float(np.abs(rows).max(initial=0.0)))).any():
                return False
        return True

    def _is_far_outside(self, family: Family) -> bool:
        """Whether a good part of some query is outside of the span, more than rounding tells."""
        cells = len(self._inverse)
        cells_of_family = math.prod(n for block in family.blocks for n in block.shape)
        parts = (block.queries.squares() for block in family.blocks)
        norms = reduce(np.multiply.outer, parts, np.ones(())) * (cells / cells_of_family)
        inside = np.zeros(family.shape)
        both = (self._answers(family, family.count, sums) for sums in (self._sums, self._row_sums))
        for answers, rows in zip(*both, strict=True):
            inside += (answers * rows).sum(axis=-1)
        return bool((norms - inside > CLOSE * np.maximum(norms, CLOSE * cells)).any())

    def _answers(
        self, family: Family, count: int, sums: _CellSums | None = None
    ) -> Iterator[Array]:
        """Yield answers to columns of B⁺, or of other sums: shape (*family.shape, columns).

        There are so many columns at a time that `count` answers to each can be held at once.
        """
        summed = (sums or self._sums).over(family.names)
        cells = summed.reshape(-1, summed.shape[-1])
        step = _at_once(count)
        for start in range(0, cells.shape[1], step):
            answers = family.queries @ cells[:, start : start + step]
            yield answers.reshape(*family.shape, -1)


def _at_once(count: int) -> int:
    """Return to how many columns that many answers can be held at once."""
    return max(1, 2**24 // max(1, count))


def _block(piece: Component, space: tuple[str, ...]) -> Block:
    names = tuple(space[axis] for axis in piece.axes)
    return Block(names, piece.shape, Dense(piece.rows))
