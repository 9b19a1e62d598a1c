"""Joint cells of which the same is asked, taken together.

Let two joint cells be alike if each query counts both alike. What is asked of them, and what any
strategy need measure of them, is the same: by convexity the mean over all ways to exchange them is
as good as any. So a dual over one cell of each class has the same optimum. And cells of which
nothing is asked cost nothing. Classes are found block by block, before anything is written out over
the joint cells: two cells are alike in a family if they are in each of its blocks, or if both have
zeros in some block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.coordinates import alike
from dpsql.linalg.roots import root_of
from dpsql.linalg.symmetry import Permutation
from dpsql.workload import Block, Family, Workload
from dpsql.workload.workload import refined, touched

T = TypeVar("T", np.float64, np.int64)

MOST_LOOKED_AT = 2**22
"""Joint cells times families up to which classes are looked for: a tenth of a second's work."""
MOST_WRITTEN = 2**22
"""Entries of blocks that are written out for it."""
MOST_APART = 2500
"""Joint cells up to which each is a class of its own, where that is too much."""


@dataclass(frozen=True, slots=True, eq=False)
class MergedCells:
    """The classes of the joint cells of the attributes that a workload touches."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    classes: Ints
    """Joint cell → its class, numbered from 0; −1 where nothing is asked."""
    first: NDArray[np.intp]
    """Class → a joint cell of it."""

    @property
    def count(self) -> int:
        """The number of classes of which anything is asked."""
        return len(self.first)

    @staticmethod
    def of(workload: Workload) -> MergedCells | None:
        """Find the classes; None if there is too much to look at."""
        names, asked = touched(workload), _asked(workload)
        sizes = tuple((name, workload.domain[name]) for name in names)
        return _found(_AskedOnce((sizes, tuple(asked)), tuple(asked.values())))

    def rows(self, families: Iterable[Family]) -> Array:
        """Write queries out over a cell of each class, with their weights folded in."""
        places = self.places
        return np.vstack([self._written(family, places) for family in families if family.count])

    @property
    def places(self) -> dict[str, NDArray[np.intp]]:
        """Attribute → its cell in the first joint cell of each class."""
        if not self.names:
            return {}
        return dict(zip(self.names, np.unravel_index(self.first, self.shape), strict=True))

    def _written(self, family: Family, places: dict[str, NDArray[np.intp]]) -> Array:
        rows: Array = np.full((1, self.count), math.sqrt(family.weight))
        for block in family.blocks:
            block_rows = block.queries.matrix[:, _places(block, places, self.count)]
            rows = (rows[:, None] * block_rows).reshape(-1, self.count)
        return rows

    def root(self, workload: Workload) -> Array:
        """Return rows over a cell of each class with the queries' Gram matrix: no more than these.

        They are the queries themselves, where these are fewer.
        """
        if workload.count < self.count:
            return self.rows(workload.families)
        places = self.places
        total = np.zeros((self.count, self.count))
        for family in (family for family in workload.families if family.count):
            product = np.full(total.shape, family.weight)
            for block in family.blocks:
                product *= _gram(block, _places(block, places, self.count))
            total += product
        return root_of(total)

    def spread(self, rows: NDArray[T]) -> NDArray[T]:
        """Return what rows over classes are over the joint cells."""
        if self.count == len(self.classes):
            return rows[:, self.classes]
        nothing = np.zeros((len(rows), 1), rows.dtype)  # of the class −1, the last column
        return np.asarray(np.hstack([rows, nothing])[:, self.classes])

    def moved(self, permutation: Permutation) -> Permutation | None:
        """Return how a permutation of the joint cells exchanges classes; None if it parts them."""
        classes = self.classes[permutation[self.first]]
        parts = (classes < 0).any() or len(np.unique(classes)) < self.count
        return None if parts else classes.astype(np.intp)


_Key = tuple[tuple[tuple[str, ...], bytes], ...]
"""The queries of a family, block by block."""


def _asked(workload: Workload) -> dict[_Key, Family]:
    """Return the families with any queries, those that ask the same but once."""
    return {
        tuple((block.attributes, block.queries.key) for block in family.blocks): family
        for family in workload.families
        if family.count
    }


@dataclass(frozen=True, slots=True)
class _AskedOnce:
    """Families, told apart by what they ask, whatever weights they have."""

    key: tuple[tuple[tuple[str, int], ...], tuple[_Key, ...]]
    """The sizes of the attributes, and what is asked."""
    families: tuple[Family, ...] = field(compare=False)


@lru_cache(maxsize=4)  # a plan needs them several times
def _found(asked: _AskedOnce) -> MergedCells | None:
    sizes, _ = asked.key
    names, shape = tuple(name for name, _ in sizes), tuple(n for _, n in sizes)
    cells, blocks = math.prod(shape), [b for f in asked.families for b in f.blocks]
    written = sum(block.queries.rows * block.queries.cells for block in blocks)
    if cells * max(1, len(asked.families)) > MOST_LOOKED_AT or written > MOST_WRITTEN:
        return _apart(names, shape) if cells <= MOST_APART else None
    places = dict(zip(names, np.indices(shape).reshape(len(shape), cells), strict=True))
    known: dict[bytes, Ints] = {}
    classes, counted = np.zeros(cells, dtype=np.int64), np.zeros(cells, dtype=np.bool_)
    for family in asked.families:
        signature = _signature(family, places, known, cells)
        classes, counted = refined(classes, signature), counted | (signature > 0)
    distinct, first, inverse = np.unique(
        np.where(counted, classes, -1), return_index=True, return_inverse=True
    )
    nothing = int((distinct[:1] < 0).sum())
    return MergedCells(names, shape, inverse - nothing, first[nothing:])


def _apart(names: tuple[str, ...], shape: tuple[int, ...]) -> MergedCells:
    """Let each joint cell be a class of its own."""
    each = np.arange(math.prod(shape))
    return MergedCells(names, shape, each, each)


def most_rank(workload: Workload) -> int:
    """Return a bound on the rank of all queries, from their numbers."""
    return sum(
        math.prod(min(b.queries.rows, b.queries.cells) for b in family.blocks)
        for family in _asked(workload).values()
    )


def _places(block: Block, places: dict[str, NDArray[np.intp]], count: int) -> NDArray[np.intp]:
    """Return the cell of a block in which each of some joint cells lies."""
    if not block.attributes:
        return np.zeros(count, dtype=np.intp)
    indices = [places[name] for name in block.attributes]
    return np.asarray(np.ravel_multi_index(indices, block.shape), dtype=np.intp)


def _gram(block: Block, at: NDArray[np.intp]) -> Array:
    """Return the inner products of the columns of some cells of a block."""
    if block.queries.cells <= max(len(at), MOST_APART):
        return block.queries.gram()[np.ix_(at, at)]
    columns = block.queries.matrix[:, at]  # there are classes, so it was written out before
    return np.asarray(columns.T @ columns)


def _signature(
    family: Family, places: dict[str, NDArray[np.intp]], known: dict[bytes, Ints], cells: int
) -> Ints:
    """Return a number for each joint cell: equal where all queries of a family are, 0 for zeros."""
    signature = np.ones(cells, dtype=np.int64)
    for block in family.blocks:
        key = block.queries.key
        if key not in known:
            known[key] = alike(block.queries.matrix)
        squares = known[key][_places(block, places, cells)]
        signature = np.where(
            squares > 0, signature * (int(squares.max(initial=0)) + 1) + squares, 0
        ) * (signature > 0)
    return signature
