"""Covariances of answers, and variances of combinations of them.

On each residual space A inside both families' attributes, the estimates have the errors
q_A B_A⁺ z with z of variance σ_A² + 1/12, and those of different spaces are independent. So

    Cov(q, p) = Σ_A (σ_A² + 1/12) ⟨q_A B_A⁺, p_A B_A⁺⟩ .

An attribute that a family does not touch is summed over: its query is all ones, of which nothing
is kept, so that no other spaces count. The inner product is a product of one number for each
group of blocks of both families and factors that share attributes of A.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError, ResourceLimitError
from dpsql.planner.reconstruction.marginals import MarginalRecovery
from dpsql.planner.reconstruction.measured import (
    ImplicitFactor,
    MeasuredFactor,
    Space,
    row_products,
)
from dpsql.planner.reconstruction.mixed import AnyRecovery, MixedRecovery
from dpsql.planner.reconstruction.residual import CHUNK, Recovery, groups
from dpsql.planner.reconstruction.whole import WholeRecovery
from dpsql.planner.residuals.pieces import split_rows
from dpsql.workload import Block, Family
from dpsql.workload.queries import MAX_ENTRIES, DenseQueries, Queries
from dpsql.workload.workload import boxes, check_held

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Aligned:
    """A family whose answers are laid along base axes, as those of other families are."""

    family: Family
    axes: tuple[Axes, ...]
    """For each block the base axes of its rows, which are their product in C order."""

    def cut(self, box: Sequence[slice], sizes: Sequence[int]) -> Aligned:
        """Return the answers inside a box of the base axes, whose sizes are given."""
        blocks = _cut(self.family.blocks, self.axes, box, sizes)
        return Aligned(replace(self.family, blocks=blocks), self.axes)


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


def covariances(
    recovery: AnyRecovery, first: Aligned, second: Aligned, sizes: tuple[int, ...]
) -> Array:
    """Return the covariance of the two answers in each row.

    Args:
        recovery: that of a plan for both families.
        first: one answer for each row.
        second: another one.
        sizes: how many rows there are along each base axis.

    Returns:
        The covariances, of shape `sizes`.

    Raises:
        ResourceLimitError: there are too many rows, or something in between is too large. That
            depends on public sizes alone.
    """
    _check(first, sizes)
    _check(second, sizes)
    check_held("A covariance", math.prod(sizes))
    total = np.zeros(sizes)
    if not total.size:
        return total
    if isinstance(recovery, WholeRecovery):
        return _whole(recovery, first, second, sizes)
    if isinstance(recovery, MarginalRecovery):
        return _marginal(recovery, first, second, sizes)
    if isinstance(recovery, MixedRecovery):
        ours, theirs = (replace(s, family=recovery.joint_part(s.family)) for s in (first, second))
        inside = _whole(recovery.joint, ours, theirs, sizes)
        return inside + covariances(recovery.rest, first, second, sizes)
    most = min(_rows_at_once(side.family, MAX_ENTRIES) for side in (first, second))
    if most < total.size:
        for box in boxes(sizes, most):
            here = tuple(s.stop - s.start for s in box)
            ours, theirs = first.cut(box, sizes), second.cut(box, sizes)
            total[box] = covariances(recovery, ours, theirs, here)
        return total
    both = first.family.attributes & second.family.attributes
    for space in recovery.inside([a for a in recovery.references if a in both]):
        total += space.noise * _Inner(recovery, space, sizes).of(first, second)
    return total


def _rows_at_once(family: Family, entries: int) -> int:
    """Return how many rows there can be for joint queries to be written out."""
    joint = [b.queries for b in family.blocks if len(b.attributes) > 1]
    large = [q.cells for q in joint if q.rows * q.cells > entries]
    return max(1, entries // max(large)) if large else family.count


def _whole(
    recovery: WholeRecovery, first: Aligned, second: Aligned, sizes: tuple[int, ...]
) -> Array:
    """Multiply the answers that both give to each column of B⁺."""
    total = np.zeros(sizes)
    for columns in recovery.columns(total.size):
        q, p = (recovery.applied(columns, side.family) for side in (first, second))
        ours, theirs = ([a for axes in side.axes for a in axes] for side in (first, second))
        total += _contract(q, ours, p, theirs, sizes)
    return recovery.noise * total


def _marginal(
    recovery: MarginalRecovery, first: Aligned, second: Aligned, sizes: tuple[int, ...]
) -> Array:
    """Answers from different marginals have nothing to do with each other."""
    ours, theirs = (recovery.place(side.family.attributes) for side in (first, second))
    if ours is not theirs:
        return np.zeros(sizes)
    one, two = (
        Aligned(ours.whole(side.family), (*side.axes, *[()] * ours.others(side.family)))
        for side in (first, second)
    )
    return covariances(ours.recovery, one, two, sizes)


def combined_variances(
    recovery: AnyRecovery,
    terms: Sequence[tuple[Family, Array]],
    domain: Mapping[str, int],
) -> Array:
    """Return the variance of each of k combinations of answers, of shape (k,).

    Args:
        recovery: that of a plan for the families.
        terms: families with coefficients of shape (k, number of answers), answers in C order.
        domain: attribute → number of cells.

    Raises:
        ResourceLimitError: the attributes of all terms have more than 16,777,216 joint cells.
    """
    if isinstance(recovery, MarginalRecovery):
        return sum(
            (
                combined_variances(place.recovery, [(place.whole(f), c) for f, c in own], domain)
                for place, own in recovery.by_place(terms)
            ),
            np.zeros(len(terms[0][1])),
        )
    touched = frozenset[str]().union(*(family.attributes for family, _ in terms))
    names = tuple(name for name in domain if name in touched)
    shape = tuple(domain[name] for name in names)
    cells = math.prod(shape)
    if cells > MAX_ENTRIES:
        raise ResourceLimitError(
            f"A combination touches {cells:,} joint cells; the limit is {MAX_ENTRIES:,}.",
            hint="combine answers over fewer columns, or over coarser domains.",
        )
    counts = {len(coefficients) for _, coefficients in terms}
    if len(counts) != 1:
        raise InternalError("the terms of a combination have different numbers of rows")
    (k,) = counts
    step = max(1, CHUNK // cells)
    result = np.zeros(k)
    for start in range(0, k, step):
        rows = np.zeros((min(step, k - start), *shape))
        for family, coefficients in terms:
            rows += _spread(family, coefficients[start : start + step], names)
        joint = Block(names, shape, DenseQueries(rows.reshape(len(rows), -1)))
        result[start : start + step] = recovery.variances(Family("combination", (joint,), 1.0))
    return result


def _spread(family: Family, coefficients: Array, names: Sequence[str]) -> Array:
    """Turn rows of coefficients into queries over cells, to be spread over all of `names`."""
    tensor: Array = np.asarray(coefficients, dtype=np.float64).reshape(-1, *family.shape)
    for axis, block in enumerate(family.blocks):
        tensor = block.queries.apply_transposed(tensor, axis + 1)
    order = [name for block in family.blocks for name in block.attributes]
    tensor = tensor.reshape(len(tensor), *(n for block in family.blocks for n in block.shape))
    present = [name for name in names if name in order]
    tensor = tensor.transpose(0, *(1 + order.index(name) for name in present))
    return np.expand_dims(tensor, [1 + i for i, name in enumerate(names) if name not in order])


def _check(aligned: Aligned, sizes: Sequence[int]) -> None:
    """Refuse axes that do not fit the families; that is an error of the program."""
    covered = sorted(axis for axes in aligned.axes for axis in axes)
    rows = [math.prod(sizes[axis] for axis in axes) for axes in aligned.axes]
    if covered != list(range(len(sizes))) or rows != list(aligned.family.shape):
        raise InternalError("the blocks of a family do not fit the rows of its statement")


def _cut(
    blocks: Sequence[Block],
    axes: Sequence[Axes],
    box: Sequence[slice],
    sizes: Sequence[int],
) -> tuple[Block, ...]:
    """Take the rows of each block that lie in a box."""
    cut = []
    for block, own in zip(blocks, axes, strict=True):
        numbers = np.arange(block.queries.rows).reshape([sizes[a] for a in own])
        chosen = numbers[tuple(box[a] for a in own)].ravel()
        cut.append(replace(block, queries=_taken(block.queries, chosen)))
    return tuple(cut)


def _repeated(side: _Side, box: Sequence[slice], sizes: Sequence[int]) -> Queries:
    """Return the one block's query at each place of a box, also along axes of others."""
    (block,), (own,) = side.blocks, side.axes
    numbers = _placed(np.arange(block.queries.rows), own, sizes)
    there = numbers[tuple(s if a in own else slice(0, 1) for a, s in enumerate(box))]
    shape = [s.stop - s.start for s in box]
    return _taken(block.queries, np.broadcast_to(there, shape).ravel())


def _taken(queries: Queries, rows: Indices) -> Queries:
    whole = len(rows) == queries.rows and (rows == np.arange(len(rows))).all()
    return queries if whole else queries.take(rows)


class _Inner:
    """The inner products ⟨q_A B_A⁺, p_A B_A⁺⟩ of one residual space."""

    def __init__(self, recovery: Recovery, space: Space, sizes: tuple[int, ...]) -> None:
        self._recovery, self._space, self._sizes = recovery, space, sizes
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
        weights = [self._recovery.references[a].weights for a in block.attributes]
        keeps = tuple(a in self._kept for a in block.attributes)
        rows = split_rows(block.queries.matrix, weights, keeps)
        shape = tuple(n for n, keep in zip(block.shape, keeps, strict=True) if keep)
        return Block(kept, shape, DenseQueries(rows))

    def _group(self, sides: tuple[_Side, _Side], factors: Sequence[MeasuredFactor]) -> Array:
        """Return one group's inner products, along its own base axes and 1 along the others."""
        first, second = sides
        if not first.blocks and not second.blocks:  # the total's own factor
            return self._recovery.group_squares([], factors, self._space)
        if not factors:
            (side,) = (s for s in sides if s.blocks)
            return _placed(self._recovery.dropped(side.blocks[0]), side.flat, self._sizes)
        if first.key == second.key:
            squares = self._recovery.group_squares(first.blocks, factors, self._space)
            return _placed(squares, first.flat, self._sizes)
        if len(factors) == 1:
            (factor,) = factors
            if isinstance(factor, ImplicitFactor):
                return self._cells(first, second, factor)
            if all(len(b.attributes) == 1 for side in sides for b in side.blocks):
                return self._columns(first, second, factor)
        return self._written(first, second, factors)

    def _cells(self, first: _Side, second: _Side, factor: ImplicitFactor) -> Array:
        """Multiply the queries themselves, where the factor need not be written out."""
        dense = any(isinstance(s.blocks[0].queries, DenseQueries) for s in (first, second))
        result, boxes_ = self._boxes(first, second, factor.cells if dense else 1)
        for box in boxes_:
            q, p = (_repeated(side, box, self._sizes) for side in (first, second))
            result[box] = row_products(q, p, factor).reshape(result[box].shape)
        return result

    def _columns(self, first: _Side, second: _Side, factor: MeasuredFactor) -> Array:
        """Apply each attribute's queries to the columns of CB⁺, some columns at a time."""
        names = self._space.of(factor)
        tensor = self._recovery.inverse(factor, names).reshape(*factor.shape, -1)
        rows = math.prod(self._sizes[a] for a in {*first.flat, *second.flat})
        step, total = max(1, CHUNK // max(1, rows)), np.zeros(())
        for start in range(0, tensor.shape[-1], step):
            columns = tensor[..., start : start + step]
            q, p = (_applied(side.blocks, names, columns) for side in (first, second))
            total = total + _contract(q, first.flat, p, second.flat, self._sizes)
        return total

    def _written(self, first: _Side, second: _Side, factors: Sequence[MeasuredFactor]) -> Array:
        """Write q_A B_A⁺ out on both sides, some rows at a time."""
        cells = max(math.prod(n for b in s.blocks for n in b.shape) for s in (first, second))
        result, boxes_ = self._boxes(first, second, cells)
        for box in boxes_:
            q, p = (
                self._recovery.table(self._inside(side, box), factors, self._space)
                for side in (first, second)
            )
            shape = [s.stop - s.start for s in box]
            result[box] = _contract(q, first.flat, p, second.flat, shape)
        return result

    def _inside(self, side: _Side, box: Sequence[slice]) -> tuple[Block, ...]:
        return _cut(side.blocks, side.axes, box, self._sizes)

    def _boxes(
        self, first: _Side, second: _Side, width: int
    ) -> tuple[Array, Iterator[tuple[slice, ...]]]:
        """Make room along both sides' axes, and split it so that boxes × width are few entries."""
        axes = {*first.flat, *second.flat}
        shape = [n if a in axes else 1 for a, n in enumerate(self._sizes)]
        return np.zeros(shape), boxes(shape, max(1, CHUNK // width))


def _applied(blocks: Sequence[Block], names: Sequence[str], columns: Array) -> Array:
    """Apply queries of one attribute each to the columns over some attributes."""
    result = columns.transpose(*(names.index(b.attributes[0]) for b in blocks), -1)
    for axis, block in enumerate(blocks):
        result = block.queries.apply(result, axis)
    return result


def _placed(values: NDArray[Any], axes: Sequence[int], sizes: Sequence[int]) -> NDArray[Any]:
    """Lay rows in the C order of some base axes along them; the others are 1 long."""
    order = sorted(range(len(axes)), key=axes.__getitem__)
    table = values.reshape([sizes[a] for a in axes]).transpose(order)
    return table.reshape([n if a in axes else 1 for a, n in enumerate(sizes)])


def _contract(
    q: Array, ours: Sequence[int], p: Array, theirs: Sequence[int], sizes: Sequence[int]
) -> Array:
    """Multiply tables of shape (rows, …, columns) row by row, and add up the columns."""
    columns = q.shape[-1]
    q = q.reshape([*(sizes[a] for a in ours), columns])
    p = p.reshape([*(sizes[a] for a in theirs), columns])
    axes = sorted({*ours, *theirs})
    left, right, both = map(_letters, (ours, theirs, axes))
    product = np.einsum(f"{left}Z,{right}Z->{both}", q, p)
    return _placed(product, axes, sizes)


def _letters(axes: Sequence[int]) -> str:
    return "".join(chr(ord("a") + axis) for axis in axes)
