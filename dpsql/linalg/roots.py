"""Roots of Gram matrices: rows R with RᵀR = G."""

from __future__ import annotations

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.nested import nested_rows


def root_of(gram: Array) -> Array:
    """Return at most as many rows as there are cells, some of which may be zero."""
    if (rows := nested_rows(gram)) is not None:
        return rows
    values, vectors = np.linalg.eigh(gram)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


def independent_root(gram: Array, negligible: float) -> tuple[Array, Array]:
    """Return independent rows R with RᵀR = G, and their pseudo-inverse.

    Eigenvalues that are `negligible`, relatively, are taken as rounding errors of zeros.
    """
    values, vectors = np.linalg.eigh(gram)
    kept = values > negligible * max(float(values[-1]), 0.0)
    scale, vectors = np.sqrt(values[kept]), vectors[:, kept]
    return np.ascontiguousarray((vectors * scale).T), np.asarray(vectors / scale)


def independent_rows(rows: Array, negligible: float) -> tuple[Array, Array]:
    """Return independent rows with the same Gram matrix, and their pseudo-inverse.

    The Gram matrix is not written out, so that there may be many cells. Its eigenvalues are the
    squares of singular values.
    """
    _, scale, vectors = np.linalg.svd(rows, full_matrices=False)
    kept = scale > np.sqrt(negligible) * scale[0]
    scale, vectors = scale[kept], vectors[kept]
    return np.ascontiguousarray(scale[:, None] * vectors), np.asarray(vectors.T / scale)


def full_rank_root(gram: Array) -> Array:
    """Return rows of full rank with this Gram matrix."""
    if (rows := nested_rows(gram)) is not None:
        return rows
    values, vectors = np.linalg.eigh(gram)
    kept = values > max(float(values[-1]), 0.0) * 1e-13 * len(gram)
    return np.asarray(np.sqrt(values[kept])[:, None] * vectors[:, kept].T)


def compressed(rows: Array) -> Array:
    """Return rows of full rank with the same Gram matrix, of fewer rows than cells."""
    values, vectors = np.linalg.eigh(rows @ rows.T)
    kept = values > max(float(values[-1]), 0.0) * 1e-13 * len(rows)
    return np.asarray(vectors[:, kept].T @ rows)
