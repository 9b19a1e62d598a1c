"""Divide: split every query into pieces, one for each residual space that it touches.

Notation (QuerySmasher, arXiv 2604.00868, §6.2; ResidualPlanner, arXiv 2305.08175, §4). For an
attribute with n cells, `drop` averages a query over the cells and `keep` is what is left after
that average is taken away. For a query q over attributes B and A ⊆ B,

    q_A = (keep on every axis in A, drop on every axis in B∖A) q ,      q(x_B) = Σ_A q_A(x_A) .

q_A lies in the residual space V_A, whose members sum to zero along every axis of A. The spaces
are linearly independent, so that each can be measured on its own.

A family is a Kronecker product over blocks, and both operations act on one axis at a time, so
the pieces of a family are Kronecker products as well. They are never multiplied out here.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, product

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ResourceLimitError
from dpsql.planner.component import Component
from dpsql.workload import Block, Family, Workload
from dpsql.workload.queries import CellQueries, IntervalQueries

MAX_EXACT = 2.0**20
"""Integer queries with coefficients up to this are split in exact integers."""

MAX_SPACES = 1 << 18
"""Planning takes about 0.15 milliseconds and 4 kB for each."""

MAX_JOINT_ATTRIBUTES = 12
"""A matrix over k attributes has 2^k pieces, each taking time in its cells, 2^k or more."""


@dataclass(frozen=True, slots=True)
class Term:
    """A weighted Kronecker product of pieces: one family's share in a subworkload.

    Its Gram matrix is `weight` times the Kronecker product of the pieces' Gram matrices.
    """

    weight: float
    pieces: tuple[Component, ...]


@dataclass(frozen=True, slots=True)
class Subworkload:
    """All pieces that fall in the residual space of `attributes` (in domain order)."""

    attributes: tuple[str, ...]
    terms: tuple[Term, ...]


def decompose(workload: Workload, pieces: Pieces) -> tuple[Subworkload, ...]:
    """Collect the pieces of all families by residual space, the smallest spaces first.

    Raises:
        ResourceLimitError: there are too many.
    """
    order = {name: i for i, name in enumerate(workload.domain)}
    spaces: dict[tuple[str, ...], list[Term]] = {}
    for family in workload.families:
        for attributes, parts in pieces.of(family):
            space = tuple(sorted(attributes, key=order.__getitem__))
            spaces.setdefault(space, []).append(_term(family, parts))
            if len(spaces) > MAX_SPACES:
                raise ResourceLimitError(
                    f"The queries touch more than {MAX_SPACES:,} residual spaces.",
                    hint="group by fewer columns at once: k columns touch 2^k spaces.",
                )
    ordered = sorted(spaces, key=lambda a: (len(a), [order[name] for name in a]))
    return tuple(Subworkload(space, tuple(spaces[space])) for space in ordered)


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The content of a piece, whatever its attributes are called."""

    content: bytes
    rows: NDArray[np.float64] | None
    numerators: NDArray[np.int64] | None = None
    identity: float | None = None


class Pieces:
    """The pieces of one plan's blocks. Blocks of equal content are split once."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, ...], bytes, tuple[bool, ...]], Split] = {}
        self._of_blocks: dict[tuple[tuple[str, ...], bytes], list[Component]] = {}

    def of(self, family: Family) -> Iterator[tuple[tuple[str, ...], tuple[Component, ...]]]:
        """Yield every residual space that the family touches, with one piece per block."""
        if not family.count:
            return
        choices = [self._touched(block) for block in family.blocks]
        for parts in product(*choices):
            yield tuple(chain.from_iterable(p.attributes for p in parts)), parts

    def _touched(self, block: Block) -> list[Component]:
        key = (block.attributes, block.queries.key)
        if key not in self._of_blocks:
            if len(block.attributes) > MAX_JOINT_ATTRIBUTES:
                raise ResourceLimitError(
                    f"One condition joins {len(block.attributes)} columns, more than "
                    f"{MAX_JOINT_ATTRIBUTES}.",
                    hint="store what it says as a column of its own, or join fewer columns by OR.",
                )
            pieces = (self._piece(block, kept) for kept in _subsets(block.attributes))
            self._of_blocks[key] = [p for p in pieces if p.squares]
        return self._of_blocks[key]

    def _piece(self, block: Block, kept: tuple[str, ...]) -> Component:
        """Apply `keep` on the axes in `kept` and `drop` on the others."""
        axes = tuple(a in kept for a in block.attributes)
        content = (block.shape, block.queries.key, axes)
        if content not in self._known:
            self._known[content] = _split(block, axes)
        split = self._known[content]
        shape = tuple(n for n, keep in zip(block.shape, axes, strict=True) if keep)
        return Component(kept, shape, split.content, split.rows, split.numerators, split.identity)


def _split(block: Block, axes: tuple[bool, ...]) -> Split:
    """Split a block's queries, by their Gram matrix where they are at least as many as cells."""
    queries = block.queries
    key = hashlib.sha256(repr((axes, block.shape)).encode() + queries.key).digest()
    if len(axes) == 1 and isinstance(queries, CellQueries):
        n = queries.cells
        return Split(key, None, None, 1.0) if axes[0] else Split(key, np.full((1, 1), n**-0.5))
    if len(axes) == 1 and isinstance(queries, IntervalQueries) and queries.rows >= queries.cells:
        return Split(key, _frozen(_root(queries.gram(), axes[0])))
    return _split_matrix(block, axes, key)


def _root(gram: NDArray[np.float64], keep: bool) -> NDArray[np.float64]:
    """Return rows whose Gram matrix is that of the kept, or dropped, part of some queries."""
    means = gram.mean(axis=0)
    if not keep:
        return np.array([[math.sqrt(means.mean())]])
    centred = gram - means - means[:, None] + means.mean()
    values, vectors = np.linalg.eigh(centred)
    found = values > max(values[-1], 0.0) * 1e-13 * len(gram)
    return np.ascontiguousarray(np.sqrt(values[found])[:, None] * vectors[:, found].T)


def split_rows(block: Block, axes: tuple[bool, ...]) -> NDArray[np.float64]:
    """Split a block's queries row by row: shape (queries, cells of the kept axes)."""
    matrix = block.queries.matrix
    return _flush(_split_reals(matrix, block.shape, axes), matrix)


def _split_matrix(block: Block, axes: tuple[bool, ...], key: bytes) -> Split:
    """Split a block's matrix; exact where the coefficients are small integers."""
    matrix = block.queries.matrix
    denominator = math.prod(block.shape)
    whole = bool((matrix == np.rint(matrix)).all())
    if whole and np.abs(matrix).max(initial=0) <= MAX_EXACT and denominator <= 2**32:
        numerators = _split_integers(matrix.astype(np.int64), block.shape, axes)
        return Split(key, _frozen(numerators / denominator), numerators)
    return Split(key, _frozen(split_rows(block, axes)))


def _frozen(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    matrix.setflags(write=False)
    return matrix


def _split_integers(
    matrix: NDArray[np.int64], shape: tuple[int, ...], axes: tuple[bool, ...]
) -> NDArray[np.int64]:
    """Return the split matrix times ∏ n_i: both operations are scaled by n, nothing is divided."""
    work = matrix.reshape(-1, *shape)
    for axis in reversed(range(len(axes))):
        sums = work.sum(axis=axis + 1, keepdims=True)
        work = work * shape[axis] - sums if axes[axis] else sums.squeeze(axis + 1)
    return np.ascontiguousarray(work.reshape(len(matrix), -1))


def _split_reals(
    matrix: NDArray[np.float64], shape: tuple[int, ...], axes: tuple[bool, ...]
) -> NDArray[np.float64]:
    work = matrix.reshape(-1, *shape)
    for axis in reversed(range(len(axes))):
        means = work.mean(axis=axis + 1, keepdims=True)
        work = work - means if axes[axis] else means.squeeze(axis + 1)
    return np.ascontiguousarray(work.reshape(len(matrix), -1))


def _flush(pieces: NDArray[np.float64], queries: NDArray[np.float64]) -> NDArray[np.float64]:
    """Zero what only rounding left over, so that an absent piece is seen to be absent."""
    scales = np.abs(queries).max(axis=1, initial=0.0, keepdims=True)
    return np.where(np.abs(pieces) <= 1e-13 * scales, 0.0, pieces)


def _term(family: Family, pieces: tuple[Component, ...]) -> Term:
    """Fold the blocks that the residual space does not touch into the weight."""
    weight = family.weight
    for p in pieces:
        if not p.attributes:
            weight *= p.squares
    return Term(weight, tuple(p for p in pieces if p.attributes))


def _subsets(attributes: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return chain.from_iterable(
        combinations(attributes, size) for size in range(len(attributes) + 1)
    )
