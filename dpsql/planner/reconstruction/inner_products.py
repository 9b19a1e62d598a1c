"""Inner products of queries, as the measurements of one residual space see them.

On each residual space A inside both families' attributes, the estimates have the errors
q_A B_A⁺ z with z of variance σ_A² + 1/12, and those of different spaces are independent. So

    Cov(q, p) = Σ_A (σ_A² + 1/12) ⟨q_A B_A⁺, p_A B_A⁺⟩ .

An attribute that a family does not touch is summed over: its query is all ones, of which nothing
is kept, so that no other spaces count. The inner product is a product of one number for each
group of blocks of both families and factors that share attributes of A.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.matrices import Dense, StructuredMatrix
from dpsql.planner.reconstruction.base import Aligned, Axes, contract, cut_blocks, placed, taken
from dpsql.planner.reconstruction.inverses import CHUNK, Inverses, groups
from dpsql.planner.reconstruction.measured import MeasuredFactor, Space
from dpsql.planner.residuals.pieces import split_rows
from dpsql.workload import Block, Family, Queries
from dpsql.workload.workload import boxes


def rows_at_once(family: Family, entries: int) -> int:
    """Return how many rows there can be for joint queries to be written out."""
    joint = [b.queries for b in family.blocks if len(b.attributes) > 1]
    large = [q.cells for q in joint if q.rows * q.cells > entries]
    return max(1, entries // max(large)) if large else family.count


@dataclass(frozen=True, slots=True)
class _Side:
    """Blocks of one family that are in a group, with the base axes of each."""

    blocks: tuple[Block, ...]
    axes: tuple[Axes, ...]

    @property
    def flat(self) -> Axes:
        return tuple(axis for axes in self.axes for axis in axes)

    @property
    def key(self) -> tuple[object, ...]:
        """What the answers of two sides that are the same have in common."""
        return self.axes, *((b.attributes, b.queries.key) for b in self.blocks)


class InnerProducts:
    """The inner products ⟨q_A B_A⁺, p_A B_A⁺⟩ of one residual space."""

    def __init__(self, inverses: Inverses, space: Space, sizes: tuple[int, ...]) -> None:
        self._inverses, self._space, self._sizes = inverses, space, sizes
        self._kept = frozenset(space.attributes)

    def of(self, first: Aligned, second: Aligned) -> Array:
        """Return the inner product in each row; it broadcasts to the base axes."""
        factors = self._space.factors
        ours, theirs = first.family.blocks, second.family.blocks
        parts = [self._keeps(block) for block in (*ours, *theirs)]
        result: Array = np.ones([1] * len(self._sizes))
        for bs, fs in groups(parts, [self._space.of(f) for f in factors]):
            sides = (
                self._side(first, [b for b in bs if b < len(ours)]),
                self._side(second, [b - len(ours) for b in bs if b >= len(ours)]),
            )
            result = result * self._group(sides, [factors[f] for f in fs])
        return result

    def _keeps(self, block: Block) -> tuple[str, ...]:
        return tuple(name for name in block.attributes if name in self._kept)

    def _side(self, aligned: Aligned, numbers: Sequence[int]) -> _Side:
        return _Side(
            tuple(self._contracted(aligned.family.blocks[b]) for b in numbers),
            tuple(aligned.axes[b] for b in numbers),
        )

    def _contracted(self, block: Block) -> Block:
        """Contract the axes that are dropped, of a block that keeps others."""
        kept = self._keeps(block)
        if not kept or len(kept) == len(block.attributes):
            return block
        weights = [self._inverses.references[a].weights for a in block.attributes]
        keeps = tuple(a in self._kept for a in block.attributes)
        rows = split_rows(block.queries.matrix, weights, keeps)
        shape = tuple(n for n, keep in zip(block.shape, keeps, strict=True) if keep)
        return Block(kept, shape, Dense(rows))

    def _group(self, sides: tuple[_Side, _Side], factors: Sequence[MeasuredFactor]) -> Array:
        """Return one group's inner products, along its own base axes and 1 along the others."""
        first, second = sides
        if not first.blocks and not second.blocks:  # the total's own factor
            return self._inverses.group_squares([], factors, self._space)
        if not factors:
            (side,) = (s for s in sides if s.blocks)
            return placed(self._inverses.dropped(side.blocks[0]), side.flat, self._sizes)
        if first.key == second.key:
            squares = self._inverses.group_squares(first.blocks, factors, self._space)
            return placed(squares, first.flat, self._sizes)
        if len(factors) == 1:
            (factor,) = factors
            names = self._space.of(factor)
            inverse = self._inverses.inverse(factor, names)
            if len(names) == 1 and not inverse.is_written:
                return self._cells(first, second, inverse)
            if all(len(b.attributes) == 1 for side in sides for b in side.blocks):
                return self._columns(
                    first, second, inverse.matrix.reshape(*factor.shape, -1), names
                )
        return self._written(first, second, factors)

    def _cells(self, first: _Side, second: _Side, inverse: StructuredMatrix) -> Array:
        """Multiply the queries themselves, where the inverse need not be written out."""
        dense = any(s.blocks[0].queries.is_written for s in (first, second))
        result, boxes_ = self._boxes(first, second, inverse.rows if dense else 1)
        for box in boxes_:
            q, p = (_repeated(side, box, self._sizes) for side in (first, second))
            result[box] = inverse.image_products(q, p).reshape(result[box].shape)
        return result

    def _columns(self, first: _Side, second: _Side, tensor: Array, names: tuple[str, ...]) -> Array:
        """Apply each attribute's queries to the columns of CB⁺, some columns at a time."""
        rows = math.prod(self._sizes[a] for a in {*first.flat, *second.flat})
        step, total = max(1, CHUNK // max(1, rows)), np.zeros(())
        for start in range(0, tensor.shape[-1], step):
            columns = tensor[..., start : start + step]
            q, p = (_applied(side.blocks, names, columns) for side in (first, second))
            total = total + contract(q, first.flat, p, second.flat, self._sizes)
        return total

    def _written(self, first: _Side, second: _Side, factors: Sequence[MeasuredFactor]) -> Array:
        """Write q_A B_A⁺ out on both sides, some rows at a time."""
        cells = max(math.prod(n for b in s.blocks for n in b.shape) for s in (first, second))
        result, boxes_ = self._boxes(first, second, cells)
        for box in boxes_:
            q, p = (
                self._inverses.table(self._inside(side, box), factors, self._space)
                for side in (first, second)
            )
            shape = [s.stop - s.start for s in box]
            result[box] = contract(q, first.flat, p, second.flat, shape)
        return result

    def _inside(self, side: _Side, box: Sequence[slice]) -> tuple[Block, ...]:
        return cut_blocks(side.blocks, side.axes, box, self._sizes)

    def _boxes(
        self, first: _Side, second: _Side, width: int
    ) -> tuple[Array, Iterator[tuple[slice, ...]]]:
        """Make room along both sides' axes, and split it so that boxes × width are few entries."""
        axes = {*first.flat, *second.flat}
        shape = [n if a in axes else 1 for a, n in enumerate(self._sizes)]
        return np.zeros(shape), boxes(shape, max(1, CHUNK // width))


def _repeated(side: _Side, box: Sequence[slice], sizes: Sequence[int]) -> Queries:
    """Return the one block's query at each place of a box, also along axes of others."""
    (block,), (own,) = side.blocks, side.axes
    numbers = placed(np.arange(block.queries.rows), own, sizes)
    there = numbers[tuple(s if a in own else slice(0, 1) for a, s in enumerate(box))]
    shape = [s.stop - s.start for s in box]
    return taken(block.queries, np.broadcast_to(there, shape).ravel())


def _applied(blocks: Sequence[Block], names: Sequence[str], columns: Array) -> Array:
    """Apply queries of one attribute each to the columns over some attributes."""
    result = columns.transpose(*(names.index(b.attributes[0]) for b in blocks), -1)
    for axis, block in enumerate(blocks):
        result = block.queries.apply(result, axis)
    return result
