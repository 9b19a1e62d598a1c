"""The SVD bound: equal to singular values where it says so, never above what is possible."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from dpsql.planner import comparison as bound_module
from dpsql.planner.comparison import svd_bound
from dpsql.planner.mechanisms import querysmasher
from dpsql.privacy import Budget
from dpsql.workload import AllRange, CircularRange, Identity, Matrix, Prefix, Ranges, Workload
from tests.oracle import family_matrix


def all_pairs(factors, domain, weight=1.0) -> Workload:
    w = Workload(domain)
    for names in combinations(domain, 2):
        w.add(list(names), [factors[a] for a in names], weight=weight)
    return w


SIZES = {"a": 6, "b": 4, "c": 5}
MARGINALS = all_pairs(dict.fromkeys(SIZES, Identity()), SIZES).add(["a"], [Identity()], weight=3.0)
CIRCULAR = all_pairs(dict.fromkeys(SIZES, CircularRange()), SIZES).add(["a"], [Identity()])
PRODUCT = Workload(SIZES).add(["a", "c"], [Prefix(), AllRange()], weight=2.0)
SEPARATE = Workload(SIZES)
for names in (["a"], ["a", "b"], ["a", "c"], ["a", "b", "c"]):
    SEPARATE.add(names, [Prefix() if a == "a" else Identity() for a in names])
PREFIXES = all_pairs(dict.fromkeys(SIZES, Prefix()), SIZES).add(["b"], [Prefix()], weight=0.5)
DIFFERENT = Workload(SIZES).add(["a", "b"], [Prefix(), Identity()]).add(["a"], [AllRange()])
DIFFERENT.add(["c"], [Ranges([(0, 2), (1, 3)])]).add([], [])
JOINT = Workload(SIZES).add(["a", "b"], Matrix.affine((6, 4), (1, 1))).add(["a"], [Prefix()])


def singular(workload: Workload) -> float:
    parts = [math.sqrt(f.weight) * family_matrix(f, workload.domain) for f in workload.families]
    matrix = np.vstack(parts)
    return float(np.linalg.svd(matrix, compute_uv=False).sum() ** 2 / matrix.shape[1])


@pytest.fixture(params=[True, False], ids=["whole", "in parts"])
def limit(request, monkeypatch):
    """Also take the way of large domains."""
    if not request.param:
        monkeypatch.setattr(bound_module, "SMALL", 0)


@pytest.mark.parametrize("workload", [MARGINALS, CIRCULAR, PRODUCT, SEPARATE])
def test_it_is_exact_for_products_and_common_eigenspaces(workload, limit):
    found = svd_bound(workload)
    assert found.exact
    assert found.total == pytest.approx(singular(workload), rel=1e-9)


@pytest.mark.parametrize("workload", [PREFIXES, DIFFERENT, JOINT])
def test_otherwise_it_is_below_and_not_far(workload, limit):
    found, whole = svd_bound(workload), singular(workload)
    assert found.total <= whole * (1 + 1e-9)
    assert found.total >= (1 if found.exact else 0.2) * whole * (1 - 1e-9)
    assert found.exact == (found.how == "singular values over all joint cells")


@pytest.mark.parametrize("workload", [MARGINALS, CIRCULAR, PRODUCT, SEPARATE, PREFIXES, DIFFERENT])
def test_the_best_plan_of_all_is_above(workload, limit):
    plan = querysmasher.plan(workload, Budget(mu=1), residuals="none")
    assert svd_bound(workload).at(Budget(mu=1)) <= plan.rmse**2 * workload.count


def test_matrices_are_made_smaller_in_their_order():
    """G − H has no negative eigenvalue, whatever h is tried."""
    for factor in (Prefix(), AllRange(), Ranges([(0, 4), (3, 8), (2, 2)])):
        gram = bound_module.gram_of(factor.bind(9))
        basis = bound_module._basis_with_ones(9)
        np.testing.assert_allclose(basis.T @ basis, np.eye(9), atol=1e-12)
        np.testing.assert_allclose(basis[:, 0], np.full(9, 1 / 3))
        turned = basis.T @ gram.matrix @ basis
        g, c, across = turned[0, 0], turned[1:, 0], turned[1:, 1:]
        for kept in bound_module.KEPT:
            axis = bound_module._Turned.of(gram).axis(kept)
            smaller = np.zeros((9, 9))
            smaller[0, 0] = axis.at_ones
            smaller[1:, 1:] = across - np.outer(c, c) / (g - axis.at_ones)
            assert np.linalg.eigvalsh(turned - smaller)[0] >= -1e-9 * np.trace(gram.matrix)
            assert np.linalg.eigvalsh(smaller)[0] >= -1e-9 * np.trace(gram.matrix)
            expected = np.sort(np.linalg.eigvalsh(smaller[1:, 1:]))
            np.testing.assert_allclose(
                np.sort(axis.across), expected, atol=1e-9 * np.trace(gram.matrix)
            )


def test_it_follows_the_budget():
    found = svd_bound(MARGINALS)
    assert found.at(Budget(mu=2)) == pytest.approx(found.total / 4)
    assert found.at(Budget(mu=2), 3) == pytest.approx(found.total * 9 / 4)
    # Far from rounding, noise of scale b has the variance 2b².
    small = Budget(epsilon=0.001, delta=0)
    assert found.at(small) == pytest.approx(2e6 * found.total, rel=1e-6)
    assert found.at(small, 2) == pytest.approx(8e6 * found.total, rel=1e-6)


def test_discrete_laplace_noise_on_cells_is_not_below():
    """One cell, measured once by noise of scale 1/ε = 1: nothing is left to gain."""
    w = Workload({"a": 1}).add(["a"], [Identity()])
    variance = sum(
        z * z * math.exp(-abs(z)) * (math.e - 1) / (math.e + 1) for z in range(-400, 401)
    )
    assert svd_bound(w).at(Budget(epsilon=1, delta=0)) == pytest.approx(variance, rel=1e-12)


def test_large_workloads_are_bounded_quickly_and_in_little_memory():
    domain = {f"a{i}": 10**6 for i in range(30)}
    w = Workload(domain)
    for name in domain:
        w.add([name], [Identity()])
    w.add(["a0"], [Ranges([(0, 10), (5, 900_000)])])
    found = svd_bound(w)
    assert not found.exact
    assert found.total >= 30 * 10**6


def test_nothing_asked_needs_nothing():
    assert svd_bound(Workload({"a": 3})).total == 0.0


def test_sums_of_values_around_zero():
    """Along the ones they are zero, which floats made just negative: two averages by group."""
    values = np.append(180.0 - np.arange(361), 0.0)
    workload = Workload({"g": 16, "x": 362, "y": 362})
    for name in ("x", "y"):
        workload.add(["g", name], [Identity(), Matrix(values[None])], 6e-5)
        workload.add(["g", name], [Identity(), Ranges([(0, 360)])], 2.0)
    assert svd_bound(workload).at(Budget(mu=1), 1) > 0
