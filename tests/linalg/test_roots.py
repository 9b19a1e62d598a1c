"""Roots of Gram matrices, whichever way they are found."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from dpsql.linalg import roots

DRAW = np.random.default_rng(1)


@pytest.mark.parametrize("rank", [1, 20, 59, 60])
def test_rows_are_compressed_alike_with_pivots_and_by_eigenvalues(rank, monkeypatch):
    rows = DRAW.standard_normal((90, rank)) @ DRAW.integers(-3, 4, (rank, 60))
    for large in (0, 1000):
        monkeypatch.setattr(roots, "LARGE", large)
        found = roots.compressed(rows)
        assert found.shape == (rank, 60)
        np.testing.assert_allclose(found.T @ found, rows.T @ rows, atol=1e-9 * rank * 90)


def test_what_is_below_the_least_eigenvalue_is_left_out(monkeypatch):
    monkeypatch.setattr(roots, "LARGE", 0)
    rows = np.vstack([np.eye(5), np.zeros((2, 5))])
    rows[4, 4] = 1e-4
    assert len(roots.compressed(rows)) == 5
    assert len(roots.compressed(rows, least=1e-6)) == 4


def test_the_root_of_a_regular_matrix_and_its_inverse():
    rows = DRAW.standard_normal((9, 7))
    upper, inverse = roots.triangular_root(rows.T @ rows)
    np.testing.assert_allclose(upper.T @ upper, rows.T @ rows, atol=1e-9)
    np.testing.assert_allclose(upper @ inverse, np.eye(7), atol=1e-9)
    assert roots.triangular_root(rows[:5].T @ rows[:5]) is None


@pytest.mark.parametrize("spread", [1, 1e3, 1e5])
def test_independent_rows_have_the_same_gram_matrix_and_an_inverse(spread):
    rows = DRAW.standard_normal((20, 300)) * np.geomspace(1, 1 / spread, 20)[:, None]
    rows = np.vstack([rows, rows[:3], np.zeros((1, 300))])
    found, inverse = roots.independent_rows(rows, 1e-11)
    assert len(found) == 20
    np.testing.assert_allclose(found.T @ found, rows.T @ rows, atol=1e-12 * np.square(rows).sum())
    np.testing.assert_allclose(found @ inverse, np.eye(20), atol=1e-10)
    np.testing.assert_allclose(inverse @ found, np.linalg.pinv(rows) @ rows, atol=1e-8)


@pytest.mark.parametrize("cells", [1, 2, 4, 31, 40, 150])
def test_eigenvalues_are_those_of_the_same_routine_of_lapack(cells):
    """Bit by bit: plans rest on them, and were made by SciPy's `eigh` before."""
    for rank in {1, max(1, cells // 2), cells}:
        rows = DRAW.standard_normal((rank, cells))
        gram = rows.T @ rows
        found = roots.eigen_of(gram)
        for one, other in zip(found, scipy.linalg.eigh(gram, driver="evd"), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (3, 5), (7, 7), (9, 4), (40, 80)])
def test_singular_values_are_those_of_scipy(shape):
    """Bit by bit, as above, and however the rows lie in memory."""
    rows = DRAW.standard_normal(shape)
    for given in (rows, np.asfortranarray(rows), rows[::-1]):
        found = roots.singular_of(given)
        vectors, values, _ = scipy.linalg.svd(given, full_matrices=False)
        np.testing.assert_array_equal(found[0], vectors)
        np.testing.assert_array_equal(found[1], values)


@pytest.mark.parametrize("shape", [(1, 30), (3, 9), (40, 200), (20, 5000)])
@pytest.mark.parametrize("smallest", [1, 1e-7])
def test_singular_values_of_many_cells_are_as_exact(shape, smallest):
    rows = DRAW.standard_normal(shape) * np.geomspace(1, smallest, shape[0])[:, None]
    for given in (rows, np.asfortranarray(rows)):
        vectors, values = roots.singular_of(given)
        expected = scipy.linalg.svd(given, full_matrices=False)
        np.testing.assert_allclose(values, expected[1], rtol=1e-13 / smallest)
        same = np.abs(np.sum(vectors * expected[0], axis=0))
        np.testing.assert_allclose(same, 1, atol=1e-10)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(shape[0]), atol=1e-13)


@pytest.mark.parametrize("entry", [np.nan, np.inf])
def test_what_is_not_finite_has_no_eigenvalues(entry):
    for of in (roots.eigen_of, roots.singular_of):
        with pytest.raises(np.linalg.LinAlgError):
            of(np.array([[1.0, 0.0], [0.0, entry]]))
