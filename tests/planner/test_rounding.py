"""Balanced rounding and symmetry."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.linalg.balance import balance
from dpsql.linalg.roots import compressed
from dpsql.linalg.symmetry import blocks, symmetries
from dpsql.measurement.distributions import CoarseGaussian, Gaussian
from dpsql.planner.mechanisms.querysmasher import plan
from dpsql.planner.residuals.references import Reference, residual_basis, rounded, row_basis
from dpsql.planner.strategies.base import Triangular
from dpsql.planner.strategies.dual import Dual, QueryPart, evaluate, maximize
from dpsql.planner.strategies.express import over_basis
from dpsql.planner.strategies.rounding import round_strategy
from dpsql.privacy import Budget
from dpsql.workload import Identity, Matrix, Prefix, Workload


def centered_prefixes(n: int, weights) -> np.ndarray:
    rows = np.tri(n)
    return rows - (rows @ weights)[:, None]


def strategy(n: int, reference: Reference) -> tuple[np.ndarray, Triangular]:
    rows = centered_prefixes(n, reference.weights)
    best = maximize(Dual.of(rows, (n,)), 1e-5)
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
    assert loss <= {6: 5e-2, 10: 3e-3, 16: 1e-4, 30: 1e-6}[bits]


@pytest.mark.parametrize("scale", [3, 30, 300])
@pytest.mark.parametrize("kind", ["residual", "sparse", "dense"])
def test_balancing_leaves_no_column_longer_than_the_longest(kind, scale):
    """And few coefficients are moved for that, each to its other neighbor."""
    draw = np.random.default_rng(scale)
    exact = draw.normal(size=(40, 40)) * scale
    basis = {
        "residual": residual_basis([Reference.of_cells(41)]),
        "sparse": draw.integers(-1, 2, (40, 90)) * (draw.random((40, 90)) < 0.2),
        "dense": draw.integers(-1, 2, (40, 90)),
    }[kind]
    nearest = np.rint(exact).astype(np.int64)
    moved = balance(exact, nearest, basis)
    longest = np.square(exact @ basis).sum(axis=0).max()
    before, after = (np.square(z @ basis).sum(axis=0).max() / longest - 1 for z in (nearest, moved))
    assert np.abs(moved - exact).max() <= 1
    assert after <= 1e-5
    assert np.count_nonzero(moved - nearest) <= 80
    if before <= 0:
        assert (moved == nearest).all()


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
        (centered_prefixes(20, np.full(20, 1 / 20)), (20,), 1),
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
    plain_dual = Dual(rows.shape[1], (QueryPart(compressed(rows), None),))
    split, plain = evaluate(Dual.of(rows, shape), delta), evaluate(plain_dual, delta)
    assert split.f == pytest.approx(plain.f, rel=1e-9)
    np.testing.assert_allclose(split.diagonal, plain.diagonal, rtol=1e-6)
    np.testing.assert_allclose(split.root.T @ split.root, plain.root.T @ plain.root, atol=1e-6)


def compared(cells: int, others: int) -> Workload:
    """Sums of two attributes up to each value, by a third one; and a condition on that."""
    sums = Matrix.affine((cells, cells), (1, 1))
    workload = Workload({"a": cells, "b": cells, "c": others})
    workload.add([("a", "b"), "c"], [sums, Identity()])
    return workload.add(["c"], Matrix((np.arange(others) >= 2).astype(float)[None]))


def running(cells: int, others: int) -> Workload:
    """The same sums as running totals along the third one."""
    sums = Matrix.affine((cells, cells), (1, 1))
    workload = Workload({"a": cells, "b": cells, "c": others})
    workload.add([("a", "b"), "c"], [sums, Prefix()])
    return workload.add(["c"], Matrix((np.arange(others) >= 2).astype(float)[None]))


def averaged(groups: int, values: int) -> Workload:
    """Counts by all groups but one, with counts and sums of values that may be NULL."""
    kept = Matrix(np.delete(np.eye(groups), 3, axis=0))
    of_values = np.vstack([np.ones(values + 1), np.arange(values + 1) - values // 2])
    of_values[:, values] = 0
    workload = Workload({"g": groups, "v": values + 1})
    return workload.add(["g"], kept).add(["g", "v"], [kept, Matrix(of_values)])


CASES = {
    "compared": lambda: compared(8, 7),  # in residual spaces lost 7.7 percent with 30 bits
    "running": lambda: running(10, 16),  # the only one that needs more
    "averaged": lambda: averaged(30, 100),  # 2.9 percent
}


@pytest.fixture
def in_residual_spaces(monkeypatch):
    """Plan in residual spaces also what is little enough work to be planned as a whole."""
    module = "dpsql.planner.mechanisms.querysmasher"
    monkeypatch.setattr(f"{module}.is_quick", lambda _: False)
    monkeypatch.setattr(f"{module}.MAX_CELLS", 0)
    monkeypatch.setattr(f"{module}.MODERATE_WORK", 0)


@pytest.mark.parametrize("case", CASES)
def test_blocks_of_several_factors_that_need_many_bits_lose_nothing(in_residual_spaces, case):
    workload, budget = CASES[case](), Budget(rho=0.5)
    planned = plan(workload, budget)
    wide = any(isinstance(b.law, CoarseGaussian) for b in planned.certified.blocks)
    # Of the others, "averaged" needs 30 bits, divided as factors need.
    assert wide == (case == "running")
    assert planned.gap <= 1e-3
    assert planned.rmse <= plan(workload, budget, residuals="uniform").rmse * 1.001


@pytest.mark.parametrize("rho", [Fraction(1, 10**12), Fraction(1, 10**6), 1, 10**6, 10**14])
def test_no_budget_makes_wide_plans_lose(rho):
    planned = plan(averaged(30, 100), Budget(rho=rho))
    assert planned.privacy_cost <= 2 * rho
    assert planned.gap <= 2e-3


def test_wide_integers_are_for_moderately_many_measurements(monkeypatch):
    """The others are rounded as well as narrow integers allow."""
    monkeypatch.setattr("dpsql.planner.strategies.rounding.WIDE_MEASUREMENTS", 10)
    planned = plan(averaged(30, 100), Budget(rho=1))
    assert all(isinstance(b.law, Gaussian) for b in planned.certified.blocks)
    assert planned.gap <= 0.1


def test_columns_are_balanced_until_they_are_as_long_as_they_were(monkeypatch):
    """Fifteen more scales and rotations were tried for what the first had reached."""
    name, calls = "dpsql.planner.strategies.rounding.balance", []
    monkeypatch.setattr(name, lambda *args: calls.append(0) or balance(*args))
    rows, real = strategy(20, rounded(np.linspace(1, 3, 20) / 40, 320))
    matrix = round_strategy(real, 30, needed=30)
    assert len(calls) == 1
    assert error(rows, matrix) <= error(rows, real.coefficients @ real.basis) * (1 + 1e-5)


@pytest.mark.parametrize(("measurements", "law"), [(2**17, CoarseGaussian), (10, Gaussian)])
def test_columns_are_not_balanced_where_that_takes_seconds(
    in_residual_spaces, monkeypatch, measurements, law
):
    """77 rows of 1,600 cells took 40 seconds, and each round of a search for targets again."""

    def refuse(*_):
        raise AssertionError("the columns are balanced")

    monkeypatch.setattr("dpsql.planner.strategies.rounding.balance", refuse)
    monkeypatch.setattr("dpsql.planner.strategies.rounding.WIDE_MEASUREMENTS", measurements)
    workload = Workload({"x": 40, "y": 40}).add(["x", "y"], Matrix.affine((40, 40), (1, 1)))
    planned = plan(workload.add(["x"], [Identity()]), Budget(rho=0.5))
    (block,) = [b for b in planned.certified.blocks if len(b.spaces[0]) == 2]
    assert block.factors[0].shape == (40, 40)
    assert isinstance(block.law, law)
    assert planned.gap <= 1e-3


def test_subspaces_that_are_empty_but_for_rounding_have_no_rank():
    """Their rank was 86, so all 529 dimensions were measured, of which 45 are asked for."""
    workload = Workload({"x": 24, "y": 24}).add(["x", "y"], Matrix.affine((24, 24), (1, 1)))
    planned = plan(workload.add(["x"], [Prefix()]), Budget(mu=1), residuals="uniform")
    assert max(b.factors[0].measurements for b in planned.certified.blocks) == 45
    assert planned.gap <= 1e-3


@pytest.mark.parametrize("seed", range(40))
def test_rows_that_span_the_others_are_found_wherever_they_differ(seed):
    """Many cells are looked at a few at a time; some rows differ in one of them only."""
    draws = np.random.default_rng(seed)
    rank, cells = int(draws.integers(1, 8)), int(draws.integers(5, 3000))
    rows = draws.integers(-9, 10, (rank, cells)) * (draws.random(cells) < draws.random())
    rows = np.vstack([rows, draws.integers(-3, 4, (4, rank)) @ rows, np.zeros_like(rows[:1])])
    last = rows[:1].copy()
    last[0, draws.integers(cells)] += 1
    rows = draws.permutation(np.vstack([rows, last, 2 * rows[:2]])).astype(np.int64)
    if seed % 2:
        rows *= 10**8  # relations between such rows fit no float
    found = row_basis(rows)
    assert len(found) == np.linalg.matrix_rank(rows.astype(float))
    assert len(found) == np.linalg.matrix_rank(np.vstack([rows, found]).astype(float))


def test_a_single_row_is_measured_as_it_is():
    basis = np.array([[-7, 3, 0, 5]])
    strategy = Triangular(np.array([[0.3]]), basis)
    for bits in (1, 3, 10, 40):
        matrix = round_strategy(strategy, bits)
        times = matrix[0, 1] // 3
        assert (matrix == times * basis).all()
        assert times == 1 or 7 * times <= 1 << bits < 7 * (times + 1)


@pytest.mark.parametrize("cells", [40, 90])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_rounded_does_not_follow_the_order_of_sums(seed, cells):
    """Turned rows have the same Gram matrix, and other last digits, as on another processor."""
    draws = np.random.default_rng(seed)
    asked = np.vstack([np.tril(np.ones((cells, cells))), 0.1 * np.eye(cells)])
    rows = np.linalg.qr(asked, mode="r")
    turned = np.linalg.qr(draws.normal(size=(cells, cells)))[0] @ rows
    delta = np.maximum(draws.dirichlet(np.full(cells, 0.5)), 1e-6)
    found = []
    for q in (rows, turned):
        point = evaluate(Dual(cells, (QueryPart(q, None),)), delta / delta.sum())
        assert np.allclose(point.root.T @ point.root, point.roots[0].T @ point.roots[0], atol=1e-8)
        found.append(over_basis(point.root, np.eye(cells, dtype=np.int64)).coefficients)
    # By eigenvectors of the Gram matrix they are apart by 2e-12 to 4e-10.
    assert np.abs(found[0] - found[1]).max() < 5e-13 * np.abs(found[0]).max()
