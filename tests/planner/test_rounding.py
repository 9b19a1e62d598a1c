"""Balanced rounding and symmetry."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.planner.balance import balance
from dpsql.planner.divide.basis import residual_basis
from dpsql.planner.divide.reference import Reference, rounded
from dpsql.planner.rounding import round_strategy
from dpsql.planner.solvers.base import Triangular
from dpsql.planner.solvers.dual import Dual, Part, compress, evaluate, maximise, over_basis
from dpsql.planner.solvers.symmetry import blocks, symmetries


def centred_prefixes(n: int, weights) -> np.ndarray:
    rows = np.tri(n)
    return rows - (rows @ weights)[:, None]


def strategy(n: int, reference: Reference) -> tuple[np.ndarray, Triangular]:
    rows = centred_prefixes(n, reference.weights)
    best = maximise(Dual.of(rows, (n,)), 1e-5)
    return rows, over_basis(best.root, residual_basis([reference]))


def error(rows: np.ndarray, matrix: np.ndarray) -> float:
    """The total variance at privacy cost 1."""
    matrix = matrix.astype(float)
    return np.square(rows @ np.linalg.pinv(matrix)).sum() * np.square(matrix).sum(axis=0).max()


@pytest.mark.parametrize("n", [2, 3, 7, 20, 60])
@pytest.mark.parametrize("kind", ["uniform", "weighted"])
@pytest.mark.parametrize("bits", [6, 10, 16, 30])
def test_rounded_strategies_span_the_residual_space_and_lose_little(n, kind, bits):
    some = rounded(np.linspace(1, 3, n) / np.linspace(1, 3, n).sum(), 16 * n)
    reference = Reference.of_cells(n) if kind == "uniform" else some
    rows, real = strategy(n, reference)
    matrix = round_strategy(real, bits)
    assert np.abs(matrix).max() <= 2**bits
    assert not (matrix @ np.broadcast_to(reference.numerators, n)).any()
    assert np.linalg.matrix_rank(matrix.astype(float)) == n - 1
    loss = error(rows, matrix) / error(rows, real.coefficients @ real.basis) - 1
    assert loss <= {6: 5e-2, 10: 3e-3, 16: 1e-4, 30: 1e-7}[bits]


def test_balancing_brings_columns_to_their_lengths():
    draw = np.random.default_rng(3)
    exact = draw.normal(size=(40, 40)) * 300
    basis = residual_basis([Reference.of_cells(41)])
    nearest = np.rint(exact).astype(np.int64)
    moved = balance(exact, nearest, basis)
    assert np.abs(moved - exact).max() <= 1
    lengths = np.square(exact @ basis).sum(axis=0)
    before, after = (
        np.abs(np.square(z @ basis).sum(axis=0) - lengths).max() for z in (nearest, moved)
    )
    assert after < before / 10


def test_exact_zeros_stay_zero():
    exact = np.triu(np.random.default_rng(4).normal(size=(12, 12)) * 50)
    moved = balance(
        exact, np.rint(exact).astype(np.int64), residual_basis([Reference.of_cells(13)])
    )
    assert not np.tril(moved, -1).any()


SUMS = np.array([(np.add.outer(range(6), range(6)) <= c).ravel() for c in range(11)], dtype=float)
SKEWED = np.array([(np.add.outer(range(6), 2 * np.arange(6)) <= c).ravel() for c in range(16)])


@pytest.mark.parametrize(
    ("rows", "shape", "count"),
    [
        (SUMS - SUMS.mean(axis=1, keepdims=True), (6, 6), 2),  # reversal and exchange
        (SUMS, (6, 6), 1),  # exchange
        (SKEWED.astype(float), (6, 6), 0),
        (centred_prefixes(20, np.full(20, 1 / 20)), (20,), 1),
        (np.tri(20), (20,), 0),
        (np.eye(27), (3, 3, 3), 2),  # reversal and one of the exchanges
    ],
)
def test_symmetries_are_found_and_change_nothing(rows, shape, count):
    found = symmetries(rows, shape)
    assert len(found) == count
    gram = rows.T @ rows
    for permutation in found:
        np.testing.assert_allclose(gram[np.ix_(permutation, permutation)], gram, atol=1e-9)
    parts = blocks(found, rows.shape[1])
    vectors = np.hstack([b.vectors.toarray() for b in parts])
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(rows.shape[1]), atol=1e-12)
    # The dual has the same value and gradient with and without them.
    delta = np.full(rows.shape[1], 1 / rows.shape[1])
    plain_dual = Dual(rows.shape[1], (Part(compress(rows), None),))
    split, plain = evaluate(Dual.of(rows, shape), delta), evaluate(plain_dual, delta)
    assert split.f == pytest.approx(plain.f, rel=1e-9)
    np.testing.assert_allclose(split.diagonal, plain.diagonal, rtol=1e-6)
    np.testing.assert_allclose(split.root.T @ split.root, plain.root.T @ plain.root, atol=1e-6)
