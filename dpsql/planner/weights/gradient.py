"""How the error of a plan changes with the references.

Let E be the least error of a component with Gram matrix G, and C the covariance that its best
strategy gives to the cells, so that E = tr(G C). By the envelope theorem dE = tr(C dG) with C
fixed, and by the dual (see `strategies.dual`)

    C = HᵀH ,   H = √f · (Q D Qᵀ)^{-3/4} Q D ,   G = QᵀQ .

G is a sum of Kronecker products of pieces, and a piece is linear in each reference ℓ on its axes:
to drop an axis is q·ℓ, to keep it is q − (q·ℓ)1. The functions here follow C back to ℓ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.planner.residuals.pieces import Component, Piece, split_rows
from dpsql.planner.strategies.dual import DualPoint
from dpsql.workload import Queries

Slopes = dict[int, Array]
"""Color → derivative by its reference, of shape (cells,)."""


def covariance_root(point: DualPoint) -> Array:
    """Return H with E = tr(G HᵀH) at the dual's optimum; shape (rank, cells)."""
    roots = point.root
    weighted = roots * point.delta
    values = np.einsum("ij,ij->i", weighted, roots)  # √ of the eigenvalues of Q D Qᵀ
    return np.asarray(math.sqrt(point.f) * weighted / values[:, None])


def add(slopes: Slopes, more: Slopes, factor: float = 1.0) -> None:
    """Add derivatives up, in place."""
    for color, slope in more.items():
        slopes[color] = slopes.get(color, 0.0) + factor * slope


def of_piece(piece: Piece, references: Sequence[Array], root: Array) -> tuple[float, Slopes]:
    """Differentiate tr(C G) for a piece with Gram matrix G.

    Args:
        piece: the piece.
        references: ℓ of each color.
        root: H with C = HᵀH, of shape (any, cells of the kept axes in the piece's order).

    Returns:
        tr(C G), and its derivatives.
    """
    weights = [references[c] for c in piece.colors]
    if len(weights) == 1:
        return _of_axis(piece, weights[0], root)
    return _of_joint(piece, weights, root)


def _of_axis(piece: Piece, weights: Array, root: Array) -> tuple[float, Slopes]:
    (color,) = piece.colors
    if not piece.kept[0]:
        scale = float(np.square(root).sum())
        slope = _gram_times(piece.queries, weights)
        return scale * float(weights @ slope), {color: 2 * scale * slope}
    # A kept query is q·K with K = I − ℓ1ᵀ, so the kept Gram matrix is KᵀGK, and dK = −dℓ1ᵀ.
    sums = root.sum(axis=1)
    turned = root.T - np.outer(weights, sums)
    applied = _gram_times(piece.queries, turned)
    return float((turned * applied).sum()), {color: -2 * applied @ sums}


def _gram_times(queries: Queries, values: Array) -> Array:
    """Multiply by the Gram matrix, which is not written out where the queries are fewer."""
    if queries.is_identity:
        return values
    if queries.rows < queries.cells:
        return queries.apply_transposed(queries.apply(values, 0), 0)
    return queries.gram() @ values


def _of_joint(piece: Piece, weights: Sequence[Array], root: Array) -> tuple[float, Slopes]:
    matrix = piece.queries.matrix
    rows = split_rows(matrix, weights, piece.kept)
    applied = rows @ root.T
    back = 2 * applied @ root  # the derivative by the rows
    shape = [len(w) for w in weights]
    slopes: Slopes = {}
    for axis, color in enumerate(piece.colors):
        partly = _all_but(matrix, weights, piece.kept, axis)
        sizes = [n if keep else 1 for n, keep in zip(shape, piece.kept, strict=True)]
        tensor = np.moveaxis(back.reshape(-1, *sizes), axis + 1, -1)
        if piece.kept[axis]:
            tensor = -tensor.sum(axis=-1, keepdims=True)
        slope = tensor.reshape(-1) @ partly
        add(slopes, {color: slope})
    return float(np.square(applied).sum()), slopes


def _all_but(matrix: Array, weights: Sequence[Array], kept: tuple[bool, ...], axis: int) -> Array:
    """Split queries on all axes but one; shape (queries × cells of the kept ones, its cells)."""
    tensor = np.moveaxis(matrix.reshape(-1, *map(len, weights)), axis + 1, 1)
    n = tensor.shape[1]
    others = [i for i in range(len(weights)) if i != axis]
    # Each cell of the axis is taken for a query of its own.
    flat = np.ascontiguousarray(tensor).reshape(len(matrix) * n, -1)
    split = split_rows(flat, [weights[i] for i in others], tuple(kept[i] for i in others))
    return np.ascontiguousarray(split.reshape(len(matrix), n, -1).swapaxes(1, 2)).reshape(-1, n)


def contracted(root: Array, component: Component, others: Sequence[Component]) -> Array:
    """Apply other pieces to H; what is left is the H that one piece sees: shape (any, cells)."""
    tensor: Array = root.reshape(-1, *component.shape)
    axes = list(component.axes)
    for other in others:
        at = [axes.index(axis) + 1 for axis in other.axes]
        table = other.rows.reshape(-1, *other.shape)
        tensor = np.tensordot(table, tensor, (list(range(1, len(at) + 1)), at))
        tensor = tensor.reshape(-1, *tensor.shape[2:])
        axes = [axis for axis in axes if axis not in other.axes]
    return np.asarray(tensor.reshape(len(tensor), -1))
