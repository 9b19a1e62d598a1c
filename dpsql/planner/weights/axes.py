"""The queries about one attribute, and the cells of it that matter for a reference.

Let Q be all rows that a workload has along an attribute, and q_j its columns, one for each cell.
Sums, averages and counts have two or three rows however many cells there are. Then

- few cells decide how much noise is needed. A strategy X = QᵀMQ costs its largest q_jᵀM q_j, which
  is a convex function of q_j and so is largest at a vertex of the convex hull of all q_j. Of a
  block over several attributes it is so along each of them, as the columns are multilinear. So the
  best error is that over the vertices alone: for a sum these are the least and the largest value,
  and for a nullable column NULL.
- few cells are enough for a reference ℓ. A query q depends on it by the number q·ℓ alone. Let r be
  the rank of Q with a row of ones (Σℓ = 1): on r cells whose columns are independent there is a
  reference for every Qℓ.

A search over all these attributes then has a few cells for each, and what it finds is written
with small integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array
from dpsql.linalg.digits import far_apart
from dpsql.linalg.hull import EXACT, SPARE, hull
from dpsql.linalg.matrices import Dense
from dpsql.linalg.roots import compressed, full_rank_root
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import Coloring, kinds
from dpsql.workload import Block, Family, Queries, Workload

Cells = NDArray[np.intp]

MAX_CELLS = 1200
"""Attributes of more cells keep the uniform reference, unless little is asked of them."""
LOW = 24
"""Rows along an attribute up to which it may have any number of cells."""
MOST_ENTRIES = 2**24
"""Entries at most of all rows along an attribute."""
MOST_SEARCHED = 2**21
"""Entries at most of those at the vertices: a search goes through them many times."""


@dataclass(frozen=True, slots=True, eq=False)
class FreeAxis:
    """The queries along the attributes of one color."""

    rows: Array
    """Rows with the Gram matrix that the queries leave on the attribute, of shape (any, cells)."""
    vertices: Cells
    """The cells that decide how much noise is needed, ascending; all if they may be many."""
    support: Cells
    """The vertices on which a reference may differ from zero without loss."""

    @staticmethod
    def of(rows: Array) -> FreeAxis:
        """Find the cells that matter."""
        cells = rows.shape[1]
        every = np.arange(cells)
        if SPARE * (len(rows) + 1) > cells:
            return FreeAxis(rows, every, every)
        vertices = hull(rows)
        return FreeAxis(rows, vertices, vertices[_basis(_with_ones(rows)[:, vertices])])

    @property
    def cells(self) -> int:
        """The number of cells."""
        return int(self.rows.shape[1])

    @property
    def sparse(self) -> bool:
        """Whether a few cells are enough for a reference."""
        return len(self.support) < self.cells

    def on_support(self, reference: Array) -> Array:
        """Return the reference on the support, spread over all cells, that acts as a given one."""
        if not self.sparse:
            return reference
        table = _with_ones(self.rows)
        weights, *_ = np.linalg.lstsq(table[:, self.support], table @ reference, rcond=None)
        result = np.zeros(self.cells)
        result[self.support] = weights / weights.sum()
        return result

    def on_vertices(self) -> FreeAxis:
        """Return what is asked of the vertices alone, numbered among themselves."""
        support = np.searchsorted(self.vertices, self.support)
        return FreeAxis(self.rows[:, self.vertices], np.arange(len(self.vertices)), support)


def axes_of(workload: Workload, coloring: Coloring, wanted: Sequence[int]) -> dict[int, FreeAxis]:
    """Return what is asked along the attributes of some colors, without those too large for it."""
    axes: dict[int, FreeAxis] = {}
    for color, parts in _parts(workload, coloring, wanted).items():
        rows = _stacked(parts, coloring.sizes[color])
        if rows is not None and len(rows):
            axis = FreeAxis.of(rows)
            if len(rows) * len(axis.vertices) <= MOST_SEARCHED:
                axes[color] = axis
    return axes


def is_cyclic(queries: Queries) -> bool:
    """Whether the Gram matrix stays the same when the cells move on by one."""
    if queries.is_identity:
        return True
    if queries.cells > MAX_CELLS:
        return False  # for all one can tell at this size
    squares = queries.column_squares()
    if not np.allclose(squares, np.roll(squares, 1), rtol=1e-12, atol=0):
        return False  # the diagonal is soon known, and mostly enough
    gram = queries.gram()
    return bool(np.allclose(gram, np.roll(gram, 1, (0, 1)), rtol=1e-12, atol=0))


def _parts(
    workload: Workload, coloring: Coloring, wanted: Sequence[int]
) -> dict[int, list[tuple[float, Block, int]]]:
    """Collect color → (weight, block, axis of the block)."""
    parts: dict[int, list[tuple[float, Block, int]]] = {color: [] for color in wanted}
    for kind in kinds(workload, coloring):
        column, weight = 0, float(kind.weights.sum())
        for block in kind.blocks:
            for axis in range(len(block.attributes)):
                color = coloring.colors[kind.attributes[0, column]]
                column += 1
                if color in parts:
                    parts[color].append((weight, block, axis))
    return parts


def _stacked(parts: Sequence[tuple[float, Block, int]], cells: int) -> Array | None:
    """Return rows of full rank; None if there are too many. Blocks count by their weights."""
    if cells <= MAX_CELLS and not _are_few(parts):
        gram = np.zeros((cells, cells))
        for weight, block, axis in parts:
            product = _gram(block, axis)
            size = float(np.trace(product))
            gram += weight / size * product if size else 0.0
        return full_rank_root(gram)
    tables = []
    for weight, block, axis in parts:
        rows = _few_rows(block, axis)
        if rows is None:
            return None
        tables.append(math.sqrt(weight) * rows / (np.linalg.norm(rows) or 1.0))
    rows = np.vstack(tables)
    if len(rows) > LOW or rows.size > MOST_ENTRIES:
        return None
    return compressed(rows)


def _are_few(parts: Sequence[tuple[float, Block, int]]) -> bool:
    """Whether few rows are asked in all, and of this attribute alone."""
    blocks = [block for _, block, _ in parts]
    alone = all(len(b.attributes) == 1 and not b.queries.is_identity for b in blocks)
    return alone and sum(b.queries.rows for b in blocks) <= LOW


def _gram(block: Block, axis: int) -> Array:
    if len(block.attributes) == 1:
        return block.queries.gram()
    along = _along(block, axis)
    return np.asarray(along.T @ along)


def _along(block: Block, axis: int) -> Array:
    """Return what a block asks along one of its axes, for fixed cells of the others."""
    tensor = block.queries.matrix.reshape(-1, *block.shape)
    return np.moveaxis(tensor, axis + 1, -1).reshape(-1, block.shape[axis])


def _few_rows(block: Block, axis: int) -> Array | None:
    if block.queries.is_identity:
        return None
    if len(block.attributes) == 1:
        return block.queries.matrix if block.queries.rows <= LOW else None
    along = _along(block, axis)
    return compressed(along) if len(along) <= MAX_CELLS else None


def _basis(table: Array) -> Cells:
    """Choose far apart columns that are a basis."""
    return np.sort(far_apart(table, len(table), EXACT))


def _with_ones(rows: Array) -> Array:
    """Add the row of ones, as long as the others are."""
    size = np.linalg.norm(rows) / math.sqrt(rows.size)
    return np.vstack([rows, np.full((1, rows.shape[1]), size)])


@dataclass(frozen=True, slots=True, eq=False)
class Vertices:
    """A workload that needs the same noise as a given one, with fewer cells where little is asked.

    Only sums over cells differ, and with them what the uniform reference is: a color keeps the
    one of all its cells, as far as queries can tell.
    """

    workload: Workload
    coloring: Coloring
    axes: Mapping[int, FreeAxis]
    """The axis of each color that is searched."""
    uniform: tuple[Reference, ...]
    """For each color, what is the uniform reference over all cells."""
    _all: Mapping[int, FreeAxis]

    @staticmethod
    def of(workload: Workload, coloring: Coloring, axes: Mapping[int, FreeAxis]) -> Vertices:
        """Leave out the cells that don't matter."""
        fewer = {c: a.vertices for c, a in axes.items() if len(a.vertices) < coloring.sizes[c]}
        sizes = tuple(len(fewer.get(c, range(n))) for c, n in enumerate(coloring.sizes))
        uniform = tuple(
            Reference.of_reals(axes[c].on_support(np.full(n, 1 / n))[fewer[c]])
            if c in fewer
            else Reference.of_cells(n)
            for c, n in enumerate(coloring.sizes)
        )
        places = {
            name: fewer[color]
            for name, color in zip(workload.domain, coloring.colors, strict=True)
            if color in fewer
        }
        small = {c: a.on_vertices() if c in fewer else a for c, a in axes.items()}
        colored = Coloring(coloring.colors, sizes)
        return Vertices(_cut(workload, places), colored, small, uniform, axes)

    def cut(self, color: int, weights: Array) -> Array:
        """Return the reference over the cells that are left that acts as one over all of them."""
        axis = self._all.get(color)
        if axis is None or len(axis.vertices) == axis.cells:
            return weights
        return axis.on_support(weights)[axis.vertices]

    def spread(self, color: int, reference: Reference) -> Reference:
        """Return a reference over the cells that are left as one over all of them."""
        axis = self._all.get(color)
        if axis is None or reference.numerators is None or len(axis.vertices) == axis.cells:
            return reference
        numerators = np.zeros(axis.cells, dtype=np.int64)
        numerators[axis.vertices] = reference.numerators
        return Reference.of_integers(numerators)


def _cut(workload: Workload, places: Mapping[str, Cells]) -> Workload:
    """Keep some cells of some attributes."""
    if not places:
        return workload
    domain = {name: len(places.get(name, range(n))) for name, n in workload.domain.items()}
    known: dict[tuple[object, ...], Queries] = {}

    def block(given: Block) -> Block:
        names = given.attributes
        if not places.keys() & set(names):
            return given
        kept = [places.get(name, np.arange(n)) for name, n in zip(names, given.shape, strict=True)]
        key = given.queries.key, *(cells.tobytes() for cells in kept)
        if key not in known:
            tensor = given.queries.matrix.reshape(-1, *given.shape)
            for axis, cells in enumerate(kept):
                tensor = np.take(tensor, cells, axis + 1)
            known[key] = Dense(tensor.reshape(len(tensor), math.prod(map(len, kept))))
        return Block(names, tuple(map(len, kept)), known[key])

    def family(given: Family) -> Family:
        return replace(given, blocks=tuple(map(block, given.blocks)))

    return Workload.of(domain, map(family, workload.families))
