"""Symmetry: permutations of the cells that leave a workload's Gram matrix as it is.

If G stays the same when the cells are permuted by π, the dual has a best δ that does too (it is
concave, so the mean over π is as good). In a basis of vectors that π keeps or turns around, all
matrices then fall into two blocks, of half the size each. Several permutations that are their own
inverse and commute give 2^k blocks; factorizations take time in the cube of the size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array

if TYPE_CHECKING:
    import scipy.sparse

Permutation = NDArray[np.intp]

PROBES = 3
TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Subspace:
    """An invariant subspace of the cells."""

    vectors: scipy.sparse.csr_array
    """Orthonormal columns, of shape (cells, dimension). No two columns share a cell."""
    cells: NDArray[np.intp]
    """A cell of each column: those of one column are alike."""


def symmetries(
    rows: Array,
    shape: Sequence[int],
    moved: Callable[[Permutation], Permutation | None] = lambda permutation: permutation,
) -> list[Permutation]:
    """Find commuting involutions that leave the Gram matrix of `rows` as it is.

    Tried are the reversal of all axes together, and exchanges of two axes of equal size. A
    permutation counts if it leaves the products with a few fixed, irregular vectors alone.

    Args:
        rows: rows over cells, or over classes of cells.
        shape: the number of cells along each axis.
        moved: what a permutation of the cells is over the classes; None if it parts some.
    """
    cells = np.arange(math.prod(shape)).reshape(tuple(shape))
    permutations = []
    reverse = moved(cells[tuple(slice(None, None, -1) for _ in shape)].ravel())
    if reverse is not None and _leaves_alone(rows, reverse):
        permutations.append(reverse)
    used: set[int] = set()
    for i in range(len(shape)):
        for j in range(i + 1, len(shape)):
            if shape[i] == shape[j] and not {i, j} & used:
                exchange = moved(cells.swapaxes(i, j).ravel())
                if exchange is not None and _leaves_alone(rows, exchange):
                    permutations.append(exchange)
                    used |= {i, j}
    return permutations


def _leaves_alone(rows: Array, permutation: Permutation) -> bool:
    n = rows.shape[1]
    for probe in range(1, PROBES + 1):
        vector = np.cos(np.arange(n) ** 2 * 0.37 * probe + probe)
        expected = rows.T @ (rows @ vector)
        # Permuted, G z becomes (G z)[π] for a G that is left alone.
        image = rows.T @ (rows @ vector[permutation])
        if np.abs(image - expected[permutation]).max() > TOLERANCE * np.abs(expected).max():
            return False
    return True


def blocks(permutations: Sequence[Permutation], cells: int) -> list[Subspace]:
    """Return the invariant subspaces of commuting involutions, one for each choice of signs."""
    images = [np.arange(cells)]
    for permutation in permutations:
        images += [image[permutation] for image in images]
    first = np.min(images, axis=0)  # of each cell's orbit
    bases = []
    for signs in product((1.0, -1.0), repeat=len(permutations)):
        weights = [1.0]
        for sign in signs:
            weights += [sign * weight for weight in weights]
        block = _block(images, weights, np.unique(first), cells)
        if len(block.cells):
            bases.append(block)
    return bases


def _block(
    images: list[Permutation], weights: list[float], leaders: NDArray[np.intp], cells: int
) -> Subspace:
    """Sum the images of each orbit's leader with signs; orbits where they cancel are left out."""
    import scipy.sparse  # slow to import, and no plain count needs it

    rows = np.concatenate([image[leaders] for image in images])
    columns = np.tile(np.arange(len(leaders)), len(images))
    values = np.repeat(weights, len(leaders))
    shape = (cells, len(leaders))
    table = scipy.sparse.csc_array(scipy.sparse.coo_array((values, (rows, columns)), shape))
    lengths = np.sqrt(np.asarray(table.multiply(table).sum(axis=0)).ravel())
    kept = np.flatnonzero(lengths > 0)
    scaled = table[:, kept] @ scipy.sparse.diags_array(1 / lengths[kept])
    return Subspace(scipy.sparse.csr_array(scaled), leaders[kept])


def averaged(values: Array, permutations: Sequence[Permutation]) -> Array:
    """Return the mean of some values of cells over what the permutations make of them."""
    for permutation in permutations:
        values = (values + values[permutation]) / 2
    return values
