"""Roots of Gram matrices: rows R with RᵀR = G."""

from __future__ import annotations

import numpy as np
import scipy

from dpsql.linalg.arrays import Array
from dpsql.linalg.nested import nested_rows

ROUNDING = 1e-13
"""Eigenvalues are 0 but for rounding below so much of the largest, for each row."""
LARGE = 500
"""Cells from which eigenvalues take long."""
REGULAR = 1e-9
"""Reciprocal condition numbers from which a Gram matrix has full rank, whatever rounding does."""


def regular_root(gram: Array, least: float = 0.0) -> Array | None:
    """Return an upper triangular R with RᵀR = G, if no eigenvalue of G is nearly 0, or `least`.

    Cholesky's factorization takes a twentieth of the time of eigenvalues. All of these are at least
    1/‖G⁻¹‖₁, of which LAPACK gives a good estimate.
    """
    upper, failed = scipy.linalg.lapack.dpotrf(gram, clean=1)
    if failed:
        return None
    size = float(np.abs(gram).sum(axis=0).max())
    reciprocal, _ = scipy.linalg.lapack.dpocon(upper, size)
    return np.asarray(upper) if reciprocal > max(REGULAR, least / size) else None


def eigen_of(gram: Array) -> tuple[Array, Array]:
    """Return the eigenvalues of a Gram matrix, ascending, and its eigenvectors.

    SciPy's `eigh` calls LAPACK in the same way. Of a few cells that takes a microsecond, and all
    that it does besides takes twenty.

    Raises:
        LinAlgError: an entry is not finite, or LAPACK fails.
    """
    if not np.isfinite(gram).all():
        raise np.linalg.LinAlgError
    work, integers, _ = scipy.linalg.lapack.dsyevd_lwork(len(gram), lower=1)
    sizes = {"lwork": int(work), "liwork": int(integers)}
    values, vectors, failed = scipy.linalg.lapack.dsyevd(gram, lower=1, **sizes)
    if failed:
        raise np.linalg.LinAlgError
    return values, vectors


def singular_of(rows: Array) -> tuple[Array, Array]:
    """Return orthonormal columns U and singular values, descending, of rows U diag(values) Vᵀ.

    SciPy's `svd` calls LAPACK in the same way: see `eigen_of`. Of more cells than rows, RᵀQᵀ = rows
    with orthonormal columns Q has the same U and values, and V, which nobody needs, isn't computed.

    Raises:
        LinAlgError: an entry is not finite, or LAPACK fails.
    """
    if not np.isfinite(rows).all():
        raise np.linalg.LinAlgError
    count, cells = rows.shape
    if cells > 2 * count:
        lwork, _ = scipy.linalg.lapack.dgeqrf_lwork(cells, count)
        factored, _, _, failed = scipy.linalg.lapack.dgeqrf(rows.T, lwork=int(lwork))
        if failed:
            raise np.linalg.LinAlgError
        rows = np.triu(factored[:count]).T
    work, _ = scipy.linalg.lapack.dgesdd_lwork(*rows.shape, compute_uv=1, full_matrices=0)
    vectors, values, _, failed = scipy.linalg.lapack.dgesdd(rows, full_matrices=0, lwork=int(work))
    if failed:
        raise np.linalg.LinAlgError
    return vectors, values


def root_of(gram: Array) -> Array:
    """Return at most as many rows as there are cells, some of which may be zero."""
    if (rows := nested_rows(gram)) is not None or (rows := regular_root(gram)) is not None:
        return rows
    values, vectors = np.linalg.eigh(gram)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


def independent_root(gram: Array, negligible: float) -> tuple[Array, Array]:
    """Return independent rows R with RᵀR = G, and their pseudo-inverse.

    Eigenvalues that are `negligible`, relatively, are taken as rounding errors of zeros.
    """
    values, vectors = _positive(gram, negligible)
    scale = np.sqrt(values)
    return np.ascontiguousarray((vectors * scale).T), np.asarray(vectors / scale)


def triangular_root(gram: Array) -> tuple[Array, Array] | None:
    """Return the same for a regular G, in much less time; None if an eigenvalue is nearly 0."""
    if (upper := regular_root(gram)) is None:
        return None
    return upper, np.asarray(scipy.linalg.lapack.dtrtri(upper)[0])


def independent_rows(rows: Array, negligible: float) -> tuple[Array, Array]:
    """Return independent rows with the same Gram matrix, and their pseudo-inverse.

    The Gram matrix is not written out, so that there may be many cells. Its eigenvalues are those
    of the products of the rows with each other, which are a tenth of the work of singular values.
    """
    values, vectors = np.linalg.eigh(rows @ rows.T)
    basis = vectors[:, values > negligible * values[-1]].T @ rows
    # A rotation of the rows keeps their Gram matrix, whatever rounding does to eigenvalues. They
    # are orthogonal but for that, so that their own products are a system that is easily solved.
    norms = np.sqrt(np.square(basis).sum(axis=1))[:, None]
    unit = basis / norms
    return np.ascontiguousarray(basis), np.asarray((np.linalg.solve(unit @ unit.T, unit) / norms).T)


def full_rank_root(gram: Array) -> Array:
    """Return rows of full rank with this Gram matrix."""
    if (rows := nested_rows(gram)) is not None or (rows := regular_root(gram)) is not None:
        return rows
    values, vectors = _positive(gram, ROUNDING * len(gram))
    return np.ascontiguousarray(np.sqrt(values)[:, None] * vectors.T)


def compressed(rows: Array, least: float = 0.0) -> Array:
    """Return rows of full rank with the same Gram matrix, whose eigenvalues are above `least`."""
    m, n = rows.shape
    gram = rows.T @ rows if m > n else rows @ rows.T
    if (root := regular_root(gram, least)) is not None:
        return root if m > n else rows
    if m > n >= LARGE:
        return _pivoted_root(gram, least)
    values, vectors = _positive(gram, ROUNDING * min(m, n), least)
    return np.ascontiguousarray(np.sqrt(values)[:, None] * vectors.T if m > n else vectors.T @ rows)


def _pivoted_root(gram: Array, least: float) -> Array:
    """Return rows of full rank by Cholesky's factorization with pivots.

    It ends where all diagonal entries that are left are below the bound: what is left out has
    eigenvalues of at most their sum. Where zeros are exact but for rounding, as in residual spaces,
    they are far below. It takes a tenth of the time of eigenvalues.
    """
    bound = max(ROUNDING * len(gram) * float(gram.diagonal().max()), least)
    upper, pivots, rank, _ = scipy.linalg.lapack.dpstrf(gram, tol=bound)
    rows = np.zeros((rank, len(gram)))
    rows[:, pivots - 1] = np.triu(upper)[:rank]
    return rows


def _positive(gram: Array, negligible: float, least: float = 0.0) -> tuple[Array, Array]:
    """Return the eigenvalues that are not rounding errors of zeros, and their eigenvectors."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > max(negligible * values[-1], least)
    return values[kept], vectors[:, kept]
