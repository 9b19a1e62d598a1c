"""Weighted Fourier Factorizations against their definition, written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

from dpsql.errors import MechanismError
from dpsql.planner.mechanisms import fourier
from dpsql.planner.residuals.pieces import Splitter
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import by_size, decompose
from dpsql.planner.residuals.structure import multiply, products
from dpsql.privacy import Budget
from dpsql.workload import AllRange, Identity, Matrix, Prefix, Workload
from tests.helpers.mechanisms import planned_by, reason_of
from tests.planner.random_workloads import some, workloads

BUDGET = Budget(mu=1)


def transform(shape) -> np.ndarray:
    """The unitary Fourier matrix over joint cells: one row for each frequency."""
    matrix = np.ones((1, 1))
    for n in shape:
        k = np.arange(n)
        matrix = np.kron(matrix, np.exp(-2j * np.pi * np.outer(k, k) / n) / math.sqrt(n))
    return matrix


def strategy_by_definition(gram, shape) -> tuple[np.ndarray, float]:
    """X = F* diag(s) F with s ∝ √g, scaled to a diagonal of 1, and its error."""
    f = transform(shape)
    inside = np.ones(shape, dtype=bool)
    for axis in range(len(shape)):
        inside[(slice(None),) * axis + (0,)] = False
    g = np.where(inside.ravel(), np.einsum("ki,ij,kj->k", f, gram, f.conj()).real, 0.0)
    g = np.where(g > 1e-12 * g.max(), g, 0.0)
    x = (f.conj().T * np.sqrt(g)) @ f
    assert np.abs(x.imag).max() < 1e-9 * np.abs(x.real).max()
    np.testing.assert_allclose(x.real.diagonal(), x.real[0, 0], rtol=1e-9)
    x = x.real / x.real[0, 0]
    return x, float(np.trace(gram @ np.linalg.pinv(x, rcond=1e-10, hermitian=True)))


@some(25)
@given(workloads())
def test_strategies_and_errors_are_those_of_the_definition(workload):
    coloring = by_size(workload)
    splitter = Splitter([Reference.of_cells(n) for n in coloring.sizes])
    family = fourier.Circulant(measured=True)
    for subworkload in decompose(workload, coloring, splitter.squares):
        terms = products(subworkload, splitter)
        if subworkload.spaces == ((),):
            continue
        rows = np.vstack([math.sqrt(t.weight) * multiply(t.pieces).rows for t in terms])
        shape = multiply(terms[0].pieces).shape
        x, error = strategy_by_definition(rows.T @ rows, shape)
        found = family.conquer(terms, subworkload.spaces)
        assert found.upper == pytest.approx(error, rel=1e-6)
        assert found.lower <= error * (1 + 1e-9)
        if len(found.solved) == 1:
            inverse = found.solved[0][1].strategy.inverse().matrix
            ours = np.linalg.pinv(inverse @ inverse.T, rcond=1e-7, hermitian=True)
            kept = x @ np.linalg.pinv(x, rcond=1e-10, hermitian=True)
            np.testing.assert_allclose(kept @ ours @ kept, x, atol=2e-2)


@pytest.mark.parametrize("shape", [(2,), (3,), (8,), (2, 2), (4, 3), (2, 3, 4)])
def test_waves_make_the_square_root(shape):
    """Σ over the waves of a frequency and of its opposite is what F* diag(√g) F says."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(5, math.prod(shape))).reshape(5, *shape)
    for axis in range(1, len(shape) + 1):
        rows = rows - rows.mean(axis=axis, keepdims=True)
    gram = rows.reshape(5, -1).T @ rows.reshape(5, -1)
    spectra = np.square(np.abs(np.fft.fftn(rows, axes=range(1, rows.ndim)))).sum(axis=0)
    spectrum = spectra[(slice(1, None),) * len(shape)] / math.prod(shape)
    found = fourier.waves(spectrum, shape)
    x, error = strategy_by_definition(gram, shape)
    assert len(found) == math.prod(n - 1 for n in shape)
    scaled = found.T @ found
    np.testing.assert_allclose(scaled / scaled[0, 0], x, atol=1e-9)
    assert fourier.error_of(spectrum, shape) == pytest.approx(error, rel=1e-9)


def test_sums_of_products_need_no_rows():
    """Two products of ranges over 60 x 60 cells would have 3.3 million rows, written out."""
    workload = Workload({"a": 60, "b": 60})
    workload.add(["a", "b"], [AllRange(), Identity()]).add(["a", "b"], [Prefix(), AllRange()])
    direct = fourier.divide(workload)
    assert math.isfinite(direct.roots)
    ranges, cells, runs = (f.bind(60).matrix for f in (AllRange(), Identity(), Prefix()))
    spectra = [np.square(np.abs(np.fft.fft(q, axis=1))).sum(axis=0) for q in (ranges, cells, runs)]
    r, c, p = (s / 60 for s in spectra)
    joint = np.outer(r, c) + np.outer(p, r)
    roots = (
        math.sqrt(joint[0, 0] / 3600)
        + math.sqrt(np.square(np.sqrt(joint[1:, 0]).sum()) / 3600)
        + math.sqrt(np.square(np.sqrt(joint[0, 1:]).sum()) / 3600)
        + math.sqrt(np.square(np.sqrt(joint[1:, 1:]).sum()) / 3600)
    )
    assert direct.roots == pytest.approx(roots, rel=1e-9)


def test_errors_are_known_where_strategies_are_too_large():
    workload = Workload({"a": 100, "b": 100}).add([("a", "b")], [Matrix.affine((100, 100), (1, 1))])
    reason = reason_of("fourier", workload, BUDGET)
    assert reason is not None
    assert "10,000 cells of a x b" in reason
    with pytest.raises(MechanismError, match="10,000 cells of a x b"):
        planned_by("fourier", workload, BUDGET)
    assert fourier.divide(workload).roots > 0


def test_pure_budgets_and_nothing_at_all_are_refused():
    workload = Workload({"a": 5}).add(["a"], [Prefix()])
    assert "pure" in reason_of("fourier", workload, Budget(epsilon=1, delta=0))
    assert reason_of("fourier", Workload({"a": 5}), BUDGET) == "the workload is empty"
    assert reason_of("fourier", workload, BUDGET) is None


def test_all_values_of_a_large_column_take_no_table():
    workload = Workload({"a": 200_000, "b": 3})
    workload.add(["a"], [Identity()]).add(["b"], [Prefix()])
    planned = planned_by("fourier", workload, BUDGET)
    assert planned.gap <= 1e-2
    assert planned.privacy_cost > 1 - 1e-4
